//! Monitors of type http and https.

use crate::config::lower::Lower;
use crate::config::place::{Place, Spot};
use crate::config::problem::ProblemKind;
use crate::config::reader::{Field, Named, OneOrMany, Scalar, brief};
use crate::config::{shape, value};
use crate::model::{Check, Codes, HttpCheck, body_pattern, pattern_limit};

const BODY_LIMIT: usize = 10 * 1024;
const MAX_BODY_LIMIT: usize = 16 << 20;

impl Lower<'_> {
    pub(super) fn http_check(&self, shape: &shape::Monitor, tls: bool) -> Check {
        let method = self.method(&shape.method);
        let body_limit = self.body_limit(&shape.body_limit);
        let http2 = self.http2(&shape.http_version);
        if http2 {
            self.no_headers_of_http1(&shape.header);
        }
        Check::Http(HttpCheck {
            tls: tls.then(|| self.tls(shape)),
            port: self.port(&shape.port),
            path: self.path(&shape.path),
            headers: self.headers(&shape.header),
            body: self
                .text(&shape.body)
                .filter(|(text, _)| !text.is_empty())
                .map(|(text, _)| text.as_bytes().into()),
            http2,
            expected_codes: self.codes(&shape.expected_codes),
            expected_body: self.expected_body(&shape.expected_body, body_limit, &method),
            expected_regex: self.expected_regex(&shape.expected_regex, body_limit, &method),
            expected_json: self.expected_json(&shape.expected_json, &method),
            expected_headers: self.expected_headers(&shape.expected_headers),
            body_limit,
            follow_redirects: self.boolean(&shape.follow_redirects, false),
            method,
        })
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

    pub(in crate::config::lower) fn headers(
        &self,
        field: &Field<Named<OneOrMany<Scalar>>>,
    ) -> Vec<(String, String)> {
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
        if !self.has_no_body(place, method) && text.len() > limit {
            let kind = ProblemKind::BodyAboveLimit { octets: text.len(), limit };
            let help = "shorten it, or raise `body_limit`".to_owned();
            self.gather.refuse(Spot::Value(place), kind, Some(help));
        }
        Some(text.into())
    }

    fn expected_regex(&self, field: &Field<Scalar>, limit: usize, method: &str) -> Option<String> {
        let (text, place) = self.text(field).filter(|(text, _)| !text.is_empty())?;
        self.has_no_body(place, method);
        if let Err(error) = body_pattern(text, limit) {
            let (why, help) = match &error {
                regex::Error::CompiledTooBig(_) => (
                    format!(
                        "compiled it takes more than the {} octets that `body_limit` {limit} allows",
                        pattern_limit(limit)
                    ),
                    "repeat less (`{…}`), write `(?-u)` before classes such as `\\w` to mean ASCII, or lower \
                     `body_limit`",
                ),
                // The library draws the expression over several lines; what is wrong stands in the last.
                error => (
                    error
                        .to_string()
                        .lines()
                        .last()
                        .unwrap_or_default()
                        .trim()
                        .trim_start_matches("error: ")
                        .to_owned(),
                    "write one such as `\"status\": *\"(ok|degraded)\"`; its syntax is that of Rust's regex crate",
                ),
            };
            let kind = ProblemKind::NotPattern { value: brief(text), why };
            self.gather.refuse(Spot::Value(place), kind, Some(help.into()));
        }
        Some(text.into())
    }

    fn expected_json(&self, field: &Field<Named<Scalar>>, method: &str) -> Vec<(String, String)> {
        let Field::Given(place, map) = field else { return Vec::new() };
        if !map.0.is_empty() {
            self.has_no_body(*place, method);
        }
        let mut expected = Vec::new();
        for (pointer, value) in &map.0 {
            let refuse = |why: &str, help: String| {
                let Some(place) = value.place() else { return };
                let kind = ProblemKind::NotPointer { value: brief(pointer), why: why.into() };
                self.gather.refuse(Spot::Key(place), kind, Some(help));
            };
            if !pointer.is_empty() && !pointer.starts_with('/') {
                let right = pointer.trim_start_matches(['$', '.']).replace('.', "/");
                refuse("it begins with `/`", format!("write `/{}`", brief(&right)));
            } else if pointer.split('~').skip(1).any(|rest| !rest.starts_with(['0', '1'])) {
                refuse(
                    "`~` stands for itself only as `~0`",
                    format!("write `{}`", brief(&pointer.replace('~', "~0"))),
                );
            }
            if let Some((text, _)) = self.text(value) {
                expected.push((pointer.clone(), text.into()));
            }
        }
        expected
    }

    fn expected_headers(&self, field: &Field<Named<Scalar>>) -> Vec<(String, String)> {
        let mut expected = Vec::new();
        for (name, value) in field.get().map(|named| &named.0[..]).unwrap_or_default() {
            if let Some(place) = value.place().filter(|_| name.is_empty() || !name.bytes().all(is_token)) {
                let kind = ProblemKind::NotHeaderName { name: brief(name) };
                let help = "write a name such as `X-Ready`".to_owned();
                self.gather.refuse(Spot::Key(place), kind, Some(help));
            }
            if let Some((text, _)) = self.text(value) {
                expected.push((name.clone(), text.into()));
            }
        }
        expected
    }

    /// Refuses a test of the body when there is none.
    fn has_no_body(&self, place: Place, method: &str) -> bool {
        let head = method == "HEAD";
        if head {
            let key = self.gather.key_of(place);
            let help = format!("write `method: GET`, or take `{key}` away");
            self.gather.refuse(Spot::Key(place), ProblemKind::BodyOfHead { key }, Some(help));
        }
        head
    }

    fn http2(&self, field: &Field<Scalar>) -> bool {
        match self.text(field) {
            None | Some(("" | "1.1", _)) => false,
            Some(("2", _)) => true,
            Some((other, place)) => {
                self.unknown_value(place, other, &["1.1", "2"]);
                false
            }
        }
    }

    /// RFC 9113 §8.2.2; the others of that section are refused anyway.
    fn no_headers_of_http1(&self, field: &Field<Named<OneOrMany<Scalar>>>) {
        for (name, values) in field.get().map(|named| &named.0[..]).unwrap_or_default() {
            let of_http1 = ["keep-alive", "proxy-connection"].contains(&name.to_ascii_lowercase().as_str());
            if let Some(place) = values.place().filter(|_| of_http1) {
                let kind =
                    ProblemKind::NotHeader { name: brief(name), why: "HTTP/2 has no such header".into() };
                self.gather.refuse(Spot::Key(place), kind, Some("take it away".to_owned()));
            }
        }
    }
}

/// A character of an RFC 9110 token (§5.6.2).
fn is_token(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&octet)
}
