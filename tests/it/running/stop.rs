//! How it ends, and what is left for the next start.

use std::fs;
use std::io::Write;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::timeout;

use super::start::dead;
use super::{WWW, fixed, probed};
use crate::support::dns::{ask, connect, query, read, read_tcp, socket};
use crate::support::endpoint::{Endpoint, Manner};
use crate::support::folder::Folder;
use crate::support::hale::{Hale, PATIENCE, command, until};

#[test]
fn sigterm_and_sigint_answer_what_has_arrived_and_stop_within_a_second() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    for signal in [Signal::TERM, Signal::INT] {
        let hale = Hale::serve(folder.path());
        let address = hale.address();
        let udp: Vec<_> = (0..8).map(|_| socket(address)).collect();
        let mut tcp = connect(address);
        let octets = query(7, WWW);
        for _ in 0..50 {
            for socket in &udp {
                socket.send(&octets).unwrap();
            }
        }
        tcp.write_all(&[&(octets.len() as u16).to_be_bytes()[..], &octets].concat()).unwrap();
        let (ended, took) = hale.stop(signal);
        assert_eq!(ended.code(), Some(0), "{}", ended.log);
        // a second of Hale's, and some for a machine that has other things to do
        assert!(took < Duration::from_secs(2), "{took:?}");
        let name = if signal == Signal::TERM { "SIGTERM" } else { "SIGINT" };
        assert!(ended.log.contains(&format!("stopping on {name}")), "{}", ended.log);
        for socket in &udp {
            for _ in 0..50 {
                let mut octets = [0; 1500];
                let length = socket.recv(&mut octets).expect("a reply to each query");
                assert!(read(&octets[..length]).is(&["192.0.2.1"]));
            }
        }
        assert!(read_tcp(&mut tcp).is(&["192.0.2.1"]));
    }
}

#[test]
fn programs_of_probes_end_with_the_server() {
    let folder = Folder::new();
    let file = folder.join("pid");
    let script = format!("echo $$ > {}; sleep 1000; true", file.display());
    let monitor = format!("{{ type: exec, command: [sh, -c, '{script}'], timeout: 60s, interval: 60s }}");
    let zone = super::zone("{ name: a, address: 192.0.2.1 }", &monitor, 30);
    folder.write("a.yaml", &format!("server: {{ allow_exec: true, startup_wait: 0 }}\n{zone}"));
    let hale = Hale::serve(folder.path());
    let read = || fs::read_to_string(&file).unwrap_or_default();
    until("the program has started", || read().ends_with('\n'));
    let (ended, took) = hale.stop(Signal::TERM);
    assert_eq!(ended.code(), Some(0), "{}", ended.log);
    assert!(took < Duration::from_secs(2), "{took:?}");
    let stat = format!("/proc/{}/stat", read().trim());
    until("the program is dead", || fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z ")));
}

#[test]
fn probes_that_hang_do_not_hold_up_the_stop() {
    let hangs = Endpoint::start("127.0.0.1", Manner::Hangs);
    let text = probed(&[hangs.address], 30).replace("timeout: 5s", "timeout: 60s");
    let folder = Folder::with("a.yaml", &format!("server: {{ startup_wait: 300ms }}\n{text}"));
    let (ended, took) = Hale::serve(folder.path()).stop(Signal::TERM);
    assert_eq!(ended.code(), Some(0), "{}", ended.log);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn after_a_kill_the_same_address_serves_again_at_once() {
    let lives = Endpoint::start("127.0.0.1", Manner::Answers);
    let folder = Folder::with("a.yaml", &probed(&[lives.address], 30));
    let first = Hale::serve(folder.path());
    let address = first.address();
    let _open = connect(address); // a connection of the killed one is still in the kernel
    let (ended, _) = first.stop(Signal::KILL);
    assert_eq!(ended.code(), None);
    for _ in 0..2 {
        let path = folder.path().to_str().unwrap();
        let next = Hale::start(command(["serve", path, "--listen", &address.to_string()]));
        assert_eq!(next.address(), address);
        assert_eq!(next.count("the first round of probes isn't complete"), 0);
        assert!(ask(address, WWW).is(&["127.0.0.1"]));
        next.stop(Signal::KILL);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn d10_an_engine_that_ends_by_a_defect_is_noticed_and_the_rest_still_stops() {
    let folder = Folder::with("a.yaml", &probed(&[dead("127.0.0.1")], 30));
    let loaded = haledns::config::load(&[folder.path().to_owned()]).unwrap();
    let tell = Box::new(|_: &_, _: &_| panic!("on purpose"));
    let listen = ["127.0.0.1:0".parse().unwrap()];
    let mut running = haledns::app::start(&loaded, &listen, tell).await.unwrap();
    timeout(PATIENCE, running.failed()).await.expect("it has ended");
    timeout(PATIENCE, running.stop()).await.expect("sockets and threads end, too");
}
