//! DNS over HTTPS by HTTP/3 (RFC 8484, RFC 9114): a stream for each request.
//!
//! h3 keeps the protocol and `doh` the rules; here are limits and the order of
//! things.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::error::{Code, ConnectionError, StreamError};
use h3::server::{Connection, RequestResolver, RequestStream};
use http::{Method, Response, StatusCode};
use quinn::VarInt;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::streams::{Acknowledged, Both, Streams};
use super::{LAST_ACKNOWLEDGEMENTS, LAST_ANSWERS, Visit};
use crate::clock;
use crate::serve::doh::{self, Asked};
use crate::wire::{MAX_MESSAGE, Transport};

// Error codes (RFC 9114 §8.1).
pub(super) const NO_ERROR: VarInt = VarInt::from_u32(0x100);
pub(super) const EXCESSIVE_LOAD: VarInt = VarInt::from_u32(0x107);
pub(super) const REQUEST_CANCELLED: VarInt = VarInt::from_u32(0x10c);

/// The longest head of a request, as HTTP counts it.
const HEAD: u64 = 16 << 10;

/// Answers a connection's requests until it ends.
pub(super) async fn serve(visit: Arc<Visit>) {
    let (streams, acknowledged) = Streams::new(visit.connection.clone(), visit.held.clone());
    let mut builder = h3::server::builder();
    builder.max_field_section_size(HEAD).send_grease(false);
    let built = timeout(visit.limits().tls_handshake, builder.build(streams)).await;
    let Ok(Ok(mut connection)) = built else { return };
    let mut exchanges = JoinSet::new();
    let mut idle = std::pin::pin!(sleep(visit.limits().tcp_idle));
    loop {
        tokio::select! {
            biased;
            () = visit.guest.seat.last_orders.notified() => {
                if visit.guest.seat.is_evicted() {
                    return visit.connection.close(EXCESSIVE_LOAD, b"");
                }
                finish(&visit, &mut connection, &mut exchanges, acknowledged).await;
                break;
            }
            Some(_) = exchanges.join_next() => {}
            request = connection.accept() => match request {
                Ok(Some(request)) => {
                    exchanges.spawn(exchange(request, Arc::clone(&visit)));
                }
                Ok(None) => break,
                Err(ConnectionError::Local { .. }) => return visit.breach(), // h3 has closed it
                Err(_) => return,
            },
            () = idle.as_mut() => match visit.patience() {
                Some(left) => idle.set(sleep(left)),
                None => break,
            },
        }
    }
    visit.connection.close(NO_ERROR, b"");
}

/// After the stop: tells which requests are not taken any more, answers what
/// has come, and waits until the client has it.
async fn finish(
    visit: &Arc<Visit>,
    connection: &mut Connection<Streams, Bytes>,
    exchanges: &mut JoinSet<()>,
    acknowledged: Acknowledged,
) {
    let answers = async {
        while let Ok(Ok(Some(request))) = timeout(Duration::ZERO, connection.accept()).await {
            exchanges.spawn(exchange(request, Arc::clone(visit)));
        }
        // with this the requests under way end; h3 turns later ones away
        let _ = connection.shutdown(0).await;
        loop {
            tokio::select! {
                biased;
                request = connection.accept() => match request {
                    Ok(Some(request)) => {
                        exchanges.spawn(exchange(request, Arc::clone(visit)));
                    }
                    Ok(None) | Err(_) => break,
                },
                ended = exchanges.join_next() => if ended.is_none() { break },
            }
        }
        while exchanges.join_next().await.is_some() {}
    };
    let _ = timeout(LAST_ANSWERS, answers).await;
    let _ = timeout(LAST_ACKNOWLEDGEMENTS, acknowledged.all()).await;
}

/// One request and its response. What doesn't come to its end ends with its
/// streams, which tell the client.
async fn exchange(request: RequestResolver<Streams, Bytes>, visit: Arc<Visit>) {
    let limits = visit.limits();
    let Ok(Ok((request, mut stream))) = timeout(limits.tcp_message, request.resolve_request()).await else {
        return;
    };
    let (head, ()) = request.into_parts();
    let Ok(length) = doh::content_length(&head.headers) else { return reject(&visit, &mut stream) };
    let asked = match doh::read(&head, &visit.shared.https_path) {
        Asked::Refused(status) => Err(status),
        Asked::Message(message) if length.is_none() => Ok(message),
        asked @ (Asked::Message(_) | Asked::Body) => {
            let body = timeout(limits.tcp_message, read(&mut stream, length)).await;
            match (body, asked) {
                (Ok(Ok(Body::Whole(_))), Asked::Message(message)) => Ok(message),
                (Ok(Ok(Body::Whole(message))), _) => Ok(message),
                (Ok(Ok(Body::TooLong)), _) => Err(StatusCode::PAYLOAD_TOO_LARGE),
                (Ok(Ok(Body::Malformed)), _) => return reject(&visit, &mut stream),
                (Ok(Err(_)), _) => return,
                (Err(_), _) => Err(StatusCode::REQUEST_TIMEOUT),
            }
        }
    };
    let Ok(permit) = visit.replies.acquire().await else { return };
    let (response, body) = match asked {
        Ok(message) => visit.reply(&message, Transport::Https, |reply| {
            (doh::answered(reply, clock::unix_seconds()), Bytes::copy_from_slice(reply))
        }),
        Err(status) => (doh::refused(status, clock::unix_seconds()), Bytes::new()),
    };
    let body = if head.method == Method::HEAD { Bytes::new() } else { body };
    let _ = timeout(limits.tcp_write, send(&mut stream, response, body)).await;
    drop(permit);
}

/// Ends a malformed request without an answer (RFC 9114 §4.1.2).
fn reject(visit: &Visit, stream: &mut RequestStream<Both, Bytes>) {
    visit.breach();
    stream.stop_sending(Code::H3_MESSAGE_ERROR);
    stream.stop_stream(Code::H3_MESSAGE_ERROR);
}

/// What came of a request's body.
enum Body {
    Whole(Vec<u8>),
    TooLong,
    /// It has not as many octets as its head says.
    Malformed,
}

/// Reads a request's body, the whole of which is a message.
async fn read(stream: &mut RequestStream<Both, Bytes>, length: Option<usize>) -> Result<Body, StreamError> {
    let mut message = Vec::new();
    while let Some(mut data) = stream.recv_data().await? {
        let octets = message.len() + data.remaining();
        if length.is_some_and(|length| octets > length) {
            return Ok(Body::Malformed);
        }
        if octets > MAX_MESSAGE {
            return Ok(Body::TooLong);
        }
        while data.has_remaining() {
            let length = data.chunk().len();
            message.extend_from_slice(data.chunk());
            data.advance(length);
        }
    }
    Ok(match length {
        Some(length) if length != message.len() => Body::Malformed,
        Some(_) | None => Body::Whole(message),
    })
}

async fn send(
    stream: &mut RequestStream<Both, Bytes>,
    response: Response<()>,
    body: Bytes,
) -> Result<(), StreamError> {
    stream.send_response(response).await?;
    if !body.is_empty() {
        stream.send_data(body).await?;
    }
    stream.finish().await
}
