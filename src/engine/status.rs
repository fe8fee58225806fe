//! Everything that is held, as operators look at it.

use std::net::IpAddr;
use std::sync::Arc;

use super::{Cause, Change, Engine, serving};
use crate::authority::{BalancerState, Held, Traffic};
use crate::health::{
    Override, PoolHealth, Reason, ScheduleCounters, Sighting, Slot, Standing, Target, Verdict,
};
use crate::model::{Dependency, Name, PoolId, RecordSet, Scope, VantageId, Weight};
use crate::moment::Moment;

/// All load balancers, pools and vantages at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    pub at: Moment,
    pub balancers: Vec<BalancerView>,
    /// RRsets whose members follow health.
    pub records: Vec<RecordsView>,
    pub pools: Vec<PoolView>,
    pub vantages: Vec<VantageView>,
    pub probes: ScheduleCounters,
}

/// A load balancer.
#[derive(Clone, Debug, PartialEq)]
pub struct BalancerView {
    pub name: Name,
    pub enabled: bool,
    pub state: BalancerState,
    /// The pools that answer; empty: only the SOA.
    pub serving: Vec<Arc<str>>,
    /// Those are the fallback pool.
    pub fallback: bool,
    pub default_pools: Vec<Arc<str>>,
    pub since: Moment,
}

/// An RRset whose members follow health.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordsView {
    pub owner: Name,
    pub rtype: u16,
    /// How many members it has, and how many of them are answered.
    pub members: usize,
    pub answered: usize,
    /// No member has what it needs.
    pub fallback: bool,
    /// What its members need, each once.
    pub depends_on: Vec<Dependency>,
}

/// A pool and its endpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolView {
    pub name: Arc<str>,
    pub health: PoolHealth,
    pub health_threshold: u32,
    pub monitored: bool,
    pub since: Moment,
    /// What an operator has said of the pool as a whole.
    pub overrides: Vec<Override>,
    pub endpoints: Vec<EndpointView>,
}

/// An endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointView {
    pub name: Arc<str>,
    pub address: IpAddr,
    pub hostname: Option<Arc<str>>,
    /// As configured.
    pub weight: Weight,
    pub standing: Standing,
    pub since: Moment,
    /// Why it stands so, as the newest probe of the test that decides has it.
    pub reason: Option<Reason>,
    pub overrides: Vec<Override>,
    /// What each vantage holds; none: it is silent.
    pub views: Vec<(Arc<str>, Option<Verdict>)>,
    pub tests: Vec<TestView>,
}

/// One monitor's view of an endpoint from one vantage.
#[derive(Clone, Debug, PartialEq)]
pub struct TestView {
    pub monitor: Arc<str>,
    pub vantage: Arc<str>,
    /// Whether its verdict counts.
    pub votes: bool,
    pub verdict: Verdict,
    pub since: Moment,
    /// The last outcome (a pass or not), and how often in a row it was seen.
    pub run: Option<(bool, u32)>,
    /// The last probe could not be made.
    pub blocked: bool,
    pub last_pass: Option<Sighting>,
    pub last_fail: Option<Sighting>,
}

/// A vantage.
#[derive(Clone, Debug, PartialEq)]
pub struct VantageView {
    pub name: Arc<str>,
    pub region: Option<Arc<str>>,
    pub suspect_since: Option<Moment>,
}

impl Status {
    /// How each thing stands, said as a change from that to that.
    pub fn as_changes(&self) -> impl Iterator<Item = Change> {
        let vantages = self.vantages.iter().map(|view| Change::Vantage {
            vantage: Arc::clone(&view.name),
            suspect: view.suspect_since.is_some(),
        });
        let pools = self.pools.iter().map(|view| Change::Pool {
            pool: Arc::clone(&view.name),
            from: view.health.state,
            to: view.health,
            threshold: view.health_threshold,
            endpoints: view.endpoints.len() as u32,
            said: view.overrides.iter().find(|said| said.action.slot() == Slot::Traffic).cloned(),
            taken_back: None,
            since: view.since,
        });
        let endpoints = self.pools.iter().flat_map(|pool| {
            pool.endpoints.iter().map(|view| Change::Endpoint {
                scope: Scope { pool: Arc::clone(&pool.name), endpoint: Some(Arc::clone(&view.name)) },
                from: view.standing,
                to: view.standing,
                cause: Cause::Time,
                since: view.since,
            })
        });
        let balancers = self.balancers.iter().map(|view| Change::Balancer {
            name: view.name.clone(),
            from: view.state,
            to: view.state,
            serving: view.serving.clone(),
            fallback: view.fallback,
            since: view.since,
        });
        vantages.chain(endpoints).chain(pools).chain(balancers)
    }
}

impl Engine {
    /// All that is held at `now`.
    pub fn status(&self, now: Moment) -> Status {
        let pools = 0..self.compiler.model().pools.len() as u32;
        Status {
            pools: pools.map(|id| self.pool_view(PoolId(id), now)).collect(),
            ..self.status_without_pools(now)
        }
    }

    /// The same without pools, which are the most of it.
    pub fn status_without_pools(&self, now: Moment) -> Status {
        let model = self.compiler.model();
        let balancers = self.compiler.balancers().zip(&self.balancer_since);
        let vantages = model.vantages.iter().zip(0..).map(|(vantage, id)| VantageView {
            name: Arc::clone(&vantage.name),
            region: vantage.region.clone(),
            suspect_since: self.table.doubts_since(VantageId(id)),
        });
        Status {
            at: now,
            balancers: balancers
                .map(|((balancer, status), since)| BalancerView {
                    name: balancer.name.clone(),
                    enabled: balancer.enabled,
                    state: status.state,
                    serving: serving(model, status),
                    fallback: matches!(status.traffic, Traffic::Fallback(_)),
                    default_pools: (balancer.default_pools.iter())
                        .map(|pool| Arc::clone(&model.pool(*pool).name))
                        .collect(),
                    since: *since,
                })
                .collect(),
            records: self.records_views(now),
            pools: Vec::new(),
            vantages: vantages.collect(),
            probes: self.counters(),
        }
    }

    fn records_views(&self, now: Moment) -> Vec<RecordsView> {
        let view = |(set, held): (&RecordSet, &Held)| {
            let mut depends_on: Vec<Dependency> = Vec::new();
            for needed in set.depends_on.iter().flatten() {
                if !depends_on.contains(needed) {
                    depends_on.push(needed.clone());
                }
            }
            RecordsView {
                owner: set.owner.clone(),
                rtype: set.rtype,
                members: set.rdata.len(),
                answered: held.members.count(),
                fallback: !set.depends_on.iter().any(|needed| self.table.are_there(needed, now)),
                depends_on,
            }
        };
        self.compiler.following().map(view).collect()
    }

    /// One pool as it is held at `now`.
    pub fn pool_view(&self, id: PoolId, now: Moment) -> PoolView {
        let pool = self.compiler.model().pool(id);
        let whole = Scope { pool: Arc::clone(&pool.name), endpoint: None };
        PoolView {
            name: Arc::clone(&pool.name),
            health: self.compiler.pool(id),
            health_threshold: pool.health_threshold,
            monitored: pool.is_monitored(),
            since: self.pool_since[id.0 as usize],
            overrides: self.table.overrides().of(&whole, now).cloned().collect(),
            endpoints: (0..pool.endpoints.len()).map(|place| self.endpoint_view(id, place, now)).collect(),
        }
    }

    /// One endpoint as it is held at `now`.
    pub fn endpoint_view(&self, id: PoolId, place: usize, now: Moment) -> EndpointView {
        let model = self.compiler.model();
        let pool = model.pool(id);
        let endpoint = &pool.endpoints[place];
        let vantage = |id: VantageId| Arc::clone(&model.vantage(id).name);
        let standing = self.table.standings(id)[place];
        let targets: Vec<&Target> = self.table.targets_of(id, place).map(|(_, target)| target).collect();
        let deciding = targets.iter().find(|target| target.machine().verdict() == standing.verdict);
        EndpointView {
            name: Arc::clone(&endpoint.name),
            address: endpoint.address,
            hostname: endpoint.hostname.clone(),
            weight: endpoint.weight,
            standing,
            since: self.table.since(id, place),
            reason: deciding.and_then(|target| target.last()).map(|sighting| sighting.outcome.reason),
            overrides: self.table.all_said(pool, endpoint, now).cloned().collect(),
            views: (self.table.views(id, place, now).into_iter())
                .map(|(id, verdict)| (vantage(id), verdict))
                .collect(),
            tests: targets.iter().map(|target| test_view(target, pool)).collect(),
        }
    }
}

fn test_view(target: &Target, pool: &crate::model::Pool) -> TestView {
    let machine = target.machine();
    TestView {
        monitor: Arc::clone(&target.task.monitor.name),
        vantage: Arc::clone(&target.task.vantage.name),
        votes: pool.tests.members[target.member].votes,
        verdict: machine.verdict(),
        since: machine.since(),
        run: machine.run(),
        blocked: target.is_blocked(),
        last_pass: target.last_pass().cloned(),
        last_fail: target.last_fail().cloned(),
    }
}
