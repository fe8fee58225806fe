//! What went wrong for others with the protocol, each case under its id: the
//! answers of one zone, octets in, octets out. Cases about sockets stand with
//! the sockets (`serve`).

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use haledns::authority::{Prepared, Snapshot};
use haledns::config;
use haledns::engine::{Engine, Event};
use haledns::moment::Moment;
use haledns::wire::{Client, MAX_MESSAGE, MAX_UDP, Secrets, Service, Transport, respond};

const ZONE: &str = r#"
zone: example.com
ttl: 1h
soa: { ttl: 1h, minimum: 30s, serial: 2024010101 }
records:
  '': [ { type: NS, values: [ns1, ns2.example.net.] }, { type: MX, value: { preference: 10, exchange: mail } } ]
  ns1: { type: A, value: 192.0.2.53 }
  mail: { type: A, value: 192.0.2.25 }
  a.b.ent: { type: A, value: 192.0.2.1 }
  '*.wild': { type: A, ttl: 30, value: 192.0.2.30 }
  host.wild: { type: TXT, value: here }
  _sip._tcp.host.wild: { type: SRV, value: { priority: 0, weight: 0, port: 5060, target: mail } }
  f.*.w2: { type: TXT, value: star }
  t.w2: { type: A, value: 192.0.2.31 }
  alias: { type: CNAME, ttl: 60, value: www }
  dangling: { type: CNAME, value: nope }
  away: { type: CNAME, value: www.example.org. }
  sub: { type: NS, value: ns1.sub }
  ns1.sub: { type: A, value: 192.0.2.54 }
  MiXed: { type: A, value: 192.0.2.40 }
  big: { type: A, ttl: 30, values: [BIG] }
  huge: { type: TXT, values: [HUGE] }
load_balancers:
  www: { ttl: 30s, default_pools: [p1, p2], fallback_pool: pf }
  api.eu: { default_pools: [p1], fallback_pool: pf }
pools:
  p1: { endpoints: [ { name: a, address: 192.0.2.11 }, { name: b, address: 192.0.2.12 } ] }
  p2: { endpoints: [ { name: a, address: 198.51.100.21 }, { name: b, address: 198.51.100.22 } ] }
  pf: { endpoints: [ { name: static, address: 203.0.113.31 } ] }
"#;

fn snapshot(change: impl Fn(&str) -> String) -> Arc<Snapshot> {
    let big: Vec<String> = (1..=60).map(|n| format!("192.0.2.{n}")).collect();
    let huge: Vec<String> = (0..40).map(|n| format!("{n:0>180}")).collect();
    let text =
        change(ZONE).replace("BIG", &big.join(", ")).replace("HUGE", &format!("\"{}\"", huge.join("\", \"")));
    let loaded = config::load_texts(vec![(PathBuf::from("zone.yaml"), text.into_bytes())]);
    let loaded = loaded.unwrap_or_else(|report| panic!("{}", report.text(false)));
    let mut engine = Engine::new(1);
    engine.handle(Event::Reload(Prepared::new(loaded.model)), Moment::ZERO);
    Arc::new(engine.snapshot())
}

static SNAPSHOT: LazyLock<Arc<Snapshot>> = LazyLock::new(|| snapshot(str::to_owned));

const A: u16 = 1;
const NS: u16 = 2;
const SOA: u16 = 6;
const TXT: u16 = 16;
const AAAA: u16 = 28;
const OPT: u16 = 41;
const DS: u16 = 43;
const RRSIG: u16 = 46;
const NSEC: u16 = 47;
const DNSKEY: u16 = 48;
const NSEC3: u16 = 50;
const NSEC3PARAM: u16 = 51;
const IXFR: u16 = 251;

/// A query: header, and whatever follows it.
fn message(flags: u16, counts: [u16; 4], rest: &[u8]) -> Vec<u8> {
    let mut octets = vec![0x12, 0x34];
    octets.extend(flags.to_be_bytes());
    octets.extend(counts.iter().flat_map(|count| count.to_be_bytes()));
    octets.extend_from_slice(rest);
    octets
}

fn question(owner: &str, rtype: u16, class: u16) -> Vec<u8> {
    let mut wire = Vec::new();
    for label in owner.split('.').filter(|label| !label.is_empty()) {
        wire.push(label.len() as u8);
        wire.extend_from_slice(label.as_bytes());
    }
    wire.push(0);
    wire.extend([rtype.to_be_bytes(), class.to_be_bytes()].concat());
    wire
}

/// An OPT record with this size, these high octets of its TTL, these options.
fn opt(size: u16, [rcode, version]: [u8; 2], flags: u16, options: &[u8]) -> Vec<u8> {
    let mut record = vec![0, 0, OPT as u8];
    record.extend(size.to_be_bytes());
    record.extend([rcode, version]);
    record.extend(flags.to_be_bytes());
    record.extend((options.len() as u16).to_be_bytes());
    record.extend_from_slice(options);
    record
}

fn with_opt(owner: &str, rtype: u16, record: &[u8]) -> Vec<u8> {
    message(0, [1, 0, 0, 1], &[question(owner, rtype, 1), record.to_vec()].concat())
}

fn plain(owner: &str, rtype: u16) -> Vec<u8> {
    message(0, [1, 0, 0, 0], &question(owner, rtype, 1))
}

/// A record: owner's offset or name left aside.
#[derive(Clone, Debug, PartialEq)]
struct Record {
    rtype: u16,
    ttl: u32,
    rdata: Vec<u8>,
}

#[derive(Debug)]
struct Reply {
    octets: Vec<u8>,
    flags: u16,
    question: Vec<u8>,
    sections: [Vec<Record>; 3],
}

impl Reply {
    fn read(octets: Vec<u8>) -> Reply {
        let number = |at: usize| u16::from_be_bytes([octets[at], octets[at + 1]]);
        let name = |mut at: usize| loop {
            match octets[at] {
                0 => return at + 1,
                length @ 1..=63 => at += 1 + usize::from(length),
                _ => return at + 2,
            }
        };
        let end = if number(4) == 1 { name(12) + 4 } else { 12 };
        let mut at = end;
        let sections = [6, 8, 10].map(|count| {
            let each = (0..number(count)).map(|_| {
                let head = name(at);
                let length = usize::from(number(head + 8));
                let ttl = u32::from(number(head + 4)) << 16 | u32::from(number(head + 6));
                at = head + 10 + length;
                Record { rtype: number(head), ttl, rdata: octets[head + 10..at].to_vec() }
            });
            each.collect()
        });
        assert_eq!(at, octets.len(), "nothing behind the records");
        let (flags, question) = (number(2), octets[12..end].to_vec());
        Reply { octets, flags, question, sections }
    }

    fn rcode(&self) -> u16 {
        let high = self.opt().map_or(0, |opt| (opt.ttl >> 24) as u16);
        high << 4 | self.flags & 15
    }

    fn opcode(&self) -> u16 {
        self.flags >> 11 & 15
    }

    fn authoritative(&self) -> bool {
        self.flags & 0x0400 != 0
    }

    fn truncated(&self) -> bool {
        self.flags & 0x0200 != 0
    }

    /// AD: all of it is authentic.
    fn authentic(&self) -> bool {
        self.flags & 0x0020 != 0
    }

    fn dnssec_ok(&self) -> bool {
        self.opt().is_some_and(|opt| opt.ttl & 0x8000 != 0)
    }

    fn opt(&self) -> Option<&Record> {
        self.sections[2].iter().find(|record| record.rtype == OPT)
    }

    fn answer(&self) -> &[Record] {
        &self.sections[0]
    }

    /// NOERROR or NXDOMAIN with the SOA alone, under this TTL.
    fn assert_negative(&self, rcode: u16, ttl: u32) {
        assert_eq!((self.rcode(), self.authoritative(), self.answer().len()), (rcode, true, 0), "{self:?}");
        let authority: Vec<_> = self.sections[1].iter().map(|record| (record.rtype, record.ttl)).collect();
        assert_eq!(authority, [(SOA, ttl)]);
    }
}

fn reply_of(snapshot: &Snapshot, query: &[u8], transport: Transport) -> Option<Reply> {
    let service = Service { cookies: Some(Secrets::Daily([3; 16])), keepalive: 100, ..Service::default() };
    let address: IpAddr = "192.0.2.77".parse().unwrap();
    let client = Client { transport, address, entropy: 7, now: 1_800_000_000 };
    let mut out = vec![0xaa; if transport.is_datagram() { MAX_UDP } else { MAX_MESSAGE }];
    let replied = respond(snapshot, &service, query, client, &mut out);
    out.truncate(replied.length);
    (!out.is_empty()).then(|| Reply::read(out))
}

fn ask(query: &[u8]) -> Reply {
    reply_of(&SNAPSHOT, query, Transport::Udp).expect("a reply")
}

#[test]
fn a01_an_empty_family_or_all_of_them_is_nodata_never_nxdomain() {
    ask(&plain("www.example.com", AAAA)).assert_negative(0, 30);
    let disabled = snapshot(|zone| zone.replace("{ endpoints:", "{ enabled: false, endpoints:"));
    let ask = |owner, rtype| reply_of(&disabled, &plain(owner, rtype), Transport::Udp).unwrap();
    for rtype in [A, AAAA, TXT] {
        ask("www.example.com", rtype).assert_negative(0, 30);
    }
    ask("x.www.example.com", A).assert_negative(3, 30);
    let two = snapshot(|zone| {
        zone.replace("p1: { endpoints:", "p1: { enabled: false, endpoints:")
            .replace("p2: { endpoints:", "p2: { enabled: false, endpoints:")
    });
    let fallback = reply_of(&two, &plain("www.example.com", A), Transport::Udp).unwrap();
    assert_eq!(fallback.answer()[0].rdata, [203, 0, 113, 31]);
}

#[test]
fn a02_negative_answers_live_as_long_as_the_smaller_of_soa_ttl_and_minimum() {
    ask(&plain("nope.example.com", A)).assert_negative(3, 30);
    ask(&with_opt("www.example.com", AAAA, &opt(1232, [0, 0], 0x8000, &[]))).assert_negative(0, 30);
    assert_eq!(ask(&plain("example.com", SOA)).answer()[0].ttl, 3600);
}

#[test]
fn a03_empty_non_terminals_exist_also_above_load_balancers() {
    for owner in ["b.ent.example.com", "ent.example.com", "eu.example.com"] {
        ask(&plain(owner, A)).assert_negative(0, 30);
    }
    ask(&plain("nx.ent.example.com", A)).assert_negative(3, 30);
}

#[test]
fn a06_an_edns_version_above_0_gets_badvers_with_the_question_and_no_data() {
    for (version, options) in [(1, &[][..]), (100, &[0, 100, 0, 0])] {
        let reply = ask(&with_opt("example.com", SOA, &opt(1232, [0, version], 0, options)));
        assert_eq!((reply.rcode(), reply.question.len(), reply.answer().len()), (16, 17, 0));
        assert!(reply.sections[1].is_empty());
        let opt = reply.opt().unwrap();
        assert_eq!((opt.ttl >> 16 & 0xff, opt.rdata.len()), (0, 0), "version 0, nothing echoed");
    }
}

#[test]
fn a07_what_is_unknown_is_answered_normally_and_not_echoed() {
    let reply = ask(&with_opt("example.com", SOA, &opt(1232, [0, 0], 0, &[0, 100, 0, 2, 1, 2])));
    assert_eq!((reply.rcode(), reply.answer().len(), reply.opt().unwrap().rdata.len()), (0, 1, 0));
    let reply = ask(&with_opt("example.com", SOA, &opt(1232, [0, 0], 0x0040, &[])));
    assert_eq!((reply.rcode(), reply.answer().len(), reply.opt().unwrap().ttl), (0, 1, 0));
    ask(&plain("www.example.com", 65500)).assert_negative(0, 30);
    ask(&plain("nope.example.com", 65500)).assert_negative(3, 30);
    let short_cookie = opt(1232, [0, 0], 0, &[0, 10, 0, 4, 0, 1, 2, 3]);
    assert_eq!(ask(&with_opt("www.example.com", A, &short_cookie)).rcode(), 1);
}

#[test]
fn a08_two_opt_records_or_one_in_the_wrong_place_are_format_errors() {
    let (question, record) = (question("www.example.com", A, 1), opt(1232, [0, 0], 0, &[]));
    let two = message(0, [1, 0, 0, 2], &[&question[..], &record, &record].concat());
    let in_answer = message(0, [1, 1, 0, 0], &[&question[..], &record].concat());
    let in_authority = message(0, [1, 0, 1, 0], &[&question[..], &record].concat());
    for query in [two, in_answer, in_authority] {
        let reply = ask(&query);
        assert_eq!((reply.rcode(), reply.answer().len(), &reply.question), (1, 0, &question));
        assert!(reply.opt().is_some(), "an error keeps EDNS");
    }
}

#[test]
fn a09_unknown_opcodes_and_empty_questions_are_answered_never_dropped() {
    for opcode in [1, 2, 3, 6, 7, 15] {
        let reply = ask(&message(opcode << 11, [0; 4], &[]));
        assert_eq!((reply.rcode(), reply.opcode()), (4, opcode));
    }
    assert_eq!(ask(&message(0, [0; 4], &[])).rcode(), 1);
    let question = question("www.example.com", A, 1);
    let two = message(0, [2, 0, 0, 0], &[&question[..], &question].concat());
    assert_eq!(ask(&two).rcode(), 1);
}

#[test]
fn a10_notify_and_update_are_not_served_as_queries() {
    for opcode in [4, 5] {
        for (owner, rtype) in [("example.com", SOA), ("www.example.com", A), ("www.example.com", AAAA)] {
            let reply = ask(&message(opcode << 11, [1, 0, 0, 0], &question(owner, rtype, 1)));
            assert_eq!((reply.rcode(), reply.opcode(), reply.answer().len()), (5, opcode, 0));
        }
    }
}

#[test]
fn a12_replies_keep_within_the_clients_size_and_ours() {
    let sizes = [
        (None, 512, true),
        (Some(100), 512, true),
        (Some(512), 512, true),
        (Some(1232), 1232, false),
        (Some(65535), 1232, false),
    ];
    for (size, most, truncated) in sizes {
        let query = |owner, rtype| match size {
            None => plain(owner, rtype),
            Some(size) => with_opt(owner, rtype, &opt(size, [0, 0], 0, &[])),
        };
        let reply = ask(&query("big.example.com", A));
        assert!(reply.octets.len() <= most, "{size:?}: {}", reply.octets.len());
        assert_eq!(
            (reply.truncated(), reply.answer().len()),
            (truncated, if truncated { 0 } else { 60 }),
            "{size:?}"
        );
        let huge = ask(&query("huge.example.com", TXT));
        assert!(huge.truncated() && huge.octets.len() <= most, "beyond our own limit");
        let whole = reply_of(&SNAPSHOT, &query("huge.example.com", TXT), Transport::Tcp).unwrap();
        assert_eq!((whole.truncated(), whole.answer().len()), (false, 40));
    }
}

#[test]
fn a13_a_truncated_reply_keeps_question_and_opt_with_the_client_subnet() {
    let subnet = [0, 8, 0, 7, 0, 1, 24, 0, 198, 51, 100];
    let reply = ask(&with_opt("BiG.example.com", A, &opt(512, [0, 0], 0, &subnet)));
    assert!(reply.truncated() && reply.octets.len() <= 512);
    assert_eq!(reply.question, question("BiG.example.com", A, 1));
    assert_eq!(reply.opt().unwrap().rdata, subnet);
}

#[test]
fn a14_the_questions_case_comes_back_and_stays_out_of_later_replies() {
    for owner in ["WwW.eXaMpLe.CoM", "www.example.com", "mixed.EXAMPLE.com", "X.wIld.example.com"] {
        let reply = ask(&plain(owner, A));
        assert_eq!(reply.question, question(owner, A, 1));
        assert!(reply.rcode() == 0 && !reply.answer().is_empty(), "{owner}");
    }
}

#[test]
fn a17_a_client_subnet_is_echoed_exactly_when_it_was_sent_and_never_else() {
    assert!(ask(&with_opt("www.example.com", A, &opt(1232, [0, 0], 0, &[]))).opt().unwrap().rdata.is_empty());
    let v4 = [0, 8, 0, 7, 0, 1, 24, 0, 198, 51, 100];
    let v6 = [0, 8, 0, 9, 0, 2, 40, 0, 0x20, 0x01, 0x0d, 0xb8, 0x12];
    for subnet in [&v4[..], &v6] {
        for (owner, rtype) in
            [("example.com", SOA), ("www.example.com", A), ("www.example.com", AAAA), ("nope.example.com", A)]
        {
            let reply = ask(&with_opt(owner, rtype, &opt(1232, [0, 0], 0, subnet)));
            assert_eq!(reply.opt().unwrap().rdata, subnet, "{owner}: scope 0, for all clients");
        }
    }
}

#[test]
fn a19_at_and_below_a_cut_is_a_referral_with_glue() {
    for (owner, rtype) in [
        ("sub.example.com", A),
        ("sub.example.com", NS),
        ("ns1.sub.example.com", A),
        ("x.y.sub.example.com", TXT),
    ] {
        let reply = ask(&plain(owner, rtype));
        assert_eq!((reply.rcode(), reply.authoritative(), reply.answer().len()), (0, false, 0), "{owner}");
        assert_eq!(reply.sections[1].iter().map(|record| record.rtype).collect::<Vec<_>>(), [NS]);
        assert_eq!(reply.sections[2], [Record { rtype: A, ttl: 3600, rdata: vec![192, 0, 2, 54] }]);
    }
}

#[test]
fn a20_what_is_not_ours_is_refused_without_a_referral() {
    for (owner, rtype, class) in [
        ("www.example.org", A, 1),
        ("", NS, 1),
        ("com", NS, 1),
        ("badexample.com", A, 1),
        ("www.example.com", A, 3),
    ] {
        let query =
            message(0, [1, 0, 0, 1], &[question(owner, rtype, class), opt(1232, [0, 0], 0, &[])].concat());
        let reply = ask(&query);
        assert_eq!((reply.rcode(), reply.authoritative()), (5, false), "{owner}");
        assert!(reply.answer().is_empty() && reply.sections[1].is_empty() && reply.opt().is_some());
    }
}

/// A query for what has changed in a zone since `serial` (RFC 1995 §3): the
/// client's SOA stands in the authority section.
pub fn incremental(owner: &str, serial: u32) -> Vec<u8> {
    let asked = question(owner, IXFR, 1);
    let rdata = [&[0; 2][..], &serial.to_be_bytes(), &[0; 16]].concat(); // both names are the root
    let mut soa = vec![0xc0, 12];
    soa.extend([SOA.to_be_bytes(), 1_u16.to_be_bytes()].concat());
    soa.extend([&[0; 4][..], &(rdata.len() as u16).to_be_bytes(), &rdata].concat());
    message(0, [1, 0, 1, 1], &[asked, soa, opt(1232, [0, 0], 0, &[])].concat())
}

/// No zone is transferred yet, whatever the client has of it.
#[test]
fn a27_an_incremental_transfer_is_refused_over_udp_and_tcp_as_not_supported() {
    let not_supported = [0, 15, 0, 2, 0, 21];
    for (owner, which) in
        [("example.com", "served"), ("www.example.com", "no apex"), ("example.org", "unknown")]
    {
        for (serial, age) in [(2_023_010_101, "older"), (2_024_010_101, "equal"), (2_034_010_101, "newer")] {
            for transport in [Transport::Udp, Transport::Tcp] {
                let reply = reply_of(&SNAPSHOT, &incremental(owner, serial), transport).expect("a reply");
                let case = format!("{which}, {age}, {transport:?}");
                assert_eq!(
                    (reply.rcode(), reply.authoritative(), reply.truncated()),
                    (5, false, false),
                    "{case}"
                );
                assert_eq!(reply.question, question(owner, IXFR, 1), "{case}");
                assert!(
                    reply.answer().is_empty() && reply.sections[1].is_empty(),
                    "{case}: no part of a zone"
                );
                assert_eq!(reply.opt().unwrap().rdata, not_supported, "{case}");
            }
        }
    }
}

/// Nothing is signed yet, so nothing can have expired.
#[test]
fn a31_no_answer_holds_a_signature_or_a_proof_that_could_be_stale() {
    let wanting_all = opt(1232, [0, 0], 0x8000, &[]);
    for owner in [
        "example.com",
        "ns1.example.com",
        "www.example.com",
        "api.eu.example.com",
        "x.wild.example.com",
        "alias.example.com",
        "dangling.example.com",
        "ent.example.com",
        "nope.example.com",
        "sub.example.com",
    ] {
        for rtype in [A, NS, SOA, TXT, AAAA, 255] {
            for flags in [0, 0x0020] {
                let rest = [question(owner, rtype, 1), wanting_all.clone()].concat();
                let reply = ask(&message(flags, [1, 0, 0, 1], &rest));
                assert!(!reply.authentic() && reply.dnssec_ok(), "{owner} {rtype}: {reply:?}");
                let proofs = [RRSIG, NSEC, NSEC3];
                let mut records = reply.sections.iter().flatten();
                assert!(records.all(|record| !proofs.contains(&record.rtype)), "{owner} {rtype}: {reply:?}");
            }
        }
    }
    for owner in ["example.com", "www.example.com", "x.wild.example.com", "ns1.example.com"] {
        for rtype in [DS, RRSIG, NSEC, DNSKEY, NSEC3, NSEC3PARAM] {
            ask(&with_opt(owner, rtype, &wanting_all)).assert_negative(0, 30);
        }
    }
    ask(&with_opt("sub.example.com", DS, &wanting_all)).assert_negative(0, 30);
}
