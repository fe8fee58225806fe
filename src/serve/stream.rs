//! TCP: each connection's queries answered in order, all that have come at once.
//!
//! A connection has a turn when octets arrive: it takes what is there, answers
//! every complete message, and gives the replies to the kernel in one write.
//! The buffers for that belong to the thread, not to the connection; between
//! two turns a connection keeps only an unfinished message, or replies that its
//! client does not take. It reads nothing while such replies wait.
//!
//! One task accepts and knows all connections. When there are too many, it
//! closes the one that has made no progress for the longest.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::{Id, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::answering::{Answering, Desk, HEADER, MESSAGE, OUTPUT, Peer};
use super::certificates::Certificates;
use super::counters::Totals;
use super::{Kind, Limits, drop_payload};
use crate::wire::Transport;

/// The length before each message.
const PREFIX: usize = 2;

/// After a stop: how long octets that were already sent may take to arrive here,
const LAST_READ: Duration = Duration::from_millis(150);
/// how long the last replies may take to be accepted by the kernel,
const LAST_WRITE: Duration = Duration::from_millis(300);
/// how long to wait for the client to close (a close with unread octets would
/// reset the connection, and replies under way would be lost),
const LINGER: Duration = Duration::from_millis(200);
/// and how long all of this may take.
const LAST_MOMENT: Duration = Duration::from_millis(800);

/// The pause after an accept that failed for lack of something; doubles up to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// What all connections share.
#[derive(Debug)]
pub(super) struct Shared {
    pub limits: Limits,
    pub answering: Answering,
    numbers: Numbers,
    /// Ticks with each connection's progress, to tell whose is the oldest.
    progress: AtomicU64,
}

/// What is counted of connections rather than of queries.
#[derive(Debug, Default)]
struct Numbers {
    accepted: AtomicU64,
    closed: AtomicU64,
    evicted: AtomicU64,
    accept_errors: AtomicU64,
    restarts: AtomicU64,
    handshakes_failed: AtomicU64,
}

impl Shared {
    pub fn new(limits: Limits, answering: Answering) -> Shared {
        let (numbers, progress) = Default::default();
        Shared { limits, answering, numbers, progress }
    }

    pub fn add_to(&self, totals: &mut Totals) {
        self.answering.add_to(totals);
        totals.accepted += self.numbers.accepted.load(Relaxed);
        totals.open += totals.accepted.saturating_sub(self.numbers.closed.load(Relaxed));
        totals.evicted += self.numbers.evicted.load(Relaxed);
        totals.accept_errors += self.numbers.accept_errors.load(Relaxed);
        totals.restarts += self.numbers.restarts.load(Relaxed);
        totals.handshakes_failed += self.numbers.handshakes_failed.load(Relaxed);
    }
}

/// Octets the kernel may keep each way of one connection (it doubles what it is
/// told). Left to itself it would keep megabytes for a client that doesn't read.
pub(super) const KERNEL_BUFFER: usize = 64 << 10;

/// Opens a listening socket that shares its address with nobody.
pub(super) fn open(address: SocketAddr, listen: bool) -> io::Result<StdListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?; // connections of an earlier run may linger in TIME_WAIT
    socket.bind(&address.into())?;
    if listen {
        // all of these are inherited by the connections
        socket.set_tcp_nodelay(true)?; // every write is complete
        socket.set_send_buffer_size(KERNEL_BUFFER)?;
        socket.set_recv_buffer_size(KERNEL_BUFFER)?;
        socket.set_nonblocking(true)?;
        socket.listen(1024)?;
    }
    Ok(socket.into())
}

// ---- accepting ----------------------------------------------------------------------------------

/// The task that accepts, for all addresses.
#[derive(Debug)]
pub(super) struct Acceptor {
    shared: Arc<Shared>,
    listeners: Vec<(Kind, TcpListener)>,
    tls: Option<Tls>,
    tasks: JoinSet<()>,
    connections: HashMap<Id, Arc<Seat>>,
    turn: u64,
}

/// A connection as the acceptor knows it.
#[derive(Debug, Default)]
struct Seat {
    /// `Shared::progress` when this connection last got on.
    progress: AtomicU64,
    /// Rung to make the connection finish up.
    last_orders: Notify,
}

impl Seat {
    /// Makes this the connection that got on last, unless its seat was given away.
    fn got_on(&self, shared: &Shared) {
        let tick = shared.progress.fetch_add(1, Relaxed);
        let keep = |last| (last != EVICTED).then_some(tick);
        let _ = self.progress.fetch_update(Relaxed, Relaxed, keep);
    }
}

impl Acceptor {
    /// Takes over bound sockets; must be called within the runtime. `tls` is
    /// there if one of them is of an encrypted kind.
    pub fn new(
        listeners: Vec<(Kind, StdListener)>,
        tls: Option<Tls>,
        shared: Arc<Shared>,
    ) -> io::Result<Acceptor> {
        let listeners = listeners.into_iter().map(|(kind, one)| Ok((kind, TcpListener::from_std(one)?)));
        let listeners = listeners.collect::<io::Result<_>>()?;
        let (tasks, connections) = (JoinSet::new(), HashMap::new());
        Ok(Acceptor { shared, listeners, tls, tasks, connections, turn: 0 })
    }

    /// Accepts until `stop` changes or its sender is gone, then lets the connections finish.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let shared = Arc::clone(&self.shared);
        while let Err(payload) = caught(self.accept_until(&mut stop)).await {
            drop_payload(payload);
            shared.numbers.restarts.fetch_add(1, Relaxed);
            tracing::error!("accepting connections has panicked by a defect of this program; it starts anew");
            sleep(PAUSES.0).await;
        }
        self.finish().await;
    }

    async fn accept_until(&mut self, stop: &mut watch::Receiver<bool>) {
        let mut pause = pin!(sleep(Duration::ZERO));
        let mut pausing = None;
        loop {
            tokio::select! {
                biased;
                _ = stop.changed() => break,
                Some(ended) = self.tasks.join_next_with_id() => {
                    let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
                    self.connections.remove(&id);
                }
                () = pause.as_mut(), if pausing.is_some_and(|(waiting, _)| waiting) => {
                    pausing = pausing.map(|(_, length)| (false, length));
                }
                accepted = accept(&self.listeners, self.turn), if !pausing.is_some_and(|(waiting, _)| waiting) => {
                    match accepted {
                        Ok((kind, stream, address)) => {
                            pausing = None;
                            self.seat(kind, stream, address.ip().to_canonical());
                        }
                        Err(error) if concerns_one_connection(&error) => {}
                        // Descriptors or memory are short. Spinning would not help; a connection
                        // less might.
                        Err(_) => {
                            self.shared.numbers.accept_errors.fetch_add(1, Relaxed);
                            self.evict();
                            let length = pausing.map_or(PAUSES.0, |(_, last)| PAUSES.1.min(last * 2));
                            pause.set(sleep(length));
                            pausing = Some((true, length));
                        }
                    }
                }
            }
        }
    }

    /// Starts a connection's task, at the cost of another connection if need be.
    fn seat(&mut self, kind: Kind, stream: TcpStream, address: IpAddr) {
        self.turn += 1;
        self.shared.numbers.accepted.fetch_add(1, Relaxed);
        let open = Open(Arc::clone(&self.shared));
        let room = self.connections.len() < self.shared.limits.tcp_connections;
        if !room && !self.evict() {
            return;
        }
        let seat = Arc::new(Seat::default());
        seat.got_on(&self.shared);
        let mine = Arc::clone(&seat);
        let tls = self.tls.clone();
        let task = self.tasks.spawn(async move { attend(kind, stream, address, tls, &open.0, &mine).await });
        self.connections.insert(task.id(), seat);
    }

    /// Closes the connection whose client has let it wait the longest; false when there is none.
    fn evict(&mut self) -> bool {
        let oldest = self.connections.iter().min_by_key(|(_, seat)| seat.progress.load(Relaxed));
        let Some((&id, seat)) = oldest else { return false };
        self.shared.numbers.evicted.fetch_add(1, Relaxed);
        seat.progress.store(EVICTED, Relaxed);
        seat.last_orders.notify_one();
        self.connections.remove(&id);
        true
    }

    /// Lets every connection answer what it has received, those not yet accepted among them.
    async fn finish(mut self) {
        while let Ok(Ok((kind, stream, address))) =
            timeout(Duration::ZERO, accept(&self.listeners, self.turn)).await
        {
            self.seat(kind, stream, address.ip().to_canonical());
        }
        self.listeners.clear();
        for seat in self.connections.values() {
            seat.last_orders.notify_one();
        }
        let all = async { while self.tasks.join_next().await.is_some() {} };
        let _ = timeout(LAST_MOMENT, all).await; // what is left over is aborted with the set
    }
}

/// Polls a future to its end; a panic is its error.
async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Box<dyn Any + Send>> {
    let mut work = pin!(work);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
        Ok(polled) => polled.map(Ok),
        Err(payload) => Poll::Ready(Err(payload)),
    })
    .await
}

/// The next connection on any of the listeners. With another `turn`, another of them comes first,
/// so that a flood on one address does not shut out the others.
async fn accept(listeners: &[(Kind, TcpListener)], turn: u64) -> io::Result<(Kind, TcpStream, SocketAddr)> {
    let first = turn.checked_rem(listeners.len() as u64).unwrap_or(0) as usize;
    let (last, first) = listeners.split_at(first);
    poll_fn(|context| {
        for (kind, listener) in first.iter().chain(last) {
            if let Poll::Ready(accepted) = listener.poll_accept(context) {
                return Poll::Ready(accepted.map(|(stream, address)| (*kind, stream, address)));
            }
        }
        Poll::Pending
    })
    .await
}

/// Errors that `accept` passes on from a connection that has failed already.
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
        || error.raw_os_error() == Some(libc::EPROTO)
}

/// Counts a connection as open while it lives, however it ends.
struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.numbers.closed.fetch_add(1, Relaxed);
    }
}

// ---- one connection -----------------------------------------------------------------------------

/// A seat's progress when the acceptor has given it to somebody else.
const EVICTED: u64 = u64::MAX;

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
}

/// How handshakes go, for each kind of listener that has them.
#[derive(Clone)]
pub(super) struct Tls {
    dot: TlsAcceptor,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls { .. }")
    }
}

impl Tls {
    pub fn new(certificates: &Certificates, _https_path: Arc<str>) -> Tls {
        Tls { dot: certificates.for_tcp(&["dot"]).into() }
    }
}

/// Serves a connection by what is spoken where it came in.
async fn attend(
    kind: Kind,
    stream: TcpStream,
    address: IpAddr,
    tls: Option<Tls>,
    shared: &Shared,
    seat: &Seat,
) {
    let peer = |transport| Peer { transport, address };
    match (kind, tls) {
        (Kind::Tls, Some(tls)) => {
            let handshake = timeout(shared.limits.tls_handshake, tls.dot.accept(stream));
            match handshake.await {
                Ok(Ok(stream)) => serve(stream, peer(Transport::Tls), shared, seat).await,
                Ok(Err(_)) | Err(_) => {
                    shared.numbers.handshakes_failed.fetch_add(1, Relaxed);
                }
            }
        }
        _ => serve(stream, peer(Transport::Tcp), shared, seat).await,
    }
}

/// Serves one connection until its client closes it, or a limit does.
async fn serve<S: AsyncRead + AsyncWrite + Unpin>(stream: S, peer: Peer, shared: &Shared, seat: &Seat) {
    let limits = &shared.limits;
    let mut connection = Connection { stream, peer, carried: Vec::new(), pending: Vec::new(), taken: 0 };
    let mut last_orders = pin!(seat.last_orders.notified());
    let mut deadline = pin!(sleep(limits.tcp_idle));
    let mut wait = Wait::Idle;
    loop {
        tokio::select! {
            biased;
            () = last_orders.as_mut() => {
                if seat.progress.load(Relaxed) != EVICTED {
                    connection.finish(shared, seat).await;
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
            () = deadline.as_mut() => return,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    fn waits_for(&self) -> Wait {
        match (self.pending.is_empty(), self.carried.is_empty()) {
            (false, _) => Wait::Write,
            (true, false) => Wait::Message,
            (true, true) => Wait::Idle,
        }
    }

    /// One turn: flushes, or else reads, answers and writes.
    fn poll_turn(
        &mut self,
        context: &mut Context<'_>,
        shared: &Shared,
        seat: &Seat,
    ) -> Poll<io::Result<Turn>> {
        if !self.pending.is_empty() {
            ready!(self.poll_flush(context))?;
            seat.got_on(shared);
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
                seat.got_on(shared); // before its client can know
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
        while !replies.is_empty() {
            match Pin::new(&mut self.stream).poll_write(context, replies) {
                Poll::Ready(taken) => replies = &replies[positive(taken?)?..],
                Poll::Pending => {
                    self.pending.extend_from_slice(replies);
                    break;
                }
            }
        }
        Ok(())
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.taken < self.pending.len() {
            let rest = &self.pending[self.taken..];
            self.taken += positive(ready!(Pin::new(&mut self.stream).poll_write(context, rest))?)?;
        }
        (self.pending, self.taken) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_of_accepting_is_caught_and_it_can_go_on() {
        let mut attempts = 0;
        let mut work = async || {
            attempts += 1;
            tokio::task::yield_now().await;
            assert!(attempts > 2, "on purpose");
            attempts
        };
        let mut caught_times = 0;
        let done = loop {
            match caught(work()).await {
                Ok(done) => break done,
                Err(_) => caught_times += 1,
            }
        };
        assert_eq!((done, caught_times), (3, 2));
    }
}
