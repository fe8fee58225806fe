//! The figures of `timing` against the engine, in virtual time.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use haledns::authority::Traffic;
use haledns::health::Verdict;
use haledns::model::{Combination, Model, Moves, PoolId, Vantage, VantageId};
use haledns::timing::{self, Course, Courses};

use crate::support::scenario::Attempt;
use crate::support::world::{START, World};

/// So many endpoints, each with a phase of its own.
const ENDPOINTS: u8 = 120;

fn address(number: u8) -> IpAddr {
    [192, 0, 2, number].into()
}

fn addresses() -> impl Iterator<Item = IpAddr> {
    (0..ENDPOINTS).map(address)
}

/// One pool with all endpoints, tested by these monitors.
fn one_pool(monitors: &[&str]) -> Arc<Model> {
    let endpoints: String =
        (0..ENDPOINTS).map(|n| format!("{{ name: e{n}, address: {} }}, ", address(n))).collect();
    let defined: String = (monitors.iter().enumerate())
        .map(|(number, settings)| format!("  m{number}: {{ type: tcp, port: 9{number}, {settings} }}\n"))
        .collect();
    let named: Vec<String> = (0..monitors.len()).map(|number| format!("m{number}")).collect();
    load(format!(
        "monitors:\n{defined}\
         pools: {{ all: {{ monitors: [{}], endpoints: [{endpoints}] }} }}\n\
         load_balancers: {{ www: {{ default_pools: [all], fallback_pool: all }} }}\n",
        named.join(", ")
    ))
}

fn load(text: String) -> Arc<Model> {
    let zone = "zone: example.com\nrecords: { '': { type: NS, value: ns1.example.net. } }\n";
    let loaded = haledns::config::load_texts(vec![("test.yaml".into(), (zone.to_owned() + &text).into())]);
    loaded.unwrap_or_else(|report| panic!("{report}")).model
}

fn courses(model: &Model) -> Courses {
    timing::all(model).remove(0).pools.remove(0).courses.expect("it is monitored")
}

/// From now on: when each has what is due, in its order; all must in time.
fn observe(
    world: &mut World,
    count: usize,
    patience: Duration,
    has: impl Fn(&World, usize) -> bool,
) -> Vec<Duration> {
    let began = world.now();
    let mut times = vec![None; count];
    loop {
        for (number, time) in times.iter_mut().enumerate().filter(|(_, time)| time.is_none()) {
            if has(world, number) {
                *time = Some(world.now().since(began));
            }
        }
        if times.iter().all(Option::is_some) {
            return times.into_iter().flatten().collect();
        }
        assert!(world.step(began + patience).unwrap(), "not all of them within {patience:?}: {times:?}");
    }
}

/// What is wrong between a course and the times that were seen.
fn complaint(what: &str, course: &Course, seen: &[Duration], all_see_it: bool) -> Option<String> {
    let due = course.answers();
    let (first, last) = (seen.iter().min()?, seen.iter().max()?);
    let tight = !all_see_it || last.as_secs_f64() >= 0.8 * due.worst.as_secs_f64();
    (*first < due.least || *last > due.worst || !tight).then(|| {
        format!("{what}: seen {first:.2?} to {last:.2?}, computed {:.2?} to {:.2?}\n", due.least, due.worst)
    })
}

/// Lets all endpoints fail and come back; says where the figures are wrong.
fn compare(what: &str, model: &Arc<Model>, tight: bool) -> String {
    let courses = courses(model);
    let patience = Duration::from_secs(2000);
    let longest = courses.hanging.total().worst.max(courses.back.total().worst);
    let verdict = |wanted| {
        move |world: &World, number: usize| world.engine().table().verdicts(PoolId(0))[number] == wanted
    };
    let mut world = World::new(Arc::clone(model));
    world.looks = false; // the scenarios do, and it takes its time
    world.run_until(START + longest * 2).unwrap();
    let mut wrong = String::new();
    for (name, attempt, course, back) in [
        ("refused", Attempt::Refused, &courses.refused, Attempt::Refused),
        ("hanging", Attempt::Hang, &courses.hanging, Attempt::Hang),
    ] {
        // all of them at once, though not all at the same place of their interval
        world.change_only(addresses(), attempt);
        let seen = observe(&mut world, ENDPOINTS.into(), patience, verdict(Verdict::Unhealthy));
        wrong.extend(complaint(&format!("{what}, {name}"), course, &seen, tight));
        world.run_until(world.now() + longest).unwrap();
        world.change_only([], Attempt::Up);
        let seen = observe(&mut world, ENDPOINTS.into(), patience, verdict(Verdict::Healthy));
        // the worst way back is that from probes that hang
        let tight = tight && matches!(back, Attempt::Hang);
        wrong.extend(complaint(&format!("{what}, back from {name}"), &courses.back, &seen, tight));
        world.run_until(world.now() + longest).unwrap();
    }
    wrong
}

#[test]
fn the_figures_bound_what_the_engine_does_and_not_loosely() {
    let mut wrong = String::new();
    for interval in ["1s", "15s"] {
        for (up, down) in [(1, 1), (2, 3), (3, 5)] {
            for (timeout, retries) in [("1s", 0), ("5s", 0), ("5s", 2)] {
                for recheck in ["off", "500ms", "1s"] {
                    let settings = format!(
                        "interval: {interval}, consecutive_up: {up}, consecutive_down: {down}, \
                         timeout: {timeout}, retries: {retries}, recheck_interval: {recheck}"
                    );
                    wrong += &compare(&settings, &one_pool(&[&settings]), true);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn several_monitors_stay_within_the_figures() {
    let quick = "interval: 5s, timeout: 1s, consecutive_up: 2, consecutive_down: 2";
    let slow = "interval: 20s, timeout: 5s, consecutive_up: 3, consecutive_down: 3, recheck_interval: off";
    let mut wrong = String::new();
    // two that are alike are nearly as slow as one
    wrong += &compare("quick twice", &one_pool(&[quick, quick]), false);
    wrong += &compare("quick and slow", &one_pool(&[quick, slow]), false);
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// The same with one monitor that must be healthy and one that is quicker.
#[test]
fn groups_stay_within_the_figures_and_near_the_typical_ones() {
    let settings = ["interval: 5s, timeout: 1s", "interval: 3s, timeout: 1s"];
    let mut model = Model::clone(&one_pool(&settings));
    let tests = &mut model.pools[0].tests;
    tests.combination = Combination::Majority;
    tests.members[0].must_be_healthy = true;
    let model = Arc::new(model);
    assert_eq!(compare("a group", &model, false), "");
    let seconds = Duration::from_secs;
    let mut world = World::new(Arc::clone(&model));
    world.run_until(START + seconds(60)).unwrap();
    world.change_only(addresses(), Attempt::Refused);
    world.run_until(world.now() + seconds(60)).unwrap();
    world.change_only([], Attempt::Up);
    let healthy =
        |world: &World, number: usize| world.engine().table().verdicts(PoolId(0))[number] == Verdict::Healthy;
    let seen = observe(&mut world, ENDPOINTS.into(), seconds(60), healthy);
    let mean = seen.iter().sum::<Duration>() / u32::from(ENDPOINTS);
    let typical = courses(&model).back.answers().typical;
    assert!(mean.abs_diff(typical) < seconds(1), "{mean:?} in the mean, {typical:?} computed");
}

#[test]
fn several_vantages_stay_within_the_figures() {
    let settings = "interval: 15s, timeout: 5s, consecutive_up: 2, consecutive_down: 3";
    let mut wrong = String::new();
    for count in [2, 3] {
        let mut model = Model::clone(&one_pool(&[settings]));
        let vantage = |number| Vantage { name: format!("v{number}").into(), ..Vantage::default() };
        model.vantages = (0..count).map(|number| Arc::new(vantage(number))).collect();
        model.pools[0].viewpoints.vantages = (0..count).map(VantageId).collect();
        wrong += &compare(&format!("{count} vantages"), &Arc::new(model), false);
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// A hundred pools of one endpoint, each behind a load balancer that delays.
#[test]
fn delays_of_failover_and_failback_are_counted() {
    let pools: String = (0..ENDPOINTS)
        .map(|n| {
            format!("  p{n:03}: {{ monitor: web, endpoints: [ {{ name: a, address: {} }} ] }}\n", address(n))
        })
        .collect();
    let balancers: String = (0..ENDPOINTS)
        .map(|n| format!("  w{n:03}: {{ default_pools: [p{n:03}, spare], fallback_pool: spare }}\n"))
        .collect();
    let model = load(format!(
        "monitors: {{ web: {{ type: tcp, port: 9, interval: 5s, timeout: 2s, recheck_interval: 1s }} }}\n\
         pools:\n{pools}  spare: {{ endpoints: [ {{ name: a, address: 203.0.113.1 }} ] }}\n\
         load_balancers:\n{balancers}"
    ));
    let mut model = Model::clone(&model);
    let seconds = Duration::from_secs;
    let moves = Moves { failover_delay: seconds(7), failback_delay: seconds(20), manual_failback: false };
    for balancer in &mut model.zones[0].load_balancers {
        balancer.moves = moves;
    }
    let courses = courses(&model);
    let (model, mut wrong) = (Arc::new(model), String::new());
    let serves = |wanted: bool| {
        move |world: &World, number: usize| {
            let (_, status) = world.engine().compiled().balancer(number);
            let first = world.engine().model().zones[0].load_balancers[number].default_pools[0];
            matches!(&status.traffic, Traffic::Pools(pools) if pools.contains(&first)) == wanted
        }
    };
    let mut world = World::new(Arc::clone(&model));
    world.run_until(START + seconds(60)).unwrap();
    for (attempt, course) in [(Attempt::Refused, &courses.refused), (Attempt::Hang, &courses.hanging)] {
        world.change_only(addresses(), attempt);
        let seen = observe(&mut world, ENDPOINTS.into(), seconds(300), serves(false));
        wrong.extend(complaint("out", course, &seen, true));
        world.run_until(world.now() + seconds(60)).unwrap();
        world.change_only([], Attempt::Up);
        let seen = observe(&mut world, ENDPOINTS.into(), seconds(300), serves(true));
        wrong.extend(complaint("back", &courses.back, &seen, true));
        world.run_until(world.now() + seconds(60)).unwrap();
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn a_new_endpoint_answers_within_its_figures() {
    let seconds = Duration::from_secs;
    let settings = "interval: 15s, consecutive_up: 3";
    for start_period in [0, 20, 300] {
        let before = one_pool(&[settings]);
        let monitor = Arc::unwrap_or_clone(Arc::clone(&before.monitors[0]));
        let monitor = haledns::model::Monitor { start_period: seconds(start_period), ..monitor };
        let before = Model { monitors: vec![Arc::new(monitor)], ..Model::clone(&before) };
        let mut after = before.clone();
        let mut small = before.clone();
        small.pools[0].endpoints.truncate(1);
        after.pools[0].endpoints.truncate(ENDPOINTS.into());
        let mut world = World::new(Arc::new(small));
        world.run_until(START + seconds(60)).unwrap();
        let course = courses(&after).new;
        world.reload(Arc::new(after)).unwrap();
        let healthy = |world: &World, number: usize| {
            world.engine().table().verdicts(PoolId(0))[number] == Verdict::Healthy
        };
        let seen = observe(&mut world, ENDPOINTS.into(), seconds(600), healthy);
        let wrong = complaint(&format!("start period {start_period}"), &course, &seen, start_period == 300);
        assert_eq!(wrong, None);
    }
}
