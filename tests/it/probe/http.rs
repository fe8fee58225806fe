//! Probes of TCP and HTTP.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use haledns::health::{ProbeResult, Reason};
use haledns::model::{Check, Codes, HttpCheck, TcpCheck};

use super::https::{insecure, trusting};
use super::{LONG, Probe, SHORT, told};
use crate::support::certificates::Authority;
use crate::support::folder::Folder;
use crate::support::namespace::Namespace;
use crate::support::programs::{need, need_root};
use crate::support::server::{Ending, Seen, Server, Step, answer, tls_config};

pub const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK";

/// A GET of `/` that expects 200.
pub fn get() -> HttpCheck {
    HttpCheck::default()
}

pub fn expecting(body: &str) -> HttpCheck {
    HttpCheck { expected_body: Some(body.as_bytes().to_vec()), ..get() }
}

pub fn following() -> HttpCheck {
    HttpCheck { follow_redirects: true, ..get() }
}

impl Probe {
    pub fn http(server: &Server, check: HttpCheck) -> Probe {
        Probe::new(server.address, Check::Http(check))
    }

    fn tcp(to: SocketAddr) -> Probe {
        Probe::new(to, Check::Tcp(TcpCheck::default()))
    }
}

pub fn lines<'a>(seen: &'a Seen, header: &str) -> Vec<&'a str> {
    let prefix = format!("{}:", header.to_ascii_lowercase());
    seen.received.lines().filter(|line| line.to_ascii_lowercase().starts_with(&prefix)).collect()
}

/// A listener whose queue is full: it takes no handshake and refuses none.
struct Silent {
    address: SocketAddr,
    _listener: socket2::Socket,
    _queue: Vec<socket2::Socket>,
}

impl Silent {
    fn new() -> Silent {
        use socket2::{Domain, Socket, Type};
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let queue = (0..8).map(|_| {
            let filler = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            filler.set_nonblocking(true).unwrap();
            let _ = filler.connect(&address.into());
            filler
        });
        Silent { address, _queue: queue.collect(), _listener: listener }
    }
}

fn closed_port() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

// TCP

#[tokio::test]
async fn b20_a_tcp_handshake_passes_and_is_closed_politely_without_an_octet_sent() {
    let server = Server::start(vec![Step::Hold]).await;
    let outcome = Probe::tcp(server.address).run().await;
    assert_eq!(told(&outcome), "- pass");
    assert_eq!((outcome.reason, outcome.detail), (Reason::NoFailures, ""));
    let seen = server.ended(1).await;
    assert_eq!((seen[0].ending, &*seen[0].received), (Some(Ending::Closed), ""));
}

#[tokio::test]
async fn m5_a_refused_connection_fails_at_once_without_a_retry() {
    let begun = Instant::now();
    let tcp = Probe::tcp(closed_port()).retries(2).run().await;
    let http = Probe::new(closed_port(), Check::Http(get())).retries(2).run().await;
    assert_eq!(told(&tcp), "- TcpConnectionFailed connect_refused");
    assert_eq!(told(&http), "- TcpConnectionFailed connect_refused");
    assert_eq!((tcp.evidence.attempts, http.evidence.attempts), (1, 1));
    assert!(begun.elapsed() < LONG);
}

#[tokio::test]
async fn a_handshake_that_is_not_answered_times_out() {
    let silent = Silent::new();
    let tcp = Probe::tcp(silent.address).within(SHORT).retries(1).run().await;
    assert_eq!(told(&tcp), "- TcpTimeout connect_timeout");
    assert!(tcp.took >= SHORT * 2, "both attempts count: {:?}", tcp.took);
    let http = Probe::new(silent.address, Check::Http(get())).within(SHORT).run().await;
    assert_eq!(told(&http), "- HttpTimeout connect_timeout");
}

#[tokio::test]
async fn h17_an_address_that_this_machine_cannot_connect_to_is_an_error_not_a_failure() {
    // TCP to the broadcast address is refused by the system itself.
    let broadcast = SocketAddr::from((Ipv4Addr::BROADCAST, 80));
    let outcome = Probe::tcp(broadcast).within(SHORT).run().await;
    assert_eq!(outcome.result, ProbeResult::Error, "{}", told(&outcome));
}

#[tokio::test]
async fn b02_an_ipv6_endpoint_is_probed() {
    let server = Server::on(Ipv6Addr::LOCALHOST.into(), vec![answer(OK)], None).await;
    assert_eq!(told(&Probe::tcp(server.address).run().await), "- pass");
    assert_eq!(told(&Probe::http(&server, get()).run().await), "200 pass");
    let seen = server.ended(2).await;
    let host = format!("host: [::1]:{}", server.address.port());
    assert_eq!(lines(&seen[1], "host")[0].to_ascii_lowercase(), host);
}

// Attempts and their deadline

#[tokio::test]
async fn m1_a_timeout_is_retried_and_the_next_attempt_may_pass() {
    let server = Server::sequence(vec![vec![Step::Hold], answer(OK)]).await;
    let outcome = Probe::http(&server, get()).within(SHORT).retries(2).run().await;
    assert_eq!(told(&outcome), "200 pass");
    assert!(outcome.took >= SHORT, "{:?}", outcome.took);
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn m2_all_attempts_time_out() {
    let server = Server::start(vec![Step::Hold]).await;
    let outcome = Probe::http(&server, get()).within(SHORT).retries(2).run().await;
    assert_eq!(told(&outcome), "- HttpTimeout response_timeout");
    assert!(outcome.took >= SHORT * 3 && outcome.took < LONG, "{:?}", outcome.took);
    let seen = server.ended(3).await;
    assert!(seen.len() == 3 && seen.iter().all(|seen| seen.ending == Some(Ending::Closed)));
}

#[tokio::test]
async fn m3_a_wrong_code_is_final() {
    let server = Server::start(answer("HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n")).await;
    let outcome = Probe::http(&server, get()).retries(2).run().await;
    assert_eq!(told(&outcome), "503 ResponseCodeMismatch unexpected_status");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn m4_without_retries_one_timeout_fails() {
    let server = Server::start(vec![Step::Hold]).await;
    let outcome = Probe::http(&server, get()).within(SHORT).run().await;
    assert_eq!(told(&outcome), "- HttpTimeout response_timeout");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn m6_the_last_attempt_gives_the_reason() {
    let unavailable = answer("HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n");
    let server = Server::sequence(vec![vec![Step::Hold], unavailable]).await;
    let outcome = Probe::http(&server, get()).within(SHORT).retries(2).run().await;
    assert_eq!(told(&outcome), "503 ResponseCodeMismatch unexpected_status");
    assert_eq!(server.connections(), 2);
}

/// A server that answers a handshake with its ServerHello and nothing after it.
fn stalling_after_server_hello() -> SocketAddr {
    let authority = Authority::new();
    let config = Arc::new(tls_config(authority.issue(&["app.example.com"], 2020, 2100), None, &[]));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut session = rustls::ServerConnection::new(config).unwrap();
        let mut flight = Vec::new();
        while flight.is_empty() {
            session.read_tls(&mut stream).unwrap();
            session.process_new_packets().unwrap();
            session.write_tls(&mut flight).unwrap();
        }
        let first = 5 + usize::from(u16::from_be_bytes([flight[3], flight[4]]));
        stream.write_all(&flight[..first]).unwrap();
        let _ = stream.read_to_end(&mut Vec::new()); // until the client is gone
    });
    address
}

/// All begin at once, so that it takes no longer than one of them.
#[tokio::test]
async fn b13_one_deadline_for_the_whole_probe() {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let octet = Duration::from_millis(30);
    let tls = || HttpCheck { tls: Some(insecure()), ..get() };
    let write = |text: &str| Step::Write(text.as_bytes().to_vec());
    let drip = |text: String| Step::Drip(text.into(), octet);
    let head = drip(format!("HTTP/1.1 200 OK\r\nX-Slow: {}", "x".repeat(1000)));
    let body = vec![Step::Head, write("HTTP/1.1 200 OK\r\n\r\n"), drip("x".repeat(999))];
    // each part takes less than the time there is, and all of them more
    let slow_head = drip(format!("HTTP/1.1 200 OK\r\nX-Slow: {}", "x".repeat(15)));
    let parts = vec![Step::Head, slow_head, write("\r\n\r\n"), drip("x".repeat(45))];
    let mut probes = tokio::task::JoinSet::new();
    for (check, script, identity, expected) in [
        (get(), vec![Step::Hold], None, "- HttpTimeout response_timeout"),
        (get(), vec![Step::Head, Step::Hold], None, "- HttpTimeout response_timeout"),
        (get(), vec![Step::Head, head], None, "- HttpTimeout response_timeout"),
        (tls(), vec![Step::Hold], None, "- HttpTimeout tls_timeout"),
        // The head of a ServerHello's record, and no more.
        (tls(), vec![Step::Write(vec![22, 3, 3, 0, 90, 2]), Step::Hold], None, "- HttpTimeout tls_timeout"),
        (expecting("alive"), body, None, "200 HttpTimeout body_timeout"),
        (expecting("alive"), parts.clone(), None, "200 HttpTimeout body_timeout"),
        (
            HttpCheck { expected_body: expecting("alive").expected_body, ..tls() },
            parts,
            Some(Authority::new().issue(&["app.example.com"], 2020, 2100)),
            "200 HttpTimeout body_timeout",
        ),
    ] {
        let server = Server::on(Ipv4Addr::LOCALHOST.into(), vec![script], identity).await;
        probes.spawn(async move {
            let outcome = Probe::http(&server, check).within(TIMEOUT).run().await;
            assert_eq!(server.ended(1).await.len(), 1, "no retry was asked for");
            (outcome, expected)
        });
    }
    let silent = Silent::new();
    let to_silent = Probe::new(silent.address, Check::Http(get())).within(TIMEOUT);
    let hello = Probe::new(stalling_after_server_hello(), Check::Http(tls())).within(TIMEOUT);
    probes.spawn(async { (to_silent.run().await, "- HttpTimeout connect_timeout") });
    probes.spawn(async { (hello.run().await, "- HttpTimeout tls_timeout") });
    let tcp = Probe::tcp(silent.address).within(TIMEOUT);
    probes.spawn(async { (tcp.run().await, "- TcpTimeout connect_timeout") });
    while let Some(probe) = probes.join_next().await {
        let (outcome, expected) = probe.unwrap();
        assert_eq!(told(&outcome), expected);
        let right = TIMEOUT..=TIMEOUT * 11 / 10;
        assert!(right.contains(&outcome.took), "{expected} after {:?}", outcome.took);
    }
}

/// Runs itself once more where no resolver answers.
#[test]
fn b13_h17_a_name_that_takes_long_to_look_up_ends_at_the_deadline_too() {
    const ALONE: &str = "HALE_TEST_SILENT_RESOLVER";
    let name = "probe::http::b13_h17_a_name_that_takes_long_to_look_up_ends_at_the_deadline_too";
    if std::env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let outcome = runtime.block_on(async {
            let server = Server::start(redirect(302, "http://slow.example.net/")).await;
            Probe::http(&server, following()).within(SHORT).host("app.example.com").run().await
        });
        assert_eq!(told(&outcome), "- error OtherFailure resolve_timeout");
        assert!((SHORT..SHORT * 3).contains(&outcome.took), "{:?}", outcome.took);
        println!("it was given up");
        runtime.shutdown_background();
        return;
    }
    if !need("unshare") || !need("mount") || !need_root() {
        return;
    }
    let number = std::process::id().to_be_bytes();
    let silent = std::net::UdpSocket::bind((Ipv4Addr::new(127, 53, number[2], number[3] | 1), 53)).unwrap();
    let resolver = silent.local_addr().unwrap().ip();
    let folder =
        Folder::with("resolv.conf", &format!("nameserver {resolver}\noptions timeout:20 attempts:1\n"));
    let output = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", "mount --bind \"$1\" /etc/resolv.conf && shift && exec \"$@\"", "sh"])
        .arg(folder.join("resolv.conf"))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("it was given up"), "{output:?}");
    assert!(silent.recv(&mut [0; 512]).is_ok(), "it was asked");
}

#[tokio::test]
async fn b13_redirects_share_the_deadline() {
    // Each hop takes most of the time there is; together they would pass.
    let slow = Step::Drip(b"HTTP/1.1 302 Fo".to_vec(), SHORT / 20);
    let rest = Step::Write(b"und\r\nLocation: /next\r\nContent-Length: 0\r\n\r\n".to_vec());
    let hop = vec![Step::Head, slow, rest];
    let server = Server::sequence(vec![hop.clone(), hop.clone(), hop, answer(OK)]).await;
    let outcome = Probe::http(&server, following()).within(SHORT).run().await;
    assert_eq!(told(&outcome), "- HttpTimeout response_timeout");
    server.ended(2).await;
}

#[tokio::test]
async fn d03_a_dropped_probe_closes_its_socket() {
    let server = Server::start(vec![Step::Head, Step::Hold]).await;
    let probe = tokio::spawn(Probe::http(&server, get()).run());
    server.received("GET").await;
    probe.abort();
    let seen = server.ended(1).await;
    assert_eq!(seen[0].ending, Some(Ending::Closed));
}

// The request

#[tokio::test]
async fn a_request_is_complete_and_asks_for_the_connections_end() {
    let server = Server::start(answer(OK)).await;
    let check = HttpCheck {
        path: "/health?full=1".into(),
        headers: vec![("X-Second".into(), "b".into()), ("X-First".into(), "a b".into())],
        ..get()
    };
    assert_eq!(told(&Probe::http(&server, check).run().await), "200 pass");
    let seen = server.ended(1).await;
    let expected = format!(
        "GET /health?full=1 HTTP/1.1\r\nHost: {}\r\nX-Second: b\r\nX-First: a b\r\n\
         User-Agent: hale/{} (pool eu)\r\nAccept: */*\r\nConnection: close\r\n\r\n",
        server.address,
        env!("CARGO_PKG_VERSION"),
    );
    assert_eq!(seen[0].received, expected);
    assert_eq!(seen[0].ending, Some(Ending::Closed));
}

#[tokio::test]
async fn b01_there_is_exactly_one_host_and_the_endpoints_goes_first() {
    let own = vec![("hOsT".to_owned(), "monitor.example.com:81".to_owned())];
    for (endpoint, headers, expected) in [
        (Some("app.example.com"), own.clone(), "Host: app.example.com"),
        (Some("app.example.com:99"), Vec::new(), "Host: app.example.com:99"),
        (None, own, "Host: monitor.example.com:81"),
    ] {
        let server = Server::start(answer(OK)).await;
        let mut probe = Probe::http(&server, HttpCheck { headers, ..get() });
        probe.0.host = endpoint.map(Arc::from);
        assert_eq!(told(&probe.run().await), "200 pass");
        assert_eq!(lines(&server.ended(1).await[0], "host"), [expected]);
    }
}

#[tokio::test]
async fn b01_an_endpoint_given_by_name_is_asked_by_that_name() {
    let own = vec![("Host".to_owned(), "monitor.example.com".to_owned())];
    for (endpoint, headers, expected) in [
        (None, Vec::new(), "Host: web.example.net:PORT"),
        (None, own, "Host: monitor.example.com"),
        (Some("app.example.com"), Vec::new(), "Host: app.example.com"),
    ] {
        let server = Server::start(answer(OK)).await;
        let mut probe = Probe::http(&server, HttpCheck { headers, ..get() });
        (probe.0.host, probe.0.hostname) = (endpoint.map(Arc::from), Some("web.example.net".into()));
        assert_eq!(told(&probe.run().await), "200 pass");
        let expected = expected.replace("PORT", &server.address.port().to_string());
        assert_eq!(lines(&server.ended(1).await[0], "host"), [expected]);
    }
}

#[tokio::test]
async fn b03_the_monitors_user_agent_replaces_ours() {
    let server = Server::start(answer(OK)).await;
    let headers = vec![("user-agent".to_owned(), "curl/8".to_owned())];
    assert_eq!(told(&Probe::http(&server, HttpCheck { headers, ..get() }).run().await), "200 pass");
    assert_eq!(lines(&server.ended(1).await[0], "user-agent"), ["User-Agent: curl/8"]);
}

#[tokio::test]
async fn b19_a_post_says_that_it_has_no_body() {
    let server = Server::start(answer(OK)).await;
    assert_eq!(
        told(&Probe::http(&server, HttpCheck { method: "POST".into(), ..get() }).run().await),
        "200 pass"
    );
    let seen = server.ended(1).await;
    assert!(seen[0].received.starts_with("POST / HTTP/1.1\r\n"));
    assert_eq!(lines(&seen[0], "content-length"), ["Content-Length: 0"]);
    assert!(seen[0].received.ends_with("\r\n\r\n"), "nothing after the head");
}

#[tokio::test]
async fn what_cannot_be_sent_is_an_error_on_this_side() {
    let server = Server::start(answer(OK)).await;
    for check in [
        HttpCheck { method: "NOT A TOKEN".into(), ..get() },
        HttpCheck { path: "/with space".into(), ..get() },
        HttpCheck { headers: vec![("X-Bad".into(), "a\r\nX-Injected: b".into())], ..get() },
    ] {
        let outcome = Probe::http(&server, check).run().await;
        assert_eq!(told(&outcome), "- error OtherFailure invalid_request");
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn b01_b02_the_usual_port_is_left_out_of_the_default_host_and_ipv6_is_in_brackets() {
    let Some(namespace) = Namespace::new() else { return };
    let namespace = namespace.with_addresses(&["192.0.2.11/32", "2001:db8::11/128"]);
    let authority = Authority::new();
    for (to, secure, host) in [
        ("192.0.2.11:80", false, "192.0.2.11"),
        ("192.0.2.11:8080", false, "192.0.2.11:8080"),
        ("192.0.2.11:443", true, "192.0.2.11"),
        ("192.0.2.11:80", true, "192.0.2.11:80"),
        ("[2001:db8::11]:80", false, "[2001:db8::11]"),
        ("[2001:db8::11]:8080", false, "[2001:db8::11]:8080"),
        ("[2001:db8::11]:443", true, "[2001:db8::11]"),
        ("[2001:db8::11]:8443", true, "[2001:db8::11]:8443"),
    ] {
        let identity = authority.issue(&["192.0.2.11", "2001:db8::11"], 2020, 2100);
        let tls = secure.then(|| tls_config(identity, None, &[]));
        let response = answer("HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nOK");
        let server = Server::over(namespace.listen(to.parse().unwrap()), vec![response], tls);
        let check = HttpCheck { tls: secure.then(|| trusting(&authority)), ..get() };
        let outcome = Probe::http(&server, check).inside(&namespace.0).run().await;
        assert_eq!(told(&outcome), "200 pass", "{to}");
        let seen = &server.ended(1).await[0];
        assert_eq!(lines(seen, "host"), [format!("Host: {host}")]);
        assert!(seen.received.starts_with("GET / HTTP/1.1\r\n"), "{}", seen.received);
        assert_eq!(seen.sni, None, "{to}");
        server.stop().await;
    }
}

/// Answers 403 to who doesn't say what he is, as filters do.
fn guarded() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut octet = [0];
                stream.read_exact(&mut octet).unwrap();
                head.push(octet[0]);
            }
            let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
            let named = head
                .lines()
                .any(|line| line.strip_prefix("user-agent: ").is_some_and(|agent| !agent.is_empty()));
            let status = if named { "200 OK" } else { "403 Forbidden" };
            let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        }
    });
    address
}

#[tokio::test]
async fn b03_who_is_asked_for_a_user_agent_gets_one() {
    let guarded = guarded();
    let mut bare = std::net::TcpStream::connect(guarded).unwrap();
    bare.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut said = String::new();
    bare.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 403 "), "it is guarded: {said}");

    let own = vec![("User-Agent".to_owned(), "probe of example.com".to_owned())];
    for check in [get(), HttpCheck { headers: own, ..get() }, HttpCheck { method: "HEAD".into(), ..get() }] {
        assert_eq!(told(&Probe::new(guarded, Check::Http(check)).run().await), "200 pass");
    }
    let first = Server::start(redirect(302, &format!("http://localhost:{}/", guarded.port()))).await;
    let away = Probe::http(&first, following()).host("app.example.com");
    assert_eq!(told(&away.run().await), "200 pass", "on the way to another host as well");
}

// The answer

#[tokio::test]
async fn answers_are_judged_by_status_first_and_body_second() {
    let long =
        |before: usize| format!("HTTP/1.1 200 OK\r\n\r\n{}alive{}", "x".repeat(before), "x".repeat(9000));
    let limit = 10 * 1024;
    for (check, response, expected) in [
        (get(), OK.to_owned(), "200 pass"),
        (get(), "HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nOK".into(), "200 pass"),
        (get(), "HTTP/1.0 200 OK\r\n\r\nold and closing".into(), "200 pass"),
        (get(), "HTTP/1.1 204 No Content\r\n\r\n".into(), "204 ResponseCodeMismatch unexpected_status"),
        (get(), "HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n".into(), "302 ResponseCodeMismatch unexpected_status"),
        (get(), format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n{OK}"), "200 pass"),
        (expecting(""), OK.into(), "200 pass"),
        (expecting("ok"), OK.into(), "200 pass"),
        (expecting("ALIVE"), "HTTP/1.0 200 OK\r\n\r\nI am alive".into(), "200 pass"),
        (expecting("a.ive"), "HTTP/1.0 200 OK\r\n\r\nalive".into(), "200 ResponseBodyMismatch body_not_found"),
        (expecting("ok"), "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nok".into(), "404 ResponseCodeMismatch unexpected_status"),
        (expecting("x-in-head"), "HTTP/1.1 200 OK\r\nX-In-Head: 1\r\nContent-Length: 2\r\n\r\nOK".into(), "200 ResponseBodyMismatch body_not_found"),
        (expecting("alive"), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nal\r\n1;x=y\r\ni\r\n2\r\nve\r\n0\r\n\r\n".into(), "200 pass"),
        (expecting("alive"), "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x08zipped".into(), "200 ResponseBodyMismatch body_not_found"),
        (expecting("alive"), long(limit - 5), "200 pass"),
        (expecting("alive"), long(limit - 4), "200 ResponseBodyMismatch body_not_found"),
        (expecting("alive"), long(limit), "200 ResponseBodyMismatch body_not_found"),
    ] {
        let server = Server::start(answer(&response)).await;
        let outcome = Probe::http(&server, check).run().await;
        assert_eq!(told(&outcome), expected, "{:.80}", response);
        server.ended(1).await;
    }
}

#[tokio::test]
async fn b06_status_and_body_must_both_be_right_and_a_body_is_no_expression() {
    let respond = |status: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    let any_2xx = |check| HttpCheck { expected_codes: Codes(vec![200..=299]), ..check };
    for (check, response, expected) in [
        (expecting("alive"), respond("404 Not Found", "alive"), "404 ResponseCodeMismatch unexpected_status"),
        (expecting("alive"), respond("200 OK", "ALIVE"), "200 pass"),
        (expecting("ALIVE"), respond("200 OK", "I am Alive."), "200 pass"),
        (expecting("alive"), respond("200 OK", "dead"), "200 ResponseBodyMismatch body_not_found"),
        (expecting("a.ive"), respond("200 OK", "alive"), "200 ResponseBodyMismatch body_not_found"),
        (expecting("a.ive"), respond("200 OK", "A.IVE"), "200 pass"),
        (expecting("(.*"), respond("200 OK", "(.*"), "200 pass"),
        (expecting(""), respond("200 OK", ""), "200 pass"),
        (any_2xx(expecting("")), "HTTP/1.1 204 No Content\r\n\r\n".into(), "204 pass"),
        (
            any_2xx(expecting("alive")),
            "HTTP/1.1 204 No Content\r\n\r\n".into(),
            "204 ResponseBodyMismatch body_not_found",
        ),
    ] {
        let server = Server::start(answer(&response)).await;
        assert_eq!(told(&Probe::http(&server, check).run().await), expected, "{response}");
    }
}

#[tokio::test]
async fn b05_a_body_is_searched_up_to_its_limit_and_no_octet_further() {
    for limit in [10 * 1024, 64, 1 << 20] {
        for (before, expected) in [
            (limit - 6, "200 pass"),
            (limit - 5, "200 pass"),
            (limit - 4, "200 ResponseBodyMismatch body_not_found"),
            (limit - 1, "200 ResponseBodyMismatch body_not_found"),
            (limit, "200 ResponseBodyMismatch body_not_found"),
        ] {
            let body = format!("{}alive{}", "x".repeat(before), "x".repeat(5000));
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            let server = Server::start(answer(response)).await;
            let check = HttpCheck { body_limit: limit, ..expecting("alive") };
            let outcome = Probe::http(&server, check).run().await;
            assert_eq!(told(&outcome), expected, "{before} of {limit}");
        }
    }
    assert_eq!(get().body_limit, 10 * 1024, "as documented");
}

#[tokio::test]
async fn b05_nobody_is_asked_for_compression_and_what_is_compressed_is_taken_as_it_is() {
    let zipped = answer("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x08zipped");
    for (expected_body, expected) in
        [("alive", "200 ResponseBodyMismatch body_not_found"), ("zipped", "200 pass"), ("", "200 pass")]
    {
        let server = Server::start(zipped.clone()).await;
        assert_eq!(told(&Probe::http(&server, expecting(expected_body)).run().await), expected);
        assert_eq!(lines(&server.ended(1).await[0], "accept-encoding"), [""; 0]);
    }
}

/// A server whose answer has 100 MB; gives how many octets of it left.
fn huge(status: &'static str) -> (SocketAddr, std::thread::JoinHandle<usize>) {
    const SIZE: usize = 100_000_000;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).unwrap(); // it is short, and comes at once
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {SIZE}\r\n\r\n").unwrap();
        let piece = [b'x'; 50_000];
        (0..SIZE / piece.len()).take_while(|_| stream.write_all(&piece).is_ok()).count() * piece.len()
    });
    (address, serving)
}

#[tokio::test]
async fn b05_a_hundred_megabytes_are_left_where_they_are() {
    for (check, status, expected) in [
        (expecting("alive"), "200 OK", "200 ResponseBodyMismatch body_not_found"),
        (expecting("alive"), "404 Not Found", "404 ResponseCodeMismatch unexpected_status"),
        (expecting("xxx"), "200 OK", "200 pass"),
        (get(), "200 OK", "200 pass"),
        (
            HttpCheck { expected_json: pair("/a", "b"), ..get() },
            "200 OK",
            "200 ResponseBodyMismatch not_json",
        ),
    ] {
        let (address, serving) = huge(status);
        let outcome = Probe::new(address, Check::Http(check)).run().await;
        assert_eq!(told(&outcome), expected);
        assert!(outcome.took < LONG, "{:?}", outcome.took);
        let sent = serving.join().unwrap();
        assert!(sent < 20_000_000, "no more than the sockets hold: {sent}");
    }
}

#[tokio::test]
async fn b06_octets_that_are_no_text_are_compared_as_they_are() {
    let server = Server::start(answer(b"HTTP/1.0 200 OK\r\n\r\nzdrav\xed\xff\x00")).await;
    let check = |expected: &[u8]| HttpCheck { expected_body: Some(expected.to_vec()), ..get() };
    assert_eq!(told(&Probe::http(&server, check(b"ZDRAV\xed")).run().await), "200 pass");
    let utf8 = Probe::http(&server, check("zdraví".as_bytes())).run().await;
    assert_eq!(told(&utf8), "200 ResponseBodyMismatch body_not_found");
}

#[tokio::test]
async fn b05_a_match_is_found_across_the_pieces_of_a_slow_body() {
    let body = Step::Drip(b"5\r\n-aliv\r\n2\r\ne-\r\n0\r\n\r\n".to_vec(), Duration::from_millis(1));
    let head = Step::Write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec());
    let server = Server::start(vec![Step::Head, head, body]).await;
    assert_eq!(told(&Probe::http(&server, expecting("alive")).run().await), "200 pass");
    assert_eq!(server.ended(1).await[0].ending, Some(Ending::Closed));
}

#[tokio::test]
async fn b05_an_endless_body_ends_at_the_limit_or_the_match() {
    for (expected_body, expected) in [
        (Some("YADA"), "200 pass"),
        (Some("alive"), "200 ResponseBodyMismatch body_not_found"),
        (None, "200 pass"),
    ] {
        let head = Step::Write(b"HTTP/1.1 200 OK\r\n\r\n".to_vec());
        let server = Server::start(vec![Step::Head, head, Step::Endless(b"yada ".repeat(100))]).await;
        let expected_body = expected_body.map(|body| body.as_bytes().to_vec());
        let outcome = Probe::http(&server, HttpCheck { expected_body, ..get() }).run().await;
        assert_eq!(told(&outcome), expected);
        server.ended(1).await;
    }
}

#[tokio::test]
async fn b10_a_head_answer_has_no_body_whatever_its_length_says() {
    let response = Step::Write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n".to_vec());
    let server = Server::start(vec![Step::Head, response, Step::Hold]).await;
    let outcome = Probe::http(&server, HttpCheck { method: "HEAD".into(), ..get() }).run().await;
    assert_eq!(told(&outcome), "200 pass");
    assert!(outcome.took < LONG, "{:?}", outcome.took);
}

#[tokio::test]
async fn b20_a_server_may_finish_writing_after_the_verdict() {
    for status in ["200 OK", "500 Broken"] {
        let head = format!("HTTP/1.1 {status}\r\nX-Long: {}\r\n", "x".repeat(8000));
        let script = vec![
            Step::Head,
            Step::Write(format!("{head}Content-Length: 8000\r\n\r\n").into()),
            Step::Write(vec![b'x'; 4000]),
            Step::Drip(vec![b'x'; 10], Duration::from_millis(1)),
            Step::Write(vec![b'x'; 3990]),
        ];
        let server = Server::start(script).await;
        let outcome = Probe::http(&server, get()).run().await;
        assert_eq!(outcome.status, status[..3].parse().ok());
        assert_eq!(server.ended(1).await[0].ending, Some(Ending::Closed), "{status}");
    }
}

#[tokio::test]
async fn the_rest_of_a_body_never_turns_a_pass_into_a_failure() {
    let head = Step::Write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx".to_vec());
    let chunked = Step::Write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense".to_vec());
    for (timeout, script) in [
        (Duration::from_secs(5), vec![Step::Head, head.clone(), Step::Hold]),
        (Duration::from_millis(80), vec![Step::Head, head.clone(), Step::Hold]),
        (Duration::from_secs(5), vec![Step::Head, head.clone(), Step::Reset]),
        (Duration::from_secs(5), vec![Step::Head, head]),
        (Duration::from_secs(5), vec![Step::Head, chunked]),
    ] {
        let server = Server::start(script).await;
        let outcome = Probe::http(&server, get()).within(timeout).run().await;
        assert_eq!(told(&outcome), "200 pass");
        assert!(outcome.took < LONG, "{:?}", outcome.took);
        server.ended(1).await;
    }
}

#[tokio::test]
async fn b29_who_talks_before_he_is_asked_is_understood_each_time_alike() {
    let timeout = "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    for (said, expected) in [
        ("SSH-2.0-OpenSSH_9.6\r\n", "- HttpInvalidResponse malformed_response"),
        (timeout, "408 ResponseCodeMismatch unexpected_status"),
        (OK, "200 pass"),
    ] {
        let server = Server::start(vec![Step::Write(said.into()), Step::Hold]).await;
        for turn in 0..50 {
            assert_eq!(told(&Probe::http(&server, get()).run().await), expected, "{turn}: {said}");
        }
    }
}

#[tokio::test]
async fn b29_what_is_no_answer_is_told_apart() {
    let big = format!("HTTP/1.1 200 OK\r\nX-Big: {}\r\n\r\n", "x".repeat(200_000));
    let write = |text: &str| Step::Write(text.as_bytes().to_vec());
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n";
    for (check, script, expected) in [
        (get(), answer("220 smtp.example.com ESMTP\r\n"), "- HttpInvalidResponse malformed_response"),
        (get(), answer("HTTP/1.1 2x0 OK\r\n\r\n"), "- HttpInvalidResponse malformed_response"),
        (get(), answer("HTTP/1.1 200 OK\r\nno colon\r\n\r\n"), "- HttpInvalidResponse malformed_response"),
        (get(), answer([0xff, 0, 0, 1, 2, 3, 0xfe, b'\n']), "- HttpInvalidResponse malformed_response"),
        (get(), answer(big), "- HttpInvalidResponse head_too_large"),
        (get(), answer(""), "- HttpInvalidResponse closed_early"),
        (get(), answer("HTTP/1.1 200 OK\r\nContent-"), "- HttpInvalidResponse closed_early"),
        (get(), vec![Step::Head, Step::Reset], "- ConnectionReset connection_reset"),
        (
            expecting("alive"),
            answer("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nali"),
            "200 HttpInvalidResponse closed_early",
        ),
        (expecting("alive"), answer(chunked), "200 HttpInvalidResponse malformed_response"),
        (
            expecting("alive"),
            vec![Step::Head, write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nali"), Step::Reset],
            "200 ConnectionReset connection_reset",
        ),
    ] {
        let server = Server::start(script).await;
        let outcome = Probe::http(&server, check).run().await;
        assert_eq!(told(&outcome), expected);
    }
}

#[tokio::test]
async fn a_server_that_speaks_first_is_no_http_server() {
    let server = Server::start(vec![Step::Write(b"SSH-2.0-OpenSSH_9.9\r\n".to_vec()), Step::Hold]).await;
    let outcome = Probe::http(&server, get()).run().await;
    assert_eq!(told(&outcome), "- HttpInvalidResponse malformed_response");
}

// Content and further tests

fn pair(one: &str, other: &str) -> Vec<(String, String)> {
    vec![(one.into(), other.into())]
}

#[tokio::test]
async fn b19_content_comes_after_one_empty_line_with_its_exact_length() {
    for (method, body) in [("POST", "{\"deep\":true}"), ("PUT", "é"), ("GET", "x")] {
        let server = Server::start(answer(OK)).await;
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        let check = HttpCheck { method: method.into(), headers, body: Some(body.as_bytes().into()), ..get() };
        assert_eq!(told(&Probe::http(&server, check).run().await), "200 pass");
        let seen = &server.ended(1).await[0];
        let (head, content) = seen.received.split_once("\r\n\r\n").unwrap();
        assert_eq!(content, body, "and nothing after it");
        assert!(head.starts_with(&format!("{method} / HTTP/1.1\r\n")), "{head}");
        assert_eq!(lines(seen, "content-length"), [format!("Content-Length: {}", body.len())]);
        assert_eq!(lines(seen, "content-type"), ["Content-Type: application/json"]);
    }
}

#[tokio::test]
async fn b07_content_follows_a_redirect_as_far_as_the_method_and_the_host_do() {
    let home = "/x".to_owned();
    for (status, location, method, content) in [
        (307, home.clone(), "POST", "deep"),
        (302, home.clone(), "GET", ""),
        (303, home, "GET", ""),
        (307, "elsewhere".to_owned(), "POST", ""),
    ] {
        let last = Server::start(answer(OK)).await;
        let (scripts, away) = match &*location {
            "elsewhere" => {
                (vec![redirect(status, &format!("http://localhost:{}/", last.address.port()))], true)
            }
            _ => (vec![redirect(status, &location), answer(OK)], false),
        };
        let first = Server::sequence(scripts).await;
        let headers = vec![("Content-Type".to_owned(), "text/plain".to_owned())];
        let check =
            HttpCheck { method: "POST".into(), headers, body: Some(b"deep"[..].into()), ..following() };
        assert_eq!(told(&Probe::http(&first, check).host("app.example.com").run().await), "200 pass");
        let seen = if away { last.ended(1).await[0].clone() } else { first.ended(2).await[1].clone() };
        let (head, received) = seen.received.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with(&format!("{method} /")), "{status}: {head}");
        assert_eq!(received, content, "{status}");
        let kind: &[&str] = if content.is_empty() { &[] } else { &["Content-Type: text/plain"] };
        assert_eq!(lines(&seen, "content-type"), kind, "{status}");
        let length = match (method, content.len()) {
            ("GET", 0) => vec![],
            (_, length) => vec![format!("Content-Length: {length}")],
        };
        assert_eq!(lines(&seen, "content-length"), length, "{status}");
    }
}

#[tokio::test]
async fn all_tests_of_an_answer_must_hold() {
    let json = |text: &str| HttpCheck { expected_json: pair("/status", text), ..get() };
    let regex = |text: &str| HttpCheck { expected_regex: Some(text.into()), ..get() };
    let header = |name: &str, part: &str| HttpCheck { expected_headers: pair(name, part), ..get() };
    let body = r#"{"status":"ok","checks":[{"up":true}]}"#;
    let length = body.len();
    let ok = format!("HTTP/1.1 200 OK\r\nX-Ready: Yes, 1\r\nContent-Length: {length}\r\n\r\n{body}");
    let late = format!("HTTP/1.1 200 OK\r\n\r\n{}alive", "x".repeat(10 * 1024 - 4));
    let not_found = ok.replace("200 OK", "404 Not Found");
    for (check, response, expected) in [
        (json("ok"), &ok, "200 pass"),
        (json("down"), &ok, "200 ResponseBodyMismatch json_mismatch"),
        (HttpCheck { expected_json: pair("/checks/0/up", "true"), ..get() }, &ok, "200 pass"),
        (
            HttpCheck { expected_json: pair("/checks/1/up", "true"), ..get() },
            &ok,
            "200 ResponseBodyMismatch json_mismatch",
        ),
        (json("ok"), &late, "200 ResponseBodyMismatch not_json"),
        (regex("\"status\": *\"(ok|degraded)\""), &ok, "200 pass"),
        (regex("^alive"), &ok, "200 ResponseBodyMismatch regex_mismatch"),
        (regex("alive"), &late, "200 ResponseBodyMismatch regex_mismatch"),
        (regex("x+aliv$"), &late, "200 pass"),
        (regex("("), &ok, "200 error OtherFailure invalid_pattern"),
        (header("x-ready", "YES"), &ok, "200 pass"),
        (header("X-Ready", ""), &ok, "200 pass"),
        (header("X-Ready", "2"), &ok, "200 ResponseBodyMismatch header_mismatch"),
        (header("X-Gone", ""), &ok, "200 ResponseBodyMismatch header_missing"),
        (json("ok"), &not_found, "404 ResponseCodeMismatch unexpected_status"),
        (header("X-Ready", ""), &not_found, "404 ResponseCodeMismatch unexpected_status"),
        (HttpCheck { expected_body: Some(b"CHECKS".to_vec()), ..json("ok") }, &ok, "200 pass"),
        (
            HttpCheck { expected_body: Some(b"alive".to_vec()), ..json("ok") },
            &ok,
            "200 ResponseBodyMismatch body_not_found",
        ),
        (
            HttpCheck { expected_regex: Some("ok".into()), ..json("down") },
            &ok,
            "200 ResponseBodyMismatch json_mismatch",
        ),
        (
            HttpCheck { expected_headers: pair("X-Gone", ""), ..json("ok") },
            &ok,
            "200 ResponseBodyMismatch header_missing",
        ),
        (
            json("ok"),
            &"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{".to_owned(),
            "200 HttpInvalidResponse closed_early",
        ),
    ] {
        let server = Server::start(answer(response)).await;
        assert_eq!(told(&Probe::http(&server, check).run().await), expected, "{:.80}", response);
        server.ended(1).await;
    }
}

#[tokio::test]
async fn b05_an_endless_body_is_collected_so_far_and_no_further() {
    let head = Step::Write(b"HTTP/1.1 200 OK\r\n\r\n".to_vec());
    let server = Server::start(vec![Step::Head, head, Step::Endless(b"yada ".repeat(100))]).await;
    let check = HttpCheck { expected_regex: Some("alive".into()), ..get() };
    let outcome = Probe::http(&server, check).run().await;
    assert_eq!(told(&outcome), "200 ResponseBodyMismatch regex_mismatch");
    assert!(outcome.took < LONG, "{:?}", outcome.took);
    server.ended(1).await;
}

#[tokio::test]
async fn an_expression_that_takes_long_neither_outlasts_its_probe_nor_keeps_others_waiting() {
    // letters in no order let the expression's automaton grow with each of them
    let mut dice = 1u32;
    let mut letter = || {
        dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if dice >> 31 == 0 { 'a' } else { 'b' }
    };
    let body: String = (0..4 << 20).map(|_| letter()).collect();
    let slow_server = Server::start(answer(format!("HTTP/1.1 200 OK\r\n\r\n{body}"))).await;
    let server = Server::start(answer(OK)).await;
    let check = HttpCheck { expected_regex: Some("a[ab]{14}[cd]".into()), body_limit: 4 << 20, ..get() };
    let slow = async {
        let began = Instant::now();
        let outcome = Probe::http(&slow_server, check).within(SHORT).run().await;
        (outcome, began.elapsed())
    };
    let (slow, quick) = tokio::join!(slow, Probe::http(&server, get()).within(SHORT).run());
    assert_eq!(told(&quick), "200 pass");
    assert_eq!(told(&slow.0), "200 HttpTimeout body_timeout");
    assert!(slow.1 < 3 * SHORT, "{:?}", slow.1);
}

#[tokio::test]
async fn the_beginning_of_a_body_is_evidence_whatever_the_verdict() {
    let long = "database down ".repeat(20);
    for (check, status) in [
        (get(), "200 OK"),
        (get(), "500 Broken"),
        (expecting("alive"), "200 OK"),
        (HttpCheck { expected_regex: Some("alive".into()), ..get() }, "200 OK"),
        (HttpCheck { expected_headers: pair("X-Gone", ""), ..get() }, "200 OK"),
    ] {
        let server = Server::start(answer(format!("HTTP/1.1 {status}\r\n\r\n{long}"))).await;
        let outcome = Probe::http(&server, check).run().await;
        assert_eq!(&*outcome.evidence.said, &long.as_bytes()[..128], "{status}");
        assert!(outcome.evidence.first_byte.is_some());
    }
}

// Redirects

pub fn redirect(status: u16, location: &str) -> Vec<Step> {
    answer(format!("HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 5\r\n\r\nmoved"))
}

#[tokio::test]
async fn b07_an_unfollowed_redirect_is_judged_as_itself() {
    let server = Server::start(redirect(302, "/login")).await;
    let check = HttpCheck { expected_codes: Codes(vec![302..=302]), ..get() };
    assert_eq!(told(&Probe::http(&server, check).run().await), "302 pass");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn b07_a_followed_redirect_is_judged_by_its_last_answer() {
    for (status, last, expected) in [
        (301, OK, "200 pass"),
        (302, OK, "200 pass"),
        (303, OK, "200 pass"),
        (307, OK, "200 pass"),
        (308, OK, "200 pass"),
        (302, "HTTP/1.1 500 Broken\r\n\r\n", "500 ResponseCodeMismatch unexpected_status"),
    ] {
        let server = Server::sequence(vec![redirect(status, "login?x=1#top"), answer(last)]).await;
        let check = HttpCheck { path: "/app/start".into(), ..following() };
        let outcome = Probe::http(&server, check).host("app.example.com").run().await;
        assert_eq!(told(&outcome), expected);
        let seen = server.ended(2).await;
        assert!(seen[1].received.starts_with("GET /app/login?x=1 HTTP/1.1\r\n"), "{}", seen[1].received);
        assert_eq!(lines(&seen[1], "host"), ["Host: app.example.com"]);
        assert_eq!(seen[0].ending, Some(Ending::Closed), "each hop has its own connection");
    }
}

#[tokio::test]
async fn b07_a_redirect_that_leads_nowhere_is_told_apart() {
    let missing = answer("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n");
    let not_modified = answer("HTTP/1.1 304 Not Modified\r\nLocation: /\r\n\r\n");
    for (script, expected) in [
        (missing, "302 ResponseCodeMismatch unexpected_status"),
        (not_modified, "304 ResponseCodeMismatch unexpected_status"),
        (redirect(302, "ftp://app.example.com/"), "302 HttpInvalidResponse bad_location"),
        (redirect(302, "http://:99999/"), "302 HttpInvalidResponse bad_location"),
    ] {
        let server = Server::start(script).await;
        assert_eq!(told(&Probe::http(&server, following()).run().await), expected);
        assert_eq!(server.connections(), 1);
    }
}

#[tokio::test]
async fn b07_five_redirects_are_followed_and_a_sixth_is_not() {
    let hops = |number| {
        let mut scripts = vec![redirect(302, "/again"); number];
        scripts.push(answer(OK));
        scripts
    };
    let server = Server::sequence(hops(5)).await;
    assert_eq!(told(&Probe::http(&server, following()).run().await), "200 pass");
    for number in [6, 20] {
        let server = Server::sequence(hops(number)).await;
        let outcome = Probe::http(&server, following()).run().await;
        assert_eq!(told(&outcome), "302 OtherFailure too_many_redirects");
        assert_eq!(server.ended(6).await.len(), 6);
    }
}

#[tokio::test]
async fn b07_a_redirect_loop_ends() {
    let server = Server::start(redirect(301, "/")).await;
    let outcome = Probe::http(&server, following()).run().await;
    assert_eq!(told(&outcome), "301 OtherFailure too_many_redirects");
}

#[tokio::test]
async fn b07_a_redirect_keeps_or_changes_the_method() {
    for (method, status, then) in [
        ("POST", 301, "GET"),
        ("POST", 302, "GET"),
        ("POST", 303, "GET"),
        ("PUT", 303, "GET"),
        ("PUT", 302, "PUT"),
        ("POST", 307, "POST"),
        ("POST", 308, "POST"),
        ("HEAD", 303, "HEAD"),
    ] {
        let server = Server::sequence(vec![redirect(status, "/x"), answer(OK)]).await;
        let check = HttpCheck { method: method.into(), ..following() };
        assert_eq!(told(&Probe::http(&server, check).run().await), "200 pass");
        let request = format!("{then} /x HTTP/1.1\r\n");
        assert!(server.ended(2).await[1].received.starts_with(&request), "{method} after {status}");
    }
}

#[tokio::test]
async fn b07_a_hop_to_the_same_host_goes_to_the_endpoint_on_the_urls_port() {
    let second = Server::start(answer(OK)).await;
    let location = format!("http://APP.example.com:{}/next", second.address.port());
    let first = Server::start(redirect(302, &location)).await;
    let headers = vec![("X-Token".to_owned(), "secret".to_owned())];
    let probe = Probe::http(&first, HttpCheck { headers, ..following() }).host("app.example.com");
    assert_eq!(told(&probe.run().await), "200 pass");
    let seen = second.ended(1).await;
    assert_eq!(lines(&seen[0], "host"), [format!("Host: APP.example.com:{}", second.address.port())]);
    assert_eq!(lines(&seen[0], "x-token"), ["X-Token: secret"], "still at home");
}

#[tokio::test]
async fn b07_a_hop_to_another_host_goes_where_its_name_leads_without_our_headers() {
    let second = Server::start(answer(OK)).await;
    let port = second.address.port();
    let elsewhere: IpAddr = Ipv4Addr::new(127, 0, 0, 2).into();
    for host in ["localhost", "127.0.0.1"] {
        let location = format!("http://{host}:{port}/next");
        let first = Server::on(elsewhere, vec![redirect(302, &location)], None).await;
        let headers =
            vec![("X-Token".to_owned(), "secret".to_owned()), ("User-Agent".to_owned(), "own".to_owned())];
        let probe = Probe::http(&first, HttpCheck { headers, ..following() }).host("app.example.com");
        assert_eq!(told(&probe.run().await), "200 pass");
        let seen = second.ended(1).await;
        let seen = seen.last().unwrap();
        assert_eq!(lines(seen, "host"), [format!("Host: {host}:{port}")]);
        assert_eq!(lines(seen, "x-token"), [""; 0]);
        assert!(lines(seen, "user-agent")[0].contains("hale/"), "{}", seen.received);
        first.ended(1).await;
    }
}
