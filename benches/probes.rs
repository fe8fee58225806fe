//! Many endpoints probed over loopback: is each on time, and what does it cost?
//!
//! One listener stands for all endpoints and notes when each was probed. Set
//! ENDPOINTS (10000), INTERVAL in seconds (10), ROUNDS (3) and TYPE (tcp or http).

mod support;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use support::{Folder, Process, quantile, setting};

type Seen = Arc<Mutex<HashMap<IpAddr, Vec<Instant>>>>;

fn main() {
    let (endpoints, interval, rounds) =
        (setting("ENDPOINTS", 10_000), setting("INTERVAL", 10), setting("ROUNDS", 3));
    let http = std::env::var("TYPE").is_ok_and(|text| text == "http");
    let seen = Seen::default();
    let port = listen(Arc::clone(&seen), http);
    let folder = Folder::new("probes");
    folder.write("bench.yaml", &configuration(endpoints, interval, port, http));
    let empty = Folder::new("probes-none");
    empty.write("bench.yaml", &configuration(1, interval, port, http));
    let base = Process::hale(empty.path()).0.memory();

    let (hale, _) = Process::hale(folder.path());
    std::thread::sleep(Duration::from_secs(interval)); // the first round is denser; leave it out
    seen.lock().expect("no panic").values_mut().for_each(Vec::clear);
    let (cpu, begun) = (hale.cpu(), Instant::now());
    for round in 1..=rounds {
        std::thread::sleep(Duration::from_secs(interval));
        eprintln!("round {round} of {rounds}");
    }
    let (cpu, wall) = (hale.cpu() - cpu, begun.elapsed());

    let seen = seen.lock().expect("no panic");
    let probes: usize = seen.values().map(Vec::len).sum();
    let mut gaps: Vec<f64> = (seen.values())
        .flat_map(|times| times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()))
        .collect();
    // beats may wander by 5 % either way, and an accept may wait for a core
    let on_time = gaps.iter().filter(|gap| (**gap / interval as f64 - 1.0).abs() <= 0.11).count();
    let kind = if http { "http" } else { "tcp" };
    println!("{endpoints} {kind} endpoints every {interval} s, {rounds} rounds:");
    println!(
        "  probes seen        {probes} ({:.1} % of due)",
        100.0 * probes as f64 / (endpoints * rounds) as f64
    );
    println!("  gaps on time       {:.2} % of {}", 100.0 * on_time as f64 / gaps.len() as f64, gaps.len());
    println!("  gap least / most   {:.2} / {:.2} s", quantile(&mut gaps, 0.0), quantile(&mut gaps, 1.0));
    println!("  cores used         {:.3}", cpu.as_secs_f64() / wall.as_secs_f64());
    println!("  a probe            {:.0} us of CPU", cpu.as_secs_f64() * 1e6 / probes as f64);
    println!("  memory             {:.1} MiB, {:.1} MiB with one endpoint", hale.memory(), base);
}

fn configuration(endpoints: u64, interval: u64, port: u16, http: bool) -> String {
    let kind = if http { "http" } else { "tcp" };
    let mut text = format!(
        "server: {{ startup_wait: 20s }}\n\
         monitors:\n  m: {{ type: {kind}, port: {port}, interval: {interval}s, timeout: 2s }}\n\
         zone: bench.test\nrecords: {{ '': {{ type: NS, value: ns.example.net. }} }}\n\
         load_balancers:\n  all: {{ default_pools: [p0], fallback_pool: p0 }}\npools:\n"
    );
    for first in (0..endpoints).step_by(4) {
        text += &format!("  p{first}:\n    monitor: m\n    endpoints:\n");
        for n in first..(first + 4).min(endpoints) {
            text +=
                &format!("      - {{ name: e{n}, address: {} }}\n", Ipv4Addr::from(0x7f40_0001 + n as u32));
        }
    }
    text
}

/// Accepts on every loopback address and notes who was meant.
fn listen(seen: Seen, http: bool) -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    for _ in 0..2 {
        let (listener, seen) = (listener.try_clone().expect("a descriptor"), Arc::clone(&seen));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { continue };
                let now = Instant::now();
                if let Ok(address) = stream.local_addr() {
                    seen.lock().expect("no panic").entry(address.ip()).or_default().push(now);
                }
                if http {
                    let _ = stream.read(&mut [0; 1024]);
                    let _ = stream
                        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                }
            }
        });
    }
    port
}
