//! An engine without sockets and without a clock.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::authority::{Prepared, Snapshot};
use crate::engine::{Change, Effect, Engine, Event, Lookup};
use crate::health::{Outcome, ProbeTask, Record, TargetId};
use crate::model::Model;
use crate::moment::Moment;

/// Changes are gathered for so long before they are published.
const GATHER: Duration = Duration::from_millis(20);

/// A reload is held back at most so long, beside the first round of its new
/// targets.
const HOLD: Duration = Duration::from_secs(5);

/// So often at most something may happen at one moment.
const MOST_AT_ONCE: u32 = 10_000;

/// What the network does.
pub trait Nature {
    /// What a probe that begins now will find; it takes as long as it says.
    fn probe(&mut self, target: TargetId, task: &ProbeTask, now: Moment) -> Outcome;

    /// What a lookup that begins now will find, and how long it takes.
    fn resolve(&mut self, hostname: &str, now: Moment) -> (Duration, Lookup);

    /// What becomes of an effect on its way: a broken world loses or changes it.
    fn carry(&mut self, effect: Effect, out: &mut Vec<Effect>) {
        out.push(effect);
    }
}

/// Something on its way.
#[derive(Clone, Debug)]
enum Flight {
    Probe(TargetId, Box<Outcome>),
    Lookup(Arc<str>, Lookup),
}

/// An engine, what is on its way to it, and the time.
#[derive(Debug)]
pub struct Drive {
    pub engine: Engine,
    now: Moment,
    flights: BTreeMap<(Moment, u64), Flight>,
    /// Targets with a probe in flight.
    probing: HashSet<TargetId>,
    departures: u64,
    published: Arc<Snapshot>,
    /// Since when the engine holds something that isn't published.
    behind_since: Option<Moment>,
    /// How often something happened at this moment.
    at_once: u32,
    /// What was told and is to be remembered, since somebody last took it.
    pub told: Vec<(Moment, Change)>,
    pub records: Vec<Record>,
    pub ready: bool,
    /// Probes begun.
    pub probes: u64,
    /// Outcomes that came in, since somebody last took them.
    pub landed: Vec<(TargetId, Outcome)>,
}

impl Drive {
    /// A world that begins at `start` with this configuration.
    pub fn new(mut engine: Engine, model: Arc<Model>, start: Moment) -> Drive {
        let published = Arc::new(engine.snapshot());
        engine.handle(Event::Reload(Prepared::new(model)), start);
        Drive {
            engine,
            now: start,
            flights: BTreeMap::new(),
            probing: HashSet::new(),
            departures: 0,
            published,
            behind_since: None,
            at_once: 0,
            told: Vec::new(),
            records: Vec::new(),
            ready: false,
            probes: 0,
            landed: Vec::new(),
        }
    }

    /// The present moment.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// What queries are answered from.
    pub fn published(&self) -> &Arc<Snapshot> {
        &self.published
    }

    /// Whether the engine holds something that isn't published yet.
    pub fn is_behind(&self) -> bool {
        self.behind_since.is_some()
    }

    /// Puts another configuration in force.
    pub fn reload(&mut self, model: Arc<Model>, nature: &mut impl Nature) -> Result<(), String> {
        self.engine.handle(Event::Reload(Prepared::new(model)), self.now);
        self.carry_out(nature)
    }

    /// Something was done to the engine: does what it wants done.
    pub fn settle(&mut self, nature: &mut impl Nature) -> Result<(), String> {
        self.carry_out(nature)
    }

    /// Goes on to what happens next; false if nothing does until `limit`, and
    /// then it is `limit`.
    pub fn step(&mut self, limit: Moment, nature: &mut impl Nature) -> Result<bool, String> {
        self.carry_out(nature)?;
        let landing = self.flights.first_key_value().map(|((at, _), _)| *at);
        let next = [landing, self.engine.wake_at()].into_iter().flatten().min();
        let Some(next) = next.filter(|next| *next <= limit) else {
            self.now = self.now.max(limit);
            return Ok(false);
        };
        self.at_once = if next > self.now { 0 } else { self.at_once + 1 };
        if self.at_once > MOST_AT_ONCE {
            return Err(format!("the engine wants to be woken at {next:?} again and again"));
        }
        self.now = self.now.max(next);
        match self.flights.first_entry().filter(|flight| flight.key().0 <= self.now) {
            Some(flight) => match flight.remove() {
                Flight::Probe(target, outcome) => {
                    self.probing.remove(&target);
                    self.landed.push((target, (*outcome).clone()));
                    self.engine.handle(Event::Probed { target, outcome: *outcome }, self.now);
                }
                Flight::Lookup(hostname, lookup) => {
                    self.engine.handle(Event::Resolved { hostname, lookup }, self.now);
                }
            },
            None => self.engine.advance(self.now),
        }
        self.carry_out(nature)?;
        Ok(true)
    }

    /// Goes on until `moment`, what happens then included.
    pub fn run_until(&mut self, moment: Moment, nature: &mut impl Nature) -> Result<(), String> {
        while self.step(moment, nature)? {}
        Ok(())
    }

    fn carry_out(&mut self, nature: &mut impl Nature) -> Result<(), String> {
        let mut carried = Vec::new();
        while let Some(effect) = self.engine.next_effect() {
            nature.carry(effect, &mut carried);
            for effect in carried.drain(..) {
                self.carry_out_one(effect, nature)?;
            }
        }
        self.look_at_publication()
    }

    /// Does one thing that the engine wants done.
    fn carry_out_one(&mut self, effect: Effect, nature: &mut impl Nature) -> Result<(), String> {
        match effect {
            Effect::Probe { target, task } => {
                if !self.probing.insert(target) {
                    return Err(format!("two probes of {}/{} at once", task.pool, task.endpoint));
                }
                self.probes += 1;
                let outcome = nature.probe(target, &task, self.now);
                self.depart(outcome.took, Flight::Probe(target, Box::new(outcome)));
            }
            Effect::Abandon { target } => {
                if self.probing.remove(&target) {
                    self.flights.retain(|_, flight| !matches!(flight, Flight::Probe(id, _) if *id == target));
                }
            }
            Effect::Resolve { hostname } => {
                let (took, lookup) = nature.resolve(&hostname, self.now);
                self.depart(took, Flight::Lookup(hostname, lookup));
            }
            Effect::Publish(snapshot) => self.published = snapshot,
            Effect::Ready { .. } => self.ready = true,
            Effect::Tell(change) => self.told.push((self.now, change)),
            Effect::Remember(record) => self.records.push(record),
        }
        Ok(())
    }

    fn depart(&mut self, took: Duration, flight: Flight) {
        self.departures += 1;
        self.flights.insert((self.now + took, self.departures), flight);
    }

    /// What is published is what the engine holds, but for the time in which
    /// changes are gathered or a reload waits for its new targets.
    fn look_at_publication(&mut self) -> Result<(), String> {
        let held = self.engine.snapshot();
        let is_published = Arc::ptr_eq(&held.names, &self.published.names)
            && held.serials == self.published.serials
            && held.balancers == self.published.balancers
            && held.members == self.published.members;
        if is_published {
            self.behind_since = None;
            return Ok(());
        }
        let behind = self.now.since(*self.behind_since.get_or_insert(self.now));
        let longest = if self.engine.is_settled() { GATHER } else { HOLD + Duration::from_secs(2) };
        match behind > longest {
            true => Err(format!("a change was not published for {behind:?}")),
            false => Ok(()),
        }
    }
}
