//! From the model and what health holds of it to a snapshot.
//!
//! A verdict rebuilds only the pool it touches and what uses it, load balancers
//! and RRsets that follow health; everything else is shared with the snapshot
//! before.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::members::{Following, Held, Members};
use super::names::nested_apexes;
use super::{Names, Rrset};
use crate::health::{PoolHealth, Standing, Table};
use crate::model::{
    LoadBalancer, Model, Moves, Name, PoolId, RecordSet, SteeringPolicy, TtlPolicy, Weight, WhenUnavailable,
    Zone, ttl_within,
};
use crate::moment::Moment;
use crate::steering::{Candidates, Choice, Hold, PoolOffer, offer};

/// Everything the query path reads: immutable, replaced as a whole.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub names: Arc<Names>,
    /// Of each zone's SOA.
    pub serials: Box<[u32]>,
    pub balancers: Box<[Arc<Balancer>]>,
    /// Of each RRset that follows health those of its records that are in.
    pub members: Box<[Arc<Members>]>,
}

impl Snapshot {
    /// An RRset as it is answered now.
    pub fn now<'a>(&'a self, set: Rrset<'a>) -> Rrset<'a> {
        match set.follower {
            Some(number) => self.members[number as usize].of(set),
            None => set,
        }
    }
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

    /// The same names over a model that differs in its pools' endpoints alone.
    pub fn with_pools_of(&self, model: Model) -> Prepared {
        Prepared { model: Arc::new(model), ..self.clone() }
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
    /// The least time from an outcome to another verdict in each pool.
    paces: Vec<Option<Duration>>,
    /// Those whose TTLs go by that: of each default pool all the pools that its
    /// health depends on, itself included.
    derived: BTreeMap<usize, Vec<Vec<PoolId>>>,
    /// Those that don't move traffic at once.
    delayed: BTreeMap<usize, Delayed>,
    /// When they move traffic by themselves.
    due: BTreeSet<(Moment, usize)>,
    /// Those of them that use other pools than they did.
    moved: BTreeSet<usize>,
    /// RRsets whose members follow health.
    following: Following,
}

/// A load balancer that doesn't move traffic at once.
#[derive(Clone, Debug)]
struct Delayed {
    hold: Hold,
    /// When it moves traffic by itself.
    due: Option<Moment>,
    /// What each of its pools offered last while it was available.
    kept: Vec<Option<PoolOffer>>,
}

/// The names of the pools that load balancers with delays use.
pub type InUse = BTreeMap<Name, Vec<Arc<str>>>;

/// What a recompilation changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recompiled {
    /// The pool's health as it was, if its state changed.
    pub pool: Option<PoolHealth>,
    /// Load balancers whose state or traffic changed, and what it was.
    pub balancers: Vec<(usize, BalancerStatus)>,
    /// Zones in which some answer changed, TTLs apart.
    pub zones: Vec<usize>,
    /// Some TTL changed.
    pub ttls: bool,
    /// RRsets that follow health and are answered otherwise or for another
    /// reason, and what of them was in.
    pub records: Vec<(usize, Held)>,
}

impl Compiler {
    /// Compiles what was prepared as the endpoints of `table` stand, which has
    /// adopted it; which pools load balancers with delays use goes on from
    /// `former`.
    pub fn new(prepared: Prepared, table: &Table, former: &InUse, now: Moment) -> Compiler {
        let Prepared { model, names, nested } = prepared;
        let ids = || (0..model.pools.len() as u32).map(PoolId);
        let pools: Vec<PoolHealth> = ids().map(|id| table.pool(id, now)).collect();
        let offers: Vec<PoolOffer> =
            ids().map(|id| offer(model.pool(id), pools[id.0 as usize], table.standings(id))).collect();
        let mut users = vec![Vec::new(); model.pools.len()];
        let mut places = Vec::new();
        let mut zone_starts = Vec::with_capacity(model.zones.len() + 1);
        let (mut delayed, mut derived) = (BTreeMap::new(), BTreeMap::new());
        for (zone, contents) in model.zones.iter().enumerate() {
            zone_starts.push(places.len());
            for (place, balancer) in contents.load_balancers.iter().enumerate() {
                let number = places.len();
                let mut used: BTreeSet<PoolId> = balancer.pools().collect();
                if balancer.ttl_policy == TtlPolicy::Derived {
                    let with_needs = |id: &PoolId| {
                        let mut all = model.needs(model.pool(*id));
                        all.push(*id);
                        all
                    };
                    let paced_by: Vec<_> = balancer.default_pools.iter().map(with_needs).collect();
                    used.extend(paced_by.iter().flatten());
                    derived.insert(number, paced_by);
                }
                for pool in used {
                    users[pool.0 as usize].push(number);
                }
                if balancer.moves != Moves::default() {
                    delayed.insert(number, Delayed::new(balancer, &model, former));
                }
                places.push((zone, place));
            }
        }
        zone_starts.push(places.len());
        let following = Following::new(&model, table, now);
        let mut compiler = Compiler {
            model: Arc::clone(&model),
            names,
            pools,
            offers,
            balancers: Vec::with_capacity(places.len()),
            statuses: Vec::with_capacity(places.len()),
            places,
            zone_starts,
            nested,
            users,
            paces: ids().map(|id| table.next_verdict(id)).collect(),
            derived,
            delayed,
            due: BTreeSet::new(),
            moved: BTreeSet::new(),
            following,
        };
        for number in 0..compiler.places.len() {
            compiler.look(number, now);
            let (compiled, status) = compiler.compile(number, now);
            compiler.balancers.push(Arc::new(compiled));
            compiler.statuses.push(status);
        }
        compiler
    }

    /// Takes in that some endpoint in `pool` stands differently.
    pub fn refresh(&mut self, pool: PoolId, table: &Table, now: Moment) -> Recompiled {
        let mut changes = self.refresh_balancers(pool, table, now);
        // one endpoint may matter to them where the pool as a whole offers the same
        let refreshed = self.following.refresh(&self.model, pool, table, now);
        changes.zones.extend(refreshed.zones);
        changes.records = refreshed.records;
        changes
    }

    fn refresh_balancers(&mut self, pool: PoolId, table: &Table, now: Moment) -> Recompiled {
        let place = pool.0 as usize;
        let mut changes = Recompiled::default();
        let health = table.pool(pool, now);
        let before = std::mem::replace(&mut self.pools[place], health);
        let news = (before.state, before.taken_out) != (health.state, health.taken_out);
        changes.pool = news.then_some(before);
        let next = offer(self.model.pool(pool), health, table.standings(pool));
        let pace = table.next_verdict(pool);
        let another_pace = std::mem::replace(&mut self.paces[place], pace) != pace;
        let out = wanted_out(&self.model, pool, table);
        let held = self.users[place].iter().any(|user| self.delayed.contains_key(user));
        // what waits is to hear that a pool is known to be down, too
        let heard = held && (!out.is_empty() || before != health);
        if self.offers[place] == next && !heard && !another_pace {
            return changes;
        }
        self.offers[place] = next;
        for delayed in self.users[place].iter().filter(|_| !out.is_empty()).copied().collect::<Vec<_>>() {
            let (zone, number) = self.places[delayed];
            let pools = &self.model.zones[zone].load_balancers[number].default_pools;
            let Some(delayed) = self.delayed.get_mut(&delayed) else { continue };
            for (_, kept) in pools.iter().zip(&mut delayed.kept).filter(|(id, _)| **id == pool) {
                *kept = kept.as_ref().map(|kept| kept.without(&out)).filter(PoolOffer::is_available);
            }
        }
        for user in self.users[place].clone() {
            self.recompile(user, now, &mut changes);
        }
        changes
    }

    /// Moves traffic whose time has come.
    pub fn advance(&mut self, now: Moment) -> Recompiled {
        let due = self.due.iter().take_while(|(at, _)| *at <= now);
        let due: BTreeSet<usize> = due.map(|(_, number)| *number).collect();
        let mut changes = Recompiled::default();
        for number in due {
            self.recompile(number, now, &mut changes);
        }
        changes
    }

    /// When [`Compiler::advance`] has something to do.
    pub fn wake_at(&self) -> Option<Moment> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Sends traffic back to the pools that are available again; none if there
    /// is no such load balancer.
    pub fn fail_back(&mut self, name: &Name, now: Moment) -> Option<Recompiled> {
        let number = (0..self.places.len()).find(|number| self.load_balancer(*number).name == *name)?;
        let (zone, place) = self.places[number];
        let balancer = &self.model.zones[zone].load_balancers[place];
        if let Some(delayed) = self.delayed.get_mut(&number) {
            let offers = &self.offers;
            let available = |pool: &PoolId| offers[pool.0 as usize].is_available();
            delayed.hold.fail_back(balancer.default_pools.iter().map(available));
            self.moved.insert(number);
        }
        let mut changes = Recompiled::default();
        self.recompile(number, now, &mut changes);
        Some(changes)
    }

    /// Which pools the load balancers with delays use.
    pub fn in_use(&self) -> InUse {
        let of = |number: &usize| Some((self.load_balancer(*number).name.clone(), self.in_use_of(*number)?));
        self.delayed.keys().filter_map(of).collect()
    }

    /// Which pools one load balancer uses; none if it has no delays.
    fn in_use_of(&self, number: usize) -> Option<Vec<Arc<str>>> {
        let hold = &self.delayed.get(&number)?.hold;
        let pools = self.load_balancer(number).default_pools.iter().enumerate();
        let taken = pools.filter(|(place, _)| hold.takes(*place));
        Some(taken.map(|(_, pool)| Arc::clone(&self.model.pool(*pool).name)).collect())
    }

    /// The load balancers with delays that use other pools since it was last
    /// asked for, and which.
    pub fn take_moved(&mut self) -> InUse {
        let moved = std::mem::take(&mut self.moved);
        let of = |number: usize| Some((self.load_balancer(number).name.clone(), self.in_use_of(number)?));
        moved.into_iter().filter_map(of).collect()
    }

    fn recompile(&mut self, number: usize, now: Moment, changes: &mut Recompiled) {
        self.look(number, now);
        let (zone, _) = self.places[number];
        let (compiled, status) = self.compile(number, now);
        let before = &self.balancers[number];
        if **before != compiled {
            let same_addresses = (&before.ipv4, &before.ipv6) == (&compiled.ipv4, &compiled.ipv6);
            self.balancers[number] = Arc::new(compiled);
            changes.ttls |= same_addresses;
            if !same_addresses && changes.zones.last() != Some(&zone) {
                // users stand in the order of zones
                changes.zones.push(zone);
            }
        }
        if self.statuses[number] != status {
            changes.balancers.push((number, std::mem::replace(&mut self.statuses[number], status)));
        }
    }

    /// Lets a load balancer with delays see its pools.
    fn look(&mut self, number: usize, now: Moment) {
        let (zone, place) = self.places[number];
        let Some(delayed) = self.delayed.get_mut(&number) else { return };
        let pools = &self.model.zones[zone].load_balancers[place].default_pools;
        let available = pools.iter().zip(&delayed.kept).map(|(pool, kept)| {
            let (offer, health) = (&self.offers[pool.0 as usize], self.pools[pool.0 as usize]);
            // one that was available here is known: at the start alone nothing is held against it
            let awaited = kept.is_none() && health.is_awaited(self.model.pool(*pool));
            (offer.is_available() || !awaited).then_some(offer.is_available())
        });
        let before = delayed.hold.clone();
        delayed.hold.look(available, now);
        let due = delayed.hold.wake_at();
        if let Some(before) = std::mem::replace(&mut delayed.due, due) {
            self.due.remove(&(before, number));
        }
        self.due.extend(due.map(|at| (at, number)));
        if (0..pools.len()).any(|place| before.takes(place) != delayed.hold.takes(place)) {
            self.moved.insert(number);
        }
        for (pool, kept) in pools.iter().zip(&mut delayed.kept) {
            let offer = &self.offers[pool.0 as usize];
            if offer.is_available() {
                *kept = Some(offer.clone());
            }
        }
    }

    fn compile(&self, number: usize, now: Moment) -> (Balancer, BalancerStatus) {
        let balancer = self.load_balancer(number);
        let offered = |place: usize| {
            let offer = &self.offers[balancer.default_pools[place].0 as usize];
            let Some(delayed) = self.delayed.get(&number) else { return Some(offer) };
            let held = if offer.is_available() { Some(offer) } else { delayed.kept[place].as_ref() };
            held.filter(|_| delayed.hold.takes(place))
        };
        let ttl = self.ttl(number, balancer, offered, now);
        compile_balancer(balancer, ttl, offered, &self.offers)
    }

    /// The TTL of a load balancer's answers: its own, or no longer than until
    /// the next verdict that may change them, or a delay that is known to end.
    fn ttl<'a>(
        &self,
        number: usize,
        balancer: &LoadBalancer,
        offered: impl Fn(usize) -> Option<&'a PoolOffer>,
        now: Moment,
    ) -> u32 {
        let Some(paced_by) = self.derived.get(&number) else { return balancer.ttl };
        let first =
            |has: fn(&PoolOffer) -> bool| (0..paced_by.len()).find(|place| offered(*place).is_some_and(has));
        let both = (first(|offer| offer.ipv4.is_some()), first(|offer| offer.ipv6.is_some()));
        let count = match (&balancer.steering_policy, both) {
            // those behind the one that answers don't matter until it fails
            (SteeringPolicy::Off, (Some(ipv4), Some(ipv6))) => ipv4.max(ipv6) + 1,
            _ => paced_by.len(),
        };
        let paces = paced_by[..count].iter().flatten().filter_map(|pool| self.paces[pool.0 as usize]);
        let delay = self.delayed.get(&number).and_then(|delayed| delayed.due).map(|due| due.since(now));
        paces.chain(delay).min().map_or(balancer.ttl, |time| balancer.ttl.min(ttl_within(time)))
    }

    /// Everything as it stands, under these serials.
    pub fn snapshot(&self, serials: &[u32]) -> Snapshot {
        Snapshot {
            names: Arc::clone(&self.names),
            serials: serials.into(),
            balancers: self.balancers[..].into(),
            members: self.following.members().collect(),
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

    /// Whether a pool has something to answer with, and may.
    pub fn offers(&self, pool: PoolId) -> bool {
        self.offers[pool.0 as usize].is_available()
    }

    /// The load balancers, counted through all zones.
    pub fn balancers(&self) -> impl Iterator<Item = (&LoadBalancer, &BalancerStatus)> {
        (0..self.statuses.len()).map(|number| (self.load_balancer(number), &self.statuses[number]))
    }

    /// One load balancer and its status.
    pub fn balancer(&self, number: usize) -> (&LoadBalancer, &BalancerStatus) {
        (self.load_balancer(number), &self.statuses[number])
    }

    /// The RRsets that follow health, with what of each is in.
    pub fn following(&self) -> impl Iterator<Item = (&RecordSet, &Held)> {
        let all = self.following.all();
        all.map(|((zone, place), held)| (&self.model.zones[zone].records[place], held))
    }

    /// One of them.
    pub fn followed(&self, number: usize) -> (&RecordSet, &Held) {
        let ((zone, place), held) = self.following.get(number);
        (&self.model.zones[zone].records[place], held)
    }

    /// Whether all answers of a zone are those that `other` gave for it.
    pub fn answers_alike(&self, zone: usize, other: &Compiler, its_zone: usize) -> bool {
        let (here, there) = (&self.model.zones[zone], &other.model.zones[its_zone]);
        let names = |zone: &Zone| -> Vec<_> {
            zone.load_balancers.iter().map(|balancer| (balancer.name.clone(), balancer.enabled)).collect()
        };
        here.soa == there.soa
            && self.following.answer_alike((here, zone), &other.following, (there, its_zone))
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

/// The addresses of a pool's endpoints that somebody wants out.
fn wanted_out(model: &Model, pool: PoolId, table: &Table) -> Vec<IpAddr> {
    let both = model.pool(pool).endpoints.iter().zip(table.standings(pool));
    let out = |standing: &Standing| !standing.fitness.counts() || standing.weight == Some(Weight(0));
    both.filter(|(_, standing)| out(standing)).map(|(endpoint, _)| endpoint.address).collect()
}

/// `offered` is what the default pool at a place offers to this load balancer.
fn compile_balancer<'a>(
    balancer: &LoadBalancer,
    ttl: u32,
    offered: impl Fn(usize) -> Option<&'a PoolOffer>,
    offers: &'a [PoolOffer],
) -> (Balancer, BalancerStatus) {
    let offer = |pool: &PoolId| &offers[pool.0 as usize];
    let fallback = match balancer.when_unavailable {
        WhenUnavailable::FallbackPool(pool) => Some(pool),
        WhenUnavailable::Nodata => None,
    };
    let compiled = Balancer {
        ttl,
        ipv4: choose(
            balancer,
            |place| offered(place)?.ipv4.clone(),
            fallback.map(|p| &offer(&p).fallback_ipv4),
        ),
        ipv6: choose(
            balancer,
            |place| offered(place)?.ipv6.clone(),
            fallback.map(|p| &offer(&p).fallback_ipv6),
        ),
    };
    let weighs = |place: usize| match &balancer.steering_policy {
        SteeringPolicy::Off => true,
        SteeringPolicy::Random(weights) => weights[place] > Weight(0),
    };
    // a pool of weight 0 gets nothing, but it is no less well for it
    let available = balancer.default_pools.iter().filter(|pool| offer(pool).is_available()).count();
    let takes = |place: usize| offered(place).is_some_and(PoolOffer::is_available) && weighs(place);
    let steered: Vec<PoolId> = (balancer.default_pools.iter().enumerate())
        .filter(|(place, _)| takes(*place))
        .map(|(_, pool)| *pool)
        .collect();
    let state = match available {
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

/// The choice of pools for one family; `available` is asked by place.
fn choose<const N: usize>(
    balancer: &LoadBalancer,
    available: impl Fn(usize) -> Option<Arc<Candidates<N>>>,
    fallback: Option<&Arc<Candidates<N>>>,
) -> Choice<N> {
    let mut places = 0..balancer.default_pools.len();
    let steered = match &balancer.steering_policy {
        SteeringPolicy::Off => places.find_map(&available).map_or(Choice::Nothing, Choice::Pool),
        SteeringPolicy::Random(weights) => {
            let pools = places.zip(weights);
            Choice::by_weight(pools.filter_map(|(place, weight)| Some((*weight, available(place)?))))
        }
    };
    match (steered, fallback) {
        (Choice::Nothing, Some(candidates)) => Choice::Pool(Arc::clone(candidates)),
        (steered, _) => steered,
    }
}

impl Delayed {
    fn new(balancer: &LoadBalancer, model: &Model, former: &InUse) -> Delayed {
        let taken = former.get(&balancer.name);
        let took = |pool: &PoolId| taken.map(|taken| taken.contains(&model.pool(*pool).name));
        let hold = Hold::recall(balancer.default_pools.iter().map(took), balancer.moves);
        Delayed { hold, due: None, kept: vec![None; balancer.default_pools.len()] }
    }
}
