//! The journal's thread: the engine hands over and goes on, whatever the disk
//! does.
//!
//! Records are appended as they come, and reach the disk within a second. The
//! file is written anew, beside the old one and then in its place, at the start
//! and whenever it has grown to more than twice what it says. After an error
//! nothing is appended any more, since a line may be half there: the next file
//! that is written anew makes up for what was lost. The same holds when more
//! records wait than there is room for: they are left out, and written with the
//! next whole file. So the newest record of a key is lost only with the process.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use super::{Directory, JOURNAL, format};
use crate::health::{EndpointKey, Memory, Record};
use crate::model::Scope;

/// What is written reaches the disk within this time.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// After an error the file is tried again so often.
const RETRY_EVERY: Duration = Duration::from_secs(2);

/// So often the directory is looked at: whether it is still ours.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How much a file may grow beyond twice its size.
const SLACK: u64 = 64 << 10;

/// So many octets of records wait for a disk that hangs; further ones are left
/// out until the file is written anew.
const OCTETS_KEPT: usize = 32 << 20;

/// How long the end of the program waits for the disk.
const LAST_RECORDS: Duration = Duration::from_secs(2);

/// Takes records to the journal's thread; dropped without `end` it lets the
/// thread finish by itself.
#[derive(Debug)]
pub struct Journal {
    messages: Sender<Message>,
    shared: Arc<Shared>,
    ended: Receiver<()>,
}

#[derive(Debug)]
enum Message {
    Append(Record),
    Rewrite(Memory),
    /// Somebody wants to know whether all before it is on the disk.
    Confirm(oneshot::Sender<Result<(), String>>),
}

#[derive(Debug, Default)]
struct Shared {
    /// Octets of records on their way to the thread.
    waiting: AtomicUsize,
    /// The file is to be written anew.
    wants_all: AtomicBool,
    /// Records are left out that no whole file has made up for yet.
    behind: AtomicBool,
    /// That was told of, and its end was not.
    slow: AtomicBool,
    counts: Arc<Counts>,
}

/// How the journal fares.
#[derive(Debug, Default)]
pub struct Counts {
    left_out: AtomicU64,
    trouble: Mutex<Option<String>>,
}

impl Counts {
    /// How many records were left out since the start, because too many waited,
    /// to be made up for by a whole file.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Why nothing can be written at present.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }
}

/// What is said of records that wait for a whole file.
const TOO_SLOW: &str = "the disk is too slow; it is written as soon as that has caught up";

impl Journal {
    /// Begins with a file that says `memory`.
    pub fn begin(directory: Arc<Directory>, memory: Memory) -> Journal {
        let (messages, inbox) = mpsc::channel();
        let (done, ended) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let _ = messages.send(Message::Rewrite(memory)); // the receiver is at hand
        let run = move || {
            let _done = done; // dropped last, which is what `end` waits for
            Writer::new(directory, theirs).run(&inbox);
        };
        if let Err(error) = thread::Builder::new().name("journal".to_owned()).spawn(run) {
            warn!("nothing will be remembered over a restart: no thread for that: {error}");
        }
        Journal { messages, shared, ended }
    }

    /// Takes one record, and waits for nothing.
    pub fn append(&self, record: Record) {
        let octets = octets(&record);
        if self.shared.waiting.fetch_add(octets, Ordering::Relaxed) < OCTETS_KEPT {
            let _ = self.messages.send(Message::Append(record)); // a thread that is gone was told of
            return;
        }
        self.shared.waiting.fetch_sub(octets, Ordering::Relaxed);
        self.shared.counts.left_out.fetch_add(1, Ordering::Relaxed);
        self.shared.wants_all.store(true, Ordering::Relaxed);
        self.shared.behind.store(true, Ordering::Relaxed);
        if !self.shared.slow.swap(true, Ordering::Relaxed) {
            warn!(
                "more is to be remembered than the disk takes: the journal is written anew with all of it \
                 when the disk has caught up, and a restart before that would not know of it"
            );
        }
    }

    /// Whether everything is to be handed over once more; true once for each
    /// time.
    pub fn wants_all(&self) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) < OCTETS_KEPT
            && self.shared.wants_all.swap(false, Ordering::Relaxed)
    }

    /// Whether the file lacks something that only a whole one makes up for.
    pub fn is_behind(&self) -> bool {
        self.shared.behind.load(Ordering::Relaxed) || self.shared.counts.trouble.lock().is_some()
    }

    /// Writes the file anew: all that there is to remember.
    pub fn rewrite(&self, memory: Memory) {
        self.shared.behind.store(false, Ordering::Relaxed);
        let _ = self.messages.send(Message::Rewrite(memory));
    }

    /// Tells when all that was handed over is on the disk, or why it isn't.
    pub fn confirm(&self, told: oneshot::Sender<Result<(), String>>) {
        if self.shared.behind.load(Ordering::Relaxed) {
            let _ = told.send(Err(TOO_SLOW.to_owned())); // who has gone needs no answer
        } else {
            let _ = self.messages.send(Message::Confirm(told)); // dropped with a thread that is gone
        }
    }

    /// How it fares, to be looked at from elsewhere.
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.shared.counts)
    }

    /// Waits until all is on the disk, though not long.
    pub fn end(self) {
        drop(self.messages);
        let _ = self.ended.recv_timeout(LAST_RECORDS); // disconnected: it is done
    }
}

/// About how much room a record takes.
fn octets(record: &Record) -> usize {
    const FEW: usize = 150; // what every record has
    let scope = |scope: &Scope| scope.pool.len() + scope.endpoint.as_ref().map_or(0, |name| name.len());
    let endpoint = |key: &EndpointKey| key.pool.len() + key.endpoint.len();
    let texts = match record {
        Record::Target(key, _) => endpoint(&key.endpoint) + key.monitor.len() + key.vantage.len(),
        Record::Endpoint(key, memory) => endpoint(key) + 16 * memory.flaps.len(),
        Record::Override(of, _, said) => {
            scope(of) + said.as_ref().map_or(0, |said| said.reason.len() + said.by.len())
        }
        Record::State(_, word, _) => word.len(),
        Record::Balancer(_, pools) => pools.iter().map(|pool| 16 + pool.len()).sum(),
        Record::Host(name, addresses, _) => name.len() + 32 * addresses.len(),
        Record::Serial(..) | Record::Alive(_) => 0,
    };
    FEW + texts
}

/// The file, and how it fares.
struct Writer {
    directory: Arc<Directory>,
    shared: Arc<Shared>,
    /// None before the first one is written, and after an error.
    file: Option<File>,
    /// The size of the file when it was written anew, and now.
    compact: u64,
    size: u64,
    /// When what is written has to be on the disk.
    sync_at: Option<Instant>,
    /// When to try again after an error.
    retry_at: Option<Instant>,
    /// An error was told of, and its end was not.
    failing: bool,
    /// When the directory is looked at next.
    look_at: Instant,
    /// The directory at the path isn't ours.
    lost: bool,
}

impl Writer {
    fn new(directory: Arc<Directory>, shared: Arc<Shared>) -> Writer {
        Writer {
            directory,
            shared,
            file: None,
            compact: 0,
            size: 0,
            sync_at: None,
            retry_at: None,
            failing: false,
            look_at: Instant::now() + LOOK_EVERY,
            lost: false,
        }
    }

    fn run(mut self, inbox: &Receiver<Message>) {
        let mut lines = String::new();
        let mut asked = Vec::new();
        loop {
            let due = [self.sync_at, self.retry_at].into_iter().flatten().fold(self.look_at, Instant::min);
            let first = inbox.recv_timeout(due.saturating_duration_since(Instant::now()));
            let over = matches!(first, Err(RecvTimeoutError::Disconnected));
            for message in first.into_iter().chain(inbox.try_iter().take(1000)) {
                match message {
                    Message::Append(record) => {
                        self.shared.waiting.fetch_sub(octets(&record), Ordering::Relaxed);
                        lines += &format::line(&record);
                    }
                    Message::Rewrite(memory) => {
                        lines.clear(); // whatever was said before is in it
                        self.rewrite(memory);
                    }
                    Message::Confirm(told) => asked.push(told),
                }
            }
            if !asked.is_empty() && !self.directory.is_there() {
                self.look_at = Instant::now();
            }
            if self.look_at <= Instant::now() {
                self.look_at = Instant::now() + LOOK_EVERY;
                self.look();
            }
            self.append(&std::mem::take(&mut lines));
            if over || !asked.is_empty() || self.sync_at.is_some_and(|at| at <= Instant::now()) {
                self.sync();
            }
            for told in asked.drain(..) {
                let trouble = self.shared.counts.trouble().filter(|_| self.file.is_none());
                let _ = told.send(trouble.map_or(Ok(()), Err)); // who has gone needs no answer
            }
            if self.retry_at.is_some_and(|at| at <= Instant::now()) {
                self.retry_at = None;
                self.shared.wants_all.store(true, Ordering::Relaxed);
            }
            if over {
                return;
            }
        }
    }

    /// Notices when the directory was removed or replaced, and makes do with
    /// what is there now.
    fn look(&mut self) {
        if self.directory.is_there() {
            if std::mem::take(&mut self.lost) {
                self.shared.wants_all.store(true, Ordering::Relaxed); // what was moved away is back
            }
            return;
        }
        let path = self.directory.path().display().to_string();
        match self.directory.retake() {
            Ok(()) => {
                self.lost = false;
                self.lose("it was removed or replaced, and is made anew".to_owned());
                warn!("the state directory {path} was removed or replaced; it is made anew from memory");
                self.shared.wants_all.store(true, Ordering::Relaxed);
            }
            Err(error) => {
                self.lose(error.to_string());
                self.failing = true; // told right here
                if !std::mem::replace(&mut self.lost, true) {
                    error!(
                        "the state directory {path} was removed or replaced, and can't be taken anew: \
                         {error}; this server goes on, but remembers nothing over a restart, and commands \
                         may reach another one"
                    );
                }
            }
        }
    }

    fn append(&mut self, lines: &str) {
        let Some(file) = self.file.as_mut().filter(|_| !lines.is_empty()) else { return };
        match file.write_all(lines.as_bytes()) {
            Ok(()) => {
                let before = self.size;
                self.size += lines.len() as u64;
                self.sync_at.get_or_insert_with(|| Instant::now() + SYNC_EVERY);
                let limit = 2 * self.compact + SLACK;
                if before <= limit && self.size > limit {
                    self.shared.wants_all.store(true, Ordering::Relaxed);
                }
            }
            Err(error) => {
                // what can be read of half a line is nothing, so this only tidies up
                let _ = file.set_len(self.size);
                self.fail(&error);
            }
        }
    }

    fn sync(&mut self) {
        self.sync_at = None;
        if let Some(file) = &self.file
            && let Err(error) = file.sync_data()
        {
            self.fail(&error);
        }
    }

    /// Writes a file beside the old one, and puts it in its place.
    fn rewrite(&mut self, memory: Memory) {
        if self.lost {
            return; // another server's file is not to be replaced
        }
        if !self.directory.is_there() {
            self.look_at = Instant::now();
            self.lose("the state directory was removed or replaced".to_owned());
            return;
        }
        let text = format::head() + &memory.records().map(|record| format::line(&record)).collect::<String>();
        let beside = self.directory.join(&format!("{JOURNAL}.new"));
        let written: io::Result<File> = (|| {
            let _ = fs::remove_file(&beside); // whatever was left there, a link to elsewhere perhaps
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
            file.write_all(text.as_bytes())?;
            file.sync_data()?;
            fs::rename(&beside, self.directory.join(JOURNAL))?;
            File::open(self.directory.path())?.sync_all()?;
            Ok(file)
        })();
        match written {
            Ok(file) => {
                (self.compact, self.size) = (text.len() as u64, text.len() as u64);
                (self.file, self.sync_at, self.retry_at) = (Some(file), None, None);
                *self.shared.counts.trouble.lock() = None;
                let caught_up = !self.shared.behind.load(Ordering::Relaxed)
                    && self.shared.slow.swap(false, Ordering::Relaxed);
                if std::mem::take(&mut self.failing) || caught_up {
                    info!("{} is written again", self.directory.join(JOURNAL).display());
                }
            }
            Err(error) => {
                let _ = fs::remove_file(&beside);
                self.fail(&error);
            }
        }
    }

    /// Goes without the file, until one is written anew.
    fn lose(&mut self, why: String) {
        (self.file, self.sync_at) = (None, None);
        *self.shared.counts.trouble.lock() = Some(why);
    }

    fn fail(&mut self, error: &io::Error) {
        self.lose(error.to_string());
        self.retry_at = Some(Instant::now() + RETRY_EVERY);
        if !std::mem::replace(&mut self.failing, true) {
            warn!(
                "{} can't be written: {error}; answers go on, but a restart now would not know what \
                 happens meanwhile",
                self.directory.join(JOURNAL).display()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{Action, Override, Slot};
    use crate::moment::Moment;

    #[test]
    fn what_waits_for_a_disk_that_hangs_is_bounded_in_octets_and_made_up_for_by_a_whole_file() {
        let (messages, inbox) = mpsc::channel(); // nobody takes them
        let (_done, ended) = mpsc::channel();
        let journal = Journal { messages, shared: Arc::default(), ended };
        let said = Override {
            action: Action::Disable,
            reason: "x".repeat(10_000).into(),
            by: "me".into(),
            since: Moment::ZERO,
            until: None,
            drained_at: Moment::ZERO,
        };
        let of = Scope { pool: "eu".into(), endpoint: None };
        let record = Record::Override(of, Slot::Traffic, Some(said));
        while journal.counts().left_out() < 3 {
            journal.append(record.clone());
            assert!(journal.shared.waiting.load(Ordering::Relaxed) <= OCTETS_KEPT + octets(&record));
        }
        assert!(journal.is_behind());
        assert!(!journal.wants_all(), "no whole file before there is room for it");
        let (told, mut hears) = oneshot::channel();
        journal.confirm(told);
        assert_eq!(hears.try_recv().unwrap(), Err(TOO_SLOW.to_owned()));

        for message in inbox.try_iter() {
            let Message::Append(record) = message else { panic!("{message:?}") };
            journal.shared.waiting.fetch_sub(octets(&record), Ordering::Relaxed);
        }
        assert_eq!(journal.shared.waiting.load(Ordering::Relaxed), 0);
        assert!(journal.wants_all());
        journal.rewrite(Memory::default());
        assert!(!journal.is_behind());
    }
}
