//! DNS over TLS, and what TLS clients need to be.

use std::sync::Arc;

use haledns::serve::{Certificates, Identity};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};

use super::*;
use crate::support::certificates::{self, Authority};

pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// A stream of either kind.
pub trait Talk: Read + Write {}

impl<T: Read + Write> Talk for T {}

/// A server at one listener, and how clients come to it.
pub struct Door {
    pub world: World,
    pub kind: Kind,
    pub client: Arc<ClientConfig>,
}

impl Door {
    pub fn new(kind: Kind, limits: Limits, respond: Respond) -> Door {
        Door::with(kind, Setup { limits, ..Setup::default() }, respond)
    }

    pub fn with(kind: Kind, setup: Setup, respond: Respond) -> Door {
        Door::beside(kind, &[], setup, respond)
    }

    /// Others are spoken there, too.
    pub fn beside(kind: Kind, others: &[Kind], setup: Setup, respond: Respond) -> Door {
        let authority = Authority::new();
        let certificates = Certificates::new(&identity(&authority)).unwrap();
        let setup = Setup { certificates: Some(Arc::new(certificates)), ..setup };
        let listener = |kind| Listener { kind, address: LOOPBACK[0] };
        let listeners: Vec<_> = [&[kind], others].concat().into_iter().map(listener).collect();
        let world = World::new(&listeners, setup, respond);
        Door { world, kind, client: Arc::new(client(authority.store(), &[])) }
    }

    /// A connection from loopback's `127.0.SUBNET.1`.
    pub fn connect_from(&self, subnet: u8) -> Box<dyn Talk> {
        let stream = tcp_from(subnet, self.world.address());
        match self.kind {
            Kind::Dns => Box::new(stream),
            _ => Box::new(tls_over(stream, &self.client)),
        }
    }

    pub fn connect(&self) -> Box<dyn Talk> {
        self.connect_from(0)
    }

    pub fn open(&self) -> u64 {
        self.world.counters().open
    }
}

/// Plain and within TLS.
pub fn doors(limits: &Limits, respond: Respond) -> [Door; 2] {
    [Kind::Dns, Kind::Tls].map(|kind| Door::new(kind, limits.clone(), respond))
}

pub fn identity(authority: &Authority) -> Identity {
    identity_of(&authority.issue(&["localhost"], 2020, 2100))
}

pub fn identity_of(own: &certificates::Identity) -> Identity {
    Identity {
        certificates: own.pem.clone().into_bytes().into(),
        key: own.key_pem.clone().into_bytes().into(),
    }
}

pub fn client(roots: RootCertStore, alpn: &[&str]) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

pub fn tcp_from(subnet: u8, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, subnet, 1], 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

pub fn tls_over(stream: TcpStream, client: &Arc<ClientConfig>) -> TlsStream {
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(Arc::clone(client), name).unwrap();
    StreamOwned::new(session, stream)
}

#[test]
fn queries_within_tls_are_answered_as_over_tcp() {
    let door = Door::new(Kind::Tls, few(), wire::respond);
    let mut stream = door.connect();
    for round in 0..3 {
        let numbers = [round * 3 + 1, round * 3 + 2, round * 3 + 3];
        stream.write_all(&numbers.map(framed).concat()).unwrap();
        assert_eq!(ids(&mut stream, 3), numbers);
    }
    let counters = door.world.counters();
    assert_eq!((counters.over.tls, counters.over.tcp, counters.queries), (9, 0, 9));
    assert_eq!((counters.accepted, counters.handshakes_failed), (1, 0));
}

#[test]
fn the_answering_function_hears_of_transport_and_address() {
    static SEEN: Mutex<Vec<Client>> = Mutex::new(Vec::new());
    let door = Door::new(Kind::Tls, few(), after!(|_, client| SEEN.lock().unwrap().push(client)));
    ask_over(&mut door.connect_from(7), 1);
    let seen = SEEN.lock().unwrap();
    assert_eq!(seen[0].transport, wire::Transport::Tls);
    assert_eq!(seen[0].address, IpAddr::from([127, 0, 7, 1]));
}

#[test]
fn tls_1_2_and_1_3_are_spoken_with_and_without_alpn() {
    let authority = Authority::new();
    let certificates = Certificates::new(&identity(&authority)).unwrap();
    let setup = Setup { certificates: Some(Arc::new(certificates)), limits: few(), ..Setup::default() };
    let world = World::new(&[Listener { kind: Kind::Tls, address: LOOPBACK[0] }], setup, wire::respond);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for (alpn, taken) in [(&[][..], true), (&["dot"], true), (&["h2", "dot"], true), (&["h2"], false)] {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]);
            let builder = builder.unwrap().with_root_certificates(authority.store());
            let mut config = builder.with_no_client_auth();
            config.alpn_protocols = alpn.iter().map(|name: &&str| name.as_bytes().to_vec()).collect();
            let mut stream = tls_over(tcp(world.address()), &Arc::new(config));
            match stream.write_all(&framed(1)) {
                Ok(()) if taken => assert_eq!(ids(&mut stream, 1), [1]),
                outcome => assert!(!taken && outcome.is_err(), "{version:?} {alpn:?}: {outcome:?}"),
            }
        }
    }
}

#[test]
fn sessions_are_resumed_without_memory_here_until_the_certificate_is_another() {
    let (first, second) = (Authority::new(), Authority::new());
    let certificates = Arc::new(Certificates::new(&identity(&first)).unwrap());
    let setup = Setup { certificates: Some(Arc::clone(&certificates)), limits: few(), ..Setup::default() };
    let listener = Listener { kind: Kind::Tls, address: LOOPBACK[0] };
    let world = World::new(&[listener], setup, wire::respond);
    let mut roots = first.store();
    roots.extend(second.store().roots);
    let mut config = client(roots, &["dot"]);
    config.resumption = Resumption::in_memory_sessions(8);
    let config = Arc::new(config);
    let ask = || {
        let mut stream = tls_over(tcp(world.address()), &config);
        ask_over(&mut stream, 1); // the ticket comes before the reply
        stream.conn.handshake_kind()
    };
    assert_eq!(ask(), Some(HandshakeKind::Full));
    assert_eq!(ask(), Some(HandshakeKind::Resumed));
    let mut standing = tls_over(tcp(world.address()), &config);
    ask_over(&mut standing, 2);
    certificates.replace(&identity(&second)).unwrap();
    assert_eq!(ask(), Some(HandshakeKind::Full), "the old certificate's tickets open nothing");
    assert_eq!(ask(), Some(HandshakeKind::Resumed));
    ask_over(&mut standing, 3);
    let mixed = Identity { key: identity(&first).key, ..identity(&second) };
    let why = certificates.replace(&mixed).unwrap_err();
    assert!(why.starts_with("certificate and key don't belong together"), "{why}");
    assert_eq!(ask(), Some(HandshakeKind::Resumed), "what is wrong changes nothing");
}

#[test]
fn the_end_is_said_within_tls() {
    let limits =
        Limits { tcp_idle: Duration::from_millis(200), tcp_message: Duration::from_millis(200), ..few() };
    let door = Door::new(Kind::Tls, limits, wire::respond);
    // a cut without close_notify would be an error
    let mut idle = door.connect();
    ask_over(&mut idle, 1);
    assert_eq!(idle.read(&mut [0]).unwrap(), 0, "idle for too long");
    let mut partial = door.connect();
    partial.write_all(&framed(1)[..9]).unwrap();
    assert_eq!(partial.read(&mut [0]).unwrap(), 0, "half of a message");
    let mut garbage = door.connect();
    garbage.write_all(&[0, 3, 1, 2, 3]).unwrap();
    assert_eq!(garbage.read(&mut [0]).unwrap(), 0, "no message");
    until("all are gone", || door.open() == 0);
    let mut door = door;
    let mut stream = door.connect();
    ask_over(&mut stream, 1);
    door.world.stop(|| ());
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the server stops");
}

#[test]
fn many_long_replies_within_tls_arrive_whole() {
    let door = Door::new(Kind::Tls, few(), longest);
    let mut stream = door.connect();
    stream.write_all(&(0..100).flat_map(framed).collect::<Vec<_>>()).unwrap();
    for number in 0..100 {
        let reply = read(&mut stream).expect("a reply");
        assert_eq!((id(&reply), reply.len()), (number, 65535));
    }
    ask_over(&mut stream, 100);
}

#[test]
fn what_is_no_tls_costs_a_seat_for_a_bounded_time() {
    let limits = Limits { tls_handshake: Duration::from_millis(200), ..few() };
    let door = Door::new(Kind::Tls, limits, wire::respond);
    let address = door.world.address();
    let mut http = tcp(address);
    http.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut plain = tcp(address);
    plain.write_all(&framed(1)).unwrap();
    let mut silent = tcp(address);
    let mut half = tcp(address);
    half.write_all(&[0x16, 3, 1, 2, 0, 1, 0]).unwrap(); // the beginning of a ClientHello
    for (name, stream) in
        [("HTTP", &mut http), ("DNS", &mut plain), ("silence", &mut silent), ("half a hello", &mut half)]
    {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest); // until it is closed, in whatever way
        assert!(rest.len() < 16, "{name} gets an alert at most: {rest:?}");
    }
    until("all are gone", || door.open() == 0);
    assert_eq!((door.world.counters().handshakes_failed, door.world.counters().queries), (4, 0));
}
