//! The journal's thread: the engine hands over and goes on, whatever the disk
//! does.
//!
//! Records are appended as they come, and reach the disk within a second. The
//! file is written anew, beside the old one and then in its place, at the start
//! and whenever it has grown to more than twice what it says. After an error
//! nothing is appended any more, since a line may be half there: the next file
//! that is written anew makes up for what was lost.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use super::{Directory, JOURNAL, format};
use crate::health::{Memory, Record};

/// What is written reaches the disk within this time.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// After an error the file is tried again so often.
const RETRY_EVERY: Duration = Duration::from_secs(2);

/// So often the directory is looked at: whether it is still ours.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How much a file may grow beyond twice its size.
const SLACK: u64 = 64 << 10;

/// So many records wait for a disk that hangs; further ones are lost until the
/// file is written anew.
const RECORDS_KEPT: usize = 100_000;

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
}

#[derive(Debug, Default)]
struct Shared {
    /// Records on their way to the thread.
    waiting: AtomicUsize,
    /// The file is to be written anew.
    wants_all: AtomicBool,
}

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
        if self.shared.waiting.fetch_add(1, Ordering::Relaxed) >= RECORDS_KEPT {
            self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
            self.shared.wants_all.store(true, Ordering::Relaxed);
        } else {
            let _ = self.messages.send(Message::Append(record)); // a thread that is gone was told of
        }
    }

    /// Whether everything is to be handed over once more; true once for each
    /// time.
    pub fn wants_all(&self) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) < RECORDS_KEPT
            && self.shared.wants_all.swap(false, Ordering::Relaxed)
    }

    /// Writes the file anew: all that there is to remember.
    pub fn rewrite(&self, memory: Memory) {
        let _ = self.messages.send(Message::Rewrite(memory));
    }

    /// Waits until all is on the disk, though not long.
    pub fn end(self) {
        drop(self.messages);
        let _ = self.ended.recv_timeout(LAST_RECORDS); // disconnected: it is done
    }
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
        loop {
            let due = [self.sync_at, self.retry_at].into_iter().flatten().fold(self.look_at, Instant::min);
            let first = inbox.recv_timeout(due.saturating_duration_since(Instant::now()));
            let over = matches!(first, Err(RecvTimeoutError::Disconnected));
            for message in first.into_iter().chain(inbox.try_iter().take(1000)) {
                match message {
                    Message::Append(record) => {
                        self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
                        lines += &format::line(&record);
                    }
                    Message::Rewrite(memory) => {
                        lines.clear(); // whatever was said before is in it
                        self.rewrite(memory);
                    }
                }
            }
            if self.look_at <= Instant::now() {
                self.look_at = Instant::now() + LOOK_EVERY;
                self.look();
            }
            self.append(&std::mem::take(&mut lines));
            if over || self.sync_at.is_some_and(|at| at <= Instant::now()) {
                self.sync();
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
            self.lost = false;
            return;
        }
        let path = self.directory.path().display().to_string();
        match self.directory.retake() {
            Ok(()) => {
                self.lost = false;
                self.file = None;
                warn!("the state directory {path} was removed or replaced; it is made anew from memory");
                self.shared.wants_all.store(true, Ordering::Relaxed);
            }
            Err(error) => {
                self.file = None;
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
                if std::mem::take(&mut self.failing) {
                    info!("{} is written again", self.directory.join(JOURNAL).display());
                }
            }
            Err(error) => {
                let _ = fs::remove_file(&beside);
                self.fail(&error);
            }
        }
    }

    fn fail(&mut self, error: &io::Error) {
        (self.file, self.sync_at) = (None, None);
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
