//! Changes become events, and events go to the history and to alerts.
//!
//! Owns nothing that decides: the recorder makes an event of a change, the
//! alerts say what is to be told, shells write and send it.

use std::sync::Arc;

use tracing::warn;

use crate::alerts::Alerts;
use crate::clock::Clock;
use crate::engine::{Change, Engine};
use crate::events::{Event, NewHealth, Recorder};
use crate::history::{self, History};
use crate::model::Model;
use crate::moment::Moment;
use crate::notify::{self, Notifier};

/// Hands on what changes; to be used inside a runtime.
#[derive(Default)]
pub struct Announcer {
    recorder: Recorder,
    history: Option<History>,
    alerts: Alerts,
    notifier: Notifier,
    /// Whose routes are in force.
    model: Option<Arc<Model>>,
    /// What a former run has left open, until it is seen how that stands.
    left_open: Vec<Arc<Event>>,
    /// How many notices were dropped, as far as it was told.
    dropped: u64,
}

impl Announcer {
    /// One that writes this history, if any, and goes on with what a former
    /// run has left open in it.
    pub fn new(history: Option<(History, Vec<Event>)>) -> Announcer {
        let Some((history, left_open)) = history else { return Announcer::default() };
        let left_open = left_open.into_iter().map(Arc::new).collect();
        Announcer { history: Some(history), left_open, ..Announcer::default() }
    }

    /// What is counted of the history, if there is one, and of notices.
    pub fn counts(&self) -> (Option<Arc<history::Counts>>, Arc<notify::Counts>) {
        (self.history.as_ref().map(History::counts), self.notifier.counts())
    }

    /// Takes in a change that the engine has just told of.
    pub fn tell(&mut self, change: &Change, engine: &Engine, clock: &Clock) {
        let now = clock.now();
        self.adopt(engine, now);
        // of load balancers and vantages the recorder keeps how they were
        let kept = matches!(change, Change::Balancer { .. } | Change::Vantage { .. });
        if !kept && self.history.is_none() && self.alerts.routes().next().is_none() {
            return; // nobody is told
        }
        let event = self.recorder.record(change, engine, now, clock.step());
        if let Some(history) = &self.history {
            history.take(&event);
        }
        self.alerts.take(&Arc::new(event.brief()), now);
    }

    /// Does what is due by now, after the engine has moved on.
    pub fn advance(&mut self, engine: &Engine, now: Moment) {
        self.recorder.moved_on();
        self.adopt(engine, now);
        if !self.left_open.is_empty() && engine.is_settled() {
            self.see_how_it_stands(engine, now);
        }
        self.alerts.advance(now);
        while let Some(notice) = self.alerts.next_notice() {
            self.notifier.send(notice);
        }
        let dropped = self.alerts.dropped();
        if dropped > self.dropped {
            self.notifier.counts().add_dropped(dropped - self.dropped);
            warn!(
                dropped = dropped - self.dropped,
                "notices of alerts were dropped, because too many came at once"
            );
            self.dropped = dropped;
        }
    }

    /// When to come back, if nothing happens before.
    pub fn wake_at(&self) -> Option<Moment> {
        self.alerts.wake_at()
    }

    /// Ends what was left open and is well: it may have become so while nobody
    /// looked, and then no change tells of it.
    fn see_how_it_stands(&mut self, engine: &Engine, now: Moment) {
        self.left_open.clear();
        for change in engine.status(now).as_changes() {
            let event = Arc::new(self.recorder.record(&change, engine, now, 0).brief());
            if event.new_health != NewHealth::Unhealthy && self.alerts.is_open(event.kind, &event.object) {
                self.alerts.take(&event, now);
            }
        }
        self.recorder.moved_on();
    }

    fn adopt(&mut self, engine: &Engine, now: Moment) {
        let model = engine.model();
        if self.model.as_ref().is_none_or(|known| !Arc::ptr_eq(known, model)) {
            let first = self.model.replace(Arc::clone(model)).is_none();
            self.alerts.adopt(model, now);
            if first {
                self.alerts.recall(&self.left_open, model, now);
            }
            self.notifier.adopt(self.alerts.routes());
        }
    }
}
