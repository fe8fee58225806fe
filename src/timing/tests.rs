use super::*;
use crate::model::{
    Endpoint, Member, MonitorId, Moves, PoolId, SteeringPolicy, TcpCheck, Tests, Thresholds, Vantage,
    VantageId, Viewpoints,
};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The contract's monitor: 15 s, 5 s, 2 up, 3 down.
fn monitor(recheck: Option<u64>) -> Monitor {
    Monitor {
        recheck_interval: recheck.map(secs),
        ..Monitor::new("web", Check::Tcp(TcpCheck { port: Some(1), ..TcpCheck::default() }))
    }
}

fn model(monitors: Vec<Monitor>, combination: Combination) -> Model {
    let member = |(number, _): (usize, &Monitor)| Member {
        monitor: MonitorId(number as u32),
        votes: true,
        must_be_healthy: false,
    };
    let members = monitors.iter().enumerate().map(member).collect();
    let endpoint = Endpoint::new("a", [192, 0, 2, 1].into());
    Model {
        pools: vec![Pool { tests: Tests { members, combination }, ..Pool::new("eu", vec![endpoint]) }],
        monitors: monitors.into_iter().map(Arc::new).collect(),
        ..Model::default()
    }
}

fn balancer() -> LoadBalancer {
    LoadBalancer {
        name: "www.example.com".parse().unwrap(),
        enabled: true,
        ttl: 30,
        ttl_policy: TtlPolicy::Fixed,
        steering_policy: SteeringPolicy::Off,
        default_pools: vec![PoolId(0)],
        when_unavailable: WhenUnavailable::Nodata,
        moves: Moves::default(),
        slo: None,
    }
}

fn courses_of(model: &Model, balancer: &LoadBalancer) -> Courses {
    of(model, balancer).pools.remove(0).courses.unwrap()
}

/// Detection in milliseconds: least and worst, without what the network and
/// the publication take.
fn detection(course: &Course) -> (u64, u64) {
    let span = course.answers();
    let (least, worst) =
        (span.least.as_millis() as u64, span.worst.saturating_sub(GATHER).as_millis() as u64);
    (least, worst)
}

#[test]
fn the_contract_of_a_monitor_every_15_seconds() {
    // a tenth of an interval is jitter, 100 ms the way of an answer
    for (recheck, refused, hanging, back) in [
        (None, (28_500, 46_600), (33_500, 51_500), (13_500, 31_600)),
        (Some(2), (4000, 20_800), (18_500, 35_500), (13_500, 31_600)),
        (Some(15), (15_000, 46_600), (30_000, 51_500), (13_500, 31_600)),
    ] {
        let model = model(vec![monitor(recheck)], Combination::All);
        let courses = courses_of(&model, &balancer());
        assert_eq!(detection(&courses.refused), refused, "refused, {recheck:?}");
        assert_eq!(detection(&courses.hanging), hanging, "hanging, {recheck:?}");
        assert_eq!(detection(&courses.back), back, "back, {recheck:?}");
        let (answers, total) = (courses.hanging.answers(), courses.hanging.total());
        assert_eq!(total.worst - answers.worst, secs(30));
        assert_eq!(total.typical - answers.typical, secs(15));
        assert_eq!(total.least, answers.least);
    }
}

#[test]
fn retries_lengthen_only_what_hangs() {
    let model = |retries| model(vec![Monitor { retries, ..monitor(None) }], Combination::All);
    let (none, two) = (courses_of(&model(0), &balancer()), courses_of(&model(2), &balancer()));
    assert_eq!(none.refused, two.refused);
    // a probe of 15 s takes every second beat: 15 + 2 × 2 × 15 + 15, and the jitter
    assert_eq!(detection(&two.hanging).1, 15_000 + 60_000 + 15_000 + 1500);
}

#[test]
fn single_outcomes_wait_for_one_beat() {
    let thresholds = Thresholds { up: 1, down: 1 };
    for recheck in [None, Some(2)] {
        let model = model(vec![Monitor { thresholds, ..monitor(recheck) }], Combination::All);
        let courses = courses_of(&model, &balancer());
        assert_eq!(detection(&courses.refused), (0, 16_600));
        assert_eq!(detection(&courses.hanging), (5000, 21_500));
        assert_eq!(detection(&courses.back), (0, 16_600));
    }
}

#[test]
fn several_monitors_by_their_rule() {
    let every = |seconds| Monitor { interval: secs(seconds), ..monitor(None) };
    let three = || vec![every(10), every(20), every(40)];
    // least and typical follow the one that decides when all see it, worst the slowest
    for (rule, out, back) in [
        (Combination::All, 10, 40),
        (Combination::AtLeast(2), 20, 20),
        (Combination::AtLeast(1), 40, 10),
        (Combination::Majority, 20, 20),
    ] {
        let courses = courses_of(&model(three(), rule), &balancer());
        let alone = |seconds| courses_of(&model(vec![every(seconds)], Combination::All), &balancer());
        assert_eq!(courses.refused.total().least, alone(out).refused.total().least, "{rule:?}");
        assert_eq!(courses.refused.total().typical, alone(out).refused.total().typical, "{rule:?}");
        assert_eq!(courses.refused.total().worst, alone(40).refused.total().worst, "{rule:?}");
        assert_eq!(courses.back.total().least, alone(10).back.total().least, "{rule:?}");
        assert_eq!(courses.back.total().typical, alone(back).back.total().typical, "{rule:?}");
        assert_eq!(courses.back.total().worst, alone(40).back.total().worst, "{rule:?}");
    }
}

#[test]
fn groups_come_back_with_those_that_could_take_the_endpoint_out() {
    let every = |seconds| Monitor { interval: secs(seconds), ..monitor(None) };
    // intervals, those that must be healthy in front: what decides of out, and of back least and typical
    for (must, others, out, least, typical) in [
        (&[][..], &[10, 20, 40][..], 20, 10, 20),
        (&[10], &[20, 40], 10, 10, 20),
        (&[40], &[10, 20], 20, 10, 40),
        (&[40], &[20], 40, 40, 40),
        (&[10], &[20], 10, 10, 10),
        (&[20, 40], &[10], 20, 20, 40),
        (&[10, 20, 40], &[], 10, 10, 40),
        (&[], &[20, 10], 20, 10, 10),
        (&[40], &[], 40, 40, 40),
    ] {
        let intervals = must.iter().chain(others);
        let mut model = model(intervals.map(|seconds| every(*seconds)).collect(), Combination::Majority);
        for member in &mut model.pools[0].tests.members[..must.len()] {
            member.must_be_healthy = true;
        }
        let courses = courses_of(&model, &balancer());
        let alone = |seconds| courses_of(&self::model(vec![every(seconds)], Combination::All), &balancer());
        let of = format!("{must:?} must, {others:?}");
        assert_eq!(courses.refused.answers().typical, alone(out).refused.answers().typical, "{of}: out");
        assert_eq!(courses.back.answers().least, alone(least).back.answers().least, "{of}: back, least");
        assert_eq!(courses.back.answers().typical, alone(typical).back.answers().typical, "{of}: back");
    }
}

#[test]
fn more_vantages_wait_for_the_slowest_that_is_needed() {
    for (count, out, back) in [(1, 7.5, 7.5), (3, 7.5, 7.5), (2, 5.0, 10.0), (5, 7.5, 7.5)] {
        let mut model = model(vec![monitor(None)], Combination::All);
        model.vantages = (0..count).map(|_| Arc::new(Vantage::default())).collect();
        model.pools[0].viewpoints =
            Viewpoints { vantages: (0..count).map(VantageId).collect(), ..Viewpoints::default() };
        let courses = courses_of(&model, &balancer());
        let wait = |course: &Course| {
            course.parts.iter().find(|part| part.step == Step::NextBeat).unwrap().span.typical.as_secs_f64()
        };
        assert_eq!((wait(&courses.refused), wait(&courses.back)), (out, back), "{count}");
        assert_eq!(detection(&courses.refused).1, 46_600);
    }
}

#[test]
fn rules_and_moves_have_parts_of_their_own() {
    let mut model = model(vec![monitor(None)], Combination::All);
    let plain = courses_of(&model, &balancer());
    let rules = &mut model.pools[0].rules;
    (rules.flap_hold, rules.slow_start) = (secs(300), secs(120));
    let moves = Moves { failover_delay: secs(7), failback_delay: secs(60), manual_failback: false };
    let slow = courses_of(&model, &LoadBalancer { moves, ..balancer() });
    assert_eq!(slow.refused.total().worst, plain.refused.total().worst + secs(7));
    assert_eq!(slow.refused.total().least, plain.refused.total().least);
    assert_eq!(slow.back.answers().worst, plain.back.answers().worst + secs(360));
    assert_eq!(slow.back.total().worst, plain.back.total().worst + secs(480));
}

#[test]
fn a_new_endpoint_waits_for_one_pass_or_for_a_run_in_its_start_period() {
    let period = |start_period| {
        let model =
            model(vec![Monitor { start_period: secs(start_period), ..monitor(None) }], Combination::All);
        courses_of(&model, &balancer()).new.total()
    };
    // the first round of one target is 1 ms; the reload holds for as long as a probe may take
    assert_eq!((period(0).least, period(0).worst), (ms(0), ms(5001) + GATHER));
    assert_eq!(period(60).worst, ms(1 + 100 + 16_500) + GATHER);
    assert_eq!(period(5).worst, ms(1 + 100 + 16_500) + GATHER);
}

#[test]
fn what_nothing_watches_has_no_figures() {
    let none = model(vec![], Combination::All);
    let fixed = model(vec![Monitor { check: Check::Static(true), ..monitor(None) }], Combination::All);
    for model in [none, fixed] {
        let timing = of(&model, &balancer());
        assert_eq!((timing.worst(), &timing.pools[0].courses), (None, &None));
        assert!(timing.notes[0].contains("never seen"), "{:?}", timing.notes);
    }
}

#[test]
fn remedies_are_the_smallest_changes_that_do() {
    for (recheck, limit, remedies) in [
        (
            Some(2),
            60,
            vec!["`ttl: 24s`", "`interval: 9s` on the monitor `web`", "`timeout: 3s` on the monitor `web`"],
        ),
        (
            None,
            80,
            vec![
                "`ttl: 28s`",
                "`interval: 14s` on the monitor `web`",
                "`recheck_interval: 2s` on the monitor `web`",
                "`timeout: 3s` on the monitor `web`",
            ],
        ),
        (Some(2), 20, vec!["`interval: 3s`, `timeout: 1s`, `recheck_interval: 2s` and `ttl: 6s` together"]),
        (Some(2), 1, vec![]),
    ] {
        let model = model(vec![monitor(recheck)], Combination::All);
        assert_eq!(super::remedies(&model, &balancer(), secs(limit)), remedies, "{recheck:?} {limit}");
    }
}

#[test]
fn a_run_of_failures_is_to_outlast_the_start() {
    // 15 s to the second beat at most, and two rechecks of 2 s
    for (start_up, start_period, quick) in [(10, 0, false), (19, 0, false), (20, 0, true), (20, 10, false)] {
        let monitor = Monitor { start_period: secs(start_period), ..monitor(Some(2)) };
        assert_eq!(is_too_quick_for(&monitor, secs(start_up)), quick, "{start_up} {start_period}");
    }
}

#[test]
fn a_derived_ttl_keeps_no_answer_past_the_next_possible_verdict() {
    let model = model(vec![monitor(Some(2))], Combination::All);
    let ttl = |ttl: u32, of: fn(&Courses) -> &Course| {
        let balancer = LoadBalancer { ttl, ttl_policy: TtlPolicy::Derived, ..balancer() };
        let courses = courses_of(&model, &balancer);
        of(&courses).parts.iter().find(|part| part.step == Step::Ttl).unwrap().span.worst.as_secs()
    };
    assert_eq!(ttl(300, |courses| &courses.refused), 19, "a beat and two rechecks");
    assert_eq!(ttl(300, |courses| &courses.back), 30, "two beats");
    assert_eq!(ttl(10, |courses| &courses.hanging), 10, "never above its own");
    let waiting = |delay, of: fn(&Courses) -> &Course| {
        let moves = Moves { failover_delay: secs(delay), failback_delay: secs(delay), ..Moves::default() };
        let balancer = LoadBalancer { ttl: 300, ttl_policy: TtlPolicy::Derived, moves, ..balancer() };
        let courses = courses_of(&model, &balancer);
        of(&courses).parts.iter().find(|part| part.step == Step::Ttl).unwrap().span.worst.as_secs()
    };
    assert_eq!(waiting(8, |courses| &courses.refused), 19, "what is left of a delay is less");
    assert_eq!(waiting(60, |courses| &courses.refused), 30, "a long one: two beats of one that is down");
    assert_eq!(waiting(60, |courses| &courses.back), 30);
}
