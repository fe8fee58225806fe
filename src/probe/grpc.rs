//! gRPC's own question after health, over HTTP/2.
//!
//! One unary call of `grpc.health.v1.Health/Check`: a message of one field
//! there, a message of one field back, and a status behind it.

use std::net::SocketAddr;

use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::response::Parts;
use hyper::{Method, Request};

use super::exchange::{self, Answer, Body, Version};
use super::hop::{name_of, usual_host};
use super::http::{absolute, user_agent};
use super::tls::{Alpn, server_name};
use super::{Failure, Phase, Progress, connect, tls};
use crate::health::{ProbeTask, Reason};
use crate::model::GrpcCheck;

const METHOD: &str = "/grpc.health.v1.Health/Check";

/// More than any answer takes.
const MAX_MESSAGE: usize = 4096;

/// Makes the call and judges its answer.
pub(super) async fn probe(
    configs: &tls::Configs,
    task: &ProbeTask,
    check: &GrpcCheck,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let request = compose(task, check)?;
    let stream = connect::connect(SocketAddr::new(task.address, task.port), task.source()).await?;
    progress.enter(if check.tls.is_some() { Phase::Tls } else { Phase::Response });
    let answer = match &check.tls {
        None => exchange::send(stream, request, Version::Http2, progress).await?,
        Some(rules) => {
            // `authority` goes before the endpoint's Host, as it does in the request.
            let name = match (&rules.server_name, check.authority.as_deref()) {
                (None, Some(authority)) => name_of(authority).to_owned(),
                _ => server_name(task, Some(rules), None),
            };
            let stream = configs.handshake(stream, Some(rules), &name, Alpn::Http2, progress).await?;
            progress.enter(Phase::Response);
            exchange::send(stream, request, Version::Http2, progress).await?
        }
    };
    let Answer { head, mut body } = answer;
    let verdict = judge(&head, &mut body, progress).await;
    progress.found = Some(verdict);
    body.leave(0, progress).await;
    verdict
}

/// The verdict on an answer.
async fn judge(head: &Parts, body: &mut Body, progress: &mut Progress) -> Result<(), Failure> {
    if head.status != 200 {
        return Err(Failure::Failed(Reason::HttpInvalidResponse, "unexpected_status"));
    }
    if !is_grpc(&head.headers) {
        return Err(Failure::Failed(Reason::HttpInvalidResponse, "not_grpc"));
    }
    // A call that fails at once has its status there, and nothing else (Trailers-Only).
    if head.headers.contains_key(STATUS) {
        return judge_status(&head.headers, &[], progress);
    }
    progress.phase = Phase::Body;
    let message = body.collect(MAX_MESSAGE, |_| ()).await?;
    if message.len() == MAX_MESSAGE {
        return Err(MALFORMED);
    }
    let trailers = body.trailers().await?.unwrap_or_default();
    judge_status(&trailers, &message, progress)
}

const STATUS: &str = "grpc-status";
const MALFORMED: Failure = Failure::Failed(Reason::HttpInvalidResponse, "malformed_response");

fn compose(task: &ProbeTask, check: &GrpcCheck) -> Result<Request<Bytes>, Failure> {
    let tls = check.tls.is_some();
    let authority = match (check.authority.as_deref(), task.host.as_deref()) {
        (Some(host), _) | (None, Some(host)) => host.to_owned(),
        (None, None) => usual_host(task, tls),
    };
    let timeout = format!("{}m", task.monitor.timeout.as_millis().clamp(1, 99_999_999)); // at most 8 digits
    let mut request = Request::new(message(&check.service));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = absolute(if tls { "https" } else { "http" }, &authority, METHOD)?;
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    headers.insert(header::USER_AGENT, user_agent(task)?);
    let timeout = HeaderValue::try_from(timeout).expect("digits and a letter can be sent");
    headers.insert("grpc-timeout", timeout);
    Ok(request)
}

/// A HealthCheckRequest with its length before it, uncompressed.
fn message(service: &str) -> Bytes {
    let mut fields = Vec::new();
    if !service.is_empty() {
        fields.push(0x0a); // field 1, of a length that follows
        let mut length = service.len();
        while length >= 0x80 {
            fields.push(length as u8 | 0x80);
            length >>= 7;
        }
        fields.push(length as u8);
        fields.extend_from_slice(service.as_bytes());
    }
    let length = u32::try_from(fields.len()).expect("a service's name is short").to_be_bytes();
    [&[0][..], &length, &fields].concat().into()
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    kind.strip_prefix(b"application/grpc").is_some_and(|rest| matches!(rest, [] | [b'+' | b';', ..]))
}

/// The verdict on a status and the message before it.
fn judge_status(trailers: &HeaderMap, message: &[u8], progress: &mut Progress) -> Result<(), Failure> {
    let code = trailers.get(STATUS).and_then(|code| code.to_str().ok()?.parse::<u16>().ok());
    let not_serving = |detail| Failure::Failed(Reason::GrpcNotServing, detail);
    match code {
        None => return Err(MALFORMED),
        Some(0) => {}
        Some(code) => {
            progress.status = Some(code);
            progress.hear(trailers.get("grpc-message").map_or(&b""[..], HeaderValue::as_bytes));
            return Err(not_serving(match code {
                5 => "service_unknown",
                12 => "unimplemented",
                _ => "grpc_status",
            }));
        }
    }
    let (said, verdict) = match serving_status(message).ok_or(MALFORMED)? {
        0 => ("UNKNOWN", Err(not_serving("unknown"))),
        1 => ("SERVING", Ok(())),
        2 => ("NOT_SERVING", Err(not_serving("not_serving"))),
        3 => ("SERVICE_UNKNOWN", Err(not_serving("service_unknown"))),
        _ => return Err(MALFORMED),
    };
    progress.hear(said.as_bytes());
    verdict
}

/// The status in a HealthCheckResponse with its length before it; 0 when it
/// says nothing. Fields that a later version may add are passed over.
fn serving_status(message: &[u8]) -> Option<u64> {
    let (prefix, mut fields) = message.split_first_chunk::<5>()?;
    let [compressed, length @ ..] = *prefix;
    if compressed != 0 || u32::from_be_bytes(length) as usize != fields.len() {
        return None;
    }
    let mut status = 0;
    while !fields.is_empty() {
        let tag = varint(&mut fields)?;
        let skipped = match (tag >> 3, tag & 7) {
            (1, 0) => {
                status = varint(&mut fields)?;
                0
            }
            (_, 0) => varint(&mut fields).map(|_| 0)?,
            (_, 1) => 8,
            (_, 2) => usize::try_from(varint(&mut fields)?).ok()?,
            (_, 5) => 4,
            _ => return None,
        };
        fields = fields.get(skipped..)?;
    }
    Some(status)
}

fn varint(octets: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&octet, rest) = octets.split_first()?;
        *octets = rest;
        value |= u64::from(octet & 0x7f) << shift;
        if octet & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_written_with_its_length() {
        for (service, octets) in [("", &b"\0\0\0\0\0"[..]), ("a.B", b"\0\0\0\0\x05\x0a\x03a.B")] {
            assert_eq!(message(service), octets);
        }
        let long = message(&"x".repeat(300));
        assert_eq!(long[..8], *b"\0\0\0\x01\x2f\x0a\xac\x02");
        assert_eq!(long.len(), 308);
    }

    #[test]
    fn a_status_is_read_past_unknown_fields() {
        for (octets, status) in [
            (&b"\0\0\0\0\x02\x08\x01"[..], Some(1)),
            (b"\0\0\0\0\x02\x08\x02", Some(2)),
            (b"\0\0\0\0\0", Some(0)),
            (b"\0\0\0\0\x06\x12\x02ab\x08\x01", Some(1)),
            (b"\0\0\0\0\x0b\x19\0\0\0\0\0\0\0\0\x08\x01", Some(1)),
            (b"\0\0\0\0\x07\x1d\0\0\0\0\x08\x01", Some(1)),
            (b"\0\0\0\0\x05\x10\xff\x01\x08\x01", Some(1)),
            (b"\x01\0\0\0\x02\x08\x01", None),
            (b"\0\0\0\0\x03\x08\x01", None),
            (b"\0\0\0\0\x02\x08\x01\x08", None),
            (b"\0\0\0\0\x01\x08", None),
            (b"\0\0\0\0\x03\x12\x7fa", None),
            (b"\0\0\0\0\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", None),
            (b"\0\0", None),
            (b"", None),
        ] {
            assert_eq!(serving_status(octets), status, "{octets:x?}");
        }
    }

    #[test]
    fn only_grpc_is_taken_for_grpc() {
        for (kind, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;x=y", true),
            ("application/grpc-web", false),
            ("text/html", false),
        ] {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, kind.parse().unwrap())]);
            assert_eq!(is_grpc(&headers), expected, "{kind}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
