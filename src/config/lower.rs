//! From shapes to the model: what the keys mean.
//!
//! Each part goes on after a problem with a value that will never be used:
//! the model counts only when nothing was refused. A reference to something
//! whose own definition is broken is no second problem.

mod alerts;
mod balancers;
mod clients;
mod conflicts;
mod dependencies;
mod groups;
mod hosts;
mod lints;
mod listeners;
mod maintenance;
mod monitors;
mod pem;
mod pools;
mod records;
mod rules;
pub mod scenario;
mod service;
mod vantages;
mod zones;

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::file::Kind;
use super::place::{Gather, Place, Spot};
use super::problem::ProblemKind;
use super::reader::{Field, Named, OneOrMany, Scalar, brief};
use super::zone_file::ZoneFiles;
use super::{LogFormat, Settings, shape, value, words};
use crate::model::{Dependency, Member, Model, Reach, WhenUnavailable};
use crate::timing::StartUps;
use dependencies::Needs;
use pools::Known;
pub use records::{PROVIDER_TYPES, name_help};

/// How many probes at once are taken for granted when `max_probes` is absent.
const USUAL_MAX_PROBES: u32 = 10_000;

/// So many names are compared with all others to find what was meant; the
/// work grows with the product.
const MAX_GUESSES: u32 = 200;

/// Makes the model of all files together; it counts only without problems.
pub fn lower(
    files: &[Field<shape::File>],
    zone_files: &ZoneFiles,
    gather: &Gather,
    past: &dyn Fn(&Settings) -> StartUps,
) -> (Settings, Model) {
    let torn = |file: &Field<shape::File>| file.place().is_some_and(|place| gather.is_torn(place));
    let whole = !gather.is_partial() && !files.iter().any(torn);
    let lower =
        Lower { gather, whole, allow_exec: false, guesses: Cell::new(0), followed: RefCell::default() };
    let given = || files.iter().filter_map(Field::get);

    let server = lower.one_server(given().map(|file| &file.server));
    let settings = server.map(|server| lower.settings(server)).unwrap_or_default();
    let unread = given().any(|file| matches!(file.server, Field::Broken(_)));
    let lower = Lower { allow_exec: settings.allow_exec || unread, ..lower };
    let monitors = lower.collect("monitor", given().map(|file| &file.monitors));
    let groups = lower.collect("monitor group", given().map(|file| &file.monitor_groups));
    let pools = lower.collect("pool", given().map(|file| &file.pools));
    let vantages = lower.collect("vantage", given().map(|file| &file.vantages));
    let sites = lower.vantages(&vantages, server, &pools);
    let doubt = lower.doubt(server, &sites.vantages);
    let model = Model { monitors: lower.monitors(&monitors), doubt, ..Model::default() };
    let known = Known {
        pools: &pools,
        monitors: &monitors,
        groups: &groups,
        members: &lower.monitor_groups(&groups, &monitors),
        sites: &sites,
        model: &model,
        needs: Needs::default(),
        hosts: RefCell::default(),
    };
    let made = lower.pools(&known);
    lower.circles(&known.needs, &pools);
    let hosts = known.hosts.into_inner();
    let zones = lower.zones(given(), &pools, zone_files);
    lower.own_names(&hosts, &zones);
    let maintenance = lower.maintenance(given().map(|file| &file.maintenance), &pools);
    let model = Model { pools: made, zones, vantages: sites.vantages, maintenance, ..model };
    let alerts = lower.collect("route of alerts", given().map(|file| &file.alerts));
    let model = Model { alerts: lower.alerts(&alerts, &pools, &model), ..model };
    if let Some(server) = server {
        lower.probe_load(&model, settings.max_probes, &server.max_probes, &monitors);
    } else {
        lower.probe_load(&model, None, &Field::Absent, &monitors);
    }
    let defined = Defined { monitors, groups, pools, vantages };
    lower.unused(&model, &defined, server);
    if !gather.has_errors() {
        let known = (&defined.monitors, &defined.pools);
        lower.lints(&model, given(), known, &past(&settings));
    }
    (settings, model)
}

/// All that has a name and may be used by it.
struct Defined<'a> {
    monitors: Definitions<'a, shape::Monitor>,
    groups: Definitions<'a, shape::MonitorGroup>,
    pools: Definitions<'a, shape::Pool>,
    vantages: Definitions<'a, shape::Vantage>,
}

/// Definitions of one sort in the order of their names, as the model has them.
struct Definitions<'a, T> {
    sorted: Vec<(&'a str, &'a Field<T>)>,
    /// Also by what was offered for a name that can't be one.
    ids: HashMap<Cow<'a, str>, u32>,
    /// Without names that can't be one.
    names: Vec<&'a str>,
    /// Nothing that couldn't be read may be another one.
    complete: bool,
}

impl<'a, T> Definitions<'a, T> {
    fn id(&self, name: &str) -> Option<u32> {
        self.ids.get(name).copied()
    }

    fn get(&self, name: &str) -> Option<&'a T> {
        self.sorted[self.id(name)? as usize].1.get()
    }

    /// Those whose ids are not among `used`.
    fn without(&self, used: &BTreeSet<u32>) -> impl Iterator<Item = (&'a str, Place)> {
        let unused = self.sorted.iter().zip(0..).filter(|(_, id)| !used.contains(id));
        unused.filter_map(|((name, field), _)| Some((*name, field.place()?)))
    }

    fn names(&self) -> impl ExactSizeIterator<Item = &'a str> + Clone {
        self.names.iter().copied()
    }
}

struct Lower<'a> {
    gather: &'a Gather,
    /// All files were read, and all of their keys.
    whole: bool,
    /// Monitors may run programs.
    allow_exec: bool,
    /// How often it was asked what was meant.
    guesses: Cell<u32>,
    /// What values of records depend on, and where they say so.
    followed: RefCell<Vec<(Dependency, Place)>>,
}

impl Lower<'_> {
    /// Gathers what several files define under their names.
    fn collect<'f, T>(
        &self,
        what: &str,
        maps: impl Iterator<Item = &'f Field<Named<T>>> + Clone,
    ) -> Definitions<'f, T> {
        let complete = self.whole && !maps.clone().any(|map| self.is_torn(map));
        let mut all: BTreeMap<&str, &Field<T>> = BTreeMap::new();
        let mut meant: BTreeMap<&str, String> = BTreeMap::new();
        for (name, field) in maps.filter_map(Field::get).flat_map(|map| &map.0) {
            let place = field.place().expect("what a map holds has a place");
            if !simple_name(name) {
                let right: String = name.chars().map(|c| if is_simple(c) { c } else { '-' }).collect();
                self.gather.refuse(
                    Spot::Key(place),
                    ProblemKind::NotSimpleName { what: what.into(), name: brief(name) },
                    (!right.is_empty()).then(|| format!("write for example `{right}`")),
                );
                meant.insert(name, right);
            }
            match all.get(name.as_str()).and_then(|first| first.place()) {
                None => {
                    all.insert(name, field);
                }
                Some(first) => self.gather.refuse_with(
                    Spot::Key(place),
                    ProblemKind::DefinedTwice { what: what.into(), name: name.clone() },
                    Some("all files are one configuration: keep one, or rename one".into()),
                    (Spot::Key(first), "it is defined first here"),
                ),
            }
        }
        let mut ids: HashMap<Cow<str>, u32> =
            all.keys().zip(0..).map(|(name, id)| (Cow::Borrowed(*name), id)).collect();
        let names = all.keys().copied().filter(|name| !meant.contains_key(name)).collect();
        for (name, right) in meant {
            let id = ids[name];
            ids.entry(Cow::Owned(right)).or_insert(id);
        }
        Definitions { sorted: all.into_iter().collect(), ids, names, complete }
    }

    /// Whether something of a map couldn't be read.
    fn is_torn<T>(&self, map: &Field<Named<T>>) -> bool {
        matches!(map, Field::Broken(_)) || map.place().is_some_and(|place| self.gather.is_torn(place))
    }

    /// What to write for a reference to nothing.
    fn define<T>(&self, name: &str, section: &str, known: &Definitions<'_, T>) -> String {
        const MOST: usize = 8;
        self.guesses.set(self.guesses.get().saturating_add(1));
        if self.guesses.get() <= MAX_GUESSES
            && let Some(near) = words::nearest(name, known.names())
        {
            return format!("did you mean `{near}`?");
        }
        if known.names.is_empty() {
            return format!("define it under `{section}`");
        }
        let more = if known.names.len() > MOST { ", …" } else { "" };
        let some: Vec<&str> = known.names().take(MOST).collect();
        format!("define it under `{section}`, or use one of: {}{more}", some.join(", "))
    }

    /// Warns of what nothing refers to. With an error around, or without any
    /// zone, it may be what's missing that should.
    fn unused(&self, model: &Model, defined: &Defined<'_>, server: Option<&shape::Server>) {
        if self.gather.has_errors() || model.zones.is_empty() {
            return;
        }
        let pools = || defined.pools.sorted.iter().filter_map(|(_, field)| field.get());
        let groups = || pools().filter_map(|pool| pool.monitor_group.get());
        let used = groups().filter_map(|name| defined.groups.id(&name.text)).collect();
        for (name, place) in defined.groups.without(&used) {
            let kind = ProblemKind::UnusedMonitorGroup { name: name.into() };
            let help = format!("write `monitor_group: {name}` in a pool, or take it away");
            self.gather.warn(Spot::Key(place), kind, Some(help), None);
        }
        // a member that is disabled, or of a group without a pool, is used as far as it goes
        let in_groups = defined.groups.sorted.iter().filter_map(|(_, field)| field.get()?.members.get());
        let in_groups = in_groups.flatten().filter_map(Field::get).filter_map(|member| {
            let name = member.monitor.get().or(member.monitor_id.get())?;
            defined.monitors.id(&name.text)
        });
        let used = members(model).map(|member| member.monitor.0).chain(in_groups).collect();
        for (name, place) in defined.monitors.without(&used) {
            let kind = ProblemKind::UnusedMonitor { name: name.into() };
            let help = format!("write `monitor: {name}` in a pool, or take it away");
            self.gather.warn(Spot::Key(place), kind, Some(help), None);
        }
        for (name, place) in defined.pools.without(&used_pools(model)) {
            let kind = ProblemKind::UnusedPool { name: name.into() };
            let help = "list it in the `default_pools` of a load balancer, name it as a `fallback_pool` or in \
                        a `depends_on`, or take it away";
            self.gather.warn(Spot::Key(place), kind, Some(help.into()), None);
        }
        self.unused_vantages(model, &defined.vantages, server);
    }

    fn one_server<'f>(
        &self,
        fields: impl Iterator<Item = &'f Field<shape::Server>>,
    ) -> Option<&'f shape::Server> {
        let mut first: Option<&Field<shape::Server>> = None;
        for field in fields.filter(|field| !field.is_absent()) {
            match (first.and_then(Field::place), field.place()) {
                (Some(first), Some(place)) => self.gather.refuse_with(
                    Spot::Key(place),
                    ProblemKind::DefinedTwice { what: "key".into(), name: "server".into() },
                    Some("all files are one configuration: put these keys together".into()),
                    (Spot::Key(first), "it is defined first here"),
                ),
                _ => first = Some(field),
            }
        }
        first.and_then(Field::get)
    }

    fn settings(&self, server: &shape::Server) -> Settings {
        let defaults = Settings::default();
        let reload_guard = match self.switch(&server.reload_guard) {
            Switch::Absent => defaults.reload_guard,
            Switch::Off => false,
            Switch::On => true,
            Switch::Other(text, place) => {
                self.unknown_value(place, text, &["on", "off"]);
                defaults.reload_guard
            }
        };
        let log = match self.text(&server.log) {
            None => defaults.log,
            Some(("auto", _)) => LogFormat::Auto,
            Some(("text", _)) => LogFormat::Text,
            Some(("json", _)) => LogFormat::Json,
            Some((other, place)) => {
                self.unknown_value(place, other, &["auto", "text", "json"]);
                defaults.log
            }
        };
        let state_dir = self.text(&server.state_dir).and_then(|(text, place)| {
            if text.is_empty() {
                self.empty_text(place, "a path");
                return None;
            }
            Some(self.gather.directory(place).join(text))
        });
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        let listeners = self.listeners(server);
        Settings {
            listen: listeners.listen.unwrap_or(defaults.listen),
            listen_tls: listeners.tls,
            listen_https: listeners.https,
            listen_quic: listeners.quic,
            listen_http3: listeners.http3,
            https_path: self.https_path(&server.https_path, defaults.https_path),
            identity: self.server_identity(server),
            proxies: self.networks(&server.proxy_protocol),
            connections: self.connections(server),
            udp_workers: self
                .optional_number(&server.udp_workers, 1..=1024)
                .and_then(|number| NonZeroUsize::new(number as usize)),
            state_dir,
            startup_wait: self.duration(
                &server.startup_wait,
                Duration::ZERO..=hours(1),
                defaults.startup_wait,
            ),
            state_max_age: self.duration(
                &server.state_max_age,
                Duration::ZERO..=hours(24 * 7),
                defaults.state_max_age,
            ),
            max_probes: self.optional_number(&server.max_probes, 1..=1_000_000).map(|number| number as u32),
            reload_guard,
            // What is no boolean is refused for that already.
            allow_exec: self.boolean(&server.allow_exec, !server.allow_exec.is_absent()),
            log,
            resolvers: self.resolvers(&server.resolvers),
            allow_lints: self.allowed_lints(&server.allow_lints),
            history: self.history(&server.history),
            service: self.service(server),
            rate_limit: self.rate_limit(&server.rate_limit),
            user: self.user(&server.user),
        }
    }

    /// Addresses of resolvers, at port 53 unless they carry another.
    fn resolvers(&self, field: &Field<OneOrMany<Scalar>>) -> Vec<SocketAddr> {
        let Field::Given(place, list) = field else { return Vec::new() };
        if list.0.is_empty() {
            self.empty_list(
                *place,
                "write a resolver's address, or take the key away: then the system's are asked",
            );
        }
        let mut seen: Vec<(SocketAddr, Place)> = Vec::new();
        for item in &list.0 {
            let Some((text, place)) = self.text(item) else { continue };
            let plain = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, 53));
            let Ok(address) = plain.or_else(|_| text.parse()) else {
                let kind = ProblemKind::NotAddress {
                    value: brief(text),
                    why: "a resolver is given by its address, and a port if it isn't 53".into(),
                };
                let help = "write for example `192.0.2.53`, `192.0.2.53:5353` or `\"[2001:db8::53]:5353\"`";
                self.gather.refuse(Spot::Value(place), kind, Some(help.into()));
                continue;
            };
            let why = match address.ip() {
                _ if address.port() == 0 => Some("nothing listens at port 0"),
                ip if ip.is_unspecified() => Some("it is the unspecified address"),
                ip if ip.is_multicast() => Some("it is a multicast address"),
                IpAddr::V4(ip) if ip.is_broadcast() => Some("it is the broadcast address"),
                IpAddr::V4(_) | IpAddr::V6(_) => None,
            };
            if let Some(why) = why {
                let kind = ProblemKind::NotAddress { value: brief(text), why: why.into() };
                let help = "write a resolver's own address, such as `192.0.2.53`".to_owned();
                self.gather.refuse(Spot::Value(place), kind, Some(help));
                continue;
            }
            match seen.iter().find(|(other, _)| *other == address) {
                Some((_, first)) => self.listed_twice(place, *first, &format!("`{address}`")),
                None => seen.push((address, place)),
            }
        }
        seen.into_iter().map(|(address, _)| address).collect()
    }

    /// Lints that nobody wants to hear of.
    fn allowed_lints(&self, field: &Field<super::reader::OneOrMany<Scalar>>) -> BTreeSet<String> {
        let mut allowed = BTreeSet::new();
        for item in field.get().map(|list| &list.0[..]).unwrap_or_default() {
            let Some((id, place)) = self.text(item) else { continue };
            match ProblemKind::LINTS.contains(&id) {
                true => _ = allowed.insert(id.to_owned()),
                false => {
                    let kind = ProblemKind::UnknownLint { id: brief(id) };
                    self.gather.warn(Spot::Value(place), kind, Some(words::lint_meant(id)), None);
                }
            }
        }
        allowed
    }

    /// Warns when probes that all run into their timeouts are more than may
    /// run at once.
    fn probe_load(
        &self,
        model: &Model,
        max_probes: Option<u32>,
        field: &Field<Scalar>,
        monitors: &Definitions<'_, shape::Monitor>,
    ) {
        let (mut targets, mut probes) = (0, 0.0);
        for pool in model.pools.iter().filter(|pool| pool.enabled) {
            let hosts = pool.hosts.iter().map(|host| &host.endpoint);
            let endpoints = pool.endpoints.iter().chain(hosts).filter(|endpoint| endpoint.enabled).count();
            let vantages = pool.viewpoints.vantages.iter().map(|id| model.vantage(*id));
            let here = vantages.filter(|vantage| vantage.reach != Reach::Remote).count();
            let endpoints = endpoints * here;
            for member in &pool.tests.members {
                let monitor = model.monitor(member.monitor);
                let worst = monitor.longest_probe();
                let share = worst.as_secs_f64() / monitor.interval.as_secs_f64().max(0.001);
                targets += endpoints;
                probes += endpoints as f64 * share.min(1.0);
            }
        }
        let limit = max_probes.unwrap_or(USUAL_MAX_PROBES);
        let probes = probes.ceil() as u64;
        let place =
            field.place().or_else(|| monitors.sorted.first().and_then(|(_, monitor)| monitor.place()));
        if let Some(place) = place.filter(|_| probes > u64::from(limit)) {
            self.gather.warn(
                Spot::Key(place),
                ProblemKind::ProbesLate { targets, probes, limit },
                Some("lengthen `interval`, shorten `timeout`, or raise `max_probes`".into()),
                None,
            );
        }
    }

    // Single values. Each takes a key's field and gives what it says, its
    // default when it is absent, and something when it was refused.

    /// A text; numbers are taken as written.
    fn text<'f>(&self, field: &'f Field<Scalar>) -> Option<(&'f str, Place)> {
        let Field::Given(place, scalar) = field else { return None };
        Some((self.text_in(scalar, *place)?, *place))
    }

    fn text_in<'f>(&self, scalar: &'f Scalar, place: Place) -> Option<&'f str> {
        if scalar.kind == Kind::Boolean {
            let kind = ProblemKind::Unquoted { value: scalar.text.clone() };
            let help = format!("put it into quotes to make it a text: \"{}\"", scalar.text);
            self.gather.refuse(Spot::Value(place), kind, Some(help));
            return None;
        }
        Some(&scalar.text)
    }

    fn boolean(&self, field: &Field<Scalar>, default: bool) -> bool {
        let Field::Given(place, scalar) = field else { return default };
        if scalar.kind == Kind::Boolean {
            return scalar.text.eq_ignore_ascii_case("true");
        }
        let help = match scalar.text.to_ascii_lowercase().as_str() {
            "on" | "yes" | "y" | "1" | "true" => "write `true`",
            "off" | "no" | "n" | "0" | "false" => "write `false`",
            _ => "write `true` or `false`",
        };
        let kind = ProblemKind::NotBoolean { value: scalar.shown() };
        self.gather.refuse(Spot::Value(*place), kind, Some(help.into()));
        default
    }

    fn switch<'f>(&self, field: &'f Field<Scalar>) -> Switch<'f> {
        let Field::Given(place, scalar) = field else { return Switch::Absent };
        match (scalar.kind, scalar.text.to_ascii_lowercase().as_str()) {
            (Kind::Boolean, "false") | (Kind::Text, "off") => Switch::Off,
            (Kind::Boolean, "true") | (Kind::Text, "on") => Switch::On,
            _ => Switch::Other(&scalar.text, *place),
        }
    }

    fn optional_number(&self, field: &Field<Scalar>, range: RangeInclusive<u64>) -> Option<u64> {
        let Field::Given(place, scalar) = field else { return None };
        self.number_in(scalar, *place, range)
    }

    fn number_in(&self, scalar: &Scalar, place: Place, range: RangeInclusive<u64>) -> Option<u64> {
        let digits = scalar.text.strip_prefix('-').unwrap_or(&scalar.text);
        let plain = !digits.is_empty()
            && digits.bytes().all(|b| b.is_ascii_digit())
            && (digits == "0" || !digits.starts_with('0'));
        if scalar.kind != Kind::Integer || !plain {
            let kind = ProblemKind::NotNumber { value: scalar.shown() };
            self.gather.refuse(Spot::Value(place), kind, Some(number_help(scalar, &range)));
            return None;
        }
        let number = scalar.text.parse().ok().filter(|number| range.contains(number));
        if number.is_none() {
            let help = format!("write a number from {} to {}", range.start(), range.end());
            let range = format!("{} to {}", range.start(), range.end());
            self.out_of_range(place, &scalar.text, range, Some(help));
        }
        number
    }

    fn number(&self, field: &Field<Scalar>, range: RangeInclusive<u64>, default: u64) -> u64 {
        self.optional_number(field, range).unwrap_or(default)
    }

    fn duration(
        &self,
        field: &Field<Scalar>,
        range: RangeInclusive<Duration>,
        default: Duration,
    ) -> Duration {
        let Some((text, place)) = self.text(field) else { return default };
        let Some(duration) = value::duration(text) else {
            self.not_duration(text, place, "write seconds (`15`, `0.5`) or a sum such as `1m30s` or `500ms`");
            return default;
        };
        if !range.contains(&duration) {
            let (least, most) = (value::show(*range.start()), value::show(*range.end()));
            let millis = value::duration(&format!("{text}ms")).filter(|millis| range.contains(millis));
            let plain = text.bytes().all(|octet| octet.is_ascii_digit());
            let help = millis.filter(|_| plain && duration > *range.end());
            let help = help.map(|_| format!("a number is seconds; did you mean `{text}ms`?"));
            let bound = match duration < *range.start() {
                true => format!("write `{least}` or more"),
                false => format!("write `{most}` or less"),
            };
            let help = Some(help.unwrap_or(bound));
            self.out_of_range(place, text, format!("{least} to {most}"), help);
            return default;
        }
        duration
    }

    /// A TTL or another number of whole seconds.
    fn seconds(&self, field: &Field<Scalar>, most: u32, default: u32) -> u32 {
        let Some((text, place)) = self.text(field) else { return default };
        let Some(duration) = value::duration(text) else {
            self.not_duration(text, place, "write whole seconds (`30`) or a sum such as `1h30m`");
            return default;
        };
        if duration.subsec_nanos() != 0 {
            let kind = ProblemKind::NotWholeSeconds { value: text.into() };
            let near = duration.as_secs() + u64::from(duration.subsec_millis() >= 500);
            self.gather.refuse(Spot::Value(place), kind, Some(format!("write `{}s`", near.max(1))));
        }
        match u32::try_from(duration.as_secs()) {
            Ok(seconds) if seconds <= most => seconds,
            _ => {
                self.out_of_range(place, text, format!("0 to {most} seconds"), None);
                default
            }
        }
    }

    fn not_duration(&self, text: &str, place: Place, usual: &str) {
        let lower = text.to_ascii_lowercase().replace([' ', '_'], "");
        let unpadded = value::unpadded(&lower);
        let help = if text.starts_with('-') {
            "a duration is not negative".into()
        } else if unpadded.len() < lower.len() && value::duration(unpadded).is_some() {
            format!("write `{unpadded}`, without zeros before it")
        } else if value::duration(&lower).is_some() {
            format!("write `{lower}`")
        } else {
            usual.to_owned()
        };
        self.gather.refuse(Spot::Value(place), ProblemKind::NotDuration { value: brief(text) }, Some(help));
    }

    fn port(&self, field: &Field<Scalar>) -> Option<u16> {
        // 0 is how Cloudflare's API writes the protocol's own port.
        self.optional_number(field, 0..=65535).map(|port| port as u16).filter(|port| *port != 0)
    }

    // Refusals that many keys share.

    fn missing(&self, owner: Place, of: &str, key: &str, help: &str) {
        let kind = ProblemKind::MissingKey { of: of.into(), key: key.into() };
        self.gather.refuse(Spot::Key(owner), kind, Some(help.into()));
    }

    fn out_of_range(&self, place: Place, value: &str, range: String, help: Option<String>) {
        let kind = ProblemKind::OutOfRange { value: format!("`{}`", brief(value)), range };
        self.gather.refuse(Spot::Value(place), kind, help);
    }

    fn empty_text(&self, place: Place, due: &str) {
        let kind = ProblemKind::WrongShape { found: "an empty text".into(), expected: due.into() };
        self.gather.refuse(Spot::Value(place), kind, None);
    }

    fn empty_list(&self, place: Place, help: &str) {
        let kind = ProblemKind::EmptyList { key: self.gather.key_of(place) };
        self.gather.refuse(Spot::Value(place), kind, Some(help.into()));
    }

    fn listed_twice(&self, place: Place, first: Place, value: &str) {
        self.gather.refuse_with(
            Spot::Value(place),
            ProblemKind::ListedTwice { value: value.into() },
            Some("take one of the two away".into()),
            (Spot::Value(first), "it is listed first here"),
        );
    }

    fn unknown_value(&self, place: Place, value: &str, known: &[&str]) {
        let shown = known.iter().map(|word| match word.contains(' ') {
            true => (*word).to_owned(),
            false => format!("`{word}`"),
        });
        let expected = shown.collect::<Vec<_>>().join(", ");
        let kind = ProblemKind::UnknownValue { value: brief(value), expected };
        let help = match (words::nearest(value, known.iter().copied()), known) {
            (Some(near), _) => format!("did you mean `{near}`?"),
            (None, [one]) => format!("write `{one}`"),
            (None, _) => "write one of these".to_owned(),
        };
        self.gather.refuse(Spot::Value(place), kind, Some(help));
    }

    fn later_value(&self, place: Place, value: &str, help: &str) {
        let key = self.gather.key_of(place);
        let kind = ProblemKind::LaterValue { key, value: brief(value) };
        self.gather.refuse(Spot::Value(place), kind, Some(help.into()));
    }

    fn proxied_value(&self, place: Place, value: &str, help: &str) {
        let key = self.gather.key_of(place);
        let kind = ProblemKind::ProxiedValue { key, value: brief(value) };
        self.gather.refuse(Spot::Value(place), kind, Some(help.into()));
    }

    /// Refuses two spellings of one key at once; gives the one to use.
    fn either<'f, T>(&self, first: &'f Field<T>, second: &'f Field<T>) -> &'f Field<T> {
        if let (Some(one), Some(other)) = (first.place(), second.place()) {
            let (one_key, other_key) = (self.gather.key_of(one), self.gather.key_of(other));
            self.gather.refuse_with(
                Spot::Key(other),
                ProblemKind::BothKeys { first: one_key.clone(), second: other_key },
                Some(format!("keep `{one_key}`")),
                (Spot::Key(one), "the other one is here"),
            );
        }
        if first.is_absent() { second } else { first }
    }

    /// An API object carries its own name; it must be its key's.
    fn same_name(&self, field: &Field<Scalar>, key: &str) {
        let Some((name, place)) = self.text(field) else { return };
        if name != key {
            let kind = ProblemKind::OtherName { key: brief(key), name: brief(name) };
            let help = "take `name` away: the key is the name".to_owned();
            self.gather.refuse(Spot::Value(place), kind, Some(help));
        }
    }
}

/// The pools that something goes by.
fn used_pools(model: &Model) -> BTreeSet<u32> {
    let balancers = || model.zones.iter().flat_map(|zone| &zone.load_balancers);
    let fallbacks = balancers().filter_map(|balancer| match balancer.when_unavailable {
        WhenUnavailable::FallbackPool(pool) => Some(pool),
        WhenUnavailable::Nodata => None,
    });
    let listed = balancers().flat_map(|balancer| balancer.default_pools.iter().copied());
    let canaries = model.vantages.iter().filter_map(|vantage| vantage.canaries);
    let needed = model.pools.iter().flat_map(|pool| {
        let hosts = pool.hosts.iter().map(|host| &host.endpoint);
        let ends = pool.endpoints.iter().chain(hosts).flat_map(|endpoint| &endpoint.depends_on);
        pool.depends_on.iter().chain(ends).map(|needed| needed.pool)
    });
    let sets = model.zones.iter().flat_map(|zone| &zone.records);
    let followed = sets.flat_map(|set| &set.depends_on).flatten().map(|needed| needed.pool);
    listed.chain(fallbacks).chain(canaries).chain(needed).chain(followed).map(|pool| pool.0).collect()
}

fn members(model: &Model) -> impl Iterator<Item = &Member> {
    model.pools.iter().flat_map(|pool| &pool.tests.members)
}

/// What a key says that can be switched off.
enum Switch<'f> {
    Absent,
    Off,
    On,
    Other(&'f str, Place),
}

/// Whether a character can be in the name of a pool and the like.
fn is_simple(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

fn simple_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(is_simple)
}

fn number_help(scalar: &Scalar, range: &RangeInclusive<u64>) -> String {
    let based = |prefix, radix| u64::from_str_radix(scalar.text.strip_prefix(prefix)?, radix).ok();
    if let Some(number) = based("0x", 16).or(based("0o", 8)).or(based("0b", 2)) {
        return format!("write {number}");
    }
    let digits = scalar.text.replace('_', "");
    let digits = digits.strip_suffix(".0").unwrap_or(&digits);
    let quoted = scalar.kind == Kind::Text && digits == scalar.text && !digits.starts_with('0');
    let digits = match digits.trim_start_matches('0') {
        "" if !digits.is_empty() => "0",
        rest => rest,
    };
    match digits.parse::<u64>() {
        Ok(number) if quoted => format!("write {number} without quotes"),
        Ok(number) => format!("write {number}"),
        Err(_) => format!("write a number from {} to {} in decimal digits", range.start(), range.end()),
    }
}

/// A file named in the configuration, from the directory of the naming one.
fn beside(gather: &Gather, place: Place, path: &str) -> PathBuf {
    gather.directory(place).join(path)
}
