//! Requests in the engine's terms, and what follows in words.

use std::sync::Arc;
use std::time::Duration;

use crate::authority::{BalancerState, Held};
use crate::config::{self, nearest, show_duration};
use crate::control::view::{time, time_up};
use crate::control::{Done, Refusal, What};
use crate::engine::{Engine, TakenBack};
use crate::health::{
    Action, DownCause, Fitness, Order, OutCause, Override, PoolState, ProbeTask, Seen, Slot, Standing, Table,
    Target, Verdict,
};
use crate::model::{Check, Ejection, Model, Name, RecordSet, Scope, Weight, names_host};
use crate::moment::Moment;
use crate::rdata;

/// An override lasts no longer than this when it is to end by itself.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 86400);

/// The kind of refusal when an endpoint's host name has no address.
pub(super) const UNRESOLVED: &str = "unresolved_endpoint";

/// What `text` would name, be it there or not.
pub(super) fn scope_as_written(text: &str) -> Scope {
    match text.split_once('/') {
        Some((pool, endpoint)) => Scope { pool: pool.into(), endpoint: Some(endpoint.into()) },
        None => Scope { pool: text.into(), endpoint: None },
    }
}

/// The pool or endpoint that `text` names.
pub(super) fn scope(model: &Model, text: &str) -> Result<Scope, Refusal> {
    let scope = scope_as_written(text);
    let pool = &scope.pool;
    let Some(id) = model.pool_named(pool) else {
        let help = meant(pool, model.pools.iter().map(|pool| &*pool.name));
        return Err(Refusal::new("unknown_pool", format!("there is no pool `{pool}`{help}")));
    };
    let declared = model.pool(id);
    let Some(endpoint) = &scope.endpoint else { return Ok(scope) };
    // all addresses of a host name are called by its own name
    if declared.endpoints.iter().any(|other| other.is_called(endpoint)) {
        return Ok(scope);
    }
    if let Some(host) = declared.hosts.iter().find(|host| names_host(endpoint, &host.endpoint.name)) {
        let others: Vec<&str> = (declared.endpoints.iter())
            .filter(|other| other.is_called(&host.endpoint.name))
            .map(|other| &*other.name)
            .collect();
        if !others.is_empty() {
            let why = format!(
                "pool {pool} has no endpoint `{endpoint}`: its host name {} hasn't this address now, but: {}",
                host.hostname,
                others.join(", ")
            );
            return Err(Refusal::new("unknown_endpoint", why));
        }
        let why = format!(
            "endpoint `{endpoint}` of pool {pool} has no address now: its host name {} isn't resolved, and \
             `hale status {text}` says why",
            host.hostname
        );
        return Err(Refusal::new(UNRESOLVED, why));
    }
    let names = declared.endpoints.iter().map(|other| &*other.name);
    let help = meant(endpoint, names.chain(declared.hosts.iter().map(|host| &*host.endpoint.name)));
    Err(Refusal::new("unknown_endpoint", format!("pool {pool} has no endpoint `{endpoint}`{help}")))
}

/// What a status was asked for, and is neither a pool, an endpoint, nor a name
/// that follows health.
pub(super) fn unknown_name(model: &Model, text: &str, name: Option<&Name>) -> Refusal {
    let refused = |message| Refusal::new("unknown_pool", message);
    let is_served = |name: &&Name| model.zones.iter().any(|zone| name.is_within(&zone.apex));
    if name.filter(is_served).is_some() {
        return refused(format!(
            "`{text}` is neither a load balancer nor has it records that follow health: a status is of a pool, \
             an endpoint (POOL/ENDPOINT), or the full name of one of these"
        ));
    }
    let names = model.zones.iter().flat_map(|zone| &zone.load_balancers).map(|it| it.name.to_string());
    let names: Vec<String> = names.collect();
    let begins = |full: &&String| full.strip_prefix(text).is_some_and(|rest| rest.starts_with('.'));
    if let Some(full) = names.iter().find(begins) {
        return refused(format!("there is no pool `{text}`; did you mean the load balancer `{full}`?"));
    }
    let pool = scope_as_written(text).pool;
    let help = meant(&pool, model.pools.iter().map(|pool| &*pool.name));
    refused(format!("there is no pool `{pool}`{help}"))
}

/// What to write instead: the name most like it, or all if they are few.
fn meant<'a>(word: &str, names: impl Iterator<Item = &'a str> + Clone) -> String {
    const FEW: usize = 8;
    if let Some(near) = nearest(word, names.clone()) {
        return format!("; did you mean `{near}`?");
    }
    let first: Vec<&str> = names.take(FEW + 1).collect();
    match first.len() {
        0 => String::new(),
        length if length > FEW => "; `hale status` shows all".to_owned(),
        _ => format!("; there are: {}", first.join(", ")),
    }
}

fn endpoint_scope(model: &Model, text: &str) -> Result<Scope, Refusal> {
    let scope = scope(model, text)?;
    if scope.endpoint.is_none() {
        let names =
            model.pools.iter().filter(|pool| pool.name == scope.pool).flat_map(|pool| &pool.endpoints);
        let example = names.map(|endpoint| &*endpoint.name).next().unwrap_or("NAME");
        let why = format!("this is about one endpoint: write POOL/ENDPOINT, such as {text}/{example}");
        return Err(Refusal::new("not_an_endpoint", why));
    }
    Ok(scope)
}

/// What stands beside an order.
pub(super) struct Saying {
    pub weight: Option<f64>,
    pub reason: Arc<str>,
    pub by: Arc<str>,
    pub limit: Option<Duration>,
}

/// The weight of an order that is about one.
fn weight_of(what: What, weight: Option<f64>) -> Result<Weight, Refusal> {
    let refused = |why| Err(Refusal::new("bad_request", why));
    match (what, weight) {
        (What::Weight, Some(number)) => {
            let text = number.to_string();
            match config::weight(&text) {
                Some(hundredths) => Ok(Weight(hundredths)),
                None => refused(format!("`{text}` is not a weight: {}", config::weight_help(&text))),
            }
        }
        (What::Weight, None) => {
            refused("an order of weight has a `weight`, a number from 0 to 1 in hundredths".to_owned())
        }
        (_, Some(_)) => refused("`weight` belongs to orders of weight: leave it out".to_owned()),
        (_, None) => Ok(Weight(100)), // nobody asks for it
    }
}

/// Says something over the verdicts, or takes it back.
pub(super) fn order(
    engine: &mut Engine,
    what: What,
    of: &str,
    saying: &Saying,
    now: Moment,
) -> Result<Done, Refusal> {
    let limit = saying.limit;
    if limit.is_some_and(|limit| limit.is_zero()) {
        let why = "an order for no time at all does nothing: `for_ms` is 1 or more, or left out".to_owned();
        return Err(Refusal::new("bad_request", why));
    }
    let scope = match what {
        What::Healthy | What::Unhealthy | What::Weight | What::Measured => {
            endpoint_scope(engine.model(), of)?
        }
        What::Drain | What::Undrain | What::Enable | What::Disable => scope(engine.model(), of)?,
    };
    let weight = weight_of(what, saying.weight)?;
    let said = |slot| engine.table().overrides().get(&scope, slot, now).map(|said| said.action);
    let set = |action| vec![order_of(action, saying, now)];
    let forced = Slot::FORCED.into_iter().filter(|slot| said(*slot).is_some());
    let orders = match (what, said(Slot::Traffic)) {
        (What::Drain, _) => set(Action::Drain),
        // what is said as it is configured leaves no override
        (What::Disable, Some(_)) if declared_off(engine.model(), &scope) => {
            vec![Order::Clear(Slot::Traffic)]
        }
        (What::Disable, None) if declared_off(engine.model(), &scope) => Vec::new(),
        (What::Disable, _) => set(Action::Disable),
        (What::Enable, _) if declared_off(engine.model(), &scope) => set(Action::Enable),
        (What::Enable, Some(_)) => vec![Order::Clear(Slot::Traffic)],
        (What::Enable, None) => Vec::new(),
        (What::Undrain, Some(Action::Drain)) => vec![Order::Clear(Slot::Traffic)],
        (What::Undrain, Some(Action::Disable)) => {
            let why = format!("{scope} isn't drained, it is disabled; `hale enable {scope}` takes that back");
            return Err(Refusal::new("not_drained", why));
        }
        (What::Undrain, _) => Vec::new(),
        (What::Healthy, _) => set(Action::Healthy),
        (What::Unhealthy, _) => set(Action::Unhealthy),
        (What::Weight, _) => set(Action::Weight(weight)),
        (What::Measured, _) => forced.map(Order::Clear).collect(),
    };
    let slots: Vec<Slot> = orders.iter().map(Order::slot).collect();
    let Some(slot) = slots.first().copied() else {
        let message = match what {
            What::Enable => format!("{scope} is enabled already"),
            What::Disable => format!("{scope} is disabled already, in the configuration"),
            What::Undrain => format!("{scope} isn't drained"),
            _ => format!("nothing was said of the health or the weight of {scope}"),
        };
        return Ok(Done { message, notes: switched_off_notes(engine, &scope, now), ..Done::default() });
    };
    let taken_back = matches!(orders[0], Order::Clear(_));
    let before = Picture::of(engine);
    for order in orders {
        let who = || TakenBack { by: Arc::clone(&saying.by), reason: Arc::clone(&saying.reason) };
        let done = match order {
            Order::Clear(slot) => engine.take_back(&scope, slot, who(), now),
            order => engine.order(&scope, order, now),
        };
        done.expect("the scope was found just now");
    }
    let said = engine.table().overrides().get(&scope, slot, now).cloned();
    let message = match what {
        What::Measured => taken_back_message(&slots, &scope),
        _ => message(engine, what, &scope, said.as_ref()),
    };
    let mut done = Done { message, ..Done::default() };
    if let Some(said) = &said {
        done.until = said.until.map(time);
        done.drained_at = (said.action == Action::Drain).then(|| time_up(said.drained_at));
        done.notes.push(match said.until {
            Some(until) => format!("it ends by itself at {}, in {}", time(until), show(until.since(now))),
            None => format!("it holds until it is taken back: {}", way_back(what, &scope)),
        });
        if said.action == Action::Drain && said.until.is_some_and(|until| until < said.drained_at) {
            done.notes
                .push("that is before it is drained: clients may have its address until then".to_owned());
        }
    } else if taken_back && limit.is_some() {
        done.notes.push("what was said before is taken back for good; --for has nothing to end".to_owned());
    }
    done.notes.extend(switched_off_notes(engine, &scope, now));
    done.notes.extend(slow_start_note(engine, what, &scope));
    done.notes.extend(before.changes(engine));
    Ok(done)
}

fn order_of(action: Action, saying: &Saying, now: Moment) -> Order {
    let until = saying.limit.map(|limit| now + limit.min(LONGEST));
    Order::Set { action, reason: Arc::clone(&saying.reason), by: Arc::clone(&saying.by), until }
}

fn show(time: Duration) -> String {
    // to the second, but for what is shorter than that
    let whole = Duration::from_secs(time.as_millis().div_ceil(1000) as u64);
    show_duration(if time < Duration::from_secs(1) { time } else { whole })
}

fn way_back(what: What, scope: &Scope) -> String {
    match what {
        What::Drain => format!("`hale undrain {scope}`"),
        What::Disable => format!("`hale enable {scope}`"),
        What::Enable => format!("`hale disable {scope}`"),
        _ => format!("`hale override {scope} off`"),
    }
}

fn message(engine: &Engine, what: What, scope: &Scope, said: Option<&Override>) -> String {
    match (what, said) {
        (What::Drain, Some(said)) => {
            let pool = engine.model().pool_named(&scope.pool).map(|id| engine.model().pool(id));
            let wait = pool.map_or(Duration::ZERO, |pool| pool.rules.drain_wait);
            let all = said.drained_at.since(said.since);
            let ttl = all.saturating_sub(wait);
            let wait = if wait.is_zero() { String::new() } else { format!(" + {} drain_wait", show(wait)) };
            format!(
                "{scope} is out of the answers from now on; drained at {}, when no client can have its \
                 address any more: {} TTL{wait}",
                time_up(said.drained_at),
                show(ttl)
            )
        }
        (What::Disable, None) => format!("{scope} is disabled again, as configured"),
        (What::Disable, Some(_)) if is_probed(engine, scope) => {
            format!("{scope} is disabled; it is probed all the same")
        }
        (What::Disable, Some(_)) => format!("{scope} is disabled"),
        (What::Enable, Some(_)) if is_probed(engine, scope) => format!(
            "{scope} is enabled over the configuration; it serves as soon as its first probe has passed"
        ),
        (What::Enable, Some(_)) => format!("{scope} is enabled over the configuration"),
        (What::Enable, None) => format!("{scope} is enabled again"),
        (What::Undrain, _) => format!("{scope} is no longer drained"),
        (What::Healthy, _) => format!("{scope} is healthy by your word, whatever probes say"),
        (What::Unhealthy, _) => format!("{scope} is unhealthy by your word, whatever probes say"),
        (What::Weight, said) => {
            let weight = said.map(|said| said.action.to_string()).unwrap_or_default();
            format!("{scope} has {weight} by your word, whatever the configuration says")
        }
        (What::Measured | What::Drain, _) => format!("{scope} is as measured"),
    }
}

/// What of an endpoint is as it was, now that these were taken back.
fn taken_back_message(slots: &[Slot], scope: &Scope) -> String {
    let parts: Vec<String> = (slots.iter())
        .map(|slot| match slot {
            Slot::Health => format!("the health of {scope} is again what probes say"),
            Slot::Weight => format!("the weight of {scope} is again the configured one"),
            Slot::Traffic => format!("{scope} is neither drained nor switched"),
        })
        .collect();
    parts.join("; ")
}

/// Whether anything tests any of it.
fn is_probed(engine: &Engine, scope: &Scope) -> bool {
    let table = engine.table();
    table.places_of(scope).into_iter().any(|(id, place)| table.targets_of(id, place).next().is_some())
}

/// Whether the configuration itself has it switched off.
fn declared_off(model: &Model, scope: &Scope) -> bool {
    let Some(pool) = model.pool_named(&scope.pool).map(|id| model.pool(id)) else { return false };
    match &scope.endpoint {
        None => !pool.enabled,
        Some(name) => pool.endpoints.iter().any(|endpoint| endpoint.is_called(name) && !endpoint.enabled),
    }
}

/// What else keeps it out of answers.
fn switched_off_notes(engine: &Engine, scope: &Scope, now: Moment) -> Vec<String> {
    let model = engine.model();
    let Some(id) = model.pool_named(&scope.pool) else { return Vec::new() };
    let mut notes = Vec::new();
    let whole = Scope { pool: Arc::clone(&scope.pool), endpoint: None };
    if scope.endpoint.is_some() && !engine.table().is_enabled(id, now) {
        notes.push(format!("pool {whole} as a whole is disabled"));
    } else if scope.endpoint.is_some()
        && engine
            .table()
            .overrides()
            .get(&whole, Slot::Traffic, now)
            .is_some_and(|said| said.action == Action::Drain)
    {
        notes.push(format!("pool {whole} as a whole is drained"));
    }
    if let Ok((id, place)) = engine.table().place_of(scope)
        && let Fitness::Out(cause) = engine.table().standings(id)[place].fitness
    {
        match cause {
            OutCause::Maintenance => notes.push("a maintenance window holds".to_owned()),
            OutCause::AgentDrain | OutCause::AgentMaint => {
                notes.push("its own agent wants it out".to_owned())
            }
            OutCause::Disabled | OutCause::Draining | OutCause::Drained => {}
        }
    }
    notes
}

/// What comes back begins with a small share.
fn slow_start_note(engine: &Engine, what: What, scope: &Scope) -> Option<String> {
    if !matches!(what, What::Undrain | What::Enable | What::Measured | What::Healthy) {
        return None;
    }
    let model = engine.model();
    let time = model.pool(model.pool_named(&scope.pool)?).rules.slow_start;
    (!time.is_zero()).then(|| {
        format!(
            "slow_start: what comes back begins with a tenth of its share and has all of it after {}",
            show(time)
        )
    })
}

/// How pools and load balancers stand, to tell what an order moves.
struct Picture {
    pools: Vec<PoolState>,
    balancers: Vec<(BalancerState, String)>,
    records: Vec<Held>,
}

impl Picture {
    fn of(engine: &Engine) -> Picture {
        let status = engine.status_without_pools(Moment::ZERO);
        let pools = 0..engine.model().pools.len() as u32;
        Picture {
            pools: pools.map(|id| engine.compiled().pool(crate::model::PoolId(id)).state).collect(),
            balancers: status
                .balancers
                .iter()
                .map(|balancer| (balancer.state, balancer.serving.join(", ")))
                .collect(),
            records: engine.compiled().following().map(|(_, held)| held.clone()).collect(),
        }
    }

    /// What is different by now, in words.
    fn changes(self, engine: &Engine) -> Vec<String> {
        let after = Picture::of(engine);
        let mut changes = Vec::new();
        let pools = engine.model().pools.iter().zip(self.pools.iter().zip(&after.pools));
        for (pool, (_, now)) in pools.filter(|(_, (before, now))| before != now) {
            changes.push(format!("pool {} is {now}", pool.name));
        }
        let status = engine.status_without_pools(Moment::ZERO);
        let balancers = status.balancers.iter().zip(self.balancers.iter().zip(&after.balancers));
        for (balancer, _) in balancers.filter(|(_, (before, now))| before != now) {
            let from = match (balancer.serving.is_empty(), balancer.fallback) {
                (true, _) => "answers with the SOA alone".to_owned(),
                (false, true) => format!("at its fallback pool {}", balancer.serving.join(", ")),
                (false, false) => format!("answers from {}", balancer.serving.join(", ")),
            };
            changes.push(format!("load balancer {} is {}, {from}", balancer.name, balancer.state));
        }
        let records = engine.compiled().following().zip(&self.records);
        for ((set, held), _) in records.filter(|((_, now), before)| now != before) {
            changes.push(records_note(set, held));
        }
        changes
    }
}

/// What of an RRset that follows health is answered now.
fn records_note(set: &RecordSet, held: &Held) -> String {
    const FEW: usize = 5;
    let first: Vec<String> =
        held.members.rdata().take(FEW).map(|rdata| rdata::show(set.rtype, rdata)).collect();
    let more = match held.members.count() - first.len() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let why = match (held.at_fallback, held.members.count()) {
        (false, _) => "",
        (true, 1) => ", which doesn't have what it needs either",
        (true, _) => ", none of which has what it needs",
    };
    let (owner, rtype) = (&set.owner, rdata::type_name(set.rtype));
    format!("records {owner} {rtype} are answered with {}{more}{why}", first.join(", "))
}

/// Sends a load balancer's traffic back to its first pools.
pub(super) fn fail_back(engine: &mut Engine, text: &str, now: Moment) -> Result<Done, Refusal> {
    let model = Arc::clone(engine.model());
    let names = || model.zones.iter().flat_map(|zone| &zone.load_balancers).map(|balancer| &balancer.name);
    let asked = text.parse::<Name>().ok();
    let Some(name) = names().find(|name| Some(*name) == asked.as_ref()).cloned() else {
        let shown: Vec<String> = names().map(|name| name.to_string()).collect();
        let begun =
            shown.iter().find(|name| name.strip_prefix(text).is_some_and(|rest| rest.starts_with('.')));
        let help = match begun {
            Some(begun) => format!("; did you mean `{begun}`?"),
            None => meant(text, shown.iter().map(String::as_str)),
        };
        let why = format!("there is no load balancer `{text}`{help}");
        return Err(Refusal::new("unknown_load_balancer", why));
    };
    let before = Picture::of(engine);
    engine.fail_back(&name, now);
    let notes = before.changes(engine);
    let message = match notes.is_empty() {
        true => format!("{name} stays where it is: it has nothing to go back to"),
        false => format!("{name} goes back"),
    };
    Ok(Done { message, notes, ..Done::default() })
}

/// An endpoint reports by itself.
pub(super) fn push(engine: &mut Engine, of: &str, up: bool, now: Moment) -> Result<Done, Refusal> {
    let scope = endpoint_scope(engine.model(), of)?;
    let (id, place) = engine.table().place_of(&scope).expect("the scope was found just now");
    let is_push = |target: &Target| target.task.monitor.check == Check::Push;
    if !engine.table().targets_of(id, place).any(|(_, target)| is_push(target)) {
        let why = format!(
            "no monitor of {scope} takes reports; one of `type: push` does, while the endpoint is enabled"
        );
        return Err(Refusal::new("no_push_monitor", why));
    }
    let before = Picture::of(engine);
    engine.push(&scope, up, now).expect("the scope was found just now");
    let message = format!("{scope} reports {}", if up { "up" } else { "down" });
    let targets = engine.table().targets_of(id, place);
    let mut notes: Vec<String> = targets
        .filter(|(_, target)| is_push(target))
        .filter_map(|(_, target)| run_note(target, up))
        .collect();
    notes.dedup();
    notes.extend(before.changes(engine));
    Ok(Done { message, notes, ..Done::default() })
}

/// How far the run is that would turn a verdict.
fn run_note(target: &Target, up: bool) -> Option<String> {
    let (monitor, machine) = (&target.task.monitor, target.machine());
    let (wanted, due) = match up {
        true => (Verdict::Healthy, monitor.thresholds.up),
        false => (Verdict::Unhealthy, monitor.thresholds.down),
    };
    let (_, length) = machine.run().filter(|(pass, _)| *pass == up)?;
    (machine.verdict() != wanted)
        .then(|| format!("it stays {} by {}: {length} of {due} in a row", machine.verdict(), monitor.name))
}

/// Somebody reports outcomes of real traffic.
pub(super) fn traffic(engine: &mut Engine, of: &str, seen: Seen, now: Moment) -> Result<Done, Refusal> {
    let scope = endpoint_scope(engine.model(), of)?;
    let (id, place) = engine.table().place_of(&scope).expect("the scope was found just now");
    let Some(ejection) = engine.model().pool(id).rules.ejection else {
        let why = format!(
            "pool {} has no rules for ejecting endpoints by their traffic; `ejection` on the pool has some",
            scope.pool
        );
        return Err(Refusal::new("no_ejection", why));
    };
    let before = Picture::of(engine);
    engine.traffic(&scope, seen, now).expect("the scope was found just now");
    let standings = engine.table().standings(id);
    let fitness = standings[place].fitness;
    let message = format!("{} good and {} failed at {scope}, which is {fitness}", seen.ok, seen.failed);
    let mut notes = Vec::new();
    if seen.failed > 0 && fitness != Fitness::Down(DownCause::Ejected) {
        let ejected = |standing: &&Standing| standing.fitness == Fitness::Down(DownCause::Ejected);
        let out = standings.iter().filter(ejected).count();
        notes.push(not_ejected(&ejection, seen, out, standings.len()));
    }
    notes.extend(before.changes(engine));
    Ok(Done { message, notes, ..Done::default() })
}

/// Why a report with failures ejects nothing, as far as it can be seen.
fn not_ejected(rules: &Ejection, seen: Seen, out: usize, of: usize) -> String {
    let all = seen.ok.saturating_add(seen.failed);
    let run = rules.consecutive_failures.map(|limit| {
        let broken = if seen.ok > 0 { ", and a success ends the run" } else { "" };
        format!("`consecutive_failures` is {limit}{broken}")
    });
    let share = rules.failure_percentage.map(|percent| match all < rules.minimum_requests {
        true => format!("a percentage is taken of {} requests or more", rules.minimum_requests),
        false => format!("`failure_percentage` is {percent}"),
    });
    let met = rules.consecutive_failures.is_some_and(|limit| seen.ok == 0 && seen.failed >= limit)
        || rules.failure_percentage.is_some_and(|percent| {
            all >= rules.minimum_requests
                && u64::from(seen.failed) * 100 > u64::from(all) * u64::from(percent)
        });
    match met {
        true => format!(
            "not ejected: {out} of {of} endpoints are, and `max_ejection_percent` is {}",
            rules.max_ejection_percent
        ),
        false => {
            let why: Vec<String> = run.into_iter().chain(share).collect();
            format!(
                "not ejected: {}",
                if why.is_empty() { "both rules are off".into() } else { why.join("; ") }
            )
        }
    }
}

/// The probes of a pool or an endpoint that are made from here.
pub(super) fn tasks(table: &Table, of: &str) -> Result<Vec<Arc<ProbeTask>>, Refusal> {
    let model = table.model();
    let scope = scope(model, of)?;
    let id = model.pool_named(&scope.pool).expect("found just now");
    let pool = model.pool(id);
    let places = pool.endpoints.iter().enumerate();
    let wanted =
        places.filter(|(_, endpoint)| scope.endpoint.as_ref().is_none_or(|name| endpoint.is_called(name)));
    let targets = wanted.flat_map(|(place, _)| table.targets_of(id, place)).map(|(_, target)| &target.task);
    let tasks: Vec<_> = targets.filter(|task| task.monitor.check.is_probed()).map(Arc::clone).collect();
    if tasks.is_empty() {
        let by_itself = pool.tests.members.iter().map(|member| model.monitor(member.monitor));
        let by_itself = by_itself.clone().count() > 0 && by_itself.clone().all(|it| it.check == Check::Push);
        let why = match pool.is_monitored() {
            _ if by_itself => format!(
                "there is nothing to probe at {scope}: its monitor is of type push, it reports by itself"
            ),
            false => format!("no monitor tests pool {}", pool.name),
            true => format!(
                "there is nothing to probe at {scope}: it is disabled, its address isn't known, or its \
                 monitors make no probes from here"
            ),
        };
        return Err(Refusal::new("nothing_to_probe", why));
    }
    Ok(tasks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ejects_nothing_says_why() {
        let rules = Ejection {
            consecutive_failures: Some(5),
            failure_percentage: Some(50),
            minimum_requests: 20,
            ejection_time: Duration::from_secs(30),
            max_ejection_time: Duration::from_secs(300),
            max_ejection_percent: 10,
        };
        for (ok, failed, told) in [
            (0, 2, "`consecutive_failures` is 5; a percentage is taken of 20 requests or more"),
            (1, 9, "a success ends the run; a percentage"),
            (90, 10, "`failure_percentage` is 50"),
            (0, 5, "1 of 3 endpoints are, and `max_ejection_percent` is 10"),
        ] {
            let why = not_ejected(&rules, Seen { ok, failed }, 1, 3);
            assert!(why.contains(told), "{ok}, {failed}: {why}");
        }
    }
}
