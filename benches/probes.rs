//! Many endpoints probed over loopback: is each on time, and what does it cost?
//!
//! One listener stands for all endpoints and notes when each was probed. Set
//! ENDPOINTS (10000), INTERVAL in seconds (10), ROUNDS (3) and TYPE (tcp, http or
//! https). With tcp, gdnsd probes the same endpoints afterwards where it is
//! installed.

mod support;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use support::{Folder, Process, quantile, setting};

type Seen = Arc<Mutex<HashMap<IpAddr, Vec<Instant>>>>;

/// What is probed how.
#[derive(Clone)]
struct Plan {
    endpoints: u64,
    interval: u64,
    rounds: u64,
    kind: String,
    port: u16,
}

fn main() {
    let kind = std::env::var("TYPE").unwrap_or_else(|_| "tcp".into());
    let seen = Seen::default();
    let folder = Folder::new("probes");
    let tls = (kind == "https").then(|| certificate(&folder));
    let plan = Plan {
        endpoints: setting("ENDPOINTS", 10_000),
        interval: setting("INTERVAL", 10),
        rounds: setting("ROUNDS", 3),
        port: listen(Arc::clone(&seen), &kind, tls),
        kind,
    };
    let empty = Folder::new("probes-none");
    let one = Plan { endpoints: 1, ..plan.clone() };
    empty.write("bench.yaml", &configuration(&one, &folder));
    let base = Process::hale(empty.path()).0.memory();

    folder.write("bench.yaml", &configuration(&plan, &folder));
    let (hale, _) = Process::hale(folder.path());
    let cost = measure("hale", &hale, &plan, &seen);
    let targets = plan.endpoints as f64;
    println!("  memory             {:.1} MiB, {base:.1} MiB with one endpoint", hale.memory());
    println!("  memory a target    {:.2} KiB", (hale.memory() - base) * 1024.0 / targets);
    drop(hale);

    let installed = Command::new("gdnsd").arg("version").output().is_ok();
    if plan.kind == "tcp" && installed {
        let folder = Folder::new("probes-gdnsd");
        let gdnsd = Process::start(&mut gdnsd(&folder, &plan));
        let other = measure("gdnsd", &gdnsd, &plan, &seen);
        println!("  memory             {:.1} MiB", gdnsd.memory());
        println!("a probe of hale costs {:.2} of one of gdnsd", cost / other);
    }
}

/// Tells how a prober does; gives the CPU seconds of a probe.
fn measure(name: &str, prober: &Process, plan: &Plan, seen: &Seen) -> f64 {
    let Plan { endpoints, interval, rounds, kind, .. } = plan;
    // the first round is denser; leave it out
    std::thread::sleep(Duration::from_secs(interval + 1));
    seen.lock().expect("no panic").clear();
    let (cpu, begun) = (prober.cpu(), Instant::now());
    for round in 1..=*rounds {
        std::thread::sleep(Duration::from_secs(*interval));
        eprintln!("round {round} of {rounds}");
    }
    let (cpu, wall) = (prober.cpu() - cpu, begun.elapsed());
    let seen = seen.lock().expect("no panic");
    let probes: usize = seen.values().map(Vec::len).sum();
    let mut gaps: Vec<f64> = (seen.values())
        .flat_map(|times| times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()))
        .collect();
    // beats may wander by 5 % either way, and an accept may wait for a core
    let on_time = gaps.iter().filter(|gap| (**gap / *interval as f64 - 1.0).abs() <= 0.11).count();
    println!("{name}: {endpoints} {kind} endpoints every {interval} s, {rounds} rounds");
    let due = 100.0 * probes as f64 / (endpoints * rounds) as f64;
    println!("  probes seen        {probes} ({due:.1} % of due)");
    if !gaps.is_empty() {
        let share = 100.0 * on_time as f64 / gaps.len() as f64;
        println!("  gaps on time       {share:.2} % of {}", gaps.len());
        println!("  gap least / most   {:.2} / {:.2} s", quantile(&mut gaps, 0.0), quantile(&mut gaps, 1.0));
    }
    println!("  cores used         {:.3}", cpu.as_secs_f64() / wall.as_secs_f64());
    println!("  a probe            {:.0} us of CPU", cpu.as_secs_f64() * 1e6 / probes.max(1) as f64);
    cpu.as_secs_f64() / probes.max(1) as f64
}

/// gdnsd with the same endpoints, four in each of its pools.
fn gdnsd(folder: &Folder, plan: &Plan) -> Command {
    let Plan { endpoints, interval, port, .. } = plan;
    let here = folder.path().display();
    let mut zone = String::from(
        "$TTL 300\n@ SOA ns.example.net. hostmaster 1 3600 600 86400 60\n@ NS ns.example.net.\n",
    );
    let mut config = format!(
        "options => {{ listen => 127.0.0.1:0, udp_threads => 1, tcp_threads => 1, run_dir => {here}/run, \
         state_dir => {here}/state }}\nservice_types => {{ m => {{ plugin => tcp_connect, port => {port}, \
         interval => {interval}, timeout => 2, up_thresh => 2, ok_thresh => 2, down_thresh => 3 }} }}\n\
         plugins => {{ multifo => {{\n  service_types => m\n  up_thresh => 0.01\n"
    );
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    config = config.replace("127.0.0.1:0", &free.expect("a port").to_string());
    for first in (0..*endpoints).step_by(4) {
        let four = first..(first + 4).min(*endpoints);
        let list: Vec<String> = four.map(|n| format!("a{n} => {}", address(n))).collect();
        config += &format!("  r{first} => {{ {} }}\n", list.join(", "));
        zone += &format!("d{first} DYNA multifo!r{first}\n");
    }
    for name in ["zones", "run", "state"] {
        std::fs::create_dir_all(folder.path().join(name)).expect("a folder");
    }
    folder.write("zones/bench.test", &zone);
    folder.write("config", &(config + "} }\n"));
    let mut command = Command::new("gdnsd");
    command.arg("-c").arg(folder.path()).arg("start");
    command
}

fn address(n: u64) -> Ipv4Addr {
    Ipv4Addr::from(0x7f40_0001 + n as u32)
}

fn configuration(plan: &Plan, folder: &Folder) -> String {
    let Plan { endpoints, interval, kind, port, .. } = plan;
    let tls = match kind.as_str() {
        "https" => {
            format!(", header: {{ Host: bench.test }}, ca_file: {}", folder.path().join("ca.pem").display())
        }
        _ => String::new(),
    };
    let mut text = format!(
        "server: {{ startup_wait: 20s, history: off }}\n\
         monitors:\n  m: {{ type: {kind}, port: {port}, interval: {interval}s, timeout: 2s{tls} }}\n\
         zone: bench.test\nrecords: {{ '': {{ type: NS, value: ns.example.net. }} }}\n\
         load_balancers:\n  all: {{ default_pools: [p0], fallback_pool: p0 }}\npools:\n"
    );
    for first in (0..*endpoints).step_by(4) {
        text += &format!("  p{first}:\n    monitor: m\n    endpoints:\n");
        for n in first..(first + 4).min(*endpoints) {
            text += &format!("      - {{ name: e{n}, address: {} }}\n", address(n));
        }
    }
    text
}

/// A certificate for bench.test and its key; its own authority, in `ca.pem`.
fn certificate(folder: &Folder) -> Arc<rustls::ServerConfig> {
    let made = rcgen::generate_simple_self_signed(["bench.test".to_owned()]).expect("a certificate");
    folder.write("ca.pem", &made.cert.pem());
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let chain = vec![CertificateDer::from(made.cert)];
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = builder.expect("versions").with_no_client_auth().with_single_cert(chain, key);
    Arc::new(config.expect("the key is the certificate's"))
}

/// Accepts on every loopback address and notes who was meant.
fn listen(seen: Seen, kind: &str, tls: Option<Arc<rustls::ServerConfig>>) -> u16 {
    const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let listener = TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    let http = kind != "tcp";
    for _ in 0..2 {
        let listener = listener.try_clone().expect("a descriptor");
        let (seen, tls) = (Arc::clone(&seen), tls.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { continue };
                let now = Instant::now();
                if let Ok(address) = stream.local_addr() {
                    seen.lock().expect("no panic").entry(address.ip()).or_default().push(now);
                }
                if let Some(tls) = &tls {
                    let Ok(session) = rustls::ServerConnection::new(Arc::clone(tls)) else { continue };
                    let mut stream = rustls::StreamOwned::new(session, stream);
                    let _ = stream.read(&mut [0; 1024]);
                    let _ = stream.write_all(REPLY);
                } else if http {
                    let _ = stream.read(&mut [0; 1024]);
                    let _ = stream.write_all(REPLY);
                }
            }
        });
    }
    port
}
