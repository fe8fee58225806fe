//! Which sockets an address to listen on has, and what is spoken there.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use socket2::{Domain, Socket, Type};

use super::holder::Protocol;
use super::lock::{self, Lock};
use super::{ListenError, accept, explain, look_for_other_hales, take_lock, udp};

/// What is spoken at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Messages as they are, in datagrams and over TCP.
    Dns,
    /// DNS over TLS (RFC 7858).
    Tls,
    /// DNS over HTTPS (RFC 8484), HTTP/2 and HTTP/1.1.
    Https,
    /// DNS over QUIC (RFC 9250).
    Quic,
    /// DNS over HTTPS by HTTP/3.
    Http3,
}

impl Kind {
    /// The ports it takes.
    pub(super) fn protocols(self) -> &'static [Protocol] {
        match self {
            Kind::Dns => &[Protocol::Udp, Protocol::Tcp],
            Kind::Tls | Kind::Https => &[Protocol::Tcp],
            Kind::Quic | Kind::Http3 => &[Protocol::Udp],
        }
    }

    /// Whether the server needs a certificate for it.
    pub fn is_encrypted(self) -> bool {
        self != Kind::Dns
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Dns => "UDP and TCP",
            Kind::Tls => "DNS over TLS",
            Kind::Https => "DNS over HTTPS",
            Kind::Quic => "DNS over QUIC",
            Kind::Http3 => "DNS over HTTP/3",
        })
    }
}

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    pub kind: Kind,
    pub address: SocketAddr,
}

/// An address alone is one of plain DNS.
impl From<SocketAddr> for Listener {
    fn from(address: SocketAddr) -> Listener {
        Listener { kind: Kind::Dns, address }
    }
}

impl From<&Listener> for Listener {
    fn from(listener: &Listener) -> Listener {
        *listener
    }
}

/// Whether both would get the same datagrams or the same connections.
pub(super) fn overlap(one: Listener, other: Listener) -> bool {
    let shared = |protocol| other.kind.protocols().contains(protocol);
    one.kind.protocols().iter().any(shared) && lock::overlap(one.address, other.address)
}

/// One address's first sockets, as its kind has them.
pub(super) struct Bound {
    /// With a real port.
    pub listener: Listener,
    pub locks: Vec<Lock>,
    pub udp: Option<UdpSocket>,
    pub tcp: Option<TcpListener>,
}

/// Makes sure that an address could be bound now.
pub(super) fn try_out(listener: Listener) -> Result<(), ListenError> {
    for &protocol in listener.kind.protocols() {
        match protocol {
            Protocol::Udp => open_udp(listener, 0).map(drop)?,
            Protocol::Tcp => open_tcp(listener.address, false).map(drop)?,
        }
    }
    Ok(())
}

/// Binds an address, locked unless its port is 0. `buffer`: octets of datagrams
/// the kernel may keep.
pub(super) fn bind(asked: Listener, locks: Vec<Lock>, buffer: usize) -> Result<Bound, ListenError> {
    if asked.address.port() != 0 {
        let (udp, tcp) = open(asked, buffer, None)?;
        return Ok(Bound { listener: asked, locks, udp, tcp });
    }
    // UDP picks a port; TCP may have it in use, and then UDP picks again.
    let mut attempts = 0;
    loop {
        attempts += 1;
        match bind_anywhere(asked, buffer) {
            Err(ListenError::Held { .. } | ListenError::HeldByHale { .. }) if attempts < 32 => {}
            done => return done,
        }
    }
}

/// Binds to a port that the kernel chooses.
fn bind_anywhere(asked: Listener, buffer: usize) -> Result<Bound, ListenError> {
    let first = match asked.kind.protocols() {
        [Protocol::Udp, ..] => First::Udp(open_udp(asked, buffer)?),
        _ => First::Tcp(open_tcp(asked.address, true)?),
    };
    let address = match &first {
        First::Udp(socket) => socket.local_addr(),
        First::Tcp(listener) => listener.local_addr(),
    };
    let failed = |error| ListenError::Failed { address: asked.address, doing: "listen on", error };
    let listener = Listener { address: address.map_err(failed)?, ..asked };
    let locks = take_locks(listener)?;
    look_for_other_hales(listener, &locks.iter().collect::<Vec<_>>())?;
    let (udp, tcp) = open(listener, buffer, Some(first))?;
    Ok(Bound { listener, locks, udp, tcp })
}

enum First {
    Udp(UdpSocket),
    Tcp(TcpListener),
}

/// Opens what the kind has, but for a socket that is there.
fn open(
    listener: Listener,
    buffer: usize,
    first: Option<First>,
) -> Result<(Option<UdpSocket>, Option<TcpListener>), ListenError> {
    let (mut udp, mut tcp) = match first {
        None => (None, None),
        Some(First::Udp(socket)) => (Some(socket), None),
        Some(First::Tcp(socket)) => (None, Some(socket)),
    };
    for protocol in listener.kind.protocols() {
        match protocol {
            Protocol::Udp if udp.is_none() => udp = Some(open_udp(listener, buffer)?),
            Protocol::Tcp if tcp.is_none() => tcp = Some(open_tcp(listener.address, true)?),
            Protocol::Udp | Protocol::Tcp => {}
        }
    }
    Ok((udp, tcp))
}

pub(super) fn take_locks(listener: Listener) -> Result<Vec<Lock>, ListenError> {
    listener.kind.protocols().iter().map(|&protocol| take_lock(listener.address, protocol)).collect()
}

fn open_udp(listener: Listener, buffer: usize) -> Result<UdpSocket, ListenError> {
    let address = listener.address;
    let opened = match listener.kind {
        Kind::Quic | Kind::Http3 => open_for_quic(address, buffer),
        Kind::Dns | Kind::Tls | Kind::Https => udp::open(address, true, buffer),
    };
    opened.map_err(|error| explain(address, Protocol::Udp, error))
}

fn open_tcp(address: SocketAddr, listen: bool) -> Result<TcpListener, ListenError> {
    accept::open(address, listen).map_err(|error| explain(address, Protocol::Tcp, error))
}

/// A socket for one QUIC endpoint, which sets what it needs by itself.
fn open_for_quic(address: SocketAddr, buffer: usize) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(socket2::Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?; // 0.0.0.0 has a socket of its own
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    if buffer > 0 {
        socket.set_recv_buffer_size(buffer)?; // silently capped by net.core.rmem_max
    }
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_may_have_two_kinds_of_different_protocols() {
        use Kind::{Dns, Http3, Https, Quic, Tls};
        for (one, other, expected) in [
            (Dns, Dns, true),
            (Dns, Tls, true),
            (Dns, Quic, true),
            (Tls, Quic, false),
            (Tls, Https, true),
            (Https, Http3, false),
            (Quic, Http3, true),
        ] {
            let listener = |kind| Listener { kind, address: ([127, 0, 0, 1], 853).into() };
            assert_eq!(overlap(listener(one), listener(other)), expected, "{one:?} and {other:?}");
            assert_eq!(overlap(listener(other), listener(one)), expected, "{other:?} and {one:?}");
        }
    }
}
