//! Where it answers, and who is in the way.

use std::fs;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::{WWW, fixed, probed};
use crate::support::dns::{ask, ask_tcp, connect};
use crate::support::endpoint::{Endpoint, Manner};
use crate::support::folder::Folder;
use crate::support::hale::{Ended, Hale, command, until};
use crate::support::ports::free_address;

fn serve(folder: &Folder, listen: &[&str]) -> Command {
    let mut serve = command(["serve", folder.path().to_str().unwrap()]);
    for address in listen {
        serve.args(["--listen", address]);
    }
    serve
}

/// Starts where it can't; gives how that ended.
fn refused(folder: &Folder, listen: &[&str]) -> Ended {
    let ended = Hale::start(serve(folder, listen)).ended();
    assert_eq!(ended.code(), Some(1), "{listen:?}: {}", ended.log);
    assert!(ended.log.contains("\nhale: ") || ended.log.starts_with("hale: "), "{}", ended.log);
    ended
}

#[test]
fn every_listed_address_answers_over_udp_and_tcp_and_ipv6() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let mut listen = vec!["127.0.0.1:0", "127.0.0.2:0"];
    match UdpSocket::bind("[::1]:0") {
        Ok(_) => listen.push("[::1]:0"),
        Err(error) => println!("SKIPPED: IPv6: {error}"),
    }
    let hale = Hale::start(serve(&folder, &listen));
    until("all addresses", || hale.addresses().len() == listen.len());
    for (address, asked) in hale.addresses().into_iter().zip(listen) {
        assert_eq!(address.ip(), asked.parse::<SocketAddr>().unwrap().ip());
        assert!(ask(address, WWW).is(&["192.0.2.1"]), "{address}");
        assert!(ask_tcp(&mut connect(address), WWW).is(&["192.0.2.1"]), "{address}");
    }
}

#[test]
fn listen_replaces_the_addresses_of_the_configuration() {
    let (configured, given) = (free_address(), free_address());
    let folder = Folder::with(
        "a.yaml",
        &format!("server: {{ listen: [\"{configured}\"] }}\n{}", fixed("192.0.2.1", 30)),
    );
    let hale = Hale::start(serve(&folder, &[&given.to_string()]));
    assert_eq!(hale.address(), given);
    assert_eq!(hale.addresses(), [given]);
    drop(hale);
    assert_eq!(Hale::start(serve(&folder, &[])).address(), configured);
}

#[test]
fn an_address_held_by_another_hale_is_refused_with_its_pid() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let first = Hale::serve(folder.path());
    let address = first.address();
    let wildcard = format!("0.0.0.0:{}", address.port());
    for listen in [address.to_string(), wildcard] {
        let ended = refused(&folder, &[&listen]);
        let told = format!("{listen} is held by another hale, pid {} (", first.pid());
        assert!(ended.log.contains(&told), "{}", ended.log);
        assert!(!ended.log.contains("first round of probes"), "told before any probe: {}", ended.log);
    }
    assert!(ask(address, WWW).is(&["192.0.2.1"]), "the first one serves on");
}

#[test]
fn a_wildcard_held_by_another_hale_covers_every_address() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let first = Hale::start(serve(&folder, &["0.0.0.0:0"]));
    let listen = format!("127.0.0.1:{}", first.address().port());
    let ended = refused(&folder, &[&listen]);
    let told = format!("{listen} is held by another hale, pid {} (", first.pid());
    assert!(ended.log.contains(&told), "{}", ended.log);
}

#[test]
fn an_address_held_by_another_program_is_refused_with_its_name_and_pid() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let program = fs::read_to_string("/proc/self/comm").unwrap();
    let me = format!("is held by {}, pid {}", program.trim_end(), std::process::id());

    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = udp.local_addr().unwrap();
    let ended = refused(&folder, &[&address.to_string()]);
    assert!(ended.log.contains(&format!("{address} (UDP) {me}")), "{}", ended.log);

    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    for listen in [address.to_string(), format!("0.0.0.0:{}", address.port())] {
        let ended = refused(&folder, &[&listen]);
        assert!(ended.log.contains(&format!("{listen} (TCP) {me}")), "{}", ended.log);
    }
}

#[test]
fn addresses_that_overlap_in_one_list_are_refused() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let ended = refused(&folder, &["127.0.0.1:5399", "0.0.0.0:5399"]);
    assert!(ended.log.contains("127.0.0.1:5399 and 0.0.0.0:5399 overlap"), "{}", ended.log);
}

#[test]
fn an_address_of_another_machine_is_refused() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let ended = refused(&folder, &["198.51.100.77:5399"]);
    assert!(
        ended.log.contains("198.51.100.77:5399: this machine has no address 198.51.100.77"),
        "{}",
        ended.log
    );
}

#[test]
fn a_low_port_without_the_right_to_it_is_explained() {
    let first_free = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or_default();
    if first_free.trim().parse::<u16>().is_ok_and(|first| first <= 53) {
        println!("SKIPPED: everybody may listen on port 53 here");
        return;
    }
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let mut serve = serve(&folder, &["127.0.0.53:53"]);
    if rustix::process::getuid().is_root() {
        serve.uid(65534).gid(65534); // nobody
    }
    let ended = match Hale::try_start(&mut serve) {
        Ok(hale) => hale.ended(),
        Err(error) => {
            println!("SKIPPED: user 65534 can't run the program: {error}");
            return;
        }
    };
    if ended.log.contains("Permission denied") && !ended.log.contains("no permission to listen") {
        println!("SKIPPED: user 65534 can't read the configuration: {}", ended.log);
        return;
    }
    assert_eq!(ended.code(), Some(1));
    assert!(ended.log.contains("no permission to listen on 127.0.0.53:53: run as root"), "{}", ended.log);
    assert!(ended.log.contains("setcap cap_net_bind_service=+ep /"), "{}", ended.log);
}

#[test]
fn an_address_that_is_taken_during_the_first_probe_round_is_told_in_the_end() {
    let hangs = Endpoint::start("127.0.0.1", Manner::Hangs);
    let text = probed(&[hangs.address], 30).replace("timeout: 5s", "timeout: 60s");
    let folder = Folder::with("a.yaml", &format!("server: {{ startup_wait: 500ms }}\n{text}"));
    let address = free_address();
    let hale = Hale::start(serve(&folder, &[&address.to_string()]));
    hale.line("first round of probes");
    let _taken = TcpListener::bind(address).unwrap();
    let ended = hale.ended();
    assert_eq!(ended.code(), Some(1), "{}", ended.log);
    assert!(ended.log.contains(&format!("{address} (TCP) is held by ")), "{}", ended.log);
    assert!(!ended.log.contains("panicked"), "{}", ended.log);
}
