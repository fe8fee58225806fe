//! SMTP sessions that send no mail (RFC 5321).
//!
//! One command at a time: a server need not know of pipelining.

use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::tls::{Alpn, server_name};
use super::{Failure, Phase, Progress, connect, talk, tls};
use crate::health::{ProbeTask, Reason};
use crate::model::{SmtpCheck, SmtpSession};

/// The longest line; RFC 5321 §4.5.3.1.5 lets it have 512 octets.
const MAX_LINE: usize = 2048;
/// The most lines of one reply.
const MAX_LINES: usize = 100;
/// How much of what a server still says after a failure is read.
const MAX_REST: usize = 16 * 1024;

/// Greets and is greeted, in TLS if told to, and says QUIT.
pub(super) async fn probe(
    configs: &tls::Configs,
    task: &ProbeTask,
    check: &SmtpCheck,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let stream = connect::connect(SocketAddr::new(task.address, task.port), task.source()).await?;
    let hello = match check.hello.as_str() {
        "" => address_literal(stream.local_addr().map(|end| end.ip()).unwrap_or(task.address)),
        hello => hello.to_owned(),
    };
    match check.session {
        SmtpSession::Plain => {
            progress.enter(Phase::Response);
            converse(Session::new(stream), Begin::Greeting, &hello, progress).await
        }
        SmtpSession::Tls => {
            progress.enter(Phase::Tls);
            let stream = shake_hands(configs, task, check, stream, progress).await?;
            converse(Session::new(stream), Begin::Greeting, &hello, progress).await
        }
        SmtpSession::StartTls => {
            progress.enter(Phase::Response);
            let mut session = Session::new(stream);
            if let Err(failure) = session.ask_for_tls(&hello, progress).await {
                return session.give_up(failure, progress).await;
            }
            // What came in the clear after the reply would be taken for the server's words.
            if !session.heard.is_empty() {
                return Err(MALFORMED);
            }
            progress.phase = Phase::Tls;
            let stream = shake_hands(configs, task, check, session.stream, progress).await?;
            converse(Session::new(stream), Begin::Hello, &hello, progress).await
        }
    }
}

const MALFORMED: Failure = Failure::Failed(Reason::SmtpInvalidResponse, "malformed_reply");
const CLOSED_EARLY: Failure = Failure::Failed(Reason::SmtpInvalidResponse, "closed_early");
const GREETING_REJECTED: Failure = Failure::Failed(Reason::SmtpInvalidResponse, "greeting_rejected");
const HELLO_REJECTED: Failure = Failure::Failed(Reason::SmtpInvalidResponse, "hello_rejected");
const STARTTLS_UNAVAILABLE: Failure = Failure::Failed(Reason::SmtpInvalidResponse, "starttls_unavailable");
const QUIT_REJECTED: Failure = Failure::Failed(Reason::SmtpInvalidResponse, "quit_rejected");

/// The name of an end that has none (RFC 5321 §4.1.3).
fn address_literal(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => format!("[{address}]"),
        IpAddr::V6(address) => format!("[IPv6:{address}]"),
    }
}

async fn shake_hands(
    configs: &tls::Configs,
    task: &ProbeTask,
    check: &SmtpCheck,
    stream: TcpStream,
    progress: &mut Progress,
) -> Result<TlsStream<TcpStream>, Failure> {
    let rules = Some(&check.tls);
    let name = server_name(task, rules, None);
    let stream = configs.handshake(stream, rules, &name, Alpn::None, progress).await?;
    progress.enter(Phase::Response);
    Ok(stream)
}

/// What is said first.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Begin {
    /// The server's greeting.
    Greeting,
    /// Our EHLO: the server has greeted before TLS.
    Hello,
}

/// A whole session on a connection that stays as it is.
async fn converse<S>(
    mut session: Session<S>,
    begin: Begin,
    hello: &str,
    progress: &mut Progress,
) -> Result<(), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let verdict = async {
        if begin == Begin::Greeting {
            session.greeting(progress).await?;
        }
        session.hello(hello, progress).await?;
        session.quit(progress).await
    };
    match verdict.await {
        Ok(()) => {
            progress.found = Some(Ok(()));
            talk::part(&mut session.stream, MAX_REST, progress).await;
            Ok(())
        }
        Err(failure) => session.give_up(failure, progress).await,
    }
}

/// A connection and what has come over it and isn't read yet.
struct Session<S> {
    stream: S,
    heard: Vec<u8>,
}

/// A reply of one or more lines.
struct Reply {
    code: u16,
    /// A line after the first begins with STARTTLS.
    starttls: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    fn new(stream: S) -> Session<S> {
        Session { stream, heard: Vec::new() }
    }

    async fn greeting(&mut self, progress: &mut Progress) -> Result<(), Failure> {
        match self.reply(progress).await?.code {
            220 => Ok(()),
            _ => Err(GREETING_REJECTED),
        }
    }

    /// EHLO, or HELO where that isn't known.
    async fn hello(&mut self, hello: &str, progress: &mut Progress) -> Result<(), Failure> {
        let mut code = self.command(&format!("EHLO {hello}"), progress).await?.code;
        if (500..600).contains(&code) {
            code = self.command(&format!("HELO {hello}"), progress).await?.code;
        }
        if code == 250 { Ok(()) } else { Err(HELLO_REJECTED) }
    }

    /// Everything up to the reply after which TLS begins (RFC 3207 §4).
    async fn ask_for_tls(&mut self, hello: &str, progress: &mut Progress) -> Result<(), Failure> {
        self.greeting(progress).await?;
        let offer = self.command(&format!("EHLO {hello}"), progress).await?;
        match (offer.code, offer.starttls) {
            (250, true) => {}
            (250, false) | (500 | 502, _) => return Err(STARTTLS_UNAVAILABLE),
            _ => return Err(HELLO_REJECTED),
        }
        match self.command("STARTTLS", progress).await?.code {
            220 => Ok(()),
            _ => Err(STARTTLS_UNAVAILABLE),
        }
    }

    /// Some servers close without the reply that is due.
    async fn quit(&mut self, progress: &mut Progress) -> Result<(), Failure> {
        match self.command("QUIT", progress).await {
            Ok(Reply { code: 221, .. }) => Ok(()),
            Ok(_) => Err(QUIT_REJECTED),
            Err(CLOSED_EARLY | Failure::Failed(Reason::ConnectionReset, _)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Takes leave with the failure standing.
    async fn give_up(mut self, failure: Failure, progress: &mut Progress) -> Result<(), Failure> {
        progress.found = Some(Err(failure));
        if matches!(failure, Failure::Failed(Reason::SmtpInvalidResponse, _)) {
            let _ = talk::say(&mut self.stream, b"QUIT\r\n").await; // the verdict stands
        }
        talk::part(&mut self.stream, MAX_REST, progress).await;
        Err(failure)
    }

    async fn command(&mut self, command: &str, progress: &mut Progress) -> Result<Reply, Failure> {
        talk::say(&mut self.stream, format!("{command}\r\n").as_bytes()).await?;
        self.reply(progress).await
    }

    async fn reply(&mut self, progress: &mut Progress) -> Result<Reply, Failure> {
        let mut reply: Option<Reply> = None;
        for _ in 0..MAX_LINES {
            let line = self.line(progress).await?;
            let (code, last, text) = reply_line(&line).ok_or(MALFORMED)?;
            let starttls = match &reply {
                Some(reply) if reply.code != code => return Err(MALFORMED),
                Some(reply) => reply.starttls || is_starttls(text),
                None => false, // the first line has the server's name
            };
            if last {
                progress.status = Some(code);
                return Ok(Reply { code, starttls });
            }
            reply = Some(Reply { code, starttls });
        }
        Err(MALFORMED)
    }

    /// The next line, without its end.
    async fn line(&mut self, progress: &mut Progress) -> Result<Vec<u8>, Failure> {
        let mut looked_at = 0;
        loop {
            let end = self.heard[looked_at..].iter().position(|octet| *octet == b'\n');
            if let Some(end) = end.map(|end| looked_at + end).filter(|end| *end < MAX_LINE) {
                let mut line: Vec<u8> = self.heard.drain(..=end).collect();
                line.truncate(line.trim_ascii_end().len());
                return Ok(line);
            }
            looked_at = self.heard.len();
            if looked_at >= MAX_LINE {
                return Err(MALFORMED);
            }
            let mut buffer = [0; 1024];
            match talk::listen(&mut self.stream, &mut buffer, progress).await? {
                0 => return Err(CLOSED_EARLY),
                length => self.heard.extend_from_slice(&buffer[..length]),
            }
        }
    }
}

/// Code, whether it is the reply's last, and text of a line (RFC 5321 §4.2).
fn reply_line(line: &[u8]) -> Option<(u16, bool, &[u8])> {
    let ([a @ b'2'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9'], rest) = line.split_first_chunk()? else {
        return None;
    };
    let code = [a, b, c].iter().fold(0, |code, digit| code * 10 + u16::from(*digit - b'0'));
    match rest {
        [] => Some((code, true, rest)),
        [b' ', text @ ..] => Some((code, true, text)),
        [b'-', text @ ..] => Some((code, false, text)),
        _ => None,
    }
}

fn is_starttls(text: &[u8]) -> bool {
    text.split(|octet| *octet == b' ').next().is_some_and(|word| word.eq_ignore_ascii_case(b"STARTTLS"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_reply_has_a_code() {
        for (line, read) in [
            ("220 mail.example.com ESMTP", Some((220, true, "mail.example.com ESMTP"))),
            ("250-STARTTLS", Some((250, false, "STARTTLS"))),
            ("250", Some((250, true, ""))),
            ("250 ", Some((250, true, ""))),
            ("554-", Some((554, false, ""))),
            ("199 x", None),
            ("600 x", None),
            ("25", None),
            ("2500", None),
            ("250_x", None),
            (" 250 x", None),
            ("HTTP/1.1 400 Bad Request", None),
            ("", None),
        ] {
            let found = reply_line(line.as_bytes());
            assert_eq!(found, read.map(|(code, last, text)| (code, last, text.as_bytes())), "{line:?}");
        }
    }

    #[test]
    fn an_extension_is_the_first_word_of_its_line() {
        for (text, offered) in [
            ("STARTTLS", true),
            ("starttls", true),
            ("STARTTLS REQUIRED", true),
            ("STARTTLSX", false),
            ("AUTH STARTTLS", false),
            ("", false),
        ] {
            assert_eq!(is_starttls(text.as_bytes()), offered, "{text:?}");
        }
    }

    #[test]
    fn an_end_without_a_name_is_an_address_literal() {
        for (address, literal) in [("192.0.2.1", "[192.0.2.1]"), ("2001:db8::1", "[IPv6:2001:db8::1]")] {
            assert_eq!(address_literal(address.parse().unwrap()), literal);
        }
    }
}
