//! Connections over TCP, from being accepted to being closed: who gets a seat,
//! for whom a proxy speaks, and the handshake of TLS.
//!
//! One task accepts and knows all connections; each has a task of its own. When
//! there are too many, `seats` says whose is closed.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinSet, yield_now};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::answering::{Answering, Peer};
use super::certificates::Certificates;
use super::counters::Totals;
use super::proxy::{self, Read, Source};
use super::seats::{Network, Seat, Seats};
use super::{Kind, Limits, drop_payload, https, stream};
use crate::wire::Transport;

/// After a stop, how long all farewells may take.
const LAST_MOMENT: Duration = Duration::from_millis(800);

/// The pause after an accept that failed for lack of something; doubles up to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Octets the kernel may keep each way of one connection (it doubles what it is
/// told). Left to itself it would keep megabytes for a client that doesn't read.
pub(super) const KERNEL_BUFFER: usize = 64 << 10;

/// What all connections share.
#[derive(Debug)]
pub(super) struct Shared {
    pub limits: Limits,
    pub answering: Answering,
    numbers: Numbers,
    began: Instant,
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
    proxy_errors: AtomicU64,
}

impl Shared {
    pub fn new(limits: Limits, answering: Answering) -> Shared {
        Shared { limits, answering, numbers: Numbers::default(), began: Instant::now() }
    }

    /// Nanoseconds since the start, by which connections are compared.
    pub fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64 // enough for 584 years
    }

    /// Notes a panic of what accepts, and waits a moment; then it is to start
    /// anew.
    pub async fn after_panic(&self, what: &str, payload: Box<dyn Any + Send>) {
        drop_payload(payload);
        self.numbers.restarts.fetch_add(1, Relaxed);
        tracing::error!("accepting {what} has panicked by a defect of this program; it starts anew");
        sleep(PAUSES.0).await;
    }

    pub fn add_to(&self, totals: &mut Totals) {
        let of = |number: &AtomicU64| number.load(Relaxed);
        self.answering.add_to(totals);
        totals.accepted += of(&self.numbers.accepted);
        totals.open += totals.accepted.saturating_sub(of(&self.numbers.closed));
        totals.evicted += of(&self.numbers.evicted);
        totals.accept_errors += of(&self.numbers.accept_errors);
        totals.restarts += of(&self.numbers.restarts);
        totals.handshakes_failed += of(&self.numbers.handshakes_failed);
        totals.proxy_errors += of(&self.numbers.proxy_errors);
    }
}

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
    doors: Doors,
    tasks: JoinSet<()>,
    seats: Seats<Id>,
    turn: u64,
    /// Connections by way of a proxy tell here whose they are.
    identified: mpsc::UnboundedReceiver<(Id, IpAddr)>,
}

/// What stands between a listener and its messages.
#[derive(Clone, Debug)]
pub(super) struct Doors {
    pub tls: Option<Arc<Tls>>,
    /// Who speaks for others.
    pub proxies: Arc<[IpNet]>,
    identify: mpsc::UnboundedSender<(Id, IpAddr)>,
}

/// How handshakes go, for each kind of listener that has them.
pub(super) struct Tls {
    dot: TlsAcceptor,
    https: TlsAcceptor,
    site: https::Site,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("site", &self.site).finish_non_exhaustive()
    }
}

impl Tls {
    pub fn new(certificates: &Certificates, site: https::Site) -> Tls {
        let dot = certificates.for_tcp(&["dot"]).into();
        let https = certificates.for_tcp(&["h2", "http/1.1"]).into();
        Tls { dot, https, site }
    }
}

impl Acceptor {
    /// Takes over bound sockets; must be called within the runtime. `tls` is
    /// there if one of them is of an encrypted kind.
    pub fn new(
        listeners: Vec<(Kind, StdListener)>,
        tls: Option<Tls>,
        proxies: Arc<[IpNet]>,
        shared: Arc<Shared>,
    ) -> io::Result<Acceptor> {
        let listeners = listeners.into_iter().map(|(kind, one)| Ok((kind, TcpListener::from_std(one)?)));
        let listeners = listeners.collect::<io::Result<_>>()?;
        let (identify, identified) = mpsc::unbounded_channel(); // one a connection at most
        let doors = Doors { tls: tls.map(Arc::new), proxies, identify };
        let seats = Seats::new(shared.limits.tcp_connections, shared.limits.tcp_connections_per_client);
        Ok(Acceptor { shared, listeners, doors, tasks: JoinSet::new(), seats, turn: 0, identified })
    }

    /// Accepts until `stop` changes or its sender is gone, then lets the connections finish.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let shared = Arc::clone(&self.shared);
        while let Err(payload) = caught(self.accept_until(&mut stop)).await {
            shared.after_panic("connections", payload).await;
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
                    self.seats.leave(ended.map_or_else(|error| error.id(), |(id, ())| id));
                }
                Some((id, client)) = self.identified.recv() => {
                    let evicted = self.seats.identify(id, client.into(), self.shared.now());
                    self.count_evicted(usize::from(evicted));
                }
                () = pause.as_mut(), if pausing.is_some_and(|(waiting, _)| waiting) => {
                    pausing = pausing.map(|(_, length)| (false, length));
                }
                accepted = accept(&self.listeners, self.turn), if !pausing.is_some_and(|(waiting, _)| waiting) => {
                    match accepted {
                        Ok((kind, stream, address)) => {
                            pausing = None;
                            self.seat(kind, stream, address.ip().to_canonical());
                            // it has its first turn before the next one comes: who has asked
                            // already is answered, and who has gone already leaves
                            yield_now().await;
                        }
                        Err(error) if concerns_one_connection(&error) => {}
                        // Descriptors or memory are short. Spinning would not help; a connection
                        // less might.
                        Err(_) => {
                            self.shared.numbers.accept_errors.fetch_add(1, Relaxed);
                            let evicted = self.seats.evict(self.shared.now(), None);
                            self.count_evicted(usize::from(evicted));
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
        let by_proxy = self.doors.proxies.iter().any(|network| network.contains(&address));
        let network = (!by_proxy).then(|| Network::from(address));
        let now = self.shared.now();
        let Some(evicted) = self.seats.make_room(network, now) else { return };
        self.count_evicted(evicted);
        let seat = Arc::new(Seat::new(now));
        let guest =
            Guest { kind, address, by_proxy, shared: Arc::clone(&self.shared), seat: Arc::clone(&seat) };
        let doors = self.doors.clone();
        let task = self.tasks.spawn(async move {
            let _open = open;
            attend(stream, guest, doors).await;
        });
        self.seats.sit(task.id(), seat, network);
    }

    fn count_evicted(&self, count: usize) {
        self.shared.numbers.evicted.fetch_add(count as u64, Relaxed);
    }

    /// Lets every connection answer what it has received, those not yet accepted among them.
    async fn finish(mut self) {
        while let Ok(Ok((kind, stream, address))) =
            timeout(Duration::ZERO, accept(&self.listeners, self.turn)).await
        {
            self.seat(kind, stream, address.ip().to_canonical());
        }
        self.listeners.clear();
        self.seats.last_orders();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        let _ = timeout(LAST_MOMENT, all).await; // what is left over is aborted with the set
    }
}

/// Polls a future to its end; a panic is its error.
pub(super) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Box<dyn Any + Send>> {
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

/// A connection from the acceptor's point of view.
struct Guest {
    kind: Kind,
    address: IpAddr,
    by_proxy: bool,
    shared: Arc<Shared>,
    seat: Arc<Seat>,
}

/// Serves a connection by what is spoken where it came in.
async fn attend(mut stream: TcpStream, guest: Guest, doors: Doors) {
    let Guest { kind, mut address, by_proxy, shared, seat } = guest;
    if by_proxy {
        tokio::select! {
            biased;
            () = seat.last_orders.notified() => return,
            client = timeout(shared.limits.tcp_message, client_of(&mut stream)) => match client {
                Ok(Ok(client)) => address = client.unwrap_or(address),
                Ok(Err(error)) => return wrong_header(&shared, address, error),
                Err(_) => return wrong_header(&shared, address, "it doesn't come".into()),
            }
        }
        // whose seat this is now; no answer is waited for
        let _ = doors.identify.send((tokio::task::id(), address));
    }
    let peer = |transport| Peer { transport, address };
    match (kind, &doors.tls) {
        (Kind::Tls, Some(tls)) => {
            let Some(stream) = shake_hands(stream, &tls.dot, &shared, &seat).await else { return };
            stream::serve(stream, peer(Transport::Tls), &shared, &seat).await;
        }
        (Kind::Https, Some(tls)) => {
            // where a proxy was asked is not known
            let asked = if by_proxy { None } else { stream.local_addr().ok() };
            let Some(stream) = shake_hands(stream, &tls.https, &shared, &seat).await else { return };
            https::serve(stream, peer(Transport::Https), tls.site.seen_at(asked), shared, seat).await;
        }
        // QUIC has sockets of its own; without a certificate only plain DNS is bound
        (Kind::Dns | Kind::Tls | Kind::Https | Kind::Quic | Kind::Http3, _) => {
            stream::serve(stream, peer(Transport::Tcp), &shared, &seat).await;
        }
    }
}

/// None when that came to nothing in its time, or somebody else needs the seat.
async fn shake_hands(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    shared: &Shared,
    seat: &Seat,
) -> Option<TlsStream<TcpStream>> {
    let shaken = tokio::select! {
        biased;
        () = seat.last_orders.notified() => return None,
        shaken = timeout(shared.limits.tls_handshake, acceptor.accept(stream)) => shaken,
    };
    match shaken {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(_)) | Err(_) => {
            shared.numbers.handshakes_failed.fetch_add(1, Relaxed);
            None
        }
    }
}

/// Reads a proxy's header and nothing behind it; None when it speaks for itself.
async fn client_of(stream: &mut TcpStream) -> Result<Option<IpAddr>, String> {
    let mut octets = Vec::new();
    loop {
        match proxy::read(&octets) {
            Ok(Read::Incomplete { wanted }) => {
                let begun = octets.len();
                octets.resize(wanted, 0);
                let more = stream.read_exact(&mut octets[begun..]).await;
                more.map_err(|error| error.to_string())?;
            }
            Ok(Read::Header { source: Source::Client(client), .. }) => {
                return Ok(Some(client.ip().to_canonical()));
            }
            Ok(Read::Header { source: Source::Proxy, .. }) => return Ok(None),
            Err(wrong) => return Err(wrong.to_string()),
        }
    }
}

/// The first is logged, the others are counted: it is a setting that is wrong,
/// or somebody who tries.
fn wrong_header(shared: &Shared, proxy: IpAddr, why: String) {
    if shared.numbers.proxy_errors.fetch_add(1, Relaxed) == 0 {
        tracing::warn!(
            %proxy,
            "a connection of a network in `proxy_protocol` has no header to be read: {why}; \
             it is closed, and so will others be in silence"
        );
    }
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
