//! DNS queries, to servers of every sort.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use haledns::health::Outcome;
use haledns::model::{Check, DnsCheck};
use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::{RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;

use super::{LONG, Probe, SHORT, told};
use crate::support::folder::Folder;
use crate::support::hale::Hale;

fn check(name: &str, rtype: u16) -> DnsCheck {
    DnsCheck {
        port: None,
        name: name.parse().unwrap(),
        rtype,
        recursion: false,
        tcp: false,
        rcodes: vec![0],
        data: Vec::new(),
    }
}

async fn ask(to: SocketAddr, check: DnsCheck) -> Outcome {
    Probe::new(to, Check::Dns(check)).run().await
}

const A: u16 = 1;
const ADDRESS: [u8; 4] = [192, 0, 2, 1];

fn data(octets: &[u8]) -> Vec<Box<[u8]>> {
    vec![octets.into()]
}

/// The right answer.
fn answer(query: &Message) -> Message {
    let mut answer = query.clone();
    answer.metadata.message_type = MessageType::Response;
    let question = query.queries[0].clone();
    if question.query_type == RecordType::A {
        answer.add_answer(Record::from_rdata(question.name, 30, RData::A(Ipv4Addr::from(ADDRESS).into())));
    }
    answer
}

fn octets(message: &Message) -> Vec<u8> {
    message.to_vec().unwrap()
}

/// Answers each query, over UDP and TCP at one port, as told.
struct Scripted {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

type Replies = fn(&Message) -> Vec<Vec<u8>>;

impl Scripted {
    async fn start(over_udp: Replies, over_tcp: Replies) -> Scripted {
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()).await {
                break (udp, tcp);
            }
        };
        let address = udp.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut datagram = [0; 2048];
            loop {
                let Ok((length, from)) = udp.recv_from(&mut datagram).await else { continue };
                for reply in over_udp(&Message::from_vec(&datagram[..length]).unwrap()) {
                    udp.send_to(&reply, from).await.unwrap();
                }
            }
        });
        tasks.spawn(async move {
            loop {
                let (mut stream, _) = tcp.accept().await.unwrap();
                let length = stream.read_u16().await.unwrap();
                let mut query = vec![0; usize::from(length)];
                stream.read_exact(&mut query).await.unwrap();
                for reply in over_tcp(&Message::from_vec(&query).unwrap()) {
                    stream.write_u16(reply.len() as u16).await.unwrap();
                    stream.write_all(&reply).await.unwrap();
                }
            }
        });
        Scripted { address, _tasks: tasks }
    }
}

fn right(query: &Message) -> Vec<Vec<u8>> {
    vec![octets(&answer(query))]
}

fn nothing(_: &Message) -> Vec<Vec<u8>> {
    Vec::new()
}

#[tokio::test]
async fn the_right_answer_passes_over_either_transport() {
    let server = Scripted::start(right, right).await;
    for tcp in [false, true] {
        let check = DnsCheck { tcp, data: data(&ADDRESS), ..check("www.example.com", A) };
        let outcome = ask(server.address, check).await;
        assert_eq!(told(&outcome), "0 pass", "tcp: {tcp}");
        assert!(outcome.evidence.first_byte.is_some());
        let said = String::from_utf8_lossy(&outcome.evidence.said).into_owned();
        assert!(said.ends_with("A 192.0.2.1"), "{said}");
    }
}

#[tokio::test]
async fn a_query_is_what_the_monitor_says() {
    fn mirror(query: &Message) -> Vec<Vec<u8>> {
        let question = &query.queries[0];
        let as_due = query.metadata.recursion_desired
            && question.name.to_ascii() == "www.example.com."
            && question.query_type == RecordType::Unknown(4711)
            && query.edns.is_some();
        let mut reply = answer(query);
        reply.metadata.response_code = if as_due { ResponseCode::NXDomain } else { ResponseCode::FormErr };
        vec![octets(&reply)]
    }
    let server = Scripted::start(mirror, nothing).await;
    let check = DnsCheck { recursion: true, rcodes: vec![3], ..check("www.example.com", 4711) };
    assert_eq!(told(&ask(server.address, check).await), "3 pass");
}

#[tokio::test]
async fn forged_and_stray_datagrams_are_ignored() {
    fn forgeries(query: &Message) -> Vec<Vec<u8>> {
        let wrong = |change: fn(&mut Message)| {
            let mut forged = answer(query);
            forged.metadata.response_code = ResponseCode::ServFail;
            change(&mut forged);
            octets(&forged)
        };
        let right = octets(&answer(query));
        vec![
            Vec::new(),
            right[..11].to_vec(),
            octets(query),
            wrong(|forged| forged.metadata.id ^= 1),
            wrong(|forged| forged.queries[0].name = "other.example.com.".parse().unwrap()),
            wrong(|forged| {
                forged.queries[0].query_type = RecordType::AAAA;
            }),
            wrong(|forged| forged.queries.push(forged.queries[0].clone())),
            wrong(|forged| {
                forged.metadata.response_code = ResponseCode::NoError;
                forged.queries.clear();
            }),
            right,
        ]
    }
    let server = Scripted::start(forgeries, nothing).await;
    let right = DnsCheck { data: data(&ADDRESS), ..check("www.example.com", A) };
    assert_eq!(told(&ask(server.address, right).await), "0 pass");

    fn only_forgeries(query: &Message) -> Vec<Vec<u8>> {
        let mut all = forgeries(query);
        all.pop();
        all
    }
    let server = Scripted::start(only_forgeries, nothing).await;
    let probe = Probe::new(server.address, Check::Dns(check("www.example.com", A)));
    assert_eq!(told(&probe.within(SHORT).run().await), "- DnsTimeout response_timeout");
}

#[tokio::test]
async fn the_case_of_a_repeated_question_does_not_matter() {
    fn shouting(query: &Message) -> Vec<Vec<u8>> {
        let mut reply = answer(query);
        reply.queries[0].name = "WWW.Example.COM.".parse().unwrap();
        vec![octets(&reply)]
    }
    let server = Scripted::start(shouting, nothing).await;
    assert_eq!(told(&ask(server.address, check("www.example.com", A)).await), "0 pass");
}

#[tokio::test]
async fn a_truncated_answer_is_asked_for_again_over_tcp() {
    fn truncated(query: &Message) -> Vec<Vec<u8>> {
        let mut reply = answer(query);
        reply.answers.clear();
        reply.metadata.truncation = true;
        vec![octets(&reply)]
    }
    let check = DnsCheck { data: data(&ADDRESS), ..check("www.example.com", A) };
    let server = Scripted::start(truncated, right).await;
    let outcome = ask(server.address, check.clone()).await;
    assert_eq!(told(&outcome), "0 pass");
    assert!(outcome.evidence.connected.is_some());
    let server = Scripted::start(truncated, nothing).await;
    assert_eq!(
        told(&ask(server.address, check).await),
        "- DnsResponseMismatch closed_early",
        "and must come there"
    );
}

#[tokio::test]
async fn a_code_that_is_not_expected_fails_with_the_code() {
    fn refused(query: &Message) -> Vec<Vec<u8>> {
        let mut reply = answer(query);
        reply.metadata.response_code = ResponseCode::Refused;
        reply.queries.clear(); // as servers do that can't read the query
        vec![octets(&reply)]
    }
    fn bad_version(query: &Message) -> Vec<Vec<u8>> {
        let mut reply = answer(query);
        reply.metadata.response_code = ResponseCode::BADVERS;
        vec![octets(&reply)]
    }
    for (replies, code) in [(refused as Replies, 5), (bad_version, 16)] {
        let server = Scripted::start(replies, nothing).await;
        let outcome = ask(server.address, check("www.example.com", A)).await;
        assert_eq!(told(&outcome), format!("{code} DnsResponseMismatch unexpected_rcode"));
        let check = DnsCheck { rcodes: vec![0, code], ..check("www.example.com", A) };
        assert_eq!(told(&ask(server.address, check).await), format!("{code} pass"));
    }
}

#[tokio::test]
async fn data_that_is_missing_fails() {
    let server = Scripted::start(right, nothing).await;
    let check = |data: Vec<Box<[u8]>>, rtype| DnsCheck { data, ..check("www.example.com", rtype) };
    let both: Vec<Box<[u8]>> = vec![ADDRESS.into(), [192, 0, 2, 2].into()];
    let outcome = ask(server.address, check(both, A)).await;
    assert_eq!(told(&outcome), "0 DnsResponseMismatch data_not_found");
    // A record of another type is none of those asked for.
    const AAAA: u16 = 28;
    let outcome = ask(server.address, check(data(&ADDRESS), AAAA)).await;
    assert_eq!(told(&outcome), "0 DnsResponseMismatch data_not_found");
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_malformed() {
    fn cut(query: &Message) -> Vec<Vec<u8>> {
        let mut reply = octets(&answer(query));
        reply.truncate(reply.len() - 13);
        vec![reply]
    }
    let server = Scripted::start(cut, cut).await;
    for tcp in [false, true] {
        let check = DnsCheck { tcp, ..check("www.example.com", A) };
        assert_eq!(told(&ask(server.address, check).await), "- DnsResponseMismatch malformed_response");
    }
}

#[tokio::test]
async fn a_port_at_which_nobody_listens_is_told_at_once() {
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let outcome = ask(closed, check("www.example.com", A)).await;
    assert_eq!(told(&outcome), "- UdpPortUnreachable port_unreachable");
    assert!(outcome.took < LONG);
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let outcome = ask(closed, DnsCheck { tcp: true, ..check("www.example.com", A) }).await;
    assert_eq!(told(&outcome), "- TcpConnectionFailed connect_refused");
}

#[tokio::test]
async fn silence_times_out_and_is_tried_again() {
    let server = Scripted::start(nothing, nothing).await;
    let probe = Probe::new(server.address, Check::Dns(check("www.example.com", A)));
    let outcome = probe.within(SHORT).retries(1).run().await;
    assert_eq!(told(&outcome), "- DnsTimeout response_timeout");
    assert!(outcome.took >= SHORT * 2 && outcome.took < Duration::from_secs(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn this_program_answers_its_own_probes() {
    let folder = Folder::with(
        "zone.yaml",
        "zone: example.com\n\
         records:\n  \
         '': [ { type: NS, value: ns1.example.net. }, { type: MX, value: { preference: 10, exchange: Mail } } ]\n  \
         www: { type: A, values: [192.0.2.1, 192.0.2.2] }\n  \
         alias: { type: CNAME, value: www }\n  \
         text: { type: TXT, value: v=spf1 -all }\n",
    );
    let hale = Hale::serve(folder.path());
    let address = hale.address();
    const MX: u16 = 15;
    const TXT: u16 = 16;
    let mail = [&[0, 10][..], b"\x04mail\x07example\x03com\0"].concat();
    for (name, rtype, data, result) in [
        ("www.example.com", A, &ADDRESS[..], "0 pass"),
        ("alias.example.com", A, &[192, 0, 2, 2], "0 pass"),
        ("example.com", MX, &mail, "0 pass"),
        ("text.example.com", TXT, b"\x0bv=spf1 -all", "0 pass"),
        ("text.example.com", TXT, b"\x0bV=SPF1 -ALL", "0 DnsResponseMismatch data_not_found"),
        ("www.example.com", A, &[192, 0, 2, 3], "0 DnsResponseMismatch data_not_found"),
        ("none.example.com", A, &ADDRESS, "3 DnsResponseMismatch unexpected_rcode"),
        ("www.example.org", A, &ADDRESS, "5 DnsResponseMismatch unexpected_rcode"),
    ] {
        for tcp in [false, true] {
            let check = DnsCheck { tcp, data: vec![data.into()], ..check(name, rtype) };
            assert_eq!(told(&ask(address, check).await), result, "{name} {rtype} tcp: {tcp}");
        }
    }
}
