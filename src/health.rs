//! From what probes saw to what may be answered with.

mod outcome;
mod task;

pub use outcome::{Outcome, ProbeResult, Reason};
pub use task::ProbeTask;
