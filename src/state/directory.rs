//! The directory itself: where it is, whose it is, what was left in it.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::{info, warn};

use super::{JOURNAL, format};
use crate::health::Memory;
use crate::moment;
use crate::os::{self, read_regular};

/// The file whose lock is held.
const LOCK: &str = "lock";

/// The file with the secret that server cookies are made of.
const COOKIE_SECRET: &str = "cookie-secret";

/// So many files that could not be read are kept.
const SET_ASIDE: usize = 3;

/// A larger journal is none of ours.
const MAX_JOURNAL: u64 = 1 << 30;

/// A state directory that is this process's own while the value lives.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    lock: Mutex<File>,
    /// Tells when it was taken anew.
    taken: watch::Sender<()>,
}

/// Why a directory can't be had.
#[derive(Debug)]
pub enum OpenError {
    /// Another server uses it.
    Held {
        path: PathBuf,
        pid: Option<u32>,
    },
    Unusable {
        path: PathBuf,
        error: io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Held { path, pid } => {
                write!(f, "the state directory {} is held by another hale", path.display())?;
                pid.map_or(Ok(()), |pid| write!(f, ", pid {pid}"))?;
                f.write_str("; give this one its own with `state_dir` under `server:`, or with --state-dir")
            }
            OpenError::Unusable { path, error } => {
                write!(f, "the state directory {} can't be used: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for OpenError {}

/// Where a server keeps its state when nobody says: what systemd gives, else
/// the user's state directory (XDG). None: there is no home either.
pub fn default_path() -> Option<PathBuf> {
    default_of(|name| std::env::var_os(name))
}

fn default_of(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    if let Some(given) = set("STATE_DIRECTORY") {
        return std::env::split_paths(&given).next(); // several have colons between
    }
    let absolute = |name| set(name).map(PathBuf::from).filter(|path| path.is_absolute());
    match absolute("XDG_STATE_HOME") {
        Some(home) => Some(home.join("hale")),
        None => Some(absolute("HOME")?.join(".local/state/hale")),
    }
}

/// Where a server's state may be when nobody says: the default, and where
/// systemd has that of a unit with `StateDirectory=hale`.
pub fn candidates() -> Vec<PathBuf> {
    default_path().into_iter().chain([PathBuf::from("/var/lib/hale")]).collect()
}

impl Directory {
    /// Makes the directory if it is missing, and takes its lock.
    pub fn open(path: &Path) -> Result<Directory, OpenError> {
        let lock = Mutex::new(take(path)?);
        Ok(Directory { path: path.to_owned(), lock, taken: watch::Sender::new(()) })
    }

    /// Whether what is at the path is still what was taken: it may have been
    /// removed, or replaced.
    pub fn is_there(&self) -> bool {
        let Ok(ours) = self.lock.lock().metadata() else { return true };
        match fs::metadata(self.join(LOCK)) {
            Ok(data) => (data.dev(), data.ino()) == (ours.dev(), ours.ino()),
            Err(error) => error.kind() != io::ErrorKind::NotFound, // others show nothing
        }
    }

    /// Takes what is at the path now, made anew if need be.
    pub fn retake(&self) -> Result<(), OpenError> {
        *self.lock.lock() = take(&self.path)?;
        self.taken.send_replace(());
        Ok(())
    }

    /// Changes whenever it was taken anew.
    pub fn taken(&self) -> watch::Receiver<()> {
        self.taken.subscribe()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The secret that server cookies are made of: of a former run, so that its
    /// cookies stay good, else new.
    pub fn cookie_secret(&self) -> io::Result<[u8; 16]> {
        let path = self.join(COOKIE_SECRET);
        let former = match read_regular(&path, 64) {
            Ok(octets) => hex::<16>(octets.trim_ascii()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if let Some(secret) = former {
            return Ok(secret);
        }
        let secret: [u8; 16] = os::random()?;
        let text: String = secret.iter().map(|octet| format!("{octet:02x}")).collect();
        let new = self.join("cookie-secret.new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        writeln!(file, "{text}").and_then(|()| file.sync_all())?;
        fs::rename(new, path)?;
        Ok(secret)
    }

    /// What a former run has left. What cannot be read is set aside and told.
    pub fn read(&self) -> Memory {
        let path = self.join(JOURNAL);
        let octets = match read_regular(&path, MAX_JOURNAL) {
            Ok(octets) => octets,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Memory::default(),
            Err(error) => {
                let kept = self.set_aside(true); // not inside the macro: it must happen without a log, too
                warn!("{} can't be read: {error}; {kept}", path.display());
                return Memory::default();
            }
        };
        let contents = match format::read(&octets) {
            Ok(contents) => contents,
            Err(why) => {
                let kept = self.set_aside(true);
                warn!(
                    "{} can't be used: {why}; {kept}, and this start knows nothing of former ones",
                    path.display()
                );
                return Memory::default();
            }
        };
        let records = contents.records;
        if contents.damaged > 0 {
            let (damaged, kept) = (contents.damaged, self.set_aside(false));
            warn!(records, damaged, "{} has damaged lines, which are left out; {kept}", path.display());
        }
        if contents.torn {
            info!(records, "the last line of {} was cut off, and is left out", path.display());
        }
        contents.memory
    }

    /// Keeps the journal under another name, moved or in copy; says where.
    fn set_aside(&self, moved: bool) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let time = moment::utc(now).replace(['-', ':'], "");
        let (from, to) = (self.join(JOURNAL), self.join(&format!("{JOURNAL}.bad-{time}")));
        let _ = fs::remove_file(&to); // of a start in the same second
        let kept = if moved { fs::rename(&from, &to) } else { fs::hard_link(&from, &to) };
        self.forget_old_ones();
        match kept {
            Ok(()) => format!("it is kept as {}", to.display()),
            Err(error) => format!("it can't be kept as {}: {error}", to.display()),
        }
    }

    fn forget_old_ones(&self) {
        let prefix = format!("{JOURNAL}.bad-");
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        let named = entries.flatten().map(|entry| entry.file_name());
        let mut aside: Vec<OsString> =
            named.filter(|name| name.as_encoded_bytes().starts_with(prefix.as_bytes())).collect();
        aside.sort();
        for name in &aside[..aside.len().saturating_sub(SET_ASIDE)] {
            let _ = fs::remove_file(self.path.join(name)); // it costs room, and nothing else
        }
    }
}

/// N octets written as hexadecimal digits.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let mut octets = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (octet, pair) in octets.iter_mut().zip(digits.chunks(2)) {
        *octet = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(octets)
}

/// Makes the directory if it is missing, and takes its lock.
fn take(path: &Path) -> Result<File, OpenError> {
    let unusable = |error| OpenError::Unusable { path: path.to_owned(), error };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unusable)?;
    let lock = path.join(LOCK);
    let mut lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(lock)
        .map_err(unusable)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let mut text = String::new();
            let pid = lock.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
            return Err(OpenError::Held { path: path.to_owned(), pid });
        }
        Err(fs::TryLockError::Error(error)) => return Err(unusable(error)),
    }
    // who holds it is for people; that nobody can read it is no reason to go without
    let _ = lock.set_len(0).and_then(|()| lock.rewind());
    let _ = writeln!(lock, "{}", std::process::id());
    // a directory that can be read and not written would be found out later, and by fewer people
    let trial = path.join("trial");
    File::create(&trial).map_err(unusable)?;
    let _ = fs::remove_file(trial);
    Ok(lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_of_cookies_outlives_the_run_and_is_for_nobody_else() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("hale-cookie-{}", std::process::id()));
        let secret = Directory::open(&path).unwrap().cookie_secret().unwrap();
        let again = Directory::open(&path).unwrap().cookie_secret().unwrap();
        let mode = fs::metadata(path.join(COOKIE_SECRET)).unwrap().permissions().mode();
        fs::write(path.join(COOKIE_SECRET), "garbage").unwrap();
        let other = Directory::open(&path).unwrap().cookie_secret().unwrap();
        fs::remove_dir_all(&path).unwrap();
        assert_eq!((again, mode & 0o777), (secret, 0o600));
        assert_ne!(other, secret, "what can't be read is made anew");
    }

    #[test]
    fn the_state_directory_is_systemds_else_the_users() {
        for (variables, path) in [
            (&[("STATE_DIRECTORY", "/var/lib/hale"), ("HOME", "/root")][..], Some("/var/lib/hale")),
            (&[("STATE_DIRECTORY", "/var/lib/a:/var/lib/b")], Some("/var/lib/a")),
            (&[("STATE_DIRECTORY", ""), ("XDG_STATE_HOME", "/x"), ("HOME", "/h")], Some("/x/hale")),
            (&[("XDG_STATE_HOME", "not/absolute"), ("HOME", "/h")], Some("/h/.local/state/hale")),
            (&[("HOME", "/h")], Some("/h/.local/state/hale")),
            (&[("HOME", "")], None),
            (&[], None),
        ] {
            let value = |name: &str| {
                let found = variables.iter().find(|(variable, _)| *variable == name);
                found.map(|(_, value)| OsString::from(value))
            };
            assert_eq!(default_of(value), path.map(PathBuf::from), "{variables:?}");
        }
    }
}
