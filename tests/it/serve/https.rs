//! DNS over HTTPS, over both versions of HTTP.

use std::future::poll_fn;

use data_encoding::BASE64URL_NOPAD;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper::{HeaderMap, Method, Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream as AsyncTcp;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as AsyncTls;

use super::encrypted::{Door, tls_over};
use super::*;

/// A server and the versions to speak with it.
fn door(limits: Limits, respond: Respond) -> Door {
    Door::new(Kind::Https, limits, respond)
}

async fn connect(door: &Door, alpn: &str) -> AsyncTls<AsyncTcp> {
    let mut config = (*door.client).clone();
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let stream = AsyncTcp::connect(door.world.address()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(alpn.as_bytes()));
    stream
}

enum Browser {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

/// What came back.
struct Page {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Page {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Browser {
    async fn new(door: &Door, alpn: &str) -> Browser {
        let stream = TokioIo::new(connect(door, alpn).await);
        if alpn == "h2" {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
            tokio::spawn(connection);
            return Browser::Two(sender);
        }
        let (sender, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Browser::One(sender)
    }

    async fn fetch(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Page> {
        let response = match self {
            Browser::One(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Browser::Two(sender) => sender.send_request(request).await?,
        };
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes().to_vec();
        Ok(Page { status: head.status, headers: head.headers, body })
    }
}

fn request(method: Method, target: &str, content_type: &str, body: Vec<u8>) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(format!("https://localhost{target}"));
    let request = request.header("host", "localhost");
    let request = match content_type {
        "" => request,
        given => request.header("content-type", given),
    };
    request.body(Full::new(body.into())).unwrap()
}

fn get(query: &[u8]) -> Request<Full<Bytes>> {
    request(Method::GET, &format!("/dns-query?dns={}", BASE64URL_NOPAD.encode(query)), "", Vec::new())
}

fn post(query: Vec<u8>) -> Request<Full<Bytes>> {
    request(Method::POST, "/dns-query", "application/dns-message", query)
}

const VERSIONS: [&str; 2] = ["h2", "http/1.1"];

/// Does something over each version.
fn over_both<F: Future<Output = ()>>(door: &Door, work: impl Fn(Browser, &'static str) -> F) {
    door.world.runtime.block_on(async {
        for version in VERSIONS {
            work(Browser::new(door, version).await, version).await;
        }
    });
}

#[test]
fn get_and_post_are_answered_over_both_versions() {
    let door = door(few(), wire::respond);
    over_both(&door, |mut browser, version| async move {
        for (number, request) in [(1, get(&query(1))), (2, post(query(2))), (0, get(&query(0)))] {
            let page = browser.fetch(request).await.unwrap();
            assert_eq!(page.status, 200, "{version}");
            assert_eq!(id(&page.body), number, "{version}: the id comes back");
            assert_eq!(page.header("content-type"), "application/dns-message");
            assert_eq!(page.header("content-length"), page.body.len().to_string());
            assert!(page.header("cache-control").starts_with("max-age="), "{:?}", page.headers);
            assert!(page.header("date").ends_with(" GMT"));
        }
    });
    let counters = door.world.counters();
    assert_eq!((counters.over.https, counters.queries, counters.accepted), (6, 6, 2));
}

#[test]
fn http3_at_the_same_address_is_named_to_those_who_come_by_tcp() {
    for others in [&[][..], &[Kind::Http3], &[Kind::Quic]] {
        let door = Door::beside(Kind::Https, others, few().into(), wire::respond);
        let address = door.world.server().addresses().get(1).copied();
        let http3 = address.filter(|_| others == [Kind::Http3]);
        let expected = http3.map_or(String::new(), |http3| format!("h3=\":{}\"; ma=86400", http3.port()));
        let expected = &*expected;
        over_both(&door, |mut browser, version| async move {
            let other = request(Method::GET, "/other", "", Vec::new());
            for request in [get(&query(1)), post(query(2)), other] {
                let page = browser.fetch(request).await.unwrap();
                assert_eq!(page.header("alt-svc"), expected, "{version}");
            }
        });
    }
}

#[test]
fn http3_is_not_named_behind_a_proxy() {
    let proxies = ["127.0.0.0/8".parse().unwrap()].into();
    let setup = Setup { limits: few(), proxies, ..Setup::default() };
    let door = Door::beside(Kind::Https, &[Kind::Http3], setup, wire::respond);
    let mut stream = tcp(door.world.address());
    stream.write_all(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0").unwrap(); // for itself
    let mut stream = tls_over(stream, &door.client);
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    let _ = stream.read_to_string(&mut response);
    assert!(response.starts_with("HTTP/1.1 404") && !response.contains("alt-svc"), "{response}");
}

#[test]
fn what_is_no_query_gets_its_status() {
    let door = door(few(), wire::respond);
    let dns = "application/dns-message";
    let target = |text: String| format!("/dns-query?dns={text}");
    let (long, good) = (target("A".repeat(9000)), target(BASE64URL_NOPAD.encode(&query(1))));
    let padded = target("AAABAAABAAAAAAAAA3d3dw==".into());
    let cases: [(Method, &str, &str, Vec<u8>, u16); 11] = [
        (Method::GET, "/", "", vec![], 404),
        (Method::GET, "/dns-query", "", vec![], 400),
        (Method::GET, &padded, "", vec![], 400),
        (Method::GET, &long, "", vec![], 414),
        (Method::PUT, "/dns-query", dns, query(1), 405),
        (Method::POST, "/dns-query", "text/plain", query(1), 415),
        (Method::POST, "/dns-query", "", query(1), 415),
        (Method::POST, "/dns-query", dns, vec![1, 2, 3], 400),
        (Method::POST, "/dns-query", dns, vec![0; 65536], 413),
        (Method::POST, "/other", dns, query(1), 404),
        (Method::GET, &good, "", vec![], 200),
    ];
    door.world.runtime.block_on(async {
        for version in VERSIONS {
            for (method, target, content_type, body, status) in cases.clone() {
                let what = format!("{version}: {method} {}", target.chars().take(60).collect::<String>());
                // of its own: with a body that nobody reads it may end
                let mut browser = Browser::new(&door, version).await;
                let page = browser.fetch(request(method, target, content_type, body)).await;
                match page {
                    Ok(page) => {
                        assert_eq!(page.status.as_u16(), status, "{what}");
                        let allowed = if status == 405 { "GET, HEAD, POST" } else { "" };
                        assert_eq!(page.header("allow"), allowed, "{what}");
                    }
                    // the response may be lost behind what was still being sent
                    Err(error) => assert_eq!(status, 413, "{what}: {error}"),
                }
            }
        }
    });
}

#[test]
fn the_longest_message_may_be_posted() {
    let door = door(few(), wire::respond);
    over_both(&door, |mut browser, version| async move {
        let mut long = query(9);
        long.resize(65535, 0);
        let page = browser.fetch(post(long)).await.unwrap();
        assert_eq!((page.status.as_u16(), id(&page.body)), (200, 9), "{version}");
    });
}

#[test]
fn head_tells_the_length_without_the_body() {
    let door = door(few(), wire::respond);
    over_both(&door, |mut browser, version| async move {
        let whole = browser.fetch(get(&query(3))).await.unwrap();
        let mut head = get(&query(3));
        *head.method_mut() = Method::HEAD;
        let page = browser.fetch(head).await.unwrap();
        assert_eq!((page.status.as_u16(), page.body.len()), (200, 0), "{version}");
        assert_eq!(page.header("content-length"), whole.body.len().to_string(), "{version}");
        assert_eq!(browser.fetch(get(&query(4))).await.unwrap().status, 200, "{version}: it goes on");
    });
}

#[test]
fn a_panic_over_https_is_servfail_and_the_connection_goes_on() {
    let door = door(few(), AFRAID_OF_ODD_IDS);
    over_both(&door, |mut browser, version| async move {
        for number in 0..6 {
            let page = browser.fetch(get(&query(number))).await.unwrap();
            assert_eq!(page.status, 200, "{version}: what DNS says is no matter of HTTP");
            assert_eq!(page.body[3] & 15 == 2, number % 2 == 1, "{version} {number}");
        }
    });
    assert_eq!(door.world.counters().panics, 6);
}

#[test]
fn many_requests_at_once_are_all_answered() {
    let door = door(few(), wire::respond);
    door.world.runtime.block_on(async {
        let Browser::Two(sender) = Browser::new(&door, "h2").await else { panic!("it is HTTP/2") };
        let requests = (0..500).map(|number| {
            let mut browser = Browser::Two(sender.clone());
            tokio::spawn(async move { id(&browser.fetch(get(&query(number))).await.unwrap().body) })
        });
        for (asked, number) in requests.collect::<Vec<_>>().into_iter().zip(0..) {
            assert_eq!(asked.await.unwrap(), number);
        }
    });
    assert_eq!(door.world.counters().over.https, 500);
}

#[test]
fn an_https_connection_without_a_query_is_closed_at_the_idle_limit() {
    let limits = Limits { tcp_idle: Duration::from_millis(300), ..few() };
    let door = door(limits, wire::respond);
    over_both(&door, |mut browser, _| async move {
        assert_eq!(browser.fetch(get(&query(1))).await.unwrap().status, 200);
        let begun = Instant::now();
        // other requests don't count
        while browser.fetch(request(Method::GET, "/", "", Vec::new())).await.is_ok() {
            assert!(begun.elapsed() < PATIENCE, "lives for ever");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    until("both are gone", || door.open() == 0);
    // a head that drips in, octet by octet
    let mut slow = tls_over(tcp(door.world.address()), &door.client);
    let mut sent = 0;
    for octet in b"GET /dns-query?dns=".iter().chain(std::iter::repeat(&b'A')) {
        if slow.write_all(&[*octet]).is_err() {
            break;
        }
        sent += 1;
        assert!(sent < 10_000, "lives for ever");
        thread::sleep(Duration::from_millis(1));
    }
    until("it is gone", || door.open() == 0);
}

#[test]
fn a_client_that_reads_no_responses_costs_no_more_than_its_part() {
    let limits = Limits { tcp_idle: Duration::from_millis(500), ..few() };
    let door = door(limits, at_length);
    door.world.runtime.block_on(async {
        let stream = connect(&door, "h2").await;
        let (mut sender, connection) = h2::client::Builder::new()
            .initial_window_size(1 << 30)
            .initial_connection_window_size(1 << 30)
            .handshake::<_, Bytes>(stream)
            .await
            .unwrap();
        // the connection is driven until the requests are out, and then no more
        let mut connection = pin!(connection);
        let mut responses = Vec::new(); // whoever drops one resets its stream
        for number in 0..90 {
            let request = get(&query(number)).map(|_| ());
            let (mut driven, mut ready) = (0, false);
            poll_fn(|context| {
                let _ = connection.as_mut().poll(context);
                driven += 1;
                ready = sender.poll_ready(context).is_ready();
                if ready || driven > 50 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            responses.push(sender.send_request(request, true).unwrap());
            let _ = poll_fn(|context| Poll::Ready(connection.as_mut().poll(context))).await;
        }
        let begun = Instant::now();
        while door.open() > 0 {
            assert!(begun.elapsed() < PATIENCE, "it is closed at the idle limit");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn streams_that_are_reset_at_once_end_the_connection() {
    let door = door(few(), wire::respond);
    door.world.runtime.block_on(async {
        let stream = connect(&door, "h2").await;
        let (sender, connection) = h2::client::handshake(stream).await.unwrap();
        let driven = tokio::spawn(connection);
        let mut sender = Some(sender);
        let mut reset = 0;
        while let Some(ready) = sender.take() {
            let Ok(mut ready) = ready.ready().await else { break };
            let Ok((response, mut body)) = ready.send_request(get(&query(1)).map(|_| ()), false) else {
                break;
            };
            body.send_reset(h2::Reason::CANCEL);
            drop(response);
            reset += 1;
            if reset > 50_000 {
                break;
            }
            sender = Some(ready);
        }
        let _ = driven.await;
        // either it was cut off, or all of it was borne; others are answered
        let mut browser = Browser::new(&door, "h2").await;
        assert_eq!(browser.fetch(get(&query(2))).await.unwrap().status, 200);
    });
}

#[test]
fn messages_without_http_are_refused_by_http() {
    let door = door(few(), wire::respond);
    let mut stream = tls_over(tcp(door.world.address()), &door.client);
    stream.write_all(&framed(1)).unwrap();
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard);
    assert!(heard.is_empty() || heard.starts_with(b"HTTP/1.1 400"), "{heard:?}");
    until("its seat is free", || door.open() == 0);
    let mut plain = tcp(door.world.address());
    plain.write_all(b"GET /dns-query HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let _ = plain.read_to_end(&mut heard);
    until("plain HTTP, too", || door.open() == 0);
    assert_eq!(door.world.counters().queries, 0);
}

#[test]
fn a_full_house_makes_room_for_a_new_https_client() {
    let door = door(Limits { tcp_connections: 3, ..few() }, wire::respond);
    door.world.runtime.block_on(async {
        let mut old = Vec::new();
        for version in ["h2", "http/1.1", "h2"] {
            let mut browser = Browser::new(&door, version).await;
            assert_eq!(browser.fetch(get(&query(1))).await.unwrap().status, 200);
            old.push(browser);
        }
        let begun = Instant::now();
        let mut newcomer = Browser::new(&door, "h2").await;
        assert_eq!(newcomer.fetch(get(&query(2))).await.unwrap().status, 200);
        assert!(begun.elapsed() < Duration::from_secs(1));
        assert!(old[0].fetch(get(&query(3))).await.is_err(), "the longest idle");
        assert_eq!(old[2].fetch(get(&query(3))).await.unwrap().status, 200);
    });
    assert_eq!(door.world.counters().evicted, 1);
}
