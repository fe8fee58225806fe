//! TCP handshakes, and what is said over the connection.

use std::net::SocketAddr;

use tokio::net::TcpStream;

use super::search::{Letters, Search};
use super::{Failure, Phase, Progress, connect, talk};
use crate::health::{ProbeTask, Reason};
use crate::model::TcpCheck;

/// Connects; sends and awaits what the check has.
pub(super) async fn probe(
    task: &ProbeTask,
    check: &TcpCheck,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let mut stream = connect::connect(SocketAddr::new(task.address, task.port), task.source()).await?;
    progress.enter(Phase::Response);
    if check.send.is_none() && check.expect.is_none() {
        return Ok(()); // dropped with a FIN: nothing was received that could turn it into an RST
    }
    let mut left = TcpCheck::EXPECTED_WITHIN;
    let verdict = exchange(&mut stream, check, &mut left, progress).await;
    progress.found = Some(verdict);
    talk::part(&mut stream, left, progress).await;
    verdict
}

/// Whether what is expected comes within `left` octets.
async fn exchange(
    stream: &mut TcpStream,
    check: &TcpCheck,
    left: &mut usize,
    progress: &mut Progress,
) -> Result<(), Failure> {
    if let Some(octets) = &check.send {
        talk::say(stream, octets).await?;
    }
    let Some(expected) = check.expect.as_deref().filter(|expected| !expected.is_empty()) else {
        return Ok(());
    };
    let mut search = Search::new(expected, Letters::AsWritten);
    let mut buffer = [0; 1024];
    while *left > 0 {
        let room = buffer.len().min(*left);
        let length = talk::listen(stream, &mut buffer[..room], progress).await?;
        if length == 0 {
            break;
        }
        *left -= length;
        if search.feed(&buffer[..length]) {
            return Ok(());
        }
    }
    Err(Failure::Failed(Reason::TcpResponseMismatch, "expect_not_found"))
}
