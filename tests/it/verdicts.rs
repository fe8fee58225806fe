//! From outcomes to verdicts, in virtual time: each probe finds what a test
//! says for its endpoint, monitor and vantage. What answers make of it is in
//! the scenarios.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use haledns::config;
use haledns::engine::{Change, Engine, Lookup};
use haledns::health::{
    Action, AgentReport, AgentWish, Degraded, Fitness, Order, Outcome, PoolState, ProbeResult, ProbeTask,
    Reason, Seen, Slot, TargetId, Verdict, scramble,
};
use haledns::model::{Model, PoolId, Scope};
use haledns::moment::Moment;
use haledns::simulate::{Drive, Nature};

const QUICK: Duration = Duration::from_millis(10);

fn at(seconds: u64) -> Moment {
    Moment::from_start(Duration::from_secs(1_700_000_000 + seconds))
}

fn model(text: &str) -> Arc<Model> {
    load(text).model
}

fn load(text: &str) -> config::Loaded {
    const REST: &str = "\nzone: example.com\nrecords: { '': { type: NS, value: ns.example.net. } }\n";
    let text = format!("{text}{REST}");
    let loaded = config::load_texts(vec![(PathBuf::from("a.yaml"), text.into_bytes())]);
    loaded.unwrap_or_else(|report| panic!("{report}"))
}

/// A network in which each probe finds what a function says.
struct Network<F> {
    /// Of a probe, and how many of this test of this endpoint came before it.
    says: F,
    turns: HashMap<(IpAddr, Arc<str>, Arc<str>), usize>,
    /// Probes as they began.
    begun: Vec<(Moment, IpAddr)>,
}

impl<F: FnMut(&ProbeTask, usize) -> Outcome> Network<F> {
    fn new(says: F) -> Network<F> {
        Network { says, turns: HashMap::new(), begun: Vec::new() }
    }

    /// When each address was probed.
    fn times(&self) -> BTreeMap<IpAddr, Vec<Moment>> {
        let mut times: BTreeMap<IpAddr, Vec<Moment>> = BTreeMap::new();
        for (moment, address) in &self.begun {
            times.entry(*address).or_default().push(*moment);
        }
        times
    }
}

impl<F: FnMut(&ProbeTask, usize) -> Outcome> Nature for Network<F> {
    fn probe(&mut self, _: TargetId, task: &ProbeTask, now: Moment) -> Outcome {
        let test = (task.address, Arc::clone(&task.monitor.name), Arc::clone(&task.vantage.name));
        let turn = self.turns.entry(test).or_default();
        self.begun.push((now, task.address));
        *turn += 1;
        (self.says)(task, *turn - 1)
    }

    fn resolve(&mut self, _: &str, _: Moment) -> (Duration, Lookup) {
        (QUICK, Lookup::NoSuchName)
    }
}

fn found(result: ProbeResult) -> Outcome {
    Outcome { took: QUICK, ..Outcome::new(result, Reason::OtherFailure, "as told") }
}

fn passes(passes: bool) -> Outcome {
    found(if passes { ProbeResult::Pass } else { ProbeResult::Fail })
}

/// One that takes the whole timeout, retries included.
fn hangs(task: &ProbeTask) -> Outcome {
    let took = task.monitor.timeout * (u32::from(task.monitor.retries) + 1);
    Outcome { took, ..Outcome::new(ProbeResult::Fail, Reason::TcpTimeout, "connect_timeout") }
}

fn begin(text: &str, network: &mut impl Nature) -> Drive {
    let mut drive = Drive::new(Engine::new(10_000), model(text), at(0));
    drive.settle(network).unwrap();
    drive
}

fn verdict(drive: &Drive) -> Verdict {
    drive.engine.table().verdicts(PoolId(0))[0]
}

fn word(verdict: Verdict) -> char {
    match verdict {
        Verdict::Unknown => '?',
        Verdict::Healthy => 'H',
        Verdict::Unhealthy => 'U',
    }
}

/// What consecutive outcomes make of a verdict, said as plainly as can be: look
/// back as far as the threshold goes.
fn plainly(outcomes: &[ProbeResult], up: usize, down: usize) -> char {
    let counted: Vec<bool> = (outcomes.iter())
        .filter(|result| **result != ProbeResult::Error)
        .map(|result| *result == ProbeResult::Pass)
        .collect();
    let mut verdict = '?';
    for (number, passed) in counted.iter().enumerate() {
        let run = counted[..=number].iter().rev().take_while(|other| *other == passed).count();
        verdict = match (verdict, passed) {
            ('?', true) => 'H',
            ('?', false) => 'U',
            ('U', true) if run >= up => 'H',
            ('H', false) if run >= down => 'U',
            (verdict, _) => verdict,
        };
    }
    verdict
}

#[test]
fn a_drain_waits_for_the_longest_ttl_that_is_handed_out() {
    for (policy, pools, seconds) in [
        ("fixed", "default_pools: [eu], fallback_pool: us", 300),
        // two beats to come back are longer than one and two rechecks
        ("derived", "default_pools: [eu], fallback_pool: us", 40),
        ("derived", "default_pools: [us], fallback_pool: eu", 300),
        ("derived", "default_pools: [still], fallback_pool: us", 300),
    ] {
        let text = format!(
            "monitors: {{ m: {{ type: tcp, port: 80, interval: 20s }}, s: {{ type: static }} }}\n\
             pools:\n  eu: {{ monitor: m, endpoints: [ {{ name: a, address: 192.0.2.1 }} ] }}\n  \
             still: {{ monitor: s, endpoints: [ {{ name: a, address: 192.0.2.2 }} ] }}\n  \
             us: {{ endpoints: [ {{ name: a, address: 192.0.2.3 }} ] }}\n\
             load_balancers: {{ www: {{ ttl: 5m, ttl_policy: {policy}, {pools} }} }}"
        );
        let mut network = Network::new(|_, _| passes(true));
        let mut drive = Drive::new(Engine::new(100), model(&text), at(0));
        drive.settle(&mut network).unwrap();
        let pool = if pools.contains("still") { "still" } else { "eu" };
        let scope = Scope { pool: pool.into(), endpoint: Some("a".into()) };
        let drain = Order::Set { action: Action::Drain, reason: "".into(), by: "".into(), until: None };
        let now = drive.now();
        drive.engine.order(&scope, drain, now).unwrap();
        let said = drive.engine.table().overrides().get(&scope, Slot::Traffic, now).unwrap();
        assert_eq!(said.drained_at.since(now).as_secs(), seconds, "{policy}, {pools}");
    }
}

#[test]
fn b14_verdicts_follow_a_model_over_random_outcomes() {
    for (seed, (up, down)) in (0..).zip([(1, 1), (1, 3), (2, 1), (2, 3), (3, 2), (5, 4)]) {
        for recheck in ["off", "200ms"] {
            let text = format!(
                "monitors: {{ m: {{ type: tcp, port: 80, interval: 1s, timeout: 100ms, consecutive_up: {up}, \
                 consecutive_down: {down}, recheck_interval: {recheck} }} }}\n\
                 pools: {{ p: {{ monitor: m, endpoints: [{{ name: a, address: 192.0.2.1 }}] }} }}\n\
                 load_balancers: {{ www: {{ default_pools: [p], when_unavailable: nodata }} }}\n"
            );
            let draw = |turn: usize| match scramble(seed * 1000 + turn as u64) % 20 {
                0 => ProbeResult::Error,
                1..=9 => ProbeResult::Fail,
                _ => ProbeResult::Pass,
            };
            let mut network = Network::new(|_, turn| found(draw(turn)));
            let mut drive = begin(&text, &mut network);
            let mut outcomes = Vec::new();
            let mut changes = 0;
            while drive.step(at(500), &mut network).unwrap() {
                for (_, outcome) in drive.landed.drain(..) {
                    let before = plainly(&outcomes, up, down);
                    outcomes.push(outcome.result);
                    changes += usize::from(plainly(&outcomes, up, down) != before);
                }
                let expected = plainly(&outcomes, up, down);
                assert_eq!(word(verdict(&drive)), expected, "up {up}, down {down}: {outcomes:?}");
            }
            assert!(outcomes.len() > 400 && changes > 5, "{} outcomes, {changes} changes", outcomes.len());
        }
    }
}

#[test]
fn h1_runs_are_counted_at_each_vantage_before_vantages_are_asked() {
    // at every moment one of the two has just failed, which makes a tie, and a tie is unhealthy
    let text = "vantages: { a: {}, b: {} }\n\
                monitors: { m: { type: tcp, port: 80, interval: 10s, consecutive_up: 2, consecutive_down: 2, \
                recheck_interval: off } }\n\
                pools: { p: { monitor: m, endpoints: [{ name: e, address: 192.0.2.1 }] } }\n\
                load_balancers: { www: { default_pools: [p], when_unavailable: nodata } }\n";
    let mut network = Network::new(|task: &ProbeTask, turn| {
        passes(turn == 0 || turn % 2 == usize::from(&*task.vantage.name == "b"))
    });
    let mut drive = begin(text, &mut network);
    drive.run_until(at(10), &mut network).unwrap();
    while drive.step(at(600), &mut network).unwrap() {
        assert_eq!(verdict(&drive), Verdict::Healthy, "at {:?}", drive.now().since(at(0)));
    }
}

#[test]
fn h1_monitors_are_combined_at_each_vantage_before_vantages_are_asked() {
    // each monitor passes from two of three vantages, and both do from one only
    let text = "vantages: { a: {}, b: {}, c: {} }\n\
                monitors:\n  one: { type: tcp, port: 80, interval: 10s }\n  two: { type: tcp, port: 81, interval: 10s }\n\
                pools: { p: { monitors: [one, two], endpoints: [{ name: e, address: 192.0.2.1 }] } }\n\
                load_balancers: { www: { default_pools: [p], when_unavailable: nodata } }\n";
    let mut network = Network::new(|task: &ProbeTask, _| {
        passes(!matches!((&*task.vantage.name, &*task.monitor.name), ("a", "one") | ("b", "two")))
    });
    let mut drive = begin(text, &mut network);
    drive.run_until(at(60), &mut network).unwrap();
    assert_eq!(verdict(&drive), Verdict::Unhealthy);
    // one vantage more that sees both pass, and it is two of three
    let mut network = Network::new(|task: &ProbeTask, _| {
        passes((&*task.vantage.name, &*task.monitor.name) != ("a", "one"))
    });
    let mut drive = begin(text, &mut network);
    drive.run_until(at(60), &mut network).unwrap();
    assert_eq!(verdict(&drive), Verdict::Healthy);
}

#[test]
fn r1_r2_r3_r4_r5_r6_r7_r8_a_majority_of_regions_by_probes_from_each() {
    const CODES: [&str; 13] =
        ["WNAM", "ENAM", "WEU", "EEU", "NSAM", "SSAM", "OC", "ME", "NAF", "SAF", "SAS", "SEAS", "NEAS"];
    for (id, regions, expected) in [
        ("R1", "++-", 'H'),
        ("R2", "+--", 'U'),
        ("R3", "++- +-- +++", 'H'),
        ("R4, a tie", "+++ ---", 'U'),
        ("R5", "+++ +++ +++ +++ +++ +++ --- --- --- --- --- --- ---", 'U'),
        ("R5, one more", "+++ +++ +++ +++ +++ +++ +++ --- --- --- --- --- ---", 'H'),
        ("R6", "++- ++- ++-", 'H'),
        ("R7", "++- ++- ---", 'H'),
        ("R8", "+++ +-- +--", 'U'),
    ] {
        let regions: Vec<&str> = regions.split(' ').collect();
        let vantage = |region: usize, n: usize| format!("v{region}x{n}: {{ region: {} }}", CODES[region]);
        let vantages: Vec<String> =
            (0..regions.len()).flat_map(|region| (0..3).map(move |n| vantage(region, n))).collect();
        let text = format!(
            "vantages: {{ {} }}\n\
             monitors: {{ m: {{ type: tcp, port: 80, interval: 10s }} }}\n\
             pools: {{ p: {{ monitor: m, check_regions: [{}], endpoints: [{{ name: e, address: 192.0.2.1 }}] }} }}\n\
             load_balancers: {{ www: {{ default_pools: [p], when_unavailable: nodata }} }}\n",
            vantages.join(", "),
            CODES[..regions.len()].join(", "),
        );
        let mut network = Network::new(|task: &ProbeTask, _| {
            let (region, number) = task.vantage.name[1..].split_once('x').expect("named so above");
            let seen = regions[region.parse::<usize>().unwrap()].as_bytes();
            passes(seen[number.parse::<usize>().unwrap()] == b'+')
        });
        let mut drive = begin(&text, &mut network);
        drive.run_until(at(30), &mut network).unwrap();
        assert_eq!(word(verdict(&drive)), expected, "{id}");
    }
}

#[test]
fn g8_a_member_without_a_result_is_no_failure_and_no_proof_either() {
    let text = "monitors:\n  a: { type: tcp, port: 80, interval: 60s, timeout: 50s }\n  \
                b: { type: tcp, port: 81, interval: 60s, timeout: 50s }\n  c: { type: tcp, port: 82, interval: 60s, timeout: 50s }\n\
                monitor_groups: { three: { members: [ { monitor: a }, { monitor: b }, { monitor: c } ] } }\n\
                pools: { p: { monitor_group: three, endpoints: [{ name: e, address: 192.0.2.1 }] } }\n\
                load_balancers: { www: { default_pools: [p], when_unavailable: nodata } }\n";
    // the first answers at once, the second after 20 s, the third after 40 s
    let mut network = Network::new(|task: &ProbeTask, _| {
        let seconds = match &*task.monitor.name {
            "a" => 0,
            "b" => 20,
            _ => 40,
        };
        Outcome { took: QUICK + Duration::from_secs(seconds), ..passes(seconds < 40) }
    });
    let mut drive = begin(text, &mut network);
    for (seconds, expected, why) in [
        (10, '?', "one of three says healthy, which is less than half"),
        (30, 'H', "two of three do"),
        (50, 'H', "the third fails, and is outvoted"),
    ] {
        drive.run_until(at(seconds), &mut network).unwrap();
        assert_eq!(word(verdict(&drive)), expected, "{why}");
    }
}

/// So many endpoints of one pool, tested by this monitor.
fn many(count: usize, monitor: &str, more: &str) -> String {
    let endpoint = |n: usize| format!("{{ name: e{n}, address: 10.0.{}.{} }}", n / 250, n % 250 + 1);
    let endpoints: Vec<String> = (0..count).map(endpoint).collect();
    format!(
        "monitors: {{ m: {{ type: tcp, port: 80, {monitor} }} }}\n\
         pools: {{ p: {{ monitor: m, endpoints: [{}] }} }}\n\
         load_balancers: {{ www: {{ {more}default_pools: [p], when_unavailable: nodata }} }}\n",
        endpoints.join(", ")
    )
}

#[test]
fn b25_a_herd_starts_spread_and_stays_spread_over_a_reload() {
    const COUNT: usize = 500;
    let monitor = "interval: 10s, timeout: 5s, consecutive_down: 1";
    // one in ten hangs, so that verdicts come late, too
    let mut network = Network::new(|task: &ProbeTask, _| match task.address {
        IpAddr::V4(address) if address.octets()[3].is_multiple_of(10) => hangs(task),
        _ => passes(true),
    });
    let mut drive = begin(&many(COUNT, monitor, ""), &mut network);
    let mut verdicts_at = Vec::new();
    while drive.step(at(15), &mut network).unwrap() {
        let there =
            drive.engine.table().verdicts(PoolId(0)).iter().filter(|v| **v != Verdict::Unknown).count();
        verdicts_at.resize(there, drive.now());
    }
    assert_eq!(verdicts_at.len(), COUNT);
    let latest_95 = verdicts_at[COUNT * 95 / 100].since(at(0));
    assert!(latest_95 <= Duration::from_secs(8), "95 % have a verdict after {latest_95:?}");

    let firsts: Vec<Duration> = network.times().values().map(|times| times[0].since(at(0))).collect();
    let (soonest, latest) = (firsts.iter().min().unwrap(), firsts.iter().max().unwrap());
    assert!(*latest <= Duration::from_secs(2), "the first round takes {latest:?}");
    assert!(*latest - *soonest > Duration::from_millis(400), "it is spread: from {soonest:?} to {latest:?}");

    drive.run_until(at(100), &mut network).unwrap();
    drive.reload(model(&many(COUNT, monitor, "ttl: 20s, ")), &mut network).unwrap();
    drive.run_until(at(200), &mut network).unwrap();
    let mut windows: BTreeMap<u128, usize> = BTreeMap::new();
    for (moment, _) in network.begun.iter().filter(|(moment, _)| *moment > at(20)) {
        *windows.entry(moment.since(at(0)).as_millis() / 100).or_default() += 1;
    }
    let most = windows.values().max().unwrap();
    assert!(*most < COUNT / 20, "{most} of {COUNT} within a tenth of a second");
    for (address, times) in network.times() {
        // the first beats after the first round come at once or after nearly two intervals
        for gap in times[2..].windows(2).map(|pair| pair[1].since(pair[0])) {
            let steady = Duration::from_millis(8900)..=Duration::from_millis(11_100);
            assert!(steady.contains(&gap), "{address} after {gap:?}; the reload moved no beat");
        }
    }
}

#[test]
fn b25_probes_that_a_cap_delays_are_counted() {
    let text = many(100, "interval: 1s, timeout: 900ms", "");
    let mut network = Network::new(|task: &ProbeTask, _| hangs(task));
    for (cap, delayed) in [(10, true), (1000, false)] {
        let mut drive = Drive::new(Engine::new(cap), model(&text), at(0));
        drive.run_until(at(60), &mut network).unwrap();
        let late = drive.engine.counters().late;
        assert_eq!(late > 0, delayed, "{late} late with {cap} at once");
    }
}

#[test]
fn d12_h8_probes_that_outlast_the_interval_never_pile_up_and_beats_let_out_are_counted() {
    // that no target is probed twice at once is looked at by what carries probes
    let text = "vantages: { a: {}, b: {}, c: {} }\n\
                monitors: { m: { type: tcp, port: 80, interval: 1s, timeout: 5s, retries: 2 } }\n\
                pools: { p: { monitor: m, endpoints: [{ name: e, address: 192.0.2.1 }] } }\n\
                load_balancers: { www: { default_pools: [p], when_unavailable: nodata } }\n";
    let mut network = Network::new(|task: &ProbeTask, _| hangs(task));
    let mut drive = begin(text, &mut network);
    drive.run_until(at(600), &mut network).unwrap();
    let counters = drive.engine.counters();
    let begun = network.begun.len();
    assert!((3 * 600 / 17..=3 * 600 / 15 + 3).contains(&begun), "one after the other, from three: {begun}");
    assert!(counters.skipped as usize > 10 * begun, "{counters:?}");
}

#[test]
fn h10_more_than_five_changes_in_ten_minutes_are_flapping_and_told() {
    let text = |interval: &str| {
        many(1, &format!("interval: {interval}, consecutive_up: 1, consecutive_down: 1"), "")
    };
    let flaps = |interval: &str, changes: usize| {
        let mut network = Network::new(|_, turn| passes(turn.min(changes) % 2 == 0));
        let mut drive = begin(&text(interval), &mut network);
        drive.run_until(at(590), &mut network).unwrap();
        let told =
            |(_, change): &(Moment, Change)| matches!(change, Change::Endpoint { to, .. } if to.flapping);
        let standing = drive.engine.table().standings(PoolId(0))[0];
        assert_eq!(standing.flapping, drive.told.iter().any(told));
        // without flap_hold it is told, and nothing else
        assert_eq!(standing.fitness.is_up(), standing.verdict == Verdict::Healthy);
        standing.flapping
    };
    assert!(!flaps("10s", 5) && flaps("10s", 6), "the sixth change is one too many");
    assert!(!flaps("3m", 100), "and so many changes must come within the window");
}

#[test]
fn h13_traffic_that_fails_ejects_for_longer_each_time_but_never_the_last_that_are_needed() {
    let text = "monitors: { m: { type: tcp, port: 80, interval: 10s } }\n\
                pools:\n  p:\n    monitor: m\n    health_threshold: 2\n    \
                ejection: { consecutive_failures: 3, ejection_time: 30s, max_ejection_percent: 100 }\n    \
                endpoints: [{ name: a, address: 192.0.2.1 }, { name: b, address: 192.0.2.2 }, { name: c, address: 192.0.2.3 }]\n\
                load_balancers: { www: { default_pools: [p], when_unavailable: nodata } }\n";
    let mut network = Network::new(|_, _| passes(true));
    let mut drive = begin(text, &mut network);
    drive.run_until(at(20), &mut network).unwrap();
    let words = |drive: &Drive| -> Vec<&str> {
        drive.engine.table().standings(PoolId(0)).iter().map(|standing| standing.fitness.as_str()).collect()
    };
    let fails = |drive: &mut Drive, endpoint: &str| {
        let scope = Scope { pool: "p".into(), endpoint: Some(endpoint.into()) };
        drive.engine.traffic(&scope, Seen { ok: 0, failed: 3 }, drive.now()).unwrap();
    };
    for endpoint in ["a", "b", "c"] {
        fails(&mut drive, endpoint);
    }
    drive.settle(&mut network).unwrap();
    assert_eq!(words(&drive), ["ejected", "up", "up"], "two are needed");
    let before = network.begun.len();
    let since = drive.now();
    let mut lasted = Vec::new();
    for _ in 0..2 {
        let since = drive.now();
        while words(&drive)[0] == "ejected" {
            drive.step(since + Duration::from_secs(600), &mut network).unwrap();
        }
        lasted.push(drive.now().since(since).as_secs());
        fails(&mut drive, "a");
        drive.settle(&mut network).unwrap();
    }
    assert_eq!(lasted, [30, 60], "each one longer");
    let probes =
        network.begun[before..].iter().filter(|(_, address)| *address == IpAddr::from([192, 0, 2, 1]));
    let expected = (drive.now().since(since).as_secs() / 10) as usize;
    assert!(probes.count() + 1 >= expected, "it is probed all the time");
}

#[test]
fn h14_what_an_agent_says_is_beside_the_verdict() {
    let text = "monitors: { m: { type: agent, port: 80, interval: 10s, consecutive_up: 1, consecutive_down: 1, \
                recheck_interval: off } }\n\
                pools: { p: { monitor: m, endpoints: [{ name: e, address: 192.0.2.1 }] } }\n\
                load_balancers: { www: { default_pools: [p], when_unavailable: nodata } }\n";
    let wish = |wish| (true, AgentReport { wish: Some(wish), percent: None });
    let share = |percent| AgentReport { wish: None, percent: Some(percent) };
    let said = [
        (wish(AgentWish::Ready), "H up 100"),
        (wish(AgentWish::Drain), "H agent_drain 100"),
        (wish(AgentWish::Ready), "H up 100"),
        (wish(AgentWish::Maint), "H agent_maint 100"),
        ((false, AgentReport::default()), "U agent_maint 100"),
        (wish(AgentWish::Ready), "H up 100"),
        ((true, share(75)), "H up 75"),
        ((true, share(100)), "H up 100"),
        ((false, AgentReport::default()), "U unhealthy 100"),
    ];
    let mut network = Network::new(|_, turn| {
        let (passed, agent) = said[turn.min(said.len() - 1)].0;
        Outcome { agent: Some(agent), ..passes(passed) }
    });
    let mut drive = begin(text, &mut network);
    let mut seen = Vec::new();
    while seen.len() < said.len() && drive.step(at(600), &mut network).unwrap() {
        if drive.landed.drain(..).count() > 0 {
            let standing = drive.engine.table().standings(PoolId(0))[0];
            let verdict = word(standing.verdict);
            seen.push(format!("{verdict} {} {}", standing.fitness.as_str(), standing.percent));
        }
    }
    assert_eq!(seen, said.map(|(_, expected)| expected));
}

#[test]
fn h14_an_endpoint_that_does_not_report_in_time_is_down_until_it_does() {
    let text = "monitors: { m: { type: push, interval: 60s, consecutive_up: 1, consecutive_down: 1 } }\n\
                pools: { p: { monitor: m, endpoints: [{ name: e, address: 192.0.2.1 }] } }\n\
                load_balancers: { www: { default_pools: [p], when_unavailable: nodata } }\n";
    let mut network = Network::new(|_, _| panic!("nobody probes it"));
    let mut drive = begin(text, &mut network);
    let scope = Scope { pool: "p".into(), endpoint: Some("e".into()) };
    let is_up = |drive: &Drive| drive.engine.table().standings(PoolId(0))[0].fitness.is_up();
    for _ in 0..2 {
        drive.run_until(drive.now() + Duration::from_secs(100), &mut network).unwrap();
        assert!(!is_up(&drive));
        drive.engine.push(&scope, true, drive.now()).unwrap();
        drive.settle(&mut network).unwrap();
        assert!(is_up(&drive));
        let reported = drive.now();
        while is_up(&drive) && drive.step(reported + Duration::from_secs(600), &mut network).unwrap() {}
        let lasted = drive.now().since(reported).as_secs();
        // whether one came is looked at once an interval
        assert!((60..=126).contains(&lasted), "{lasted} s after it last reported");
    }
    drive.engine.push(&scope, true, drive.now()).unwrap();
    drive.engine.push(&scope, false, drive.now()).unwrap();
    drive.settle(&mut network).unwrap();
    assert!(!is_up(&drive), "and what it says of itself counts");
}

#[test]
fn h15_verdicts_are_held_while_a_vantage_doubts_itself_but_not_for_ever() {
    let text = |more: &str, vantages: &str| {
        format!(
            "{vantages}server: {{ panic_hold: 2m{more} }}\n\
             monitors: {{ m: {{ type: tcp, port: 80, interval: 10s, consecutive_up: 1, consecutive_down: 1 }} }}\n\
             pools:\n  p: {{ monitor: m, endpoints: [{{ name: e, address: 192.0.2.1 }}] }}\n  \
             q: {{ monitor: m, endpoints: [{{ name: e, address: 192.0.2.2 }}] }}\n  \
             r: {{ monitor: m, endpoints: [{{ name: e, address: 192.0.2.3 }}] }}\n\
             load_balancers: {{ www: {{ default_pools: [p, q], when_unavailable: nodata }} }}\n"
        )
    };
    let two = "vantages: { a: {}, b: {} }\n";
    for (more, vantages, fall, held) in [
        (", panic_share: 50", "", &[1u8, 2][..], true),
        (", panic_share: 50", "", &[1], false),
        (", canaries: r", "", &[1, 3], true),
        (", canaries: r", "", &[1], false),
        ("", two, &[1, 2, 3], true), // with several vantages it is on
        ("", two, &[1], false),
        (", panic_share: off", two, &[1, 2, 3], false),
        ("", "", &[1, 2, 3], false), // with one it is off unless asked for
    ] {
        let mut network = Network::new(|task: &ProbeTask, turn| match task.address {
            IpAddr::V4(address) => passes(turn < 3 || !fall.contains(&address.octets()[3])),
            IpAddr::V6(_) => passes(true),
        });
        let mut drive = begin(&text(more, vantages), &mut network);
        drive.run_until(at(60), &mut network).unwrap();
        let why = format!("{more:?}, {vantages:?}, {fall:?} fall");
        let up = |drive: &Drive| drive.engine.table().standings(PoolId(0))[0].fitness.is_up();
        assert_eq!(up(&drive), held, "{why}");
        let told = |(_, change): &(Moment, Change)| matches!(change, Change::Vantage { suspect: true, .. });
        assert_eq!(drive.told.iter().any(told), held, "{why}");
        drive.run_until(at(200), &mut network).unwrap();
        assert!(!up(&drive), "two minutes, and then the verdict applies: {why}");
    }
}

#[test]
fn h17_d10_what_could_not_be_probed_is_probed_again_at_the_next_beat() {
    let text = many(1, "interval: 10s", "");
    let mut network = Network::new(|_, turn| match turn {
        1..=3 => Outcome { detail: "probe_aborted", ..found(ProbeResult::Error) },
        _ => passes(true),
    });
    let mut drive = begin(&text, &mut network);
    drive.run_until(at(200), &mut network).unwrap();
    assert!((19..=22).contains(&network.begun.len()), "{}", network.begun.len());
    assert_eq!(verdict(&drive), Verdict::Healthy, "three times nothing is no failure");
    let told = |(_, change): &&(Moment, Change)| matches!(change, Change::CannotProbe { .. });
    assert_eq!(drive.told.iter().filter(told).count(), 1, "and it is told once");
}

#[test]
fn h18_a_pass_that_is_degraded_is_a_pass_and_changes_no_pool() {
    let mut network =
        Network::new(|_, turn| Outcome { degraded: (turn > 0).then_some(Degraded::Slow), ..passes(true) });
    let mut drive = begin(&many(2, "interval: 10s", ""), &mut network);
    drive.run_until(at(60), &mut network).unwrap();
    let standing = drive.engine.table().standings(PoolId(0))[0];
    assert_eq!((standing.fitness, standing.degraded), (Fitness::Up, Some(Degraded::Slow)));
    assert_eq!(drive.engine.compiled().pool(PoolId(0)).state, PoolState::Healthy);
    let told = |(_, change): &(Moment, Change)| matches!(change, Change::Endpoint { to, .. } if to.degraded.is_some());
    assert!(drive.told.iter().any(told), "and it is an event");
}

#[tokio::test]
async fn h18_the_port_is_the_monitors_else_the_endpoints_else_the_protocols() {
    for (monitor, endpoint, expected) in [
        ("type: http, port: 81", ", port: 82", 81),
        ("type: http", ", port: 82", 82),
        ("type: http", "", 80),
        ("type: https", "", 443),
        ("type: tcp, port: 5432", ", port: 82", 5432),
        ("type: tcp", ", port: 82", 82),
        ("type: smtp", "", 25),
        ("type: smtp, tls: true", "", 465),
        ("type: dns, query_name: example.com", "", 53),
        ("type: dns, query_name: example.com", ", port: 5300", 5300),
    ] {
        let text = format!(
            "monitors: {{ m: {{ {monitor} }} }}\n\
             pools: {{ p: {{ monitor: m, endpoints: [{{ name: e, address: 192.0.2.1{endpoint} }}] }} }}\n\
             load_balancers: {{ www: {{ default_pools: [p], when_unavailable: nodata }} }}\n"
        );
        let (tasks, _) = haledns::app::tasks_of(&load(&text), "p/e").await.unwrap();
        let ports: Vec<u16> = tasks.iter().map(|task| task.port).collect();
        assert_eq!(ports, [expected], "{monitor}{endpoint}");
    }
}

#[test]
fn d04_a_failure_that_changes_its_words_is_no_news() {
    let text = many(1, "interval: 1s, timeout: 500ms, consecutive_up: 1, consecutive_down: 1", "");
    let mut network = Network::new(|task: &ProbeTask, turn| match turn {
        0 => passes(true),
        turn if turn % 2 == 0 => hangs(task),
        _ => Outcome::new(ProbeResult::Fail, Reason::TcpConnectionFailed, "connect_refused"),
    });
    let mut drive = begin(&text, &mut network);
    drive.run_until(at(600), &mut network).unwrap();
    let told = |(_, change): &&(Moment, Change)| matches!(change, Change::Endpoint { .. });
    assert!(network.begun.len() > 300, "{}", network.begun.len());
    assert_eq!(drive.told.iter().filter(told).count(), 2, "it came, and it went: {:?}", drive.told);
}

#[test]
fn d04_of_an_endpoint_that_alternates_each_change_is_told_and_nothing_else() {
    let text = many(
        1,
        "interval: 1s, timeout: 500ms, consecutive_up: 1, consecutive_down: 1, recheck_interval: off",
        "",
    );
    let mut network = Network::new(|_, turn| passes(turn % 2 == 0));
    let mut drive = begin(&text, &mut network);
    drive.run_until(at(600), &mut network).unwrap();
    let outcomes = drive.landed.len();
    let told = |(_, change): &&(Moment, Change)| match change {
        Change::Endpoint { from, to, .. } => from.verdict != to.verdict,
        _ => false,
    };
    let changes = drive.told.iter().filter(told).count();
    assert_eq!(changes, outcomes, "one for each outcome, as each one is a change");
    // beside them the endpoint becomes a flapping one once, and the pool and the balancer follow
    assert!(drive.told.len() <= 3 * changes + 1, "{} for {changes} changes", drive.told.len());
}
