//! What a transport has to know of a message that it carries.

use super::query::skip_name;
use crate::authority::rtype;

/// The option a client uses over TCP to ask for longer patience (RFC 7828).
pub const TCP_KEEPALIVE: u16 = 11;

/// For how many seconds a reply may be remembered as a whole: the smallest of
/// the TTLs that caches go by, the negative one among them (RFC 8484 §5.1).
pub fn lifetime(reply: &[u8]) -> u32 {
    let fit = |record: Record<'_>| match record.section {
        Section::Additional => None,
        Section::Answer | Section::Authority if record.rtype == rtype::SOA => {
            let minimum = record.rdata.last_chunk().map_or(0, |minimum| u32::from_be_bytes(*minimum));
            Some(record.ttl.min(minimum))
        }
        Section::Answer | Section::Authority => Some(record.ttl),
    };
    Records::of(reply).filter_map(fit).min().unwrap_or(0)
}

/// Whether a message carries this EDNS option.
pub fn has_option(message: &[u8], code: u16) -> bool {
    let opt = Records::of(message).find(|record| record.rtype == rtype::OPT);
    let mut options = opt.map_or(&[][..], |opt| opt.rdata);
    while let Some((&[c, ode, len, gth], rest)) = options.split_first_chunk() {
        if u16::from_be_bytes([c, ode]) == code {
            return true;
        }
        options = rest.get(usize::from(u16::from_be_bytes([len, gth]))..).unwrap_or(&[]);
    }
    false
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Answer,
    Authority,
    Additional,
}

struct Record<'a> {
    section: Section,
    rtype: u16,
    ttl: u32,
    rdata: &'a [u8],
}

/// The records of a message, as far as they are well formed.
struct Records<'a> {
    message: &'a [u8],
    at: usize,
    left: [(Section, u16); 3],
}

impl<'a> Records<'a> {
    fn of(message: &'a [u8]) -> Records<'a> {
        let count = |at: usize| {
            let octets = message.get(at..).and_then(|rest| rest.first_chunk());
            octets.map_or(0, |count| u16::from_be_bytes(*count))
        };
        let left =
            [(Section::Answer, count(6)), (Section::Authority, count(8)), (Section::Additional, count(10))];
        let mut records = Records { message, at: 12, left };
        for _ in 0..count(4) {
            match skip_name(message, records.at) {
                Some(end) => records.at = end + 4,
                None => return Records { message: &[], ..records },
            }
        }
        records
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let (section, left) = self.left.iter_mut().find(|(_, left)| *left > 0)?;
        *left -= 1;
        let fixed_at = skip_name(self.message, self.at)?;
        let fixed: &[u8; 10] = self.message.get(fixed_at..)?.first_chunk()?;
        let [t, ype, _, _, ttl @ .., len, gth] = *fixed;
        let rdata_at = fixed_at + fixed.len();
        let rdata = self.message.get(rdata_at..rdata_at + usize::from(u16::from_be_bytes([len, gth])))?;
        self.at = rdata_at + rdata.len();
        Some(Record {
            section: *section,
            rtype: u16::from_be_bytes([t, ype]),
            ttl: u32::from_be_bytes(ttl),
            rdata,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message with one question and these records: section's number, type, TTL, RDATA.
    fn message(records: &[(u8, u16, u32, &[u8])]) -> Vec<u8> {
        let mut message = vec![0, 0, 0x84, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, b'a', 0, 0, 1, 0, 1];
        for &(section, rtype, ttl, rdata) in records {
            message[5 + 2 * usize::from(section)] += 1;
            message.extend([0xc0, 12]);
            message.extend(rtype.to_be_bytes());
            message.extend([0, 1]);
            message.extend(ttl.to_be_bytes());
            message.extend((rdata.len() as u16).to_be_bytes());
            message.extend(rdata);
        }
        message
    }

    #[test]
    fn a_reply_lives_as_long_as_its_shortest_ttl() {
        let soa = [&[0; 18][..], &300_u32.to_be_bytes()].concat();
        type Records<'a> = &'a [(u8, u16, u32, &'a [u8])];
        let cases: [(Records, u32, &str); 7] = [
            (&[(1, 1, 60, &[1; 4]), (1, 1, 30, &[2; 4])], 30, "two addresses"),
            (&[(2, 6, 3600, &soa)], 300, "a negative answer: the SOA's minimum"),
            (&[(2, 6, 30, &soa)], 30, "a negative answer: the SOA's TTL"),
            (&[(1, 5, 60, &[0]), (2, 6, 3600, &soa)], 60, "a chain that ends in nothing"),
            (&[(2, 2, 90, &[0]), (3, 1, 5, &[1; 4])], 90, "a referral: glue doesn't count"),
            (&[(3, 41, 0x8000, &[])], 0, "an error: the OPT record has no TTL"),
            (&[], 0, "an error"),
        ];
        for (records, seconds, why) in cases {
            assert_eq!(lifetime(&message(records)), seconds, "{why}");
        }
    }

    #[test]
    fn an_option_is_found_wherever_it_stands() {
        for (options, found, why) in [
            (&[][..], false, "no option"),
            (&[0, 11, 0, 0], true, "the only one"),
            (&[0, 10, 0, 2, 0, 11, 0, 11, 0, 2, 0, 0], true, "the second one"),
            (&[0, 10, 0, 4, 0, 11, 0, 0], false, "within another one"),
            (&[0, 10, 0, 9, 0, 11, 0, 0], false, "after one that is too long"),
            (&[0, 10, 0], false, "cut"),
        ] {
            assert_eq!(has_option(&message(&[(3, 41, 0, options)]), TCP_KEEPALIVE), found, "{why}");
        }
        assert!(!has_option(&message(&[]), TCP_KEEPALIVE), "no OPT record");
    }

    #[test]
    fn no_octets_are_too_odd() {
        let whole = message(&[(1, 1, 60, &[1; 4]), (3, 41, 0, &[0, 11, 0, 0])]);
        for end in 0..whole.len() {
            assert!(!has_option(&whole[..end], TCP_KEEPALIVE), "cut at {end}");
            lifetime(&whole[..end]);
        }
        for at in 0..whole.len() {
            let mut odd = whole.clone();
            odd[at] = 0xff;
            lifetime(&odd);
            has_option(&odd, TCP_KEEPALIVE);
        }
    }
}
