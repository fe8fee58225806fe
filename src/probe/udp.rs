//! A datagram that nobody refuses, after an echo that is answered.
//!
//! UDP says nothing of silence: only an ICMP error tells that a port is
//! closed. An echo goes first, so that a host that is gone isn't taken for a
//! quiet one.

use std::net::SocketAddr;

use socket2::{Protocol, Type};

use super::datagram::{Datagrams, unreachable, unsent};
use super::{Failure, Progress, icmp};
use crate::health::{ProbeTask, Reason};
use crate::model::UdpCheck;

/// Awaits the reply to an echo, then sends the datagram. An answer passes at
/// once, silence when the time is up.
pub(super) async fn probe(
    task: &ProbeTask,
    check: &UdpCheck,
    progress: &mut Progress,
) -> Result<(), Failure> {
    icmp::probe(task, progress).await?;
    let to = SocketAddr::new(task.address, task.port);
    let socket = Datagrams::connect(to, task.source(), Type::DGRAM, Protocol::UDP);
    let socket = socket.map_err(|error| unsent(&error))?;
    // A free port of this machine may be the very one we were given.
    if socket.local() == Some(to) {
        return Err(Failure::Failed(Reason::UdpPortUnreachable, "port_unreachable"));
    }
    socket.send(&check.payload).await.map_err(|error| unsent(&error))?;
    progress.found = Some(Ok(())); // stands when nothing more is heard
    let mut room = [0; 512];
    match socket.receive(&mut room).await {
        Ok(length) => {
            progress.hear(&room[..length]);
            Ok(())
        }
        Err(error) => Err(unreachable(&error)),
    }
}
