//! What survives a reload, and how monitors are combined.

use std::sync::Arc;

use super::*;
use crate::health::Reason;
use crate::model::{
    Check, Dependency, Endpoint, Monitor, MonitorId, Pool, TcpCheck, Tests, Thresholds, Weight,
};

fn monitor(name: &str, port: u16) -> Arc<Monitor> {
    let check = Check::Tcp(TcpCheck { port: Some(port), ..TcpCheck::default() });
    Arc::new(Monitor { thresholds: Thresholds { up: 2, down: 2 }, ..Monitor::new(name, check) })
}

fn model(monitors: &[Arc<Monitor>], endpoints: &[(&str, u8)]) -> Arc<Model> {
    let endpoints = endpoints.iter().map(|&(name, last)| Endpoint::new(name, [192, 0, 2, last].into()));
    let tests = Tests::all((0..monitors.len() as u32).map(MonitorId));
    let pool = Pool { tests, ..Pool::new("p", endpoints.collect()) };
    Arc::new(Model { monitors: monitors.to_vec(), pools: vec![pool], ..Model::default() })
}

fn outcome(result: ProbeResult) -> Outcome {
    Outcome::new(result, Reason::NoFailures, "")
}

fn verdicts(table: &Table) -> Vec<Verdict> {
    table.verdicts(PoolId(0)).to_vec()
}

use Verdict::{Healthy, Unhealthy, Unknown};

#[test]
fn all_monitors_of_a_pool_must_pass() {
    let mut table = Table::default();
    let ids = table.adopt(model(&[monitor("a", 1), monitor("b", 2)], &[("x", 1)]), Moment::ZERO, false);
    for (n, result, verdict) in [
        (0, ProbeResult::Pass, Unknown),
        (1, ProbeResult::Fail, Unhealthy),
        (1, ProbeResult::Pass, Unhealthy),
    ] {
        table.observe(ids[n], &outcome(result), Moment::ZERO);
        assert_eq!(verdicts(&table), [verdict]);
    }
    table.take_moves();
    table.observe(ids[1], &outcome(ProbeResult::Pass), Moment::ZERO).unwrap();
    assert_eq!(verdicts(&table), [Healthy]);
    assert_eq!(table.take_moves().len(), 1);
}

#[test]
fn an_error_says_nothing_about_the_endpoint() {
    let mut table = Table::default();
    let ids = table.adopt(model(&[monitor("a", 1)], &[("x", 1)]), Moment::ZERO, false);
    assert!(!table.is_settled());
    let seen = table.observe(ids[0], &outcome(ProbeResult::Error), Moment::ZERO).unwrap();
    assert!(seen.newly_blocked && table.take_moves().is_empty() && table.is_settled());
    assert_eq!(verdicts(&table), [Unknown]);
    let again = table.observe(ids[0], &outcome(ProbeResult::Error), Moment::ZERO).unwrap();
    assert!(!again.newly_blocked, "said once, not with every probe");
    table.observe(ids[0], &outcome(ProbeResult::Pass), Moment::ZERO);
    let anew = table.observe(ids[0], &outcome(ProbeResult::Error), Moment::ZERO).unwrap();
    assert!(anew.newly_blocked, "and again after a probe that could be made");
}

#[test]
fn verdicts_survive_a_reload_by_name_address_and_test() {
    let mut table = Table::default();
    let ids = table.adopt(model(&[monitor("a", 1)], &[("x", 1), ("y", 2), ("z", 3)]), Moment::ZERO, false);
    for (id, result) in ids.iter().zip([ProbeResult::Pass, ProbeResult::Fail, ProbeResult::Pass]) {
        table.observe(*id, &outcome(result), Moment::ZERO);
    }
    let reordered = model(&[monitor("a", 1)], &[("y", 2), ("x", 1), ("z", 4)]);
    let new = table.adopt(reordered, Moment::ZERO, false);
    assert_eq!(verdicts(&table), [Unhealthy, Healthy, Unknown], "z has another address");
    assert_eq!(new.len(), 1, "unchanged targets keep their ids");
    let renamed = model(&[monitor("other", 1)], &[("y", 2), ("x", 1), ("z", 4)]);
    assert_eq!(table.adopt(renamed, Moment::ZERO, false), [], "the test counts, not the monitor's name");
}

#[test]
fn a_test_that_stays_is_carried_on_by_itself_wherever_it_stands() {
    for before in [vec![monitor("b", 2)], vec![monitor("a", 9), monitor("b", 2)]] {
        let mut table = Table::default();
        table.adopt(model(&before, &[("x", 1)]), Moment::ZERO, false);
        let new = table.adopt(model(&[monitor("a", 1), monitor("b", 2)], &[("x", 1)]), Moment::ZERO, false);
        assert_eq!(new.len(), 1, "the test on port 2 keeps its run");
        let swapped = model(&[monitor("a", 2), monitor("b", 1)], &[("x", 1)]);
        assert_eq!(table.adopt(swapped, Moment::ZERO, false), [], "the test counts, not the monitor's name");
    }
}

#[test]
fn a_monitor_added_to_a_monitored_endpoint_moves_nothing_before_its_first_outcome() {
    let mut table = Table::default();
    let ids = table.adopt(model(&[monitor("a", 1)], &[("x", 1)]), Moment::ZERO, false);
    table.observe(ids[0], &outcome(ProbeResult::Pass), Moment::ZERO);
    let both = model(&[monitor("a", 1), monitor("b", 2)], &[("x", 1)]);
    let new = table.adopt(both, Moment::ZERO, false);
    assert_eq!((new.len(), verdicts(&table)), (1, vec![Healthy]));
    table.observe(new[0], &outcome(ProbeResult::Fail), Moment::ZERO);
    assert_eq!(verdicts(&table), [Unhealthy], "the first outcome decides alone");
}

#[test]
fn what_a_reload_carries_over_is_written_down_before_it_is_probed() {
    let mut table = Table::default();
    let ids = table.adopt(model(&[monitor("a", 1)], &[("x", 1)]), Moment::ZERO, false);
    table.observe(ids[0], &outcome(ProbeResult::Pass), Moment::ZERO);
    table.take_records();
    for (monitors, written) in [
        (vec![monitor("a", 1)], vec![]), // as it was
        (vec![monitor("a", 9)], vec![("a", Healthy)]),
        (vec![monitor("b", 9)], vec![("b", Healthy)]),
        (vec![monitor("b", 9), monitor("c", 3)], vec![("c", Healthy)]),
    ] {
        table.adopt(model(&monitors, &[("x", 1), ("new", 2)]), Moment::ZERO, true);
        let records = table.take_records();
        let targets = records.iter().filter_map(|record| match record {
            Record::Target(key, memory) => Some((&*key.monitor, memory.machine.verdict)),
            _ => None,
        });
        assert_eq!(targets.collect::<Vec<_>>(), written, "{monitors:?}");
    }
}

#[test]
fn a_changed_test_keeps_the_verdict_until_its_first_outcome() {
    let mut table = Table::default();
    let ids = table.adopt(model(&[monitor("a", 1)], &[("x", 1)]), Moment::ZERO, false);
    table.observe(ids[0], &outcome(ProbeResult::Pass), Moment::ZERO);
    let new = table.adopt(model(&[monitor("a", 9)], &[("x", 1)]), Moment::ZERO, false);
    assert_eq!(verdicts(&table), [Healthy]);
    assert_eq!(
        table.observe(ids[0], &outcome(ProbeResult::Fail), Moment::ZERO),
        None,
        "a late outcome of the old test is nobody's"
    );
    table.observe(new[0], &outcome(ProbeResult::Fail), Moment::ZERO);
    assert_eq!(verdicts(&table), [Unhealthy], "the first outcome decides alone");
}

#[test]
fn a_weight_and_a_verdict_stand_side_by_side_and_end_by_themselves() {
    let at = |seconds| Moment::from_start(Duration::from_secs(seconds));
    let mut table = Table::default();
    let ids = table.adopt(model(&[monitor("a", 1)], &[("x", 1), ("y", 2)]), at(0), false);
    for id in &ids {
        table.observe(*id, &outcome(ProbeResult::Pass), at(0));
    }
    table.take_moves();
    let x = Scope { pool: "p".into(), endpoint: Some("x".into()) };
    let set = |action, until: Option<u64>| Order::Set {
        action,
        reason: "".into(),
        by: "alice".into(),
        until: until.map(at),
    };
    let stands = |table: &Table| {
        let standing = table.standings(PoolId(0))[0];
        (standing.weight, standing.word())
    };
    let (half, nothing) = (Some(Weight(50)), Some(Weight(0)));
    for (order, now, expected, why) in [
        (set(Action::Weight(Weight(50)), Some(10)), 1, (half, "healthy"), Why::Operator),
        (set(Action::Unhealthy, None), 2, (half, "forced_unhealthy"), Why::Operator),
        (Order::Clear(Slot::Health), 3, (half, "healthy"), Why::TakenBack),
        (set(Action::Weight(Weight(0)), Some(20)), 4, (nothing, "healthy"), Why::Operator),
    ] {
        table.order(&x, order, at(now)).unwrap();
        assert_eq!(stands(&table), expected, "at {now}");
        let moves = table.take_moves();
        assert!(moves.len() == 1 && moves[0].why == why, "at {now}: {moves:?}");
        assert_ne!(moves[0].from.without_share(), moves[0].to.without_share(), "it is told");
    }
    let again = model(&[monitor("a", 1)], &[("y", 2), ("x", 3)]);
    table.adopt(again, at(5), false);
    assert_eq!(table.standings(PoolId(0))[1].weight, nothing, "it belongs to the name");
    let memory = table.memory();
    let mut after = Table::default();
    after.recall(memory);
    after.adopt(model(&[monitor("a", 1)], &[("x", 3)]), at(6), true);
    assert_eq!(after.standings(PoolId(0))[0].weight, nothing, "and survives a restart");
    after.advance(at(19));
    assert_eq!(after.standings(PoolId(0))[0].weight, nothing);
    after.advance(at(20));
    assert_eq!(after.standings(PoolId(0))[0].weight, None, "until it ends");
}

/// Pools of one endpoint each that depend on the one after them.
fn chain(names: &[&str]) -> Arc<Model> {
    let pool = |(name, place): (&&str, u8)| {
        let next = usize::from(place) + 1 < names.len();
        let depends_on = next.then_some(Dependency { pool: PoolId(u32::from(place) + 1), endpoint: None });
        let tests = Tests::all([MonitorId(0)]);
        let depends_on = depends_on.into_iter().collect();
        Pool { tests, depends_on, ..Pool::new(name, vec![Endpoint::new("x", [192, 0, 2, place].into())]) }
    };
    let pools = names.iter().zip(0..).map(pool).collect();
    Arc::new(Model { monitors: vec![monitor("a", 1)], pools, ..Model::default() })
}

#[test]
fn what_depends_on_something_unknown_is_unknown_itself() {
    use ProbeResult::{Fail, Pass};
    let words = |table: &Table| -> Vec<&str> {
        (0..3).map(|id| table.standings(PoolId(id))[0].fitness.as_str()).collect()
    };
    for (outcomes, expected) in [
        (&[(0, Pass), (1, Pass)][..], ["unknown", "unknown", "unknown"]),
        (&[(0, Pass), (1, Pass), (2, Pass)], ["up", "up", "up"]),
        (&[(0, Pass), (1, Pass), (2, Fail)], ["dependency_down", "dependency_down", "unhealthy"]),
        (&[(0, Fail)], ["unhealthy", "unknown", "unknown"]),
        (&[(0, Pass), (1, Fail)], ["dependency_down", "unhealthy", "unknown"]),
        (&[(2, Pass)], ["unknown", "unknown", "up"]),
    ] {
        let mut table = Table::default();
        let ids = table.adopt(chain(&["site", "api", "db"]), Moment::ZERO, false);
        for (place, result) in outcomes {
            table.observe(ids[*place], &outcome(*result), Moment::ZERO);
        }
        assert_eq!(words(&table), expected, "{outcomes:?}");
    }
}

#[test]
fn nothing_is_awaited_of_an_endpoint_in_a_disabled_pool() {
    let mut model = Model::clone(&chain(&["site", "db"]));
    model.pools[0].depends_on[0].endpoint = Some("x".into());
    model.pools[1].enabled = false;
    let mut table = Table::default();
    let ids = table.adopt(Arc::new(model), Moment::ZERO, false);
    table.observe(ids[0], &outcome(ProbeResult::Pass), Moment::ZERO);
    assert_eq!(table.standings(PoolId(0))[0].fitness.as_str(), "dependency_down");
}
