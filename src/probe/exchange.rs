//! One request and its answer over a connection, HTTP/1.1 or HTTP/2.
//!
//! The connection moves only while an answer is waited for; there is no task
//! that could be left behind. Knows nothing of what an answer should be.

use std::error::Error as _;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use h2::RecvStream;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::http::response;
use hyper::{HeaderMap, Request};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, timeout_at};

use super::{Failure, Phase, Progress, tls};
use crate::health::Reason;

/// The largest head of a response.
const MAX_HEAD: usize = 64 * 1024;

/// So much of a body may be on its way before it is looked at.
const WINDOW: u32 = 64 * 1024 - 1;

/// How long the rest of a body is read after the verdict, so that the server
/// can finish writing; within the attempt's deadline.
const LINGER: Duration = Duration::from_millis(100);

const CLOSED_EARLY: Failure = Failure::Failed(Reason::HttpInvalidResponse, "closed_early");

/// What is spoken over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Http1,
    Http2,
}

/// The head of an answer, and its body to come.
pub(super) struct Answer {
    pub head: response::Parts,
    pub body: Body,
}

/// Sends the request, with its content, and waits for an answer's head.
pub(super) async fn send<S>(
    stream: S,
    request: Request<Bytes>,
    version: Version,
    progress: &mut Progress,
) -> Result<Answer, Failure>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let answer = match version {
        Version::Http1 => send_http1(stream, request).await?,
        Version::Http2 => send_http2(stream, request).await?,
    };
    progress.status = Some(answer.head.status.as_u16());
    progress.hear(&[]);
    Ok(answer)
}

async fn send_http1<S>(stream: S, request: Request<Bytes>) -> Result<Answer, Failure>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::Builder::new()
        .title_case_headers(true)
        .max_buf_size(MAX_HEAD)
        .handshake(TokioIo::new(AskFirst::new(stream)))
        .await
        .map_err(|error| failure(&error))?;
    let mut link = Link::new(connection);
    let response = link
        .during(sender.send_request(request.map(Full::new)))
        .await
        .ok_or(CLOSED_EARLY)?
        .map_err(|error| failure(&error))?;
    let (head, body) = response.into_parts();
    Ok(Answer { head, body: Body { link, source: Source::Http1(body) } })
}

/// A stream on which nothing is heard before something is said.
///
/// A server that talks at once is answered by a request all the same, and what
/// it says is read as the answer; else it would be a matter of luck whether its
/// words come before or after the request.
struct AskFirst<S> {
    stream: S,
    asked: bool,
    /// Who waits to hear.
    reader: Option<Waker>,
}

impl<S> AskFirst<S> {
    fn new(stream: S) -> AskFirst<S> {
        AskFirst { stream, asked: false, reader: None }
    }

    /// Something is said, or can't be.
    fn ask<T>(&mut self, said: Poll<T>) -> Poll<T> {
        if said.is_ready() && !self.asked {
            self.asked = true;
            self.reader.take().into_iter().for_each(Waker::wake);
        }
        said
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for AskFirst<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.asked {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for AskFirst<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        let said = Pin::new(&mut self.stream).poll_write(cx, octets);
        self.ask(said)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let said = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.ask(said)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

async fn send_http2<S>(stream: S, request: Request<Bytes>) -> Result<Answer, Failure>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = h2::client::Builder::new()
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_header_list_size(MAX_HEAD as u32)
        .enable_push(false)
        .handshake::<_, Bytes>(stream)
        .await
        .map_err(|error| http2_failure(&error))?;
    let mut link = Link::new(connection);
    link.during(poll_fn(|cx| sender.poll_ready(cx)))
        .await
        .ok_or(CLOSED_EARLY)?
        .map_err(|error| http2_failure(&error))?;
    let (head, content) = request.into_parts();
    let no_content = content.is_empty();
    let (response, mut out) = sender
        .send_request(Request::from_parts(head, ()), no_content)
        .map_err(|error| http2_failure(&error))?;
    if !no_content {
        out.send_data(content, true).map_err(|error| http2_failure(&error))?;
    }
    let response = link.during(response).await.ok_or(CLOSED_EARLY)?.map_err(|error| http2_failure(&error))?;
    let (head, body) = response.into_parts();
    Ok(Answer { head, body: Body { link, source: Source::Http2(body) } })
}

/// The body of an answer, octets as they come.
pub(super) struct Body {
    link: Link,
    source: Source,
}

enum Source {
    Http1(Incoming),
    Http2(RecvStream),
}

impl Body {
    /// The next piece; None: that was all.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        let link = &mut self.link;
        match &mut self.source {
            Source::Http1(body) => loop {
                match link.during(body.frame()).await.ok_or(CLOSED_EARLY)? {
                    None => return Ok(None),
                    Some(Err(error)) => return Err(failure(&error)),
                    Some(Ok(frame)) => {
                        if let Ok(data) = frame.into_data() {
                            return Ok(Some(data));
                        }
                    }
                }
            },
            Source::Http2(body) => match link.during(body.data()).await.ok_or(CLOSED_EARLY)? {
                None => Ok(None),
                Some(Err(error)) => Err(http2_failure(&error)),
                Some(Ok(data)) => {
                    // It fails when the stream is over, and then there is nothing to make room for.
                    let _ = body.flow_control().release_capacity(data.len());
                    Ok(Some(data))
                }
            },
        }
    }

    /// The first `limit` octets; `hear` learns of each piece as it comes.
    pub async fn collect(&mut self, limit: usize, mut hear: impl FnMut(&[u8])) -> Result<Vec<u8>, Failure> {
        let mut octets = Vec::new();
        while octets.len() < limit {
            let Some(data) = self.next().await? else { break };
            hear(&data);
            octets.extend_from_slice(&data[..data.len().min(limit - octets.len())]);
        }
        Ok(octets)
    }

    /// What an HTTP/2 server says after the body, all of which has come.
    pub async fn trailers(&mut self) -> Result<Option<HeaderMap>, Failure> {
        match &mut self.source {
            Source::Http1(_) => Ok(None),
            Source::Http2(body) => self
                .link
                .during(poll_fn(|cx| body.poll_trailers(cx)))
                .await
                .ok_or(CLOSED_EARLY)?
                .map_err(|error| http2_failure(&error)),
        }
    }

    fn is_over(&self) -> bool {
        match &self.source {
            Source::Http1(body) => body.is_end_stream(),
            Source::Http2(body) => body.is_end_stream(),
        }
    }

    /// Reads on to the end of the body or until `left` octets have come, and
    /// takes leave of an HTTP/2 server. Whatever comes of it, the verdict
    /// stands.
    pub async fn leave(mut self, mut left: usize, progress: &mut Progress) {
        let until = progress.deadline.min(Instant::now() + LINGER);
        let goodbye = async {
            while left > 0 && !self.is_over() {
                let Ok(Some(data)) = self.next().await else { break };
                progress.hear(&data);
                left = left.saturating_sub(data.len());
            }
            let Body { mut link, source } = self;
            if let Source::Http2(body) = source {
                drop(body); // the last of what keeps the connection open
                link.end().await;
            }
        };
        let _ = timeout_at(until, goodbye).await;
    }
}

/// A connection that moves only while its user waits.
struct Link {
    connection: Pin<Box<dyn Future<Output = ()> + Send>>,
    over: bool,
}

impl Link {
    fn new<T>(connection: impl Future<Output = T> + Send + 'static) -> Link {
        let connection = async {
            connection.await; // what went wrong with it, the request learns, too
        };
        Link { connection: Box::pin(connection), over: false }
    }

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

    /// Moves it to its end, which comes when nobody uses it any more.
    async fn end(&mut self) {
        if !self.over {
            self.connection.as_mut().await;
            self.over = true;
        }
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

fn http2_failure(error: &h2::Error) -> Failure {
    if let Some(error) = error.get_io() {
        return match (error.kind(), error.raw_os_error(), tls::cause(error)) {
            // The library's own word for a connection that ended.
            (io::ErrorKind::BrokenPipe, None, None) => CLOSED_EARLY,
            _ => io_failure(error),
        };
    }
    let ours = error.is_library();
    let detail = match error.reason() {
        None => return Failure::NotTested(Reason::OtherFailure, "invalid_request"), // it was never sent
        // What speaks in text, or TLS, seems to announce a huge frame (RFC 9113 §4.1).
        Some(h2::Reason::FRAME_SIZE_ERROR) if ours => "not_http2",
        Some(h2::Reason::HTTP_1_1_REQUIRED) if !ours => "not_http2",
        _ if error.is_remote() && error.is_go_away() => "go_away",
        _ if error.is_remote() && error.is_reset() => "stream_reset",
        _ => "malformed_response",
    };
    Failure::Failed(Reason::HttpInvalidResponse, detail)
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
