//! From a query's octets to the reply's.
//!
//! [`respond`] is the one function behind every transport. It parses a query,
//! looks its name up in a snapshot and writes the reply, in one pass over
//! memory that the caller owns: it allocates nothing, locks nothing, waits for
//! nothing, and sees one snapshot.
//!
//! ```text
//! octets ─ query ─► question, options ─ answer ─► sections ─ reply ─► octets
//! ```
//!
//! Names in replies are compressed only by pointers to names that already
//! stand whole in the message: the question, or a CNAME's target.

mod answer;
mod cookie;
mod look;
mod query;
mod reply;
mod service;

use std::net::IpAddr;

use crate::authority::{Key, Snapshot};
use query::{Header, Query};
use reply::Reply;

pub use cookie::{Secret, Secrets};
pub use look::{TCP_KEEPALIVE, has_option, lifetime};
pub use service::{MAX_NSID, Service};

/// What of the client matters to the answer.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    pub transport: Transport,
    /// Where the query comes from, behind any proxy; an IPv4 address is never
    /// in its form mapped into IPv6.
    pub address: IpAddr,
    /// Chance for this one answer: which addresses, in which order.
    pub entropy: u64,
    /// Unix time in seconds, as DNS counts it (RFC 1982).
    pub now: u32,
}

/// How the query came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// One datagram each way.
    Udp,
    /// Length-prefixed messages over a stream (RFC 7766).
    Tcp,
    /// The same within TLS (RFC 7858).
    Tls,
    /// A message as the body of a request (RFC 8484), over HTTP/2 or HTTP/3.
    Https,
    /// A stream for each message (RFC 9250).
    Quic,
}

impl Transport {
    /// Whether a reply must fit a datagram.
    pub fn is_datagram(self) -> bool {
        self == Transport::Udp
    }

    /// Whether a client may learn how long its connection may be idle: HTTP and
    /// QUIC have ways of their own for that (RFC 7828 §1, RFC 9250 §5.5.2).
    pub fn keeps_connections(self) -> bool {
        match self {
            Transport::Tcp | Transport::Tls => true,
            Transport::Udp | Transport::Https | Transport::Quic => false,
        }
    }

    /// Whether nobody on the way can read along, so that replies are padded.
    pub fn is_encrypted(self) -> bool {
        match self {
            Transport::Udp | Transport::Tcp => false,
            Transport::Tls | Transport::Https | Transport::Quic => true,
        }
    }
}

/// A reply, and what limiting the rate of replies goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replied {
    /// Octets written; 0 means that nothing may be sent.
    pub length: usize,
    pub class: Class,
    /// The same for replies that an attacker could ask for in place of one
    /// another: one number for each name that exists, whatever a wildcard makes
    /// of it, for each zone's missing names, and for all errors.
    pub subject: u32,
    /// The client has shown that it gets what is sent to its address: by a
    /// server cookie (RFC 7873), or by a transport with a handshake.
    pub vouched: bool,
}

/// Kinds of replies that are limited apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Answer,
    Referral,
    NoData,
    Nxdomain,
    /// REFUSED, FORMERR and the like.
    Error,
}

/// The largest reply over UDP, and the size this server advertises
/// (RFC 9715 §3).
pub const MAX_UDP: usize = 1232;

/// The largest message of all.
pub const MAX_MESSAGE: usize = 65535;

/// Response codes (RFC 1035 §4.1.1, RFC 6891 §9).
pub mod rcode {
    pub const NOERROR: u16 = 0;
    pub const FORMERR: u16 = 1;
    pub const SERVFAIL: u16 = 2;
    pub const NXDOMAIN: u16 = 3;
    pub const NOTIMP: u16 = 4;
    pub const REFUSED: u16 = 5;
    /// A DNAME would make a name too long (RFC 6672 §2.2).
    pub const YXDOMAIN: u16 = 6;
    pub const BADVERS: u16 = 16;
}

/// Extended DNS Errors (RFC 8914).
mod ede {
    pub const NOT_AUTHORITATIVE: u16 = 20;
    pub const NOT_SUPPORTED: u16 = 21;
}

/// Answers one query from one snapshot. Writes the reply to the beginning of
/// `out`, which must hold [`MAX_UDP`] octets for a datagram and
/// [`MAX_MESSAGE`] for anything else.
pub fn respond(
    snapshot: &Snapshot,
    service: &Service,
    query: &[u8],
    client: Client,
    out: &mut [u8],
) -> Replied {
    let mut replied = Replied { length: 0, class: Class::Error, subject: 0, vouched: false };
    let Some(header) = Header::read(query) else { return replied };
    let mut key = Key::default();
    let parsed = query::parse(query, &header, service.cookies.is_some(), &mut key);
    let (question, edns, error) = match &parsed {
        Ok(Query { question, edns }) => (*question, *edns, None),
        Err(failed) => (failed.question, failed.edns, Some(failed.rcode)),
    };
    let limit = match edns {
        _ if !client.transport.is_datagram() => MAX_MESSAGE,
        None => 512,
        Some(edns) => usize::from(edns.udp_size).clamp(512, MAX_UDP),
    };
    let mut reply = Reply::begin(out, limit, (service, client), (&header, question), query, edns);
    match (error, question) {
        (Some(rcode), _) => {
            reply.set_rcode(rcode);
            if matches!(rcode, rcode::NOTIMP | rcode::REFUSED) {
                reply.set_extended_error(ede::NOT_SUPPORTED);
            }
        }
        (None, Some(question)) => {
            (replied.class, replied.subject) =
                answer::answer(snapshot, question, &mut key, client.entropy, &mut reply);
        }
        (None, None) => {} // a cookie was asked for, and nothing else
    }
    let cookie = edns.and_then(|edns| edns.cookie);
    let approved = service.cookies.as_ref().zip(cookie);
    replied.vouched = !client.transport.is_datagram()
        || approved.is_some_and(|(secrets, cookie)| secrets.approve(cookie, client.address, client.now));
    replied.length = reply.finish();
    replied
}

/// Writes the least reply to a query that [`respond`] has answered: question,
/// TC, and an OPT record if the query had one. It leads the client to TCP, where
/// nobody's address can be borrowed. Needs as much room; 0: nothing may be sent.
pub fn slip(service: &Service, query: &[u8], client: Client, out: &mut [u8]) -> usize {
    let Some(header) = Header::read(query) else { return 0 };
    let mut key = Key::default();
    let parsed = query::parse(query, &header, service.cookies.is_some(), &mut key);
    let Ok(Query { question, edns }) = parsed else { return 0 };
    // nothing that would make it longer than the query but a cookie, with which the client comes back
    let edns = edns.map(|edns| query::Edns { nsid: false, subnet: None, ..edns });
    let mut reply = Reply::begin(out, MAX_UDP, (service, client), (&header, question), query, edns);
    reply.set_truncated();
    reply.finish()
}
