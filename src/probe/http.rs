//! One HTTP/1.1 request after another, until an answer can be judged.

use std::borrow::Cow;
use std::error::Error as _;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, timeout_at};

use super::hop::{BadLocation, Hop, same_host, usual_host};
use super::search::{Letters, Search};
use super::tls::Alpn;
use super::{Failure, Phase, Progress, connect, tls};
use crate::health::{ProbeTask, Reason};
use crate::model::HttpCheck;

/// How many redirects one attempt follows.
const MAX_REDIRECTS: usize = 5;

/// The largest head of a response.
const MAX_HEAD: usize = 64 * 1024;

/// How long the rest of a body is read after the verdict, so that the server
/// can finish writing; within the attempt's deadline.
const LINGER: Duration = Duration::from_millis(100);

/// Makes the request, follows redirects if told to, judges the last answer.
pub(super) async fn probe(
    configs: &tls::Configs,
    task: &ProbeTask,
    check: &HttpCheck,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let first = first_hop(task, check);
    let mut method = Method::from_bytes(check.method.as_bytes()).map_err(|_| INVALID_REQUEST)?;
    let mut followed: Option<Hop> = None;
    for redirects in 0.. {
        let hop = followed.as_ref().unwrap_or(&first);
        let at_home = followed.is_none() || same_host(first.name(), hop.name());
        let location = match request(configs, task, check, hop, &method, at_home, progress).await? {
            Answer::Judged(verdict) => return verdict,
            Answer::Redirect(_) if redirects == MAX_REDIRECTS => break,
            Answer::Redirect(location) => location,
        };
        let location = std::str::from_utf8(location.as_bytes()).map_err(|_| BAD_LOCATION)?;
        followed = Some(hop.follow(location).map_err(|BadLocation| BAD_LOCATION)?);
        // RFC 9110 §15.4: 303 turns all but HEAD into GET; so do 301 and 302 with POST, by custom.
        match progress.status {
            Some(303) if method != Method::HEAD => method = Method::GET,
            Some(301 | 302) if method == Method::POST => method = Method::GET,
            _ => {}
        }
    }
    Err(Failure::Failed(Reason::OtherFailure, "too_many_redirects"))
}

const INVALID_REQUEST: Failure = Failure::NotTested(Reason::OtherFailure, "invalid_request");
const BAD_LOCATION: Failure = Failure::Failed(Reason::HttpInvalidResponse, "bad_location");
const CLOSED_EARLY: Failure = Failure::Failed(Reason::HttpInvalidResponse, "closed_early");

/// What came of one request.
enum Answer {
    Judged(Result<(), Failure>),
    /// To be followed; with its Location.
    Redirect(HeaderValue),
}

fn first_hop<'a>(task: &'a ProbeTask, check: &'a HttpCheck) -> Hop<'a> {
    let own = || check.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let tls = check.tls.is_some();
    let host = match (&task.host, own()) {
        (Some(host), _) => Cow::Borrowed(&**host),
        (None, Some((_, host))) => Cow::Borrowed(host.as_str()),
        (None, None) => Cow::Owned(usual_host(task, tls)),
    };
    Hop { tls, port: task.port, host, path: Cow::Borrowed(&check.path) }
}

/// One connection, one request; `at_home` while the host is the monitor's.
async fn request(
    configs: &tls::Configs,
    task: &ProbeTask,
    check: &HttpCheck,
    hop: &Hop<'_>,
    method: &Method,
    at_home: bool,
    progress: &mut Progress,
) -> Result<Answer, Failure> {
    let request = compose(task, check, hop, method, at_home)?;
    progress.status = None;
    progress.phase = Phase::Connect;
    let stream = match at_home {
        true => connect::connect(SocketAddr::new(task.address, hop.port), task.source()).await?,
        false => connect::connect_by_name(hop.name(), hop.port, task.source(), progress).await?,
    };
    progress.enter(if hop.tls { Phase::Tls } else { Phase::Response });
    if !hop.tls {
        return exchange(stream, request, check, progress).await;
    }
    let rules = check.tls.as_ref();
    let name = match rules.and_then(|rules| rules.server_name.as_deref()) {
        Some(name) if at_home => name,
        _ => hop.name(),
    };
    let stream = configs.handshake(stream, rules, name, Alpn::Http1, progress).await?;
    progress.enter(Phase::Response);
    exchange(stream, request, check, progress).await
}

fn compose(
    task: &ProbeTask,
    check: &HttpCheck,
    hop: &Hop<'_>,
    method: &Method,
    at_home: bool,
) -> Result<Request<Empty<Bytes>>, Failure> {
    let mut headers = HeaderMap::with_capacity(check.headers.len() + 5);
    let host = HeaderValue::from_str(&hop.host).map_err(|_| INVALID_REQUEST)?;
    headers.insert(header::HOST, host);
    if at_home {
        for (name, value) in &check.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| INVALID_REQUEST)?;
            if name != header::HOST {
                let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| INVALID_REQUEST)?;
                headers.append(name, value);
            }
        }
    }
    if !headers.contains_key(header::USER_AGENT) {
        let agent = format!("hale/{} (pool {})", env!("CARGO_PKG_VERSION"), task.pool);
        headers.insert(header::USER_AGENT, HeaderValue::try_from(agent).map_err(|_| INVALID_REQUEST)?);
    }
    if !headers.contains_key(header::ACCEPT) {
        headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
    }
    // RFC 9110 §8.6: a method that anticipates content says that there is none.
    let anticipates = matches!(*method, Method::POST | Method::PUT | Method::PATCH);
    if anticipates && !headers.contains_key(header::CONTENT_LENGTH) {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    if !headers.contains_key(header::CONNECTION) {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }

    let mut request = Request::new(Empty::new());
    *request.method_mut() = method.clone();
    *request.uri_mut() = Uri::try_from(&*hop.path).map_err(|_| INVALID_REQUEST)?;
    *request.headers_mut() = headers;
    Ok(request)
}

async fn exchange<S>(
    stream: S,
    request: Request<Empty<Bytes>>,
    check: &HttpCheck,
    progress: &mut Progress,
) -> Result<Answer, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sender, connection) = http1::Builder::new()
        .title_case_headers(true)
        .max_buf_size(MAX_HEAD)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| failure(&error))?;
    let mut link = Link { connection: pin!(connection), over: false };
    let response = link
        .during(sender.send_request(request))
        .await
        .ok_or(CLOSED_EARLY)?
        .map_err(|error| failure(&error))?;
    let (head, mut body) = response.into_parts();
    let status = head.status.as_u16();
    progress.status = Some(status);
    progress.hear(&[]);

    let mut left = check.body_limit;
    let location = match check.follow_redirects && matches!(status, 301 | 302 | 303 | 307 | 308) {
        true => head.headers.get(header::LOCATION),
        false => None,
    };
    let answer = match (location, &check.expected_body) {
        (Some(location), _) => Answer::Redirect(location.clone()),
        (None, _) if !check.expected_codes.contains(status) => {
            Answer::Judged(Err(Failure::Failed(Reason::ResponseCodeMismatch, "unexpected_status")))
        }
        (None, Some(expected)) if !expected.is_empty() => {
            progress.phase = Phase::Body;
            Answer::Judged(look_for(expected, &mut body, &mut left, &mut link).await)
        }
        (None, _) => Answer::Judged(Ok(())),
    };

    if let Answer::Judged(verdict) = &answer {
        progress.found = Some(*verdict);
    }
    if !body.is_end_stream() {
        let until = progress.deadline.min(Instant::now() + LINGER);
        // Whatever comes of the rest, the verdict stands.
        let _ = timeout_at(until, discard(&mut body, &mut left, &mut link)).await;
    }
    Ok(answer)
}

/// Whether the first `left` octets of the body hold `expected`.
async fn look_for<C: Future>(
    expected: &[u8],
    body: &mut Incoming,
    left: &mut usize,
    link: &mut Link<'_, C>,
) -> Result<(), Failure> {
    let mut search = Search::new(expected, Letters::EitherCase);
    while *left > 0 {
        match link.during(body.frame()).await.ok_or(CLOSED_EARLY)? {
            None => break,
            Some(Err(error)) => return Err(failure(&error)),
            Some(Ok(frame)) => {
                let Some(data) = frame.data_ref() else { continue };
                let data = &data[..data.len().min(*left)];
                *left -= data.len();
                if search.feed(data) {
                    return Ok(());
                }
            }
        }
    }
    Err(Failure::Failed(Reason::ResponseBodyMismatch, "body_not_found"))
}

/// Reads on to the end of the body or until `left` octets have come.
async fn discard<C: Future>(body: &mut Incoming, left: &mut usize, link: &mut Link<'_, C>) {
    while *left > 0 {
        match link.during(body.frame()).await {
            Some(Some(Ok(frame))) => {
                *left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            }
            _ => return,
        }
    }
}

/// A connection that moves only while its user waits; there is no task that could be left behind.
struct Link<'a, C> {
    connection: Pin<&'a mut C>,
    over: bool,
}

impl<C: Future> Link<'_, C> {
    /// What `work` gives; None if the connection ended without it.
    async fn during<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        // Unconstrained: when the connection is over, Pending must mean that nothing will come.
        let mut work = pin!(unconstrained(work));
        poll_fn(|cx| {
            self.over = self.over || self.connection.as_mut().poll(cx).is_ready();
            match work.as_mut().poll(cx) {
                Poll::Pending if self.over => Poll::Ready(None),
                polled => polled.map(Some),
            }
        })
        .await
    }
}

fn failure(error: &hyper::Error) -> Failure {
    if let Some(error) = error.source().and_then(|source| source.downcast_ref::<io::Error>()) {
        return io_failure(error);
    }
    if error.is_parse_too_large() {
        return Failure::Failed(Reason::HttpInvalidResponse, "head_too_large");
    }
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        return CLOSED_EARLY;
    }
    Failure::Failed(Reason::HttpInvalidResponse, "malformed_response")
}

fn io_failure(error: &io::Error) -> Failure {
    if let Some(error) = tls::cause(error) {
        return tls::failure(error);
    }
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe => {
            Failure::Failed(Reason::ConnectionReset, "connection_reset")
        }
        io::ErrorKind::UnexpectedEof => CLOSED_EARLY,
        io::ErrorKind::TimedOut => Failure::TimedOut(Phase::Response),
        io::ErrorKind::HostUnreachable => Failure::Failed(Reason::NoRouteToHost, "host_unreachable"),
        io::ErrorKind::NetworkUnreachable => {
            Failure::Failed(Reason::NetworkUnreachable, "network_unreachable")
        }
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
            Failure::Failed(Reason::HttpInvalidResponse, "malformed_response")
        }
        _ => Failure::Failed(Reason::OtherFailure, "io_error"),
    }
}
