//! A world made from a seed: configurations, faults and operators.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::dice::Dice;
use super::watch::{self, Stand, Watch};
use super::{Drive, Nature};
use crate::engine::{Effect, Engine, Event, Lookup};
use crate::health::{
    Action, AgentReport, AgentWish, Degraded, Fitness, Memory, Order, OutCause, Outcome, ProbeResult,
    ProbeTask, Reason, Record, Seen, Slot, TargetId, Verdict,
};
use crate::model::{
    AgentCheck, Check, Combination, Dependency, Doubt, Ejection, Endpoint, FamilyThreshold, HealthSource,
    Host, HttpCheck, LoadBalancer, Maintenance, Member, Model, Monitor, MonitorId, Moves, Name, Pool, PoolId,
    Quorum, Reach, RecordSet, Rules, Scope, Serial, Soa, Source, SteeringPolicy, TcpCheck, Tests, Thresholds,
    Vantage, VantageId, Viewpoints, Weight, WhenUnavailable, Window, Zone,
};
use crate::moment::Moment;
use crate::rdata::rtype::MX;

/// When worlds begin.
const START: Moment = Moment::from_start(Duration::from_secs(1_700_000_000));

/// How many things happen before it gets calm.
const EVENTS: u64 = 40;

/// So often a process notes that it is alive.
const ALIVE_EVERY: Duration = Duration::from_secs(10);

/// Verdicts of a former run that ended longer ago are none.
const STATE_MAX_AGE: Duration = Duration::from_secs(600);

/// So often endpoints report by themselves.
const PUSH_EVERY: Duration = Duration::from_secs(1);

/// And so long at least is the interval in which they have to.
const PUSH_INTERVAL: Duration = Duration::from_millis(2500);

/// Longer than a world lasts.
const HOURS: Duration = Duration::from_secs(7200);

/// A way in which a world is broken on purpose, to see that it is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// A probe is made twice.
    DoubleProbe,
    /// Some publications never arrive.
    LosePublication,
    /// The engine is told the opposite of what probes of one endpoint found.
    FlipOutcomes,
    /// Runs must be one longer than configured.
    LongerRuns,
    /// Drains never reach the engine.
    LoseOrders,
    /// Some probes are never made.
    LoseProbes,
    /// Some changes are never told.
    LoseChanges,
    /// A restart forgets everything.
    ForgetEverything,
    /// Serials begin anew with every restart.
    ForgetSerials,
    /// A disabled endpoint is configured as enabled.
    EnableDisabled,
    /// What is held of targets and endpoints is never written down.
    LoseRecords,
    /// Shorter TTLs are configured than are handed out.
    ShortTtls,
    /// Ejections last for hours.
    EndlessEjections,
    /// Who was flapping stays out for hours.
    EndlessFlapHolds,
    /// Slow starts take hours.
    EndlessSlowStarts,
    /// Agents are never heard to be ready again.
    LoseReady,
    /// Endpoints that report by themselves are not heard.
    LosePushes,
}

impl Sabotage {
    /// All of them.
    pub const ALL: [Sabotage; 17] = [
        Sabotage::DoubleProbe,
        Sabotage::LosePublication,
        Sabotage::FlipOutcomes,
        Sabotage::LongerRuns,
        Sabotage::LoseOrders,
        Sabotage::LoseProbes,
        Sabotage::LoseChanges,
        Sabotage::ForgetEverything,
        Sabotage::ForgetSerials,
        Sabotage::EnableDisabled,
        Sabotage::LoseRecords,
        Sabotage::ShortTtls,
        Sabotage::EndlessEjections,
        Sabotage::EndlessFlapHolds,
        Sabotage::EndlessSlowStarts,
        Sabotage::LoseReady,
        Sabotage::LosePushes,
    ];
}

/// What a world has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub probes: u64,
    pub changes: u64,
    pub reloads: u64,
    pub restarts: u64,
    /// How long it lasted, in seconds of its own time.
    pub seconds: u64,
    /// A hash of everything that was told.
    pub trace: u64,
}

/// What an endpoint's address does to probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Up,
    Slow,
    Refuses,
    Hangs,
    /// Changes between up and refusing every so many seconds.
    Flaps(u64),
    /// Probes can't be made, for a cause on this side.
    Blocked,
}

/// What the world does, beside the engine.
struct World {
    dice: Dice,
    manners: BTreeMap<IpAddr, Manner>,
    /// What agents say beside that they are there.
    agents: BTreeMap<IpAddr, AgentReport>,
    /// Vantages whose uplink is down.
    cut_off: BTreeSet<Arc<str>>,
    hosts: BTreeMap<Arc<str>, Vec<IpAddr>>,
    lookups_fail: bool,
    sabotage: Option<Sabotage>,
    carried: u64,
}

impl Nature for World {
    fn probe(&mut self, _: TargetId, task: &ProbeTask, now: Moment) -> Outcome {
        let mut outcome = self.found(task, now);
        let is_first = task.address == IpAddr::from([192, 0, 2, 1]);
        if self.sabotage == Some(Sabotage::FlipOutcomes) && is_first {
            outcome.result = match outcome.result {
                ProbeResult::Pass => ProbeResult::Fail,
                ProbeResult::Fail => ProbeResult::Pass,
                ProbeResult::Error => ProbeResult::Error,
            };
        }
        let is_agent = matches!(task.monitor.check, Check::Agent(_)) && outcome.result == ProbeResult::Pass;
        if is_agent {
            outcome.agent = self.agents.get(&task.address).copied();
        }
        if let (Some(Sabotage::LoseReady), Some(agent)) = (self.sabotage, &mut outcome.agent) {
            agent.wish = agent.wish.filter(|wish| *wish != AgentWish::Ready);
        }
        outcome
    }

    fn resolve(&mut self, hostname: &str, _: Moment) -> (Duration, Lookup) {
        let took = self.dice.millis(1..=50);
        let addresses = self.hosts.get(hostname).cloned().unwrap_or_default();
        let lookup = match () {
            _ if self.lookups_fail => Lookup::Failed,
            _ if addresses.is_empty() => Lookup::NoSuchName,
            _ => Lookup::Found { addresses, ttl: self.dice.seconds(1..=30) },
        };
        (took, lookup)
    }

    fn carry(&mut self, effect: Effect, out: &mut Vec<Effect>) {
        self.carried += 1;
        let now_and_then = self.carried.is_multiple_of(7);
        match (self.sabotage, &effect) {
            (Some(Sabotage::DoubleProbe), Effect::Probe { .. }) if now_and_then => out.push(effect.clone()),
            (Some(Sabotage::LosePublication), Effect::Publish(_)) if now_and_then => return,
            (Some(Sabotage::LoseProbes), Effect::Probe { .. }) if now_and_then => return,
            (Some(Sabotage::LoseChanges), Effect::Tell(_)) if now_and_then => return,
            (Some(Sabotage::LoseRecords), Effect::Remember(Record::Target(..) | Record::Endpoint(..))) => {
                return;
            }
            _ => {}
        }
        out.push(effect);
    }
}

impl World {
    fn found(&mut self, task: &ProbeTask, now: Moment) -> Outcome {
        let timeout = task.monitor.timeout;
        let fail = |took, reason, detail| Outcome { took, ..Outcome::new(ProbeResult::Fail, reason, detail) };
        if self.cut_off.contains(&task.vantage.name) {
            return fail(timeout, Reason::TcpTimeout, "connect_timeout");
        }
        let quick = self.dice.millis(1..=40).min(timeout);
        let pass = |took| Outcome { took, ..Outcome::new(ProbeResult::Pass, Reason::NoFailures, "") };
        let manner = self.manners.get(&task.address).copied().unwrap_or(Manner::Up);
        match manner {
            Manner::Up => pass(quick),
            Manner::Slow => Outcome { degraded: Some(Degraded::Slow), ..pass(timeout.mul_f64(0.9)) },
            Manner::Flaps(period) if (now.elapsed().as_secs() / period).is_multiple_of(2) => pass(quick),
            Manner::Refuses | Manner::Flaps(_) => fail(quick, Reason::TcpConnectionFailed, "connect_refused"),
            Manner::Hangs => {
                fail(timeout * (u32::from(task.monitor.retries) + 1), Reason::TcpTimeout, "timeout")
            }
            Manner::Blocked => Outcome {
                took: quick,
                ..Outcome::new(ProbeResult::Error, Reason::NetworkUnreachable, "network_unreachable")
            },
        }
    }
}

/// Lives through the world of `seed`; tells what was broken in it.
pub fn run(seed: u64, sabotage: Option<Sabotage>) -> Result<Tally, String> {
    Life::new(seed, sabotage).live().map_err(|what| format!("seed {seed}: {what}"))
}

struct Life {
    world: World,
    drive: Drive,
    watch: Watch,
    /// As it stands in the files.
    declared: Model,
    tally: Tally,
    /// What the processes have written down.
    journal: Memory,
    alive_at: Moment,
    push_at: Moment,
    /// When this process began.
    began: Moment,
    /// By how many milliseconds the clock was set since it began.
    step: i64,
}

impl Life {
    fn new(seed: u64, sabotage: Option<Sabotage>) -> Life {
        let mut dice = Dice::new(seed);
        let declared = configuration(&mut dice);
        let mut engine = Engine::new(1 + dice.below(200));
        engine.ready_by(START + Duration::from_secs(10));
        let world = World {
            hosts: [("web.example.net".into(), vec![[203, 0, 113, 1].into(), [203, 0, 113, 2].into()])]
                .into(),
            dice,
            manners: BTreeMap::new(),
            agents: BTreeMap::new(),
            cut_off: BTreeSet::new(),
            lookups_fail: false,
            sabotage,
            carried: 0,
        };
        let drive = Drive::new(engine, Arc::new(meddled(&declared, sabotage)), START);
        Life {
            world,
            drive,
            watch: Watch::default(),
            declared,
            tally: Tally::default(),
            journal: Memory::default(),
            alive_at: START,
            push_at: START,
            began: START,
            step: 0,
        }
    }

    fn live(mut self) -> Result<Tally, String> {
        for address in addresses(&self.declared) {
            let manner = self.manner();
            self.world.manners.insert(address, manner);
        }
        for _ in 0..EVENTS {
            let pause = self.world.dice.millis(0..=12_000);
            self.go_on(pause)?;
            self.happen()?;
        }
        self.calm()?;
        self.tally.seconds += self.drive.now().since(self.began).as_secs();
        self.tally.probes += self.drive.probes;
        Ok(self.tally)
    }

    /// Lets time pass, and looks at everything that happens in it.
    fn go_on(&mut self, time: Duration) -> Result<(), String> {
        let until = self.drive.now() + time;
        let pushes = self.declared.monitors.iter().any(|monitor| monitor.check == Check::Push);
        while pushes && self.push_at < until {
            self.pass_until(self.push_at)?;
            self.push()?;
            self.push_at = self.drive.now() + PUSH_EVERY;
        }
        self.pass_until(until)?;
        self.report();
        self.drive.settle(&mut self.world)?;
        self.look()
    }

    fn pass_until(&mut self, until: Moment) -> Result<(), String> {
        while self.drive.step(until, &mut self.world)? {
            self.look()?;
        }
        Ok(())
    }

    /// Endpoints that are to report by themselves do, but for those that hang.
    fn push(&mut self) -> Result<(), String> {
        if self.world.sabotage == Some(Sabotage::LosePushes) {
            return Ok(());
        }
        let now = self.drive.now();
        let model = Arc::clone(self.drive.engine.model());
        for pool in model.pools.iter().filter(|pool| is_pushed(&model, pool)) {
            for endpoint in &pool.endpoints {
                let ok = match self.world.manners.get(&endpoint.address).copied().unwrap_or(Manner::Up) {
                    Manner::Up | Manner::Slow => true,
                    Manner::Refuses => false,
                    Manner::Flaps(period) => (now.elapsed().as_secs() / period).is_multiple_of(2),
                    Manner::Hangs | Manner::Blocked => continue,
                };
                let told = self.drive.engine.push(&of(pool, endpoint), ok, now);
                told.map_err(|unknown| format!("the engine doesn't know {}", unknown.0))?;
            }
        }
        self.drive.settle(&mut self.world)?;
        self.look()
    }

    /// What a process writes down.
    fn note(&mut self) {
        self.drive.records.drain(..).for_each(|record| self.journal.take(record));
        let now = self.drive.now();
        if self.alive_at <= now {
            self.alive_at = now + ALIVE_EVERY;
            self.journal.take(Record::Alive(now));
        }
    }

    fn look(&mut self) -> Result<(), String> {
        self.note();
        for (at, change) in &self.drive.told {
            self.tally.changes += 1;
            let words = format!("{at:?} {change:?}");
            let hash = words.bytes().fold(self.tally.trace, |hash, octet| {
                hash.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(octet)
            });
            self.tally.trace = hash;
        }
        let now = self.drive.now();
        self.watch
            .look(&mut self.drive, &self.declared)
            .map_err(|what| format!("{:.3} s: {what}", now.since(START).as_secs_f64()))
    }

    /// Vantages elsewhere tell what is so.
    fn report(&mut self) {
        let now = self.drive.now();
        let model = Arc::clone(self.drive.engine.model());
        for pool in &model.pools {
            for id in &pool.viewpoints.vantages {
                let vantage = model.vantage(*id);
                if vantage.reach != Reach::Remote || self.world.cut_off.contains(&vantage.name) {
                    continue;
                }
                for endpoint in &pool.endpoints {
                    let up = match self.world.manners.get(&endpoint.address) {
                        Some(Manner::Refuses | Manner::Hangs) => Verdict::Unhealthy,
                        _ => Verdict::Healthy,
                    };
                    let scope = of(pool, endpoint);
                    let told = self.drive.engine.report(&scope, &vantage.name, up, now, now);
                    told.expect("the engine knows its own endpoints");
                }
            }
        }
    }

    fn manner(&mut self) -> Manner {
        match self.world.dice.below(12) {
            0..=5 => Manner::Up,
            6 => Manner::Slow,
            7 | 8 => Manner::Refuses,
            9 => Manner::Hangs,
            10 => Manner::Flaps(self.world.dice.within(3..=20)),
            _ => Manner::Blocked,
        }
    }

    /// One thing that a network, an operator or a machine does.
    fn happen(&mut self) -> Result<(), String> {
        let now = self.drive.now();
        match self.world.dice.below(17) {
            0..=5 => {
                let all: Vec<IpAddr> = addresses(&self.declared).into_iter().collect();
                let address = *self.world.dice.pick(&all);
                let manner = self.manner();
                self.world.manners.insert(address, manner);
                let agent = self.agent();
                self.world.agents.insert(*self.world.dice.pick(&all), agent);
            }
            6 => {
                let vantages = &self.declared.vantages;
                let name = Arc::clone(&self.world.dice.pick(vantages).name);
                if !self.world.cut_off.remove(&name) {
                    self.world.cut_off.insert(name);
                }
            }
            7 | 8 => self.reload()?,
            9..=11 => self.order()?,
            12 => {
                if let Some(scope) = self.endpoint() {
                    let seen = Seen {
                        ok: self.world.dice.within(0..=50) as u32,
                        failed: self.world.dice.within(0..=50) as u32,
                    };
                    self.traffic(&scope, seen)?;
                }
            }
            13 => {
                let step = self.world.dice.within(0..=7_200_000) as i64 - 3_600_000;
                self.step = step;
                self.drive.engine.handle(Event::ClockStepped(step), now);
            }
            14 | 15 => self.restart()?,
            _ => {
                self.world.lookups_fail = self.world.dice.percent(50);
                let count = self.world.dice.below(3) as u8;
                let found = (1..=count).map(|n| IpAddr::from([203, 0, 113, n])).collect();
                self.world.hosts.insert("web.example.net".into(), found);
            }
        }
        self.drive.settle(&mut self.world)?;
        self.look()
    }

    fn agent(&mut self) -> AgentReport {
        let wishes = [None, Some(AgentWish::Ready), Some(AgentWish::Drain), Some(AgentWish::Maint)];
        let percent = self.world.dice.percent(50).then(|| self.world.dice.within(0..=100) as u8);
        AgentReport { wish: *self.world.dice.pick(&wishes), percent }
    }

    fn endpoint(&mut self) -> Option<Scope> {
        let model = Arc::clone(self.drive.engine.model());
        let pool = self.world.dice.pick(&model.pools);
        match pool.endpoints.is_empty() {
            true => None,
            false => Some(of(pool, self.world.dice.pick(&pool.endpoints))),
        }
    }

    fn order(&mut self) -> Result<(), String> {
        let now = self.drive.now();
        let Some(mut scope) = self.endpoint() else { return Ok(()) };
        let actions = [
            Action::Enable,
            Action::Disable,
            Action::Drain,
            Action::Healthy,
            Action::Unhealthy,
            Action::Drain,
            Action::Weight(Weight(*self.world.dice.pick(&[0, 0, 50, 100]))),
        ];
        let action = *self.world.dice.pick(&actions);
        if action.slot() == Slot::Traffic && self.world.dice.percent(20) {
            scope.endpoint = None;
        }
        let order = match self.world.dice.percent(30) {
            true => Order::Clear(action.slot()),
            false => Order::Set {
                action,
                reason: "a simulation".into(),
                by: "nobody".into(),
                until: self.world.dice.percent(60).then(|| now + self.world.dice.seconds(1..=60)),
            },
        };
        let is_lost = self.world.sabotage == Some(Sabotage::LoseOrders) && action == Action::Drain;
        if !is_lost {
            let done = self.drive.engine.order(&scope, order.clone(), now);
            done.map_err(|unknown| format!("the engine doesn't know {}", unknown.0))?;
        }
        let drains = matches!(&order, Order::Set { action: Action::Drain, .. });
        if let (true, Some(name)) = (drains, &scope.endpoint) {
            let model = self.drive.engine.model();
            let pool = model.pool_named(&scope.pool).expect("a pool of the model");
            let place = model.pool(pool).endpoints.iter().position(|endpoint| endpoint.name == *name);
            // its address may have left the host name at this very moment
            let Some(place) = place else { return Ok(()) };
            let standing = self.drive.engine.table().standings(pool)[place];
            if standing.fitness.counts() {
                return Err(format!("{scope} is drained, and stands as {:?}", standing.fitness));
            }
        }
        Ok(())
    }

    fn traffic(&mut self, scope: &Scope, seen: Seen) -> Result<(), String> {
        let now = self.drive.now();
        let id = self.drive.engine.model().pool_named(&scope.pool).expect("a pool of the model");
        let up = |drive: &Drive| {
            drive.engine.table().standings(id).iter().filter(|standing| standing.fitness.is_up()).count()
        };
        let before = up(&self.drive);
        let told = self.drive.engine.traffic(scope, seen, now);
        told.map_err(|unknown| format!("the engine doesn't know {}", unknown.0))?;
        let least = self.drive.engine.model().pool(id).health_threshold.max(1) as usize;
        match up(&self.drive) < before.min(least) {
            true => Err(format!("an ejection from {} left fewer than {least}", scope.pool)),
            false => Ok(()),
        }
    }

    fn reload(&mut self) -> Result<(), String> {
        let (before, held_at) = (held(&self.drive), holding(&self.drive));
        let changed = change(&mut self.world.dice, &mut self.declared);
        let model = Arc::new(meddled(&self.declared, self.world.sabotage));
        self.drive.told.clear();
        self.watch.reloaded();
        self.drive.reload(model, &mut self.world)?;
        self.tally.reloads += 1;
        self.drive.told.clear(); // of endpoints of before
        // who sees fewer pools, or other canaries, may begin to doubt or end it
        let now_held = holding(&self.drive);
        let other_mind: BTreeSet<_> =
            now_held.symmetric_difference(&held_at).map(|(name, _)| Arc::clone(name)).collect();
        let model = Arc::clone(self.drive.engine.model());
        for (scope, verdict) in held(&self.drive) {
            let pool = model.pool(model.pool_named(&scope.pool).expect("a pool of the model"));
            let vantages = &pool.viewpoints.vantages;
            let doubted = vantages.iter().any(|id| other_mind.contains(&model.vantage(*id).name));
            let untouched = !changed.contains(&scope.pool) && !doubted;
            let stood = before.get(&scope).copied();
            if untouched && stood.is_some_and(|stood| stood != verdict) {
                return Err(format!("a reload that left {scope} alone made it {verdict} from {stood:?}"));
            }
        }
        Ok(())
    }

    /// The process ends, and another goes on with what it left.
    fn restart(&mut self) -> Result<(), String> {
        self.note();
        let ended = self.drive.now();
        let before = held(&self.drive);
        let sure = sure_of(&self.drive);
        let left = self.left(ended)?;
        let pause = match self.world.dice.below(10) {
            0..=6 => self.world.dice.seconds(0..=30),
            7 | 8 => self.world.dice.seconds(31..=500),
            _ => self.world.dice.seconds(601..=1200),
        };
        // the time line goes on where the wall clock stands, if nobody has set it right
        let step = std::mem::take(&mut self.step);
        let now = match u64::try_from(step) {
            Ok(forward) => ended + pause + Duration::from_millis(forward),
            Err(_) => (ended + pause).before(Duration::from_millis(step.unsigned_abs())),
        };
        let alive = left.alive.unwrap_or(START);
        let said: BTreeSet<(Scope, Slot)> = (left.overrides.iter())
            .filter(|(_, said)| said.until.is_none_or(|until| until > now))
            .map(|(of, _)| of.clone())
            .collect();
        let mut engine = Engine::new(50);
        self.journal = left.clone();
        engine.recall(left, now.before(STATE_MAX_AGE), now);
        engine.ready_by(now + Duration::from_secs(10));
        self.tally.probes += self.drive.probes;
        self.tally.restarts += 1;
        self.tally.seconds += ended.since(self.began).as_secs();
        let model = Arc::new(meddled(&self.declared, self.world.sabotage));
        self.drive = Drive::new(engine, model, now);
        self.watch.restarted(ended, &self.declared, step == 0);
        (self.began, self.alive_at, self.push_at) = (now, now, now);
        self.journal = Memory { alive: Some(alive), ..self.drive.engine.memory(now) };
        self.journal.overrides.retain(|of, _| said.contains(of)); // others ended meanwhile
        self.drive.settle(&mut self.world)?;
        self.drive.told.clear();
        let overrides = self.drive.engine.table().overrides().iter();
        if said != overrides.map(|(scope, said)| (scope.clone(), said.action.slot())).collect() {
            return Err("a restart forgot what operators said, or made it up".into());
        }
        let model = Arc::clone(self.drive.engine.model());
        let sure_now = sure_of(&self.drive);
        for (scope, verdict) in held(&self.drive) {
            let pool = model.pool(model.pool_named(&scope.pool).expect("a pool of the model"));
            let silence = (ended + pause).since(alive);
            if silence > STATE_MAX_AGE && step == 0 {
                match verdict {
                    Verdict::Unknown => continue,
                    _ => return Err(format!("{scope} is {verdict} after a silence of {silence:?}")),
                }
            }
            let stood = before.get(&scope).copied();
            let moved = stood.is_some_and(|stood| stood != verdict && stood != Verdict::Unknown);
            // by a clock that was set nobody can tell how old it is
            let is_old = pool.rules.stale_after <= silence || step != 0;
            let stale_by_now = verdict == Verdict::Unknown && is_old;
            // who was silent for too long by now doesn't outvote the others any more
            let all_speak = sure.contains(&scope) && sure_now.contains(&scope);
            if all_speak && moved && !stale_by_now {
                return Err(format!("a restart made {scope} {verdict} from {stood:?}"));
            }
        }
        // it serves only when the first round is over
        let limit = now + Duration::from_secs(15);
        while !self.drive.ready {
            if !self.drive.step(limit, &mut self.world)? {
                return Err("it doesn't get ready after a restart".into());
            }
            self.look()?;
        }
        Ok(())
    }

    /// What a process leaves that ends now: as it holds it, or, half of the
    /// time, as it has written it down.
    fn left(&mut self, now: Moment) -> Result<Memory, String> {
        let memory = self.drive.engine.memory(now);
        let mut again = Memory::default();
        memory.clone().records().for_each(|record| again.take(record));
        if again != memory {
            return Err("what is remembered isn't what was held".into());
        }
        if self.journal.overrides != memory.overrides {
            return Err("what operators said isn't what was written down".into());
        }
        if self.journal.serials != memory.serials {
            let (written, held) = (&self.journal.serials, &memory.serials);
            return Err(format!("serials are {held:?}, written down are {written:?}"));
        }
        Ok(match self.world.sabotage {
            Some(Sabotage::ForgetEverything) => Memory::default(),
            Some(Sabotage::ForgetSerials) => Memory { serials: Default::default(), ..memory },
            _ if self.world.dice.percent(50) => self.journal.clone(),
            _ => memory,
        })
    }

    /// Nothing happens any more; after a while everything is as it should be.
    fn calm(&mut self) -> Result<(), String> {
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
                let silent = table
                    .targets_of(PoolId(id), place)
                    .any(|(_, target)| target.reported().is_none_or(|at| now.since(at) > target.patience()));
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

/// The verdicts on all endpoints.
fn held(drive: &Drive) -> BTreeMap<Scope, Verdict> {
    let model = drive.engine.model();
    let mut all = BTreeMap::new();
    for (pool, id) in model.pools.iter().zip(0..) {
        let verdicts = drive.engine.table().verdicts(PoolId(id));
        let both =
            pool.endpoints.iter().zip(verdicts).filter(|(endpoint, _)| pool.enabled && endpoint.enabled);
        all.extend(both.map(|(endpoint, verdict)| (of(pool, endpoint), *verdict)));
    }
    all
}

/// The endpoints on which every vantage reports, here and as it sees them: what
/// others report is theirs to remember, and doubt begins anew.
fn sure_of(drive: &Drive) -> BTreeSet<Scope> {
    let (model, table) = (drive.engine.model(), drive.engine.table());
    let mut all = BTreeSet::new();
    for (pool, id) in model.pools.iter().zip(0..) {
        let here =
            |id: &VantageId| model.vantage(*id).reach != Reach::Remote && !table.holds(*id, drive.now());
        if pool.viewpoints.vantages.iter().all(here) {
            for (place, endpoint) in pool.endpoints.iter().enumerate() {
                let views = table.views(PoolId(id), place, drive.now());
                if views.iter().all(|(_, verdict)| verdict.is_some()) {
                    all.insert(of(pool, endpoint));
                }
            }
        }
    }
    all
}

/// The vantages at which what fell may be held, and whether they still doubt
/// themselves.
fn holding(drive: &Drive) -> BTreeSet<(Arc<str>, bool)> {
    let (model, table) = (drive.engine.model(), drive.engine.table());
    let both = model.vantages.iter().zip((0..).map(VantageId));
    let holds = both.filter(|(_, id)| table.holds(*id, drive.now()));
    holds.map(|(vantage, id)| (Arc::clone(&vantage.name), table.doubts_since(id).is_some())).collect()
}

fn of(pool: &Pool, endpoint: &Endpoint) -> Scope {
    Scope { pool: Arc::clone(&pool.name), endpoint: Some(Arc::clone(&endpoint.name)) }
}

/// All addresses that something may become of, those of host names among them.
fn addresses(model: &Model) -> BTreeSet<IpAddr> {
    let written = model.pools.iter().flat_map(|pool| &pool.endpoints).map(|endpoint| endpoint.address);
    let has_hosts = model.pools.iter().any(|pool| !pool.hosts.is_empty());
    let found = (1..=2).filter(|_| has_hosts).map(|number| [203, 0, 113, number].into());
    written.chain(found).collect()
}

/// Whether a pool's endpoints report by themselves.
fn is_pushed(model: &Model, pool: &Pool) -> bool {
    pool.tests.members.iter().any(|member| model.monitor(member.monitor).check == Check::Push)
}

/// The configuration that the engine gets, which a broken world changes.
fn meddled(declared: &Model, sabotage: Option<Sabotage>) -> Model {
    let mut model = declared.clone();
    match sabotage {
        Some(Sabotage::LongerRuns) => {
            for monitor in &mut model.monitors {
                Arc::make_mut(monitor).thresholds.down += 1;
            }
        }
        Some(Sabotage::EnableDisabled) => {
            model.pools.iter_mut().flat_map(|pool| &mut pool.endpoints).for_each(|e| e.enabled = true);
        }
        Some(Sabotage::ShortTtls) => {
            let balancers = model.zones.iter_mut().flat_map(|zone| &mut zone.load_balancers);
            balancers.for_each(|balancer| balancer.ttl = 1);
        }
        Some(Sabotage::EndlessEjections) => {
            let rules = model.pools.iter_mut().filter_map(|pool| pool.rules.ejection.as_mut());
            rules.for_each(|rules| (rules.ejection_time, rules.max_ejection_time) = (HOURS, HOURS));
        }
        Some(Sabotage::EndlessFlapHolds) => {
            let rules = model.pools.iter_mut().map(|pool| &mut pool.rules);
            rules.filter(|rules| !rules.flap_hold.is_zero()).for_each(|rules| rules.flap_hold = HOURS);
        }
        Some(Sabotage::EndlessSlowStarts) => {
            let rules = model.pools.iter_mut().map(|pool| &mut pool.rules);
            rules.filter(|rules| !rules.slow_start.is_zero()).for_each(|rules| rules.slow_start = HOURS);
        }
        _ => {}
    }
    model
}

/// Changes a configuration somewhere; gives the pools it touched.
fn change(dice: &mut Dice, model: &mut Model) -> BTreeSet<Arc<str>> {
    let place = dice.below(model.pools.len());
    let mut touched = BTreeSet::from([Arc::clone(&model.pools[place].name)]);
    match dice.below(6) {
        0 => {
            let pool = &mut model.pools[place];
            let number = dice.within(1..=250) as u8;
            let address = IpAddr::from([192, 0, 2, number]);
            let is_new = pool.endpoints.iter().all(|endpoint| endpoint.address != address);
            if is_new {
                pool.endpoints.push(Endpoint::new(&format!("n{number}"), address));
            }
        }
        1 => {
            let pool = &mut model.pools[place];
            if pool.endpoints.len() > 1 {
                pool.endpoints.remove(dice.below(pool.endpoints.len()));
                pool.health_threshold = 1;
            }
        }
        2 => {
            let pool = &mut model.pools[place];
            let endpoint = dice.below(pool.endpoints.len());
            pool.endpoints[endpoint].enabled ^= true;
        }
        3 => {
            let number = dice.below(model.monitors.len());
            let monitor = Arc::make_mut(&mut model.monitors[number]);
            monitor.thresholds =
                Thresholds { up: dice.within(1..=4) as u32, down: dice.within(1..=4) as u32 };
            if dice.percent(30) {
                monitor.check = check(dice);
                monitor.interval = interval(&monitor.check, monitor.interval);
            }
            touched = model.pools.iter().map(|pool| Arc::clone(&pool.name)).collect();
        }
        4 => {
            let pool = &mut model.pools[place];
            pool.endpoints.reverse();
        }
        _ => model.pools[place].rules = rules(dice),
    }
    // what depends on a touched pool may move with it
    for _ in 0..model.pools.len() {
        let names: Vec<Arc<str>> = model.pools.iter().map(|pool| Arc::clone(&pool.name)).collect();
        for pool in &model.pools {
            let mut needed = pool.depends_on.iter();
            if needed.any(|needed| touched.contains(&names[needed.pool.0 as usize])) {
                touched.insert(Arc::clone(&pool.name));
            }
        }
    }
    touched
}

fn check(dice: &mut Dice) -> Check {
    let port = Some(dice.within(1..=9) as u16);
    match dice.below(9) {
        0..=2 => Check::Tcp(TcpCheck { port, ..TcpCheck::default() }),
        3 | 4 => Check::Agent(AgentCheck { port, send: None }),
        5 => Check::Push,
        _ => Check::Http(HttpCheck { port, ..HttpCheck::default() }),
    }
}

/// An interval in which everybody has reported.
fn interval(check: &Check, wanted: Duration) -> Duration {
    if *check == Check::Push { wanted.max(PUSH_INTERVAL) } else { wanted }
}

fn rules(dice: &mut Dice) -> Rules {
    let sometimes = |dice: &mut Dice, range| match dice.percent(30) {
        true => dice.seconds(range),
        false => Duration::ZERO,
    };
    Rules {
        start_period: dice.percent(20).then(|| dice.seconds(1..=20)),
        stale_after: dice.seconds(20..=120),
        flap_limit: dice.within(1..=5) as u32,
        flap_window: dice.seconds(20..=60),
        flap_hold: sometimes(dice, 1..=20),
        slow_start: sometimes(dice, 1..=60),
        drain_wait: sometimes(dice, 1..=20),
        stale_if_error: match dice.percent(50) {
            true => dice.seconds(0..=60),
            false => Rules::default().stale_if_error,
        },
        ejection: dice.percent(50).then(|| Ejection {
            consecutive_failures: dice.percent(70).then(|| dice.within(1..=40) as u32),
            failure_percentage: dice.percent(70).then(|| dice.within(10..=90) as u8),
            minimum_requests: dice.within(1..=60) as u32,
            ejection_time: dice.seconds(1..=20),
            max_ejection_time: dice.seconds(20..=60),
            max_ejection_percent: dice.within(1..=100) as u8,
        }),
    }
}

/// A configuration from chance.
fn configuration(dice: &mut Dice) -> Model {
    let count = 1 + dice.below(3);
    let vantages: Vec<Arc<Vantage>> = (0..1 + dice.below(3))
        .map(|number| {
            let remote = number > 0 && dice.percent(30);
            Arc::new(Vantage {
                name: format!("v{number}").into(),
                region: dice.percent(60).then(|| format!("r{}", dice.below(2)).into()),
                reach: match remote {
                    true => Reach::Remote,
                    false => Reach::Here { source: Source::default(), namespace: None },
                },
                canaries: dice.percent(20).then(|| PoolId(dice.below(count) as u32)),
            })
        })
        .collect();
    let monitors: Vec<Arc<Monitor>> = (0..1 + dice.below(3))
        .map(|number| {
            let check = check(dice);
            let interval = interval(&check, dice.millis(500..=8000));
            Arc::new(Monitor {
                interval,
                timeout: dice.millis(100..=3000),
                retries: dice.below(2) as u8,
                recheck_interval: dice.percent(60).then(|| dice.millis(100..=1000).min(interval)),
                thresholds: Thresholds { up: dice.within(1..=4) as u32, down: dice.within(1..=4) as u32 },
                ..Monitor::new(&format!("m{number}"), check)
            })
        })
        .collect();
    let pools: Vec<Pool> = (0..count).map(|number| pool(dice, number, &monitors, &vantages)).collect();
    let doubt = Doubt {
        share: dice.percent(50).then(|| dice.within(30..=80) as u8),
        window: dice.seconds(5..=20),
        hold: dice.seconds(5..=40),
    };
    let maintenance = match dice.percent(20) {
        true => {
            let from = START.elapsed().as_secs() + dice.within(0..=200);
            let of = Scope { pool: Arc::clone(&pools[0].name), endpoint: None };
            let when = Window::Once { from, until: from + dice.within(1..=60) };
            vec![Maintenance { of, when, reason: "a simulation".into() }]
        }
        false => Vec::new(),
    };
    let zones = vec![zone(dice, &pools)];
    Model { monitors, pools, zones, vantages, doubt, maintenance, ..Model::default() }
}

fn pool(dice: &mut Dice, number: usize, monitors: &[Arc<Monitor>], vantages: &[Arc<Vantage>]) -> Pool {
    let endpoints: Vec<Endpoint> = (0..1 + dice.below(4))
        .map(|n| Endpoint {
            enabled: dice.percent(90),
            weight: Weight(*dice.pick(&[100, 100, 100, 50, 0])),
            ..Endpoint::new(&format!("e{n}"), [192, 0, 2, (number * 4 + n + 1) as u8].into())
        })
        .collect();
    let members: Vec<Member> = (0..monitors.len() as u32)
        .filter(|_| dice.percent(70))
        .map(|id| Member { monitor: MonitorId(id), votes: true, must_be_healthy: false })
        .collect();
    let members: Vec<Member> =
        members.into_iter().map(|member| Member { votes: dice.percent(90), ..member }).collect();
    let voters = members.iter().filter(|member| member.votes).count() as u64;
    let combination = match dice.below(4) {
        0 => Combination::Majority,
        1 if voters > 0 => Combination::AtLeast(dice.within(1..=voters) as u32),
        _ => Combination::All,
    };
    let is_group = combination == Combination::Majority;
    let members =
        members.into_iter().map(|member| Member { must_be_healthy: is_group && dice.percent(20), ..member });
    let tests = Tests { members: members.collect(), combination };
    let all: Vec<VantageId> = (0..vantages.len() as u32).map(VantageId).collect();
    let viewpoints = Viewpoints {
        vantages: all,
        quorum: if dice.percent(50) { Quorum::Regions } else { Quorum::Vantages },
        sources: match dice.percent(20) {
            true => vec![HealthSource::Local(VantageId(0)), HealthSource::Global],
            false => vec![HealthSource::Global],
        },
    };
    let hosts = match dice.percent(20) {
        true => {
            let endpoint = Endpoint::new("web", [0, 0, 0, 0].into());
            vec![Host {
                place: dice.below(endpoints.len() + 1),
                hostname: "web.example.net".into(),
                endpoint,
            }]
        }
        false => Vec::new(),
    };
    let depends_on = match number > 0 && dice.percent(20) {
        true => vec![Dependency { pool: PoolId(number as u32 - 1), endpoint: None }],
        false => Vec::new(),
    };
    Pool {
        enabled: dice.percent(95),
        tests,
        viewpoints,
        rules: rules(dice),
        depends_on,
        health_threshold: dice.within(0..=endpoints.len() as u64) as u32,
        family_threshold: FamilyThreshold::default(),
        hosts,
        ..Pool::new(&format!("p{number}"), endpoints)
    }
}

fn zone(dice: &mut Dice, pools: &[Pool]) -> Zone {
    let apex: Name = "example.com".parse().expect("a name");
    let soa = Soa {
        ttl: 3600,
        mname: apex.wire().into(),
        rname: apex.wire().into(),
        serial: if dice.percent(50) { Serial::Auto } else { Serial::From(1_900_000_000) },
        refresh: 3600,
        retry: 600,
        expire: 604_800,
        minimum: 30,
    };
    let load_balancers = (0..1 + dice.below(3)).map(|number| {
        let default_pools: Vec<PoolId> = (0..pools.len() as u32).map(PoolId).collect();
        let steering_policy = match dice.percent(50) {
            true => SteeringPolicy::Off,
            false => SteeringPolicy::Random(
                default_pools.iter().map(|_| Weight(*dice.pick(&[100, 50, 0]))).collect(),
            ),
        };
        let moves = match dice.percent(30) {
            true => Moves {
                failover_delay: dice.millis(0..=5000),
                failback_delay: dice.millis(0..=20_000),
                manual_failback: dice.percent(30),
            },
            false => Moves::default(),
        };
        LoadBalancer {
            name: Name::parse(&format!("lb{number}"), &apex).expect("a name"),
            enabled: true,
            ttl: dice.within(1..=30) as u32,
            steering_policy,
            default_pools,
            when_unavailable: match dice.percent(70) {
                true => WhenUnavailable::FallbackPool(PoolId(dice.below(pools.len()) as u32)),
                false => WhenUnavailable::Nodata,
            },
            moves,
            slo: None,
        }
    });
    let load_balancers = load_balancers.collect();
    let records = vec![mail(&apex, pools, false), mail(&apex, pools, true)];
    Zone { apex, soa, records, load_balancers }
}

/// MX records that follow health: one that needs each pool as a whole, one that
/// needs its first endpoint; if it is `sure`, one more that needs nothing.
fn mail(apex: &Name, pools: &[Pool], sure: bool) -> RecordSet {
    let needs = |(pool, number): (&Pool, u32)| {
        let needed = |endpoint| vec![Dependency { pool: PoolId(number), endpoint }];
        [needed(None), needed(Some(Arc::clone(&pool.endpoints[0].name)))]
    };
    let mut depends_on: Vec<Vec<Dependency>> = pools.iter().zip(0..).flat_map(needs).collect();
    if sure {
        depends_on.push(Vec::new());
    }
    let rdata = (0..depends_on.len()).map(|number| Box::from([0, number as u8, 0])).collect();
    let owner = Name::parse(if sure { "sure" } else { "mail" }, apex).expect("a name");
    // a shorter TTL than any load balancer's: a drain waits for those
    RecordSet { owner, rtype: MX, ttl: 1, rdata, depends_on }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_life_each_time() {
        for seed in [1, 2, 3] {
            assert_eq!(run(seed, None), run(seed, None));
        }
    }
}
