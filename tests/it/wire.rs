//! Replies octet by octet, read back by hickory-proto.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use haledns::authority::{Prepared, Snapshot};
use haledns::config;
use haledns::engine::{Engine, Event};
use haledns::moment::Moment;
use haledns::wire::{Client, MAX_MESSAGE, MAX_UDP, Service, Transport, respond};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use crate::support::allocations;

const ZONES: &str = r#"
zones:
  example.com:
    ttl: 1h
    soa: { mname: ns1, rname: hostmaster, serial: 2024010101, minimum: 30s }
    records:
      '': [ { type: NS, values: [ns1, ns2.example.net.] }, { type: MX, value: { preference: 10, exchange: mail } } ]
      ns1: { type: A, value: 192.0.2.53 }
      mail: { type: A, value: 192.0.2.25 }
      a.b.ent: { type: A, value: 192.0.2.1 }
      '*.wild': { type: A, ttl: 30, value: 192.0.2.30 }
      host.wild: { type: TXT, value: here }
      alias: { type: CNAME, ttl: 60, value: www }
      alias2: { type: CNAME, ttl: 60, value: alias }
      dangling: { type: CNAME, value: nope }
      away: { type: CNAME, value: www.example.org. }
      loop1: { type: CNAME, value: loop2 }
      loop2: { type: CNAME, value: loop1 }
      across: { type: CNAME, value: host.other.test. }
      child: { type: CNAME, value: x.sub }
      sub: { type: NS, values: [ns1.sub, ns2.example.net.] }
      ns1.sub: [ { type: A, value: 192.0.2.54 }, { type: AAAA, value: "2001:db8::54" } ]
      one: { type: NS, value: ns.two }
      two: { type: NS, value: ns.one }
      ns.one: { type: A, value: 192.0.2.61 }
      ns.two: { type: A, value: 192.0.2.62 }
      MiXed: { type: A, value: 192.0.2.40 }
      big: { type: A, ttl: 30, values: [BIG] }
      wide: { type: NS, values: [WIDE] }
      crowd: { type: NS, values: [CROWD, ns.crowd] }
      ns.crowd: { type: A, value: 192.0.2.63 }
      WIDEGLUE
    load_balancers:
      www: { ttl: 20s, default_pools: [two], fallback_pool: two }
      api.eu: { default_pools: [two], fallback_pool: two }
      '*.lb': { default_pools: [two], fallback_pool: two }
      six: { default_pools: [six], fallback_pool: six }
      long: { default_pools: [many], fallback_pool: many }
  deep.below.example.com:
    records: { '': { type: NS, value: ns.example.net. } }
  other.test:
    records: { '': { type: NS, value: ns }, ns: { type: A, value: 192.0.2.60 }, host: { type: A, value: 192.0.2.61 } }
pools:
  two: { endpoints: [ { name: a, address: 192.0.2.11 }, { name: b, address: 192.0.2.12 } ] }
  six: { endpoints: [ { name: a, address: "2001:db8::11" } ] }
  many: { max_answers: 64, endpoints: [MANY] }
"#;

static SNAPSHOT: LazyLock<Arc<Snapshot>> = LazyLock::new(|| {
    let list = |each: &dyn Fn(u32) -> String, count| (1..=count).map(each).collect::<Vec<_>>().join(", ");
    let text = ZONES
        .replace("BIG", &list(&|n| format!("192.0.2.{n}"), 60))
        .replace("CROWD", "ns1.wide, ns2.wide, ns3.wide, ns4.wide, ns5.wide, ns6.wide, ns7.wide, ns8.wide")
        .replace("MANY", &list(&|n| format!("{{ name: e{n}, address: 198.51.100.{n} }}"), 64))
        .replace("WIDEGLUE", &(1..=20).map(|n| {
            format!("ns{n}.wide: [ {{ type: A, value: 192.0.2.{n} }}, {{ type: AAAA, value: \"2001:db8::{n}\" }} ]\n      ")
        }).collect::<String>())
        .replace("WIDE", &list(&|n| format!("ns{n}.wide"), 20));
    Arc::new(snapshot_of(&text))
});

fn snapshot_of(text: &str) -> Snapshot {
    let loaded = config::load_texts(vec![(PathBuf::from("zones.yaml"), text.as_bytes().to_vec())]);
    let loaded = loaded.unwrap_or_else(|report| panic!("{}", report.text(false)));
    let mut engine = Engine::new(1);
    engine.handle(Event::Reload(Prepared::new(loaded.model)), Moment::ZERO);
    engine.snapshot()
}

#[test]
fn a_zone_that_comes_back_goes_on_with_its_serial() {
    let zone = |name: &str| {
        format!(
            "  {name}:\n    soa: {{ serial: 100 }}\n    records: {{ '': {{ type: NS, value: ns.example.net. }} }}\n"
        )
    };
    let both = format!("zones:\n{}{}", zone("a.test"), zone("b.test"));
    let edited = both.replacen("ns.example.net.", "ns2.example.net.", 1);
    let gone = format!("zones:\n{}", zone("b.test"));
    let now = Moment::from_start(std::time::Duration::from_secs(1_700_000_000));
    let mut engine = Engine::new(1);
    let mut serial = |text: &str| {
        let loaded =
            config::load_texts(vec![(PathBuf::from("zones.yaml"), text.as_bytes().to_vec())]).unwrap();
        engine.handle(Event::Reload(Prepared::new(loaded.model)), now);
        engine.snapshot().serials[0]
    };
    assert_eq!(serial(&both), 100);
    assert_eq!(serial(&edited), 1_700_000_000);
    assert_eq!(serial(&gone), 100, "that of b.test");
    assert!(serial(&both) > 1_700_000_000, "secondaries of a.test would not look at 100 again");
}

fn client(transport: Transport, entropy: u64) -> Client {
    Client { transport, address: Ipv4Addr::new(192, 0, 2, 77).into(), entropy, now: 1_800_000_000 }
}

/// The reply's octets; empty: silence.
fn raw(query: &[u8], transport: Transport) -> Vec<u8> {
    let mut out = vec![0xaa; if transport == Transport::Udp { MAX_UDP } else { MAX_MESSAGE }];
    let length = respond(&SNAPSHOT, &Service::default(), query, client(transport, 7), &mut out).length;
    out.truncate(length);
    out
}

fn query(name: &str, rtype: RecordType) -> Message {
    let mut message = Message::new(0x1234, MessageType::Query, OpCode::Query);
    let mut name = Name::from_ascii(name).unwrap();
    name.set_fqdn(true);
    message.add_query(Query::query(name, rtype));
    message
}

fn edns(message: &mut Message, size: u16) -> &mut Edns {
    let edns = message.edns.get_or_insert_with(Edns::new);
    edns.set_max_payload(size);
    edns
}

fn read(reply: &[u8]) -> Message {
    Message::from_vec(reply).unwrap_or_else(|error| panic!("{error}: {reply:02x?}"))
}

/// The reply over UDP to a query without EDNS.
fn ask(name: &str, rtype: RecordType) -> Message {
    read(&raw(&query(name, rtype).to_vec().unwrap(), Transport::Udp))
}

fn over_tcp(name: &str, rtype: RecordType) -> Message {
    read(&raw(&query(name, rtype).to_vec().unwrap(), Transport::Tcp))
}

/// Records as `name ttl type data`.
fn lines(records: &[Record]) -> Vec<String> {
    let mut lines: Vec<String> = (records.iter())
        .map(|record| format!("{} {} {} {}", record.name, record.ttl, record.record_type(), record.data))
        .collect();
    lines.sort();
    lines
}

fn soa_ttl(message: &Message) -> Option<u32> {
    let mut soas = message.authorities.iter().filter(|record| matches!(record.data, RData::SOA(_)));
    let soa = soas.next()?;
    assert_eq!(soa.name.to_string().to_lowercase(), "example.com.");
    Some(soa.ttl)
}

#[track_caller]
fn assert_answer(message: &Message, answer: &[&str]) {
    assert_eq!(message.metadata.response_code, ResponseCode::NoError);
    assert!(message.metadata.authoritative);
    assert_eq!(lines(&message.answers), answer);
    assert_eq!(message.authorities.len() + message.additionals.len(), 0);
}

#[track_caller]
fn assert_negative(message: &Message, rcode: ResponseCode, ttl: u32) {
    assert_eq!(message.metadata.response_code, rcode);
    assert!(message.metadata.authoritative);
    assert_eq!(lines(&message.answers), [""; 0]);
    assert_eq!(soa_ttl(message), Some(ttl));
}

const WWW: [&str; 2] = ["www.example.com. 20 A 192.0.2.11", "www.example.com. 20 A 192.0.2.12"];

#[test]
fn records_are_answered_as_they_stand() {
    assert_answer(&ask("mail.example.com", RecordType::A), &["mail.example.com. 3600 A 192.0.2.25"]);
    assert_answer(&ask("example.com", RecordType::MX), &["example.com. 3600 MX 10 mail.example.com."]);
    assert_answer(&ask("host.wild.example.com", RecordType::TXT), &["host.wild.example.com. 3600 TXT here"]);
    let apex = ["example.com. 3600 NS ns1.example.com.", "example.com. 3600 NS ns2.example.net."];
    assert_answer(&ask("example.com", RecordType::NS), &apex);
    let soa = "example.com. 3600 SOA ns1.example.com. hostmaster.example.com. 2024010101 3600 600 604800 30";
    assert_answer(&ask("example.com", RecordType::SOA), &[soa]);
}

#[test]
fn a_load_balancer_answers_with_its_own_ttl() {
    assert_answer(&ask("www.example.com", RecordType::A), &WWW);
    assert_answer(&ask("six.example.com", RecordType::AAAA), &["six.example.com. 30 AAAA 2001:db8::11"]);
}

#[test]
fn a_name_that_exists_is_never_nxdomain_and_negative_ttls_are_short() {
    // min(SOA TTL 3600, MINIMUM 30, the load balancer's 20)
    assert_negative(&ask("www.example.com", RecordType::AAAA), ResponseCode::NoError, 20);
    assert_negative(&ask("www.example.com", RecordType::TXT), ResponseCode::NoError, 20);
    assert_negative(&ask("six.example.com", RecordType::A), ResponseCode::NoError, 30);
    assert_negative(&ask("mail.example.com", RecordType::AAAA), ResponseCode::NoError, 30);
    assert_negative(&ask("mail.example.com", RecordType::Unknown(65500)), ResponseCode::NoError, 30);
    assert_negative(&ask("nope.example.com", RecordType::A), ResponseCode::NXDomain, 30);
    assert_negative(&ask("x.www.example.com", RecordType::A), ResponseCode::NXDomain, 30);
}

#[test]
fn empty_non_terminals_are_nodata_also_those_above_load_balancers() {
    for name in
        ["ent.example.com", "b.ent.example.com", "eu.example.com", "lb.example.com", "wild.example.com"]
    {
        assert_negative(&ask(name, RecordType::A), ResponseCode::NoError, 30);
    }
    assert_negative(&ask("nx.ent.example.com", RecordType::A), ResponseCode::NXDomain, 30);
}

#[test]
fn what_lies_between_a_zone_and_one_nested_in_it_exists() {
    assert_negative(&ask("below.example.com", RecordType::A), ResponseCode::NoError, 30);
    assert_negative(&ask("nx.below.example.com", RecordType::A), ResponseCode::NXDomain, 30);
    assert_eq!(ask("deep.below.example.com", RecordType::NS).answers.len(), 1);
}

#[test]
fn wildcards_cover_what_does_not_exist_below_their_parent() {
    let at = |name: &str| format!("{name} 30 A 192.0.2.30");
    assert_answer(&ask("x.wild.example.com", RecordType::A), &[&at("x.wild.example.com.")]);
    assert_answer(&ask("y.x.wild.example.com", RecordType::A), &[&at("y.x.wild.example.com.")]);
    assert_answer(&ask("*.wild.example.com", RecordType::A), &[&at("*.wild.example.com.")]);
    assert_negative(&ask("x.wild.example.com", RecordType::TXT), ResponseCode::NoError, 30);
    // an existing name blocks the wildcard, and so does everything below it
    assert_negative(&ask("host.wild.example.com", RecordType::A), ResponseCode::NoError, 30);
    assert_negative(&ask("x.host.wild.example.com", RecordType::A), ResponseCode::NXDomain, 30);
    let balanced = ["x.lb.example.com. 30 A 192.0.2.11", "x.lb.example.com. 30 A 192.0.2.12"];
    assert_answer(&ask("x.lb.example.com", RecordType::A), &balanced);
}

#[test]
fn aliases_are_followed_within_our_zones_each_with_its_ttl() {
    let alias = "alias.example.com. 60 CNAME www.example.com.";
    assert_answer(&ask("alias.example.com", RecordType::A), &[alias, WWW[0], WWW[1]]);
    let alias2 = "alias2.example.com. 60 CNAME alias.example.com.";
    assert_answer(&ask("alias2.example.com", RecordType::A), &[alias, alias2, WWW[0], WWW[1]]);
    assert_answer(&ask("alias.example.com", RecordType::CNAME), &[alias]);
    assert_answer(
        &ask("away.example.com", RecordType::A),
        &["away.example.com. 3600 CNAME www.example.org."],
    );
    assert_answer(
        &ask("across.example.com", RecordType::A),
        &["across.example.com. 3600 CNAME host.other.test.", "host.other.test. 3600 A 192.0.2.61"],
    );
    // NODATA and NXDOMAIN are those of the last name (RFC 2308 §2.1)
    let nodata = ask("alias.example.com", RecordType::AAAA);
    assert_eq!((nodata.metadata.response_code, nodata.answers.len()), (ResponseCode::NoError, 1));
    assert_eq!(soa_ttl(&nodata), Some(20));
    let dangling = ask("dangling.example.com", RecordType::A);
    assert_eq!((dangling.metadata.response_code, dangling.answers.len()), (ResponseCode::NXDomain, 1));
    assert_eq!(soa_ttl(&dangling), Some(30));
    let into_cut = ask("child.example.com", RecordType::A);
    assert_eq!((into_cut.metadata.response_code, into_cut.answers.len()), (ResponseCode::NoError, 1));
}

#[test]
fn a_loop_of_aliases_ends() {
    let reply = ask("loop1.example.com", RecordType::A);
    assert_eq!(reply.metadata.response_code, ResponseCode::NoError);
    let circle = [
        "loop1.example.com. 3600 CNAME loop2.example.com.",
        "loop2.example.com. 3600 CNAME loop1.example.com.",
    ];
    assert_eq!(lines(&reply.answers), circle, "each once");
}

#[test]
fn below_a_zone_cut_clients_are_referred_with_glue() {
    for name in ["sub.example.com", "x.sub.example.com", "ns1.sub.example.com"] {
        let reply = ask(name, RecordType::A);
        assert_eq!(reply.metadata.response_code, ResponseCode::NoError);
        assert!(!reply.metadata.authoritative && reply.answers.is_empty(), "{name}");
        let servers =
            ["sub.example.com. 3600 NS ns1.sub.example.com.", "sub.example.com. 3600 NS ns2.example.net."];
        assert_eq!(lines(&reply.authorities), servers, "{name}");
        let glue = ["ns1.sub.example.com. 3600 A 192.0.2.54", "ns1.sub.example.com. 3600 AAAA 2001:db8::54"];
        assert_eq!(lines(&reply.additionals), glue, "{name}");
    }
    // DS belongs to the parent's side of the cut (RFC 4035 §3.1.4.1)
    assert_negative(&ask("sub.example.com", RecordType::DS), ResponseCode::NoError, 30);
}

#[test]
fn zones_that_name_each_others_servers_can_be_reached() {
    let reply = ask("www.one.example.com", RecordType::A);
    assert_eq!(lines(&reply.authorities), ["one.example.com. 3600 NS ns.two.example.com."]);
    assert_eq!(lines(&reply.additionals), ["ns.two.example.com. 3600 A 192.0.2.62"]);
}

#[test]
fn glue_that_only_helps_leaves_room_for_what_is_needed() {
    let reply = ask("x.crowd.example.com", RecordType::A);
    assert!(!reply.metadata.truncation);
    assert!(lines(&reply.additionals).contains(&"ns.crowd.example.com. 3600 A 192.0.2.63".to_owned()));
    assert_eq!(over_tcp("x.crowd.example.com", RecordType::A).additionals.len(), 17);
}

#[test]
fn glue_that_does_not_fit_sets_tc_and_leaves_the_referral() {
    let reply = ask("x.wide.example.com", RecordType::A);
    assert!(reply.metadata.truncation);
    let whole = over_tcp("x.wide.example.com", RecordType::A);
    assert!(!whole.metadata.truncation);
    assert_eq!((whole.authorities.len(), whole.additionals.len()), (20, 40));
}

#[test]
fn any_gets_one_rrset() {
    assert_answer(&ask("www.example.com", RecordType::ANY), &WWW);
    assert_answer(&ask("six.example.com", RecordType::ANY), &["six.example.com. 30 AAAA 2001:db8::11"]);
    let host = ask("host.wild.example.com", RecordType::ANY);
    assert_answer(&host, &["host.wild.example.com. 3600 TXT here"]);
    assert_negative(&ask("ent.example.com", RecordType::ANY), ResponseCode::NoError, 30);
    assert_negative(&ask("nope.example.com", RecordType::ANY), ResponseCode::NXDomain, 30);
}

#[test]
fn names_out_of_our_zones_and_other_classes_are_refused() {
    for name in ["www.example.org", "com", ".", "badexample.com"] {
        let mut message = query(name, RecordType::A);
        edns(&mut message, 1232);
        let reply = read(&raw(&message.to_vec().unwrap(), Transport::Udp));
        assert_eq!(reply.metadata.response_code, ResponseCode::Refused, "{name}");
        assert!(!reply.metadata.authoritative, "{name}");
        assert_eq!(reply.answers.len() + reply.authorities.len() + reply.additionals.len(), 0, "{name}");
        let octets = raw(&message.to_vec().unwrap(), Transport::Udp);
        assert!(octets.ends_with(&[0, 15, 0, 2, 0, 20]), "EDE 20, Not Authoritative");
    }
    let mut chaos = query("www.example.com", RecordType::A).to_vec().unwrap();
    let class = chaos.len() - 1;
    chaos[class] = 3;
    assert_eq!(read(&raw(&chaos, Transport::Udp)).metadata.response_code, ResponseCode::Refused);
    for rtype in [RecordType::AXFR, RecordType::IXFR] {
        assert_eq!(over_tcp("example.com", rtype).metadata.response_code, ResponseCode::Refused);
    }
}

#[test]
fn the_questions_case_comes_back_and_does_not_matter() {
    let query = query("wWw.eXaMpLe.CoM", RecordType::A).to_vec().unwrap();
    let reply = raw(&query, Transport::Udp);
    assert_eq!(reply[12..query.len()], query[12..], "octet by octet");
    assert_eq!(read(&reply).answers.len(), 2);
    assert_answer(&ask("mixed.example.com", RecordType::A), &["mixed.example.com. 3600 A 192.0.2.40"]);
    assert_answer(&ask("www.example.com", RecordType::A), &WWW);
}

#[test]
fn replies_over_udp_keep_within_the_clients_size_and_ours() {
    // 60 A records take 12 + 21 + 60 · 16 octets
    for (size, truncated) in
        [(None, true), (Some(100), true), (Some(512), true), (Some(1232), false), (Some(65535), false)]
    {
        let mut message = query("big.example.com", RecordType::A);
        if let Some(size) = size {
            edns(&mut message, size);
        }
        let octets = raw(&message.to_vec().unwrap(), Transport::Udp);
        let limit = usize::from(size.unwrap_or(512)).clamp(512, MAX_UDP);
        assert!(octets.len() <= limit, "{size:?}: {}", octets.len());
        let reply = read(&octets);
        assert_eq!(reply.metadata.truncation, truncated, "{size:?}");
        assert_eq!(reply.answers.len(), if truncated { 0 } else { 60 }, "{size:?}");
        assert_eq!(reply.queries.len(), 1, "{size:?}");
        assert_eq!(reply.edns.is_some(), size.is_some(), "{size:?}");
    }
    assert_eq!(over_tcp("big.example.com", RecordType::A).answers.len(), 60);
    let balanced = ask("long.example.com", RecordType::A);
    assert!(balanced.metadata.truncation && balanced.answers.is_empty());
    assert_eq!(over_tcp("long.example.com", RecordType::A).answers.len(), 64);
}

#[test]
fn flags_are_those_of_an_authority() {
    let mut message = query("www.example.com", RecordType::A);
    message.metadata.recursion_desired = true;
    message.metadata.checking_disabled = true;
    message.metadata.authentic_data = true;
    edns(&mut message, 1232).set_dnssec_ok(true);
    let reply = read(&raw(&message.to_vec().unwrap(), Transport::Udp));
    let flags = &reply.metadata;
    assert_eq!(flags.id, 0x1234);
    assert!(flags.recursion_desired && flags.checking_disabled && flags.authoritative);
    assert!(!flags.recursion_available && !flags.authentic_data && !flags.truncation);
    let ours = reply.edns.unwrap();
    assert!(ours.flags().dnssec_ok);
    assert_eq!((ours.version(), ours.max_payload()), (0, 1232));
}

/// Octets from hexadecimal digits, blanks left out.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|c| c.is_ascii_hexdigit()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

const QUESTION: &str = "03777777 076578616d706c65 03636f6d 00 0001 0001";
const OPT: &str = "00 0029 04d0 00000000 0000";

#[test]
fn what_is_no_well_formed_query_gets_its_rcode_or_silence() {
    for (what, octets, rcode) in [
        ("empty", "".to_owned(), None),
        ("eleven octets", "1234 0000 0001 0000 0000 00".to_owned(), None),
        ("a response", format!("1234 8000 0001 0000 0000 0000 {QUESTION}"), None),
        ("no question", "1234 0000 0000 0000 0000 0000".to_owned(), Some(1)),
        ("no question, with OPT", format!("1234 0000 0000 0000 0000 0001 {OPT}"), Some(1)),
        ("two questions", format!("1234 0000 0002 0000 0000 0000 {QUESTION} {QUESTION}"), Some(1)),
        ("a cut question", "1234 0000 0001 0000 0000 0000 0377".to_owned(), Some(1)),
        ("a pointer in the question", "1234 0000 0001 0000 0000 0000 c00c 0001 0001".to_owned(), Some(1)),
        ("an old label type", "1234 0000 0001 0000 0000 0000 4041 00 0001 0001".to_owned(), Some(1)),
        ("octets after the end", format!("1234 0000 0001 0000 0000 0000 {QUESTION} 00"), Some(1)),
        ("a record that is missing", format!("1234 0000 0001 0000 0000 0001 {QUESTION}"), Some(1)),
        ("two OPT", format!("1234 0000 0001 0000 0000 0002 {QUESTION} {OPT} {OPT}"), Some(1)),
        ("OPT in the answer section", format!("1234 0000 0001 0001 0000 0000 {QUESTION} {OPT}"), Some(1)),
        (
            "OPT that isn't the root's",
            format!("1234 0000 0001 0000 0000 0001 {QUESTION} 0161 {OPT}"),
            Some(1),
        ),
        (
            "an option that is cut",
            format!("1234 0000 0001 0000 0000 0001 {QUESTION} 00 0029 04d0 00000000 0004 0064 0001"),
            Some(1),
        ),
        ("OPT as the type asked", "1234 0000 0001 0000 0000 0000 00 0029 0001".to_owned(), Some(1)),
        ("IQUERY", format!("1234 0800 0001 0000 0000 0000 {QUESTION}"), Some(4)),
        ("STATUS without a question", "1234 1000 0000 0000 0000 0000".to_owned(), Some(4)),
        ("opcode 15", "1234 7800 0000 0000 0000 0000".to_owned(), Some(4)),
        ("NOTIFY", format!("1234 2000 0001 0000 0000 0000 {QUESTION}"), Some(5)),
        ("UPDATE", format!("1234 2800 0001 0000 0000 0000 {QUESTION}"), Some(5)),
        ("a query in order", format!("1234 0000 0001 0000 0000 0001 {QUESTION} {OPT}"), Some(0)),
        (
            "an unknown option",
            format!("1234 0000 0001 0000 0000 0001 {QUESTION} 00 0029 04d0 00000000 0005 0064 0001 ff"),
            Some(0),
        ),
        (
            "an unknown flag",
            format!("1234 0000 0001 0000 0000 0001 {QUESTION} 00 0029 04d0 00000040 0000"),
            Some(0),
        ),
        (
            "a short cookie",
            format!("1234 0000 0001 0000 0000 0001 {QUESTION} 00 0029 04d0 00000000 0008 000a 0004 00112233"),
            Some(0),
        ),
        (
            "version 1",
            format!("1234 0000 0001 0000 0000 0001 {QUESTION} 00 0029 04d0 00010000 0000"),
            Some(16),
        ),
    ] {
        let query = hex(&octets);
        let reply = raw(&query, Transport::Udp);
        let Some(rcode) = rcode else {
            assert!(reply.is_empty(), "{what}: {reply:02x?}");
            continue;
        };
        let message = read(&reply);
        let got = u16::from(message.metadata.response_code);
        assert_eq!(got, rcode, "{what}");
        assert_eq!((reply[0], reply[1]), (0x12, 0x34), "{what}: id");
        assert_eq!(reply[2] & 0x78, query[2] & 0x78, "{what}: opcode");
        assert_eq!(reply[2] & 0x80, 0x80, "{what}: QR");
        if rcode != 0 {
            assert!(message.answers.is_empty() && message.authorities.is_empty(), "{what}");
        }
        if octets.contains("0029 04d0") {
            let opt = message.edns.as_ref().unwrap_or_else(|| panic!("{what}: no OPT"));
            assert_eq!((opt.version(), message.queries.len()), (0, usize::from(query[5])), "{what}");
            assert!(opt.options().as_ref().is_empty(), "{what}: nothing unknown is echoed");
        }
    }
}

#[test]
fn the_longest_names_are_looked_up() {
    // 253 octets of text, 255 on the wire
    let labels = ["a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(49), "example.com".into()];
    let name = labels.join(".");
    assert_eq!(name.len(), 253);
    assert_negative(&ask(&name, RecordType::A), ResponseCode::NXDomain, 30);
    let many = "a.".repeat(121) + "example.com";
    assert_negative(&ask(&many, RecordType::A), ResponseCode::NXDomain, 30);
}

#[test]
fn the_query_path_allocates_nothing() {
    let names = [
        ("www.example.com", RecordType::A),
        ("www.example.com", RecordType::AAAA),
        ("long.example.com", RecordType::A),
        ("alias2.example.com", RecordType::A),
        ("mail.example.com", RecordType::A),
        ("nope.example.com", RecordType::A),
        ("x.y.wild.example.com", RecordType::A),
        ("x.sub.example.com", RecordType::A),
        ("example.org", RecordType::A),
        ("example.com", RecordType::SOA),
    ];
    let mut queries: Vec<Vec<u8>> = Vec::new();
    for (name, rtype) in names {
        let mut message = query(name, rtype);
        queries.push(message.to_vec().unwrap());
        edns(&mut message, 1232);
        queries.push(message.to_vec().unwrap());
    }
    queries.push(vec![0; 5]);
    let mut out = vec![0; MAX_MESSAGE];
    let snapshot = Arc::clone(&SNAPSHOT);
    assert!(allocations::during(|| drop(std::hint::black_box(vec![1]))) > 0, "the counter counts");
    for transport in [Transport::Udp, Transport::Tcp] {
        let count = allocations::during(|| {
            for entropy in 0..1000 {
                for query in &queries {
                    respond(&snapshot, &Service::default(), query, client(transport, entropy), &mut out);
                }
            }
        });
        assert_eq!(count, 0, "{transport:?}");
    }
}

/// Numbers that look like chance and are the same in every run.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = haledns::health::scramble(self.0);
        (self.0 % bound.max(1) as u64) as usize
    }
}

#[test]
fn a_million_mutated_queries_get_a_well_formed_reply_or_none() {
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for (name, rtype) in [
        ("www.example.com", RecordType::A),
        ("big.example.com", RecordType::A),
        ("alias2.example.com", RecordType::A),
        ("x.wide.example.com", RecordType::AAAA),
        ("nope.wild.example.com", RecordType::TXT),
        ("example.com", RecordType::ANY),
    ] {
        let mut message = query(name, rtype);
        seeds.push(message.to_vec().unwrap());
        edns(&mut message, 1400).set_dnssec_ok(true);
        seeds.push(message.to_vec().unwrap());
    }
    let mut chance = Seeded(2024);
    let mut out = vec![0; MAX_MESSAGE];
    let (mut replies, mut silences, mut answers) = (0, 0, 0);
    for round in 0..1_000_000u64 {
        let mut octets = seeds[chance.below(seeds.len())].clone();
        for _ in 0..chance.below(4) {
            let at = chance.below(octets.len());
            match chance.below(6) {
                0 if !octets.is_empty() => octets[at] = chance.below(256) as u8,
                1 if !octets.is_empty() => octets[at] ^= 1 << chance.below(8),
                2 => octets.truncate(at),
                3 => octets.insert(at, chance.below(256) as u8),
                4 => octets.extend_from_within(at..),
                _ if octets.len() > 12 => octets[4 + chance.below(8)] = chance.below(3) as u8,
                _ => {}
            }
        }
        let transport = if round % 4 == 0 { Transport::Tcp } else { Transport::Udp };
        let replied = respond(&SNAPSHOT, &Service::default(), &octets, client(transport, round), &mut out);
        let length = replied.length;
        if length == 0 {
            let silent = octets.len() < 12 || octets[2] & 0x80 != 0;
            assert!(silent, "round {round}: no reply to {octets:02x?}");
            silences += 1;
            continue;
        }
        replies += 1;
        assert!(octets[2] & 0x80 == 0 && out[2] & 0x80 != 0, "round {round}: a reply answers a query");
        assert!(transport == Transport::Tcp || length <= MAX_UDP, "round {round}: {length} octets");
        assert_eq!(out[..2], octets[..2], "round {round}");
        let parsed = Message::from_vec(&out[..length]);
        let parsed = parsed.unwrap_or_else(|error| panic!("round {round}: {error}: {octets:02x?}"));
        answers += u32::from(!parsed.answers.is_empty());
        let udp_size = parsed.edns.as_ref().map_or(512, |_| MAX_UDP);
        assert!(transport == Transport::Tcp || length <= udp_size, "round {round}: {length} octets");
    }
    let counts = format!("{replies} replies, {answers} with answers, {silences} silences");
    assert!(replies > 100_000 && answers > 50_000 && silences > 10_000, "{counts}");
    println!("{counts}");
}
