//! What the benches share: a `hale` process, its costs, and a few figures.

#![allow(dead_code)] // each bench uses its part

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// A child process that ends with this value.
pub struct Process {
    child: Child,
    /// The lines it writes to standard error.
    pub lines: mpsc::Receiver<String>,
}

impl Process {
    pub fn start(command: &mut Command) -> Process {
        let mut child =
            command.stderr(Stdio::piped()).stdin(Stdio::null()).spawn().expect("the program starts");
        let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Process { child, lines }
    }

    /// Starts `hale serve` on this configuration, and waits until it serves.
    pub fn hale(configuration: &Path) -> (Process, SocketAddr) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hale"));
        command.arg("serve").arg(configuration).args(["--listen", "127.0.0.1:0", "--log", "json"]);
        let folder = match configuration.is_dir() {
            true => configuration,
            false => configuration.parent().expect("a file lies in a folder"),
        };
        // of its own for each, under a hidden name, which is no configuration
        let name = configuration.file_stem().unwrap_or_default().to_string_lossy();
        command.arg("--state-dir").arg(folder.join(format!(".state-{name}")));
        let process = Process::start(&mut command);
        let address = process.wait_for(|line| {
            let (_, rest) = line.split_once("serving on ")?;
            rest.split_once(' ')?.0.parse().ok()
        });
        (process, address)
    }

    /// Waits for a line in which `find` finds something, for a minute at most.
    pub fn wait_for<T>(&self, find: impl Fn(&str) -> Option<T>) -> T {
        loop {
            let line =
                self.lines.recv_timeout(Duration::from_secs(60)).expect("the line comes within a minute");
            if let Some(found) = find(&line) {
                return found;
            }
        }
    }

    /// Processor time used so far, user and system, children included.
    pub fn cpu(&self) -> Duration {
        let mut processes = vec![self.child.id()];
        let mut hundredths = 0;
        while let Some(pid) = processes.pop() {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let after_name = stat.rsplit(") ").next().unwrap_or_default();
            let field = |n: usize| after_name.split(' ').nth(n).and_then(|f| f.parse().ok()).unwrap_or(0u64);
            hundredths += field(11) + field(12);
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            processes.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
        Duration::from_millis(hundredths * 10)
    }

    /// Resident memory in MiB.
    pub fn memory(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            // some have children that they end themselves when asked to
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            for _ in 0..100 {
                if self.child.try_wait().is_ok_and(|status| status.is_some()) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder for one bench's files, removed with this value.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("hale-bench-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder for temporary files");
        Folder(path)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).expect("a file can be written");
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A number from the environment.
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The value below which this share of the values lies.
pub fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share).round() as usize]
}
