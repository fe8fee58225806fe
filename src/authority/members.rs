//! RRsets whose members follow health: of all values of an MX or an SRV those
//! whose servers are there.
//!
//! Owns the rule which members are in, and that there is always one: an MX that
//! is gone would send mail to the name's addresses (RFC 5321 §5.1). What is
//! there is the table's to say.

use std::sync::Arc;

use super::Rrset;
use super::names::add_record;
use crate::health::Table;
use crate::model::{Model, PoolId, RecordSet, Zone};
use crate::moment::Moment;

/// Those records of an RRset that are in, at least one.
#[derive(Debug, PartialEq)]
pub struct Members {
    /// As in [`Rrset::records`].
    records: Box<[u8]>,
    count: u16,
}

impl Members {
    fn new(set: &RecordSet, is_in: &[bool]) -> Members {
        let mut records = Vec::new();
        let chosen = || set.rdata.iter().zip(is_in).filter(|(_, is_in)| **is_in);
        for (rdata, _) in chosen() {
            add_record(&mut records, set, rdata);
        }
        let count = u16::try_from(chosen().count()).expect("an RRset fits a message of 64 KiB");
        Members { records: records.into(), count }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// The RDATA of each.
    pub fn rdata(&self) -> impl Iterator<Item = &[u8]> {
        let all = Rrset { rtype: 0, count: self.count, open: false, follower: None, records: &self.records };
        all.rdata()
    }

    /// `set` with these records alone.
    pub fn of<'a>(&'a self, set: Rrset<'a>) -> Rrset<'a> {
        Rrset { count: self.count, records: &self.records, ..set }
    }
}

/// What of an RRset is in, and whether that is for want of better.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    pub members: Arc<Members>,
    /// None has what it needs.
    pub at_fallback: bool,
}

/// What a change of health has changed.
#[derive(Debug, Default)]
pub(super) struct Refreshed {
    /// Zones in which an answer changed.
    pub zones: Vec<usize>,
    /// RRsets that are answered otherwise or for another reason, and how it was.
    pub records: Vec<(usize, Held)>,
}

/// All RRsets that follow health, counted through all zones.
#[derive(Clone, Debug)]
pub(super) struct Following {
    /// Each one's zone and place among its records.
    places: Vec<(usize, usize)>,
    /// Where each zone's begin, and where the last ones end.
    starts: Vec<usize>,
    held: Vec<Held>,
    /// Those that depend on each pool, or on one of its endpoints.
    followers: Vec<Vec<usize>>,
}

impl Following {
    pub(super) fn new(model: &Model, table: &Table, now: Moment) -> Following {
        let (mut places, mut starts, mut held) = (Vec::new(), Vec::new(), Vec::new());
        let mut followers = vec![Vec::new(); model.pools.len()];
        for (number, zone) in model.zones.iter().enumerate() {
            starts.push(places.len());
            for (place, set) in zone.records.iter().enumerate().filter(|(_, set)| set.follows()) {
                for needed in set.depends_on.iter().flatten() {
                    let followers = &mut followers[needed.pool.0 as usize];
                    if followers.last() != Some(&places.len()) {
                        followers.push(places.len());
                    }
                }
                held.push(compile(set, table, now));
                places.push((number, place));
            }
        }
        starts.push(places.len());
        Following { places, starts, held, followers }
    }

    /// Takes in that some endpoint in `pool` stands differently.
    pub(super) fn refresh(&mut self, model: &Model, pool: PoolId, table: &Table, now: Moment) -> Refreshed {
        let mut refreshed = Refreshed::default();
        for &number in &self.followers[pool.0 as usize] {
            let (zone, place) = self.places[number];
            let next = compile(&model.zones[zone].records[place], table, now);
            if self.held[number] != next {
                let same_records = self.held[number].members == next.members;
                refreshed.records.push((number, std::mem::replace(&mut self.held[number], next)));
                if !same_records && refreshed.zones.last() != Some(&zone) {
                    refreshed.zones.push(zone); // they stand in the order of zones
                }
            }
        }
        refreshed
    }

    /// Each with its zone, its place there, and what of it is in.
    pub(super) fn all(&self) -> impl Iterator<Item = ((usize, usize), &Held)> {
        self.places.iter().copied().zip(&self.held)
    }

    /// The zone of one and its place there, and what of it is in.
    pub(super) fn get(&self, number: usize) -> ((usize, usize), &Held) {
        (self.places[number], &self.held[number])
    }

    /// What of each is in.
    pub(super) fn members(&self) -> impl Iterator<Item = Arc<Members>> {
        self.held.iter().map(|held| Arc::clone(&held.members))
    }

    /// Whether all records of a zone are answered as `other` answered them.
    pub(super) fn answer_alike(
        &self,
        (here, zone): (&Zone, usize),
        other: &Following,
        (there, its_zone): (&Zone, usize),
    ) -> bool {
        let (mut own, mut its) = (self.starts[zone].., other.starts[its_zone]..);
        here.records.len() == there.records.len()
            && here.records.iter().zip(&there.records).all(|(set, its_set)| {
                let mine = if set.follows() { own.next() } else { None };
                let theirs = if its_set.follows() { its.next() } else { None };
                if mine.is_none() && theirs.is_none() {
                    return set.says_the_same(its_set);
                }
                set.owner == its_set.owner && *self.answered(set, mine) == *other.answered(its_set, theirs)
            })
    }

    /// What is answered of `set`, which has this number if it follows health.
    fn answered(&self, set: &RecordSet, number: Option<usize>) -> Arc<Members> {
        match number {
            Some(number) => Arc::clone(&self.held[number].members),
            None => Arc::new(Members::new(set, &vec![true; set.rdata.len()])),
        }
    }
}

/// The members of `set` that are in as everything stands.
fn compile(set: &RecordSet, table: &Table, now: Moment) -> Held {
    let seen = set.depends_on.iter().map(|needed| match table.are_there(needed, now) {
        true => Need::There,
        false if table.is_taken_out(needed, now) => Need::TakenOut,
        false => Need::Absent,
    });
    let seen = seen.collect::<Vec<_>>();
    Held { members: Arc::new(Members::new(set, &chosen(&seen))), at_fallback: !seen.contains(&Need::There) }
}

/// How what a member needs stands.
#[derive(Clone, Copy, PartialEq)]
enum Need {
    There,
    Absent,
    /// It isn't there, and somebody wants that.
    TakenOut,
}

/// Which members are in: those that have what they need. If none has, those that
/// nobody took out; if all were, every one.
fn chosen(seen: &[Need]) -> Vec<bool> {
    let ranks: [fn(Need) -> bool; 3] = [|need| need == Need::There, |need| need != Need::TakenOut, |_| true];
    let is_in = ranks.into_iter().find(|is_in| seen.iter().any(|need| is_in(*need)));
    seen.iter().map(|need| is_in.is_none_or(|is_in| is_in(*need))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_in_while_what_they_need_is_there_and_one_is_always_in() {
        for (seen, expected, why) in [
            ("TTT", "TTT", "all are there"),
            ("TA", "T-", "one is down"),
            ("TO", "T-", "one is taken out"),
            ("AA", "AA", "all are down: health says nothing then"),
            ("AO", "A-", "what was taken out stays out"),
            ("OAO", "-A-", "the same"),
            ("OO", "OO", "an answer without a member would be worse"),
            ("", "", "nothing to choose from"),
        ] {
            let needs: Vec<Need> = seen
                .chars()
                .map(|letter| match letter {
                    'T' => Need::There,
                    'A' => Need::Absent,
                    _ => Need::TakenOut,
                })
                .collect();
            let kept = chosen(&needs).into_iter().zip(seen.chars());
            let kept: String = kept.map(|(is_in, letter)| if is_in { letter } else { '-' }).collect();
            assert_eq!(kept, expected, "{seen}: {why}");
        }
    }

    #[test]
    fn the_records_of_members_are_as_the_arena_has_them() {
        let set = RecordSet {
            owner: "example.com".parse().unwrap(),
            rtype: 15,
            ttl: 60,
            rdata: [1, 2, 3].map(|n| Box::from([0, n, 0])).to_vec(),
            depends_on: vec![Vec::new(); 3],
        };
        let members = Members::new(&set, &[true, false, true]);
        let whole = Rrset { rtype: 15, count: 3, open: false, follower: Some(0), records: &[] };
        let now = members.of(whole);
        assert_eq!((now.count, now.ttl(), now.rtype), (2, 60, 15));
        assert_eq!(now.rdata().collect::<Vec<_>>(), [[0, 1, 0], [0, 3, 0]]);
    }
}
