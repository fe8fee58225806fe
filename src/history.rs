//! The history: every event as a line of JSON, in files that only grow.
//!
//! `events.jsonl` is written by a thread of its own, which takes lines from a
//! queue with a bound in octets: a disk that hangs loses events, and counts
//! them, but never holds up the engine. A file that has grown large is put aside
//! under the time of its last event, and the oldest of those are removed. A line
//! that a crash cut short is left out when the files are read. Files that are
//! taken away while they are written are made anew.

mod start_ups;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tracing::{info, warn};

use crate::events::{Event, Kind, NewHealth, ProbeRecord};

pub use start_ups::start_ups;

/// The file that is written.
const CURRENT: &str = "events.jsonl";

/// So many octets of events wait for the disk; further events are lost.
const WAITING: usize = 16 << 20;

/// How long the end of the program waits for the disk.
const LAST_LINES: Duration = Duration::from_secs(1);

/// How often old files are looked for when nothing happens.
const TIDY_EVERY: Duration = Duration::from_secs(3600);

/// How often it is looked, when nothing happens, whether the files are still there.
const LOOK_EVERY: Duration = Duration::from_secs(2);

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
    messages: Sender<Message>,
    counts: Arc<Counts>,
}

/// How the writing fares.
#[derive(Debug, Default)]
pub struct Counts {
    /// Octets on their way to the disk.
    waiting: AtomicUsize,
    lost: AtomicU64,
    trouble: Mutex<Option<String>>,
    /// There was no room for an event since all was written last.
    full: AtomicBool,
}

impl Counts {
    /// How many events were lost since the start.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Why nothing can be written at present.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }
}

enum Message {
    Line(Line),
    /// Everything before it is to be on the disk.
    Tell(mpsc::Sender<()>),
}

/// An event as it is written, and when that happened.
struct Line {
    timestamp: String,
    text: String,
}

impl History {
    /// Begins to write in this folder, which is made if need be, and made anew
    /// if it is taken away.
    pub fn start(folder: PathBuf, limits: Limits) -> io::Result<History> {
        History::start_while(folder, limits, || true)
    }

    /// The same; what is taken away is made anew only while `is_ours` holds of
    /// the place, and waited for until then.
    pub fn start_while(
        folder: PathBuf,
        limits: Limits,
        is_ours: impl Fn() -> bool + Send + 'static,
    ) -> io::Result<History> {
        let counts = Arc::new(Counts::default());
        let writer = Writer::open(folder, limits, Box::new(is_ours), Arc::clone(&counts))?;
        let (messages, inbox) = mpsc::channel();
        thread::Builder::new().name("history".to_owned()).spawn(move || writer.run(&inbox))?;
        Ok(History { messages, counts })
    }

    /// Takes in an event; never waits.
    pub fn take(&self, event: &Event) {
        if self.counts.waiting.load(Ordering::Relaxed) >= WAITING {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
            if !self.counts.full.swap(true, Ordering::Relaxed) {
                warn!("the disk is too slow for the history: events are left out until it has caught up");
            }
            return;
        }
        let line = Line { timestamp: event.timestamp.clone(), text: event.line() + "\n" };
        self.counts.waiting.fetch_add(line.text.len(), Ordering::Relaxed);
        if self.messages.send(Message::Line(line)).is_err() {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many events were lost since the start.
    pub fn lost(&self) -> u64 {
        self.counts.lost()
    }

    /// How the writing fares, to be looked at from elsewhere.
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }
}

impl Drop for History {
    /// Waits until all is written, though not long.
    fn drop(&mut self) {
        let (written, is_written) = mpsc::channel();
        if self.messages.send(Message::Tell(written)).is_ok() {
            let _ = is_written.recv_timeout(LAST_LINES); // a disk that hangs must not hold up the end
        }
    }
}

/// The files, as their one writer has them.
struct Writer {
    folder: PathBuf,
    limits: Limits,
    is_ours: Box<dyn Fn() -> bool + Send>,
    counts: Arc<Counts>,
    file: Option<File>,
    size: u64,
    /// What comes next, while that can't be written.
    pending: VecDeque<Line>,
    /// The files were taken away, and aren't made anew yet.
    gone: bool,
    /// Nor may they be: their place isn't ours.
    away: bool,
    /// When a trouble was last told of; its end is told if it was.
    told_at: Option<Instant>,
    is_told: bool,
    /// How many lost events were told of.
    told_lost: u64,
    tidy_at: Instant,
}

impl Writer {
    fn open(
        folder: PathBuf,
        limits: Limits,
        is_ours: Box<dyn Fn() -> bool + Send>,
        counts: Arc<Counts>,
    ) -> io::Result<Writer> {
        let mut writer = Writer {
            folder,
            limits,
            is_ours,
            counts,
            file: None,
            size: 0,
            pending: VecDeque::new(),
            gone: false,
            away: false,
            told_at: None,
            is_told: false,
            told_lost: 0,
            tidy_at: Instant::now() + TIDY_EVERY,
        };
        writer.make_folder()?;
        writer.open_current()?;
        writer.tidy();
        Ok(writer)
    }

    fn make_folder(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        // one made before may be open to all
        fs::set_permissions(&self.folder, Permissions::from_mode(0o700))
    }

    fn run(mut self, inbox: &Receiver<Message>) {
        loop {
            let first = match inbox.recv_timeout(LOOK_EVERY) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut waiting = Vec::new();
            for message in first.into_iter().chain(inbox.try_iter()) {
                match message {
                    Message::Line(line) => self.pending.push_back(line),
                    Message::Tell(written) => waiting.push(written),
                }
            }
            self.look();
            if !self.away {
                match self.write_pending() {
                    Ok(false) => {}
                    Ok(true) => self.all_is_well(),
                    Err(error) => {
                        let told =
                            format!("the history can't be written in {}: {error}", self.folder.display());
                        self.trouble(error.to_string(), &told);
                    }
                }
            }
            if !waiting.is_empty() && self.counts.lost() > self.told_lost {
                let lost = self.newly_lost();
                warn!(lost, "events are missing in the history, because the disk was too slow or failed");
            }
            if self.tidy_at <= Instant::now() {
                self.tidy();
                self.tidy_at = Instant::now() + TIDY_EVERY;
            }
            for written in waiting {
                let _ = written.send(()); // who doesn't wait any more needs no answer
            }
        }
    }

    /// Notices when the file was taken away, and makes it anew where that may be.
    fn look(&mut self) {
        let written = |file: &File| {
            let same = |there: fs::Metadata, ours: fs::Metadata| {
                (there.dev(), there.ino()) == (ours.dev(), ours.ino())
            };
            match fs::metadata(self.folder.join(CURRENT)) {
                Ok(there) => file.metadata().is_ok_and(|ours| same(there, ours)),
                Err(error) => error.kind() != io::ErrorKind::NotFound, // others show nothing
            }
        };
        if !self.gone && self.file.as_ref().is_none_or(written) {
            return;
        }
        self.file = None;
        if !std::mem::replace(&mut self.gone, true) {
            let told = format!("the history in {} was removed or replaced", self.folder.display());
            self.trouble("it was removed or replaced".to_owned(), &told);
        }
        self.away = !(self.is_ours)();
    }

    /// Tells that something is wrong, and keeps it: once, and not soon again.
    fn trouble(&mut self, why: String, told: &str) {
        let before = self.counts.trouble.lock().replace(why);
        if before.is_none() && self.told_at.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
            (self.told_at, self.is_told) = (Some(Instant::now()), true);
            warn!("{told}");
        }
    }

    /// All that there was is written.
    fn all_is_well(&mut self) {
        let was_bad = self.counts.trouble.lock().take().is_some();
        let was_full = self.counts.full.swap(false, Ordering::Relaxed);
        if was_bad && std::mem::take(&mut self.is_told) || was_full {
            let lost = self.newly_lost();
            info!(lost, "the history is written again in {}", self.folder.display());
        }
    }

    fn newly_lost(&mut self) -> u64 {
        let lost = self.counts.lost();
        lost - std::mem::replace(&mut self.told_lost, lost)
    }

    /// Opens the file that is written; a last line that was cut short is ended,
    /// so that the next one stands by itself.
    fn open_current(&mut self) -> io::Result<&mut File> {
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
        Ok(self.file.insert(file))
    }

    /// Writes all that waits, and tells whether there was anything to do. What
    /// can't be written is lost: the next lines begin with another attempt.
    fn write_pending(&mut self) -> io::Result<bool> {
        if !self.gone && self.pending.is_empty() {
            return Ok(false);
        }
        if self.file.is_none() {
            let opened = self.make_folder().and_then(|()| self.open_current().map(drop));
            opened.inspect_err(|_| self.lose_pending())?;
            self.gone = false;
        }
        while let Some(first) = self.pending.front() {
            if self.size > 0 && self.size + first.text.len() as u64 > self.limits.max_size {
                let timestamp = first.timestamp.clone();
                self.rotate(&timestamp).inspect_err(|_| self.lose_pending())?;
            }
            let (mut text, mut number) = (String::new(), 0);
            while let Some(line) = self.pending.front() {
                let size = self.size + (text.len() + line.text.len()) as u64;
                if number > 0 && size > self.limits.max_size {
                    break;
                }
                text += &line.text;
                number += 1;
                self.pending.pop_front();
            }
            self.counts.waiting.fetch_sub(text.len(), Ordering::Relaxed);
            if let Err(error) = self.append(&text) {
                self.counts.lost.fetch_add(number, Ordering::Relaxed);
                self.lose_pending();
                return Err(error);
            }
        }
        Ok(true)
    }

    fn append(&mut self, text: &str) -> io::Result<()> {
        let size = self.size;
        let file = match &mut self.file {
            Some(file) => file,
            None => self.open_current()?,
        };
        match file.write_all(text.as_bytes()) {
            Ok(()) => self.size += text.len() as u64,
            Err(error) => {
                let _ = file.set_len(size); // what can be read of half a line is nothing
                self.file = None; // to be opened anew: the disk may be another one by then
                return Err(error);
            }
        }
        Ok(())
    }

    fn lose_pending(&mut self) {
        self.counts.lost.fetch_add(self.pending.len() as u64, Ordering::Relaxed);
        let octets = self.pending.drain(..).map(|line| line.text.len()).sum();
        self.counts.waiting.fetch_sub(octets, Ordering::Relaxed);
    }

    /// Puts the file aside, under a name that sorts by time.
    fn rotate(&mut self, timestamp: &str) -> io::Result<()> {
        self.file = None;
        let time = timestamp.replace(':', "");
        let aside = |number: u32| self.folder.join(format!("events-{time}-{number:03}.jsonl"));
        let free = (0..1000).map(aside).find(|path| !path.exists());
        let free = free.ok_or_else(|| io::Error::other("too many files of one time"))?;
        fs::rename(self.folder.join(CURRENT), free)?;
        self.open_current()?;
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
    /// A pool with all of its endpoints, `POOL/ENDPOINT`, a load balancer, a name of
    /// records that follow health, also with their type, or a vantage.
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
    let is_name = |name: &str| name.trim_end_matches('.').eq_ignore_ascii_case(object.trim_end_matches('.'));
    match event.kind {
        Kind::LoadBalancer => is_name(&event.object),
        Kind::Records => is_name(name_of_records(&event.object)) || event.object.eq_ignore_ascii_case(object),
        Kind::Endpoint | Kind::Test => {
            let (pool, _) = event.object.split_once('/').unwrap_or((&event.object, ""));
            event.object == object || pool == object
        }
        Kind::Pool | Kind::Vantage => event.object == object,
    }
}

/// The name alone of `NAME TYPE`.
fn name_of_records(object: &str) -> &str {
    object.rsplit_once(' ').map_or(object, |(name, _)| name)
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
        if event.kind == Kind::Records {
            names.insert(name_of_records(&event.object).to_owned());
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
            NewHealth::Unhealthy => drop(open.entry(object).or_insert_with(|| event.brief())),
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
