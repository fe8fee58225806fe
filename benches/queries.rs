//! Queries over UDP beside other servers: all serve the same names on loopback,
//! from one thread each, in turn slices, and the ratios of a run are what counts.
//!
//! A second hale counts replies for rate limiting, to tell what that costs.
//! hickory-server is always there; gdnsd and NSD join in where they are
//! installed. ROUNDS sets the number of slices for each server (default 10).

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
        return serve_hickory();
    }
    let folder = Folder::new("queries");
    let mut servers = Vec::new();
    // rates that are never reached: what is measured is to count
    let limited =
        ", rate_limit: { responses_per_second: 1000, log_only: true }, proxy_protocol: 192.0.2.0/24";
    for (name, settings) in [("hale", ""), ("hale, limiting", limited)] {
        let file = format!("{}.yaml", if settings.is_empty() { "bench" } else { "limiting" });
        folder.write(&file, &configuration(settings));
        let (hale, address) = Process::hale(&folder.path().join(&file));
        servers.push((name, hale, address));
    }
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    let hickory = Process::start(command.arg("--reference"));
    let address = hickory.wait_for(|line| line.strip_prefix("on ")?.parse().ok());
    servers.push(("hickory-server", hickory, address));
    for (name, start) in [("gdnsd", gdnsd as fn(&Folder, u16) -> Command), ("nsd", nsd)] {
        let port =
            UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
        let mut command = start(&folder, port);
        if Command::new(command.get_program()).arg("-V").output().is_err() {
            println!("{name} is not installed");
            continue;
        }
        let process = Process::start(&mut command);
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if !answers(address) {
            println!("{name} doesn't answer:");
            process.lines.try_iter().for_each(|line| println!("  {line}"));
            continue;
        }
        servers.push((name, process, address));
    }

    println!(
        "one thread each, {NAMES} names, {WINDOW} queries on their way at once; medians of hale's ratios"
    );
    for (load, what) in
        [('s', "static A"), ('d', "4 endpoints with health (hickory-server, NSD: 4 static A)")]
    {
        println!("  {what}");
        let mut slices = vec![Vec::new(); servers.len()];
        for _ in 0..setting("ROUNDS", 10) {
            for ((_, server, address), slices) in servers.iter().zip(&mut slices) {
                slices.push(slice(server, *address, load));
            }
        }
        let (ours, others) = slices.split_first().expect("hale is the first");
        for ((name, ..), theirs) in servers[1..].iter().zip(others) {
            let pairs = || ours.iter().zip(theirs);
            let mut cpu: Vec<f64> = pairs().map(|(our, their)| our.0 / their.0).collect();
            let mut rate: Vec<f64> = pairs().map(|(our, their)| our.1 / their.1).collect();
            let (cpu, rate) = (quantile(&mut cpu, 0.5), quantile(&mut rate, 0.5));
            println!("    {name:<15} CPU a query {cpu:5.2}   queries a second {rate:5.2}");
        }
    }
    for (name, server, _) in &servers {
        println!("  {name:<15} {:6.1} MiB", server.memory());
    }
}

/// Whether something answers there within some 20 seconds.
fn answers(address: SocketAddr) -> bool {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(address).expect("an address");
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    (0..200).any(|_| {
        let answered = socket.send(&query('s', 0)).and_then(|_| socket.recv(&mut [0; 512])).is_ok();
        if !answered {
            std::thread::sleep(Duration::from_millis(20));
        }
        answered
    })
}

const MASTER_FILE_HEAD: &str =
    "$TTL 300\n@ SOA ns.example.net. hostmaster 1 3600 600 86400 60\n@ NS ns.example.net.\n";

/// NSD with the same names, the load balancers' as four static records.
fn nsd(folder: &Folder, port: u16) -> Command {
    let mut zone = MASTER_FILE_HEAD.to_owned();
    for n in 0..NAMES {
        zone += &format!("s{n:04} A 192.0.2.1\n");
        endpoints(n).for_each(|address| zone += &format!("d{n:04} A {address}\n"));
    }
    folder.write("bench.test.zone", &zone);
    let here = folder.path().display();
    folder.write(
        "nsd.conf",
        &format!(
            "server:\n  server-count: 1\n  ip-address: 127.0.0.1@{port}\n  username: \"\"\n  chroot: \"\"\n  \
             zonesdir: \"{here}\"\n  database: \"\"\n  pidfile: \"{here}/nsd.pid\"\n  xfrdfile: \"{here}/xfrd\"\n  \
             zonelistfile: \"{here}/nsd.list\"\n  xfrdir: \"{here}\"\n  logfile: \"{here}/nsd.log\"\n  rrl-ratelimit: 0\n  \
             minimal-responses: yes\nremote-control:\n  control-enable: no\n\
             zone:\n  name: bench.test\n  zonefile: bench.test.zone\n"
        ),
    );
    let mut command = Command::new("nsd");
    command.arg("-d").arg("-c").arg(folder.path().join("nsd.conf"));
    command
}

/// gdnsd with the same names, the load balancers' as its own health-managed ones.
fn gdnsd(folder: &Folder, port: u16) -> Command {
    let here = folder.path().display();
    let mut zone = MASTER_FILE_HEAD.to_owned();
    let mut config = format!(
        "options => {{ listen => 127.0.0.1:{port}, udp_threads => 1, tcp_threads => 1, run_dir => {here}/run, \
         state_dir => {here}/state }}\nplugins => {{ multifo => {{\n  service_types => up\n  up_thresh => 0.01\n"
    );
    for n in 0..NAMES {
        zone += &format!("s{n:04} A 192.0.2.1\nd{n:04} DYNA multifo!r{n}\n");
        let list: Vec<String> =
            endpoints(n).enumerate().map(|(k, address)| format!("a{k} => {address}")).collect();
        config += &format!("  r{n} => {{ {} }}\n", list.join(", "));
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

fn configuration(settings: &str) -> String {
    let mut text = format!(
        "server: {{ udp_workers: 1{settings} }}\nzone: bench.test\nrecords:\n  '': {{ type: NS, value: ns.example.net. }}\n"
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

/// hickory-server with its in-memory zone.
fn serve_hickory() {
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
