//! A server under hostile packets, seen by a client that asks real questions.
//!
//! First the quiet baseline: the client alone. Then datagrams that no resolver
//! would send (cut, mutated, random, with counts and lengths that lie) at a
//! steady rate, and messages like them over TCP, while the client goes on. It
//! ends with an error when the client got a wrong answer, when it lost more
//! than the baseline lets expect, or when memory grew.
//!
//! PACKETS, RATE (a second), MESSAGES over TCP and QUIET (seconds) say how much.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use support::{Folder, Process, setting};

/// The client asks so often.
const PACE: Duration = Duration::from_millis(5);
/// A reply that takes longer is lost.
const PATIENCE: Duration = Duration::from_secs(1);
const NAMES: u32 = 200;

fn main() -> ExitCode {
    let (packets, rate) = (setting("PACKETS", 1_000_000), setting("RATE", 20_000));
    let (messages, quiet) = (setting("MESSAGES", 20_000), setting("QUIET", 20));
    let folder = Folder::new("hostile");
    folder.write("bench.yaml", &configuration());
    let (hale, address) = Process::hale(&folder.path().join("bench.yaml"));
    println!(
        "{packets} datagrams at {rate} a second, {messages} messages over TCP; first {quiet} s of quiet"
    );

    let quiet = watch(address, |_| thread::sleep(Duration::from_secs(quiet)));
    println!("  quiet    {quiet}");
    let before = hale.memory();
    let mut samples = Vec::new();
    let loud = watch(address, |over| {
        thread::scope(|scope| {
            let flood = scope.spawn(|| flood(address, packets, rate));
            scope.spawn(|| drip(address, messages));
            while !flood.is_finished() {
                samples.push(hale.memory());
                thread::sleep(Duration::from_secs(1));
            }
        });
        over.store(true, Relaxed);
    });
    println!("  hostile  {loud}");
    samples.push(hale.memory());
    // the first quarter warms up what is kept
    let (early, late) = (samples[samples.len() / 4], samples[samples.len() - 1]);
    println!("  memory   {before:.1} MiB before, {early:.1} after a quarter, {late:.1} at the end");
    let lost = |seen: &Seen| seen.lost as f64 / (seen.asked as f64).max(1.0);
    let allowed = lost(&quiet) + 0.0005; // one of two thousand
    let good = quiet.wrong + loud.wrong == 0 && lost(&loud) <= allowed && late < early + 2.0;
    println!("  {}", if good { "as it must be" } else { "NOT as it must be" });
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What the client saw.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    asked: u64,
    lost: u64,
    wrong: u64,
    slowest: Duration,
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Seen { asked, lost, wrong, slowest } = self;
        write!(f, "{asked} asked, {lost} lost, {wrong} wrong, the slowest after {} ms", slowest.as_millis())
    }
}

/// Lets the client ask while `meanwhile` runs.
fn watch(address: SocketAddr, meanwhile: impl FnOnce(&AtomicBool)) -> Seen {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let client = scope.spawn(|| ask_until(address, &over));
        meanwhile(&over);
        over.store(true, Relaxed);
        client.join().expect("the client doesn't panic")
    })
}

fn ask_until(address: SocketAddr, over: &AtomicBool) -> Seen {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(address).expect("an address");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut seen = Seen::default();
    let mut reply = [0; 1500];
    while !over.load(Relaxed) {
        let number = seen.asked as u32;
        let query = query(number);
        seen.asked += 1;
        let begun = Instant::now();
        let _ = socket.send(&query);
        let answer = loop {
            match socket.recv(&mut reply) {
                Ok(length) if reply[..2] == query[..2] => break Some(&reply[..length]),
                Ok(_) => {} // of an earlier one that was given up
                Err(_) => break None,
            }
        };
        seen.slowest = seen.slowest.max(begun.elapsed());
        match answer {
            None => seen.lost += 1,
            Some(answer) if answer != expected(number) => seen.wrong += 1,
            Some(_) => {}
        }
        thread::sleep(PACE);
    }
    seen
}

/// Sends datagrams at a steady pace, in small volleys.
fn flood(address: SocketAddr, packets: u64, rate: u64) {
    let sockets: Vec<UdpSocket> = (0..16)
        .map(|_| {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            socket.connect(address).expect("an address");
            socket.set_nonblocking(true).expect("it doesn't wait");
            socket
        })
        .collect();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let (begun, mut reply) = (Instant::now(), [0; 2048]);
    for number in 0..packets {
        let socket = &sockets[number as usize % sockets.len()];
        let _ = socket.send(&hostile(&mut dice, 1400));
        while socket.recv(&mut reply).is_ok() {}
        if number % 20 == 19 {
            let due = begun + Duration::from_micros(number * 1_000_000 / rate);
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        if number % (packets / 10).max(1) == 0 {
            println!(
                "  … {} % of the datagrams after {:.0} s",
                100 * number / packets,
                begun.elapsed().as_secs_f64()
            );
        }
    }
}

/// Messages over TCP, a few for each connection; some connections are left
/// half way, some are never read from.
fn drip(address: SocketAddr, messages: u64) {
    let left = Arc::new(AtomicU64::new(messages));
    let hands: Vec<_> = (0..4u64)
        .map(|hand| {
            let left = Arc::clone(&left);
            thread::spawn(move || {
                let mut dice = Dice(0xd1b5_4a32_d192_ed03 ^ hand);
                while take(&left) {
                    let Ok(mut stream) = TcpStream::connect(address) else { continue };
                    let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
                    let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
                    for _ in 0..dice.below(8) + 1 {
                        let message = hostile(&mut dice, 3000);
                        let length =
                            if dice.below(16) == 0 { dice.next() as u16 } else { message.len() as u16 };
                        let framed = [&length.to_be_bytes()[..], &message].concat();
                        let cut = if dice.below(10) == 0 {
                            dice.below(framed.len() as u64) as usize
                        } else {
                            framed.len()
                        };
                        if stream.write_all(&framed[..cut]).is_err() || cut < framed.len() || !take(&left) {
                            break;
                        }
                    }
                    if dice.below(4) > 0 {
                        let _ = stream.read(&mut [0; 4096]);
                    }
                }
            })
        })
        .collect();
    hands.into_iter().for_each(|hand| hand.join().expect("no hand panics"));
}

fn take(left: &AtomicU64) -> bool {
    left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
}

/// A message that is not as it should be, or only just.
fn hostile(dice: &mut Dice, most: u64) -> Vec<u8> {
    let mut octets = query(dice.next() as u32);
    match dice.below(8) {
        // random from the first octet on
        0 => octets = (0..dice.below(most)).map(|_| dice.next() as u8).collect(),
        // a query cut anywhere
        1 => octets.truncate(dice.below(octets.len() as u64 + 1) as usize),
        // counts that promise what isn't there
        2 => octets[4..12]
            .iter_mut()
            .for_each(|octet| *octet = if dice.below(2) == 0 { 0 } else { dice.next() as u8 }),
        // pointers and odd label types in the name
        3 => {
            let at = 12 + dice.below(octets.len() as u64 - 12) as usize;
            octets[at] = [0xc0, 0x40, 0x80, 0x3f, 0xff][dice.below(5) as usize];
        }
        // an OPT record with options that lie
        4 | 5 => {
            octets[11] = 1 + (dice.below(8) == 0) as u8;
            let data: Vec<u8> = (0..dice.below(80)).map(|_| dice.next() as u8).collect();
            let code = [3, 8, 10, 11, 12, 15, 100][dice.below(7) as usize];
            octets.extend([0, 0, 41, dice.next() as u8, dice.next() as u8, 0, dice.below(3) as u8, 0x80, 0]);
            octets.extend((data.len() as u16 + 4 * (dice.below(4) > 0) as u16).to_be_bytes());
            octets.extend([0, code]);
            octets.extend((data.len() as u16 + (dice.below(8) == 0) as u16).to_be_bytes());
            octets.extend(data);
        }
        // any type and class, any flags
        6 => {
            let end = octets.len();
            octets[end - 4..].iter_mut().for_each(|octet| *octet = dice.next() as u8);
            octets[2] = dice.next() as u8;
            octets[3] = dice.next() as u8;
        }
        // a few flipped octets
        _ => {
            for _ in 0..dice.below(4) + 1 {
                let at = dice.below(octets.len() as u64) as usize;
                octets[at] = dice.next() as u8;
            }
        }
    }
    octets
}

/// A wyrand generator: the same packets in each run.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0xa076_1d64_78bd_642f);
        let wide = u128::from(self.0) * u128::from(self.0 ^ 0xe703_7ed1_a0b4_28db);
        (wide >> 64) as u64 ^ wide as u64
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

fn query(number: u32) -> Vec<u8> {
    let [high, low] = (number as u16).to_be_bytes();
    let mut octets = vec![high, low, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 5];
    octets.extend(format!("s{:04}", number % NAMES).bytes());
    octets.extend(b"\x05bench\x04test\0\0\x01\0\x01");
    octets
}

/// The one right answer, octet by octet.
fn expected(number: u32) -> Vec<u8> {
    let mut octets = query(number);
    (octets[2], octets[3], octets[7]) = (0x84, 0, 1);
    octets.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 192, 0, 2, (number % NAMES) as u8]);
    octets
}

fn configuration() -> String {
    let mut text = String::from("zone: bench.test\nrecords:\n  '': { type: NS, value: ns.example.net. }\n");
    for n in 0..NAMES {
        text += &format!("  s{n:04}: {{ type: A, ttl: 300, value: 192.0.2.{n} }}\n");
    }
    text
}
