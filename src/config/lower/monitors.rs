//! Monitors: what a probe tests, how often, and what outcomes mean.
//!
//! Each type of check has a file; which keys belong to which is one table.

mod agent;
mod dns;
mod exec;
mod grpc;
mod http;
mod prometheus;
mod smtp;
mod tcp;
mod tls;
mod udp;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::super::place::{Place, Spot};
use super::super::problem::ProblemKind;
use super::super::reader::{Field, Named, OneOrMany, Scalar};
use super::super::{shape, value};
use super::{Definitions, Lower, Switch};
use crate::model::{Check, Monitor, Reading, Source, TcpCheck, Thresholds};

/// The types of monitors.
const TYPES: [&str; 14] = [
    "http",
    "https",
    "tcp",
    "icmp_ping",
    "udp_icmp",
    "smtp",
    "tls",
    "dns",
    "grpc",
    "agent",
    "push",
    "exec",
    "prometheus",
    "static",
];

const HTTP: &[&str] = &["http", "https"];
const TLS: &[&str] = &["https", "tls", "smtp", "grpc", "prometheus"];
const PORT: &[&str] = &["http", "https", "tcp", "udp_icmp", "smtp", "tls", "dns", "grpc", "agent"];

/// A key that only some types have: where it stands, whether it says no more
/// than its absence (an API object has all keys, empty), and the types.
type Special<'a> = (Option<Place>, bool, &'static [&'static str]);

fn special_keys(shape: &shape::Monitor) -> Vec<Special<'_>> {
    fn one<'a>(field: &Field<Scalar>, types: &'static [&'static str]) -> Special<'a> {
        let empty = |scalar: &Scalar| scalar.text.is_empty() || scalar.text == "false";
        (field.place(), field.get().is_none_or(empty), types)
    }
    fn many<'a>(field: &Field<OneOrMany<Scalar>>, types: &'static [&'static str]) -> Special<'a> {
        let empty = |scalar: &Field<Scalar>| scalar.get().is_some_and(|scalar| scalar.text.is_empty());
        (field.place(), field.get().is_none_or(|list| list.0.iter().all(empty)), types)
    }
    fn named<'a, T>(field: &Field<Named<T>>, types: &'static [&'static str]) -> Special<'a> {
        (field.place(), field.get().is_none_or(|map| map.0.is_empty()), types)
    }
    let port_0 = shape.port.get().is_none_or(|scalar| scalar.text == "0");
    let tcp_method = shape.method.get().is_some_and(|scalar| scalar.text == "connection_established");
    vec![
        (shape.port.place(), port_0, PORT),
        match tcp_method {
            true => (shape.method.place(), false, &["http", "https", "tcp"]),
            false => one(&shape.method, HTTP),
        },
        one(&shape.path, HTTP),
        named(&shape.header, HTTP),
        one(&shape.body, HTTP),
        one(&shape.http_version, HTTP),
        many(&shape.expected_codes, HTTP),
        one(&shape.expected_body, HTTP),
        one(&shape.expected_regex, HTTP),
        named(&shape.expected_json, HTTP),
        named(&shape.expected_headers, HTTP),
        one(&shape.body_limit, HTTP),
        one(&shape.follow_redirects, HTTP),
        one(&shape.tls, &["smtp", "grpc"]),
        one(&shape.starttls, &["smtp"]),
        one(&shape.allow_insecure, TLS),
        one(&shape.server_name, TLS),
        one(&shape.ca_file, TLS),
        one(&shape.client_certificate, TLS),
        one(&shape.client_key, TLS),
        one(&shape.certificate_degraded, TLS),
        one(&shape.certificate_fail, TLS),
        one(&shape.send, &["tcp", "udp_icmp", "agent"]),
        one(&shape.expect, &["tcp"]),
        one(&shape.hello, &["smtp"]),
        one(&shape.query_name, &["dns"]),
        one(&shape.query_type, &["dns"]),
        one(&shape.recursion, &["dns"]),
        one(&shape.transport, &["dns"]),
        many(&shape.expected_rcode, &["dns"]),
        many(&shape.expected_data, &["dns"]),
        one(&shape.service, &["grpc"]),
        one(&shape.authority, &["grpc"]),
        (shape.command.place(), false, &["exec"]),
        one(&shape.url, &["prometheus"]),
        one(&shape.query, &["prometheus"]),
        one(&shape.at_least, &["prometheus"]),
        one(&shape.at_most, &["prometheus"]),
        one(&shape.verdict, &["static"]),
    ]
}

impl Lower<'_> {
    pub(super) fn monitors(&self, definitions: &Definitions<'_, shape::Monitor>) -> Vec<Arc<Monitor>> {
        let absent = shape::Monitor::default();
        definitions
            .sorted
            .iter()
            .map(|(name, field)| Arc::new(self.monitor(name, field.place(), field.get().unwrap_or(&absent))))
            .collect()
    }

    fn monitor(&self, name: &str, place: Option<Place>, shape: &shape::Monitor) -> Monitor {
        let (millis, secs) = (Duration::from_millis, Duration::from_secs);
        let check = self.check(shape);
        let interval = self.duration(&shape.interval, millis(100)..=secs(3600), secs(15));
        let timeout = self.duration(&shape.timeout, millis(50)..=secs(60), secs(5));
        let retries = self.number(&shape.retries, 0..=5, 0) as u8;
        let usual = interval.min(secs(2));
        let recheck_interval = match self.switch(&shape.recheck_interval) {
            Switch::Off => None,
            Switch::Absent => Some(usual),
            Switch::On => {
                if let Some(place) = shape.recheck_interval.place() {
                    self.not_duration("true", place, "write a duration such as `2s`, or `off`");
                }
                None
            }
            Switch::Other(..) => {
                let most = interval.max(millis(100));
                Some(self.duration(&shape.recheck_interval, millis(100)..=most, usual))
            }
        };
        let worst = timeout * (u32::from(retries) + 1);
        let is_probed = !matches!(check, Check::Push | Check::Static(_));
        if let Some(place) = place.filter(|_| is_probed && worst > interval) {
            self.gather.warn(
                Spot::Key(place),
                ProblemKind::ProbeLonger { worst: value::show(worst), interval: value::show(interval) },
                Some("let (`retries` + 1) × `timeout` fit into `interval`".into()),
                None,
            );
        }
        // 0 is how Cloudflare's API writes 1: a single outcome decides.
        let run = |field, usual| self.number(field, 0..=1000, usual).max(1) as u32;
        let reading = self.reading(shape, timeout);
        Monitor {
            name: name.into(),
            check,
            reading,
            start_period: self.duration(
                &shape.start_period,
                Duration::ZERO..=secs(24 * 3600),
                Duration::ZERO,
            ),
            interval,
            timeout,
            retries,
            recheck_interval,
            thresholds: Thresholds {
                up: run(&shape.consecutive_up, 2),
                down: run(&shape.consecutive_down, 3),
            },
        }
    }

    fn check(&self, shape: &shape::Monitor) -> Check {
        let named = match self.text(&shape.r#type) {
            None => "http",
            Some((text, place)) if !TYPES.contains(&text) => {
                self.unknown_value(place, text, &TYPES);
                // What the keys mean is unknown, so none of them is judged.
                return Check::Tcp(TcpCheck { port: self.port(&shape.port), ..TcpCheck::default() });
            }
            Some((text, _)) => text,
        };
        for (place, empty, types) in special_keys(shape) {
            if let Some(place) = place.filter(|_| !empty && !types.contains(&named)) {
                self.foreign(place, named, types);
            }
        }
        match named {
            "tcp" => self.tcp_check(shape),
            "icmp_ping" => Check::Icmp,
            "udp_icmp" => self.udp_check(shape),
            "smtp" => self.smtp_check(shape),
            "tls" => self.tls_check(shape),
            "dns" => self.dns_check(shape),
            "grpc" => self.grpc_check(shape),
            "agent" => self.agent_check(shape),
            "push" => Check::Push,
            "exec" => self.exec_check(shape),
            "prometheus" => self.prometheus_check(shape),
            "static" => self.static_check(shape),
            http_or_https => self.http_check(shape, http_or_https == "https"),
        }
    }

    fn static_check(&self, shape: &shape::Monitor) -> Check {
        match self.text(&shape.verdict) {
            None | Some(("healthy", _)) => Check::Static(true),
            Some(("unhealthy", _)) => Check::Static(false),
            Some((other, place)) => {
                self.unknown_value(place, other, &["healthy", "unhealthy"]);
                Check::Static(true)
            }
        }
    }

    fn foreign(&self, place: Place, named: &str, types: &[&str]) {
        let kind = ProblemKind::NotForType { key: self.gather.key_of(place), check: named.into() };
        let types = types.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let help = format!("take it away, or write another `type`: {types}");
        self.gather.refuse(Spot::Key(place), kind, Some(help));
    }

    fn reading(&self, shape: &shape::Monitor, timeout: Duration) -> Reading {
        let latency = |field: &Field<Scalar>| {
            let given = field.get().is_some_and(|scalar| scalar.text != "off");
            given.then(|| self.duration(field, Duration::from_millis(1)..=timeout * 6, timeout))
        };
        Reading {
            invert: self.boolean(&shape.invert, false),
            degraded_above: latency(&shape.degraded_above),
            fail_above: latency(&shape.fail_above),
            source: self.source(&shape.source),
        }
    }

    /// One address of this machine, or one of each family.
    pub(super) fn source(&self, field: &Field<OneOrMany<Scalar>>) -> Source {
        let mut source = Source::default();
        for item in field.get().map(|list| &list.0[..]).unwrap_or_default() {
            let Some((text, place)) = self.text(item) else { continue };
            let unfit = |address: IpAddr| match address {
                IpAddr::V4(v4) => v4.is_broadcast() || v4.is_multicast(),
                IpAddr::V6(v6) => v6.is_multicast() || v6.to_ipv4_mapped().is_some(),
            };
            let twice = match text.parse::<IpAddr>().map_err(drop).and_then(|address| match unfit(address) {
                true => Err(()),
                false => Ok(address),
            }) {
                Ok(IpAddr::V4(address)) => source.ipv4.replace(address).is_some(),
                Ok(IpAddr::V6(address)) => source.ipv6.replace(address).is_some(),
                Err(()) => {
                    let why = "probes leave from an address of this machine".into();
                    let kind = ProblemKind::NotAddress { value: text.into(), why };
                    let help = "write one such as `192.0.2.1`, or one of each family".to_owned();
                    self.gather.refuse(Spot::Value(place), kind, Some(help));
                    continue;
                }
            };
            if twice {
                let kind = ProblemKind::SeveralSources {};
                self.gather.refuse(Spot::Value(place), kind, Some("keep one of each family".into()));
            }
        }
        source
    }
}
