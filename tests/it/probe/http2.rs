//! Probes over HTTP/2, with prior knowledge and by ALPN.

use haledns::model::{Check, Codes, HttpCheck};

use super::http::{OK, get};
use super::https::{https, insecure};
use super::{LONG, Probe, SHORT, told};
use crate::support::certificates::Authority;
use crate::support::http2::{Answer, Reply, Server};
use crate::support::server::{self, Step, answer, tls_config};

fn http2() -> HttpCheck {
    HttpCheck { http2: true, ..get() }
}

fn ok() -> Answer {
    Answer::Reply(Reply { body: b"I am alive".to_vec(), ..Reply::default() })
}

fn probe(server: &Server, check: HttpCheck) -> Probe {
    Probe::new(server.address, Check::Http(check))
}

#[tokio::test]
async fn a_request_in_clear_text_has_no_headers_of_http_1_and_ends_politely() {
    let server = Server::start(None, ok()).await;
    let check = HttpCheck {
        path: "/health?full=1".into(),
        headers: vec![("X-Token".into(), "a".into()), ("Host".into(), "monitor.example.com".into())],
        ..http2()
    };
    assert_eq!(told(&probe(&server, check).run().await), "200 pass");
    let seen = server.ended(1).await;
    let (head, body) = &seen.requests[0];
    assert_eq!(head.uri.to_string(), "http://monitor.example.com/health?full=1");
    assert_eq!((head.method.as_str(), body.len()), ("GET", 0));
    let mut names: Vec<&str> = head.headers.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["accept", "user-agent", "x-token"]);
    assert_eq!(seen.endings, [true]);
}

#[tokio::test]
async fn the_authority_is_the_address_when_there_is_no_host() {
    let server = Server::start(None, ok()).await;
    assert_eq!(told(&probe(&server, http2()).run().await), "200 pass");
    let seen = server.ended(1).await;
    assert_eq!(seen.requests[0].0.uri.authority().unwrap().as_str(), server.address.to_string());
}

#[tokio::test]
async fn content_is_sent_whole_and_its_length_is_exact() {
    for size in [1, 20_000, 300_000] {
        let server = Server::start(None, ok()).await;
        let body = vec![b'x'; size];
        let check = HttpCheck { method: "POST".into(), body: Some(body.into()), ..http2() };
        assert_eq!(told(&probe(&server, check).run().await), "200 pass", "{size}");
        let seen = server.ended(1).await;
        let (head, body) = &seen.requests[0];
        assert_eq!(head.headers["content-length"], size.to_string());
        assert_eq!((head.method.as_str(), body.len()), ("POST", size));
    }
}

#[tokio::test]
async fn h18_over_tls_it_is_negotiated() {
    let authority = Authority::new();
    let identity = || authority.issue(&["app.example.com"], 2020, 2100);
    let check = || HttpCheck { http2: true, ..https(&authority) };
    let server = Server::start(Some(tls_config(identity(), None, &["h2", "http/1.1"])), ok()).await;
    let outcome = probe(&server, check()).host("app.example.com").run().await;
    assert_eq!(told(&outcome), "200 pass");
    let seen = server.ended(1).await;
    assert_eq!(seen.requests[0].0.uri.to_string(), "https://app.example.com/");
    assert_eq!(seen.endings, [true]);

    // Such a server also has HTTP/1.1, for those that ask for it.
    let config = tls_config(identity(), None, &["h2", "http/1.1"]);
    let old = server::Server::under(([127, 0, 0, 1], 0).into(), vec![answer(OK)], Some(config)).await;
    let outcome = Probe::http(&old, https(&authority)).host("app.example.com").run().await;
    assert_eq!(told(&outcome), "200 pass");
}

#[tokio::test]
async fn a_server_that_does_not_speak_it_is_told_apart() {
    let authority = Authority::new();
    let identity = || authority.issue(&["app.example.com"], 2020, 2100);
    let tls = || HttpCheck { tls: Some(insecure()), ..http2() };
    // Empty settings, and a farewell before any request: enhance your calm.
    let settings = Step::Write(vec![0, 0, 0, 4, 0, 0, 0, 0, 0]);
    let go_away = Step::Write(vec![0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11]);
    let bad_request = || vec![Step::Write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec())];
    for (check, script, alpn, expected) in [
        (http2(), bad_request(), None, "- HttpInvalidResponse not_http2"),
        (http2(), answer(OK), None, "- HttpInvalidResponse not_http2"),
        (
            http2(),
            vec![Step::Write(b"SSH-2.0-OpenSSH_9.9\r\n".to_vec()), Step::Hold],
            None,
            "- HttpInvalidResponse not_http2",
        ),
        (
            http2(),
            vec![Step::Write(vec![21, 3, 3, 0, 2, 2, 10, 0, 0])],
            None,
            "- HttpInvalidResponse not_http2",
        ),
        (http2(), vec![settings, go_away, Step::Hold], None, "- HttpInvalidResponse go_away"),
        (http2(), vec![], None, "- HttpInvalidResponse closed_early"),
        (http2(), vec![Step::Head, Step::Reset], None, "- ConnectionReset connection_reset"),
        (http2(), vec![Step::Head, Step::Hold], None, "- HttpTimeout response_timeout"),
        (tls(), answer(OK), Some(vec![]), "- TlsHandshakeFailure no_application_protocol"),
        (tls(), answer(OK), Some(vec!["http/1.1"]), "- TlsHandshakeFailure no_application_protocol"),
    ] {
        let config = alpn.map(|alpn| tls_config(identity(), None, &alpn));
        let server = server::Server::under(([127, 0, 0, 1], 0).into(), vec![script], config).await;
        let outcome = Probe::http(&server, check).host("app.example.com").within(SHORT).run().await;
        assert_eq!(told(&outcome), expected);
    }
}

#[tokio::test]
async fn answers_are_judged_as_those_of_http_1() {
    let reply = |status, body: &str| {
        Answer::Reply(Reply {
            status,
            headers: vec![("x-ready", "yes")],
            body: body.into(),
            ..Reply::default()
        })
    };
    let expecting = |text: &str| HttpCheck { expected_body: Some(text.into()), ..http2() };
    let pair = |one: &str, other: &str| vec![(one.to_owned(), other.to_owned())];
    for (check, answer, expected) in [
        (http2(), reply(200, ""), "200 pass"),
        (http2(), Answer::Reply(Reply { hints: true, ..Reply::default() }), "200 pass"),
        (http2(), reply(503, "no"), "503 ResponseCodeMismatch unexpected_status"),
        (HttpCheck { expected_codes: Codes(vec![204..=204]), ..http2() }, reply(204, ""), "204 pass"),
        (expecting("ALIVE"), reply(200, "alive"), "200 pass"),
        (expecting("alive"), reply(200, "dead"), "200 ResponseBodyMismatch body_not_found"),
        (HttpCheck { expected_headers: pair("X-Ready", "YES"), ..http2() }, reply(200, ""), "200 pass"),
        (
            HttpCheck { expected_json: pair("/up", "true"), ..http2() },
            reply(200, "{\"up\":true}"),
            "200 pass",
        ),
        (HttpCheck { method: "HEAD".into(), ..http2() }, reply(200, ""), "200 pass"),
        (http2(), Answer::Reset(h2::Reason::INTERNAL_ERROR), "- HttpInvalidResponse stream_reset"),
        (http2(), Answer::Reset(h2::Reason::HTTP_1_1_REQUIRED), "- HttpInvalidResponse not_http2"),
    ] {
        let server = Server::start(None, answer).await;
        assert_eq!(told(&probe(&server, check).run().await), expected);
    }
}

#[tokio::test]
async fn the_deadline_holds_and_an_endless_body_ends_at_the_limit() {
    let silent = Server::start(None, Answer::Silence).await;
    let outcome = probe(&silent, http2()).within(SHORT).run().await;
    assert_eq!(told(&outcome), "- HttpTimeout response_timeout");
    silent.ended(1).await;

    let endless = Server::start(None, Answer::Endless).await;
    let check = HttpCheck { expected_body: Some(b"alive".to_vec()), body_limit: 200_000, ..http2() };
    let outcome = probe(&endless, check).run().await;
    assert_eq!(told(&outcome), "200 ResponseBodyMismatch body_not_found");
    assert!(outcome.took < LONG, "{:?}", outcome.took);
    endless.ended(1).await;
}

#[tokio::test]
async fn a_redirect_is_followed() {
    let second = Server::start(None, ok()).await;
    let location: &'static str =
        Box::leak(format!("http://app.example.com:{}/next", second.address.port()).into_boxed_str());
    let moved = Reply { status: 302, headers: vec![("location", location)], ..Reply::default() };
    let first = Server::start(None, Answer::Reply(moved)).await;
    let check = HttpCheck { follow_redirects: true, ..http2() };
    assert_eq!(told(&probe(&first, check).host("app.example.com").run().await), "200 pass");
    assert_eq!(second.ended(1).await.requests[0].0.uri.to_string(), location);
    assert_eq!(first.ended(1).await.endings, [true]);
}
