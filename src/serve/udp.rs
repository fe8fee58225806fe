//! UDP: one thread for each socket, datagrams in batches.
//!
//! A worker sleeps in `recvmmsg`, answers all that has come from one snapshot,
//! and sends the replies with one `sendmmsg`. After start-up it allocates
//! nothing, takes no lock and makes no further system call.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::net::{Shutdown, shutdown, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::mpsc;

use super::Respond;
use super::chance::Chance;
use super::counters::Counters;
use crate::authority::Snapshot;
use crate::clock;
use crate::os::{self, Batch, DEPTH};
use crate::publish::Reader;
use crate::wire::{Client, Service, Transport};

/// How long an idle worker may keep an old snapshot alive.
const LET_GO: Duration = Duration::from_secs(2);
/// Batches answered after the stop at most: more than a socket's buffer holds.
const LAST_BATCHES: usize = 256;

/// A running worker, as seen from outside.
#[derive(Debug)]
pub(super) struct Worker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    socket: UdpSocket,
    stopping: AtomicBool,
    counters: Counters,
}

/// Opens one socket. The `first` of an address takes it alone, even from those who would share it
/// by SO_REUSEPORT, and only then lets the other workers in.
pub(super) fn open(address: SocketAddr, first: bool, buffer: usize) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?; // 0.0.0.0 has a socket of its own
    }
    if first {
        socket.bind(&address.into())?;
        socket.set_reuse_port(true)?;
    } else {
        socket.set_reuse_port(true)?;
        socket.bind(&address.into())?;
    }
    // Twice the default's hundreds of datagrams are gone in a stall of a few milliseconds.
    if sockopt::set_socket_recv_buffer_size_force(&socket, buffer).is_err() {
        socket.set_recv_buffer_size(buffer)?; // silently capped by net.core.rmem_max
    }
    socket.set_read_timeout(Some(LET_GO))?;
    let socket = UdpSocket::from(socket);
    if address.ip().is_unspecified() {
        os::report_local_address(&socket)?;
    }
    Ok(socket)
}

/// The receive buffer the kernel granted, when it is smaller than what was asked for.
pub(super) fn capped_buffer(socket: &UdpSocket, wanted: usize) -> Option<usize> {
    let granted = sockopt::socket_recv_buffer_size(socket).ok()? / 2; // the kernel doubles it
    (granted < wanted).then_some(granted)
}

impl Worker {
    /// Starts a thread that answers on `socket` until it is stopped; it drops `ended` when done.
    pub fn start(
        number: usize,
        socket: UdpSocket,
        (reader, services): (Reader<Snapshot>, Reader<Service>),
        respond: Respond,
        ended: mpsc::Sender<()>,
    ) -> io::Result<Worker> {
        let addressed = socket.local_addr()?.ip().is_unspecified();
        let shared =
            Arc::new(Shared { socket, stopping: AtomicBool::new(false), counters: Counters::default() });
        let inside = Arc::clone(&shared);
        let mut desk =
            Desk { batch: Batch::new(addressed), chance: Chance::new(), respond, reader, services };
        thread::Builder::new().name(format!("udp-{number}")).spawn(move || {
            desk.work(&inside);
            drop(inside);
            drop(ended);
        })?;
        Ok(Worker { shared })
    }

    /// Makes the worker answer what has arrived and end.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        // Wakes `recvmmsg`. An unconnected socket reports ENOTCONN, and is woken all the same.
        let _ = shutdown(&self.shared.socket, Shutdown::Read);
    }

    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    pub fn overflows(&self) -> u64 {
        os::overflows(&self.shared.socket)
    }
}

/// What a worker works with.
struct Desk {
    batch: Batch,
    chance: Chance,
    reader: Reader<Snapshot>,
    services: Reader<Service>,
    respond: Respond,
}

impl Desk {
    fn work(&mut self, shared: &Shared) {
        while !shared.stopping.load(Ordering::Acquire) {
            match self.batch.receive(&shared.socket, true) {
                Ok(count) => self.answer(count, shared),
                Err(error) => self.bear(error),
            }
        }
        for _ in 0..LAST_BATCHES {
            match self.batch.receive(&shared.socket, false) {
                Ok(count) => self.answer(count, shared),
                Err(_) => break,
            }
        }
    }

    /// Answers one batch, all of it from the same snapshot.
    fn answer(&mut self, count: usize, shared: &Shared) {
        shared.counters.queries(count);
        let mut next = 0;
        while next < count {
            let poison = catch_unwind(AssertUnwindSafe(|| {
                let (snapshot, service) = (self.reader.latest(), self.services.latest());
                let now = clock::unix_seconds();
                while next < count {
                    let i = next;
                    next += 1;
                    let Some((address, query, room)) = self.batch.message(i) else { continue };
                    let (transport, entropy) = (Transport::Udp, self.chance.next());
                    let client = Client { transport, address: address.ip(), entropy, now };
                    let length = (self.respond)(snapshot, service, query, client, room).length;
                    if length > 0 {
                        shared.counters.reply(&room[..length]);
                        self.batch.reply(i, length);
                    }
                }
            }));
            if poison.is_err() {
                shared.counters.panic();
                self.apologize(next - 1, shared);
            }
        }
        shared.counters.refused(self.batch.send(&shared.socket));
    }

    /// SERVFAIL for a query whose answering panicked.
    fn apologize(&mut self, i: usize, shared: &Shared) {
        let Some((_, query, room)) = self.batch.message(i) else { return };
        let length = super::server_failure(query, room);
        if length > 0 {
            shared.counters.reply(&room[..length]);
            self.batch.reply(i, length);
        }
    }

    /// An error of `recvmmsg` never ends a worker.
    fn bear(&mut self, error: io::Error) {
        use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
        match error.kind() {
            WouldBlock | TimedOut => {
                self.reader.latest();
                self.services.latest();
            }
            // An ICMP answer to an earlier reply; a signal.
            ConnectionRefused | Interrupted => {}
            // Out of memory, say: soon over, and no reason to spin until then.
            _ => thread::sleep(Duration::from_millis(10)),
        }
    }
}

const _: () = assert!(DEPTH * LAST_BATCHES > 8192);
