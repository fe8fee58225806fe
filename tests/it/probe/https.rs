//! Probes of HTTPS: certificates, names, client certificates.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haledns::health::{Degraded, Outcome, Reason};
use haledns::model::{HttpCheck, TlsCheck};
use haledns::probe::Prober;

use super::http::{OK, following, get, lines, redirect};
use super::{Probe, told};
use crate::support::certificates::{Authority, Identity, self_signed, self_signed_during};
use crate::support::server::{Ending, Seen, Server, Step, answer, tls_config};

pub fn https(authority: &Authority) -> HttpCheck {
    HttpCheck { tls: Some(trusting(authority)), ..get() }
}

/// The certificates of one authority are good.
pub fn trusting(authority: &Authority) -> TlsCheck {
    TlsCheck { extra_roots: authority.roots(), ..TlsCheck::default() }
}

pub fn insecure() -> TlsCheck {
    TlsCheck { allow_insecure: true, ..TlsCheck::default() }
}

async fn over_tls(identity: Identity, check: HttpCheck, host: Option<&str>) -> (Outcome, Seen) {
    let server = Server::tls(identity, answer(OK)).await;
    let mut probe = Probe::http(&server, check);
    probe.0.host = host.map(Arc::from);
    let outcome = probe.run().await;
    (outcome, server.ended(1).await[0].clone())
}

#[tokio::test]
async fn a_trusted_certificate_passes_and_the_session_is_closed_politely() {
    let authority = Authority::new();
    let identity = authority.issue(&["app.example.com"], 2020, 2100);
    let (outcome, seen) = over_tls(identity, https(&authority), Some("app.example.com:8443")).await;
    assert_eq!(told(&outcome), "200 pass");
    assert_eq!(seen.sni.as_deref(), Some("app.example.com"), "without the port");
    assert_eq!(lines(&seen, "host"), ["Host: app.example.com:8443"]);
    assert_eq!(seen.ending, Some(Ending::Closed));
}

#[tokio::test]
async fn b20_a_session_without_a_body_is_closed_politely() {
    let authority = Authority::new();
    for (method, response) in [
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"),
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        ("GET", "HTTP/1.1 503 Unavailable\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ] {
        let script = vec![Step::Head, Step::Write(response.into()), Step::Hold];
        let server = Server::tls(authority.issue(&["app.example.com"], 2020, 2100), script).await;
        let check = HttpCheck { method: method.into(), ..https(&authority) };
        Probe::http(&server, check).host("app.example.com").run().await;
        assert_eq!(server.ended(1).await[0].ending, Some(Ending::Closed), "{method} {response}");
    }
}

#[tokio::test]
async fn b17_certificates_are_told_apart() {
    let authority = Authority::new();
    let other = Authority::new();
    let issue = |names: &[&str], from, until| authority.issue(names, from, until);
    let app = Some("app.example.com");
    for (identity, host, expected) in [
        (issue(&["app.example.com"], 2020, 2100), app, "200 pass"),
        (issue(&["*.example.com"], 2020, 2100), app, "200 pass"),
        (issue(&["*.example.com"], 2020, 2100), Some("a.b.example.com"), "- TlsNameMismatch name_mismatch"),
        (issue(&["www.example.com"], 2020, 2100), app, "- TlsNameMismatch name_mismatch"),
        (issue(&["app.example.com"], 2020, 2021), app, "- TlsUntrustedCertificate certificate_expired"),
        (issue(&["app.example.com"], 2099, 2100), app, "- TlsUntrustedCertificate certificate_not_yet_valid"),
        (other.issue(&["app.example.com"], 2020, 2100), app, "- TlsUntrustedCertificate unknown_issuer"),
        (self_signed(&["app.example.com"], false), app, "- TlsUntrustedCertificate self_signed"),
        (self_signed(&["app.example.com"], true), app, "- TlsUntrustedCertificate self_signed"),
        (issue(&["127.0.0.1"], 2020, 2100), None, "200 pass"),
        (issue(&["app.example.com"], 2020, 2100), None, "- TlsNameMismatch name_mismatch"),
        (issue(&["127.0.0.2"], 2020, 2100), None, "- TlsNameMismatch name_mismatch"),
        // The subject's name is nobody's; only alternative names are.
        (
            authority.issue_called("app.example.com", &["www.example.com"]),
            app,
            "- TlsNameMismatch name_mismatch",
        ),
        (authority.issue_called("app.example.com", &[]), app, "- TlsNameMismatch name_mismatch"),
    ] {
        let (outcome, _) = over_tls(identity, https(&authority), host).await;
        assert_eq!(told(&outcome), expected);
    }
}

#[tokio::test]
async fn b17_a_self_signed_certificate_among_the_roots_is_trusted_for_its_names_and_dates() {
    for ca in [true, false] {
        for (from, until, host, expected) in [
            (2020, 2100, "app.example.com", "200 pass"),
            (2020, 2100, "www.example.com", "- TlsNameMismatch name_mismatch"),
            (2020, 2021, "app.example.com", "- TlsUntrustedCertificate certificate_expired"),
            (2099, 2100, "app.example.com", "- TlsUntrustedCertificate certificate_not_yet_valid"),
        ] {
            let identity = self_signed_during(&["app.example.com"], ca, from, until);
            let extra_roots = Some(identity.pem.clone().into_bytes().into());
            let tls = TlsCheck { extra_roots, ..TlsCheck::default() };
            let (outcome, _) = over_tls(identity, HttpCheck { tls: Some(tls), ..get() }, Some(host)).await;
            assert_eq!(told(&outcome), expected, "ca {ca}");
        }
    }
}

#[tokio::test]
async fn b17_the_server_name_goes_before_the_host_and_an_address_is_not_sent() {
    let authority = Authority::new();
    let named = |name: Option<&str>| {
        let mut check = https(&authority);
        check.tls = check.tls.map(|tls| TlsCheck { server_name: name.map(str::to_owned), ..tls });
        check
    };
    for (server_name, host, sni) in [
        (None, Some("app.example.com"), Some("app.example.com")),
        (Some("sni.example.com"), Some("app.example.com"), Some("sni.example.com")),
        (Some("sni.example.com"), None, Some("sni.example.com")),
        (None, Some("app.example.com."), Some("app.example.com")),
        (None, None, None),
        (None, Some("[::1]:8443"), None),
    ] {
        let names = [sni.unwrap_or("127.0.0.1"), "::1"];
        let (outcome, seen) = over_tls(authority.issue(&names, 2020, 2100), named(server_name), host).await;
        assert_eq!(told(&outcome), "200 pass", "{server_name:?} {host:?}");
        assert_eq!(seen.sni.as_deref(), sni, "{server_name:?} {host:?}");
    }
}

#[tokio::test]
async fn b17_an_insecure_probe_takes_any_certificate_and_still_sends_the_name() {
    let authority = Authority::new();
    for identity in [
        self_signed(&["www.example.com"], true),
        authority.issue(&["www.example.com"], 2020, 2021),
        authority.issue(&["www.example.com"], 2099, 2100),
    ] {
        let check = HttpCheck { tls: Some(insecure()), ..get() };
        let (outcome, seen) = over_tls(identity, check, Some("app.example.com")).await;
        assert_eq!(told(&outcome), "200 pass");
        assert_eq!(seen.sni.as_deref(), Some("app.example.com"));
    }
}

#[tokio::test]
async fn b17_an_insecure_probe_still_wants_the_certificates_key() {
    let authority = Authority::new();
    let shown = authority.issue(&["app.example.com"], 2020, 2100);
    let held = authority.issue(&["app.example.com"], 2020, 2100);
    let impostor = Identity { key: held.key, ..shown };
    let server = Server::tls(impostor, answer(OK)).await;
    let check = HttpCheck { tls: Some(insecure()), ..get() };
    let outcome = Probe::http(&server, check).host("app.example.com").run().await;
    assert_eq!(told(&outcome), "- TlsUntrustedCertificate bad_signature");
}

#[tokio::test]
async fn b17_what_is_no_handshake_is_told_apart() {
    let alert = |code: u8| vec![Step::Write(vec![21, 3, 3, 0, 2, 2, code])];
    for (script, expected) in [
        (alert(112), "- TlsUnrecognizedName unrecognized_name"),
        (alert(70), "- TlsProtocol protocol_version"),
        (alert(40), "- TlsHandshakeFailure handshake_failure"),
        (alert(120), "- TlsHandshakeFailure no_application_protocol"),
        (alert(201), "- TlsHandshakeFailure alert_received"),
        (vec![Step::Write(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec())], "- TlsProtocol not_tls"),
        (vec![Step::Write(b"SSH-2.0-OpenSSH_9.9\r\n".to_vec()), Step::Hold], "- TlsProtocol not_tls"),
        (vec![], "- TlsHandshakeFailure closed_early"),
        (vec![Step::Write(vec![22]), Step::Reset], "- ConnectionReset connection_reset"),
    ] {
        let server = Server::start(script).await;
        let check = HttpCheck { tls: Some(insecure()), ..get() };
        let outcome = Probe::http(&server, check).host("app.example.com").run().await;
        assert_eq!(told(&outcome), expected);
        server.ended(1).await;
    }
}

#[tokio::test]
async fn b17_a_tls_server_asked_in_plain_gives_no_http_answer() {
    let authority = Authority::new();
    let server = Server::tls(authority.issue(&["app.example.com"], 2020, 2100), answer(OK)).await;
    let outcome = Probe::http(&server, get()).run().await;
    assert_eq!(outcome.reason, Reason::HttpInvalidResponse, "{}", told(&outcome));
}

#[tokio::test]
async fn roots_that_cannot_be_read_are_an_error_on_this_side() {
    let authority = Authority::new();
    let broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec();
    let mut check = https(&authority);
    check.tls = check.tls.map(|tls| TlsCheck { extra_roots: Some(broken.into()), ..tls });
    let (outcome, _) =
        over_tls(authority.issue(&["app.example.com"], 2020, 2100), check, Some("app.example.com")).await;
    assert_eq!(told(&outcome), "- error OtherFailure invalid_roots");
}

#[tokio::test]
async fn one_prober_keeps_ways_of_verifying_apart() {
    let authority = Authority::new();
    let server = Server::tls(authority.issue(&["app.example.com"], 2020, 2100), answer(OK)).await;
    let prober = Prober::new();
    let other = Authority::new();
    for (tls, expected) in [
        (https(&authority).tls, "200 pass"),
        (https(&other).tls, "- TlsUntrustedCertificate unknown_issuer"),
        (Some(insecure()), "200 pass"),
        (Some(TlsCheck { allow_insecure: false, ..insecure() }), "- TlsUntrustedCertificate unknown_issuer"),
        (https(&authority).tls, "200 pass"),
    ] {
        let probe = Probe::http(&server, HttpCheck { tls, ..get() }).host("app.example.com");
        assert_eq!(told(&prober.run(&probe.0).await), expected);
    }
}

#[tokio::test]
async fn b07_a_hop_to_https_shakes_hands_with_the_endpoint() {
    let authority = Authority::new();
    let secure = Server::tls(authority.issue(&["app.example.com"], 2020, 2100), answer(OK)).await;
    let location = format!("https://app.example.com:{}/", secure.address.port());
    let plain = Server::start(redirect(301, &location)).await;
    let probe = Probe::http(&plain, following()).host("app.example.com");
    let untrusted = probe.run().await;
    assert_eq!(told(&untrusted), "- TlsUntrustedCertificate unknown_issuer", "verified all the same");

    let first =
        Server::tls(authority.issue(&["app.example.com"], 2020, 2100), redirect(301, &location)).await;
    let check = HttpCheck { follow_redirects: true, ..https(&authority) };
    assert_eq!(told(&Probe::http(&first, check).host("app.example.com").run().await), "200 pass");
    let seen = secure.ended(2).await;
    assert_eq!(seen[1].sni.as_deref(), Some("app.example.com"));
}

#[tokio::test]
async fn b07_a_hop_to_plain_http_drops_tls() {
    let authority = Authority::new();
    let plain = Server::start(answer(OK)).await;
    let location = format!("http://app.example.com:{}/", plain.address.port());
    let secure =
        Server::tls(authority.issue(&["app.example.com"], 2020, 2100), redirect(302, &location)).await;
    let check = HttpCheck { follow_redirects: true, ..https(&authority) };
    assert_eq!(told(&Probe::http(&secure, check).host("app.example.com").run().await), "200 pass");
}

#[tokio::test]
async fn b17_the_name_an_address_was_found_under_is_sent_when_there_is_no_host() {
    let authority = Authority::new();
    let server = Server::tls(authority.issue(&["www.example.com"], 2020, 2100), answer(OK)).await;
    let mut probe = Probe::http(&server, https(&authority));
    probe.0.hostname = Some("www.example.com".into());
    assert_eq!(told(&probe.run().await), "200 pass");
    let seen = &server.ended(1).await[0];
    assert_eq!(seen.sni.as_deref(), Some("www.example.com"));
    assert_eq!(lines(seen, "host"), [format!("Host: www.example.com:{}", server.address.port())]);
}

#[tokio::test]
async fn b07_b17_a_hop_to_another_host_shakes_hands_under_that_hosts_name() {
    let authority = Authority::new();
    let second = Server::tls(authority.issue(&["localhost"], 2020, 2100), answer(OK)).await;
    let location = format!("https://localhost:{}/", second.address.port());
    let first =
        Server::tls(authority.issue(&["sni.example.com"], 2020, 2100), redirect(302, &location)).await;
    let tls = TlsCheck { server_name: Some("sni.example.com".into()), ..trusting(&authority) };
    let check = HttpCheck { tls: Some(tls), ..following() };
    assert_eq!(told(&Probe::http(&first, check).host("app.example.com").run().await), "200 pass");
    assert_eq!(first.ended(1).await[0].sni.as_deref(), Some("sni.example.com"));
    let seen = second.ended(1).await;
    let seen = seen.last().unwrap();
    assert_eq!(seen.sni.as_deref(), Some("localhost"));
    assert_eq!(lines(seen, "host"), [format!("Host: localhost:{}", second.address.port())]);
}

// Client certificates

/// A server that demands a certificate of `clients`.
async fn demanding(authority: &Authority, clients: &Authority, script: Vec<Step>) -> Server {
    let identity = authority.issue(&["app.example.com"], 2020, 2100);
    let config = tls_config(identity, Some(clients), &[]);
    Server::under(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), vec![script], Some(config)).await
}

#[tokio::test]
async fn a_client_certificate_is_shown_to_who_asks_for_it() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let client = |authority: &Authority| Some(authority.issue(&["probe.example.com"], 2020, 2100).client());
    let over = Some(clients.issue(&["probe.example.com"], 2020, 2021).client());
    let server = demanding(&authority, &clients, answer(OK)).await;
    let prober = Prober::new();
    for (client, expected) in [
        (client(&clients), "200 pass"),
        (None, "- TlsHandshakeFailure certificate_required"),
        // rustls shows none when its issuer isn't among those that the server names.
        (client(&Authority::new()), "- TlsHandshakeFailure"),
        (over, "- TlsHandshakeFailure alert_received"),
        (client(&clients), "200 pass"),
    ] {
        let tls = TlsCheck { client, ..trusting(&authority) };
        let probe = Probe::http(&server, HttpCheck { tls: Some(tls), ..get() }).host("app.example.com");
        let outcome = prober.run(&probe.0).await;
        assert!(told(&outcome).starts_with(expected), "{} is not {expected}", told(&outcome));
    }
    // Who doesn't ask isn't shown any.
    let server = Server::tls(authority.issue(&["app.example.com"], 2020, 2100), answer(OK)).await;
    let tls = TlsCheck { client: client(&clients), ..trusting(&authority) };
    let probe = Probe::http(&server, HttpCheck { tls: Some(tls), ..get() }).host("app.example.com");
    assert_eq!(told(&probe.run().await), "200 pass");
    assert!(!server.ended(1).await[0].certified);
}

#[tokio::test]
async fn b07_a_hop_to_another_host_is_shown_no_client_certificate() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let identity = authority.issue(&["localhost"], 2020, 2100);
    let config = tls_config(identity, Some(&clients), &[]);
    let elsewhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let second = Server::under(elsewhere, vec![answer(OK)], Some(config)).await;
    let location = format!("https://localhost:{}/", second.address.port());
    let first = demanding(&authority, &clients, redirect(302, &location)).await;
    let client = Some(clients.issue(&["probe.example.com"], 2020, 2100).client());
    let tls = TlsCheck { client, ..trusting(&authority) };
    let check = HttpCheck { tls: Some(tls), ..following() };
    let outcome = Probe::http(&first, check).host("app.example.com").run().await;
    assert_eq!(told(&outcome), "- TlsHandshakeFailure certificate_required");
    assert!(first.ended(1).await[0].certified);
}

// Evidence

#[tokio::test]
async fn h18_the_certificates_end_is_evidence_and_may_degrade_a_pass() {
    let authority = Authority::new();
    let day = Duration::from_secs(24 * 3600);
    let limits = |degraded_below, fail_below| TlsCheck { degraded_below, fail_below, ..trusting(&authority) };
    for (tls, expected, degraded) in [
        (limits(None, None), "200 pass", None),
        (limits(Some(14 * day), Some(3 * day)), "200 pass", Some(Degraded::CertificateExpiring)),
        (limits(None, Some(14 * day)), "- TlsCertificateExpiring certificate_expiring", None),
    ] {
        let until = SystemTime::now() + 10 * day;
        let identity = authority.issue_for(&["app.example.com"], 10 * day);
        let check = HttpCheck { tls: Some(tls), ..get() };
        let (outcome, _) = over_tls(identity, check, Some("app.example.com")).await;
        assert_eq!((told(&outcome).as_str(), outcome.degraded), (expected, degraded));
        let until = until.duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
        let found = outcome.evidence.certificate_until.unwrap();
        assert!((until - 1..=until + 10).contains(&found), "{found} is not {until}");
    }
}

#[tokio::test]
async fn phases_follow_each_other() {
    let authority = Authority::new();
    let identity = authority.issue(&["app.example.com"], 2020, 2100);
    let (outcome, _) = over_tls(identity, https(&authority), Some("app.example.com")).await;
    let evidence = outcome.evidence;
    let phases = [evidence.connected, evidence.tls, evidence.first_byte];
    assert!(phases.is_sorted() && phases[0].is_some() && phases[2].unwrap() <= outcome.took, "{phases:?}");
    assert_eq!((evidence.resolved, evidence.attempts, &*evidence.said), (None, 1, &b"OK"[..]));
}

#[tokio::test]
async fn evidence_is_the_last_hops() {
    let authority = Authority::new();
    let plain = Server::start(answer(OK)).await;
    let location = format!("http://app.example.com:{}/", plain.address.port());
    let identity = authority.issue(&["app.example.com"], 2020, 2100);
    let secure = Server::tls(identity, redirect(302, &location)).await;
    let check = HttpCheck { follow_redirects: true, ..https(&authority) };
    let outcome = Probe::http(&secure, check).host("app.example.com").run().await;
    let evidence = outcome.evidence;
    assert_eq!((evidence.tls, evidence.certificate_until), (None, None));
    assert!(evidence.connected <= evidence.first_byte && evidence.connected.is_some());
    assert_eq!(&*evidence.said, b"OK");
}
