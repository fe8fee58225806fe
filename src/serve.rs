//! Moves octets between sockets and `wire::respond`, over UDP, TCP, TLS and QUIC.
//!
//! [`claim`] makes sure early that each address can be had, and says who is in
//! the way if not; [`Claim::bind`] opens the sockets once there is something to
//! answer; [`Server::stop`] answers what has arrived and closes them.
//!
//! ```text
//! UDP    one thread for each address and worker     udp     batch in, batch out
//! TCP    one task accepts, one for each connection  accept
//!        messages as they are, or within TLS        stream  what is there, one write
//!        within HTTPS                               https   a request each, by the rules of doh
//! QUIC   one task for each address and connection   quic    a stream for each message
//! ```
//!
//! Knows nothing of DNS beyond the header's length, id and RCODE.

mod accept;
mod answering;
mod certificates;
mod chance;
mod counters;
mod doh;
mod holder;
mod https;
mod listener;
mod lock;
mod passed;
pub mod proxy;
mod pulse;
mod quic;
mod rate;
mod seats;
mod stream;
mod udp;

use std::any::Any;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use ipnet::IpNet;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::answering::Answering;
pub use self::certificates::{Certificates, Identity};
pub use self::counters::{Totals, Transports};
pub use self::holder::{Process, Protocol};
use self::listener::Bound;
pub use self::listener::{Kind, Listener};
use self::lock::{Lock, Refusal};
use self::passed::Sort;
pub use self::passed::{Passed, passed};
pub use self::pulse::Pulse;
use self::rate::{Limiter, Teller};
use self::udp::Whose;
use crate::authority::Snapshot;
use crate::clock::Clock;
use crate::model::RateLimit;
use crate::os::Privileged;
use crate::publish::{Glance, Reader};
use crate::wire::{self, Client, Replied, Service, Transport};

/// The shape of `wire::respond`.
pub type Respond = fn(&Snapshot, &Service, &[u8], Client, &mut [u8]) -> Replied;

/// What clients may take of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Threads for each address.
    pub udp_workers: usize,
    /// Octets of datagrams the kernel may keep for each of them.
    pub udp_buffer: usize,
    /// Connections over all addresses; one more, and one that matters less is
    /// closed.
    pub tcp_connections: usize,
    /// Of these, for each /24 of IPv4 and /56 of IPv6.
    pub tcp_connections_per_client: usize,
    /// How long a connection may say nothing (RFC 7766, section 6.2.3).
    pub tcp_idle: Duration,
    /// How long the octets of one message may take.
    pub tcp_message: Duration,
    /// How long a client may leave replies unread.
    pub tcp_write: Duration,
    /// How many replies a network gets over UDP; none: as many as it asks for.
    pub rate: Option<RateLimit>,
    /// How long a handshake of TLS may take, over QUIC too.
    pub tls_handshake: Duration,
    /// Connections over QUIC, which need no open files; each network's part of
    /// them, and all else, is as over TCP.
    pub quic_connections: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            udp_workers: available_parallelism().map_or(1, usize::from),
            udp_buffer: 4 << 20,
            tcp_connections: 1000,
            tcp_connections_per_client: 100,
            tcp_idle: Duration::from_secs(10),
            tcp_message: Duration::from_secs(5),
            tcp_write: Duration::from_secs(5),
            rate: None,
            tls_handshake: Duration::from_secs(5),
            quic_connections: 1000,
        }
    }
}

/// How to answer, beside where.
#[derive(Clone, Debug)]
pub struct Setup {
    pub limits: Limits,
    /// What encrypted transports show; none: there are no such listeners.
    pub certificates: Option<Arc<Certificates>>,
    /// The path of queries over HTTPS.
    pub https_path: Arc<str>,
    /// Networks whose datagrams and connections begin with a header of the PROXY protocol.
    pub proxies: Arc<[IpNet]>,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            limits: Limits::default(),
            certificates: None,
            https_path: "/dns-query".into(),
            proxies: [].into(),
        }
    }
}

impl From<Limits> for Setup {
    fn from(limits: Limits) -> Setup {
        Setup { limits, ..Setup::default() }
    }
}

/// Addresses that are ours: locked and found free, not yet bound.
#[derive(Debug)]
pub struct Claim {
    listeners: Vec<Listener>,
    /// Of each; none for port 0, which is locked when it has become a real one.
    locks: Vec<Vec<Lock>>,
    passed: Vec<Passed>,
    /// Who may still open low ports, when this process may not.
    privileged: Option<Privileged>,
}

/// Sockets that answer.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<Listener>,
    workers: Vec<udp::Worker>,
    /// Yields None when every worker has ended.
    workers_ended: mpsc::Receiver<()>,
    stream: Arc<accept::Shared>,
    stop: watch::Sender<bool>,
    acceptor: JoinHandle<()>,
    /// None where no address is for QUIC.
    quic: Option<quic::Quic>,
    _locks: Vec<Lock>,
}

/// Why an address cannot be listened on.
#[derive(Debug)]
pub enum ListenError {
    /// Two addresses of one list would get the same queries.
    Overlap { one: Listener, other: Listener },
    /// Another Hale serves this address, or one that overlaps it.
    HeldByHale { address: SocketAddr, by: Option<Process> },
    /// Some other program's socket is there.
    Held { address: SocketAddr, protocol: Protocol, by: Option<Process> },
    /// The operating system does not let us.
    Forbidden { address: SocketAddr },
    /// No interface of this machine has the address.
    NotHere { address: SocketAddr },
    /// An encrypted transport without a certificate to show.
    NoCertificate { listener: Listener },
    /// A socket of the service manager's that can't be used.
    Passed { name: String, why: String },
    /// Something else, while doing what is said.
    Failed { address: SocketAddr, doing: &'static str, error: io::Error },
}

// ---- claiming -----------------------------------------------------------------------------------

/// Locks and checks addresses; binds nothing for good.
pub fn claim<L: Into<Listener> + Copy>(listeners: &[L]) -> Result<Claim, ListenError> {
    let listeners: Vec<Listener> = listeners.iter().map(|&listener| listener.into()).collect();
    for (i, &one) in listeners.iter().enumerate() {
        if let Some(&other) = listeners[..i].iter().find(|&&other| listener::overlap(one, other)) {
            return Err(ListenError::Overlap { one: other, other: one });
        }
    }
    let mut locks: Vec<Vec<Lock>> = Vec::new();
    for &listener in &listeners {
        let fixed = listener.address.port() != 0;
        locks.push(if fixed { listener::take_locks(listener)? } else { Vec::new() });
    }
    for &listener in &listeners {
        look_for_other_hales(listener, &locks.iter().flatten().collect::<Vec<_>>())?;
        listener::try_out(listener)?;
    }
    Ok(Claim { listeners, locks, passed: Vec::new(), privileged: None })
}

fn take_lock(address: SocketAddr, protocol: Protocol) -> Result<Lock, ListenError> {
    Lock::take(address, protocol).map_err(|refusal| match refusal {
        Refusal::Held { by } => ListenError::HeldByHale { address, by },
        Refusal::Failed(error) => ListenError::Failed { address, doing: "lock", error },
    })
}

fn look_for_other_hales(listener: Listener, ours: &[&Lock]) -> Result<(), ListenError> {
    let address = listener.address;
    let protocols = listener.kind.protocols();
    match protocols.iter().find_map(|&protocol| lock::overlapping(address, protocol, ours)) {
        Some(by) => Err(ListenError::HeldByHale { address, by }),
        None => Ok(()),
    }
}

/// What a failed `bind` means for the operator.
fn explain(address: SocketAddr, protocol: Protocol, error: io::Error) -> ListenError {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            ListenError::Held { address, protocol, by: holder::holder(address, protocol) }
        }
        io::ErrorKind::PermissionDenied => ListenError::Forbidden { address },
        io::ErrorKind::AddrNotAvailable => ListenError::NotHere { address },
        _ => ListenError::Failed { address, doing: "listen on", error },
    }
}

// ---- serving ------------------------------------------------------------------------------------

impl Claim {
    /// The addresses as they were asked for, port 0 among them.
    pub fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    /// Takes in sockets that are open already.
    pub fn with(mut self, passed: Vec<Passed>) -> Claim {
        self.passed.extend(passed);
        self
    }

    /// Lets the sockets be opened with rights that the process has given up.
    pub fn opened_by(self, privileged: Privileged) -> Claim {
        Claim { privileged: Some(privileged), ..self }
    }

    /// Opens the sockets and answers on them.
    pub fn bind(
        self,
        setup: impl Into<Setup>,
        reader: Reader<Snapshot>,
        services: Reader<Service>,
        runtime: &Handle,
    ) -> Result<Server, ListenError> {
        self.bind_with(setup, reader, services, runtime, wire::respond)
    }

    /// The same, with another function that makes the replies.
    pub fn bind_with(
        self,
        setup: impl Into<Setup>,
        reader: Reader<Snapshot>,
        services: Reader<Service>,
        runtime: &Handle,
        respond: Respond,
    ) -> Result<Server, ListenError> {
        let Setup { limits, certificates, https_path, proxies } = setup.into();
        let workers_wanted = limits.udp_workers.max(1);
        let mut listeners = Vec::new();
        let (mut locks, mut doors, mut sockets, mut quic) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for asked in &self.listeners {
            if asked.kind.is_encrypted() && certificates.is_none() {
                return Err(ListenError::NoCertificate { listener: *asked });
            }
        }
        let first = self.listeners.first().map_or_else(|| ([0; 4], 0).into(), |listener| listener.address);
        let (asked, asked_locks, buffer) = (self.listeners, self.locks, limits.udp_buffer);
        let open = move || -> Result<Vec<Opened>, ListenError> {
            let both = asked.into_iter().zip(asked_locks);
            both.map(|(asked, lock)| Opened::new(asked, lock, buffer, workers_wanted)).collect()
        };
        let opened = match self.privileged {
            None => open()?,
            Some(privileged) => privileged.run(open).map_err(|error| ListenError::Failed {
                address: first,
                doing: "give up root after binding",
                error,
            })??,
        };
        for Opened { listener, locks: its, datagrams, tcp } in opened {
            let Listener { kind, address } = listener;
            if let Some(granted) = datagrams.first().and_then(|first| udp::capped_buffer(first, buffer)) {
                tracing::warn!(%address, wanted = buffer, granted, "receive buffer capped; raise net.core.rmem_max");
            }
            match kind {
                Kind::Quic | Kind::Http3 => quic.extend(datagrams.into_iter().map(|socket| (kind, socket))),
                Kind::Dns | Kind::Tls | Kind::Https => {
                    sockets.extend(datagrams.into_iter().map(|socket| (socket, Whose::Ours)));
                }
            }
            doors.extend(tcp.map(|tcp| (kind, tcp)));
            listeners.push(listener);
            locks.extend(its);
        }
        for Passed { kind, address, socket } in self.passed {
            let listener = Listener { kind, address };
            let failed =
                |error| ListenError::Failed { address, doing: "answer at the passed socket of", error };
            match (socket, kind) {
                _ if kind.is_encrypted() && certificates.is_none() => {
                    return Err(ListenError::NoCertificate { listener });
                }
                (Sort::Connections(socket), _) => doors.push((kind, socket)),
                (Sort::Datagrams(socket), Kind::Quic | Kind::Http3) => {
                    socket.set_nonblocking(true).map_err(failed)?;
                    quic.push((kind, socket));
                }
                (Sort::Datagrams(socket), Kind::Dns | Kind::Tls | Kind::Https) => {
                    passed::adopt(&socket, limits.udp_buffer).map_err(failed)?;
                    for _ in 1..workers_wanted {
                        sockets.push((socket.try_clone().map_err(failed)?, Whose::Shared));
                    }
                    sockets.push((socket, Whose::Passed));
                }
            }
            if !listeners.contains(&listener) {
                listeners.push(listener); // datagrams and connections are two sockets of one address
            }
        }
        let clock = Clock::start();
        let limiter = limits.rate.as_ref().map(|rate| Arc::new(Limiter::new(rate)));
        let first = listeners.first().map_or_else(|| ([0; 4], 0).into(), |listener| listener.address);
        let failed = |doing| move |error| ListenError::Failed { address: first, doing, error };

        let answering = Answering::new(reader.glance(), services.glance(), respond);
        let stream = Arc::new(accept::Shared::new(limits, answering));
        let (stop, stopped) = watch::channel(false);
        let quic = match &certificates {
            Some(certificates) if !quic.is_empty() => {
                let shared = quic::Shared::new(Arc::clone(&stream), Arc::clone(&https_path));
                let started = quic::Quic::start(quic, certificates, shared, stopped.clone(), runtime);
                Some(started.map_err(failed("serve QUIC on"))?)
            }
            Some(_) | None => None,
        };
        let http3 = listeners.iter().filter(|listener| listener.kind == Kind::Http3);
        let site = https::Site { path: https_path, http3: http3.map(|listener| listener.address).collect() };
        let tls = certificates.as_deref().map(|certificates| accept::Tls::new(certificates, site));
        let acceptor = {
            let _inside = runtime.enter();
            let acceptor = accept::Acceptor::new(doors, tls, Arc::clone(&proxies), Arc::clone(&stream));
            runtime.spawn(acceptor.map_err(failed("accept connections on"))?.run(stopped))
        };
        if let Some(limiter) = &limiter {
            let telling = tell_limited(Arc::clone(limiter), reader.glance(), clock, stop.subscribe());
            runtime.spawn(telling);
        }
        let task = udp::Task { reader, services, respond, limiter, proxies, clock };
        let (ended, workers_ended) = mpsc::channel(1);
        let workers = Vec::new();
        let mut server =
            Server { listeners, workers, workers_ended, stream, stop, acceptor, quic, _locks: locks };
        for (number, socket) in sockets.into_iter().enumerate() {
            let worker = udp::Worker::start(number, socket, task.clone(), ended.clone());
            server.workers.push(worker.map_err(failed("start a thread for"))?);
        }
        Ok(server)
    }
}

/// One listener's sockets, for all its workers.
struct Opened {
    listener: Listener,
    locks: Vec<Lock>,
    datagrams: Vec<UdpSocket>,
    tcp: Option<TcpListener>,
}

impl Opened {
    fn new(asked: Listener, locks: Vec<Lock>, buffer: usize, workers: usize) -> Result<Opened, ListenError> {
        let Bound { listener, locks, udp: first, tcp } = listener::bind(asked, locks, buffer)?;
        let mut datagrams: Vec<UdpSocket> = first.into_iter().collect();
        if listener.kind == Kind::Dns {
            for _ in 1..workers {
                let another = udp::open(listener.address, false, buffer);
                datagrams.push(another.map_err(|error| explain(listener.address, Protocol::Udp, error))?);
            }
        }
        Ok(Opened { listener, locks, datagrams, tcp })
    }
}

impl Server {
    /// Where it answers, in the order asked for, port 0 replaced by the real one.
    pub fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    /// The addresses of these.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(|listener| listener.address).collect()
    }

    /// Everything counted so far.
    pub fn counters(&self) -> Totals {
        let mut totals = Totals::default();
        for worker in &self.workers {
            worker.counters().add_to(&mut totals, Transport::Udp);
            totals.overflows += worker.overflows();
        }
        self.stream.add_to(&mut totals);
        if let Some(quic) = &self.quic {
            quic.add_to(&mut totals);
        }
        totals
    }

    /// Tells whether everything that answers is alive.
    pub fn pulse(&self) -> Pulse {
        let turns = self.workers.iter().map(|worker| Box::new(worker.turns()) as pulse::Turns).collect();
        let mut accepting = vec![("connection".to_owned(), self.acceptor.abort_handle())];
        for (listener, task) in self.quic.iter().flat_map(quic::Quic::accepting) {
            let Listener { kind, address } = listener;
            accepting.push((format!("connection for {kind} at {address}"), task.clone()));
        }
        Pulse::new(turns, accepting)
    }

    /// Takes nothing new, answers what has arrived, and closes, all within a second; then gives
    /// the last count.
    pub async fn stop(mut self) -> Totals {
        self.stop_all();
        let workers = timeout(Duration::from_secs(1), self.workers_ended.recv());
        let acceptor = timeout(Duration::from_secs(1), &mut self.acceptor);
        let quic = timeout(Duration::from_secs(1), async {
            if let Some(quic) = &mut self.quic {
                quic.ended().await;
            }
        });
        let _ = tokio::join!(workers, acceptor, quic);
        self.counters()
    }

    fn stop_all(&self) {
        self.stop.send_replace(true);
        for worker in &self.workers {
            worker.stop();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_all();
    }
}

/// Looks once a second who begins and ends to be limited, and tells. A name is
/// looked for among those of now: at worst a reload in that second makes it
/// another one's, or none.
async fn tell_limited(
    limiter: Arc<Limiter>,
    snapshots: Glance<Snapshot>,
    clock: Clock,
    mut stop: watch::Receiver<bool>,
) {
    let mut teller = Teller::new();
    let suffix = if limiter.log_only { "; log_only: sent all the same" } else { "" };
    while timeout(Duration::from_secs(1), stop.changed()).await.is_err() {
        for line in teller.look(&limiter, clock.milliseconds()) {
            if !line.begins {
                tracing::info!("{line}");
                continue;
            }
            let names = Arc::clone(&snapshots.newest().names);
            let asked = line.asked(|number| names.numbered(number));
            let asked = asked.map(|name| format!(", first for {name}")).unwrap_or_default();
            tracing::warn!("{line}{asked}{suffix}");
        }
    }
}

/// Drops what a panic has left, which may panic in turn.
fn drop_payload(payload: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(another);
    }
}

/// SERVFAIL without a question, for a query that could not be answered; 0 when not even that may
/// be sent.
fn server_failure(query: &[u8], out: &mut [u8]) -> usize {
    let [id_high, id_low, flags, _, _, _, _, _, _, _, _, _, ..] = *query else { return 0 };
    if flags & 0x80 != 0 {
        return 0; // a reply to a reply could go on for ever
    }
    let opcode_and_rd = flags & 0x79;
    out[..12].copy_from_slice(&[id_high, id_low, 0x80 | opcode_and_rd, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
    12
}

// ---- words --------------------------------------------------------------------------------------

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenError::Overlap { one, other } if one == other => {
                write!(f, "{} is listed twice as an address to listen on", one.address)
            }
            ListenError::Overlap { one, other } if one.kind == other.kind => {
                let (one, other) = (one.address, other.address);
                write!(f, "{one} and {other} overlap: list either the wildcard or single addresses")
            }
            ListenError::Overlap { one, other } => write!(
                f,
                "{} ({}) and {} ({}) would get the same packets: give one of them another port",
                one.address, one.kind, other.address, other.kind
            ),
            ListenError::NoCertificate { listener: Listener { kind, address } } => {
                write!(f, "{kind} at {address} needs a certificate: set `certificate` and `private_key`")
            }
            ListenError::HeldByHale { address, by: Some(by) } if by.command.is_empty() => {
                write!(f, "{address} is held by another hale, pid {}", by.pid)
            }
            ListenError::HeldByHale { address, by: Some(by) } => {
                write!(f, "{address} is held by another hale, pid {} ({})", by.pid, by.command)
            }
            ListenError::HeldByHale { address, by: None } => {
                write!(f, "{address} is held by another hale, whose process is not visible from here")
            }
            ListenError::Held { address, protocol, by: Some(by) } => {
                write!(f, "{address} ({protocol}) is held by {}, pid {}", by.name, by.pid)
            }
            ListenError::Held { address, protocol, by: None } => {
                let (options, port) = match protocol {
                    Protocol::Udp => ("-lunp", address.port()),
                    Protocol::Tcp => ("-ltnp", address.port()),
                };
                write!(
                    f,
                    "{address} ({protocol}) is in use by a process that is not visible from here; \
                     as root, `ss {options} 'sport = :{port}'` shows it"
                )
            }
            ListenError::Forbidden { address } => {
                let program = std::env::current_exe().unwrap_or_else(|_| "hale".into());
                write!(
                    f,
                    "no permission to listen on {address}: run as root, or allow low ports with \
                     `setcap cap_net_bind_service=+ep {}`",
                    program.display()
                )
            }
            ListenError::NotHere { address } => {
                write!(f, "{address}: this machine has no address {}", address.ip())
            }
            ListenError::Passed { name, why } if name.is_empty() => {
                write!(f, "the sockets that the service manager has passed can't be used: {why}")
            }
            ListenError::Passed { name, why } => {
                write!(f, "the socket `{name}` that the service manager has passed can't be used: {why}")
            }
            ListenError::Failed { address, doing, error } => {
                write!(f, "could not {doing} {address}: {error}")
            }
        }
    }
}

impl std::error::Error for ListenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ListenError::Failed { error, .. } => Some(error),
            _ => None,
        }
    }
}
