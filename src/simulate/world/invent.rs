//! Configurations as the dice have them, and changes of these.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::super::dice::Dice;
use super::{PUSH_INTERVAL, START};
use crate::model::{
    AgentCheck, Check, Combination, Dependency, Doubt, Ejection, Endpoint, FamilyThreshold, HealthSource,
    Host, HttpCheck, LoadBalancer, Maintenance, Member, Model, Monitor, MonitorId, Moves, Name, Pool, PoolId,
    Quorum, Reach, RecordSet, Rules, Scope, Serial, Soa, Source, SteeringPolicy, TcpCheck, Tests, Thresholds,
    TtlPolicy, Vantage, VantageId, Viewpoints, Weight, WhenUnavailable, Window, Zone,
};
use crate::rdata::rtype::MX;

/// Changes a configuration somewhere; gives the pools it touched.
pub fn change(dice: &mut Dice, model: &mut Model) -> BTreeSet<Arc<str>> {
    let place = dice.below(model.pools.len());
    let mut touched = BTreeSet::from([Arc::clone(&model.pools[place].name)]);
    match dice.below(6) {
        0 => {
            let pool = &mut model.pools[place];
            let number = dice.within(1..=250) as u8;
            let address = IpAddr::from([192, 0, 2, number]);
            let is_new = pool.endpoints.iter().all(|endpoint| endpoint.address != address);
            if is_new {
                pool.endpoints.push(Endpoint::new(&format!("n{number}"), address));
            }
        }
        1 => {
            let pool = &mut model.pools[place];
            if pool.endpoints.len() > 1 {
                pool.endpoints.remove(dice.below(pool.endpoints.len()));
                pool.health_threshold = 1;
            }
        }
        2 => {
            let pool = &mut model.pools[place];
            let endpoint = dice.below(pool.endpoints.len());
            pool.endpoints[endpoint].enabled ^= true;
        }
        3 => {
            let number = dice.below(model.monitors.len());
            let monitor = Arc::make_mut(&mut model.monitors[number]);
            monitor.thresholds =
                Thresholds { up: dice.within(1..=4) as u32, down: dice.within(1..=4) as u32 };
            if dice.percent(30) {
                monitor.check = check(dice);
                monitor.interval = interval(&monitor.check, monitor.interval);
            }
            touched = model.pools.iter().map(|pool| Arc::clone(&pool.name)).collect();
        }
        4 => {
            let pool = &mut model.pools[place];
            pool.endpoints.reverse();
        }
        _ => model.pools[place].rules = rules(dice),
    }
    // what depends on a touched pool may move with it
    for _ in 0..model.pools.len() {
        let names: Vec<Arc<str>> = model.pools.iter().map(|pool| Arc::clone(&pool.name)).collect();
        for pool in &model.pools {
            let mut needed = pool.depends_on.iter();
            if needed.any(|needed| touched.contains(&names[needed.pool.0 as usize])) {
                touched.insert(Arc::clone(&pool.name));
            }
        }
    }
    touched
}

fn check(dice: &mut Dice) -> Check {
    let port = Some(dice.within(1..=9) as u16);
    match dice.below(9) {
        0..=2 => Check::Tcp(TcpCheck { port, ..TcpCheck::default() }),
        3 | 4 => Check::Agent(AgentCheck { port, send: None }),
        5 => Check::Push,
        _ => Check::Http(HttpCheck { port, ..HttpCheck::default() }),
    }
}

/// An interval in which everybody has reported.
fn interval(check: &Check, wanted: Duration) -> Duration {
    if *check == Check::Push { wanted.max(PUSH_INTERVAL) } else { wanted }
}

fn rules(dice: &mut Dice) -> Rules {
    let sometimes = |dice: &mut Dice, range| match dice.percent(30) {
        true => dice.seconds(range),
        false => Duration::ZERO,
    };
    Rules {
        start_period: dice.percent(20).then(|| dice.seconds(1..=20)),
        stale_after: dice.seconds(20..=120),
        flap_limit: dice.within(1..=5) as u32,
        flap_window: dice.seconds(20..=60),
        flap_hold: sometimes(dice, 1..=20),
        slow_start: sometimes(dice, 1..=60),
        drain_wait: sometimes(dice, 1..=20),
        stale_if_error: match dice.percent(50) {
            true => dice.seconds(0..=60),
            false => Rules::default().stale_if_error,
        },
        ejection: dice.percent(50).then(|| Ejection {
            consecutive_failures: dice.percent(70).then(|| dice.within(1..=40) as u32),
            failure_percentage: dice.percent(70).then(|| dice.within(10..=90) as u8),
            minimum_requests: dice.within(1..=60) as u32,
            ejection_time: dice.seconds(1..=20),
            max_ejection_time: dice.seconds(20..=60),
            max_ejection_percent: dice.within(1..=100) as u8,
        }),
    }
}

/// A configuration from chance.
pub fn configuration(dice: &mut Dice) -> Model {
    let count = 1 + dice.below(3);
    let vantages: Vec<Arc<Vantage>> = (0..1 + dice.below(3))
        .map(|number| {
            let remote = number > 0 && dice.percent(30);
            Arc::new(Vantage {
                name: format!("v{number}").into(),
                region: dice.percent(60).then(|| format!("r{}", dice.below(2)).into()),
                reach: match remote {
                    true => Reach::Remote,
                    false => Reach::Here { source: Source::default(), namespace: None },
                },
                canaries: dice.percent(20).then(|| PoolId(dice.below(count) as u32)),
            })
        })
        .collect();
    let monitors: Vec<Arc<Monitor>> = (0..1 + dice.below(3))
        .map(|number| {
            let check = check(dice);
            let interval = interval(&check, dice.millis(500..=8000));
            Arc::new(Monitor {
                interval,
                timeout: dice.millis(100..=3000),
                retries: dice.below(2) as u8,
                recheck_interval: dice.percent(60).then(|| dice.millis(100..=1000).min(interval)),
                thresholds: Thresholds { up: dice.within(1..=4) as u32, down: dice.within(1..=4) as u32 },
                ..Monitor::new(&format!("m{number}"), check)
            })
        })
        .collect();
    let pools: Vec<Pool> = (0..count).map(|number| pool(dice, number, &monitors, &vantages)).collect();
    let doubt = Doubt {
        share: dice.percent(50).then(|| dice.within(30..=80) as u8),
        window: dice.seconds(5..=20),
        hold: dice.seconds(5..=40),
    };
    let maintenance = match dice.percent(20) {
        true => {
            let from = START.elapsed().as_secs() + dice.within(0..=200);
            let of = Scope { pool: Arc::clone(&pools[0].name), endpoint: None };
            let when = Window::Once { from, until: from + dice.within(1..=60) };
            vec![Maintenance { of, when, reason: "a simulation".into() }]
        }
        false => Vec::new(),
    };
    let zones = vec![zone(dice, &pools)];
    Model { monitors, pools, zones, vantages, doubt, maintenance, ..Model::default() }
}

fn pool(dice: &mut Dice, number: usize, monitors: &[Arc<Monitor>], vantages: &[Arc<Vantage>]) -> Pool {
    let endpoints: Vec<Endpoint> = (0..1 + dice.below(4))
        .map(|n| Endpoint {
            enabled: dice.percent(90),
            weight: Weight(*dice.pick(&[100, 100, 100, 50, 0])),
            ..Endpoint::new(&format!("e{n}"), [192, 0, 2, (number * 4 + n + 1) as u8].into())
        })
        .collect();
    let members: Vec<Member> = (0..monitors.len() as u32)
        .filter(|_| dice.percent(70))
        .map(|id| Member { monitor: MonitorId(id), votes: true, must_be_healthy: false })
        .collect();
    let members: Vec<Member> =
        members.into_iter().map(|member| Member { votes: dice.percent(90), ..member }).collect();
    let voters = members.iter().filter(|member| member.votes).count() as u64;
    let combination = match dice.below(4) {
        0 => Combination::Majority,
        1 if voters > 0 => Combination::AtLeast(dice.within(1..=voters) as u32),
        _ => Combination::All,
    };
    let is_group = combination == Combination::Majority;
    let members =
        members.into_iter().map(|member| Member { must_be_healthy: is_group && dice.percent(20), ..member });
    let tests = Tests { members: members.collect(), combination };
    let all: Vec<VantageId> = (0..vantages.len() as u32).map(VantageId).collect();
    let viewpoints = Viewpoints {
        vantages: all,
        quorum: if dice.percent(50) { Quorum::Regions } else { Quorum::Vantages },
        sources: match dice.percent(20) {
            true => vec![HealthSource::Local(VantageId(0)), HealthSource::Global],
            false => vec![HealthSource::Global],
        },
    };
    let hosts = match dice.percent(20) {
        true => {
            let endpoint = Endpoint::new("web", [0, 0, 0, 0].into());
            vec![Host {
                place: dice.below(endpoints.len() + 1),
                hostname: "web.example.net".into(),
                endpoint,
            }]
        }
        false => Vec::new(),
    };
    let depends_on = match number > 0 && dice.percent(20) {
        true => vec![Dependency { pool: PoolId(number as u32 - 1), endpoint: None }],
        false => Vec::new(),
    };
    Pool {
        enabled: dice.percent(95),
        tests,
        viewpoints,
        rules: rules(dice),
        depends_on,
        health_threshold: dice.within(0..=endpoints.len() as u64) as u32,
        family_threshold: FamilyThreshold::default(),
        hosts,
        ..Pool::new(&format!("p{number}"), endpoints)
    }
}

fn zone(dice: &mut Dice, pools: &[Pool]) -> Zone {
    let apex: Name = "example.com".parse().expect("a name");
    let soa = Soa {
        ttl: 3600,
        mname: apex.wire().into(),
        rname: apex.wire().into(),
        serial: if dice.percent(50) { Serial::Auto } else { Serial::From(1_900_000_000) },
        refresh: 3600,
        retry: 600,
        expire: 604_800,
        minimum: 30,
    };
    let load_balancers = (0..1 + dice.below(3)).map(|number| {
        let default_pools: Vec<PoolId> = (0..pools.len() as u32).map(PoolId).collect();
        let steering_policy = match dice.percent(50) {
            true => SteeringPolicy::Off,
            false => SteeringPolicy::Random(
                default_pools.iter().map(|_| Weight(*dice.pick(&[100, 50, 0]))).collect(),
            ),
        };
        let moves = match dice.percent(30) {
            true => Moves {
                failover_delay: dice.millis(0..=5000),
                failback_delay: dice.millis(0..=20_000),
                manual_failback: dice.percent(30),
            },
            false => Moves::default(),
        };
        LoadBalancer {
            name: Name::parse(&format!("lb{number}"), &apex).expect("a name"),
            enabled: true,
            ttl: dice.within(1..=30) as u32,
            steering_policy,
            default_pools,
            when_unavailable: match dice.percent(70) {
                true => WhenUnavailable::FallbackPool(PoolId(dice.below(pools.len()) as u32)),
                false => WhenUnavailable::Nodata,
            },
            moves,
            slo: None,
            ttl_policy: if dice.percent(30) { TtlPolicy::Derived } else { TtlPolicy::Fixed },
        }
    });
    let load_balancers = load_balancers.collect();
    let records = vec![mail(&apex, pools, false), mail(&apex, pools, true)];
    Zone { apex, soa, records, load_balancers }
}

/// MX records that follow health: one that needs each pool as a whole, one that
/// needs its first endpoint; if it is `sure`, one more that needs nothing.
fn mail(apex: &Name, pools: &[Pool], sure: bool) -> RecordSet {
    let needs = |(pool, number): (&Pool, u32)| {
        let needed = |endpoint| vec![Dependency { pool: PoolId(number), endpoint }];
        [needed(None), needed(Some(Arc::clone(&pool.endpoints[0].name)))]
    };
    let mut depends_on: Vec<Vec<Dependency>> = pools.iter().zip(0..).flat_map(needs).collect();
    if sure {
        depends_on.push(Vec::new());
    }
    let rdata = (0..depends_on.len()).map(|number| Box::from([0, number as u8, 0])).collect();
    let owner = Name::parse(if sure { "sure" } else { "mail" }, apex).expect("a name");
    // a shorter TTL than any load balancer's: a drain waits for those
    RecordSet { owner, rtype: MX, ttl: 1, rdata, depends_on }
}
