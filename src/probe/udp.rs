//! Probes of type udp.

use super::{Failure, Progress};
use crate::health::{ProbeTask, Reason};
use crate::model::UdpCheck;

pub(super) async fn probe(
    task: &ProbeTask,
    _check: &UdpCheck,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let _ = (task, progress);
    Err(Failure::NotTested(Reason::OtherFailure, "not_probed"))
}
