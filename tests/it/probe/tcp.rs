//! What is sent and expected over TCP.

use std::time::Instant;

use haledns::health::Reason;
use haledns::model::{Check, TcpCheck};

use super::{LONG, Probe, SHORT, told};
use crate::support::server::{Ending, Server, Step};

fn check(send: &str, expect: &str) -> Check {
    let octets = |text: &str| (!text.is_empty()).then(|| text.as_bytes().into());
    Check::Tcp(TcpCheck { port: None, send: octets(send), expect: octets(expect) })
}

fn write(text: impl Into<String>) -> Step {
    Step::Write(text.into().into_bytes())
}

#[tokio::test]
async fn what_is_sent_arrives_and_what_is_expected_is_found() {
    let server = Server::start(vec![Step::Line, write("+PO"), write("NG\r\n"), Step::Hold]).await;
    let outcome = Probe::new(server.address, check("PING\r\n", "+PONG")).run().await;
    assert_eq!(told(&outcome), "- pass");
    assert_eq!((outcome.reason, &*outcome.evidence.said), (Reason::NoFailures, &b"+PONG\r\n"[..]));
    let seen = server.ended(1).await;
    assert_eq!((&*seen[0].received, seen[0].ending), ("PING\r\n", Some(Ending::Closed)));
}

#[tokio::test]
async fn a_banner_is_expected_without_a_word_sent() {
    let server = Server::start(vec![write("SSH-2.0-test\r\n"), Step::Hold]).await;
    assert_eq!(told(&Probe::new(server.address, check("", "SSH-2.0-")).run().await), "- pass");
    let seen = server.ended(1).await;
    assert_eq!((&*seen[0].received, seen[0].ending), ("", Some(Ending::Closed)));
}

#[tokio::test]
async fn octets_are_compared_as_they_are() {
    let server = Server::start(vec![write("+pong\r\n")]).await;
    let outcome = Probe::new(server.address, check("", "+PONG")).run().await;
    assert_eq!(told(&outcome), "- TcpResponseMismatch expect_not_found");
}

#[tokio::test]
async fn what_comes_after_ten_kibibytes_is_too_late() {
    for (filler, result) in
        [(10 * 1024 - 4, "- pass"), (10 * 1024 - 3, "- TcpResponseMismatch expect_not_found")]
    {
        let server = Server::start(vec![write("x".repeat(filler) + "late"), Step::Hold]).await;
        let outcome = Probe::new(server.address, check("", "late")).run().await;
        assert_eq!(told(&outcome), result, "after {filler}");
        assert!(outcome.took < LONG);
    }
}

#[tokio::test]
async fn a_peer_that_never_stops_is_left() {
    let server = Server::start(vec![Step::Endless(b"noise ".to_vec())]).await;
    let outcome = Probe::new(server.address, check("", "signal")).run().await;
    assert_eq!(told(&outcome), "- TcpResponseMismatch expect_not_found");
    assert!(outcome.took < LONG);
}

#[tokio::test]
async fn silence_times_out_and_is_tried_again() {
    let server = Server::start(vec![Step::Hold]).await;
    let outcome = Probe::new(server.address, check("PING\r\n", "+PONG")).within(SHORT).retries(1).run().await;
    assert_eq!(told(&outcome), "- TcpTimeout response_timeout");
    assert_eq!(server.ended(2).await.len(), 2);
}

#[tokio::test]
async fn a_reset_is_told_as_one() {
    let server = Server::start(vec![Step::Line, Step::Reset]).await;
    let outcome = Probe::new(server.address, check("PING\r\n", "+PONG")).run().await;
    assert_eq!(told(&outcome), "- ConnectionReset connection_reset");
}

#[tokio::test]
async fn b20_a_peer_that_is_still_talking_is_heard_out() {
    let rest = "x".repeat(8 * 1024);
    let server = Server::start(vec![Step::Line, write("+PONG"), write(rest), Step::Hold]).await;
    assert_eq!(told(&Probe::new(server.address, check("PING\n", "+PONG")).run().await), "- pass");
    assert_eq!(server.ended(1).await[0].ending, Some(Ending::Closed));
}

#[tokio::test]
async fn b20_sending_alone_passes_and_leaves_politely() {
    let server = Server::start(vec![Step::Line, write("ignored\r\n"), Step::Hold]).await;
    let begun = Instant::now();
    assert_eq!(told(&Probe::new(server.address, check("QUIT\r\n", "")).run().await), "- pass");
    assert!(begun.elapsed() < LONG);
    let seen = server.ended(1).await;
    assert_eq!((&*seen[0].received, seen[0].ending), ("QUIT\r\n", Some(Ending::Closed)));
}
