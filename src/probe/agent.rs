//! HAProxy's agent check: what an endpoint says of itself.

use std::net::SocketAddr;

use tokio::net::TcpStream;

use super::{Failure, Phase, Progress, connect, talk};
use crate::health::{AgentLine, AgentState, ProbeTask, Reason};
use crate::model::AgentCheck;

/// The longest line of an agent.
const MAX_LINE: usize = 1024;

/// Connects, sends what the check has, reads a line.
pub(super) async fn probe(
    task: &ProbeTask,
    check: &AgentCheck,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let mut stream = connect::connect(SocketAddr::new(task.address, task.port), task.source()).await?;
    progress.enter(Phase::Response);
    let verdict = exchange(&mut stream, check, progress).await;
    progress.found = Some(verdict);
    talk::part(&mut stream, MAX_LINE, progress).await;
    verdict
}

async fn exchange(
    stream: &mut TcpStream,
    check: &AgentCheck,
    progress: &mut Progress,
) -> Result<(), Failure> {
    if let Some(octets) = &check.send {
        talk::say(stream, octets).await?;
    }
    let mut heard = [0; MAX_LINE];
    let mut length = 0;
    while !heard[..length].iter().any(|octet| b"\r\n".contains(octet)) {
        match talk::listen(stream, &mut heard[length..], progress).await? {
            0 if length == MAX_LINE => return Err(MALFORMED),
            0 => break, // the line's end may be the connection's
            more => length += more,
        }
    }
    let line = AgentLine::read(&heard[..length]);
    if !line.understood {
        return Err(MALFORMED);
    }
    progress.agent = Some(line.report);
    match line.state {
        None | Some(AgentState::Up) => Ok(()),
        Some(AgentState::Down) => Err(Failure::Failed(Reason::AgentDown, "agent_down")),
        Some(AgentState::Failed) => Err(Failure::Failed(Reason::AgentDown, "agent_failed")),
        Some(AgentState::Stopped) => Err(Failure::Failed(Reason::AgentDown, "agent_stopped")),
    }
}

const MALFORMED: Failure = Failure::Failed(Reason::AgentInvalidResponse, "malformed_response");
