//! Messages over a stream (RFC 7766, and RFC 7858 within TLS): each
//! connection's queries answered in order, all that have come at once.
//!
//! A connection has a turn when octets arrive: it takes what is there, answers
//! every complete message, and gives the replies to the kernel in one write.
//! The buffers for that belong to the thread, not to the connection; between
//! two turns a connection keeps only an unfinished message, or replies that its
//! client does not take. It reads nothing while such replies wait.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::{sleep, timeout};

use super::accept::Shared;
use super::answering::{Desk, HEADER, MESSAGE, OUTPUT, Peer};
use super::seats::Seat;

/// The length before each message.
const PREFIX: usize = 2;

/// After a stop: how long octets that were already sent may take to arrive here,
const LAST_READ: Duration = Duration::from_millis(150);
/// how long the last replies may take to be accepted by the kernel,
const LAST_WRITE: Duration = Duration::from_millis(300);
/// and how long to wait for the client to close (a close with unread octets would
/// reset the connection, and replies under way would be lost).
pub(super) const LINGER: Duration = Duration::from_millis(200);

/// What a connection waits for; each has its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// The next message to begin.
    Idle,
    /// The rest of a message.
    Message,
    /// The client to take its replies.
    Write,
}

/// What a turn has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// At least one message was answered, or all waiting replies were taken.
    Progress,
    /// Octets came, but no message is complete.
    Partial,
    /// The client sends no more.
    Ended,
    /// What came is not DNS.
    Garbage,
}

#[derive(Debug)]
struct Connection<S> {
    stream: S,
    peer: Peer,
    /// Received and not yet answered: part of a message, seldom more.
    carried: Vec<u8>,
    /// Replies the client has not taken, of which `taken` octets are gone.
    pending: Vec<u8>,
    taken: usize,
    /// The stream itself still holds octets of replies.
    unflushed: bool,
}

/// Serves one connection until its client closes it, or a limit does.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    peer: Peer,
    shared: &Shared,
    seat: &Seat,
) {
    let limits = &shared.limits;
    let (carried, pending) = (Vec::new(), Vec::new());
    let mut connection = Connection { stream, peer, carried, pending, taken: 0, unflushed: false };
    let mut last_orders = pin!(seat.last_orders.notified());
    let mut deadline = pin!(sleep(limits.tcp_idle));
    let mut wait = Wait::Idle;
    loop {
        tokio::select! {
            biased;
            () = last_orders.as_mut() => {
                match seat.is_evicted() {
                    true => connection.give_up().await,
                    false => connection.finish(shared, seat).await,
                }
                return;
            }
            turn = poll_fn(|context| connection.poll_turn(context, shared, seat)) => match turn {
                Ok(turn @ (Turn::Progress | Turn::Partial)) => {
                    let now = connection.waits_for();
                    // Octets alone do not extend a limit: a message must be finished within it.
                    if turn == Turn::Progress || now != wait {
                        deadline.set(sleep(match now {
                            Wait::Idle => limits.tcp_idle,
                            Wait::Message => limits.tcp_message,
                            Wait::Write => limits.tcp_write,
                        }));
                    }
                    wait = now;
                }
                Ok(Turn::Ended | Turn::Garbage) => return connection.close(limits.tcp_write).await,
                Err(_) => return,
            },
            () = deadline.as_mut() => return connection.give_up().await,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    fn waits_for(&self) -> Wait {
        match (self.holds_replies(), self.carried.is_empty()) {
            (true, _) => Wait::Write,
            (false, false) => Wait::Message,
            (false, true) => Wait::Idle,
        }
    }

    fn holds_replies(&self) -> bool {
        self.unflushed || !self.pending.is_empty()
    }

    /// One turn: flushes, or else reads, answers and writes.
    fn poll_turn(
        &mut self,
        context: &mut Context<'_>,
        shared: &Shared,
        seat: &Seat,
    ) -> Poll<io::Result<Turn>> {
        if self.holds_replies() {
            ready!(self.poll_flush(context))?;
            seat.got_on(shared.now());
            return Poll::Ready(Ok(Turn::Progress));
        }
        Desk::use_it(|desk| {
            let mut end = self.carried.len();
            // Complete messages are left over only where the last turn ran out of room.
            if next_message(&self.carried).is_none() {
                let mut room = ReadBuf::new(&mut desk.input[end..]);
                ready!(Pin::new(&mut self.stream).poll_read(context, &mut room))?;
                let read = room.filled().len();
                if read == 0 {
                    return Poll::Ready(Ok(Turn::Ended));
                }
                end += read;
            }
            desk.input[..self.carried.len()].copy_from_slice(&self.carried);
            let Answered { messages, used, filled, garbage } = answer(desk, end, self.peer, shared);
            self.carry(&desk.input[used..end]);
            if messages > 0 {
                seat.got_on(shared.now()); // before its client can know
            }
            self.poll_write(context, &desk.output[..filled])?;
            Poll::Ready(Ok(match (garbage, messages) {
                (true, _) => Turn::Garbage,
                (false, 0) => Turn::Partial,
                (false, _) => Turn::Progress,
            }))
        })
    }

    /// Keeps what is not yet answered, and no memory when that is nothing.
    fn carry(&mut self, rest: &[u8]) {
        if rest.is_empty() {
            self.carried = Vec::new();
        } else {
            self.carried.clear();
            self.carried.extend_from_slice(rest);
        }
    }

    /// Gives replies to the kernel; keeps what it does not take now.
    fn poll_write(&mut self, context: &mut Context<'_>, mut replies: &[u8]) -> io::Result<()> {
        if replies.is_empty() {
            return Ok(());
        }
        while !replies.is_empty() {
            match Pin::new(&mut self.stream).poll_write(context, replies) {
                Poll::Ready(taken) => replies = &replies[positive(taken?)?..],
                Poll::Pending => {
                    self.pending.extend_from_slice(replies);
                    return Ok(());
                }
            }
        }
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Ready(flushed) => flushed,
            Poll::Pending => {
                self.unflushed = true;
                Ok(())
            }
        }
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.taken < self.pending.len() {
            let rest = &self.pending[self.taken..];
            self.taken += positive(ready!(Pin::new(&mut self.stream).poll_write(context, rest))?)?;
        }
        (self.pending, self.taken) = (Vec::new(), 0);
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.unflushed = false;
        Poll::Ready(Ok(()))
    }

    /// Closes at once. Within TLS that is said, if the kernel takes it without delay.
    async fn give_up(mut self) {
        poll_fn(|context| {
            let _ = Pin::new(&mut self.stream).poll_shutdown(context);
            Poll::Ready(())
        })
        .await;
    }

    /// Answers what has been sent to us before the stop, and closes.
    async fn finish(mut self, shared: &Shared, seat: &Seat) {
        let turns = async {
            while let Ok(Turn::Progress | Turn::Partial) =
                poll_fn(|context| self.poll_turn(context, shared, seat)).await
            {}
        };
        let _ = timeout(LAST_READ, turns).await;
        self.close(LAST_WRITE).await;
    }

    /// Throws away what comes, until the client closes.
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Desk::use_it(|desk| {
            loop {
                let mut room = ReadBuf::new(&mut desk.input);
                ready!(Pin::new(&mut self.stream).poll_read(context, &mut room))?;
                if room.filled().is_empty() {
                    return Poll::Ready(Ok(()));
                }
            }
        })
    }

    /// Closes so that the replies already written arrive.
    async fn close(mut self, limit: Duration) {
        let farewell = async {
            poll_fn(|context| self.poll_flush(context)).await?;
            self.stream.shutdown().await
        };
        if let Ok(Ok(())) = timeout(limit, farewell).await {
            let drain = poll_fn(|context| self.poll_drain(context));
            let _ = timeout(LINGER, drain).await;
        }
    }
}

fn positive(taken: usize) -> io::Result<usize> {
    if taken == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(taken) }
}

// ---- answering ----------------------------------------------------------------------------------

/// What became of the octets on the desk.
struct Answered {
    messages: usize,
    /// Octets of input that need no further look.
    used: usize,
    /// Octets of output.
    filled: usize,
    garbage: bool,
}

/// Answers the complete messages in `input[..end]`, as far as there is room for replies.
fn answer(desk: &mut Desk, end: usize, peer: Peer, shared: &Shared) -> Answered {
    let mut done = Answered { messages: 0, used: 0, filled: 0, garbage: false };
    let round = shared.answering.round(peer);
    while let Some(message) = next_message(&desk.input[done.used..end]) {
        if message.len() < HEADER {
            done.garbage = true;
            break;
        }
        if OUTPUT - done.filled < PREFIX + MESSAGE {
            break;
        }
        let (prefix, room) = desk.output[done.filled..].split_at_mut(PREFIX);
        let length = round.answer(message, &mut desk.chance, room);
        done.messages += 1;
        done.used += PREFIX + message.len();
        if let Ok(framed @ 1..) = u16::try_from(length) {
            prefix.copy_from_slice(&framed.to_be_bytes());
            done.filled += PREFIX + length;
        }
    }
    done
}

/// The first message of `octets`, if all of it is there. A length below that of a header needs no
/// further octets to be known as wrong.
fn next_message(octets: &[u8]) -> Option<&[u8]> {
    let (prefix, rest) = octets.split_first_chunk::<PREFIX>()?;
    let length = usize::from(u16::from_be_bytes(*prefix));
    if length < HEADER { Some(&rest[..0]) } else { rest.get(..length) }
}
