//! A plain DNS client.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};

use super::hale::PATIENCE;

/// A reply, as far as tests look.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub rcode: ResponseCode,
    pub addresses: BTreeSet<IpAddr>,
    /// The TTLs in the answer section.
    pub ttls: BTreeSet<u32>,
}

impl Reply {
    pub fn has(&self, address: &str) -> bool {
        self.addresses.contains(&address.parse().unwrap())
    }

    /// Whether it carries exactly these addresses.
    pub fn is(&self, addresses: &[&str]) -> bool {
        let wanted: BTreeSet<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.rcode == ResponseCode::NoError && self.addresses == wanted
    }
}

/// The octets of a query for the addresses of `name`.
pub fn query(id: u16, name: &str) -> Vec<u8> {
    let mut query = Message::new(id, MessageType::Query, OpCode::Query);
    query.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    query.to_vec().unwrap()
}

pub fn read(octets: &[u8]) -> Reply {
    let reply = Message::from_vec(octets).unwrap();
    let addresses = reply.answers.iter().filter_map(|record| match record.data {
        RData::A(address) => Some(IpAddr::from(address.0)),
        _ => None,
    });
    Reply {
        rcode: reply.metadata.response_code,
        addresses: addresses.collect(),
        ttls: reply.answers.iter().map(|record| record.ttl).collect(),
    }
}

/// A socket that talks with `server` alone.
pub fn socket(server: SocketAddr) -> UdpSocket {
    let local = if server.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    let socket = UdpSocket::bind(local).unwrap();
    socket.connect(server).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Asks for the addresses of `name` over UDP.
pub fn ask(server: SocketAddr, name: &str) -> Reply {
    ask_on(&socket(server), name)
}

/// The same where perhaps nobody answers yet.
pub fn try_ask(server: SocketAddr, name: &str) -> Option<Reply> {
    let socket = socket(server);
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    socket.send(&query(7, name)).ok()?;
    let mut octets = [0; 1500];
    let length = socket.recv(&mut octets).ok()?;
    Some(read(&octets[..length]))
}

pub fn ask_on(socket: &UdpSocket, name: &str) -> Reply {
    socket.send(&query(7, name)).unwrap();
    let mut octets = [0; 1500];
    let length = socket.recv(&mut octets).expect("a reply");
    read(&octets[..length])
}

/// Asks over TCP.
pub fn ask_tcp(stream: &mut TcpStream, name: &str) -> Reply {
    let query = query(7, name);
    stream.write_all(&[&(query.len() as u16).to_be_bytes()[..], &query].concat()).unwrap();
    read_tcp(stream)
}

pub fn read_tcp(stream: &mut TcpStream) -> Reply {
    let mut length = [0; 2];
    stream.read_exact(&mut length).expect("a reply");
    let mut octets = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut octets).unwrap();
    read(&octets)
}

/// A connection to `server`.
pub fn connect(server: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}
