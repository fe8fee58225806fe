//! Another user for the process, once it has what only root can get.

use std::fmt;
use std::fs::{self, DirBuilder, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use tracing::{info, warn};

use crate::config::Loaded;
use crate::model::{Check, Reach};
use crate::os::{self, Privileged, User};

/// Why the process can't become a user.
#[derive(Debug)]
pub enum UserError {
    Unknown {
        name: String,
    },
    /// The list of users can't be asked.
    Lookup {
        name: String,
        error: io::Error,
    },
    /// Root by whatever name.
    Root {
        name: String,
    },
    /// Only root can become somebody else.
    NotRoot {
        name: String,
    },
    /// The state directory belongs to somebody else.
    State {
        name: String,
        path: PathBuf,
    },
    /// A directory on the way to it is closed.
    Closed {
        name: String,
        path: PathBuf,
        closed: PathBuf,
    },
    Failed {
        name: String,
        error: io::Error,
    },
}

impl fmt::Display for UserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UserError::Unknown { name } => write!(
                f,
                "there is no user `{name}` on this system: make one, as with `useradd --system {name}`, or \
                 change `user` under `server:`"
            ),
            UserError::Lookup { name, error } => write!(f, "the user `{name}` can't be looked up: {error}"),
            UserError::Root { name } => write!(
                f,
                "`{name}` is root, so nothing would be given up: name another user, or take `user` away"
            ),
            UserError::NotRoot { name } => write!(
                f,
                "only root can become the user `{name}`: start as root, or start as {name} and take `user` away"
            ),
            UserError::State { name, path } => {
                let path = path.display();
                write!(
                    f,
                    "the state directory {path} doesn't belong to the user `{name}`: `chown -R {name}: {path}`"
                )
            }
            UserError::Closed { name, path, closed } => write!(
                f,
                "the user `{name}` can't reach the state directory {}: {} is closed to it; set `state_dir` \
                 under `server:` to another place, such as /var/lib/hale",
                path.display(),
                closed.display()
            ),
            UserError::Failed { name, error } => write!(f, "can't become the user `{name}`: {error}"),
        }
    }
}

/// The user of this name; none if the process is that user already.
pub fn find(name: &str) -> Result<Option<User>, UserError> {
    let name = name.to_owned();
    let user = match os::find_user(&name) {
        Ok(Some(user)) => user,
        Ok(None) => return Err(UserError::Unknown { name }),
        Err(error) => return Err(UserError::Lookup { name, error }),
    };
    match geteuid().as_raw() {
        _ if user.uid == 0 => Err(UserError::Root { name }),
        own if own == user.uid => Ok(None),
        0 => Ok(Some(user)),
        _ => Err(UserError::NotRoot { name }),
    }
}

/// Sees that the state directory is the user's; makes it if it is missing.
pub fn prepare_state(path: &Path, user: &User) -> Result<(), UserError> {
    let name = user.name.clone();
    let failed = |error| UserError::Failed { name: name.clone(), error };
    match fs::metadata(path) {
        Ok(data) if data.uid() == user.uid => {}
        Ok(_) => return Err(UserError::State { name, path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
            // through what was opened, and no link: it may have been replaced meanwhile
            let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
            let made = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
            fchown(&made, Some(user.uid), Some(user.gid)).map_err(failed)?;
        }
        Err(_) => return Ok(()), // whoever opens it says what is wrong
    }
    let closed = path
        .ancestors()
        .skip(1)
        .find(|folder| fs::metadata(folder).is_ok_and(|data| !allows(&data, user, 0o1)));
    match closed {
        Some(closed) => Err(UserError::Closed { name, path: path.to_owned(), closed: closed.to_owned() }),
        None => Ok(()),
    }
}

/// Whether the user has a right (4 to read, 1 to pass through) to a file.
fn allows(data: &Metadata, user: &User, right: u32) -> bool {
    let shift = match () {
        () if data.uid() == user.uid => 6,
        () if user.groups.contains(&data.gid()) => 3,
        () => 0,
    };
    data.mode() >> shift & right == right
}

/// Gives up root for good, before anything of the state directory is touched:
/// whoever it belongs to may have put links there. What is left over opens the
/// sockets.
pub fn change(user: &User) -> Result<Privileged, UserError> {
    let failed = |error| UserError::Failed { name: user.name.clone(), error };
    let privileged = os::become_user(user).map_err(failed)?;
    info!(uid = user.uid, gid = user.gid, "root is given up; this is the user `{}` from now on", user.name);
    Ok(privileged)
}

/// Tells what the user will not be able to do.
pub fn warn_of(user: &User, loaded: &Loaded) {
    let name = &user.name;
    let named = loaded.named_files.iter().map(|look| &look.path);
    for file in loaded.files.iter().chain(named.filter(|path| !loaded.files.contains(path))) {
        let reads = fs::metadata(file).is_ok_and(|data| allows(&data, user, 0o4));
        if !reads {
            warn!("the user `{name}` can't read {}, so no reload will work", file.display());
        }
    }
    let model = &loaded.model;
    if model.monitors.iter().any(|monitor| matches!(monitor.check, Check::Icmp)) {
        warn!(
            "monitors of type icmp_ping will need `sysctl net.ipv4.ping_group_range` to have a group of the \
             user `{name}`: else they are not_permitted"
        );
    }
    let elsewhere = |reach: &Reach| matches!(reach, Reach::Here { namespace: Some(_), .. });
    if model.vantages.iter().any(|vantage| elsewhere(&vantage.reach)) {
        warn!("probes from network namespaces will fail as the user `{name}`: only root enters them");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_be_become_is_told_why() {
        let words =
            |name: &str| find(name).map(|user| user.map(|user| user.uid)).map_err(|why| why.to_string());
        let unknown = words("nobody-of-that-name").expect_err("it isn't there");
        assert!(unknown.starts_with("there is no user `nobody-of-that-name` on this system"), "{unknown}");
        assert!(words("root").expect_err("it is root").starts_with("`root` is root"));
        let unheard = words("no\0body").expect_err("it isn't there");
        assert!(unheard.starts_with("there is no user"), "{unheard}");
        let nobody = words("nobody");
        match geteuid().is_root() {
            true => assert!(nobody.is_ok_and(|uid| uid.is_some())),
            false => assert!(nobody.expect_err("only root may").starts_with("only root can become")),
        }
    }
}
