//! Probes of type exec.

use super::{Failure, Progress};
use crate::health::{ProbeTask, Reason};
use crate::model::ExecCheck;

pub(super) async fn probe(
    task: &ProbeTask,
    _check: &ExecCheck,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let _ = (task, progress);
    Err(Failure::NotTested(Reason::OtherFailure, "not_probed"))
}
