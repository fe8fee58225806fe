//! Whether an answer is what the monitor asks for: its status, its headers
//! and its body, all of them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use hyper::HeaderMap;
use hyper::http::response;
use parking_lot::Mutex;
use regex::bytes::Regex;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::super::search::{Letters, Search};
use crate::health::Reason;
use crate::model::{HttpCheck, body_pattern, pattern_limit};
use crate::probe::exchange::Body;
use crate::probe::{Failure, Phase, Progress};

/// So many compiled expressions are kept.
const MAX_PATTERNS: usize = 256;

/// Larger bodies are matched on threads where no probe waits behind them.
const ON_THE_SPOT: usize = 4 << 10;

/// So many bodies are matched there at once.
const MATCHING: usize = 2;

/// Regular expressions of monitors, compiled once, and the places where large
/// bodies are matched.
#[derive(Debug)]
pub(in crate::probe) struct Patterns {
    known: Mutex<HashMap<(String, usize), Regex>>,
    places: Arc<Semaphore>,
}

impl Default for Patterns {
    fn default() -> Patterns {
        Patterns { known: Mutex::default(), places: Arc::new(Semaphore::new(MATCHING)) }
    }
}

impl Patterns {
    fn get(&self, text: &str, body_limit: usize) -> Result<Regex, Failure> {
        let mut known = self.known.lock();
        let key = (text.to_owned(), pattern_limit(body_limit));
        if let Some(pattern) = known.get(&key) {
            return Ok(pattern.clone());
        }
        let pattern = body_pattern(text, body_limit)
            .map_err(|_| Failure::NotTested(Reason::OtherFailure, "invalid_pattern"))?;
        if known.len() >= MAX_PATTERNS {
            known.clear(); // some are of configurations that are gone
        }
        known.insert(key, pattern.clone());
        Ok(pattern)
    }
}

/// What a whole body has to be like.
struct Due {
    text: Option<Vec<u8>>,
    pattern: Option<Regex>,
    json: Vec<(String, String)>,
}

impl Due {
    fn judge(&self, body: &[u8]) -> Result<(), Failure> {
        let holds = |text: &Vec<u8>| Search::new(text, Letters::EitherCase).feed(body);
        if !self.text.as_ref().is_none_or(holds) {
            return Err(mismatch("body_not_found"));
        }
        if !self.pattern.as_ref().is_none_or(|pattern| pattern.is_match(body)) {
            return Err(mismatch("regex_mismatch"));
        }
        judge_json(&self.json, body)
    }

    /// Judges a body without keeping other probes waiting. A judgement that is
    /// given up ends by itself, its place held until then.
    async fn judge_aside(self, body: Vec<u8>, places: &Arc<Semaphore>) -> Result<(), Failure> {
        if body.len() <= ON_THE_SPOT {
            return self.judge(&body);
        }
        let place = Arc::clone(places).acquire_owned().await.expect("it is never closed");
        let judging = tokio::task::spawn_blocking(move || {
            let _place = place;
            self.judge(&body)
        });
        judging.await.unwrap_or(Err(Failure::NotTested(Reason::OtherFailure, "probe_aborted")))
    }
}

/// The verdict on an answer; `left` is how much of the body may be read.
pub(super) async fn judge(
    check: &HttpCheck,
    patterns: &Patterns,
    head: &response::Parts,
    body: &mut Body,
    left: &mut usize,
    progress: &mut Progress,
) -> Result<(), Failure> {
    if !check.expected_codes.contains(head.status.as_u16()) {
        return Err(Failure::Failed(Reason::ResponseCodeMismatch, "unexpected_status"));
    }
    judge_headers(&check.expected_headers, &head.headers)?;
    let text = check.expected_body.as_deref().filter(|text| !text.is_empty());
    if check.expected_regex.is_none() && check.expected_json.is_empty() {
        let Some(text) = text else { return Ok(()) };
        progress.phase = Phase::Body;
        return look_for(text, body, left, progress).await;
    }
    progress.phase = Phase::Body;
    let octets = body.collect(*left, |data| progress.hear(data)).await?;
    *left -= octets.len();
    let pattern = check.expected_regex.as_deref().map(|text| patterns.get(text, check.body_limit));
    let due = Due {
        text: text.map(<[u8]>::to_vec),
        pattern: pattern.transpose()?,
        json: check.expected_json.clone(),
    };
    due.judge_aside(octets, &patterns.places).await
}

const fn mismatch(detail: &'static str) -> Failure {
    Failure::Failed(Reason::ResponseBodyMismatch, detail)
}

/// Whether the first `left` octets of the body hold `text`; reads no further
/// than it must.
async fn look_for(
    text: &[u8],
    body: &mut Body,
    left: &mut usize,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let mut search = Search::new(text, Letters::EitherCase);
    while *left > 0 {
        let Some(data) = body.next().await? else { break };
        progress.hear(&data);
        let data = &data[..data.len().min(*left)];
        *left -= data.len();
        if search.feed(data) {
            return Ok(());
        }
    }
    Err(mismatch("body_not_found"))
}

fn judge_headers(expected: &[(String, String)], headers: &HeaderMap) -> Result<(), Failure> {
    for (name, part) in expected {
        if !headers.contains_key(name) {
            return Err(mismatch("header_missing"));
        }
        let holds =
            |value: &[u8]| part.is_empty() || Search::new(part.as_bytes(), Letters::EitherCase).feed(value);
        if !headers.get_all(name).iter().any(|value| holds(value.as_bytes())) {
            return Err(mismatch("header_mismatch"));
        }
    }
    Ok(())
}

fn judge_json(expected: &[(String, String)], body: &[u8]) -> Result<(), Failure> {
    if expected.is_empty() {
        return Ok(());
    }
    let json: Value = serde_json::from_slice(body).map_err(|_| mismatch("not_json"))?;
    let is_due = |(pointer, due): &(String, String)| {
        json.pointer(pointer).is_some_and(|value| as_text(value) == due.as_str())
    };
    match expected.iter().all(is_due) {
        true => Ok(()),
        false => Err(mismatch("json_mismatch")),
    }
}

/// A text as it is, anything else as JSON.
fn as_text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        other => Cow::Owned(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(one: &str, other: &str) -> (String, String) {
        (one.into(), other.into())
    }

    #[test]
    fn json_values_are_compared_by_their_text() {
        let body = br#"{"status":"ok","up":true,"n":1,"half":0.5,"none":null,"list":[{"a":"x"}],"a/b":1,"m~n":2,"":3,"big":18446744073709551615,"e":[]}"#;
        for (pointer, due, matches) in [
            ("/status", "ok", true),
            ("/status", "OK", false),
            ("/status", "\"ok\"", false),
            ("/up", "true", true),
            ("/up", "True", false),
            ("/n", "1", true),
            ("/n", "1.0", false),
            ("/half", "0.5", true),
            ("/none", "null", true),
            ("/none", "", false),
            ("/missing", "null", false),
            ("/list/0/a", "x", true),
            ("/list/1/a", "x", false),
            ("/list/00/a", "x", false),
            ("/a~1b", "1", true),
            ("/m~0n", "2", true),
            ("/", "3", true),
            ("/big", "18446744073709551615", true),
            ("/e", "[]", true),
        ] {
            let found = judge_json(&[pair(pointer, due)], body);
            assert_eq!(found.is_ok(), matches, "{pointer}: {due}");
        }
        assert_eq!(judge_json(&[pair("", "up")], b"\"up\""), Ok(()));
        for body in [&b""[..], b"{", b"ok", b"{} x", b"\xff", &b"[".repeat(10_000)] {
            assert_eq!(judge_json(&[pair("/a", "b")], body), Err(mismatch("not_json")), "{:.9?}", body);
        }
    }

    #[test]
    fn a_header_must_be_there_and_one_of_its_values_must_hold_the_text() {
        let mut headers = HeaderMap::new();
        headers.append("x-ready", "no".parse().unwrap());
        headers.append("x-ready", "Yes, all".parse().unwrap());
        headers.append("x-empty", "".parse().unwrap());
        for (name, part, expected) in [
            ("X-Ready", "yes", Ok(())),
            ("x-ready", "", Ok(())),
            ("X-Empty", "", Ok(())),
            ("X-Ready", "maybe", Err(mismatch("header_mismatch"))),
            ("X-Empty", "a", Err(mismatch("header_mismatch"))),
            ("X-Gone", "", Err(mismatch("header_missing"))),
        ] {
            assert_eq!(judge_headers(&[pair(name, part)], &headers), expected, "{name}: {part}");
        }
    }

    #[test]
    fn expressions_are_kept_but_not_without_end() {
        let patterns = Patterns::default();
        for n in 0..3 * MAX_PATTERNS {
            assert!(patterns.get(&format!("^{n}$"), 1).unwrap().is_match(n.to_string().as_bytes()));
            assert!(patterns.known.lock().len() <= MAX_PATTERNS);
        }
        assert!(patterns.get("(", 1).is_err());
    }

    #[test]
    fn the_larger_a_body_may_be_the_less_an_expression_may_cost() {
        for (text, body_limit, is_allowed) in [
            (r#""status": *"(ok|degraded)""#, 16 << 20, true),
            (r"(?i)version: [0-9]+\.[0-9]+", 16 << 20, true),
            (r"\w+: \d+", 10 << 10, true),
            ("[ab]{300}c", 10 << 10, true),
            ("[ab]{300}c", 1 << 20, false),
            ("[ab]{3000}c", 1 << 20, false),
            ("[ab]{9000}c", 10 << 10, false),
            (r"\w{100}", 10 << 10, false),
        ] {
            assert_eq!(body_pattern(text, body_limit).is_ok(), is_allowed, "{text}: {body_limit}");
        }
    }
}
