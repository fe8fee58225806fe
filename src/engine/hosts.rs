//! Endpoints given by host name: when to look them up, and what they become.
//!
//! Every address that a name has is an endpoint of its own, probed and served
//! by itself. A lookup that fails moves nothing for as long as the addresses
//! of before may serve.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::model::{Endpoint, Host, Model, Pool};
use crate::moment::Moment;

/// Names are looked up again no sooner, whatever their TTL says.
const LEAST_TTL: Duration = Duration::from_secs(5);
/// And no later.
const MOST_TTL: Duration = Duration::from_secs(3600);
/// So long the addresses of before serve while lookups fail.
const STALE_IF_ERROR: Duration = Duration::from_secs(3600);

/// What a lookup found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Addresses, at least one, and for how long they hold.
    Found { addresses: Vec<IpAddr>, ttl: Duration },
    /// The name has no addresses, says who knows.
    NoSuchName,
    /// Nobody knows: time-outs, SERVFAIL.
    Failed,
}

/// Addresses by host name, and until when they serve if no lookup succeeds.
pub type HostMemory = BTreeMap<Arc<str>, (Vec<IpAddr>, Moment)>;

/// The host names of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    names: BTreeMap<Arc<str>, Known>,
    /// When those that aren't being looked up are due.
    due: BTreeSet<(Moment, Arc<str>)>,
    /// How many were never looked up.
    unseen: usize,
    /// What a former run knew, and until when it is good.
    remembered: HostMemory,
}

/// What is known of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// In order, without duplicates.
    pub addresses: Vec<IpAddr>,
    /// The last lookup's failure.
    pub failure: Option<Lookup>,
    seen: bool,
    running: bool,
    next: Moment,
    /// Until when the addresses serve if no lookup succeeds.
    good_until: Moment,
}

impl Hosts {
    /// Takes in what a former run knew.
    pub fn recall(&mut self, memory: HostMemory) {
        self.remembered = memory;
    }

    /// All that is to be kept over a restart.
    pub fn memory(&self) -> HostMemory {
        let mut all = self.remembered.clone();
        let known = self.names.iter().filter(|(_, known)| !known.addresses.is_empty());
        all.extend(
            known.map(|(name, known)| (Arc::clone(name), (known.addresses.clone(), known.good_until))),
        );
        all
    }

    /// What is to be kept of one name.
    pub fn memory_of(&self, name: &str) -> (Vec<IpAddr>, Moment) {
        let known = self.names.get(name).filter(|known| !known.addresses.is_empty());
        known.map(|known| (known.addresses.clone(), known.good_until)).unwrap_or_default()
    }

    /// Takes on the names of another configuration, of the pools that are
    /// enabled.
    pub fn adopt(&mut self, model: &Model, is_enabled: impl Fn(&Pool) -> bool, now: Moment) {
        let mut before = std::mem::take(&mut self.names);
        for host in model.pools.iter().filter(|pool| is_enabled(pool)).flat_map(|pool| &pool.hosts) {
            let name = &host.hostname;
            if !self.names.contains_key(name) {
                let known = before.remove(name).unwrap_or_else(|| self.fresh(name, now));
                self.names.insert(Arc::clone(name), known);
            }
        }
        let waiting = self.names.iter().filter(|(_, known)| !known.running);
        self.due = waiting.map(|(name, known)| (known.next, Arc::clone(name))).collect();
        self.unseen = self.names.values().filter(|known| !known.seen).count();
    }

    /// A name that is to be looked up at once; what a former run knew of it
    /// serves until then.
    fn fresh(&mut self, name: &str, now: Moment) -> Known {
        let remembered = self.remembered.remove(name).filter(|(_, good_until)| now < *good_until);
        let (addresses, good_until) = remembered.unwrap_or((Vec::new(), now));
        // a clock that was ahead made it good for too long
        let good_until = good_until.min(now + MOST_TTL + STALE_IF_ERROR);
        Known { addresses, failure: None, seen: false, running: false, next: now, good_until }
    }

    /// The next name to be looked up now.
    pub fn begin(&mut self, now: Moment) -> Option<Arc<str>> {
        self.wake_at().filter(|at| *at <= now)?;
        let (_, name) = self.due.pop_first()?;
        self.names.get_mut(&name).expect("only known names are due").running = true;
        Some(name)
    }

    /// Takes in what a lookup found; tells whether addresses changed.
    pub fn found(&mut self, name: &Arc<str>, lookup: Lookup, now: Moment) -> bool {
        let Some(known) = self.names.get_mut(name) else { return false };
        self.due.remove(&(known.next, Arc::clone(name)));
        self.unseen -= usize::from(!known.seen);
        (known.seen, known.running) = (true, false);
        let before = known.addresses.clone();
        match lookup {
            Lookup::Found { mut addresses, ttl } => {
                addresses.sort();
                addresses.dedup();
                let ttl = ttl.clamp(LEAST_TTL, MOST_TTL);
                (known.next, known.good_until) = (now + ttl, now + ttl + STALE_IF_ERROR);
                (known.addresses, known.failure) = (addresses, None);
            }
            Lookup::NoSuchName => {
                known.next = now + LEAST_TTL;
                known.addresses.clear();
                known.failure = Some(Lookup::NoSuchName);
            }
            Lookup::Failed => {
                known.next = now + LEAST_TTL;
                known.failure = Some(Lookup::Failed);
                if known.good_until <= now {
                    known.addresses.clear();
                }
            }
        }
        self.due.insert((known.next, Arc::clone(name)));
        known.addresses != before
    }

    /// All names, and what is known of each.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Known)> {
        self.names.iter()
    }

    /// What is known of a name.
    pub fn get(&self, name: &str) -> Option<&Known> {
        self.names.get(name)
    }

    /// Whether every name was looked up at least once.
    pub fn is_settled(&self) -> bool {
        self.unseen == 0
    }

    /// When the next lookup is due.
    pub fn wake_at(&self) -> Option<Moment> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The configuration with every host name's addresses among the endpoints;
    /// none if it has no host names.
    pub fn expand(&self, model: &Model) -> Option<Model> {
        model.pools.iter().any(|pool| !pool.hosts.is_empty()).then(|| {
            let pools = model.pools.iter().map(|pool| self.expand_pool(pool)).collect();
            Model { pools, ..model.clone() }
        })
    }

    fn expand_pool(&self, pool: &Pool) -> Pool {
        if pool.hosts.is_empty() {
            return pool.clone();
        }
        let mut written = pool.endpoints.iter().cloned();
        let mut endpoints: Vec<Endpoint> = Vec::new();
        let mut taken = 0;
        for host in &pool.hosts {
            while taken < host.place {
                endpoints.extend(written.next());
                taken += 1;
            }
            taken += 1;
            let addresses = self.get(&host.hostname).map(|known| &known.addresses[..]).unwrap_or_default();
            endpoints.extend(instances(host, addresses));
        }
        endpoints.extend(written);
        // an address that is written, or that two names have, is one endpoint
        let mut seen = std::collections::HashSet::new();
        let is_written = |endpoint: &Endpoint| endpoint.hostname.is_none();
        seen.extend(
            endpoints.iter().filter(|endpoint| is_written(endpoint)).map(|endpoint| endpoint.address),
        );
        endpoints.retain(|endpoint| is_written(endpoint) || seen.insert(endpoint.address));
        Pool { endpoints, ..pool.clone() }
    }
}

/// The endpoints that a host name's addresses are, each with its address behind
/// the name: it stays the same however many there are.
fn instances(host: &Host, addresses: &[IpAddr]) -> Vec<Endpoint> {
    let endpoint = |address: &IpAddr| Endpoint {
        name: format!("{}@{address}", host.endpoint.name).into(),
        address: *address,
        hostname: Some(Arc::clone(&host.hostname)),
        ..host.endpoint.clone()
    };
    addresses.iter().map(endpoint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_start(Duration::from_secs(seconds))
    }

    fn model() -> Model {
        let endpoint = |name: &str, last: u8| Endpoint::new(name, [192, 0, 2, last].into());
        let host = Host { place: 1, hostname: "web.example.net".into(), endpoint: endpoint("web", 0) };
        let pool = Pool { hosts: vec![host], ..Pool::new("p", vec![endpoint("a", 1), endpoint("b", 2)]) };
        Model { pools: vec![pool], ..Model::default() }
    }

    fn names(hosts: &Hosts) -> Vec<String> {
        let expanded = hosts.expand(&model()).unwrap();
        expanded.pools[0].endpoints.iter().map(|e| format!("{} {}", e.name, e.address)).collect()
    }

    fn found(addresses: &[u8], ttl: u64) -> Lookup {
        let addresses = addresses.iter().map(|&last| [198, 51, 100, last].into()).collect();
        Lookup::Found { addresses, ttl: Duration::from_secs(ttl) }
    }

    #[test]
    fn every_address_of_a_name_is_an_endpoint_in_its_place() {
        let web: Arc<str> = "web.example.net".into();
        let mut hosts = Hosts::default();
        hosts.adopt(&model(), |pool| pool.enabled, at(0));
        assert_eq!(names(&hosts), ["a 192.0.2.1", "b 192.0.2.2"]);
        assert_eq!(hosts.begin(at(0)).as_deref(), Some("web.example.net"));
        assert_eq!(hosts.begin(at(0)), None, "one lookup at a time");
        assert!(hosts.found(&web, found(&[7], 60), at(1)));
        assert_eq!(names(&hosts), ["a 192.0.2.1", "web@198.51.100.7 198.51.100.7", "b 192.0.2.2"]);
        assert!(hosts.found(&web, found(&[8, 7, 8], 60), at(2)));
        assert_eq!(
            names(&hosts),
            ["a 192.0.2.1", "web@198.51.100.7 198.51.100.7", "web@198.51.100.8 198.51.100.8", "b 192.0.2.2"]
        );
    }

    #[test]
    fn a_lost_lookup_moves_nothing_for_an_hour() {
        let web: Arc<str> = "web.example.net".into();
        let mut hosts = Hosts::default();
        hosts.adopt(&model(), |pool| pool.enabled, at(0));
        hosts.found(&web, found(&[7], 1), at(0));
        assert_eq!(hosts.wake_at(), Some(at(5)), "a TTL of a second is taken as five");
        assert!(!hosts.found(&web, Lookup::Failed, at(5)));
        assert!(!hosts.found(&web, Lookup::Failed, at(3604)));
        assert!(hosts.found(&web, Lookup::Failed, at(3605)));
        hosts.found(&web, found(&[7], 7200), at(3610));
        assert_eq!(hosts.wake_at(), Some(at(3610 + 3600)), "and two hours as one");
        assert!(hosts.found(&web, Lookup::NoSuchName, at(9000)), "that is an answer");
    }
}
