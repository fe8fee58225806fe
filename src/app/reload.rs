//! Another configuration while running: noticed, read, weighed, applied.
//!
//! Files are looked at twice a second by name, inode, size and time of change,
//! which sees renames, symlinks that are swapped and file systems that send no
//! events alike; so are the files of zones, certificates and secrets that were
//! named when they were read last, wherever they lie. A change is read once it has stood still for one look, or when
//! it never does. One load runs at a time, on a thread of its own: a file system
//! that hangs holds up nobody else. What cannot be used changes nothing.

use std::collections::HashSet;
use std::convert::Infallible;
use std::fmt;
use std::fs::DirEntry;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};
use tracing::{error, info, warn};

use super::{Control, systemd};
use crate::authority::Prepared;
use crate::clock;
use crate::config::{self, Identity, Later, Loaded, Look, Problem, Report, Settings, Severity};
use crate::control::view;
use crate::model::{Model, Name, Serial, Soa};
use crate::serve::Certificates;
use crate::{moment, os};

/// From one look at the files to the next.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// After so many looks a change is read though it hasn't come to rest: a file
/// that is written all the time must not hold up all others.
const RESTLESS: u32 = 6;

/// A load that takes longer is told of.
const SLOW_LOAD: Duration = Duration::from_secs(10);

/// So many errors of a refused configuration are logged; `check` shows all.
const PROBLEMS_LOGGED: usize = 20;

/// Paths to read, what their files looked like before that, and SIGHUP.
#[derive(Debug)]
pub struct Watch {
    paths: Vec<PathBuf>,
    seen: u64,
    hangup: Signal,
}

impl Watch {
    /// To be called before the files are read, inside a runtime: from then on
    /// no change and no hangup is missed.
    pub fn begin(paths: Vec<PathBuf>) -> io::Result<Watch> {
        let hangup = signal(SignalKind::hangup())?;
        let seen = fingerprint(&paths);
        Ok(Watch { paths, seen, hangup })
    }

    /// The paths as they were given.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }
}

/// What can be seen of all files without reading them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sight {
    /// Of all below the paths,
    paths: u64,
    /// and of what those have named.
    named: u64,
}

/// An operator wants the files read now.
#[derive(Debug)]
pub(super) struct Request {
    /// The guard lets everything through.
    pub force: bool,
    /// What came of it; an error leaves the last good one in force.
    pub told: oneshot::Sender<Result<Told, String>>,
}

/// What came of files that are taken.
#[derive(Debug)]
pub(super) struct Told {
    pub message: String,
    /// What else there is to know, a sentence each.
    pub notes: Vec<String>,
}

/// What was loaded, and what is wrong with its certificate alone.
type Read = Result<(Loaded, Option<Report>), Report>;

/// Reads the configuration again, on request or when its files have changed.
pub struct Reloader {
    paths: Vec<PathBuf>,
    load: fn(&[PathBuf]) -> Read,
    settings: Settings,
    /// What was read at the start.
    started: Settings,
    model: Arc<Model>,
    hangup: Signal,
    requests: mpsc::Receiver<Request>,
    /// What was read last was refused.
    refused: bool,
    /// The same for operators.
    files: Arc<Mutex<view::Files>>,
    looks: Interval,
    /// What encrypted transports show.
    certificates: Option<Arc<Certificates>>,
    /// Files that what was read last has named.
    named: Arc<[PathBuf]>,
    /// What the files looked like when they were last read.
    read: Sight,
    /// What they looked like a moment ago, if that was different.
    pending: Option<Sight>,
    /// For how many looks they have been different.
    unrest: u32,
}

/// A configuration that may be put in force.
#[derive(Debug)]
enum Reloaded {
    /// The files say what they said before.
    Unchanged { was_refused: bool, later: Vec<Later> },
    /// This is new.
    Changed {
        prepared: Prepared,
        /// What takes a start, and whether that is news.
        later: Vec<Later>,
        other_later: bool,
        /// What is worth a second look.
        notes: Vec<String>,
    },
}

/// Why the last good configuration stays.
#[derive(Debug)]
enum ReloadError {
    Config(Report),
    /// More than half of the names or load balancers would go.
    Guard {
        gone: usize,
        of: usize,
        what: &'static str,
    },
    /// The thread that read the files has panicked.
    Defect,
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReloadError::Config(report) => f.write_str(&report.refusal(PROBLEMS_LOGGED)),
            ReloadError::Guard { gone, of, what } => write!(
                f,
                "{gone} of {of} {what} would be gone, more than half; if that is meant, \
                 say `hale reload --force`, or set `reload_guard: off` under `server:`"
            ),
            ReloadError::Defect => {
                f.write_str("reading them met a defect of this program, told above; please report it")
            }
        }
    }
}

impl ReloadError {
    fn count(&self) -> usize {
        match self {
            ReloadError::Config(report) => errors(report).count(),
            ReloadError::Guard { .. } | ReloadError::Defect => 1,
        }
    }

    /// The first of them in a line.
    fn first(&self) -> String {
        match self {
            ReloadError::Config(report) => first_error(report).unwrap_or_default(),
            ReloadError::Guard { .. } | ReloadError::Defect => self.to_string(),
        }
    }

    /// Whether a start would be refused for it. A start knows of nothing that
    /// could be gone.
    fn refuses_a_start(&self) -> bool {
        match self {
            ReloadError::Config(_) | ReloadError::Defect => true,
            ReloadError::Guard { .. } => false,
        }
    }
}

fn errors(report: &Report) -> impl Iterator<Item = &Problem> {
    report.problems.iter().filter(|problem| problem.severity == Severity::Error)
}

/// A problem in a line: without the excerpt, and what to write instead.
fn in_a_line(problem: &Problem) -> String {
    let report = Report { problems: vec![problem.clone()], ..Report::default() };
    report.text(false).lines().next().unwrap_or_default().to_owned()
}

fn first_error(report: &Report) -> Option<String> {
    errors(report).next().map(in_a_line)
}

/// The files name a certificate that can't be used.
const STAYS: &str = "the certificate in force stays, and a start would be refused";

/// What came of one attempt.
struct Attempt {
    reloaded: Result<Reloaded, ReloadError>,
    /// Another certificate to show.
    identity: Option<Identity>,
    /// What is wrong with the one that the files name, so that the last good one
    /// stays.
    kept: Option<Report>,
    /// What clients don't like about the certificate in force.
    complaint: Option<String>,
    /// Whether a start would be refused.
    start_refused: bool,
}

impl Attempt {
    fn new(
        reloaded: Result<Reloaded, ReloadError>,
        identity: Option<Identity>,
        kept: Option<Report>,
    ) -> Attempt {
        let refused = reloaded.as_ref().err().is_some_and(ReloadError::refuses_a_start);
        let start_refused = refused || kept.is_some();
        let kept = kept.filter(|_| reloaded.is_ok());
        Attempt { reloaded, identity, kept, complaint: None, start_refused }
    }

    /// Why the certificate stays, where another one is named.
    fn stays(&self) -> Option<String> {
        self.kept
            .as_ref()
            .map(|report| format!("{STAYS}; all else is taken:\n{}", report.text(false).trim_end()))
    }

    /// What came of it, for who asked.
    fn told(&self) -> Result<Told, String> {
        let message = match &self.reloaded {
            Ok(Reloaded::Unchanged { .. }) => match (&self.kept, &self.identity) {
                (Some(_), _) => "all but the certificate is read again: nothing else has changed".to_owned(),
                (None, Some(_)) => "another certificate is in force; nothing else has changed".to_owned(),
                (None, None) => "nothing has changed".to_owned(),
            },
            Ok(Reloaded::Changed { prepared, .. }) => {
                let model = prepared.model();
                let balancers: usize = model.zones.iter().map(|zone| zone.load_balancers.len()).sum();
                let endpoints: usize = model.pools.iter().map(|pool| pool.endpoints.len()).sum();
                format!(
                    "configuration reloaded: zones {}, load balancers {balancers}, pools {}, endpoints {endpoints}",
                    model.zones.len(),
                    model.pools.len(),
                )
            }
            Err(error) => {
                return Err(format!("not reloaded, the last good configuration stays in force:\n{error}"));
            }
        };
        Ok(Told { message, notes: self.notes() })
    }

    /// What else there is to know of files that are taken.
    fn notes(&self) -> Vec<String> {
        let (later, notes) = match &self.reloaded {
            Ok(Reloaded::Unchanged { later, .. }) => (&later[..], &[][..]),
            Ok(Reloaded::Changed { later, notes, .. }) => (&later[..], &notes[..]),
            Err(_) => return Vec::new(),
        };
        let kept = self.kept.iter().flat_map(errors);
        let kept = kept.map(|problem| format!("{STAYS}: {}", in_a_line(problem)));
        kept.chain(self.complaint.clone()).chain(waiting(later)).chain(notes.iter().cloned()).collect()
    }

    /// Logs it, and puts a new configuration in force.
    fn tell(self, control: &Control, certificates: Option<&Certificates>) {
        let stays = self.stays();
        let replaced = self.identity.is_some() || stays.is_some();
        if let Some(stays) = stays {
            warn!("{stays}");
        }
        if let (Some(identity), Some(certificates)) = (self.identity, certificates) {
            show(&identity, certificates);
        }
        match self.reloaded {
            Ok(Reloaded::Unchanged { was_refused: false, .. }) if replaced => {}
            Ok(Reloaded::Unchanged { was_refused: false, .. }) => {
                info!("configuration read again: nothing has changed");
            }
            Ok(Reloaded::Unchanged { was_refused: true, .. }) => {
                info!("configuration read again: it is in order, and says what is in force");
            }
            Ok(Reloaded::Changed { prepared, later, other_later, notes }) => {
                for note in notes {
                    warn!("{note}");
                }
                match waiting(&later) {
                    Some(later) if other_later => warn!("{later}"),
                    None if other_later => info!("`server:` is again what this server was started with"),
                    _ => {}
                }
                control.apply(prepared);
            }
            Err(error) => error!("configuration not reloaded, the last good one stays in force:\n{error}"),
        }
    }
}

/// What takes effect with the next start; none if nothing does.
fn waiting(later: &[Later]) -> Option<String> {
    let keys: Vec<String> = later.iter().map(Later::to_string).collect();
    let what = "what has changed of `server:` takes effect with the next start";
    (!keys.is_empty()).then(|| format!("{what}: {}", keys.join("; ")))
}

impl Reloader {
    /// Goes on with `watch`, under which `loaded` was read.
    pub fn new(watch: Watch, loaded: Loaded) -> Reloader {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Reloader {
            paths: watch.paths,
            load: config::load_beside_certificate,
            started: loaded.settings.clone(),
            settings: loaded.settings,
            model: loaded.model,
            refused: false,
            files: Arc::default(),
            looks,
            hangup: watch.hangup,
            requests: mpsc::channel(1).1,
            read: Sight { paths: watch.seen, named: sight(loaded.named_files.iter().map(|look| look.seen)) },
            certificates: None,
            named: loaded.named_files.into_iter().map(|look| look.path).collect(),
            pending: None,
            unrest: 0,
        }
    }

    /// Puts another certificate in force there.
    pub(super) fn replacing(self, certificates: Option<Arc<Certificates>>) -> Reloader {
        Reloader { certificates, ..self }
    }

    /// Says there what was made of them.
    pub(super) fn noting_in(self, files: Arc<Mutex<view::Files>>) -> Reloader {
        Reloader { files, ..self }
    }

    /// Reads them also when operators ask for it.
    pub(super) fn asked_by(self, requests: mpsc::Receiver<Request>) -> Reloader {
        Reloader { requests, ..self }
    }

    /// Hands every other configuration to `control`; never ends. What a hangup
    /// asks for while files are being read is done after that.
    pub async fn run(mut self, control: Control) -> Infallible {
        loop {
            let mut request = None;
            let hung_up = tokio::select! {
                _ = self.hangup.recv() => true,
                Some(asked) = self.requests.recv() => {
                    request = Some(asked);
                    true
                }
                _ = self.looks.tick() => false,
            };
            let seen = self.look().await;
            if !hung_up && !self.has_changed(seen) {
                continue;
            }
            systemd::reloading();
            let force = request.as_ref().is_some_and(|request| request.force);
            let attempt = self.read_files(seen, force).await;
            let told = request.as_ref().map(|_| attempt.told());
            self.note(&attempt);
            control.present(&self.settings.service);
            attempt.tell(&control, self.certificates.as_deref()); // first: what the engine is asked for next comes after it
            control.ask(|_, _| ()).await;
            systemd::ready();
            if let (Some(request), Some(told)) = (request, told) {
                let _ = request.told.send(told); // who has gone wants no answer
            }
        }
    }

    /// Says what was made of them to those who ask how they stand.
    fn note(&self, attempt: &Attempt) {
        let later = self.started.later(&self.settings).into_iter();
        let later =
            later.map(|Later { key, now, then }| view::Later { key: key.into(), from: now, to: then });
        let error = attempt.reloaded.as_ref().err();
        let mut files = self.files.lock();
        let is_new = match &attempt.reloaded {
            Ok(Reloaded::Unchanged { .. }) => files.is_refused(),
            Ok(Reloaded::Changed { .. }) => true,
            Err(_) => !files.is_refused(),
        };
        *files = view::Files {
            state: if error.is_some() { "refused" } else { "in_force" }.to_owned(),
            since: if is_new { moment::utc(clock::unix_seconds().into()) } else { files.since.clone() },
            errors: error.map_or(0, ReloadError::count),
            first_error: error.map(ReloadError::first),
            certificate_kept: attempt.kept.as_ref().and_then(first_error),
            later: later.collect(),
            start_refused: attempt.start_refused,
        };
    }

    /// Whether the files have changed and come to rest, or never do.
    fn has_changed(&mut self, seen: Sight) -> bool {
        if seen == self.read {
            (self.pending, self.unrest) = (None, 0);
            return false;
        }
        let at_rest = self.pending.replace(seen) == Some(seen);
        self.unrest += 1;
        at_rest || self.unrest > RESTLESS
    }

    /// How the files look now.
    async fn look(&self) -> Sight {
        let (paths, named) = (self.paths.clone(), Arc::clone(&self.named));
        let look = move || Sight {
            paths: fingerprint(&paths),
            named: sight(named.iter().map(|path| config::look(path))),
        };
        tokio::task::spawn_blocking(look).await.unwrap_or(self.read)
    }

    async fn read_files(&mut self, seen: Sight, force: bool) -> Attempt {
        (self.read, self.pending, self.unrest) = (seen, None, 0);
        let (load, paths) = (self.load, self.paths.clone());
        let (settings, model) = (self.settings.clone(), Arc::clone(&self.model));
        let started = self.started.clone();
        let mut weighing = tokio::task::spawn_blocking(move || {
            let loaded = load(&paths);
            let named_files = match &loaded {
                Ok((loaded, _)) => loaded.named_files.clone(),
                Err(report) => report.named_files.clone(),
            };
            let (loaded, kept) = apart(loaded, settings.identity.as_ref());
            let (settings, reloaded) = weigh(loaded, settings, &started, model, force);
            os::give_back_memory();
            (settings, reloaded, kept, named_files)
        });
        let weighed = match timeout(SLOW_LOAD, &mut weighing).await {
            Ok(weighed) => weighed,
            Err(_) => {
                warn!("reading the configuration takes long; until it is done no other change is looked at");
                weighing.await
            }
        };
        let Ok((settings, reloaded, kept, named_files)) = weighed else {
            return Attempt::new(Err(ReloadError::Defect), None, None);
        };
        let identity = settings.identity.clone().filter(|_| self.certificates.is_some());
        let identity =
            identity.filter(|new| !self.settings.identity.as_ref().is_some_and(|old| old.is_as(new)));
        self.settings = settings;
        self.read.named = sight(named_files.iter().map(|look| look.seen));
        self.named = named_files.into_iter().map(|Look { path, .. }| path).collect();
        let refused = reloaded.is_err() || kept.is_some();
        let was_refused = std::mem::replace(&mut self.refused, refused) && !refused;
        let reloaded = match reloaded {
            Ok(Reloaded::Unchanged { later, .. }) => Ok(Reloaded::Unchanged { was_refused, later }),
            other => other,
        };
        if let Ok(Reloaded::Changed { prepared, .. }) = &reloaded {
            self.model = Arc::clone(prepared.model());
        }
        let shown = self.settings.identity.as_ref().filter(|_| self.certificates.is_some());
        Attempt { complaint: shown.and_then(complaint), ..Attempt::new(reloaded, identity, kept) }
    }
}

/// What was loaded; and what is wrong with its certificate, if the one `in_force`
/// can stand in for it.
fn apart(loaded: Read, in_force: Option<&Identity>) -> (Result<Loaded, Report>, Option<Report>) {
    match (loaded, in_force) {
        (Ok((mut loaded, Some(mut report))), Some(in_force)) => {
            report.problems.retain(|problem| problem.severity == Severity::Error);
            loaded.settings.identity = Some(in_force.clone());
            (Ok(loaded), Some(report))
        }
        (Ok((_, Some(report))), None) | (Err(report), _) => (Err(report), None),
        (Ok((loaded, None)), _) => (Ok(loaded), None),
    }
}

/// Puts a certificate in force for handshakes from now on.
fn show(identity: &Identity, certificates: &Certificates) {
    let path = identity.certificate.display();
    match certificates.replace(&super::shown(identity)) {
        Ok(()) => info!("the certificate in {path} is in force for new connections"),
        Err(why) => return error!("the certificate in {path} is not taken, the last one stays: {why}"),
    }
    if let Some(complaint) = complaint(identity) {
        warn!("{complaint}");
    }
}

/// What clients don't like about it just now.
fn complaint(identity: &Identity) -> Option<String> {
    let path = identity.certificate.display();
    identity.complaint().map(|complaint| format!("the certificate in {path} {complaint}: clients refuse it"))
}

/// What to make of a configuration that was read, when `settings` and `model`
/// are in force in a server that was `started` with others; and the settings from
/// then on. All that takes long with large zones is done here.
fn weigh(
    loaded: Result<Loaded, Report>,
    settings: Settings,
    started: &Settings,
    model: Arc<Model>,
    force: bool,
) -> (Settings, Result<Reloaded, ReloadError>) {
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(report) => return (settings, Err(ReloadError::Config(report))),
    };
    let later = started.later(&loaded.settings);
    let other_later = later != started.later(&settings);
    let service_changed = loaded.settings.service != settings.service;
    if loaded.model == model && !other_later && !service_changed {
        return (loaded.settings, Ok(Reloaded::Unchanged { was_refused: false, later }));
    }
    if loaded.settings.reload_guard
        && !force
        && let Err(error) = guard(&model, &loaded.model)
    {
        return (settings, Err(error));
    }
    let notes = serials(&model, &loaded.model);
    let prepared = Prepared::new(loaded.model);
    (loaded.settings, Ok(Reloaded::Changed { prepared, later, other_later, notes }))
}

/// Numbers of zones by which a secondary wouldn't see what has changed.
fn serials(old: &Model, new: &Model) -> Vec<String> {
    let mut notes = Vec::new();
    for zone in &new.zones {
        let before = old.zones.binary_search_by(|before| before.apex.cmp(&zone.apex));
        let Ok(before) = before.map(|at| &old.zones[at]) else { continue };
        let (Serial::From(last), Serial::From(next)) = (before.soa.serial, zone.soa.serial) else { continue };
        let soa = Soa { serial: before.soa.serial, ..zone.soa.clone() };
        let same = zone.records.len() == before.records.len()
            && zone.records.iter().zip(&before.records).all(|(set, before)| set.says_the_same(before));
        let changed = soa != before.soa || !same;
        if next == last && changed {
            notes.push(format!(
                "the zone {} has changed, and its serial is still {next}: who goes by that number would not see \
                 it, so the serial that is served goes up by itself",
                zone.apex
            ));
        } else if next.wrapping_sub(last) > i32::MAX as u32 {
            notes.push(format!(
                "the serial of the zone {} goes back from {last} to {next}: who goes by that number would not see \
                 a change, so the serial that is served goes on from where it was",
                zone.apex
            ));
        }
    }
    notes
}

/// Refuses a configuration that would remove more than half of the names, or of
/// the load balancers: a name whose load balancer becomes ordinary records is
/// still there, but nobody looks after its health any more.
fn guard(old: &Model, new: &Model) -> Result<(), ReloadError> {
    let few = |old: HashSet<&Name>, new: HashSet<&Name>, what| {
        let gone = old.difference(&new).count();
        if gone * 2 > old.len() { Err(ReloadError::Guard { gone, of: old.len(), what }) } else { Ok(()) }
    };
    few(owner_names(old), owner_names(new), "names")?;
    few(balancers(old).collect(), balancers(new).collect(), "load balancers")
}

/// The names of all load balancers, also of those that are switched off.
fn balancers(model: &Model) -> impl Iterator<Item = &Name> {
    model.zones.iter().flat_map(|zone| &zone.load_balancers).map(|balancer| &balancer.name)
}

/// Every name that something is configured for.
fn owner_names(model: &Model) -> HashSet<&Name> {
    let records = model.zones.iter().flat_map(|zone| &zone.records).map(|set| &set.owner);
    records.chain(balancers(model)).collect()
}

/// Several looks as one.
fn sight(looks: impl Iterator<Item = u64>) -> u64 {
    let mut hasher = DefaultHasher::new();
    looks.for_each(|seen| seen.hash(&mut hasher));
    hasher.finish()
}

/// What can be seen of the files without reading them.
fn fingerprint(paths: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in paths {
        look_at(path, &mut hasher);
    }
    hasher.finish()
}

/// Takes in one file, or all that lies in a directory and may belong to the
/// configuration: hidden names and links to directories don't, as for
/// `config::load`.
fn look_at(path: &Path, hasher: &mut DefaultHasher) {
    if !path.is_dir() {
        config::look(path).hash(hasher);
        return;
    }
    path.hash(hasher);
    let Ok(entries) = path.read_dir() else { return };
    let mut entries: Vec<_> = entries.flatten().collect();
    entries.sort_by_key(DirEntry::file_name);
    for entry in entries {
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let path = entry.path();
        let link_to_directory = entry.file_type().is_ok_and(|kind| kind.is_symlink()) && path.is_dir();
        if !hidden && !link_to_directory {
            look_at(&path, hasher);
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
            depends_on: Vec::new(),
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
        assert!(matches!(guard(&four, &model(&["a"])), Err(ReloadError::Guard { gone: 3, of: 4, .. })));
    }

    #[test]
    fn a_reload_that_removes_more_than_half_of_the_load_balancers_is_refused() {
        let read = |balancers: &[&str]| {
            let records = ["a", "b", "c", "d", "e", "f"].map(|name| match balancers.contains(&name) {
                true => String::new(),
                false => format!("  {name}: {{ type: A, value: 192.0.2.1 }}\n"),
            });
            let balancers = balancers
                .iter()
                .map(|name| format!("  {name}: {{ default_pools: [p], fallback_pool: p }}\n"));
            let balancers: String = balancers.collect();
            let text = format!(
                "zone: example.com\nrecords:\n  '': {{ type: NS, value: ns.example.net. }}\n{}\
                 pools: {{ p: {{ endpoints: [{{ name: e, address: 192.0.2.2 }}] }} }}\n\
                 load_balancers:\n  own: {{ enabled: false, default_pools: [p], fallback_pool: p }}\n{balancers}",
                records.concat()
            );
            let loaded = config::load_texts(vec![("a.yaml".into(), text.into())]);
            loaded.unwrap_or_else(|report| panic!("{report}")).model
        };
        let all = read(&["a", "b", "c"]);
        assert!(guard(&all, &read(&["a", "x"])).is_ok(), "half may go");
        let plain = guard(&all, &read(&[]));
        let told = plain.unwrap_err().to_string();
        assert!(told.contains("3 of 4 load balancers would be gone, more than half"), "{told}");
    }

    #[tokio::test]
    async fn a_load_that_panics_changes_nothing() {
        fn good(_: &[PathBuf]) -> Read {
            let text = "zone: example.com\nrecords: { '': { type: NS, value: ns.example.net. } }\n";
            config::load_texts(vec![("a.yaml".into(), text.into())]).map(|loaded| (loaded, None))
        }
        let mut reloader = Reloader::new(Watch::begin(Vec::new()).unwrap(), good(&[]).unwrap().0);
        reloader.load = |_| panic!("on purpose");
        assert!(matches!(
            reloader.read_files(Sight::default(), false).await.reloaded,
            Err(ReloadError::Defect)
        ));
        reloader.load =
            |_| config::load_texts(vec![("a.yaml".into(), "zone: [".into())]).map(|loaded| (loaded, None));
        assert!(matches!(
            reloader.read_files(Sight::default(), false).await.reloaded,
            Err(ReloadError::Config(_))
        ));
        reloader.load = good;
        assert!(matches!(
            reloader.read_files(Sight::default(), false).await.reloaded,
            Ok(Reloaded::Unchanged { .. })
        ));
    }
}
