//! One HTTP request after another, until an answer can be judged.

mod judge;

use std::borrow::Cow;
use std::net::SocketAddr;

use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Uri};
use tokio::io::{AsyncRead, AsyncWrite};

use self::judge::judge;
use super::exchange::{self, Version};
use super::hop::{BadLocation, Hop, same_host, usual_host};
use super::tls::{Alpn, server_name};
use super::{Failure, Phase, Progress, connect, tls};
use crate::health::{ProbeTask, Reason};
use crate::model::{HttpCheck, TlsCheck};

pub(super) use self::judge::Patterns;

/// How many redirects one attempt follows.
const MAX_REDIRECTS: usize = 5;

/// What a probe's requests have in common.
#[derive(Clone, Copy)]
pub(super) struct Probe<'a> {
    pub configs: &'a tls::Configs,
    pub patterns: &'a Patterns,
    pub task: &'a ProbeTask,
    pub check: &'a HttpCheck,
}

/// What is asked, until a redirect changes it.
struct Content {
    method: Method,
    body: Option<Bytes>,
}

/// Makes the request, follows redirects if told to, judges the last answer.
pub(super) async fn probe(probe: Probe<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let Probe { task, check, .. } = probe;
    let first = first_hop(task, check);
    let method = Method::from_bytes(check.method.as_bytes()).map_err(|_| INVALID_REQUEST)?;
    let body = check.body.as_deref().map(Bytes::copy_from_slice);
    let mut content = Content { method, body };
    let mut followed: Option<Hop> = None;
    for redirects in 0.. {
        let hop = followed.as_ref().unwrap_or(&first);
        let at_home = followed.is_none() || same_host(first.name(), hop.name());
        let location = match request(&probe, hop, &content, at_home, progress).await? {
            Answer::Judged(verdict) => return verdict,
            Answer::Redirect(_) if redirects == MAX_REDIRECTS => break,
            Answer::Redirect(location) => location,
        };
        let location = std::str::from_utf8(location.as_bytes()).map_err(|_| BAD_LOCATION)?;
        followed = Some(hop.follow(location).map_err(|BadLocation| BAD_LOCATION)?);
        // RFC 9110 §15.4: 303 turns all but HEAD into GET; so do 301 and 302 with POST, by custom.
        match progress.status {
            Some(303) if content.method != Method::HEAD => content = PLAIN_GET,
            Some(301 | 302) if content.method == Method::POST => content = PLAIN_GET,
            _ => {}
        }
    }
    Err(Failure::Failed(Reason::OtherFailure, "too_many_redirects"))
}

const INVALID_REQUEST: Failure = Failure::NotTested(Reason::OtherFailure, "invalid_request");
const BAD_LOCATION: Failure = Failure::Failed(Reason::HttpInvalidResponse, "bad_location");
const PLAIN_GET: Content = Content { method: Method::GET, body: None };

/// What came of one request.
enum Answer {
    Judged(Result<(), Failure>),
    /// To be followed; with its Location.
    Redirect(HeaderValue),
}

fn first_hop<'a>(task: &'a ProbeTask, check: &'a HttpCheck) -> Hop<'a> {
    let tls = check.tls.is_some();
    let host = match (&task.host, own_host(check)) {
        (Some(host), _) => Cow::Borrowed(&**host),
        (None, Some(host)) => Cow::Borrowed(host),
        (None, None) => Cow::Owned(usual_host(task, tls)),
    };
    Hop { tls, port: task.port, host, path: Cow::Borrowed(&check.path) }
}

/// The monitor's Host.
fn own_host(check: &HttpCheck) -> Option<&str> {
    let own = check.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    own.map(|(_, host)| &**host)
}

/// One connection, one request; `at_home` while the host is the monitor's.
async fn request(
    probe: &Probe<'_>,
    hop: &Hop<'_>,
    content: &Content,
    at_home: bool,
    progress: &mut Progress,
) -> Result<Answer, Failure> {
    let Probe { task, check, .. } = *probe;
    let request = compose(task, check, hop, content, at_home)?;
    progress.begin();
    let stream = match at_home {
        true => connect::connect(SocketAddr::new(task.address, hop.port), task.source()).await?,
        false => connect::connect_by_name(hop.name(), hop.port, task.source(), progress).await?,
    };
    progress.enter(if hop.tls { Phase::Tls } else { Phase::Response });
    if !hop.tls {
        return exchange(probe, stream, request, progress).await;
    }
    let alpn = if check.http2 { Alpn::Http2 } else { Alpn::Http1 };
    let home;
    let away;
    let (rules, name) = match (at_home, &check.tls) {
        (true, rules) => {
            home = server_name(task, rules.as_ref(), own_host(check));
            (rules.as_ref(), &*home)
        }
        // What we show of ourselves is for the endpoint alone.
        (false, rules) => {
            away = rules.clone().map(|rules| TlsCheck { client: None, ..rules });
            (away.as_ref(), hop.name())
        }
    };
    let stream = probe.configs.handshake(stream, rules, name, alpn, progress).await?;
    progress.enter(Phase::Response);
    exchange(probe, stream, request, progress).await
}

fn compose(
    task: &ProbeTask,
    check: &HttpCheck,
    hop: &Hop<'_>,
    content: &Content,
    at_home: bool,
) -> Result<Request<Bytes>, Failure> {
    let body = content.body.as_ref().filter(|_| at_home);
    let mut headers = HeaderMap::with_capacity(check.headers.len() + 5);
    if !check.http2 {
        let host = HeaderValue::from_str(&hop.host).map_err(|_| INVALID_REQUEST)?;
        headers.insert(header::HOST, host);
    }
    if at_home {
        for (name, value) in &check.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| INVALID_REQUEST)?;
            let of_lost_body = check.body.is_some() && body.is_none() && is_about_content(&name);
            if name != header::HOST && !of_lost_body {
                let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| INVALID_REQUEST)?;
                headers.append(name, value);
            }
        }
    }
    if !headers.contains_key(header::USER_AGENT) {
        headers.insert(header::USER_AGENT, user_agent(task)?);
    }
    if !headers.contains_key(header::ACCEPT) {
        headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
    }
    // RFC 9110 §8.6: a method that anticipates content says that there is none.
    let anticipates = matches!(content.method, Method::POST | Method::PUT | Method::PATCH);
    if anticipates || body.is_some() {
        headers.insert(header::CONTENT_LENGTH, body.map_or(0, Bytes::len).into());
    }
    // RFC 9113 §8.2.2: there are no such headers in HTTP/2.
    if !check.http2 {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }

    let mut request = Request::new(body.cloned().unwrap_or_default());
    *request.method_mut() = content.method.clone();
    *request.uri_mut() = match check.http2 {
        true => absolute(if hop.tls { "https" } else { "http" }, &hop.host, &hop.path)?,
        false => Uri::try_from(&*hop.path).map_err(|_| INVALID_REQUEST)?,
    };
    *request.headers_mut() = headers;
    Ok(request)
}

/// Who asks.
pub(super) fn user_agent(task: &ProbeTask) -> Result<HeaderValue, Failure> {
    let agent = format!("hale/{} (pool {})", env!("CARGO_PKG_VERSION"), task.pool);
    HeaderValue::try_from(agent).map_err(|_| INVALID_REQUEST)
}

/// What becomes the pseudo-headers of HTTP/2.
pub(super) fn absolute(scheme: &str, authority: &str, path: &str) -> Result<Uri, Failure> {
    let parts = Uri::builder().scheme(scheme).authority(authority).path_and_query(path);
    parts.build().map_err(|_| INVALID_REQUEST)
}

/// Whether a header is about content that a redirect took away.
fn is_about_content(name: &HeaderName) -> bool {
    let about =
        [header::CONTENT_TYPE, header::CONTENT_ENCODING, header::CONTENT_LANGUAGE, header::CONTENT_LOCATION];
    about.contains(name)
}

async fn exchange<S>(
    probe: &Probe<'_>,
    stream: S,
    request: Request<Bytes>,
    progress: &mut Progress,
) -> Result<Answer, Failure>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let Probe { check, patterns, .. } = *probe;
    let version = if check.http2 { Version::Http2 } else { Version::Http1 };
    let exchange::Answer { head, mut body } = exchange::send(stream, request, version, progress).await?;
    let redirects = matches!(head.status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = head.headers.get(header::LOCATION).filter(|_| check.follow_redirects && redirects);
    let mut left = check.body_limit;
    let answer = match location {
        Some(location) => Answer::Redirect(location.clone()),
        None => {
            let verdict = judge(check, patterns, &head, &mut body, &mut left, progress).await;
            progress.found = Some(verdict);
            Answer::Judged(verdict)
        }
    };
    body.leave(left, progress).await;
    Ok(answer)
}
