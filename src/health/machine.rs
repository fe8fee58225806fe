//! From single probe outcomes to a verdict on one target.
//!
//! Owns the rule that a run of failures takes a target down and a run of
//! passes brings it back. From unknown the first outcome decides alone.
//!
//! Knows nothing of sockets, clocks or zones: the caller says what was seen
//! and when, so the server, the tests and the scenarios run the same code.

use std::fmt;
use std::time::Duration;

use crate::model::Thresholds;
use crate::moment::Moment;

/// What is held of a target, or of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Nothing was seen yet; counts as down.
    #[default]
    Unknown,
    Healthy,
    Unhealthy,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Unknown => "unknown",
            Verdict::Healthy => "healthy",
            Verdict::Unhealthy => "unhealthy",
        })
    }
}

/// A verdict that became another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    pub from: Verdict,
    pub to: Verdict,
    /// Since when `from` had held.
    pub since: Moment,
}

/// The run-length machine of one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    verdict: Verdict,
    since: Moment,
    /// The last outcome (a pass or not), and how often in a row it was seen.
    run: Option<(bool, u32)>,
    /// The verdict was gained by another test: the next outcome decides alone.
    carried_over: bool,
    /// Until then failures don't count, and only a run of passes does.
    starting: Option<Moment>,
}

/// A machine as it outlives a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineMemory {
    pub verdict: Verdict,
    pub since: Moment,
    pub run: Option<(bool, u32)>,
}

impl Machine {
    /// A machine that has seen nothing.
    pub fn new(now: Moment) -> Machine {
        Machine { verdict: Verdict::Unknown, since: now, run: None, carried_over: false, starting: None }
    }

    /// One that goes on where another stood.
    pub fn recall(memory: MachineMemory) -> Machine {
        let MachineMemory { verdict, since, run } = memory;
        Machine { verdict, since, run, carried_over: false, starting: None }
    }

    /// What of it outlives a restart.
    pub fn remember(&self) -> MachineMemory {
        MachineMemory { verdict: self.verdict, since: self.since, run: self.run }
    }

    /// The same machine in a start period that ends at `until`.
    pub fn start(self, until: Moment) -> Machine {
        Machine { starting: Some(until), ..self }
    }

    /// The same verdict for a changed test, until that test's first outcome.
    pub fn carry_over(self) -> Machine {
        Machine { run: None, carried_over: self.verdict != Verdict::Unknown, ..self }
    }

    /// Takes in one outcome; tells whether the verdict changed. Who comes back
    /// after more than `start_period` of failing gets a start period, too.
    pub fn observe(
        &mut self,
        pass: bool,
        at: Moment,
        limits: Thresholds,
        start_period: Duration,
    ) -> Option<Transition> {
        let length = match self.run {
            Some((last, length)) if last == pass => length.saturating_add(1),
            _ => 1,
        };
        self.run = Some((pass, length));
        let carried_over = std::mem::take(&mut self.carried_over);
        self.starting = self.starting.filter(|until| at < *until);
        let long_down = self.verdict == Verdict::Unhealthy && at.since(self.since) > start_period;
        if pass && long_down && start_period > Duration::ZERO && !carried_over {
            self.starting.get_or_insert(at + start_period);
        }

        let starting = self.starting.is_some();
        let first = (self.verdict == Verdict::Unknown || carried_over) && !starting;
        let to = match pass {
            true if first || length >= limits.up => Verdict::Healthy,
            false if starting => return None,
            false if first || length >= limits.down => Verdict::Unhealthy,
            _ => return None,
        };
        self.starting = None;
        let from = std::mem::replace(&mut self.verdict, to);
        (from != to).then(|| Transition { from, to, since: std::mem::replace(&mut self.since, at) })
    }

    /// When its start period ends, while it is in one.
    pub fn starting(&self) -> Option<Moment> {
        self.starting
    }

    /// Since when the verdict holds.
    pub fn since(&self) -> Moment {
        self.since
    }

    /// The last outcome (a pass or not), and how often in a row it was seen.
    pub fn run(&self) -> Option<(bool, u32)> {
        self.run
    }

    /// What is held of the target now.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// How many more outcomes the verdict needs at least to change.
    pub fn outcomes_to_change(&self, limits: Thresholds) -> u32 {
        let run_of = |pass: bool| self.run.map_or(0, |(last, length)| if last == pass { length } else { 0 });
        let left = match self.verdict {
            _ if self.carried_over => 1,
            Verdict::Unknown => 1,
            Verdict::Healthy => limits.down.saturating_sub(run_of(false)),
            Verdict::Unhealthy => limits.up.saturating_sub(run_of(true)),
        };
        left.max(1)
    }

    /// Whether a healthy target has begun to fail and the run is undecided.
    pub fn is_doubtful(&self) -> bool {
        self.verdict == Verdict::Healthy && matches!(self.run, Some((false, _)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdicts after each outcome (`+` or `-`), as letters.
    fn trace(machine: &mut Machine, outcomes: &str, limits: Thresholds) -> String {
        outcomes
            .chars()
            .map(|c| {
                machine.observe(c == '+', Moment::ZERO, limits, Duration::ZERO);
                match machine.verdict() {
                    Verdict::Unknown => '?',
                    Verdict::Healthy => 'H',
                    Verdict::Unhealthy => 'U',
                }
            })
            .collect()
    }

    #[test]
    fn a_verdict_follows_runs_not_single_outcomes() {
        let limits = Thresholds { up: 3, down: 2 };
        for (outcomes, verdicts, why) in [
            ("+++", "HHH", "the first outcome ends the unknown"),
            ("+++-+-+-", "HHHHHHHH", "flapping below the threshold is ignored"),
            ("+++--", "HHHHU", "two failures in a row take it down"),
            ("--++-+++", "UUUUUUUH", "one failure restarts the climb"),
        ] {
            let mut machine = Machine::new(Moment::ZERO);
            assert_eq!(trace(&mut machine, outcomes, limits), verdicts, "{outcomes}: {why}");
        }
    }

    #[test]
    fn c1_to_c4_consecutive_outcomes() {
        for (id, before, up, down, outcomes, verdicts) in [
            ("C1", "+", 1, 1, "-", "U"),
            ("C2", "+", 2, 2, "-+--++", "HHHUUH"),
            ("C3", "+", 3, 3, "--+---", "HHHHHU"),
            ("C4", "-", 2, 1, "+-++", "UUUH"),
        ] {
            let limits = Thresholds { up, down };
            let mut machine = Machine::new(Moment::ZERO);
            trace(&mut machine, before, limits);
            assert_eq!(trace(&mut machine, outcomes, limits), verdicts, "{id}");
        }
    }

    #[test]
    fn a_run_brings_the_next_verdict_closer() {
        let limits = Thresholds { up: 2, down: 3 };
        for (outcomes, left) in [
            ("", 1),
            ("+", 3),
            ("+-", 2),
            ("+--", 1),
            ("+--+", 3),
            ("-", 2),
            ("-+", 1),
            ("-+-", 2),
            ("---", 2),
        ] {
            let mut machine = Machine::new(Moment::ZERO);
            trace(&mut machine, outcomes, limits);
            assert_eq!(machine.outcomes_to_change(limits), left, "{outcomes}");
        }
        let mut machine = Machine::new(Moment::ZERO);
        trace(&mut machine, "+", limits);
        assert_eq!(machine.carry_over().outcomes_to_change(limits), 1);
    }

    #[test]
    fn a_carried_over_verdict_lasts_until_the_first_outcome() {
        let limits = Thresholds { up: 3, down: 3 };
        for (outcome, verdict) in [("+", "H"), ("-", "U")] {
            let mut machine = Machine::new(Moment::ZERO);
            trace(&mut machine, "+", limits);
            let mut changed = machine.carry_over();
            assert_eq!(changed.verdict(), Verdict::Healthy);
            assert_eq!(trace(&mut changed, outcome, limits), verdict);
        }
    }

    #[test]
    fn a_transition_tells_since_when_the_old_verdict_held() {
        let limits = Thresholds { up: 1, down: 1 };
        let at = |seconds| Moment::ZERO + std::time::Duration::from_secs(seconds);
        let mut machine = Machine::new(at(1));
        machine.observe(true, at(2), limits, Duration::ZERO);
        machine.observe(true, at(5), limits, Duration::ZERO);
        assert_eq!(
            machine.observe(false, at(9), limits, Duration::ZERO),
            Some(Transition { from: Verdict::Healthy, to: Verdict::Unhealthy, since: at(2) })
        );
    }

    #[test]
    fn in_a_start_period_only_a_run_of_passes_counts() {
        let limits = Thresholds { up: 2, down: 1 };
        let period = Duration::from_secs(60);
        let second = |n: u64| Moment::from_start(Duration::from_secs(n));
        // one outcome each 10 s
        for (outcomes, verdicts, why) in [
            ("--------", "?????UUU", "failures count when it is over"),
            ("-+-++---", "????HUUU", "a run of passes ends it early"),
            ("+-------", "?????UUU", "one pass is no run"),
            ("-----+++", "?????HHH", "afterwards the first outcome decides alone"),
        ] {
            let mut machine = Machine::new(second(0)).start(second(60));
            let seen: String = (outcomes.chars().zip(1..))
                .map(|(c, n)| {
                    machine.observe(c == '+', second(10 * n), limits, period);
                    match machine.verdict() {
                        Verdict::Unknown => '?',
                        Verdict::Healthy => 'H',
                        Verdict::Unhealthy => 'U',
                    }
                })
                .collect();
            assert_eq!(seen, verdicts, "{outcomes}: {why}");
        }
        let mut long_down = Machine::new(second(0));
        long_down.observe(false, second(1), limits, period);
        long_down.observe(true, second(90), limits, period);
        assert!(long_down.starting().is_some());
        assert_eq!(long_down.observe(false, second(91), limits, period), None);
        long_down.observe(true, second(92), limits, period);
        assert_eq!(long_down.verdict(), Verdict::Unhealthy);
        long_down.observe(true, second(93), limits, period);
        assert_eq!(long_down.verdict(), Verdict::Healthy);
    }
}
