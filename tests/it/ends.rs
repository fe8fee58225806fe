//! What must come to an end does, and what must last over a restart, a reload
//! or another address of a name does.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use haledns::config;
use haledns::engine::{Engine, Lookup};
use haledns::health::{
    Action, AgentReport, AgentWish, Fitness, Memory, Order, OutCause, Outcome, ProbeResult, ProbeTask,
    Reason, Record, Seen, Slot, TargetId, Verdict,
};
use haledns::model::{Model, PoolId, Scope};
use haledns::moment::Moment;
use haledns::simulate::{Drive, Nature};

const START: u64 = 1_700_000_000;

fn at(seconds: u64) -> Moment {
    Moment::from_start(Duration::from_secs(START + seconds))
}

fn model(text: &str) -> Arc<Model> {
    const REST: &str = "\nzone: example.com\nrecords: { '': { type: NS, value: ns.example.net. } }\n";
    let text = format!("{text}{REST}");
    let loaded = config::load_texts(vec![(PathBuf::from("a.yaml"), text.into_bytes())]);
    loaded.unwrap_or_else(|report| panic!("{report}")).model
}

/// What the network does: every probe passes within 10 ms but these.
#[derive(Default)]
struct Network {
    results: BTreeMap<IpAddr, ProbeResult>,
    wish: Option<AgentWish>,
    hosts: BTreeMap<String, Vec<u8>>,
    /// Nobody answers lookups.
    lost: bool,
    /// How often each endpoint was probed.
    probed: BTreeMap<String, u32>,
}

impl Network {
    fn set(&mut self, last: u8, result: ProbeResult) {
        self.results.insert([192, 0, 2, last].into(), result);
    }
}

impl Nature for Network {
    fn probe(&mut self, _: TargetId, task: &ProbeTask, _: Moment) -> Outcome {
        *self.probed.entry(format!("{}/{}", task.pool, task.endpoint)).or_default() += 1;
        let result = self.results.get(&task.address).copied().unwrap_or(ProbeResult::Pass);
        let mut outcome = Outcome::new(result, Reason::NoFailures, "");
        outcome.took = Duration::from_millis(10);
        outcome.agent = self.wish.map(|wish| AgentReport { wish: Some(wish), percent: None });
        outcome
    }

    fn resolve(&mut self, hostname: &str, _: Moment) -> (Duration, Lookup) {
        let addresses: Vec<IpAddr> =
            self.hosts.get(hostname).into_iter().flatten().map(|last| [192, 0, 2, *last].into()).collect();
        let lookup = match addresses.is_empty() {
            _ if self.lost => Lookup::Failed,
            true => Lookup::NoSuchName,
            false => Lookup::Found { addresses, ttl: Duration::from_secs(30) },
        };
        (Duration::from_millis(5), lookup)
    }
}

fn begin(text: &str, network: &mut Network) -> Drive {
    let mut drive = Drive::new(Engine::new(100), model(text), at(0));
    drive.run_until(at(5), network).unwrap();
    drive
}

/// Goes on in another process `pause` seconds later, as after kill -9: with
/// the records alone.
fn restart(drive: &Drive, text: &str, pause: u64, network: &mut Network) -> Drive {
    let mut memory = Memory::default();
    for record in &drive.records {
        memory.take(record.clone());
    }
    memory.take(Record::Alive(drive.now()));
    let now = drive.now() + Duration::from_secs(pause);
    let mut engine = Engine::new(100);
    engine.recall(memory, now.before(Duration::from_secs(600)), now);
    let mut drive = Drive::new(engine, model(text), now);
    drive.settle(network).unwrap();
    drive
}

fn scope(pool: &str, endpoint: &str) -> Scope {
    Scope { pool: pool.into(), endpoint: Some(endpoint.into()) }
}

fn set(action: Action, until: Option<Moment>) -> Order {
    Order::Set { action, reason: "".into(), by: "me".into(), until }
}

fn fitness(drive: &Drive, endpoint: usize) -> Fitness {
    drive.engine.table().standings(PoolId(0))[endpoint].fitness
}

const HOST: &str = "
monitors: { m: { type: tcp, port: 80, interval: 10s, recheck_interval: off, start_period: 60s } }
pools: { p: { monitor: m, endpoints: [{ name: web, address: Web.example.net. }] } }
load_balancers: { www: { default_pools: [p], when_unavailable: nodata } }
";

#[test]
fn an_address_of_a_host_name_goes_on_serving_when_the_name_gains_another() {
    let mut network = Network::default();
    network.hosts.insert("web.example.net".into(), vec![1]);
    let mut drive = begin(HOST, &mut network);
    assert_eq!(fitness(&drive, 0), Fitness::Up);
    network.hosts.insert("web.example.net".into(), vec![1, 2]);
    let held = |drive: &Drive| drive.engine.model().pool(PoolId(0)).endpoints.len() == 2;
    while !held(&drive) {
        drive.step(at(100), &mut network).unwrap();
    }
    let since = drive.now();
    drive.run_until(since + Duration::from_secs(4), &mut network).unwrap();
    assert_eq!(fitness(&drive, 0), Fitness::Up, "192.0.2.1 was healthy all the time");
}

#[test]
fn what_was_said_of_a_host_name_holds_when_the_name_gains_another_address() {
    let text = HOST.replace(", start_period: 60s", "");
    let mut network = Network::default();
    network.hosts.insert("web.example.net".into(), vec![1]);
    let mut drive = begin(&text, &mut network);
    drive.engine.order(&scope("p", "web"), set(Action::Disable, None), drive.now()).unwrap();
    drive.settle(&mut network).unwrap();
    assert_eq!(fitness(&drive, 0), Fitness::Out(OutCause::Disabled));
    network.hosts.insert("web.example.net".into(), vec![1, 2]);
    drive.run_until(at(100), &mut network).unwrap();
    assert_eq!(fitness(&drive, 0), Fitness::Out(OutCause::Disabled), "p/web is disabled");
}

#[test]
fn h14_what_an_agent_wished_ends_with_its_monitor() {
    let text = |kind: &str| {
        format!(
            "monitors: {{ m: {{ type: {kind}, port: 80, interval: 10s }} }}\n\
             pools: {{ p: {{ monitor: m, endpoints: [{{ name: a, address: 192.0.2.1 }}] }} }}\n\
             load_balancers: {{ www: {{ default_pools: [p], when_unavailable: nodata }} }}\n"
        )
    };
    let mut network = Network { wish: Some(AgentWish::Drain), ..Network::default() };
    let mut drive = begin(&text("agent"), &mut network);
    assert_eq!(fitness(&drive, 0), Fitness::Out(OutCause::AgentDrain));
    network.wish = None;
    drive.reload(model(&text("tcp")), &mut network).unwrap();
    drive.run_until(at(86_400), &mut network).unwrap();
    assert_eq!(fitness(&drive, 0), Fitness::Up, "no agent is asked any more");
}

#[test]
fn h14_what_an_agent_wished_lasts_over_a_restart() {
    let text = "monitors: { m: { type: agent, port: 80, interval: 10s } }\n\
                pools: { p: { monitor: m, endpoints: [{ name: a, address: 192.0.2.1 }] } }\n\
                load_balancers: { www: { default_pools: [p], when_unavailable: nodata } }\n";
    let mut network = Network { wish: Some(AgentWish::Maint), ..Network::default() };
    let mut drive = begin(text, &mut network);
    assert_eq!(fitness(&drive, 0), Fitness::Out(OutCause::AgentMaint));
    // the agent goes away with its node, the monitor finds nothing to hear
    network.wish = None;
    drive.run_until(at(30), &mut network).unwrap();
    let after = restart(&drive, text, 1, &mut network);
    assert_eq!(fitness(&after, 0), Fitness::Out(OutCause::AgentMaint));
}

const PUSH: &str = "
monitors: { m: { type: push, interval: 60s } }
pools: { p: { monitor: m, endpoints: [{ name: a, address: 192.0.2.1 }] } }
load_balancers: { www: { default_pools: [p], when_unavailable: nodata } }
";

#[test]
fn an_endpoint_that_reports_in_time_is_not_overdue_after_a_restart() {
    let mut network = Network::default();
    let mut drive = begin(PUSH, &mut network);
    for minute in 1..5 {
        drive.run_until(at(50 * minute), &mut network).unwrap();
        drive.engine.push(&scope("p", "a"), true, drive.now()).unwrap();
        drive.settle(&mut network).unwrap();
    }
    assert_eq!(fitness(&drive, 0), Fitness::Up);
    let mut after = restart(&drive, PUSH, 1, &mut network);
    let reports_again = after.now() + Duration::from_secs(45);
    while after.step(reports_again, &mut network).unwrap() {
        assert_eq!(
            fitness(&after, 0),
            Fitness::Up,
            "its interval isn't over, at {:?}",
            after.now().since(at(0))
        );
    }
}

#[test]
fn h14_a_report_is_not_overdue_before_its_interval_has_passed_once() {
    let mut network = Network::default();
    let drive = begin(PUSH, &mut network);
    assert_eq!(drive.engine.table().verdicts(PoolId(0)), [Verdict::Unknown]);
}

const UPLINK: &str = "
server: { canaries: canary, panic_hold: 2m }
monitors:
  m: { type: tcp, port: 80, interval: 20s, recheck_interval: off, consecutive_up: 2, consecutive_down: 1 }
  c: { type: tcp, port: 80, interval: 1s, recheck_interval: off, consecutive_up: 1, consecutive_down: 1 }
pools:
  p: { monitor: m, endpoints: [{ name: a, address: 192.0.2.1 }] }
  q: { monitor: m, endpoints: [{ name: a, address: 192.0.2.2 }] }
  canary: { monitor: c, endpoints: [{ name: a, address: 192.0.2.9 }] }
load_balancers: { www: { default_pools: [p, q], when_unavailable: nodata } }
";

#[test]
fn h15_when_an_uplink_comes_back_what_was_held_is_held_until_it_is_probed_again() {
    let mut network = Network::default();
    let mut drive = begin(UPLINK, &mut network);
    let ids = ["p", "q"].map(|name| drive.engine.model().pool_named(name).unwrap());
    let up = |drive: &Drive| ids.map(|id| drive.engine.table().standings(id)[0].fitness.is_up());
    assert_eq!(up(&drive), [true, true]);
    // the uplink is gone for half a minute
    for last in [1, 2, 9] {
        network.set(last, ProbeResult::Fail);
    }
    drive.run_until(at(35), &mut network).unwrap();
    assert_eq!(up(&drive), [true, true], "held");
    network.results.clear();
    while drive.step(at(90), &mut network).unwrap() {
        assert_eq!(up(&drive), [true, true], "{:?} after the uplink came back", drive.now().since(at(35)));
    }
}

#[test]
fn what_an_operator_wants_out_does_not_wait_for_a_reload() {
    let text = |more: &str| {
        format!(
            "monitors: {{ m: {{ type: tcp, port: 80, interval: 10s }} }}\n\
             pools: {{ p: {{ monitor: m, endpoints: [{{ name: a, address: 192.0.2.1 }}, \
             {{ name: b, address: 192.0.2.2 }}{more}] }} }}\n\
             load_balancers: {{ www: {{ default_pools: [p], when_unavailable: nodata }} }}\n"
        )
    };
    let mut network = Network::default();
    let mut drive = begin(&text(""), &mut network);
    let more: String = (10..110).map(|n| format!(", {{ name: n{n}, address: 192.0.2.{n} }}")).collect();
    drive.engine.handle(
        haledns::engine::Event::Reload(haledns::authority::Prepared::new(model(&text(&more)))),
        drive.now(),
    );
    let now = drive.now() + Duration::from_millis(30);
    drive.engine.order(&scope("p", "a"), set(Action::Drain, None), now).unwrap();
    drive.engine.advance(now + Duration::from_millis(25));
    drive.settle(&mut network).unwrap();
    assert!(!drive.is_behind(), "drained, and still in the answers");
}

#[test]
fn what_was_said_of_an_endpoint_that_is_gone_can_be_taken_back() {
    let text = |name: &str| {
        format!(
            "monitors: {{ m: {{ type: tcp, port: 80, interval: 10s }} }}\n\
             pools: {{ p: {{ monitor: m, endpoints: [{{ name: {name}, address: 192.0.2.1 }}] }} }}\n\
             load_balancers: {{ www: {{ default_pools: [p], when_unavailable: nodata }} }}\n"
        )
    };
    let mut network = Network::default();
    let mut drive = begin(&text("a"), &mut network);
    drive.engine.order(&scope("p", "a"), set(Action::Drain, None), drive.now()).unwrap();
    drive.reload(model(&text("b")), &mut network).unwrap();
    drive.run_until(at(20), &mut network).unwrap();
    let taken = drive.engine.order(&scope("p", "a"), Order::Clear(Slot::Traffic), drive.now());
    assert_eq!(taken, Ok(()));
    assert!(drive.engine.table().overrides().is_empty());
}

const OFF: &str = "
monitors: { m: { type: tcp, port: 80, interval: 10s } }
pools:
  p: { monitor: m, endpoints: [{ name: a, address: 192.0.2.1, enabled: false }, { name: b, address: 192.0.2.2 }] }
load_balancers: { www: { default_pools: [p], when_unavailable: nodata } }
";

#[test]
fn probes_of_a_disabled_endpoint_end_with_the_override_that_enabled_it() {
    let mut network = Network::default();
    let mut drive = begin(OFF, &mut network);
    let until = drive.now() + Duration::from_secs(60);
    drive.engine.order(&scope("p", "a"), set(Action::Enable, Some(until)), drive.now()).unwrap();
    drive.run_until(at(100), &mut network).unwrap();
    assert_eq!(fitness(&drive, 0), Fitness::Out(OutCause::Disabled), "the override has ended");
    let before = network.probed["p/a"];
    drive.run_until(at(1000), &mut network).unwrap();
    assert_eq!(network.probed["p/a"], before, "a disabled endpoint isn't probed");
}

#[test]
fn a_disabled_pool_of_host_names_that_an_operator_enables_is_looked_up() {
    let text =
        HOST.replace(", start_period: 60s", "").replace("{ monitor: m,", "{ enabled: false, monitor: m,");
    let mut network = Network::default();
    network.hosts.insert("web.example.net".into(), vec![1]);
    let mut drive = begin(&text, &mut network);
    let whole = Scope { pool: "p".into(), endpoint: None };
    drive.engine.order(&whole, set(Action::Enable, None), drive.now()).unwrap();
    drive.run_until(at(3600), &mut network).unwrap();
    assert_eq!(drive.engine.model().pool(PoolId(0)).endpoints.len(), 1);
}

const FLAPPY: &str = "
monitors: { m: { type: tcp, port: 80, interval: 10s, recheck_interval: off, consecutive_up: 1, consecutive_down: 1 } }
pools: { p: { monitor: m, flap_limit: 2, flap_window: 10m, flap_hold: 5m, endpoints: [{ name: a, address: 192.0.2.1 }] } }
load_balancers: { www: { default_pools: [p], when_unavailable: nodata } }
";

#[test]
fn h10_a_flapping_endpoint_is_held_over_a_restart() {
    let mut network = Network::default();
    let mut drive = begin(FLAPPY, &mut network);
    for n in 0..6u64 {
        network.set(1, if n % 2 == 0 { ProbeResult::Fail } else { ProbeResult::Pass });
        drive.run_until(at(10 + 12 * (n + 1)), &mut network).unwrap();
    }
    assert_eq!(fitness(&drive, 0).as_str(), "flap_hold");
    let mut after = restart(&drive, FLAPPY, 1, &mut network);
    assert_eq!(fitness(&after, 0).as_str(), "flap_hold", "it has not been passing for flap_hold");
    after.run_until(drive.now() + Duration::from_secs(60), &mut network).unwrap();
    assert_eq!(fitness(&after, 0).as_str(), "flap_hold");
}

const EJECTING: &str = "
monitors: { m: { type: tcp, port: 80, interval: 10s } }
pools:
  p: { monitor: m, ejection: { consecutive_failures: 1, max_ejection_percent: 50 }, endpoints: [{ name: a, address: 192.0.2.1 }, { name: b, address: 192.0.2.2 }] }
load_balancers: { www: { default_pools: [p], when_unavailable: nodata } }
";

#[test]
fn an_ejection_of_a_clock_that_was_ahead_ends() {
    let mut network = Network::default();
    let mut drive = begin(EJECTING, &mut network);
    drive.run_until(at(20), &mut network).unwrap();
    let mut memory = drive.engine.memory(drive.now());
    let ahead = at(365 * 86_400); // a restart whose clock was a year ahead ejected it
    for (key, endpoint) in &mut memory.endpoints {
        if &*key.endpoint == "a" {
            (endpoint.ejections, endpoint.ejected_until) = (1, Some(ahead));
        }
    }
    let now = drive.now() + Duration::from_secs(1);
    let mut engine = Engine::new(10);
    engine.recall(memory, now.before(Duration::from_secs(600)), now);
    let mut after = Drive::new(engine, model(EJECTING), now);
    after.run_until(now + Duration::from_secs(7200), &mut network).unwrap();
    assert_eq!(fitness(&after, 0), Fitness::Up, "max_ejection_time is over");
}

#[test]
fn a_clock_that_was_ahead_once_does_not_cost_the_verdicts_of_every_later_restart() {
    let mut network = Network::default();
    let text = OFF;
    let drive = begin(text, &mut network);
    let mut memory = drive.engine.memory(drive.now());
    // the journal: a former process's clock was a year ahead, this one's isn't
    memory.alive = None;
    memory.take(Record::Alive(at(365 * 86_400)));
    memory.take(Record::Alive(drive.now()));
    let now = drive.now() + Duration::from_secs(1);
    let mut engine = Engine::new(10);
    engine.recall(memory, now.before(Duration::from_secs(600)), now);
    let after = Drive::new(engine, model(text), now);
    assert_eq!(fitness(&after, 1), Fitness::Up, "it was vouched for a second ago");
}

const BLIND: &str = "
monitors: { m: { type: tcp, port: 80, interval: 10s } }
pools: { p: { monitor: m, endpoints: [{ name: a, address: 192.0.2.1 }] } }
load_balancers: { www: { default_pools: [p], when_unavailable: nodata } }
";

#[test]
fn a_verdict_that_had_become_unknown_is_not_revived_by_a_restart() {
    let mut network = Network::default();
    let mut drive = begin(BLIND, &mut network);
    network.set(1, ProbeResult::Error);
    drive.run_until(at(3600), &mut network).unwrap();
    assert_eq!(fitness(&drive, 0).as_str(), "unknown", "nobody could probe it for an hour");
    let after = restart(&drive, BLIND, 1, &mut network);
    assert_eq!(fitness(&after, 0).as_str(), "unknown");
}

#[test]
fn a_report_in_the_name_of_a_vantage_here_does_not_replace_its_probes() {
    let mut network = Network::default();
    let mut drive = begin(BLIND, &mut network);
    let now = drive.now();
    let _ = drive.engine.report(&scope("p", "a"), "local", Verdict::Unhealthy, now, now);
    drive.run_until(at(600), &mut network).unwrap();
    assert_eq!(fitness(&drive, 0), Fitness::Up, "its own probes have passed for ten minutes");
}

#[test]
fn what_a_reload_brings_in_has_its_whole_share() {
    let text = |enabled: bool| {
        format!(
            "pools: {{ p: {{ slow_start: 10m, endpoints: [{{ name: a, address: 192.0.2.1, enabled: {enabled} }}, \
             {{ name: b, address: 192.0.2.2 }}] }} }}\n\
             load_balancers: {{ www: {{ default_pools: [p], when_unavailable: nodata }} }}\n"
        )
    };
    let mut network = Network::default();
    let mut drive = begin(&text(false), &mut network);
    drive.reload(model(&text(true)), &mut network).unwrap();
    let percent = |drive: &Drive| drive.engine.table().standings(PoolId(0))[0].percent;
    let first = percent(&drive);
    drive.run_until(at(5 + 61), &mut network).unwrap();
    assert_eq!((first, percent(&drive)), (100, 100), "from the beginning, or in ten steps");
}

#[test]
fn h13_an_ejection_ends_with_the_rule_that_made_it() {
    let mut network = Network::default();
    let mut drive = begin(EJECTING, &mut network);
    drive.run_until(at(20), &mut network).unwrap();
    drive.engine.traffic(&scope("p", "a"), Seen { ok: 0, failed: 9 }, drive.now()).unwrap();
    assert_eq!(fitness(&drive, 0).as_str(), "ejected");
    let off = EJECTING.replace("ejection: { consecutive_failures: 1, max_ejection_percent: 50 }, ", "");
    drive.reload(model(&off), &mut network).unwrap();
    assert_eq!(fitness(&drive, 0), Fitness::Up, "nothing ejects any more");
}

#[test]
fn a_vantage_does_not_doubt_itself_for_what_is_gone_from_the_configuration() {
    let text = |pools: &[u8]| {
        let pool =
            |n: &u8| format!("  p{n}: {{ monitor: m, endpoints: [{{ name: a, address: 192.0.2.{n} }}] }}\n");
        let pools: String = pools.iter().map(pool).collect();
        format!(
            "server: {{ panic_share: 50 }}\n\
             monitors: {{ m: {{ type: tcp, port: 80, interval: 10s, consecutive_down: 1 }} }}\npools:\n{pools}\
             load_balancers: {{ www: {{ default_pools: [p1], when_unavailable: nodata }} }}\n"
        )
    };
    let mut network = Network::default();
    let mut drive = begin(&text(&[1, 2, 3, 4, 5]), &mut network);
    for last in [2, 3, 4] {
        network.set(last, ProbeResult::Fail);
    }
    drive.run_until(at(60), &mut network).unwrap();
    let suspect = |drive: &Drive| drive.engine.table().doubts_since(haledns::model::VantageId(0)).is_some();
    assert!(suspect(&drive), "three of five fell");
    drive.reload(model(&text(&[1, 5])), &mut network).unwrap();
    drive.run_until(at(86_400), &mut network).unwrap();
    assert!(!suspect(&drive), "what fell was taken out a day ago, and all that is left is well");
}

#[test]
fn verdicts_outlive_a_restart_after_the_clock_was_set() {
    for step in [-30i64, 3600] {
        let mut network = Network::default();
        let mut drive = begin(BLIND, &mut network);
        drive.run_until(at(4000), &mut network).unwrap();
        drive.engine.handle(haledns::engine::Event::ClockStepped(step * 1000), drive.now());
        drive.settle(&mut network).unwrap();
        drive.run_until(at(4100), &mut network).unwrap();
        let memory = drive.engine.memory(drive.now());
        // a second later, by the wall clock
        let now = Moment::from_start(Duration::from_secs((START as i64 + 4101 + step) as u64));
        let mut engine = Engine::new(10);
        engine.recall(memory, now.before(Duration::from_secs(600)), now);
        let after = Drive::new(engine, model(BLIND), now);
        assert_eq!(
            fitness(&after, 0),
            Fitness::Up,
            "vouched for a second ago; the clock was set by {step} s"
        );
    }
}

#[test]
fn an_override_lasts_as_long_as_was_said_after_the_clock_was_set() {
    let mut network = Network::default();
    let mut drive = begin(BLIND, &mut network);
    drive.engine.handle(haledns::engine::Event::ClockStepped(86_400_000), drive.now());
    let until = drive.now() + Duration::from_secs(3600);
    drive.engine.order(&scope("p", "a"), set(Action::Disable, Some(until)), drive.now()).unwrap();
    drive.settle(&mut network).unwrap();
    let after = restart(&drive, BLIND, 86_401, &mut network); // a second later, by the wall clock
    assert_eq!(fitness(&after, 0), Fitness::Out(OutCause::Disabled), "for an hour, it was said");
}

#[test]
fn h11_drained_is_told_when_the_longest_ttl_that_was_handed_out_has_passed() {
    let text = |ttl: u32| {
        format!(
            "{}\n",
            BLIND.replace("when_unavailable: nodata", &format!("ttl: {ttl}, when_unavailable: nodata"))
        )
    };
    let mut network = Network::default();
    let mut drive = begin(&text(300), &mut network);
    drive.reload(model(&text(30)), &mut network).unwrap();
    drive.run_until(at(6), &mut network).unwrap();
    drive.engine.order(&scope("p", "a"), set(Action::Drain, None), drive.now()).unwrap();
    drive.run_until(at(100), &mut network).unwrap();
    assert_eq!(
        fitness(&drive, 0),
        Fitness::Out(OutCause::Draining),
        "a resolver that asked two minutes ago has its address for three more"
    );
}

#[test]
fn what_was_held_counts_neither_as_flapping_nor_as_coming_back() {
    let more = "flap_limit: 3, flap_hold: 5m, slow_start: 2m, monitor: m";
    let text = UPLINK.replace("{ monitor: m,", &format!("{{ {more},"));
    let mut network = Network::default();
    let mut drive = begin(&text, &mut network);
    let ids = ["p", "q"].map(|name| drive.engine.model().pool_named(name).unwrap());
    // the uplink is gone for half a minute, twice
    for minute in [0, 2] {
        for last in [1, 2, 9] {
            network.set(last, ProbeResult::Fail);
        }
        drive.run_until(at(5 + 60 * minute + 30), &mut network).unwrap();
        let percents = ids.map(|id| drive.engine.table().standings(id)[0].percent);
        network.results.clear();
        drive.run_until(at(5 + 60 * minute + 120), &mut network).unwrap();
        assert_eq!(percents, [100, 100], "held as it was before");
    }
    let words = ids.map(|id| drive.engine.table().standings(id)[0].fitness.as_str());
    assert_eq!(words, ["up", "up"], "both endpoints were well all the time");
}

#[test]
fn a_failback_by_hand_lasts_over_a_restart() {
    let text = "
monitors: { m: { type: tcp, port: 80, interval: 10s, recheck_interval: off, consecutive_up: 1, consecutive_down: 1 } }
pools:
  a: { monitor: m, endpoints: [{ name: a, address: 192.0.2.1 }] }
  b: { monitor: m, endpoints: [{ name: a, address: 192.0.2.2 }] }
  c: { monitor: m, endpoints: [{ name: a, address: 192.0.2.3 }] }
load_balancers: { www: { default_pools: [a, b, c], when_unavailable: nodata, failback: manual } }
";
    let mut network = Network::default();
    let mut drive = begin(text, &mut network);
    network.set(2, ProbeResult::Fail);
    drive.run_until(at(20), &mut network).unwrap();
    network.results.clear();
    drive.run_until(at(40), &mut network).unwrap();
    let www = drive.engine.model().zones[0].load_balancers[0].name.clone();
    assert!(drive.engine.fail_back(&www, drive.now()), "b may take traffic again");
    drive.run_until(at(60), &mut network).unwrap();
    let serving = |drive: &Drive| drive.engine.status(drive.now()).balancers[0].serving.clone();
    let mut after = restart(&drive, text, 1, &mut network);
    network.set(1, ProbeResult::Fail);
    after.run_until(at(90), &mut network).unwrap();
    drive.run_until(at(90), &mut network).unwrap();
    assert_eq!(serving(&drive), ["b".into()], "without a restart");
    assert_eq!(serving(&after), serving(&drive));
}

#[test]
fn addresses_of_host_names_outlive_a_restart_when_the_resolver_is_lost() {
    let mut network = Network::default();
    network.hosts.insert("web.example.net".into(), vec![1]);
    let mut drive = begin(HOST, &mut network);
    drive.run_until(at(600), &mut network).unwrap();
    network.lost = true;
    let mut after = restart(&drive, HOST, 1, &mut network);
    after.run_until(after.now() + Duration::from_secs(20), &mut network).unwrap();
    assert_eq!(
        after.engine.model().pool(PoolId(0)).endpoints.len(),
        1,
        "good for an hour, had it not restarted"
    );
}

#[test]
fn verdicts_on_addresses_of_host_names_outlive_a_second_restart() {
    let mut network = Network::default();
    network.hosts.insert("web.example.net".into(), vec![1]);
    let mut first = begin(HOST, &mut network);
    first.run_until(at(600), &mut network).unwrap();
    let begin_again = |memory: Memory, now: Moment| {
        let mut engine = Engine::new(10);
        engine.recall(memory, now.before(Duration::from_secs(600)), now);
        Drive::new(engine, model(HOST), now)
    };
    // the journal begins with what the engine remembers after its first configuration
    let mut second = begin_again(first.engine.memory(first.now()), first.now() + Duration::from_secs(1));
    let mut journal = second.engine.memory(second.now());
    let found = |drive: &Drive| drive.engine.model().pool(PoolId(0)).endpoints.len() == 1;
    second.run_until(at(700), &mut network).unwrap();
    assert!(found(&second));
    std::mem::take(&mut second.records).into_iter().for_each(|record| journal.take(record));
    journal.take(Record::Alive(second.now()));
    let mut third = begin_again(journal, second.now() + Duration::from_secs(1));
    let limit = third.now() + Duration::from_secs(1);
    while !found(&third) {
        third.step(limit, &mut network).unwrap();
    }
    assert_eq!(fitness(&third, 0), Fitness::Up, "it has been healthy all the time");
}
