//! `hale probe`: one probe now, with its evidence.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::runtime::Runtime;

use super::table::{Cell, Colour, paint, table};
use super::{CommandError, Server, Style, beside_the_point, json};
use crate::app;
use crate::clock::Clock;
use crate::config;
use crate::control::view::{Probed, Sighting};
use crate::control::{Answer, Request};
use crate::probe::Prober;

/// More probes than these are shown as a table.
const AT_LENGTH: usize = 4;

/// What probes found, to be printed.
#[derive(Debug)]
pub struct Shown {
    pub text: String,
    /// Every one passed.
    pub passed: bool,
    /// What could not be probed, and why, a line each.
    pub not_probed: Vec<String>,
}

/// By the running server; its verdicts take no notice.
pub fn probe(server: &Server, of: &str, style: Style) -> Result<Shown, CommandError> {
    match server.ask(&Request::Probe { of: of.to_owned() })? {
        Answer::Probed(found) => Ok(shown(&found, Vec::new(), style)),
        _ => Err(beside_the_point()),
    }
}

/// From here, as files say.
pub fn probe_files(paths: &[PathBuf], of: &str, style: Style) -> Result<Shown, CommandError> {
    let loaded = config::load(paths).map_err(CommandError::Config)?;
    let runtime = Runtime::new().map_err(CommandError::Threads)?;
    let tasks = runtime.block_on(app::tasks_of(&loaded, of));
    let (tasks, not_probed) = tasks.map_err(CommandError::Nothing)?;
    let (prober, clock) = (Arc::new(Prober::new()), Clock::start());
    let found = runtime.block_on(async {
        let mut running = Vec::new();
        for task in tasks {
            let prober = Arc::clone(&prober);
            running.push(tokio::spawn(async move {
                let outcome = prober.run(&task).await;
                Probed::of(&task, &outcome, clock.now())
            }));
        }
        let mut found = Vec::new();
        for probe in running {
            found.extend(probe.await.ok()); // one that panicked has said so
        }
        found
    });
    runtime.shutdown_background();
    Ok(shown(&found, not_probed, style))
}

fn shown(found: &[Probed], not_probed: Vec<String>, style: Style) -> Shown {
    let passed = not_probed.is_empty() && found.iter().all(|probed| probed.found.result == "pass");
    let text = match style.json {
        true => json(&found),
        false if found.len() > AT_LENGTH => probed_table(found, style),
        false => found.iter().map(|probed| probed_text(probed, style)).collect::<Vec<_>>().join("\n"),
    };
    Shown { text, passed, not_probed }
}

/// One line a probe.
fn probed_table(found: &[Probed], style: Style) -> String {
    let row = |probed: &Probed| {
        vec![
            Cell::plain(format!("{}/{}", probed.pool, probed.endpoint)),
            Cell::plain(at(probed)),
            Cell::plain(&*probed.monitor),
            Cell::plain(&*probed.vantage),
            Cell::new(&*probed.found.result, colour_of(&probed.found)),
            Cell::plain(format!("{} ms", probed.found.took_ms)),
            Cell::plain(if probed.found.result == "pass" { String::new() } else { reason(&probed.found) }),
        ]
    };
    let rows: Vec<_> = found.iter().map(row).collect();
    let head = ["ENDPOINT", "AT", "MONITOR", "FROM", "RESULT", "TOOK", "WHY"];
    table(&head, &rows, style.colours, style.columns)
}

fn colour_of(found: &Sighting) -> Colour {
    match &*found.result {
        "pass" => Colour::Good,
        "fail" => Colour::Bad,
        _ => Colour::Doubtful,
    }
}

fn at(probed: &Probed) -> String {
    match probed.port {
        0 => probed.address.to_string(),
        port => std::net::SocketAddr::new(probed.address, port).to_string(),
    }
}

fn reason(found: &Sighting) -> String {
    let detail = if found.detail.is_empty() { String::new() } else { format!(" ({})", found.detail) };
    format!("{}{detail}", found.reason)
}

fn probed_text(probed: &Probed, style: Style) -> String {
    let Probed { pool, endpoint, monitor, kind, vantage, found, .. } = probed;
    let result = paint(&found.result, colour_of(found), style.colours);
    let at = at(probed);
    let mut text = format!("{pool}/{endpoint} at {at} by {monitor} ({kind}) from {vantage}: {result}\n");
    let mut row = |name: &str, value: String| text += &format!("  {name:<12} {value}\n");
    if found.result != "pass" || !found.detail.is_empty() {
        row("reason", reason(found));
    }
    if let Some(status) = found.status {
        row("status", status.to_string());
    }
    if let Some(degraded) = &found.degraded {
        row("degraded", degraded.clone());
    }
    for (name, time) in phases(found) {
        row(name, format!("{time} ms"));
    }
    let attempts = if found.attempts > 1 { format!(", {} attempts", found.attempts) } else { String::new() };
    row("total", format!("{} ms{attempts}", found.took_ms));
    if let Some(until) = &found.certificate_until {
        let days = found.certificate_days.unwrap_or_default();
        row("certificate", format!("until {until}, {days} days"));
    }
    if let Some(agent) = &found.agent {
        let percent = agent.percent.map(|percent| format!("{percent} %"));
        let wish = [agent.wish.clone(), percent].into_iter().flatten().collect::<Vec<_>>().join(", ");
        row("agent", if wish.is_empty() { "no wish".to_owned() } else { wish });
    }
    if !found.said.is_empty() {
        row("said", format!("\"{}\"", found.said));
    }
    text
}

/// When each phase was over.
fn phases(found: &Sighting) -> impl Iterator<Item = (&'static str, f64)> {
    let all = [
        ("resolved", found.resolved_ms),
        ("connected", found.connected_ms),
        ("tls", found.tls_ms),
        ("first byte", found.first_byte_ms),
    ];
    all.into_iter().filter_map(|(name, time)| Some((name, time?)))
}

/// What was seen, in one line.
pub fn evidence(seen: &Sighting) -> String {
    let mut parts = Vec::new();
    if seen.result != "pass" {
        parts.push(reason(seen));
    }
    parts.extend(seen.status.map(|status| format!("status {status}")));
    parts.extend(phases(seen).map(|(name, time)| format!("{name} {time} ms")));
    parts.push(format!("total {} ms", seen.took_ms));
    parts.extend(seen.certificate_days.map(|days| format!("certificate {days} days")));
    parts.extend((!seen.said.is_empty()).then(|| format!("said \"{}\"", seen.said)));
    parts.join(", ")
}
