//! QUIC: who may connect, and how long connections live.
//!
//! Each address has one endpoint, and each connection a task that speaks DNS
//! ([`doq`]) or HTTP/3 ([`http3`]) on it. quinn keeps the protocol; what clients
//! may take of this machine is decided here and in [`hall`]: connections, over
//! all and for each network; handshakes of clients that have not shown where
//! they are, beyond which they have to (a retry keeps nothing of them here);
//! octets held for one connection.
//!
//! A panic of what accepts costs one connection, and accepting starts anew. An
//! endpoint whose socket has failed ends, which the [`super::Pulse`] notices.
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
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::timeout;

use self::hall::{Entrance, Guest, Hall};
use super::answering::Peer;
use super::certificates::Certificates;
use super::counters::Totals;
use super::{Kind, Limits, Listener, accept};
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
    /// What accepts, for each endpoint.
    accepting: Vec<(Listener, AbortHandle)>,
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
        let (mut tasks, mut accepting) = (JoinSet::new(), Vec::new());
        for (kind, socket) in sockets {
            let listener = Listener { kind, address: socket.local_addr()? };
            let config = server_config(kind, certificates, shared.limits());
            let tokio = Arc::new(TokioRuntime);
            let endpoint = Endpoint::new(EndpointConfig::default(), Some(config), socket, tokio)?;
            let task = tasks.spawn(welcome(listener, endpoint, Arc::clone(&shared), stop.clone()));
            accepting.push((listener, task));
        }
        let task = runtime.spawn(async move { while tasks.join_next().await.is_some() {} });
        Ok(Quic { shared, task, accepting })
    }

    /// Waits until all is closed, after a stop.
    pub async fn ended(&mut self) {
        let _ = (&mut self.task).await; // nobody aborts it, and it has nothing to panic
    }

    /// What accepts connections at each address, for a look at whether it does.
    pub fn accepting(&self) -> &[(Listener, AbortHandle)] {
        &self.accepting
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
async fn welcome(
    listener: Listener,
    endpoint: Endpoint,
    shared: Arc<Shared>,
    mut stop: watch::Receiver<bool>,
) {
    let kind = listener.kind;
    let mut guests = JoinSet::new();
    let admit = |incoming, guests: &mut _| let_in(kind, incoming, &shared, guests);
    accept_despite_panics(listener, &endpoint, &shared.common, &mut guests, &mut stop, admit).await;
    endpoint.set_server_config(None);
    shared.hall.last_orders();
    let all = async { while guests.join_next().await.is_some() {} };
    let _ = timeout(LAST_MOMENT, all).await;
    endpoint.close(no_error(kind), b"");
    let _ = timeout(GOODBYE, endpoint.wait_idle()).await;
}

/// Hands each connection to `admit`, until `stop` changes or the socket fails.
async fn accept_despite_panics(
    listener: Listener,
    endpoint: &Endpoint,
    common: &accept::Shared,
    guests: &mut JoinSet<()>,
    stop: &mut watch::Receiver<bool>,
    mut admit: impl FnMut(Incoming, &mut JoinSet<()>),
) {
    let Listener { kind, address } = listener;
    while let Err(payload) = accept::caught(accept_until(listener, endpoint, guests, stop, &mut admit)).await
    {
        common.after_panic(&format!("connections for {kind} at {address}"), payload).await;
    }
}

async fn accept_until(
    Listener { kind, address }: Listener,
    endpoint: &Endpoint,
    guests: &mut JoinSet<()>,
    stop: &mut watch::Receiver<bool>,
    admit: &mut impl FnMut(Incoming, &mut JoinSet<()>),
) {
    loop {
        tokio::select! {
            biased;
            _ = stop.changed() => break,
            Some(_) = guests.join_next() => {}
            incoming = endpoint.accept() => match incoming {
                Some(incoming) => admit(incoming, guests),
                None => {
                    tracing::error!(%address, "no more {kind}: its socket has failed");
                    break;
                }
            },
        }
    }
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
    use quinn::ClientConfig;
    use quinn::crypto::rustls::QuicClientConfig;

    use super::*;
    use crate::authority::Snapshot;
    use crate::publish::Publisher;
    use crate::serve::answering::Answering;
    use crate::serve::certificates::Identity;
    use crate::wire::{self, Service};

    fn certificates() -> Certificates {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a key is made");
        let (certificates, key) = (own.cert.pem(), own.signing_key.serialize_pem());
        let identity =
            Identity { certificates: certificates.into_bytes().into(), key: key.into_bytes().into() };
        Certificates::new(&identity).expect("the two fit")
    }

    /// Its first packet is all that matters.
    fn client() -> Endpoint {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("ring has it")
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let tls = QuicClientConfig::try_from(tls).expect("TLS 1.3 has the suite of Initial packets");
        let mut endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).expect("loopback is there");
        endpoint.set_default_client_config(ClientConfig::new(Arc::new(tls)));
        endpoint
    }

    #[tokio::test]
    async fn a_panic_of_accepting_costs_one_connection_and_the_next_is_taken() {
        let config = server_config(Kind::Quic, &certificates(), &Limits::default());
        let server = Endpoint::server(config, ([127, 0, 0, 1], 0).into()).expect("loopback is there");
        let address = server.local_addr().expect("it is bound");
        let listener = Listener { kind: Kind::Quic, address };
        let (snapshots, services) =
            (Publisher::new(Arc::new(Snapshot::default())), Publisher::new(Arc::new(Service::default())));
        let (snapshot, service) = (snapshots.reader(), services.reader());
        let answering = Answering::new(snapshot.glance(), service.glance(), wire::respond);
        let common = accept::Shared::new(Limits::default(), answering);
        let (stop, mut stopped) = watch::channel(false);
        let mut seen = 0;
        let accepting = async {
            let admit = |incoming: Incoming, _: &mut JoinSet<()>| {
                seen += 1;
                if seen < 3 {
                    std::panic::resume_unwind(Box::new("on purpose"));
                }
                incoming.refuse();
                stop.send_replace(true);
            };
            let mut guests = JoinSet::new();
            accept_despite_panics(listener, &server, &common, &mut guests, &mut stopped, admit).await;
        };
        let client = client();
        let knocking = async {
            for _ in 0..3 {
                let connecting = client.connect(address, "localhost").expect("it is well configured");
                assert!(connecting.await.is_err(), "nobody is let in here");
            }
        };
        tokio::join!(accepting, knocking);
        let mut totals = Totals::default();
        common.add_to(&mut totals);
        assert_eq!((seen, totals.restarts), (3, 2));
    }

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
