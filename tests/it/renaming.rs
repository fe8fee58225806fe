//! DNAME (RFC 6672), and DS beside a zone of our own below (RFC 4035 §3.1.4.1).

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use haledns::authority::{Prepared, Snapshot};
use haledns::config;
use haledns::engine::{Engine, Event};
use haledns::model::{Name, RecordSet};
use haledns::moment::Moment;
use haledns::wire::{Client, MAX_UDP, Service, Transport, respond};

use crate::support::message::{self, Message};

const ZONES: &str = "
zones:
  example.com:
    soa: { minimum: 30s }
    records:
      '': { type: NS, value: ns1.example.net. }
      www.new: { type: A, value: 192.0.2.1 }
      alias: { type: CNAME, value: www.old }
      into: { type: CNAME, value: www.far }
      '*.wild': { type: CNAME, value: www.old }
      old: { type: TXT, value: here }
  child.example.com:
    records: { '': { type: NS, value: ns1.example.net. }, www: { type: A, value: 192.0.2.2 } }
  grand.child.example.com:
    records: { '': { type: NS, value: ns1.example.net. } }
";

static SNAPSHOT: LazyLock<Arc<Snapshot>> = LazyLock::new(|| {
    let files = vec![(PathBuf::from("zones.yaml"), ZONES.as_bytes().to_vec())];
    let mut model = (*config::load_texts(files).unwrap().model).clone();
    let zone = model.zones.iter_mut().find(|zone| zone.apex == name("example.com")).unwrap();
    let mut add = |owner: &str, rtype, ttl, rdata: &[u8]| {
        zone.records.push(RecordSet {
            owner: name(owner),
            rtype,
            ttl,
            rdata: vec![rdata.into()],
            depends_on: Vec::new(),
        });
    };
    const DNAME: u16 = 39;
    add("old.example.com", DNAME, 600, name("new.example.com").wire());
    add("far.example.com", DNAME, 600, name("example.org").wire());
    add("round.example.com", DNAME, 600, name("a.round.example.com").wire());
    let long = format!("{}.{}.{}.example.com", "l".repeat(63), "l".repeat(63), "l".repeat(63));
    add("long.example.com", DNAME, 600, name(&long).wire());
    const DS: u16 = 43;
    add("child.example.com", DS, 300, &[0, 1, 13, 2, 0xaa, 0xbb]);
    let mut engine = Engine::new(1);
    engine.handle(Event::Reload(Prepared::new(Arc::new(model))), Moment::ZERO);
    Arc::new(engine.snapshot())
});

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn ask(owner: &str, rtype: &str) -> Message {
    let query = message::query(owner, rtype);
    let mut out = vec![0; MAX_UDP];
    let address = Ipv4Addr::LOCALHOST.into();
    let client = Client { transport: Transport::Udp, address, entropy: 7, now: 0 };
    let replied = respond(&SNAPSHOT, &Service::default(), &query, client, &mut out);
    message::read(&out[..replied.length])
}

#[test]
fn a_name_below_a_dname_is_renamed_and_followed() {
    let reply = ask("WwW.old.example.com", "A");
    assert_eq!((&*reply.rcode, reply.authoritative), ("NOERROR", true));
    assert_eq!(
        reply.answer,
        [
            "old.example.com. 600 DNAME new.example.com.",
            "WwW.old.example.com. 600 CNAME WwW.new.example.com.",
            "WwW.new.example.com. 3600 A 192.0.2.1",
        ]
    );
    let missing = ask("nope.old.example.com", "A");
    assert_eq!((&*missing.rcode, missing.answer.len(), missing.authority.len()), ("NXDOMAIN", 2, 1));
    let elsewhere = ask("a.b.far.example.com", "A");
    assert_eq!((&*elsewhere.rcode, elsewhere.authority.len()), ("NOERROR", 0));
    assert_eq!(elsewhere.answer[1], "a.b.far.example.com. 600 CNAME a.b.example.org.");
}

#[test]
fn a_dname_does_not_rename_its_own_owner() {
    assert_eq!(ask("old.example.com", "TXT").answer, ["old.example.com. 3600 TXT here"]);
    assert_eq!(ask("old.example.com", "DNAME").answer, ["old.example.com. 600 DNAME new.example.com."]);
    let reply = ask("old.example.com", "A");
    assert_eq!((&*reply.rcode, reply.answer.len(), reply.authority.len()), ("NOERROR", 0, 1));
}

#[test]
fn aliases_lead_through_a_dname() {
    let reply = ask("alias.example.com", "A");
    assert_eq!(reply.answer.len(), 4);
    assert_eq!(reply.answer[3], "www.new.example.com. 3600 A 192.0.2.1");
    let reply = ask("x.wild.example.com", "A");
    assert_eq!(reply.answer[0], "x.wild.example.com. 3600 CNAME www.old.example.com.");
    assert_eq!(reply.answer[3], "www.new.example.com. 3600 A 192.0.2.1");
    assert_eq!(ask("into.example.com", "A").answer[2], "www.far.example.com. 600 CNAME www.example.org.");
}

#[test]
fn who_asks_for_the_cname_that_a_dname_makes_gets_it_and_no_more() {
    let reply = ask("www.old.example.com", "CNAME");
    assert_eq!((&*reply.rcode, reply.answer.len()), ("NOERROR", 2));
}

#[test]
fn a_name_that_would_become_too_long_is_told_as_such() {
    let owner = format!("{}.long.example.com", "x".repeat(60));
    let reply = ask(&owner, "A");
    assert_eq!((&*reply.rcode, reply.answer.len()), ("YXDOMAIN", 1), "the DNAME alone");
}

#[test]
fn a_dname_into_itself_ends() {
    let reply = ask("www.round.example.com", "A");
    assert!(reply.rcode == "NOERROR" && reply.answer.len() > 2, "{reply:?}");
    let dnames = reply.answer.iter().filter(|line| line.contains(" DNAME ")).count();
    assert_eq!(dnames, 1, "the same record stands there once (RFC 2181 §5): {reply:?}");
}

#[test]
fn ds_of_a_served_zone_comes_from_the_zone_above() {
    let reply = ask("child.example.com", "DS");
    assert_eq!((&*reply.rcode, reply.authoritative), ("NOERROR", true));
    assert_eq!(reply.answer.len(), 1);
    assert!(reply.answer[0].starts_with("child.example.com. 300 DS "), "{reply:?}");
    // none there: the zone above says so
    let reply = ask("grand.child.example.com", "DS");
    assert_eq!((&*reply.rcode, reply.answer.len()), ("NOERROR", 0));
    assert!(reply.authority[0].starts_with("child.example.com. 30 SOA "), "{reply:?}");
    // and where that one isn't ours, the zone itself
    let reply = ask("example.com", "DS");
    assert!(reply.authority[0].starts_with("example.com. 30 SOA "), "{reply:?}");
    // all other types come from the zone itself
    assert!(ask("child.example.com", "SOA").answer[0].starts_with("child.example.com. 3600 SOA "));
    assert_eq!(ask("www.child.example.com", "A").answer.len(), 1);
}
