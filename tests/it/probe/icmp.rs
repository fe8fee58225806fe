//! Probes of type icmp_ping.

use std::net::SocketAddr;
use std::process::Command;

use haledns::health::Outcome;
use haledns::model::Check;

use super::{LONG, Probe, SHORT, told};
use crate::support::namespace::Namespace;
use crate::support::programs::{need, need_root};

fn ping(address: &str) -> Probe {
    Probe::new(SocketAddr::new(address.parse().unwrap(), 0), Check::Icmp)
}

async fn ping_inside(namespace: &Namespace, address: &str) -> Outcome {
    ping(address).within(SHORT).inside(&namespace.0).run().await
}

#[tokio::test]
async fn an_echo_that_is_answered_passes() {
    if !need_root() {
        return;
    }
    let outcome = ping("127.0.0.1").run().await;
    assert_eq!(told(&outcome), "- pass");
    assert!(outcome.took < LONG && outcome.evidence.first_byte.is_some());
}

#[tokio::test]
async fn both_families_pass_over_raw_and_over_datagram_sockets() {
    let Some(namespace) = Namespace::new() else { return };
    for sockets in ["raw", "datagram"] {
        for address in ["127.0.0.1", "127.9.9.9", "::1"] {
            let outcome = ping(address).inside(&namespace.0).run().await;
            assert_eq!(told(&outcome), "- pass", "{address} over {sockets} sockets");
        }
        namespace.open_ping();
    }
}

#[tokio::test]
async fn b22_silence_times_out_and_unreachable_fails_at_once() {
    let Some(namespace) = Namespace::filtered(&[
        "ip daddr 127.0.0.2 icmp type echo-request drop",
        "ip daddr 127.0.0.3 icmp type echo-request reject with icmp type host-unreachable",
        "ip daddr 127.0.0.4 icmp type echo-request reject with icmp type net-unreachable",
        "ip daddr 127.0.0.5 icmp type echo-request reject with icmp type admin-prohibited",
        "ip daddr 127.0.0.6 icmp type echo-request reject with icmp type prot-unreachable",
        "icmpv6 type echo-request reject with icmpv6 type admin-prohibited",
    ]) else {
        return;
    };
    for sockets in ["raw", "datagram"] {
        for (address, expected) in [
            ("127.0.0.1", "- pass"),
            ("127.0.0.2", "- IcmpTimeout response_timeout"),
            ("127.0.0.3", "- NoRouteToHost host_unreachable"),
            ("127.0.0.4", "- NetworkUnreachable network_unreachable"),
            ("127.0.0.5", "- NoRouteToHost host_unreachable"),
            ("127.0.0.6", "- OtherFailure protocol_unreachable"),
            ("::1", "- NoRouteToHost administratively_prohibited"),
        ] {
            let outcome = ping_inside(&namespace, address).await;
            assert_eq!(told(&outcome), expected, "{address} over {sockets} sockets");
        }
        namespace.open_ping();
    }
}

#[tokio::test]
async fn b22_replies_to_others_are_not_taken_for_ones_own() {
    let Some(namespace) = Namespace::filtered(&[
        // of the requests to one address every second is lost
        "ip daddr 127.0.0.2 icmp type echo-request numgen inc mod 2 0 drop",
    ]) else {
        return;
    };
    let probes = (0..40).map(|_| {
        let probe = ping("127.0.0.2").within(SHORT * 3).inside(&namespace.0);
        tokio::spawn(async move { told(&probe.run().await) })
    });
    let probes: Vec<_> = probes.collect();
    let mut passed = 0;
    for probe in probes {
        let told = probe.await.unwrap();
        assert!(["- pass", "- IcmpTimeout response_timeout"].contains(&&*told), "{told}");
        passed += usize::from(told == "- pass");
    }
    assert_eq!(passed, 20);
}

#[tokio::test]
async fn an_echo_leaves_from_the_source_address() {
    let Some(namespace) = Namespace::filtered(&["ip saddr 127.0.0.9 icmp type echo-request drop"]) else {
        return;
    };
    let outcome = ping("127.0.0.1").within(SHORT).source("127.0.0.9").inside(&namespace.0).run().await;
    assert_eq!(told(&outcome), "- IcmpTimeout response_timeout");
    let outcome = ping("127.0.0.1").source("192.0.2.1").inside(&namespace.0).run().await;
    assert_eq!(told(&outcome), "- error NetworkUnreachable no_local_address");
    assert_eq!(told(&ping_inside(&namespace, "127.0.0.1").await), "- pass");
}

#[tokio::test]
async fn h17_without_a_route_nothing_is_tested() {
    let Some(namespace) = Namespace::new() else { return };
    for address in ["192.0.2.1", "2001:db8::1"] {
        let outcome = ping_inside(&namespace, address).await;
        assert_eq!(told(&outcome), "- error NetworkUnreachable network_unreachable", "{address}");
    }
}

/// Runs itself once more without the right to open raw sockets, where the
/// kernel doesn't allow datagram sockets either.
#[test]
fn h17_without_permission_nothing_is_tested() {
    const ALONE: &str = "HALE_TEST_WITHOUT_PERMISSION";
    let name = "probe::icmp::h17_without_permission_nothing_is_tested";
    if std::env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for address in ["127.0.0.1", "::1"] {
            let outcome = runtime.block_on(ping(address).run());
            assert_eq!(told(&outcome), "- error OtherFailure not_permitted", "{address}");
        }
        println!("it was denied");
        return;
    }
    if !need("setpriv") {
        return;
    }
    let Some(namespace) = Namespace::new() else { return };
    let itself = std::env::current_exe().unwrap();
    let output = Command::new("ip")
        .args(["netns", "exec", &namespace.0, "setpriv", "--bounding-set", "-net_raw"])
        .arg(itself)
        .args(["--exact", name, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("it was denied"), "{output:?}");
}
