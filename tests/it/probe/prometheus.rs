//! Probes of type prometheus, against what Prometheus answers.

use haledns::model::{Check, PrometheusCheck, TlsCheck};

use super::http::lines;
use super::https::trusting;
use super::{LONG, Probe, SHORT, told};
use crate::support::certificates::Authority;
use crate::support::server::{Ending, Server, Step, answer};

/// The endpoint itself is never asked.
const ENDPOINT: &str = "192.0.2.1:0";

fn asking(url: &str) -> PrometheusCheck {
    PrometheusCheck {
        url: url.into(),
        tls: TlsCheck::default(),
        query: "up".into(),
        at_least: Some(1.0),
        at_most: Some(2.0),
    }
}

fn probe(check: PrometheusCheck) -> Probe {
    Probe::new(ENDPOINT.parse().unwrap(), Check::Prometheus(check))
}

fn replies(status: u16, json: &str) -> Vec<Step> {
    let length = json.len();
    answer(format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{json}"
    ))
}

fn vector(samples: &[&str]) -> String {
    let samples: Vec<String> = samples
        .iter()
        .map(|value| format!(r#"{{"metric":{{"job":"a"}},"value":[1700000000.1,"{value}"]}}"#))
        .collect();
    let samples = samples.join(",");
    format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{samples}]}}}}"#)
}

#[tokio::test]
async fn a_value_within_the_bounds_passes() {
    let scalar = r#"{"status":"success","data":{"resultType":"scalar","result":[1700000000,"2"]}}"#;
    for (json, expected, said) in [
        (vector(&["1.5"]), "200 pass", "1.5"),
        (vector(&["1"]), "200 pass", "1"),
        (scalar.to_owned(), "200 pass", "2"),
        (vector(&["0.5"]), "200 MetricOutOfBounds below", "0.5"),
        (vector(&["-Inf"]), "200 MetricOutOfBounds below", "-inf"),
        (vector(&["2.5e3"]), "200 MetricOutOfBounds above", "2500"),
    ] {
        let server = Server::start(replies(200, &json)).await;
        let outcome = probe(asking(&format!("http://{}", server.address))).run().await;
        assert_eq!(told(&outcome), expected);
        assert_eq!(&*outcome.evidence.said, said.as_bytes());
        assert_eq!(server.ended(1).await[0].ending, Some(Ending::Closed));
    }
}

#[tokio::test]
async fn the_query_names_the_endpoint() {
    let server = Server::start(replies(200, &vector(&["1"]))).await;
    let query = "up{instance=\"{address}:9100\",pool=\"{pool}\",name=\"{endpoint}\"}".into();
    let url = format!("http://localhost:{}/prefix/", server.address.port());
    let outcome = probe(PrometheusCheck { query, ..asking(&url) }).run().await;
    assert_eq!(told(&outcome), "200 pass");
    let seen = &server.ended(1).await[0];
    let target = "/prefix/api/v1/query?query=up%7Binstance%3D%22192.0.2.1%3A9100%22%2Cpool%3D%22eu%22%2C\
                  name%3D%22eu-1%22%7D";
    assert!(seen.received.starts_with(&format!("GET {target} HTTP/1.1\r\n")), "{}", seen.received);
    assert_eq!(lines(seen, "host"), [format!("Host: localhost:{}", server.address.port())]);
}

#[tokio::test]
async fn what_is_no_value_says_nothing_about_the_endpoint() {
    let error = r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#;
    for (script, expected) in [
        (replies(200, &vector(&[])), "200 error OtherFailure no_sample"),
        (replies(200, &vector(&["1", "1"])), "200 error OtherFailure several_samples"),
        (replies(200, &vector(&["NaN"])), "200 error OtherFailure not_a_number"),
        (replies(200, error), "200 error OtherFailure metric_unavailable"),
        (replies(400, error), "400 error OtherFailure metric_unavailable"),
        (replies(503, "Service Unavailable"), "503 error OtherFailure metric_unavailable"),
        (replies(200, "<html>"), "200 error OtherFailure metric_unavailable"),
        (replies(302, ""), "302 error OtherFailure metric_unavailable"),
        (answer("SSH-2.0-OpenSSH_9.9\r\n"), "- error OtherFailure malformed_response"),
        (vec![Step::Head], "- error OtherFailure closed_early"),
        (vec![Step::Head, Step::Hold], "- error OtherFailure response_timeout"),
        (
            vec![Step::Head, Step::Write(b"HTTP/1.1 200 OK\r\n\r\n".to_vec()), Step::Hold],
            "200 error OtherFailure body_timeout",
        ),
    ] {
        let server = Server::start(script).await;
        let outcome = probe(asking(&format!("http://{}", server.address))).within(SHORT).run().await;
        assert_eq!(told(&outcome), expected);
    }
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let outcome = probe(asking(&format!("http://{nobody}"))).run().await;
    assert_eq!(told(&outcome), "- error OtherFailure connect_refused");
}

#[tokio::test]
async fn an_answer_is_read_so_far_and_no_further() {
    let head = Step::Write(b"HTTP/1.1 200 OK\r\n\r\n".to_vec());
    let server = Server::start(vec![Step::Head, head, Step::Endless(b" ".repeat(1000))]).await;
    let outcome = probe(asking(&format!("http://{}", server.address))).run().await;
    assert_eq!(told(&outcome), "200 error OtherFailure metric_unavailable");
    assert!(outcome.took < LONG, "{:?}", outcome.took);
    server.ended(1).await;
}

#[tokio::test]
async fn it_is_asked_over_tls() {
    let authority = Authority::new();
    let script = replies(200, &vector(&["1"]));
    let server = Server::tls(authority.issue(&["localhost"], 2020, 2100), script).await;
    let url = format!("https://localhost:{}", server.address.port());
    let outcome = probe(PrometheusCheck { tls: trusting(&authority), ..asking(&url) }).run().await;
    assert_eq!(told(&outcome), "200 pass");
    assert!(outcome.evidence.certificate_until.is_some());
    assert_eq!(server.ended(1).await[0].sni.as_deref(), Some("localhost"));

    let outcome = probe(asking(&url)).run().await;
    assert_eq!(told(&outcome), "- error OtherFailure unknown_issuer");
}
