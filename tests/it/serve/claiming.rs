//! Addresses: who may have them, and what is said of those that can't be had.

use std::os::unix::process::CommandExt;

use super::other::wait_for_a_line;
use super::*;
use crate::support::ports::free_address;

#[test]
fn addresses_of_one_list_may_not_overlap() {
    for (list, words) in [
        (["127.0.0.1:5301", "127.0.0.1:5301"], "127.0.0.1:5301 is listed twice as an address to listen on"),
        (
            ["0.0.0.0:5301", "127.0.0.1:5301"],
            "0.0.0.0:5301 and 127.0.0.1:5301 overlap: list either the wildcard or single addresses",
        ),
    ] {
        let error = claim(&list.map(|address| address.parse::<SocketAddr>().unwrap())).unwrap_err();
        assert_eq!(error.to_string(), words);
    }
}

#[test]
fn kinds_share_a_port_only_by_different_protocols() {
    let address = free_address();
    let of = |kind| Listener { kind, address };
    let words = |list: &[Listener]| claim(list).map(drop).map_err(|error| error.to_string());
    until("the port is free for both", || words(&[of(Kind::Tls), of(Kind::Quic)]).is_ok());
    assert_eq!(
        words(&[of(Kind::Dns), of(Kind::Tls)]).unwrap_err(),
        format!(
            "{address} (UDP and TCP) and {address} (DNS over TLS) would get the same packets: give one of \
             them another port"
        )
    );
    let held = until_some("the address is free", || claim(&[of(Kind::Tls)]).ok());
    assert!(matches!(claim(&[of(Kind::Https)]), Err(ListenError::HeldByHale { .. })));
    assert!(matches!(claim(&[address]), Err(ListenError::HeldByHale { .. })), "TCP is a part of it");
    claim(&[of(Kind::Http3)]).expect("UDP is free");
    drop(held);
}

#[test]
fn an_encrypted_listener_needs_a_certificate() {
    let listener = Listener { kind: Kind::Https, address: LOOPBACK[0] };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let publisher = Publisher::new(Arc::new(Snapshot::default()));
    let services = Publisher::new(Arc::new(Service::default()));
    let bound =
        claim(&[listener]).unwrap().bind(few(), publisher.reader(), services.reader(), runtime.handle());
    assert_eq!(
        bound.unwrap_err().to_string(),
        "DNS over HTTPS at 127.0.0.1:0 needs a certificate: set `certificate` and `private_key`"
    );
}

#[test]
fn a_second_hale_is_told_who_holds_the_address() {
    let mut other = Other::new("hale", "0.0.0.0:0");
    let wildcard: SocketAddr = other.hear().parse().unwrap();
    let single = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), wildcard.port());
    for address in [wildcard, single] {
        let error = claim(&[address]).unwrap_err();
        let ListenError::HeldByHale { by: Some(by), .. } = &error else { panic!("{error:?}") };
        assert_eq!(by.pid, other.pid());
        let words = format!("{address} is held by another hale, pid {} (", other.pid());
        assert!(error.to_string().starts_with(&words), "{error}");
        assert!(error.to_string().contains("plays_another_process"), "{error}");
    }
    drop(other);
    claim_when_free(single);
}

pub fn plays_hale(address: &str) {
    let world = World::new(&[address.parse::<SocketAddr>().unwrap()], few(), wire::respond);
    say(world.address());
    wait_for_a_line();
}

#[test]
fn a_claim_holds_its_address_before_it_is_bound() {
    let held = until_some("some address is free", || claim(&[free_address()]).ok());
    let error = claim(held.listeners()).unwrap_err();
    assert!(matches!(error, ListenError::HeldByHale { by: Some(by), .. } if by.pid == std::process::id()));
}

#[test]
fn a_foreign_process_on_the_port_is_named_even_if_it_would_share() {
    for (role, protocol) in [("foreign-udp", Protocol::Udp), ("foreign-tcp", Protocol::Tcp)] {
        let mut other = Other::new(role, "0.0.0.0:0");
        let wildcard: SocketAddr = other.hear().parse().unwrap();
        let single = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), wildcard.port());
        for address in [wildcard, single] {
            let error = until_some("it is not our own lock that is in the way", || {
                claim(&[address]).err().filter(|error| matches!(error, ListenError::Held { .. }))
            });
            let ListenError::Held { by: Some(by), protocol: on, .. } = &error else { panic!("{error:?}") };
            assert_eq!((by.pid, *on), (other.pid(), protocol));
            let words = format!("{address} ({protocol}) is held by {}, pid {}", by.name, by.pid);
            assert_eq!(error.to_string(), words);
        }
    }
}

pub fn plays_foreign(kind: Type, address: &str) {
    let socket = Socket::new(Domain::IPV4, kind, None).unwrap();
    socket.set_reuse_port(true).unwrap();
    socket.bind(&address.parse::<SocketAddr>().unwrap().into()).unwrap();
    if kind == Type::STREAM {
        socket.listen(1).unwrap();
    }
    say(socket.local_addr().unwrap().as_socket().unwrap());
    wait_for_a_line();
}

#[test]
fn what_cannot_be_bound_is_explained() {
    let address = SocketAddr::new([192, 0, 2, 1].into(), free_address().port());
    let words = format!("{address}: this machine has no address 192.0.2.1");
    assert_eq!(claim(&[address]).unwrap_err().to_string(), words);

    let unseen =
        ListenError::Held { address: "127.0.0.1:53".parse().unwrap(), protocol: Protocol::Tcp, by: None };
    assert!(unseen.to_string().ends_with("as root, `ss -ltnp 'sport = :53'` shows it"), "{unseen}");
}

#[test]
fn a_low_port_without_permission_is_explained() {
    let low = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1 + (std::process::id() % 1000) as u16);
    let lowest = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    if lowest.is_ok_and(|lowest| lowest.trim().parse().is_ok_and(|port: u16| port <= low.port())) {
        eprintln!("skipped: here everybody may listen on low ports");
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let Some(mut other) = Other::start(command, "claim", &low.to_string()) else {
        eprintln!("skipped: this test's program cannot be run by another user");
        return;
    };
    let words = other.hear();
    assert!(words.starts_with(&format!("no permission to listen on {low}: run as root, or")), "{words}");
    assert!(words.contains("`setcap cap_net_bind_service=+ep /"), "{words}");
}

pub fn plays_claim(address: &str) {
    say(claim(&[address.parse::<SocketAddr>().unwrap()]).unwrap_err());
}
