//! One instant query of Prometheus, and whether its value is within bounds.
//!
//! Somebody else than the endpoint is asked: what goes wrong on the way says
//! nothing about the endpoint and is an error, never a failure.

use hyper::Request;
use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use serde_json::Value;

use super::exchange::{self, Answer, Version};
use super::hop::Hop;
use super::http::user_agent;
use super::tls::Alpn;
use super::{Failure, Phase, Progress, connect, tls};
use crate::health::{ProbeTask, Reason};
use crate::model::PrometheusCheck;

/// So much of an answer is read; one sample takes far less.
const MAX_ANSWER: usize = 64 * 1024;

/// Asks and judges.
pub(super) async fn probe(
    configs: &tls::Configs,
    task: &ProbeTask,
    check: &PrometheusCheck,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let value = match ask(configs, task, check, progress).await {
        Ok(value) => value,
        Err(Failure::Failed(_, detail)) => return Err(no_metric(detail)),
        Err(other) => return Err(other),
    };
    let outside = |detail| Err(Failure::Failed(Reason::MetricOutOfBounds, detail));
    if check.at_least.is_some_and(|least| value < least) {
        outside("below")
    } else if check.at_most.is_some_and(|most| value > most) {
        outside("above")
    } else {
        Ok(())
    }
}

const fn no_metric(detail: &'static str) -> Failure {
    Failure::NotTested(Reason::OtherFailure, detail)
}

async fn ask(
    configs: &tls::Configs,
    task: &ProbeTask,
    check: &PrometheusCheck,
    progress: &mut Progress,
) -> Result<f64, Failure> {
    let query = filled(&check.query, task);
    let hop = place(&check.url, &query).ok_or(INVALID_REQUEST)?;
    let request = compose(task, &hop)?;
    let stream = connect::connect_by_name(hop.name(), hop.port, task.source(), progress).await?;
    progress.enter(if hop.tls { Phase::Tls } else { Phase::Response });
    let Answer { head, mut body } = match hop.tls {
        false => exchange::send(stream, request, Version::Http1, progress).await?,
        true => {
            let name = check.tls.server_name.as_deref().unwrap_or(hop.name());
            let stream = configs.handshake(stream, Some(&check.tls), name, Alpn::Http1, progress).await?;
            progress.enter(Phase::Response);
            exchange::send(stream, request, Version::Http1, progress).await?
        }
    };
    progress.phase = Phase::Body;
    let octets = body.collect(MAX_ANSWER, |_| ()).await?;
    let found = match head.status.as_u16() {
        200 => sample(&octets),
        _ => Err(UNAVAILABLE),
    };
    match found {
        Ok(value) => progress.hear(value.to_string().as_bytes()),
        Err(_) => progress.hear(&octets), // it says what is wrong with the query
    }
    body.leave(0, progress).await;
    found
}

const INVALID_REQUEST: Failure = Failure::NotTested(Reason::OtherFailure, "invalid_request");
const UNAVAILABLE: Failure = no_metric("metric_unavailable");

/// The query for one endpoint. Quotes and backslashes of names are escaped, as
/// they are due between double quotes.
fn filled(query: &str, task: &ProbeTask) -> String {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let mut out = String::new();
    let mut rest = query;
    // From left to right, so that what a name brings along is not replaced again.
    while let Some(start) = rest.find('{') {
        out += &rest[..start];
        rest = &rest[start..];
        let values = [
            ("{address}", task.address.to_string()),
            ("{endpoint}", escaped(&task.endpoint)),
            ("{pool}", escaped(&task.pool)),
        ];
        match values.iter().find_map(|(word, value)| Some((value, rest.strip_prefix(word)?))) {
            Some((value, behind)) => {
                out += value;
                rest = behind;
            }
            None => {
                out.push('{');
                rest = &rest[1..];
            }
        }
    }
    out + rest
}

/// Where the API answers a query.
fn place(url: &str, query: &str) -> Option<Hop<'static>> {
    let nowhere = Hop { tls: false, port: 80, host: "".into(), path: "/".into() };
    let base = nowhere.follow(url).ok()?;
    let mut path = format!("{}/api/v1/query?query=", base.path.trim_end_matches('/'));
    for octet in query.bytes() {
        match octet {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                path.push(char::from(octet));
            }
            _ => path += &format!("%{octet:02X}"),
        }
    }
    Some(Hop { path: path.into(), ..base })
}

fn compose(task: &ProbeTask, hop: &Hop<'_>) -> Result<Request<Bytes>, Failure> {
    let mut request = Request::new(Bytes::new());
    *request.uri_mut() = hop.path.parse().map_err(|_| INVALID_REQUEST)?;
    let headers = request.headers_mut();
    headers.insert(header::HOST, HeaderValue::from_str(&hop.host).map_err(|_| INVALID_REQUEST)?);
    headers.insert(header::USER_AGENT, user_agent(task)?);
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    Ok(request)
}

/// The one value of a scalar, or of a vector of one.
fn sample(answer: &[u8]) -> Result<f64, Failure> {
    let json: Value = serde_json::from_slice(answer).map_err(|_| UNAVAILABLE)?;
    if json["status"] != "success" {
        return Err(UNAVAILABLE);
    }
    let result = &json["data"]["result"];
    let pair = match (json["data"]["resultType"].as_str(), result.as_array().map(Vec::as_slice)) {
        (Some("scalar"), _) => result,
        (Some("vector"), Some([one])) => &one["value"],
        (Some("vector"), Some([])) => return Err(no_metric("no_sample")),
        (Some("vector"), Some(_)) => return Err(no_metric("several_samples")),
        _ => return Err(UNAVAILABLE),
    };
    let value: f64 = pair[1].as_str().and_then(|text| text.parse().ok()).ok_or(UNAVAILABLE)?;
    if value.is_nan() { Err(no_metric("not_a_number")) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;

    use super::*;
    use crate::model::{Check, Monitor};

    fn task(address: &str, endpoint: &str) -> ProbeTask {
        ProbeTask {
            pool: "eu".into(),
            endpoint: endpoint.into(),
            address: address.parse::<IpAddr>().unwrap(),
            hostname: None,
            port: 0,
            host: None,
            monitor: Arc::new(Monitor::new("m", Check::Icmp)),
            vantage: Arc::default(),
        }
    }

    #[test]
    fn a_query_is_filled_with_the_endpoints_names() {
        for (query, filled_as) in [
            ("up", "up"),
            ("up{instance=\"{address}:9100\"}", "up{instance=\"2001:db8::1:9100\"}"),
            ("{endpoint}{pool}{address}", "a\\\"{pool}eu2001:db8::1"),
            ("{other} {{pool}} {", "{other} {eu} {"),
        ] {
            assert_eq!(filled(query, &task("2001:db8::1", "a\"{pool}")), filled_as);
        }
    }

    #[test]
    fn a_query_goes_below_the_url() {
        for (url, query, expected) in [
            ("http://p.example.com", "up", "http 80 p.example.com /api/v1/query?query=up"),
            ("http://p.example.com:9090/", "up", "http 9090 p.example.com:9090 /api/v1/query?query=up"),
            (
                "https://[2001:db8::1]/p/",
                "a{b=\"c\"} > 1",
                "https 443 [2001:db8::1] /p/api/v1/query?query=a%7Bb%3D%22c%22%7D%20%3E%201",
            ),
        ] {
            let hop = place(url, query).unwrap();
            let scheme = if hop.tls { "https" } else { "http" };
            assert_eq!(format!("{scheme} {} {} {}", hop.port, hop.host, hop.path), expected);
        }
        assert_eq!(place("ftp://p.example.com", "up"), None);
    }

    #[test]
    fn one_number_is_a_value_and_everything_else_is_none() {
        let of = |kind: &str, result: &str| {
            format!(r#"{{"status":"success","data":{{"resultType":"{kind}","result":{result}}}}}"#)
        };
        let one = r#"{"metric":{"a":"b"},"value":[1700000000.1,"VALUE"]}"#;
        let valued = |value: &str| of("vector", &format!("[{}]", one.replace("VALUE", value)));
        for (answer, expected) in [
            (valued("1.5"), Ok(1.5)),
            (valued("-3e2"), Ok(-300.0)),
            (valued("+Inf"), Ok(f64::INFINITY)),
            (valued("NaN"), Err(no_metric("not_a_number"))),
            (valued("much"), Err(UNAVAILABLE)),
            (of("scalar", r#"[1700000000,"42"]"#), Ok(42.0)),
            (of("vector", "[]"), Err(no_metric("no_sample"))),
            (of("vector", &format!("[{one},{one}]")), Err(no_metric("several_samples"))),
            (of("matrix", "[]"), Err(UNAVAILABLE)),
            (of("string", r#"[1700000000,"42"]"#), Err(UNAVAILABLE)),
            (r#"{"status":"error","errorType":"bad_data","error":"x"}"#.into(), Err(UNAVAILABLE)),
            ("{}".into(), Err(UNAVAILABLE)),
            ("<html>".into(), Err(UNAVAILABLE)),
        ] {
            assert_eq!(sample(answer.as_bytes()), expected, "{answer}");
        }
    }
}
