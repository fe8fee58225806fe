//! What an event says of a change.

use std::path::PathBuf;
use std::time::Duration;

use haledns::authority::Prepared;
use haledns::config;
use haledns::engine::{Change, Effect, Engine, Event as Input, TakenBack};
use haledns::events::{Event, Kind, MOST_ORIGINS, MOST_TESTS, NewHealth, Recorder};
use haledns::health::{Action, Order, Outcome, PoolHealth, PoolState, ProbeResult, Reason, Slot, TargetId};
use haledns::model::Scope;
use haledns::moment::Moment;

/// An engine whose probes end as the test says, and the events of it.
pub struct Bench {
    pub engine: Engine,
    recorder: Recorder,
    wanted: Vec<(TargetId, String)>,
    pub events: Vec<Event>,
}

pub fn at(ms: u64) -> Moment {
    Moment::from_start(Duration::from_secs(1_709_251_200) + Duration::from_millis(ms))
}

impl Bench {
    /// An engine that has just taken on a pool `eu` of so many endpoints, with
    /// a fallback pool, under the load balancer `www`.
    pub fn new(endpoints: u32, monitors: &str) -> Bench {
        Bench::seen_from("", endpoints, monitors)
    }

    /// The same with a section of vantages.
    fn seen_from(vantages: &str, endpoints: u32, monitors: &str) -> Bench {
        let list: Vec<String> = (1..=endpoints)
            .map(|n| format!("{{ name: e{n}, address: 10.0.{}.{} }}", n / 250, n % 250 + 1))
            .collect();
        let text = format!(
            "{vantages}monitors: {{ web: {{ type: tcp, port: 80, interval: 10s, consecutive_down: 1, consecutive_up: 1 }},\n\
             \x20 tcp: {{ type: tcp, port: 81, interval: 10s, consecutive_down: 1, consecutive_up: 1 }} }}\n\
             pools:\n  eu: {{ monitors: {monitors}, endpoints: [ {} ] }}\n  \
             sorry: {{ endpoints: [ {{ name: s, address: 192.0.2.9 }} ] }}\n\
             zone: example.com\n\
             records: {{ '': {{ type: NS, value: ns.example.net. }} }}\n\
             load_balancers: {{ www: {{ default_pools: [eu], fallback_pool: sorry }} }}\n",
            list.join(", ")
        );
        Bench::taking_on(&text)
    }

    /// An engine that has just taken this on.
    fn taking_on(text: &str) -> Bench {
        let (engine, recorder) = (Engine::new(100_000), Recorder::default());
        let mut bench = Bench { engine, recorder, wanted: Vec::new(), events: Vec::new() };
        bench.take_on(text, 0);
        bench
    }

    fn take_on(&mut self, text: &str, ms: u64) {
        let loaded = config::load_texts(vec![(PathBuf::from("a.yaml"), text.as_bytes().to_vec())]);
        let model = loaded.unwrap_or_else(|report| panic!("{report}")).model;
        self.engine.handle(Input::Reload(Prepared::new(model)), at(ms));
        self.carry_out(at(ms));
    }

    /// Lets every probe that is wanted end, as `passes` says of its endpoint.
    pub fn probe(&mut self, ms: u64, passes: impl Fn(&str) -> bool) {
        self.engine.advance(at(ms));
        self.carry_out(at(ms));
        for (target, endpoint) in std::mem::take(&mut self.wanted) {
            let mut outcome = match passes(&endpoint) {
                true => Outcome::new(ProbeResult::Pass, Reason::NoFailures, ""),
                false => Outcome::new(ProbeResult::Fail, Reason::TcpConnectionFailed, "connect_refused"),
            };
            outcome.took = Duration::from_micros(2500);
            outcome.evidence.connected = Some(Duration::from_micros(1250));
            outcome.evidence.said = (*b"\x00hi\n").into();
            self.engine.handle(Input::Probed { target, outcome }, at(ms));
            self.carry_out(at(ms));
        }
    }

    pub fn carry_out(&mut self, now: Moment) {
        while let Some(effect) = self.engine.next_effect() {
            match effect {
                Effect::Probe { target, task } => self.wanted.push((target, task.endpoint.to_string())),
                Effect::Tell(change) => {
                    self.events.push(self.recorder.record(&change, &self.engine, now, 0));
                }
                _ => {}
            }
        }
        self.recorder.moved_on();
    }

    fn of(&self, kind: Kind) -> Vec<&Event> {
        self.events.iter().filter(|event| event.kind == kind).collect()
    }
}

/// From so long on, every probe is due again.
const NEXT: u64 = 11_000;

#[test]
fn an_event_lists_the_whole_pool_and_marks_what_moved() {
    let mut bench = Bench::new(3, "web");
    bench.probe(2000, |_| true);
    let first: Vec<usize> = bench.of(Kind::Endpoint).iter().map(|event| event.origins.len()).collect();
    assert_eq!(first, [1, 1, 1], "a start is no reason to list a pool over and over");
    bench.events.clear();
    bench.probe(2000 + NEXT, |_| true);
    assert_eq!(bench.events, [], "nothing changed, so nothing is told");

    bench.probe(2000 + 2 * NEXT, |endpoint| endpoint != "e2");
    let [event] = bench.of(Kind::Endpoint)[..] else { panic!("{:?}", bench.events) };
    assert_eq!(
        (event.object.as_str(), event.from.as_str(), event.to.as_str()),
        ("eu/e2", "healthy", "unhealthy")
    );
    assert_eq!((event.new_health, event.changed), (NewHealth::Unhealthy, true));
    assert_eq!(event.timestamp, "2024-03-01T00:00:24.000Z");
    assert_eq!(event.lasted_ms, 2 * NEXT);
    let moved: Vec<_> = event.origins.iter().map(|o| (o.name.as_str(), o.healthy, o.changed)).collect();
    assert_eq!(moved, [("e1", true, false), ("e2", false, true), ("e3", true, false)]);
    let gone = &event.origins[1];
    assert_eq!((gone.failure_reason.as_str(), gone.response_code), ("TCP connection failed", 0));
    assert_eq!((gone.ip.as_str(), gone.enabled, gone.monitors.len()), ("10.0.0.3", true, 0));
    let pool = event.pool.as_ref().unwrap();
    assert_eq!(
        (pool.name.as_str(), pool.healthy, pool.changed, pool.minimum_origins),
        ("eu", true, false, 1)
    );
    assert_eq!((pool.origins_total, pool.origins_enabled, pool.origins_healthy), (3, 3, 2));
    let evidence = event.evidence.as_ref().unwrap();
    let bad = evidence.last_bad.as_ref().unwrap();
    assert_eq!((bad.detail.as_str(), bad.said.as_str()), ("connect_refused", "\\x00hi\\n"));
    assert_eq!((bad.connected_ms, bad.total_ms, bad.tls_ms), (Some(1.25), 2.5, None));
    assert_eq!(evidence.last_good.as_ref().unwrap().at, "2024-03-01T00:00:13.000Z");
    let [pool] = bench.of(Kind::Pool)[..] else { panic!("{:?}", bench.events) };
    assert!(pool.pool.as_ref().unwrap().changed && pool.origins.iter().all(|origin| !origin.changed));
    assert_eq!(pool.new_health, NewHealth::Healthy, "a degraded pool takes traffic");

    bench.events.clear();
    bench.probe(2000 + 3 * NEXT, |_| false);
    let [balancer] = bench.of(Kind::LoadBalancer)[..] else { panic!("{:?}", bench.events) };
    let record = balancer.load_balancer.as_ref().unwrap();
    assert_eq!((record.serving.as_slice(), record.fallback), (&["sorry".to_owned()][..], true));
    assert_eq!((balancer.object.as_str(), balancer.new_health), ("www.example.com.", NewHealth::Unhealthy));
    assert_eq!(bench.of(Kind::Pool).last().unwrap().new_health, NewHealth::Unhealthy);
}

#[test]
fn events_read_back_as_they_were_written_and_sort_by_id() {
    let mut bench = Bench::new(3, "web");
    bench.probe(2000, |_| true);
    bench.probe(2000 + NEXT, |_| false);
    for event in &bench.events {
        let line = event.line();
        assert!(!line.contains('\n'));
        assert_eq!(Event::read(line.as_bytes()).as_ref(), Some(event));
        assert_eq!(Event::read(&line.as_bytes()[..line.len() / 2]), None, "a line cut short is none");
    }
    let ids: Vec<_> = bench.events.iter().map(|event| &event.id).collect();
    assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
}

#[test]
fn several_monitors_stand_under_each_endpoint() {
    let mut bench = Bench::new(2, "[web, tcp]");
    bench.probe(2000, |_| true);
    bench.events.clear();
    bench.probe(2000 + NEXT, |endpoint| endpoint != "e1");
    let event = bench.of(Kind::Endpoint)[0];
    let monitors = &event.origins[0].monitors;
    let seen: Vec<_> = monitors.iter().map(|m| (m.id.as_str(), m.monitoring_only)).collect();
    assert_eq!(seen, [("web", false), ("tcp", false)]);
    assert!(monitors.iter().any(|monitor| !monitor.healthy));
    let tests = bench.of(Kind::Test);
    assert_eq!(tests.len(), 2, "each monitor's word by itself");
    assert!(tests.iter().all(|test| test.origins.iter().all(|origin| !origin.changed)));
}

#[test]
fn of_a_large_pool_only_what_moved_is_listed() {
    let mut bench = Bench::new(MOST_ORIGINS as u32 + 1, "web");
    bench.probe(2000, |_| true);
    bench.events.clear();
    bench.probe(2000 + NEXT, |endpoint| endpoint != "e7");
    let event = bench.of(Kind::Endpoint)[0];
    let [only] = &event.origins[..] else { panic!("{:?}", event.origins) };
    assert_eq!((only.name.as_str(), only.changed), ("e7", true));
    assert_eq!(event.pool.as_ref().unwrap().origins_total, MOST_ORIGINS as u32 + 1);
    assert_eq!(event.origins_left_out, MOST_ORIGINS as u32);
    assert!(event.line().contains("\"origins_left_out\":50"), "{}", event.line());
}

#[test]
fn an_event_of_many_vantages_lists_few_tests_and_counts_the_rest() {
    let (many, most) = (300, MOST_TESTS as u32);
    let vantages: Vec<String> = (0..many).map(|n| format!("v{n}: {{}}")).collect();
    let mut bench = Bench::seen_from(&format!("vantages: {{ {} }}\n", vantages.join(", ")), 40, "[web, tcp]");
    bench.probe(2000, |_| true);
    bench.events.clear();
    bench.probe(2000 + NEXT, |endpoint| endpoint != "e7");
    let event = bench.of(Kind::Endpoint)[0];
    assert_eq!((event.origins.len(), event.origins_left_out), (40, 0));
    for origin in &event.origins {
        let listed = origin.monitors.len() as u32;
        assert_eq!(listed + origin.monitors_left_out, 2 * many, "{}", origin.name);
        assert_eq!(listed, if origin.changed { most } else { 0 }, "{}", origin.name);
    }
    let moved = event.origins.iter().find(|origin| origin.changed).unwrap();
    assert!(moved.monitors.iter().all(|monitor| !monitor.healthy), "what fails comes first");
    for event in &bench.events {
        let tests: usize = event.origins.iter().map(|origin| origin.monitors.len()).sum();
        assert!(tests <= MOST_TESTS, "{}", event.summary);
        assert!(event.kind != Kind::Test || tests == 1 && event.origins.len() == 1, "{}", event.summary);
        let length = event.line().len();
        assert!(length < 32 << 10 && length < 2 * event.octets(), "{length}, {}", event.octets());
        assert_eq!(Event::read(event.line().as_bytes()).as_ref(), Some(event));
    }
}

#[test]
fn a_notice_needs_only_what_moved() {
    let mut bench = Bench::new(5, "[web, tcp]");
    bench.probe(2000, |_| true);
    bench.events.clear();
    bench.probe(2000 + NEXT, |endpoint| endpoint != "e2");
    let brief = bench.of(Kind::Endpoint)[0].clone().brief();
    let [only] = &brief.origins[..] else { panic!("{:?}", brief.origins) };
    assert_eq!((only.name.as_str(), only.monitors.len(), brief.origins_left_out), ("e2", 0, 0));
    assert!(brief.evidence.is_some());
}

#[test]
fn a_long_reason_is_cut() {
    let mut bench = Bench::new(2, "web");
    bench.probe(2000, |_| true);
    bench.events.clear();
    let (reason, by) = ("ä".repeat(100_000).into(), "me".into());
    let order = Order::Set { action: Action::Disable, reason, by, until: None };
    let scope = Scope { pool: "eu".into(), endpoint: Some("e1".into()) };
    bench.engine.order(&scope, order, at(3000)).unwrap();
    bench.carry_out(at(3000));
    let event = bench.of(Kind::Endpoint)[0];
    assert!(event.line().len() < 16 << 10, "{}", event.line().len());
}

#[test]
fn what_an_operator_takes_out_is_no_bad_news() {
    let mut bench = Bench::new(2, "web");
    bench.probe(2000, |_| true);
    bench.events.clear();
    for endpoint in ["e1", "e2"] {
        let scope = Scope { pool: "eu".into(), endpoint: Some(endpoint.into()) };
        let (by, reason) = ("ann".into(), "new disks".into());
        let order = Order::Set { action: Action::Disable, reason, by, until: None };
        bench.engine.order(&scope, order, at(3000)).unwrap();
        bench.carry_out(at(3000));
    }
    let event = bench.of(Kind::Endpoint)[0];
    assert_eq!((event.to.as_str(), event.new_health), ("disabled", NewHealth::Out));
    assert_eq!(event.cause.as_ref().unwrap().by.as_deref(), Some("ann"));
    assert_eq!(event.reason, "new disks");
    let pools: Vec<_> =
        bench.of(Kind::Pool).iter().map(|event| (event.to.clone(), event.new_health)).collect();
    assert_eq!(pools.last().unwrap(), &("critical".to_owned(), NewHealth::Out), "nothing in it fails");
    assert_eq!(bench.of(Kind::LoadBalancer).last().unwrap().new_health, NewHealth::Unhealthy);
}

#[test]
fn a_pool_that_is_switched_off_says_by_whom_and_why() {
    let mut bench = Bench::new(2, "web");
    bench.probe(2000, |_| true);
    for (by, reason, expected) in [
        ("ann", "pool off", "switched off by ann: pool off"),
        ("ann", "", "switched off by ann"),
        ("", "", "switched off by an operator"),
    ] {
        let scope = Scope { pool: "eu".into(), endpoint: None };
        let order = Order::Set { action: Action::Disable, reason: reason.into(), by: by.into(), until: None };
        bench.engine.order(&scope, order, at(3000)).unwrap();
        bench.carry_out(at(3000));
        let event = bench.of(Kind::Pool).last().copied().cloned().unwrap();
        assert_eq!((event.to.as_str(), event.reason.as_str()), ("disabled", expected));
        bench.engine.order(&scope, Order::Clear(Slot::Traffic), at(3000)).unwrap();
        bench.carry_out(at(3000));
    }
}

#[test]
fn a_pool_is_out_only_if_somebody_took_out_what_it_lacks() {
    let bench = Bench::new(2, "web");
    let health = |state, enabled, healthy, endpoints, taken_out| {
        let to = PoolHealth { state, enabled, healthy, unknown: 0, taken_out };
        let (from, said) = (PoolState::Healthy, None);
        let change = Change::Pool {
            pool: "eu".into(),
            from,
            to,
            threshold: 2,
            endpoints,
            said,
            taken_back: None,
            since: at(0),
        };
        let event = Recorder::default().record(&change, &bench.engine, at(5000), 0);
        (event.new_health, event.reason)
    };
    let reason = "no endpoint: its host names have no address".to_owned();
    assert_eq!(health(PoolState::Critical, 0, 0, 0, false), (NewHealth::Unhealthy, reason));
    assert_eq!(health(PoolState::Critical, 0, 0, 3, true).0, NewHealth::Out);
    let unmet = health(PoolState::Critical, 1, 1, 1, false).0;
    assert_eq!(unmet, NewHealth::Unhealthy, "its threshold can't be met");
    assert_eq!(health(PoolState::Critical, 2, 1, 3, true).0, NewHealth::Out);
    assert_eq!(health(PoolState::Critical, 2, 1, 3, false).0, NewHealth::Unhealthy);
    assert_eq!(
        health(PoolState::Unknown, 1, 1, 1, false).0,
        NewHealth::Healthy,
        "nothing tests it, and it serves"
    );
    assert_eq!(health(PoolState::Unknown, 1, 0, 1, false).0, NewHealth::Unknown);
    assert_eq!(health(PoolState::Disabled, 0, 0, 0, false).0, NewHealth::Out);
}

/// What events say of the health of objects, oldest first.
fn news(events: &[Event]) -> Vec<(&str, NewHealth)> {
    events.iter().map(|event| (event.object.as_str(), event.new_health)).collect()
}

#[test]
fn what_an_operator_forces_is_no_incident_and_neither_is_what_depends_on_it() {
    let text = "monitors: { web: { type: tcp, port: 80, interval: 10s, consecutive_down: 1, consecutive_up: 1 } }\n\
        pools:\n  \
        db: { monitor: web, endpoints: [ { name: main, address: 192.0.2.1 } ] }\n  \
        sorry: { endpoints: [ { name: s, address: 192.0.2.9 } ] }\n  \
        us: { monitor: web, depends_on: db, endpoints: [ { name: a, address: 192.0.2.2 } ] }\n\
        zone: example.com\n\
        records: { '': { type: NS, value: ns.example.net. } }\n\
        load_balancers: { www: { default_pools: [us], fallback_pool: sorry } }\n";
    let mut bench = Bench::taking_on(text);
    bench.probe(2000, |_| true);
    bench.events.clear();
    let say = |bench: &mut Bench, of: &str, order: Order, ms| {
        let (pool, endpoint) = of.split_once('/').unwrap();
        let scope = Scope { pool: pool.into(), endpoint: Some(endpoint.into()) };
        bench.engine.order(&scope, order, at(ms)).unwrap();
        bench.carry_out(at(ms));
        bench.events.retain(|event| event.kind != Kind::LoadBalancer); // clients are moved, whoever wanted it
        std::mem::take(&mut bench.events)
    };
    let forced =
        || Order::Set { action: Action::Unhealthy, reason: "".into(), by: "ann".into(), until: None };
    let out = NewHealth::Out;
    let told = say(&mut bench, "sorry/s", forced(), 3000);
    assert_eq!(news(&told), [("sorry/s", out), ("sorry", out)]);
    let told = say(&mut bench, "sorry/s", Order::Clear(Slot::Health), 4000);
    let healthy = NewHealth::Healthy;
    assert_eq!(news(&told), [("sorry/s", healthy), ("sorry", healthy)], "nothing tests it, and it serves");
    let told = say(&mut bench, "db/main", forced(), 5000);
    assert_eq!(news(&told), [("db/main", out), ("us/a", out), ("db", out), ("us", out)]);

    // from now on it fails by itself, and nobody holds it down any more: that is an incident
    bench.probe(2000 + NEXT, |endpoint| endpoint != "main");
    bench.events.clear();
    let told = say(&mut bench, "db/main", Order::Clear(Slot::Health), 2000 + NEXT);
    let unhealthy = NewHealth::Unhealthy;
    let all = ["db/main", "us/a", "db", "us"].map(|object| (object, unhealthy));
    assert_eq!(news(&told), all);
    assert!(told.iter().all(|event| event.kind != Kind::Pool || event.from == event.to), "{told:?}");
    let told = say(&mut bench, "db/main", forced(), 3000 + NEXT);
    assert_eq!(news(&told), [("db/main", out), ("us/a", out), ("db", out), ("us", out)]);
}

/// What an engine at this time would leave to the next one.
fn next_run(bench: &Bench, ms: u64, text: &str) -> Bench {
    let mut engine = Engine::new(100);
    engine.recall(bench.engine.memory(at(ms)), at(0), at(ms));
    let mut next = Bench { engine, recorder: Recorder::default(), wanted: Vec::new(), events: Vec::new() };
    next.take_on(text, ms);
    next
}

#[test]
fn how_long_something_had_held_is_known_over_a_restart() {
    let text = "monitors: { web: { type: tcp, port: 80, interval: 10s, consecutive_down: 1, consecutive_up: 1 } }\n\
        pools:\n  eu: { monitor: web, endpoints: [ { name: a, address: 192.0.2.1 }, { name: b, address: 192.0.2.2 } ] }\n  \
        sorry: { endpoints: [ { name: s, address: 192.0.2.9 } ] }\n\
        zone: example.com\n\
        records: { '': { type: NS, value: ns.example.net. } }\n\
        load_balancers: { www: { default_pools: [eu], fallback_pool: sorry, ttl: 30 } }\n";
    let mut first = Bench::taking_on(text);
    first.probe(2000, |endpoint| endpoint != "a");
    let scope = Scope { pool: "eu".into(), endpoint: Some("b".into()) };
    let order = Order::Set { action: Action::Drain, reason: "".into(), by: "ann".into(), until: None };
    first.engine.order(&scope, order, at(4000)).unwrap();
    first.carry_out(at(4000));

    let mut second = next_run(&first, 10_000, text);
    second.probe(12_000, |endpoint| endpoint != "a");
    second.events.clear();
    let mut third = next_run(&second, 13_000, text);
    third.probe(16_000, |_| true);
    third.probe(34_000, |_| true);
    let lasted = |object: &str| {
        let moved = third.events.iter().filter(|event| event.from != event.to && event.object == object);
        moved.map(|event| (event.from.as_str(), event.lasted_ms)).collect::<Vec<_>>()
    };
    assert_eq!(lasted("eu/a"), [("unhealthy", 14_000)]);
    assert_eq!(lasted("eu/b"), [("draining", 30_000)]);
    assert_eq!(lasted("eu"), [("critical", 12_000)]);
    assert_eq!(lasted("www.example.com."), [("critical", 12_000)]);
    let since = third.engine.status(at(34_000)).pools[1].endpoints[0].since;
    assert_eq!(since, at(0), "of what never changed, since the first start");
}

#[test]
fn who_takes_something_back_is_told_and_why_what_returns_is_unhealthy() {
    let mut bench = Bench::new(2, "web");
    bench.probe(2000, |_| true);
    let scope = |endpoint: Option<&str>| Scope { pool: "eu".into(), endpoint: endpoint.map(Into::into) };
    let say = |bench: &mut Bench, of: &Scope| {
        let order = Order::Set { action: Action::Disable, reason: "".into(), by: "ann".into(), until: None };
        bench.engine.order(of, order, at(2500)).unwrap();
        bench.carry_out(at(2500));
    };
    let take_back = |bench: &mut Bench, of: &Scope, reason: &str| {
        bench.events.clear();
        let who = TakenBack { by: "bob".into(), reason: reason.into() };
        bench.engine.take_back(of, Slot::Traffic, who, at(3000 + NEXT)).unwrap();
        bench.carry_out(at(3000 + NEXT));
        let first = bench.events[0].clone();
        (first.summary, first.reason, first.cause.map(|cause| (cause.r#type, cause.by, cause.detail)))
    };
    say(&mut bench, &scope(Some("e1")));
    say(&mut bench, &scope(Some("e2")));
    bench.probe(2000 + NEXT, |endpoint| endpoint != "e2");
    let by = |detail: Option<&str>| {
        Some(("operator".to_owned(), Some("bob".to_owned()), detail.map(str::to_owned)))
    };
    let told = take_back(&mut bench, &scope(Some("e1")), "");
    let expected = ("endpoint eu/e1 is healthy: taken back by bob", "taken back by bob", by(None));
    assert_eq!((&*told.0, &*told.1, told.2), expected);
    let told = take_back(&mut bench, &scope(Some("e2")), "disks are in");
    let failure = "TCP connection failed";
    let expected = (&*format!("endpoint eu/e2 is unhealthy: {failure}"), failure, by(Some("disks are in")));
    assert_eq!((&*told.0, &*told.1, told.2), expected);
    say(&mut bench, &scope(None));
    let told = take_back(&mut bench, &scope(None), "disks are in");
    assert_eq!(told.1, "switched on by bob: disks are in; 1 of 2 enabled endpoints healthy, threshold 1");
}

#[test]
fn windows_say_what_they_are_for_and_what_depends_says_on_what() {
    let text = "monitors: { web: { type: tcp, port: 80, interval: 10s, consecutive_down: 1, consecutive_up: 1 } }\n\
        maintenance: [ { pool: us, endpoint: b, from: '2024-03-01T00:00:05Z', until: '2024-03-01T00:10:00Z', reason: new disks } ]\n\
        pools:\n  db: { monitor: web, endpoints: [ { name: main, address: 192.0.2.1 } ] }\n  \
        us: { monitor: web, endpoints: [ { name: a, address: 192.0.2.2, depends_on: db/main }, \
        { name: b, address: 192.0.2.3 } ] }\n\
        zone: example.com\n\
        records: { '': { type: NS, value: ns.example.net. } }\n\
        load_balancers: { www: { default_pools: [us], when_unavailable: nodata } }\n";
    let mut bench = Bench::taking_on(text);
    bench.probe(2000, |_| true);
    bench.events.clear();
    bench.probe(5000, |_| true);
    let window = bench.of(Kind::Endpoint)[0];
    assert_eq!((&*window.object, &*window.to, &*window.reason), ("us/b", "maintenance", "new disks"));
    let cause = window.cause.as_ref().unwrap();
    assert_eq!((&*cause.r#type, cause.detail.as_deref()), ("time", Some("new disks")));
    bench.events.clear();
    bench.probe(2000 + NEXT, |endpoint| endpoint != "main");
    bench.probe(2000 + 2 * NEXT, |_| true);
    let told = bench.of(Kind::Endpoint);
    let told: Vec<_> =
        told.iter().filter(|event| event.object == "us/a").map(|event| &*event.reason).collect();
    assert_eq!(told, ["db/main is unhealthy", "db/main is healthy"]);
}

#[test]
fn a_vantage_says_how_long_it_was_as_before_where_that_is_known() {
    let bench = Bench::new(1, "web");
    let mut recorder = Recorder::default();
    let mut lasted = |suspect, ms| {
        let change = Change::Vantage { vantage: "local".into(), suspect };
        recorder.record(&change, &bench.engine, at(ms), 0).lasted_ms
    };
    assert_eq!(lasted(false, 1000), 0, "since when is not known");
    assert_eq!(lasted(true, 2000), 0);
    assert_eq!(lasted(true, 5000), 3000, "it lasts");
    assert_eq!(lasted(false, 9000), 7000);
    assert_eq!(lasted(true, 10_000), 1000);
}
