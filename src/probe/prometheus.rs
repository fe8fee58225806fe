//! Probes of type prometheus.

use super::{Failure, Progress, tls};
use crate::health::{ProbeTask, Reason};
use crate::model::PrometheusCheck;

pub(super) async fn probe(
    _configs: &tls::Configs,
    task: &ProbeTask,
    _check: &PrometheusCheck,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let _ = (task, progress);
    Err(Failure::NotTested(Reason::OtherFailure, "not_probed"))
}
