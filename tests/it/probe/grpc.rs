//! Probes of gRPC's health service.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use haledns::model::{Check, GrpcCheck, TlsCheck};

use super::https::{insecure, trusting};
use super::{Probe, SHORT, told};
use crate::support::certificates::Authority;
use crate::support::folder::Folder;
use crate::support::http2::{Answer, Reply, Server};
use crate::support::programs::need_python;
use crate::support::server::{self, Step, answer, tls_config};

const GRPC: (&str, &str) = ("content-type", "application/grpc");

fn check(service: &str, tls: Option<TlsCheck>) -> GrpcCheck {
    GrpcCheck { port: None, tls, service: service.into(), authority: None }
}

fn probe(to: std::net::SocketAddr, check: GrpcCheck) -> Probe {
    Probe::new(to, Check::Grpc(check))
}

/// A HealthCheckResponse, and status 0 behind it.
fn says(status: u8) -> Reply {
    let body = vec![0, 0, 0, 0, 2, 8, status];
    Reply { headers: vec![GRPC], body, trailers: vec![("grpc-status", "0")], ..Reply::default() }
}

#[tokio::test]
async fn a_call_is_complete() {
    let server = Server::start(None, Answer::Reply(says(1))).await;
    let outcome = probe(server.address, check("shop.Cart", None)).run().await;
    assert_eq!(told(&outcome), "200 pass");
    assert_eq!(&*outcome.evidence.said, b"SERVING");
    let seen = server.ended(1).await;
    let (head, body) = &seen.requests[0];
    let uri = format!("http://{}/grpc.health.v1.Health/Check", server.address);
    assert_eq!((head.method.as_str(), head.uri.to_string()), ("POST", uri));
    for (name, value) in [("content-type", "application/grpc"), ("te", "trailers"), ("grpc-timeout", "5000m")]
    {
        assert_eq!(head.headers[name], value);
    }
    assert!(head.headers["user-agent"].to_str().unwrap().starts_with("hale/"));
    assert_eq!(body, b"\0\0\0\0\x0b\x0a\x09shop.Cart");
    assert_eq!(seen.endings, [true]);
}

#[tokio::test]
async fn the_authority_is_the_monitors_or_the_endpoints_host() {
    let authority = Authority::new();
    for (own, host, expected) in [
        (Some("api.example.com:1234"), Some("app.example.com"), "api.example.com:1234"),
        (None, Some("app.example.com"), "app.example.com"),
    ] {
        let name = expected.split(':').next().unwrap();
        let config = tls_config(authority.issue(&[name], 2020, 2100), None, &["h2"]);
        let server = Server::start(Some(config), Answer::Reply(says(1))).await;
        let check = GrpcCheck { authority: own.map(str::to_owned), ..check("", Some(trusting(&authority))) };
        let mut probe = probe(server.address, check);
        probe.0.host = host.map(Into::into);
        let outcome = probe.run().await;
        assert_eq!(told(&outcome), "200 pass");
        assert!(outcome.evidence.certificate_until.is_some());
        let seen = server.ended(1).await;
        assert_eq!(seen.requests[0].0.uri.authority().unwrap().as_str(), expected);
        assert_eq!(seen.requests[0].0.uri.scheme_str(), Some("https"));
    }
}

#[tokio::test]
async fn answers_are_told_apart() {
    let at_once = |code, message| Reply {
        headers: vec![GRPC, ("grpc-status", code), ("grpc-message", message)],
        ..Reply::default()
    };
    let trailing =
        |code| Reply { trailers: vec![("grpc-status", code)], headers: vec![GRPC], ..Reply::default() };
    let large = Reply { body: vec![0; 9000], ..says(1) };
    for (reply, expected) in [
        (says(1), "200 pass"),
        (says(0), "200 GrpcNotServing unknown"),
        (says(2), "200 GrpcNotServing not_serving"),
        (says(3), "200 GrpcNotServing service_unknown"),
        (says(9), "200 HttpInvalidResponse malformed_response"),
        (at_once("12", "no such method"), "12 GrpcNotServing unimplemented"),
        (at_once("5", ""), "5 GrpcNotServing service_unknown"),
        (at_once("16", ""), "16 GrpcNotServing grpc_status"),
        (trailing("14"), "14 GrpcNotServing grpc_status"),
        (trailing("0"), "200 HttpInvalidResponse malformed_response"),
        (trailing("many"), "200 HttpInvalidResponse malformed_response"),
        (Reply { trailers: vec![], ..says(1) }, "200 HttpInvalidResponse malformed_response"),
        (large, "200 HttpInvalidResponse malformed_response"),
        (Reply { status: 503, ..says(1) }, "503 HttpInvalidResponse unexpected_status"),
        (
            Reply { headers: vec![("content-type", "text/html")], ..says(1) },
            "200 HttpInvalidResponse not_grpc",
        ),
    ] {
        let server = Server::start(None, Answer::Reply(reply)).await;
        let outcome = probe(server.address, check("", None)).run().await;
        assert_eq!(told(&outcome), expected);
        assert_eq!(server.ended(1).await.endings, [true], "{expected}");
    }
    let silent = Server::start(None, Answer::Silence).await;
    let outcome = probe(silent.address, check("", None)).within(SHORT).run().await;
    assert_eq!(told(&outcome), "- GrpcTimeout response_timeout");
}

#[tokio::test]
async fn a_server_without_http_2_is_told_apart() {
    let authority = Authority::new();
    let web = server::Server::start(answer("HTTP/1.1 400 Bad Request\r\n\r\n")).await;
    let outcome = probe(web.address, check("", None)).run().await;
    assert_eq!(told(&outcome), "- HttpInvalidResponse not_http2");
    let identity = authority.issue(&["app.example.com"], 2020, 2100);
    let secure = server::Server::tls(identity, vec![Step::Hold]).await;
    let outcome = probe(secure.address, check("", Some(insecure()))).run().await;
    assert_eq!(told(&outcome), "- TlsHandshakeFailure no_application_protocol");
}

/// Google's own implementation with a health service: one port in clear text,
/// one with TLS; both are the lines it writes.
const SERVER: &str = r#"
import sys, grpc
from concurrent import futures

SERVICES = {b"": 1, b"shop.Cart": 1, b"shop.Order": 2}

def check(request, context):
    service = request[2:]
    if service == b"shop.Secret":
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "not for you")
    if service not in SERVICES:
        context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
    return bytes([8, SERVICES[service]])

health = grpc.method_handlers_generic_handler(
    "grpc.health.v1.Health", {"Check": grpc.unary_unary_rpc_method_handler(check)})
other = grpc.method_handlers_generic_handler(
    "shop.Cart", {"Check": grpc.unary_unary_rpc_method_handler(check)})
key, certificate = (open(path, "rb").read() for path in sys.argv[1:3])
credentials = grpc.ssl_server_credentials([(key, certificate)])
servers = []
for handler in [health, other]:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((handler,))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    print(server.add_secure_port("127.0.0.1:0", credentials), flush=True)
    server.start()
    servers.append(server)
sys.stdin.read()
"#;

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn googles_own_server_is_understood() {
    let Some(python) = need_python("grpc") else { return };
    let authority = Authority::new();
    let identity = authority.issue(&["app.example.com"], 2020, 2100);
    let folder = Folder::with("server.py", SERVER);
    folder.write("key.pem", &identity.key_pem);
    folder.write("certificate.pem", &identity.pem);
    let child = Command::new(python)
        .arg(folder.join("server.py"))
        .args([folder.join("key.pem"), folder.join("certificate.pem")])
        .env("GRPC_VERBOSITY", "NONE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut running = Running(child);
    let mut ports = BufReader::new(running.0.stdout.take().unwrap()).lines();
    let mut port = || (([127, 0, 0, 1]), ports.next().unwrap().unwrap().parse::<u16>().unwrap()).into();
    let (plain, secure, without_health) = (port(), port(), port());

    for (service, expected) in [
        ("", "200 pass"),
        ("shop.Cart", "200 pass"),
        ("shop.Order", "200 GrpcNotServing not_serving"),
        ("shop.Gone", "5 GrpcNotServing service_unknown"),
        ("shop.Secret", "7 GrpcNotServing grpc_status"),
    ] {
        let outcome = probe(plain, check(service, None)).run().await;
        assert_eq!(told(&outcome), expected, "{service}");
        let tls = Some(trusting(&authority));
        let outcome = probe(secure, check(service, tls)).host("app.example.com").run().await;
        assert_eq!(told(&outcome), expected, "{service} over TLS");
    }
    let outcome = probe(without_health, check("", None)).run().await;
    assert_eq!(told(&outcome), "12 GrpcNotServing unimplemented");
    let outcome = probe(secure, check("", None)).run().await;
    assert_ne!(told(&outcome), "200 pass", "in clear text to a port with TLS");
}
