//! Which probes are due, and how many run at once.
//!
//! Owns the queue of future probes and the cap on concurrent ones. A target
//! has at most one probe waiting or running, so probes of one target never
//! overlap; a beat that comes due meanwhile is skipped and counted.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use super::{Table, TargetId};
use crate::moment::Moment;

/// What the schedule has counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScheduleCounters {
    /// Probes begun.
    pub started: u64,
    /// Probes begun later than they were due by more than 5 % of the interval.
    pub late: u64,
    /// Beats let out because the target's probe before was still running.
    pub skipped: u64,
}

/// The queue of future probes and the number of running ones.
#[derive(Clone, Debug)]
pub struct Schedule {
    queue: BinaryHeap<Reverse<(Moment, TargetId)>>,
    /// Due, but the cap was reached.
    waiting: VecDeque<(Moment, TargetId)>,
    /// When each running probe began.
    running: HashMap<TargetId, Moment>,
    max_probes: usize,
    counters: ScheduleCounters,
}

impl Schedule {
    /// An empty schedule that lets `max_probes` run at once.
    pub fn new(max_probes: usize) -> Schedule {
        Schedule {
            queue: BinaryHeap::new(),
            waiting: VecDeque::new(),
            running: HashMap::new(),
            max_probes: max_probes.max(1),
            counters: ScheduleCounters::default(),
        }
    }

    /// Puts a target's next probe at `at`.
    pub fn plan(&mut self, target: TargetId, at: Moment) {
        self.queue.push(Reverse((at, target)));
    }

    /// After a reload: forgets targets that are gone and gives the others
    /// their beats anew, since an interval may have changed. Returns the targets
    /// whose running probes nobody waits for any more.
    pub fn adopt(&mut self, table: &Table, now: Moment) -> Vec<TargetId> {
        let planned = std::mem::take(&mut self.queue);
        for Reverse((at, id)) in planned {
            if let Some(target) = table.target(id) {
                self.plan(id, at.min(target.next_after(now)));
            }
        }
        self.waiting.retain(|(_, id)| table.target(*id).is_some());
        let mut orphans: Vec<TargetId> =
            self.running.keys().copied().filter(|id| table.target(*id).is_none()).collect();
        orphans.sort();
        for id in &orphans {
            self.running.remove(id);
        }
        orphans
    }

    /// The next probe to begin now, if one is due and the cap allows it.
    pub fn begin(&mut self, table: &Table, now: Moment) -> Option<TargetId> {
        while self.queue.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            let Reverse((due, id)) = self.queue.pop().expect("peeked at it just now");
            if table.target(id).is_some() {
                self.waiting.push_back((due, id));
            }
        }
        if self.running.len() >= self.max_probes {
            return None;
        }
        let (due, id) = self.waiting.pop_front()?;
        let target = table.target(id).expect("adopt drops targets that are gone");
        self.counters.started += 1;
        if now.since(due) > target.task.monitor.interval / 20 {
            self.counters.late += 1;
        }
        self.running.insert(id, now);
        Some(id)
    }

    /// A probe has ended: makes room, and plans the target's next one.
    pub fn end(&mut self, id: TargetId, table: &Table, now: Moment) {
        let Some(began) = self.running.remove(&id) else { return };
        if let Some(target) = table.target(id) {
            let missed = target.rhythm.after(now).number - target.rhythm.after(began).number;
            self.counters.skipped += missed;
            self.plan(id, target.next_after(now));
        }
    }

    /// When something is due next; none while there is nothing to wait for.
    pub fn wake_at(&self) -> Option<Moment> {
        self.queue.peek().map(|Reverse((at, _))| *at)
    }

    /// What was counted since the start.
    pub fn counters(&self) -> ScheduleCounters {
        self.counters
    }
}
