//! Probes of type smtp.

use super::{Failure, Progress, tls};
use crate::health::{ProbeTask, Reason};
use crate::model::SmtpCheck;

pub(super) async fn probe(
    _configs: &tls::Configs,
    task: &ProbeTask,
    _check: &SmtpCheck,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let _ = (task, progress);
    Err(Failure::NotTested(Reason::OtherFailure, "not_probed"))
}
