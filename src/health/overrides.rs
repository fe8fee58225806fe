//! What operators have said over the verdicts.
//!
//! An override lies over a verdict, never in it: measuring goes on. It says
//! who, why and until when, ends by itself, and belongs to names, so that it
//! survives a reload.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::model::{Scope, Weight};
use crate::moment::Moment;

/// What an operator wants of a pool or an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// As if it were enabled in the configuration.
    Enable,
    /// As if it were disabled, though it is probed.
    Disable,
    /// Out of the answers; drained when no client can have it any more.
    Drain,
    /// Healthy, whatever probes say.
    Healthy,
    /// Unhealthy, whatever probes say.
    Unhealthy,
    /// As if the configuration gave it this weight; of an endpoint.
    Weight(Weight),
}

impl Action {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Enable => "enable",
            Action::Disable => "disable",
            Action::Drain => "drain",
            Action::Healthy => "healthy",
            Action::Unhealthy => "unhealthy",
            Action::Weight(_) => "weight",
        }
    }

    /// The action of this word, with the weight that stands beside `weight` and
    /// no other.
    pub fn of(word: &str, weight: Option<Weight>) -> Option<Action> {
        let all = [Action::Enable, Action::Disable, Action::Drain, Action::Healthy, Action::Unhealthy];
        let all = all.into_iter().chain(weight.map(Action::Weight));
        all.into_iter().find(|action| action.as_str() == word && action.weight() == weight)
    }

    /// The weight that it says.
    pub fn weight(self) -> Option<Weight> {
        match self {
            Action::Weight(weight) => Some(weight),
            Action::Enable | Action::Disable | Action::Drain | Action::Healthy | Action::Unhealthy => None,
        }
    }

    /// One of each slot holds at a time.
    pub fn slot(self) -> Slot {
        match self {
            Action::Enable | Action::Disable | Action::Drain => Slot::Traffic,
            Action::Healthy | Action::Unhealthy => Slot::Health,
            Action::Weight(_) => Slot::Weight,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        self.weight().map_or(Ok(()), |weight| write!(f, " {weight}"))
    }
}

/// What an override is about: one of each holds beside those of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    Traffic,
    Health,
    Weight,
}

impl Slot {
    /// All there are.
    pub const ALL: [Slot; 3] = [Slot::Traffic, Slot::Health, Slot::Weight];
    /// What is said with `hale override`, and taken back together.
    pub const FORCED: [Slot; 2] = [Slot::Health, Slot::Weight];
}

/// One thing said over a verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    pub action: Action,
    pub reason: Arc<str>,
    /// Who said it.
    pub by: Arc<str>,
    pub since: Moment,
    /// When it ends by itself; none: when it is taken back.
    pub until: Option<Moment>,
    /// Of a drain: when no client can have the endpoint's address any more.
    pub drained_at: Moment,
}

/// All that operators have said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    said: BTreeMap<(Scope, Slot), Override>,
    /// Of those that end by themselves: when, the next one first.
    ends: BTreeSet<(Moment, Scope, Slot)>,
}

impl Overrides {
    /// What holds of `scope` at `now`.
    pub fn get(&self, scope: &Scope, slot: Slot, now: Moment) -> Option<&Override> {
        if self.said.is_empty() {
            return None; // the usual case, and a clone for the key less
        }
        let found = self.said.get(&(scope.clone(), slot))?;
        found.until.is_none_or(|until| now < until).then_some(found)
    }

    /// All that holds of `scope` at `now`.
    pub fn of(&self, scope: &Scope, now: Moment) -> impl Iterator<Item = &Override> {
        Slot::ALL.into_iter().filter_map(move |slot| self.get(scope, slot, now))
    }

    /// Says something of `scope`, over what was said before.
    pub fn set(&mut self, scope: Scope, said: Override) {
        let slot = said.action.slot();
        self.clear(&scope, slot);
        self.ends.extend(said.until.map(|until| (until, scope.clone(), slot)));
        self.said.insert((scope, slot), said);
    }

    /// Takes back what was said.
    pub fn clear(&mut self, scope: &Scope, slot: Slot) -> Option<Override> {
        let said = self.said.remove(&(scope.clone(), slot))?;
        if let Some(until) = said.until {
            self.ends.remove(&(until, scope.clone(), slot));
        }
        Some(said)
    }

    /// Takes out the next one that has ended.
    pub fn expire(&mut self, now: Moment) -> Option<(Scope, Slot)> {
        self.next_end().filter(|until| *until <= now)?;
        let (_, scope, slot) = self.ends.pop_first()?;
        self.said.remove(&(scope.clone(), slot));
        Some((scope, slot))
    }

    /// When the next one ends.
    pub fn next_end(&self) -> Option<Moment> {
        self.ends.first().map(|(until, ..)| *until)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Scope, &Override)> {
        self.said.iter().map(|((scope, _), said)| (scope, said))
    }

    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        self.said.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_was_said_last_holds_until_its_own_end() {
        let at = |seconds| Moment::from_start(Duration::from_secs(seconds));
        let scope = Scope { pool: "eu".into(), endpoint: Some("a".into()) };
        let said = |action, until: Option<u64>| Override {
            action,
            reason: "".into(),
            by: "alice".into(),
            since: at(0),
            until: until.map(at),
            drained_at: at(0),
        };
        let mut all = Overrides::default();
        all.set(scope.clone(), said(Action::Drain, Some(10)));
        all.set(scope.clone(), said(Action::Healthy, Some(30)));
        all.set(scope.clone(), said(Action::Disable, Some(20)));
        let actions =
            |all: &Overrides, now| all.of(&scope, at(now)).map(|said| said.action).collect::<Vec<_>>();
        assert_eq!(actions(&all, 10), [Action::Disable, Action::Healthy]);
        assert_eq!(
            (all.next_end(), all.expire(at(19))),
            (Some(at(20)), None),
            "the drain's end is forgotten"
        );
        assert_eq!(all.expire(at(20)), Some((scope.clone(), Slot::Traffic)));
        all.set(scope.clone(), said(Action::Unhealthy, None));
        assert_eq!((all.next_end(), all.expire(at(99))), (None, None));
        assert_eq!(actions(&all, 99), [Action::Unhealthy]);
        assert!(all.clear(&scope, Slot::Health).is_some() && all.is_empty());
    }

    #[test]
    fn a_weight_stands_beside_a_verdict() {
        let at = |seconds| Moment::from_start(Duration::from_secs(seconds));
        let scope = Scope { pool: "eu".into(), endpoint: Some("a".into()) };
        let said = |action| Override {
            action,
            reason: "".into(),
            by: "alice".into(),
            since: at(0),
            until: None,
            drained_at: at(0),
        };
        let mut all = Overrides::default();
        for action in [Action::Weight(Weight(50)), Action::Healthy, Action::Drain, Action::Weight(Weight(5))]
        {
            all.set(scope.clone(), said(action));
        }
        let words: Vec<String> = all.of(&scope, at(0)).map(|said| said.action.to_string()).collect();
        assert_eq!(words, ["drain", "healthy", "weight 0.05"]);
        for slot in Slot::FORCED {
            all.clear(&scope, slot);
        }
        assert_eq!(all.of(&scope, at(0)).count(), 1, "the drain stays");
    }

    #[test]
    fn a_word_needs_a_weight_or_has_none() {
        for (word, weight, action) in [
            ("weight", Some(Weight(25)), Some(Action::Weight(Weight(25)))),
            ("weight", None, None),
            ("drain", None, Some(Action::Drain)),
            ("drain", Some(Weight(25)), None),
            ("heavy", Some(Weight(25)), None),
        ] {
            assert_eq!(Action::of(word, weight), action, "{word} {weight:?}");
        }
    }
}
