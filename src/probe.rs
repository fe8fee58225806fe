//! Carries out one probe and says what it found.
//!
//! Owns what happens between connecting and judging: the deadline of an
//! attempt, which endings are tried again, and how the system's, TLS's and
//! HTTP's errors become a [`Reason`] with a detail code. Every attempt makes
//! its own connection and drives it itself, so nothing outlives the probe:
//! dropping the future of [`Prober::run`] closes the socket.
//!
//! ```text
//!   run ─► attempt ─► connect ─► tls ─► http: one exchange ─► judged
//!     ▲       │                            ▲         │
//!     └─ timed out, retries left           └── hop ◄─┘ a redirect to follow
//! ```
//!
//! Knows nothing of intervals, thresholds and verdicts: the caller says when
//! to probe and what outcomes mean.

mod connect;
mod hop;
mod http;
mod tls;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

use crate::health::{Outcome, ProbeResult, ProbeTask, Reason};
use crate::model::Check;

/// Makes probes; keeps what they share.
#[derive(Debug, Default)]
pub struct Prober {
    tls: tls::Configs,
}

impl Prober {
    /// One without anything cached.
    pub fn new() -> Prober {
        Prober::default()
    }

    /// Makes one probe: an attempt, and another for each that timed out as
    /// far as `retries` go. The last attempt's ending is the outcome.
    pub async fn run(&self, task: &ProbeTask) -> Outcome {
        let started = Instant::now();
        let mut retries = task.monitor.retries;
        loop {
            let (ending, status) = self.attempt(task).await;
            if matches!(ending, Err(Failure::TimedOut(_))) && retries > 0 {
                retries -= 1;
                continue;
            }
            return outcome(ending, status, &task.monitor.check, started.elapsed());
        }
    }

    async fn attempt(&self, task: &ProbeTask) -> (Result<(), Failure>, Option<u16>) {
        let mut progress = Progress::new(Instant::now() + task.monitor.timeout);
        let deadline = progress.deadline;
        let work = async {
            match &task.monitor.check {
                Check::Tcp { .. } => {
                    let stream = connect::connect(SocketAddr::new(task.address, task.port)).await?;
                    drop(stream); // a FIN: nothing was received that could turn it into an RST
                    Ok(())
                }
                Check::Http(check) => http::probe(&self.tls, task, check, &mut progress).await,
            }
        };
        let ending = match tokio::time::timeout_at(deadline, work).await {
            Ok(Err(Failure::TimedOut(_))) => Err(Failure::TimedOut(progress.phase)),
            Ok(ending) => ending,
            // What was found stands, even when the time ran out over the rest of a body.
            Err(_) => progress.found.take().unwrap_or(Err(Failure::TimedOut(progress.phase))),
        };
        (ending, progress.status)
    }
}

/// How an attempt ended when it did not pass.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Failure {
    /// The time is up, or the system gave up waiting; the only ending that is tried again.
    TimedOut(Phase),
    /// The endpoint did not do what the monitor asks.
    Failed(Reason, &'static str),
    /// A cause on this side: nothing is known of the endpoint.
    NotTested(Reason, &'static str),
}

/// What an attempt waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Resolve,
    Connect,
    Tls,
    Response,
    Body,
}

/// How far an attempt has come; outlives it when its time is up.
#[derive(Debug)]
struct Progress {
    deadline: Instant,
    phase: Phase,
    /// Of the newest answer.
    status: Option<u16>,
    /// The ending, once it stands and only politeness is left to do.
    found: Option<Result<(), Failure>>,
}

impl Progress {
    fn new(deadline: Instant) -> Progress {
        Progress { deadline, phase: Phase::Connect, status: None, found: None }
    }
}

fn outcome(ending: Result<(), Failure>, status: Option<u16>, check: &Check, took: Duration) -> Outcome {
    let (result, reason, detail) = match ending {
        Ok(()) => (ProbeResult::Pass, Reason::NoFailures, ""),
        Err(Failure::Failed(reason, detail)) => (ProbeResult::Fail, reason, detail),
        Err(Failure::NotTested(reason, detail)) => (ProbeResult::Error, reason, detail),
        // Our resolver's silence says nothing about the endpoint.
        Err(Failure::TimedOut(Phase::Resolve)) => {
            (ProbeResult::Error, Reason::OtherFailure, "resolve_timeout")
        }
        Err(Failure::TimedOut(phase)) => {
            let reason = match check {
                Check::Tcp { .. } => Reason::TcpTimeout,
                Check::Http(_) => Reason::HttpTimeout,
            };
            let detail = match phase {
                Phase::Resolve => "resolve_timeout",
                Phase::Connect => "connect_timeout",
                Phase::Tls => "tls_timeout",
                Phase::Response => "response_timeout",
                Phase::Body => "body_timeout",
            };
            (ProbeResult::Fail, reason, detail)
        }
    };
    Outcome { result, reason, detail, status, took }
}
