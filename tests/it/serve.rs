//! Sockets and threads: what clients see of `serve`, whatever the replies say.
//!
//! Clients here are plain blocking sockets; a reply is known by its id and QR.

mod agree;
mod claiming;
mod datagrams;
mod encrypted;
mod https;
mod limits;
mod other;
mod proxied;
mod renewal;
mod stopping;
mod streams;

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::panic::resume_unwind;
use std::pin::pin;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use haledns::authority::Snapshot;
use haledns::publish::Publisher;
use haledns::serve::{
    Claim, Kind, Limits, ListenError, Listener, Protocol, Respond, Server, Setup, Totals, claim,
};
use haledns::wire::{self, Class, Client, Replied, Service};
use socket2::{Domain, Socket, Type};
use tokio::runtime::{Builder, Runtime};

use self::other::{Other, say};

/// No condition may take longer; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

const LOOPBACK: [SocketAddr; 1] = [SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)];

/// A running server with all it needs; stops when dropped.
struct World {
    server: Option<Server>,
    runtime: Runtime,
    _publishers: (Publisher<Snapshot>, Publisher<Service>),
}

impl World {
    fn new<L: Into<Listener> + Copy>(addresses: &[L], setup: impl Into<Setup>, respond: Respond) -> World {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let publisher = Publisher::new(Arc::new(Snapshot::default()));
        let services = Publisher::new(Arc::new(Service::default()));
        let (snapshot, service) = (publisher.reader(), services.reader());
        let claim = claim(addresses).unwrap();
        let server = claim.bind_with(setup, snapshot, service, runtime.handle(), respond).unwrap();
        World { server: Some(server), runtime, _publishers: (publisher, services) }
    }

    fn with(limits: Limits) -> World {
        World::new(&LOOPBACK, limits, wire::respond)
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    fn address(&self) -> SocketAddr {
        self.server().addresses()[0]
    }

    fn counters(&self) -> Totals {
        self.server().counters()
    }

    fn tcp(&self) -> TcpStream {
        tcp(self.address())
    }

    /// Stops the server; `meanwhile` runs when the stop has been said and nothing has been waited for.
    fn stop(&mut self, meanwhile: impl FnOnce()) -> Totals {
        let server = self.server.take().unwrap();
        self.runtime.block_on(async {
            let mut stop = pin!(server.stop());
            let first = poll_fn(|context| Poll::Ready(stop.as_mut().poll(context))).await;
            meanwhile();
            match first {
                Poll::Ready(totals) => totals,
                Poll::Pending => stop.await,
            }
        })
    }
}

fn few() -> Limits {
    Limits { udp_workers: 1, ..Limits::default() }
}

fn udp(to: SocketAddr) -> UdpSocket {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(to).unwrap(); // replies from another address are not delivered
    socket
}

fn tcp(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// `www.example.com A`.
fn query(id: u16) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    let mut query = vec![high, low, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    query.extend_from_slice(b"\x03www\x07example\x03com\x00\x00\x01\x00\x01");
    query
}

fn framed(id: u16) -> Vec<u8> {
    let query = query(id);
    [&(query.len() as u16).to_be_bytes()[..], &query].concat()
}

/// Answers as the program does, after something else has been done with the
/// query and its client.
macro_rules! after {
    ($first:expr) => {
        (|snapshot: &Snapshot, service: &Service, query: &[u8], client: Client, out: &mut [u8]| {
            let first: fn(&[u8], Client) = $first;
            first(query, client);
            wire::respond(snapshot, service, query, client, out)
        }) as Respond
    };
}
use after;

fn replied(length: usize) -> Replied {
    Replied { length, class: Class::Answer, subject: 0, vouched: true }
}

/// Gives the query back as a reply of 60,000 octets.
fn at_length(_: &Snapshot, _: &Service, query: &[u8], _: Client, out: &mut [u8]) -> Replied {
    out[..query.len()].copy_from_slice(query);
    replied(60_000)
}

/// The longest reply there is.
fn longest(_: &Snapshot, _: &Service, query: &[u8], _: Client, out: &mut [u8]) -> Replied {
    out[..query.len()].copy_from_slice(query);
    out[2] |= 0x80;
    replied(65535)
}

/// The id of a reply.
fn id(reply: &[u8]) -> u16 {
    assert!(reply.len() >= 12 && reply[2] & 0x80 != 0, "not a reply: {reply:?}");
    u16::from_be_bytes([reply[0], reply[1]])
}

fn ask(socket: &UdpSocket, number: u16) {
    socket.send(&query(number)).unwrap();
    assert_eq!(id(&hear(socket)), number);
}

fn hear(socket: &UdpSocket) -> Vec<u8> {
    let mut reply = vec![0; 65535];
    let length = socket.recv(&mut reply).expect("a reply");
    reply.truncate(length);
    reply
}

/// The next framed reply; None when the connection has ended.
fn read(stream: &mut impl Read) -> Option<Vec<u8>> {
    let mut prefix = [0; 2];
    match stream.read_exact(&mut prefix) {
        Ok(()) => {}
        Err(error) if [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset].contains(&error.kind()) => {
            return None;
        }
        Err(error) => panic!("neither a reply nor the end: {error}"),
    }
    let mut reply = vec![0; u16::from_be_bytes(prefix).into()];
    stream.read_exact(&mut reply).unwrap();
    Some(reply)
}

fn ids(stream: &mut impl Read, count: usize) -> Vec<u16> {
    (0..count).map(|_| id(&read(stream).expect("a reply"))).collect()
}

fn ask_over(stream: &mut (impl Read + Write), number: u16) {
    stream.write_all(&framed(number)).unwrap();
    assert_eq!(ids(stream, 1), [number]);
}

/// Waits until `condition` holds.
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    until_some(what, || condition().then_some(()));
}

/// Waits until `find` finds something.
fn until_some<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until an address can be claimed. What was closed stays open for a moment when another
/// test has just forked.
fn claim_when_free(address: SocketAddr) -> Claim {
    until_some("the address is free", || claim(&[address]).ok())
}

/// Holds an answering function back until a test lets it go.
#[derive(Default)]
struct Gate {
    state: Mutex<(bool, bool)>, // reached, open
    changed: Condvar,
}

impl Gate {
    const fn new() -> Gate {
        Gate { state: Mutex::new((false, false)), changed: Condvar::new() }
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 = true;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |(_, open)| !*open).unwrap());
    }

    fn wait_until_reached(&self) {
        let state = self.state.lock().unwrap();
        let (_state, late) =
            self.changed.wait_timeout_while(state, PATIENCE, |(reached, _)| !*reached).unwrap();
        assert!(!late.timed_out(), "no query arrived");
    }

    fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

// ---- addresses ----------------------------------------------------------------------------------

#[test]
fn port_0_is_one_port_for_udp_tcp_and_all_workers() {
    let addresses = [LOOPBACK[0], SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 0)];
    let world = World::new(&addresses, Limits { udp_workers: 3, ..Limits::default() }, wire::respond);
    let bound = world.server().addresses();
    assert_eq!(bound.len(), 2);
    for (asked, bound) in addresses.iter().zip(bound) {
        assert_eq!(asked.ip(), bound.ip());
        assert_ne!(bound.port(), 0);
        for number in 0..20 {
            ask(&udp(bound), number);
        }
        ask_over(&mut tcp(bound), 99);
    }
    let counters = world.counters();
    assert_eq!((counters.queries, counters.replies(), counters.dropped()), (42, 42, 0));
    assert_eq!((counters.accepted, counters.overflows, counters.refused), (2, 0, 0));
}

#[test]
fn a25_a_reply_leaves_from_the_address_that_was_asked() {
    let world = World::new(&[SocketAddr::from(([0; 4], 0))], few(), wire::respond);
    let port = world.address().port();
    for last in [1, 2, 3, 77] {
        let asked = SocketAddr::new([127, 0, 0, last].into(), port);
        for from in ["127.0.0.1:0", "127.0.0.9:0", "0.0.0.0:0"] {
            let client = UdpSocket::bind(from).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.send_to(&query(7), asked).unwrap();
            let mut reply = [0; 512];
            let (length, source) = client.recv_from(&mut reply).expect("a reply");
            assert_eq!((id(&reply[..length]), source), (7, asked), "asked from {from}");
        }
    }
}

#[test]
fn both_wildcards_can_be_listed_and_ipv6_replies_leave_from_the_address_asked() {
    // Aliases are added in a network of its own.
    let script = "ip link set lo up && ip -6 addr add fd00::1/128 dev lo nodad \
                  && ip -6 addr add fd00::2/128 dev lo nodad && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-rn", "sh", "-c", script]).arg(std::env::current_exe().unwrap());
    let Some(mut other) = Other::start(command, "both-wildcards", "") else {
        eprintln!("skipped: no network namespace to be had here");
        return;
    };
    assert_eq!(other.hear(), "all answered");
}

fn plays_both_wildcards() {
    let wildcards: [SocketAddr; 2] = ["0.0.0.0:53".parse().unwrap(), "[::]:53".parse().unwrap()];
    let world = World::new(&wildcards, few(), wire::respond);
    for asked in ["127.0.0.1", "127.0.0.2", "::1", "fd00::1", "fd00::2"] {
        let asked = SocketAddr::new(asked.parse().unwrap(), 53);
        until("the new address works", || loops_back(asked.ip()));
        ask(&udp(asked), 5);
        ask_over(&mut tcp(asked), 6);
    }
    assert_eq!(world.counters().replies(), 10);
    say("all answered");
}

/// Whether a datagram sent from an address to itself arrives. For a while after an IPv6 address was
/// added there is no route to it.
fn loops_back(address: IpAddr) -> bool {
    let Ok(socket) = UdpSocket::bind((address, 0)) else { return false };
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    socket.send_to(&[1], socket.local_addr().unwrap()).is_ok() && socket.recv(&mut [0]).is_ok()
}

#[test]
fn a_datagram_from_port_0_is_ignored() {
    let Ok(raw) = Socket::new(Domain::IPV4, Type::RAW, Some(socket2::Protocol::UDP)) else {
        eprintln!("skipped: raw sockets are not allowed here");
        return;
    };
    let world = World::with(few());
    let query = query(1);
    let length = (8 + query.len() as u16).to_be_bytes();
    let header = [[0, 0], world.address().port().to_be_bytes(), length, [0, 0]];
    raw.send_to(&[&header.concat()[..], &query].concat(), &world.address().into()).unwrap();
    until("the datagram arrives", || world.counters().queries == 1);
    ask(&udp(world.address()), 2);
    assert_eq!((world.counters().replies(), world.counters().dropped()), (1, 1));
}

// ---- UDP ----------------------------------------------------------------------------------------

#[test]
fn many_queries_from_many_clients_are_all_answered_by_several_workers() {
    static NAMES: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let noting = after!(|_, _| {
        NAMES.lock().unwrap().insert(thread::current().name().unwrap_or_default().into());
    });
    let limits = Limits { udp_workers: 2, ..Limits::default() };
    let world = World::new(&LOOPBACK, limits, noting);
    let address = world.address();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..4 {
                    let socket = udp(address);
                    for window in 0..25 {
                        let numbers: Vec<u16> = (window * 25..(window + 1) * 25).collect();
                        for &number in &numbers {
                            socket.send(&query(number)).unwrap();
                        }
                        let heard: BTreeSet<u16> = numbers.iter().map(|_| id(&hear(&socket))).collect();
                        assert!(heard.into_iter().eq(numbers), "each is answered once");
                    }
                }
            });
        }
    });
    let counters = world.counters();
    assert_eq!((counters.queries, counters.replies()), (20_000, 20_000));
    assert_eq!((counters.overflows, counters.refused), (0, 0));
    assert_eq!(NAMES.lock().unwrap().iter().collect::<Vec<_>>(), ["udp-0", "udp-1"]);
}

#[test]
fn chance_differs_from_answer_to_answer() {
    static SEEN: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());
    let noting = after!(|_, client| {
        SEEN.lock().unwrap().insert(client.entropy);
    });
    let world = World::new(&LOOPBACK, few(), noting);
    let (socket, mut stream) = (udp(world.address()), world.tcp());
    for number in 0..50 {
        ask(&socket, number);
        ask_over(&mut stream, number);
    }
    assert_eq!(SEEN.lock().unwrap().len(), 100);
}

/// Panics, without a word to the panic hook, at queries with an odd id.
const AFRAID_OF_ODD_IDS: Respond = after!(|query, _| if query[1] & 1 == 1 {
    resume_unwind(Box::new("odd"));
});

#[test]
fn a_panic_costs_its_own_query_only() {
    let world = World::new(&LOOPBACK, few(), AFRAID_OF_ODD_IDS);
    let servfail = |reply: &[u8]| reply[3] & 15 == 2 && reply.len() == 12;
    let socket = udp(world.address());
    for number in 0..40 {
        socket.send(&query(number)).unwrap();
    }
    for number in 0..40 {
        let reply = hear(&socket);
        assert_eq!(id(&reply), number);
        assert_eq!(servfail(&reply), number % 2 == 1, "{number}: {reply:?}");
    }
    let mut stream = world.tcp();
    stream.write_all(&(0..40).flat_map(framed).collect::<Vec<_>>()).unwrap();
    for number in 0..40 {
        let reply = read(&mut stream).expect("a reply");
        assert_eq!(id(&reply), number);
        assert_eq!(servfail(&reply), number % 2 == 1, "{number}: {reply:?}");
    }
    assert_eq!(world.counters().panics, 40);
}
