//! Monitors: what a probe tests, how often, and what outcomes mean.

use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};

use super::super::place::{Place, Spot};
use super::super::problem::ProblemKind;
use super::super::reader::{Field, Named, OneOrMany, Scalar, brief};
use super::super::{shape, value};
use super::{Definitions, Lower, Switch, beside, type_of};
use crate::model::{Check, Codes, HttpCheck, Monitor, Thresholds, TlsCheck};

const LATER_TYPES: [&str; 8] = ["icmp_ping", "udp_icmp", "smtp", "ldap", "agent", "push", "dns", "grpc"];
const BODY_LIMIT: usize = 10 * 1024;
const MAX_BODY_LIMIT: usize = 16 << 20;

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
        if let Some(place) = place.filter(|_| worst > interval) {
            self.gather.warn(
                Spot::Key(place),
                ProblemKind::ProbeLonger { worst: value::show(worst), interval: value::show(interval) },
                Some("let (`retries` + 1) × `timeout` fit into `interval`".into()),
                None,
            );
        }
        // 0 is how Cloudflare's API writes 1: a single outcome decides.
        let run = |field, usual| self.number(field, 0..=1000, usual).max(1) as u32;
        Monitor {
            name: name.into(),
            check,
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
        let port = self.port(&shape.port);
        let tls = match self.text(&shape.r#type) {
            None | Some(("http", _)) => false,
            Some(("https", _)) => true,
            Some(("tcp", _)) => {
                self.only_tcp_keys(shape);
                return Check::Tcp { port };
            }
            Some((other, place)) => {
                if LATER_TYPES.contains(&other) {
                    self.later_value(place, other, "the types are `http`, `https` and `tcp`");
                } else {
                    self.unknown_value(place, other, &["http", "https", "tcp"]);
                }
                // What the keys mean is unknown, so none of them is judged.
                return Check::Tcp { port };
            }
        };
        let method = self.method(&shape.method);
        let body_limit = self.body_limit(&shape.body_limit);
        let http = HttpCheck {
            tls: tls.then(|| self.tls(shape)),
            port,
            path: self.path(&shape.path),
            headers: self.headers(&shape.header),
            expected_codes: self.codes(&shape.expected_codes),
            expected_body: self.expected_body(&shape.expected_body, body_limit, &method),
            body_limit,
            follow_redirects: self.boolean(&shape.follow_redirects, false),
            method,
        };
        let check = Check::Http(http);
        if !tls {
            self.not_for_type(&shape.allow_insecure, &check);
            self.not_for_type(&shape.server_name, &check);
            self.not_for_type(&shape.ca_file, &check);
        }
        check
    }

    /// An API object of type tcp carries the keys of HTTP with empty values.
    fn only_tcp_keys(&self, shape: &shape::Monitor) {
        let check = Check::Tcp { port: None };
        if shape.method.get().is_none_or(|method| method.text != "connection_established") {
            self.not_for_type(&shape.method, &check);
        }
        for field in [
            &shape.path,
            &shape.expected_body,
            &shape.body_limit,
            &shape.follow_redirects,
            &shape.allow_insecure,
            &shape.server_name,
            &shape.ca_file,
        ] {
            self.not_for_type(field, &check);
        }
        if let Field::Given(place, header) = &shape.header
            && !header.0.is_empty()
        {
            self.foreign(*place, &check);
        }
        if let Field::Given(place, codes) = &shape.expected_codes
            && !codes.0.iter().all(|code| code.get().is_some_and(|code| code.text.is_empty()))
        {
            self.foreign(*place, &check);
        }
    }

    fn not_for_type(&self, field: &Field<Scalar>, check: &Check) {
        if let Field::Given(place, scalar) = field
            && !scalar.text.is_empty()
            && scalar.text != "false"
        {
            self.foreign(*place, check);
        }
    }

    fn foreign(&self, place: Place, check: &Check) {
        let key = self.gather.key_of(place);
        let https = ["allow_insecure", "server_name", "ca_file"].contains(&key.as_str());
        let help = match https {
            true => "take it away, or write `type: https`",
            false => "take it away, or write `type: http` or `https`",
        };
        let kind = ProblemKind::NotForType { key, check: type_of(check).into() };
        self.gather.refuse(Spot::Key(place), kind, Some(help.into()));
    }

    fn method(&self, field: &Field<Scalar>) -> String {
        let Some((text, place)) = self.text(field) else { return "GET".into() };
        if text.is_empty() || !text.bytes().all(is_token) {
            let kind = ProblemKind::NotMethod { value: brief(text) };
            self.gather.refuse(Spot::Value(place), kind, Some("write `GET` or `HEAD`".into()));
        }
        text.into()
    }

    fn path(&self, field: &Field<Scalar>) -> String {
        let Some((text, place)) = self.text(field) else { return "/".into() };
        let refuse = |why: &str, help: Option<String>| {
            let kind = ProblemKind::NotPath { value: brief(text), why: why.into() };
            self.gather.refuse(Spot::Value(place), kind, help);
        };
        if text.is_empty() {
            return "/".into();
        } else if text.contains("://") {
            let rest = text.split_once("://").map_or("", |(_, rest)| rest);
            let path = rest.find('/').map_or("/", |slash| &rest[slash..]);
            let help = format!("write `{}`, and the host name as `header: {{ Host: … }}`", brief(path));
            refuse("it begins with `/`", Some(help));
        } else if !text.starts_with('/') {
            refuse("it begins with `/`", Some(format!("write `/{}`", brief(text))));
        } else if text.contains('#') {
            refuse("the part after `#` is never sent", Some("take that part away, or write `%23`".into()));
        } else if let Some(odd) = text.chars().find(|c| !('!'..='~').contains(c)) {
            let mut octets = [0; 4];
            let escaped: String =
                odd.encode_utf8(&mut octets).bytes().map(|octet| format!("%{octet:02X}")).collect();
            let why = match odd {
                ' ' => "it has a space in it",
                _ => "it has a character in it that is not visible ASCII",
            };
            refuse(why, Some(format!("write `{escaped}` for it")));
        }
        text.into()
    }

    pub(super) fn headers(&self, field: &Field<Named<OneOrMany<Scalar>>>) -> Vec<(String, String)> {
        let mut headers: Vec<(String, String)> = Vec::new();
        for (name, values) in field.get().map(|named| &named.0[..]).unwrap_or_default() {
            let Some(place) = values.place() else { continue };
            let refuse = |spot: Spot, why: &str, help: &str| {
                let kind = ProblemKind::NotHeader { name: brief(name), why: why.into() };
                self.gather.refuse(spot, kind, Some(help.into()));
            };
            let usual = "write a name such as `Host` or `X-Probe`";
            if name.is_empty() || !name.bytes().all(is_token) {
                refuse(
                    Spot::Key(place),
                    "its name has a character in it that header names cannot have",
                    usual,
                );
            }
            let ours = ["connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer"];
            if ours.contains(&name.to_ascii_lowercase().as_str()) {
                refuse(
                    Spot::Key(place),
                    "it belongs to the connection, which the probe manages",
                    "take it away",
                );
            }
            if headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name) && other != name) {
                refuse(
                    Spot::Key(place),
                    "it stands here before in other letters",
                    "put the values into one list",
                );
            }
            let values = values.get().map(|values| &values.0[..]).unwrap_or_default();
            let is_host = name.eq_ignore_ascii_case("host");
            if is_host && values.len() != 1 {
                refuse(
                    Spot::Value(place),
                    "a request has one Host",
                    "write one value, such as `www.example.com`",
                );
            }
            for value in values {
                let Some((text, place)) = self.text(value) else { continue };
                if text.contains(|c: char| c.is_control() && c != '\t') {
                    refuse(
                        Spot::Value(place),
                        "its value has a line break or another control character in it",
                        "write the value on one line",
                    );
                } else if is_host
                    && (text.is_empty() || !text.bytes().all(|b| b.is_ascii_graphic() && b != b'/'))
                {
                    refuse(
                        Spot::Value(place),
                        "its value is not a host name",
                        "write a name such as `www.example.com`, in ASCII and without `https://`",
                    );
                }
                headers.push((name.clone(), text.into()));
            }
        }
        headers
    }

    fn codes(&self, field: &Field<OneOrMany<Scalar>>) -> Codes {
        let Field::Given(place, list) = field else { return Codes(vec![200..=200]) };
        if list.0.is_empty() {
            self.empty_list(*place, "without a code no answer would do; write `200` or `2xx`");
        }
        let mut ranges = Vec::new();
        for item in &list.0 {
            let Some((text, place)) = self.text(item) else { continue };
            match value::codes(text) {
                _ if text.is_empty() && list.0.len() == 1 => ranges.push(200..=200),
                Ok(some) => ranges.extend(some),
                Err(part) => {
                    let help = if part.contains('-') {
                        "write the codes one by one (`200,204`) or a class (`2xx`)"
                    } else {
                        "write a code from 100 to 599 or a class such as `2xx`, several with commas between"
                    };
                    let kind =
                        ProblemKind::NotCodes { value: brief(if part.is_empty() { text } else { part }) };
                    self.gather.refuse(Spot::Value(place), kind, Some(help.into()));
                }
            }
        }
        Codes(ranges)
    }

    fn body_limit(&self, field: &Field<Scalar>) -> usize {
        let Some((text, place)) = self.text(field) else { return BODY_LIMIT };
        match value::size(text) {
            Some(octets) if (1..=MAX_BODY_LIMIT).contains(&octets) => octets,
            Some(_) => {
                self.out_of_range(place, text, "1 to 16MiB".into(), None);
                BODY_LIMIT
            }
            None => {
                let unpadded = value::unpadded(text);
                let help = match value::size(unpadded).filter(|_| unpadded.len() < text.len()) {
                    Some(_) => format!("write `{unpadded}`, without zeros before it"),
                    None => "write octets (`10240`), or `10KiB`, or `1MiB`".into(),
                };
                let kind = ProblemKind::NotSize { value: brief(text) };
                self.gather.refuse(Spot::Value(place), kind, Some(help));
                BODY_LIMIT
            }
        }
    }

    fn expected_body(&self, field: &Field<Scalar>, limit: usize, method: &str) -> Option<Vec<u8>> {
        let (text, place) = self.text(field).filter(|(text, _)| !text.is_empty())?;
        if method == "HEAD" {
            let help = "write `method: GET`, or take `expected_body` away".to_owned();
            self.gather.refuse(Spot::Key(place), ProblemKind::BodyOfHead {}, Some(help));
        } else if text.len() > limit {
            let kind = ProblemKind::BodyAboveLimit { octets: text.len(), limit };
            let help = "shorten it, or raise `body_limit`".to_owned();
            self.gather.refuse(Spot::Value(place), kind, Some(help));
        }
        Some(text.into())
    }

    fn tls(&self, shape: &shape::Monitor) -> TlsCheck {
        let server_name = self.text(&shape.server_name).map(|(text, place)| {
            if ServerName::try_from(text).is_err() {
                let kind = ProblemKind::NotServerName { value: brief(text) };
                let help = "write the name in the certificate, such as `www.example.com`".to_owned();
                self.gather.refuse(Spot::Value(place), kind, Some(help));
            }
            text.to_owned()
        });
        let extra_roots = self.text(&shape.ca_file).and_then(|(text, place)| {
            let refuse = |why: String| {
                let path = beside(self.gather, place, text).display().to_string();
                let help =
                    "name a PEM file of CA certificates; a relative path begins at this file's directory";
                self.gather.refuse(Spot::Value(place), ProblemKind::CaFile { path, why }, Some(help.into()));
                None
            };
            match std::fs::read(beside(self.gather, place, text)) {
                Err(error) => refuse(error.to_string()),
                Ok(pem) => match usable_roots(&pem) {
                    Err(why) => refuse(why),
                    Ok(()) => Some(pem.into()),
                },
            }
        });
        TlsCheck { allow_insecure: self.boolean(&shape.allow_insecure, false), server_name, extra_roots }
    }
}

fn usable_roots(pem: &[u8]) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() { Err("no PEM certificate in it".into()) } else { Ok(()) }
}

/// A character of an RFC 9110 token (§5.6.2).
fn is_token(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&octet)
}
