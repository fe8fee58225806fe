//! From the first probes to the first answer.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{WWW, fixed, probed};
use crate::support::dns::ask;
use crate::support::endpoint::{Endpoint, Manner};
use crate::support::folder::Folder;
use crate::support::hale::{Hale, command, until};
use crate::support::ports::free_address;

/// An address at which nothing listens any more.
pub fn dead(ip: &str) -> SocketAddr {
    TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap()
}

#[test]
fn b15_h5_sockets_are_bound_only_after_the_first_probe_round() {
    let hangs = Endpoint::start("127.0.0.1", Manner::Hangs);
    let text = format!("server: {{ startup_wait: 10m }}\n{}", probed(&[hangs.address], 30));
    let folder = Folder::with("a.yaml", &text.replace("timeout: 5s", "timeout: 2s"));
    let address = free_address();
    let hale =
        Hale::start(command(["serve", folder.path().to_str().unwrap(), "--listen", &address.to_string()]));
    until("the probe arrives", || hangs.connections() > 0);
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.connect(address).unwrap();
    udp.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    udp.send(b"anybody there?").unwrap();
    let refused = udp.recv(&mut [0; 16]).unwrap_err(); // an ICMP message: the port is closed
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    assert!(std::net::TcpStream::connect(address).is_err());
    hale.line("serving on"); // the probe has timed out, long before startup_wait
    assert!(ask(address, WWW).is(&["203.0.113.5"]));
}

#[test]
fn b15_h5_startup_wait_bounds_the_wait_for_endpoints_that_hang() {
    let hangs = Endpoint::start("127.0.0.1", Manner::Hangs);
    let lives = Endpoint::start("127.0.0.2", Manner::Answers);
    for (endpoints, answer) in
        [(vec![hangs.address], "203.0.113.5"), (vec![hangs.address, lives.address], "127.0.0.2")]
    {
        let text = probed(&endpoints, 30).replace("timeout: 5s", "timeout: 60s");
        // the first round is spread over an interval, 200 ms here
        let folder = Folder::with("a.yaml", &format!("server: {{ startup_wait: 800ms }}\n{text}"));
        let begun = Instant::now();
        let hale = Hale::serve(folder.path());
        assert!(begun.elapsed() > Duration::from_millis(700), "{}", hale.log());
        hale.line("the first round of probes isn't complete");
        assert!(ask(hale.address(), WWW).is(&[answer]), "what is known is answered: {endpoints:?}");
    }
}

#[test]
fn b15_a_dead_endpoint_is_not_even_in_the_first_answer() {
    let lives = Endpoint::start("127.0.0.1", Manner::Answers);
    let folder = Folder::with("a.yaml", &probed(&[dead("127.0.0.2"), lives.address, dead("127.0.0.3")], 30));
    let hale = Hale::serve(folder.path());
    let reply = ask(hale.address(), WWW);
    assert!(reply.is(&["127.0.0.1"]), "{reply:?}");
}

#[test]
fn a_start_without_any_target_waits_for_nothing() {
    let folder =
        Folder::with("a.yaml", &format!("server: {{ startup_wait: 10m }}\n{}", fixed("192.0.2.1", 30)));
    assert!(ask(Hale::serve(folder.path()).address(), WWW).is(&["192.0.2.1"]));
}

#[test]
fn a_start_can_be_stopped_while_it_waits() {
    let hangs = Endpoint::start("127.0.0.1", Manner::Hangs);
    let text = probed(&[hangs.address], 30).replace("timeout: 5s", "timeout: 60s");
    for signal in [Signal::TERM, Signal::INT] {
        let folder = Folder::with("a.yaml", &format!("server: {{ startup_wait: 10m }}\n{text}"));
        let hale =
            Hale::start(command(["serve", folder.path().to_str().unwrap(), "--listen", "127.0.0.1:0"]));
        hale.line("first round of probes");
        let (ended, took) = hale.stop(signal);
        assert_eq!(ended.code(), Some(0), "{}", ended.log);
        assert!(!ended.log.contains("panicked"), "{}", ended.log);
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
}

#[test]
fn a_change_of_the_files_during_the_start_is_not_missed() {
    let hangs = Endpoint::start("127.0.0.1", Manner::Hangs);
    let text = probed(&[hangs.address], 30).replace("timeout: 5s", "timeout: 60s");
    let folder = Folder::with("a.yaml", &format!("server: {{ startup_wait: 800ms }}\n{text}"));
    let hale = Hale::start(command(["serve", folder.path().to_str().unwrap(), "--listen", "127.0.0.1:0"]));
    hale.line("first round of probes");
    folder.replace("a.yaml", &format!("server: {{ startup_wait: 800ms }}\n{}", fixed("192.0.2.2", 30)));
    hale.line("configuration reloaded");
    until("the new answer", || ask(hale.address(), WWW).is(&["192.0.2.2"]));
}

#[test]
fn b15_from_the_first_answer_on_only_what_has_passed_is_answered() {
    let lives = Endpoint::start("127.0.0.1", Manner::Answers);
    let hangs = Endpoint::start("127.0.0.3", Manner::Hangs);
    let text = probed(&[dead("127.0.0.2"), lives.address, hangs.address], 30).replace(
        "interval: 200ms, timeout: 5s, consecutive_up: 1",
        "interval: 30s, timeout: 2s, consecutive_up: 3",
    );
    let folder = Folder::with("a.yaml", &format!("server: {{ startup_wait: 0 }}\n{text}"));
    let hale = Hale::serve(folder.path()); // nothing is known yet
    let begun = Instant::now();
    let mut replies = Vec::new();
    // what may be answered: the fallback pool, and then what has passed once
    until("one pass is enough", || {
        replies.push(ask(hale.address(), WWW));
        replies.last().unwrap().is(&["127.0.0.1"])
    });
    assert!(begun.elapsed() < Duration::from_secs(3), "the first probes come at once: {:?}", begun.elapsed());
    hale.line("endpoint main/e3 is unhealthy");
    replies.push(ask(hale.address(), WWW));
    for reply in &replies {
        assert!(reply.is(&["203.0.113.5"]) || reply.is(&["127.0.0.1"]), "{reply:?}");
    }
}
