//! Connected sockets for single packets, and what ICMP says about them.
//!
//! A connected socket hears only of its own packets: the kernel compares what
//! an ICMP error quotes. So a late error of the probe before, or of another
//! endpoint, is not taken for this one's.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::RecvFlags;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use super::{Failure, connect};
use crate::health::Reason;
use crate::model::Source;
use crate::os;

/// A connected socket, of UDP or of ICMP: to send and to receive are the same
/// system calls for both.
#[derive(Debug)]
pub(super) struct Datagrams(UdpSocket);

impl Datagrams {
    /// Leaves from `source` where it has an address of the family of `to`.
    pub(super) fn connect(
        to: SocketAddr,
        source: Source,
        kind: Type,
        protocol: Protocol,
    ) -> io::Result<Datagrams> {
        let from = match to {
            SocketAddr::V4(_) => source.ipv4.map(IpAddr::from),
            SocketAddr::V6(_) => source.ipv6.map(IpAddr::from),
        };
        let socket = Socket::new(Domain::for_address(to), kind.nonblocking(), Some(protocol))?;
        os::report_network_errors(&socket, to.ip())?;
        if let Some(from) = from {
            socket.bind(&SocketAddr::new(from, 0).into())?;
        }
        socket.connect(&to.into())?;
        Ok(Datagrams(UdpSocket::from_std(socket.into())?))
    }

    /// Where it leaves from.
    pub(super) fn local(&self) -> Option<SocketAddr> {
        self.0.local_addr().ok()
    }

    pub(super) async fn send(&self, packet: &[u8]) -> io::Result<()> {
        self.0.send(packet).await.map(|_| ())
    }

    /// The next packet, or the next error that came for one sent.
    pub(super) async fn receive(&self, room: &mut [u8]) -> io::Result<usize> {
        self.0.recv(room).await
    }

    /// What the error just received quotes of the packet that caused it.
    pub(super) fn quoted(&self, room: &mut [u8]) -> usize {
        rustix::net::recv(&self.0, room, RecvFlags::ERRQUEUE).map_or(0, |(length, _)| length)
    }
}

/// What it means that no packet could be sent.
pub(super) fn unsent(error: &io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED) => unreachable(error), // word of another one's packet
        _ => connect::failure(error, connect::Origin::System),
    }
}

/// What it means that an error has come for a packet.
pub(super) fn unreachable(error: &io::Error) -> Failure {
    let (reason, detail) = match error.raw_os_error() {
        Some(libc::ECONNREFUSED) => (Reason::UdpPortUnreachable, "port_unreachable"),
        Some(libc::ENOPROTOOPT) => (Reason::OtherFailure, "protocol_unreachable"),
        Some(libc::EHOSTUNREACH | libc::EHOSTDOWN) => (Reason::NoRouteToHost, "host_unreachable"),
        Some(libc::ENETUNREACH) => (Reason::NetworkUnreachable, "network_unreachable"),
        // Of ICMPv6; over IPv4 the same word arrives as EHOSTUNREACH.
        Some(libc::EACCES) => (Reason::NoRouteToHost, "administratively_prohibited"),
        _ => (Reason::OtherFailure, "io_error"),
    };
    Failure::Failed(reason, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unreachable_has_its_reason() {
        use Reason::{NetworkUnreachable, NoRouteToHost, OtherFailure, UdpPortUnreachable};
        for (number, reason, detail) in [
            (libc::ECONNREFUSED, UdpPortUnreachable, "port_unreachable"),
            (libc::ENOPROTOOPT, OtherFailure, "protocol_unreachable"),
            (libc::EHOSTUNREACH, NoRouteToHost, "host_unreachable"),
            (libc::ENETUNREACH, NetworkUnreachable, "network_unreachable"),
            (libc::EACCES, NoRouteToHost, "administratively_prohibited"),
            (libc::EPROTO, OtherFailure, "io_error"),
        ] {
            let found = unreachable(&io::Error::from_raw_os_error(number));
            assert_eq!(found, Failure::Failed(reason, detail), "{number}");
        }
    }
}
