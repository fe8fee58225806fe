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

mod agent;
mod connect;
mod datagram;
mod dns;
mod exchange;
mod exec;
mod grpc;
mod handshake;
mod hop;
mod http;
mod icmp;
mod namespace;
mod prometheus;
mod search;
mod smtp;
mod talk;
mod tcp;
mod tls;
mod udp;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::health::{AgentReport, Degraded, Evidence, Outcome, ProbeResult, ProbeTask, Reason};
use crate::model::{Check, Reach, Reading};

/// Makes probes; keeps what they share.
#[derive(Debug, Default)]
pub struct Prober {
    here: Arc<Here>,
    namespaces: namespace::Namespaces,
}

impl Prober {
    /// One without anything cached.
    pub fn new() -> Prober {
        Prober::default()
    }

    /// Makes one probe: an attempt, and another for each that timed out as
    /// far as `retries` go. The last attempt's ending is the outcome.
    pub async fn run(&self, task: &ProbeTask) -> Outcome {
        let Reach::Here { namespace: Some(namespace), .. } = &task.vantage.reach else {
            return self.here.run(task).await;
        };
        let (here, task) = (Arc::clone(&self.here), task.clone());
        let probe = async move { here.run(&task).await };
        match Box::pin(self.namespaces.run(namespace, probe)).await {
            Ok(outcome) => outcome,
            Err(namespace::Unavailable) => {
                Outcome::new(ProbeResult::Error, Reason::OtherFailure, "namespace_unavailable")
            }
        }
    }
}

/// Makes probes in the network namespace of the thread it runs on.
#[derive(Debug, Default)]
struct Here {
    tls: tls::Configs,
    patterns: http::Patterns,
}

impl Here {
    async fn run(&self, task: &ProbeTask) -> Outcome {
        let started = Instant::now();
        let mut attempts = 1;
        loop {
            let (ending, mut progress) = self.attempt(task).await;
            if matches!(ending, Err(Failure::TimedOut(_))) && attempts <= task.monitor.retries {
                attempts += 1;
                continue;
            }
            progress.evidence.attempts = attempts;
            let outcome = outcome(ending, progress, &task.monitor.check, started.elapsed());
            return read(outcome, &task.monitor.reading);
        }
    }

    async fn attempt(&self, task: &ProbeTask) -> (Result<(), Failure>, Progress) {
        let mut progress = Progress::new(task.monitor.timeout);
        let deadline = progress.deadline;
        let work = self.check(task, &mut progress);
        let ending = match tokio::time::timeout_at(deadline, work).await {
            Ok(Err(Failure::TimedOut(_))) => Err(Failure::TimedOut(progress.phase)),
            Ok(ending) => ending,
            // What was found stands, even when the time ran out over the rest of a body.
            Err(_) => progress.found.take().unwrap_or(Err(Failure::TimedOut(progress.phase))),
        };
        (ending, progress)
    }

    /// The usual probes have futures of their own size; those of the others, up
    /// to 8 KiB, are put aside, for every probe would have room for the largest.
    async fn check(&self, task: &ProbeTask, progress: &mut Progress) -> Result<(), Failure> {
        let tls = &self.tls;
        match &task.monitor.check {
            Check::Tcp(check) => tcp::probe(task, check, progress).await,
            Check::Http(check) => {
                let probe = http::Probe { configs: tls, patterns: &self.patterns, task, check };
                Box::pin(http::probe(probe, progress)).await
            }
            Check::Icmp => icmp::probe(task, progress).await,
            Check::Udp(check) => udp::probe(task, check, progress).await,
            Check::Smtp(check) => Box::pin(smtp::probe(tls, task, check, progress)).await,
            Check::Tls(check) => Box::pin(handshake::probe(tls, task, check, progress)).await,
            Check::Dns(check) => Box::pin(dns::probe(task, check, progress)).await,
            Check::Grpc(check) => Box::pin(grpc::probe(tls, task, check, progress)).await,
            Check::Agent(check) => Box::pin(agent::probe(task, check, progress)).await,
            Check::Exec(check) => Box::pin(exec::probe(task, check, progress)).await,
            Check::Prometheus(check) => Box::pin(prometheus::probe(tls, task, check, progress)).await,
            // The engine answers these by itself.
            Check::Push | Check::Static(_) => Err(Failure::NotTested(Reason::OtherFailure, "not_probed")),
        }
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
    began: Instant,
    deadline: Instant,
    phase: Phase,
    /// Of the newest answer.
    status: Option<u16>,
    /// The ending, once it stands and only politeness is left to do.
    found: Option<Result<(), Failure>>,
    degraded: Option<Degraded>,
    agent: Option<AgentReport>,
    evidence: Evidence,
}

impl Progress {
    fn new(timeout: Duration) -> Progress {
        let began = Instant::now();
        Progress {
            began,
            deadline: began + timeout,
            phase: Phase::Connect,
            status: None,
            found: None,
            degraded: None,
            agent: None,
            evidence: Evidence::default(),
        }
    }

    /// The time since the attempt began.
    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Begins with another connection: what the one before it showed is past,
    /// except that a certificate was expiring.
    fn begin(&mut self) {
        self.status = None;
        self.phase = Phase::Connect;
        self.evidence = Evidence::default();
    }

    /// Goes on to `phase`, the one before being over.
    fn enter(&mut self, phase: Phase) {
        let over = Some(self.elapsed());
        match self.phase {
            Phase::Resolve => self.evidence.resolved = over,
            Phase::Connect => self.evidence.connected = over,
            Phase::Tls => self.evidence.tls = over,
            Phase::Response | Phase::Body => {}
        }
        self.phase = phase;
    }

    /// Keeps the beginning of what the endpoint says.
    fn hear(&mut self, octets: &[u8]) {
        if self.evidence.first_byte.is_none() {
            self.evidence.first_byte = Some(self.elapsed());
        }
        let said = &mut self.evidence.said;
        let room = Evidence::SAID.saturating_sub(said.len()).min(octets.len());
        if room > 0 {
            *said = [said, &octets[..room]].concat().into();
        }
    }
}

fn outcome(ending: Result<(), Failure>, progress: Progress, check: &Check, took: Duration) -> Outcome {
    let (result, reason, detail) = match ending {
        Ok(()) => (ProbeResult::Pass, Reason::NoFailures, ""),
        Err(Failure::Failed(reason, detail)) => (ProbeResult::Fail, reason, detail),
        Err(Failure::NotTested(reason, detail)) => (ProbeResult::Error, reason, detail),
        // Our resolver's silence says nothing about the endpoint, nor does Prometheus's.
        Err(Failure::TimedOut(phase)) if phase == Phase::Resolve || is_hearsay(check) => {
            (ProbeResult::Error, Reason::OtherFailure, timeout_detail(phase))
        }
        Err(Failure::TimedOut(phase)) => {
            (ProbeResult::Fail, Reason::of_timeout(check), timeout_detail(phase))
        }
    };
    Outcome {
        result,
        reason,
        detail,
        status: progress.status,
        took,
        degraded: progress.degraded.filter(|_| result == ProbeResult::Pass),
        agent: progress.agent,
        evidence: progress.evidence,
    }
}

/// Whether somebody else than the endpoint is asked.
fn is_hearsay(check: &Check) -> bool {
    matches!(check, Check::Prometheus(_))
}

fn timeout_detail(phase: Phase) -> &'static str {
    match phase {
        Phase::Resolve => "resolve_timeout",
        Phase::Connect => "connect_timeout",
        Phase::Tls => "tls_timeout",
        Phase::Response => "response_timeout",
        Phase::Body => "body_timeout",
    }
}

/// What the monitor makes of an outcome: limits of latency, then inversion.
fn read(mut outcome: Outcome, reading: &Reading) -> Outcome {
    let above = |limit: Option<Duration>| limit.is_some_and(|limit| outcome.took > limit);
    if outcome.result == ProbeResult::Pass && above(reading.fail_above) {
        outcome.result = ProbeResult::Fail;
        (outcome.reason, outcome.detail) = (Reason::LatencyAboveLimit, "latency_above_limit");
    } else if outcome.result == ProbeResult::Pass && above(reading.degraded_above) {
        outcome.degraded = Some(Degraded::Slow);
    }
    if reading.invert {
        match outcome.result {
            ProbeResult::Pass => {
                outcome.result = ProbeResult::Fail;
                (outcome.reason, outcome.detail) = (Reason::Inverted, "inverted");
            }
            ProbeResult::Fail => {
                outcome.result = ProbeResult::Pass;
                outcome.reason = Reason::NoFailures; // the detail tells what was wanted
            }
            ProbeResult::Error => {}
        }
        outcome.degraded = None;
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_limits_and_inversion_read_an_outcome_anew() {
        use ProbeResult::{Error, Fail, Pass};
        let limit = |seconds| Some(Duration::from_secs(seconds));
        for (result, seconds, degraded_above, fail_above, invert, read_as, degraded) in [
            (Pass, 1, limit(2), limit(4), false, Pass, false),
            (Pass, 3, limit(2), limit(4), false, Pass, true),
            (Pass, 5, limit(2), limit(4), false, Fail, false),
            (Fail, 5, limit(2), limit(4), false, Fail, false),
            (Pass, 1, None, None, true, Fail, false),
            (Fail, 1, None, None, true, Pass, false),
            (Error, 1, None, None, true, Error, false),
            (Pass, 5, None, limit(4), true, Pass, false),
        ] {
            let seen = Outcome {
                took: Duration::from_secs(seconds),
                ..Outcome::new(result, Reason::NoFailures, "")
            };
            let reading = Reading { invert, degraded_above, fail_above, ..Reading::default() };
            let found = read(seen, &reading);
            let case = format!("{result:?} after {seconds} s, inverted: {invert}");
            assert_eq!((found.result, found.degraded.is_some()), (read_as, degraded), "{case}");
        }
    }
}
