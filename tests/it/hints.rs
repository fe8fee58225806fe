//! Hints of addresses in HTTPS records that follow a load balancer
//! (RFC 9460 §7.3).

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use haledns::authority::{Prepared, Snapshot};
use haledns::config;
use haledns::engine::{Engine, Event};
use haledns::model::{Name, RecordSet};
use haledns::moment::Moment;
use haledns::wire::{Client, MAX_UDP, Service, Transport, respond};

use crate::support::message;

const HTTPS: u16 = 65;

const ZONE: &str = "
zone: example.com
records: { '': { type: NS, value: ns1.example.net. } }
load_balancers:
  www: { ttl: 20s, default_pools: [p1, p2], fallback_pool: p2 }
  six: { default_pools: [six], fallback_pool: six }
pools:
  p1: { ENABLED endpoints: [ { name: a, address: 192.0.2.11 }, { name: b, address: 192.0.2.12 }, { name: c, address: \"2001:db8::11\" } ] }
  p2: { endpoints: [ { name: a, address: 198.51.100.21 } ] }
  six: { endpoints: [ { name: a, address: \"2001:db8::6\" } ] }
";

/// Priority 1, the name itself, `alpn=h2`, and both hints left open.
const OPEN: &[u8] = &[0, 1, 0, 0, 1, 0, 3, 2, b'h', b'2', 0, 4, 0, 0, 0, 6, 0, 0];

fn snapshot(text: &str) -> Snapshot {
    let files = vec![(PathBuf::from("zone.yaml"), text.as_bytes().to_vec())];
    let mut model = (*config::load_texts(files).unwrap().model).clone();
    for owner in ["www.example.com", "six.example.com", "alone.example.com"] {
        let owner: Name = owner.parse().unwrap();
        let rdata = vec![OPEN.into(), [&[0, 2], &OPEN[2..]].concat().into()];
        model.zones[0].records.push(RecordSet {
            owner,
            rtype: HTTPS,
            ttl: 300,
            rdata,
            depends_on: Vec::new(),
        });
    }
    let mut engine = Engine::new(1);
    engine.handle(Event::Reload(Prepared::new(Arc::new(model))), Moment::ZERO);
    engine.snapshot()
}

/// The lines of the answer under some chance.
fn ask(snapshot: &Snapshot, owner: &str, entropy: u64) -> Vec<String> {
    let mut out = [0; MAX_UDP];
    let client = Client { transport: Transport::Udp, address: Ipv4Addr::LOCALHOST.into(), entropy, now: 0 };
    let replied = respond(snapshot, &Service::default(), &message::query(owner, "HTTPS"), client, &mut out);
    message::read(&out[..replied.length]).answer
}

#[test]
fn open_hints_are_the_addresses_that_the_load_balancer_answers_with() {
    let healthy = snapshot(&ZONE.replace("ENABLED", ""));
    for entropy in 0..20 {
        let lines = ask(&healthy, "www.example.com", entropy);
        assert_eq!(lines.len(), 2);
        for line in lines {
            assert!(line.starts_with("www.example.com. 20 HTTPS "), "the smaller TTL: {line}");
            let v4 = ["ipv4hint=192.0.2.11,192.0.2.12", "ipv4hint=192.0.2.12,192.0.2.11"];
            assert!(v4.iter().any(|hint| line.contains(hint)), "{line}");
            assert!(line.contains("ipv6hint=2001:db8::11") && line.contains("alpn="), "{line}");
        }
    }
    let failed = snapshot(&ZONE.replace("ENABLED", "enabled: false,"));
    let lines = ask(&failed, "www.example.com", 7);
    assert!(lines[0].contains("ipv4hint=198.51.100.21") && !lines[0].contains("ipv6hint"), "{lines:?}");
}

#[test]
fn a_hint_without_addresses_is_left_out() {
    let snapshot = snapshot(&ZONE.replace("ENABLED", ""));
    let lines = ask(&snapshot, "six.example.com", 7);
    assert!(!lines[0].contains("ipv4hint") && lines[0].contains("ipv6hint=2001:db8::6"), "{lines:?}");
    let lines = ask(&snapshot, "alone.example.com", 7);
    assert!(lines.len() == 2 && !lines[0].contains("hint"), "no load balancer there: {lines:?}");
    assert!(lines[0].starts_with("alone.example.com. 300 HTTPS "), "{lines:?}");
}
