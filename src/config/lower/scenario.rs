//! From the shape of a scenario to a script.
//!
//! Names are looked up in the configuration that is in force at their step.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::super::file::Kind;
use super::super::place::{Gather, Place, Spot};
use super::super::problem::{Problem, ProblemKind};
use super::super::reader::{Field, Named, OneOrMany, Scalar, brief};
use super::super::scenario::{Scenario, Step};
use super::super::{Loaded, value, words};
use super::{Lower, beside};
use crate::authority::BalancerState;
use crate::engine::Lookup;
use crate::health::{Action, PoolState, Slot};
use crate::model::{LoadBalancer, Model, Name, Pool, Scope, Weight};
use crate::moment::Moment;
use crate::simulate::script::{self, Deed, Expected, Manner, Script, Seen, Setup, Subject, Want};

/// Where scenarios begin that don't say when: a Thursday, 1 January 2026.
const START: u64 = 1_767_225_600;

/// What a lookup finds holds for so long.
const HOST_TTL: Duration = Duration::from_secs(30);

const DAY: Duration = Duration::from_secs(24 * 3600);
const A_MILLISECOND: Duration = Duration::from_millis(1);

const MANNERS: [&str; 8] =
    ["up", "refused", "hang", "reset", "error", "slow TIME", "flap TIME", "a status code"];
const USUAL_MANNER: &str =
    "write `up`, `refused`, `hang`, `reset`, `error`, `slow 900ms`, `flap 5s` or a status code such as `503`";
const USUAL_SUBJECT: &str = "write `POOL/ENDPOINT`, `POOL`, an address or `default`; `by MONITOR` or `from VANTAGE` \
                             behind it for what only that one sees";
const USUAL_WANT: &str = "write `www.example.com A`, `www.example.com`, `POOL` or `POOL/ENDPOINT`";

/// Reads a configuration for a scenario.
pub type Load<'a> = dyn Fn(&[PathBuf]) -> Result<Loaded, Vec<Problem>> + 'a;

/// Makes the script of a scenario; `given` replaces its own configuration.
/// Problems of the configurations it names are those of their own files.
pub fn lower(
    shape: &Field<Scenario>,
    gather: &Gather,
    given: &[PathBuf],
    load: &Load<'_>,
) -> Result<Script, Vec<Problem>> {
    let lower = Lower {
        gather,
        whole: true,
        allow_exec: false,
        guesses: Default::default(),
        followed: Default::default(),
    };
    let Field::Given(place, shape) = shape else { return Err(Vec::new()) };
    let mut elsewhere = Vec::new();
    let mut read = |paths: &[PathBuf]| match load(paths) {
        Ok(loaded) => Some(setup(paths, loaded)),
        Err(problems) => {
            elsewhere.extend(problems);
            None
        }
    };
    let paths = match given {
        [] => {
            if shape.config.is_absent() {
                let help =
                    "write `config: zones`, a file or directory beside this file, or give `--config PATH`";
                lower.missing(*place, "a scenario", "config", help);
            }
            lower.paths(&shape.config)
        }
        given => given.to_vec(),
    };
    let first = if paths.is_empty() { None } else { read(&paths) };
    let script = lower.script(*place, shape, first, &mut read);
    match script {
        Some(script) if elsewhere.is_empty() && !gather.has_errors() => Ok(script),
        _ => Err(elsewhere),
    }
}

fn setup(paths: &[PathBuf], loaded: Loaded) -> Setup {
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let settings = &loaded.settings;
    Setup {
        name: names.join(", "),
        model: loaded.model,
        startup_wait: settings.startup_wait,
        max_probes: settings.max_probes,
        remembers: settings.state_dir.as_ref().map(|_| settings.state_max_age),
    }
}

type Read<'a> = dyn FnMut(&[PathBuf]) -> Option<Setup> + 'a;

impl Lower<'_> {
    fn script(
        &self,
        place: Place,
        shape: &Scenario,
        first: Option<Setup>,
        read: &mut Read<'_>,
    ) -> Option<Script> {
        let title = self.text(&shape.title).map(|(text, _)| text.to_owned());
        let start = match self.text(&shape.start) {
            None => START,
            Some((text, place)) => value::time(text).unwrap_or_else(|help| {
                let kind = ProblemKind::NotTime { value: brief(text) };
                self.gather.refuse(Spot::Value(place), kind, Some(help));
                START
            }),
        };
        let run_on = shape.r#for.get().map(|_| self.duration(&shape.r#for, Duration::ZERO..=30 * DAY, DAY));
        // without its configuration nothing in it can be looked up
        let setup = first?;
        let mut model = Arc::clone(&setup.model);
        let mut begin = Vec::new();
        self.behaviours(&shape.endpoints, &model, &mut begin);
        self.lookups(&shape.hosts, &mut begin);
        self.uplinks(&shape.vantages, &model, &mut begin);
        let mut hosts: Vec<Arc<str>> = Vec::new();
        let said = !matches!(shape.hosts, Field::Broken(_));
        if said {
            self.every_host(place, &model, &begin, &mut hosts);
        }
        let mut steps: Vec<script::Step> = Vec::new();
        let given = shape.steps.get().map(|steps| &steps[..]).unwrap_or_default();
        for field in given {
            let Field::Given(place, step) = field else { continue };
            let before = steps.last().map_or(Duration::ZERO, |step| step.at);
            let at = self.at(*place, step, before);
            let mut deeds = Vec::new();
            if !step.reload.is_absent() {
                let paths = self.paths(&step.reload);
                if let Some(setup) = (!paths.is_empty()).then(|| read(&paths)).flatten() {
                    model = Arc::clone(&setup.model);
                    deeds.push(Deed::Reload(setup));
                }
            }
            self.behaviours(&step.endpoints, &model, &mut deeds);
            self.known_hosts(&step.hosts, &[&model]);
            self.lookups(&step.hosts, &mut deeds);
            self.uplinks(&step.vantages, &model, &mut deeds);
            if said && !step.reload.is_absent() {
                let all: Vec<Deed> = begin
                    .iter()
                    .chain(steps.iter().flat_map(|step| &step.deeds))
                    .chain(&deeds)
                    .cloned()
                    .collect();
                self.every_host(*place, &model, &all, &mut hosts);
            }
            self.orders(step, &model, &mut deeds);
            self.restart(&step.restart, &mut deeds);
            let expected = self.expected(&step.expect, &model);
            let idle = deeds.is_empty() && expected.is_empty() && step.reload.is_absent();
            if idle && !self.gather.has_errors() {
                let help = "write what happens, such as `endpoints: { eu/eu-1: hang }`, or what to `expect`";
                self.gather.refuse(Spot::Value(*place), ProblemKind::EmptyStep {}, Some(help.into()));
            }
            steps.push(script::Step { at, deeds, expected });
        }
        let later = steps.iter().flat_map(|step| &step.deeds).filter_map(|deed| match deed {
            Deed::Reload(setup) => Some(&setup.model),
            _ => None,
        });
        self.known_hosts(&shape.hosts, &std::iter::once(&setup.model).chain(later).collect::<Vec<_>>());
        Some(Script {
            title,
            setup,
            start: Moment::from_start(Duration::from_secs(start)),
            begin,
            steps,
            run_on,
        })
    }

    /// Files and directories, from the directory of the scenario.
    fn paths(&self, field: &Field<OneOrMany<Scalar>>) -> Vec<PathBuf> {
        let Field::Given(place, list) = field else { return Vec::new() };
        if list.0.is_empty() {
            self.empty_list(*place, "name a file or a directory");
        }
        let texts = list.0.iter().filter_map(|item| self.text(item));
        texts.map(|(text, place)| beside(self.gather, place, text)).collect()
    }

    /// When a step happens.
    fn at(&self, place: Place, step: &Step, before: Duration) -> Duration {
        self.either(&step.at, &step.after);
        if step.at.is_absent() && step.after.is_absent() {
            let help =
                "write when it happens: `at: 30s` since the beginning, or `after: 30s` since the step before";
            self.missing(place, "a step", "at` or `after", help);
        }
        if step.at.is_absent() {
            return before + self.duration(&step.after, Duration::ZERO..=30 * DAY, Duration::ZERO);
        }
        let at = self.duration(&step.at, Duration::ZERO..=30 * DAY, before);
        if let (true, Some(place)) = (at < before, step.at.place()) {
            let kind = ProblemKind::StepsBackwards { at: value::show(at), before: value::show(before) };
            let help =
                "put the steps into the order of time, or write `after` for the time since the step before";
            self.gather.refuse(Spot::Value(place), kind, Some(help.into()));
        }
        at.max(before)
    }

    fn behaviours(&self, field: &Field<Named<Scalar>>, model: &Model, deeds: &mut Vec<Deed>) {
        for (key, field) in field.get().map(|named| &named.0[..]).unwrap_or_default() {
            let Field::Given(place, scalar) = field else { continue };
            let meant = self.subject(key, *place, model);
            let manner = self.manner(scalar, *place);
            if let (Some((whose, seen)), Some(manner)) = (meant, manner) {
                deeds.push(Deed::Behave { whose, seen, manner });
            }
        }
    }

    fn subject(&self, key: &str, place: Place, model: &Model) -> Option<(Subject, Seen)> {
        let parts: Vec<&str> = key.split(' ').filter(|part| !part.is_empty()).collect();
        let (name, seen) = match parts[..] {
            [name] => (name, Seen::Everybody),
            [name, "by", monitor] => {
                let names: Vec<&str> = model.monitors.iter().map(|monitor| &*monitor.name).collect();
                if !names.contains(&monitor) {
                    let kind = ProblemKind::NoSuchMonitor { name: brief(monitor) };
                    self.gather.refuse(Spot::Key(place), kind, self.one_of(monitor, &names));
                    return None;
                }
                (name, Seen::By(monitor.into()))
            }
            [name, "from", vantage] => {
                self.known_vantage(vantage, place, model)?;
                (name, Seen::From(vantage.into()))
            }
            _ => {
                let kind = ProblemKind::NotSubject { value: brief(key) };
                self.gather.refuse(Spot::Key(place), kind, Some(USUAL_SUBJECT.into()));
                return None;
            }
        };
        let subject = match name.parse::<IpAddr>() {
            _ if name == "default" => Subject::Default,
            Ok(address) => Subject::Address(address),
            Err(_) => Subject::Scope(self.part(name, Spot::Key(place), model)?),
        };
        Some((subject, seen))
    }

    fn manner(&self, scalar: &Scalar, place: Place) -> Option<Manner> {
        let words: Vec<&str> = scalar.text.split(' ').filter(|word| !word.is_empty()).collect();
        let time = |text: &str| value::duration(text).filter(|time| (A_MILLISECOND..=DAY).contains(time));
        let found = match words[..] {
            _ if scalar.kind == Kind::Boolean => None,
            ["up"] => Some(Manner::Up),
            ["refused"] => Some(Manner::Refused),
            ["hang"] => Some(Manner::Hang),
            ["reset"] => Some(Manner::Reset),
            ["error"] => Some(Manner::Error),
            ["slow", text] => time(text).map(Manner::Slow),
            ["flap", text] => time(text).map(Manner::Flap),
            [code] => code.parse().ok().filter(|code| (100..600).contains(code)).map(Manner::Code),
            _ => None,
        };
        if found.is_none() {
            let kind = ProblemKind::NotManner { value: brief(&scalar.text) };
            let plain = MANNERS.into_iter().filter(|word| !word.contains(' '));
            let near = words::nearest(&scalar.text, plain).map(|near| format!("did you mean `{near}`?"));
            let help = near.unwrap_or_else(|| USUAL_MANNER.into());
            self.gather.refuse(Spot::Value(place), kind, Some(help));
        }
        found
    }

    /// Refuses lookups of names that no endpoint is given by.
    fn known_hosts(&self, field: &Field<Named<OneOrMany<Scalar>>>, models: &[&Arc<Model>]) {
        let known: Vec<&str> = models.iter().flat_map(|model| hosts(model)).map(|name| &**name).collect();
        for (key, field) in field.get().map(|named| &named.0[..]).unwrap_or_default() {
            if let (Some(place), false) = (field.place(), known.contains(&key.as_str())) {
                let kind = ProblemKind::NoSuchHost { name: brief(key) };
                self.gather.refuse(Spot::Key(place), kind, self.one_of(key, &known));
            }
        }
    }

    fn lookups(&self, field: &Field<Named<OneOrMany<Scalar>>>, deeds: &mut Vec<Deed>) {
        for (key, field) in field.get().map(|named| &named.0[..]).unwrap_or_default() {
            let Field::Given(_, list) = field else { continue };
            let lookup = match &list.0[..] {
                [] => Lookup::NoSuchName,
                [Field::Given(_, only)] if only.text == "fails" => Lookup::Failed,
                items => {
                    let addresses = items.iter().filter_map(|item| self.listed_address(item)).collect();
                    Lookup::Found { addresses, ttl: HOST_TTL }
                }
            };
            deeds.push(Deed::Lookup { hostname: key.as_str().into(), lookup });
        }
    }

    fn listed_address(&self, field: &Field<Scalar>) -> Option<IpAddr> {
        let (text, place) = self.text(field)?;
        let address = text.parse().ok();
        if address.is_none() {
            let why = "an IPv4 or IPv6 address is due".to_owned();
            let kind = ProblemKind::NotAddress { value: brief(text), why };
            let help = "write for example `192.0.2.7` or `\"2001:db8::7\"`".to_owned();
            self.gather.refuse(Spot::Value(place), kind, Some(help));
        }
        address
    }

    /// Nobody can guess where the host names of a configuration lead.
    fn every_host(&self, place: Place, model: &Model, deeds: &[Deed], told: &mut Vec<Arc<str>>) {
        let said = |name: &Arc<str>| {
            deeds.iter().any(|deed| matches!(deed, Deed::Lookup { hostname, .. } if hostname == name))
        };
        for name in hosts(model) {
            if !said(name) && !told.contains(name) {
                told.push(Arc::clone(name));
                let kind = ProblemKind::HostUnsaid { name: name.to_string() };
                let help =
                    format!("write `hosts: {{ {name}: [192.0.2.7] }}` with the addresses that are found");
                self.gather.refuse(Spot::Key(place), kind, Some(help));
            }
        }
    }

    fn uplinks(&self, field: &Field<Named<Scalar>>, model: &Model, deeds: &mut Vec<Deed>) {
        for (key, field) in field.get().map(|named| &named.0[..]).unwrap_or_default() {
            let Some(place) = field.place() else { continue };
            let known = self.known_vantage(key, place, model);
            let up = match self.text(field) {
                None => continue,
                Some(("up", _)) => true,
                Some(("down", _)) => false,
                Some((other, place)) => {
                    self.unknown_value(place, other, &["up", "down"]);
                    continue;
                }
            };
            if known.is_some() {
                deeds.push(Deed::Vantage { name: key.as_str().into(), up });
            }
        }
    }

    fn known_vantage(&self, name: &str, place: Place, model: &Model) -> Option<()> {
        let names: Vec<&str> = model.vantages.iter().map(|vantage| &*vantage.name).collect();
        if names.contains(&name) {
            return Some(());
        }
        let kind = ProblemKind::NoSuchVantage { name: brief(name) };
        self.gather.refuse(Spot::Key(place), kind, self.one_of(name, &names));
        None
    }

    /// What operators do in a step.
    fn orders(&self, step: &Step, model: &Model, deeds: &mut Vec<Deed>) {
        for (field, action) in
            [(&step.drain, Action::Drain), (&step.disable, Action::Disable), (&step.enable, Action::Enable)]
        {
            let scopes = self.parts(field, model).into_iter();
            deeds.extend(scopes.map(|scope| Deed::Order { scope, action }));
        }
        let back = self.parts(&step.undrain, model).into_iter();
        deeds.extend(back.map(|scope| Deed::Clear { scope, slots: &[Slot::Traffic] }));
        for (key, field) in step.r#override.get().map(|named| &named.0[..]).unwrap_or_default() {
            let Some(place) = field.place() else { continue };
            let scope = self.part(key, Spot::Key(place), model);
            if let Some(Scope { endpoint: None, .. }) = scope {
                let kind = ProblemKind::NotSubject { value: brief(key) };
                let help = format!("an override is of one endpoint: write `{}/ENDPOINT`", brief(key));
                self.gather.refuse(Spot::Key(place), kind, Some(help));
                continue;
            }
            let Some((text, place)) = self.text(field) else { continue };
            let action = match text {
                "healthy" => Some(Action::Healthy),
                "unhealthy" => Some(Action::Unhealthy),
                "none" => None,
                other => match other.strip_prefix("weight ").map(|number| (number, value::weight(number))) {
                    Some((_, Some(hundredths))) => Some(Action::Weight(Weight(hundredths))),
                    Some((number, None)) => {
                        let kind = ProblemKind::NotWeight { value: brief(number) };
                        self.gather.refuse(Spot::Value(place), kind, Some(value::weight_help(number)));
                        continue;
                    }
                    None => {
                        self.unknown_value(
                            place,
                            other,
                            &["healthy", "unhealthy", "none", "or a weight such as `weight 0.25`"],
                        );
                        continue;
                    }
                },
            };
            deeds.extend(scope.map(|scope| match action {
                Some(action) => Deed::Order { scope, action },
                None => Deed::Clear { scope, slots: &Slot::FORCED },
            }));
        }
        for item in step.failback.get().map(|list| &list.0[..]).unwrap_or_default() {
            let Some((text, place)) = self.text(item) else { continue };
            if let Some(balancer) = self.balancer(text, Spot::Value(place), model) {
                deeds.push(Deed::FailBack(balancer.name.clone()));
            }
        }
    }

    fn restart(&self, field: &Field<Scalar>, deeds: &mut Vec<Deed>) {
        let Field::Given(_, scalar) = field else { return };
        if scalar.kind == Kind::Boolean {
            if scalar.text.eq_ignore_ascii_case("true") {
                deeds.push(Deed::Restart(Duration::ZERO));
            }
            return;
        }
        deeds.push(Deed::Restart(self.duration(field, Duration::ZERO..=DAY, Duration::ZERO)));
    }

    fn parts(&self, field: &Field<OneOrMany<Scalar>>, model: &Model) -> Vec<Scope> {
        let items = field.get().map(|list| &list.0[..]).unwrap_or_default();
        let texts = items.iter().filter_map(|item| self.text(item));
        texts.filter_map(|(text, place)| self.part(text, Spot::Value(place), model)).collect()
    }

    /// `POOL` or `POOL/ENDPOINT`, if it exists.
    fn part(&self, text: &str, spot: Spot, model: &Model) -> Option<Scope> {
        let (pool, endpoint) = match text.split_once('/') {
            Some((pool, endpoint)) => (pool, Some(endpoint)),
            None => (text, None),
        };
        let Some(id) = model.pool_named(pool) else {
            let names: Vec<&str> = model.pools.iter().map(|pool| &*pool.name).collect();
            let kind = ProblemKind::NoSuchPool { name: brief(pool) };
            self.gather.refuse(spot, kind, self.one_of(pool, &names));
            return None;
        };
        if let Some(endpoint) = endpoint {
            let names = endpoints(model.pool(id));
            if !names.contains(&endpoint) {
                let kind = ProblemKind::NoSuchEndpoint { pool: pool.into(), name: brief(endpoint) };
                self.gather.refuse(spot, kind, self.one_of(endpoint, &names));
                return None;
            }
        }
        Some(Scope { pool: pool.into(), endpoint: endpoint.map(Into::into) })
    }

    fn balancer<'m>(&self, text: &str, spot: Spot, model: &'m Model) -> Option<&'m LoadBalancer> {
        let balancers = || model.zones.iter().flat_map(|zone| &zone.load_balancers);
        let name = text.parse::<Name>().ok();
        let found = balancers().find(|balancer| Some(&balancer.name) == name.as_ref());
        if found.is_none() {
            let names: Vec<String> =
                balancers().map(|it| it.name.to_string().trim_end_matches('.').to_owned()).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let kind = ProblemKind::NoSuchLoadBalancer { name: brief(text) };
            self.gather.refuse(spot, kind, self.one_of(text, &names));
        }
        found
    }

    fn expected(&self, field: &Field<Named<OneOrMany<Scalar>>>, model: &Model) -> Vec<Expected> {
        let named = field.get().map(|named| &named.0[..]).unwrap_or_default();
        let given = named.iter().filter_map(|(key, field)| match field {
            Field::Given(place, list) => Some((key.as_str(), *place, list)),
            Field::Absent | Field::Broken(_) => None,
        });
        let wants = given.filter_map(|(key, place, list)| {
            let what = self.want(key, place, list, model)?;
            Some(Expected { place: self.gather.written_at(Spot::Key(place)), what })
        });
        wants.collect()
    }

    fn want(&self, key: &str, place: Place, list: &OneOrMany<Scalar>, model: &Model) -> Option<Want> {
        let parts: Vec<&str> = key.split(' ').filter(|part| !part.is_empty()).collect();
        match parts[..] {
            [name, family @ ("A" | "AAAA")] => {
                let balancer = self.balancer(name, Spot::Key(place), model);
                let addresses = list.0.iter().filter_map(|item| self.listed_address(item)).collect();
                Some(Want::Answers { name: balancer?.name.clone(), ipv6: family == "AAAA", addresses })
            }
            [name] if name.contains('.') && !name.contains('/') => {
                let balancer = self.balancer(name, Spot::Key(place), model)?;
                let name = balancer.name.clone();
                if let [Field::Given(_, only)] = &list.0[..]
                    && let Some(state) = balancer_state(&only.text)
                    && model.pool_named(&only.text).is_none()
                {
                    return Some(Want::Balancer { name, state });
                }
                let pools = list.0.iter().filter_map(|item| {
                    let (text, place) = self.text(item)?;
                    Some(self.part(text, Spot::Value(place), model)?.pool)
                });
                Some(Want::Serving { name, pools: pools.collect() })
            }
            [name] => {
                let scope = self.part(name, Spot::Key(place), model)?;
                let (text, place) = match &list.0[..] {
                    [only] => self.text(only)?,
                    _ => {
                        let kind = ProblemKind::WrongShape {
                            found: "a list".into(),
                            expected: "one word for how it stands".into(),
                        };
                        self.gather.refuse(Spot::Value(place), kind, None);
                        return None;
                    }
                };
                match &scope.endpoint {
                    None => {
                        let state = pool_state(text);
                        if state.is_none() {
                            let known: Vec<String> = STATES.iter().map(ToString::to_string).collect();
                            let known: Vec<&str> = known.iter().map(String::as_str).collect();
                            self.unknown_value(place, text, &known);
                        }
                        Some(Want::Pool { name: scope.pool, state: state? })
                    }
                    Some(_) => {
                        let word = script::standings().find(|word| *word == text);
                        if word.is_none() {
                            self.unknown_value(place, text, &script::standings().collect::<Vec<_>>());
                        }
                        Some(Want::Endpoint { scope, word: word? })
                    }
                }
            }
            _ => {
                let kind = ProblemKind::NotWant { value: brief(key) };
                self.gather.refuse(Spot::Key(place), kind, Some(USUAL_WANT.into()));
                None
            }
        }
    }

    /// What to write for a name that nothing has.
    fn one_of(&self, name: &str, known: &[&str]) -> Option<String> {
        const MOST: usize = 8;
        if let Some(near) = words::nearest(name, known.iter().copied()) {
            return Some(format!("did you mean `{near}`?"));
        }
        let more = if known.len() > MOST { ", …" } else { "" };
        let some = known.iter().take(MOST).copied().collect::<Vec<_>>().join(", ");
        (!known.is_empty()).then(|| format!("there is: {some}{more}"))
    }
}

const STATES: [PoolState; 5] =
    [PoolState::Healthy, PoolState::Degraded, PoolState::Critical, PoolState::Unknown, PoolState::Disabled];

fn pool_state(word: &str) -> Option<PoolState> {
    STATES.into_iter().find(|state| state.to_string() == word)
}

fn balancer_state(word: &str) -> Option<BalancerState> {
    let states = [BalancerState::Healthy, BalancerState::Degraded, BalancerState::Critical];
    states.into_iter().find(|state| state.to_string() == word)
}

/// The host names of a configuration.
fn hosts(model: &Model) -> impl Iterator<Item = &Arc<str>> {
    model.pools.iter().flat_map(|pool| &pool.hosts).map(|host| &host.hostname)
}

/// The names of a pool's endpoints.
fn endpoints(pool: &Pool) -> Vec<&str> {
    let hosts = pool.hosts.iter().map(|host| &host.endpoint);
    pool.endpoints.iter().chain(hosts).map(|endpoint| &*endpoint.name).collect()
}
