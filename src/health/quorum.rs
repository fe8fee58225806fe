//! From what several vantages hold to one verdict.
//!
//! Healthy needs more than half of those that report, a tie is unhealthy.
//! Regions first make up their own minds when regions are asked for. Who
//! doesn't report has no part in it.

use std::collections::BTreeMap;

use super::Verdict;
use crate::model::Quorum;

/// What one vantage reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View<'a> {
    /// None: a region of its own.
    pub region: Option<&'a str>,
    /// None: it doesn't report.
    pub verdict: Option<Verdict>,
}

/// What all together hold; none if nobody reports.
pub fn global(views: &[View<'_>], quorum: Quorum) -> Option<Verdict> {
    if let ([View { verdict, .. }], _) = (views, quorum) {
        return *verdict;
    }
    match quorum {
        Quorum::Vantages => majority(views.iter().filter_map(|view| view.verdict)),
        Quorum::Regions => {
            let mut regions: BTreeMap<&str, Vec<Verdict>> = BTreeMap::new();
            let mut alone = Vec::new();
            for view in views {
                match view.region {
                    Some(region) => regions.entry(region).or_default().extend(view.verdict),
                    None => alone.extend(view.verdict),
                }
            }
            let regions = regions.into_values().filter_map(|verdicts| majority(verdicts.into_iter()));
            majority(regions.chain(alone))
        }
    }
}

/// What one region holds; none if nobody in it reports.
pub fn regional(views: &[View<'_>], region: &str) -> Option<Verdict> {
    let there = views.iter().filter(|view| view.region == Some(region));
    majority(there.filter_map(|view| view.verdict))
}

fn majority(verdicts: impl Iterator<Item = Verdict>) -> Option<Verdict> {
    let (mut all, mut healthy, mut unhealthy) = (0, 0, 0);
    for verdict in verdicts {
        all += 1;
        healthy += usize::from(verdict == Verdict::Healthy);
        unhealthy += usize::from(verdict == Verdict::Unhealthy);
    }
    Some(match () {
        _ if all == 0 => return None,
        _ if 2 * healthy > all => Verdict::Healthy,
        _ if 2 * unhealthy >= all => Verdict::Unhealthy,
        _ => Verdict::Unknown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regions as words of `+`, `-`, `?` and `.` for a vantage that is silent.
    fn of(regions: &str, quorum: Quorum) -> char {
        let views: Vec<View<'_>> = (regions
            .split(' ')
            .zip(["WNAM", "ENAM", "WEU", "d", "e", "f"].iter().cycle()))
        .enumerate()
        .flat_map(|(number, (word, name))| {
            let name = if number < 6 { name } else { &["g", "h", "i", "j", "k", "l", "m"][number - 6] };
            word.chars().map(move |c| View {
                region: Some(name),
                verdict: match c {
                    '+' => Some(Verdict::Healthy),
                    '-' => Some(Verdict::Unhealthy),
                    '?' => Some(Verdict::Unknown),
                    _ => None,
                },
            })
        })
        .collect();
        match global(&views, quorum) {
            Some(Verdict::Healthy) => 'H',
            Some(Verdict::Unhealthy) => 'U',
            Some(Verdict::Unknown) => '?',
            None => '.',
        }
    }

    #[test]
    fn r1_to_r8_a_majority_of_regions() {
        for (id, regions, verdict) in [
            ("R1", "++-", 'H'),
            ("R2", "+--", 'U'),
            ("R3", "++- +-- +++", 'H'),
            ("R4: a tie is unhealthy", "+++ ---", 'U'),
            ("R5", "+++ +++ +++ +++ +++ +++ --- --- --- --- --- --- ---", 'U'),
            ("R6", "++- ++- ++-", 'H'),
            ("R7: 4 of 9 vantages", "++- ++- ---", 'H'),
            ("R8: 5 of 9 vantages", "+++ +-- +--", 'U'),
            ("a region without reports has no part", "+++ ... ---", 'U'),
            ("a region is the majority of who reports", "+.. +++ ---", 'H'),
            ("nobody reports", "... ...", '.'),
        ] {
            assert_eq!(of(regions, Quorum::Regions), verdict, "{id}");
        }
    }

    #[test]
    fn without_regions_every_vantage_counts_alike() {
        for (regions, verdict) in [("++- ++- ---", 'U'), ("+++ +-- +--", 'H'), ("+- ..", 'U'), ("+? ?", '?')]
        {
            assert_eq!(of(regions, Quorum::Vantages), verdict, "{regions}");
        }
    }

    #[test]
    fn a_region_can_be_asked_alone() {
        let view = |region, verdict| View { region: Some(region), verdict: Some(verdict) };
        let views = [view("WEU", Verdict::Healthy), view("ENAM", Verdict::Unhealthy)];
        assert_eq!(regional(&views, "WEU"), Some(Verdict::Healthy));
        assert_eq!(regional(&views, "OC"), None);
    }
}
