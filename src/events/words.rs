//! A change in a few words: what happened, and why.

use std::sync::Arc;

use crate::engine::{Answered, Cause, Change, TakenBack};
use crate::health::{
    Action, DownCause, Fitness, OutCause, Override, PoolHealth, PoolState, Reason, Standing, Verdict,
};
use crate::model::Scope;
use crate::rdata::type_name;

/// A change in a few words.
pub fn headline(change: &Change) -> String {
    match change {
        Change::Verdict { scope, monitor, vantage, to, reason: Reason::NoFailures, .. } => {
            format!("endpoint {scope} is {to} by {monitor} from {vantage}")
        }
        Change::Verdict { scope, monitor, vantage, to, reason, .. } => {
            format!("endpoint {scope} is {to} by {monitor} from {vantage}: {reason}")
        }
        Change::Endpoint { scope, from, to, cause, .. } => endpoint_headline(scope, from, to, cause),
        Change::Gone { scope, reason, .. } => format!("endpoint {scope} is gone: {reason}"),
        Change::CannotProbe { scope, reason, .. } => {
            format!("endpoint {scope} can't be probed from here: {reason}")
        }
        Change::Vantage { vantage, suspect: true } => {
            format!("vantage {vantage} doubts itself: what fails there is held for a while")
        }
        Change::Vantage { vantage, suspect: false } => format!("vantage {vantage} doubts itself no more"),
        Change::Pool { pool, to, .. } if to.state == PoolState::Unknown => {
            format!("the health of pool {pool} is unknown")
        }
        Change::Pool { pool, to, .. } => format!("pool {pool} is {}", to.state),
        Change::Balancer { name, to, serving, fallback, .. } => match (serving.is_empty(), *fallback) {
            (true, _) => format!("load balancer {name} is {to}, answers with the SOA alone"),
            (false, true) => {
                format!("load balancer {name} is {to}, at its fallback pool {}", serving.join(", "))
            }
            (false, false) => format!("load balancer {name} is {to}, answers from {}", serving.join(", ")),
        },
        Change::Records { name, rtype, to, .. } => {
            let Answered { count, of, at_fallback, .. } = to;
            let of_them = format!("records {name} {}", type_name(*rtype));
            match at_fallback {
                true => {
                    format!("{of_them}: none has what it needs, {count} of {of} are answered all the same")
                }
                false => format!("{of_them}: {count} of {of} are answered"),
            }
        }
    }
}

fn endpoint_headline(scope: &Scope, from: &Standing, to: &Standing, cause: &Cause) -> String {
    let is = |what: &str| format!("endpoint {scope} is {what}");
    if from.word() != to.word() {
        return match cause {
            Cause::Probe { reason: Reason::NoFailures, .. } => is(words_for(to)),
            cause => is(&format!("{}: {}", words_for(to), cause.reason())),
        };
    }
    match (from, to) {
        (_, Standing { stale: true, .. }) if !from.stale => is("stale: nobody reports on it any more"),
        (Standing { stale: true, .. }, _) if !to.stale => is("reported on again"),
        (_, Standing { flapping: true, .. }) if !from.flapping => is("flapping"),
        (Standing { flapping: true, .. }, _) if !to.flapping => is("flapping no more"),
        (_, Standing { degraded: Some(why), .. }) if from.degraded.is_none() => {
            is(&format!("degraded: {why}"))
        }
        (Standing { degraded: Some(_), .. }, Standing { degraded: None, .. }) => is("degraded no more"),
        (_, Standing { starting: true, .. }) if !from.starting => is("starting"),
        (Standing { starting: true, .. }, _) if !to.starting => is("no longer starting"),
        _ if from.weight != to.weight => {
            let weight =
                to.weight.map_or("its configured weight again".to_owned(), |to| format!("weight {to}"));
            format!("endpoint {scope} has {weight}: {}", cause.reason())
        }
        _ => is(&format!("{}, probes say {}", words_for(to), to.verdict)),
    }
}

/// [`Standing::word`] as it stands in a sentence.
fn words_for(standing: &Standing) -> &'static str {
    match standing.fitness {
        Fitness::Up if standing.verdict == Verdict::Healthy => "healthy",
        Fitness::Up => "up",
        Fitness::Down(DownCause::Unknown) => "unknown",
        Fitness::Down(DownCause::Unhealthy) => "unhealthy",
        Fitness::Down(DownCause::Forced) => "held to be unhealthy by an operator",
        Fitness::Down(DownCause::Ejected) => "ejected",
        Fitness::Down(DownCause::FlapHold) => "held back after flapping",
        Fitness::Down(DownCause::Dependency) => "down because what it depends on is",
        Fitness::Down(DownCause::DependencyOut) => "down because what it depends on was taken out",
        Fitness::Out(OutCause::Disabled) => "disabled",
        Fitness::Out(OutCause::Draining) => "draining",
        Fitness::Out(OutCause::Drained) => "drained",
        Fitness::Out(OutCause::Maintenance) => "in maintenance",
        Fitness::Out(OutCause::AgentDrain) => "drained by its own agent",
        Fitness::Out(OutCause::AgentMaint) => "in maintenance by its own agent",
    }
}

/// Why so much of an RRset is answered.
pub fn records_reason(answered: &Answered) -> String {
    const FEW: usize = 5;
    let first: Vec<&str> = answered.left_out.iter().take(FEW).map(String::as_str).collect();
    let more = match answered.left_out.len() - first.len() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    match (answered.at_fallback, first.is_empty()) {
        (false, true) => "every value has what it needs".to_owned(),
        (false, false) => format!("left out: {}{more}", first.join(", ")),
        (true, true) => "no value has what it needs".to_owned(),
        (true, false) => {
            format!("no value has what it needs; taken out and left out: {}{more}", first.join(", "))
        }
    }
}

/// Why a pool of so many endpoints is in its state; `said` is what an operator
/// has said of it as a whole, or what was said is `taken_back`.
pub fn pool_reason(
    health: &PoolHealth,
    threshold: u32,
    endpoints: u32,
    said: Option<&Override>,
    taken_back: Option<&TakenBack>,
) -> String {
    let why = pool_counts(health, threshold, endpoints, said);
    match taken_back {
        Some(TakenBack { by, reason }) => format!("switched on {}; {why}", by_whom(by, reason)),
        None => why,
    }
}

fn pool_counts(health: &PoolHealth, threshold: u32, endpoints: u32, said: Option<&Override>) -> String {
    match health.state {
        PoolState::Disabled => switched_off(said.filter(|said| said.action == Action::Disable)),
        PoolState::Critical if endpoints == 0 => "no endpoint: its host names have no address".to_owned(),
        PoolState::Unknown => "no monitor, or no verdict yet".to_owned(),
        _ => {
            let counts = format!(
                "{} of {} enabled endpoints healthy, threshold {threshold}",
                health.healthy, health.enabled
            );
            if health.taken_out { counts + ": what doesn't serve was taken out" } else { counts }
        }
    }
}

/// By whom, and why.
fn switched_off(said: Option<&Override>) -> String {
    match said {
        Some(Override { by, reason, .. }) => format!("switched off {}", by_whom(by, reason)),
        None => "switched off in the configuration".to_owned(),
    }
}

fn by_whom(by: &str, reason: &str) -> String {
    let by = if by.is_empty() { "an operator" } else { by };
    if reason.is_empty() { format!("by {by}") } else { format!("by {by}: {reason}") }
}

/// Why a load balancer is in its state.
pub fn balancer_reason(serving: &[Arc<str>], fallback: bool) -> String {
    match (serving.is_empty(), fallback) {
        (true, _) => "no pool available and no fallback: only the SOA is answered".to_owned(),
        (false, true) => format!("no pool available: fallback pool {}", serving.join(", ")),
        (false, false) => format!("answers from {}", serving.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Weight;

    #[test]
    fn no_identifier_stands_in_a_headline() {
        let scope = Scope { pool: "eu".into(), endpoint: Some("a".into()) };
        for (to, cause, expected) in [
            (Fitness::Out(OutCause::Maintenance), Cause::Time, "in maintenance: its time has come"),
            (Fitness::Down(DownCause::FlapHold), Cause::Reload, "held back after flapping: configured so"),
            (
                Fitness::Down(DownCause::Dependency),
                Cause::Dependency { needed: "db is critical".into() },
                "down because what it depends on is: db is critical",
            ),
            (
                Fitness::Down(DownCause::Unhealthy),
                Cause::TakenBack { who: TakenBack::default(), failure: Some(Reason::TcpTimeout) },
                "unhealthy: TCP Timeout",
            ),
            (
                Fitness::Out(OutCause::Maintenance),
                Cause::Window { reason: "new disks".into() },
                "in maintenance: new disks",
            ),
            (
                Fitness::Out(OutCause::AgentMaint),
                Cause::Reload,
                "in maintenance by its own agent: configured so",
            ),
            (
                Fitness::Down(DownCause::Forced),
                Cause::Reload,
                "held to be unhealthy by an operator: configured so",
            ),
        ] {
            let from = Standing { fitness: Fitness::Up, verdict: Verdict::Healthy, ..Standing::default() };
            let to = Standing { fitness: to, ..from };
            assert_eq!(endpoint_headline(&scope, &from, &to, &cause), format!("endpoint eu/a is {expected}"));
        }
        let up = Standing { fitness: Fitness::Up, verdict: Verdict::Healthy, ..Standing::default() };
        let starting = Standing { starting: true, ..up };
        assert_eq!(endpoint_headline(&scope, &up, &starting, &Cause::Time), "endpoint eu/a is starting");
        let light = Standing { weight: Some(Weight(25)), ..up };
        let by_alice = Cause::Operator { by: "alice".into(), reason: "canary".into() };
        assert_eq!(
            endpoint_headline(&scope, &up, &light, &by_alice),
            "endpoint eu/a has weight 0.25: canary"
        );
        assert_eq!(
            endpoint_headline(&scope, &light, &up, &Cause::Time),
            "endpoint eu/a has its configured weight again: its time has come"
        );
    }
}
