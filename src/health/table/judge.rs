//! Judging one endpoint: its facts, and the rules around them.

use std::cmp::Reverse;
use std::time::Duration;

use super::super::combine::{Vote, combine};
use super::super::doubt::{Horizon, Tally};
use super::super::overrides::{Action, Override, Slot};
use super::super::pool::are_taken_out;
use super::super::quorum::{self, View};
use super::super::standing::{DownCause, Fitness, OutCause, Standing};
use super::super::{AgentWish, Degraded, Verdict, windows};
use super::{Move, Row, Sight, Table, Why, whole};
use crate::model::{Dependency, HealthSource, PoolId, Scope, VantageId, Weight, Window};
use crate::moment::Moment;

/// What one vantage reports, and when that may change by itself.
pub(super) struct Report {
    /// None: it is silent.
    pub verdict: Option<Verdict>,
    /// Its last word, however old.
    pub last: Option<Moment>,
    pub until: Option<Moment>,
}

/// What is measured of an endpoint.
struct Measured {
    verdict: Verdict,
    stale: bool,
    until: Option<Moment>,
}

/// Whether something that is needed is there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Presence {
    Absent,
    /// It isn't known yet, or no more.
    Awaited,
    There,
}

/// The earlier of two times, if there is any.
fn sooner(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    [one, other].into_iter().flatten().min()
}

impl Table {
    /// One vantage has something new: what it holds, whether it doubts itself,
    /// and where the endpoint stands.
    pub(super) fn look(&mut self, pool: PoolId, place: usize, sight: usize, why: Why, now: Moment) {
        let verdict = self.sighted(pool, &self.pools[pool.0 as usize].rows[place].sights[sight]);
        let held = &mut self.pools[pool.0 as usize].rows[place].sights[sight];
        let before = std::mem::replace(&mut held.verdict, verdict);
        match (before, verdict) {
            (Verdict::Healthy, Verdict::Unhealthy | Verdict::Unknown) => held.fell = Some(now),
            (_, Verdict::Healthy) => held.fell = None,
            _ => {}
        }
        if before != verdict {
            let vantage = self.model.pool(pool).viewpoints.vantages[sight];
            if self.has_doubts(vantage) {
                self.recount(pool, sight, before, verdict, now);
                self.reconsider(vantage, now);
            }
        }
        self.rejudge(pool, place, why, now);
    }

    /// What the monitors at one vantage hold together.
    pub(super) fn sighted(&self, pool: PoolId, sight: &Sight) -> Verdict {
        if let Some((verdict, _)) = sight.told {
            return verdict;
        }
        let tests = &self.model.pool(pool).tests;
        let both = sight.targets.iter().zip(&tests.members).filter(|(_, member)| member.votes);
        let votes = both.map(|(id, member)| Vote {
            verdict: self.targets[id].machine.verdict(),
            must_be_healthy: member.must_be_healthy,
        });
        combine(votes, tests.combination)
    }

    /// Whether a vantage may ever doubt itself.
    pub(super) fn has_doubts(&self, vantage: VantageId) -> bool {
        self.model.doubt.share.is_some() || self.model.vantage(vantage).canaries.is_some()
    }

    /// Counts anew what every vantage that may doubt itself sees.
    pub(super) fn count_horizons(&mut self) {
        self.horizons = vec![Horizon::default(); self.model.vantages.len()];
        for (held, id) in self.pools.iter_mut().zip(0..) {
            let vantages = &self.model.pool(PoolId(id)).viewpoints.vantages;
            let seen = |sight: usize| {
                held.rows.iter().map(move |row| (row.sights[sight].verdict, row.sights[sight].fell))
            };
            held.tallies = (0..vantages.len()).map(|sight| Tally::of(seen(sight))).collect();
            for (vantage, tally) in vantages.iter().zip(&held.tallies) {
                if self.model.vantage(*vantage).canaries != Some(PoolId(id)) {
                    self.horizons[vantage.0 as usize].add(PoolId(id), tally);
                }
            }
        }
    }

    /// Counts that an endpoint looks different at one vantage.
    fn recount(&mut self, pool: PoolId, sight: usize, from: Verdict, to: Verdict, now: Moment) {
        let vantage = self.model.pool(pool).viewpoints.vantages[sight];
        let tally = &mut self.pools[pool.0 as usize].tallies[sight];
        let before = *tally;
        tally.change(from, to, now);
        if self.model.vantage(vantage).canaries != Some(pool) {
            let horizon = &mut self.horizons[vantage.0 as usize];
            horizon.remove(pool, &before);
            horizon.add(pool, tally);
        }
    }

    fn canaries_fail(&self, vantage: VantageId) -> bool {
        let Some(canaries) = self.model.vantage(vantage).canaries else { return false };
        let vantages = &self.model.pool(canaries).viewpoints.vantages;
        let held = &self.pools[canaries.0 as usize];
        let sight = vantages.iter().position(|other| *other == vantage);
        sight.is_some_and(|sight| !held.rows.is_empty() && held.tallies[sight].unhealthy == held.rows.len())
    }

    /// Whether a vantage doubts itself, now that something changed there.
    pub(super) fn reconsider(&mut self, vantage: VantageId, now: Moment) {
        let rules = self.model.doubt;
        let since = self.doubts[vantage.0 as usize].window(&rules, now);
        let canaries = self.canaries_fail(vantage);
        let sample = self.horizons[vantage.0 as usize].sample(since, canaries);
        if self.doubts[vantage.0 as usize].look(sample, &rules, now) {
            self.doubted.push(vantage);
            if self.doubts[vantage.0 as usize].is_better() {
                self.forget_failures(vantage);
            }
            self.rejudge_vantage(vantage, Why::Doubt(vantage), now);
        }
    }

    /// From now on failures count again where a vantage had doubts: what it
    /// held waits for probes of its own.
    fn forget_failures(&mut self, vantage: VantageId) {
        for (held, declared) in self.pools.iter_mut().zip(&self.model.pools) {
            let sight = declared.viewpoints.vantages.iter().position(|other| *other == vantage);
            if let Some(sight) = sight {
                held.rows.iter_mut().for_each(|row| row.sights[sight].failures = 0);
            }
        }
    }

    /// Ends doubts whose time is over: what fell is taken as judged.
    pub(super) fn end_doubts(&mut self, now: Moment) {
        for id in 0..self.doubts.len() {
            let hold = self.model.doubt.hold;
            if self.doubts[id].ends(hold).is_none_or(|end| now < end) {
                continue;
            }
            let vantage = VantageId(id as u32);
            if self.doubts[id].end() {
                self.doubted.push(vantage);
            }
            self.rejudge_vantage(vantage, Why::Doubt(vantage), now);
            self.horizons[id].forget_fallen();
            for (held, declared) in self.pools.iter_mut().zip(&self.model.pools) {
                let sight = declared.viewpoints.vantages.iter().position(|other| *other == vantage);
                if let Some(sight) = sight {
                    held.tallies[sight].fell = None;
                    held.rows.iter_mut().for_each(|row| row.sights[sight].fell = None);
                }
            }
        }
    }

    /// How many failures in a row decide at a vantage.
    fn decisive(&self, pool: PoolId) -> u32 {
        let voters = self.model.pool(pool).tests.members.iter().filter(|member| member.votes);
        voters.map(|member| self.model.monitor(member.monitor).thresholds.down).max().unwrap_or(1)
    }

    fn rejudge_vantage(&mut self, vantage: VantageId, why: Why, now: Moment) {
        for id in 0..self.pools.len() {
            let vantages = &self.model.pools[id].viewpoints.vantages;
            let Some(sight) = vantages.iter().position(|other| *other == vantage) else { continue };
            for place in 0..self.pools[id].rows.len() {
                if self.pools[id].rows[place].sights[sight].fell.is_some() {
                    self.rejudge(PoolId(id as u32), place, why, now);
                }
            }
        }
    }

    /// Judges anew whom a scope names.
    pub(super) fn rejudge_scope(&mut self, scope: &Scope, why: Why, now: Moment) {
        match &scope.endpoint {
            Some(_) => {
                for (pool, place) in self.places_of(scope) {
                    self.rejudge(pool, place, why, now);
                }
            }
            None => {
                if let Some(pool) = self.model.pool_named(&scope.pool) {
                    self.rejudge_pool(pool, why, now);
                }
            }
        }
    }

    pub(super) fn rejudge_pool(&mut self, pool: PoolId, why: Why, now: Moment) {
        for place in 0..self.pools[pool.0 as usize].rows.len() {
            self.rejudge(pool, place, why, now);
        }
        // a pool may be switched on or off without any of its endpoints moving
        self.touched.insert(pool);
        self.rejudge_dependents(pool, now);
    }

    fn rejudge_dependents(&mut self, pool: PoolId, now: Moment) {
        for dependent in self.pools[pool.0 as usize].dependents.clone() {
            for place in 0..self.pools[dependent.0 as usize].rows.len() {
                self.rejudge(dependent, place, Why::Dependency, now);
            }
        }
    }

    /// Judges an endpoint anew, and keeps what moved.
    pub(super) fn rejudge(&mut self, pool: PoolId, place: usize, why: Why, now: Moment) {
        let measured = self.measured(pool, place, now);
        // what a vantage holds, and holds no more, was never seen to change
        let seen = !matches!(why, Why::Doubt(_));
        self.note_verdict(pool, place, measured.verdict, seen, now);
        let was_there = self.presence(pool, now);
        let (mut standing, until) = self.stand(pool, place, &measured, now);
        let rules = &self.model.pool(pool).rules;
        let row_of = &mut self.pools[pool.0 as usize];
        let before = row_of.standings[place];
        let row = &mut row_of.rows[place];

        let mut until = sooner(measured.until, until);
        let returns = standing.fitness.is_up() && !before.fitness.is_up();
        let first = before.fitness.is_unknown() && !row.fresh;
        let comes_back = returns && !first && seen && why != Why::Reload;
        if comes_back && rules.slow_start > Duration::ZERO {
            row.slow_since = Some(now);
        }
        if let Some(since) = row.slow_since.filter(|_| standing.fitness.is_up()) {
            match slow_start(since, rules.slow_start, now) {
                Some((percent, next)) => {
                    standing.percent = (u32::from(standing.percent) * percent / 100).max(1) as u8;
                    until = sooner(until, Some(next));
                }
                None => row.slow_since = None,
            }
        }
        row.fresh &= standing.fitness.is_unknown();

        row_of.standings[place] = standing;
        row_of.verdicts[place] = standing.verdict;
        if before != standing {
            let since = if standing.without_share() == before.without_share() {
                row.since
            } else {
                std::mem::replace(&mut row.since, now)
            };
            self.moves.push(Move { pool, endpoint: place, from: before, to: standing, since, why });
        }
        self.set_timer(pool, place, until, now);
        let (from, to) = (before.fitness, standing.fitness);
        if (from.is_up(), from.is_unknown()) != (to.is_up(), to.is_unknown()) {
            let held = &mut self.pools[pool.0 as usize];
            held.up = held.up + usize::from(to.is_up()) - usize::from(from.is_up());
            held.unknown = held.unknown + usize::from(to.is_unknown()) - usize::from(from.is_unknown());
            let named = held.named;
            if named || was_there != self.presence(pool, now) {
                self.rejudge_dependents(pool, now);
            }
        } else if before.fitness.is_taken_out() != standing.fitness.is_taken_out() {
            self.rejudge_dependents(pool, now);
        }
    }

    fn set_timer(&mut self, pool: PoolId, place: usize, until: Option<Moment>, now: Moment) {
        let row = &mut self.pools[pool.0 as usize].rows[place];
        let Some(until) = until.filter(|until| *until > now) else { return };
        // one that is set for earlier judges anew, and then sets another
        if row.timer.is_none_or(|timer| until < timer) {
            row.timer = Some(until);
            self.timers.push(Reverse((until, pool, place)));
        }
    }

    /// Counts a change of the measured verdict.
    fn note_verdict(&mut self, pool: PoolId, place: usize, verdict: Verdict, seen: bool, now: Moment) {
        let rules = &self.model.pool(pool).rules;
        let row = &mut self.pools[pool.0 as usize].rows[place];
        let gone = now.before(rules.flap_window);
        while row.flaps.front().is_some_and(|at| *at <= gone) {
            row.flaps.pop_front();
        }
        let changed = row.verdict != verdict;
        if changed {
            let before = std::mem::replace(&mut row.verdict, verdict);
            row.verdict_since = now;
            if seen && before != Verdict::Unknown && verdict != Verdict::Unknown {
                row.flaps.push_back(now);
                if row.flaps.len() > rules.flap_limit as usize + 1 {
                    row.flaps.pop_front();
                }
            }
            row.flap_out |= row.flaps.len() > rules.flap_limit as usize && !rules.flap_hold.is_zero();
        }
        let long_healthy = verdict == Verdict::Healthy && now.since(row.verdict_since) >= rules.flap_hold;
        row.flap_out &= !long_healthy;
        if changed {
            self.remember_endpoint(pool, place);
        }
    }

    /// What each of the pool's vantages reports.
    pub(super) fn reports(&self, pool: PoolId, place: usize, now: Moment) -> Vec<Report> {
        let declared = self.model.pool(pool);
        let held = &self.pools[pool.0 as usize];
        let both = held.rows[place].sights.iter().zip(&declared.viewpoints.vantages);
        both.map(|(sight, vantage)| {
            let (mut last, mut until): (Option<Moment>, Option<Moment>) = (None, None);
            let mut speaks = false;
            if let Some((_, at)) = sight.told {
                last = Some(at);
                speaks = now < at + held.patience;
                until = speaks.then(|| at + held.patience);
            }
            let voters = sight.targets.iter().zip(&declared.tests.members);
            for id in voters.filter(|(_, member)| member.votes).map(|(id, _)| id) {
                let target = &self.targets[id];
                let Some(at) = target.reported else { continue };
                last = last.max(Some(at));
                let silent_at = at + target.task.monitor.patience();
                speaks |= now < silent_at;
                until = sooner(until, (now < silent_at).then_some(silent_at));
            }
            let doubt = &self.doubts[vantage.0 as usize];
            let held_since = doubt.holds(&self.model.doubt, now);
            let decided = doubt.is_better() && sight.failures >= self.decisive(pool);
            let is_held = !decided && sight.fell.zip(held_since).is_some_and(|(fell, since)| fell >= since);
            if is_held {
                until = sooner(until, doubt.ends(self.model.doubt.hold));
            }
            let verdict = if is_held { Verdict::Healthy } else { sight.verdict };
            Report { verdict: speaks.then_some(verdict), last, until }
        })
        .collect()
    }

    fn measured(&self, pool: PoolId, place: usize, now: Moment) -> Measured {
        let declared = self.model.pool(pool);
        let viewpoints = &declared.viewpoints;
        let reports = self.reports(pool, place, now);
        let mut until = reports.iter().filter_map(|report| report.until).min();
        let region = |vantage: &VantageId| self.model.vantage(*vantage).region.as_deref();
        let views: Vec<View<'_>> = (reports.iter().zip(&viewpoints.vantages))
            .map(|(report, vantage)| View { region: region(vantage), verdict: report.verdict })
            .collect();
        let decided = viewpoints.sources.iter().find_map(|source| {
            let verdict = match source {
                HealthSource::Local(vantage) => {
                    let place = viewpoints.vantages.iter().position(|other| other == vantage)?;
                    reports[place].verdict
                }
                HealthSource::Regional(region) => quorum::regional(&views, region),
                HealthSource::Global => quorum::global(&views, viewpoints.quorum),
            };
            verdict.filter(|verdict| *verdict != Verdict::Unknown)
        });
        if let Some(verdict) = decided {
            return Measured { verdict, stale: false, until };
        }
        let anybody = reports.iter().any(|report| report.verdict.is_some());
        let row = &self.pools[pool.0 as usize].rows[place];
        let last = reports.iter().filter_map(|report| report.last).max();
        let held_until =
            last.map(|at| at + self.pools[pool.0 as usize].patience + declared.rules.stale_after);
        match held_until {
            Some(held_until) if !anybody && now < held_until && row.verdict != Verdict::Unknown => {
                until = sooner(until, Some(held_until));
                Measured { verdict: row.verdict, stale: true, until }
            }
            _ => Measured { verdict: Verdict::Unknown, stale: false, until },
        }
    }

    /// What is made of what is measured.
    fn stand(
        &self,
        pool: PoolId,
        place: usize,
        measured: &Measured,
        now: Moment,
    ) -> (Standing, Option<Moment>) {
        let declared = self.model.pool(pool);
        let row = &self.pools[pool.0 as usize].rows[place];
        let mut until = None;
        let flapping = row.flaps.len() > declared.rules.flap_limit as usize;
        if flapping {
            until = row.flaps.front().map(|first| *first + declared.rules.flap_window);
        }
        let starting = row.targets().filter_map(|id| self.targets[&id].machine.starting()).max();
        let starting = starting.filter(|end| now < *end);
        let fitness = self.fitness(pool, place, measured.verdict, now, &mut until);
        let standing = Standing {
            verdict: measured.verdict,
            stale: measured.stale,
            starting: starting.is_some() && measured.verdict != Verdict::Healthy,
            flapping,
            degraded: self.degraded(pool, row),
            fitness,
            percent: row.agent_percent,
            weight: self
                .said(declared, &declared.endpoints[place], Slot::Weight, now)
                .and_then(|said| said.action.weight()),
        };
        (standing, sooner(until, starting))
    }

    fn degraded(&self, pool: PoolId, row: &Row) -> Option<Degraded> {
        let members = &self.model.pool(pool).tests.members;
        let voters = row.sights.iter().flat_map(|sight| sight.targets.iter().zip(members));
        let passes = voters.filter(|(_, member)| member.votes).filter_map(|(id, _)| {
            let target = &self.targets[id];
            let passed = matches!(target.machine.run(), Some((true, _)));
            target.last_pass.as_ref().filter(|_| passed)?.outcome.degraded
        });
        passes.min_by_key(|degraded| *degraded as u8)
    }

    fn fitness(
        &self,
        pool: PoolId,
        place: usize,
        verdict: Verdict,
        now: Moment,
        until: &mut Option<Moment>,
    ) -> Fitness {
        let declared = self.model.pool(pool);
        let endpoint = &declared.endpoints[place];
        let row = &self.pools[pool.0 as usize].rows[place];
        let own = self.said(declared, endpoint, Slot::Traffic, now);
        let enabled = match own.map(|said| said.action) {
            Some(Action::Enable) => true,
            Some(Action::Disable) => false,
            _ => endpoint.enabled,
        };
        if !enabled {
            return Fitness::Out(OutCause::Disabled);
        }
        let drain = |said: Option<&Override>| said.filter(|said| said.action == Action::Drain).cloned();
        let of_pool = || self.overrides.get(&whole(declared), Slot::Traffic, now);
        if let Some(drain) = drain(own).or_else(|| drain(of_pool())) {
            return match now < drain.drained_at {
                true => {
                    *until = sooner(*until, Some(drain.drained_at));
                    Fitness::Out(OutCause::Draining)
                }
                false => Fitness::Out(OutCause::Drained),
            };
        }
        if self.in_maintenance(&row.windows, now, until) {
            return Fitness::Out(OutCause::Maintenance);
        }
        match row.wish {
            Some(AgentWish::Drain) => return Fitness::Out(OutCause::AgentDrain),
            Some(AgentWish::Maint) => return Fitness::Out(OutCause::AgentMaint),
            Some(AgentWish::Ready) | None => {}
        }
        match self.said(declared, endpoint, Slot::Health, now).map(|said| said.action) {
            Some(Action::Healthy) => return Fitness::Up,
            Some(Action::Unhealthy) => return Fitness::Down(DownCause::Forced),
            _ => {}
        }
        let needs = self.needs(pool, place, now);
        if needs == Presence::Absent {
            return Fitness::Down(match self.dependencies_are_taken_out(pool, place, now) {
                true => DownCause::DependencyOut,
                false => DownCause::Dependency,
            });
        }
        if let Some(end) = row.traffic.ejected(now).filter(|_| declared.rules.ejection.is_some()) {
            *until = sooner(*until, Some(end));
            return Fitness::Down(DownCause::Ejected);
        }
        let own = match verdict {
            _ if !declared.is_monitored() => Fitness::Up,
            Verdict::Unknown => Fitness::Down(DownCause::Unknown),
            Verdict::Unhealthy => Fitness::Down(DownCause::Unhealthy),
            Verdict::Healthy if row.flap_out => {
                *until = sooner(*until, Some(row.verdict_since + declared.rules.flap_hold));
                Fitness::Down(DownCause::FlapHold)
            }
            Verdict::Healthy => Fitness::Up,
        };
        // it isn't known to be of use yet, nor to be of none
        let unknown = own.is_up() && needs == Presence::Awaited;
        if unknown { Fitness::Down(DownCause::Unknown) } else { own }
    }

    fn in_maintenance(&self, windows: &[Window], now: Moment, until: &mut Option<Moment>) -> bool {
        let unix = (now.elapsed().as_millis() as i64 + self.step).max(0) as u64 / 1000;
        let mut is_open = false;
        for window in windows {
            let (open, next) = windows::state(*window, unix);
            is_open |= open;
            if let Some(next) = next {
                let line = (next as i64 * 1000 - self.step).max(0) as u64;
                let at = Moment::from_start(Duration::from_millis(line));
                *until = sooner(*until, Some(at));
            }
        }
        is_open
    }

    /// Whether all that an endpoint depends on is there.
    fn needs(&self, pool: PoolId, place: usize, now: Moment) -> Presence {
        let declared = self.model.pool(pool);
        let needed = declared.endpoints[place].depends_on.iter().chain(&declared.depends_on);
        let presence = |needed: &Dependency| match &needed.endpoint {
            Some(name) => self.presence_of(needed.pool, name, now),
            None => self.presence(needed.pool, now),
        };
        needed.map(presence).min().unwrap_or(Presence::There)
    }

    /// Whether one of the endpoints called so is up.
    fn presence_of(&self, pool: PoolId, name: &str, now: Moment) -> Presence {
        let held = &self.pools[pool.0 as usize];
        let any = |is: fn(Fitness) -> bool| held.called(name).any(|place| is(held.standings[place].fitness));
        match () {
            // those of a disabled pool are in no answers, and nothing more will be known of them
            _ if !self.is_enabled(pool, now) => Presence::Absent,
            _ if any(Fitness::is_up) => Presence::There,
            _ if any(Fitness::is_unknown) => Presence::Awaited,
            _ => Presence::Absent,
        }
    }

    /// Whether somebody took out whatever is missing of what it depends on.
    fn dependencies_are_taken_out(&self, pool: PoolId, place: usize, now: Moment) -> bool {
        let declared = self.model.pool(pool);
        declared.endpoints[place].depends_on.iter().chain(&declared.depends_on).all(|needed| {
            let held = &self.pools[needed.pool.0 as usize];
            match &needed.endpoint {
                None => {
                    self.is_available(needed.pool, now)
                        || !self.is_enabled(needed.pool, now)
                        || are_taken_out(held.standings.iter())
                }
                Some(name) => {
                    let standings = || held.called(name).map(|place| &held.standings[place]);
                    !self.is_enabled(needed.pool, now)
                        || standings().any(|standing| standing.fitness.is_up())
                        || are_taken_out(standings())
                }
            }
        })
    }

    /// Whether all of these are there, for answers that name them: steering could
    /// choose the pool, and an endpoint of it has a share.
    pub fn are_there(&self, needed: &[Dependency], now: Moment) -> bool {
        needed.iter().all(|needed| {
            let mut places = self.places_meant(needed);
            self.is_enabled(needed.pool, now)
                && (needed.endpoint.is_some() || self.is_available(needed.pool, now))
                && places.any(|place| self.gets_a_share(needed.pool, place))
        })
    }

    /// Whether one of these isn't there because somebody wants that.
    pub fn is_taken_out(&self, needed: &[Dependency], now: Moment) -> bool {
        needed.iter().filter(|needed| !self.are_there(std::slice::from_ref(needed), now)).any(|needed| {
            let standings = &self.pools[needed.pool.0 as usize].standings;
            let idle = |place: &usize| !self.gets_a_share(needed.pool, *place);
            let mut idle = self.places_meant(needed).filter(idle).peekable();
            // what is up in itself and gets no share is out for its weight
            let out = |fitness: Fitness| fitness.is_up() || fitness.is_taken_out();
            !self.is_enabled(needed.pool, now)
                || idle.peek().is_some() && idle.all(|place| out(standings[place].fitness))
        })
    }

    /// The places of the endpoints that a dependency means.
    fn places_meant<'a>(&'a self, needed: &'a Dependency) -> impl Iterator<Item = usize> + 'a {
        let held = &self.pools[needed.pool.0 as usize];
        let named = needed.endpoint.iter().flat_map(|name| held.called(name));
        let all = if needed.endpoint.is_none() { 0..held.rows.len() } else { 0..0 };
        named.chain(all)
    }

    /// Whether an endpoint may be in answers, and has a weight.
    fn gets_a_share(&self, pool: PoolId, place: usize) -> bool {
        let standing = &self.pools[pool.0 as usize].standings[place];
        let weight = standing.weight_of(&self.model.pool(pool).endpoints[place]);
        standing.fitness.is_up() && standing.percent > 0 && weight > Weight(0)
    }

    /// Whether steering could choose the pool.
    pub fn is_available(&self, pool: PoolId, now: Moment) -> bool {
        self.presence(pool, now) == Presence::There
    }

    /// Whether steering could choose the pool, or may once more is known.
    fn presence(&self, pool: PoolId, now: Moment) -> Presence {
        let (held, needed) = (&self.pools[pool.0 as usize], self.model.pool(pool).needed() as usize);
        match () {
            _ if held.up + held.unknown < needed || !self.is_enabled(pool, now) => Presence::Absent,
            _ if held.up < needed => Presence::Awaited,
            _ => Presence::There,
        }
    }

    /// Whether one more may be ejected: some must stay, and the threshold hold.
    pub(super) fn may_eject(&self, pool: PoolId, place: usize, now: Moment) -> bool {
        let declared = self.model.pool(pool);
        let Some(rules) = &declared.rules.ejection else { return false };
        let held = &self.pools[pool.0 as usize];
        let ejected = held.rows.iter().filter(|row| row.traffic.ejected(now).is_some()).count();
        let most = (held.rows.len() * usize::from(rules.max_ejection_percent) / 100).max(1);
        let left = held.up - usize::from(held.standings[place].fitness.is_up());
        ejected < most && left >= declared.health_threshold.max(1) as usize
    }
}

/// The share of an endpoint that came back at `since`, in hundredths, and when
/// it grows; none when it has all of it.
fn slow_start(since: Moment, over: Duration, now: Moment) -> Option<(u32, Moment)> {
    const STEPS: u32 = 10;
    let passed = now.since(since);
    if over.is_zero() || passed >= over {
        return None;
    }
    let done = (passed.as_nanos() * u128::from(STEPS) / over.as_nanos()) as u32;
    let next = since + over * (done + 1) / STEPS;
    Some((10 + done * 90 / STEPS, next))
}
