//! Queries, and replies as lines, for tests that name types as `dig` does.

use hickory_proto::op::{Edns, Message as Hickory, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, Record};

/// A reply, its records as `owner ttl type data`.
#[derive(Clone, Debug)]
pub struct Message {
    pub rcode: String,
    pub authoritative: bool,
    pub answer: Vec<String>,
    pub authority: Vec<String>,
}

/// A query with EDNS, class IN.
pub fn query(owner: &str, rtype: &str) -> Vec<u8> {
    let mut name = Name::from_ascii(owner).expect("a name");
    name.set_fqdn(true);
    let mut message = Hickory::new(0x1234, MessageType::Query, OpCode::Query);
    let rtype = match rtype {
        "DNAME" => 39.into(),
        other => other.parse().expect("a type"),
    };
    message.add_query(Query::query(name, rtype));
    let mut edns = Edns::new();
    edns.set_max_payload(1232);
    message.set_edns(edns);
    message.to_vec().expect("a query fits")
}

/// Reads a reply.
pub fn read(octets: &[u8]) -> Message {
    let message = Hickory::from_vec(octets).expect("a well-formed reply");
    let lines = |records: &[Record]| records.iter().map(line).collect();
    let rcode = match message.metadata.response_code.low() {
        0 => "NOERROR".into(),
        3 => "NXDOMAIN".into(),
        5 => "REFUSED".into(),
        6 => "YXDOMAIN".into(),
        other => format!("RCODE{other}"),
    };
    Message {
        rcode,
        authoritative: message.metadata.authoritative,
        answer: lines(&message.answers),
        authority: lines(&message.authorities),
    }
}

fn line(record: &Record) -> String {
    const DNAME: u16 = 39;
    let (name, ttl) = (&record.name, record.ttl);
    match u16::from(record.record_type()) {
        DNAME => {
            // unknown to the library: its data is a name
            let octets = match &record.data {
                hickory_proto::rr::RData::Unknown { rdata, .. } => &rdata.anything[..],
                other => panic!("{other:?}"),
            };
            let mut text = String::new();
            let mut rest = octets;
            while let Some((length, after)) = rest.split_first().filter(|(length, _)| **length > 0) {
                let (label, after) = after.split_at(usize::from(*length));
                text += &String::from_utf8_lossy(label);
                text.push('.');
                rest = after;
            }
            format!("{name} {ttl} DNAME {text}")
        }
        _ => format!("{name} {ttl} {} {}", record.record_type(), record.data),
    }
}
