//! The real binary as a child process, whose log lines can be waited for.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// No condition may take longer; only a failure waits for it.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `condition` holds.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// One line of what a child wrote.
#[derive(Clone, Debug)]
pub struct Line {
    pub at: Instant,
    pub text: String,
}

/// What one pipe has brought so far.
#[derive(Default)]
struct Written {
    state: Mutex<(Vec<Line>, bool)>,
    more: Condvar,
}

impl Written {
    fn gather(pipe: impl Read + Send + 'static) -> Arc<Written> {
        let written = Arc::new(Written::default());
        let theirs = Arc::clone(&written);
        thread::spawn(move || {
            let mut pipe = BufReader::new(pipe);
            let mut octets = Vec::new();
            // lossily: a terminal's output need not be whole lines of UTF-8
            while pipe.read_until(b'\n', &mut octets).is_ok_and(|length| length > 0) {
                let text = String::from_utf8_lossy(&octets).trim_end_matches(['\n', '\r']).to_owned();
                octets.clear();
                theirs.state.lock().unwrap().0.push(Line { at: Instant::now(), text });
                theirs.more.notify_all();
            }
            theirs.state.lock().unwrap().1 = true;
            theirs.more.notify_all();
        });
        written
    }

    fn lines(&self) -> Vec<Line> {
        self.state.lock().unwrap().0.clone()
    }

    /// The first line from number `from` on that holds `text`.
    fn line(&self, from: usize, text: &str) -> Line {
        let begun = Instant::now();
        let mut state = self.state.lock().unwrap();
        loop {
            if let Some(line) = state.0.iter().skip(from).find(|line| line.text.contains(text)) {
                return line.clone();
            }
            let waited = begun.elapsed();
            assert!(
                waited < PATIENCE && !state.1,
                "no line with {text:?} after line {from} of {:#?}",
                state.0
            );
            state = self.more.wait_timeout(state, PATIENCE - waited).unwrap().0;
        }
    }

    fn text(&self) -> String {
        self.lines().into_iter().map(|line| line.text + "\n").collect()
    }

    /// Everything, once the pipe is closed.
    fn whole(&self) -> String {
        let state = self.state.lock().unwrap();
        let (state, timeout) = self.more.wait_timeout_while(state, PATIENCE, |state| !state.1).unwrap();
        drop(state);
        assert!(!timeout.timed_out(), "the pipe stays open");
        self.text()
    }
}

/// A child; killed when dropped.
pub struct Hale {
    child: Child,
    out: Arc<Written>,
    log: Arc<Written>,
    /// Goes with it.
    state: Option<PathBuf>,
}

/// How a child ended.
pub struct Ended {
    pub status: ExitStatus,
    pub out: String,
    pub log: String,
}

impl Ended {
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }
}

/// The binary with these arguments, not yet started.
pub fn command<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hale"));
    command.args(arguments).env_remove("HALE_LOG");
    command.env("STATE_DIRECTORY", state_directory());
    command
}

/// A state directory of its own for each child, made when it serves.
fn state_directory() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("state-{}-{number}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path); // of a run that was killed and had the same pid
    path
}

/// Runs the binary to its end.
pub fn run<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Ended {
    Hale::start(command(arguments)).ended()
}

/// Sends a signal to a child.
pub fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

impl Hale {
    pub fn start(mut command: Command) -> Hale {
        Hale::try_start(&mut command).unwrap()
    }

    pub fn try_start(command: &mut Command) -> std::io::Result<Hale> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let out = Written::gather(child.stdout.take().unwrap());
        let log = Written::gather(child.stderr.take().unwrap());
        let state = command.get_envs().find(|(name, _)| *name == "STATE_DIRECTORY");
        let state = state.and_then(|(_, path)| path).map(PathBuf::from);
        let ours = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let own = |path: &PathBuf| {
            let name = path.strip_prefix(ours).ok().and_then(|rest| rest.to_str());
            name.is_some_and(|name| name.starts_with("state-"))
        };
        Ok(Hale { child, out, log, state: state.filter(own) })
    }

    /// `hale serve PATH --listen 127.0.0.1:0`, answering already.
    pub fn serve(path: impl AsRef<OsStr>) -> Hale {
        let hale = Hale::start(command([
            OsStr::new("serve"),
            path.as_ref(),
            OsStr::new("--listen"),
            OsStr::new("127.0.0.1:0"),
        ]));
        hale.address();
        hale
    }

    /// The first address it serves on, once it does.
    pub fn address(&self) -> SocketAddr {
        served(&self.line("serving on ").text).unwrap()
    }

    /// All addresses it serves on by now.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.log.lines().iter().filter_map(|line| served(&line.text)).collect()
    }

    /// Where it keeps its state, unless it was told otherwise.
    pub fn state_dir(&self) -> &Path {
        self.state.as_deref().expect("each has its own")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        self::signal(self.pid(), signal);
    }

    pub fn stdin(&mut self) -> &mut ChildStdin {
        self.child.stdin.as_mut().unwrap()
    }

    /// Waits for a log line that holds `text`.
    pub fn line(&self, text: &str) -> Line {
        self.log.line(0, text)
    }

    /// The same, among those after a mark.
    pub fn line_after(&self, mark: usize, text: &str) -> Line {
        self.log.line(mark, text)
    }

    /// How many log lines there are.
    pub fn mark(&self) -> usize {
        self.log.lines().len()
    }

    /// The log so far.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// How many log lines hold `text`.
    pub fn count(&self, text: &str) -> usize {
        self.log.lines().iter().filter(|line| line.text.contains(text)).count()
    }

    /// Waits for a line of standard output.
    pub fn printed(&self, from: usize, text: &str) -> Line {
        self.out.line(from, text)
    }

    /// How many lines standard output has.
    pub fn printed_mark(&self) -> usize {
        self.out.lines().len()
    }

    /// Waits for its end.
    pub fn ended(mut self) -> Ended {
        let mut status = None;
        until("the process ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        Ended { status: status.unwrap(), out: self.out.whole(), log: self.log.whole() }
    }

    /// Sends a signal and waits for the end; tells how long that took.
    pub fn stop(self, signal: Signal) -> (Ended, Duration) {
        let begun = Instant::now();
        self.signal(signal);
        let ended = self.ended();
        (ended, begun.elapsed())
    }
}

impl Drop for Hale {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended by itself
        let _ = self.child.wait();
        if let Some(state) = &self.state {
            let _ = std::fs::remove_dir_all(state);
        }
    }
}

/// The address in a log line of either format.
fn served(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("serving on ")?;
    rest.split(' ').next()?.parse().ok()
}
