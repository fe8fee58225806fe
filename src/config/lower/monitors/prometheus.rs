//! Monitors of type prometheus.

use hyper::Uri;

use crate::config::file::Kind;
use crate::config::lower::Lower;
use crate::config::place::Spot;
use crate::config::problem::ProblemKind;
use crate::config::reader::{Field, Scalar, brief};
use crate::config::shape;
use crate::model::{Check, PrometheusCheck};

const WHAT: &str = "a monitor of type prometheus";

impl Lower<'_> {
    pub(super) fn prometheus_check(&self, shape: &shape::Monitor) -> Check {
        let url = self.url(shape);
        if url.starts_with("http:") {
            self.without_tls(shape, "write `https:`");
        }
        let query = self.required(
            shape,
            &shape.query,
            "query",
            "write a query such as `up{instance=\"{address}:9100\"}`",
        );
        let (at_least, at_most) = (self.decimal(&shape.at_least), self.decimal(&shape.at_most));
        let unbound = shape.at_least.is_absent() && shape.at_most.is_absent();
        if let Some(place) = shape.r#type.place().filter(|_| unbound) {
            let help = "write a bound that the value must keep, or both";
            self.missing(place, WHAT, "at_least` or `at_most", help);
        }
        if let (Some(least), Some(most)) = (at_least, at_most)
            && least > most
            && let Some((text, place)) = self.text(&shape.at_most)
        {
            self.out_of_range(place, text, format!("`at_least`, which is {least}, or more"), None);
        }
        Check::Prometheus(PrometheusCheck { url, tls: self.tls(shape), query, at_least, at_most })
    }

    fn required(&self, shape: &shape::Monitor, field: &Field<Scalar>, key: &str, help: &str) -> String {
        if let (true, Some(place)) = (field.is_absent(), shape.r#type.place()) {
            self.missing(place, WHAT, key, help);
        }
        let Some((text, place)) = self.text(field) else { return String::new() };
        if text.trim().is_empty() {
            self.empty_text(place, &format!("a {key}"));
        }
        text.into()
    }

    fn url(&self, shape: &shape::Monitor) -> String {
        let usual = "write where it is, such as `http://prometheus.example.com:9090`";
        let text = self.required(shape, &shape.url, "url", usual);
        let Some(place) = shape.url.place().filter(|_| !text.trim().is_empty()) else { return text };
        if let Err((why, help)) = usable(&text) {
            let kind = ProblemKind::NotUrl { value: brief(&text), why: why.into() };
            self.gather.refuse(Spot::Value(place), kind, Some(help.unwrap_or_else(|| usual.into())));
        }
        text
    }

    fn decimal(&self, field: &Field<Scalar>) -> Option<f64> {
        let Field::Given(place, scalar) = field else { return None };
        let number = scalar.text.parse::<f64>().ok().filter(|number| number.is_finite());
        if number.is_none() || !matches!(scalar.kind, Kind::Integer | Kind::Float) {
            let kind = ProblemKind::NotDecimal { value: scalar.shown() };
            let help = match number {
                Some(_) => format!("write {} without quotes", scalar.text),
                None => "write one such as `0.5` or `1e6`".into(),
            };
            self.gather.refuse(Spot::Value(*place), kind, Some(help));
            return None;
        }
        number
    }
}

/// Why a URL leads to no API, and what to write if that is clear.
fn usable(url: &str) -> Result<(), (&'static str, Option<String>)> {
    let known =
        |scheme: &str| url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    if !known("http://") && !known("https://") {
        let host = !url.contains("://") && !url.contains(char::is_whitespace);
        return Err((
            "it begins with `http://` or `https://`",
            host.then(|| format!("write `http://{}`", brief(url))),
        ));
    }
    if let Some((before, _)) = url.split_once("/api/v1") {
        return Err(("the path of the API is added to it", Some(format!("write `{}`", brief(before)))));
    }
    if let Some((before, _)) = url.split_once(['?', '#']) {
        return Err(("the query is added to it", Some(format!("write `{}`", brief(before)))));
    }
    let Ok(uri) = url.parse::<Uri>() else { return Err(("it is not a URL", None)) };
    let Some(authority) = uri.authority().filter(|authority| !authority.host().is_empty()) else {
        return Err(("it has no host", None));
    };
    if authority.as_str().contains('@') {
        return Err(("credentials are not sent", Some("take away what stands before the `@`".into())));
    }
    let port = authority.as_str()[authority.host().len()..].strip_prefix(':');
    if port.is_some_and(|digits| {
        digits.parse::<u16>().is_ok_and(|port| port == 0) || digits.parse::<u16>().is_err()
    }) {
        return Err(("its port is not one of 1 to 65535", None));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_scheme_a_host_and_perhaps_a_port_and_a_path() {
        for (url, why) in [
            ("http://prometheus.example.com", None),
            ("HTTPS://prometheus.example.com:9090/prefix/", None),
            ("http://192.0.2.1:9090", None),
            ("http://[2001:db8::1]:9090", None),
            ("prometheus:9090", Some("it begins with `http://` or `https://`")),
            ("ftp://prometheus", Some("it begins with `http://` or `https://`")),
            ("http://prometheus/api/v1/query", Some("the path of the API is added to it")),
            ("http://prometheus/?x", Some("the query is added to it")),
            ("http://a:b@prometheus/", Some("credentials are not sent")),
            ("http://prometheus:99999", Some("its port is not one of 1 to 65535")),
            ("http://prometheus:0", Some("its port is not one of 1 to 65535")),
            ("http://", Some("it is not a URL")),
            ("http://a b/", Some("it is not a URL")),
            ("é", Some("it begins with `http://` or `https://`")),
        ] {
            assert_eq!(usable(url).err().map(|(why, _)| why), why, "{url}");
        }
    }
}
