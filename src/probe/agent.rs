//! Probes of type agent.

use super::{Failure, Progress};
use crate::health::{ProbeTask, Reason};
use crate::model::AgentCheck;

pub(super) async fn probe(
    task: &ProbeTask,
    _check: &AgentCheck,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let _ = (task, progress);
    Err(Failure::NotTested(Reason::OtherFailure, "not_probed"))
}
