//! Another configuration while running: noticed, read, weighed, applied.
//!
//! Files are looked at twice a second by name, inode, size and time of change,
//! which sees renames, symlinks that are swapped and file systems that send no
//! events alike. A change is read once it has stood still for one look. What
//! cannot be used changes nothing.

use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::{error, info, warn};

use super::Control;
use crate::config::{self, Loaded, Report, Settings};
use crate::model::{Model, Name};

/// From one look at the files to the next.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Reads the configuration again, on request or when its files have changed.
pub struct Reloader {
    paths: Vec<PathBuf>,
    settings: Settings,
    model: Arc<Model>,
    looks: Interval,
    /// What the files looked like when they were last read.
    read: u64,
    /// What they looked like a moment ago, if that was different.
    pending: Option<u64>,
}

/// A configuration that may be put in force.
#[derive(Debug)]
pub enum Reloaded {
    /// The files say what they said before.
    Unchanged,
    /// This is new.
    Changed { model: Arc<Model>, settings_changed: bool },
}

/// Why the last good configuration stays.
#[derive(Debug)]
pub enum ReloadError {
    Config(Report),
    /// More than half of the names would go.
    Guard {
        gone: usize,
        of: usize,
    },
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReloadError::Config(report) => write!(f, "{}", report.text(false)),
            ReloadError::Guard { gone, of } => write!(
                f,
                "{gone} of {of} names would be gone, more than half; if that is meant, \
                 set `reload_guard: off` under `server:`"
            ),
        }
    }
}

/// What came of one attempt.
pub struct Attempt(Result<Reloaded, ReloadError>);

impl Attempt {
    /// Logs it, and puts a new configuration in force.
    pub fn tell(self, control: &Control) {
        match self.0 {
            Ok(Reloaded::Unchanged) => info!("configuration read again: nothing has changed"),
            Ok(Reloaded::Changed { model, settings_changed }) => {
                if settings_changed {
                    warn!("`server:` has changed; that part takes effect with the next start");
                }
                let (zones, pools) = (model.zones.len(), model.pools.len());
                control.apply(model);
                info!(zones, pools, "configuration reloaded");
            }
            Err(error) => error!("configuration not reloaded, the last good one stays in force:\n{error}"),
        }
    }
}

impl Reloader {
    /// Watches `paths`, of which `loaded` was read.
    pub fn new(paths: Vec<PathBuf>, loaded: Loaded) -> Reloader {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let read = fingerprint(&paths);
        let model = Arc::new(loaded.model);
        Reloader { paths, settings: loaded.settings, model, looks, read, pending: None }
    }

    /// Waits until the files have changed and come to rest, and reads them.
    pub async fn changed(&mut self) -> Attempt {
        loop {
            self.looks.tick().await;
            let seen = self.look().await;
            if seen == self.read {
                self.pending = None;
            } else if self.pending == Some(seen) {
                return self.read_files(seen).await;
            } else {
                self.pending = Some(seen);
            }
        }
    }

    /// Reads the files as they are.
    pub async fn reload_now(&mut self) -> Attempt {
        let seen = self.look().await;
        self.read_files(seen).await
    }

    /// How the files look now; a file system that hangs holds up nobody else.
    async fn look(&self) -> u64 {
        let paths = self.paths.clone();
        tokio::task::spawn_blocking(move || fingerprint(&paths)).await.unwrap_or(self.read)
    }

    async fn read_files(&mut self, seen: u64) -> Attempt {
        self.read = seen;
        self.pending = None;
        let paths = self.paths.clone();
        let loaded = tokio::task::spawn_blocking(move || config::load(&paths)).await;
        let loaded = match loaded.expect("loading files does not panic") {
            Ok(loaded) => loaded,
            Err(report) => return Attempt(Err(ReloadError::Config(report))),
        };
        let settings_changed = loaded.settings != self.settings;
        if loaded.model == *self.model && !settings_changed {
            return Attempt(Ok(Reloaded::Unchanged));
        }
        if loaded.settings.reload_guard
            && let Err(error) = guard(&self.model, &loaded.model)
        {
            return Attempt(Err(error));
        }
        self.settings = loaded.settings;
        self.model = Arc::new(loaded.model);
        Attempt(Ok(Reloaded::Changed { model: Arc::clone(&self.model), settings_changed }))
    }
}

/// Refuses a configuration that would remove more than half of the names.
fn guard(old: &Model, new: &Model) -> Result<(), ReloadError> {
    let (old, new) = (owner_names(old), owner_names(new));
    let gone = old.difference(&new).count();
    if gone * 2 > old.len() { Err(ReloadError::Guard { gone, of: old.len() }) } else { Ok(()) }
}

/// Every name that something is configured for.
fn owner_names(model: &Model) -> HashSet<&Name> {
    let zones = model.zones.iter();
    zones
        .flat_map(|zone| {
            let records = zone.records.iter().map(|set| &set.owner);
            records.chain(zone.load_balancers.iter().map(|balancer| &balancer.name))
        })
        .collect()
}

/// What can be seen of the files without reading them.
fn fingerprint(paths: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in paths {
        look_at(path, 0, &mut hasher);
    }
    hasher.finish()
}

/// Takes in one file, or all that lies in a folder, symlinks followed.
fn look_at(path: &Path, depth: usize, hasher: &mut DefaultHasher) {
    const DEEPEST: usize = 16;
    path.hash(hasher);
    let Ok(metadata) = path.metadata() else { return };
    if !metadata.is_dir() {
        (metadata.ino(), metadata.dev(), metadata.size()).hash(hasher);
        (metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()).hash(hasher);
    } else if depth < DEEPEST
        && let Ok(entries) = path.read_dir()
    {
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            look_at(&path, depth + 1, hasher);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{RecordSet, Serial, Soa, Zone};

    fn model(owners: &[&str]) -> Model {
        let apex: Name = "example.com".parse().unwrap();
        let record = |owner: &&str| RecordSet {
            owner: Name::parse(owner, &apex).unwrap(),
            rtype: 1,
            ttl: 1,
            rdata: vec![Box::new([192, 0, 2, 1])],
        };
        let soa = Soa {
            ttl: 1,
            mname: apex.wire().into(),
            rname: apex.wire().into(),
            serial: Serial::Auto,
            refresh: 1,
            retry: 1,
            expire: 1,
            minimum: 1,
        };
        let records = owners.iter().map(record).collect();
        Model { zones: vec![Zone { apex, soa, records, load_balancers: Vec::new() }], ..Model::default() }
    }

    #[test]
    fn a_reload_that_removes_more_than_half_of_the_names_is_refused() {
        let four = model(&["a", "b", "c", "d"]);
        assert!(guard(&four, &model(&["a", "b", "x"])).is_ok(), "half may go");
        assert!(matches!(guard(&four, &model(&["a"])), Err(ReloadError::Guard { gone: 3, of: 4 })));
    }
}
