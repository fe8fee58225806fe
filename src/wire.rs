//! From a query's octets to the reply's.
//!
//! [`respond`] is the one function behind every transport. It parses a query,
//! looks its name up in a snapshot and writes the reply, in one pass over
//! memory that the caller owns: it allocates nothing, locks nothing, waits for
//! nothing, and sees one snapshot.
//!
//! Names in replies are compressed only by pointers to names that already
//! stand whole in the message: the question, or a CNAME's target.

mod look;
mod query;
mod reply;
mod service;

use std::net::IpAddr;

use crate::authority::{Found, Key, Names, Node, Rrset, Snapshot, rtype};
use crate::steering::Chance;
pub use look::{TCP_KEEPALIVE, has_option, lifetime};
use query::{Query, Question};
use reply::Reply;
pub use service::Service;

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
    pub const BADVERS: u16 = 16;
}

/// Extended DNS Error 20, Not Authoritative (RFC 8914 §4.21).
const EDE_NOT_AUTHORITATIVE: u16 = 20;

/// A chain of CNAMEs is followed so far within our zones.
const MAX_CHAIN: usize = 8;

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
    let vouched = client.transport != Transport::Udp;
    let replied = |length| Replied { length, class: Class::Answer, subject: 0, vouched };
    let Some(header) = query::Header::read(query) else { return replied(0) };
    let mut key = Key::default();
    let parsed = query::parse(query, &header, &mut key);
    let (question, edns, error) = match &parsed {
        Ok(Query { question, edns }) => (Some(*question), *edns, None),
        Err(failed) => (failed.question, failed.edns, Some(failed.rcode)),
    };
    let limit = match edns {
        _ if !client.transport.is_datagram() => MAX_MESSAGE,
        None => 512,
        Some(edns) => usize::from(edns.udp_size).clamp(512, MAX_UDP),
    };
    let _ = service;
    let mut reply = Reply::begin(out, limit, &header, question, query, edns);
    if let Some(rcode) = error {
        reply.set_rcode(rcode);
    } else if let Some(question) = question {
        answer(snapshot, question, &mut key, Chance::new(client.entropy), &mut reply);
    }
    replied(reply.finish())
}

/// Writes the least reply to a query that [`respond`] has answered: question,
/// TC, and an OPT record if the query had one. It leads the client to TCP, where
/// nobody's address can be borrowed. Needs as much room; 0: nothing may be sent.
pub fn slip(service: &Service, query: &[u8], client: Client, out: &mut [u8]) -> usize {
    let _ = (service, client);
    let Some(header) = query::Header::read(query) else { return 0 };
    let mut key = Key::default();
    let Ok(Query { question, edns }) = query::parse(query, &header, &mut key) else { return 0 };
    let mut reply = Reply::begin(out, MAX_UDP, &header, Some(question), query, edns);
    reply.set_truncated();
    reply.finish()
}

/// Fills in the sections of the reply to a well-formed query.
fn answer(snapshot: &Snapshot, question: Question, key: &mut Key, mut chance: Chance, reply: &mut Reply) {
    let names = &*snapshot.names;
    if question.class != query::IN || matches!(question.rtype, rtype::AXFR | rtype::IXFR) {
        return reply.set_rcode(rcode::REFUSED);
    }
    // where the name now looked up stands in the message
    let mut owner = 12;
    let mut visited: [Option<&Node>; MAX_CHAIN] = [None; MAX_CHAIN];
    for step in 0..MAX_CHAIN {
        let node = match names.find(key) {
            Found::Node(node) => node,
            Found::Cut(cut) if question.rtype == rtype::DS && names.name(cut) == key.wire() => cut,
            Found::Cut(cut) => {
                if step == 0 {
                    refer(names, cut, key.wire().len(), reply);
                }
                return;
            }
            Found::Nothing(encloser) => {
                reply.set_authoritative();
                reply.set_rcode(rcode::NXDOMAIN);
                return no_data(snapshot, encloser, key, owner, None, reply);
            }
            Found::Outside => {
                if step == 0 {
                    refuse(reply);
                }
                return;
            }
        };
        reply.set_authoritative();
        let cname = match found_at(snapshot, node, question.rtype, owner, &mut chance, reply) {
            Answered::Yes => return,
            Answered::NoData(balancer_ttl) => {
                return no_data(snapshot, node, key, owner, balancer_ttl, reply);
            }
            Answered::Cname(cname) => cname,
        };
        if visited[..step].iter().flatten().any(|before| std::ptr::eq(*before, node)) {
            return; // round in a circle
        }
        visited[step] = Some(node);
        let Some(next) = reply.records(owner, cname) else { return };
        if key.read(reply.written(next)).is_none() {
            return;
        }
        owner = next;
    }
}

/// What a node gave for a type.
enum Answered<'a> {
    Yes,
    /// Nothing of this type; at a load balancer, no longer than its TTL.
    NoData(Option<u32>),
    /// The name is an alias.
    Cname(Rrset<'a>),
}

/// Answers with what stands at the node, if there is something of the type.
fn found_at<'a>(
    snapshot: &'a Snapshot,
    node: &Node,
    wanted: u16,
    owner: usize,
    chance: &mut Chance,
    reply: &mut Reply,
) -> Answered<'a> {
    let names = &*snapshot.names;
    let balancer = names.balancer(node).map(|number| &*snapshot.balancers[number]);
    if let Some(balancer) = balancer
        && matches!(wanted, rtype::A | rtype::AAAA | rtype::ANY)
    {
        let ttl = balancer.ttl;
        if wanted != rtype::AAAA
            && let Some(candidates) = balancer.ipv4.pick(chance).filter(|some| !some.is_empty())
        {
            reply.addresses(owner, rtype::A, ttl, candidates, chance);
            return Answered::Yes;
        }
        if wanted != rtype::A
            && let Some(candidates) = balancer.ipv6.pick(chance).filter(|some| !some.is_empty())
        {
            reply.addresses(owner, rtype::AAAA, ttl, candidates, chance);
            return Answered::Yes;
        }
        if wanted != rtype::ANY {
            return Answered::NoData(Some(ttl));
        }
    }
    let (zone, number) = names.zone(node);
    let at_apex = names.name(node).len() == zone.apex_length();
    if at_apex && matches!(wanted, rtype::SOA | rtype::ANY) {
        // RFC 8482 §4.1: of everything at the apex, the SOA stands for ANY
        reply.soa(owner, zone.soa_ttl(), names.soa(zone), snapshot.serials[number], reply::Section::Answer);
        return Answered::Yes;
    }
    let set = if wanted == rtype::ANY { names.any_set(node) } else { names.set(node, wanted) };
    match set {
        Some(set) => {
            reply.records(owner, set);
            Answered::Yes
        }
        None => match names.set(node, rtype::CNAME) {
            Some(cname) => Answered::Cname(cname),
            None => Answered::NoData(balancer.map(|balancer| balancer.ttl)),
        },
    }
}

/// Adds the zone's SOA, which tells how long nothing may be remembered
/// (RFC 2308 §3).
fn no_data(
    snapshot: &Snapshot,
    node: &Node,
    key: &Key,
    owner: usize,
    balancer_ttl: Option<u32>,
    reply: &mut Reply,
) {
    let (zone, number) = snapshot.names.zone(node);
    let apex = owner + key.wire().len() - zone.apex_length();
    let ttl = balancer_ttl.map_or(zone.negative_ttl(), |ttl| ttl.min(zone.negative_ttl()));
    reply.soa(apex, ttl, snapshot.names.soa(zone), snapshot.serials[number], reply::Section::Authority);
}

/// A name out of our zones: no answer, no referral upwards.
fn refuse(reply: &mut Reply) {
    reply.set_rcode(rcode::REFUSED);
    reply.set_extended_error(EDE_NOT_AUTHORITATIVE);
}

/// Sends the client to the servers of a delegated zone (RFC 1034 §4.3.2), with
/// the addresses that it cannot learn elsewhere (RFC 9471).
fn refer(names: &Names, cut: &Node, asked_length: usize, reply: &mut Reply) {
    let Some(servers) = names.set(cut, rtype::NS) else { return };
    let cut_name = names.name(cut);
    let Some(first) = reply.referral(12 + asked_length - cut_name.len(), servers) else { return };
    let mut server = Key::default();
    // below this cut nobody else can tell; below another one it helps where two
    // zones name each other's servers (RFC 9471 §3), if there is room after that
    for needed in [true, false] {
        let mut target_at = first;
        for target in servers.rdata() {
            if target_at < reply::MAX_POINTER
                && server.read(target).is_some()
                && server.wire().ends_with(cut_name) == needed
                && let Some(node) = names.exact(&server)
                && names.zone(node).1 == names.zone(cut).1
            {
                for rtype in [rtype::A, rtype::AAAA] {
                    if let Some(glue) = names.set(node, rtype) {
                        reply.glue(target_at, glue, needed);
                    }
                }
            }
            target_at += crate::authority::RECORD_HEAD + target.len();
        }
    }
}
