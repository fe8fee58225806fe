//! MX, SRV and other records whose members follow health: the engine with a
//! network that does what a test says, asked octets in, octets out, and once
//! the program over a socket.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use haledns::config;
use haledns::engine::{Change, Engine, Lookup};
use haledns::health::{Action, Order, Outcome, ProbeResult, ProbeTask, Reason, Slot, TargetId};
use haledns::model::{Model, Scope, Weight};
use haledns::moment::Moment;
use haledns::simulate::{Drive, Nature};
use haledns::wire::{Client, MAX_UDP, Service, Transport, respond};
use rustix::process::Signal;

use crate::support::folder::Folder;
use crate::support::hale::{Hale, command, run, until};
use crate::support::{dns, message};

const CONFIG: &str = r#"
server: { allow_lints: [one_network, single_failure] }
monitors: { m: { type: tcp, port: 25, interval: 10s, consecutive_up: 1, consecutive_down: 1 } }
pools:
  mail:
    monitor: m
    endpoints:
      - { name: mx1, address: 192.0.2.1 }
      - { name: mx2, address: 192.0.2.2 }
      - { name: mx3, address: mx3.example.net }
  sip: { monitor: m, endpoints: [ { name: a, address: 192.0.2.11 }, { name: b, address: 192.0.2.12 } ] }
  db: { monitor: m, health_threshold: 2, endpoints: [ { name: a, address: 192.0.2.21 }, { name: b, address: 192.0.2.22 } ] }
  web: { monitor: m, endpoints: [ { name: a, address: 192.0.2.31 }, { name: b, address: 192.0.2.32 } ] }
zone: example.com
ttl: 60
soa: { serial: 1 }
records:
  '':
    - { type: NS, value: ns.example.net. }
    - type: MX
      ttl: 30
      values:
        - { preference: 10, exchange: mx1.example.net., depends_on: mail/mx1 }
        - { preference: 20, exchange: mx2.example.net., depends_on: mail/mx2 }
  _sip._tcp:
    type: SRV
    values:
      - { priority: 10, weight: 50, port: 5060, target: a.example.net., depends_on: [sip/a, db] }
      - { priority: 10, weight: 50, port: 5060, target: b.example.net., depends_on: sip/b }
      - { priority: 90, weight: 0, port: 5060, target: c.example.net. }
  '*.mail': { type: MX, values: [ { preference: 1, exchange: a., depends_on: mail/mx1 }, { preference: 2, exchange: b., depends_on: mail/mx2 } ] }
  alias: { type: CNAME, value: x.mail }
  host: { type: MX, values: [ { preference: 1, exchange: a., depends_on: mail/mx1 }, { preference: 2, exchange: b., depends_on: mail/mx3 } ] }
  www:
    - { type: MX, values: [ { preference: 1, exchange: a., depends_on: web/a }, { preference: 2, exchange: b., depends_on: web/b } ] }
    - type: HTTPS
      ttl: 300
      values:
        - { svcpriority: 1, targetname: ., svcparams: { ipv4hint: auto }, depends_on: web }
        - { svcpriority: 2, targetname: b., depends_on: db/a }
load_balancers: { www: { ttl: 20s, default_pools: [web], fallback_pool: web } }
"#;

fn model(text: &str) -> Arc<Model> {
    let loaded = config::load_texts(vec![(PathBuf::from("a.yaml"), text.as_bytes().to_vec())]);
    let loaded = loaded.unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(loaded.lints, [], "{}", loaded.lint_report());
    loaded.model
}

/// Every probe passes within 10 ms but those of these addresses.
#[derive(Default)]
struct Network {
    down: BTreeSet<IpAddr>,
    /// What `mx3` leads to.
    host: Vec<IpAddr>,
}

impl Network {
    fn set_down(&mut self, last: &[u8]) {
        self.down = last.iter().map(|last| IpAddr::from([192, 0, 2, *last])).collect();
    }
}

impl Nature for Network {
    fn probe(&mut self, _: TargetId, task: &ProbeTask, _: Moment) -> Outcome {
        let result = match self.down.contains(&task.address) {
            true => ProbeResult::Fail,
            false => ProbeResult::Pass,
        };
        Outcome { took: Duration::from_millis(10), ..Outcome::new(result, Reason::OtherFailure, "as told") }
    }

    fn resolve(&mut self, _: &str, _: Moment) -> (Duration, Lookup) {
        let ttl = Duration::from_secs(3600);
        (Duration::from_millis(5), Lookup::Found { addresses: self.host.clone(), ttl })
    }
}

struct World {
    drive: Drive,
    network: Network,
}

impl World {
    fn new(text: &str) -> World {
        let host = vec![[192, 0, 2, 3].into(), [192, 0, 2, 4].into()];
        let mut network = Network { host, ..Network::default() };
        let start = Moment::from_start(Duration::from_secs(1_700_000_000));
        let mut drive = Drive::new(Engine::new(100), model(text), start);
        drive.settle(&mut network).unwrap();
        let mut world = World { drive, network };
        world.pass(30);
        world
    }

    fn pass(&mut self, seconds: u64) {
        let until = self.drive.now() + Duration::from_secs(seconds);
        self.drive.run_until(until, &mut self.network).unwrap();
    }

    /// From now on these fail, and it is known.
    fn down(&mut self, last: &[u8]) {
        self.network.set_down(last);
        self.pass(30);
    }

    fn say(&mut self, of: &str, action: Option<Action>) {
        let (pool, endpoint) = match of.split_once('/') {
            Some((pool, endpoint)) => (pool, Some(endpoint.into())),
            None => (of, None),
        };
        let scope = Scope { pool: pool.into(), endpoint };
        let orders = match action {
            Some(action) => vec![Order::Set { action, reason: "".into(), by: "".into(), until: None }],
            None => Slot::ALL.map(Order::Clear).to_vec(),
        };
        let now = self.drive.now();
        for order in orders {
            self.drive.engine.order(&scope, order, now).unwrap();
        }
        self.drive.settle(&mut self.network).unwrap();
        self.pass(5);
    }

    fn lines(&self, owner: &str, rtype: &str) -> Vec<String> {
        let query = message::query(owner, rtype);
        let mut out = [0; MAX_UDP];
        let address = Ipv4Addr::LOCALHOST.into();
        let client = Client { transport: Transport::Udp, address, entropy: 7, now: 0 };
        let replied = respond(self.drive.published(), &Service::default(), &query, client, &mut out);
        message::read(&out[..replied.length]).answer
    }

    /// The data of what is answered, in its last words.
    fn names(&self, owner: &str, rtype: &str) -> String {
        let last = |line: &String| line.rsplit(' ').next().unwrap().split('.').next().unwrap().to_owned();
        self.lines(owner, rtype).iter().map(last).collect::<Vec<_>>().join(" ")
    }

    fn mx(&self) -> String {
        self.names("example.com", "MX")
    }

    fn serial(&self) -> u32 {
        self.drive.published().serials[0]
    }
}

#[test]
fn a_member_is_in_while_what_it_depends_on_is_there() {
    let mut world = World::new(CONFIG);
    assert_eq!(
        world.lines("example.com", "MX"),
        ["example.com. 30 MX 10 mx1.example.net.", "example.com. 30 MX 20 mx2.example.net."]
    );
    world.down(&[1]);
    assert_eq!(world.lines("example.com", "MX"), ["example.com. 30 MX 20 mx2.example.net."]);
    world.down(&[2]);
    assert_eq!(world.lines("example.com", "MX"), ["example.com. 30 MX 10 mx1.example.net."]);
    world.down(&[]);
    assert_eq!(world.mx(), "mx1 mx2");
    // with pools and endpoints that no load balancer uses, several of them, and a threshold
    assert_eq!(
        world.lines("_sip._tcp.example.com", "SRV"),
        [
            "_sip._tcp.example.com. 60 SRV 10 50 5060 a.example.net.",
            "_sip._tcp.example.com. 60 SRV 10 50 5060 b.example.net.",
            "_sip._tcp.example.com. 60 SRV 90 0 5060 c.example.net.",
        ]
    );
    for (down, expected, why) in [
        (&[11][..], "b c", "one of two that it needs"),
        (&[21], "b c", "the other one, a pool below its threshold"),
        (&[12], "a c", "the second"),
        (&[11, 12], "c", "what depends on nothing is always in, and enough"),
        (&[], "a b c", "all are back"),
    ] {
        world.down(down);
        assert_eq!(world.names("_sip._tcp.example.com", "SRV"), expected, "{why}");
    }
}

#[test]
fn there_is_always_a_member_and_what_was_taken_out_stays_out_as_long_as_another_is_left() {
    let mut world = World::new(CONFIG);
    world.down(&[1, 2]);
    assert_eq!(world.mx(), "mx1 mx2", "all are down");
    for action in [Action::Drain, Action::Disable] {
        world.say("mail/mx1", Some(action));
        assert_eq!(world.mx(), "mx2", "{action:?}: one is down, one is taken out");
        world.down(&[]);
        assert_eq!(world.mx(), "mx2", "{action:?}");
        world.down(&[1, 2]);
        world.say("mail/mx2", Some(action));
        assert_eq!(world.mx(), "mx1 mx2", "{action:?}: both are taken out");
        world.say("mail/mx1", None);
        world.say("mail/mx2", None);
    }
    world.down(&[2]);
    assert_eq!(world.mx(), "mx1");
    world.say("mail", Some(Action::Disable));
    assert_eq!(world.mx(), "mx1 mx2", "their whole pool is off, so nothing tells them apart");
    world.say("mail", None);
    assert_eq!(world.mx(), "mx1");
}

#[test]
fn what_the_configuration_takes_out_stays_out_too() {
    let always =
        "maintenance: [ { pool: mail, endpoint: mx1, weekly: \"mon 00:00\", for: 6d23h, reason: disks } ]\n";
    for (from, to, why) in [
        ("mx1, address: 192.0.2.1", "mx1, address: 192.0.2.1, enabled: false", "an endpoint"),
        ("pools:\n", &format!("{always}pools:\n"), "a window"),
        ("mx1.example.net., depends_on: mail/mx1", "mx1.example.net., depends_on: gone/x", "a pool"),
        ("mx1.example.net., depends_on: mail/mx1", "mx1.example.net., depends_on: gone", "a pool as a whole"),
    ] {
        let gone = "pools:\n  gone: { enabled: false, endpoints: [ { name: x, address: 192.0.2.99 } ] }\n";
        let text = CONFIG.replace(from, to);
        let text = if to.contains("gone") { text.replace("pools:\n", gone) } else { text };
        let mut world = World::new(&text);
        assert_eq!(world.mx(), "mx2", "{why}");
        world.down(&[1, 2]);
        assert_eq!(world.mx(), "mx2", "{why}, and the other one is down");
    }
}

#[test]
fn what_has_no_weight_is_not_there_and_counts_as_taken_out() {
    let mut world = World::new(CONFIG);
    let none = || Some(Action::Weight(Weight(0)));
    world.say("mail/mx1", none());
    assert_eq!(world.mx(), "mx2");
    world.down(&[2]);
    assert_eq!(world.mx(), "mx2", "a server that was emptied stays out, though the other one is down");
    world.down(&[]);
    world.say("mail/mx1", None);
    assert_eq!(world.mx(), "mx1 mx2");
    for endpoint in ["db/a", "db/b"] {
        world.say(endpoint, none());
    }
    assert_eq!(world.names("_sip._tcp.example.com", "SRV"), "b c", "a pool that has nothing to answer with");
    let mut written =
        World::new(&CONFIG.replace("mx1, address: 192.0.2.1", "mx1, address: 192.0.2.1, weight: 0"));
    assert_eq!(written.mx(), "mx2");
    written.down(&[2]);
    assert_eq!(written.mx(), "mx2");
}

#[test]
fn one_address_of_a_host_name_is_enough() {
    let mut world = World::new(CONFIG);
    assert_eq!(world.names("host.example.com", "MX"), "a b");
    world.down(&[3]);
    assert_eq!(world.names("host.example.com", "MX"), "a b");
    world.down(&[3, 4]);
    assert_eq!(world.names("host.example.com", "MX"), "a");
}

#[test]
fn wildcards_aliases_any_and_load_balancers_stand_beside_it() {
    let mut world = World::new(CONFIG);
    world.down(&[1, 32]);
    assert_eq!(world.lines("x.y.mail.example.com", "MX"), ["x.y.mail.example.com. 60 MX 2 b."]);
    assert_eq!(
        world.lines("alias.example.com", "MX"),
        ["alias.example.com. 60 CNAME x.mail.example.com.", "x.mail.example.com. 60 MX 2 b."]
    );
    assert_eq!(world.lines("x.mail.example.com", "ANY"), ["x.mail.example.com. 60 MX 2 b."]);
    assert_eq!(world.names("www.example.com", "MX"), "a");
    assert_eq!(world.lines("www.example.com", "A"), ["www.example.com. 20 A 192.0.2.31"]);
    // an HTTPS record may follow both ways: that it is there, and its hints
    let https = world.lines("www.example.com", "HTTPS");
    assert!(https.len() == 2 && https[0].contains("ipv4hint=192.0.2.31"), "{https:?}");
    world.down(&[21, 31]);
    let https = world.lines("www.example.com", "HTTPS");
    assert!(https.len() == 1 && https[0].contains("ipv4hint=192.0.2.32"), "{https:?}");
    assert!(https[0].starts_with("www.example.com. 20 HTTPS 1 "), "{https:?}");
}

#[test]
fn the_serial_goes_up_when_members_change_and_only_then() {
    let mut world = World::new(CONFIG);
    let first = world.serial();
    // its pool has others, so nothing else changes
    world.down(&[1]);
    let second = world.serial();
    assert!(second > first, "{first} {second}");
    world.down(&[1, 3]);
    assert_eq!(world.serial(), second, "another address of the host name is up");
    world.down(&[1, 2]);
    let third = world.serial();
    assert!(third > second, "{second} {third}");
    assert_eq!(world.mx(), "mx1 mx2");
    // several changes within a second are one
    world.network.set_down(&[]);
    world.pass(30);
    assert!(world.serial() > third);
}

#[test]
fn a_reload_that_changes_only_what_members_depend_on_counts_by_what_is_answered() {
    let mut world = World::new(CONFIG);
    world.down(&[1]);
    let before = world.serial();
    assert_eq!(world.mx(), "mx2");
    // other ids of pools, the same answers
    let more =
        CONFIG.replace("pools:\n", "pools:\n  a0: { endpoints: [ { name: x, address: 192.0.2.99 } ] }\n");
    let more = more.replace("default_pools: [web]", "default_pools: [web, a0]");
    world.drive.reload(model(&more), &mut world.network).unwrap();
    world.pass(30);
    assert_eq!((world.mx(), world.serial()), ("mx2".to_owned(), before));
    // it follows something else
    let other = CONFIG.replacen("depends_on: mail/mx1", "depends_on: sip/a", 1);
    world.drive.reload(model(&other), &mut world.network).unwrap();
    world.pass(30);
    assert_eq!(world.mx(), "mx1 mx2");
    let after = world.serial();
    assert!(after > before);
    // and then nothing, with the same answer
    let none = other
        .replace(", depends_on: sip/a }", " }")
        .replace("mx2.example.net., depends_on: mail/mx2", "mx2.example.net.");
    world.drive.reload(model(&none), &mut world.network).unwrap();
    world.pass(30);
    assert_eq!((world.mx(), world.serial()), ("mx1 mx2".to_owned(), after));
    world.drive.reload(model(CONFIG), &mut world.network).unwrap();
    world.pass(30);
    assert_eq!(world.mx(), "mx2");
    assert!(world.serial() > after);
}

#[test]
fn each_change_of_members_is_told_once_and_that_none_is_left_as_bad_news() {
    let mut world = World::new(CONFIG);
    let told = |world: &mut World| {
        let changes = std::mem::take(&mut world.drive.told);
        let of_records = changes.into_iter().filter_map(|(_, change)| match change {
            Change::Records { name, rtype: 15, from, to, .. } if name.to_string() == "example.com." => {
                Some((format!("{from} -> {to}"), to.left_out.join(", ")))
            }
            _ => None,
        });
        of_records.collect::<Vec<_>>()
    };
    let say = |words: &str, left_out: &str| vec![(words.to_owned(), left_out.to_owned())];
    assert_eq!(told(&mut world), [], "all are there after the first round");
    world.down(&[1]);
    assert_eq!(told(&mut world), say("2 of 2 -> 1 of 2", "10 mx1.example.net."));
    world.network.set_down(&[1, 2]);
    world.pass(30);
    assert_eq!(told(&mut world), say("1 of 2 -> 2 of 2 at fallback", ""));
    world.say("mail/mx2", Some(Action::Drain));
    let one = "20 mx2.example.net.";
    assert_eq!(told(&mut world), say("2 of 2 at fallback -> 1 of 2 at fallback", one), "as one is drained");
    world.say("mail/mx2", None);
    assert_eq!(told(&mut world), say("1 of 2 at fallback -> 2 of 2 at fallback", ""));
    world.drive.reload(model(&CONFIG.replace("ttl: 30\n", "ttl: 40\n")), &mut world.network).unwrap();
    world.pass(30);
    assert_eq!(told(&mut world), [], "a reload that leaves it as it is");
    world.network.set_down(&[1]);
    world.pass(30);
    assert_eq!(told(&mut world), say("2 of 2 at fallback -> 1 of 2", "10 mx1.example.net."));
    let other = CONFIG.replacen("depends_on: mail/mx1", "depends_on: sip/a", 1);
    world.drive.reload(model(&other), &mut world.network).unwrap();
    world.pass(30);
    assert_eq!(told(&mut world), say("1 of 2 -> 2 of 2", ""), "it needs something else");
}

#[test]
fn a_drain_waits_for_the_ttl_of_records_that_follow() {
    let mut world = World::new(CONFIG);
    world.say("sip/a", Some(Action::Drain)); // 5 s pass in it
    let word = |world: &World| {
        let table = world.drive.engine.table();
        let pool = table.model().pool_named("sip").unwrap();
        table.standings(pool)[0].word()
    };
    assert_eq!((world.names("_sip._tcp.example.com", "SRV"), word(&world)), ("b c".into(), "draining"));
    world.pass(50);
    assert_eq!(word(&world), "draining");
    world.pass(10);
    assert_eq!(word(&world), "drained", "after 60 s, the zone's TTL");
}

#[test]
fn an_operator_sees_it_on_the_wire() {
    const ZONE: &str = "\
pools:
  mail: { endpoints: [{ name: mx1, address: 192.0.2.1 }, { name: mx2, address: 192.0.2.2 }] }
  other: { endpoints: [{ name: a, address: 192.0.2.9 }] }
zone: example.test
ttl: 60
records:
  '': { type: NS, value: ns1.example.net. }
  in:
    type: MX
    values:
      - { preference: 10, exchange: mx1, depends_on: mail/mx1 }
      - { preference: 20, exchange: mx2, depends_on: mail/mx2 }
  mx1: { type: A, value: 192.0.2.1 }
  mx2: { type: A, value: 192.0.2.2 }
";
    let folder = Folder::with("a.yaml", ZONE);
    let state = folder.join("state");
    let state = state.to_str().unwrap();
    let arguments =
        ["serve", folder.path().to_str().unwrap(), "--listen", "127.0.0.1:0", "--state-dir", state];
    let hale = Hale::start(command(arguments));
    let socket = dns::socket(hale.address());
    let ask = || {
        socket.send(&message::query("in.example.test", "MX")).unwrap();
        let mut octets = [0; 1500];
        let length = socket.recv(&mut octets).expect("a reply");
        message::read(&octets[..length]).answer
    };
    let (one, other) =
        ("in.example.test. 60 MX 10 mx1.example.test.", "in.example.test. 60 MX 20 mx2.example.test.");
    assert_eq!(ask(), [one, other]);
    let ended = run(["drain", "mail/mx1", "--state-dir", state]);
    assert_eq!(ended.code(), Some(0), "{}{}", ended.out, ended.log);
    let said = format!("{}{}", ended.out, ended.log);
    assert!(said.contains("records in.example.test. MX are answered with 20 mx2.example.test.\n"), "{said}");
    until("one is left", || ask() == [other]);
    let shown = run(["status", "mail", "--state-dir", state]).out;
    assert!(shown.contains("in.example.test. MX  1 of 2    needs mail/mx1, which is draining\n"), "{shown}");
    assert!(!run(["status", "other", "--state-dir", state]).out.contains("in.example.test."));
    let ended = run(["disable", "mail", "--state-dir", state]);
    assert_eq!(ended.code(), Some(0), "{}{}", ended.out, ended.log);
    let said = format!("{}{}", ended.out, ended.log);
    let both =
        "MX are answered with 10 mx1.example.test., 20 mx2.example.test., none of which has what it needs";
    assert!(said.contains(both), "{said}");
    until("all are taken out", || ask() == [one, other]);
    let shown = run(["status", "--state-dir", state]).out;
    let why = "none has what it needs; needs mail/mx1, which is draining; needs mail, which is disabled\n";
    assert!(shown.contains(&format!("in.example.test. MX  2 of 2    {why}")), "{shown}");
    let (ended, _) = hale.stop(Signal::TERM);
    // and is told of each change
    let line = |words: &str| ended.log.lines().find(|line| line.contains(words)).map(str::to_owned);
    let left_out = line("WARN records in.example.test. MX: 1 of 2 are answered");
    let left_out = left_out.unwrap_or_else(|| panic!("{}", ended.log));
    assert!(left_out.contains("reason=\"left out: 10 mx1.example.test.\""), "{left_out}");
    let none = "WARN records in.example.test. MX: none has what it needs, 2 of 2 are answered all the same";
    assert!(line(none).is_some(), "{}", ended.log);
    for asked in ["in.example.test", "IN.example.test. mx"] {
        let shown = run(["history", asked, "--state-dir", state]).out;
        let rows: Vec<&str> = shown.lines().skip(1).map(|row| row.split_once("records").unwrap().1).collect();
        assert!(rows.len() == 2 && rows[0].contains("2 of 2 → 1 of 2"), "{shown}");
        assert!(rows[1].contains("1 of 2 → 2 of 2 at fallback"), "{shown}");
    }
    let near = run(["history", "in.example.tes", "--state-dir", state]).log;
    assert!(near.contains("did you mean `in.example.test"), "{near}");
}
