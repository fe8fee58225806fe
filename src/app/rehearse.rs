//! `simulate`: a scenario in virtual time, and what came of it.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::config::{self, Report};
use crate::health::PoolState;
use crate::moment;
use crate::simulate::timeline::{Answering, BalancerRow, End, Exposure, Span, Stand, Timeline, Track, Who};
use crate::simulate::{self, draw};
use crate::telemetry;

/// Columns of text that goes to no terminal.
const WIDTH: usize = 100;

/// As many events as a run may have: some seconds and some hundred MiB.
const MOST_EVENTS: u64 = 5_000_000;

/// What is wanted of a run.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    pub scenario: PathBuf,
    /// In place of the scenario's own configuration.
    pub config: Vec<PathBuf>,
    /// Where a drawing goes.
    pub svg: Option<PathBuf>,
    /// For programs.
    pub json: bool,
    /// Text may be coloured.
    pub colours: bool,
}

/// Why a scenario was not played.
#[derive(Debug)]
pub enum Refusal {
    Files(Report),
    /// It was begun, and is told why it didn't end.
    Run(String),
    Write(PathBuf, io::Error),
}

/// Plays a scenario and shows what happens; tells whether all that it expects
/// was so.
pub fn rehearse(wanted: &Rehearsal) -> Result<bool, Refusal> {
    let script = config::load_scenario(&wanted.scenario, &wanted.config).map_err(Refusal::Files)?;
    let timeline = simulate::play(&script, MOST_EVENTS, telemetry::headline).map_err(Refusal::Run)?;
    if let Some(path) = &wanted.svg {
        std::fs::write(path, draw::svg(&timeline)).map_err(|error| Refusal::Write(path.clone(), error))?;
    }
    let text = match wanted.json {
        true => format!("{:#}\n", in_json(&timeline)),
        false => draw::text(&timeline, width(), wanted.colours),
    };
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // who reads no further, as `head` does, has seen enough
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Refusal::Write(Path::new("standard output").into(), error))
        }
        _ => Ok(timeline.checks.iter().all(|check| check.holds())),
    }
}

/// `COLUMNS`, else the terminal's.
fn width() -> usize {
    let asked = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || {
        let size = io::stdout().is_terminal().then(crossterm::terminal::size)?;
        size.ok().map(|(columns, _)| usize::from(columns))
    };
    asked.or_else(terminal).unwrap_or(WIDTH)
}

/// All of a timeline; times are seconds since the server began to answer.
fn in_json(timeline: &Timeline) -> Value {
    let events = timeline.events.iter().map(|event| {
        let who = match event.who {
            Who::Scenario => "scenario",
            Who::Server => "hale",
        };
        json!({ "at": event.at.as_secs_f64(), "who": who, "text": event.text })
    });
    let checks = timeline.checks.iter().map(|check| {
        json!({
            "at": check.at.as_secs_f64(),
            "place": check.place,
            "what": check.what,
            "expected": check.expected,
            "got": check.got,
            "holds": check.holds(),
        })
    });
    let pools = timeline.pools.iter().map(|row| {
        let state = |state: &Option<PoolState>| Some(json!({ "state": (*state)?.to_string() }));
        json!({ "name": &*row.name, "spans": spans(&row.track, state) })
    });
    let endpoints = timeline.endpoints.iter().map(|row| {
        let stand = |stand: &Stand| {
            json!({
                "stands": stand.word,
                "serves": stand.up,
                "works": stand.works,
                "stale": stand.stale,
                "degraded": stand.degraded,
                "starting": stand.starting,
                "slow_start": stand.partial,
            })
        };
        let spans = spans(&row.track, |held| held.as_ref().map(stand));
        json!({ "name": row.scope.to_string(), "address": row.address.to_string(), "spans": spans })
    });
    json!({
        "title": timeline.title,
        "start": moment::utc(timeline.start),
        "seconds": timeline.length.as_secs_f64(),
        "probes": timeline.probes,
        "load_balancers": timeline.balancers.iter().map(|row| balancer(timeline, row)).collect::<Vec<_>>(),
        "pools": pools.collect::<Vec<_>>(),
        "endpoints": endpoints.collect::<Vec<_>>(),
        "events": events.collect::<Vec<_>>(),
        "expectations": checks.collect::<Vec<_>>(),
    })
}

fn balancer(timeline: &Timeline, row: &BalancerRow) -> Value {
    let answering = |it: &Answering| {
        let family = |ipv6: bool| -> Vec<String> {
            it.addresses.iter().filter(|one| one.is_ipv6() == ipv6).map(ToString::to_string).collect()
        };
        let unfit: Vec<String> = it.unfit.iter().map(|(_, address)| address.to_string()).collect();
        json!({
            "state": it.state.to_string(),
            "pools": it.pools.iter().map(|pool| &**pool).collect::<Vec<_>>(),
            "fallback": it.fallback,
            "a": family(false),
            "aaaa": family(true),
            "unfit": unfit,
        })
    };
    json!({
        "name": row.name.to_string(),
        "ttl": row.ttl,
        "unfit_seconds": row.unfit_for().as_secs_f64(),
        "silent_seconds": row.silent_for().as_secs_f64(),
        "unfit": timeline.exposures(row).iter().map(exposure).collect::<Vec<_>>(),
        "spans": spans(&row.track, |held| held.answers().map(answering)),
    })
}

fn exposure(exposure: &Exposure) -> Value {
    let end = match exposure.end {
        End::Left => "out_of_answers",
        End::Worked => "worked_again",
        End::Lasted => "end_of_run",
    };
    json!({
        "endpoint": exposure.scope.to_string(),
        "address": exposure.address.to_string(),
        "from": exposure.from.as_secs_f64(),
        "to": exposure.to.as_secs_f64(),
        "end": end,
        "clients_until": exposure.clients_until.as_secs_f64(),
    })
}

/// What was so, without the times in which there was nothing.
fn spans<T: PartialEq>(track: &Track<T>, of: impl Fn(&T) -> Option<Value>) -> Vec<Value> {
    let there = |span: &Span<T>| {
        let mut value = of(&span.value)?;
        value["from"] = span.from.as_secs_f64().into();
        value["to"] = span.to.as_secs_f64().into();
        Some(value)
    };
    track.spans().iter().filter_map(there).collect()
}
