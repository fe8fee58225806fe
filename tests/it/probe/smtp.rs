//! SMTP sessions with servers that follow a script, and with one from Python.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use haledns::health::Outcome;
use haledns::model::{Check, SmtpCheck, SmtpSession, TlsCheck};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio_rustls::TlsAcceptor;

use super::{LONG, Probe, SHORT, told};
use crate::support::certificates::{Authority, Identity};
use crate::support::folder::Folder;
use crate::support::hale::until;
use crate::support::programs::need;
use crate::support::server::{Ending, Server, Step, tls_config};

fn check(session: SmtpSession) -> SmtpCheck {
    SmtpCheck { port: None, hello: String::new(), session, tls: TlsCheck::default() }
}

fn probe(to: SocketAddr, check: SmtpCheck) -> Probe {
    Probe::new(to, Check::Smtp(check))
}

/// What is said first, then an answer to each line; then it listens.
fn script(replies: &[&str]) -> Vec<Step> {
    let mut steps = Vec::new();
    for (number, reply) in replies.iter().enumerate() {
        if number > 0 {
            steps.push(Step::Line);
        }
        steps.push(Step::Write(reply.as_bytes().to_vec()));
    }
    steps
}

async fn plain(replies: &[&str]) -> (Outcome, String) {
    let server = Server::start(script(replies)).await;
    let outcome = probe(server.address, check(SmtpSession::Plain)).run().await;
    let seen = server.ended(1).await;
    assert_eq!(seen[0].ending, Some(Ending::Closed), "{replies:?}");
    (outcome, seen[0].received.clone())
}

const GREETING: &str = "220 mail.example.com ESMTP\r\n";
const BYE: &str = "221 bye\r\n";

#[tokio::test]
async fn a_session_that_sends_no_mail_passes() {
    let hello = "250-mail.example.com\r\n250-SIZE 1000\r\n250 HELP\r\n";
    let (outcome, said) =
        plain(&["220-mail.example.com ESMTP\r\n220-be patient\r\n220 now\r\n", hello, BYE]).await;
    assert_eq!(told(&outcome), "221 pass");
    assert_eq!(said, "EHLO [127.0.0.1]\r\nQUIT\r\n");
    assert!(outcome.evidence.said.starts_with(b"220-mail.example.com ESMTP"));
}

#[tokio::test]
async fn the_probe_calls_itself_what_the_monitor_says() {
    let server = Server::start(script(&[GREETING, "250 hello\r\n", BYE])).await;
    let check = SmtpCheck { hello: "probe.example.com".into(), ..check(SmtpSession::Plain) };
    assert_eq!(told(&probe(server.address, check).run().await), "221 pass");
    assert_eq!(server.ended(1).await[0].received, "EHLO probe.example.com\r\nQUIT\r\n");
}

#[tokio::test]
async fn helo_follows_where_ehlo_is_not_known() {
    let (outcome, said) = plain(&[GREETING, "502 what?\r\n", "250 mail.example.com\r\n", BYE]).await;
    assert_eq!(told(&outcome), "221 pass");
    assert_eq!(said, "EHLO [127.0.0.1]\r\nHELO [127.0.0.1]\r\nQUIT\r\n");
}

#[tokio::test]
async fn a_server_may_close_instead_of_saying_goodbye() {
    let (outcome, _) = plain(&[GREETING, "250 hello\r\n", ""]).await;
    assert_eq!(told(&outcome), "250 pass");
    let reset = [script(&[GREETING, "250 hello\r\n", ""]), vec![Step::Reset]].concat();
    let server = Server::start(reset).await;
    assert_eq!(told(&probe(server.address, check(SmtpSession::Plain)).run().await), "250 pass");
}

#[tokio::test]
async fn a_rejection_is_told_with_its_code_and_left_with_quit() {
    for (replies, result) in [
        (&["554 no SMTP service here\r\n"][..], "554 SmtpInvalidResponse greeting_rejected"),
        (&["421 too busy\r\n"], "421 SmtpInvalidResponse greeting_rejected"),
        (&["250 hello already\r\n"], "250 SmtpInvalidResponse greeting_rejected"),
        (&[GREETING, "421 shutting down\r\n"], "421 SmtpInvalidResponse hello_rejected"),
        (&[GREETING, "550 no\r\n", "550 no\r\n"], "550 SmtpInvalidResponse hello_rejected"),
        (&[GREETING, "251 odd\r\n"], "251 SmtpInvalidResponse hello_rejected"),
        (&[GREETING, "250 hello\r\n", "500 what?\r\n"], "500 SmtpInvalidResponse quit_rejected"),
    ] {
        let (outcome, said) = plain(replies).await;
        assert_eq!(told(&outcome), result, "{replies:?}");
        assert!(said.ends_with("QUIT\r\n"), "{replies:?}: {said}");
    }
}

#[tokio::test]
async fn what_is_no_reply_is_malformed() {
    let long = format!("220 {}\r\n", "x".repeat(2048));
    let many = "220-more\r\n".repeat(100) + "220 end\r\n";
    for replies in [
        &["SSH-2.0-OpenSSH_9.2\r\n"][..],
        &["HTTP/1.1 400 Bad Request\r\n\r\n"],
        &["220-mail\r\n250 end\r\n"],
        &["\r\n"],
        &["2200 x\r\n"],
        &[&long],
        &[&many],
    ] {
        let (outcome, _) = plain(replies).await;
        assert_eq!(told(&outcome), "- SmtpInvalidResponse malformed_reply", "{replies:?}");
    }
    let server = Server::start(vec![Step::Endless(b"220-on and on\r\n".to_vec())]).await;
    let outcome = probe(server.address, check(SmtpSession::Plain)).run().await;
    assert_eq!(told(&outcome), "- SmtpInvalidResponse malformed_reply");
    assert!(outcome.took < LONG);
}

#[tokio::test]
async fn a_server_that_hangs_up_or_hangs_fails() {
    for (replies, result) in [
        (&[""][..], "- SmtpInvalidResponse closed_early"),
        (&["220-mail\r\n"], "- SmtpInvalidResponse closed_early"),
        (&[GREETING, "250-mail\r\n"], "220 SmtpInvalidResponse closed_early"),
    ] {
        let (outcome, _) = plain(replies).await;
        assert_eq!(told(&outcome), result, "{replies:?}");
    }
    for (replies, result) in [
        (&[""][..], "- SmtpTimeout response_timeout"),
        (&["220 no end"], "- SmtpTimeout response_timeout"),
        (&[GREETING, ""], "220 SmtpTimeout response_timeout"),
        (&[GREETING, "250 hello\r\n", ""], "250 SmtpTimeout response_timeout"),
    ] {
        let server = Server::start([script(replies), vec![Step::Hold]].concat()).await;
        let outcome = probe(server.address, check(SmtpSession::Plain)).within(SHORT).run().await;
        assert_eq!(told(&outcome), result, "{replies:?}");
    }
}

#[tokio::test]
async fn tls_comes_first_where_the_monitor_says_so() {
    let authority = Authority::new();
    let identity = authority.issue(&["mail.example.com"], 2020, 2100);
    let server = Server::tls(identity, script(&[GREETING, "250 hello\r\n", BYE])).await;
    let mut check = check(SmtpSession::Tls);
    check.tls.extra_roots = authority.roots();
    let outcome = probe(server.address, check.clone()).host("mail.example.com").run().await;
    assert_eq!(told(&outcome), "221 pass");
    assert!(outcome.evidence.tls.is_some() && outcome.evidence.certificate_until.is_some());
    let seen = server.ended(1).await;
    assert_eq!((seen[0].sni.as_deref(), seen[0].ending), (Some("mail.example.com"), Some(Ending::Closed)));
    let outcome = probe(server.address, check).host("other.example.com").run().await;
    assert_eq!(told(&outcome), "- TlsNameMismatch name_mismatch");
}

/// Offers STARTTLS and speaks TLS after it; `before` comes in the clear
/// behind the reply. Gives all commands.
async fn starttls(identity: Identity, before: &str) -> (SocketAddr, tokio::task::JoinHandle<Vec<String>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let ready = format!("220 go\r\n{before}");
    let task = tokio::spawn(async move {
        let mut heard = Vec::new();
        let mut stream = BufReader::new(listener.accept().await.unwrap().0);
        stream.write_all(GREETING.as_bytes()).await.unwrap();
        for reply in ["250-mail\r\n250 starttls\r\n", &ready] {
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            heard.push(line);
            stream.write_all(reply.as_bytes()).await.unwrap();
        }
        let acceptor = TlsAcceptor::from(Arc::new(tls_config(identity, None, &[])));
        let Ok(stream) = acceptor.accept(stream.into_inner()).await else { return heard };
        let mut stream = BufReader::new(stream);
        for reply in ["250 mail\r\n", BYE] {
            let mut line = String::new();
            if !stream.read_line(&mut line).await.is_ok_and(|length| length > 0) {
                return heard;
            }
            heard.push(line);
            stream.write_all(reply.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
        }
        let _ = stream.shutdown().await; // the client may be gone
        heard
    });
    (address, task)
}

#[tokio::test]
async fn starttls_is_asked_for_and_everything_said_anew_in_tls() {
    let authority = Authority::new();
    let (address, heard) = starttls(authority.issue(&["127.0.0.1"], 2020, 2100), "").await;
    let mut check = check(SmtpSession::StartTls);
    check.tls.extra_roots = authority.roots();
    let outcome = probe(address, check.clone()).run().await;
    assert_eq!(told(&outcome), "221 pass");
    assert!(outcome.evidence.connected <= outcome.evidence.tls, "{:?}", outcome.evidence);
    let hello = "EHLO [127.0.0.1]\r\n";
    assert_eq!(heard.await.unwrap(), [hello, "STARTTLS\r\n", hello, "QUIT\r\n"]);

    let (address, _heard) = starttls(authority.issue(&["127.0.0.1"], 2010, 2011), "").await;
    let outcome = probe(address, check).run().await;
    assert_eq!(told(&outcome), "220 TlsUntrustedCertificate certificate_expired");
}

#[tokio::test]
async fn words_in_the_clear_behind_the_reply_are_not_taken_for_words_in_tls() {
    let authority = Authority::new();
    let identity = authority.issue(&["127.0.0.1"], 2020, 2100);
    let (address, heard) = starttls(identity, "250 forged\r\n").await;
    let mut check = check(SmtpSession::StartTls);
    check.tls.extra_roots = authority.roots();
    assert_eq!(told(&probe(address, check).run().await), "220 SmtpInvalidResponse malformed_reply");
    assert_eq!(heard.await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_server_without_starttls_fails_where_it_is_asked_for() {
    for (replies, result) in [
        (&[GREETING, "250-mail\r\n250 SIZE\r\n", BYE][..], "250 SmtpInvalidResponse starttls_unavailable"),
        (&[GREETING, "250 STARTTLS is the name\r\n", BYE], "250 SmtpInvalidResponse starttls_unavailable"),
        (&[GREETING, "502 what?\r\n", BYE], "502 SmtpInvalidResponse starttls_unavailable"),
        (&[GREETING, "421 busy\r\n", BYE], "421 SmtpInvalidResponse hello_rejected"),
        (
            &[GREETING, "250-mail\r\n250 STARTTLS\r\n", "454 not now\r\n", BYE],
            "454 SmtpInvalidResponse starttls_unavailable",
        ),
    ] {
        let server = Server::start(script(replies)).await;
        let outcome = probe(server.address, check(SmtpSession::StartTls)).run().await;
        assert_eq!(told(&outcome), result, "{replies:?}");
        assert!(server.ended(1).await[0].received.ends_with("QUIT\r\n"), "{replies:?}");
    }
}

#[tokio::test]
async fn no_tls_where_tls_is_due_is_told() {
    let server = Server::start(vec![Step::Write(GREETING.into()), Step::Hold]).await;
    let outcome = probe(server.address, check(SmtpSession::Tls)).run().await;
    assert_eq!(told(&outcome), "- TlsProtocol not_tls");
}

/// Python's aiosmtpd; runs until dropped.
struct Aiosmtpd(Child);

impl Drop for Aiosmtpd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Aiosmtpd {
    fn start(arguments: &[&str]) -> (Aiosmtpd, SocketAddr) {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new("aiosmtpd");
        command.args(["-n", "-c", "aiosmtpd.handlers.Sink", "-l", &address.to_string()]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Aiosmtpd(command.spawn().unwrap());
        until("aiosmtpd listens", || TcpStream::connect(address).is_ok());
        (server, address)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_server_passes_in_every_kind_of_session() {
    if !need("aiosmtpd") {
        return;
    }
    let authority = Authority::new();
    let identity = authority.issue(&["mail.example.com"], 2020, 2100);
    let folder = Folder::with("certificate.pem", &identity.pem);
    folder.write("key.pem", &rcgen::KeyPair::try_from(&identity.key).unwrap().serialize_pem());
    let file = |name: &str| folder.join(name).display().to_string();
    let (certificate, key) = (file("certificate.pem"), file("key.pem"));
    let tls = TlsCheck {
        extra_roots: authority.roots(),
        server_name: Some("mail.example.com".into()),
        ..TlsCheck::default()
    };
    for (session, arguments) in [
        (SmtpSession::Plain, &[][..]),
        (SmtpSession::StartTls, &["--tlscert", &certificate, "--tlskey", &key]),
        (SmtpSession::Tls, &["--smtpscert", &certificate, "--smtpskey", &key]),
    ] {
        let (_server, address) = Aiosmtpd::start(arguments);
        let outcome = probe(address, SmtpCheck { tls: tls.clone(), ..check(session) }).run().await;
        assert_eq!(told(&outcome), "221 pass", "{session:?}");
        if session == SmtpSession::Plain {
            let outcome = probe(address, check(SmtpSession::StartTls)).run().await;
            assert_eq!(told(&outcome), "250 SmtpInvalidResponse starttls_unavailable");
        }
    }
}
