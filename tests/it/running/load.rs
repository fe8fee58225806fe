//! Reloads while many ask.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use socket2::SockRef;

use super::leaks::resident;
use super::{WWW, fixed};
use crate::support::dns::{ask_tcp, connect, query, socket};
use crate::support::folder::Folder;
use crate::support::hale::{Hale, until};

/// Both versions of the configuration: an address and the TTL that goes with it.
const VERSIONS: [([u8; 4], u32); 2] = [([192, 0, 2, 1], 31), ([192, 0, 2, 2], 32)];

const SOCKETS: u32 = 4;

/// What came back.
#[derive(Debug, Default)]
struct Tally {
    sent: u64,
    /// Replies of one version and the other.
    of: [u64; 2],
    /// All other replies.
    odd: Vec<Vec<u8>>,
    /// The longest time without any reply.
    pause: Duration,
}

impl Tally {
    fn lost(&self) -> u64 {
        self.sent - self.of[0] - self.of[1] - self.odd.len() as u64
    }

    fn add(mut self, other: Tally) -> Tally {
        self.sent += other.sent;
        self.of = [self.of[0] + other.of[0], self.of[1] + other.of[1]];
        self.odd.extend(other.odd);
        self.pause = self.pause.max(other.pause);
        self
    }
}

/// The version a reply is of: its address and its TTL agree, and there is
/// nothing else.
fn version(reply: &[u8], question: usize) -> Option<usize> {
    // NOERROR, one answer: a pointer to the name, A, IN, TTL, 4 octets
    let answer = reply.get(question..question + 16)?;
    let sound = reply[3] & 0x0f == 0 && reply[6..8] == [0, 1] && answer[..6] == [0xc0, 12, 0, 1, 0, 1];
    let ttl = u32::from_be_bytes(answer[6..10].try_into().unwrap());
    VERSIONS.iter().position(|version| sound && answer[12..] == version.0 && ttl == version.1)
}

/// Asks at `rate` from one socket until `done`, then waits for what is under
/// way. Asks less when the machine can't: never with more than a window open,
/// so that no buffer overflows.
fn volley(server: SocketAddr, rate: u32, done: &AtomicBool) -> Tally {
    const WINDOW: u64 = 1000;
    let socket = socket(server);
    SockRef::from(&socket).set_recv_buffer_size(4 << 20).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut query = query(0, WWW);
    let question = query.len();
    let mut tally = Tally::default();
    let mut octets = [0; 1500];
    let mut back = 0;
    let begun = Instant::now();
    let mut last = begun;
    loop {
        let asking = !done.load(Ordering::Relaxed);
        let due = (begun.elapsed().as_secs_f64() * f64::from(rate)) as u64;
        while asking && tally.sent < due && tally.sent - back < WINDOW {
            query[..2].copy_from_slice(&(tally.sent as u16).to_be_bytes());
            match socket.send(&query) {
                Ok(_) => tally.sent += 1,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        loop {
            match socket.recv(&mut octets) {
                Ok(length) => {
                    back += 1;
                    tally.pause = tally.pause.max(last.elapsed());
                    last = Instant::now();
                    match version(&octets[..length], question) {
                        Some(version) => tally.of[version] += 1,
                        None => tally.odd.push(octets[..length].to_vec()),
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        if !asking && (back >= tally.sent || last.elapsed() > Duration::from_secs(2)) {
            return tally;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Asks from several sockets while something goes on.
fn under_load(server: SocketAddr, rate: u32, meanwhile: impl FnOnce()) -> Tally {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let volleys: Vec<_> =
            (0..SOCKETS).map(|_| scope.spawn(|| volley(server, rate / SOCKETS, &done))).collect();
        meanwhile();
        done.store(true, Ordering::Relaxed);
        volleys.into_iter().map(|volley| volley.join().unwrap()).fold(Tally::default(), Tally::add)
    })
}

#[test]
fn d14_reloads_under_load_mix_nothing_and_lose_nothing() {
    const LONG: Duration = Duration::from_millis(2500);
    let text = |version: usize| {
        let ([a, b, c, d], ttl) = VERSIONS[version];
        fixed(&format!("{a}.{b}.{c}.{d}"), ttl)
    };
    let folder = Folder::with("a.yaml", &text(0));
    let hale = Hale::serve(folder.path());
    let rate = 20_000;

    let quiet = under_load(hale.address(), rate, || thread::sleep(LONG));
    assert_eq!((quiet.of[1], &*quiet.odd), (0, &[][..]));

    let mut reloads = 0;
    let loaded = under_load(hale.address(), rate, || {
        let begun = Instant::now();
        while begun.elapsed() < LONG {
            let next = Instant::now() + Duration::from_millis(200);
            reloads += 1;
            folder.replace("a.yaml", &text(reloads % 2));
            hale.signal(Signal::HUP);
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    });
    println!("quiet: {} sent, {} lost, longest pause {:?}", quiet.sent, quiet.lost(), quiet.pause);
    println!(
        "{reloads} reloads: {} sent, {} lost, longest pause {:?}",
        loaded.sent,
        loaded.lost(),
        loaded.pause
    );
    assert!(
        loaded.odd.is_empty(),
        "{} replies are of neither version: {:?}",
        loaded.odd.len(),
        loaded.odd[0]
    );
    assert!(loaded.lost() <= quiet.lost(), "{} lost of {}", loaded.lost(), loaded.sent);
    assert!(loaded.of[0] > 0 && loaded.of[1] > 0, "{:?}", loaded.of);
    // signals may fall together, and the log may be late
    until("the reloads are told", || hale.count("configuration reloaded") >= reloads / 2);
}

#[test]
fn d14_connections_outlive_reloads_and_old_configurations_leave_no_memory_taken() {
    let text = |reload: usize| {
        let more = |n: usize| format!("  w{n}: {{ ttl: 30, default_pools: [main], fallback_pool: sorry }}\n");
        fixed(&format!("192.0.2.{reload}"), 30) + &(0..1000).map(more).collect::<String>()
    };
    let folder = Folder::with("a.yaml", &text(0));
    let hale = Hale::serve(folder.path());
    let mut streams: Vec<_> = (0..50).map(|_| connect(hale.address())).collect();
    let mut settled = 0;
    for reload in 1..=40 {
        let mark = hale.mark();
        folder.replace("a.yaml", &text(reload));
        hale.signal(Signal::HUP);
        hale.line_after(mark, "configuration reloaded");
        let address = format!("192.0.2.{reload}");
        until("the new answer", || ask_tcp(&mut streams[0], WWW).is(&[&address]));
        for stream in &mut streams {
            let reply = ask_tcp(stream, WWW);
            assert!(reply.is(&[&address]), "after reload {reload}: {reply:?}");
        }
        if reload == 10 {
            settled = resident(&hale);
        }
    }
    let room = settled + (8 << 10);
    until("what they took is free again", || resident(&hale) < room);
}
