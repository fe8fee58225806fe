//! One Hale for each address of UDP, and of TCP.
//!
//! SO_REUSEPORT would let a second process of the same user join an address in
//! silence, and the kernel would split the queries between the two. So each
//! address is locked first: by an abstract Unix socket, which the kernel frees
//! with its process, and which tells a second Hale the holder's pid.

use std::fs;
use std::io;
use std::net::SocketAddr;

use socket2::{Domain, SockAddr, Socket, Type};

use super::holder::{self, Process, Protocol};
use crate::os::peer_process;

/// Held for as long as this value lives.
#[derive(Debug)]
pub(super) struct Lock {
    name: String,
    _socket: Socket,
}

/// Why an address could not be locked.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Another Hale has it, or an address that overlaps it.
    Held {
        by: Option<Process>,
    },
    Failed(io::Error),
}

impl Lock {
    pub fn take(address: SocketAddr, protocol: Protocol) -> Result<Lock, Refusal> {
        let name = name(address, protocol);
        let bound: io::Result<Socket> = (|| {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            socket.bind(&abstract_address(&name)?)?;
            socket.listen(16)?; // never accepted from: connecting is enough to see our pid
            Ok(socket)
        })();
        match bound {
            Ok(socket) => Ok(Lock { name, _socket: socket }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Err(Refusal::Held { by: process_behind(&name) })
            }
            Err(error) => Err(Refusal::Failed(error)),
        }
    }
}

/// Looks for a lock on an overlapping address that is not one of `ours`. To be called after taking
/// one's own: of two that start at the same time, at least one then sees the other.
pub(super) fn overlapping(
    address: SocketAddr,
    protocol: Protocol,
    ours: &[&Lock],
) -> Option<Option<Process>> {
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    table.lines().filter_map(|line| line.split_ascii_whitespace().nth(7)?.strip_prefix('@')).find_map(
        |name| {
            let (theirs, of) = locked_address(name)?;
            let foreign = ours.iter().all(|lock| lock.name != name);
            (foreign && of == protocol && overlap(theirs, address)).then(|| process_behind(name))
        },
    )
}

/// Whether two listening addresses of one protocol would get the same queries.
pub(super) fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b) = (one.ip(), other.ip());
    let same = match (one, other) {
        (SocketAddr::V6(one), SocketAddr::V6(other)) => {
            one.ip() == other.ip() && one.scope_id() == other.scope_id()
        }
        _ => a == b,
    };
    one.port() == other.port()
        && one.port() != 0
        && a.is_ipv4() == b.is_ipv4() // each family has sockets of its own
        && (same || a.is_unspecified() || b.is_unspecified())
}

fn name(address: SocketAddr, protocol: Protocol) -> String {
    format!("hale/{protocol}/{address}")
}

fn locked_address(name: &str) -> Option<(SocketAddr, Protocol)> {
    let (protocol, address) = name.strip_prefix("hale/")?.split_once('/')?;
    let protocol = [Protocol::Udp, Protocol::Tcp].into_iter().find(|one| one.to_string() == protocol)?;
    Some((address.parse().ok()?, protocol))
}

fn abstract_address(name: &str) -> io::Result<SockAddr> {
    SockAddr::unix(format!("\0{name}"))
}

/// The process that listens on a lock's name.
fn process_behind(name: &str) -> Option<Process> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).ok()?;
    socket.set_nonblocking(true).ok()?; // many may have connected before
    let pid = socket.connect(&abstract_address(name).ok()?).ok().and_then(|()| peer_process(&socket));
    pid.map(Process::of).or_else(|| holder::owner(&inodes(name)))
}

/// The sockets of that name, for when none more can connect.
fn inodes(name: &str) -> Vec<u64> {
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let mine = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(6);
        let inode = words.next()?.parse().ok()?;
        (words.next()?.strip_prefix('@')? == name).then_some(inode)
    };
    table.lines().filter_map(mine).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_addresses_of_ours_overlap() {
        for (one, other, expected) in [
            ("127.0.0.1:53", "127.0.0.1:53", true),
            ("127.0.0.1:53", "127.0.0.1:54", false),
            ("127.0.0.1:53", "127.0.0.2:53", false),
            ("0.0.0.0:53", "127.0.0.2:53", true),
            ("[::1]:53", "[::]:53", true),
            ("0.0.0.0:53", "[::]:53", false),
            ("[fe80::1%2]:53", "[fe80::1%3]:53", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
        ] {
            let address = |text: &str| text.parse::<SocketAddr>().expect("written here");
            assert_eq!(overlap(address(one), address(other)), expected, "{one} and {other}");
            assert_eq!(overlap(address(other), address(one)), expected, "{other} and {one}");
        }
    }

    #[test]
    fn a_lock_is_named_after_its_address() {
        for text in ["127.0.0.1:53", "[::]:5353", "[fe80::1%2]:53"] {
            let address = text.parse().expect("written here");
            for protocol in [Protocol::Udp, Protocol::Tcp] {
                assert_eq!(locked_address(&name(address, protocol)), Some((address, protocol)));
            }
        }
    }

    #[test]
    fn a_lock_names_its_holder_however_often_it_is_asked() {
        let address = "127.9.9.9:9".parse().expect("written here"); // nothing is bound to it
        let lock = Lock::take(address, Protocol::Tcp).expect("free");
        for _ in 0..40 {
            let taken = Lock::take(address, Protocol::Tcp);
            let Err(Refusal::Held { by: Some(process) }) = taken else { panic!("held") };
            assert_eq!(process.pid, std::process::id());
        }
        Lock::take(address, Protocol::Udp).expect("UDP has a lock of its own");
        drop(lock);
        Lock::take(address, Protocol::Tcp).expect("free again");
    }
}
