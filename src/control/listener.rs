//! The server's end of the socket.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::{Answer, MAX_LINE, Operator, Refusal, Request};

/// So many clients at once; a further one takes the place of the longest silent
/// one, and is refused if all of them are being answered.
const CONNECTIONS: usize = 32;

/// A client that says nothing for so long is let go.
const SILENCE: Duration = Duration::from_secs(30);

/// A client that doesn't read its answer for so long is let go.
const UNREAD: Duration = Duration::from_secs(10);

/// A socket that operators connect to; its file goes with it.
#[derive(Debug)]
pub struct Listener {
    path: PathBuf,
    /// Device and inode of the socket's file.
    file: (u64, u64),
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
        let file = identity(path)?;
        Ok(Listener { path: path.to_owned(), file, listener })
    }

    /// Lets `operator` answer all who come.
    pub async fn run<O: Operator>(self, operator: Arc<O>) -> Infallible {
        let clients = Arc::new(Mutex::new(Clients::default()));
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                sleep(Duration::from_millis(100)).await; // no descriptor left: others will end
                continue;
            };
            let Some(id) = clients.lock().place() else {
                let why = format!("{CONNECTIONS} clients are connected already");
                let refusal = line(&Answer::Refused(Refusal::new("busy", why)));
                let _ = stream.try_write(refusal.as_bytes()); // a fresh socket has room for a line
                continue;
            };
            let (operator, place) = (Arc::clone(&operator), Place { id, clients: Arc::clone(&clients) });
            let task = tokio::spawn(async move { converse(stream, &*operator, &place).await });
            if let Some(client) = clients.lock().known.get_mut(&id) {
                client.task = Some(task.abort_handle());
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // another server may have put its own there, in a directory made anew
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            let _ = fs::remove_file(&self.path); // the next start would do it
        }
    }
}

/// Device and inode of what is at a path.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|data| (data.dev(), data.ino()))
}

/// Who is connected.
#[derive(Debug, Default)]
struct Clients {
    last: u64,
    known: HashMap<u64, Client>,
}

#[derive(Debug)]
struct Client {
    /// None until it runs.
    task: Option<AbortHandle>,
    /// It has been answered before.
    has_asked: bool,
    /// Since when it says nothing; none while it is answered.
    silent: Option<Instant>,
}

impl Clients {
    /// A place for one more client; when all are taken, that of the longest
    /// silent one, those that never asked anything first.
    fn place(&mut self) -> Option<u64> {
        if self.known.len() >= CONNECTIONS {
            let silent = self.known.iter().filter_map(|(id, client)| {
                Some((client.has_asked, client.silent?, *id)).filter(|_| client.task.is_some())
            });
            let (_, _, id) = silent.min()?;
            if let Some(task) = self.known.remove(&id).and_then(|client| client.task) {
                task.abort();
            }
        }
        self.last += 1;
        let fresh = Client { task: None, has_asked: false, silent: Some(Instant::now()) };
        self.known.insert(self.last, fresh);
        Some(self.last)
    }
}

/// A client's place, given back when dropped.
struct Place {
    id: u64,
    clients: Arc<Mutex<Clients>>,
}

impl Place {
    fn note(&self, silent: Option<Instant>) {
        if let Some(client) = self.clients.lock().known.get_mut(&self.id) {
            client.has_asked |= silent.is_none();
            client.silent = silent;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.clients.lock().known.remove(&self.id);
    }
}

/// Answers one client until it goes, or is too slow.
async fn converse(stream: UnixStream, operator: &impl Operator, place: &Place) {
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
        place.note(None);
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
        place.note(Some(Instant::now()));
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

    #[tokio::test]
    async fn a_socket_that_another_server_put_there_stays() {
        let path = std::env::temp_dir().join(format!("hale-listener-{}", std::process::id()));
        let first = Listener::bind(&path).unwrap();
        let second = Listener::bind(&path).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn a_user_is_found_by_number() {
        let users = "root:x:0:0:root:/root:/bin/bash\n\nodd\nalice:x:1000:1000::/home/alice:/bin/sh\n";
        assert_eq!(name_of(0, users), Some("root"));
        assert_eq!(name_of(1000, users), Some("alice"));
        assert_eq!(name_of(1, users), None);
    }
}
