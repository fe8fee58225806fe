//! What must hold for any octets whatever. The fuzzing targets look for octets
//! for which it doesn't; the tests hold it for the seeds, and for what was found.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use haledns::authority::{Prepared, Snapshot};
use haledns::engine::{Engine, Event};
use haledns::model::Name;
use haledns::moment::Moment;
use haledns::wire::{Client, MAX_MESSAGE, MAX_UDP, Replied, Secrets, Service, Transport, respond};
use haledns::{config, master, rdata};
use hickory_proto::op::Message;

const ZONES: &str = r#"
zones:
  example.com:
    soa: { minimum: 30s, serial: 1 }
    records:
      '': [ { type: NS, values: [ns1, ns2.example.net.] }, { type: MX, value: { preference: 10, exchange: mail } } ]
      ns1: { type: A, value: 192.0.2.53 }
      a.b.ent: { type: A, value: 192.0.2.1 }
      '*.wild': { type: CNAME, value: www }
      alias: { type: CNAME, value: www.old }
      loop: { type: CNAME, value: loop }
      old: { type: DNAME, value: new }
      round: { type: DNAME, value: a.round }
      www.new: { type: A, value: 192.0.2.2 }
      sub: { type: NS, values: [ns1.sub, ns2.sub] }
      ns1.sub: [ { type: A, value: 192.0.2.54 }, { type: AAAA, value: "2001:db8::54" } ]
      txt: { type: TXT, values: [TEXTS] }
    load_balancers:
      www: { default_pools: [all], fallback_pool: one }
      '*.lb': { default_pools: [one, all], steering_policy: random, fallback_pool: one }
  child.example.com:
    records: { '': { type: NS, value: ns.example.net. } }
pools:
  all: { endpoints: [ { name: a, address: 192.0.2.11 }, { name: b, address: 192.0.2.12 }, { name: c, address: "2001:db8::11" } ] }
  one: { endpoints: [ { name: a, address: 192.0.2.13, weight: 0.5 }, { name: b, address: 192.0.2.14 } ] }
"#;

static SNAPSHOT: LazyLock<Snapshot> = LazyLock::new(|| {
    let texts: Vec<String> = (0..40).map(|n| format!("\"{n:0>180}\"")).collect();
    let text = ZONES.replace("TEXTS", &texts.join(", "));
    let files = vec![(PathBuf::from("zones.yaml"), text.into_bytes())];
    let loaded = config::load_texts(files).unwrap_or_else(|report| panic!("{}", report.text(false)));
    snapshot(loaded.model)
});

static SERVICE: LazyLock<Service> = LazyLock::new(|| Service {
    nsid: Some(b"fuzz".as_slice().into()),
    version: Some(b"fuzz".as_slice().into()),
    id: None,
    cookies: Some(Secrets::Daily([5; 16])),
    keepalive: 100,
});

fn snapshot(model: Arc<haledns::model::Model>) -> Snapshot {
    let mut engine = Engine::new(1);
    engine.handle(Event::Reload(Prepared::new(model)), Moment::ZERO);
    engine.snapshot()
}

fn reply(octets: &[u8], transport: Transport) -> Vec<u8> {
    let address: IpAddr = [192, 0, 2, 77].into();
    let client = Client { transport, address, entropy: 7, now: 1_800_000_000 };
    let mut out = vec![0xaa; if transport.is_datagram() { MAX_UDP } else { MAX_MESSAGE }];
    let Replied { length, .. } = respond(&SNAPSHOT, &SERVICE, octets, client, &mut out);
    out.truncate(length);
    out
}

/// A query's first octet says how it comes; what is sent back is well formed,
/// of the size allowed, and the same each time.
pub fn query(octets: &[u8]) {
    let Some((&how, octets)) = octets.split_first() else { return };
    let all = [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Https, Transport::Quic];
    let transport = all[usize::from(how) % all.len()];
    let out = reply(octets, transport);
    assert_eq!(out, reply(octets, transport), "chance is an argument");
    if out.is_empty() {
        assert!(octets.len() < 12 || octets[2] & 0x80 != 0, "only what is no query gets silence");
        return;
    }
    assert!(out[..2] == octets[..2] && out[2] & 0x80 != 0, "a reply under the query's id");
    assert_eq!(out[2] >> 3 & 15, octets[2] >> 3 & 15, "under its opcode");
    assert_eq!((out[3] & 0xe0, out[2] & 1), (0, octets[2] & 1), "RA, Z and AD are clear, RD comes back");
    // a client subnet of no family (RFC 7871 §7.1.2) comes back as it was sent; the library knows none
    let without_family = out.windows(8).any(|octets| octets == [0, 8, 0, 4, 0, 0, 0, 0]);
    let message = match Message::from_vec(&out) {
        Err(_) if without_family => return,
        read => read.expect("a reply is well formed"),
    };
    if let Ok(asked) = Message::from_vec(octets) {
        assert!(message.queries.is_empty() || message.queries == asked.queries);
        let size = match (&asked.edns, transport) {
            (_, Transport::Tcp | Transport::Tls | Transport::Https | Transport::Quic) => MAX_MESSAGE,
            (None, Transport::Udp) => 512,
            (Some(edns), Transport::Udp) => usize::from(edns.max_payload()).clamp(512, MAX_UDP),
        };
        assert!(out.len() <= size, "{} octets where {size} are the most", out.len());
        assert_eq!(message.edns.is_some(), asked.edns.is_some(), "OPT if and only if there was one");
    }
    assert!(transport.is_datagram() || !message.metadata.truncation, "only datagrams are truncated");
}

/// A master file with another one at hand for `$INCLUDE` is read to its end;
/// what it holds is well formed and lies in the zone, what is wrong has a place.
pub fn zone_file(octets: &[u8]) {
    let half = octets.iter().position(|octet| *octet == 0xff).unwrap_or(octets.len());
    let (first, other) = octets.split_at(half);
    let other = other.get(1..).unwrap_or_default();
    let apex: Name = "example.com".parse().expect("a name");
    let zone = master::read(first, &apex, |_| Ok(other.to_vec()));
    for entry in zone.entries.iter().chain(&zone.soa) {
        assert!(entry.owner.is_within(&apex));
        rdata::validate(entry.rtype, &entry.rdata).expect("well-formed data");
    }
    for fault in &zone.faults {
        assert!(fault.at.line > 0 && fault.at.column > 0 && fault.at.end_column >= fault.at.column);
    }
}

/// Two octets for a type, and RDATA: what is well formed can be shown, and what
/// is shown can be read again.
pub fn rdata(octets: &[u8]) {
    let Some((rtype, data)) = octets.split_first_chunk::<2>() else { return };
    let rtype = u16::from_be_bytes(*rtype);
    if rdata::validate(rtype, data).is_err() || !rdata::is_data(rtype) {
        return;
    }
    let shown = rdata::show(rtype, data);
    let words = rdata::words(&shown).expect("what is shown is words");
    let again = rdata::parse(rtype, &words, &Name::root());
    assert_eq!(again.as_deref(), Ok(data), "{shown}");
    assert!(rdata::names(rtype, data).all(|name| name.len() <= 255 && name.last() == Some(&0)));
}

/// A configuration is taken or refused with places; what is taken answers.
pub fn yaml(octets: &[u8]) {
    let path = Path::new("all.yaml").to_owned();
    match config::load_texts(vec![(path, octets.to_vec())]) {
        Ok(loaded) => {
            let snapshot = snapshot(loaded.model);
            assert!(!snapshot.serials.is_empty(), "a configuration has a zone");
        }
        Err(report) => assert!(!report.text(false).is_empty()),
    }
}

/// A header of the PROXY protocol is complete or not, never longer than what
/// was sent, and more octets behind it change nothing.
pub fn proxy(octets: &[u8]) {
    use haledns::serve::proxy::{Read, read};
    let first = read(octets);
    if let Ok(Read::Header { length, .. }) = first {
        assert!(length <= octets.len());
        let longer = [octets, &[0xaa; 7]].concat();
        assert_eq!(read(&longer), first);
    }
    if let Ok(Read::Incomplete { wanted }) = first {
        assert!(wanted > octets.len());
    }
}
