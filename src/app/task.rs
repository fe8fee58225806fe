//! The task that owns the engine: it takes in what happens, and carries out
//! what the engine wants done.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::announce::Announcer;
use super::lookups::Lookups;
use super::threads::Places;
use super::{TOTALS_EVERY, Tell, Wish};
use crate::authority::Snapshot;
use crate::clock::Clock;
use crate::engine::{Effect, Engine, Event, Lookup};
use crate::health::{Memory, Outcome, ProbeResult, Reason, Record, ScheduleCounters, TargetId};
use crate::moment::Moment;
use crate::os;
use crate::probe::Prober;
use crate::publish::Publisher;
use crate::state::Journal;
use crate::telemetry;

/// How often the wall clock is compared with the time line, and by how many
/// milliseconds it must have been set to be told of.
const CLOCK_EVERY: Duration = Duration::from_secs(10);
const LEAST_STEP: u64 = 1000;

/// Snapshots that readers still held are looked at again after so long.
const TIDY_EVERY: Duration = Duration::from_millis(500);

/// So often it is noted that the process is alive, which vouches for verdicts.
const ALIVE_EVERY: Duration = Duration::from_secs(10);

/// So many events are taken in one turn.
const BATCH: usize = 256;

/// The task that owns the engine.
pub struct EngineTask {
    pub engine: Engine,
    pub clock: Clock,
    pub publisher: Publisher<Snapshot>,
    pub inbox: mpsc::UnboundedReceiver<Event>,
    pub wanted: mpsc::UnboundedReceiver<Wish>,
    pub events: mpsc::UnboundedSender<Event>,
    pub prober: Arc<Prober>,
    pub probes: Places,
    /// The probes on their way.
    pub running: HashMap<TargetId, AbortHandle>,
    pub lookups: Arc<Lookups>,
    /// How far the wall clock had been set when it was last looked at.
    pub step: i64,
    pub tell: Tell,
    pub announcer: Announcer,
    /// Whether the first round was complete, once it is over.
    pub ready: watch::Sender<Option<bool>>,
    pub stopped: watch::Receiver<()>,
    pub totals: Option<ScheduleCounters>,
    /// A configuration was read since memory was last given back.
    pub litter: bool,
    pub journal: Option<Journal>,
    /// When the verdicts at hand were last known to be worth something.
    pub vouched: Option<Moment>,
    /// When that is noted next; none before the first round is over.
    pub alive_at: Option<Moment>,
}

impl EngineTask {
    /// Until the stop.
    pub async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut totals_at = Instant::now() + TOTALS_EVERY;
        let mut clock_at = Instant::now() + CLOCK_EVERY;
        loop {
            self.carry_out();
            self.remember();
            let mut wake_at = totals_at.min(clock_at);
            let wakes = [self.engine.wake_at(), self.announcer.wake_at(), self.alive_at];
            for at in wakes.into_iter().flatten() {
                wake_at = wake_at.min(self.clock.instant(at).into());
            }
            if !self.tidy_up() {
                wake_at = wake_at.min(Instant::now() + TIDY_EVERY);
            }
            let turn = turn(&mut self.wanted, &mut self.inbox, &mut batch);
            let wish = tokio::select! {
                biased;
                _ = self.stopped.changed() => break, // its sender is gone
                wish = turn => wish,
                _ = sleep_until(wake_at) => None,
            };
            let now = self.clock.now();
            match wish {
                Some(Wish::Ask(question)) => question(&mut self.engine, now),
                Some(Wish::Apply(prepared)) => {
                    self.engine.handle(Event::Reload(prepared), now);
                    self.litter = true;
                    telemetry::tell_reload(self.engine.model());
                }
                Some(Wish::Confirm(told)) => self.confirm(told),
                None => {}
            }
            for event in batch.drain(..) {
                if let Event::Probed { target, .. } = &event {
                    self.running.remove(target);
                }
                self.engine.handle(event, now);
            }
            self.engine.advance(now);
            self.announcer.advance(&self.engine, now);
            if Instant::now() >= clock_at {
                clock_at = Instant::now() + CLOCK_EVERY;
                self.watch_clock(now);
            }
            if Instant::now() >= totals_at {
                totals_at = Instant::now() + TOTALS_EVERY;
                self.tell_totals();
            }
        }
        self.alive_at = self.alive_at.map(|_| Moment::ZERO);
        self.remember();
        if let Some(journal) = self.journal {
            if journal.is_behind() {
                // the last chance to make up for what is missing
                journal.rewrite(Memory { alive: self.vouched, ..self.engine.memory(self.clock.now()) });
            }
            let _ = tokio::task::spawn_blocking(|| journal.end()).await;
        }
    }

    /// Has the journal say whether everything is on the disk.
    fn confirm(&self, told: oneshot::Sender<Result<(), String>>) {
        match &self.journal {
            Some(journal) => journal.confirm(told),
            None => drop(told.send(Err("there is no state directory".to_owned()))),
        }
    }

    /// Notes what is to outlive the process, beside what changes.
    fn remember(&mut self) {
        let Some(journal) = &self.journal else { return };
        let now = self.clock.now();
        if self.alive_at.is_some_and(|at| at <= now) {
            self.vouched = Some(now);
            self.alive_at = Some(now + ALIVE_EVERY);
            journal.append(Record::Alive(now));
        }
        if journal.wants_all() {
            journal.rewrite(Memory { alive: self.vouched, ..self.engine.memory(now) });
        }
    }

    /// Does what the engine wants done.
    fn carry_out(&mut self) {
        while let Some(effect) = self.engine.next_effect() {
            match effect {
                Effect::Probe { target, task } => {
                    let prober = Arc::clone(&self.prober);
                    let report = Report { target, events: self.events.clone(), outcome: None };
                    let probe = self.probes.of(&task.monitor.check).spawn(async move {
                        let mut report = report;
                        let outcome = prober.run(&task).await;
                        telemetry::tell_probe(&task, &outcome);
                        report.outcome = Some(outcome);
                    });
                    self.running.insert(target, probe.abort_handle());
                }
                Effect::Abandon { target } => {
                    if let Some(probe) = self.running.remove(&target) {
                        probe.abort();
                    }
                }
                Effect::Resolve { hostname } => self.look_up(hostname),
                Effect::Remember(record) => {
                    if let Some(journal) = &self.journal {
                        journal.append(record);
                    }
                }
                Effect::Publish(snapshot) => self.publisher.publish(snapshot),
                Effect::Ready { complete } => {
                    self.alive_at = self.journal.as_ref().map(|_| self.clock.now());
                    self.ready.send_replace(Some(complete));
                }
                Effect::Tell(change) => {
                    (self.tell)(&change, &self.clock);
                    self.announcer.tell(&change, &self.engine, &self.clock);
                }
            }
        }
    }

    /// Looks up a host name beside everything else.
    fn look_up(&self, hostname: Arc<str>) {
        let (events, lookups) = (self.events.clone(), Arc::clone(&self.lookups));
        tokio::spawn(async move {
            let name = Arc::clone(&hostname);
            let lookup = async move { lookups.look_up(&name).await };
            // on a task of its own: a panic there is a lookup that failed
            let lookup = tokio::spawn(lookup).await.unwrap_or(Lookup::Failed);
            let _ = events.send(Event::Resolved { hostname, lookup });
        });
    }

    /// Tells the engine when the wall clock was set.
    fn watch_clock(&mut self, now: Moment) {
        let step = self.clock.step();
        if step.abs_diff(self.step) >= LEAST_STEP {
            self.step = step;
            warn!(milliseconds = step, "the wall clock was set; times go by it, intervals don't");
            self.engine.handle(Event::ClockStepped(step), now);
        }
    }

    /// Frees old snapshots; tells whether none is left. Once those of an old
    /// configuration are gone, what they took goes back to the kernel.
    fn tidy_up(&mut self) -> bool {
        let swept = self.publisher.sweep();
        if swept && self.ready.borrow().is_some() && std::mem::take(&mut self.litter) {
            tokio::task::spawn_blocking(os::give_back_memory);
        }
        swept
    }

    fn tell_totals(&mut self) {
        let counters = self.engine.counters();
        let before = self.totals.replace(counters);
        if before != Some(counters) {
            telemetry::tell_probes(counters, before.unwrap_or_default());
        }
    }
}

/// What is to be done next: what somebody wants before outcomes of probes, one
/// thing a turn, and with it as many events as a turn takes. So neither waits
/// for more than one turn of the other, whatever comes in.
async fn turn(
    wanted: &mut mpsc::UnboundedReceiver<Wish>,
    inbox: &mut mpsc::UnboundedReceiver<Event>,
    batch: &mut Vec<Event>,
) -> Option<Wish> {
    let wish = tokio::select! {
        biased;
        Some(wish) = wanted.recv() => Some(wish),
        _ = inbox.recv_many(batch, BATCH) => None,
    };
    while batch.len() < BATCH
        && let Ok(event) = inbox.try_recv()
    {
        batch.push(event);
    }
    wish
}

/// Reports a probe's outcome when dropped: also if the probe panicked, so that
/// one defect never leaves a target waiting for ever.
struct Report {
    target: TargetId,
    events: mpsc::UnboundedSender<Event>,
    outcome: Option<Outcome>,
}

impl Drop for Report {
    fn drop(&mut self) {
        let aborted = || Outcome::new(ProbeResult::Error, Reason::OtherFailure, "probe_aborted");
        let outcome = self.outcome.take().unwrap_or_else(aborted);
        let _ = self.events.send(Event::Probed { target: self.target, outcome });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Prepared;
    use crate::config;

    const ONE: &str = "zone: example.com\n\
                       records: { '': { type: NS, value: ns.example.net. } }\n\
                       monitors: { m: { type: tcp, port: 80 } }\n\
                       pools: { p: { monitor: m, endpoints: [{ name: e, address: 192.0.2.1 }] } }\n\
                       load_balancers: { www: { default_pools: [p], when_unavailable: nodata } }\n";

    fn next_probe(engine: &mut Engine) -> Option<TargetId> {
        std::iter::from_fn(|| engine.next_effect()).find_map(|effect| match effect {
            Effect::Probe { target, .. } => Some(target),
            _ => None,
        })
    }

    #[tokio::test]
    async fn d10_a_probe_that_panics_is_an_error_and_its_target_is_probed_again() {
        let loaded = config::load_texts(vec![("a.yaml".into(), ONE.into())]);
        let model = loaded.unwrap_or_else(|report| panic!("{report}")).model;
        let mut engine = Engine::new(10);
        let mut now = Moment::from_start(Duration::from_secs(1_700_000_000));
        engine.handle(Event::Reload(Prepared::new(model)), now);
        let (events, mut reported) = mpsc::unbounded_channel();
        for _ in 0..3 {
            let target = loop {
                engine.advance(now);
                if let Some(target) = next_probe(&mut engine) {
                    break target;
                }
                now = engine.wake_at().expect("its next beat is known");
            };
            let report = Report { target, events: events.clone(), outcome: None };
            let defect = tokio::spawn(async move {
                let _report = report;
                panic!("on purpose")
            });
            assert!(defect.await.is_err_and(|error| error.is_panic()));
            let event = reported.try_recv().expect("it is told as the probe goes");
            let Event::Probed { outcome, .. } = &event else { panic!("{event:?}") };
            assert_eq!((outcome.result, outcome.detail), (ProbeResult::Error, "probe_aborted"));
            engine.handle(event, now);
        }
    }

    #[tokio::test]
    async fn what_somebody_wants_comes_before_events_and_holds_none_of_them_up() {
        let (wishes, mut wanted) = mpsc::unbounded_channel();
        let (events, mut inbox) = mpsc::unbounded_channel();
        for _ in 0..10 * BATCH {
            events.send(Event::ClockStepped(0)).unwrap();
        }
        let mut batch = Vec::new();
        assert!(turn(&mut wanted, &mut inbox, &mut batch).await.is_none());
        assert_eq!(batch.len(), BATCH);
        for _ in 0..3 {
            wishes.send(Wish::Ask(Box::new(|_, _| {}))).unwrap();
        }
        for _ in 0..3 {
            batch.clear();
            let wish = turn(&mut wanted, &mut inbox, &mut batch).await;
            assert!(matches!(wish, Some(Wish::Ask(_))), "before what waits for longer");
            assert_eq!(batch.len(), BATCH, "and that goes on");
        }
        drop((wishes, batch));
        let mut batch = Vec::new();
        assert!(turn(&mut wanted, &mut inbox, &mut batch).await.is_none());
        assert_eq!(batch.len(), BATCH, "also when nobody can want anything any more");
    }
}
