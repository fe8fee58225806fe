//! Network namespaces of a test's own: a loopback interface, no route, and
//! whatever packet filter the test wants.

use std::fs::File;
use std::net::SocketAddr;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use tokio::net::TcpListener;

use super::programs;

/// Made by `ip netns`, deleted when dropped.
pub struct Namespace(pub String);

impl Namespace {
    /// None where none can be made; the test is skipped then.
    pub fn new() -> Option<Namespace> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Namespace::named(&format!("hale-test-{}-{number}", std::process::id()))
    }

    pub fn named(name: &str) -> Option<Namespace> {
        if !programs::need("ip") || !programs::need_root() {
            return None;
        }
        let made = run("ip", &["netns", "add", name]);
        if !made.status.success() {
            let why = String::from_utf8_lossy(&made.stderr).into_owned();
            programs::missing(&format!("no network namespace can be made: {why}"));
            return None;
        }
        let namespace = Namespace(name.to_owned());
        namespace.run("ip", &["link", "set", "lo", "up"]);
        Some(namespace)
    }

    /// With these rules about what comes in; none also where there is no `nft`.
    pub fn filtered(rules: &[&str]) -> Option<Namespace> {
        if !programs::need("nft") {
            return None;
        }
        let namespace = Namespace::new()?;
        namespace.run("nft", &["add table inet test"]);
        namespace.run("nft", &["add chain inet test in { type filter hook input priority 0; }"]);
        for rule in rules {
            namespace.run("nft", &[&format!("add rule inet test in {rule}")]);
        }
        Some(namespace)
    }

    /// Lets everybody send echo requests from datagram sockets.
    pub fn open_ping(&self) {
        self.run("sh", &["-c", "echo 0 2147483647 > /proc/sys/net/ipv4/ping_group_range"]);
    }

    /// Gives the loopback interface further addresses.
    pub fn with_addresses(self, addresses: &[&str]) -> Namespace {
        for address in addresses {
            self.run("ip", &["address", "add", address, "dev", "lo"]);
        }
        self
    }

    /// A listener inside.
    pub fn listen(&self, address: SocketAddr) -> TcpListener {
        let listener = self.inside(move || std::net::TcpListener::bind(address).unwrap());
        listener.set_nonblocking(true).unwrap();
        TcpListener::from_std(listener).unwrap()
    }

    /// The file that stands for it.
    pub fn path(&self) -> String {
        format!("/run/netns/{}", self.0)
    }

    /// Runs a program inside to its end, which must be a good one.
    pub fn run(&self, program: &str, arguments: &[&str]) {
        let all = [&["netns", "exec", &self.0, program][..], arguments].concat();
        let output = run("ip", &all);
        assert!(output.status.success(), "{all:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Calls `make` inside; the sockets it makes stay there.
    pub fn inside<T: Send + 'static>(&self, make: impl FnOnce() -> T + Send + 'static) -> T {
        let file = File::open(self.path()).unwrap();
        let work = move || {
            haledns::os::enter_network_namespace(&file).unwrap();
            make()
        };
        thread::spawn(work).join().unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        run("ip", &["netns", "del", &self.0]);
    }
}

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}
