//! DNS over QUIC and over HTTP/3: real clients, and clients that break rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use haledns::authority::Snapshot;
use haledns::publish::Publisher;
use haledns::serve::{Certificates, Kind, Limits, Listener, Respond, Server, Setup, Totals, claim};
use haledns::wire::{self, Class, Client, Replied, Service, Transport};
use http::{Request, Response};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, ReadToEndError, TransportConfig, VarInt};
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::support::certificates::{Authority, Identity};
use crate::support::programs;

/// No condition may take longer; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
const NAME: &str = "ns1.example.com";
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

// What connections and streams are closed with (RFC 9250 §4.3, RFC 9114 §8.1).
const DOQ_NO_ERROR: u64 = 0;
const DOQ_PROTOCOL_ERROR: u64 = 2;
const DOQ_REQUEST_CANCELLED: u64 = 3;
const DOQ_EXCESSIVE_LOAD: u64 = 4;
const DOQ_UNSPECIFIED_ERROR: u64 = 5;
const H3_NO_ERROR: u64 = 0x100;
const H3_EXCESSIVE_LOAD: u64 = 0x107;
const H3_MESSAGE_ERROR: u64 = 0x10e;

/// A server of one kind at one address, with all it needs.
struct World {
    server: Option<Server>,
    runtime: Runtime,
    authority: Authority,
    certificates: Arc<Certificates>,
    _publishers: (Publisher<Snapshot>, Publisher<Service>),
}

impl World {
    fn at(kind: Kind, address: IpAddr, limits: Limits, respond: Respond) -> World {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let publisher = Publisher::new(Arc::new(Snapshot::default()));
        let services = Publisher::new(Arc::new(Service::default()));
        let authority = Authority::new();
        let identity = authority.issue(&[NAME], 2020, 2100);
        let certificates = Arc::new(Certificates::new(&shown(&identity)).unwrap());
        let setup = Setup { limits, certificates: Some(Arc::clone(&certificates)), ..Setup::default() };
        let claim = claim(&[Listener { kind, address: (address, 0).into() }]).unwrap();
        let (snapshot, service) = (publisher.reader(), services.reader());
        let server = claim.bind_with(setup, snapshot, service, runtime.handle(), respond).unwrap();
        let _publishers = (publisher, services);
        World { server: Some(server), runtime, authority, certificates, _publishers }
    }

    fn quic(limits: Limits) -> World {
        World::at(Kind::Quic, LOOPBACK, limits, told)
    }

    fn http3(limits: Limits) -> World {
        World::at(Kind::Http3, LOOPBACK, limits, told)
    }

    fn address(&self) -> SocketAddr {
        self.server.as_ref().unwrap().addresses()[0]
    }

    fn counters(&self) -> Totals {
        self.server.as_ref().unwrap().counters()
    }

    fn run<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { timeout(PATIENCE, what).await.expect("it should not take so long") })
    }

    async fn stop(&mut self) -> Totals {
        self.server.take().unwrap().stop().await
    }

    fn client(&self, alpn: &str) -> ClientConfig {
        client(self.authority.store(), alpn)
    }

    async fn connect_with(
        &self,
        config: ClientConfig,
        to: SocketAddr,
    ) -> Result<(Endpoint, Connection), ConnectionError> {
        connect(config, to, NAME).await
    }

    async fn connect(&self) -> (Endpoint, Connection) {
        self.connect_with(self.client("doq"), self.address()).await.unwrap()
    }

    /// Requests over HTTP/3, and what keeps the connection going.
    async fn http(&self) -> Http {
        let (endpoint, connection) = self.connect_with(self.client("h3"), self.address()).await.unwrap();
        Http::over(endpoint, connection).await
    }
}

/// What trusts `roots` and speaks `alpn`.
fn client(roots: RootCertStore, alpn: &str) -> ClientConfig {
    let provider = Arc::new(ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()))
}

async fn connect(
    config: ClientConfig,
    to: SocketAddr,
    name: &str,
) -> Result<(Endpoint, Connection), ConnectionError> {
    let from: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let endpoint = Endpoint::client((from, 0).into()).unwrap();
    let connection = endpoint.connect_with(config, to, name).unwrap().await?;
    Ok((endpoint, connection))
}

/// One query to `localhost`, over QUIC; its id, which isn't sent, is put back.
pub async fn over_quic(roots: RootCertStore, to: SocketAddr, query: &[u8]) -> Vec<u8> {
    let (_endpoint, connection) = connect(client(roots, "doq"), to, "localhost").await.unwrap();
    let mut without_id = query.to_vec();
    without_id[..2].fill(0);
    let mut reply = ask(&connection, &without_id).await;
    reply[..2].copy_from_slice(&query[..2]);
    reply
}

/// One query to `localhost`, posted over HTTP/3.
pub async fn over_http3(roots: RootCertStore, to: SocketAddr, query: &[u8]) -> Vec<u8> {
    let (endpoint, connection) = connect(client(roots, "h3"), to, "localhost").await.unwrap();
    Http::over(endpoint, connection).await.post(query).await.1
}

struct Http {
    _endpoint: Endpoint,
    connection: Connection,
    sender: h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>,
    driving: tokio::task::JoinHandle<()>,
}

impl Drop for Http {
    fn drop(&mut self) {
        self.driving.abort();
    }
}

impl Http {
    async fn over(endpoint: Endpoint, connection: Connection) -> Http {
        let quic = h3_quinn::Connection::new(connection.clone());
        let (mut driver, sender) = h3::client::new(quic).await.unwrap();
        let driving = tokio::spawn(async move {
            std::future::poll_fn(|context| driver.poll_close(context)).await;
        });
        Http { _endpoint: endpoint, connection, sender, driving }
    }

    async fn send(
        &self,
        request: Request<()>,
        body: &[u8],
    ) -> Result<(Response<()>, Vec<u8>), h3::error::StreamError> {
        let mut stream = self.sender.clone().send_request(request).await?;
        // the answer may come first, and the rest be of no use then
        if body.is_empty() || stream.send_data(Bytes::copy_from_slice(body)).await.is_ok() {
            let _ = stream.finish().await;
        }
        let response = stream.recv_response().await?;
        let mut octets = Vec::new();
        while let Some(data) = stream.recv_data().await? {
            octets.extend_from_slice(data.chunk());
        }
        Ok((response, octets))
    }

    async fn post(&self, query: &[u8]) -> (Response<()>, Vec<u8>) {
        self.send(request("POST", "/dns-query", Some("application/dns-message")), query).await.unwrap()
    }
}

fn shown(identity: &Identity) -> haledns::serve::Identity {
    haledns::serve::Identity {
        certificates: identity.pem.clone().into_bytes().into(),
        key: identity.key_pem.clone().into_bytes().into(),
    }
}

fn request(method: &str, path: &str, content: Option<&str>) -> Request<()> {
    let mut request = Request::builder().method(method).uri(format!("https://{NAME}{path}"));
    if let Some(content) = content {
        request = request.header("content-type", content);
    }
    request.body(()).unwrap()
}

/// Gives the query back, its class of address and its transport in place of the class; a question
/// for TYPE255 gets 60,000 octets, and one for TYPE254 panics.
fn told(snapshot: &Snapshot, service: &Service, query: &[u8], client: Client, out: &mut [u8]) -> Replied {
    let replied = |length| Replied { length, class: Class::Answer, subject: 0, vouched: true };
    if query.len() < 12 || query[2] & 0x80 != 0 {
        return wire::respond(snapshot, service, query, client, out);
    }
    out[..query.len()].copy_from_slice(query);
    out[2] |= 0x80;
    out[query.len() - 2] = if client.address.is_ipv4() { 4 } else { 6 };
    out[query.len() - 1] = match client.transport {
        Transport::Quic => 1,
        Transport::Https => 2,
        Transport::Udp | Transport::Tcp | Transport::Tls => 0,
    };
    match query[query.len() - 3] {
        254 => std::panic::resume_unwind(Box::new("a defect")),
        255 => {
            out[query.len()..60_000].fill(0);
            replied(60_000)
        }
        _ => replied(query.len()),
    }
}

/// `www.example.com` of this type (1 to 255).
fn query(rtype: u8) -> Vec<u8> {
    [b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\x03com\0\0", &[rtype, 0, 1][..]].concat()
}

/// With an EDNS option.
fn query_with(option: &[u8]) -> Vec<u8> {
    let mut query = query(1);
    query[11] = 1;
    query.extend([0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, option.len() as u8]);
    [&query, option].concat()
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes()[..], message].concat()
}

fn code(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap()
}

/// Sends octets on a stream of their own and gives what comes back.
async fn send(connection: &Connection, octets: &[u8]) -> Result<Vec<u8>, ReadToEndError> {
    let (mut send, mut receive) =
        connection.open_bi().await.map_err(|error| ReadToEndError::Read(error.into()))?;
    let _ = send.write_all(octets).await;
    let _ = send.finish();
    receive.read_to_end(1 << 20).await
}

/// Asks over QUIC; the reply without its length.
async fn ask(connection: &Connection, query: &[u8]) -> Vec<u8> {
    let reply = send(connection, &framed(query)).await.expect("a reply");
    assert_eq!(usize::from(u16::from_be_bytes([reply[0], reply[1]])), reply.len() - 2, "its length");
    reply[2..].to_vec()
}

/// The code with which the server closed the connection.
async fn closed(connection: &Connection) -> u64 {
    match connection.closed().await {
        ConnectionError::ApplicationClosed(close) => close.error_code.into_inner(),
        other => panic!("closed otherwise: {other}"),
    }
}

// ---- DNS over QUIC ------------------------------------------------------------------------------

#[test]
fn a_query_over_quic_has_a_stream_of_its_own() {
    let world = World::quic(Limits::default());
    world.run(async {
        let (_endpoint, connection) = world.connect().await;
        let reply = ask(&connection, &query(1)).await;
        assert_eq!(reply[..3], [0, 0, 0x81], "id 0, QR");
        assert_eq!(reply[reply.len() - 2..], [4, 1], "IPv4, QUIC");
        let totals = world.counters(); // while the connection stands
        assert_eq!((totals.queries, totals.over.quic, totals.accepted, totals.open), (1, 1, 1, 1));
    });
}

#[test]
fn a_connection_over_quic_carries_a_thousand_queries_and_a_hundred_at_once() {
    let world = World::quic(Limits::default());
    world.run(async {
        let (_endpoint, connection) = world.connect().await;
        for _ in 0..1000 {
            ask(&connection, &query(1)).await;
        }
        let all = (0..100).map(|number| {
            let connection = connection.clone();
            tokio::spawn(async move {
                ask(&connection, &query(if number % 2 == 0 { 255 } else { 1 })).await.len()
            })
        });
        for (number, reply) in all.collect::<Vec<_>>().into_iter().enumerate() {
            assert_eq!(reply.await.unwrap(), if number % 2 == 0 { 60_000 } else { query(1).len() });
        }
    });
    assert_eq!(world.counters().accepted, 1);
}

#[test]
fn a_query_over_quic_does_not_wait_for_an_earlier_one() {
    let world = World::quic(Limits::default());
    world.run(async {
        let (_endpoint, connection) = world.connect().await;
        let (mut first, mut reply) = connection.open_bi().await.unwrap();
        let octets = framed(&query(1));
        first.write_all(&octets[..5]).await.unwrap();
        ask(&connection, &query(2)).await;
        for octet in &octets[5..] {
            first.write_all(&[*octet]).await.unwrap();
        }
        first.finish().unwrap();
        assert_eq!(reply.read_to_end(100).await.unwrap().len(), octets.len());
    });
}

#[test]
fn what_breaks_the_protocol_ends_the_connection() {
    let world = World::quic(Limits::default());
    let good = framed(&query(1));
    let mut with_id = query(1);
    with_id[1] = 1;
    let mut response = query(1);
    response[2] |= 0x80;
    let cases = [
        (framed(&with_id), "an id"),
        ([&good[..], &good].concat(), "two messages"),
        ([&good[..], &[0]].concat(), "an octet too many"),
        (good[..9].to_vec(), "half a message"),
        (good[..1].to_vec(), "half a length"),
        (Vec::new(), "nothing"),
        (framed(&[]), "an empty message"),
        (framed(&[0; 11]), "less than a header"),
        (framed(&query_with(&[0, 11, 0, 0])), "edns-tcp-keepalive"),
        (framed(&query_with(&[0, 11, 0, 2, 0, 9])), "edns-tcp-keepalive with a time"),
        (framed(&response), "a response"),
    ];
    world.run(async {
        for (octets, why) in &cases {
            let (_endpoint, connection) = world.connect().await;
            assert!(send(&connection, octets).await.is_err(), "{why}");
            assert_eq!(closed(&connection).await, DOQ_PROTOCOL_ERROR, "{why}");
        }
        let (_endpoint, connection) = world.connect().await;
        let mut stream = connection.open_uni().await.unwrap();
        stream.write_all(&good).await.unwrap();
        assert_eq!(closed(&connection).await, DOQ_PROTOCOL_ERROR, "a unidirectional stream");
        let (_endpoint, connection) = world.connect().await;
        ask(&connection, &query_with(&[0, 12, 0, 1, 0])).await; // another option
    });
    assert_eq!(world.counters().protocol_errors, cases.len() as u64 + 1);
}

#[test]
fn a_query_over_quic_must_come_whole_and_with_the_streams_end() {
    let world = World::quic(Limits { tcp_message: Duration::from_millis(100), ..Limits::default() });
    world.run(async {
        let (_endpoint, connection) = world.connect().await;
        let octets = framed(&query(1));
        let (mut half, mut no_reply) = connection.open_bi().await.unwrap();
        half.write_all(&octets[..9]).await.unwrap();
        let unspecified = quinn::ReadError::Reset(code(DOQ_UNSPECIFIED_ERROR));
        assert_eq!(no_reply.read_to_end(100).await, Err(ReadToEndError::Read(unspecified)));
        assert_eq!(half.stopped().await, Ok(Some(code(DOQ_UNSPECIFIED_ERROR))));
        ask(&connection, &query(1)).await; // the connection goes on
        let (mut endless, _no_reply) = connection.open_bi().await.unwrap();
        endless.write_all(&octets).await.unwrap();
        assert_eq!(closed(&connection).await, DOQ_PROTOCOL_ERROR);
    });
}

#[test]
fn a_cancelled_query_concerns_its_stream_alone() {
    let world = World::quic(Limits::default());
    world.run(async {
        let (_endpoint, connection) = world.connect().await;
        let (mut cancelled, mut no_reply) = connection.open_bi().await.unwrap();
        cancelled.write_all(&framed(&query(1))[..9]).await.unwrap();
        cancelled.reset(code(DOQ_REQUEST_CANCELLED)).unwrap();
        let reset = quinn::ReadError::Reset(code(DOQ_REQUEST_CANCELLED));
        assert_eq!(no_reply.read_to_end(100).await, Err(ReadToEndError::Read(reset)));
        let (mut unwanted, mut reply) = connection.open_bi().await.unwrap();
        reply.stop(code(DOQ_REQUEST_CANCELLED)).unwrap();
        unwanted.write_all(&framed(&query(255))).await.unwrap();
        unwanted.finish().unwrap();
        ask(&connection, &query(1)).await;
    });
    assert_eq!(world.counters().protocol_errors, 0);
}

#[test]
fn a_panic_over_quic_and_http3_is_servfail() {
    let world = World::quic(Limits::default());
    world.run(async {
        let (_endpoint, connection) = world.connect().await;
        assert_eq!(ask(&connection, &query(254)).await[..4], [0, 0, 0x81, 2]);
        ask(&connection, &query(1)).await;
    });
    assert_eq!(world.counters().panics, 1);
    let world = World::http3(Limits::default());
    world.run(async {
        let (response, reply) = world.http().await.post(&query(254)).await;
        assert_eq!((response.status().as_u16(), &reply[..4]), (200, &[0, 0, 0x81, 2][..]));
    });
}

#[test]
fn a_connection_without_queries_is_closed_though_its_client_keeps_it_alive() {
    let limits = Limits { tcp_idle: Duration::from_millis(300), ..Limits::default() };
    for (world, alpn, expected) in [
        (World::quic(limits.clone()), "doq", DOQ_NO_ERROR),
        (World::http3(limits.clone()), "h3", H3_NO_ERROR),
    ] {
        world.run(async {
            let mut transport = TransportConfig::default();
            transport.keep_alive_interval(Some(Duration::from_millis(50)));
            let mut config = world.client(alpn);
            config.transport_config(Arc::new(transport));
            let (_endpoint, connection) = world.connect_with(config, world.address()).await.unwrap();
            assert_eq!(closed(&connection).await, expected);
        });
    }
}

#[test]
fn a_client_that_does_not_read_keeps_nobody_waiting() {
    let world = World::quic(Limits { tcp_write: Duration::from_millis(200), ..Limits::default() });
    world.run(async {
        let mut transport = TransportConfig::default();
        transport.stream_receive_window(1000_u32.into());
        let mut config = world.client("doq");
        config.transport_config(Arc::new(transport));
        let (_endpoint, connection) = world.connect_with(config, world.address()).await.unwrap();
        let mut unread = Vec::new();
        for _ in 0..20 {
            let (mut stream, reply) = connection.open_bi().await.unwrap();
            stream.write_all(&framed(&query(255))).await.unwrap();
            stream.finish().unwrap();
            unread.push((stream, reply));
        }
        let (_endpoint, other) = world.connect().await;
        ask(&other, &query(255)).await;
        for (_, mut reply) in unread {
            let reset = reply.received_reset().await.unwrap();
            assert_eq!(reset, Some(code(DOQ_UNSPECIFIED_ERROR)));
        }
        ask(&connection, &query(1)).await;
    });
}

#[test]
fn unfinished_queries_of_one_connection_hold_little() {
    let world = World::quic(Limits::default());
    world.run(async {
        let (_endpoint, connection) = world.connect().await;
        let mut streams = Vec::new();
        for _ in 0..90 {
            let (mut stream, reply) = connection.open_bi().await.unwrap();
            let long = [&8000_u16.to_be_bytes()[..], &[0; 6000]].concat();
            if stream.write_all(&long).await.is_ok() {
                streams.push((stream, reply));
            }
        }
        let (stream, _) = streams.last_mut().unwrap();
        assert_eq!(stream.stopped().await, Ok(Some(code(DOQ_EXCESSIVE_LOAD))));
        drop(streams); // the rest of each is missing now
    });
}

#[test]
fn a_stop_answers_the_queries_that_have_come() {
    let mut world = World::quic(Limits::default());
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (_endpoint, connection) = world.connect().await;
        ask(&connection, &query(1)).await;
        let (mut half, _no_reply) = connection.open_bi().await.unwrap();
        half.write_all(&framed(&query(1))[..9]).await.unwrap();
        let mut replies = Vec::new();
        for _ in 0..20 {
            let (mut stream, reply) = connection.open_bi().await.unwrap();
            stream.write_all(&framed(&query(1))).await.unwrap();
            stream.finish().unwrap();
            replies.push(reply);
        }
        // Queries and stop are on their way; those that came first are answered and delivered.
        let answered = tokio::spawn(async move {
            let mut answered = 0;
            for mut reply in replies {
                answered += u64::from(reply.read_to_end(100).await.is_ok());
            }
            answered
        });
        let begun = Instant::now();
        let totals = world.stop().await;
        assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
        assert_eq!(closed(&connection).await, DOQ_NO_ERROR);
        assert_eq!(answered.await.unwrap(), totals.queries - 1);
        assert_eq!(totals.open, 0);
    });
}

// ---- connections --------------------------------------------------------------------------------

#[test]
fn another_protocol_is_not_spoken() {
    let world = World::quic(Limits::default());
    world.run(async {
        let refused = world.connect_with(world.client("h3"), world.address()).await;
        let Err(ConnectionError::ConnectionClosed(close)) = refused else { panic!("{refused:?}") };
        assert_eq!(u64::from(close.error_code), 0x178, "no_application_protocol of TLS");
    });
    while world.counters().handshakes_failed == 0 {
        std::thread::yield_now();
    }
}

#[test]
fn replies_over_quic_come_from_the_address_that_was_asked() {
    for (bound, asked) in
        [("0.0.0.0", "127.0.0.2"), ("::", "::1"), ("::1", "::1"), ("127.0.0.3", "127.0.0.3")]
    {
        let world = World::at(Kind::Quic, bound.parse().unwrap(), Limits::default(), told);
        world.run(async {
            let to = SocketAddr::new(asked.parse().unwrap(), world.address().port());
            // quinn's client takes nothing from another address
            let (_endpoint, connection) = world.connect_with(world.client("doq"), to).await.unwrap();
            let reply = ask(&connection, &query(1)).await;
            assert_eq!(reply[reply.len() - 2], if to.is_ipv4() { 4 } else { 6 });
        });
    }
}

#[test]
fn the_longest_idle_connection_over_quic_makes_room() {
    let world = World::quic(Limits { quic_connections: 2, ..Limits::default() });
    world.run(async {
        let (_a, first) = world.connect().await;
        ask(&first, &query(1)).await;
        let (_b, second) = world.connect().await;
        ask(&second, &query(1)).await;
        ask(&first, &query(1)).await;
        let (_c, third) = world.connect().await;
        assert_eq!(closed(&second).await, DOQ_EXCESSIVE_LOAD);
        ask(&third, &query(1)).await;
        ask(&first, &query(1)).await;
    });
    let totals = world.counters();
    assert_eq!(totals.evicted, 1);
    assert!(totals.retried >= 1, "who takes a place proves the address");
}

#[test]
fn one_network_does_not_get_all_connections_over_quic() {
    let world = World::at(Kind::Quic, "0.0.0.0".parse().unwrap(), few(2), told);
    world.run(async {
        let other = SocketAddr::new(LOOPBACK, world.address().port());
        let from_here = || world.connect_with(world.client("doq"), other);
        let (_a, first) = from_here().await.unwrap();
        ask(&first, &query(1)).await;
        let (_b, second) = from_here().await.unwrap();
        ask(&second, &query(1)).await;
        let (_c, third) = from_here().await.unwrap();
        assert_eq!(closed(&first).await, DOQ_EXCESSIVE_LOAD);
        ask(&second, &query(1)).await;
        ask(&third, &query(1)).await;
    });
    assert_eq!(world.counters().evicted, 1);
}

fn few(each: usize) -> Limits {
    Limits { tcp_connections_per_client: each, ..Limits::default() }
}

#[test]
fn a_flood_of_first_packets_is_answered_by_few_octets_and_kept_by_none() {
    const FLOOD: u64 = 200;
    let world = World::quic(Limits::default());
    world.run(async {
        // first packets of clients that will not go on
        let mut sent = Vec::new();
        for _ in 0..FLOOD {
            let nobody = tokio::net::UdpSocket::bind((LOOPBACK, 0)).await.unwrap();
            let endpoint = Endpoint::client((LOOPBACK, 0).into()).unwrap();
            let connecting = endpoint.connect_with(world.client("doq"), nobody.local_addr().unwrap(), NAME);
            let mut packet = vec![0; 2000];
            let (length, _) = nobody.recv_from(&mut packet).await.unwrap();
            packet.truncate(length);
            drop(connecting);
            let socket = UdpSocket::bind((LOOPBACK, 0)).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket.send_to(&packet, world.address()).unwrap();
            sent.push((socket, length));
        }
        while world.counters().accepted + world.counters().retried < FLOOD {
            tokio::task::yield_now().await;
        }
        let begun: u64 = world.counters().accepted;
        assert!((1..=32).contains(&begun), "{begun} of them were begun");
        let (_endpoint, connection) = world.connect().await;
        ask(&connection, &query(1)).await;
        for (socket, length) in sent {
            let (mut octets, mut room) = (0, [0; 2000]);
            while let Ok(received) = socket.recv(&mut room) {
                octets += received;
            }
            assert!(octets <= 3 * length, "{octets} for {length}");
        }
    });
}

#[test]
fn another_certificate_is_shown_to_those_who_come_after() {
    let world = World::quic(Limits::default());
    let certificate = |connection: &Connection| {
        let chain = connection.peer_identity().unwrap().downcast::<Vec<CertificateDer<'static>>>().unwrap();
        chain[0].clone()
    };
    world.run(async {
        let (_a, before) = world.connect().await;
        let other = world.authority.issue(&[NAME], 2021, 2099);
        world.certificates.replace(&shown(&other)).unwrap();
        let (_b, after) = world.connect().await;
        assert_ne!(certificate(&before), certificate(&after));
        assert_eq!(certificate(&after), other.chain[0]);
        ask(&before, &query(1)).await;
    });
}

// ---- HTTP/3 -------------------------------------------------------------------------------------

#[test]
fn requests_over_http3_are_answered_as_rfc_8484_says() {
    let world = World::http3(Limits::default());
    let get = format!("/dns-query?dns={}", data_encoding::BASE64URL_NOPAD.encode(&query(1)));
    let dns = Some("application/dns-message");
    world.run(async {
        let http = world.http().await;
        let (response, reply) = http.post(&query(1)).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/dns-message");
        assert_eq!(response.headers()["content-length"], reply.len().to_string());
        assert_eq!(response.headers()["cache-control"], "max-age=0", "there is no record");
        assert!(response.headers().contains_key("date"));
        assert_eq!(reply[reply.len() - 2..], [4, 2], "IPv4, HTTPS");
        let (response, again) = http.send(request("GET", &get, None), &[]).await.unwrap();
        assert_eq!((response.status().as_u16(), &again), (200, &reply));
        let (response, nothing) = http.send(request("HEAD", &get, None), &[]).await.unwrap();
        assert_eq!(response.headers()["content-length"], reply.len().to_string());
        assert_eq!((response.status().as_u16(), nothing.len()), (200, 0));
        let mut response_as_query = query(1);
        response_as_query[2] |= 0x80;
        for (request, body, status, why) in [
            (request("GET", "/dns-query", None), &[][..], 400, "no query"),
            (request("GET", "/other", None), &[], 404, "another path"),
            (request("PUT", "/dns-query", dns), &query(1), 405, "another method"),
            (request("POST", "/dns-query", Some("text/plain")), &query(1), 415, "another type"),
            (request("POST", "/dns-query", dns), &[0; 70_000], 413, "too long"),
            (request("POST", "/dns-query", dns), &[], 400, "an empty message"),
            (request("POST", "/dns-query", dns), &[0; 5], 400, "half a header"),
            (request("POST", "/dns-query", dns), &response_as_query, 400, "a response"),
            (request("GET", &format!("/dns-query?dns={}", "A".repeat(9000)), None), &[], 414, "a long URI"),
        ] {
            let (response, body) =
                http.send(request, body).await.unwrap_or_else(|error| panic!("{why}: {error}"));
            assert_eq!((response.status().as_u16(), body.len()), (status, 0), "{why}");
        }
        assert_eq!(http.post(&query(255)).await.1.len(), 60_000);
    });
    assert_eq!(world.counters().accepted, 1);
}

#[test]
fn a_request_over_http3_whose_length_is_another_than_it_says_is_not_answered() {
    let world = World::http3(Limits::default());
    let get = format!("/dns-query?dns={}", data_encoding::BASE64URL_NOPAD.encode(&query(1)));
    let with_lengths = |mut request: Request<()>, lengths: &[&str]| {
        for length in lengths {
            request.headers_mut().append("content-length", length.parse().unwrap());
        }
        request
    };
    let posted = || request("POST", "/dns-query", Some("application/dns-message"));
    let (whole, shorter, longer) = ("33", "32", "34");
    world.run(async {
        let http = world.http().await;
        for (request, lengths, body, why) in [
            (posted(), &[longer][..], &query(1)[..], "the body is shorter"),
            (posted(), &[shorter], &query(1), "the body is longer"),
            (posted(), &["0"], &query(1), "a body that isn't announced"),
            (posted(), &[whole, shorter], &query(1), "two lengths"),
            (posted(), &["many"], &query(1), "no number"),
            (request("GET", &get, None), &["5"], &[], "a question in the URI, and no body"),
        ] {
            let answered = http.send(with_lengths(request, lengths), body).await;
            let Err(h3::error::StreamError::RemoteTerminate { code, .. }) = answered else {
                panic!("{why}: {answered:?}")
            };
            assert_eq!(code.value(), H3_MESSAGE_ERROR, "{why}");
        }
        for (request, body) in [(posted(), &query(1)[..]), (request("GET", &get, None), &[])] {
            let length = body.len().to_string();
            let (response, reply) = http.send(with_lengths(request, &[&length]), body).await.unwrap();
            assert_eq!(
                (response.status().as_u16(), reply.len()),
                (200, query(1).len()),
                "on the same connection"
            );
        }
    });
    let totals = world.counters();
    assert_eq!((totals.accepted, totals.queries, totals.protocol_errors), (1, 2, 6));
}

#[test]
fn a_connection_over_http3_carries_a_thousand_requests_and_a_hundred_at_once() {
    let world = World::http3(Limits::default());
    world.run(async {
        let http = Arc::new(world.http().await);
        for _ in 0..1000 {
            http.post(&query(1)).await;
        }
        let all = (0..100).map(|number| {
            let http = Arc::clone(&http);
            tokio::spawn(
                async move { http.post(&query(if number % 2 == 0 { 255 } else { 1 })).await.1.len() },
            )
        });
        for (number, reply) in all.collect::<Vec<_>>().into_iter().enumerate() {
            assert_eq!(reply.await.unwrap(), if number % 2 == 0 { 60_000 } else { query(1).len() });
        }
    });
    assert_eq!(world.counters().over.https, 1100);
}

#[test]
fn a_stop_answers_the_requests_that_have_come() {
    let mut world = World::http3(Limits::default());
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let http = Arc::new(world.http().await);
        http.post(&query(1)).await;
        let all: Vec<_> = (0..20)
            .map(|_| {
                let http = Arc::clone(&http);
                let post = request("POST", "/dns-query", Some("application/dns-message"));
                tokio::spawn(async move {
                    http.send(post, &query(1)).await.is_ok_and(|(_, body)| !body.is_empty())
                })
            })
            .collect();
        tokio::task::yield_now().await;
        let begun = Instant::now();
        let totals = world.stop().await;
        assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
        assert_eq!(closed(&http.connection).await, H3_NO_ERROR);
        let mut answered = 0;
        for one in all {
            answered += u64::from(one.await.unwrap());
        }
        assert_eq!((answered, totals.open), (totals.queries - 1, 0));
    });
}

#[test]
fn a_frame_that_never_ends_is_not_kept() {
    let world = World::http3(Limits::default());
    world.run(async {
        let (_endpoint, connection) = world.connect_with(world.client("h3"), world.address()).await.unwrap();
        let (mut stream, _reply) = connection.open_bi().await.unwrap();
        // HEADERS of a gigabyte
        stream.write_all(&[1, 0xc0, 0, 0, 0, 0x40, 0, 0, 0]).await.unwrap();
        let stopped = loop {
            match stream.write_all(&[0; 4096]).await {
                Ok(()) => {}
                Err(quinn::WriteError::Stopped(code)) => break code.into_inner(),
                Err(other) => panic!("{other}"),
            }
        };
        assert_eq!(stopped, H3_EXCESSIVE_LOAD);
        // a control stream with settings, then the same of a kind that nobody knows
        let mut control = connection.open_uni().await.unwrap();
        control.write_all(&[0, 4, 0, 0x21, 0xc0, 0, 0, 0, 0x40, 0, 0, 0]).await.unwrap();
        while control.write_all(&[0; 4096]).await.is_ok() {}
        assert_eq!(closed(&connection).await, H3_EXCESSIVE_LOAD);
    });
}

// ---- programs of others -------------------------------------------------------------------------

#[test]
fn kdig_asks_over_quic() {
    if !programs::need("kdig") {
        return;
    }
    let world = World::at(Kind::Quic, LOOPBACK, Limits::default(), wire::respond);
    let address = world.address();
    let (server, port) = (format!("@{}", address.ip()), address.port().to_string());
    let asked = ["+quic", "+norec", "-p", &port, &server, "www.example.com", "A"];
    let output = Command::new("kdig").args(asked).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("status: REFUSED"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("QUIC"), "{text}");
    assert_eq!(world.counters().over.quic, 1);
}

#[test]
fn aioquic_asks_over_quic_and_http3() {
    let Some(python) = programs::need_python("aioquic") else { return };
    for (kind, alpn) in [(Kind::Quic, "doq"), (Kind::Http3, "h3")] {
        let world = World::at(kind, LOOPBACK, Limits::default(), told);
        let port = world.address().port().to_string();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/aioquic_client.py");
        let output = Command::new(&python).args([script, &port, alpn, "50"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text.trim(), "50 answers", "{}", String::from_utf8_lossy(&output.stderr));
        let totals = world.counters();
        assert_eq!((totals.queries, totals.accepted), (50, 1));
    }
}
