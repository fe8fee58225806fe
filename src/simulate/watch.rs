//! What must always hold, looked at from outside.
//!
//! Outcomes, orders and configurations are noted as they happen; what may be
//! served follows from them by rules written down a second time, as plainly as
//! can be, and slower than the engine's.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::Drive;
use crate::authority::{Members, Snapshot};
use crate::engine::Change;
use crate::health::{
    Action, AgentWish, Fitness, OutCause, PoolState, ProbeResult, Slot, Standing, TargetId, Verdict,
};
use crate::model::{
    Combination, Dependency, LoadBalancer, Model, Moves, Name, Pool, PoolId, Reach, Scope, SteeringPolicy,
    TtlPolicy, VantageId, Weight, WhenUnavailable,
};
use crate::moment::Moment;
use crate::steering::{Chance, Choice};

/// A changed answer has a higher serial within this time.
const SERIAL: Duration = Duration::from_millis(1100);

/// So much earlier an endpoint may be told to be drained: changes are gathered
/// before they are published, and a drain waits for a reload that is held back.
/// To be 20 ms, or nothing, when it waits for none.
const DRAIN_SLACK: Duration = Duration::from_millis(2600);

/// What is known of one target from its outcomes alone.
#[derive(Clone, Debug, Default)]
struct Run {
    passing: bool,
    length: u32,
    /// The run was long enough when its last outcome came.
    decided: bool,
    at: Moment,
}

/// What a zone's load balancers may answer with, and its records that follow
/// health.
type Answers = (Vec<BTreeSet<IpAddr>>, Vec<Arc<Members>>);

/// What has been noted of a world.
#[derive(Debug, Default)]
pub struct Watch {
    runs: HashMap<TargetId, Run>,
    standings: HashMap<Scope, Standing>,
    /// Addresses that several endpoints have or had at a time: which of them
    /// clients have one from isn't known.
    shared: BTreeSet<IpAddr>,
    pools: HashMap<Arc<str>, PoolState>,
    serials: BTreeMap<Name, u32>,
    /// Of each zone what its answers were when the serial last went up, and
    /// since when they are others.
    answers: BTreeMap<Name, (Answers, Option<Moment>)>,
    /// Until when clients may have an address that is handed out no more.
    handed: HashMap<IpAddr, Moment>,
    /// The shortest that each pool ever waited for beyond that.
    waits: HashMap<Arc<str>, Duration>,
    seen: Option<Arc<Snapshot>>,
    model: Option<Arc<Model>>,
}

impl Watch {
    /// Another configuration: what was told of states may not follow on.
    pub fn reloaded(&mut self) {
        self.standings.clear();
        self.pools.clear();
    }

    /// Another process: its targets have other ids. Where its time line is
    /// another one, too, nothing that is known of times means anything.
    pub fn restarted(&mut self, ended: Moment, declared: &Model, same_line: bool) {
        self.reloaded();
        self.runs.clear();
        self.let_go(ended, declared);
        self.seen = None;
        if !same_line {
            self.handed.clear();
            self.answers.values_mut().for_each(|(_, since)| *since = None);
        }
    }

    /// What was published until now is published no more.
    fn let_go(&mut self, now: Moment, declared: &Model) {
        let Some(seen) = &self.seen else { return };
        let balancers = declared.zones.iter().flat_map(|zone| &zone.load_balancers);
        for (balancer, compiled) in balancers.zip(&seen.balancers) {
            // by the TTL as declared, whatever the engine was given
            let ttl = match balancer.ttl_policy {
                TtlPolicy::Fixed => balancer.ttl,
                TtlPolicy::Derived => compiled.ttl,
            };
            let until = now + Duration::from_secs(ttl.into());
            for octets in compiled.ipv4.addresses() {
                let held = self.handed.entry(IpAddr::from(octets)).or_insert(until);
                *held = until.max(*held);
            }
        }
    }

    /// Looks at what happened since the last look.
    pub fn look(&mut self, drive: &mut Drive, declared: &Model) -> Result<(), String> {
        let now = drive.now();
        let model = drive.engine.model();
        if self.model.as_ref().is_none_or(|seen| !Arc::ptr_eq(seen, model)) {
            // addresses of host names come and go
            let there = |scope: &Scope| drive.engine.table().place_of(scope).is_ok();
            self.standings.retain(|scope, _| there(scope));
            let mut once = BTreeSet::new();
            let everywhere = model.pools.iter().flat_map(|pool| &pool.endpoints);
            let twice = everywhere.map(|endpoint| endpoint.address).filter(|address| !once.insert(*address));
            self.shared.extend(twice);
            self.model = Some(Arc::clone(model));
        }
        let told = std::mem::take(&mut drive.told);
        for (_, change) in &told {
            self.follow(change)?;
        }
        for (id, outcome) in std::mem::take(&mut drive.landed) {
            let Some(target) = drive.engine.table().target(id) else { continue };
            let (pool, place) = (target.pool, target.endpoint);
            let pass = match outcome.result {
                ProbeResult::Pass => true,
                ProbeResult::Fail => false,
                ProbeResult::Error => continue,
            };
            // by the thresholds as declared, whatever the engine was given
            let monitor = declared.monitors.iter().find(|monitor| monitor.name == target.task.monitor.name);
            let wish = outcome.agent.and_then(|agent| agent.wish);
            let standing = drive.engine.table().standings(pool)[place];
            if matches!(wish, Some(AgentWish::Drain | AgentWish::Maint)) && standing.fitness.counts() {
                return Err(format!("{}'s agent wants {wish:?}: {standing:?}", target.task.endpoint));
            }
            let Some(limits) = monitor.map(|monitor| monitor.thresholds) else { continue };
            let run = self.runs.entry(id).or_default();
            run.length = if run.passing == pass { run.length + 1 } else { 1 };
            run.passing = pass;
            run.decided = run.length >= if pass { limits.up } else { limits.down };
            run.at = now;
            self.judge(drive, pool, place)?;
        }
        let published = Arc::clone(drive.published());
        let is_new = self.seen.as_ref().is_none_or(|seen| !Arc::ptr_eq(seen, &published));
        if is_new && !drive.is_behind() {
            self.answers(drive, declared)?;
            members(drive)?;
        }
        self.serials(drive, &published)?;
        if is_new {
            self.let_go(now, declared);
        }
        self.seen = Some(published);
        self.drained(drive, declared)
    }

    /// No endpoint is drained while clients may still have its address.
    fn drained(&mut self, drive: &Drive, declared: &Model) -> Result<(), String> {
        for pool in &declared.pools {
            let wait = self.waits.entry(Arc::clone(&pool.name)).or_insert(pool.rules.drain_wait);
            *wait = pool.rules.drain_wait.min(*wait);
        }
        let (model, table, now) = (drive.engine.model(), drive.engine.table(), drive.now());
        if table.overrides().is_empty() {
            return Ok(());
        }
        for (pool, id) in model.pools.iter().zip(0..) {
            for (endpoint, standing) in pool.endpoints.iter().zip(table.standings(PoolId(id))) {
                if standing.fitness != Fitness::Out(OutCause::Drained) {
                    continue;
                }
                let is_shared = self.shared.contains(&endpoint.address);
                let Some(until) = self.handed.get(&endpoint.address).filter(|_| !is_shared) else { continue };
                let due = *until + self.waits.get(&pool.name).copied().unwrap_or_default();
                if now + DRAIN_SLACK < due {
                    return Err(format!(
                        "{}/{} is drained, and clients have it for {:?} more",
                        pool.name,
                        endpoint.name,
                        due.since(now)
                    ));
                }
            }
        }
        Ok(())
    }

    /// What is told follows on from what was told before.
    fn follow(&mut self, change: &Change) -> Result<(), String> {
        match change {
            Change::Endpoint { scope, from, to, .. } => {
                let before = self.standings.insert(scope.clone(), *to);
                if before.is_some_and(|before| before.without_share() != from.without_share()) {
                    return Err(format!(
                        "{scope} was told to stand as {before:?}, and now to come from {from:?}"
                    ));
                }
                if from.without_share() == to.without_share() {
                    return Err(format!("{scope} was told to change from {from:?} to the same"));
                }
            }
            Change::Pool { pool, from, to, .. } => {
                let before = self.pools.insert(Arc::clone(pool), to.state);
                if before.is_some_and(|before| before != *from) {
                    return Err(format!(
                        "pool {pool} was told to be {before:?}, and now to come from {from}"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// An endpoint that all see failing isn't served, one that all see passing
    /// is healthy.
    fn judge(&self, drive: &Drive, pool: PoolId, place: usize) -> Result<(), String> {
        let engine = &drive.engine;
        let (model, table, now) = (engine.model(), engine.table(), drive.now());
        let declared = model.pool(pool);
        let vantages = &declared.viewpoints.vantages;
        let elsewhere = |id: &VantageId| model.vantage(*id).reach == Reach::Remote;
        let doubting = |id: &VantageId| table.holds(*id, now);
        if vantages.iter().any(|id| elsewhere(id) || doubting(id)) {
            return Ok(());
        }
        let (mut voters, mut failing, mut passing, mut must_fail, mut must_pass) = (0, 0, 0, false, true);
        for (number, member) in declared.tests.members.iter().enumerate().filter(|(_, member)| member.votes) {
            let runs: Vec<Option<&Run>> = (table.targets_of(pool, place))
                .filter(|(_, target)| target.member == number)
                .map(|(id, target)| {
                    let fresh = |run: &&Run| now.since(run.at) < target.task.monitor.interval * 3;
                    self.runs.get(&id).filter(|run| run.decided).filter(fresh)
                })
                .collect();
            let all = |wanted: bool| {
                !runs.is_empty() && runs.iter().all(|run| run.is_some_and(|run| run.passing == wanted))
            };
            voters += 1;
            failing += usize::from(all(false));
            passing += usize::from(all(true));
            must_fail |= member.must_be_healthy && all(false);
            must_pass &= !member.must_be_healthy || all(true);
        }
        let (unfit, fit) = match declared.tests.combination {
            Combination::All => (failing > 0, passing == voters),
            Combination::AtLeast(least) => (voters - failing < least as usize, passing >= least as usize),
            Combination::Majority => (must_fail || 2 * failing > voters, 2 * passing >= voters && must_pass),
        };
        let standing = table.standings(pool)[place];
        let name = &declared.endpoints[place].name;
        if voters > 0 && unfit && standing.verdict == Verdict::Healthy {
            return Err(format!("{}/{name} is healthy though all see it failing", declared.name));
        }
        let scope = Scope { pool: Arc::clone(&declared.name), endpoint: Some(Arc::clone(name)) };
        let forced = table.overrides().get(&scope, Slot::Health, now).map(|said| said.action);
        if voters > 0 && unfit && standing.fitness.is_up() && forced != Some(Action::Healthy) {
            return Err(format!("{}/{name} is up though all see it failing", declared.name));
        }
        if voters > 0 && fit && standing.verdict != Verdict::Healthy {
            return Err(format!(
                "{}/{name} is {} though all see it passing",
                declared.name, standing.verdict
            ));
        }
        Ok(())
    }

    /// Answers carry what may be served and nothing else, and something if
    /// there is something.
    fn answers(&self, drive: &Drive, declared: &Model) -> Result<(), String> {
        let model = drive.engine.model();
        let places = model.zones.iter().flat_map(|zone| &zone.load_balancers);
        for (balancer, compiled) in places.zip(&drive.published().balancers) {
            let carried = carried(&compiled.ipv4);
            if let Some(address) =
                carried.iter().find(|address| !self.is_wanted(drive, declared, balancer, address))
            {
                return Err(format!("{} answers with {address}, which is wanted out", balancer.name));
            }
            let most = longest_ttl(drive, balancer);
            if compiled.ttl > most {
                return Err(format!(
                    "{} answers for {} s, allowed are {most} s",
                    balancer.name, compiled.ttl
                ));
            }
            if balancer.moves != Moves::default() {
                continue; // it may go on with what was fit
            }
            let allowed = allowed(drive, balancer);
            if !carried.is_subset(&allowed) || carried.is_empty() != allowed.is_empty() {
                return Err(format!("{} answers with {carried:?}, allowed are {allowed:?}", balancer.name));
            }
        }
        Ok(())
    }

    /// Whether nobody wants the address out, as far as the load balancer uses it.
    fn is_wanted(&self, drive: &Drive, declared: &Model, balancer: &LoadBalancer, address: &IpAddr) -> bool {
        let model = drive.engine.model();
        let table = drive.engine.table();
        balancer.pools().any(|id| {
            let pool = model.pool(id);
            pool.endpoints.iter().enumerate().any(|(place, endpoint)| {
                let scope =
                    Scope { pool: Arc::clone(&pool.name), endpoint: Some(Arc::clone(&endpoint.name)) };
                let said = table.overrides().get(&scope, Slot::Traffic, drive.now()).map(|said| said.action);
                let out = matches!(said, Some(Action::Drain | Action::Disable));
                let in_config =
                    declared.pool_named(&pool.name).map(|id| declared.pool(id)).is_some_and(|pool| {
                        let written = pool.endpoints.iter().find(|written| written.name == endpoint.name);
                        written.is_none_or(|written| written.enabled || said == Some(Action::Enable))
                    });
                endpoint.address == *address
                    && !out
                    && in_config
                    && table.standings(id)[place].fitness.counts()
                    && table.standings(id)[place].weight != Some(Weight(0))
            })
        })
    }

    /// A zone's serial never goes back, and goes up when its answers change.
    fn serials(&mut self, drive: &Drive, published: &Snapshot) -> Result<(), String> {
        let model = drive.engine.model();
        if published.serials.len() != model.zones.len() || drive.is_behind() {
            return Ok(()); // a configuration that isn't published yet
        }
        let mut compiled = published.balancers.iter();
        let mut members = published.members.iter();
        for (zone, serial) in model.zones.iter().zip(&published.serials) {
            let answers: Vec<BTreeSet<IpAddr>> =
                compiled.by_ref().take(zone.load_balancers.len()).map(|held| carried(&held.ipv4)).collect();
            let following = zone.records.iter().filter(|set| set.follows()).count();
            let answers = (answers, members.by_ref().take(following).cloned().collect());
            let before = self.serials.insert(zone.apex.clone(), *serial);
            if before.is_some_and(|before| (serial.wrapping_sub(before) as i32) < 0) {
                return Err(format!("the serial of {} went from {before:?} to {serial}", zone.apex));
            }
            let held = self.answers.entry(zone.apex.clone()).or_default();
            if before != Some(*serial) {
                *held = (answers, None);
            } else if held.0 != answers {
                let since = *held.1.get_or_insert(drive.now());
                if drive.now().since(since) > SERIAL {
                    return Err(format!("the answers of {} changed, and its serial didn't", zone.apex));
                }
            } else {
                held.1 = None;
            }
        }
        Ok(())
    }
}

/// A TTL that is derived doesn't outlast the run of an endpoint that has begun
/// to fail in the first pool.
fn longest_ttl(drive: &Drive, balancer: &LoadBalancer) -> u32 {
    if balancer.ttl_policy == TtlPolicy::Fixed {
        return balancer.ttl;
    }
    let (table, pool) = (drive.engine.table(), balancer.default_pools[0]);
    let declared = drive.engine.model().pool(pool);
    let left = (0..declared.endpoints.len())
        .filter(|place| table.standings(pool)[*place].fitness == Fitness::Up)
        .flat_map(|place| table.targets_of(pool, place))
        .filter(|(_, target)| declared.tests.members[target.member].votes)
        .filter_map(|(_, target)| {
            let monitor = &target.task.monitor;
            let machine = target.machine();
            let failures =
                machine.run().filter(|(pass, _)| !pass && machine.verdict() == Verdict::Healthy)?.1;
            let between = monitor.recheck_interval.unwrap_or(monitor.interval).min(monitor.interval);
            let probed = monitor.check.is_probed().then_some(between)?;
            // a reload may have asked for fewer than there are
            let due = monitor.thresholds.down.saturating_sub(failures).max(1);
            Some((probed * due).as_secs().max(1) as u32)
        });
    left.min().map_or(balancer.ttl, |left| left.min(balancer.ttl))
}

/// Of records that follow health those are answered whose needs are met, and
/// never none.
fn members(drive: &Drive) -> Result<(), String> {
    let (model, table, now) = (drive.engine.model(), drive.engine.table(), drive.now());
    // whether it is there, and whether somebody took it out
    let seen = |needed: &Dependency| {
        let (pool, enabled) = (model.pool(needed.pool), table.is_enabled(needed.pool, now));
        let both = pool.endpoints.iter().zip(table.standings(needed.pool));
        let meant =
            both.filter(|(endpoint, _)| needed.endpoint.as_ref().is_none_or(|of| endpoint.is_called(of)));
        let has_share = |endpoint, standing: &Standing| {
            standing.fitness.is_up() && standing.percent > 0 && standing.weight_of(endpoint) > Weight(0)
        };
        let seen: Vec<(Fitness, bool)> =
            meant.map(|(endpoint, standing)| (standing.fitness, has_share(endpoint, standing))).collect();
        let up = seen.iter().filter(|(fitness, _)| fitness.is_up()).count();
        let least = if needed.endpoint.is_none() { pool.needed() as usize } else { 1 };
        let there = enabled && up >= least && seen.iter().any(|(_, has_share)| *has_share);
        let idle = || seen.iter().filter(|(_, has_share)| !has_share).map(|(fitness, _)| fitness);
        let out = idle().count() > 0 && idle().all(|fitness| fitness.is_up() || fitness.is_taken_out());
        (there, !enabled || out)
    };
    let sets = model.zones.iter().flat_map(|zone| &zone.records).filter(|set| set.follows());
    for (set, members) in sets.zip(&drive.published().members) {
        let met = |place: usize| set.depends_on[place].iter().all(|needed| seen(needed).0);
        let kept_out = |place: usize| {
            let mut needs = set.depends_on[place].iter().map(&seen);
            needs.any(|(there, out)| !there && out)
        };
        let all = || 0..set.rdata.len();
        let mut expected: Vec<usize> = all().filter(|place| met(*place)).collect();
        if expected.is_empty() {
            expected = all().filter(|place| !kept_out(*place)).collect();
        }
        if expected.is_empty() {
            expected = all().collect();
        }
        let expected: Vec<&[u8]> = expected.into_iter().map(|place| &*set.rdata[place]).collect();
        let answered: Vec<&[u8]> = members.rdata().collect();
        if answered != expected {
            return Err(format!("{} answers with {answered:?}, due are {expected:?}", set.owner));
        }
    }
    Ok(())
}

/// All addresses that answers of a choice may carry.
fn carried(choice: &Choice<4>) -> BTreeSet<IpAddr> {
    let mut all = BTreeSet::new();
    for seed in 0..16 {
        let mut chance = Chance::new(crate::health::scramble(seed));
        if let Some(candidates) = choice.pick(&mut chance) {
            candidates.draw(&mut chance, |octets| {
                all.insert(IpAddr::from(*octets));
            });
        }
    }
    all
}

/// How an endpoint stands, as far as answers go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stand {
    /// It counts for its pool, and the fallback pool hands it out.
    pub counts: bool,
    pub up: bool,
    /// It has a share of the traffic.
    pub serves: bool,
    /// The weight that an operator has given it.
    pub weight: Option<Weight>,
}

impl Stand {
    /// How this one does.
    pub fn of(standing: &Standing) -> Stand {
        let up = standing.fitness.is_up();
        Stand {
            counts: standing.fitness.counts(),
            up,
            serves: up && standing.percent > 0,
            weight: standing.weight,
        }
    }
}

/// Whether enough of a pool's endpoints are up for it to be chosen.
pub fn has_enough(pool: &Pool, stands: &[Stand]) -> bool {
    let up = stands.iter().filter(|stand| stand.up).count();
    up >= if pool.is_monitored() { pool.health_threshold.max(1) as usize } else { 1 }
}

/// The addresses that may answer, from where the endpoints stand.
fn allowed(drive: &Drive, balancer: &LoadBalancer) -> BTreeSet<IpAddr> {
    let (model, table, now) = (drive.engine.model(), drive.engine.table(), drive.now());
    let stands: Vec<(bool, Vec<Stand>)> = (0..model.pools.len() as u32)
        .map(PoolId)
        .map(|id| (table.is_enabled(id, now), table.standings(id).iter().map(Stand::of).collect()))
        .collect();
    read(model, balancer, &stands)
}

/// The addresses that a load balancer answers with when of each pool this is
/// so: whether it is enabled, and how its endpoints stand.
pub fn read(model: &Model, balancer: &LoadBalancer, stands: &[(bool, Vec<Stand>)]) -> BTreeSet<IpAddr> {
    let addresses = |id: PoolId, fits: fn(&Stand) -> bool| -> BTreeSet<IpAddr> {
        let both = model.pool(id).endpoints.iter().zip(&stands[id.0 as usize].1);
        both.filter(|(endpoint, stand)| {
            stand.weight.unwrap_or(endpoint.weight) > Weight(0) && endpoint.address.is_ipv4() && fits(stand)
        })
        .map(|(endpoint, _)| endpoint.address)
        .collect()
    };
    let available = |id: &PoolId| {
        let (enabled, of) = &stands[id.0 as usize];
        let serves = addresses(*id, |stand| stand.serves);
        (*enabled && has_enough(model.pool(*id), of) && !serves.is_empty()).then_some(serves)
    };
    let steered: Vec<BTreeSet<IpAddr>> = match &balancer.steering_policy {
        SteeringPolicy::Off => balancer.default_pools.iter().find_map(available).into_iter().collect(),
        SteeringPolicy::Random(weights) => {
            let pools = balancer.default_pools.iter().zip(weights).filter(|(_, weight)| **weight > Weight(0));
            pools.filter_map(|(pool, _)| available(pool)).collect()
        }
    };
    match balancer.when_unavailable {
        _ if !steered.is_empty() => steered.into_iter().flatten().collect(),
        WhenUnavailable::FallbackPool(id) if stands[id.0 as usize].0 => addresses(id, |stand| stand.counts),
        _ => BTreeSet::new(),
    }
}
