//! Pools and their endpoints.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;

use super::super::place::{Place, Spot};
use super::super::problem::ProblemKind;
use super::super::reader::{Field, Scalar, SingleOrMap, brief};
use super::super::shape;
use super::super::value::{self, NoAddress};
use super::dependencies::Needs;
use super::groups::Groups;
use super::vantages::Sites;
use super::{Definitions, Lower};
use crate::model::{
    AnswerShape, Endpoint, FamilyThreshold, Host, MAX_ANSWERS, Model, MonitorId, Pool, Scope, Weight,
};

const LATER_STEERING: [&str; 3] = ["hash", "least_outstanding_requests", "least_connections"];

/// What pools refer to, and what is found on the way.
pub(super) struct Known<'a> {
    pub pools: &'a Definitions<'a, shape::Pool>,
    pub monitors: &'a Definitions<'a, shape::Monitor>,
    pub groups: &'a Definitions<'a, shape::MonitorGroup>,
    pub members: &'a Groups,
    pub sites: &'a Sites,
    /// Only the monitors are there yet.
    pub model: &'a Model,
    pub needs: Needs,
    /// Every host name that an endpoint is given by, and where.
    pub hosts: RefCell<Vec<(Arc<str>, Place)>>,
}

/// What an endpoint is given by.
enum Address {
    Ip(IpAddr),
    Host(Arc<str>),
}

/// The endpoints of a pool as they are written.
#[derive(Default)]
struct Written {
    endpoints: Vec<Endpoint>,
    hosts: Vec<Host>,
}

impl Written {
    fn all(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.iter().chain(self.hosts.iter().map(|host| &host.endpoint))
    }

    fn count(&self) -> usize {
        self.endpoints.len() + self.hosts.len()
    }
}

impl Lower<'_> {
    /// The pools by name.
    pub(super) fn pools(&self, known: &Known<'_>) -> Vec<Pool> {
        known
            .pools
            .sorted
            .iter()
            .map(|(name, field)| match field {
                Field::Given(place, shape) => self.pool(name, *place, shape, known),
                _ => Pool::new(name, Vec::new()),
            })
            .collect()
    }

    fn pool(&self, name: &str, place: Place, shape: &shape::Pool, known: &Known<'_>) -> Pool {
        self.same_name(&shape.name, name);
        self.endpoint_steering(self.either(&shape.endpoint_steering, &shape.origin_steering));
        let list = self.either(&shape.endpoints, &shape.origins);
        if list.is_absent() {
            let help = "write `endpoints: [ { name: a-1, address: 192.0.2.10 } ]`";
            self.missing(place, &format!("the pool `{name}`"), "endpoints", help);
        }
        let written = self.endpoints(name, list, known);
        let (tests, named) = self.tests(shape, known);
        if !list.is_absent() {
            self.ports(name, list, &named, known);
        }

        // Broken endpoints count as well: they are there.
        let size = list.get().map_or(usize::MAX, Vec::len);
        let threshold = |field: &Field<Scalar>, key: &str, size: usize, family: &str, default| {
            let most = size.min(u32::MAX as usize) as u64;
            let digits = |scalar: &Scalar| scalar.text.bytes().all(|octet| octet.is_ascii_digit());
            // a number above the size is told in words of its own
            let limit = if field.get().is_some_and(digits) { u64::MAX } else { most };
            let number = self.number(field, 0..=limit, default);
            if let Some(place) = field.place().filter(|_| number > size as u64) {
                let plural = if size == 1 { "" } else { "s" };
                let kind = ProblemKind::ThresholdAboveSize {
                    key: key.into(),
                    threshold: number,
                    size: format!("{size} {family}endpoint{plural}"),
                };
                let help = match most {
                    0 => format!("write 0, or add {family}endpoints: a higher number is never reached"),
                    most => format!("write a number from 0 to {most}: a higher one is never reached"),
                };
                self.gather.refuse(Spot::Value(place), kind, Some(help));
            }
            number as u32
        };
        let health_field = self.either(&shape.health_threshold, &shape.minimum_origins);
        let health_threshold = threshold(health_field, "health_threshold", size, "", 1);
        let of_family = |ipv4: bool| {
            let sound = written.count() == size;
            let of = written.endpoints.iter().filter(|endpoint| endpoint.address.is_ipv4() == ipv4).count();
            // a host name may have addresses of either
            if sound { of + written.hosts.len() } else { usize::MAX }
        };
        let family_threshold = match shape.family_threshold.get() {
            None => FamilyThreshold::default(),
            Some(family) => FamilyThreshold {
                ipv4: threshold(&family.ipv4, "family_threshold.ipv4", of_family(true), "IPv4 ", 0),
                ipv6: threshold(&family.ipv6, "family_threshold.ipv6", of_family(false), "IPv6 ", 0),
            },
        };
        let sound = written.count() == size && size > 0;
        if sound && written.all().all(|endpoint| endpoint.weight.0 == 0) {
            let kind = ProblemKind::AllWeightsZero { of: format!("the pool `{name}`") };
            let help = "set `enabled: false` on the pool, or raise a weight".to_owned();
            self.gather.warn(Spot::Key(place), kind, Some(help), None);
        }
        let enabled = self.boolean(&shape.enabled, true);
        if sound && enabled {
            let at = health_field.place().map_or(Spot::Key(place), Spot::Value);
            let monitored = tests.members.iter().any(|member| member.votes);
            self.reachable(name, &written, health_threshold.min(size as u32), monitored, at);
        }
        let own = Scope { pool: name.into(), endpoint: None };
        Pool {
            enabled,
            tests,
            viewpoints: self.viewpoints(shape, known.sites),
            rules: self.rules(shape),
            depends_on: self.depends_on(&shape.depends_on, &own, known.pools, &known.needs),
            hosts: written.hosts,
            health_threshold,
            answer: self.answer(&shape.answer),
            max_answers: self.number(&shape.max_answers, 1..=MAX_ANSWERS as u64, 8) as u8,
            family_threshold,
            ..Pool::new(name, written.endpoints)
        }
    }

    /// Warns when health can never make the pool available.
    fn reachable(&self, pool: &str, written: &Written, threshold: u32, monitored: bool, at: Spot) {
        let enabled = written.all().filter(|endpoint| endpoint.enabled).count();
        let why = match enabled {
            0 => "none of its endpoints is enabled".to_owned(),
            _ if !monitored || enabled >= threshold as usize => return,
            1 => format!("`health_threshold` is {threshold}, and 1 endpoint is enabled"),
            _ => format!("`health_threshold` is {threshold}, and {enabled} endpoints are enabled"),
        };
        let help = match enabled {
            0 => "enable an endpoint, or write `enabled: false` on the pool".to_owned(),
            _ => format!("write a number from 0 to {enabled}, or enable more endpoints"),
        };
        let kind = ProblemKind::ThresholdUnreachable { pool: pool.into(), why };
        self.gather.warn(at, kind, Some(help), None);
    }

    fn endpoint_steering(&self, field: &Field<shape::SteeringOrName>) {
        let policy = match field {
            Field::Given(_, SingleOrMap::Map(steering)) => self.text(&steering.policy),
            Field::Given(place, SingleOrMap::Single(scalar)) => Some((scalar.text.as_str(), *place)),
            _ => None,
        };
        match policy {
            None | Some(("random" | "", _)) => {}
            Some((other, place)) if LATER_STEERING.contains(&other) => {
                self.later_value(place, other, "write `random`: weights decide");
            }
            Some((other, place)) => self.unknown_value(place, other, &["random"]),
        }
    }

    fn answer(&self, field: &Field<Scalar>) -> AnswerShape {
        let Field::Given(place, scalar) = field else { return AnswerShape::ByWeight };
        match scalar.text.as_str() {
            "all" => AnswerShape::All,
            "one" => AnswerShape::Number(1),
            text if text.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
                AnswerShape::Number(self.number(field, 1..=MAX_ANSWERS as u64, 1) as u8)
            }
            other => {
                self.unknown_value(*place, other, &["all", "one", "a number from 1 to 64"]);
                AnswerShape::All
            }
        }
    }

    /// A handshake needs a port, from the monitor or from each endpoint.
    fn ports(
        &self,
        pool: &str,
        list: &Field<Vec<Field<shape::Endpoint>>>,
        named: &[(MonitorId, Place)],
        known: &Known<'_>,
    ) {
        for (id, monitor_place) in named {
            let monitor = known.model.monitor(*id);
            let shape = known.monitors.get(&monitor.name);
            let portless = monitor.check.needs_port() && monitor.check.usual_port().is_none();
            let broken = shape.is_some_and(|shape| {
                let known = shape.r#type.get().is_none_or(|scalar| scalar.text == monitor.check.type_name());
                matches!(shape.port, Field::Broken(_)) || !known
            });
            if !portless || broken || monitor.check.port().is_some() {
                continue;
            }
            for endpoint in list.get().map(|list| &list[..]).unwrap_or_default() {
                let Field::Given(place, endpoint) = endpoint else { continue };
                let set = match &endpoint.port {
                    Field::Absent => false,
                    Field::Broken(_) => true,
                    Field::Given(_, scalar) => scalar.text != "0",
                };
                if !set {
                    self.gather.refuse_with(
                        Spot::Value(*place),
                        ProblemKind::NoPort {
                            pool: pool.into(),
                            monitor: monitor.name.to_string(),
                            check: monitor.check.type_name().into(),
                        },
                        Some("write a `port`, on the monitor for all or on this endpoint".into()),
                        (Spot::Value(*monitor_place), "the monitor is named here"),
                    );
                }
            }
        }
    }

    fn endpoints(&self, pool: &str, list: &Field<Vec<Field<shape::Endpoint>>>, known: &Known<'_>) -> Written {
        let mut written = Written::default();
        let Field::Given(place, list) = list else { return written };
        if list.is_empty() {
            self.empty_list(
                *place,
                "a pool has at least one endpoint: `[ { name: a-1, address: 192.0.2.10 } ]`",
            );
        }
        let mut names: Vec<(String, Place)> = Vec::new();
        let mut addresses: Vec<(String, Place)> = Vec::new();
        for (field, number) in list.iter().zip(0..) {
            let Field::Given(place, shape) = field else { continue };
            let name = self.endpoint_name(*place, shape);
            let address = self.endpoint_address(*place, shape);
            let weight = self.weight(&shape.weight, Weight(100));
            let enabled = self.boolean(&shape.enabled, true);
            let port = self.port(&shape.port);
            let host = self.endpoint_host(shape);
            if let Some((name, place)) = &name {
                match names.iter().find(|(other, _)| other == name) {
                    Some((_, first)) => {
                        self.listed_twice(*place, *first, &format!("the endpoint name `{name}`"));
                    }
                    None => names.push((name.clone(), *place)),
                }
            }
            if let Some((address, place)) = &address {
                let (what, shown) = match address {
                    Address::Ip(address) => ("address", address.to_string()),
                    Address::Host(name) => ("host name", name.to_string()),
                };
                match addresses.iter().find(|(other, _)| *other == shown) {
                    Some((_, first)) => {
                        let value = format!("the {what} {shown} of the pool `{pool}`");
                        self.listed_twice(*place, *first, &value);
                    }
                    None => addresses.push((shown, *place)),
                }
            }
            let own = name.as_ref().map(|(name, _)| name.as_str().into());
            let own = Scope { pool: pool.into(), endpoint: own };
            // without a name of its own it can't be told from its pool
            let depends_on = match own.endpoint {
                Some(_) => self.depends_on(&shape.depends_on, &own, known.pools, &known.needs),
                None => Vec::new(),
            };
            let (Some((name, _)), Some((address, place))) = (name, address) else { continue };
            let ip = match address {
                Address::Ip(address) => address,
                Address::Host(_) => IpAddr::from([0, 0, 0, 0]),
            };
            let endpoint = Endpoint { enabled, weight, port, host, depends_on, ..Endpoint::new(&name, ip) };
            match address {
                Address::Ip(_) => written.endpoints.push(endpoint),
                Address::Host(hostname) => {
                    known.hosts.borrow_mut().push((Arc::clone(&hostname), place));
                    written.hosts.push(Host { place: number, hostname, endpoint });
                }
            }
        }
        written
    }

    fn endpoint_name(&self, place: Place, shape: &shape::Endpoint) -> Option<(String, Place)> {
        if shape.name.is_absent() {
            self.missing(
                place,
                "an endpoint",
                "name",
                "write a name that is unique in its pool, such as `eu-1`",
            );
        }
        let (name, place) = self.text(&shape.name)?;
        let odd = |c: char| c == '/' || c.is_control() || c.is_whitespace();
        if name.is_empty() || name.len() > 128 || name.contains(odd) {
            let kind = ProblemKind::NotEndpointName { name: brief(name) };
            let mut right: String = name.chars().map(|c| if odd(c) { '-' } else { c }).collect();
            right.truncate(right.floor_char_boundary(63));
            let help = match right.as_str() {
                "" => "write a name such as `eu-1`".into(),
                right => format!("write for example `{right}`"),
            };
            self.gather.refuse(Spot::Value(place), kind, Some(help));
            return None;
        }
        Some((name.into(), place))
    }

    fn endpoint_address(&self, place: Place, shape: &shape::Endpoint) -> Option<(Address, Place)> {
        if shape.address.is_absent() {
            self.missing(place, "an endpoint", "address", "write its IPv4 or IPv6 address, or its host name");
        }
        let (text, place) = self.text(&shape.address)?;
        let value = brief(text);
        let written = |right: Option<String>| right.map(|right| format!("write `{right}`"));
        let (kind, help) = match value::endpoint_address(text) {
            Ok(address) => return Some((Address::Ip(address), place)),
            Err(NoAddress::Hostname) => {
                return self.host_name(text, place).map(|name| (Address::Host(name), place));
            }
            Err(NoAddress::Malformed(why, right)) => {
                let help = written(right)
                    .unwrap_or_else(|| "write an address such as `192.0.2.10` or `2001:db8::10`".into());
                (ProblemKind::NotAddress { value, why: why.into() }, Some(help))
            }
            Err(NoAddress::Unfit(why, right)) => {
                let help = written(right).unwrap_or_else(|| "write the address of one machine".into());
                (ProblemKind::UnfitAddress { value, why: why.into() }, Some(help))
            }
        };
        self.gather.refuse(Spot::Value(place), kind, help);
        None
    }

    fn endpoint_host(&self, shape: &shape::Endpoint) -> Option<Arc<str>> {
        for (name, values) in shape.header.get().map(|named| &named.0[..]).unwrap_or_default() {
            if let Some(place) = values.place().filter(|_| !name.eq_ignore_ascii_case("host")) {
                let kind = ProblemKind::NotHeader {
                    name: brief(name),
                    why: "the only header of an endpoint is Host".into(),
                };
                let help = "put it into `header` of the monitor".to_owned();
                self.gather.refuse(Spot::Key(place), kind, Some(help));
            }
        }
        let headers = self.headers(&shape.header);
        headers.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("host")).map(|(_, host)| host.into())
    }

    pub(super) fn weight(&self, field: &Field<Scalar>, default: Weight) -> Weight {
        let Some((text, place)) = self.text(field) else { return default };
        match value::weight(text) {
            Some(hundredths) => Weight(hundredths),
            None => {
                let kind = ProblemKind::NotWeight { value: brief(text) };
                self.gather.refuse(Spot::Value(place), kind, Some(value::weight_help(text)));
                default
            }
        }
    }
}
