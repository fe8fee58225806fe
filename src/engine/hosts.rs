//! Endpoints given by host name: when to look them up, and what they become.
//!
//! Every address that a name has is an endpoint of its own, probed and served
//! by itself. A lookup that fails moves nothing for as long as the addresses
//! of before may serve, which each pool says for itself.

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

/// Addresses by host name, and until when their TTL runs.
pub type HostMemory = BTreeMap<Arc<str>, (Vec<IpAddr>, Moment)>;

/// The host names of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    names: BTreeMap<Arc<str>, Known>,
    /// When those that aren't being looked up are due.
    due: BTreeSet<(Moment, Arc<str>)>,
    /// How many were never looked up.
    unseen: usize,
    /// What a former run knew.
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
    /// Until when the addresses' TTL runs.
    fresh_until: Moment,
    /// What of that was last written down.
    written: Moment,
    /// How long after that a lookup last failed.
    lost: Option<Duration>,
    /// How long the pools that use it have the addresses serve then, the
    /// shortest first.
    limits: BTreeSet<Duration>,
}

impl Known {
    /// Whether the addresses serve in a pool that has them serve for `limit`
    /// after their TTL.
    fn serves(&self, limit: Duration) -> bool {
        self.lost.is_none_or(|lost| lost < limit)
    }

    /// In how many sorts of pools there are addresses that serve.
    fn reach(&self) -> usize {
        let served = self.limits.iter().filter(|limit| self.serves(**limit)).count();
        if self.addresses.is_empty() { 0 } else { served }
    }

    /// Whether what was written down would end too long before what is held.
    fn is_written_late(&self) -> bool {
        let longest = self.limits.last().copied().unwrap_or_default();
        self.fresh_until.since(self.written) > (longest / 4).max(LEAST_TTL)
    }

    /// A lookup fails, or none was made yet, at `now`.
    fn lose(&mut self, now: Moment) {
        self.lost = (self.fresh_until <= now).then(|| now.since(self.fresh_until));
        if self.reach() == 0 {
            self.addresses.clear();
        }
    }
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
            known.map(|(name, known)| (Arc::clone(name), (known.addresses.clone(), known.fresh_until))),
        );
        all
    }

    /// What is to be written down of one name.
    pub fn write_down(&mut self, name: &str) -> (Vec<IpAddr>, Moment) {
        let Some(known) = self.names.get_mut(name) else { return Default::default() };
        known.written = known.fresh_until;
        if known.addresses.is_empty() {
            Default::default()
        } else {
            (known.addresses.clone(), known.fresh_until)
        }
    }

    /// Whether lookups have found the same for so long that it is to be written
    /// down again.
    pub fn is_written_late(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|known| !known.addresses.is_empty() && known.is_written_late())
    }

    /// Takes on the names of another configuration, of the pools that are
    /// enabled.
    pub fn adopt(&mut self, model: &Model, is_enabled: impl Fn(&Pool) -> bool, now: Moment) {
        let mut before = std::mem::take(&mut self.names);
        let mut limits: BTreeMap<&Arc<str>, BTreeSet<Duration>> = BTreeMap::new();
        for pool in model.pools.iter().filter(|pool| is_enabled(pool)) {
            for host in &pool.hosts {
                limits.entry(&host.hostname).or_default().insert(pool.rules.stale_if_error);
            }
        }
        for (name, limits) in limits {
            let known = match before.remove(name) {
                Some(known) => Known { limits, ..known },
                None => self.fresh(name, limits, now),
            };
            self.names.insert(Arc::clone(name), known);
        }
        let waiting = self.names.iter().filter(|(_, known)| !known.running);
        self.due = waiting.map(|(name, known)| (known.next, Arc::clone(name))).collect();
        self.unseen = self.names.values().filter(|known| !known.seen).count();
    }

    /// A name that is to be looked up at once; what a former run knew of it
    /// serves until then.
    fn fresh(&mut self, name: &str, limits: BTreeSet<Duration>, now: Moment) -> Known {
        let (addresses, fresh_until) = self.remembered.remove(name).unwrap_or((Vec::new(), now));
        // a clock that was ahead made them fresh for too long
        let fresh_until = fresh_until.min(now + MOST_TTL);
        let mut known = Known {
            addresses,
            failure: None,
            seen: false,
            running: false,
            next: now,
            fresh_until,
            written: fresh_until,
            lost: None,
            limits,
        };
        known.lose(now);
        known
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
        let before = (known.addresses.clone(), known.reach());
        match lookup {
            Lookup::Found { mut addresses, ttl } => {
                addresses.sort();
                addresses.dedup();
                let ttl = ttl.clamp(LEAST_TTL, MOST_TTL);
                (known.next, known.fresh_until) = (now + ttl, now + ttl);
                (known.addresses, known.failure, known.lost) = (addresses, None, None);
            }
            Lookup::NoSuchName => {
                known.next = now + LEAST_TTL;
                known.addresses.clear();
                known.failure = Some(Lookup::NoSuchName);
            }
            Lookup::Failed => {
                known.next = now + LEAST_TTL;
                known.failure = Some(Lookup::Failed);
                known.lose(now);
            }
        }
        self.due.insert((known.next, Arc::clone(name)));
        before != (known.addresses.clone(), known.reach())
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
            let known = self.get(&host.hostname).filter(|known| known.serves(pool.rules.stale_if_error));
            let addresses = known.map(|known| &known.addresses[..]).unwrap_or_default();
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
    use crate::model::Rules;

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
    fn each_pool_says_how_long_addresses_outlive_their_ttl() {
        let web: Arc<str> = "web.example.net".into();
        let seconds = |all: &[u64]| {
            let pool = |seconds: &u64| {
                let endpoint = Endpoint::new("web", [0; 4].into());
                let host = Host { place: 0, hostname: Arc::clone(&web), endpoint };
                let rules = Rules { stale_if_error: Duration::from_secs(*seconds), ..Rules::default() };
                Pool { hosts: vec![host], rules, ..Pool::new(&format!("p{seconds}"), Vec::new()) }
            };
            Model { pools: all.iter().map(pool).collect(), ..Model::default() }
        };
        let served = |hosts: &Hosts, model: &Model| -> Vec<usize> {
            hosts.expand(model).unwrap().pools.iter().map(|pool| pool.endpoints.len()).collect()
        };
        let both = seconds(&[0, 30, 7200]);
        let mut hosts = Hosts::default();
        hosts.adopt(&both, |_| true, at(0));
        assert!(hosts.found(&web, found(&[7], 10), at(0)));
        for (now, changes, expected) in [
            (9, false, [1, 1, 1]), // the TTL still runs
            (10, true, [0, 1, 1]),
            (39, false, [0, 1, 1]),
            (40, true, [0, 0, 1]),
            (3700, false, [0, 0, 1]),
            (7209, false, [0, 0, 1]),
            (7210, true, [0, 0, 0]),
            (7215, false, [0, 0, 0]),
        ] {
            assert_eq!(hosts.found(&web, Lookup::Failed, at(now)), changes, "at {now}");
            assert_eq!(served(&hosts, &both), expected, "at {now}");
        }
        assert!(hosts.found(&web, found(&[7], 10), at(7220)));
        assert_eq!(served(&hosts, &both), [1, 1, 1]);

        // another configuration, and another run, go by their own
        hosts.found(&web, Lookup::Failed, at(7300));
        assert_eq!(served(&hosts, &both), [0, 0, 1]);
        let longer = seconds(&[600]);
        hosts.adopt(&longer, |_| true, at(7301));
        assert_eq!(served(&hosts, &longer), [1]);
        for (limit, expected) in [(60, 0), (100, 1)] {
            let mut next = Hosts::default();
            next.recall(hosts.memory());
            let model = seconds(&[limit]);
            next.adopt(&model, |_| true, at(7310));
            assert_eq!(served(&next, &model), [expected], "80 seconds after the TTL, {limit} allowed");
        }
    }

    #[test]
    fn what_stays_the_same_is_written_down_now_and_then() {
        let web: Arc<str> = "web.example.net".into();
        let mut hosts = Hosts::default();
        hosts.adopt(&model(), |pool| pool.enabled, at(0));
        assert!(hosts.found(&web, found(&[7], 60), at(0)));
        assert_eq!(hosts.write_down(&web).1, at(60));
        assert!(!hosts.found(&web, found(&[7], 60), at(900)) && !hosts.is_written_late(&web));
        assert!(!hosts.found(&web, found(&[7], 60), at(901)) && hosts.is_written_late(&web));
        assert_eq!(hosts.write_down(&web).1, at(961));
        assert!(!hosts.is_written_late(&web));
    }

    #[test]
    fn b27_h19_a_lost_lookup_moves_nothing_for_an_hour() {
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
