//! What outlives a restart, in plain values.
//!
//! The table hands out one [`Record`] for everything that changes and all of
//! them as a [`Memory`]; a file of records, the newest of each key last, makes
//! the same memory again. Times are Unix times, as moments are.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::overrides::{Override, Slot};
use super::{AgentWish, MachineMemory, Verdict};
use crate::model::{Name, Scope};
use crate::moment::Moment;

/// One thing to be remembered, in place of what its key had before.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    Target(TargetKey, TargetMemory),
    Endpoint(EndpointKey, EndpointMemory),
    /// None: it was taken back, or has ended.
    Override(Scope, Slot, Option<Override>),
    Serial(Name, u32),
    /// The pools that a load balancer with delays sends traffic to.
    Balancer(Name, Vec<Arc<str>>),
    /// How a [`Subject`] stands, in a word, and since when.
    State(Subject, Arc<str>, Moment),
    /// The addresses of a host name, and until when their TTL runs.
    Host(Arc<str>, Vec<IpAddr>, Moment),
    /// The process was alive and probing at this time.
    Alive(Moment),
}

/// What stands somehow since some time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A pool, or an endpoint whatever its address.
    Scope(Scope),
    Balancer(Name),
}

/// An endpoint of a pool, at an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointKey {
    pub pool: Arc<str>,
    pub endpoint: Arc<str>,
    pub address: IpAddr,
}

/// One test of an endpoint from one vantage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetKey {
    pub endpoint: EndpointKey,
    pub monitor: Arc<str>,
    pub vantage: Arc<str>,
}

/// What was held of a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetMemory {
    /// A hash of what was tested.
    pub test: u64,
    pub machine: MachineMemory,
    pub reported: Option<Moment>,
}

/// What was held of an endpoint beyond its targets.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointMemory {
    pub verdict: Verdict,
    pub since: Moment,
    /// When its verdict changed of late.
    pub flaps: Vec<Moment>,
    pub ejections: u32,
    pub ejected_until: Option<Moment>,
    /// What its agent wished.
    pub wish: Option<AgentWish>,
    pub percent: u8,
}

/// All that is remembered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    pub targets: BTreeMap<TargetKey, TargetMemory>,
    pub endpoints: BTreeMap<EndpointKey, EndpointMemory>,
    pub overrides: BTreeMap<(Scope, Slot), Override>,
    pub serials: BTreeMap<Name, u32>,
    pub balancers: BTreeMap<Name, Vec<Arc<str>>>,
    pub states: BTreeMap<Subject, (Arc<str>, Moment)>,
    pub hosts: BTreeMap<Arc<str>, (Vec<IpAddr>, Moment)>,
    /// When the process was last known to be alive.
    pub alive: Option<Moment>,
}

impl Record {
    /// The same with all times moved by so many milliseconds: records hold wall
    /// time, and the time line stays where it was when the wall clock is set.
    pub fn moved(mut self, by: i64) -> Record {
        let shift = |moment: &mut Moment| *moment = moment.moved(by);
        match &mut self {
            Record::Target(_, memory) => {
                shift(&mut memory.machine.since);
                memory.reported.iter_mut().for_each(shift);
            }
            Record::Endpoint(_, memory) => {
                shift(&mut memory.since);
                memory.flaps.iter_mut().chain(&mut memory.ejected_until).for_each(shift);
            }
            Record::Override(_, _, Some(said)) => {
                shift(&mut said.since);
                shift(&mut said.drained_at);
                said.until.iter_mut().for_each(shift);
            }
            Record::State(_, _, since) => shift(since),
            Record::Host(_, _, until) => shift(until),
            Record::Alive(at) => shift(at),
            Record::Override(_, _, None) | Record::Serial(..) | Record::Balancer(..) => {}
        }
        self
    }
}

impl Memory {
    /// The same with all times moved, as [`Record::moved`].
    pub fn moved(self, by: i64) -> Memory {
        if by == 0 {
            return self;
        }
        let mut memory = Memory::default();
        self.records().for_each(|record| memory.take(record.moved(by)));
        memory
    }

    /// Takes in one record over what its key had before.
    pub fn take(&mut self, record: Record) {
        match record {
            Record::Target(key, memory) => drop(self.targets.insert(key, memory)),
            Record::Endpoint(key, memory) => drop(self.endpoints.insert(key, memory)),
            Record::Override(scope, slot, Some(said)) => drop(self.overrides.insert((scope, slot), said)),
            Record::Override(scope, slot, None) => drop(self.overrides.remove(&(scope, slot))),
            Record::Serial(zone, serial) => drop(self.serials.insert(zone, serial)),
            Record::Balancer(name, pools) => drop(self.balancers.insert(name, pools)),
            Record::State(of, word, since) => drop(self.states.insert(of, (word, since))),
            Record::Host(name, addresses, until) => drop(self.hosts.insert(name, (addresses, until))),
            // the last one counts, not the highest: a clock may have been ahead once
            Record::Alive(at) => self.alive = Some(at),
        }
    }

    /// All of it as records.
    pub fn records(self) -> impl Iterator<Item = Record> {
        let targets = self.targets.into_iter().map(|(key, memory)| Record::Target(key, memory));
        let endpoints = self.endpoints.into_iter().map(|(key, memory)| Record::Endpoint(key, memory));
        let overrides =
            self.overrides.into_iter().map(|((scope, slot), said)| Record::Override(scope, slot, Some(said)));
        let serials = self.serials.into_iter().map(|(zone, serial)| Record::Serial(zone, serial));
        let balancers = self.balancers.into_iter().map(|(name, pools)| Record::Balancer(name, pools));
        let states = self.states.into_iter().map(|(of, (word, since))| Record::State(of, word, since));
        let hosts =
            self.hosts.into_iter().map(|(name, (addresses, until))| Record::Host(name, addresses, until));
        let alive = self.alive.into_iter().map(Record::Alive);
        targets
            .chain(endpoints)
            .chain(overrides)
            .chain(serials)
            .chain(balancers)
            .chain(states)
            .chain(hosts)
            .chain(alive)
    }

    /// Leaves out verdicts that nobody has vouched for since `oldest`, and
    /// whatever is said to lie in the future, which is what a clock that was
    /// set back leaves behind. What operators said and serials stay.
    pub fn age(&mut self, oldest: Moment, now: Moment) {
        let sound = |since: Moment| since <= now;
        if self.alive.is_none_or(|alive| alive < oldest || !sound(alive)) {
            self.targets.clear();
        }
        self.targets.retain(|_, memory| sound(memory.machine.since) && memory.reported.is_none_or(sound));
        self.endpoints.retain(|_, memory| sound(memory.since) && memory.flaps.iter().all(|at| sound(*at)));
        self.states.retain(|_, (_, since)| sound(*since));
        self.overrides.retain(|_, said| said.until.is_none_or(|until| now < until));
    }
}
