//! The network of a scenario: what probes and lookups find.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::Nature;
use super::script::{Manner, Seen, Subject};
use crate::engine::Lookup;
use crate::health::{Degraded, Outcome, ProbeResult, ProbeTask, Reason, TargetId};
use crate::model::{Check, Reading, Scope};
use crate::moment::Moment;

/// What a quick reply takes.
const QUICK: Duration = Duration::from_millis(10);

/// What somebody said of some endpoints.
#[derive(Clone, Debug)]
struct Said {
    whose: Subject,
    seen: Seen,
    manner: Manner,
    since: Moment,
}

/// What all endpoints do.
#[derive(Debug, Default)]
pub struct Network {
    /// The newest last: it goes before all others.
    said: Vec<Said>,
    cut_off: BTreeSet<Arc<str>>,
    hosts: BTreeMap<Arc<str>, Lookup>,
}

impl Network {
    /// From now on these endpoints do that. What was said of one monitor or
    /// vantage before ends when something is said for everybody.
    pub fn behave(&mut self, whose: Subject, seen: Seen, manner: Manner, now: Moment) {
        let all = seen == Seen::Everybody;
        self.said.retain(|said| said.whose != whose || (!all && said.seen != seen));
        let said = Said { whose, seen, manner, since: now };
        match said.whose {
            Subject::Default => self.said.insert(0, said),
            Subject::Scope(_) | Subject::Address(_) => self.said.push(said),
        }
    }

    /// From now on lookups find this.
    pub fn rename(&mut self, hostname: Arc<str>, lookup: Lookup) {
        self.hosts.insert(hostname, lookup);
    }

    /// The network at a vantage comes, or goes.
    pub fn connect(&mut self, vantage: Arc<str>, up: bool) {
        match up {
            true => drop(self.cut_off.remove(&vantage)),
            false => drop(self.cut_off.insert(vantage)),
        }
    }

    /// Whether a vantage has its network.
    pub fn is_connected(&self, vantage: &str) -> bool {
        !self.cut_off.contains(vantage)
    }

    /// Whether clients are served by this endpoint.
    pub fn works(&self, scope: &Scope, address: IpAddr, now: Moment) -> bool {
        self.sees(scope, address, &[], now)
    }

    /// Whether a vantage elsewhere finds that clients are served.
    pub fn works_from(&self, vantage: &Arc<str>, scope: &Scope, address: IpAddr, now: Moment) -> bool {
        self.sees(scope, address, &[Seen::From(Arc::clone(vantage))], now)
    }

    /// When some endpoint next changes by itself.
    pub fn turns(&self, now: Moment) -> Option<Moment> {
        self.said.iter().filter_map(|said| said.manner.turns(said.since, now)).min()
    }

    fn sees(&self, scope: &Scope, address: IpAddr, who: &[Seen], now: Moment) -> bool {
        self.said_of(scope, address, who).is_none_or(|said| said.manner.works(now.since(said.since)))
    }

    fn said_of(&self, scope: &Scope, address: IpAddr, who: &[Seen]) -> Option<&Said> {
        let meant = |said: &&Said| match &said.whose {
            Subject::Default => true,
            Subject::Address(of) => *of == address,
            Subject::Scope(of) => of.pool == scope.pool && is_part(of, scope),
        };
        let sees = |said: &&Said| said.seen == Seen::Everybody || who.contains(&said.seen);
        self.said.iter().rev().filter(meant).find(sees)
    }

    fn found(&self, task: &ProbeTask, now: Moment) -> Outcome {
        let timeout = task.monitor.longest_probe();
        if !self.is_connected(&task.vantage.name) {
            return failed(timeout, Reason::of_timeout(&task.monitor.check), "connect_timeout");
        }
        let scope = Scope { pool: Arc::clone(&task.pool), endpoint: Some(Arc::clone(&task.endpoint)) };
        let (monitor, vantage) = (Arc::clone(&task.monitor.name), Arc::clone(&task.vantage.name));
        let said = self.said_of(&scope, task.address, &[Seen::By(monitor), Seen::From(vantage)]);
        let manner = match said.map(|said| (said.manner, now.since(said.since))) {
            None => Manner::Up,
            Some((manner @ Manner::Flap(_), elapsed)) if manner.works(elapsed) => Manner::Up,
            Some((Manner::Flap(_), _)) => Manner::Refused,
            Some((manner, _)) => manner,
        };
        let codes = match &task.monitor.check {
            Check::Http(http) => Some(&http.expected_codes),
            _ => None,
        };
        let pass = |took| Outcome { took, ..Outcome::new(ProbeResult::Pass, Reason::NoFailures, "") };
        match manner {
            Manner::Hang => failed(timeout, Reason::of_timeout(&task.monitor.check), "response_timeout"),
            Manner::Slow(time) if time > task.monitor.timeout => {
                failed(timeout, Reason::of_timeout(&task.monitor.check), "response_timeout")
            }
            Manner::Slow(time) => pass(time),
            Manner::Refused => failed(QUICK, Reason::TcpConnectionFailed, "connect_refused"),
            Manner::Reset => failed(QUICK, Reason::ConnectionReset, "connection_reset"),
            Manner::Error => Outcome {
                took: QUICK,
                ..Outcome::new(ProbeResult::Error, Reason::NetworkUnreachable, "network_unreachable")
            },
            Manner::Code(code) if codes.is_some_and(|codes| !codes.contains(code)) => Outcome {
                status: Some(code),
                ..failed(QUICK, Reason::ResponseCodeMismatch, "unexpected_status")
            },
            Manner::Code(code) => Outcome { status: codes.map(|_| code), ..pass(QUICK) },
            // the other half of flapping was taken out above
            Manner::Up | Manner::Flap(_) => pass(QUICK),
        }
    }
}

impl Nature for Network {
    fn probe(&mut self, _: TargetId, task: &ProbeTask, now: Moment) -> Outcome {
        read(self.found(task, now), &task.monitor.reading)
    }

    fn resolve(&mut self, hostname: &str, _: Moment) -> (Duration, Lookup) {
        (QUICK, self.hosts.get(hostname).cloned().unwrap_or(Lookup::Failed))
    }
}

/// Whether what is said of a pool or an endpoint holds for an endpoint. What
/// is said of one given by host name holds for each of its addresses.
fn is_part(of: &Scope, scope: &Scope) -> bool {
    let (Some(of), Some(name)) = (&of.endpoint, &scope.endpoint) else { return of.endpoint.is_none() };
    name == of || name.strip_prefix(&**of).is_some_and(|rest| rest.starts_with('@'))
}

fn failed(took: Duration, reason: Reason, detail: &'static str) -> Outcome {
    Outcome { took, ..Outcome::new(ProbeResult::Fail, reason, detail) }
}

/// What the monitor makes of it: limits of latency, then inversion.
fn read(found: Outcome, reading: &Reading) -> Outcome {
    let took = found.took;
    let above = |limit: Option<Duration>| limit.is_some_and(|limit| took > limit);
    let limited = match found.result {
        ProbeResult::Pass if above(reading.fail_above) => Outcome {
            result: ProbeResult::Fail,
            reason: Reason::LatencyAboveLimit,
            detail: "latency_above_limit",
            ..found
        },
        ProbeResult::Pass if above(reading.degraded_above) => {
            Outcome { degraded: Some(Degraded::Slow), ..found }
        }
        ProbeResult::Pass | ProbeResult::Fail | ProbeResult::Error => found,
    };
    match limited.result {
        ProbeResult::Pass if reading.invert => Outcome {
            result: ProbeResult::Fail,
            reason: Reason::Inverted,
            detail: "inverted",
            degraded: None,
            ..limited
        },
        ProbeResult::Fail if reading.invert => {
            Outcome { result: ProbeResult::Pass, reason: Reason::NoFailures, ..limited }
        }
        ProbeResult::Pass | ProbeResult::Fail | ProbeResult::Error => limited,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(pool: &str, endpoint: Option<&str>) -> Scope {
        Scope { pool: pool.into(), endpoint: endpoint.map(Into::into) }
    }

    #[test]
    fn the_newest_word_goes_before_all_others_and_default_goes_last() {
        let address = IpAddr::from([192, 0, 2, 1]);
        let (eu, one) = (scope("eu", None), scope("eu", Some("eu-1")));
        let whole = |whose, manner| (whose, Seen::Everybody, manner);
        for (said, works, why) in [
            (vec![], true, "nothing was said"),
            (vec![whole(Subject::Default, Manner::Hang)], false, "by default"),
            (
                vec![whole(Subject::Scope(one.clone()), Manner::Up), whole(Subject::Default, Manner::Hang)],
                true,
                "default comes last whenever it is said",
            ),
            (
                vec![
                    whole(Subject::Scope(one.clone()), Manner::Hang),
                    whole(Subject::Scope(eu.clone()), Manner::Up),
                ],
                true,
                "the pool, later",
            ),
            (vec![whole(Subject::Address(address), Manner::Refused)], false, "the address"),
            (vec![whole(Subject::Scope(scope("eu", Some("eu"))), Manner::Hang)], true, "another endpoint"),
            (
                vec![(Subject::Scope(one.clone()), Seen::From("nyc".into()), Manner::Hang)],
                true,
                "what one vantage sees is not the truth",
            ),
        ] {
            let mut network = Network::default();
            for (whose, seen, manner) in said {
                network.behave(whose, seen, manner, Moment::ZERO);
            }
            assert_eq!(network.works(&one, address, Moment::ZERO), works, "{why}");
        }
    }

    #[test]
    fn an_endpoint_by_host_name_is_all_of_its_addresses() {
        for (said, name, meant) in
            [("web", "web", true), ("web", "web@192.0.2.1", true), ("web", "web-2", false)]
        {
            assert_eq!(is_part(&scope("p", Some(said)), &scope("p", Some(name))), meant, "{name}");
        }
    }
}
