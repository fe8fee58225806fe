//! A world without sockets and without a clock: the simulator's engine, and a
//! network that does what a scenario says.
//!
//! After every event it looks at what must always be so, beside what the
//! simulator looks at:
//! - an answer carries only addresses that the endpoints' standings allow, and
//!   some while they allow any.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use haledns::config;
use haledns::engine::{Change, Engine, Lookup};
use haledns::health::{
    Action, Order, Outcome, ProbeResult, ProbeTask, Reason, Slot, Standing, TargetId, scramble,
};
use haledns::model::{
    Check, Endpoint, LoadBalancer, Model, Moves, Name, Pool, PoolId, Scope, SteeringPolicy, Weight,
    WhenUnavailable,
};
use haledns::moment::Moment;
use haledns::rdata::type_name;
use haledns::simulate::{Drive, Nature};

use super::ask::{self, Question, Reply};
use super::scenario::{Addresses, Attempt, Behaviour, Network, Word};

/// When worlds begin.
pub const START: Moment = Moment::from_start(Duration::from_secs(1_700_000_000));
/// What lookups find holds for so long.
const HOST_TTL: Duration = Duration::from_secs(30);
/// What a quick reply takes.
const QUICK: Duration = Duration::from_millis(10);

pub struct World {
    drive: Drive,
    nature: Endpoints,
    seed: u64,
    /// It looks at what must always be so.
    pub looks: bool,
    /// Changes in words, oldest first.
    pub told: Vec<String>,
}

/// What the network does.
#[derive(Default)]
struct Endpoints {
    network: Network,
    /// Which probe of an address comes next.
    turns: HashMap<IpAddr, usize>,
    /// What lookups of host names find.
    hosts: BTreeMap<String, Addresses>,
    /// Probes begun, by address.
    probes: BTreeMap<IpAddr, usize>,
}

impl Nature for Endpoints {
    fn probe(&mut self, _: TargetId, task: &ProbeTask, _: Moment) -> Outcome {
        *self.probes.entry(task.address).or_default() += 1;
        let turn = self.turns.entry(task.address).or_default();
        let seen = self.network.seen(task.address, &task.monitor.name, &task.vantage.name);
        let outcome = read(outcome(seen, *turn, task), task);
        *turn += 1;
        outcome
    }

    fn resolve(&mut self, hostname: &str, _: Moment) -> (Duration, Lookup) {
        let lookup = match self.hosts.get(hostname) {
            Some(Addresses::Found(addresses)) if !addresses.is_empty() => {
                Lookup::Found { addresses: addresses.clone(), ttl: HOST_TTL }
            }
            Some(Addresses::Lost(_)) => Lookup::Failed,
            Some(Addresses::Found(_)) | None => Lookup::NoSuchName,
        };
        (QUICK, lookup)
    }
}

impl World {
    /// A world at its beginning, with this configuration in force.
    pub fn new(model: Arc<Model>) -> World {
        let drive = Drive::new(Engine::new(10_000), model, START);
        World { drive, nature: Endpoints::default(), seed: 0, looks: true, told: Vec::new() }
    }

    pub fn now(&self) -> Moment {
        self.drive.now()
    }

    pub fn engine(&self) -> &Engine {
        &self.drive.engine
    }

    /// Probes begun, by address.
    pub fn probes(&self) -> &BTreeMap<IpAddr, usize> {
        &self.nature.probes
    }

    /// From now on the endpoints do this.
    pub fn change(&mut self, endpoints: &BTreeMap<String, Word>) -> Result<(), String> {
        self.nature.network.change(endpoints)?;
        let changed = |key: &String| key.split(' ').next().and_then(|address| address.parse().ok());
        let changed: Vec<IpAddr> = endpoints.keys().filter_map(changed).collect();
        self.nature.turns.retain(|address, _| !changed.contains(address));
        Ok(())
    }

    /// From now on lookups find this.
    pub fn rename(&mut self, hosts: &BTreeMap<String, Addresses>) {
        self.nature.hosts.extend(hosts.clone());
    }

    /// An operator says this of `POOL/ENDPOINT`.
    pub fn say(&mut self, of: &str, word: &str) -> Result<(), String> {
        let (pool, endpoint) = of.split_once('/').ok_or_else(|| format!("`{of}` is no endpoint"))?;
        let scope = Scope { pool: pool.into(), endpoint: Some(endpoint.into()) };
        let hundredths = word.strip_prefix("weight ").and_then(config::weight);
        let orders = match (word, hundredths) {
            ("none", _) => Slot::FORCED.map(Order::Clear).to_vec(),
            (_, weight) => {
                let name = if weight.is_some() { "weight" } else { word };
                let action = Action::of(name, weight.map(Weight));
                let action = action.ok_or_else(|| format!("`{word}` is nothing an operator says"))?;
                vec![Order::Set { action, reason: "".into(), by: "alice".into(), until: None }]
            }
        };
        for order in orders {
            let done = self.drive.engine.order(&scope, order, self.now());
            done.map_err(|_| format!("there is no `{of}`"))?;
        }
        self.drive.settle(&mut self.nature).map_err(line)?;
        self.look()
    }

    /// From now on these addresses do that, and all others pass.
    pub fn change_only(&mut self, changed: impl IntoIterator<Item = IpAddr>, attempt: Attempt) {
        let behaviour = |address| (address, Behaviour::Attempts(vec![attempt]));
        self.nature.network.by_address = changed.into_iter().map(behaviour).collect();
    }

    /// Puts another configuration in force.
    pub fn reload(&mut self, model: Arc<Model>) -> Result<(), String> {
        self.drive.reload(model, &mut self.nature).map_err(line)?;
        self.look()
    }

    /// Goes on until every target has been probed.
    pub fn settle(&mut self) -> Result<(), String> {
        let patience = self.now() + Duration::from_secs(600);
        self.drive.settle(&mut self.nature).map_err(line)?;
        while !self.engine().is_settled() {
            if !self.step(patience)? {
                return Err("the first round of probes took more than 10 minutes\n".into());
            }
        }
        self.look()
    }

    /// Goes on until `moment`, what happens then included.
    pub fn run_until(&mut self, moment: Moment) -> Result<(), String> {
        while self.step(moment)? {}
        Ok(())
    }

    /// Goes on to what happens next; false if nothing happens until `limit`,
    /// and then it is `limit`.
    pub fn step(&mut self, limit: Moment) -> Result<bool, String> {
        let happened = self.drive.step(limit, &mut self.nature).map_err(line)?;
        self.look()?;
        Ok(happened)
    }

    /// Asks what is published.
    pub fn ask(&mut self, question: &[u8]) -> Reply {
        self.seed += 1;
        ask::snapshot(self.drive.published(), question, scramble(self.seed))
    }

    /// The serial of the first zone.
    pub fn serial(&self) -> u32 {
        self.drive.published().serials[0]
    }

    /// Looks at what must always be so.
    fn look(&mut self) -> Result<(), String> {
        self.told.extend(self.drive.told.drain(..).map(|(_, change)| in_words(&change)));
        if self.drive.is_behind() || !self.looks {
            return Ok(());
        }
        let model = Arc::clone(self.engine().model());
        for balancer in model.zones.iter().flat_map(|zone| &zone.load_balancers) {
            if balancer.enabled {
                self.look_at(&model, balancer, "A", IpAddr::is_ipv4)?;
                self.look_at(&model, balancer, "AAAA", IpAddr::is_ipv6)?;
            }
        }
        Ok(())
    }

    fn look_at(
        &mut self,
        model: &Model,
        balancer: &LoadBalancer,
        rtype: &str,
        family: fn(&IpAddr) -> bool,
    ) -> Result<(), String> {
        if balancer.moves != Moves::default() {
            return Ok(()); // it depends on what was
        }
        let allowed = self.allowed(model, balancer, family);
        let question: Question = format!("{} {rtype}", balancer.name).parse()?;
        let reply = self.ask(&question.octets());
        let address = |line: &String| line.rsplit(' ').next()?.parse::<IpAddr>().ok();
        let carried: BTreeSet<IpAddr> = reply.answer.iter().filter_map(address).collect();
        match carried.is_subset(&allowed) && carried.is_empty() == allowed.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "{} {rtype} is answered with {carried:?}; the standings allow {allowed:?}\n",
                balancer.name
            )),
        }
    }

    /// The addresses of a family that may answer, from model and standings alone.
    fn allowed(
        &self,
        model: &Model,
        balancer: &LoadBalancer,
        family: fn(&IpAddr) -> bool,
    ) -> BTreeSet<IpAddr> {
        let addresses = |pool: &Pool, fits: &dyn Fn(usize, &Endpoint) -> bool| -> BTreeSet<IpAddr> {
            let id = model.pool_named(&pool.name).expect("a pool of the model");
            let standings = self.engine().table().standings(id);
            let wanted = |place: usize, endpoint: &Endpoint| standings[place].weight_of(endpoint) > Weight(0);
            (pool.endpoints.iter().enumerate())
                .filter(|(place, endpoint)| wanted(*place, endpoint) && fits(*place, endpoint))
                .map(|(_, endpoint)| endpoint.address)
                .collect()
        };
        let of_family =
            |all: BTreeSet<IpAddr>| -> BTreeSet<IpAddr> { all.into_iter().filter(family).collect() };
        let available = |id: PoolId| {
            let pool = model.pool(id);
            let standings = self.engine().table().standings(id);
            let up = |place: usize| standings[place].fitness.is_up();
            let all = addresses(pool, &|place, _| up(place));
            let count = (0..standings.len()).filter(|place| up(*place)).count();
            let enough = !pool.is_monitored() || count >= pool.health_threshold as usize;
            if !pool.enabled || all.is_empty() || !enough {
                return None;
            }
            let here = of_family(all);
            let is_ipv4 = family(&IpAddr::from([192, 0, 2, 1]));
            let least = if is_ipv4 { pool.family_threshold.ipv4 } else { pool.family_threshold.ipv6 };
            (here.len() >= least as usize).then_some(here)
        };
        let steered: Vec<BTreeSet<IpAddr>> = match &balancer.steering_policy {
            SteeringPolicy::Off => {
                balancer.default_pools.iter().copied().find_map(available).into_iter().collect()
            }
            SteeringPolicy::Random(weights) => {
                let pools = balancer.default_pools.iter().zip(weights).filter(|(_, w)| **w > Weight(0));
                pools.filter_map(|(pool, _)| available(*pool)).collect()
            }
        };
        match balancer.when_unavailable {
            _ if !steered.is_empty() => steered.into_iter().flatten().collect(),
            WhenUnavailable::FallbackPool(id) if model.pool(id).enabled => {
                let standings = self.engine().table().standings(id);
                of_family(addresses(model.pool(id), &|place, _| standings[place].fitness.counts()))
            }
            _ => BTreeSet::new(),
        }
    }
}

/// A complaint as a line.
fn line(what: String) -> String {
    format!("{what}\n")
}

/// What a probe finds.
fn outcome(behaviour: &Behaviour, turn: usize, task: &ProbeTask) -> Outcome {
    let attempt_of = |attempts: &[Attempt], number: usize| attempts[number.min(attempts.len() - 1)];
    let attempts = match behaviour {
        Behaviour::Attempts(attempts) => attempts.clone(),
        Behaviour::Probes(passes) if passes[turn.min(passes.len() - 1)] => vec![Attempt::Up],
        Behaviour::Probes(_) => vec![Attempt::Code(503)],
    };
    let tcp = matches!(task.monitor.check, Check::Tcp(_));
    let fail = |reason, detail| (ProbeResult::Fail, reason, detail, None);
    let mut took = Duration::ZERO;
    for number in 0..=usize::from(task.monitor.retries) {
        let (result, reason, detail, status) = match attempt_of(&attempts, number) {
            Attempt::Hang => {
                took += task.monitor.timeout;
                continue;
            }
            Attempt::Up => (ProbeResult::Pass, Reason::NoFailures, "", (!tcp).then_some(200)),
            Attempt::Refused => fail(Reason::TcpConnectionFailed, "connect_refused"),
            Attempt::Reset => fail(Reason::ConnectionReset, "connection_reset"),
            Attempt::Code(code) => {
                (ProbeResult::Fail, Reason::ResponseCodeMismatch, "unexpected_status", Some(code))
            }
            Attempt::Error => (ProbeResult::Error, Reason::NetworkUnreachable, "network_unreachable", None),
        };
        return Outcome { status, took: took + QUICK, ..Outcome::new(result, reason, detail) };
    }
    let reason = if tcp { Reason::TcpTimeout } else { Reason::HttpTimeout };
    Outcome { took, ..Outcome::new(ProbeResult::Fail, reason, "timeout") }
}

/// What the monitor makes of it: an inverted one passes what fails.
fn read(found: Outcome, task: &ProbeTask) -> Outcome {
    match found.result {
        ProbeResult::Pass if task.monitor.reading.invert => {
            Outcome { result: ProbeResult::Fail, reason: Reason::Inverted, detail: "inverted", ..found }
        }
        ProbeResult::Fail if task.monitor.reading.invert => Outcome { result: ProbeResult::Pass, ..found },
        _ => found,
    }
}

/// A name as a scenario writes it.
pub fn name_in_words(name: &Name) -> String {
    name.to_string().trim_end_matches('.').to_owned()
}

/// Where an endpoint stands, in words.
fn stands(standing: &Standing) -> String {
    let marks = [
        (standing.stale, "stale"),
        (standing.starting, "starting"),
        (standing.flapping, "flapping"),
        (standing.degraded.is_some(), "degraded"),
    ];
    let marks = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark);
    std::iter::once(standing.word()).chain(marks).collect::<Vec<_>>().join(" ")
}

/// A change on one line.
fn in_words(change: &Change) -> String {
    match change {
        Change::Verdict { scope, monitor, vantage, from, to, reason, .. } => {
            format!("endpoint {scope} by {monitor} from {vantage}: {from} -> {to}, {reason}")
        }
        Change::Endpoint { scope, from, to, cause, .. } => {
            format!("endpoint {scope}: {} -> {}, {}", stands(from), stands(to), cause.reason())
        }
        Change::Gone { scope, from, reason, .. } => {
            format!("endpoint {scope}: {} -> gone, {reason}", stands(from))
        }
        Change::CannotProbe { scope, reason, .. } => {
            format!("endpoint {scope}: cannot be probed, {reason}")
        }
        Change::Vantage { vantage, suspect } => format!("vantage {vantage}: suspect {suspect}"),
        Change::Pool { pool, from, to, .. } => {
            format!("pool {pool}: {from} -> {}, {} of {} healthy", to.state, to.healthy, to.enabled)
        }
        Change::Balancer { name, from, to, serving, fallback, .. } => {
            let pools = match &serving[..] {
                [] => "nothing".to_owned(),
                pools => pools.join(" and "),
            };
            let how = if *fallback { " as fallback" } else { "" };
            let name = name_in_words(name);
            format!("load balancer {name}: {from} -> {to}, {pools}{how}")
        }
        Change::Records { name, rtype, from, to, .. } => {
            format!("records {} {}: {from} -> {to}", name_in_words(name), type_name(*rtype))
        }
    }
}
