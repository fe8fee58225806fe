//! What a service manager and this program say to each other; the tests play
//! systemd.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::{WWW, fixed};
use crate::support::dns::{ask, ask_tcp, connect};
use crate::support::folder::Folder;
use crate::support::hale::{Hale, PATIENCE, command, signal, until};
use crate::support::programs::need;

/// A socket that hears what systemd would.
struct Manager {
    socket: UnixDatagram,
    heard: Vec<String>,
}

impl Manager {
    fn new(folder: &Folder) -> Manager {
        let socket = UnixDatagram::bind(folder.join("notify")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Manager { socket, heard: Vec::new() }
    }

    /// Waits for a message that begins so.
    fn hear(&mut self, beginning: &str) -> String {
        loop {
            let mut octets = [0; 1024];
            let Ok(length) = self.socket.recv(&mut octets) else {
                panic!("never: {beginning}; heard: {:?}", self.heard)
            };
            let message = String::from_utf8(octets[..length].to_vec()).unwrap();
            self.heard.push(message.clone());
            if message.starts_with(beginning) {
                return message;
            }
        }
    }
}

fn serve(folder: &Folder) -> Command {
    let mut serve = command(["serve", folder.join("a.yaml").to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    serve.env("NOTIFY_SOCKET", folder.join("notify"));
    serve
}

#[test]
fn systemd_hears_when_it_answers_when_it_reads_files_and_when_it_ends() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let mut manager = Manager::new(&folder);
    let hale = Hale::start(serve(&folder));
    manager.hear("READY=1");
    assert!(ask(hale.address(), WWW).is(&["192.0.2.1"]), "ready means answering");
    let status = manager.hear("STATUS=");
    assert_eq!(status.trim_end(), "STATUS=1 zone, 2 of 2 endpoints fit to serve");

    folder.write("a.yaml", &fixed("192.0.2.2", 30));
    hale.signal(Signal::HUP);
    let reloading = manager.hear("RELOADING=1");
    let time = reloading.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
    assert!(time.is_some_and(|time| time.parse::<u64>().is_ok_and(|time| time > 0)), "{reloading}");
    manager.hear("READY=1");
    assert!(ask(hale.address(), WWW).is(&["192.0.2.2"]), "ready again means answering from the new files");

    folder.write("a.yaml", "zone: [");
    hale.signal(Signal::HUP);
    manager.hear("RELOADING=1");
    manager.hear("READY=1"); // a refused one is over, too

    hale.signal(Signal::TERM);
    manager.hear("STOPPING=1");
    assert_eq!(hale.ended().code(), Some(0));
}

#[test]
fn the_watchdog_is_fed_while_all_is_alive() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let mut manager = Manager::new(&folder);
    let mut serve = serve(&folder);
    serve.env("WATCHDOG_USEC", "400000");
    let hale = Hale::start(serve);
    manager.hear("READY=1");
    for _ in 0..5 {
        manager.hear("WATCHDOG=1");
    }
    // a process that is stopped can't feed it, which is what a hang looks like from outside
    signal(hale.pid(), Signal::STOP);
    manager.socket.set_nonblocking(true).unwrap();
    let mut octets = [0; 1024];
    until("no more is heard", || manager.socket.recv(&mut octets).is_err());
    signal(hale.pid(), Signal::CONT);
    manager.socket.set_nonblocking(false).unwrap();
    manager.hear("WATCHDOG=1");
}

#[test]
fn a_watchdog_that_wants_the_impossible_is_told_so_once_and_fed_all_the_same() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let mut manager = Manager::new(&folder);
    let mut serve = serve(&folder);
    serve.env("WATCHDOG_USEC", "1");
    let hale = Hale::start(serve);
    manager.hear("READY=1");
    for _ in 0..20 {
        manager.hear("WATCHDOG=1");
    }
    assert_eq!(hale.count("WATCHDOG_USEC"), 1, "{}", hale.log());
    assert_eq!(hale.count("the health engine doesn't turn"), 0, "{}", hale.log());
}

/// Starts it with these two sockets as descriptors 3 and 4.
fn pass(folder: &Folder, names: Option<&str>, sockets: [OwnedFd; 2], more: &[&str]) -> std::process::Child {
    let [one, other] = sockets;
    let path = folder.join("a.yaml");
    let script = "exec 3<&0 4<&1 </dev/null >/dev/null; LISTEN_PID=$$ exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_hale"), "serve", path.to_str().unwrap()]).args(more);
    command.env("LISTEN_FDS", "2").env("STATE_DIRECTORY", folder.join("state"));
    if let Some(names) = names {
        command.env("LISTEN_FDNAMES", names);
    }
    let log = std::fs::File::create(folder.join("log")).unwrap();
    command.stdin(Stdio::from(one)).stdout(Stdio::from(other)).stderr(log).spawn().unwrap()
}

/// Kills what it holds.
struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pair() -> (UdpSocket, TcpListener, SocketAddr) {
    loop {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = udp.local_addr().unwrap();
        if let Ok(tcp) = TcpListener::bind(address) {
            return (udp, tcp, address);
        }
    }
}

#[test]
fn passed_sockets_answer_and_what_arrives_between_two_runs_is_not_lost() {
    let folder = Folder::with(
        "a.yaml",
        &format!("server: {{ udp_workers: 3, listen: [\"192.0.2.1:53\"] }}\n{}", fixed("192.0.2.1", 30)),
    );
    let (udp, tcp, address) = pair();
    for names in [None, Some("dns:dns"), Some("hale.socket:unknown")] {
        let sockets = [udp.try_clone().unwrap().into(), tcp.try_clone().unwrap().into()];
        // this query waits in the socket until somebody answers there
        let early = crate::support::dns::socket(address);
        early.send(&crate::support::dns::query(7, WWW)).unwrap();
        let mut child = Child(pass(&folder, names, sockets, &[]));
        let mut reply = [0; 1500];
        let length = early.recv(&mut reply).expect("a reply");
        assert!(crate::support::dns::read(&reply[..length]).is(&["192.0.2.1"]));
        for _ in 0..20 {
            assert!(ask(address, WWW).is(&["192.0.2.1"]), "{names:?}");
        }
        assert!(ask_tcp(&mut connect(address), WWW).is(&["192.0.2.1"]), "{names:?}");
        signal(child.0.id(), Signal::TERM);
        let mut status = None;
        until("it ends", || {
            status = child.0.try_wait().unwrap();
            status.is_some()
        });
        let log = std::fs::read_to_string(folder.join("log")).unwrap();
        assert!(status.unwrap().success(), "{log}");
        assert!(log.contains(&format!("serving on {address} (UDP and TCP)")), "{log}");
    }
}

#[test]
fn sockets_that_cannot_be_used_are_explained() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let unix = || UnixDatagram::unbound().unwrap().into();
    for (names, second, words) in [
        (
            "dns:dot",
            None,
            "the socket `dot` that the service manager has passed can't be used: its name is none of",
        ),
        (
            "tls:dns",
            None,
            "the socket `tls` that the service manager has passed can't be used: it is for datagrams",
        ),
        (
            "dns:quic",
            None,
            "the socket `quic` that the service manager has passed can't be used: it is for streams",
        ),
        (
            "dns:dns",
            Some(unix()),
            "`dns` that the service manager has passed can't be used: it is no socket of IPv4",
        ),
        (
            "dns",
            None,
            "the sockets that the service manager has passed can't be used: invalid LISTEN_FDNAMES",
        ),
        ("dns:tls", None, "needs a certificate"),
    ] {
        let (udp, tcp, _) = pair();
        let second = second.unwrap_or_else(|| tcp.into());
        let mut child = Child(pass(&folder, Some(names), [udp.into(), second], &[]));
        let mut status = None;
        until("it ends", || {
            status = child.0.try_wait().unwrap();
            status.is_some()
        });
        let log = std::fs::read_to_string(folder.join("log")).unwrap();
        assert_eq!(status.unwrap().code(), Some(1), "{log}");
        assert!(log.contains(words), "{names}: {log}");
    }
}

#[test]
fn sockets_for_another_process_are_left_alone() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let mut serve = serve(&folder);
    serve.env("LISTEN_PID", "1").env("LISTEN_FDS", "2").env_remove("NOTIFY_SOCKET");
    assert!(ask(Hale::start(serve).address(), WWW).is(&["192.0.2.1"]));
}

#[test]
fn the_units_are_what_systemd_understands() {
    if !need("systemd-analyze") {
        return;
    }
    let folder = Folder::new();
    for name in ["hale.service", "hale.socket"] {
        let unit = std::fs::read_to_string(format!("docs/packaging/{name}")).unwrap();
        assert!(unit.contains("/usr/local/bin/hale") || name == "hale.socket");
        folder.write(name, &unit.replace("/usr/local/bin/hale", env!("CARGO_BIN_EXE_hale")));
    }
    let paths = ["hale.service", "hale.socket"].map(|name| folder.join(name));
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).args(paths).env("SYSTEMD_LOG_LEVEL", "warning");
    let output = verify.output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    let ours: Vec<&str> = words.lines().filter(|line| line.contains("hale")).collect();
    assert!(output.status.success() && ours.is_empty(), "{words}");
}
