//! What the whole configuration shows once it is known to be good: promises
//! that the settings cannot keep, and what is taken and rarely meant.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::super::place::Spot;
use super::super::problem::ProblemKind;
use super::super::reader::Field;
use super::super::{shape, value};
use super::{Definitions, Lower};
use crate::model::{
    Check, Dependency, Endpoint, HttpCheck, LoadBalancer, Model, Monitor, Name, Pool, PoolId, Scope,
    TtlPolicy, names_host,
};
use crate::timing::{self, StartUps, Timing};

/// Up to here a TTL is usual, however quickly a failure is seen.
const USUAL_TTL: Duration = Duration::from_secs(30);
/// Above it `long_ttl` has said so.
const LONG_TTL: Duration = Duration::from_secs(300);

/// The shape of a load balancer, with what it became.
struct Both<'a> {
    shape: &'a shape::LoadBalancer,
    balancer: &'a LoadBalancer,
    spot: Spot,
}

impl Lower<'_> {
    /// Looks at everything together: only without errors, for with one around it
    /// may not be what is meant.
    pub(super) fn lints<'f>(
        &self,
        model: &Model,
        files: impl Iterator<Item = &'f shape::File>,
        (monitors, pools): (&Definitions<'_, shape::Monitor>, &Definitions<'_, shape::Pool>),
        start_ups: &StartUps,
    ) {
        let mut users: Vec<Vec<&Pool>> = vec![Vec::new(); model.monitors.len()];
        for pool in &model.pools {
            for member in &pool.tests.members {
                users[member.monitor.0 as usize].push(pool);
            }
        }
        for ((monitor, users), (_, field)) in model.monitors.iter().zip(&users).zip(&monitors.sorted) {
            if let Field::Given(place, shape) = field {
                self.lint_monitor(monitor, users, shape, Spot::Key(*place));
                self.lint_start_up(monitor, users, shape, Spot::Key(*place), start_ups);
            }
        }
        self.lint_dependencies(model);
        let alike = first_alike(&model.pools);
        for both in files.flat_map(|file| balancers(model, file)) {
            self.lint_balancer(model, &both, pools, &alike);
        }
    }

    fn lint(&self, spot: Spot, kind: ProblemKind, help: impl Into<String>) {
        self.gather.warn(spot, kind, Some(help.into()), None);
    }

    /// What records depend on and nothing can find to be down, once for each pool.
    fn lint_dependencies(&self, model: &Model) {
        let mut told = BTreeSet::new();
        for (needed, place) in self.followed.borrow().iter() {
            if !never_fails(model, needed) || !told.insert(needed.pool) {
                continue;
            }
            let pool = Arc::clone(&model.pool(needed.pool).name);
            let scope = Scope { pool: Arc::clone(&pool), endpoint: needed.endpoint.clone() };
            let kind = ProblemKind::NeverFails { needed: scope.to_string(), pool: pool.to_string() };
            self.lint(Spot::Value(*place), kind, "give the pool a `monitor`, or take `depends_on` away");
        }
    }

    fn lint_monitor(&self, monitor: &Monitor, users: &[&Pool], shape: &shape::Monitor, key: Spot) {
        let at = |place: Option<super::Place>| place.map_or(key, Spot::Value);
        let name = || monitor.name.to_string();
        if monitor.thresholds.down == 1 {
            let kind = ProblemKind::SingleFailure { name: name() };
            self.lint(
                at(shape.consecutive_down.place()),
                kind,
                "write 2 or more: with `recheck_interval` each further probe comes within seconds",
            );
        }
        if let Some(port) = bare_web_port(monitor, users) {
            let kind = ProblemKind::TcpOnWebPort { name: name(), port };
            let right = if port == 443 { "https" } else { "http" };
            self.lint(
                at(shape.r#type.place()),
                kind,
                format!("write `type: {right}` with the `path` and the Host that clients ask for"),
            );
        }
        let nameless = |pool: &&Pool| {
            pool.endpoints.iter().any(|endpoint| endpoint.host.is_none() && endpoint.hostname.is_none())
        };
        let Check::Http(http) = &monitor.check else { return self.lint_start_period(monitor, shape) };
        let has_host = http.headers.iter().any(|(header, _)| header.eq_ignore_ascii_case("host"));
        if !has_host && let Some(pool) = users.iter().copied().find(nameless) {
            let kind = ProblemKind::NoHost { name: name(), pool: pool.name.to_string() };
            self.lint(key, kind, "write the name that clients ask for: `header: { Host: www.example.com }`");
        }
        if let Some(code) = expected_redirect(http) {
            let kind = ProblemKind::RedirectExpected { name: name(), code };
            let help =
                "test what it leads to: `type: https`, or `follow_redirects: true` and the code at its end";
            self.lint(at(shape.expected_codes.place()), kind, help);
        }
        self.lint_start_period(monitor, shape);
    }

    fn lint_start_period(&self, monitor: &Monitor, shape: &shape::Monitor) {
        let run = monitor.interval * monitor.thresholds.up;
        let period = monitor.start_period;
        if let Some(place) = shape.start_period.place().filter(|_| !period.is_zero() && period < run) {
            let kind = ProblemKind::ShortStartPeriod { period: value::show(period), run: value::show(run) };
            let help = format!("write at least `{}`: `interval` × `consecutive_up`", value::show(run));
            self.lint(Spot::Value(place), kind, help);
        }
    }

    /// What was seen of its endpoints before.
    fn lint_start_up(
        &self,
        monitor: &Monitor,
        users: &[&Pool],
        shape: &shape::Monitor,
        key: Spot,
        start_ups: &StartUps,
    ) {
        let seen = users.iter().filter_map(|pool| Some((pool, start_ups.get(&*pool.name)?)));
        let Some((pool, seen)) = seen.max_by_key(|(_, seen)| seen.typical) else { return };
        if !timing::is_too_quick_for(monitor, seen.typical) {
            return;
        }
        let kind = ProblemKind::QuickerThanStart {
            name: monitor.name.to_string(),
            pool: pool.name.to_string(),
            times: seen.times,
            start_up: value::show(Duration::from_secs(seen.typical.as_secs_f64().round() as u64)),
        };
        let place = shape.consecutive_down.place().or(shape.interval.place());
        self.lint(
            place.map_or(key, Spot::Value),
            kind,
            "let it fail for longer before it is out (`consecutive_down`, `interval`), or `hale drain` an endpoint before it is restarted",
        );
    }

    fn lint_balancer(
        &self,
        model: &Model,
        both: &Both<'_>,
        pools: &Definitions<'_, shape::Pool>,
        alike: &[Option<usize>],
    ) {
        let balancer = both.balancer;
        if !balancer.enabled {
            return;
        }
        let timing = timing::figures(model, balancer);
        self.lint_slo(model, both, &timing);
        if let Some(detection) = timing.worst_detection()
            && balancer.ttl_policy == TtlPolicy::Fixed
            && timing.ttl > detection.max(USUAL_TTL)
            && timing.ttl <= LONG_TTL
        {
            let kind = ProblemKind::TtlAboveDetection {
                ttl: value::show(timing.ttl),
                detection: in_seconds(detection),
            };
            let help = format!("write `ttl: {}s`, or less", USUAL_TTL.as_secs());
            self.lint(both.shape.ttl.place().map_or(both.spot, Spot::Value), kind, help);
        }
        let available: Vec<PoolId> =
            balancer.default_pools.iter().copied().filter(|id| model.pool(*id).enabled).collect();
        if let [only] = available[..]
            && let Some(network) = one_network(model.pool(only))
            && let Some(place) = pools.sorted[only.0 as usize].1.place()
        {
            let kind = ProblemKind::OneNetwork { pool: model.pool(only).name.to_string(), network };
            self.lint(Spot::Key(place), kind, "add endpoints, or a further pool, at another place");
        }
        let mut seen = HashMap::new();
        let twins = available.iter().find_map(|id| {
            let earlier = seen.insert(alike[id.0 as usize]?, *id)?;
            Some((earlier, *id))
        });
        if let Some((one, other)) = twins {
            let [one, other] = [one, other].map(|id| model.pool(id).name.to_string());
            let kind = ProblemKind::SameAddresses { one, other };
            let spot = both.shape.default_pools.place().map_or(both.spot, Spot::Key);
            self.lint(spot, kind, "give them different endpoints, or keep one of the two");
        }
    }

    /// Refuses a promise that the settings can't keep.
    fn lint_slo(&self, model: &Model, both: &Both<'_>, timing: &Timing) {
        let (Some(limit), Some(slo)) = (timing.slo, both.shape.slo.get()) else { return };
        let spot = slo.failover.place().map_or(both.spot, Spot::Value);
        let refuse = |worst: String, parts: String, help: String| {
            let kind = ProblemKind::SloMissed { limit: value::show(limit), worst, parts };
            self.gather.refuse(spot, kind, Some(help));
        };
        if let Some(unseen) = timing.pools.iter().find(|pool| pool.courses.is_none()) {
            let parts = format!("nothing watches the pool `{}`", unseen.pool);
            return refuse("for ever".into(), parts, "give the pool a `monitor`, or take `slo` away".into());
        }
        let slowest = timing.slowest().filter(|slowest| slowest.course.total().worst > limit);
        let Some(timing::Slowest { pool, monitors, course: slowest }) = slowest else { return };
        let part = |part: &timing::Part| format!("{} {}", part.step.words(), in_seconds(part.span.worst));
        let parts: Vec<String> =
            slowest.parts.iter().filter(|part| !part.span.worst.is_zero()).map(part).collect();
        let worst = in_seconds(slowest.total().worst);
        let promise = format!("{}s", slowest.total().worst.as_secs() + 1);
        let help = match &timing::remedies(model, both.balancer, limit)[..] {
            [] => format!("no settings of these monitors do; promise `{promise}`"),
            remedies => format!("write {}, or promise `{promise}`", remedies.join(", or ")),
        };
        let monitors: Vec<String> = monitors.iter().map(|name| format!("`{name}`")).collect();
        let by = if monitors.len() == 1 { "monitor" } else { "monitors" };
        let of = format!("of the pool `{pool}` by the {by} {}, ", monitors.join(", "));
        refuse(worst, of + &parts.join(", "), help);
    }
}

/// The load balancers of a file, as written and as lowered.
fn balancers<'a>(model: &'a Model, file: &'a shape::File) -> Vec<Both<'a>> {
    let one = file.zone.get().map(|name| (name.text.as_str(), &file.load_balancers));
    let several = file.zones.get().map(|zones| &zones.0[..]).unwrap_or_default();
    let several =
        several.iter().filter_map(|(name, zone)| Some((name.as_str(), &zone.get()?.load_balancers)));
    let mut all = Vec::new();
    for (apex, named) in one.into_iter().chain(several) {
        let Ok(apex) = apex.parse::<Name>() else { continue };
        let Ok(number) = model.zones.binary_search_by(|zone| zone.apex.cmp(&apex)) else { continue };
        let zone = &model.zones[number];
        for (key, field) in named.get().map(|named| &named.0[..]).unwrap_or_default() {
            let Ok(name) = Name::parse(key, &apex) else { continue };
            // they were lowered in the order of their names
            let balancer = zone.load_balancers.binary_search_by(|balancer| balancer.name.cmp(&name));
            if let (Field::Given(place, shape), Ok(number)) = (field, balancer) {
                let balancer = &zone.load_balancers[number];
                all.push(Both { shape, balancer, spot: Spot::Key(*place) });
            }
        }
    }
    all
}

/// Whether something is there until an operator says otherwise.
fn never_fails(model: &Model, needed: &Dependency) -> bool {
    let pool = model.pool(needed.pool);
    let of_it = |name: &str| needed.endpoint.as_deref().is_none_or(|endpoint| names_host(endpoint, name));
    let may_go = |endpoint: &Endpoint| !endpoint.enabled || !endpoint.depends_on.is_empty();
    let fixed = pool.endpoints.iter().filter(|endpoint| of_it(&endpoint.name));
    pool.enabled
        && !pool.is_monitored()
        && pool.depends_on.is_empty()
        && pool.rules.ejection.is_none()
        && !pool.hosts.iter().any(|host| of_it(&host.endpoint.name)) // it may lose its addresses
        && !fixed.into_iter().any(may_go)
        && !model.maintenance.iter().any(|window| window.of.pool == pool.name)
}

/// The port of the web that a handshake alone is made with.
fn bare_web_port(monitor: &Monitor, users: &[&Pool]) -> Option<u16> {
    let Check::Tcp(tcp) = &monitor.check else { return None };
    let is_web = |port: &u16| matches!(port, 80 | 443);
    match tcp.port {
        _ if tcp.send.is_some() || tcp.expect.is_some() => None,
        Some(port) => Some(port).filter(is_web),
        None => users
            .iter()
            .find_map(|pool| pool.endpoints.iter().filter_map(|endpoint| endpoint.port).find(is_web)),
    }
}

/// The redirect that passes at the port of plain HTTP.
fn expected_redirect(http: &HttpCheck) -> Option<u16> {
    let plain = http.tls.is_none() && http.port.is_none_or(|port| port == 80) && !http.follow_redirects;
    [301, 302, 307, 308].into_iter().find(|code| plain && http.expected_codes.contains(*code))
}

/// The one network that all endpoints of a pool are in, if there are several.
fn one_network(pool: &Pool) -> Option<String> {
    let enabled =
        || pool.endpoints.iter().filter(|endpoint| endpoint.enabled).map(|endpoint| endpoint.address);
    let network = |address: IpAddr| {
        let length = if address.is_ipv4() { 24 } else { 48 };
        IpNet::new(address, length).expect("no longer than an address").trunc()
    };
    if !pool.hosts.is_empty() || enabled().count() < 2 || enabled().all(|address| address.is_loopback()) {
        return None;
    }
    let networks: BTreeSet<IpNet> = enabled().map(network).collect();
    let of = |v4: bool| networks.iter().filter(|network| network.addr().is_ipv4() == v4).count();
    let shown: Vec<String> = networks.iter().map(IpNet::to_string).collect();
    (of(true) <= 1 && of(false) <= 1).then(|| shown.join(" and "))
}

/// Of each pool the first one with the same addresses that is tested alike,
/// itself perhaps; none of those whose addresses aren't known yet.
fn first_alike(pools: &[Pool]) -> Vec<Option<usize>> {
    let mut known: HashMap<Vec<IpAddr>, Vec<usize>> = HashMap::new();
    let first = |(number, pool): (usize, &Pool)| {
        if !pool.hosts.is_empty() {
            return None;
        }
        let mut addresses: Vec<IpAddr> = pool.endpoints.iter().map(|endpoint| endpoint.address).collect();
        addresses.sort();
        addresses.dedup();
        let firsts = known.entry(addresses).or_default();
        let found = firsts.iter().copied().find(|first| pools[*first].tests == pool.tests);
        Some(found.unwrap_or_else(|| {
            firsts.push(number);
            number
        }))
    };
    pools.iter().enumerate().map(first).collect()
}

/// A time in seconds, to a tenth above it; a short one in milliseconds.
fn in_seconds(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        return format!("{} ms", time.as_nanos().div_ceil(1_000_000));
    }
    let tenths = time.as_millis().div_ceil(100);
    match tenths % 10 {
        0 => format!("{} s", tenths / 10),
        tenth => format!("{}.{tenth} s", tenths / 10),
    }
}
