//! Probes of type udp_icmp.

use std::net::{SocketAddr, UdpSocket};

use haledns::model::{Check, UdpCheck};
use socket2::{Domain, Protocol, Socket, Type};

use super::{LONG, Probe, SHORT, told};
use crate::support::namespace::Namespace;

const PAYLOAD: &[u8] = b"are you there?";

fn datagram(to: SocketAddr) -> Probe {
    Probe::new(to, Check::Udp(UdpCheck { port: None, payload: PAYLOAD.into() }))
}

/// A socket inside that reads nothing by itself.
fn bound(namespace: &Namespace, address: &'static str) -> UdpSocket {
    let socket = namespace.inside(move || UdpSocket::bind(address).unwrap());
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

fn closed(namespace: &Namespace, address: &'static str) -> SocketAddr {
    bound(namespace, address).local_addr().unwrap()
}

fn received(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut room = [0; 100];
    let (length, from) = socket.recv_from(&mut room).unwrap();
    (room[..length].to_vec(), from)
}

#[tokio::test]
async fn b22_a_closed_port_fails_at_once() {
    let Some(namespace) = Namespace::new() else { return };
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let outcome = datagram(closed(&namespace, address)).inside(&namespace.0).run().await;
        assert_eq!(told(&outcome), "- UdpPortUnreachable port_unreachable", "{address}");
        assert!(outcome.took < LONG);
    }
}

#[tokio::test]
async fn b22_an_answer_of_any_kind_passes_at_once() {
    let Some(namespace) = Namespace::new() else { return };
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let server = bound(&namespace, address);
        let to = server.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            let (query, from) = received(&server);
            server.send_to(b"what?", from).unwrap();
            query
        });
        let outcome = datagram(to).inside(&namespace.0).run().await;
        assert_eq!(told(&outcome), "- pass");
        assert!(outcome.took < LONG);
        assert_eq!(&*outcome.evidence.said, b"what?");
        assert_eq!(serving.join().unwrap(), PAYLOAD);
    }
}

#[tokio::test]
async fn b22_silence_passes_when_the_time_is_up() {
    let Some(namespace) = Namespace::new() else { return };
    let server = bound(&namespace, "127.0.0.1:0");
    let to = server.local_addr().unwrap();
    let outcome = datagram(to).within(SHORT).retries(2).inside(&namespace.0).run().await;
    assert_eq!(told(&outcome), "- pass");
    assert!((SHORT..SHORT * 2).contains(&outcome.took), "{:?}", outcome.took);
    assert_eq!((outcome.evidence.attempts, received(&server).0), (1, PAYLOAD.to_vec()));
}

#[tokio::test]
async fn b22_what_a_filter_does_to_datagrams_and_to_echoes() {
    let Some(namespace) = Namespace::filtered(&[
        "udp dport 9 drop",
        "udp dport 10 reject with icmp type port-unreachable",
        "udp dport 11 reject with icmp type host-unreachable",
        "udp dport 12 reject with icmp type net-unreachable",
        "ip daddr 127.0.0.2 icmp type echo-request drop",
        "ip daddr 127.0.0.3 icmp type echo-request reject with icmp type host-unreachable",
    ]) else {
        return;
    };
    let server = bound(&namespace, "127.0.0.2:0");
    let silent = server.local_addr().unwrap();
    let at = |text: &str| text.parse::<SocketAddr>().unwrap();
    for (to, expected) in [
        (at("127.0.0.1:9"), "- pass"),
        (at("127.0.0.1:10"), "- UdpPortUnreachable port_unreachable"),
        (at("127.0.0.1:11"), "- NoRouteToHost host_unreachable"),
        (at("127.0.0.1:12"), "- NetworkUnreachable network_unreachable"),
        (silent, "- IcmpTimeout response_timeout"),
        (at("127.0.0.3:9"), "- NoRouteToHost host_unreachable"),
    ] {
        let outcome = datagram(to).within(SHORT).inside(&namespace.0).run().await;
        assert_eq!(told(&outcome), expected, "{to}");
    }
    server.set_nonblocking(true).unwrap();
    assert!(server.recv(&mut [0]).is_err(), "no datagram goes after an echo that was lost");
}

#[tokio::test]
async fn b22_an_unreachable_of_another_port_is_not_taken_for_ones_own() {
    let Some(namespace) = Namespace::new() else { return };
    let server = bound(&namespace, "127.0.0.1:0");
    let silent = datagram(server.local_addr().unwrap()).within(SHORT).inside(&namespace.0);
    let refused = datagram(closed(&namespace, "127.0.0.1:0")).within(SHORT).inside(&namespace.0);
    let (silent, refused) = tokio::join!(silent.run(), refused.run());
    assert_eq!(told(&silent), "- pass");
    assert_eq!(told(&refused), "- UdpPortUnreachable port_unreachable");
}

/// Tells `from` by ICMP that nobody listens at `to`, as if it had just asked.
fn unreachable(namespace: &Namespace, from: SocketAddr, to: SocketAddr) {
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (from, to) else { panic!("both are IPv4") };
    let mut packet = vec![3, 3, 0, 0, 0, 0, 0, 0];
    packet.extend([0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0]);
    packet.extend([from.ip().octets(), to.ip().octets()].concat());
    packet.extend([from.port().to_be_bytes(), to.port().to_be_bytes(), [0, 8], [0, 0]].concat());
    let words = packet.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum = words.sum::<u32>();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[2..4].copy_from_slice(&checksum.to_be_bytes());
    namespace.inside(move || {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).unwrap();
        socket.send_to(&packet, &SocketAddr::from((*from.ip(), 0)).into()).unwrap();
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b22_a_late_unreachable_belongs_to_the_probe_that_it_quotes() {
    let Some(namespace) = Namespace::new() else { return };
    let (server, other) = (bound(&namespace, "127.0.0.1:0"), bound(&namespace, "127.0.0.1:0"));
    let (to, elsewhere) = (server.local_addr().unwrap(), other.local_addr().unwrap());
    let outcome = datagram(to).within(SHORT).inside(&namespace.0).run().await;
    assert_eq!(told(&outcome), "- pass", "silence");
    let (_, earlier) = received(&server);

    // word of the probe before, or of another endpoint's port, comes while the next one waits
    let probe = tokio::spawn(datagram(to).inside(&namespace.0).run());
    let (_, current) = received(&server);
    assert_ne!(earlier, current, "each probe has a port of its own");
    unreachable(&namespace, earlier, to);
    unreachable(&namespace, current, elsewhere);
    server.send_to(b"here", current).unwrap();
    assert_eq!(told(&probe.await.unwrap()), "- pass");

    // and of itself it is heard
    let probe = tokio::spawn(datagram(to).inside(&namespace.0).run());
    let (_, current) = received(&server);
    unreachable(&namespace, current, to);
    let outcome = probe.await.unwrap();
    assert_eq!(told(&outcome), "- UdpPortUnreachable port_unreachable");
    assert!(outcome.took < LONG);
}

#[tokio::test]
async fn a_datagram_leaves_from_the_source_address() {
    let Some(namespace) = Namespace::new() else { return };
    let server = bound(&namespace, "127.0.0.1:0");
    let to = server.local_addr().unwrap();
    let outcome = datagram(to).within(SHORT).source("127.0.0.9").inside(&namespace.0).run().await;
    assert_eq!(told(&outcome), "- pass");
    assert_eq!(received(&server).1.ip().to_string(), "127.0.0.9");
}
