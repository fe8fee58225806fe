//! Programs that probe.
//!
//! A program runs in a process group of its own. The group is killed before
//! its leader is waited for, as only until then its number is certain to mean
//! it: nothing that stays in the group outlives the probe, however that
//! ends.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::{env, thread};

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process_group, pidfd_open, waitpgid};
use tokio::io::AsyncReadExt;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe::Receiver;

use super::{Failure, Phase, Progress, connect};
use crate::health::{ProbeTask, Reason};
use crate::model::ExecCheck;
use crate::os;

/// So many octets of what a program prints are read; behind them it may fill
/// the pipe and then waits.
const MOST: usize = 4 * 1024;

/// Runs the program; it passes by exiting with 0.
pub(super) async fn probe(
    task: &ProbeTask,
    check: &ExecCheck,
    progress: &mut Progress,
) -> Result<(), Failure> {
    progress.phase = Phase::Response;
    let child = command(task, check).spawn().map_err(|error| not_started(&error))?;
    let mut group = Group(Some(child));
    let (ended, said) = group.watch().map_err(|error| not_started(&error))?;
    listen(&ended, said, progress).await;
    // It has ended, so this does not wait.
    let status = group.end().map_err(|error| not_started(&error))?;
    judge(status, progress)
}

fn command(task: &ProbeTask, check: &ExecCheck) -> Command {
    let (program, arguments) = check.command.split_first().expect("a command has a program");
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let port = if task.port == 0 { String::new() } else { task.port.to_string() };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", path)
        .env("HALE_POOL", &*task.pool)
        .env("HALE_ENDPOINT", &*task.endpoint)
        .env("HALE_ADDRESS", task.address.to_string())
        .env("HALE_PORT", port)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0);
    command
}

fn not_started(error: &io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => connect::failure(error, connect::Origin::System),
        _ => Failure::NotTested(Reason::OtherFailure, "command_not_started"),
    }
}

/// Hears what the program prints until it has ended; what it has started may
/// hold the pipe open for longer.
async fn listen(ended: &AsyncFd<OwnedFd>, mut said: Receiver, progress: &mut Progress) {
    let mut room = [0; MOST];
    let mut heard = 0;
    loop {
        tokio::select! {
            biased;
            read = said.read(&mut room), if heard < MOST => match read {
                Ok(length @ 1..) => {
                    progress.hear(&room[..length]);
                    heard += length;
                }
                _ => heard = MOST,
            },
            _ = ended.readable() => break,
        }
    }
    // The last words may have come together with the end.
    if heard < MOST
        && let Ok(length @ 1..) = rustix::io::read(&said, &mut room)
    {
        progress.hear(&room[..length]);
    }
}

fn judge(status: ExitStatus, progress: &mut Progress) -> Result<(), Failure> {
    progress.status = status.code().and_then(|code| u16::try_from(code).ok());
    match status.code() {
        Some(0) => Ok(()),
        Some(_) => Err(Failure::Failed(Reason::CommandFailed, "exit_status")),
        None => {
            debug_assert!(status.signal().is_some());
            Err(Failure::Failed(Reason::CommandFailed, "killed_by_signal"))
        }
    }
}

/// A process group by its leader, which has not been waited for; killed with
/// this value.
#[derive(Debug)]
struct Group(Option<Child>);

impl Group {
    /// Becomes readable when the leader has ended; and what it prints.
    fn watch(&mut self) -> io::Result<(AsyncFd<OwnedFd>, Receiver)> {
        let child = self.0.as_mut().expect("it has not been ended");
        let ended = pidfd_open(pid(child), PidfdFlags::NONBLOCK)?;
        let said: ChildStdout = child.stdout.take().expect("it is a pipe, and taken once");
        let ended = os::readable(ended)?;
        Ok((ended, Receiver::from_owned_fd(said.into())?))
    }

    /// Kills what is left of the group and waits for the leader.
    fn end(mut self) -> io::Result<ExitStatus> {
        let mut child = self.0.take().expect("it is ended once");
        kill(&child);
        let status = child.wait()?;
        if waitpgid(pid(&child), WaitOptions::NOHANG).is_ok() {
            reap(child);
        }
        Ok(status)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(child) = self.0.take() {
            kill(&child);
            reap(child);
        }
    }
}

/// Waits for the killed: dying takes a moment, and this thread has other
/// probes. Where this is the first process of a container, what the program
/// has started has become a child of ours and is waited for, too.
fn reap(mut child: Child) {
    let wait = move || {
        let _ = child.wait();
        while waitpgid(pid(&child), WaitOptions::empty()).is_ok() {}
    };
    let _ = thread::Builder::new().name("probe-reaper".into()).spawn(wait);
}

fn kill(child: &Child) {
    let _ = kill_process_group(pid(child), Signal::KILL);
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}
