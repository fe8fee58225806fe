//! The end of a world: nothing happens any more, and all must come to what is
//! true.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use super::super::watch::{self, Stand};
use super::{Life, Manner, START, addresses, of};
use crate::engine::Event;
use crate::health::{AgentReport, AgentWish, Fitness, Order, OutCause, Slot, Verdict};
use crate::model::{Check, Dependency, Endpoint, Member, Name, Pool, PoolId, Scope, VantageId};

impl Life {
    /// Nothing happens any more; after a while everything is as it should be.
    pub fn calm(&mut self) -> Result<(), String> {
        let now = self.drive.now();
        self.take_back();
        // past all windows
        let beyond = (START + Duration::from_secs(86_400)).since(now);
        self.drive.engine.handle(Event::ClockStepped(beyond.as_millis() as i64), now);
        self.world.cut_off.clear();
        self.world.lookups_fail = false;
        self.world.hosts.insert("web.example.net".into(), vec![[203, 0, 113, 1].into()]);
        for address in addresses(&self.declared) {
            let manner = if self.world.dice.percent(70) { Manner::Up } else { Manner::Refuses };
            self.world.manners.insert(address, manner);
            let ready = AgentReport { wish: Some(AgentWish::Ready), percent: Some(100) };
            self.world.agents.insert(address, ready);
        }
        self.drive.settle(&mut self.world)?;
        for slice in 0..60 {
            self.go_on(Duration::from_secs(5))?; // vantages elsewhere report in between
            if slice == 8 {
                self.take_back(); // of host names that have other addresses by now
            }
        }
        let names: Vec<Name> = self
            .declared
            .zones
            .iter()
            .flat_map(|zone| &zone.load_balancers)
            .map(|balancer| balancer.name.clone())
            .collect();
        let now = self.drive.now();
        for name in names {
            self.drive.engine.fail_back(&name, now);
        }
        self.go_on(Duration::from_secs(2))?;
        let stands = self.stands();
        let is_exempt = self.look_at_endpoints(&stands)?;
        self.look_at_doubt()?;
        if is_exempt { Ok(()) } else { self.look_at_answers(&stands) }
    }

    /// Takes back what operators have said.
    fn take_back(&mut self) {
        let now = self.drive.now();
        let said = self.drive.engine.table().overrides().iter();
        let scopes: Vec<Scope> = said.map(|(scope, _)| scope.clone()).collect();
        for scope in scopes {
            for slot in Slot::ALL {
                // of what is gone from the configuration nothing can be taken back
                let _ = self.drive.engine.order(&scope, Order::Clear(slot), now);
            }
        }
    }

    fn truth(&self, endpoint: &Endpoint) -> Verdict {
        match self.world.manners.get(&endpoint.address).copied().unwrap_or(Manner::Up) {
            Manner::Up => Verdict::Healthy,
            _ => Verdict::Unhealthy,
        }
    }

    /// How endpoints truly stand, when nobody says anything over it: of each
    /// pool whether it is enabled, and its endpoints. A pool needs earlier ones.
    fn stands(&self) -> Vec<(bool, Vec<Stand>)> {
        let model = self.drive.engine.model();
        let mut all: Vec<(bool, Vec<Stand>)> = Vec::new();
        for pool in &model.pools {
            let available = |needed: &Dependency| {
                let (enabled, stands) = &all[needed.pool.0 as usize];
                *enabled && watch::has_enough(model.pool(needed.pool), stands)
            };
            let holds = pool.depends_on.iter().all(available);
            let stand = |endpoint: &Endpoint| {
                let works = !pool.is_monitored() || pool.enabled && self.truth(endpoint) == Verdict::Healthy;
                let up = endpoint.enabled && holds && works;
                Stand { counts: endpoint.enabled, up, serves: up, weight: None }
            };
            all.push((pool.enabled, pool.endpoints.iter().map(stand).collect()));
        }
        all
    }

    /// Every endpoint stands as it should; tells whether one was passed over.
    fn look_at_endpoints(&self, stands: &[(bool, Vec<Stand>)]) -> Result<bool, String> {
        let model = self.drive.engine.model();
        let (table, now) = (self.drive.engine.table(), self.drive.now());
        let mut is_exempt = false;
        for (pool, id) in model.pools.iter().zip(0..) {
            let is_agent = |member: &Member| matches!(model.monitor(member.monitor).check, Check::Agent(_));
            let has_agent = pool.tests.members.iter().any(is_agent);
            for (place, endpoint) in pool.endpoints.iter().enumerate() {
                let standing = table.standings(PoolId(id))[place];
                let scope = of(pool, endpoint);
                let wished =
                    matches!(standing.fitness, Fitness::Out(OutCause::AgentDrain | OutCause::AgentMaint))
                        || standing.percent < 100;
                // who fails doesn't say that it is ready again
                let truth = self.truth(endpoint);
                if wished && has_agent && truth != Verdict::Healthy {
                    is_exempt = true;
                    continue;
                }
                let stand = stands[id as usize].1[place];
                // what needs one that was passed over stands as that does
                if is_exempt && !pool.depends_on.is_empty() {
                    continue;
                }
                let right = Stand::of(&standing) == stand && (!stand.up || standing.percent == 100);
                if pool.enabled && (!right || standing.starting || standing.flapping) {
                    return Err(format!("in the calm {scope} is {standing:?}, and should be {stand:?}"));
                }
                if !pool.enabled || !endpoint.enabled || !pool.is_monitored() {
                    continue;
                }
                if standing.verdict != truth || standing.stale {
                    let views = table.views(PoolId(id), place, now);
                    return Err(format!(
                        "in the calm {scope} is {standing:?}, and truly {truth}; seen as {views:?}"
                    ));
                }
                let silent = table.targets_of(PoolId(id), place).any(|(_, target)| {
                    target.reported().is_none_or(|at| now.since(at) > target.task.monitor.patience())
                });
                if silent {
                    return Err(format!("in the calm {scope} isn't probed any more"));
                }
            }
        }
        Ok(is_exempt)
    }

    /// No vantage doubts itself without a reason.
    fn look_at_doubt(&self) -> Result<(), String> {
        let model = self.drive.engine.model();
        for (vantage, id) in model.vantages.iter().zip(0..) {
            if self.drive.engine.table().doubts_since(VantageId(id)).is_none() {
                continue;
            }
            let tested = |pool: &Pool| pool.enabled && pool.is_monitored();
            let fails = |pool: &Pool| {
                pool.endpoints.iter().all(|e| !e.enabled || self.truth(e) == Verdict::Unhealthy)
            };
            let canaries = vantage.canaries.map(|pool| model.pool(pool)).is_some_and(|pool| {
                tested(pool)
                    && pool.endpoints.iter().all(|e| e.enabled && self.truth(e) == Verdict::Unhealthy)
            });
            let others =
                || model.pools.iter().zip(0..).filter(|(_, id)| vantage.canaries != Some(PoolId(*id)));
            let all = others().filter(|(pool, _)| tested(pool)).count();
            let failing = others().filter(|(pool, _)| tested(pool) && fails(pool)).count();
            let many = model.doubt.share.is_some_and(|share| failing * 100 > all * usize::from(share));
            if !canaries && !many {
                return Err(format!("in the calm {} doubts itself", vantage.name));
            }
        }
        Ok(())
    }

    /// Answers are what a plain reading of the configuration says.
    fn look_at_answers(&self, stands: &[(bool, Vec<Stand>)]) -> Result<(), String> {
        let model = self.drive.engine.model();
        let balancers = model.zones.iter().flat_map(|zone| &zone.load_balancers);
        for (balancer, compiled) in balancers.zip(&self.drive.published().balancers) {
            let answered: BTreeSet<IpAddr> =
                compiled.ipv4.addresses().into_iter().map(IpAddr::from).collect();
            let expected = watch::read(model, balancer, stands);
            if answered != expected {
                return Err(format!(
                    "in the calm {} answers with {answered:?}, and should with {expected:?}",
                    balancer.name
                ));
            }
        }
        Ok(())
    }
}
