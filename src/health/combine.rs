//! From the verdicts of several monitors to one, at one vantage.
//!
//! All must be healthy, so many must be, or, as in Cloudflare's monitor groups,
//! not more than half may be unhealthy. What has no verdict yet isn't healthy.

use super::Verdict;
use crate::model::Combination;

/// A monitor's verdict that votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vote {
    pub verdict: Verdict,
    /// If it is unhealthy, so is the whole.
    pub must_be_healthy: bool,
}

/// What the votes make together; unknown without any.
pub fn combine(votes: impl Iterator<Item = Vote>, rule: Combination) -> Verdict {
    let (mut all, mut healthy, mut unhealthy) = (0u32, 0u32, 0u32);
    let (mut vetoed, mut required) = (false, false);
    for vote in votes {
        all += 1;
        healthy += u32::from(vote.verdict == Verdict::Healthy);
        unhealthy += u32::from(vote.verdict == Verdict::Unhealthy);
        vetoed |= vote.must_be_healthy && vote.verdict == Verdict::Unhealthy;
        required |= vote.must_be_healthy && vote.verdict == Verdict::Unknown;
    }
    let (enough, too_few) = match rule {
        _ if all == 0 => return Verdict::Unknown,
        Combination::All => (healthy == all, unhealthy > 0),
        Combination::AtLeast(least) => (healthy >= least, all - unhealthy < least),
        Combination::Majority => (2 * healthy >= all, 2 * unhealthy > all),
    };
    if vetoed || too_few {
        Verdict::Unhealthy
    } else if enough && !required {
        Verdict::Healthy
    } else {
        Verdict::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A letter a monitor: `h`ealthy, `u`nhealthy, `?`; in capitals it must be healthy.
    fn of(votes: &str, rule: Combination) -> char {
        let vote = |c: char| Vote {
            verdict: match c.to_ascii_lowercase() {
                'h' => Verdict::Healthy,
                'u' => Verdict::Unhealthy,
                _ => Verdict::Unknown,
            },
            must_be_healthy: c.is_ascii_uppercase() || c == '!',
        };
        match combine(votes.chars().map(vote), rule) {
            Verdict::Healthy => 'H',
            Verdict::Unhealthy => 'U',
            Verdict::Unknown => '?',
        }
    }

    #[test]
    fn g1_to_g8_monitor_groups() {
        for (id, votes, verdict) in [
            ("G1", "Uhh", 'U'),
            ("G2", "uuh", 'U'),
            ("G3: a tie favours healthy", "uh", 'H'),
            ("G4, G5: those that don't vote are not here", "hh", 'H'),
            ("G7: no voter left", "", '?'),
            ("G8: one without a verdict", "hh?", 'H'),
            ("G8: too few have one", "h??", '?'),
            ("G8: one that must be healthy has none", "hh!", '?'),
            ("a passing one that must be healthy votes", "Huu", 'U'),
        ] {
            assert_eq!(of(votes, Combination::Majority), verdict, "{id}");
        }
    }

    #[test]
    fn all_or_at_least_so_many_must_be_healthy() {
        for (votes, rule, verdict) in [
            ("hh", Combination::All, 'H'),
            ("hu", Combination::All, 'U'),
            ("h?", Combination::All, '?'),
            ("?u", Combination::All, 'U'),
            ("hhu", Combination::AtLeast(2), 'H'),
            ("huu", Combination::AtLeast(2), 'U'),
            ("h?u", Combination::AtLeast(2), '?'),
            ("h??", Combination::AtLeast(1), 'H'),
        ] {
            assert_eq!(of(votes, rule), verdict, "{votes} {rule:?}");
        }
    }
}
