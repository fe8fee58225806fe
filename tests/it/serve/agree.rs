//! Every transport gives the same answers, section by section; other people's
//! client gets them, too.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use data_encoding::BASE64URL_NOPAD;
use haledns::app::{self, Running};
use haledns::config;
use hickory_proto::op::{Message, ResponseCode};
use rustls::{ClientConfig, RootCertStore};

use super::encrypted::{self, tcp_from, tls_over};
use super::*;
use crate::cases_of_dns::incremental;
use crate::quic::{over_http3, over_quic};
use crate::support::ask::Question;
use crate::support::certificates::Authority;
use crate::support::folder::Folder;
use crate::support::programs::need;

const ZONE: &str = "
zone: example.com
records:
  '':
    - { type: NS, value: ns1.example.com. }
    - { type: MX, value: { preference: 10, exchange: mail.example.com. } }
  ns1: { type: A, value: 192.0.2.53 }
  www: { type: A, values: [192.0.2.1, 192.0.2.2, 192.0.2.3] }
  alias: { type: CNAME, value: www.example.com. }
  lost: { type: CNAME, value: nowhere.example.com. }
  sub: { type: NS, value: ns.sub.example.com. }
  ns.sub: { type: A, value: 192.0.2.54 }
  '*.wild': { type: TXT, value: any }
  long: { type: TXT, values: [LONG] }
";

/// A transport's name, and what makes a reply of a query over it.
type Transport<'a> = (&'static str, Box<dyn Fn(&[u8]) -> Vec<u8> + 'a>);

/// A server with every transport, and how to trust it.
struct Everything {
    running: Option<Running>,
    addresses: Vec<SocketAddr>,
    client: Arc<ClientConfig>,
    roots: RootCertStore,
    folder: Folder,
    runtime: Runtime,
}

impl Everything {
    fn new() -> Everything {
        let authority = Authority::new();
        let own = authority.issue(&["localhost"], 2020, 2100);
        let folder = Folder::new();
        folder.write("own.pem", &own.pem);
        folder.write("own.key", &own.key_pem);
        let texts: Vec<String> = (0..12).map(|number| format!("text-{number}-{}", "x".repeat(200))).collect();
        let zone = ZONE.replace("LONG", &texts.join(", "));
        let server = "server:\n  listen_tls: 127.0.0.1:0\n  listen_https: 127.0.0.1:0\n  \
                      listen_quic: 127.0.0.1:0\n  listen_http3: 127.0.0.1:0\n  certificate: own.pem\n  \
                      private_key: own.key\n";
        folder.write("a.yaml", &format!("{server}{zone}"));
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let loaded = config::load(&[folder.path().into()]).unwrap_or_else(|report| panic!("{report}"));
        let running = runtime.block_on(app::start(&loaded, &LOOPBACK, Box::new(|_, _| ()))).unwrap();
        let addresses = running.addresses();
        let client = Arc::new(encrypted::client(authority.store(), &[]));
        folder.write("roots.pem", std::str::from_utf8(&authority.roots().unwrap()).unwrap());
        let roots = authority.store();
        Everything { running: Some(running), addresses, client, roots, folder, runtime }
    }

    /// All of them; a new one is a line here.
    fn transports(&self) -> Vec<Transport<'_>> {
        let [plain, tls, https, quic, http3] = self.addresses[..] else { panic!("five listeners") };
        let roots = || self.roots.clone();
        vec![
            ("UDP", Box::new(move |query| over_udp(plain, query))),
            ("TCP", Box::new(move |query| over_stream(&mut tcp(plain), query))),
            ("TLS", Box::new(move |query| over_stream(&mut tls_over(tcp(tls), &self.client), query))),
            ("HTTPS, GET", Box::new(move |query| self.over_https(https, &get(query)))),
            ("HTTPS, POST", Box::new(move |query| self.over_https(https, &post(query)))),
            ("QUIC", Box::new(move |query| self.runtime.block_on(over_quic(roots(), quic, query)))),
            ("HTTP/3", Box::new(move |query| self.runtime.block_on(over_http3(roots(), http3, query)))),
        ]
    }

    /// HTTP/1.1 by hand, so that nothing of the library that serves takes part.
    fn over_https(&self, to: SocketAddr, request: &[u8]) -> Vec<u8> {
        let mut stream = tls_over(tcp_from(0, to), &self.client);
        stream.write_all(request).unwrap();
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        let head = response.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
        assert!(response.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&response[..head]));
        response.split_off(head + 4)
    }
}

impl Drop for Everything {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            self.runtime.block_on(running.stop());
        }
    }
}

fn over_udp(to: SocketAddr, query: &[u8]) -> Vec<u8> {
    let socket = udp(to);
    socket.send(query).unwrap();
    hear(&socket)
}

fn over_stream(stream: &mut (impl Read + Write), query: &[u8]) -> Vec<u8> {
    stream.write_all(&[&(query.len() as u16).to_be_bytes()[..], query].concat()).unwrap();
    read(stream).expect("a reply")
}

fn get(query: &[u8]) -> Vec<u8> {
    let query = BASE64URL_NOPAD.encode(query);
    format!("GET /dns-query?dns={query} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").into()
}

fn post(query: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /dns-query HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/dns-message\r\ncontent-length: {}\r\n\r\n",
        query.len()
    );
    [head.as_bytes(), query].concat()
}

/// What of a reply must be the same everywhere: all but the order of records,
/// which is drawn, and what EDNS says of the transport.
fn sections(reply: &[u8]) -> Vec<String> {
    let message = Message::from_vec(reply).expect("a message");
    let mut lines = vec![format!("{} {:?}", message.metadata.id, message.metadata)];
    lines.extend(message.queries.iter().map(|query| format!("question {query}")));
    for (name, section) in [
        ("answer", &message.answers),
        ("authority", &message.authorities),
        ("additional", &message.additionals),
    ] {
        let mut records: Vec<_> = section.iter().map(|record| format!("{name} {record}")).collect();
        records.sort();
        lines.extend(records);
    }
    lines.push(format!("EDNS {}", message.edns.is_some()));
    lines
}

#[test]
fn all_transports_agree_section_by_section() {
    let server = Everything::new();
    let ask = |question: &str| question.parse::<Question>().unwrap().octets();
    let mut two_questions = ask("www.example.com A");
    two_questions[5] = 2;
    let mut other_opcode = ask("www.example.com A");
    other_opcode[2] |= 0x10; // STATUS
    let cases = [
        ("positive", ask("www.example.com A"), ResponseCode::NoError),
        ("an alias", ask("alias.example.com A"), ResponseCode::NoError),
        ("an alias that leads nowhere", ask("lost.example.com A"), ResponseCode::NXDomain),
        ("a wildcard", ask("a.wild.example.com TXT"), ResponseCode::NoError),
        ("the apex", ask("example.com MX"), ResponseCode::NoError),
        ("the SOA", ask("example.com SOA"), ResponseCode::NoError),
        ("NXDOMAIN", ask("none.example.com A"), ResponseCode::NXDomain),
        ("NODATA", ask("www.example.com AAAA"), ResponseCode::NoError),
        ("a referral", ask("host.sub.example.com A"), ResponseCode::NoError),
        ("REFUSED", ask("www.example.org A"), ResponseCode::Refused),
        ("FORMERR", two_questions, ResponseCode::FormErr),
        ("NOTIMP", other_opcode, ResponseCode::NotImp),
    ];
    for (what, query, code) in cases {
        let mut first: Option<Vec<String>> = None;
        for (name, transport) in server.transports() {
            let reply = transport(&query);
            assert_eq!(Message::from_vec(&reply).unwrap().metadata.response_code, code, "{what} over {name}");
            let sections = sections(&reply);
            match &first {
                None => first = Some(sections),
                Some(first) => assert_eq!(&sections, first, "{what} over {name}"),
            }
        }
    }
}

#[test]
fn what_is_truncated_in_a_datagram_is_whole_elsewhere() {
    let server = Everything::new();
    let query = "long.example.com TXT".parse::<Question>().unwrap().octets();
    let mut whole: Option<Vec<String>> = None;
    for (name, transport) in server.transports() {
        let reply = transport(&query);
        let message = Message::from_vec(&reply).unwrap();
        let truncated = message.metadata.truncation;
        assert_eq!(truncated, name == "UDP", "{name}");
        if truncated {
            continue;
        }
        assert_eq!(message.answers.len(), 12, "{name}");
        let sections = sections(&reply);
        assert_eq!(&sections, whole.get_or_insert_with(|| sections.clone()), "{name}");
    }
}

#[test]
fn kdig_gets_answers_over_tls_https_and_quic() {
    if !need("kdig") {
        return;
    }
    let server = Everything::new();
    let [plain, tls, https, quic, _] = server.addresses[..] else { panic!("five listeners") };
    let roots = format!("+tls-ca={}", server.folder.join("roots.pem").display());
    let verified = [&*roots, "+tls-hostname=localhost"];
    let cases: [(&str, SocketAddr, Vec<&str>); 6] = [
        ("UDP", plain, vec![]),
        ("TCP", plain, vec!["+tcp"]),
        ("TLS", tls, [&["+tls"][..], &verified].concat()),
        ("QUIC", quic, [&verified[..], &["+quic"]].concat()),
        ("HTTPS by POST", https, [&["+https=/dns-query"][..], &verified].concat()),
        ("HTTPS by GET", https, [&["+https=/dns-query", "+https-get"][..], &verified].concat()),
    ];
    for (what, address, options) in cases {
        let output = Command::new("kdig")
            .args([&format!("@{}", address.ip()), "-p", &address.port().to_string()])
            .args(options)
            .args(["+short", "alias.example.com", "A"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        let expected = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "www.example.com."];
        assert_eq!(lines, expected, "{what}: {text}{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a27_a_transfer_that_is_refused_leaves_the_connection_usable() {
    let world = Everything::new();
    let [plain, tls, ..] = world.addresses[..] else { panic!("five listeners") };
    let refused =
        |reply: &[u8]| Message::from_vec(reply).unwrap().metadata.response_code == ResponseCode::Refused;
    for zone in ["example.com", "example.org"] {
        let whole = format!("{zone} AXFR").parse::<Question>().unwrap().octets();
        let transfers = [whole, incremental(zone, 0), incremental(zone, u32::MAX)];
        let (mut open, mut within_tls) = (tcp(plain), tls_over(tcp(tls), &world.client));
        for transfer in &transfers {
            assert!(refused(&over_udp(plain, transfer)), "{zone}");
            assert!(refused(&over_stream(&mut open, transfer)), "{zone}");
            assert!(refused(&over_stream(&mut within_tls, transfer)), "{zone}");
        }
        ask_over(&mut open, 1);
        ask_over(&mut within_tls, 2);
    }
}
