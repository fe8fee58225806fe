//! That probes leave nothing behind, however they end.
//!
//! `HALE_LEAK_SECONDS=3600 cargo test --test it d03_ -- --nocapture` goes on for
//! an hour, with some nine hundred endpoints that are probed once a second under
//! `ulimit -n 1024`. Without it a hundred and fifty endpoints and 3000
//! connections are enough. What the server holds is printed on the way.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use haledns::app::tasks_of;
use haledns::model::Pool;
use haledns::probe::Prober;
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::WWW;
use crate::support::dns::ask;
use crate::support::folder::Folder;
use crate::support::hale::{Hale, until};
use crate::support::ports::free_address;

/// What an endpoint does to who connects.
#[derive(Clone, Copy, Debug)]
enum Manner {
    Passes,
    Hangs,
    /// The same after it has said this.
    Says(&'static str),
    DripsItsHead,
    DripsItsBody,
    NeverEnds,
    Resets,
    HangsUp,
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK";
const LOOP: &str = "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n";
const HALF: &str = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf";

/// Each way to end, and the monitor that comes to it.
const MANNERS: [(Manner, &str); 13] = [
    (Manner::Passes, "type: http"),
    (Manner::Hangs, "type: http, retries: 1"),
    (Manner::Hangs, "type: https, allow_insecure: true"),
    (Manner::Hangs, "type: smtp"),
    (Manner::Hangs, "type: tcp, send: hello, expect: hello"),
    // the head of a ServerHello's record
    (Manner::Says("\x16\x03\x03\0\x5a\x02"), "type: https, allow_insecure: true"),
    (Manner::Says(LOOP), "type: http, follow_redirects: true"),
    (Manner::Says(HALF), "type: http, expected_body: whole"),
    (Manner::DripsItsHead, "type: http"),
    (Manner::DripsItsBody, "type: http, expected_body: alive"),
    (Manner::NeverEnds, "type: http, expected_body: alive"),
    (Manner::Resets, "type: http"),
    (Manner::HangsUp, "type: http"),
];

async fn talk(mut stream: TcpStream, manner: Manner) -> std::io::Result<()> {
    let mut request = [0; 4096];
    match manner {
        Manner::Passes => {
            let _ = stream.read(&mut request).await?; // short requests come at once
            stream.write_all(OK.as_bytes()).await?;
            return stream.shutdown().await;
        }
        Manner::Says(words) => {
            let _ = stream.read(&mut request).await?;
            stream.write_all(words.as_bytes()).await?;
        }
        Manner::DripsItsHead | Manner::DripsItsBody => {
            let begin = if matches!(manner, Manner::DripsItsHead) {
                "HTTP/1.1 200 OK\r\nX: "
            } else {
                "HTTP/1.1 200 OK\r\n\r\n"
            };
            stream.write_all(begin.as_bytes()).await?;
            loop {
                stream.write_all(b"x").await?;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        Manner::NeverEnds => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
            loop {
                stream.write_all(&[b'x'; 4096]).await?;
            }
        }
        Manner::Resets => return socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)),
        Manner::HangsUp => return Ok(()),
        Manner::Hangs => {}
    }
    while stream.read(&mut request).await? > 0 {}
    Ok(())
}

/// Endpoints of every manner, at every address of loopback, while it lives.
struct Endpoints {
    ports: Vec<u16>,
    connections: Arc<AtomicUsize>,
    _runtime: tokio::runtime::Runtime,
    /// What takes no handshake, and what answers no datagram.
    silent: (SocketAddr, UdpSocket),
    _queue: Vec<socket2::Socket>,
}

impl Endpoints {
    fn start() -> Endpoints {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let connections: Arc<AtomicUsize> = Arc::default();
        let ports = MANNERS.iter().map(|&(manner, _)| {
            let connections = Arc::clone(&connections);
            let listener = runtime.block_on(TcpListener::bind("0.0.0.0:0")).unwrap();
            let port = listener.local_addr().unwrap().port();
            runtime.spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    connections.fetch_add(1, Ordering::Relaxed);
                    tokio::spawn(talk(stream, manner)); // how it ends is the client's affair
                }
            });
            port
        });
        let ports = ports.collect();
        let (address, queue) = full_queue();
        let datagrams = UdpSocket::bind("0.0.0.0:0").unwrap();
        Endpoints { ports, connections, _runtime: runtime, silent: (address, datagrams), _queue: queue }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Monitors and pools, `each` endpoints in a pool, probed this often.
    fn configuration(&self, each: usize, interval: &str, timeout: &str) -> String {
        let port = |number: usize| format!("port: {}", self.ports[number]);
        let mut kinds: Vec<String> = MANNERS
            .iter()
            .enumerate()
            .map(|(number, (_, monitor))| format!("{monitor}, {}", port(number)))
            .collect();
        let (unanswered, closed) = (self.silent.1.local_addr().unwrap().port(), free_address().port());
        kinds.push(format!("type: http, port: {}", self.silent.0.port()));
        kinds.push(format!("type: http, port: {closed}"));
        kinds.push(format!("type: dns, query_name: www.example.com, port: {unanswered}"));
        kinds.push(format!("type: dns, query_name: www.example.com, port: {closed}"));
        kinds.push("type: exec, command: [sleep, '1000']".into());
        kinds.push("type: exec, command: [sh, -c, 'sleep 1000 & exit 1']".into());
        if rustix::process::geteuid().is_root() {
            kinds.push(format!("type: udp_icmp, port: {unanswered}"));
            kinds.push(format!("type: udp_icmp, port: {closed}"));
            kinds.push("type: icmp_ping".into());
        }
        let mut text = "monitors:\n".to_owned();
        for (number, kind) in kinds.iter().enumerate() {
            let times = format!("interval: {interval}, timeout: {timeout}, recheck_interval: off");
            text += &format!("  m{number}: {{ {kind}, {times} }}\n");
        }
        text += "pools:\n";
        for number in 0..kinds.len() {
            // of the listener with the full queue there is one address only
            let network = if number == MANNERS.len() { 0 } else { number + 1 };
            let count = if network == 0 { 1 } else { each };
            let endpoint = |n: usize| format!("{{ name: e{n}, address: 127.{network}.0.{n} }}");
            let endpoints: Vec<String> = (1..=count).map(endpoint).collect();
            text +=
                &format!("  p{number}: {{ monitor: m{number}, endpoints: [{}] }}\n", endpoints.join(", "));
        }
        text
    }
}

/// A listener whose queue is full: it takes no handshake and refuses none.
fn full_queue() -> (SocketAddr, Vec<socket2::Socket>) {
    use socket2::{Domain, Socket, Type};
    let socket = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let listener = socket();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let filler = |_| {
        let filler = socket();
        filler.set_nonblocking(true).unwrap();
        let _ = filler.connect(&address); // it never comes to an end
        filler
    };
    let queue = (0..8).map(filler).collect::<Vec<_>>().into_iter().chain([listener]).collect();
    (address.as_socket().unwrap(), queue)
}

/// How much memory a process has, in KiB.
pub fn resident(hale: &Hale) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", hale.pid())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    resident.trim().trim_end_matches(" kB").parse().unwrap()
}

/// What a process holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    descriptors: usize,
    threads: usize,
    children: usize,
    kibibytes: usize,
}

impl Held {
    fn by(hale: &Hale) -> Held {
        let process = format!("/proc/{}", hale.pid());
        let count = |name: &str| fs::read_dir(format!("{process}/{name}")).unwrap().count();
        let tasks = fs::read_dir(format!("{process}/task")).unwrap().flatten();
        let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        Held {
            descriptors: count("fd"),
            threads: count("task"),
            children: children.map(|list| list.split_whitespace().count()).sum(),
            kibibytes: resident(hale),
        }
    }
}

impl Held {
    /// The most of each.
    fn most(self, other: Held) -> Held {
        Held {
            descriptors: self.descriptors.max(other.descriptors),
            threads: self.threads.max(other.threads),
            children: self.children.max(other.children),
            kibibytes: self.kibibytes.max(other.kibibytes),
        }
    }

    /// It holds no more than before. Of the runtime's threads for what blocks
    /// some more may be waiting for work, and memory is a matter of its own.
    fn is_no_more_than(&self, before: &Held) -> bool {
        self.descriptors <= before.descriptors
            && self.threads <= before.threads + 4
            && self.children <= before.children
    }
}

/// How long a run lasts, and with how many endpoints.
struct Run {
    lasts: Duration,
    connections: usize,
    each: usize,
    times: (&'static str, &'static str),
    files: usize,
    sample_every: Duration,
}

impl Run {
    fn asked_for() -> Run {
        let seconds = |text: String| text.parse().expect("HALE_LEAK_SECONDS is a number");
        match std::env::var("HALE_LEAK_SECONDS").ok().map(seconds) {
            None => Run {
                lasts: Duration::ZERO,
                connections: 3000,
                each: 8,
                times: ("200ms", "100ms"),
                files: 256,
                sample_every: Duration::from_secs(1),
            },
            Some(seconds) => Run {
                lasts: Duration::from_secs(seconds),
                connections: 0,
                each: 47,
                times: ("1s", "500ms"),
                files: 1024,
                sample_every: Duration::from_secs((seconds / 60).max(1)),
            },
        }
    }
}

#[test]
fn d03_descriptors_threads_and_memory_are_what_they_were_after_probes_that_end_in_every_way() {
    let run = Run::asked_for();
    let endpoints = Endpoints::start();
    let zone = "zone: example.test\n\
                records: { '': { type: NS, value: ns.example.net. } }\n\
                load_balancers: { www: { default_pools: [sorry], fallback_pool: sorry } }\n";
    let sorry = "sorry: { endpoints: [{ name: static, address: 203.0.113.5 }] }\n";
    let server = "server: { allow_exec: true, startup_wait: 0 }\n";
    let idle = format!("{server}pools:\n  {sorry}{zone}");
    let busy =
        format!("{server}{}  {sorry}{zone}", endpoints.configuration(run.each, run.times.0, run.times.1));
    let folder = Folder::with("a.yaml", &idle);
    let mut command = Command::new("sh");
    let limited = format!("ulimit -n {} && exec \"$@\"", run.files);
    command
        .args(["-c", &limited, "sh", env!("CARGO_BIN_EXE_hale"), "serve"])
        .arg(folder.join("a.yaml"))
        .args(["--listen", "127.0.0.1:0"])
        .env("STATE_DIRECTORY", folder.join("state"));
    let hale = Hale::start(command);
    let address = hale.address();
    let reload = |text: &str| {
        let mark = hale.mark();
        folder.replace("a.yaml", text);
        hale.signal(Signal::HUP);
        hale.line_after(mark, "configuration reloaded");
    };
    // once there and back, so that what is made with the first use is there already
    reload(&busy);
    until("every manner was met", || endpoints.connections() >= 4 * MANNERS.len() * run.each);
    reload(&idle);
    let mut before = Held::by(&hale);
    until("nothing is probed any more", || {
        let last = std::mem::replace(&mut before, Held::by(&hale));
        std::thread::sleep(Duration::from_millis(500)); // probes that were given up end soon
        let same = Held::by(&hale);
        (last.descriptors, last.threads, last.children) == (same.descriptors, same.threads, same.children)
    });

    reload(&busy);
    let (begun, first) = (Instant::now(), endpoints.connections());
    let mut samples: Vec<Held> = Vec::new();
    let mut most = before;
    while begun.elapsed() < run.lasts || endpoints.connections() < first + run.connections {
        let so_far = endpoints.connections();
        until("more connections come", || endpoints.connections() >= so_far + 50);
        assert!(ask(address, WWW).is(&["203.0.113.5"]), "queries are answered all the time");
        let now = Held::by(&hale);
        most = most.most(now);
        if begun.elapsed() >= run.sample_every * (samples.len() as u32 + 1) {
            println!("{:.0?}: {} connections, {now:?}", begun.elapsed(), endpoints.connections() - first);
            std::io::stdout().flush().unwrap();
            samples.push(now);
        }
    }
    let (made, took) = (endpoints.connections() - first, begun.elapsed());
    assert!(most.descriptors <= run.files, "{most:?}");
    assert_eq!(hale.count("panicked"), 0, "{}", hale.log());

    reload(&idle);
    let mut after = Held::by(&hale);
    let patience = Instant::now();
    while !after.is_no_more_than(&before) && patience.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
        after = Held::by(&hale);
    }
    println!("{made} connections in {took:.1?}\nbefore {before:?}\nmost   {most:?}\nafter  {after:?}");
    assert!(after.is_no_more_than(&before), "before {before:?}, after {made} connections {after:?}");
    let room = before.kibibytes + (32 << 10);
    assert!(
        after.kibibytes < room && most.kibibytes < room + (64 << 10),
        "before {before:?}, {most:?}, {after:?}"
    );
    // of a long run the last quarter takes no more memory than the second one
    // did; how many probes are on their way at once is a matter of load
    if let quarter @ 3.. = samples.len() / 4 {
        let most_of = |part: &[Held]| part.iter().map(|held| held.kibibytes).max().expect("it isn't empty");
        let (early, late) = (most_of(&samples[quarter..2 * quarter]), most_of(&samples[3 * quarter..]));
        assert!(late <= early + (8 << 10), "the second quarter {early} KiB, the last one {late} KiB");
    }
}

#[test]
fn d03_no_task_is_left_of_a_probe_however_it_ends() {
    let endpoints = Endpoints::start();
    let text = format!(
        "server: {{ allow_exec: true }}\n{}zone: example.test\n\
         records: {{ '': {{ type: NS, value: ns.example.net. }} }}\n\
         load_balancers: {{ www: {{ default_pools: [p0], fallback_pool: p0 }} }}\n",
        endpoints.configuration(2, "200ms", "100ms")
    );
    let loaded = haledns::config::load_texts(vec![("a.yaml".into(), text.into())]);
    let loaded = loaded.unwrap_or_else(|report| panic!("{report}"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let of_pool = |pool: &Pool| runtime.block_on(tasks_of(&loaded, &pool.name)).unwrap().0;
    let tasks: Vec<_> = loaded.model.pools.iter().flat_map(of_pool).collect();
    let prober = Arc::new(Prober::new());
    for round in 0..5 {
        runtime.block_on(async {
            let mut probes = tokio::task::JoinSet::new();
            for task in &tasks {
                let (prober, task) = (Arc::clone(&prober), Arc::clone(task));
                probes.spawn(async move { prober.run(&task).await });
            }
            if round % 2 == 1 {
                tokio::time::sleep(Duration::from_millis(20)).await; // given up on the way
                probes.abort_all();
            }
            while probes.join_next().await.is_some() {}
        });
    }
    let left = || runtime.metrics().num_alive_tasks();
    until("no task is left", || left() == 0);
}
