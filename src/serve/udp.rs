//! UDP: one thread for each socket, datagrams in batches.
//!
//! A worker sleeps in `recvmmsg`, answers all that has come from one snapshot,
//! and sends the replies with one `sendmmsg`. After start-up it allocates
//! nothing, takes no lock and makes no further system call.
//!
//! It goes on whatever happens: a panic while answering costs one query, any
//! other panic a batch.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ipnet::IpNet;
use rustix::net::{Shutdown, shutdown, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::mpsc;

use super::chance::Chance;
use super::counters::Counters;
use super::proxy::{self, Read, Source};
use super::rate::{Limiter, Verdict};
use super::{Respond, drop_payload};
use crate::authority::Snapshot;
use crate::clock::{self, Clock};
use crate::os::{self, Batch, DEPTH};
use crate::publish::Reader;
use crate::wire::{self, Class, Client, Replied, Service, Transport};

/// How long an idle worker may keep an old snapshot alive.
const LET_GO: Duration = Duration::from_secs(2);
/// How often a worker on a passed socket looks whether it is to stop.
pub(super) const PASSED_TURN: Duration = Duration::from_millis(200);
/// Batches answered after the stop at most: more than a socket's buffer holds.
const LAST_BATCHES: usize = 256;

/// What all workers of a server have in common.
#[derive(Clone)]
pub(super) struct Task {
    pub reader: Reader<Snapshot>,
    pub services: Reader<Service>,
    pub respond: Respond,
    pub limiter: Option<Arc<Limiter>>,
    /// Whose datagrams begin with a header of the PROXY protocol.
    pub proxies: Arc<[IpNet]>,
    /// The limiter's time.
    pub clock: Clock,
}

/// A running worker, as seen from outside.
#[derive(Debug)]
pub(super) struct Worker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    socket: UdpSocket,
    whose: Whose,
    stopping: AtomicBool,
    counters: Counters,
}

/// Where a worker's socket comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Ours,
    /// The service manager's, which keeps it.
    Passed,
    /// The same as another worker's.
    Shared,
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
        (socket, whose): (UdpSocket, Whose),
        task: Task,
        ended: mpsc::Sender<()>,
    ) -> io::Result<Worker> {
        let addressed = socket.local_addr()?.ip().is_unspecified();
        let shared = Arc::new(Shared {
            socket,
            whose,
            stopping: AtomicBool::new(false),
            counters: Counters::default(),
        });
        let inside = Arc::clone(&shared);
        let mut desk = Desk { batch: Batch::new(addressed), chance: Chance::new(), task };
        thread::Builder::new().name(format!("udp-{number}")).spawn(move || {
            outlive(number, &inside.counters, || desk.work(&inside));
            drop(inside);
            drop(ended);
        })?;
        Ok(Worker { shared })
    }

    /// Makes the worker answer what has arrived and end.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        if self.shared.whose != Whose::Ours {
            return; // a shutdown would be for whoever gets it next, too; the worker looks soon
        }
        // Wakes `recvmmsg`. An unconnected socket reports ENOTCONN, and is woken all the same.
        let _ = shutdown(&self.shared.socket, Shutdown::Read);
    }

    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    pub fn overflows(&self) -> u64 {
        match self.shared.whose {
            Whose::Ours | Whose::Passed => os::overflows(&self.shared.socket),
            Whose::Shared => 0,
        }
    }

    /// A number that changes while the worker is alive, at least every two seconds.
    pub fn turns(&self) -> impl Fn() -> u64 + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.counters.turns()
    }
}

/// What a worker works with.
struct Desk {
    batch: Batch,
    chance: Chance,
    task: Task,
}

impl Desk {
    fn work(&mut self, shared: &Shared) {
        while !shared.stopping.load(Ordering::Acquire) {
            let received = self.batch.receive(&shared.socket, true);
            shared.counters.turn();
            match received {
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
            let answering = AssertUnwindSafe(|| self.answer_from(&mut next, count, shared));
            if let Err(payload) = catch_unwind(answering) {
                shared.counters.panic();
                drop_payload(payload);
                self.apologize(next - 1, shared);
            }
        }
        shared.counters.refused(self.batch.send(&shared.socket));
    }

    /// Answers from number `next` on, which is where a panic finds it.
    fn answer_from(&mut self, next: &mut usize, count: usize, shared: &Shared) {
        let Task { reader, services, respond, limiter, proxies, clock } = &mut self.task;
        let (snapshot, service) = (reader.latest(), services.latest());
        let now = clock::unix_seconds();
        let limiter = limiter.as_deref().map(|limiter| (limiter, clock.milliseconds()));
        while *next < count {
            let i = *next;
            *next += 1;
            let Some((from, datagram, room)) = self.batch.message(i) else { continue };
            let Some((address, query)) = client_of(proxies, from.ip(), datagram) else {
                shared.counters.unproxied();
                continue;
            };
            let (transport, entropy) = (Transport::Udp, self.chance.next());
            let client = Client { transport, address, entropy, now };
            let replied = respond(snapshot, service, query, client, room);
            let length = match limiter {
                Some((limiter, at)) if replied.length > 0 && !replied.vouched => {
                    match judge(limiter, at, client, query.len(), replied, &shared.counters) {
                        Verdict::Send => replied.length,
                        Verdict::Slip => wire::slip(service, query, client, room),
                        Verdict::Drop => continue,
                    }
                }
                _ => replied.length,
            };
            if length > 0 {
                shared.counters.reply(&room[..length]);
                self.batch.reply(i, length);
            }
        }
    }

    /// SERVFAIL for a query whose answering panicked.
    fn apologize(&mut self, i: usize, shared: &Shared) {
        let Some((from, datagram, room)) = self.batch.message(i) else { return };
        let Some((_, query)) = client_of(&self.task.proxies, from.ip(), datagram) else { return };
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
                self.task.reader.latest();
                self.task.services.latest();
            }
            // An ICMP answer to an earlier reply; a signal.
            ConnectionRefused | Interrupted => {}
            // Out of memory, say: soon over, and no reason to spin until then.
            _ => thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// The client and its query; none where a proxy's datagram has no header that
/// can be read. From anybody else a header is no header.
fn client_of<'a>(proxies: &[IpNet], from: IpAddr, datagram: &'a [u8]) -> Option<(IpAddr, &'a [u8])> {
    if !proxies.iter().any(|network| network.contains(&from)) {
        return Some((from, datagram));
    }
    let Ok(Read::Header { length, source }) = proxy::read(datagram) else { return None };
    let address = match source {
        Source::Client(client) => client.ip(),
        Source::Proxy => from,
    };
    Some((address, &datagram[length..]))
}

/// What becomes of a reply to a query of `asked` octets that may be one too
/// many; counts it.
fn judge(
    limiter: &Limiter,
    at: u64,
    client: Client,
    asked: usize,
    replied: Replied,
    counters: &Counters,
) -> Verdict {
    let Replied { class, subject, .. } = replied;
    let verdict = limiter.decide(at, client.address, class, subject, client.entropy);
    match verdict {
        Verdict::Send => return verdict,
        Verdict::Slip => counters.slipped(),
        Verdict::Drop => counters.rate_dropped(),
    }
    match (verdict, class) {
        _ if limiter.log_only => Verdict::Send,
        // an error is as short as what would stand for it, or what was asked for made it longer
        (Verdict::Slip, Class::Error) if replied.length <= asked => Verdict::Send,
        (Verdict::Slip, Class::Error) => Verdict::Drop,
        _ => verdict,
    }
}

/// Works until the work ends by itself. A panic is told of, and it starts anew
/// after a rest, lest it spins.
fn outlive(number: usize, counters: &Counters, mut work: impl FnMut()) {
    while let Err(payload) = catch_unwind(AssertUnwindSafe(&mut work)) {
        drop_payload(payload);
        counters.restart();
        tracing::error!("UDP worker {number} has panicked by a defect of this program; it starts anew");
        thread::sleep(Duration::from_millis(10));
    }
}

const _: () = assert!(DEPTH * LAST_BATCHES > 8192);

#[cfg(test)]
mod tests {
    use std::any::Any;

    use super::*;
    use crate::serve::Totals;

    /// Panics when it is dropped, also with another one.
    struct Bomb(u8);

    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0 > 0 {
                std::panic::panic_any(Bomb(self.0 - 1));
            }
        }
    }

    #[test]
    fn a_worker_outlives_whatever_panics() {
        let counters = Counters::default();
        let mut causes = vec![Box::new(Bomb(2)) as Box<dyn Any + Send>, Box::new("words"), Box::new(Bomb(0))];
        outlive(0, &counters, || {
            if let Some(cause) = causes.pop() {
                std::panic::resume_unwind(cause);
            }
        });
        let mut totals = Totals::default();
        counters.add_to(&mut totals, Transport::Udp);
        assert_eq!(totals.restarts, 3);
    }

    #[test]
    fn only_a_proxys_header_is_looked_at() {
        let proxies: Vec<IpNet> =
            ["192.0.2.8/32", "2001:db8::/64"].map(|net| net.parse().expect("one")).into();
        let head = b"\r\n\r\n\0\r\nQUIT\n";
        let client =
            [&head[..], &[0x21, 0x12, 0, 12, 203, 0, 113, 5, 0, 0, 0, 0, 0, 1, 0, 2], b"query"].concat();
        let own = [&head[..], &[0x20, 0, 0, 0], b"query"].concat();
        let query = &b"query"[..];
        for (from, datagram, expected) in [
            ("192.0.2.8", &client[..], Some(("203.0.113.5", query))),
            ("192.0.2.8", &own, Some(("192.0.2.8", query))),
            ("192.0.2.8", query, None),
            ("192.0.2.8", &client[..20], None),
            ("192.0.2.8", &client[..28], Some(("203.0.113.5", &[]))),
            ("2001:db8::8", query, None),
            ("192.0.2.9", query, Some(("192.0.2.9", query))),
            ("192.0.2.9", &client, Some(("192.0.2.9", &client[..]))),
        ] {
            let expected = expected.map(|(address, query)| (address.parse().expect("one"), query));
            let from = from.parse().expect("one");
            assert_eq!(client_of(&proxies, from, datagram), expected, "{from}: {datagram:?}");
        }
        let from = "192.0.2.8".parse().expect("one");
        assert_eq!(client_of(&[], from, &client), Some((from, &client[..])), "without the setting");
    }
}
