//! EDNS options, and what a server tells of itself: octets in, octets out.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use haledns::authority::{Prepared, Snapshot};
use haledns::config;
use haledns::engine::{Engine, Event};
use haledns::moment::Moment;
use haledns::wire::{Client, MAX_MESSAGE, MAX_UDP, Replied, Secrets, Service, Transport, respond, slip};

const NSID: u16 = 3;
const CLIENT_SUBNET: u16 = 8;
const COOKIE: u16 = 10;
const KEEPALIVE: u16 = 11;
const PADDING: u16 = 12;
const EXTENDED_ERROR: u16 = 15;

const TRANSPORTS: [Transport; 5] =
    [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Https, Transport::Quic];

const NOW: u32 = 1_800_000_000;

static SNAPSHOT: LazyLock<Arc<Snapshot>> = LazyLock::new(|| {
    let many: Vec<String> = (1..=60).map(|n| format!("192.0.2.{n}")).collect();
    let text = format!(
        "zone: example.com
records:
  '': {{ type: NS, value: ns1.example.net. }}
  www: {{ type: A, value: 192.0.2.1 }}
  big: {{ type: A, values: [{}] }}
",
        many.join(", ")
    );
    let loaded = config::load_texts(vec![(PathBuf::from("zone.yaml"), text.into_bytes())]).unwrap();
    let mut engine = Engine::new(1);
    engine.handle(Event::Reload(Prepared::new(loaded.model)), Moment::ZERO);
    Arc::new(engine.snapshot())
});

fn service() -> Service {
    Service {
        nsid: Some(b"eu-1".as_slice().into()),
        version: Some(b"Hale".as_slice().into()),
        id: Some(b"eu-1.example.net".as_slice().into()),
        cookies: Some(Secrets::Daily([7; 16])),
        keepalive: 100,
    }
}

/// A name on the wire.
fn name(text: &str) -> Vec<u8> {
    let mut wire = Vec::new();
    for label in text.split('.').filter(|label| !label.is_empty()) {
        wire.push(label.len() as u8);
        wire.extend_from_slice(label.as_bytes());
    }
    wire.push(0);
    wire
}

/// A query with EDNS and these options.
fn query(owner: &str, (rtype, class): (u16, u16), options: &[(u16, &[u8])]) -> Vec<u8> {
    let mut query = vec![0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    query.extend(name(owner));
    query.extend([rtype.to_be_bytes(), class.to_be_bytes()].concat());
    query.extend(opt(options));
    query
}

fn opt(options: &[(u16, &[u8])]) -> Vec<u8> {
    let each = |(code, data): &(u16, &[u8])| {
        [&code.to_be_bytes()[..], &(data.len() as u16).to_be_bytes(), data].concat()
    };
    let data = options.iter().flat_map(each).collect::<Vec<u8>>();
    [&[0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0][..], &(data.len() as u16).to_be_bytes(), &data].concat()
}

fn www(options: &[(u16, &[u8])]) -> Vec<u8> {
    query("www.example.com", (1, 1), options)
}

struct Reply {
    octets: Vec<u8>,
    vouched: bool,
}

fn ask_as(service: &Service, query: &[u8], transport: Transport, address: &str, now: u32) -> Reply {
    let mut out = vec![0xaa; if transport.is_datagram() { MAX_UDP } else { MAX_MESSAGE }];
    let address: IpAddr = address.parse().unwrap();
    let client = Client { transport, address, entropy: 7, now };
    let Replied { length, vouched, .. } = respond(&SNAPSHOT, service, query, client, &mut out);
    out.truncate(length);
    Reply { octets: out, vouched }
}

fn ask(query: &[u8], transport: Transport) -> Reply {
    ask_as(&service(), query, transport, "192.0.2.77", NOW)
}

impl Reply {
    /// With the high bits from OPT.
    fn rcode(&self) -> u16 {
        u16::from(self.octets[3] & 15)
    }

    fn count(&self, section: usize) -> u16 {
        u16::from_be_bytes([self.octets[4 + 2 * section], self.octets[5 + 2 * section]])
    }

    fn truncated(&self) -> bool {
        self.octets[2] & 2 != 0
    }

    /// The options of the OPT record, which is the last one and the only one of its section.
    fn options(&self) -> Vec<(u16, Vec<u8>)> {
        assert!(self.count(3) > 0, "an OPT record");
        // the first place from which root, OPT, our size, and lengths fit to the end
        let heads = 12..self.octets.len();
        let at = heads.filter(|&at| self.octets[at..].starts_with(&[0, 0, 41, 0x04, 0xd0])).find(|at| {
            let length = u16::from_be_bytes([self.octets[at + 9], self.octets[at + 10]]);
            at + 11 + usize::from(length) == self.octets.len()
        });
        let mut rest = &self.octets[at.expect("OPT at the end") + 11..];
        let mut options = Vec::new();
        while let [c1, c2, l1, l2, after @ ..] = rest {
            let (data, after) = after.split_at(usize::from(u16::from_be_bytes([*l1, *l2])));
            options.push((u16::from_be_bytes([*c1, *c2]), data.to_vec()));
            rest = after;
        }
        assert!(rest.is_empty());
        options
    }

    fn option(&self, code: u16) -> Option<Vec<u8>> {
        let mut found = self.options().into_iter().filter(|(number, _)| *number == code);
        let first = found.next().map(|(_, data)| data);
        assert!(found.next().is_none(), "option {code} once");
        first
    }
}

#[test]
fn options_come_back_only_when_they_are_asked_for() {
    for transport in TRANSPORTS {
        let expected: &[u16] = if transport.is_encrypted() { &[PADDING] } else { &[] };
        let options: Vec<u16> = ask(&www(&[]), transport).options().iter().map(|(code, _)| *code).collect();
        assert_eq!(options, expected, "{transport:?}");
    }
}

#[test]
fn nsid_tells_which_server_has_answered() {
    assert_eq!(ask(&www(&[(NSID, b"")]), Transport::Udp).option(NSID).unwrap(), b"eu-1");
    assert_eq!(ask(&www(&[(NSID, b"odd")]), Transport::Tcp).option(NSID).unwrap(), b"eu-1");
    let silent = Service::default();
    let reply = ask_as(&silent, &www(&[(NSID, b"")]), Transport::Udp, "192.0.2.77", NOW);
    assert_eq!(reply.option(NSID), None);
}

#[test]
fn a_client_cookie_gets_a_server_cookie_that_vouches_for_its_client() {
    let client = *b"\x01\x02\x03\x04\x05\x06\x07\x08";
    let first = ask(&www(&[(COOKIE, &client)]), Transport::Udp);
    assert!(!first.vouched && first.rcode() == 0 && first.count(1) == 1);
    let cookie = first.option(COOKIE).unwrap();
    assert_eq!((cookie.len(), &cookie[..8]), (24, &client[..]));

    let again = ask(&www(&[(COOKIE, &cookie)]), Transport::Udp);
    assert!(again.vouched && again.rcode() == 0);
    let from = |address| ask_as(&service(), &www(&[(COOKIE, &cookie)]), Transport::Udp, address, NOW);
    assert!(!from("192.0.2.78").vouched, "another address");
    assert!(!from("2001:db8::1").vouched);
    for (later, vouched) in [(3600, true), (3601, false)] {
        let reply = ask_as(&service(), &www(&[(COOKIE, &cookie)]), Transport::Udp, "192.0.2.77", NOW + later);
        assert_eq!(reply.vouched, vouched, "after {later} s");
        let new = reply.option(COOKIE).unwrap();
        assert!(new != cookie && reply.count(1) == 1, "a new one in either case, and an answer");
    }
}

#[test]
fn cookies_of_a_shared_secret_are_good_at_every_server_that_has_it() {
    let with =
        |secrets: &[[u8; 16]]| Service { cookies: Some(Secrets::Given(secrets.to_vec())), ..service() };
    let (old, new) = ([1; 16], [2; 16]);
    let ask = |service: &Service, cookie: &[u8]| {
        ask_as(service, &www(&[(COOKIE, cookie)]), Transport::Udp, "192.0.2.77", NOW)
    };
    let cookie = ask(&with(&[old]), &[5; 8]).option(COOKIE).unwrap();
    assert!(ask(&with(&[old, new]), &cookie).vouched, "before the change of secrets");
    assert!(ask(&with(&[new, old]), &cookie).vouched, "and after it");
    assert!(!ask(&with(&[new]), &cookie).vouched, "the old one is gone");
}

#[test]
fn a_cookie_of_a_wrong_length_is_a_format_error_unless_cookies_are_off() {
    let off = Service { cookies: None, ..service() };
    for (length, rcode) in
        [(0, 1), (4, 1), (7, 1), (8, 0), (9, 1), (15, 1), (16, 0), (17, 0), (40, 0), (41, 1)]
    {
        let query = www(&[(COOKIE, &vec![9; length])]);
        let reply = ask(&query, Transport::Udp);
        assert_eq!((reply.rcode(), reply.count(0)), (rcode, 1), "{length}");
        assert_eq!(reply.option(COOKIE).is_some(), rcode == 0, "{length}");
        let ignored = ask_as(&off, &query, Transport::Udp, "192.0.2.77", NOW);
        assert_eq!((ignored.rcode(), ignored.option(COOKIE)), (0, None), "{length}");
    }
}

#[test]
fn a_query_without_a_question_may_ask_for_a_cookie() {
    let mut query = vec![0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    query.extend(opt(&[(COOKIE, &[5; 8])]));
    let reply = ask(&query, Transport::Udp);
    assert_eq!((reply.rcode(), reply.count(0), reply.count(1), reply.count(2)), (0, 0, 0, 0));
    assert_eq!(reply.option(COOKIE).unwrap().len(), 24);
    let off = Service { cookies: None, ..service() };
    assert_eq!(ask_as(&off, &query, Transport::Udp, "192.0.2.77", NOW).rcode(), 1);
}

#[test]
fn a_client_subnet_comes_back_as_it_was_sent_for_all_clients() {
    let v4 = [0, 1, 24, 0, 198, 51, 100];
    let v6 = [0, 2, 40, 0, 0x20, 0x01, 0x0d, 0xb8, 0x12];
    for subnet in [&v4[..], &v6, &[0, 1, 0, 0], &[0, 2, 0, 0], &[0, 0, 0, 0], &[0, 1, 20, 0, 198, 51, 96]] {
        for (owner, rtype) in
            [("www.example.com", 1), ("www.example.com", 28), ("nope.example.com", 1), ("example.org", 1)]
        {
            let reply = ask(&query(owner, (rtype, 1), &[(CLIENT_SUBNET, subnet)]), Transport::Udp);
            assert_eq!(reply.option(CLIENT_SUBNET).unwrap(), subnet, "{owner}");
        }
    }
}

#[test]
fn a_client_subnet_that_is_malformed_is_a_format_error() {
    for (what, subnet) in [
        ("nothing", &[][..]),
        ("three octets", &[0, 1, 24]),
        ("a scope", &[0, 1, 24, 24, 198, 51, 100]),
        ("an address too long", &[0, 1, 24, 0, 198, 51, 100, 0]),
        ("an address too short", &[0, 1, 24, 0, 198, 51]),
        ("bits beyond the prefix", &[0, 1, 20, 0, 198, 51, 100]),
        ("a prefix of 33", &[0, 1, 33, 0, 198, 51, 100, 1, 0]),
        ("a prefix of 129", &[0, 2, 129, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0]),
        ("an unknown family", &[0, 3, 8, 0, 1]),
        ("no family, with an address", &[0, 0, 8, 0, 1]),
    ] {
        let reply = ask(&www(&[(CLIENT_SUBNET, subnet)]), Transport::Udp);
        assert_eq!((reply.rcode(), reply.count(0), reply.count(1)), (1, 1, 0), "{what}");
        assert_eq!(reply.option(CLIENT_SUBNET), None, "{what}");
    }
    let twice = [(CLIENT_SUBNET, &[0, 1, 0, 0][..]), (CLIENT_SUBNET, &[0, 1, 0, 0])];
    assert_eq!(ask(&www(&twice), Transport::Udp).rcode(), 1, "twice");
}

#[test]
fn a_truncated_reply_keeps_its_options_within_the_size() {
    let options = [(CLIENT_SUBNET, &[0, 1, 24, 0, 198, 51, 100][..]), (NSID, b""), (COOKIE, &[5; 8])];
    let mut small = query("big.example.com", (1, 1), &options);
    let at = small.len() - opt(&options).len();
    small[at + 3..at + 5].copy_from_slice(&512_u16.to_be_bytes());
    let reply = ask(&small, Transport::Udp);
    assert!(reply.truncated() && reply.octets.len() <= 512);
    assert_eq!((reply.count(0), reply.count(1)), (1, 0));
    for code in [CLIENT_SUBNET, NSID, COOKIE] {
        assert!(reply.option(code).is_some(), "{code}");
    }
}

#[test]
fn connections_over_tcp_and_tls_learn_how_long_they_may_be_idle() {
    for transport in TRANSPORTS {
        let told = ask(&www(&[(KEEPALIVE, b"")]), transport).option(KEEPALIVE);
        let expected = matches!(transport, Transport::Tcp | Transport::Tls).then(|| vec![0, 100]);
        assert_eq!(told, expected, "{transport:?}");
    }
}

#[test]
fn replies_on_encrypted_transports_are_padded_to_blocks() {
    for transport in TRANSPORTS {
        for (owner, options) in [
            ("www.example.com", &[][..]),
            ("big.example.com", &[]),
            ("www.example.com", &[(PADDING, &[0; 40][..]), (COOKIE, &[5; 8])]),
            ("example.org", &[]),
        ] {
            let reply = ask(&query(owner, (1, 1), options), transport);
            let padded = reply.option(PADDING);
            assert_eq!(padded.is_some(), transport.is_encrypted(), "{transport:?}");
            if let Some(padding) = padded {
                assert_eq!(reply.octets.len() % 468, 0, "{transport:?}");
                assert!(padding.iter().all(|octet| *octet == 0));
            }
        }
        let mut plain = www(&[]);
        plain.truncate(plain.len() - 11);
        plain[11] = 0;
        let reply = ask(&plain, transport);
        assert_eq!(reply.count(3), 0, "without EDNS there is nothing to pad with");
    }
}

#[test]
fn a_server_tells_its_version_and_name_in_class_ch_only_when_told_to() {
    const CH: u16 = 3;
    let shy = Service::default();
    for (owner, text) in [
        ("version.bind", Some("Hale")),
        ("VERSION.server", Some("Hale")),
        ("id.server", Some("eu-1.example.net")),
        ("hostname.bind", Some("eu-1.example.net")),
        ("authors.bind", None),
        ("www.example.com", None),
    ] {
        let query = query(owner, (16, CH), &[]);
        let reply = ask(&query, Transport::Udp);
        assert_eq!(reply.rcode(), if text.is_some() { 0 } else { 5 }, "{owner}");
        assert_eq!(reply.count(1), u16::from(text.is_some()), "{owner}");
        if let Some(text) = text {
            let mut record =
                vec![0xc0, 12, 0, 16, 0, 3, 0, 0, 0, 0, 0, text.len() as u8 + 1, text.len() as u8];
            record.extend_from_slice(text.as_bytes());
            let found = reply.octets.windows(record.len()).any(|part| part == record);
            assert!(found, "{owner}: TTL 0, class CH, owner the question's name");
        }
        let reply = ask_as(&shy, &query, Transport::Udp, "192.0.2.77", NOW);
        assert_eq!((reply.rcode(), reply.count(1)), (5, 0), "{owner}");
    }
    assert_eq!(ask(&query("version.bind", (1, CH), &[]), Transport::Udp).rcode(), 5, "no other type");
    assert_eq!(ask(&query("version.bind", (16, 1), &[]), Transport::Udp).rcode(), 5, "no zone of ours");
}

#[test]
fn what_is_refused_says_why() {
    for (owner, kind, code) in [
        ("example.org", (1, 1), 20),
        ("www.example.com", (1, 3), 20),
        ("example.com", (252, 1), 21),
        ("version.bind", (1, 3), 21),
    ] {
        let reply = ask(&query(owner, kind, &[]), Transport::Udp);
        assert_eq!((reply.rcode(), reply.option(EXTENDED_ERROR).unwrap()), (5, vec![0, code]), "{owner}");
    }
    let mut update = www(&[]);
    update[2] |= 5 << 3;
    let reply = ask(&update, Transport::Udp);
    assert_eq!((reply.rcode(), reply.option(EXTENDED_ERROR).unwrap()), (5, vec![0, 21]));
}

#[test]
fn connections_vouch_for_their_clients() {
    for transport in TRANSPORTS {
        assert_eq!(ask(&www(&[]), transport).vouched, transport != Transport::Udp, "{transport:?}");
    }
}

#[test]
fn a_reply_that_is_cut_for_its_rate_is_no_longer_than_its_query_but_for_a_cookie() {
    let query = www(&[(NSID, b""), (CLIENT_SUBNET, &[0, 1, 24, 0, 198, 51, 100]), (COOKIE, &[5; 8])]);
    let client = Client { transport: Transport::Udp, address: [192, 0, 2, 77].into(), entropy: 7, now: NOW };
    let mut out = vec![0xaa; MAX_UDP];
    let length = slip(&service(), &query, client, &mut out);
    out.truncate(length);
    let reply = Reply { octets: out, vouched: false };
    assert!(reply.truncated() && reply.count(1) == 0);
    assert_eq!(reply.options().iter().map(|(code, _)| *code).collect::<Vec<_>>(), [COOKIE]);
    let without = www(&[(NSID, b"")]);
    let mut out = vec![0xaa; MAX_UDP];
    assert!(slip(&service(), &without, client, &mut out) <= without.len());
}
