//! Probes of type grpc.

use super::{Failure, Progress, tls};
use crate::health::{ProbeTask, Reason};
use crate::model::GrpcCheck;

pub(super) async fn probe(
    _configs: &tls::Configs,
    task: &ProbeTask,
    _check: &GrpcCheck,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let _ = (task, progress);
    Err(Failure::NotTested(Reason::OtherFailure, "not_probed"))
}
