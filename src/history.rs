//! The history: every event as a line of JSON, in files that only grow.
//!
//! `events.jsonl` is written by a thread of its own, which takes events from a
//! bounded queue: a disk that hangs loses events, and counts them, but never
//! holds up the engine. A file that has grown large is put aside under the time
//! of its last event, and the oldest of those are removed. A line that a crash
//! cut short is left out when the files are read.

mod start_ups;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use tracing::warn;

use crate::events::{Event, Kind, NewHealth, ProbeRecord};

pub use start_ups::start_ups;

/// The file that is written.
const CURRENT: &str = "events.jsonl";

/// So many events wait for the disk; further ones are lost.
const WAITING: usize = 10_000;

/// How long the end of the program waits for the disk.
const LAST_LINES: Duration = Duration::from_secs(1);

/// How often old files are looked for when nothing happens.
const TIDY_EVERY: Duration = Duration::from_secs(3600);

/// An error of the disk is told so often at most.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A file that grows beyond it, in octets, is followed by another.
    pub max_size: u64,
    pub max_files: usize,
    pub max_age: Duration,
}

/// Where the history lies in a state directory.
pub fn folder(state_dir: &Path) -> PathBuf {
    state_dir.join("history")
}

/// Takes events to the disk.
#[derive(Debug)]
pub struct History {
    lines: SyncSender<Message>,
    lost: Arc<AtomicU64>,
}

enum Message {
    Event(Arc<Event>),
    /// Everything before it is to be on the disk.
    Tell(mpsc::Sender<()>),
}

impl History {
    /// Begins to write in this folder, which is made if need be.
    pub fn start(folder: PathBuf, limits: Limits) -> io::Result<History> {
        let writer = Writer::open(folder, limits)?;
        let (lines, inbox) = mpsc::sync_channel(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let theirs = Arc::clone(&lost);
        thread::Builder::new().name("history".to_owned()).spawn(move || write(writer, &inbox, &theirs))?;
        Ok(History { lines, lost })
    }

    /// Takes in an event; never waits.
    pub fn take(&self, event: &Arc<Event>) {
        match self.lines.try_send(Message::Event(Arc::clone(event))) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// How many events were lost and not yet told of.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for History {
    /// Waits until all is written, though not long.
    fn drop(&mut self) {
        let (written, is_written) = mpsc::channel();
        if self.lines.try_send(Message::Tell(written)).is_ok() {
            let _ = is_written.recv_timeout(LAST_LINES); // a disk that hangs must not hold up the end
        }
    }
}

fn write(mut writer: Writer, inbox: &Receiver<Message>, lost: &AtomicU64) {
    let mut told: Option<Instant> = None;
    loop {
        let first = match inbox.recv_timeout(TIDY_EVERY) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let mut waiting = Vec::new();
        let mut failed = None;
        if first.is_none() {
            writer.tidy();
        }
        for message in first.into_iter().chain(std::iter::from_fn(|| inbox.try_recv().ok())) {
            match message {
                Message::Event(event) => {
                    if let Err(error) = writer.append(&event) {
                        lost.fetch_add(1, Ordering::Relaxed);
                        failed = Some(error);
                    }
                }
                Message::Tell(written) => waiting.push(written),
            }
        }
        if let Err(error) = writer.flush() {
            failed = Some(error);
        }
        let silent = told.is_some_and(|at| at.elapsed() < TELL_EVERY);
        if let Some(error) = failed
            && !silent
        {
            told = Some(Instant::now());
            warn!("the history can't be written in {}: {error}", writer.folder.display());
        } else if !silent {
            let lost = lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                told = Some(Instant::now());
                warn!(lost, "events are missing in the history, because the disk was too slow or failed");
            }
        }
        for written in waiting {
            let _ = written.send(()); // who doesn't wait any more needs no answer
        }
    }
}

/// The files, as their one writer has them.
#[derive(Debug)]
struct Writer {
    folder: PathBuf,
    limits: Limits,
    file: Option<BufWriter<File>>,
    size: u64,
}

impl Writer {
    fn open(folder: PathBuf, limits: Limits) -> io::Result<Writer> {
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        fs::set_permissions(&folder, Permissions::from_mode(0o700))?; // one made before may be open to all
        let mut writer = Writer { folder, limits, file: None, size: 0 };
        writer.open_current()?;
        writer.tidy();
        Ok(writer)
    }

    /// Opens the file that is written; a last line that was cut short is ended,
    /// so that the next one stands by itself.
    fn open_current(&mut self) -> io::Result<&mut BufWriter<File>> {
        let path = self.folder.join(CURRENT);
        let mut file = OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(path)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        let mut size = file.metadata()?.len();
        if size > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
                size += 1;
            }
        }
        self.size = size;
        Ok(self.file.insert(BufWriter::new(file)))
    }

    fn append(&mut self, event: &Event) -> io::Result<()> {
        let mut line = event.line();
        line.push('\n');
        if self.size > 0 && self.size + line.len() as u64 > self.limits.max_size {
            self.rotate(&event.timestamp)?;
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => self.open_current()?,
        };
        let written = file.write_all(line.as_bytes());
        match written {
            Ok(()) => self.size += line.len() as u64,
            Err(_) => self.file = None, // to be opened anew: the disk may be another one by then
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.file.as_mut().map_or(Ok(()), Write::flush);
        if flushed.is_err() {
            self.file = None;
        }
        flushed
    }

    /// Puts the file aside, under a name that sorts by time.
    fn rotate(&mut self, timestamp: &str) -> io::Result<()> {
        self.flush()?;
        self.file = None;
        let time = timestamp.replace(':', "");
        let aside = |number: u32| self.folder.join(format!("events-{time}-{number:03}.jsonl"));
        let free = (0..1000).map(aside).find(|path| !path.exists());
        let free = free.ok_or_else(|| io::Error::other("too many files of one time"))?;
        fs::rename(self.folder.join(CURRENT), free)?;
        self.size = 0;
        self.tidy();
        Ok(())
    }

    /// Removes what is too much or too old.
    fn tidy(&self) {
        let Ok(mut aside) = put_aside(&self.folder) else { return };
        aside.sort_by_key(|path| Reverse(path.clone()));
        let too_old = |path: &PathBuf| {
            let changed = fs::metadata(path).and_then(|of| of.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            changed.elapsed().is_ok_and(|age| age > self.limits.max_age)
        };
        for (number, path) in aside.iter().enumerate() {
            if number + 1 >= self.limits.max_files || too_old(path) {
                let _ = fs::remove_file(path); // it is tried again
            }
        }
    }
}

/// The files that were put aside, in no order.
fn put_aside(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let is_one = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("events-") && name.ends_with(".jsonl")
    };
    Ok(fs::read_dir(folder)?.flatten().map(|entry| entry.path()).filter(is_one).collect())
}

/// Which events somebody wants to see.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// A pool with all of its endpoints, `POOL/ENDPOINT`, a load balancer, or a vantage.
    pub object: Option<String>,
    /// Unix time.
    pub since: Option<Duration>,
    pub until: Option<Duration>,
    pub kind: Option<Kind>,
    pub changed_only: bool,
    /// Only so many, the newest.
    pub most: Option<usize>,
}

impl Wanted {
    fn takes(&self, event: &Event) -> bool {
        let at = event.unix();
        self.since.is_none_or(|since| at >= since)
            && self.until.is_none_or(|until| at <= until)
            && self.kind.is_none_or(|kind| event.kind == kind)
            && (event.changed || !self.changed_only)
            && self.object.as_ref().is_none_or(|object| is_about(event, object))
    }
}

/// Whether an event is about an object, or about part of it.
fn is_about(event: &Event, object: &str) -> bool {
    let balancer = || event.object.trim_end_matches('.').eq_ignore_ascii_case(object.trim_end_matches('.'));
    match event.kind {
        Kind::LoadBalancer => balancer(),
        Kind::Endpoint | Kind::Test => {
            let (pool, _) = event.object.split_once('/').unwrap_or((&event.object, ""));
            event.object == object || pool == object
        }
        Kind::Pool | Kind::Vantage => event.object == object,
    }
}

/// Reads the events of a folder, oldest first.
pub fn read(folder: &Path, wanted: &Wanted, mut each: impl FnMut(Event) -> io::Result<()>) -> io::Result<()> {
    let mut newest = VecDeque::new();
    read_files(open_all(folder)?, |event| {
        if !wanted.takes(&event) {
            return Ok(());
        }
        let Some(most) = wanted.most else { return each(event) };
        newest.push_back(event);
        if newest.len() > most {
            newest.pop_front();
        }
        Ok(())
    })?;
    newest.into_iter().try_for_each(each)
}

/// The names that can be asked for: of all objects with events, and of the
/// pools of endpoints.
pub fn objects(folder: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    read_files(open_all(folder)?, |event| {
        if let (Kind::Endpoint | Kind::Test, Some((pool, _))) = (event.kind, event.object.split_once('/')) {
            names.insert(pool.to_owned());
        }
        names.insert(event.object);
        Ok(())
    })?;
    Ok(names)
}

/// What was unhealthy when the last event was written: for each such object
/// the event with which that began, as far as the newest two files have it.
pub fn left_open(folder: &Path) -> io::Result<Vec<Event>> {
    let mut open: BTreeMap<(Kind, String), Event> = BTreeMap::new();
    let mut files = open_all(folder)?;
    let newest = files.split_off(files.len().saturating_sub(2));
    read_files(newest, |event| {
        let object = (event.kind, event.object.clone());
        match event.new_health {
            NewHealth::Unhealthy => drop(open.entry(object).or_insert(event)),
            NewHealth::Healthy | NewHealth::Out => drop(open.remove(&object)),
            NewHealth::Unknown => {}
        }
        Ok(())
    })?;
    Ok(open.into_values().collect())
}

fn read_files(files: Vec<File>, mut each: impl FnMut(Event) -> io::Result<()>) -> io::Result<()> {
    let mut line = Vec::new();
    for file in files {
        let mut file = BufReader::new(file);
        loop {
            line.clear();
            if file.read_until(b'\n', &mut line)? == 0 {
                break;
            }
            if let Some(event) = Event::read(&line) {
                each(event)?;
            }
        }
    }
    Ok(())
}

/// All files, oldest first, opened before the first is read.
fn open_all(folder: &Path) -> io::Result<Vec<File>> {
    let current = File::open(folder.join(CURRENT)).ok(); // first, for it may be put aside any time
    let id = |file: &File| file.metadata().map(|of| (of.dev(), of.ino())).ok();
    let mut paths = put_aside(folder)?;
    paths.sort();
    let aside = paths.iter().filter_map(|path| File::open(path).ok());
    let same = |file: &File| current.as_ref().is_some_and(|current| id(current) == id(file));
    let mut files: Vec<File> = aside.filter(|file| !same(file)).collect();
    files.extend(current);
    Ok(files)
}

/// So many rows are looked at before the first is written, for the widths of
/// their columns.
const LOOKED_AT: usize = 1000;

/// Events as rows for people, under a heading; with `evidence`, what probes saw
/// stands below each.
pub struct Rows<W> {
    out: W,
    evidence: bool,
    waiting: Vec<Event>,
    /// None as long as nothing is written.
    widths: Option<Widths>,
    count: u64,
}

/// Of the columns whose texts may be long.
#[derive(Clone, Copy)]
struct Widths {
    object: usize,
    what: usize,
}

impl<W: Write> Rows<W> {
    pub fn new(out: W, evidence: bool) -> Rows<W> {
        Rows { out, evidence, waiting: Vec::new(), widths: None, count: 0 }
    }

    /// Takes in the next.
    pub fn push(&mut self, event: Event) -> io::Result<()> {
        self.count += 1;
        self.waiting.push(event);
        if self.widths.is_some() || self.waiting.len() >= LOOKED_AT { self.write() } else { Ok(()) }
    }

    /// Writes what is left; says how many there were.
    pub fn finish(mut self) -> io::Result<u64> {
        self.write()?;
        self.out.flush()?;
        Ok(self.count)
    }

    fn write(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let is_first = self.widths.is_none();
        let mut widths = self.widths.unwrap_or(Widths { object: 24, what: 24 });
        for event in &self.waiting {
            widths.object = widths.object.max(event.object.chars().count());
            widths.what = widths.what.max(what_for_people(event).chars().count());
        }
        self.widths = Some(widths);
        if is_first {
            self.out
                .write_all(line(widths, "time", "kind", "of", "from → to", "after", "reason").as_bytes())?;
        }
        for event in std::mem::take(&mut self.waiting) {
            self.out.write_all(row(&event, widths, self.evidence).as_bytes())?;
        }
        Ok(())
    }
}

fn line(widths: Widths, time: &str, kind: &str, of: &str, what: &str, lasted: &str, reason: &str) -> String {
    let Widths { object, what: of_what } = widths;
    format!("{time:<24}  {kind:<13}  {of:<object$}  {what:<of_what$}  {lasted:>9}  {reason}\n")
}

/// From where to where, and what else holds.
fn what_for_people(event: &Event) -> String {
    let marks = match event.marks.is_empty() {
        true => String::new(),
        false => format!(" ({})", event.marks.join(", ")),
    };
    match event.from == event.to {
        true => format!("{}{marks}", event.to),
        false => format!("{} → {}{marks}", event.from, event.to),
    }
}

fn row(event: &Event, widths: Widths, evidence: bool) -> String {
    let time = event.timestamp.replace('T', " ");
    let lasted = if event.lasted_ms == 0 { String::new() } else { for_people(event.lasted_ms) };
    let reason = match (event.kind, &event.evidence) {
        (Kind::Test, Some(test)) => format!("{} from {}: {}", test.monitor, test.vantage, event.reason),
        _ => event.reason.clone(),
    };
    let what = what_for_people(event);
    let mut row = line(widths, &time, event.kind.as_str(), &event.object, &what, &lasted, &reason);
    let seen = event.evidence.as_ref().filter(|_| evidence);
    for test in seen.into_iter() {
        row += &format!("    {} from {}\n", test.monitor, test.vantage);
        for (word, probe) in [("last bad ", &test.last_bad), ("last good", &test.last_good)] {
            if let Some(probe) = probe {
                row += &format!("      {word}  {}\n", probe_for_people(probe));
            }
        }
    }
    row
}

fn probe_for_people(probe: &ProbeRecord) -> String {
    let mut words = vec![format!("{} {}: {}", probe.at, probe.result, probe.reason)];
    if !probe.detail.is_empty() {
        words.push(probe.detail.clone());
    }
    words.extend(probe.status.map(|status| format!("status {status}")));
    let phases = [
        ("resolved", probe.resolved_ms),
        ("connected", probe.connected_ms),
        ("TLS", probe.tls_ms),
        ("first byte", probe.first_byte_ms),
        ("total", Some(probe.total_ms)),
    ];
    words.extend(phases.iter().filter_map(|(phase, ms)| ms.map(|ms| format!("{phase} {ms:.1} ms"))));
    if !probe.said.is_empty() {
        words.push(format!("said \"{}\"", probe.said));
    }
    words.join(", ")
}

/// How long something lasted, in two units at most.
fn for_people(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0 => format!("{milliseconds}ms"),
        1..60 => format!("{seconds}.{}s", milliseconds % 1000 / 100),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86400, seconds / 3600 % 24),
    }
}
