//! Reading a query: header, one question, and its OPT record.

use crate::authority::{Key, rtype};
use crate::wire::rcode;

/// Class IN.
pub const IN: u16 = 1;

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
}

/// A well-formed query.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    pub question: Question,
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
/// the question, then the rest.
pub fn parse(message: &[u8], header: &Header, key: &mut Key) -> Result<Query, Failed> {
    let failed = |rcode, question, edns| Failed { rcode, question, edns };
    let question = read_question(message, header, key);
    let [_, answers, authorities, additionals] = header.counts;
    let rest = match question {
        Some(question) => read_records(message, question.end, answers, authorities, additionals),
        None if header.counts[0] == 0 => read_records(message, 12, answers, authorities, additionals),
        None => Err(None),
    };
    let edns = match rest {
        Ok(edns) | Err(edns) => edns,
    };
    match header.opcode {
        0 => {}
        NOTIFY | UPDATE => return Err(failed(rcode::REFUSED, question, edns)),
        _ => return Err(failed(rcode::NOTIMP, question, edns)),
    }
    let Some(question) = question else { return Err(failed(rcode::FORMERR, None, edns)) };
    if edns.is_some_and(|edns| edns.version != 0) {
        return Err(failed(rcode::BADVERS, Some(question), edns));
    }
    if rest.is_err() || question.rtype == rtype::OPT {
        return Err(failed(rcode::FORMERR, Some(question), edns));
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
    answers: u16,
    authorities: u16,
    additionals: u16,
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
            let again = edns.is_some();
            edns = edns.or(Some(Edns {
                udp_size: u16::from_be_bytes([fixed[2], fixed[3]]),
                version: fixed[5],
                dnssec_ok: fixed[6] & 0x80 != 0,
            }));
            if again || !may_hold_opt || message[owner] != 0 || !options_are_whole(rdata) {
                return Err(edns);
            }
        }
    }
    if at == message.len() { Ok(edns) } else { Err(edns) }
}

/// Whether the options fill the RDATA exactly; their content is not looked at.
fn options_are_whole(mut rdata: &[u8]) -> bool {
    while let Some((head, rest)) = rdata.split_first_chunk::<4>() {
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        match rest.get(length..) {
            Some(after) => rdata = after,
            None => return false,
        }
    }
    rdata.is_empty()
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
