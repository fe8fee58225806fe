//! A small DNS client: what does the server answer right now?

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// An answer as dig would show it.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub rcode: ResponseCode,
    /// TTL and data of each record of the answer section, sorted.
    pub records: Vec<(u32, String)>,
    /// TTL of the SOA in the authority section.
    pub soa_ttl: Option<u32>,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.records[..], self.soa_ttl) {
            ([], Some(ttl)) => {
                write!(f, "{} and no address, only the SOA (TTL {ttl})", as_dig_says(self.rcode))
            }
            ([], None) => f.write_str(&as_dig_says(self.rcode)),
            (records, _) => {
                let data: Vec<_> = records.iter().map(|(_, data)| &**data).collect();
                write!(f, "{} (TTL {})", data.join("  "), records[0].0)
            }
        }
    }
}

/// An RCODE by its mnemonic.
fn as_dig_says(rcode: ResponseCode) -> String {
    match rcode {
        ResponseCode::NoError => "NOERROR".to_owned(),
        ResponseCode::NXDomain => "NXDOMAIN".to_owned(),
        ResponseCode::ServFail => "SERVFAIL".to_owned(),
        ResponseCode::Refused => "REFUSED".to_owned(),
        other => other.to_string(),
    }
}

/// Asks once over UDP; none if nothing comes back within a second.
pub async fn ask(server: SocketAddr, name: &Name, rtype: RecordType) -> Option<Answer> {
    let local: SocketAddr =
        if server.is_ipv4() { ([127, 0, 0, 1], 0).into() } else { "[::1]:0".parse().ok()? };
    let socket = UdpSocket::bind(local).await.ok()?;
    let id = socket.local_addr().ok()?.port(); // a port nobody else has: as good as chance on loopback
    let mut query = Message::new(id, MessageType::Query, OpCode::Query);
    query.add_query(Query::query(name.clone(), rtype));
    socket.send_to(&query.to_vec().ok()?, server).await.ok()?;
    let mut octets = [0; 1232];
    let (length, _) = timeout(Duration::from_secs(1), socket.recv_from(&mut octets)).await.ok()?.ok()?;
    let reply = Message::from_vec(&octets[..length]).ok().filter(|reply| reply.metadata.id == id)?;
    let mut records: Vec<_> =
        reply.answers.iter().map(|record| (record.ttl, record.data.to_string())).collect();
    records.sort();
    let soa = reply.authorities.iter().find(|record| matches!(record.data, RData::SOA(_)));
    Some(Answer { rcode: reply.metadata.response_code, records, soa_ttl: soa.map(|record| record.ttl) })
}
