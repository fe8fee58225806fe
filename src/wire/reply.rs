//! Writing a reply: sections, size limit, truncation, EDNS.

use super::cookie::{CLIENT, Cookie, SERVER};
use super::query::{self, Edns, Header, Question, option};
use super::{Client, MAX_UDP, Service, rcode};
use crate::authority::{RECORD_HEAD, Rrset, rtype};
use crate::rdata::{IPV4_HINT, IPV6_HINT, is_open_hint, service_params, service_params_at};
use crate::steering::{Candidates, Chance};

/// Octets of our OPT record without options.
const OPT_LENGTH: usize = 11;
/// Octets of an option before its data.
const OPTION_HEAD: usize = 4;
/// Octets of one Extended DNS Error option without text.
const EDE_LENGTH: usize = OPTION_HEAD + 2;
/// Padded replies are multiples of so many octets (RFC 8467 §4.1).
const BLOCK: usize = 468;

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
    service: &'a Service,
    client: Client,
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
        (service, client): (&'a Service, Client),
        (header, question): (&Header, Option<Question>),
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
        let reserved = edns.map_or(0, |edns| opt_length(service, &edns) + EDE_LENGTH);
        Reply {
            out,
            service,
            client,
            at: question_end,
            limit: limit - reserved,
            question_end,
            counts: [0; 3],
            rcode: rcode::NOERROR,
            edns,
            extended_error: None,
        }
    }

    pub fn service(&self) -> &'a Service {
        self.service
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

    /// Adds SVCB or HTTPS records whose open hints are the addresses that the
    /// candidates draw; a hint without addresses is left out.
    pub fn services(
        &mut self,
        owner: usize,
        ttl: u32,
        set: Rrset,
        (ipv4, ipv6): (Option<&Candidates<4>>, Option<&Candidates<16>>),
        chance: Chance,
    ) {
        let start = self.at;
        let hints = ipv4.map_or(0, |some| 4 * some.answer_size(chance))
            + ipv6.map_or(0, |some| 16 * some.answer_size(chance));
        let most = set.records.len() + hints * usize::from(set.count);
        let Some(room) = self.room(most) else { return };
        let mut filled = 0;
        for rdata in set.rdata() {
            let head = filled;
            filled += RECORD_HEAD;
            let mut put = |octets: &[u8]| {
                room[filled..][..octets.len()].copy_from_slice(octets);
                filled += octets.len();
            };
            put(&rdata[..service_params_at(rdata)]);
            for (key, value) in service_params(rdata) {
                match (key, is_open_hint(key, value)) {
                    (IPV4_HINT, true) => put_hint(key, ipv4, chance, &mut put),
                    (IPV6_HINT, true) => put_hint(key, ipv6, chance, &mut put),
                    _ => {
                        put(&head_of_option(key, value.len()));
                        put(value);
                    }
                }
            }
            let length = filled - head - RECORD_HEAD;
            room[head..][..RECORD_HEAD].copy_from_slice(&record_head(owner, set.rtype, ttl, length));
        }
        self.at = start + filled;
        self.counts[Section::Answer as usize] += set.count;
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

    /// Adds a CNAME made for the name at `owner`, with `prefix` and `rest` for
    /// its target (RFC 6672 §3.1). Returns where the target stands.
    pub fn cname(&mut self, owner: usize, ttl: u32, prefix: &[u8], rest: &[u8]) -> Option<usize> {
        let length = prefix.len() + rest.len();
        let head = record_head(owner, rtype::CNAME, ttl, length);
        let start = self.at;
        let room = self.room(RECORD_HEAD + length)?;
        room[..RECORD_HEAD].copy_from_slice(&head);
        room[RECORD_HEAD..][..prefix.len()].copy_from_slice(prefix);
        room[RECORD_HEAD + prefix.len()..].copy_from_slice(rest);
        self.counts[Section::Answer as usize] += 1;
        Some(start + RECORD_HEAD)
    }

    /// Adds a TXT record of one string of at most 255 octets, class CH, TTL 0,
    /// owned by the question's name.
    pub fn chaos_text(&mut self, text: &[u8]) {
        let mut head = record_head(12, rtype::TXT, 0, 1 + text.len());
        head[5] = query::CH as u8;
        let Some(room) = self.room(RECORD_HEAD + 1 + text.len()) else { return };
        room[..RECORD_HEAD].copy_from_slice(&head);
        room[RECORD_HEAD] = text.len() as u8;
        room[RECORD_HEAD + 1..].copy_from_slice(text);
        self.counts[Section::Answer as usize] += 1;
    }

    /// Writes the counts, the RCODE and the OPT record; returns the length.
    pub fn finish(mut self) -> usize {
        if let Some(edns) = self.edns {
            self.write_opt(&edns);
            self.counts[Section::Additional as usize] += 1;
        }
        self.out[3] |= (self.rcode & 15) as u8;
        for (section, count) in self.counts.iter().enumerate() {
            self.out[6 + 2 * section..][..2].copy_from_slice(&count.to_be_bytes());
        }
        self.at
    }

    /// The OPT record (RFC 6891 §6.1.2): its room was set aside.
    fn write_opt(&mut self, edns: &Edns) {
        let start = self.at;
        let mut head = [0; OPT_LENGTH];
        head[2] = rtype::OPT as u8;
        head[3..5].copy_from_slice(&(MAX_UDP as u16).to_be_bytes());
        head[5] = (self.rcode >> 4) as u8;
        head[7] = u8::from(edns.dnssec_ok) << 7;
        self.put(&head);
        if let Some(nsid) = self.service.nsid.as_deref().filter(|_| edns.nsid) {
            self.option(option::NSID, &[nsid]);
        }
        if let Some(subnet) = edns.subnet {
            // nothing goes by it yet: the answer is for all (RFC 7871 §7.2.1)
            let [f1, f2] = subnet.family.to_be_bytes();
            self.option(option::CLIENT_SUBNET, &[&[f1, f2, subnet.source, 0], subnet.address()]);
        }
        if let (Some(secrets), Some(Cookie { client, .. })) = (&self.service.cookies, edns.cookie) {
            let server = secrets.make(client, self.client.address, self.client.now);
            self.option(option::COOKIE, &[&client, &server]);
        }
        if edns.keepalive && self.client.transport.keeps_connections() {
            self.option(option::KEEPALIVE, &[&self.service.keepalive.to_be_bytes()]);
        }
        if let Some(code) = self.extended_error {
            self.option(option::EXTENDED_ERROR, &[&code.to_be_bytes()]);
        }
        if self.client.transport.is_encrypted() {
            let padding = (self.at + OPTION_HEAD).next_multiple_of(BLOCK) - self.at - OPTION_HEAD;
            if self.at + OPTION_HEAD + padding <= self.out.len() {
                self.put(&head_of_option(option::PADDING, padding));
                self.out[self.at..self.at + padding].fill(0);
                self.at += padding;
            }
        }
        let length = (self.at - start - OPT_LENGTH) as u16;
        self.out[start + 9..start + 11].copy_from_slice(&length.to_be_bytes());
    }

    /// Adds an option whose data are these parts.
    fn option(&mut self, code: u16, parts: &[&[u8]]) {
        let length = parts.iter().map(|part| part.len()).sum();
        self.put(&head_of_option(code, length));
        for part in parts {
            self.put(part);
        }
    }

    /// Writes where room was set aside.
    fn put(&mut self, octets: &[u8]) {
        self.out[self.at..][..octets.len()].copy_from_slice(octets);
        self.at += octets.len();
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

/// Octets of the OPT record with all options that this query may get, the
/// Extended DNS Error and padding left aside.
fn opt_length(service: &Service, edns: &Edns) -> usize {
    let nsid = service.nsid.as_deref().filter(|_| edns.nsid).map_or(0, |nsid| OPTION_HEAD + nsid.len());
    let subnet = edns.subnet.map_or(0, |subnet| OPTION_HEAD + 4 + subnet.address().len());
    let cookie = edns.cookie.map_or(0, |_| OPTION_HEAD + CLIENT + SERVER);
    let keepalive = if edns.keepalive { OPTION_HEAD + 2 } else { 0 };
    OPT_LENGTH + nsid + subnet + cookie + keepalive
}

fn head_of_option(code: u16, length: usize) -> [u8; OPTION_HEAD] {
    let ([c1, c2], [l1, l2]) = (code.to_be_bytes(), (length as u16).to_be_bytes());
    [c1, c2, l1, l2]
}

/// Writes a hint with the addresses that the candidates draw, if there are any.
fn put_hint<const N: usize>(
    key: u16,
    candidates: Option<&Candidates<N>>,
    mut chance: Chance,
    put: &mut impl FnMut(&[u8]),
) {
    let Some(candidates) = candidates.filter(|some| !some.is_empty()) else { return };
    put(&head_of_option(key, N * candidates.answer_size(chance)));
    candidates.draw(&mut chance, |address| put(address));
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
