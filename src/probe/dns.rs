//! Probes of type dns.

use super::{Failure, Progress};
use crate::health::{ProbeTask, Reason};
use crate::model::DnsCheck;

pub(super) async fn probe(
    task: &ProbeTask,
    _check: &DnsCheck,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let _ = (task, progress);
    Err(Failure::NotTested(Reason::OtherFailure, "not_probed"))
}
