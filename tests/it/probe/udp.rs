//! Probes of type udp_icmp.

use std::net::{SocketAddr, UdpSocket};

use haledns::model::{Check, UdpCheck};

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

#[tokio::test]
async fn a_datagram_leaves_from_the_source_address() {
    let Some(namespace) = Namespace::new() else { return };
    let server = bound(&namespace, "127.0.0.1:0");
    let to = server.local_addr().unwrap();
    let outcome = datagram(to).within(SHORT).source("127.0.0.9").inside(&namespace.0).run().await;
    assert_eq!(told(&outcome), "- pass");
    assert_eq!(received(&server).1.ip().to_string(), "127.0.0.9");
}
