//! The server's end of the socket.

use std::convert::Infallible;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::{Answer, MAX_LINE, Operator, Refusal, Request};

/// So many clients at once; further ones are told so.
const CONNECTIONS: usize = 32;

/// A client that says nothing for so long is let go.
const SILENCE: Duration = Duration::from_secs(30);

/// A client that doesn't read its answer for so long is let go.
const UNREAD: Duration = Duration::from_secs(10);

/// A socket that operators connect to; its file goes with it.
#[derive(Debug)]
pub struct Listener {
    path: PathBuf,
    listener: UnixListener,
}

impl Listener {
    /// Listens at `path`, inside a runtime. A socket that a former run left
    /// there is removed: the caller holds the directory's lock.
    pub fn bind(path: &Path) -> io::Result<Listener> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
        // Linux gives the file the mode that the socket has when it is bound
        let socket = File::from(OwnedFd::from(socket));
        socket.set_permissions(Permissions::from_mode(0o600))?;
        let socket = Socket::from(OwnedFd::from(socket));
        socket.bind(&SockAddr::unix(path)?)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        socket.listen(CONNECTIONS as i32)?;
        let listener = UnixListener::from_std(StdListener::from(OwnedFd::from(socket)))?;
        Ok(Listener { path: path.to_owned(), listener })
    }

    /// Lets `operator` answer all who come.
    pub async fn run<O: Operator>(self, operator: Arc<O>) -> Infallible {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                sleep(Duration::from_millis(100)).await; // no descriptor left: others will end
                continue;
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                let why = format!("{CONNECTIONS} clients are connected already");
                let refusal = line(&Answer::Refused(Refusal::new("busy", why)));
                let _ = stream.try_write(refusal.as_bytes()); // a fresh socket has room for a line
                continue;
            };
            let operator = Arc::clone(&operator);
            tokio::spawn(async move {
                let _place = place;
                converse(stream, &*operator).await;
            });
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path); // the next start would do it
    }
}

/// Answers one client until it goes, or is too slow.
async fn converse(stream: UnixStream, operator: &impl Operator) {
    let by = user_at(&stream);
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut octets = Vec::new();
        let mut bounded = (&mut reader).take(MAX_LINE as u64 + 1);
        match timeout(SILENCE, bounded.read_until(b'\n', &mut octets)).await {
            Ok(Ok(1..)) => {}
            _ => return,
        }
        let too_long = octets.len() > MAX_LINE && !octets.ends_with(b"\n");
        let request = match too_long {
            true => Err(format!("a line has at most {MAX_LINE} octets")),
            false => serde_json::from_slice::<Request>(&octets).map_err(|error| error.to_string()),
        };
        let answer = match request {
            Ok(request) => operator.carry_out(request, Arc::clone(&by)).await,
            Err(why) => Answer::Refused(Refusal::new("bad_request", format!("not understood: {why}"))),
        };
        if !write(&mut writer, &answer).await || too_long {
            return;
        }
    }
}

/// Tells whether the client has taken it.
async fn write(writer: &mut OwnedWriteHalf, answer: &Answer) -> bool {
    let line = line(answer);
    // by parts: a client is slow when it takes nothing, not when there is much to take
    for part in line.as_bytes().chunks(64 << 10) {
        match timeout(UNREAD, writer.write_all(part)).await {
            Ok(Ok(())) => {}
            _ => return false,
        }
    }
    true
}

fn line(answer: &Answer) -> String {
    serde_json::to_string(answer).expect("plain texts and numbers") + "\n"
}

/// Who is at the other end: a user's name, or number.
fn user_at(stream: &UnixStream) -> Arc<str> {
    let Ok(user) = stream.peer_cred().map(|peer| peer.uid()) else { return "somebody".into() };
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    name_of(user, &users).map_or_else(|| user.to_string().into(), Arc::from)
}

fn name_of(user: u32, passwd: &str) -> Option<&str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_number() {
        let users = "root:x:0:0:root:/root:/bin/bash\n\nodd\nalice:x:1000:1000::/home/alice:/bin/sh\n";
        assert_eq!(name_of(0, users), Some("root"));
        assert_eq!(name_of(1000, users), Some("alice"));
        assert_eq!(name_of(1, users), None);
    }
}
