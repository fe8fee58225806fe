//! How long from the end of the probe that decides to the changed answer on
//! the wire: gathering, compiling and publishing included.
//!
//! A real endpoint turns from 200 to 503 and back; the moment it has written
//! the deciding response is the probe's end. Another thread asks without pause.
//! FLIPS sets how often (default 100), OTHERS how many other endpoints turn at
//! their own pace meanwhile (default 200).

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use support::{Folder, Process, quantile, setting};

/// What the watched endpoint answers, and when it last did.
#[derive(Default)]
struct Endpoint {
    failing: AtomicBool,
    /// The first response written since the last turn.
    decided: Mutex<Option<Instant>>,
}

fn main() {
    let (flips, others) = (setting("FLIPS", 100), setting("OTHERS", 200));
    let endpoint = Arc::new(Endpoint::default());
    let port = serve_http(Arc::clone(&endpoint));

    let folder = Folder::new("changes");
    folder.write("bench.yaml", &configuration(port, others));
    let (_hale, address) = Process::hale(folder.path());
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(address).expect("a server");
    socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");

    let mut took = Vec::new();
    for flip in 0..flips {
        let failing = flip % 2 == 0;
        *endpoint.decided.lock().expect("no panic") = None;
        endpoint.failing.store(failing, Ordering::SeqCst);
        let changed = loop {
            if addresses(&socket) == usize::from(!failing) {
                break Instant::now();
            }
        };
        let decided = endpoint.decided.lock().expect("no panic").expect("it was probed");
        took.push(changed.saturating_duration_since(decided).as_secs_f64() * 1e3);
    }
    println!("from the deciding probe's end to the changed answer, {flips} turns, {others} others turning:");
    for (name, share) in [("least", 0.0), ("median", 0.5), ("90 %", 0.9), ("most", 1.0)] {
        println!("  {name:>6} {:8.2} ms", quantile(&mut took, share));
    }
    println!("  aim: median under 60 ms");
}

/// The watched endpoint alone in its pool, so that an answer carries it or none.
fn configuration(port: u16, others: u64) -> String {
    let mut text = format!(
        "monitors:\n  m: {{ type: http, port: {port}, interval: 100ms, timeout: 1s, \
         consecutive_up: 1, consecutive_down: 1 }}\n\
         zone: bench.test\nrecords: {{ '': {{ type: NS, value: ns.example.net. }} }}\n\
         load_balancers:\n  \
         watched: {{ default_pools: [watched], when_unavailable: nodata }}\n  \
         others: {{ default_pools: [others], when_unavailable: nodata }}\n\
         pools:\n  watched: {{ monitor: m, endpoints: [ {{ name: e, address: 127.77.0.1 }} ] }}\n  \
         others:\n    monitor: m\n    endpoints:\n      - {{ name: none, address: 127.77.1.0 }}\n"
    );
    for n in 1..=others {
        text += &format!("      - {{ name: e{n}, address: 127.77.{}.{} }}\n", 1 + n / 250, n % 250 + 1);
    }
    text
}

/// The number of addresses in the watched name's answer.
fn addresses(socket: &UdpSocket) -> usize {
    const QUERY: &[u8] = b"\0\x01\0\0\0\x01\0\0\0\0\0\0\x07watched\x05bench\x04test\0\0\x01\0\x01";
    let mut reply = [0; 512];
    socket.send(QUERY).expect("a query can be sent");
    socket.recv(&mut reply).expect("a reply comes");
    usize::from(reply[7])
}

/// Answers on every loopback address: the watched endpoint as it is told, the
/// others healthy and not in turn.
fn serve_http(watched: Arc<Endpoint>) -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        let mut count = 0u64;
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let is_watched =
                stream.local_addr().is_ok_and(|a| a.ip() == std::net::Ipv4Addr::new(127, 77, 0, 1));
            count += 1;
            let watched = Arc::clone(&watched);
            let failing = if is_watched { watched.failing.load(Ordering::SeqCst) } else { count % 7 < 3 };
            let _ = stream.read(&mut [0; 1024]);
            let status = if failing { "503 Out" } else { "200 In" };
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(head.as_bytes());
            if is_watched && watched.failing.load(Ordering::SeqCst) == failing {
                watched.decided.lock().expect("no panic").get_or_insert_with(Instant::now);
            }
        }
    });
    port
}
