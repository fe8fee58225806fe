//! Probes of type tls.

use std::time::Duration;

use haledns::health::{Degraded, Outcome};
use haledns::model::{Check, TlsCheck, TlsSession};

use super::https::{insecure, trusting};
use super::{LONG, Probe, SHORT, told};
use crate::support::certificates::Authority;
use crate::support::server::{Ending, Server, Step};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn session(server: &Server, tls: TlsCheck) -> Probe {
    Probe::new(server.address, Check::Tls(TlsSession { port: None, tls }))
}

async fn hold(authority: &Authority, names: &[&str]) -> Server {
    Server::tls(authority.issue(names, 2020, 2100), vec![Step::Hold]).await
}

#[tokio::test]
async fn a_handshake_passes_and_ends_with_goodbyes() {
    let authority = Authority::new();
    let server = hold(&authority, &["app.example.com"]).await;
    let outcome = session(&server, trusting(&authority)).host("app.example.com:443").run().await;
    assert_eq!(told(&outcome), "- pass");
    assert!(outcome.took < LONG, "{:?}", outcome.took);
    let evidence = &outcome.evidence;
    assert!(evidence.connected <= evidence.tls && evidence.tls.is_some(), "{evidence:?}");
    assert_eq!(evidence.certificate_until, Some(4_102_444_800), "2100-01-01");
    let seen = server.ended(1).await;
    assert_eq!((seen[0].ending, seen[0].sni.as_deref()), (Some(Ending::Closed), Some("app.example.com")));
    assert_eq!(seen[0].received, "");
}

#[tokio::test]
async fn a_server_that_never_says_goodbye_passes_all_the_same() {
    // What it writes is never read to its end.
    let authority = Authority::new();
    let identity = authority.issue(&["app.example.com"], 2020, 2100);
    let server = Server::tls(identity, vec![Step::Endless(b"yada ".repeat(100))]).await;
    let outcome = session(&server, trusting(&authority)).host("app.example.com").within(LONG).run().await;
    assert_eq!(told(&outcome), "- pass");
    assert!(outcome.took < LONG, "{:?}", outcome.took);
}

#[tokio::test]
async fn the_name_is_the_monitors_or_the_endpoints_or_the_one_it_was_found_under() {
    let authority = Authority::new();
    for (server_name, host, hostname, sni) in [
        (Some("sni.example.com"), Some("app.example.com"), Some("www.example.com"), Some("sni.example.com")),
        (None, Some("app.example.com:8443"), Some("www.example.com"), Some("app.example.com")),
        (None, None, Some("www.example.com"), Some("www.example.com")),
        (None, None, None, None),
    ] {
        let server = hold(&authority, &[sni.unwrap_or("127.0.0.1")]).await;
        let tls = TlsCheck { server_name: server_name.map(str::to_owned), ..trusting(&authority) };
        let mut probe = session(&server, tls);
        (probe.0.host, probe.0.hostname) = (host.map(Into::into), hostname.map(Into::into));
        assert_eq!(told(&probe.run().await), "- pass", "{sni:?}");
        assert_eq!(server.ended(1).await[0].sni.as_deref(), sni);
    }
    let server = hold(&authority, &["www.example.com"]).await;
    let outcome = session(&server, trusting(&authority)).host("app.example.com").run().await;
    assert_eq!(told(&outcome), "- TlsNameMismatch name_mismatch");
}

#[tokio::test]
async fn a_certificates_last_days_are_told_whether_it_is_verified_or_not() {
    let authority = Authority::new();
    let limits =
        |tls: TlsCheck| TlsCheck { degraded_below: Some(14 * DAY), fail_below: Some(3 * DAY), ..tls };
    let both = |outcome: &Outcome| (told(outcome), outcome.degraded);
    for tls in [limits(trusting(&authority)), limits(insecure())] {
        for (left, expected, degraded) in [
            (20 * DAY, "- pass", None),
            (10 * DAY, "- pass", Some(Degraded::CertificateExpiring)),
            (2 * DAY, "- TlsCertificateExpiring certificate_expiring", None),
        ] {
            let identity = authority.issue_for(&["app.example.com"], left);
            let server = Server::tls(identity, vec![Step::Hold]).await;
            let outcome = session(&server, tls.clone()).host("app.example.com").run().await;
            assert_eq!(both(&outcome), (expected.to_owned(), degraded), "{left:?}");
        }
    }
    // One that is over fails for what it is, if anybody looks.
    for (tls, expected) in [
        (limits(trusting(&authority)), "- TlsUntrustedCertificate certificate_expired"),
        (limits(insecure()), "- TlsCertificateExpiring certificate_expiring"),
        (insecure(), "- pass"),
    ] {
        let identity = authority.issue(&["app.example.com"], 2020, 2021);
        let server = Server::tls(identity, vec![Step::Hold]).await;
        let outcome = session(&server, tls).host("app.example.com").run().await;
        assert_eq!(told(&outcome), expected);
    }
}

#[tokio::test]
async fn what_is_no_handshake_fails() {
    for (script, expected) in [
        (vec![Step::Hold], "- TcpTimeout tls_timeout"),
        (vec![], "- TlsHandshakeFailure closed_early"),
        (vec![Step::Write(b"220 mail.example.com ESMTP\r\n".to_vec())], "- TlsProtocol not_tls"),
    ] {
        let server = Server::start(script).await;
        let outcome = session(&server, insecure()).host("app.example.com").within(SHORT).run().await;
        assert_eq!(told(&outcome), expected);
    }
}
