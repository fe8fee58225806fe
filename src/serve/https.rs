//! DNS over HTTPS (RFC 8484) by HTTP/2 and HTTP/1.1, within TLS.
//!
//! hyper speaks HTTP, `doh` has the rules, and here is what a client may take:
//! so many requests at once, so many octets of bodies and of replies kept for
//! it, and so long between two answers. A client that doesn't read holds up
//! itself alone.
//!
//! Responses name HTTP/3 where it is spoken at the same address (RFC 7838).
//!
//! A connection that gets no answer for the idle limit is closed, whatever else
//! moves on it: there is no other clock to be kept running by single octets.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http::header::ALT_SVC;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::{sleep, timeout};
use tokio_rustls::server::TlsStream;

use super::accept::Shared;
use super::answering::{MESSAGE, OUTPUT, Peer};
use super::doh::{self, Asked};
use super::seats::Seat;
use super::stream::LINGER;
use crate::clock;

/// Octets of a request's head. The URI of a long query takes part of it.
const HEAD: usize = 16 << 10;
/// Requests at once (RFC 9113 §5.1.2 wants no fewer).
const STREAMS: u32 = 100;
/// Octets of bodies that may be under way on a connection.
const INPUT: usize = 256 << 10;
/// What one stream, and a connection, may send ahead.
const WINDOWS: (u32, u32) = (MESSAGE as u32, INPUT as u32);

/// For how long a client may remember that there is HTTP/3, in seconds.
const REMEMBERED: u32 = 86_400;

/// What is offered over HTTPS.
#[derive(Debug)]
pub(super) struct Site {
    /// Where queries are answered.
    pub path: Arc<str>,
    /// The addresses at which HTTP/3 is spoken.
    pub http3: Vec<SocketAddr>,
}

/// The same for one connection.
pub(super) struct Seen {
    path: Arc<str>,
    /// The value of Alt-Svc.
    alternative: Option<HeaderValue>,
}

impl Site {
    /// What a client sees that has asked at this address, if that is known.
    pub fn seen_at(&self, asked: Option<SocketAddr>) -> Seen {
        let port = asked.and_then(|asked| port_beside(&self.http3, asked));
        let alternative = port.map(|port| format!("h3=\":{port}\"; ma={REMEMBERED}"));
        let alternative = alternative.map(|text| text.try_into().expect("letters, digits and signs"));
        Seen { path: Arc::clone(&self.path), alternative }
    }
}

/// The port of one of these that answers at the same address, the same port if
/// there are several.
fn port_beside(listeners: &[SocketAddr], asked: SocketAddr) -> Option<u16> {
    let address = asked.ip().to_canonical();
    let answers = |listener: &&SocketAddr| {
        listener.ip() == address || listener.ip().is_unspecified() && listener.is_ipv4() == address.is_ipv4()
    };
    let ports = listeners.iter().filter(answers).map(SocketAddr::port);
    ports.max_by_key(|port| *port == asked.port())
}

/// Serves one connection until its client closes it, or a limit does.
pub(super) async fn serve(
    stream: TlsStream<TcpStream>,
    peer: Peer,
    seen: Seen,
    shared: Arc<Shared>,
    seat: Arc<Seat>,
) {
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let (input, output) = (Semaphore::new(INPUT), Arc::new(Semaphore::new(OUTPUT)));
    let session = Arc::new(Session { peer, seen, shared, seat, input, output });
    let service = {
        let session = Arc::clone(&session);
        service_fn(move |request| {
            let session = Arc::clone(&session);
            async move { Ok::<_, Infallible>(session.answer(request).await) }
        })
    };
    let stream = TokioIo::new(stream);
    match http2 {
        true => {
            let connection = http2::Builder::new(TokioExecutor::new())
                .max_concurrent_streams(STREAMS)
                .initial_stream_window_size(WINDOWS.0)
                .initial_connection_window_size(WINDOWS.1)
                .max_header_list_size(HEAD as u32)
                .max_send_buf_size(MESSAGE)
                .auto_date_header(false) // doh has put one
                .serve_connection(stream, service);
            attend(connection, |connection| connection.graceful_shutdown(), &session).await;
        }
        false => {
            let connection = http1::Builder::new()
                .header_read_timeout(None) // the idle limit holds for that, too
                .max_buf_size(HEAD)
                .half_close(true)
                .auto_date_header(false)
                .serve_connection(stream, service);
            attend(connection, |connection| connection.graceful_shutdown(), &session).await;
        }
    }
}

/// Drives a connection, and ends it at a limit or on last orders.
async fn attend<C: Future>(connection: C, wind_up: impl Fn(Pin<&mut C>), session: &Session) {
    let Session { shared, seat, .. } = session;
    let limit = shared.limits.tcp_idle;
    let mut connection = pin!(connection);
    let mut idle = pin!(sleep(limit));
    loop {
        tokio::select! {
            biased;
            () = seat.last_orders.notified() => {
                wind_up(connection.as_mut());
                // on eviction only what can be said at once
                let time = if seat.is_evicted() { Duration::ZERO } else { 2 * LINGER };
                let _ = timeout(time, connection).await;
                return;
            }
            _ = connection.as_mut() => return,
            () = idle.as_mut() => {
                let quiet = Duration::from_nanos(shared.now().saturating_sub(seat.progress()));
                if quiet >= limit {
                    wind_up(connection.as_mut());
                    let _ = timeout(LINGER, connection).await;
                    return;
                }
                idle.set(sleep(limit - quiet));
            }
        }
    }
}

/// One connection as its requests know it.
struct Session {
    peer: Peer,
    seen: Seen,
    shared: Arc<Shared>,
    seat: Arc<Seat>,
    /// A permit for each octet of a body, until it is answered.
    input: Semaphore,
    /// A permit for each octet of a reply that isn't sent yet.
    output: Arc<Semaphore>,
}

/// A reply until the client has room for it.
struct Kept {
    octets: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.octets
    }
}

/// What came of answering.
enum Made {
    Reply(Response<()>, Option<Kept>),
    /// There is no room for a reply of so many octets yet.
    NoRoom(u32),
}

/// Reads a body that nobody wants, as far as one may come in good faith: a
/// client that is still sending takes a stream that ends early for an error.
async fn skim(body: &mut Incoming) {
    const ENOUGH: usize = 1 << 20;
    let mut seen = 0;
    while seen <= ENOUGH
        && let Some(Ok(frame)) = body.frame().await
    {
        seen += frame.data_ref().map_or(0, Bytes::len);
    }
}

impl Session {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, mut body) = request.into_parts();
        let asked = doh::read(&head, &self.seen.path);
        let headless = head.method == Method::HEAD;
        let message = match asked {
            Asked::Message(message) => Ok((message, None)),
            Asked::Refused(status) => {
                let _ = timeout(self.shared.limits.tcp_message, skim(&mut body)).await;
                Err(status)
            }
            Asked::Body => {
                let read = timeout(self.shared.limits.tcp_message, self.read(&head, &mut body));
                read.await.unwrap_or(Err(StatusCode::REQUEST_TIMEOUT))
            }
        };
        drop(head);
        let (mut head, reply) = match message {
            Ok((message, _room)) => self.reply(&message).await,
            Err(status) => (doh::refused(status, clock::unix_seconds()), None),
        };
        if let Some(alternative) = &self.seen.alternative {
            head.headers_mut().insert(ALT_SVC, alternative.clone());
        }
        let body = match reply {
            // the client sees the length all the same
            Some(kept) if !headless => Bytes::from_owner(kept),
            Some(_) | None => Bytes::new(),
        };
        head.map(|()| Full::new(body))
    }

    /// Reads a request's body, the whole of which is a message; with what holds
    /// room for it.
    async fn read(
        &self,
        head: &Parts,
        body: &mut Incoming,
    ) -> Result<(Vec<u8>, Option<SemaphorePermit<'_>>), StatusCode> {
        // without a length in the head any may come
        let length = doh::content_length(&head.headers).ok().flatten();
        let length = length.unwrap_or(MESSAGE).min(MESSAGE);
        let room = self.input.acquire_many(length as u32).await.expect("never closed");
        let mut message = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| StatusCode::BAD_REQUEST)?;
            let Ok(octets) = frame.into_data() else { continue }; // trailers
            if message.len() + octets.len() > MESSAGE {
                drop((message, room)); // what still comes is not kept
                skim(body).await;
                return Err(StatusCode::PAYLOAD_TOO_LARGE);
            }
            message.extend_from_slice(&octets);
        }
        Ok((message, Some(room)))
    }

    /// The reply, once there is room for it. It is made on the thread's own
    /// buffer, and anew if there was none: what waits is the query.
    async fn reply(&self, message: &[u8]) -> (Response<()>, Option<Kept>) {
        loop {
            let made = self.shared.answering.reply(message, self.peer, |reply| {
                let length = reply.len() as u32;
                match Arc::clone(&self.output).try_acquire_many_owned(length) {
                    Ok(room) => {
                        let kept = (length > 0).then(|| Kept { octets: reply.to_vec(), _room: room });
                        Made::Reply(doh::answered(reply, clock::unix_seconds()), kept)
                    }
                    Err(_) => Made::NoRoom(length),
                }
            });
            match made {
                Made::Reply(head, kept) => {
                    if kept.is_some() {
                        self.seat.got_on(self.shared.now()); // before its client can know
                    }
                    return (head, kept);
                }
                Made::NoRoom(length) => drop(self.output.acquire_many(length).await),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http3_is_offered_where_it_answers_at_the_address_asked() {
        for (listeners, asked, port) in [
            (&[][..], "192.0.2.1:443", None),
            (&["192.0.2.1:443"], "192.0.2.1:443", Some(443)),
            (&["192.0.2.1:8443"], "192.0.2.1:443", Some(8443)),
            (&["192.0.2.2:443"], "192.0.2.1:443", None),
            (&["192.0.2.2:443", "0.0.0.0:8443"], "192.0.2.1:443", Some(8443)),
            (&["0.0.0.0:8443", "192.0.2.1:443"], "192.0.2.1:443", Some(443)),
            (&["192.0.2.1:443", "192.0.2.1:8443"], "192.0.2.1:443", Some(443)),
            (&["[::]:443"], "192.0.2.1:443", None),
            (&["0.0.0.0:443"], "[::ffff:192.0.2.1]:443", Some(443)),
            (&["[::]:443"], "[2001:db8::1]:443", Some(443)),
        ] {
            let listeners: Vec<SocketAddr> =
                listeners.iter().map(|listener| listener.parse().expect("written here")).collect();
            assert_eq!(
                port_beside(&listeners, asked.parse().expect("written here")),
                port,
                "{listeners:?} {asked}"
            );
        }
    }
}
