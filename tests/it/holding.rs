//! A reload waits for its new targets, but for nothing else.

use std::path::PathBuf;
use std::time::Duration;

use haledns::authority::Prepared;
use haledns::config;
use haledns::engine::{Effect, Engine, Event};
use haledns::health::{Outcome, ProbeResult, Reason, TargetId};
use haledns::moment::Moment;

/// Endpoints of one pool, and a serial number that shows in the answers.
fn configuration(endpoints: &[(&str, &str)], version: u32) -> Event {
    let list = endpoints.iter().map(|(name, address)| format!("{{ name: {name}, address: {address} }}"));
    let text = format!(
        "monitors: {{ m: {{ type: tcp, port: 80, interval: 10s, consecutive_down: 1 }} }}\n\
         pools: {{ p: {{ monitor: m, endpoints: [ {} ] }} }}\n\
         zone: example.com\n\
         records: {{ '': {{ type: NS, value: ns.example.net. }}, v: {{ type: TXT, value: 'version {version}' }} }}\n\
         load_balancers: {{ www: {{ default_pools: [p], when_unavailable: nodata }} }}\n",
        list.collect::<Vec<_>>().join(", ")
    );
    let loaded = config::load_texts(vec![(PathBuf::from("a.yaml"), text.into_bytes())]);
    Event::Reload(Prepared::new(loaded.unwrap_or_else(|report| panic!("{report}")).model))
}

/// An engine, what it wants probed, and how often it published.
struct Bench {
    engine: Engine,
    wanted: Vec<(TargetId, String)>,
    publications: usize,
    abandoned: usize,
}

impl Bench {
    /// An engine with this configuration, all its endpoints healthy.
    fn new(endpoints: &[(&str, &str)]) -> Bench {
        let engine = Engine::new(100);
        let mut bench = Bench { engine, wanted: Vec::new(), publications: 0, abandoned: 0 };
        bench.handle(configuration(endpoints, 0), 0);
        bench.handle_all_as(true, 100);
        bench
    }

    fn handle(&mut self, event: Event, ms: u64) {
        self.engine.handle(event, at(ms));
        self.carry_out();
    }

    fn advance(&mut self, ms: u64) {
        self.engine.advance(at(ms));
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.engine.next_effect() {
            match effect {
                Effect::Probe { target, task } => self.wanted.push((target, task.endpoint.to_string())),
                Effect::Publish(_) => self.publications += 1,
                Effect::Resolve { .. } | Effect::Remember(_) => {}
                Effect::Abandon { .. } => self.abandoned += 1,
                Effect::Ready { .. } | Effect::Tell(_) => {}
            }
        }
    }

    /// Ends every probe that is wanted, with this result.
    fn handle_all_as(&mut self, pass: bool, ms: u64) {
        self.advance(ms);
        for (target, _) in std::mem::take(&mut self.wanted) {
            self.handle(probed(target, pass), ms);
        }
        self.advance(ms + 30);
    }
}

fn at(ms: u64) -> Moment {
    Moment::ZERO + Duration::from_millis(ms)
}

fn probed(target: TargetId, pass: bool) -> Event {
    let (result, reason) = match pass {
        true => (ProbeResult::Pass, Reason::NoFailures),
        false => (ProbeResult::Fail, Reason::TcpConnectionFailed),
    };
    Event::Probed { target, outcome: Outcome::new(result, reason, "") }
}

#[test]
fn a_storm_of_reloads_with_an_endpoint_that_hangs_is_published_all_the_same() {
    let mut bench = Bench::new(&[("a", "192.0.2.1")]);
    let before = bench.publications;
    for round in 1..=20 {
        let hanging = format!("192.0.2.{}", 100 + round);
        bench.handle(
            configuration(&[("a", "192.0.2.1"), ("h", &hanging)], round),
            1000 + u64::from(round) * 400,
        );
        for ms in (0..400).step_by(10) {
            bench.advance(1000 + u64::from(round) * 400 + ms);
        }
    }
    let published = bench.publications - before;
    assert!(published > 0, "the first wait goes on: 5 s at most");
    assert_eq!(bench.abandoned, 19, "nobody waits for the probes of addresses that are gone");
}

#[test]
fn what_waits_to_be_published_goes_out_before_a_reload_holds() {
    let mut bench = Bench::new(&[("a", "192.0.2.1"), ("b", "192.0.2.2"), ("c", "192.0.2.3")]);
    for ms in (1000..12_000).step_by(10) {
        bench.advance(ms); // until all have been wanted again
    }
    let mut probes = std::mem::take(&mut bench.wanted);
    probes.sort_by(|one, other| one.1.cmp(&other.1));
    bench.handle(probed(probes[0].0, false), 12_000);
    let before = bench.publications;
    bench.handle(probed(probes[1].0, false), 12_005); // gathered until 12,020
    assert_eq!(bench.publications, before);
    let new = [("a", "192.0.2.1"), ("b", "192.0.2.2"), ("c", "192.0.2.3"), ("h", "192.0.2.100")];
    bench.handle(configuration(&new, 1), 12_010);
    assert_eq!(bench.publications, before + 1, "the second fall is out");
    bench.advance(17_000);
    assert_eq!(bench.publications, before + 1, "the new configuration waits for h");
    bench.advance(17_100);
    assert_eq!(bench.publications, before + 2, "but not for long");
}

#[test]
fn a_new_address_that_takes_its_time_is_waited_for() {
    let mut bench = Bench::new(&[("a", "192.0.2.1")]);
    let before = bench.publications;
    bench.handle(configuration(&[("a", "192.0.2.2")], 1), 1000);
    for ms in (1000..3000).step_by(10) {
        bench.advance(ms);
    }
    assert_eq!(bench.publications, before);
    let probe = bench.wanted.pop().expect("it was wanted").0;
    bench.handle(probed(probe, true), 3000);
    bench.advance(3001);
    assert_eq!(bench.publications, before + 1);
}

#[test]
fn a_fall_ends_the_wait() {
    let mut bench = Bench::new(&[("a", "192.0.2.1"), ("b", "192.0.2.2")]);
    for ms in (1000..12_000).step_by(10) {
        bench.advance(ms);
    }
    let probe = bench.wanted.iter().find(|(_, name)| name == "a").expect("it was wanted").0;
    let before = bench.publications;
    let new = [("a", "192.0.2.1"), ("b", "192.0.2.2"), ("h", "192.0.2.100")];
    bench.handle(configuration(&new, 1), 12_000);
    assert_eq!(bench.publications, before);
    bench.handle(probed(probe, false), 12_050);
    assert_eq!(bench.publications, before + 1);
}
