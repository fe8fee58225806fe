//! DNS over HTTPS (RFC 8484): what a request asks, and what its response says.
//!
//! The rules alone, the same over HTTP/2 and HTTP/3: from a request's head to
//! a message, and from a reply to the head of a response.
//!
//! Knows nothing of connections; whoever carries the requests reads bodies and
//! bounds them.

use std::time::{Duration, UNIX_EPOCH};

use data_encoding::BASE64URL_NOPAD;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, DATE, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use crate::wire::{self, MAX_MESSAGE};

/// The media type of a message (RFC 8484 §6).
const MESSAGE: &str = "application/dns-message";
/// A message shorter than a header is no message.
const HEADER: usize = 12;

/// The longest query string; a message of more than 6000 octets is better posted.
const URI: usize = 8 << 10;

/// What a request asks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// This message, out of the URI.
    Message(Vec<u8>),
    /// The message that is the request's body.
    Body,
    /// Nothing that could be answered.
    Refused(StatusCode),
}

/// Reads the head of a request to a server that answers at `path`.
pub(super) fn read(request: &Parts, path: &str) -> Asked {
    if request.version == http::Version::HTTP_11 && !request.headers.contains_key(HOST) {
        return Asked::Refused(StatusCode::BAD_REQUEST); // RFC 9112 §3.2
    }
    if request.uri.path() != path {
        return Asked::Refused(StatusCode::NOT_FOUND);
    }
    let variables = request.uri.query().unwrap_or_default();
    if variables.len() > URI {
        return Asked::Refused(StatusCode::URI_TOO_LONG);
    }
    match request.method {
        Method::GET | Method::HEAD => match from_query(variables) {
            Some(message) => Asked::Message(message),
            None => Asked::Refused(StatusCode::BAD_REQUEST),
        },
        Method::POST if !is_message(&request.headers) => Asked::Refused(StatusCode::UNSUPPORTED_MEDIA_TYPE),
        Method::POST if content_length(&request.headers).is_ok_and(|length| length > Some(MAX_MESSAGE)) => {
            Asked::Refused(StatusCode::PAYLOAD_TOO_LARGE)
        }
        Method::POST => Asked::Body,
        _ => Asked::Refused(StatusCode::METHOD_NOT_ALLOWED),
    }
}

/// The message in the one variable `dns` (RFC 8484 §4.1, and §6 for its form).
fn from_query(query: &str) -> Option<Vec<u8>> {
    let mut found = query.split('&').filter_map(|pair| pair.strip_prefix("dns="));
    let (text, again) = (found.next()?, found.next());
    if again.is_some() {
        return None;
    }
    BASE64URL_NOPAD.decode(text.as_bytes()).ok().filter(|message| message.len() >= HEADER)
}

fn is_message(headers: &HeaderMap) -> bool {
    let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = text.split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case(MESSAGE)
}

/// A length that is no number, or several lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// How many octets the body has by the head of a request (RFC 9110 §8.6), if
/// the head says it.
pub(super) fn content_length(headers: &HeaderMap) -> Result<Option<usize>, Malformed> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else { return Ok(None) };
    let text = first.to_str().ok().filter(|text| text.bytes().all(|octet| octet.is_ascii_digit()));
    let length = text.and_then(|text| text.parse().ok()).ok_or(Malformed)?;
    if lengths.all(|again| again == first) { Ok(Some(length)) } else { Err(Malformed) }
}

/// The head of the response whose body is `reply`; without a reply, what was
/// sent is no query. `now` is Unix time in seconds.
pub(super) fn answered(reply: &[u8], now: u32) -> Response<()> {
    if reply.is_empty() {
        return refused(StatusCode::BAD_REQUEST, now);
    }
    let mut response = head(StatusCode::OK, reply.len(), now);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(MESSAGE));
    // An answer that must not be remembered says so: caches may guess otherwise.
    let age = format!("max-age={}", wire::lifetime(reply));
    headers.insert(CACHE_CONTROL, HeaderValue::try_from(age).expect("letters and digits"));
    response
}

/// The head of a response without a body.
pub(super) fn refused(status: StatusCode, now: u32) -> Response<()> {
    let mut response = head(status, 0, now);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST"));
    }
    response
}

fn head(status: StatusCode, length: usize, now: u32) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(now.into()));
    response.headers_mut().insert(DATE, HeaderValue::try_from(date).expect("a date is ASCII"));
    response.headers_mut().insert(CONTENT_LENGTH, length.into());
    response
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    /// A query for a.example, as RFC 8484 writes it: header, question.
    const QUERY: &[u8] = b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x01a\x07example\0\0\x01\0\x01";
    const ENCODED: &str = "AAABAAABAAAAAAAAAWEHZXhhbXBsZQAAAQAB";

    fn ask(method: &str, target: &str, headers: &[(&str, &str)]) -> Asked {
        let mut request = Request::builder().method(method).uri(target).header("host", "ns.example");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        read(&request.body(()).unwrap().into_parts().0, "/dns-query")
    }

    #[test]
    fn a_request_over_http_1_1_names_the_host() {
        let request = |version| Request::get("/dns-query?dns=AAAA").version(version).body(()).unwrap();
        for (version, status) in [(http::Version::HTTP_11, 400), (http::Version::HTTP_2, 404)] {
            let asked = read(&request(version).into_parts().0, "/elsewhere");
            assert_eq!(asked, Asked::Refused(StatusCode::from_u16(status).unwrap()), "{version:?}");
        }
    }

    #[test]
    fn a_request_is_a_message_or_a_status() {
        let message = || Asked::Message(QUERY.to_vec());
        let refused = |status: u16| Asked::Refused(StatusCode::from_u16(status).unwrap());
        let dns = ("content-type", "application/dns-message");
        let uri = |variables: &str| format!("https://ns.example/dns-query?{variables}");
        let good = uri(&format!("dns={ENCODED}"));
        type Headers<'a> = &'a [(&'a str, &'a str)];
        let cases: [(&str, &str, Headers, Asked, &str); 23] = [
            ("GET", &good, &[], message(), "GET"),
            ("GET", &format!("/dns-query?dns={ENCODED}"), &[], message(), "a path alone"),
            ("HEAD", &good, &[], message(), "HEAD"),
            ("GET", &uri(&format!("a=b&dns={ENCODED}&c")), &[], message(), "other variables"),
            ("GET", &uri(""), &[], refused(400), "no variable"),
            ("GET", "/dns-query", &[], refused(400), "no query string"),
            ("GET", &uri("dns="), &[], refused(400), "empty"),
            ("GET", &uri("dns=AAAA"), &[], refused(400), "too short for a message"),
            ("GET", &uri("dns=@@@@"), &[], refused(400), "no base64url"),
            ("GET", &uri("dns=AAABAAABAAAAAAAAAWEHZXhhbXBsZQAAAQA+"), &[], refused(400), "base64"),
            ("GET", &uri("dns=AAABAAABAAAAAAAAAA=="), &[], refused(400), "padding"),
            ("GET", &format!("{good}&dns={ENCODED}"), &[], refused(400), "two messages"),
            ("GET", &uri(&"a".repeat(8193)), &[], refused(414), "too long"),
            ("GET", "/", &[], refused(404), "another path"),
            ("POST", "/dns-query/", &[dns], refused(404), "a longer path"),
            ("POST", "/dns-query", &[dns], Asked::Body, "POST"),
            (
                "POST",
                "/dns-query",
                &[("content-type", "Application/DNS-Message ; a=b")],
                Asked::Body,
                "a parameter",
            ),
            ("POST", "/dns-query", &[dns, ("content-length", "65535")], Asked::Body, "the longest message"),
            ("POST", "/dns-query", &[dns, ("content-length", "65536")], refused(413), "too long"),
            ("POST", "/dns-query", &[("content-type", "text/plain")], refused(415), "another type"),
            ("POST", &good, &[], refused(415), "no type"),
            ("PUT", "/dns-query", &[dns], refused(405), "PUT"),
            ("OPTIONS", "/dns-query", &[], refused(405), "OPTIONS"),
        ];
        for (method, target, headers, expected, why) in cases {
            assert_eq!(ask(method, target, headers), expected, "{why}: {method} {target}");
        }
    }

    #[test]
    fn a_length_is_one_number() {
        for (lengths, expected) in [
            (&[][..], Ok(None)),
            (&["0"], Ok(Some(0))),
            (&["65536"], Ok(Some(65536))),
            (&["27", "27"], Ok(Some(27))),
            (&["27", "28"], Err(Malformed)),
            (&["27, 27"], Err(Malformed)),
            (&["+27"], Err(Malformed)),
            (&["-1"], Err(Malformed)),
            (&[""], Err(Malformed)),
            (&["99999999999999999999"], Err(Malformed)),
        ] {
            let headers =
                lengths.iter().map(|length| (CONTENT_LENGTH, HeaderValue::from_static(length))).collect();
            assert_eq!(content_length(&headers), expected, "{lengths:?}");
        }
    }

    #[test]
    fn a_response_says_how_long_it_is_and_lasts() {
        let mut reply = QUERY.to_vec();
        reply[2] |= 0x80;
        let show = |response: Response<()>| {
            let mut lines = vec![response.status().as_u16().to_string()];
            let headers = response.headers().iter();
            lines.extend(headers.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())));
            lines
        };
        let date = "date: Tue, 01 Dec 2026 00:00:00 GMT";
        let now = 1_796_083_200;
        let refused_reply = [
            "200",
            date,
            "content-length: 27",
            "content-type: application/dns-message",
            "cache-control: max-age=0",
        ];
        assert_eq!(show(answered(&reply, now)), refused_reply);
        let answer = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\x01\x02\x03\x04";
        reply[7] = 1;
        reply.extend(answer);
        let answer = [
            "200",
            date,
            "content-length: 43",
            "content-type: application/dns-message",
            "cache-control: max-age=60",
        ];
        assert_eq!(show(answered(&reply, now)), answer);
        assert_eq!(show(answered(&[], now)), ["400", date, "content-length: 0"]);
        let not_allowed = show(refused(StatusCode::METHOD_NOT_ALLOWED, now));
        assert_eq!(not_allowed, ["405", date, "content-length: 0", "allow: GET, HEAD, POST"]);
    }
}
