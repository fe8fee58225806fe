//! Logs: one line for every change of a verdict, a pool, a load balancer or records
//! that follow health.
//!
//! Lines are written by a thread of their own, because whoever reads standard
//! error may stop reading: then lines are lost, and counted, but the engine
//! never waits.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use tracing::{debug, info, warn};
use tracing_subscriber::EnvFilter;

use crate::authority::BalancerState;
use crate::clock::Clock;
use crate::engine::{Cause, Change, TakenBack};
use crate::events::{balancer_reason, pool_reason, records_reason};
use crate::health::{Outcome, PoolState, ProbeTask, ScheduleCounters, Standing, Verdict};
use crate::model::{Model, Scope};
use crate::rdata::type_name;

pub use crate::events::headline;

/// So many lines wait for the reader of standard error; further ones are lost.
const LINES_KEPT: u64 = 10_000;

/// How long the end of the program waits for it.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The log's thread.
static LOG: OnceLock<Queue> = OnceLock::new();

/// Sends log lines to standard error: JSON objects, or text for people with or
/// without colours. `HALE_LOG` filters them in the syntax of tracing's
/// directives, such as `haledns=debug`. Only the first call counts.
pub fn start_log(json: bool, colours: bool) {
    let asked = std::env::var("HALE_LOG").unwrap_or_default();
    let asked = if asked.is_empty() { "info" } else { &asked };
    let (filter, error) = match EnvFilter::try_new(asked) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new("info"), Some(error)),
    };
    let queue = LOG.get_or_init(Queue::start);
    let writer = || queue.clone();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_target(false);
    let started = match json {
        false => log.with_ansi(colours).try_init(),
        true => log.json().flatten_event(true).try_init(),
    };
    drop(started); // a log that runs already goes on
    if let Some(error) = error {
        warn!("HALE_LOG is ignored: {error}; write for example `warn` or `haledns=debug`");
    }
}

/// Waits until the log is written, though not long.
pub fn finish_log() {
    let Some(queue) = LOG.get() else { return };
    let (written, is_written) = mpsc::channel();
    // if the thread is gone, or nobody reads, there is nobody to tell
    let _ = queue.lines.send(Message::Tell(written));
    let _ = is_written.recv_timeout(LAST_LINES);
}

/// Takes lines to the log's thread.
#[derive(Clone)]
struct Queue {
    lines: Sender<Message>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    waiting: AtomicU64,
    lost: AtomicU64,
}

enum Message {
    Line(Vec<u8>),
    /// Everything before it is written.
    Tell(Sender<()>),
}

impl Queue {
    fn start() -> Queue {
        let (lines, inbox) = mpsc::channel();
        let counts = Arc::new(Counts::default());
        let theirs = Arc::clone(&counts);
        let thread = thread::Builder::new().name("log".to_owned());
        // without the thread lines are lost: better than a server that doesn't start
        let _ = thread.spawn(move || write_lines(&inbox, &theirs));
        Queue { lines, counts }
    }
}

impl Write for Queue {
    /// Takes one whole line, as tracing hands them over.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Counts { waiting, lost } = &*self.counts;
        if waiting.fetch_add(1, Ordering::Relaxed) >= LINES_KEPT {
            waiting.fetch_sub(1, Ordering::Relaxed);
            lost.fetch_add(1, Ordering::Relaxed);
        } else {
            let _ = self.lines.send(Message::Line(line.to_vec()));
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_lines(inbox: &Receiver<Message>, counts: &Counts) {
    while let Ok(message) = inbox.recv() {
        match message {
            Message::Line(line) => {
                let _ = io::stderr().write_all(&line); // where else could that be told?
                if counts.waiting.fetch_sub(1, Ordering::Relaxed) == 1 {
                    let lost = counts.lost.swap(0, Ordering::Relaxed);
                    if lost > 0 {
                        warn!(lost, "log lines were lost, because nobody read them");
                    }
                }
            }
            Message::Tell(written) => {
                let _ = written.send(());
            }
        }
    }
}

/// Writes the line for one change.
pub fn tell(change: &Change, clock: &Clock) {
    // the level is part of a call site in tracing, so each line has two
    macro_rules! line {
        ($good:expr, $($fields:tt)*) => {
            if $good { info!($($fields)*) } else { warn!($($fields)*) }
        };
    }
    let headline = headline(change);
    match change {
        Change::Verdict { scope, monitor, vantage, from, to, reason, detail, status, since } => {
            let (pool, endpoint) = names(scope);
            let since = clock.utc(*since);
            let (good, reason) = (*to == Verdict::Healthy, reason.as_str());
            line!(good, pool, endpoint, %monitor, %vantage, %from, %to, reason, detail, status, since, "{headline}");
        }
        Change::Endpoint { scope, from, to, cause, since } => {
            let (pool, endpoint) = names(scope);
            let since = clock.utc(*since);
            let good = is_good(from, to);
            let (from, to, reason) = (from.word(), to.word(), cause.reason());
            match cause {
                Cause::Probe { monitor, vantage, detail, status, .. } => {
                    line!(good, pool, endpoint, %monitor, %vantage, from, to, reason, detail, status, since, "{headline}");
                }
                Cause::Operator { by, .. } | Cause::TakenBack { who: TakenBack { by, .. }, .. } => {
                    line!(good, pool, endpoint, from, to, reason, %by, since, "{headline}");
                }
                _ => line!(good, pool, endpoint, from, to, reason, since, "{headline}"),
            }
        }
        Change::Gone { scope, from, reason, since } => {
            let ((pool, endpoint), since) = (names(scope), clock.utc(*since));
            info!(pool, endpoint, from = from.word(), to = "gone", reason, since, "{headline}");
        }
        Change::CannotProbe { scope, monitor, vantage, reason, detail } => {
            let ((pool, endpoint), reason) = (names(scope), reason.as_str());
            warn!(pool, endpoint, %monitor, %vantage, reason, detail, "{headline}");
        }
        Change::Vantage { vantage, suspect } => line!(!suspect, %vantage, "{headline}"),
        Change::Pool { pool, from, to, threshold, endpoints, said, taken_back, since } => {
            let since = clock.utc(*since);
            let reason = pool_reason(to, *threshold, *endpoints, said.as_ref(), taken_back.as_ref());
            let to = to.state;
            // from unknown things only get better, unless it ends in Critical
            let good =
                to != PoolState::Critical && (to != PoolState::Degraded || *from != PoolState::Healthy);
            line!(good, %pool, %from, %to, reason, since, "{headline}");
        }
        Change::Balancer { name, from, to, serving, fallback, since } => {
            let since = clock.utc(*since);
            let reason = balancer_reason(serving, *fallback);
            let good = *to != BalancerState::Critical && to <= from;
            line!(good, load_balancer = %name, %from, %to, reason, since, "{headline}");
        }
        Change::Records { name, rtype, from, to, since } => {
            let (since, reason, rtype) = (clock.utc(*since), records_reason(to), type_name(*rtype));
            let good = !to.at_fallback && (from.at_fallback || to.left_out.len() <= from.left_out.len());
            line!(good, records = %name, %rtype, %from, %to, reason, since, "{headline}");
        }
    }
}

/// Whether an endpoint stands better than before, or well.
fn is_good(from: &Standing, to: &Standing) -> bool {
    let blemishes = |of: &Standing| [of.stale, of.flapping, of.degraded.is_some()];
    match (from.fitness.is_up(), to.fitness.is_up()) {
        (false, true) => !to.stale,
        (true, false) => false,
        (true, true) => blemishes(from).iter().zip(blemishes(to)).all(|(before, now)| *before || !now),
        (false, false) => false,
    }
}

/// The pool's and the endpoint's name.
fn names(scope: &Scope) -> (&str, &str) {
    (&scope.pool, scope.endpoint.as_deref().unwrap_or_default())
}

/// Writes that another configuration is in force.
pub fn tell_reload(model: &Model) {
    let balancers: usize = model.zones.iter().map(|zone| zone.load_balancers.len()).sum();
    let endpoints: usize = model.pools.iter().map(|pool| pool.endpoints.len()).sum();
    let (zones, pools) = (model.zones.len(), model.pools.len());
    info!(zones, load_balancers = balancers, pools, endpoints, "configuration reloaded");
}

/// Writes what one probe has found, for those who ask for so much.
pub fn tell_probe(task: &ProbeTask, outcome: &Outcome) {
    let ProbeTask { pool, endpoint, address, port, monitor, .. } = task;
    let Outcome { result, reason, detail, status, took, .. } = outcome;
    let (monitor, reason) = (&monitor.name, reason.as_str());
    debug!(%monitor, reason, detail, status, ?took, "probe of {pool}/{endpoint} at {address} port {port}: {result:?}");
}

/// Writes what the probe schedule has counted.
pub fn tell_probes(counters: ScheduleCounters, before: ScheduleCounters) {
    let ScheduleCounters { started, late, skipped } = counters;
    info!(started, late, skipped, "probes since the start");
    if is_overloaded(counters, before) {
        warn!(
            "more than half of the probes since the last count came late or not at all: verdicts are older than \
             they should be; raise `interval` or `max_probes`, or have fewer vantages and monitors"
        );
    }
}

/// Whether most beats since `before` came late or were let out.
fn is_overloaded(counters: ScheduleCounters, before: ScheduleCounters) -> bool {
    let skipped = counters.skipped - before.skipped;
    let due = counters.started - before.started + skipped;
    counters.late - before.late + skipped > due / 2
}

/// What the transports have counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queries {
    pub queries: u64,
    pub replies: u64,
    /// How many over which transport.
    pub over: String,
    pub trouble: Trouble,
}

/// Of that, what should be looked at when it grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Too many for their network: sent short, or not at all.
    pub slipped: u64,
    pub dropped: u64,
    /// From a proxy, and without its header.
    pub unproxied: u64,
    /// Lost before they were looked at.
    pub overflows: u64,
    /// Replies that the kernel would not send.
    pub unsent: u64,
    /// Connections closed to make room.
    pub evicted: u64,
    pub panics: u64,
    pub restarts: u64,
}

/// Writes what the transports have counted.
pub fn tell_queries(so_far: &Queries) {
    let Queries { queries, replies, over, trouble } = so_far;
    let some = |count: u64| (count > 0).then_some(count); // what is zero is left out
    let Trouble { slipped, dropped, unproxied, overflows, unsent, evicted, panics, restarts } = *trouble;
    info!(
        queries,
        replies,
        %over,
        slipped = some(slipped),
        dropped = some(dropped),
        unproxied = some(unproxied),
        overflows = some(overflows),
        unsent = some(unsent),
        evicted = some(evicted),
        panics = some(panics),
        restarts = some(restarts),
        "queries since the start"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{DownCause, Fitness, OutCause};

    #[test]
    fn most_probes_late_or_left_out_is_too_much() {
        let of = |(started, late, skipped)| ScheduleCounters { started, late, skipped };
        for (before, now, too_much) in [
            ((0, 0, 0), (0, 0, 0), false),
            ((0, 0, 0), (100, 50, 0), false),
            ((0, 0, 0), (100, 51, 0), true),
            ((100, 90, 90), (200, 90, 90), false),
            ((100, 0, 0), (150, 10, 70), true),
        ] {
            assert_eq!(is_overloaded(of(now), of(before)), too_much, "{before:?} {now:?}");
        }
    }

    #[test]
    fn a_return_is_good_news_whatever_the_cause() {
        let of = |fitness| Standing { fitness, verdict: Verdict::Healthy, ..Standing::default() };
        let (up, flapping) = (of(Fitness::Up), Standing { flapping: true, ..of(Fitness::Up) });
        let held = Standing { flapping: true, ..of(Fitness::Down(DownCause::FlapHold)) };
        let down = of(Fitness::Down(DownCause::Unhealthy));
        for (from, to, expected) in [
            (down, up, true),
            (held, flapping, true),
            (of(Fitness::Out(OutCause::Maintenance)), up, true),
            (of(Fitness::Down(DownCause::Dependency)), up, true),
            (flapping, up, true),
            (up, up, true),
            (up, flapping, false),
            (up, Standing { stale: true, ..up }, false),
            (up, down, false),
            (up, held, false),
            (up, of(Fitness::Out(OutCause::Drained)), false),
        ] {
            assert_eq!(is_good(&from, &to), expected, "{from:?} to {to:?}");
        }
    }
}
