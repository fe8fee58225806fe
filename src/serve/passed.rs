//! Sockets that the service manager has opened (LISTEN_FDS).
//!
//! They stay open, with what has arrived, while this process is started anew;
//! so they are never shut down from here, only left. Several workers share one.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;

use rustix::net::sockopt;
use socket2::{SockRef, Socket, Type};

use super::accept::KERNEL_BUFFER;
use super::listener::Kind;
use super::{ListenError, udp};
use crate::os;

/// One of them.
#[derive(Debug)]
pub struct Passed {
    pub(super) kind: Kind,
    pub(super) address: SocketAddr,
    pub(super) socket: Sort,
}

#[derive(Debug)]
pub(super) enum Sort {
    Datagrams(UdpSocket),
    Connections(TcpListener),
}

impl Passed {
    /// What is spoken there.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

/// Takes what the service manager has passed to this process, once; later calls
/// get nothing.
pub fn passed() -> Result<Vec<Passed>, ListenError> {
    let failed = |error: io::Error| ListenError::Passed { name: String::new(), why: error.to_string() };
    os::passed_sockets().map_err(failed)?.into_iter().map(|(fd, name)| take(fd, &name)).collect()
}

fn take(fd: OwnedFd, name: &str) -> Result<Passed, ListenError> {
    let refused = |why: &str| ListenError::Passed { name: name.to_owned(), why: why.to_owned() };
    let kind = match name {
        "dns" | "unknown" | "" => Kind::Dns,
        "tls" => Kind::Tls,
        "https" => Kind::Https,
        "quic" => Kind::Quic,
        "http3" => Kind::Http3,
        unit if unit.ends_with(".socket") => Kind::Dns, // a unit without FileDescriptorName=
        _ => return Err(refused("its name is none of `dns`, `tls`, `https`, `quic` and `http3`")),
    };
    let socket = Socket::from(fd);
    let address = socket.local_addr().ok().and_then(|address| address.as_socket());
    let Some(address) = address else { return Err(refused("it is no socket of IPv4 or IPv6")) };
    let failed = |error: io::Error| refused(&error.to_string());
    let sort = match socket.r#type().map_err(failed)? {
        Type::DGRAM if matches!(kind, Kind::Dns | Kind::Quic | Kind::Http3) => Sort::Datagrams(socket.into()),
        Type::STREAM if matches!(kind, Kind::Dns | Kind::Tls | Kind::Https) => {
            if !socket.is_listener().map_err(failed)? {
                return Err(refused("it is a connection: let it have `Accept=no`"));
            }
            let ready = || {
                socket.set_tcp_nodelay(true)?; // as those that are opened here
                socket.set_send_buffer_size(KERNEL_BUFFER)?;
                socket.set_recv_buffer_size(KERNEL_BUFFER)?;
                socket.set_nonblocking(true)
            };
            ready().map_err(failed)?;
            Sort::Connections(socket.into())
        }
        Type::DGRAM => return Err(refused("it is for datagrams, and this needs `ListenStream=`")),
        Type::STREAM => return Err(refused("it is for streams, and this needs `ListenDatagram=`")),
        _ => return Err(refused("it is neither for datagrams nor for streams")),
    };
    Ok(Passed { kind, address, socket: sort })
}

/// Makes a socket for datagrams of plain DNS what `udp::open` makes of its own.
pub(super) fn adopt(socket: &UdpSocket, buffer: usize) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    if sockopt::set_socket_recv_buffer_size_force(socket, buffer).is_err()
        && udp::capped_buffer(socket, buffer).is_some()
    {
        SockRef::from(socket).set_recv_buffer_size(buffer)?;
    }
    // a stop is seen within that time, because nothing wakes the workers
    socket.set_read_timeout(Some(udp::PASSED_TURN))?;
    if socket.local_addr()?.ip().is_unspecified() {
        os::report_local_address(socket)?;
    }
    Ok(())
}
