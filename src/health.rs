//! From what probes saw to what may be answered with.
//!
//! ```text
//! Outcome ─► machine ─► combine ─► quorum ─► verdict on an endpoint ─► standing ─► pool state
//!            target     vantage    all of them     overrides, windows, traffic ▲
//! schedule: when to probe, how many at once
//! ```
//!
//! Nothing else decides health. Knows no sockets, no clock, no zones.

mod agent;
mod combine;
mod doubt;
mod ejection;
mod machine;
mod memory;
mod outcome;
mod overrides;
mod pool;
mod quorum;
mod rhythm;
mod schedule;
mod standing;
mod table;
mod target;
mod task;
mod windows;

pub use agent::{AgentLine, AgentState};
pub use ejection::Seen;
pub use machine::{Machine, MachineMemory, Transition, Verdict};
pub use memory::{EndpointKey, EndpointMemory, Memory, Record, Subject, TargetKey, TargetMemory};
pub use outcome::{AgentReport, AgentWish, Degraded, Evidence, Outcome, ProbeResult, Reason};
pub use overrides::{Action, Override, Overrides, Slot};
pub use pool::{PoolHealth, PoolState, pool_health};
pub use rhythm::{Beat, Rhythm, scramble};
pub use schedule::{Schedule, ScheduleCounters};
pub use standing::{DownCause, Fitness, OutCause, Standing};
pub use table::{Gone, Move, Observed, Order, Table, Unknown, Why};
pub use target::{Sighting, Target, TargetId, turns_after};
pub use task::ProbeTask;
pub use windows::state as window_state;
