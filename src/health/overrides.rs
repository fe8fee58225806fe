//! What operators have said over the verdicts.
//!
//! An override lies over a verdict, never in it: measuring goes on. It says
//! who, why and until when, ends by itself, and belongs to names, so that it
//! survives a reload.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::model::Scope;
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
        }
    }

    /// The action of this word.
    pub fn of(word: &str) -> Option<Action> {
        let all = [Action::Enable, Action::Disable, Action::Drain, Action::Healthy, Action::Unhealthy];
        all.into_iter().find(|action| action.as_str() == word)
    }

    /// One of each slot holds at a time.
    pub fn slot(self) -> Slot {
        match self {
            Action::Enable | Action::Disable | Action::Drain => Slot::Traffic,
            Action::Healthy | Action::Unhealthy => Slot::Health,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What an override is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    Traffic,
    Health,
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
pub struct Overrides(BTreeMap<(Scope, Slot), Override>);

impl Overrides {
    /// What holds of `scope` at `now`.
    pub fn get(&self, scope: &Scope, slot: Slot, now: Moment) -> Option<&Override> {
        if self.0.is_empty() {
            return None; // the usual case, and a clone for the key less
        }
        let found = self.0.get(&(scope.clone(), slot))?;
        found.until.is_none_or(|until| now < until).then_some(found)
    }

    /// Says something of `scope`, over what was said before.
    pub fn set(&mut self, scope: Scope, said: Override) {
        self.0.insert((scope, said.action.slot()), said);
    }

    /// Takes back what was said.
    pub fn clear(&mut self, scope: &Scope, slot: Slot) -> Option<Override> {
        self.0.remove(&(scope.clone(), slot))
    }

    /// Takes out those that have ended.
    pub fn expire(&mut self, now: Moment) -> Vec<(Scope, Override)> {
        let ended = |said: &Override| said.until.is_some_and(|until| until <= now);
        let gone: Vec<_> = self.0.extract_if(.., |_, said| ended(said)).collect();
        gone.into_iter().map(|((scope, _), said)| (scope, said)).collect()
    }

    /// When the next one ends.
    pub fn next_end(&self) -> Option<Moment> {
        self.0.values().filter_map(|said| said.until).min()
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Scope, &Override)> {
        self.0.iter().map(|((scope, _), said)| (scope, said))
    }

    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
