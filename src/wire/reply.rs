//! Writing a reply: sections, size limit, truncation, EDNS.

use super::query::{Edns, Header, Question};
use super::{MAX_UDP, rcode};
use crate::authority::{RECORD_HEAD, Rrset, rtype};
use crate::steering::{Candidates, Chance};

/// Octets of our OPT record without options.
const OPT_LENGTH: usize = 11;
/// Octets of one Extended DNS Error option without text.
const EDE_LENGTH: usize = 6;
/// EDNS option code of Extended DNS Errors (RFC 8914 §2).
const EDE: u16 = 15;

/// Pointers reach no further (RFC 1035 §4.1.4).
pub const MAX_POINTER: usize = 0x4000;

/// The section a record goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    Answer = 0,
    Authority = 1,
    Additional = 2,
}

/// A reply in the making. Room for the OPT record is set aside from the start.
#[derive(Debug)]
pub struct Reply<'a> {
    out: &'a mut [u8],
    /// Where the next record goes.
    at: usize,
    /// Where records must end.
    limit: usize,
    /// Where the question ends.
    question_end: usize,
    counts: [u16; 3],
    rcode: u16,
    edns: Option<Edns>,
    extended_error: Option<u16>,
}

impl<'a> Reply<'a> {
    /// Writes header and question; the question's octets are the query's own,
    /// so that its case comes back as it was sent.
    pub fn begin(
        out: &'a mut [u8],
        limit: usize,
        header: &Header,
        question: Option<Question>,
        query: &[u8],
        edns: Option<Edns>,
    ) -> Reply<'a> {
        let question_end = question.map_or(12, |question| question.end);
        out[..question_end].copy_from_slice(&query[..question_end]);
        out[..12].fill(0);
        out[..2].copy_from_slice(&header.id);
        out[2] = 0x80 | header.opcode << 3 | u8::from(header.recursion_desired);
        out[3] = u8::from(header.checking_disabled) << 4;
        out[5] = u8::from(question.is_some());
        let reserved = if edns.is_some() { OPT_LENGTH + EDE_LENGTH } else { 0 };
        Reply {
            out,
            at: question_end,
            limit: limit - reserved,
            question_end,
            counts: [0; 3],
            rcode: rcode::NOERROR,
            edns,
            extended_error: None,
        }
    }

    pub fn set_rcode(&mut self, rcode: u16) {
        self.rcode = rcode;
    }

    pub fn set_authoritative(&mut self) {
        self.out[2] |= 0x04;
    }

    /// Says that the rest is to be had over TCP.
    pub fn set_truncated(&mut self) {
        self.out[2] |= 0x02;
    }

    pub fn set_extended_error(&mut self, code: u16) {
        self.extended_error = Some(code);
    }

    /// What stands in the message from `at` on.
    pub fn written(&self, at: usize) -> &[u8] {
        &self.out[at..self.at]
    }

    /// Adds an RRset to the answer section, owned by the name at `owner`.
    /// Returns where its first RDATA stands, or none if it didn't fit.
    pub fn records(&mut self, owner: usize, set: Rrset) -> Option<usize> {
        self.set_in(Section::Answer, owner, set)
    }

    /// Adds a delegation's NS set. Returns where its first RDATA stands.
    pub fn referral(&mut self, owner: usize, servers: Rrset) -> Option<usize> {
        self.set_in(Section::Authority, owner, servers)
    }

    /// Adds glue owned by the name at `owner`; where it is needed and doesn't
    /// fit TC is set, and the referral stays (RFC 9471 §3).
    pub fn glue(&mut self, owner: usize, set: Rrset, needed: bool) {
        if self.out[2] & 0x02 != 0 {
            return;
        }
        if self.at + set.records.len() > self.limit {
            self.out[2] |= if needed { 0x02 } else { 0 };
        } else {
            self.set_in(Section::Additional, owner, set);
        }
    }

    /// Adds the addresses that the candidates draw.
    pub fn addresses<const N: usize>(
        &mut self,
        owner: usize,
        rtype: u16,
        ttl: u32,
        candidates: &Candidates<N>,
        chance: &mut Chance,
    ) {
        let count = candidates.answer_size(*chance);
        let size = RECORD_HEAD + N;
        let Some(room) = self.room(count * size) else { return };
        let head = record_head(owner, rtype, ttl, N);
        let mut rest = room;
        candidates.draw(chance, |address| {
            let (record, after) = std::mem::take(&mut rest).split_at_mut(size);
            record[..RECORD_HEAD].copy_from_slice(&head);
            record[RECORD_HEAD..].copy_from_slice(address);
            rest = after;
        });
        self.counts[Section::Answer as usize] += count as u16;
    }

    /// Adds an SOA owned by the name at `owner`.
    pub fn soa(
        &mut self,
        owner: usize,
        ttl: u32,
        (names, numbers): (&[u8], &[u8]),
        serial: u32,
        section: Section,
    ) {
        let length = names.len() + 4 + numbers.len();
        let head = record_head(owner, rtype::SOA, ttl, length);
        let Some(room) = self.room(RECORD_HEAD + length) else { return };
        let (start, rdata) = room.split_at_mut(RECORD_HEAD);
        start.copy_from_slice(&head);
        rdata[..names.len()].copy_from_slice(names);
        rdata[names.len()..][..4].copy_from_slice(&serial.to_be_bytes());
        rdata[names.len() + 4..].copy_from_slice(numbers);
        self.counts[section as usize] += 1;
    }

    /// Writes the counts, the RCODE and the OPT record; returns the length.
    pub fn finish(mut self) -> usize {
        if let Some(edns) = self.edns {
            let mut opt = [0; OPT_LENGTH + EDE_LENGTH];
            opt[2] = rtype::OPT as u8;
            opt[3..5].copy_from_slice(&(MAX_UDP as u16).to_be_bytes());
            opt[5] = (self.rcode >> 4) as u8;
            opt[7] = u8::from(edns.dnssec_ok) << 7;
            let mut length = OPT_LENGTH;
            if let Some(code) = self.extended_error {
                opt[10] = EDE_LENGTH as u8;
                opt[11..13].copy_from_slice(&EDE.to_be_bytes());
                opt[14] = 2;
                opt[15..17].copy_from_slice(&code.to_be_bytes());
                length += EDE_LENGTH;
            }
            self.out[self.at..self.at + length].copy_from_slice(&opt[..length]);
            self.at += length;
            self.counts[Section::Additional as usize] += 1;
        }
        self.out[3] |= (self.rcode & 15) as u8;
        for (section, count) in self.counts.iter().enumerate() {
            self.out[6 + 2 * section..][..2].copy_from_slice(&count.to_be_bytes());
        }
        self.at
    }

    fn set_in(&mut self, section: Section, owner: usize, set: Rrset) -> Option<usize> {
        let start = self.at;
        self.room(set.records.len())?.copy_from_slice(set.records);
        if owner != 12 {
            let pointer = pointer_to(owner);
            let mut at = start;
            while at < self.at {
                self.out[at..at + 2].copy_from_slice(&pointer);
                at += RECORD_HEAD + usize::from(u16::from_be_bytes([self.out[at + 10], self.out[at + 11]]));
            }
        }
        self.counts[section as usize] += set.count;
        Some(start + RECORD_HEAD)
    }

    /// The next `length` octets. If they aren't there the reply is truncated:
    /// TC is set and no record is left, question and OPT stay (RFC 2181 §9).
    fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        let start = self.at;
        if start + length > self.limit {
            self.out[2] |= 0x02;
            self.at = self.question_end;
            self.counts = [0; 3];
            return None;
        }
        self.at += length;
        Some(&mut self.out[start..start + length])
    }
}

/// A pointer to the name that stands at `offset` (RFC 1035 §4.1.4).
fn pointer_to(offset: usize) -> [u8; 2] {
    debug_assert!(offset < MAX_POINTER);
    (0xc000 | offset as u16).to_be_bytes()
}

/// A record up to its RDATA, class IN.
fn record_head(owner: usize, rtype: u16, ttl: u32, length: usize) -> [u8; RECORD_HEAD] {
    let [o1, o2] = pointer_to(owner);
    let [r1, r2] = rtype.to_be_bytes();
    let [t1, t2, t3, t4] = ttl.to_be_bytes();
    let [l1, l2] = (length as u16).to_be_bytes();
    [o1, o2, r1, r2, 0, 1, t1, t2, t3, t4, l1, l2]
}
