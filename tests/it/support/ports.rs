//! Ports for what can't be told to take a free one.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

/// The system gives no port below this to whoever asks for any, so no other
/// test comes upon one of these by chance.
const BELOW: u16 = 32_768;
const FROM: u16 = 16_384;

/// An address of this machine at which nobody listens, over UDP and TCP, and
/// which no other test gets.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        // several test programs may run at the same time
        let number = NEXT.fetch_add(1, Relaxed).wrapping_add((process::id() as u16).wrapping_mul(97));
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, FROM + number % (BELOW - FROM)));
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
}
