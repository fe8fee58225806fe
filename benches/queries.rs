//! Queries over UDP beside hickory-server, the reference that needs nothing
//! installed: both serve the same names on loopback, from one thread each, in
//! turn slices, and the ratios of a run are what counts.
//!
//! ROUNDS sets the number of slices for each server (default 10).

mod support;

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hickory_server::Server;
use hickory_server::proto::rr::rdata::{A, SOA};
use hickory_server::proto::rr::{LowerName, Name, RData, Record};
use hickory_server::store::in_memory::InMemoryZoneHandler;
use hickory_server::zone_handler::{AxfrPolicy, Catalog, ZoneHandler, ZoneType};

use support::{Folder, Process, quantile, setting};

/// Names in the zone.
const NAMES: u32 = 1000;
/// Queries on their way at once.
const WINDOW: usize = 64;
const SLICE: Duration = Duration::from_millis(500);

fn main() {
    if std::env::args().any(|argument| argument == "--reference") {
        return serve_reference();
    }
    let folder = Folder::new("queries");
    folder.write("bench.yaml", &configuration());
    let (hale, hale_address) = Process::hale(folder.path());
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    let reference = Process::start(command.arg("--reference"));
    let reference_address = reference.wait_for(|line| line.strip_prefix("on ")?.parse().ok());

    println!("one thread each, {NAMES} names, {WINDOW} queries on their way at once");
    for (load, what) in [('s', "static A"), ('d', "load balancer of 4 endpoints / 4 static A")] {
        let mut ratios = [Vec::new(), Vec::new()];
        for _ in 0..setting("ROUNDS", 10) {
            let ours = slice(&hale, hale_address, load);
            let theirs = slice(&reference, reference_address, load);
            ratios[0].push(ours.0 / theirs.0);
            ratios[1].push(ours.1 / theirs.1);
        }
        let [cpu, rate] = &mut ratios;
        println!(
            "  {what}: CPU a query {:.2} of hickory-server's, {:.1} times its queries a second",
            quantile(cpu, 0.5),
            quantile(rate, 0.5)
        );
    }
    println!("  memory: {:.1} MiB, hickory-server {:.1} MiB", hale.memory(), reference.memory());
}

/// CPU seconds an answer, and answers a second, over one slice.
fn slice(server: &Process, address: SocketAddr, load: char) -> (f64, f64) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(address).expect("a server");
    socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let (cpu, begun) = (server.cpu(), Instant::now());
    let (mut answers, mut sent) = (0u64, 0u32);
    let mut reply = [0; 1500];
    let send = |n: u32| socket.send(&query(load, n)).map(drop);
    while begun.elapsed() < SLICE {
        while sent.wrapping_sub(answers as u32) < WINDOW as u32 {
            let _ = send(sent);
            sent += 1;
        }
        match socket.recv(&mut reply) {
            Ok(_) => {
                assert!(reply[3] & 15 == 0 && reply[7] > 0, "an answer with addresses");
                answers += 1;
            }
            Err(_) => sent = answers as u32, // a loss: what is missing is sent again
        }
    }
    let wall = begun.elapsed().as_secs_f64();
    ((server.cpu() - cpu).as_secs_f64() / answers as f64, answers as f64 / wall)
}

fn query(load: char, n: u32) -> Vec<u8> {
    let [id_high, id_low] = (n as u16).to_be_bytes();
    let mut octets = vec![id_high, id_low, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 5];
    octets.extend(format!("{load}{:04}", n % NAMES).bytes());
    octets.extend(b"\x05bench\x04test\0\0\x01\0\x01");
    octets
}

fn endpoints(n: u32) -> impl Iterator<Item = std::net::Ipv4Addr> {
    (0..4).map(move |k| (0xc633_6400 + (n * 4 + k) % 250 + 1).into())
}

fn configuration() -> String {
    let mut text = String::from(
        "server: { udp_workers: 1 }\nzone: bench.test\nrecords:\n  '': { type: NS, value: ns.example.net. }\n",
    );
    for n in 0..NAMES {
        text += &format!("  s{n:04}: {{ type: A, ttl: 300, value: 192.0.2.1 }}\n");
    }
    text += "load_balancers:\n";
    for n in 0..NAMES {
        text += &format!("  d{n:04}: {{ ttl: 300, default_pools: [p{n}], fallback_pool: p{n} }}\n");
    }
    text += "pools:\n";
    for n in 0..NAMES {
        let list: Vec<_> = endpoints(n).map(|a| format!("{{ name: '{a}', address: {a} }}")).collect();
        text += &format!("  p{n}: {{ endpoints: [ {} ] }}\n", list.join(", "));
    }
    text
}

/// The reference: hickory-server with its in-memory zone.
fn serve_reference() {
    let apex = Name::from_ascii("bench.test.").expect("a name");
    let mut zone = InMemoryZoneHandler::<hickory_server::net::runtime::TokioRuntimeProvider>::empty(
        apex.clone(),
        ZoneType::Primary,
        AxfrPolicy::Deny,
    );
    let soa = SOA::new(apex.clone(), apex.clone(), 1, 3600, 600, 86400, 60);
    zone.upsert_mut(Record::from_rdata(apex.clone(), 300, RData::SOA(soa)), 0);
    for n in 0..NAMES {
        let name = |load: char| Name::from_ascii(format!("{load}{n:04}.bench.test.")).expect("a name");
        let one = A::new(192, 0, 2, 1);
        zone.upsert_mut(Record::from_rdata(name('s'), 300, RData::A(one)), 0);
        for address in endpoints(n) {
            zone.upsert_mut(Record::from_rdata(name('d'), 300, RData::A(A(address))), 0);
        }
    }
    let mut catalog = Catalog::new();
    catalog.upsert(LowerName::from(apex), vec![Arc::new(zone) as Arc<dyn ZoneHandler>]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut server = Server::new(catalog);
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        eprintln!("on {}", socket.local_addr().expect("it is bound"));
        server.register_socket(socket);
        server.block_until_done().await.expect("it serves until it is killed");
    });
}
