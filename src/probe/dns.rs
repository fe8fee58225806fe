//! One DNS query and what its answer must be.
//!
//! What doesn't fit the query is ignored, for anybody may send a datagram: the
//! right answer may still come.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RData, RecordType};
use hickory_proto::serialize::binary::{BinDecodable, BinEncodable, BinEncoder};
use tokio::io::AsyncReadExt;
use tokio::net::UdpSocket;

use super::connect::Origin;
use super::{Failure, Phase, Progress, connect, talk};
use crate::health::{Evidence, ProbeTask, Reason};
use crate::model::{DnsCheck, Source};

/// So large an answer passes unfragmented nearly everywhere.
const MAX_UDP: u16 = 1232;

/// Asks, over UDP first unless told otherwise, and judges the answer.
pub(super) async fn probe(
    task: &ProbeTask,
    check: &DnsCheck,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let to = SocketAddr::new(task.address, task.port);
    let query = query(check)?;
    if !check.tcp {
        let answer = over_udp(to, task.source(), &query, progress).await?;
        if !answer.metadata.truncation {
            return judge(&answer, check, progress);
        }
        progress.phase = Phase::Connect;
    }
    let answer = over_tcp(to, task.source(), &query, progress).await?;
    judge(&answer, check, progress)
}

const INVALID_QUERY: Failure = Failure::NotTested(Reason::OtherFailure, "invalid_query");
const MALFORMED: Failure = Failure::Failed(Reason::DnsResponseMismatch, "malformed_response");
const PORT_UNREACHABLE: Failure = Failure::Failed(Reason::UdpPortUnreachable, "port_unreachable");
const CLOSED_EARLY: Failure = Failure::Failed(Reason::DnsResponseMismatch, "closed_early");

fn query(check: &DnsCheck) -> Result<Message, Failure> {
    let name = Name::from_bytes(check.name.wire()).map_err(|_| INVALID_QUERY)?;
    let mut query = Message::query(); // its id is random
    query.metadata.recursion_desired = check.recursion;
    query.add_query(Query::query(name, RecordType::from(check.rtype)));
    let mut edns = Edns::new();
    edns.set_max_payload(MAX_UDP);
    query.set_edns(edns);
    Ok(query)
}

/// Asks from a connected socket: its random port is part of what a forger
/// would have to guess, and ICMP errors come back to it.
async fn over_udp(
    to: SocketAddr,
    source: Source,
    query: &Message,
    progress: &mut Progress,
) -> Result<Message, Failure> {
    let octets = query.to_vec().map_err(|_| INVALID_QUERY)?;
    let socket = leave(to, source).await.map_err(|error| connect::failure(&error, Origin::System))?;
    // A free port of this machine may be the very one we were given.
    if socket.local_addr().is_ok_and(|from| from == to) {
        return Err(PORT_UNREACHABLE);
    }
    progress.phase = Phase::Response;
    socket.send(&octets).await.map_err(|error| udp_failure(&error, Origin::System))?;
    let mut datagram = vec![0; usize::from(u16::MAX)];
    loop {
        let length =
            socket.recv(&mut datagram).await.map_err(|error| udp_failure(&error, Origin::Network))?;
        if let Some(answer) = answer_to(query, &datagram[..length]) {
            progress.hear(&[]);
            return answer;
        }
    }
}

async fn leave(to: SocketAddr, source: Source) -> io::Result<UdpSocket> {
    let from = match to {
        SocketAddr::V4(_) => IpAddr::from(source.ipv4.unwrap_or(Ipv4Addr::UNSPECIFIED)),
        SocketAddr::V6(_) => IpAddr::from(source.ipv6.unwrap_or(Ipv6Addr::UNSPECIFIED)),
    };
    let socket = UdpSocket::bind(SocketAddr::new(from, 0)).await?;
    socket.connect(to).await?;
    Ok(socket)
}

fn udp_failure(error: &io::Error, origin: Origin) -> Failure {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => PORT_UNREACHABLE,
        _ => connect::failure(error, origin),
    }
}

/// Two octets of length before each message (RFC 1035 §4.2.2).
async fn over_tcp(
    to: SocketAddr,
    source: Source,
    query: &Message,
    progress: &mut Progress,
) -> Result<Message, Failure> {
    let octets = query.to_vec().map_err(|_| INVALID_QUERY)?;
    let length = u16::try_from(octets.len()).map_err(|_| INVALID_QUERY)?;
    let mut stream = connect::connect(to, source).await?;
    progress.enter(Phase::Response);
    talk::say(&mut stream, &[&length.to_be_bytes(), &octets[..]].concat()).await?;
    loop {
        let length = stream.read_u16().await.map_err(|error| talk::broken(&error, CLOSED_EARLY))?;
        let mut message = vec![0; usize::from(length)];
        stream.read_exact(&mut message).await.map_err(|error| talk::broken(&error, CLOSED_EARLY))?;
        if let Some(answer) = answer_to(query, &message) {
            progress.hear(&[]);
            return answer;
        }
    }
}

/// The message if it answers the query, or a failure if it would but can't be
/// read; none: it is something else.
fn answer_to(query: &Message, octets: &[u8]) -> Option<Result<Message, Failure>> {
    const RESPONSE: u8 = 0x80;
    let id = query.metadata.id.to_be_bytes();
    if octets.len() < 12 || octets[..2] != id || octets[2] & RESPONSE == 0 {
        return None;
    }
    let Ok(answer) = Message::from_vec(octets) else { return Some(Err(MALFORMED)) };
    let head = &answer.metadata;
    let fits = head.message_type == MessageType::Response
        && head.op_code == OpCode::Query
        && match &answer.queries[..] {
            // Who can't read the query can't repeat the question.
            [] => u16::from(head.response_code) != 0,
            questions => questions == query.queries,
        };
    fits.then_some(Ok(answer))
}

fn judge(answer: &Message, check: &DnsCheck, progress: &mut Progress) -> Result<(), Failure> {
    let rcode = u16::from(answer.metadata.response_code);
    progress.status = Some(rcode);
    progress.evidence.said = said(answer);
    if !check.rcodes.contains(&rcode) {
        return Err(Failure::Failed(Reason::DnsResponseMismatch, "unexpected_rcode"));
    }
    let data: Vec<Vec<u8>> = answer
        .answers
        .iter()
        .filter(|record| u16::from(record.record_type()) == check.rtype || check.rtype == ANY)
        .filter_map(|record| canonical(&record.data))
        .collect();
    match check.data.iter().all(|due| data.iter().any(|data| data[..] == due[..])) {
        true => Ok(()),
        false => Err(Failure::Failed(Reason::DnsResponseMismatch, "data_not_found")),
    }
}

const ANY: u16 = 255;

/// RDATA in the form that [`DnsCheck::data`] has.
fn canonical(data: &RData) -> Option<Vec<u8>> {
    let mut octets = Vec::new();
    let mut encoder = BinEncoder::new(&mut octets);
    encoder.set_canonical_form(true);
    data.emit(&mut encoder).ok()?;
    Some(octets)
}

/// The answer in a few words, for people.
fn said(answer: &Message) -> Box<[u8]> {
    let mut text = answer.metadata.response_code.to_string();
    for record in answer.answers.iter().filter(|record| record.record_type() != RecordType::OPT) {
        text += &format!("; {} {}", record.record_type(), record.data);
    }
    let mut octets = text.into_bytes();
    octets.truncate(Evidence::SAID);
    octets.into()
}
