//! What is told of records whose members follow health.

use std::collections::HashMap;
use std::fmt;

use super::{Change, Effect, Engine};
use crate::authority::{Compiler, Held};
use crate::model::{Name, RecordSet};
use crate::moment::Moment;
use crate::rdata;

/// How much of an RRset is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// So many of its records,
    pub count: usize,
    /// and so many it has.
    pub of: usize,
    /// None has what it needs: these are answered all the same.
    pub at_fallback: bool,
    /// The data of those that are not answered, as a master file has them.
    pub left_out: Vec<String>,
}

impl Answered {
    fn new(set: &RecordSet, held: &Held) -> Answered {
        let is_in = |rdata: &[u8]| held.members.rdata().any(|member| member == rdata);
        let left_out = set.rdata.iter().filter(|rdata| !is_in(rdata));
        Answered {
            count: held.members.count(),
            of: set.rdata.len(),
            at_fallback: held.at_fallback,
            left_out: left_out.map(|rdata| rdata::show(set.rtype, rdata)).collect(),
        }
    }

    /// Whether every record has what it needs.
    pub fn is_whole(&self) -> bool {
        !self.at_fallback && self.left_out.is_empty()
    }

    /// Whether the same is missing, whatever else there is.
    fn lacks_the_same(&self, other: &Answered) -> bool {
        (self.at_fallback, &self.left_out) == (other.at_fallback, &other.left_out)
    }
}

impl fmt::Display for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Answered { count, of, at_fallback, .. } = self;
        write!(f, "{count} of {of}{}", if *at_fallback { " at fallback" } else { "" })
    }
}

impl Engine {
    /// Tells that an RRset is answered otherwise, or for another reason. Not in
    /// the first round: there nothing is known, and nobody is answered.
    pub(super) fn records_changed(&mut self, number: usize, before: &Held, now: Moment) {
        let since = std::mem::replace(&mut self.records_since[number], now);
        if self.ready {
            let (set, held) = self.compiler.followed(number);
            let change = change(set, Answered::new(set, before), Answered::new(set, held), since);
            self.effects.push_back(Effect::Tell(change));
        }
    }

    /// Tells of those that lack something from the beginning.
    pub(super) fn tell_of_records(&mut self) {
        for ((set, held), since) in self.compiler.following().zip(&self.records_since) {
            let answered = Answered::new(set, held);
            if !answered.is_whole() {
                let change = change(set, answered.clone(), answered, *since);
                self.effects.push_back(Effect::Tell(change));
            }
        }
    }

    /// Tells what a reload has made of them, and keeps since when it holds.
    pub(super) fn tell_of_reloaded_records(&mut self, before: &Compiler, now: Moment) {
        let old: HashMap<(&Name, u16), (Answered, Moment)> = (before.following().zip(&self.records_since))
            .map(|((set, held), since)| ((&set.owner, set.rtype), (Answered::new(set, held), *since)))
            .collect();
        let mut all_since = Vec::new();
        for (set, held) in self.compiler.following() {
            let answered = Answered::new(set, held);
            let (from, since) = match old.get(&(&set.owner, set.rtype)) {
                Some((from, since)) => (Some(from), *since),
                None => (None, now),
            };
            let same = from.map_or(answered.is_whole(), |from| from.lacks_the_same(&answered));
            all_since.push(if same { since } else { now });
            if self.ready && !same {
                let from = from.unwrap_or(&answered).clone();
                self.effects.push_back(Effect::Tell(change(set, from, answered, since)));
            }
        }
        self.records_since = all_since;
    }
}

fn change(set: &RecordSet, from: Answered, to: Answered, since: Moment) -> Change {
    Change::Records { name: set.owner.clone(), rtype: set.rtype, from, to, since }
}
