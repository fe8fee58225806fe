//! Why something doesn't serve, where neither its own health nor an override
//! says so: windows, dependencies, doubt, and moves that wait.

use std::sync::Arc;

use super::super::lookups::{Failure, Lookups};
use crate::authority::BalancerState;
use crate::config::show_duration;
use crate::control::view::{self, time};
use crate::engine::{self, BalancerView, EndpointView, Engine, RecordsView, TestView, VantageView};
use crate::health::{DownCause, Fitness, OutCause, PoolState, Reason, Standing, Verdict, window_state};
use crate::model::{
    Combination, Dependency, Endpoint, Host, LoadBalancer, Model, Pool, PoolId, Scope, SteeringPolicy,
    Weight, names_host,
};
use crate::moment::{self, Moment};

/// The reasons for what a status shows, in its order.
#[derive(Debug, Default)]
pub(super) struct Whys {
    balancers: Vec<Vec<String>>,
    records: Vec<Vec<String>>,
    pools: Vec<Vec<Vec<String>>>,
    unresolved: Vec<Vec<Missing>>,
}

/// An endpoint given by host name that has no address.
#[derive(Debug)]
struct Missing {
    name: Arc<str>,
    hostname: Arc<str>,
    /// Somebody asks for its addresses; nobody does while its pool is disabled.
    is_looked_up: bool,
}

impl Whys {
    /// The reasons for `status`, which `engine` gave just now.
    pub fn of(engine: &Engine, status: &engine::Status) -> Whys {
        let model = engine.model();
        let in_use = engine.compiled().in_use();
        let declared = |view: &BalancerView| {
            let mut all = model.zones.iter().flat_map(|zone| &zone.load_balancers);
            all.find(|balancer| balancer.name == view.name)
        };
        let balancer = |view: &BalancerView| {
            // most are well and move at once; looking each up would take long where there are thousands
            let used = in_use.get(&view.name).map(Vec::as_slice);
            match used.is_some() || view.state != BalancerState::Healthy {
                true => declared(view).map_or_else(Vec::new, |of| why_balancer(engine, of, view, used)),
                false => Vec::new(),
            }
        };
        let suspects: Vec<&VantageView> =
            status.vantages.iter().filter(|vantage| vantage.suspect_since.is_some()).collect();
        let pool = |view: &engine::PoolView| {
            let Some(pool) = model.pool_named(&view.name).map(|id| model.pool(id)) else { return Vec::new() };
            let endpoint = |view: &EndpointView| why_endpoint(engine, pool, view, &suspects, status.at);
            view.endpoints.iter().map(endpoint).collect()
        };
        Whys {
            balancers: status.balancers.iter().map(balancer).collect(),
            records: status.records.iter().map(|view| why_records(engine, view, status.at)).collect(),
            pools: status.pools.iter().map(pool).collect(),
            unresolved: status.pools.iter().map(|view| unresolved(engine, view)).collect(),
        }
    }

    /// Leaves out endpoints without an address that aren't called so.
    pub fn keep_unresolved(&mut self, endpoint: Option<&str>) {
        let is_it = |of: &Missing| endpoint.is_none_or(|name| names_host(name, &of.name));
        self.unresolved.iter_mut().for_each(|missing| missing.retain(is_it));
    }

    /// Has them shown, and what is known of lookups.
    pub fn put_into(self, shown: &mut view::Status, lookups: &Lookups) {
        for (balancer, why) in shown.load_balancers.iter_mut().zip(self.balancers) {
            balancer.why = why;
        }
        for (records, why) in shown.records.iter_mut().zip(self.records) {
            records.why = why;
        }
        for (pool, whys) in shown.pools.iter_mut().zip(self.pools) {
            for (endpoint, why) in pool.endpoints.iter_mut().zip(whys) {
                endpoint.why = why;
                let failure = endpoint.hostname.as_ref().and_then(|hostname| lookups.failure(hostname));
                let told = failure.map(|failure| format!("{failure}, since {}", time(failure.since)));
                endpoint.why.extend(told);
            }
        }
        for (pool, missing) in shown.pools.iter_mut().zip(self.unresolved) {
            pool.unresolved = missing.iter().map(|missing| missing.view(lookups)).collect();
        }
    }
}

impl Missing {
    fn view(&self, lookups: &Lookups) -> view::Unresolved {
        let failure = lookups.failure(&self.hostname).filter(|_| self.is_looked_up);
        view::Unresolved {
            name: self.name.to_string(),
            hostname: self.hostname.to_string(),
            state: "unresolved".to_owned(),
            since: failure.as_ref().map(|failure| time(failure.since)),
            reason: match &failure {
                Some(Failure { error: Some(_), .. }) => "its host name can't be looked up",
                Some(Failure { error: None, .. }) => "its host name has no address",
                None if self.is_looked_up => "its host name is being looked up",
                None => "its host name isn't looked up while the pool is disabled",
            }
            .to_owned(),
            error: failure.and_then(|failure| failure.error),
        }
    }
}

/// The pool's endpoints by host name that have no address.
fn unresolved(engine: &Engine, view: &engine::PoolView) -> Vec<Missing> {
    let Some(pool) = engine.model().pool_named(&view.name).map(|id| engine.model().pool(id)) else {
        return Vec::new();
    };
    let missing = |host: &Host| {
        let known = engine.hosts().get(&host.hostname);
        // an address that is written, too, or that two names have, is one endpoint
        let is_its_own = |endpoint: &Endpoint| {
            endpoint.hostname.as_ref() == Some(&host.hostname)
                || known.is_some_and(|known| known.addresses.contains(&endpoint.address))
        };
        (!pool.endpoints.iter().any(is_its_own)).then(|| Missing {
            name: Arc::clone(&host.endpoint.name),
            hostname: Arc::clone(&host.hostname),
            is_looked_up: known.is_some(),
        })
    };
    pool.hosts.iter().filter_map(missing).collect()
}

/// Which of its pools are unavailable, and which it would rather use are back
/// and wait.
fn why_balancer(
    engine: &Engine,
    balancer: &LoadBalancer,
    view: &BalancerView,
    used: Option<&[Arc<str>]>,
) -> Vec<String> {
    let mut why = Vec::new();
    if !balancer.enabled {
        return why;
    }
    let name = |id: &PoolId| &engine.model().pool(*id).name;
    let first = view.serving.first().filter(|_| !view.fallback);
    let answers = first.and_then(|first| balancer.default_pools.iter().position(|id| name(id) == first));
    for (place, id) in balancer.default_pools.iter().enumerate() {
        let name = &engine.model().pool(*id).name;
        let in_use = used.is_none_or(|used| used.contains(name));
        let is_wanted = match &balancer.steering_policy {
            SteeringPolicy::Off => answers.is_none_or(|answers| place < answers),
            SteeringPolicy::Random(weights) => weights[place] > Weight(0),
        };
        match (engine.compiled().offers(*id), in_use) {
            (true, true) => {}
            (true, false) if !is_wanted => {}
            (true, false) if balancer.moves.manual_failback => {
                why.push(format!("{name} is back, waits for: hale failback {}", view.name));
            }
            (true, false) => {
                let delay = show_duration(balancer.moves.failback_delay);
                why.push(format!("{name} is back, waits for failback_delay ({delay})"));
            }
            (false, true) if used.is_some() && view.serving.contains(name) => {
                let delay = show_duration(balancer.moves.failover_delay);
                why.push(format!("{}, failover_delay ({delay}) runs", no_offer(engine, *id)));
            }
            (false, _) => why.push(no_offer(engine, *id)),
        }
    }
    why
}

/// What keeps a pool from answering.
fn no_offer(engine: &Engine, id: PoolId) -> String {
    if !is_available(engine, id) {
        return unavailable(engine, id);
    }
    let pool = engine.model().pool(id);
    let both = pool.endpoints.iter().zip(engine.table().standings(id));
    let up = both.filter(|(_, standing)| standing.fitness.is_up());
    let weighs: Vec<&Standing> = up
        .filter(|(endpoint, standing)| standing.weight_of(endpoint) > Weight(0))
        .map(|(_, standing)| standing)
        .collect();
    let lack = match () {
        _ if weighs.is_empty() => "all that is up has weight 0",
        _ if weighs.iter().all(|standing| standing.percent == 0) => "the agents of all that is up want 0 %",
        _ => "it has fewer addresses than family_threshold",
    };
    format!("{} has nothing to answer with: {lack}", pool.name)
}

/// Whether enough of the pool is up.
fn is_available(engine: &Engine, id: PoolId) -> bool {
    let pool = engine.model().pool(id);
    let health = engine.compiled().pool(id);
    match health.state {
        PoolState::Healthy | PoolState::Degraded => true,
        PoolState::Unknown => !pool.is_monitored() && health.healthy > 0,
        PoolState::Critical | PoolState::Disabled => false,
    }
}

fn unavailable(engine: &Engine, id: PoolId) -> String {
    format!("{} is {}", engine.model().pool(id).name, engine.compiled().pool(id).state)
}

fn why_endpoint(
    engine: &Engine,
    pool: &Pool,
    view: &EndpointView,
    suspects: &[&VantageView],
    now: Moment,
) -> Vec<String> {
    let Some(endpoint) = pool.endpoints.iter().find(|endpoint| endpoint.name == view.name) else {
        return Vec::new();
    };
    let mut why = Vec::new();
    match view.standing.fitness {
        Fitness::Out(OutCause::Maintenance) => {
            why.extend(windows(engine.model(), pool, endpoint, now.elapsed().as_secs()));
        }
        Fitness::Down(DownCause::Dependency | DownCause::DependencyOut | DownCause::Unknown) => why.extend(
            (endpoint.depends_on.iter().chain(&pool.depends_on))
                .filter_map(|needed| dependency_down(engine, needed)),
        ),
        Fitness::Up if view.standing.weight.is_none() && view.weight == Weight(0) => {
            why.push("weight 0 as configured".to_owned());
        }
        _ => {}
    }
    why.extend(progress(engine.model(), pool, view));
    let holds = |vantage: &&&VantageView| is_held(pool, view, &vantage.name);
    why.extend(suspects.iter().filter(holds).map(|vantage| format!("held: {} doubts itself", vantage.name)));
    why
}

/// How far the run has come that is about to change what is measured: on the way
/// back of the vote that needs most, else of the one nearest to failing.
fn progress(model: &Model, pool: &Pool, view: &EndpointView) -> Option<String> {
    let votes = || view.tests.iter().filter(|test| test.votes && test.verdict == view.standing.verdict);
    let run = |test: &TestView, passes: bool| {
        let mut monitors = pool.tests.members.iter().map(|member| model.monitor(member.monitor));
        let limits = monitors.find(|monitor| monitor.name == test.monitor)?.thresholds;
        let needed = if passes { limits.up } else { limits.down };
        let (_, length) = test.run.filter(|(passed, length)| *passed == passes && *length < needed)?;
        Some((needed - length, length, needed))
    };
    match view.standing.verdict {
        Verdict::Unhealthy => {
            if let Some(fails) = votes().find(|test| run(test, true).is_none()) {
                // of several another one may be the one that has begun to pass
                let seen = fails.last_fail.as_ref().filter(|_| view.reason == Some(Reason::NoFailures));
                return seen.map(|seen| seen.outcome.reason.to_string());
            }
            let (_, length, needed) = votes().filter_map(|test| run(test, true)).max()?;
            Some(format!("{length} of {needed} passes"))
        }
        Verdict::Healthy => {
            let (_, length, needed) = votes().filter_map(|test| run(test, false)).min()?;
            Some(format!("{length} of {needed} failures"))
        }
        Verdict::Unknown => None,
    }
}

/// The open windows it is in, each with its end.
fn windows(model: &Model, pool: &Pool, endpoint: &Endpoint, unix: u64) -> Vec<String> {
    let named = |name: Option<&str>| name.is_none_or(|name| endpoint.is_called(name));
    let mine = model.maintenance.iter().filter(|window| window.of.pool == pool.name);
    mine.filter(|window| named(window.of.endpoint.as_deref()))
        .filter_map(|window| {
            let (true, Some(end)) = window_state(window.when, unix) else { return None };
            let end = moment::utc(end);
            let reason = if window.reason.is_empty() { "maintenance" } else { &window.reason };
            Some(format!("{reason} (until {end})"))
        })
        .collect()
}

/// What isn't there of what members of an RRset need.
fn why_records(engine: &Engine, view: &RecordsView, now: Moment) -> Vec<String> {
    let missing = |needed: &&Dependency| !engine.table().are_there(std::slice::from_ref(*needed), now);
    let told = |needed: &Dependency| {
        // of an endpoint that is up in itself it is the pool that is off, or its weight
        dependency_down(engine, needed)
            .or_else(|| dependency_down(engine, &Dependency { endpoint: None, ..needed.clone() }))
            .or_else(|| Some(format!("needs {}, which has no weight", called(engine, needed))))
    };
    let mut why: Vec<String> = view.depends_on.iter().filter(missing).filter_map(told).collect();
    why.dedup();
    why
}

/// A dependency as the configuration writes it.
fn called(engine: &Engine, needed: &Dependency) -> Scope {
    Scope { pool: Arc::clone(&engine.model().pool(needed.pool).name), endpoint: needed.endpoint.clone() }
}

/// What is not available of what is needed, and how it stands.
fn dependency_down(engine: &Engine, needed: &Dependency) -> Option<String> {
    let pool = engine.model().pool(needed.pool);
    let Some(name) = &needed.endpoint else {
        return (!is_available(engine, needed.pool)).then(|| {
            format!("needs {}", unavailable(engine, needed.pool).replacen(" is ", ", which is ", 1))
        });
    };
    let standings = engine.table().standings(needed.pool);
    let mine = || {
        let both = pool.endpoints.iter().zip(standings);
        both.filter(|(endpoint, _)| endpoint.is_called(name)).map(|(_, standing)| standing)
    };
    if mine().any(|standing| standing.fitness.is_up()) {
        return None;
    }
    let stands = mine().next().map_or("is not known", |standing| stands(standing.fitness));
    Some(format!("needs {}/{name}, which {stands}", pool.name))
}

/// How something stands, as a sentence goes on.
fn stands(fitness: Fitness) -> &'static str {
    match fitness {
        Fitness::Up => "is up",
        Fitness::Down(DownCause::Unknown) => "is unknown",
        Fitness::Down(DownCause::Unhealthy) => "is unhealthy",
        Fitness::Down(DownCause::Forced) => "is unhealthy by an operator's word",
        Fitness::Down(DownCause::Ejected) => "is ejected",
        Fitness::Down(DownCause::FlapHold) => "is held out for flapping",
        Fitness::Down(DownCause::Dependency | DownCause::DependencyOut) => "lacks what it needs itself",
        Fitness::Out(OutCause::Disabled) => "is disabled",
        Fitness::Out(OutCause::Draining) => "is draining",
        Fitness::Out(OutCause::Drained) => "is drained",
        Fitness::Out(OutCause::Maintenance) => "is in maintenance",
        Fitness::Out(OutCause::AgentDrain) => "is drained by its agent",
        Fitness::Out(OutCause::AgentMaint) => "is in maintenance by its agent",
    }
}

/// Whether it counts as healthy at a vantage whose own tests say otherwise.
fn is_held(pool: &Pool, view: &EndpointView, vantage: &Arc<str>) -> bool {
    let healthy =
        |(name, verdict): &(Arc<str>, Option<Verdict>)| name == vantage && *verdict == Some(Verdict::Healthy);
    if !view.views.iter().any(healthy) {
        return false;
    }
    let votes = || view.tests.iter().filter(|test| test.votes && test.vantage == *vantage);
    let unhealthy = votes().filter(|test| test.verdict == Verdict::Unhealthy).count();
    match pool.tests.combination {
        Combination::All => unhealthy > 0,
        Combination::AtLeast(least) => votes().count() - unhealthy < least as usize,
        Combination::Majority => unhealthy * 2 > votes().count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_dependency_stands_is_a_sentence() {
        for (fitness, expected) in [
            (Fitness::Out(OutCause::Maintenance), "is in maintenance"),
            (Fitness::Out(OutCause::AgentMaint), "is in maintenance by its agent"),
            (Fitness::Down(DownCause::FlapHold), "is held out for flapping"),
            (Fitness::Down(DownCause::Dependency), "lacks what it needs itself"),
            (Fitness::Down(DownCause::Unhealthy), "is unhealthy"),
        ] {
            assert_eq!(stands(fitness), expected, "{fitness:?}");
        }
    }
}
