//! Changes become events, and events go to the history and to alerts.
//!
//! Owns nothing that decides: the recorder makes an event of a change, the
//! alerts say what is to be told, shells write and send it.

use std::sync::Arc;

use tracing::warn;

use crate::alerts::Alerts;
use crate::clock::Clock;
use crate::engine::{Change, Engine};
use crate::events::Recorder;
use crate::history::History;
use crate::model::Model;
use crate::moment::Moment;
use crate::notify::Notifier;

/// Hands on what changes; to be used inside a runtime.
#[derive(Default)]
pub struct Announcer {
    recorder: Recorder,
    history: Option<History>,
    alerts: Alerts,
    notifier: Notifier,
    /// Whose routes are in force.
    model: Option<Arc<Model>>,
    /// How many notices were dropped, as far as it was told.
    dropped: u64,
}

impl Announcer {
    /// One that writes this history, if any.
    pub fn new(history: Option<History>) -> Announcer {
        Announcer { history, ..Announcer::default() }
    }

    /// Takes in a change that the engine has just told of.
    pub fn tell(&mut self, change: &Change, engine: &Engine, clock: &Clock) {
        let now = clock.now();
        self.adopt(engine, now);
        let event = Arc::new(self.recorder.record(change, engine, now, clock.step()));
        if let Some(history) = &self.history {
            history.take(&event);
        }
        self.alerts.take(&event, now);
    }

    /// Does what is due by now, after the engine has moved on.
    pub fn advance(&mut self, engine: &Engine, now: Moment) {
        self.recorder.moved_on();
        self.adopt(engine, now);
        self.alerts.advance(now);
        while let Some(notice) = self.alerts.next_notice() {
            self.notifier.send(notice);
        }
        let dropped = self.alerts.dropped();
        if dropped > self.dropped {
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

    fn adopt(&mut self, engine: &Engine, now: Moment) {
        let model = engine.model();
        if self.model.as_ref().is_none_or(|known| !Arc::ptr_eq(known, model)) {
            self.model = Some(Arc::clone(model));
            self.alerts.adopt(model, now);
            self.notifier.adopt(self.alerts.routes());
        }
    }
}
