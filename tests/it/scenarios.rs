//! Scenario files: documented behaviour, played in virtual time, and some of
//! it on real sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use haledns::health::Verdict;
use haledns::model::{Model, PoolId};

use crate::support::ask::compare;
use crate::support::live;
use crate::support::programs::need;
use crate::support::scenario::{Attempt, Scenario, SerialStep, Start, Step, all};
use crate::support::world::{START, World, name_in_words};

/// How often one step asks: answers differ by chance.
const ASKS: usize = 32;
/// How many answers shares are counted in.
const SHARE_ASKS: usize = 4000;
/// By how many parts in a hundred a share may be off.
const SHARE_ERROR: f64 = 2.5;

/// `SCENARIO=name` plays the files whose names begin so.
#[test]
fn every_scenario_holds_in_virtual_time() {
    let only = std::env::var("SCENARIO").unwrap_or_default();
    let failures: Vec<String> = (all().iter())
        .filter(|scenario| scenario.file.to_string_lossy().starts_with(&only))
        .filter_map(|scenario| complaint(scenario, play(scenario)))
        .collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_scenarios_hold_on_real_sockets() {
    if !need("dig") {
        return;
    }
    let scenarios: Vec<Scenario> = all().into_iter().filter(|scenario| scenario.live).collect();
    assert!(scenarios.len() >= 4, "some scenarios are live");
    let mut failures = Vec::new();
    for scenario in &scenarios {
        failures.extend(complaint(scenario, live::run(scenario).await));
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

fn complaint(scenario: &Scenario, outcome: Result<(), String>) -> Option<String> {
    let what = outcome.err()?;
    Some(format!("--- tests/scenarios/{}: {}\n{what}", scenario.file.display(), scenario.title))
}

/// Plays one scenario; says what went wrong, and in which step.
fn play(scenario: &Scenario) -> Result<(), String> {
    let loaded = scenario.config.load(18080);
    if let Some(kind) = &scenario.refused {
        let report = loaded.err().ok_or("the configuration is not refused\n")?;
        let kinds: Vec<String> = report.problems.iter().map(|problem| problem.kind.id().to_owned()).collect();
        return match kinds.contains(kind) {
            true => Ok(()),
            false => Err(format!("refused, but not for `{kind}`:\n{report}\n")),
        };
    }
    let loaded = loaded.map_err(|report| format!("the configuration is refused:\n{report}"))?;
    let mut player =
        Player { world: World::new(loaded.model), serial: None, told: 0, probes: BTreeMap::new() };
    let at_start = |what: String| format!("before the first step:\n  {what}");
    player.world.change(&scenario.endpoints).map_err(at_start)?;
    player.world.rename(&scenario.hosts);
    match scenario.start {
        Start::Settled => player.world.settle(),
        Start::Cold => player.world.run_until(START),
    }
    .map_err(at_start)?;
    player.told = player.world.told.len();
    player.probes = player.world.probes().clone();
    let mut config = scenario.config.clone();
    for (step, number) in scenario.steps.iter().zip(1..) {
        let in_step = |what: String, player: &Player| {
            let at = player.world.now().since(START);
            let why = step.why.as_deref().unwrap_or_default();
            let ask = step.ask.as_ref().map(|ask| format!("  ask {}\n", ask.text)).unwrap_or_default();
            format!("step {number}, {at:.1?} after the start: {why}\n{ask}{what}")
        };
        let mut take = || {
            let next = step.config(&config)?;
            let model = next.as_ref().map(|next| next.load(18080).map(|loaded| loaded.model));
            let model = model.transpose().map_err(|report| format!("refused:\n{report}"))?;
            config = next.unwrap_or(config.clone());
            player.take(step, model)
        };
        take().map_err(|what| in_step(what, &player))?;
    }
    Ok(())
}

struct Player {
    world: World,
    serial: Option<u32>,
    /// What was told and probed up to the last look at it.
    told: usize,
    probes: BTreeMap<IpAddr, usize>,
}

impl Player {
    fn take(&mut self, step: &Step, model: Option<std::sync::Arc<Model>>) -> Result<(), String> {
        let began = self.world.now();
        let moment = match (step.at, step.after) {
            (Some(at), _) => START + at.0,
            (None, Some(after)) => began + after.0,
            (None, None) => began,
        };
        if moment < began {
            return Err(format!("  `at` lies before {:.1?}\n", began.since(START)));
        }
        self.world.run_until(moment)?;
        self.world.change(&step.endpoints)?;
        self.world.rename(&step.hosts);
        if let Some(model) = model {
            self.world.reload(model)?;
        }
        for (of, word) in &step.r#override {
            self.world.say(of, word)?;
        }
        let began = self.world.now();
        if let Some(becomes) = step.becomes {
            loop {
                let passed = self.world.now().since(began);
                match self.look(step) {
                    None if passed < becomes.not_before.0 => {
                        return Err(format!("  it is so after {passed:.1?} already\n"));
                    }
                    None => break,
                    Some(wrong) => {
                        if !self.world.step(began + becomes.within.0)? {
                            return Err(format!("{wrong}  and so it was for {:.1?}\n", becomes.within.0));
                        }
                    }
                }
            }
        } else if let Some(wrong) = self.look(step) {
            return Err(wrong);
        }
        if let Some(stays) = step.stays {
            while self.world.step(began + stays.0)? {
                if let Some(wrong) = self.look(step) {
                    return Err(format!("{wrong}  {:.1?} into the step\n", self.world.now().since(began)));
                }
            }
        }
        self.account(step)
    }

    /// What isn't as expected just now.
    fn look(&mut self, step: &Step) -> Option<String> {
        if let Some(question) = &step.ask {
            let query = question.value.octets();
            for _ in 0..ASKS {
                let reply = self.world.ask(&query);
                if let Some(wrong) = step.complaint(&reply) {
                    return Some(wrong);
                }
            }
            if let Some(wrong) = step.shares.as_ref().and_then(|shares| self.shares(&query, shares)) {
                return Some(wrong);
            }
        }
        let compiled = self.world.engine().compiled();
        let model = self.world.engine().model();
        let pools = (model.pools.iter().zip(0..))
            .map(|(pool, id)| (pool.name.to_string(), compiled.pool(PoolId(id)).state.to_string()));
        let balancers = compiled
            .balancers()
            .map(|(balancer, status)| (name_in_words(&balancer.name), status.state.to_string()));
        states("pools", &step.pools, pools.collect())
            .or_else(|| states("load balancers", &step.load_balancers, balancers.collect()))
    }

    /// How many in a hundred answers carry each line.
    fn shares(&mut self, query: &[u8], expected: &BTreeMap<String, f64>) -> Option<String> {
        let mut got: BTreeMap<String, f64> = expected.keys().map(|line| (line.clone(), 0.0)).collect();
        for _ in 0..SHARE_ASKS {
            for line in self.world.ask(query).answer {
                *got.entry(line).or_default() += 100.0 / SHARE_ASKS as f64;
            }
        }
        let off =
            |line: &String| expected.get(line).is_none_or(|share| (share - got[line]).abs() > SHARE_ERROR);
        let all: Vec<String> = (got.keys().filter(|line| off(line)))
            .map(|line| {
                let share = expected.get(line).map_or("nothing".into(), |share| format!("{share:.1} %"));
                format!("    {line}: expected {share}, got {:.1} %\n", got[line])
            })
            .collect();
        (!all.is_empty()).then(|| format!("  shares:\n{}", all.concat()))
    }

    /// What happened since the last look at it.
    fn account(&mut self, step: &Step) -> Result<(), String> {
        if let Some(expected) = &step.told {
            let got = self.world.told.split_off(self.told);
            if let Some(wrong) = compare("told", expected, &got) {
                return Err(wrong);
            }
        }
        for (address, expected) in &step.probes {
            let count = |probes: &BTreeMap<IpAddr, usize>| probes.get(address).copied().unwrap_or(0);
            let got = count(self.world.probes()) - count(&self.probes);
            if !expected.0.contains(&got) {
                return Err(format!("  probes of {address}: expected {:?}, got {got}\n", expected.0));
            }
        }
        if !step.probes.is_empty() {
            self.probes = self.world.probes().clone();
        }
        if let Some(serial) = step.serial {
            let now = self.world.serial();
            let before = self.serial.replace(now);
            let right = match (serial, before) {
                (SerialStep::Noted, _) => true,
                (SerialStep::Same, Some(before)) => now == before,
                (SerialStep::Higher, Some(before)) => (now.wrapping_sub(before) as i32) > 0,
                (_, None) => return Err("  the serial was not noted before\n".into()),
            };
            if !right {
                return Err(format!("  serial: expected {serial:?}, got {now} after {before:?}\n"));
            }
        }
        Ok(())
    }
}

fn states(what: &str, expected: &BTreeMap<String, String>, got: BTreeMap<String, String>) -> Option<String> {
    let lines = |states: &BTreeMap<String, String>| -> Vec<String> {
        let wanted = states.iter().filter(|(name, _)| expected.contains_key(*name));
        wanted.map(|(name, state)| format!("{name}: {state}")).collect()
    };
    compare(what, &lines(expected), &lines(&got))
}

/// Scenarios by what they show, so that `cargo test h6` finds them.
macro_rules! shown {
    ($(fn $case:ident => [$($file:literal),+];)+) => {
        $(#[test] fn $case() { hold(&[$($file),+]); })+
    };
}

shown! {
    fn m1_m2_m3_m4_m5_m6_attempts_of_one_probe => ["one_probe_one_outcome", "retries_count_once"];
    fn c1_c2_c3_c4_b14_runs_of_outcomes => ["one_failure_takes_out", "runs_of_outcomes", "three_failures_take_out", "detection_windows"];
    fn g1_g2_g3_g4_g5_g6_g7_monitor_groups => ["monitor_group", "group_without_a_vote"];
    fn p1_p2_p3_p4_p5_p6_p7_p8_pool_states => ["pool_states", "degraded_pool", "threshold_above_size"];
    fn w1_w2_w3_w4_w5_weights => ["endpoint_weights", "random_steering"];
    fn r3_r4_r7_regions => ["regions", "several_vantages"];
    fn l1_l2_l3_l4_l5_l7_l8_l9_l10_failover => ["failover_order", "fallback_ignores_health", "fallback_disabled", "degraded_pool", "unmonitored_pool", "first_verdict", "fallback_is_the_pool_itself"];
    fn b14_retries_are_one_result => ["retries_count_once"];
    fn b15_the_first_state => ["first_verdict", "start_of_several_zones", "reload_keeps_verdicts", "told_at_the_start"];
    fn b27_endpoints_given_by_name => ["host_names", "host_name_of_a_balancer", "host_names_are_meant_as_a_whole"];
    fn b28_one_pool_answers_and_failback_is_at_once => ["failover_order", "pool_states", "fallback_ignores_health"];
    fn d08_the_answer_is_stable_while_all_is_down => ["failover_order", "fallback_ignores_health"];
    fn d10_without_results_a_verdict_is_stale_and_then_unknown => ["cannot_probe"];
    fn d12_slow_endpoints => ["slow_endpoint"];
    fn d15_ttls_of_what_is_there_and_of_what_is_not => ["long_minimum", "alias_to_balancer", "when_unavailable_nodata"];
    fn h2_several_monitors => ["all_monitors_must_pass", "at_least", "monitor_group", "group_without_a_vote"];
    fn h3_quorum_silence_and_staleness => ["several_vantages", "regions", "local_vantage_first", "cannot_probe"];
    fn h4_unknown_counts_as_down => ["first_verdict", "unmonitored_pool", "start_of_several_zones"];
    fn h6_reloads => ["reload_keeps_verdicts", "reload_carries_verdicts_over", "reload_keeps_phases", "reload_without_a_gap", "late_outcome"];
    fn h7_rechecks => ["recheck", "detection_windows"];
    fn h8_retries_overlap_and_phases => ["one_probe_one_outcome", "slow_endpoint", "reload_keeps_phases"];
    fn h9_start_period => ["start_period"];
    fn h10_flap_hold => ["flap_hold"];
    fn h12_slow_start => ["slow_start"];
    fn h17_errors_are_no_failures => ["cannot_probe", "inverted"];
    fn h19_host_names => ["host_names", "host_names_are_meant_as_a_whole"];
}

/// Plays these files.
fn hold(files: &[&str]) {
    let scenarios = all();
    let of = |file: &&str| {
        let found =
            scenarios.iter().find(|scenario| scenario.file.file_stem().is_some_and(|stem| stem == *file));
        let scenario = found.unwrap_or_else(|| panic!("there is no tests/scenarios/{file}.yaml"));
        complaint(scenario, play(scenario))
    };
    let failures: Vec<String> = files.iter().filter_map(of).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

fn numbered(letter: &str, numbers: &[usize]) -> Vec<String> {
    numbers.iter().map(|number| format!("{letter}{number}")).collect()
}

/// Every id of the documented behaviour has a scenario.
#[test]
fn every_documented_case_has_a_scenario() {
    let documented: BTreeSet<String> = [
        numbered("P", &[1, 2, 3, 4, 5, 6, 7, 8]),
        numbered("W", &[1, 2, 3, 4, 5]),
        numbered("A", &[1, 2, 3, 4, 5, 6, 7, 8, 10]),
        numbered("L", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        numbered("M", &[1, 2, 3, 4, 5, 6]),
        numbered("C", &[1, 2, 3, 4]),
        numbered("G", &[1, 2, 3, 4, 5, 6, 7]), // G8 is among the verdicts
        numbered("D", &[1, 2, 3, 5, 6, 7, 8]), // D4 is of another product
    ]
    .concat()
    .into_iter()
    .collect();
    let scenarios = all();
    let covered: BTreeSet<String> = scenarios.iter().flat_map(|scenario| scenario.ids.clone()).collect();
    let missing: Vec<_> = documented.difference(&covered).collect();
    assert!(missing.is_empty(), "no scenario for {missing:?}");
    let without: Vec<_> = scenarios.iter().filter(|s| s.ids.is_empty()).map(|s| &s.file).collect();
    assert!(without.is_empty(), "no ids in {without:?}");
}

/// Everything that has an id has a test that begins with it. (Those of A27 and
/// A31 will grow when there are transfers and signatures.)
#[test]
fn every_case_has_a_test_of_its_name() {
    let two_digits = |letter: &str, numbers: &[usize]| -> Vec<String> {
        numbers.iter().map(|number| format!("{letter}{number:02}")).collect()
    };
    let documented = [
        two_digits("a", &[1, 2, 3, 6, 7, 8, 9, 10, 12, 13, 14, 17, 19, 20, 22, 24, 25, 27, 29, 31]),
        two_digits("c", &[1, 2, 4, 5, 6, 7, 9, 11, 14, 15, 17, 18, 20]),
        two_digits("b", &[1, 2, 3, 5, 6, 7, 10, 13, 14, 15, 17, 19, 20, 22, 25, 27, 28, 29]),
        two_digits("d", &[3, 4, 8, 10, 12, 14, 15]),
        numbered("h", &(1..=19).collect::<Vec<_>>()),
        numbered("m", &[1, 2, 3, 4, 5, 6]),
        numbered("g", &[1, 2, 3, 4, 5, 6, 7, 8]),
        numbered("p", &[1, 2, 3, 4, 5, 6, 7, 8]),
        numbered("r", &[1, 2, 3, 4, 5, 6, 7, 8]),
        numbered("c", &[1, 2, 3, 4]),
        numbered("w", &[1, 2, 3, 4, 5]),
    ]
    .concat();
    let mut named = BTreeSet::new();
    for folder in ["src", "tests/it"] {
        ids_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut named);
    }
    let missing: Vec<_> = documented.iter().filter(|id| !named.contains(*id)).collect();
    assert!(missing.is_empty(), "no test is named after {missing:?}");
}

/// The ids at the beginning of functions' names, such as `b13` or `m1_m2`.
fn ids_in(folder: &Path, found: &mut BTreeSet<String>) {
    let is_id = |word: &&str| {
        let mut letters = word.chars();
        letters.next().is_some_and(|first| first.is_ascii_lowercase())
            && word.len() > 1
            && letters.all(|digit| digit.is_ascii_digit())
    };
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            ids_in(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            for name in text
                .lines()
                .filter_map(|line| line.trim_start().trim_start_matches("async ").strip_prefix("fn "))
            {
                found.extend(name.split('_').take_while(is_id).map(str::to_owned));
            }
        }
    }
}

const THREE_POOLS: &str = "
zone: example.com
records: { '': { type: NS, value: ns1.example.net. } }
monitors:
  web: { interval: 10s, consecutive_up: 2, consecutive_down: 2, recheck_interval: off }
pools:
  p0: { monitor: web, health_threshold: THRESHOLD, endpoints: [ { name: a, address: 192.0.2.0 }, { name: b, address: 192.0.2.1 } ] }
  p1: { monitor: web, health_threshold: THRESHOLD, endpoints: [ { name: a, address: 192.0.2.2 }, { name: b, address: 192.0.2.3 } ] }
  p2: { monitor: web, health_threshold: THRESHOLD, endpoints: [ { name: a, address: 192.0.2.4 }, { name: b, address: 192.0.2.5 } ] }
  sorry: { monitor: web, endpoints: [ { name: static, address: 203.0.113.1 } ] }
load_balancers:
  www: { default_pools: [p0, p1, p2], fallback_pool: sorry }
";

fn address(number: u8) -> IpAddr {
    [192, 0, 2, number].into()
}

/// From each of all combinations to the next, so that every one is reached
/// from another by real probes: the first pool with enough healthy endpoints
/// answers with those and nothing else; without one the fallback pool does.
#[test]
fn b28_all_combinations_of_three_pools_with_two_endpoints() {
    for threshold in [1, 2] {
        let text = THREE_POOLS.replace("THRESHOLD", &threshold.to_string());
        let loaded = haledns::config::load_texts(vec![("three.yaml".into(), text.into())]);
        let mut world = World::new(loaded.unwrap_or_else(|report| panic!("{report}")).model);
        let query = "www.example.com A".parse::<crate::support::ask::Question>().unwrap().octets();
        for step in 0..64u8 {
            let up = step.wrapping_mul(37) % 64; // an odd factor: each number once, far from the one before
            // the fallback pool is down all the time, and answers all the same
            let down = (0..6).filter(|n| up >> n & 1 == 0).map(address).chain([[203, 0, 113, 1].into()]);
            world.change_only(down, Attempt::Refused);
            world.run_until(world.now() + Duration::from_secs(40)).unwrap();
            let healthy = |pool: u8| (2 * pool..2 * pool + 2).filter(move |n| up >> n & 1 == 1);
            let serving = (0..3).find(|pool| healthy(*pool).count() >= threshold);
            let expected: Vec<String> = match serving {
                Some(pool) => {
                    healthy(pool).map(|n| format!("www.example.com. 30 IN A {}", address(n))).collect()
                }
                None => vec!["www.example.com. 30 IN A 203.0.113.1".into()],
            };
            let answer = world.ask(&query).answer;
            let wrong = compare("answer", &expected, &answer);
            assert_eq!(wrong, None, "threshold {threshold}, endpoints up {up:06b}");
        }
    }
}

/// How long after a change the first and the last of the endpoints has the
/// verdict, in seconds.
fn window(world: &mut World, attempt: Attempt, verdict: Verdict) -> (f64, f64) {
    let changed = world.now();
    world.change_only((0..100).map(address), attempt);
    let mut first = None;
    loop {
        let verdicts = world.engine().table().verdicts(PoolId(0));
        let passed = world.now().since(changed).as_secs_f64();
        let there = verdicts.iter().filter(|held| **held == verdict).count();
        if there > 0 {
            first.get_or_insert(passed);
        }
        if there == verdicts.len() {
            return (first.unwrap_or(passed), passed);
        }
        assert!(world.step(changed + Duration::from_secs(120)).unwrap(), "no verdict in two minutes");
    }
}

/// A hundred endpoints, each with a phase of its own, that change at once.
#[test]
fn how_soon_a_verdict_follows_the_endpoint() {
    let endpoints: String =
        (0..100).map(|n| format!("{{ name: e{n}, address: {} }}, ", address(n))).collect();
    let text = format!(
        "zone: example.com\n\
         records: {{ '': {{ type: NS, value: ns1.example.net. }} }}\n\
         monitors: {{ web: {{ interval: 15s, timeout: 5s, consecutive_up: 2, consecutive_down: 3, RECHECK }} }}\n\
         pools: {{ all: {{ monitor: web, endpoints: [{endpoints}] }} }}\n\
         load_balancers: {{ www: {{ default_pools: [all], fallback_pool: all }} }}\n"
    );
    // an interval may be a tenth longer or shorter, however many of them in a row
    const JITTER: f64 = 1.5;
    for (recheck, attempt, verdict, soonest, latest) in [
        ("recheck_interval: off", Attempt::Refused, Verdict::Unhealthy, 30.0, 45.0),
        ("recheck_interval: off", Attempt::Hang, Verdict::Unhealthy, 35.0, 50.0),
        ("recheck_interval: off", Attempt::Up, Verdict::Healthy, 15.0, 30.0),
        ("recheck_interval: 2s", Attempt::Refused, Verdict::Unhealthy, 4.0, 19.0),
        ("recheck_interval: 2s", Attempt::Hang, Verdict::Unhealthy, 19.0, 34.0),
        ("recheck_interval: 2s", Attempt::Up, Verdict::Healthy, 15.0, 30.0),
    ] {
        let text = text.replace("RECHECK", recheck);
        let loaded = haledns::config::load_texts(vec![("many.yaml".into(), text.into())]);
        let mut world = World::new(loaded.unwrap_or_else(|report| panic!("{report}")).model);
        let before = if verdict == Verdict::Healthy { Attempt::Refused } else { Attempt::Up };
        world.change_only((0..100).map(address), before);
        world.run_until(START + Duration::from_secs(100)).unwrap();
        let (first, last) = window(&mut world, attempt, verdict);
        let seen = format!("{recheck}, {attempt:?}: from {first:.1} s to {last:.1} s");
        assert!(first >= soonest - JITTER && last <= latest + JITTER, "{seen}");
        assert!(last - first > 10.0, "phases are spread: {seen}");
        println!("{seen}");
    }
}
