//! From the model and what health holds of it to a snapshot.
//!
//! A verdict rebuilds only the pool it touches and the load balancers that
//! use it; everything else is shared with the snapshot before.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::Names;
use super::names::nested_apexes;
use crate::health::{PoolHealth, Table};
use crate::model::{LoadBalancer, Model, Name, PoolId, SteeringPolicy, Weight, WhenUnavailable, Zone};
use crate::steering::{Candidates, Choice, PoolOffer, offer};

/// Everything the query path reads: immutable, replaced as a whole.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub names: Arc<Names>,
    /// Of each zone's SOA.
    pub serials: Box<[u32]>,
    pub balancers: Box<[Arc<Balancer>]>,
}

/// A configuration with its names laid out. That is the part of compiling that
/// grows with the zones and knows nothing of health: it is done where time does
/// not matter, before the configuration is put in force.
#[derive(Clone, Debug)]
pub struct Prepared {
    model: Arc<Model>,
    names: Arc<Names>,
    nested: HashMap<Name, Vec<Name>>,
}

impl Prepared {
    /// Lays out the names of `model`.
    pub fn new(model: Arc<Model>) -> Prepared {
        let names = Arc::new(Names::compile(&model));
        let nested = nested_apexes(&model);
        Prepared { model, names, nested }
    }

    /// What was prepared.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }
}

/// A load balancer, ready to answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Balancer {
    /// Seconds.
    pub ttl: u32,
    pub ipv4: Choice<4>,
    pub ipv6: Choice<16>,
}

/// A load balancer's state in the words of Cloudflare's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BalancerState {
    /// Every default pool is available.
    Healthy,
    /// Some default pool isn't, but traffic is not at the fallback pool.
    Degraded,
    /// No default pool is available.
    Critical,
}

impl fmt::Display for BalancerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BalancerState::Healthy => "healthy",
            BalancerState::Degraded => "degraded",
            BalancerState::Critical => "critical",
        })
    }
}

/// A load balancer's state, and where its traffic goes.
#[derive(Clone, Debug, PartialEq)]
pub struct BalancerStatus {
    pub state: BalancerState,
    pub traffic: Traffic,
}

/// Where a load balancer sends queries.
#[derive(Clone, Debug, PartialEq)]
pub enum Traffic {
    /// To these pools, in failover order; the first alone under `off`.
    Pools(Vec<PoolId>),
    /// To the fallback pool.
    Fallback(PoolId),
    /// Nowhere: only the SOA is answered.
    Nowhere,
}

/// The compiled state of one configuration.
#[derive(Clone, Debug)]
pub struct Compiler {
    model: Arc<Model>,
    names: Arc<Names>,
    pools: Vec<PoolHealth>,
    offers: Vec<PoolOffer>,
    balancers: Vec<Arc<Balancer>>,
    statuses: Vec<BalancerStatus>,
    /// Each load balancer's zone and place in it; those of a zone stand together.
    places: Vec<(usize, usize)>,
    /// Where each zone's load balancers begin, and where the last ones end.
    zone_starts: Vec<usize>,
    /// The served zones right below each one.
    nested: HashMap<Name, Vec<Name>>,
    /// The load balancers that use each pool.
    users: Vec<Vec<usize>>,
}

/// What a recompilation changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recompiled {
    /// The pool's health as it was, if its state changed.
    pub pool: Option<PoolHealth>,
    /// Load balancers whose state or traffic changed, and what it was.
    pub balancers: Vec<(usize, BalancerStatus)>,
    /// Zones in which some answer changed.
    pub zones: Vec<usize>,
}

impl Compiler {
    /// Compiles what was prepared at the verdicts of `table`, which has adopted it.
    pub fn new(prepared: Prepared, table: &Table) -> Compiler {
        let Prepared { model, names, nested } = prepared;
        let ids = || (0..model.pools.len() as u32).map(PoolId);
        let pools: Vec<PoolHealth> = ids().map(|id| table.pool(&model, id)).collect();
        let offers: Vec<PoolOffer> =
            ids().map(|id| offer(model.pool(id), pools[id.0 as usize], table.verdicts(id))).collect();
        let mut users = vec![Vec::new(); model.pools.len()];
        let mut places = Vec::new();
        let mut zone_starts = Vec::with_capacity(model.zones.len() + 1);
        for (zone, contents) in model.zones.iter().enumerate() {
            zone_starts.push(places.len());
            for (place, balancer) in contents.load_balancers.iter().enumerate() {
                for pool in used_pools(balancer) {
                    users[pool.0 as usize].push(places.len());
                }
                places.push((zone, place));
            }
        }
        zone_starts.push(places.len());
        let (balancers, statuses) = (model.zones.iter().flat_map(|zone| &zone.load_balancers))
            .map(|balancer| {
                let (compiled, status) = compile_balancer(balancer, &offers);
                (Arc::new(compiled), status)
            })
            .unzip();
        Compiler { model, names, pools, offers, balancers, statuses, places, zone_starts, nested, users }
    }

    /// Takes in that some endpoint's verdict in `pool` changed.
    pub fn refresh(&mut self, pool: PoolId, table: &Table) -> Recompiled {
        let place = pool.0 as usize;
        let mut changes = Recompiled::default();
        let health = table.pool(&self.model, pool);
        let before = std::mem::replace(&mut self.pools[place], health);
        changes.pool = (before.state != health.state).then_some(before);
        let next = offer(self.model.pool(pool), health, table.verdicts(pool));
        if self.offers[place] == next {
            return changes;
        }
        self.offers[place] = next;
        for &user in &self.users[place] {
            let (zone, _) = self.places[user];
            let (compiled, status) = compile_balancer(self.load_balancer(user), &self.offers);
            if *self.balancers[user] != compiled {
                self.balancers[user] = Arc::new(compiled);
                if changes.zones.last() != Some(&zone) {
                    // users stand in the order of zones
                    changes.zones.push(zone);
                }
            }
            if self.statuses[user] != status {
                changes.balancers.push((user, std::mem::replace(&mut self.statuses[user], status)));
            }
        }
        changes
    }

    /// Everything as it stands, under these serials.
    pub fn snapshot(&self, serials: &[u32]) -> Snapshot {
        Snapshot {
            names: Arc::clone(&self.names),
            serials: serials.into(),
            balancers: self.balancers[..].into(),
        }
    }

    /// The configuration this was compiled from.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// A pool's health as compiled.
    pub fn pool(&self, pool: PoolId) -> PoolHealth {
        self.pools[pool.0 as usize]
    }

    /// The load balancers, counted through all zones.
    pub fn balancers(&self) -> impl Iterator<Item = (&LoadBalancer, &BalancerStatus)> {
        (0..self.statuses.len()).map(|number| (self.load_balancer(number), &self.statuses[number]))
    }

    /// One load balancer and its status.
    pub fn balancer(&self, number: usize) -> (&LoadBalancer, &BalancerStatus) {
        (self.load_balancer(number), &self.statuses[number])
    }

    /// Whether all answers of a zone are those that `other` gave for it.
    pub fn answers_alike(&self, zone: usize, other: &Compiler, its_zone: usize) -> bool {
        let (here, there) = (&self.model.zones[zone], &other.model.zones[its_zone]);
        let names = |zone: &Zone| -> Vec<_> {
            zone.load_balancers.iter().map(|balancer| (balancer.name.clone(), balancer.enabled)).collect()
        };
        here.soa == there.soa
            && here.records == there.records
            && names(here) == names(there)
            && self.nested.get(&here.apex) == other.nested.get(&there.apex)
            && self.balancers_of(zone) == other.balancers_of(its_zone)
    }

    fn balancers_of(&self, zone: usize) -> &[Arc<Balancer>] {
        &self.balancers[self.zone_starts[zone]..self.zone_starts[zone + 1]]
    }

    fn load_balancer(&self, number: usize) -> &LoadBalancer {
        let (zone, place) = self.places[number];
        &self.model.zones[zone].load_balancers[place]
    }
}

/// The pools whose health a load balancer's answers depend on.
fn used_pools(balancer: &LoadBalancer) -> Vec<PoolId> {
    let mut pools = balancer.default_pools.clone();
    if let WhenUnavailable::FallbackPool(pool) = balancer.when_unavailable {
        pools.push(pool);
    }
    pools.sort();
    pools.dedup();
    pools
}

fn compile_balancer(balancer: &LoadBalancer, offers: &[PoolOffer]) -> (Balancer, BalancerStatus) {
    let offer = |pool: &PoolId| &offers[pool.0 as usize];
    let fallback = match balancer.when_unavailable {
        WhenUnavailable::FallbackPool(pool) => Some(pool),
        WhenUnavailable::Nodata => None,
    };
    let compiled = Balancer {
        ttl: balancer.ttl,
        ipv4: choose(balancer, |pool| offer(pool).ipv4.clone(), fallback.map(|p| &offer(&p).fallback_ipv4)),
        ipv6: choose(balancer, |pool| offer(pool).ipv6.clone(), fallback.map(|p| &offer(&p).fallback_ipv6)),
    };
    let weighs = |place: usize| match &balancer.steering_policy {
        SteeringPolicy::Off => true,
        SteeringPolicy::Random(weights) => weights[place] > Weight(0),
    };
    // a pool of weight 0 gets nothing, but it is no less well for it
    let available: Vec<(usize, PoolId)> = (balancer.default_pools.iter().copied().enumerate())
        .filter(|(_, pool)| offer(pool).is_available())
        .collect();
    let steered: Vec<PoolId> =
        available.iter().filter(|(place, _)| weighs(*place)).map(|(_, pool)| *pool).collect();
    let state = match available.len() {
        _ if steered.is_empty() => BalancerState::Critical,
        n if n < balancer.default_pools.len() => BalancerState::Degraded,
        _ => BalancerState::Healthy,
    };
    let traffic = match (&balancer.steering_policy, fallback) {
        (SteeringPolicy::Off, _) if !steered.is_empty() => Traffic::Pools(vec![steered[0]]),
        (SteeringPolicy::Random(_), _) if !steered.is_empty() => Traffic::Pools(steered),
        (_, Some(pool)) if !offer(&pool).fallback_is_empty() => Traffic::Fallback(pool),
        _ => Traffic::Nowhere,
    };
    (compiled, BalancerStatus { state, traffic })
}

/// The choice of pools for one family.
fn choose<const N: usize>(
    balancer: &LoadBalancer,
    available: impl Fn(&PoolId) -> Option<Arc<Candidates<N>>>,
    fallback: Option<&Arc<Candidates<N>>>,
) -> Choice<N> {
    let steered = match &balancer.steering_policy {
        SteeringPolicy::Off => {
            balancer.default_pools.iter().find_map(&available).map_or(Choice::Nothing, Choice::Pool)
        }
        SteeringPolicy::Random(weights) => {
            let pools = balancer.default_pools.iter().zip(weights);
            Choice::by_weight(pools.filter_map(|(pool, weight)| Some((*weight, available(pool)?))))
        }
    };
    match (steered, fallback) {
        (Choice::Nothing, Some(candidates)) => Choice::Pool(Arc::clone(candidates)),
        (steered, _) => steered,
    }
}
