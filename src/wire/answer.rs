//! The sections of a reply: what a snapshot has to say to a question
//! (RFC 1034 §4.3.2).

use super::query::{self, Question};
use super::reply::{self, Reply, Section};
use super::{Class, ede, rcode};
use crate::authority::{Found, Key, Names, Node, RECORD_HEAD, Rrset, Snapshot, rtype};
use crate::steering::Chance;

/// A chain of CNAMEs is followed so far within our zones.
const MAX_CHAIN: usize = 8;

/// Fills in the reply to a well-formed query; tells what kind of reply it is,
/// and of what (see [`super::Replied`]).
pub fn answer(
    snapshot: &Snapshot,
    question: Question,
    key: &mut Key,
    entropy: u64,
    reply: &mut Reply,
) -> (Class, u32) {
    if question.class == query::CH {
        return tell_of_server(question, key, reply);
    }
    if question.class != query::IN {
        return refuse(ede::NOT_AUTHORITATIVE, reply);
    }
    if matches!(question.rtype, rtype::AXFR | rtype::IXFR) {
        return refuse(ede::NOT_SUPPORTED, reply);
    }
    let names = &*snapshot.names;
    let mut chance = Chance::new(entropy);
    // where the name now looked up stands in the message
    let mut owner = 12;
    let mut visited: [Option<&Node>; MAX_CHAIN] = [None; MAX_CHAIN];
    let mut replied = (Class::Answer, 0);
    for step in 0..MAX_CHAIN {
        let node = match names.find(key) {
            Found::Node(node) if question.rtype == rtype::DS => names.parent_side(node).unwrap_or(node),
            Found::Node(node) => node,
            Found::Cut(cut) if question.rtype == rtype::DS && names.name(cut) == key.wire() => cut,
            Found::Cut(cut) => {
                if step == 0 {
                    refer(names, cut, key.wire().len(), reply);
                    return (Class::Referral, names.number(cut));
                }
                return replied;
            }
            Found::Renamed(above) => {
                reply.set_authoritative();
                if step == 0 {
                    replied.1 = names.number(above);
                }
                let again = visited[..step].iter().flatten().any(|before| std::ptr::eq(*before, above));
                visited[step] = Some(above);
                match rename(names, above, again, key, owner, reply) {
                    Some(next) if question.rtype != rtype::CNAME && question.rtype != rtype::ANY => {
                        if key.read(reply.written(next)).is_none() {
                            return replied;
                        }
                        owner = next;
                        continue;
                    }
                    _ => return replied,
                }
            }
            Found::Nothing(encloser) => {
                reply.set_authoritative();
                reply.set_rcode(rcode::NXDOMAIN);
                let apex = no_data(snapshot, encloser, key, owner, None, reply);
                return (Class::Nxdomain, apex);
            }
            Found::Outside => {
                return if step == 0 { refuse(ede::NOT_AUTHORITATIVE, reply) } else { replied };
            }
        };
        reply.set_authoritative();
        if step == 0 {
            replied.1 = names.number(node);
        }
        let cname = match found_at(snapshot, node, question.rtype, owner, &mut chance, reply) {
            Answered::Yes => return replied,
            Answered::NoData(balancer_ttl) => {
                no_data(snapshot, node, key, owner, balancer_ttl, reply);
                return (Class::NoData, replied.1);
            }
            Answered::Cname(cname) => cname,
        };
        if visited[..step].iter().flatten().any(|before| std::ptr::eq(*before, node)) {
            return replied; // round in a circle
        }
        visited[step] = Some(node);
        let Some(next) = reply.records(owner, cname) else { return replied };
        if key.read(reply.written(next)).is_none() {
            return replied;
        }
        owner = next;
    }
    replied
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
        reply.soa(owner, zone.soa_ttl(), names.soa(zone), snapshot.serials[number], Section::Answer);
        return Answered::Yes;
    }
    let set = if wanted == rtype::ANY { names.any_set(node) } else { names.set(node, wanted) };
    match set.map(|set| snapshot.now(set)) {
        Some(set) if set.open => {
            // addresses of one draw, the same for each record
            let ipv4 = balancer.and_then(|balancer| balancer.ipv4.pick(chance));
            let ipv6 = balancer.and_then(|balancer| balancer.ipv6.pick(chance));
            let ttl = balancer.map_or(set.ttl(), |balancer| set.ttl().min(balancer.ttl));
            reply.services(owner, ttl, set, (ipv4, ipv6), *chance);
            Answered::Yes
        }
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
/// (RFC 2308 §3); returns the number of the zone's apex.
fn no_data(
    snapshot: &Snapshot,
    node: &Node,
    key: &Key,
    owner: usize,
    balancer_ttl: Option<u32>,
    reply: &mut Reply,
) -> u32 {
    let (zone, number) = snapshot.names.zone(node);
    let apex = owner + key.wire().len() - zone.apex_length();
    let ttl = balancer_ttl.map_or(zone.negative_ttl(), |ttl| ttl.min(zone.negative_ttl()));
    reply.soa(apex, ttl, snapshot.names.soa(zone), snapshot.serials[number], Section::Authority);
    zone.number()
}

/// No answer, and no referral upwards.
fn refuse(why: u16, reply: &mut Reply) -> (Class, u32) {
    reply.set_rcode(rcode::REFUSED);
    reply.set_extended_error(why);
    (Class::Error, 0)
}

/// What the server tells of itself, where it is allowed to (RFC 4892).
fn tell_of_server(question: Question, key: &Key, reply: &mut Reply) -> (Class, u32) {
    let service = reply.service();
    let text = match key.wire() {
        b"\x07version\x04bind\x00" | b"\x07version\x06server\x00" => &service.version,
        b"\x02id\x06server\x00" | b"\x08hostname\x04bind\x00" => &service.id,
        _ => return refuse(ede::NOT_AUTHORITATIVE, reply),
    };
    match text {
        Some(text) if matches!(question.rtype, rtype::TXT | rtype::ANY) => {
            reply.set_authoritative();
            reply.chaos_text(text);
            (Class::Answer, 0)
        }
        _ => refuse(ede::NOT_SUPPORTED, reply),
    }
}

/// Gives the DNAME above a name, and the CNAME that it makes of it
/// (RFC 6672 §3); returns where the new name stands, none where it ends. The
/// DNAME stands there once (RFC 2181 §5), whatever leads through it `again`.
fn rename(
    names: &Names,
    above: &Node,
    again: bool,
    key: &Key,
    owner: usize,
    reply: &mut Reply,
) -> Option<usize> {
    let dname = names.set(above, rtype::DNAME)?;
    let target = dname.rdata().next()?;
    let kept = key.wire().len() - names.name(above).len();
    if !again {
        reply.records(owner + kept, dname)?;
    }
    if kept + target.len() > 255 {
        reply.set_rcode(rcode::YXDOMAIN);
        return None;
    }
    let mut prefix = [0; 255];
    prefix[..kept].copy_from_slice(&reply.written(owner)[..kept]); // in the case that was asked
    reply.cname(owner, dname.ttl(), &prefix[..kept], target)
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
            target_at += RECORD_HEAD + target.len();
        }
    }
}
