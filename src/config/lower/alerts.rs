//! Routes of alerts, and how much of the history is kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use hyper::header::HeaderValue;

use super::super::History;
use super::super::place::{Place, Spot};
use super::super::problem::ProblemKind;
use super::super::reader::{Field, OneOrMany, Scalar, SingleOrMap, brief};
use super::super::{shape, value};
use super::{Definitions, Lower};
use crate::model::{Form, Model, Name, Receiver, Route, Secret, Subjects, Url};

const TYPES: [&str; 3] = ["webhook", "slack", "pagerduty"];
const SUBJECTS: [&str; 4] = ["endpoint", "pool", "load_balancer", "vantage"];
const PAGERDUTY: &str = "https://events.pagerduty.com/v2/enqueue";

/// The least size at which a file of the history ends.
const LEAST_FILE: u64 = 64 << 10;

const DAY: Duration = Duration::from_secs(24 * 3600);

impl Lower<'_> {
    /// The routes by name; of `model` all is there but these.
    pub(super) fn alerts(
        &self,
        definitions: &Definitions<'_, shape::Alert>,
        pools: &Definitions<'_, shape::Pool>,
        model: &Model,
    ) -> Vec<Arc<Route>> {
        let given = definitions.sorted.iter().filter_map(|(name, field)| match field {
            Field::Given(place, shape) => Some((*name, *place, shape)),
            Field::Absent | Field::Broken(_) => None,
        });
        given.map(|(name, place, shape)| Arc::new(self.route(name, place, shape, pools, model))).collect()
    }

    fn route(
        &self,
        name: &str,
        place: Place,
        shape: &shape::Alert,
        pools: &Definitions<'_, shape::Pool>,
        model: &Model,
    ) -> Route {
        let usual = Route::new(name, self.receiver(name, place, shape));
        let (unhealthy, healthy) = match self.words(&shape.new_health, &["unhealthy", "healthy"]) {
            Some(words) => (words.contains_key("unhealthy"), words.contains_key("healthy")),
            None => (usual.unhealthy, usual.healthy),
        };
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        let repeat = match self.switch(&shape.repeat) {
            super::Switch::Absent | super::Switch::Off => None,
            _ => Some(self.duration(&shape.repeat, Duration::from_secs(60)..=hours(24 * 7), hours(4))),
        };
        Route {
            on: self.subjects(&shape.on).unwrap_or(usual.on),
            pools: self.pool_filter(&shape.pools, pools),
            load_balancers: self.balancer_filter(&shape.load_balancers, model),
            unhealthy,
            healthy,
            delay: self.duration(&shape.delay, Duration::ZERO..=hours(24), usual.delay),
            repeat,
            ..usual
        }
    }

    fn receiver(&self, name: &str, place: Place, shape: &shape::Alert) -> Receiver {
        if shape.r#type.is_absent() {
            let help = "write `type: webhook`, `slack` or `pagerduty`";
            self.missing(place, &format!("the alert `{name}`"), "type", help);
        }
        let kind = match self.text(&shape.r#type) {
            None => "",
            Some((text, _)) if TYPES.contains(&text) => text,
            Some((other, place)) => {
                self.unknown_value(place, other, &TYPES);
                ""
            }
        };
        for (field, key, of) in
            [(&shape.secret, "secret", "webhook"), (&shape.routing_key, "routing_key", "pagerduty")]
        {
            if let Some(place) = field.place().filter(|_| !kind.is_empty() && kind != of) {
                let problem = ProblemKind::NotForAlert { key: key.into(), kind: kind.into() };
                let help = format!("only alerts of type {of} have it; take it away");
                self.gather.refuse(Spot::Key(place), problem, Some(help));
            }
        }
        let form = match kind {
            "slack" => Form::Slack,
            "pagerduty" => {
                if shape.routing_key.is_absent() {
                    let help = "write the integration key of the service, an integration of Events API v2";
                    self.missing(place, &format!("the alert `{name}`"), "routing_key", help);
                }
                let key = self.secret(&shape.routing_key);
                Form::PagerDuty { routing_key: key.unwrap_or_else(|| Secret::new("")) }
            }
            _ => Form::Webhook { secret: self.secret(&shape.secret) },
        };
        let usual = if kind == "pagerduty" { PAGERDUTY } else { "" };
        let url = match self.text(&shape.url) {
            Some((text, place)) => {
                let url = url(text);
                if url.is_none() {
                    let help = "write an address such as `https://hooks.example.com/services/T0`".to_owned();
                    self.gather.refuse(Spot::Value(place), ProblemKind::NotReceiver {}, Some(help));
                }
                url
            }
            None => {
                if shape.url.is_absent() && !kind.is_empty() && usual.is_empty() {
                    let help = "write the address that notices are posted to";
                    self.missing(place, &format!("the alert `{name}`"), "url", help);
                }
                url(usual)
            }
        };
        let nowhere = || Url { tls: false, host: "".into(), port: 0, target: "/".into() };
        Receiver { form, url: url.unwrap_or_else(nowhere), extra_roots: self.extra_roots(&shape.ca_file) }
    }

    fn secret(&self, field: &Field<Scalar>) -> Option<Secret> {
        let (text, place) = self.text(field)?;
        if text.is_empty() {
            self.empty_text(place, "a secret");
            return None;
        }
        if HeaderValue::from_str(text).is_err() || !text.is_ascii() {
            self.gather.refuse(Spot::Value(place), ProblemKind::NotSecret {}, None);
        }
        Some(Secret::new(text))
    }

    fn subjects(&self, field: &Field<OneOrMany<Scalar>>) -> Option<Subjects> {
        let words = self.words(field, &SUBJECTS)?;
        let has = |word: &str| words.contains_key(word);
        Some(Subjects {
            endpoint: has("endpoint"),
            pool: has("pool"),
            load_balancer: has("load_balancer"),
            vantage: has("vantage"),
        })
    }

    /// Words of a list, each one of `known`; none: the key is absent.
    fn words<'f>(
        &self,
        field: &'f Field<OneOrMany<Scalar>>,
        known: &[&str],
    ) -> Option<BTreeMap<&'f str, Place>> {
        let words = self.listed(field, &format!("name some of: {}", known.join(", ")))?;
        for (word, place) in words.iter().filter(|(word, _)| !known.contains(*word)) {
            self.unknown_value(*place, word, known);
        }
        Some(words)
    }

    /// The texts of a list that is not empty, each once.
    fn listed<'f>(
        &self,
        field: &'f Field<OneOrMany<Scalar>>,
        help: &str,
    ) -> Option<BTreeMap<&'f str, Place>> {
        let Field::Given(place, list) = field else { return None };
        if list.0.is_empty() {
            self.empty_list(*place, help);
        }
        let mut texts = BTreeMap::new();
        for (text, place) in list.0.iter().filter_map(|item| self.text(item)) {
            match texts.get(text) {
                Some(first) => self.listed_twice(place, *first, &format!("`{}`", brief(text))),
                None => drop(texts.insert(text, place)),
            }
        }
        Some(texts)
    }

    fn pool_filter(
        &self,
        field: &Field<OneOrMany<Scalar>>,
        pools: &Definitions<'_, shape::Pool>,
    ) -> Option<Vec<Arc<str>>> {
        let names = self.listed(field, "name a pool, or take the key away: it is told of all pools")?;
        for (name, place) in names.iter().filter(|(name, _)| pools.complete && pools.id(name).is_none()) {
            let help = self.define(name, "pools", pools);
            self.gather.refuse(
                Spot::Value(*place),
                ProblemKind::NoSuchPool { name: brief(name) },
                Some(help),
            );
        }
        Some(names.into_keys().map(Arc::from).collect())
    }

    fn balancer_filter(&self, field: &Field<OneOrMany<Scalar>>, model: &Model) -> Option<Vec<Name>> {
        let help = "name a load balancer, or take the key away: it is told of all of them";
        let names = self.listed(field, help)?;
        let known = || model.zones.iter().flat_map(|zone| &zone.load_balancers).map(|lb| &lb.name);
        let mut found = Vec::new();
        for (text, place) in names {
            match text.parse::<Name>() {
                Ok(name) if known().any(|known| *known == name) => found.push(name),
                // it may be in what was refused
                Ok(_) if self.gather.has_errors() || !self.whole => {}
                Ok(_) => {
                    let kind = ProblemKind::NoSuchLoadBalancer { name: brief(text) };
                    let help = match known().next() {
                        Some(name) => format!("write the whole name, such as `{name}`"),
                        None => "there is none in this configuration".to_owned(),
                    };
                    self.gather.refuse(Spot::Value(place), kind, Some(help));
                }
                Err(error) => {
                    let kind = ProblemKind::NotName { value: brief(text), why: error.to_string() };
                    self.gather.refuse(Spot::Value(place), kind, None);
                }
            }
        }
        Some(found)
    }

    /// How much of the history is kept; none: there is none.
    pub(super) fn history(&self, field: &Field<shape::HistoryOrOff>) -> Option<History> {
        let usual = History::default();
        let (place, given) = match field {
            Field::Absent | Field::Broken(_) => return Some(usual),
            Field::Given(place, given) => (*place, given),
        };
        let shape = match given {
            SingleOrMap::Map(shape) => shape,
            SingleOrMap::Single(scalar) => {
                if !["off", "false"].contains(&scalar.text.to_ascii_lowercase().as_str()) {
                    let kind = ProblemKind::WrongShape { found: scalar.shown(), expected: "a map".into() };
                    let help = "write `{ max_size: 16MiB, max_files: 8, max_age: 90d }`, or `off`";
                    self.gather.refuse(Spot::Value(place), kind, Some(help.into()));
                }
                return None;
            }
        };
        let max_size = self.text(&shape.max_size).map_or(usual.max_size, |(text, place)| {
            let Some(size) = value::size(text) else {
                let kind = ProblemKind::NotSize { value: brief(text) };
                let help = "write octets, or a number with its unit, such as `16MiB`".to_owned();
                self.gather.refuse(Spot::Value(place), kind, Some(help));
                return usual.max_size;
            };
            if !(LEAST_FILE..=1 << 30).contains(&(size as u64)) {
                self.out_of_range(place, text, "64KiB to 1024MiB".into(), None);
            }
            size as u64
        });
        Some(History {
            max_size,
            max_files: self.number(&shape.max_files, 1..=1000, usual.max_files as u64) as usize,
            max_age: self.duration(&shape.max_age, DAY..=DAY * 3650, usual.max_age),
        })
    }
}

/// The address that a text says; none: it is none that can be posted to.
fn url(text: &str) -> Option<Url> {
    let uri: Uri = text.parse().ok()?;
    let tls = match uri.scheme_str()? {
        "https" => true,
        "http" => false,
        _ => return None,
    };
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let port = match authority.as_str().strip_prefix(authority.host())? {
        "" if tls => 443,
        "" => 80,
        port => port.strip_prefix(':')?.parse().ok()?,
    };
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let good = !host.is_empty() && port != 0;
    good.then(|| Url { tls, host: host.into(), port, target: target.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_scheme_a_host_and_a_port() {
        for (text, place, target) in [
            ("https://hooks.example.com/T0/B0?x=1", "https://hooks.example.com", "/T0/B0?x=1"),
            ("http://127.0.0.1:9000", "http://127.0.0.1:9000", "/"),
            ("https://[2001:db8::1]/a", "https://[2001:db8::1]", "/a"),
            ("https://[2001:db8::1]:8443/a", "https://[2001:db8::1]:8443", "/a"),
        ] {
            let url = url(text).unwrap();
            assert_eq!((url.place().as_str(), &*url.target), (place, target), "{text}");
        }
        for text in [
            "hooks.example.com/x",
            "/x",
            "ftp://a/x",
            "https://",
            "https://me:pw@host/",
            "http://a:0/",
            "http://a:99999/",
            "http://a:/",
            "",
        ] {
            assert_eq!(url(text), None, "{text}");
        }
    }
}
