//! DNS over QUIC (RFC 9250): a stream for each query, in any order.
//!
//! What breaks the protocol ends the connection (§4.3.3); what concerns one
//! query, its stream.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quinn::{ReadError, RecvStream, SendStream, VarInt};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{LAST_ACKNOWLEDGEMENTS, LAST_ANSWERS, Visit};
use crate::serve::answering::HEADER;
use crate::wire::{self, Transport};

// Error codes (§4.3).
pub(super) const NO_ERROR: VarInt = VarInt::from_u32(0);
const PROTOCOL_ERROR: VarInt = VarInt::from_u32(2);
const REQUEST_CANCELLED: VarInt = VarInt::from_u32(3);
const EXCESSIVE_LOAD: VarInt = VarInt::from_u32(4);
const UNSPECIFIED_ERROR: VarInt = VarInt::from_u32(5);

/// The length before each message.
const PREFIX: usize = 2;

/// The client doesn't keep to the protocol.
#[derive(Debug, PartialEq, Eq)]
struct Breach;

/// Answers a connection's queries until it ends.
pub(super) async fn serve(visit: Arc<Visit>) {
    let connection = &visit.connection;
    let mut exchanges = JoinSet::new();
    let mut idle = std::pin::pin!(sleep(visit.limits().tcp_idle));
    let code = loop {
        tokio::select! {
            biased;
            () = visit.guest.seat.last_orders.notified() => {
                let evicted = visit.guest.seat.is_evicted();
                break if evicted { EXCESSIVE_LOAD } else { finish(&visit, &mut exchanges).await };
            }
            Some(ended) = exchanges.join_next() => if let Ok(Err(Breach)) = ended {
                break PROTOCOL_ERROR;
            },
            stream = connection.accept_bi() => match stream {
                Ok((send, receive)) => {
                    exchanges.spawn(exchange(send, receive, Arc::clone(&visit)));
                }
                Err(_) => return,
            },
            // only clients' bidirectional streams have a meaning (§4.2)
            stream = connection.accept_uni() => match stream {
                Ok(_) => break PROTOCOL_ERROR,
                Err(_) => return,
            },
            () = idle.as_mut() => match visit.patience() {
                Some(left) => idle.set(sleep(left)),
                None => break NO_ERROR,
            },
        }
    };
    if code == PROTOCOL_ERROR {
        visit.breach();
    }
    connection.close(code, b"");
}

/// After the stop: answers what has come, and waits until the client has it.
async fn finish(visit: &Arc<Visit>, exchanges: &mut JoinSet<Result<(), Breach>>) -> VarInt {
    while let Ok(Ok((send, receive))) = timeout(Duration::ZERO, visit.connection.accept_bi()).await {
        exchanges.spawn(exchange(send, receive, Arc::clone(visit)));
    }
    let all = async {
        while let Some(ended) = exchanges.join_next().await {
            if let Ok(Err(Breach)) = ended {
                return PROTOCOL_ERROR;
            }
        }
        NO_ERROR
    };
    timeout(LAST_ANSWERS + LAST_ACKNOWLEDGEMENTS, all).await.unwrap_or(NO_ERROR)
}

/// One query and its reply.
async fn exchange(mut send: SendStream, mut receive: RecvStream, visit: Arc<Visit>) -> Result<(), Breach> {
    let ended = converse(&mut send, &mut receive, &visit).await;
    let code = match ended {
        Ended::Well => return Ok(()),
        Ended::Aborted(code) => code,
        Ended::Breach => PROTOCOL_ERROR,
    };
    // A stream that is only dropped would end as if it was meant to (§4.3.1, §4.3.2).
    let _ = receive.stop(code); // fails if the client has sent all
    let _ = send.reset(code); // fails if the client has all
    if ended == Ended::Breach { Err(Breach) } else { Ok(()) }
}

/// How a query ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// With a reply, or with the connection.
    Well,
    /// In both directions, with this code.
    Aborted(VarInt),
    /// And the connection with it.
    Breach,
}

async fn converse(send: &mut SendStream, receive: &mut RecvStream, visit: &Visit) -> Ended {
    let mut octets = Vec::new();
    let mut held = visit.held.nothing_yet();
    let reading = timeout(visit.limits().tcp_message, async {
        loop {
            match receive.read_chunk(PREFIX + wire::MAX_MESSAGE, true).await {
                Ok(None) => return Read::All,
                Ok(Some(chunk)) if !held.more(chunk.bytes.len()) => return Read::TooMuch,
                Ok(Some(chunk)) => octets.extend_from_slice(&chunk.bytes),
                Err(ReadError::Reset(_)) => return Read::Cancelled,
                Err(_) => return Read::Lost,
            }
            if frame(&octets) == Err(Breach) {
                return Read::All;
            }
        }
    });
    let message = match (reading.await, frame(&octets)) {
        (_, Err(Breach)) | (Ok(Read::All), Ok(None)) => return Ended::Breach,
        (Ok(Read::All), Ok(Some(message))) => message,
        // the message is there, but not the end of the stream (§4.2)
        (Err(_), Ok(Some(_))) => return Ended::Breach,
        (Err(_), Ok(None)) => return Ended::Aborted(UNSPECIFIED_ERROR),
        (Ok(Read::TooMuch), _) => return Ended::Aborted(EXCESSIVE_LOAD),
        (Ok(Read::Cancelled), _) => return Ended::Aborted(REQUEST_CANCELLED),
        (Ok(Read::Lost), _) => return Ended::Well,
    };
    // §4.2.1, §5.5.2
    if message[..2] != [0, 0] || wire::has_option(message, wire::TCP_KEEPALIVE) {
        return Ended::Breach;
    }
    let Ok(permit) = visit.replies.acquire().await else { return Ended::Well };
    let Some(reply) = visit.reply(message, Transport::Quic, framed) else { return Ended::Breach };
    drop((octets, held));
    match timeout(visit.limits().tcp_write, send.write_chunk(reply)).await {
        Ok(Ok(())) => drop(permit),
        Ok(Err(_)) => return Ended::Well, // the client wants no reply, or is gone
        Err(_) => return Ended::Aborted(UNSPECIFIED_ERROR),
    }
    let _ = send.finish(); // fails if the client wants no more of it
    match timeout(visit.limits().tcp_write, send.stopped()).await {
        Ok(_) => Ended::Well,
        Err(_) => Ended::Aborted(UNSPECIFIED_ERROR),
    }
}

/// How reading a query ended.
enum Read {
    /// With the end of the stream, or with more than belongs to it.
    All,
    /// Too much is held for this client.
    TooMuch,
    /// The client gave it up.
    Cancelled,
    /// The connection is gone.
    Lost,
}

/// The one message of a stream (§4.2), or none if octets are missing.
fn frame(octets: &[u8]) -> Result<Option<&[u8]>, Breach> {
    let Some((prefix, rest)) = octets.split_first_chunk::<PREFIX>() else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes(*prefix));
    if length < HEADER || rest.len() > length {
        return Err(Breach);
    }
    Ok((rest.len() == length).then_some(rest))
}

/// A reply with its length; none for an empty one: what was sent is no query.
fn framed(reply: &[u8]) -> Option<Bytes> {
    let length = u16::try_from(reply.len()).ok().filter(|&length| length > 0)?;
    Some([&length.to_be_bytes()[..], reply].concat().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_holds_one_message() {
        let message = [7; HEADER];
        let whole = [&[0, 12][..], &message].concat();
        for end in 0..whole.len() {
            assert_eq!(frame(&whole[..end]), Ok(None), "{end} octets");
        }
        assert_eq!(frame(&whole), Ok(Some(&message[..])));
        let (more, twice) = ([&whole[..], &[0]].concat(), [&whole[..], &whole].concat());
        for (octets, why) in [
            (&more[..], "an octet too many"),
            (&twice, "two messages"),
            (&[0, 0], "no message"),
            (&[0, 11], "a message without a header"),
        ] {
            assert_eq!(frame(octets), Err(Breach), "{why}");
        }
    }
}
