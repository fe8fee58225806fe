//! QUIC: who may connect, and how long connections live.
//!
//! Each address has one endpoint, and each connection a task that speaks DNS
//! ([`doq`]) or HTTP/3 ([`http3`]) on it. quinn keeps the protocol; what clients
//! may take of this machine is decided here and in [`hall`]: connections, over
//! all and for each network; handshakes of clients that have not shown where
//! they are, beyond which they have to (a retry keeps nothing of them here);
//! octets held for one connection.
//!
//! At a stop no connection is taken any more, queries that have come are
//! answered, and what was sent is waited for until the client has it.

mod doq;
mod hall;
mod http3;
mod streams;

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, EndpointConfig, Incoming, ServerConfig, TokioRuntime, TransportConfig, VarInt};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use self::hall::{Entrance, Guest, Hall};
use super::answering::Peer;
use super::certificates::Certificates;
use super::counters::Totals;
use super::{Kind, Limits, accept};
use crate::wire::Transport;

/// Requests of one connection at the same time.
const REQUESTS: u32 = 100;
/// Octets of unfinished requests that a connection may make us keep.
const HELD: usize = 256 << 10;
/// Replies of one connection that wait to be taken into its send window.
const REPLIES: usize = 2;
/// Octets sent and not yet acknowledged, of one connection,
const SEND_WINDOW: u64 = 128 << 10;
/// and octets received and not yet read, of one connection and of one stream.
const RECEIVE_WINDOWS: (u32, u32) = (128 << 10, 16 << 10);

/// First packets that wait to be looked at; further ones are ignored,
const WAITING: usize = 256;
/// and octets of later packets kept for one of them and for all.
const WAITING_OCTETS: (u64, u64) = (16 << 10, 1 << 20);

/// After a stop: how long the queries that have come may take to be answered,
const LAST_ANSWERS: Duration = Duration::from_millis(500);
/// how long the last replies may take to be acknowledged,
const LAST_ACKNOWLEDGEMENTS: Duration = Duration::from_millis(200);
/// how long all of this may take,
const LAST_MOMENT: Duration = Duration::from_millis(800);
/// and how long to wait until the last packets are gone.
const GOODBYE: Duration = Duration::from_millis(100);

/// What all connections share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Limits and answers, the same as over TCP.
    common: Arc<accept::Shared>,
    https_path: Arc<str>,
    hall: Arc<Hall>,
    numbers: Numbers,
}

#[derive(Debug, Default)]
struct Numbers {
    accepted: AtomicU64,
    closed: AtomicU64,
    retried: AtomicU64,
    evicted: AtomicU64,
    handshakes_failed: AtomicU64,
    protocol_errors: AtomicU64,
}

impl Shared {
    pub fn new(common: Arc<accept::Shared>, https_path: Arc<str>) -> Shared {
        let Limits { quic_connections, tcp_connections_per_client, .. } = common.limits;
        let hall = Arc::new(Hall::new(quic_connections, tcp_connections_per_client));
        Shared { common, https_path, hall, numbers: Numbers::default() }
    }

    fn limits(&self) -> &Limits {
        &self.common.limits
    }
}

// ---- endpoints ----------------------------------------------------------------------------------

/// All addresses on which QUIC is spoken.
#[derive(Debug)]
pub(super) struct Quic {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Quic {
    /// Takes connections on bound sockets until `stop` changes or its sender is
    /// gone, then lets them finish.
    pub fn start(
        sockets: Vec<(Kind, UdpSocket)>,
        certificates: &Certificates,
        shared: Shared,
        stop: watch::Receiver<bool>,
        runtime: &Handle,
    ) -> io::Result<Quic> {
        let _inside = runtime.enter();
        let shared = Arc::new(shared);
        let mut tasks = JoinSet::new();
        for (kind, socket) in sockets {
            let config = server_config(kind, certificates, shared.limits());
            let tokio = Arc::new(TokioRuntime);
            let endpoint = Endpoint::new(EndpointConfig::default(), Some(config), socket, tokio)?;
            tasks.spawn(welcome(kind, endpoint, Arc::clone(&shared), stop.clone()));
        }
        let task = runtime.spawn(async move { while tasks.join_next().await.is_some() {} });
        Ok(Quic { shared, task })
    }

    /// Waits until all is closed, after a stop.
    pub async fn ended(&mut self) {
        let _ = (&mut self.task).await; // nobody aborts it, and it has nothing to panic
    }

    pub fn add_to(&self, totals: &mut Totals) {
        let numbers = &self.shared.numbers;
        let closed = numbers.closed.load(Relaxed); // before what it is a part of
        let accepted = numbers.accepted.load(Relaxed);
        totals.accepted += accepted;
        totals.open += accepted.saturating_sub(closed);
        totals.evicted += numbers.evicted.load(Relaxed);
        totals.retried += numbers.retried.load(Relaxed);
        totals.handshakes_failed += numbers.handshakes_failed.load(Relaxed);
        totals.protocol_errors += numbers.protocol_errors.load(Relaxed);
    }
}

fn server_config(kind: Kind, certificates: &Certificates, limits: &Limits) -> ServerConfig {
    let alpn = if kind == Kind::Http3 { "h3" } else { "doq" };
    let tls = QuicServerConfig::try_from(certificates.for_quic(&[alpn]));
    let mut config = ServerConfig::with_crypto(Arc::new(tls.expect("ring has the suite of Initial packets")));
    config.max_incoming(WAITING);
    config.incoming_buffer_size(WAITING_OCTETS.0).incoming_buffer_size_total(WAITING_OCTETS.1);
    config.transport_config(Arc::new(transport_config(kind, limits)));
    config
}

fn transport_config(kind: Kind, limits: &Limits) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(REQUESTS.into());
    // HTTP/3 has a control stream, two of QPACK, and some without a meaning. DNS has none; one may
    // come so that it can be told apart and answered by the error it is (RFC 9250 §4.3.3).
    transport.max_concurrent_uni_streams(if kind == Kind::Http3 { 8_u32 } else { 1 }.into());
    transport.max_idle_timeout(limits.tcp_idle.try_into().ok());
    transport.receive_window(RECEIVE_WINDOWS.0.into()).stream_receive_window(RECEIVE_WINDOWS.1.into());
    transport.send_window(SEND_WINDOW);
    transport.datagram_receive_buffer_size(None);
    transport
}

/// Takes the connections of one endpoint, and ends with them.
async fn welcome(kind: Kind, endpoint: Endpoint, shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let mut guests = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            _ = stop.changed() => break,
            Some(_) = guests.join_next() => {}
            incoming = endpoint.accept() => match incoming {
                Some(incoming) => let_in(kind, incoming, &shared, &mut guests),
                None => {
                    tracing::error!(address = ?endpoint.local_addr().ok(), "no more {kind}: its socket has failed");
                    let _ = stop.changed().await;
                    break;
                }
            },
        }
    }
    endpoint.set_server_config(None);
    shared.hall.last_orders();
    let all = async { while guests.join_next().await.is_some() {} };
    let _ = timeout(LAST_MOMENT, all).await;
    endpoint.close(no_error(kind), b"");
    let _ = timeout(GOODBYE, endpoint.wait_idle()).await;
}

/// Decides about one connection before anything is kept of it.
fn let_in(kind: Kind, incoming: Incoming, shared: &Arc<Shared>, guests: &mut JoinSet<()>) {
    let address = incoming.remote_address().ip().to_canonical();
    match shared.hall.enter(address, incoming.remote_address_validated(), shared.common.now()) {
        Entrance::Welcome(guest, evicted) => {
            shared.numbers.accepted.fetch_add(1, Relaxed);
            shared.numbers.evicted.fetch_add(evicted as u64, Relaxed);
            guests.spawn(attend(kind, incoming, guest, Arc::clone(shared)));
        }
        Entrance::Prove => {
            shared.numbers.retried.fetch_add(1, Relaxed);
            let _ = incoming.retry(); // possible for all whose address isn't proven
        }
        Entrance::Full => incoming.refuse(),
    }
}

/// One connection, from its handshake to its end.
async fn attend(kind: Kind, incoming: Incoming, mut guest: Guest, shared: Arc<Shared>) {
    let _closed = Closed(Arc::clone(&shared));
    let handshake = async { incoming.accept()?.await };
    let shaken = tokio::select! {
        shaken = timeout(shared.limits().tls_handshake, handshake) => shaken,
        () = guest.seat.last_orders.notified() => return,
    };
    let Ok(Ok(connection)) = shaken else {
        shared.numbers.handshakes_failed.fetch_add(1, Relaxed);
        return;
    };
    guest.sit_down();
    let visit = Arc::new(Visit {
        guest,
        connection,
        held: Budget::new(HELD),
        replies: Semaphore::new(REPLIES),
        shared,
    });
    match kind {
        Kind::Http3 => http3::serve(visit).await,
        _ => doq::serve(visit).await,
    }
}

fn no_error(kind: Kind) -> VarInt {
    if kind == Kind::Http3 { http3::NO_ERROR } else { doq::NO_ERROR }
}

/// Counts a connection as open while it lives, however it ends.
struct Closed(Arc<Shared>);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.numbers.closed.fetch_add(1, Relaxed);
    }
}

// ---- one connection -----------------------------------------------------------------------------

/// What the requests of one connection share.
struct Visit {
    guest: Guest,
    connection: quinn::Connection,
    /// What unfinished requests may hold together.
    held: Budget,
    /// One for each reply that may wait for room in the send window.
    replies: Semaphore,
    shared: Arc<Shared>,
}

impl Visit {
    fn limits(&self) -> &Limits {
        self.shared.limits()
    }

    /// Answers one message; `take` gets an empty reply if none may be sent.
    fn reply<T>(&self, message: &[u8], transport: Transport, take: impl FnOnce(&[u8]) -> T) -> T {
        let reply = self.shared.common.answering.reply(message, self.peer(transport), take);
        self.guest.seat.got_on(self.shared.common.now());
        reply
    }

    /// Where the client is now: it may have moved.
    fn peer(&self, transport: Transport) -> Peer {
        let address: IpAddr = self.connection.remote_address().ip().to_canonical();
        Peer { transport, address }
    }

    /// How long the client may still be without an answer; none: it has been for too long. Nothing
    /// else keeps a connection, neither packets nor halves of queries.
    fn patience(&self) -> Option<Duration> {
        let quiet = self.shared.common.now().saturating_sub(self.guest.seat.progress());
        let left = self.limits().tcp_idle.checked_sub(Duration::from_nanos(quiet));
        left.filter(|left| !left.is_zero())
    }

    fn breach(&self) {
        self.shared.numbers.protocol_errors.fetch_add(1, Relaxed);
    }
}

/// Octets that the requests of a connection may hold together.
#[derive(Clone, Debug)]
struct Budget {
    left: Arc<AtomicUsize>,
}

/// What one request holds; given back when it ends.
#[derive(Debug)]
struct Held {
    budget: Budget,
    octets: usize,
}

impl Budget {
    fn new(octets: usize) -> Budget {
        Budget { left: Arc::new(AtomicUsize::new(octets)) }
    }

    fn nothing_yet(&self) -> Held {
        Held { budget: self.clone(), octets: 0 }
    }
}

impl Held {
    /// Takes more; false, and no change, if there isn't so much.
    fn more(&mut self, octets: usize) -> bool {
        let taken = self.budget.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(octets));
        if taken.is_ok() {
            self.octets += octets;
        }
        taken.is_ok()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.left.fetch_add(self.octets, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_request_held_is_there_for_the_next() {
        let budget = Budget::new(10);
        let (mut one, mut other) = (budget.nothing_yet(), budget.nothing_yet());
        assert!(one.more(6) && !other.more(5) && other.more(4) && !one.more(1));
        drop(one);
        assert!(other.more(6) && !other.more(1));
        drop(other);
        assert!(budget.nothing_yet().more(10));
    }
}
