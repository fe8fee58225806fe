//! Probes of type icmp.

use super::{Failure, Progress};
use crate::health::{ProbeTask, Reason};

pub(super) async fn probe(task: &ProbeTask, progress: &mut Progress) -> Result<(), Failure> {
    let _ = (task, progress);
    Err(Failure::NotTested(Reason::OtherFailure, "not_probed"))
}
