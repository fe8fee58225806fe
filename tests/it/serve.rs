//! Sockets and threads: what clients see of `serve`, whatever the replies say.
//!
//! Clients here are plain blocking sockets; a reply is known by its id and QR.

mod agree;
mod datagrams;
mod encrypted;
mod https;
mod limits;
mod proxied;
mod renewal;

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::pin::pin;
use std::process::{Child, ChildStdout, Command, Stdio};
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

fn replied(length: usize) -> Replied {
    Replied { length, class: Class::Answer, subject: 0, vouched: true }
}

/// Gives the query back as a reply of 60,000 octets.
fn at_length(_: &Snapshot, _: &Service, query: &[u8], _: Client, out: &mut [u8]) -> Replied {
    out[..query.len()].copy_from_slice(query);
    replied(60_000)
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

/// An address that was free a moment ago.
fn free_address() -> SocketAddr {
    UdpSocket::bind(LOOPBACK[0]).unwrap().local_addr().unwrap()
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
    fn noting(
        snapshot: &Snapshot,
        service: &Service,
        query: &[u8],
        client: Client,
        out: &mut [u8],
    ) -> Replied {
        NAMES.lock().unwrap().insert(thread::current().name().unwrap_or_default().into());
        wire::respond(snapshot, service, query, client, out)
    }
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
    fn noting(
        snapshot: &Snapshot,
        service: &Service,
        query: &[u8],
        client: Client,
        out: &mut [u8],
    ) -> Replied {
        SEEN.lock().unwrap().insert(client.entropy);
        wire::respond(snapshot, service, query, client, out)
    }
    let world = World::new(&LOOPBACK, few(), noting);
    let (socket, mut stream) = (udp(world.address()), world.tcp());
    for number in 0..50 {
        ask(&socket, number);
        ask_over(&mut stream, number);
    }
    assert_eq!(SEEN.lock().unwrap().len(), 100);
}

/// Panics, without a word to the panic hook, at queries with an odd id.
fn afraid_of_odd_ids(
    snapshot: &Snapshot,
    service: &Service,
    query: &[u8],
    client: Client,
    out: &mut [u8],
) -> Replied {
    if query[1] & 1 == 1 {
        resume_unwind(Box::new("odd"));
    }
    wire::respond(snapshot, service, query, client, out)
}

#[test]
fn a_panic_costs_its_own_query_only() {
    let world = World::new(&LOOPBACK, few(), afraid_of_odd_ids);
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

// ---- TCP ----------------------------------------------------------------------------------------

#[test]
fn a22_three_queries_in_one_segment_get_three_replies_in_order() {
    let world = World::with(few());
    let mut stream = world.tcp();
    for round in 0..3 {
        let numbers = [round * 3 + 1, round * 3 + 2, round * 3 + 3];
        stream.write_all(&numbers.map(framed).concat()).unwrap();
        assert_eq!(ids(&mut stream, 3), numbers);
    }
}

#[test]
fn a22_a_query_may_come_octet_by_octet() {
    let world = World::with(few());
    let mut stream = world.tcp();
    for octet in framed(1) {
        stream.write_all(&[octet]).unwrap();
    }
    assert_eq!(ids(&mut stream, 1), [1]);
    // the length's two octets, and a message together with half of the next length
    let two = [framed(2), framed(3)].concat();
    let middle = two.len() / 2;
    stream.write_all(&two[..1]).unwrap();
    stream.write_all(&two[1..=middle]).unwrap();
    assert_eq!(ids(&mut stream, 1), [2]);
    stream.write_all(&two[middle + 1..]).unwrap();
    assert_eq!(ids(&mut stream, 1), [3]);
}

#[test]
fn many_pipelined_queries_with_long_replies_are_all_answered() {
    fn longest(_: &Snapshot, _: &Service, query: &[u8], _: Client, out: &mut [u8]) -> Replied {
        out[..query.len()].copy_from_slice(query);
        out[2] |= 0x80;
        replied(65535)
    }
    let world = World::new(&LOOPBACK, few(), longest);
    let mut stream = world.tcp();
    stream.write_all(&(0..300).flat_map(framed).collect::<Vec<_>>()).unwrap();
    for number in 0..300 {
        let reply = read(&mut stream).expect("a reply");
        assert_eq!((id(&reply), reply.len()), (number, 65535));
    }
    ask_over(&mut stream, 300);
}

#[test]
fn the_longest_message_is_taken() {
    let world = World::with(few());
    let mut stream = world.tcp();
    let mut long = query(1);
    long.resize(65535, 0);
    stream.write_all(&[&65535_u16.to_be_bytes()[..], &long, &framed(2)].concat()).unwrap();
    // whatever the first is answered with, the second is found behind it
    until("both are seen", || world.counters().queries == 2);
    let mut reply = read(&mut stream).expect("a reply");
    if id(&reply) == 1 {
        reply = read(&mut stream).expect("a reply");
    }
    assert_eq!(id(&reply), 2);
}

#[test]
fn a_half_closed_connection_gets_its_replies() {
    let world = World::with(few());
    let mut stream = world.tcp();
    stream.write_all(&[1, 2, 3].map(framed).concat()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(ids(&mut stream, 3), [1, 2, 3]);
    assert_eq!(read(&mut stream), None);
    until("the connection is gone", || world.counters().open == 0);
}

#[test]
fn an_impossible_length_closes_the_connection_after_the_replies_before_it() {
    let world = World::with(few());
    for length in [0_u16, 1, 11] {
        let mut stream = world.tcp();
        let junk = [&length.to_be_bytes()[..], &[0; 100]].concat();
        stream.write_all(&[framed(1), framed(2), junk].concat()).unwrap();
        assert_eq!(ids(&mut stream, 2), [1, 2]);
        assert_eq!(read(&mut stream), None, "length {length}");
    }
}

#[test]
fn an_idle_connection_is_closed_at_the_limit() {
    let world = World::with(Limits { tcp_idle: Duration::from_millis(200), ..few() });
    let mut silent = world.tcp();
    assert_eq!(read(&mut silent), None);
    let mut stream = world.tcp();
    let begun = Instant::now();
    for number in 0..3 {
        ask_over(&mut stream, number);
    }
    assert_eq!(read(&mut stream), None);
    assert!(begun.elapsed() >= Duration::from_millis(200));
    until("both are gone", || world.counters().open == 0);
}

#[test]
fn octets_that_drip_in_do_not_extend_a_messages_limit() {
    let world = World::with(Limits { tcp_message: Duration::from_millis(200), ..few() });
    let mut stream = world.tcp();
    ask_over(&mut stream, 1);
    stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    stream.write_all(&60_000_u16.to_be_bytes()).unwrap();
    let mut dripped = 0;
    let ended = loop {
        match stream.read(&mut [0]) {
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {}
            other => break other,
        }
        if stream.write_all(&[0]).is_err() {
            break Ok(0);
        }
        dripped += 1;
        assert!(dripped < 2_000, "lives for ever");
    };
    assert!(matches!(ended, Ok(0) | Err(_)));
    assert!(dripped > 1, "closed at once");
}

#[test]
fn an_http_client_does_not_hang() {
    let world = World::with(Limits { tcp_message: Duration::from_millis(100), ..few() });
    let mut stream = world.tcp();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert_eq!(read(&mut stream), None);
}

#[test]
fn a_client_that_reads_no_replies_is_closed() {
    let limits = Limits { tcp_write: Duration::from_millis(100), ..few() };
    let world = World::new(&LOOPBACK, limits, at_length);
    let mut stream = world.tcp();
    stream.write_all(&(0..2_000).flat_map(framed).collect::<Vec<_>>()).unwrap();
    until("the connection is gone", || world.counters().open == 0);
    assert!(world.counters().queries < 2_000, "most was never answered");
}

#[test]
fn at_the_cap_the_longest_idle_connection_makes_room() {
    let world = World::with(Limits { tcp_connections: 2, ..few() });
    let (mut first, mut second) = (world.tcp(), world.tcp());
    ask_over(&mut second, 1);
    ask_over(&mut first, 1);
    let mut third = world.tcp();
    ask_over(&mut third, 1);
    assert_eq!(read(&mut second), None);
    ask_over(&mut first, 2);
    ask_over(&mut third, 2);
    assert_eq!(world.counters().evicted, 1);
}

#[test]
fn a_new_client_is_answered_while_others_hoard_all_connections() {
    let world = World::with(Limits { tcp_connections: 8, ..few() });
    let mut hoard: Vec<TcpStream> = (0..16).map(|_| world.tcp()).collect();
    for stream in &mut hoard {
        let _ = stream.write_all(&[0]); // the older half is closed already
    }
    ask(&udp(world.address()), 1);
    for number in 0..20 {
        ask_over(&mut world.tcp(), number);
    }
    until("no more are open than may be", || world.counters().open <= 8);
    assert!(world.counters().evicted >= 9);
}

#[test]
fn d03_without_descriptors_clients_are_still_answered_and_accepting_does_not_spin() {
    let mut other = Other::new("few-descriptors", "");
    let address = other.hear().parse().unwrap();
    let hoard: Vec<TcpStream> = (0..40).map(|_| tcp(address)).collect();
    for number in 0..100 {
        ask(&udp(address), number);
    }
    ask_over(&mut tcp(address), 1);
    drop(hoard);
    other.say("how often did accepting fail?");
    let failures: u64 = other.hear().parse().unwrap();
    assert!((1..200).contains(&failures), "{failures} times");
}

fn plays_few_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let world = World::with(few());
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(open + 5), maximum }).unwrap();
    say(world.address());
    wait_for_a_line();
    say(world.counters().accept_errors);
    wait_for_a_line();
}

// ---- stopping -----------------------------------------------------------------------------------

#[test]
fn stop_answers_the_datagrams_that_have_arrived() {
    static GATE: Gate = Gate::new();
    fn held_up(
        snapshot: &Snapshot,
        service: &Service,
        query: &[u8],
        client: Client,
        out: &mut [u8],
    ) -> Replied {
        GATE.pass();
        wire::respond(snapshot, service, query, client, out)
    }
    let mut world = World::new(&LOOPBACK, few(), held_up);
    let socket = udp(world.address());
    socket.send(&query(0)).unwrap();
    GATE.wait_until_reached();
    for number in 1..200 {
        socket.send(&query(number)).unwrap();
    }
    let totals = world.stop(|| GATE.open());
    for number in 0..200 {
        assert_eq!(id(&hear(&socket)), number);
    }
    assert_eq!((totals.queries, totals.replies()), (200, 200));
}

#[test]
fn stop_answers_the_messages_that_have_arrived_and_closes() {
    static GATE: Gate = Gate::new();
    fn held_up(
        snapshot: &Snapshot,
        service: &Service,
        query: &[u8],
        client: Client,
        out: &mut [u8],
    ) -> Replied {
        GATE.pass();
        wire::respond(snapshot, service, query, client, out)
    }
    let mut world = World::new(&LOOPBACK, few(), held_up);
    let mut stream = world.tcp();
    stream.write_all(&framed(0)).unwrap();
    GATE.wait_until_reached();
    let mut late = world.tcp();
    late.write_all(&framed(7)).unwrap();
    stream.write_all(&(1..200).flat_map(framed).collect::<Vec<_>>()).unwrap();
    let totals = world.stop(|| GATE.open());
    assert_eq!(ids(&mut stream, 200), (0..200).collect::<Vec<_>>());
    assert_eq!(read(&mut stream), None);
    assert_eq!(ids(&mut late, 1), [7]);
    assert_eq!(read(&mut late), None);
    assert_eq!((totals.queries, totals.open), (201, 0));
}

#[test]
fn stop_returns_within_a_second_whatever_clients_do() {
    let mut idle = World::with(Limits { udp_workers: 3, ..Limits::default() });
    let address = idle.address();
    let begun = Instant::now();
    idle.stop(|| ());
    let asleep = begun.elapsed();
    assert!(asleep < Duration::from_millis(900), "sleeping workers were woken: {asleep:?}");
    claim_when_free(address);

    let mut world = World::new(&LOOPBACK, few(), at_length);
    let (_silent, mut partial, mut deaf) = (world.tcp(), world.tcp(), world.tcp());
    partial.write_all(&[0, 40, 1]).unwrap();
    deaf.write_all(&(0..2_000).flat_map(framed).collect::<Vec<_>>()).unwrap();
    until("all have begun", || world.counters().open == 3 && world.counters().queries > 0);
    let begun = Instant::now();
    let totals = world.stop(|| ());
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(totals.open, 0);
}

#[test]
fn a_dropped_server_frees_its_addresses() {
    let mut world = World::with(Limits::default());
    let address = world.address();
    drop(world.server.take());
    claim_when_free(address);
}

// ---- claiming -----------------------------------------------------------------------------------

#[test]
fn addresses_of_one_list_may_not_overlap() {
    for (list, words) in [
        (["127.0.0.1:5301", "127.0.0.1:5301"], "127.0.0.1:5301 is listed twice as an address to listen on"),
        (
            ["0.0.0.0:5301", "127.0.0.1:5301"],
            "0.0.0.0:5301 and 127.0.0.1:5301 overlap: list either the wildcard or single addresses",
        ),
    ] {
        let error = claim(&list.map(|address| address.parse::<SocketAddr>().unwrap())).unwrap_err();
        assert_eq!(error.to_string(), words);
    }
}

#[test]
fn kinds_share_a_port_only_by_different_protocols() {
    let address = free_address();
    let of = |kind| Listener { kind, address };
    let words = |list: &[Listener]| claim(list).map(drop).map_err(|error| error.to_string());
    until("the port is free for both", || words(&[of(Kind::Tls), of(Kind::Quic)]).is_ok());
    assert_eq!(
        words(&[of(Kind::Dns), of(Kind::Tls)]).unwrap_err(),
        format!(
            "{address} (UDP and TCP) and {address} (DNS over TLS) would get the same packets: give one of \
             them another port"
        )
    );
    let held = until_some("the address is free", || claim(&[of(Kind::Tls)]).ok());
    assert!(matches!(claim(&[of(Kind::Https)]), Err(ListenError::HeldByHale { .. })));
    assert!(matches!(claim(&[address]), Err(ListenError::HeldByHale { .. })), "TCP is a part of it");
    claim(&[of(Kind::Http3)]).expect("UDP is free");
    drop(held);
}

#[test]
fn an_encrypted_listener_needs_a_certificate() {
    let listener = Listener { kind: Kind::Https, address: LOOPBACK[0] };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let publisher = Publisher::new(Arc::new(Snapshot::default()));
    let services = Publisher::new(Arc::new(Service::default()));
    let bound =
        claim(&[listener]).unwrap().bind(few(), publisher.reader(), services.reader(), runtime.handle());
    assert_eq!(
        bound.unwrap_err().to_string(),
        "DNS over HTTPS at 127.0.0.1:0 needs a certificate: set `certificate` and `private_key`"
    );
}

#[test]
fn a_second_hale_is_told_who_holds_the_address() {
    let mut other = Other::new("hale", "0.0.0.0:0");
    let wildcard: SocketAddr = other.hear().parse().unwrap();
    let single = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), wildcard.port());
    for address in [wildcard, single] {
        let error = claim(&[address]).unwrap_err();
        let ListenError::HeldByHale { by: Some(by), .. } = &error else { panic!("{error:?}") };
        assert_eq!(by.pid, other.pid());
        let words = format!("{address} is held by another hale, pid {} (", other.pid());
        assert!(error.to_string().starts_with(&words), "{error}");
        assert!(error.to_string().contains("plays_another_process"), "{error}");
    }
    drop(other);
    claim_when_free(single);
}

fn plays_hale(address: &str) {
    let world = World::new(&[address.parse::<SocketAddr>().unwrap()], few(), wire::respond);
    say(world.address());
    wait_for_a_line();
}

#[test]
fn a_claim_holds_its_address_before_it_is_bound() {
    let held = until_some("some address is free", || claim(&[free_address()]).ok());
    let error = claim(held.listeners()).unwrap_err();
    assert!(matches!(error, ListenError::HeldByHale { by: Some(by), .. } if by.pid == std::process::id()));
}

#[test]
fn a_foreign_process_on_the_port_is_named_even_if_it_would_share() {
    for (role, protocol) in [("foreign-udp", Protocol::Udp), ("foreign-tcp", Protocol::Tcp)] {
        let mut other = Other::new(role, "0.0.0.0:0");
        let wildcard: SocketAddr = other.hear().parse().unwrap();
        let single = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), wildcard.port());
        for address in [wildcard, single] {
            let error = until_some("it is not our own lock that is in the way", || {
                claim(&[address]).err().filter(|error| matches!(error, ListenError::Held { .. }))
            });
            let ListenError::Held { by: Some(by), protocol: on, .. } = &error else { panic!("{error:?}") };
            assert_eq!((by.pid, *on), (other.pid(), protocol));
            let words = format!("{address} ({protocol}) is held by {}, pid {}", by.name, by.pid);
            assert_eq!(error.to_string(), words);
        }
    }
}

fn plays_foreign(kind: Type, address: &str) {
    let socket = Socket::new(Domain::IPV4, kind, None).unwrap();
    socket.set_reuse_port(true).unwrap();
    socket.bind(&address.parse::<SocketAddr>().unwrap().into()).unwrap();
    if kind == Type::STREAM {
        socket.listen(1).unwrap();
    }
    say(socket.local_addr().unwrap().as_socket().unwrap());
    wait_for_a_line();
}

#[test]
fn what_cannot_be_bound_is_explained() {
    let address = SocketAddr::new([192, 0, 2, 1].into(), free_address().port());
    let words = format!("{address}: this machine has no address 192.0.2.1");
    assert_eq!(claim(&[address]).unwrap_err().to_string(), words);

    let unseen =
        ListenError::Held { address: "127.0.0.1:53".parse().unwrap(), protocol: Protocol::Tcp, by: None };
    assert!(unseen.to_string().ends_with("as root, `ss -ltnp 'sport = :53'` shows it"), "{unseen}");
}

#[test]
fn a_low_port_without_permission_is_explained() {
    let low = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1 + (std::process::id() % 1000) as u16);
    let lowest = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    if lowest.is_ok_and(|lowest| lowest.trim().parse().is_ok_and(|port: u16| port <= low.port())) {
        eprintln!("skipped: here everybody may listen on low ports");
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let Some(mut other) = Other::start(command, "claim", &low.to_string()) else {
        eprintln!("skipped: this test's program cannot be run by another user");
        return;
    };
    let words = other.hear();
    assert!(words.starts_with(&format!("no permission to listen on {low}: run as root, or")), "{words}");
    assert!(words.contains("`setcap cap_net_bind_service=+ep /"), "{words}");
}

fn plays_claim(address: &str) {
    say(claim(&[address.parse::<SocketAddr>().unwrap()]).unwrap_err());
}

// ---- another process: this test binary again, in a role -----------------------------------------

const MARK: &str = "says: ";

struct Other {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Other {
    fn new(role: &str, argument: &str) -> Other {
        Other::start(Command::new(std::env::current_exe().unwrap()), role, argument).unwrap()
    }

    /// None when the process cannot be started or ends without having said anything.
    fn start(mut command: Command, role: &str, argument: &str) -> Option<Other> {
        command.args(["--exact", "serve::plays_another_process", "--nocapture"]);
        command.env("HALE_TEST_ROLE", role).env("HALE_TEST_ARGUMENT", argument);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().ok()?;
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let begun = output.fill_buf().is_ok_and(|octets| !octets.is_empty());
        let other = Other { child, output };
        begun.then_some(other)
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if let Some((_, said)) = line.trim_end().split_once(MARK) {
                return said.into();
            }
            line.clear();
        }
        panic!("the other process ended without a word");
    }

    fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_ref().unwrap(), "{line}").unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(what: impl std::fmt::Display) {
    println!("{MARK}{what}");
}

fn wait_for_a_line() {
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Not a test: what another process runs, told so by its environment.
#[test]
fn plays_another_process() {
    let Ok(role) = std::env::var("HALE_TEST_ROLE") else { return };
    let argument = std::env::var("HALE_TEST_ARGUMENT").unwrap_or_default();
    match role.as_str() {
        "both-wildcards" => plays_both_wildcards(),
        "few-descriptors" => plays_few_descriptors(),
        "hale" => plays_hale(&argument),
        "claim" => plays_claim(&argument),
        "foreign-udp" => plays_foreign(Type::DGRAM, &argument),
        "foreign-tcp" => plays_foreign(Type::STREAM, &argument),
        _ => panic!("no such role: {role}"),
    }
}
