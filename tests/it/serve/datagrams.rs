//! Datagrams that come from proxies, that are too many, and that break things.

use std::any::Any;
use std::panic::panic_any;

use haledns::model::RateLimit;
use haledns::wire::Transport;

use super::*;

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// A header that says a datagram is from `192.0.2.7`, or from the proxy itself.
fn header(command: u8) -> Vec<u8> {
    [SIGNATURE, &[0x20 | command, 0x12, 0, 12], &[192, 0, 2, 7, 203, 0, 113, 1, 0x12, 0x34, 0, 53]].concat()
}

/// Replies with the client's address.
fn telling(_: &Snapshot, _: &Service, query: &[u8], client: Client, out: &mut [u8]) -> Replied {
    out[..12].copy_from_slice(&query[..12]);
    out[2] |= 0x80;
    let address = client.address.to_string();
    out[12..12 + address.len()].copy_from_slice(address.as_bytes());
    replied(12 + address.len())
}

/// A client at another address of the loopback network.
fn udp_from(from: &str, to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((from, 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(to).unwrap();
    socket
}

#[test]
fn a_proxy_speaks_for_its_client_and_gets_the_reply_without_a_header() {
    let proxies = ["127.0.0.8/32".parse().unwrap()].into();
    let world = World::new(&LOOPBACK, Setup { limits: few(), proxies, ..Setup::default() }, telling);
    let (proxy, other) = (udp_from("127.0.0.8", world.address()), udp_from("127.0.0.9", world.address()));
    for (command, told) in [(1, "192.0.2.7"), (0, "127.0.0.8")] {
        proxy.send(&[header(command), query(7)].concat()).unwrap();
        let reply = hear(&proxy);
        assert_eq!((id(&reply), &reply[12..]), (7, told.as_bytes()));
    }
    for lost in [query(1), header(1), [&SIGNATURE[..8], &query(1)].concat(), Vec::new()] {
        proxy.send(&lost).unwrap();
    }
    until("three have no header", || world.counters().unproxied == 3); // the bare header has a query of no octets
    other.send(&query(8)).unwrap();
    assert_eq!(&hear(&other)[12..], b"127.0.0.9", "whoever is no proxy needs no header");
}

#[test]
fn a_header_from_anybody_else_is_no_header() {
    let proxies = ["127.0.0.8/32".parse().unwrap()].into();
    for setup in [few().into(), Setup { limits: few(), proxies, ..Setup::default() }] {
        let world = World::new(&LOOPBACK, setup, wire::respond);
        let client = udp_from("127.0.0.9", world.address());
        client.send(&[header(1), query(7)].concat()).unwrap();
        let reply = hear(&client);
        assert_eq!(reply[..2], SIGNATURE[..2], "its first octets were taken for an id");
        assert_ne!(reply[3] & 15, 0, "and it is an error");
        assert_eq!(world.counters().unproxied, 0);
    }
}

#[test]
fn a_panic_behind_a_proxy_is_told_to_the_client_by_its_own_id() {
    fn panicking(_: &Snapshot, _: &Service, _: &[u8], _: Client, _: &mut [u8]) -> Replied {
        panic!("on purpose")
    }
    let proxies = ["127.0.0.8/32".parse().unwrap()].into();
    let world = World::new(&LOOPBACK, Setup { limits: few(), proxies, ..Setup::default() }, panicking);
    let proxy = udp_from("127.0.0.8", world.address());
    proxy.send(&[header(1), query(7)].concat()).unwrap();
    let reply = hear(&proxy);
    assert_eq!((id(&reply), reply[3]), (7, 2));
}

// ---- too many -----------------------------------------------------------------------------------

/// An answer that nobody has vouched for, with a record so to speak.
fn unvouched(_: &Snapshot, _: &Service, query: &[u8], client: Client, out: &mut [u8]) -> Replied {
    out[..query.len()].copy_from_slice(query);
    out[2] |= 0x80;
    out[7] = 1;
    Replied { vouched: client.transport != Transport::Udp, ..replied(query.len() + 100) }
}

fn five(slip: u32) -> RateLimit {
    // so low that a slow run doesn't pay back much
    RateLimit { responses_per_second: 5, slip, ..RateLimit::default() }
}

/// Sends 200 queries; gives how many replies are whole and how many are short.
fn flood(world: &World, from: &str) -> (usize, usize) {
    let client = udp_from(from, world.address());
    let before = world.counters().queries;
    for number in 0..200 {
        client.send(&query(number)).unwrap();
    }
    until("all have arrived", || world.counters().queries == before + 200);
    // the last batch may still be answered
    ask_over(&mut world.tcp(), 1);
    let expected = |totals: &Totals| 200 - totals.rate_dropped as usize;
    let mut replies = Vec::new();
    until("all that is answered is here", || {
        client.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut reply = [0; 1500];
        while let Ok(length) = client.recv(&mut reply) {
            replies.push(reply[..length].to_vec());
        }
        world.counters().rate_dropped == 0 && replies.len() == 200
            || world.counters().rate_dropped > 0 && replies.len() >= expected(&world.counters())
    });
    let short: Vec<&Vec<u8>> = replies.iter().filter(|reply| reply[2] & 2 != 0).collect();
    for reply in &short {
        assert_eq!(reply[6..], query(0)[6..], "the question, and no record");
    }
    (replies.len() - short.len(), short.len())
}

#[test]
fn replies_beyond_the_rate_are_dropped_or_sent_short() {
    for (slip, most_short, least_short) in [(0, 0, 0), (1, 195, 100), (2, 150, 40)] {
        let world = World::new(&LOOPBACK, Limits { rate: Some(five(slip)), ..few() }, unvouched);
        let (whole, short) = flood(&world, "127.0.0.1");
        assert!((5..60).contains(&whole), "slip {slip}: {whole} whole");
        assert!((least_short..=most_short).contains(&short), "slip {slip}: {short} short");
        let totals = world.counters();
        assert_eq!(totals.rate_slipped as usize, short);
        assert_eq!(totals.rate_dropped as usize, 200 - whole - short);
    }
}

#[test]
fn another_network_is_not_limited_with_it() {
    let world = World::new(&LOOPBACK, Limits { rate: Some(five(0)), ..few() }, unvouched);
    flood(&world, "127.0.0.1");
    let other = udp_from("127.0.1.1", world.address());
    for number in 0..5 {
        ask(&other, number);
    }
}

#[test]
fn exempt_networks_streams_and_vouched_clients_are_not_limited_and_log_only_sends() {
    let exempt = vec!["127.0.0.0/8".parse().unwrap()];
    let log_only = RateLimit { log_only: true, ..five(2) };
    for (rate, respond, limited) in [
        (RateLimit { exempt, ..five(0) }, unvouched as Respond, false),
        (
            five(0),
            |snapshot, service, query, client, out| Replied {
                vouched: true,
                ..unvouched(snapshot, service, query, client, out)
            },
            false,
        ),
        (log_only, unvouched, true),
    ] {
        let world = World::new(&LOOPBACK, Limits { rate: Some(rate), ..few() }, respond);
        let client = udp(world.address());
        for number in 0..50 {
            ask(&client, number);
        }
        let mut stream = world.tcp();
        for number in 0..50 {
            ask_over(&mut stream, number);
        }
        let totals = world.counters();
        assert_eq!(totals.rate_dropped + totals.rate_slipped > 0, limited);
        assert_eq!((totals.replies(), totals.truncated), (100, 0));
    }
}

#[test]
fn errors_are_leaked_whole() {
    let rate = RateLimit { errors_per_second: 5, slip: 1, ..RateLimit::default() };
    fn failing(
        snapshot: &Snapshot,
        service: &Service,
        query: &[u8],
        client: Client,
        out: &mut [u8],
    ) -> Replied {
        let replied = wire::respond(snapshot, service, query, client, out);
        Replied { class: Class::Error, ..replied }
    }
    let world = World::new(&LOOPBACK, Limits { rate: Some(rate), ..few() }, failing);
    let client = udp(world.address());
    for number in 0..50 {
        client.send(&query(number)).unwrap();
        let reply = hear(&client);
        assert_eq!((reply[2] & 2, reply[3] & 15), (0, 5), "REFUSED, without TC");
    }
    assert!(world.counters().rate_slipped > 0);
}

#[test]
fn a_slipped_reply_has_the_question_and_an_opt_record_if_the_query_had_one() {
    let service = Service::default();
    let client =
        Client { transport: Transport::Udp, address: Ipv4Addr::LOCALHOST.into(), entropy: 0, now: 0 };
    let mut plain = query(7);
    plain[2] |= 1; // RD
    let mut edns = plain.clone();
    edns[11] = 1;
    edns.extend([0, 0, 41, 4, 208, 0, 0, 0x80, 0, 0, 0]);
    let mut out = [0xff; 1232];
    for (query, records) in [(&plain, 0), (&edns, 1)] {
        let length = wire::slip(&service, query, client, &mut out);
        let reply = &out[..length];
        assert_eq!(id(reply), 7);
        assert_eq!(reply[2], 0x83, "a reply, TC, RD echoed");
        assert_eq!(reply[3], 0);
        assert_eq!(reply[4..12], [0, 1, 0, 0, 0, 0, 0, records]);
        assert_eq!(reply[12..plain.len()], plain[12..]);
        assert!(length <= query.len(), "never longer than the query");
    }
    for silent in [&plain[..11], &[&plain[..2], &[0x80], &plain[3..]].concat(), &plain[..20]] {
        assert_eq!(wire::slip(&service, silent, client, &mut out), 0);
    }
}

// ---- what breaks --------------------------------------------------------------------------------

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic_any("the bomb goes off");
    }
}

#[test]
fn whatever_answering_panics_with_the_worker_goes_on() {
    fn odd(snapshot: &Snapshot, service: &Service, query: &[u8], client: Client, out: &mut [u8]) -> Replied {
        match query[1] {
            1 => panic!("words"),
            2 => panic_any(Bomb),
            3 => resume_unwind(Box::new(7) as Box<dyn Any + Send>),
            4 => replied(100_000), // longer than there is room
            5 => {
                out.fill(0xff);
                panic!("and it had written already")
            }
            _ => wire::respond(snapshot, service, query, client, out),
        }
    }
    let world = World::new(&LOOPBACK, few(), odd);
    let client = udp(world.address());
    for round in 0..3 {
        for number in 1..=5 {
            client.send(&query(number)).unwrap();
            let reply = hear(&client);
            assert_eq!(
                (id(&reply), reply[3] & 15, reply.len()),
                (number, 2, 12),
                "SERVFAIL, {number} of {round}"
            );
        }
        ask(&client, 9);
    }
    assert_eq!((world.counters().panics, world.counters().restarts), (15, 0));
}
