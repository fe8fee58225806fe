//! What made an endpoint stand differently: from what the table says of a move
//! to who, what and why.

use std::sync::Arc;

use super::{Change, Engine};
use crate::health::{
    DownCause, Fitness, Move, OutCause, Reason, Sighting, Target, Verdict, Why, window_state,
};
use crate::model::{Dependency, Endpoint, Pool, Scope, VantageId};
use crate::moment::Moment;

/// What made an endpoint stand differently.
#[derive(Clone, Debug, PartialEq)]
pub enum Cause {
    /// A probe, with what it found.
    Probe { monitor: Arc<str>, vantage: Arc<str>, reason: Reason, detail: &'static str, status: Option<u16> },
    /// A vantage elsewhere.
    Report { vantage: Arc<str> },
    /// Outcomes seen on real traffic.
    Traffic,
    /// Something has lasted long enough, or begins or ends now.
    Time,
    /// A maintenance window has begun; what for.
    Window { reason: Arc<str> },
    /// Who, and why.
    Operator { by: Arc<str>, reason: Arc<str> },
    /// An operator takes back what was said; why it is unhealthy then, if so.
    TakenBack { who: TakenBack, failure: Option<Reason> },
    /// Something that it depends on; how that stands.
    Dependency { needed: Arc<str> },
    /// A vantage's doubt about itself.
    Doubt { vantage: Arc<str> },
    /// Another configuration.
    Reload,
}

/// Who takes something back, and why.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TakenBack {
    pub by: Arc<str>,
    pub reason: Arc<str>,
}

impl Cause {
    /// Why, as people read it.
    pub fn reason(&self) -> String {
        match self {
            Cause::Probe { reason, .. } => reason.to_string(),
            Cause::Report { vantage } => format!("reported by {vantage}"),
            Cause::Traffic => "real traffic fails there".to_owned(),
            Cause::Window { reason } if !reason.is_empty() => reason.to_string(),
            Cause::Time | Cause::Window { .. } => "its time has come".to_owned(),
            Cause::Operator { reason, .. } if !reason.is_empty() => reason.to_string(),
            Cause::Operator { by, .. } if !by.is_empty() => format!("said by {by}"),
            Cause::Operator { .. } => "said by an operator".to_owned(),
            Cause::TakenBack { failure: Some(failure), .. } => failure.to_string(),
            Cause::TakenBack { who, failure: None } if !who.reason.is_empty() => who.reason.to_string(),
            Cause::TakenBack { who, failure: None } if !who.by.is_empty() => {
                format!("taken back by {}", who.by)
            }
            Cause::TakenBack { .. } => "taken back by an operator".to_owned(),
            Cause::Dependency { needed } => needed.to_string(),
            Cause::Doubt { vantage } => format!("{vantage} doubts itself"),
            Cause::Reload => "configured so".to_owned(),
        }
    }
}

impl Engine {
    pub(super) fn endpoint_change(&self, moved: &Move, now: Moment) -> Change {
        let pool = self.table.model().pool(moved.pool);
        let endpoint = &pool.endpoints[moved.endpoint];
        let scope = Scope { pool: Arc::clone(&pool.name), endpoint: Some(Arc::clone(&endpoint.name)) };
        let name = |vantage| Arc::clone(&self.table.model().vantage(vantage).name);
        let unhealthy = moved.to.fitness == Fitness::Down(DownCause::Unhealthy);
        let failing = || self.failing(moved).filter(|_| unhealthy);
        let cause = match moved.why {
            Why::Probe(id) => self.table.target(id).and_then(seen_by).unwrap_or(Cause::Time),
            Why::Report(vantage) => Cause::Report { vantage: name(vantage) },
            Why::Traffic => Cause::Traffic,
            Why::Time if moved.to.fitness == Fitness::Out(OutCause::Maintenance) => {
                Cause::Window { reason: self.window(pool, endpoint, now) }
            }
            // nothing lies over it any more: what was measured is the cause
            Why::Time => failing().and_then(failed_by).unwrap_or(Cause::Time),
            Why::Operator => {
                let whole = Scope { endpoint: None, ..scope.clone() };
                let own = self.table.all_said(pool, endpoint, now);
                let said = own.chain(self.table.overrides().of(&whole, now));
                match said.max_by_key(|said| said.since) {
                    Some(said) => {
                        Cause::Operator { by: Arc::clone(&said.by), reason: Arc::clone(&said.reason) }
                    }
                    None => Cause::Operator { by: "".into(), reason: "".into() },
                }
            }
            Why::TakenBack => Cause::TakenBack {
                who: self.taken_back.clone().unwrap_or_default(),
                failure: failing().and_then(Target::last_fail).map(|seen| seen.outcome.reason),
            },
            Why::Dependency => {
                let needed = || Cause::Dependency { needed: self.needed(pool, endpoint, now) };
                failing().and_then(failed_by).unwrap_or_else(needed)
            }
            Why::Doubt(vantage) if self.table.doubts_since(vantage).is_some() => {
                Cause::Doubt { vantage: name(vantage) }
            }
            // it applies now: what the vantage had seen is the cause
            Why::Doubt(vantage) => self.last_seen_from(moved, vantage).unwrap_or(Cause::Time),
            Why::Reload => Cause::Reload,
        };
        Change::Endpoint { scope, from: moved.from, to: moved.to, cause, since: moved.since }
    }

    /// What the newest probe of an endpoint from one vantage found.
    fn last_seen_from(&self, moved: &Move, vantage: VantageId) -> Option<Cause> {
        let name = &self.table.model().vantage(vantage).name;
        let targets = self.table.targets_of(moved.pool, moved.endpoint).map(|(_, target)| target);
        let there = targets.filter(|target| target.task.vantage.name == *name);
        let failing = there.filter(|target| target.machine().verdict() != Verdict::Healthy);
        failing.max_by_key(|target| target.last().map(|last| last.at)).and_then(seen_by)
    }

    /// The test that makes an endpoint unhealthy, the one that failed last.
    fn failing(&self, moved: &Move) -> Option<&Target> {
        let members = &self.table.model().pool(moved.pool).tests.members;
        let targets = self.table.targets_of(moved.pool, moved.endpoint).map(|(_, target)| target);
        let failing = targets.filter(|target| {
            members[target.member].votes && target.machine().verdict() == Verdict::Unhealthy
        });
        failing.max_by_key(|target| target.last_fail().map(|last| last.at))
    }

    /// What the open windows of an endpoint are for.
    fn window(&self, pool: &Pool, endpoint: &Endpoint, now: Moment) -> Arc<str> {
        let unix = now.moved(self.step).elapsed().as_secs();
        let windows = self.table.model().maintenance.iter().filter(|window| window.of.pool == pool.name);
        let mine = windows
            .filter(|window| window.of.endpoint.as_ref().is_none_or(|name| endpoint.is_called(name)))
            .filter(|window| window_state(window.when, unix).0 && !window.reason.is_empty());
        let reasons: Vec<&str> = mine.map(|window| &*window.reason).collect();
        reasons.join("; ").into()
    }

    /// How that stands which an endpoint depends on: what is missing, or all of
    /// it if nothing is.
    fn needed(&self, pool: &Pool, endpoint: &Endpoint, now: Moment) -> Arc<str> {
        let all: Vec<(bool, String)> = (endpoint.depends_on.iter().chain(&pool.depends_on))
            .map(|needed| self.stands(needed, now))
            .collect();
        let missing = all.iter().any(|(serves, _)| !serves);
        let words = all.iter().filter(|(serves, _)| !serves || !missing).map(|(_, words)| &**words);
        words.collect::<Vec<_>>().join(", ").into()
    }

    /// Whether something that is needed is there, and how it stands.
    fn stands(&self, needed: &Dependency, now: Moment) -> (bool, String) {
        let pool = self.table.model().pool(needed.pool);
        let Some(name) = &needed.endpoint else {
            let available = self.table.is_available(needed.pool, now);
            return (available, format!("{} is {}", pool.name, self.table.pool(needed.pool, now).state));
        };
        let scope = Scope { pool: Arc::clone(&pool.name), endpoint: Some(Arc::clone(name)) };
        let places = self.table.places_of(&scope);
        let standings = || places.iter().map(|(id, place)| self.table.standings(*id)[*place]);
        let serves = standings().find(|standing| standing.fitness.is_up());
        let word = serves.or_else(|| standings().next()).map_or("not known", |standing| standing.word());
        (serves.is_some(), format!("{scope} is {}", word.replace('_', " ")))
    }
}

/// The newest probe of a target as a cause.
fn seen_by(target: &Target) -> Option<Cause> {
    target.last().map(|seen| found(target, seen))
}

/// The newest probe of a target that failed as a cause.
fn failed_by(target: &Target) -> Option<Cause> {
    target.last_fail().map(|seen| found(target, seen))
}

fn found(target: &Target, seen: &Sighting) -> Cause {
    Cause::Probe {
        monitor: Arc::clone(&target.task.monitor.name),
        vantage: Arc::clone(&target.task.vantage.name),
        reason: seen.outcome.reason,
        detail: seen.outcome.detail,
        status: seen.outcome.status,
    }
}
