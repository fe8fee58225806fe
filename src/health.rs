//! From what probes saw to what may be answered with.
//!
//! ```text
//! Outcome ─► machine ─► verdict on a target ─► table ─► verdict on an endpoint ─► pool state
//!                                 ▲
//! schedule: when to probe, how many at once
//! ```
//!
//! Nothing else decides health. Knows no sockets, no clock, no zones.

mod agent;
mod machine;
mod outcome;
mod pool;
mod rhythm;
mod schedule;
mod table;
mod task;

pub use agent::{AgentLine, AgentState};
pub use machine::{Machine, Transition, Verdict};
pub use outcome::{AgentReport, AgentWish, Degraded, Evidence, Outcome, ProbeResult, Reason};
pub use pool::{PoolHealth, PoolState, pool_health};
pub use rhythm::{Beat, Rhythm, scramble};
pub use schedule::{Schedule, ScheduleCounters};
pub use table::{Observed, Table, Target, TargetId};
pub use task::ProbeTask;
