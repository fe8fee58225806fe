//! Reading a query: header, one question, and its OPT record with the options
//! that matter to the reply.

use crate::authority::{Key, rtype};
use crate::wire::cookie::Cookie;
use crate::wire::rcode;

/// Class IN.
pub const IN: u16 = 1;
/// Class CH, in which servers tell of themselves (RFC 4892).
pub const CH: u16 = 3;

/// EDNS option codes.
pub mod option {
    pub const NSID: u16 = 3;
    pub const CLIENT_SUBNET: u16 = 8;
    pub const COOKIE: u16 = 10;
    pub const KEEPALIVE: u16 = 11;
    pub const PADDING: u16 = 12;
    pub const EXTENDED_ERROR: u16 = 15;
}

/// The parts of the header that a reply needs (RFC 1035 §4.1.1).
#[derive(Clone, Copy, Debug)]
pub struct Header {
    pub id: [u8; 2],
    pub opcode: u8,
    /// RD, which is echoed.
    pub recursion_desired: bool,
    /// CD, which is echoed (RFC 4035 §3.1.6).
    pub checking_disabled: bool,
    counts: [u16; 4],
}

impl Header {
    /// The header; none where no reply may be sent: too short, or a response.
    pub fn read(message: &[u8]) -> Option<Header> {
        let head: &[u8; 12] = message.first_chunk()?;
        let count = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        (head[2] & 0x80 == 0).then_some(Header {
            id: [head[0], head[1]],
            opcode: head[2] >> 3 & 15,
            recursion_desired: head[2] & 1 != 0,
            checking_disabled: head[3] & 0x10 != 0,
            counts: [count(4), count(6), count(8), count(10)],
        })
    }
}

/// The question; it stands at offset 12.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    pub rtype: u16,
    pub class: u16,
    /// Where the question ends in the message.
    pub end: usize,
}

/// The OPT record (RFC 6891 §6.1).
#[derive(Clone, Copy, Debug)]
pub struct Edns {
    pub udp_size: u16,
    pub version: u8,
    /// DO, which is echoed (RFC 3225 §3).
    pub dnssec_ok: bool,
    /// NSID is asked for (RFC 5001).
    pub nsid: bool,
    /// The idle timeout is asked for (RFC 7828).
    pub keepalive: bool,
    pub cookie: Option<Cookie>,
    pub subnet: Option<Subnet>,
}

/// A client's network, as a resolver names it (RFC 7871 §6), well formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// 1 for IPv4, 2 for IPv6; 0 where the resolver names none.
    pub family: u16,
    /// SOURCE PREFIX-LENGTH.
    pub source: u8,
    address: [u8; 16],
}

impl Subnet {
    /// Reads the option's data; none where a server has to answer FORMERR
    /// (RFC 7871 §7.1.2): another family, a prefix too long, an address of
    /// another length than the prefix needs or with bits beyond it.
    fn read(data: &[u8]) -> Option<Subnet> {
        let (head, given) = data.split_first_chunk::<4>()?;
        let [f1, f2, source, scope] = *head;
        let family = u16::from_be_bytes([f1, f2]);
        let longest = match family {
            0 => 0,
            1 => 32,
            2 => 128,
            _ => return None,
        };
        if source > longest || scope != 0 || given.len() != usize::from(source).div_ceil(8) {
            return None;
        }
        let mut address = [0; 16];
        address[..given.len()].copy_from_slice(given);
        let spare = given.len() * 8 - usize::from(source); // bits, 7 at most
        let beyond = given.last().is_some_and(|last| last & ((1 << spare) - 1) != 0);
        (!beyond).then_some(Subnet { family, source, address })
    }

    /// The address's octets, as many as the prefix needs.
    pub fn address(&self) -> &[u8] {
        &self.address[..usize::from(self.source).div_ceil(8)]
    }
}

/// A well-formed query.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// None where a cookie is all that is asked for (RFC 7873 §5.4).
    pub question: Option<Question>,
    pub edns: Option<Edns>,
}

/// A query that is answered with an error, and as much as was understood.
#[derive(Clone, Copy, Debug)]
pub struct Failed {
    pub rcode: u16,
    pub question: Option<Question>,
    pub edns: Option<Edns>,
}

const NOTIFY: u8 = 4;
const UPDATE: u8 = 5;

/// Reads a query; its name goes into `key`. The opcode is judged first, then
/// the question, then the rest. Without `cookies`, COOKIE is an option like any
/// unknown one.
pub fn parse(message: &[u8], header: &Header, cookies: bool, key: &mut Key) -> Result<Query, Failed> {
    let failed = |rcode, question, edns| Failed { rcode, question, edns };
    let question = read_question(message, header, key);
    let [_, counts @ ..] = header.counts;
    let rest = match question {
        Some(question) => read_records(message, question.end, counts, cookies),
        // EDNS may be found behind no question, or several, too (RFC 9619 §4)
        None => match skip_questions(message, header.counts[0]) {
            Some(at) => read_records(message, at, counts, cookies),
            None => Err(None),
        },
    };
    let edns = match rest {
        Ok(edns) | Err(edns) => edns,
    };
    match header.opcode {
        0 => {}
        NOTIFY | UPDATE => return Err(failed(rcode::REFUSED, question, edns)),
        _ => return Err(failed(rcode::NOTIMP, question, edns)),
    }
    if edns.is_some_and(|edns| edns.version != 0) && (question.is_some() || header.counts[0] == 0) {
        return Err(failed(rcode::BADVERS, question, edns));
    }
    let for_cookie = header.counts[0] == 0 && edns.is_some_and(|edns| edns.cookie.is_some());
    let complete = question.map_or(for_cookie, |question| question.rtype != rtype::OPT);
    if rest.is_err() || !complete {
        return Err(failed(rcode::FORMERR, question, edns));
    }
    Ok(Query { question, edns })
}

/// The question, if there is exactly one and it is well formed.
fn read_question(message: &[u8], header: &Header, key: &mut Key) -> Option<Question> {
    if header.counts[0] != 1 {
        return None; // RFC 9619 §4
    }
    let length = key.read(&message[12..])?;
    let fixed: &[u8; 4] = message[12 + length..].first_chunk()?;
    Some(Question {
        rtype: u16::from_be_bytes([fixed[0], fixed[1]]),
        class: u16::from_be_bytes([fixed[2], fixed[3]]),
        end: 12 + length + 4,
    })
}

/// Walks the records after the question and takes out the OPT record. The
/// error holds it too, as far as it was understood.
fn read_records(
    message: &[u8],
    start: usize,
    [answers, authorities, additionals]: [u16; 3],
    cookies: bool,
) -> Result<Option<Edns>, Option<Edns>> {
    let mut at = start;
    let mut edns = None;
    for (count, may_hold_opt) in [(answers, false), (authorities, false), (additionals, true)] {
        for _ in 0..count {
            let owner = at;
            at = skip_name(message, at).ok_or(edns)?;
            let fixed: &[u8; 10] = message.get(at..).and_then(|rest| rest.first_chunk()).ok_or(edns)?;
            let length = usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
            let rdata = message.get(at + 10..at + 10 + length).ok_or(edns)?;
            at += 10 + length;
            if u16::from_be_bytes([fixed[0], fixed[1]]) != rtype::OPT {
                continue;
            }
            // one at most, in the additional section, owned by the root (RFC 6891 §6.1.1)
            let fits = edns.is_none() && may_hold_opt && message[owner] == 0;
            let mut opt = Edns {
                udp_size: u16::from_be_bytes([fixed[2], fixed[3]]),
                version: fixed[5],
                dnssec_ok: fixed[6] & 0x80 != 0,
                nsid: false,
                keepalive: false,
                cookie: None,
                subnet: None,
            };
            let understood = opt.version != 0 || read_options(rdata, cookies, &mut opt).is_some();
            edns = edns.or(Some(opt));
            if !fits || !understood {
                return Err(edns);
            }
        }
    }
    if at == message.len() { Ok(edns) } else { Err(edns) }
}

/// Takes in the options; none if one of those we know is malformed, or if they
/// don't fill the RDATA. Of several cookies the first one counts.
fn read_options(mut rdata: &[u8], cookies: bool, opt: &mut Edns) -> Option<()> {
    while let Some((head, rest)) = rdata.split_first_chunk::<4>() {
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let (data, after) = rest.split_at_checked(length)?;
        rdata = after;
        match u16::from_be_bytes([head[0], head[1]]) {
            option::NSID => opt.nsid = true,
            option::KEEPALIVE => opt.keepalive = true,
            option::COOKIE if cookies && opt.cookie.is_none() => opt.cookie = Some(Cookie::read(data)?),
            option::CLIENT_SUBNET if opt.subnet.is_some() => return None,
            option::CLIENT_SUBNET => opt.subnet = Some(Subnet::read(data)?),
            _ => {}
        }
    }
    rdata.is_empty().then_some(())
}

/// Where so many questions end.
fn skip_questions(message: &[u8], count: u16) -> Option<usize> {
    (0..count).try_fold(12, |at, _| Some(skip_name(message, at)? + 4))
}

/// Where the name at `at` ends; pointers are not followed.
pub fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length @ 1..=63 => at += 1 + usize::from(length),
            0xc0.. => return (at + 2 <= message.len()).then_some(at + 2),
            _ => return None,
        }
    }
}
