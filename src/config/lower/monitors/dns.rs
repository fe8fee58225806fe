//! Monitors of type dns.

use std::net::IpAddr;

use hickory_proto::rr::{RData, RecordType};
use hickory_proto::serialize::binary::{BinDecoder, BinEncodable, BinEncoder, Restrict};

use crate::config::lower::Lower;
use crate::config::lower::records::ascii_form;
use crate::config::place::{Place, Spot};
use crate::config::problem::ProblemKind;
use crate::config::reader::{Field, OneOrMany, Scalar, brief};
use crate::config::shape;
use crate::model::{Check, DnsCheck, Name, NameError};
use crate::rdata::{self, RdataError, type_name};

/// The codes with names (RFC 6895 §2.3), as `dig` writes them.
const RCODES: [(&str, u16); 13] = [
    ("NOERROR", 0),
    ("FORMERR", 1),
    ("SERVFAIL", 2),
    ("NXDOMAIN", 3),
    ("NOTIMP", 4),
    ("REFUSED", 5),
    ("YXDOMAIN", 6),
    ("YXRRSET", 7),
    ("NXRRSET", 8),
    ("NOTAUTH", 9),
    ("NOTZONE", 10),
    ("BADVERS", 16),
    ("BADCOOKIE", 23),
];

const A: u16 = 1;
/// So large is a code with its extension (RFC 6891 §6.1.3).
const MAX_RCODE: u16 = 4095;
/// Zone transfers and what stands in queries only.
const NOT_ASKED: [u16; 6] = [0, 41, 249, 250, 251, 252];

impl Lower<'_> {
    pub(super) fn dns_check(&self, shape: &shape::Monitor) -> Check {
        let rtype = self.query_type(&shape.query_type);
        Check::Dns(DnsCheck {
            port: self.port(&shape.port),
            name: self.query_name(shape),
            rtype,
            recursion: self.boolean(&shape.recursion, false),
            tcp: self.transport(&shape.transport),
            rcodes: self.rcodes(&shape.expected_rcode),
            data: self.expected_data(&shape.expected_data, rtype),
        })
    }

    fn query_name(&self, shape: &shape::Monitor) -> Name {
        let Some((text, place)) = self.text(&shape.query_name).filter(|(text, _)| !text.is_empty()) else {
            let absent = shape.query_name.is_absent() || shape.query_name.get().is_some();
            if let Some(place) = shape.r#type.place().filter(|_| absent) {
                let help = "write the name to ask for, such as `query_name: www.example.com`";
                self.missing(place, "a monitor of type dns", "query_name", help);
            }
            return Name::root();
        };
        if text.parse::<IpAddr>().is_ok() {
            let help = "write the name to ask for, such as `www.example.com`".to_owned();
            let kind = ProblemKind::AddressAsName { value: brief(text) };
            self.gather.refuse(Spot::Value(place), kind, Some(help));
            return Name::root();
        }
        let named = match text {
            "@" => Err("`@` stands for a zone, and a monitor has none".to_owned()),
            _ => text.parse().map_err(|error: NameError| error.to_string()),
        };
        named.unwrap_or_else(|why| {
            let kind = ProblemKind::NotName { value: brief(text), why };
            let usual = || "write a whole name such as `www.example.com`".to_owned();
            self.gather.refuse(Spot::Value(place), kind, Some(ascii_form(text).unwrap_or_else(usual)));
            Name::root()
        })
    }

    fn query_type(&self, field: &Field<Scalar>) -> u16 {
        let Some((text, place)) = self.text(field).filter(|(text, _)| !text.is_empty()) else { return A };
        let code = type_code(text);
        if let Some(code) = code.filter(|code| !NOT_ASKED.contains(code)) {
            return code;
        }
        let capitals = text.to_ascii_uppercase();
        let help = if code.is_some() {
            "a probe asks for records; zones are not transferred".to_owned()
        } else if type_code(&capitals).is_some() {
            format!("write `{capitals}`")
        } else if let Ok(code) = text.parse::<u16>() {
            format!("write `TYPE{code}`")
        } else {
            "write a type such as `A`, `AAAA` or `SOA`, or `TYPE` and its number".into()
        };
        self.gather.refuse(Spot::Value(place), ProblemKind::NotQueryType { value: brief(text) }, Some(help));
        A
    }

    /// Whether TCP comes at once.
    fn transport(&self, field: &Field<Scalar>) -> bool {
        match self.text(field) {
            None | Some(("udp" | "", _)) => false,
            Some(("tcp", _)) => true,
            Some((other, place)) => {
                self.unknown_value(place, other, &["udp", "tcp"]);
                false
            }
        }
    }

    fn rcodes(&self, field: &Field<OneOrMany<Scalar>>) -> Vec<u16> {
        const NOERROR: u16 = 0;
        let Field::Given(place, list) = field else { return vec![NOERROR] };
        if list.0.is_empty() {
            self.empty_list(*place, "without a code no answer would do; write `NOERROR`");
        }
        let mut codes = Vec::new();
        for item in &list.0 {
            let Some((text, place)) = self.text(item) else { continue };
            match rcode(text) {
                _ if text.is_empty() && list.0.len() == 1 => codes.push(NOERROR),
                Some(code) => codes.push(code),
                None => {
                    let capitals = text.to_ascii_uppercase();
                    let help = match rcode(&capitals) {
                        Some(_) => format!("write `{capitals}`"),
                        None => "write a code such as `NOERROR` or `NXDOMAIN`, or its number".into(),
                    };
                    let kind = ProblemKind::NotRcode { value: brief(text) };
                    self.gather.refuse(Spot::Value(place), kind, Some(help));
                }
            }
        }
        codes
    }

    fn expected_data(&self, field: &Field<OneOrMany<Scalar>>, rtype: u16) -> Vec<Box<[u8]>> {
        let mut data: Vec<(Box<[u8]>, Place)> = Vec::new();
        for item in field.get().map(|list| &list.0[..]).unwrap_or_default() {
            let Some((text, place)) = self.text(item).filter(|(text, _)| !text.is_empty()) else { continue };
            let octets = match octets(text, rtype) {
                Ok(octets) => octets,
                Err(error) => {
                    let kind = ProblemKind::NotRdata {
                        value: brief(text),
                        rtype: type_name(rtype).into(),
                        why: error.why,
                    };
                    let usual =
                        || "write it as `dig` prints it, or as `\\# LENGTH HEX` (RFC 3597)".to_owned();
                    let help = error.instead.unwrap_or_else(usual);
                    self.gather.refuse(Spot::Value(place), kind, Some(help));
                    continue;
                }
            };
            match data.iter().find(|(other, _)| *other == octets) {
                Some((_, first)) => self.listed_twice(place, *first, "the same value"),
                None => data.push((octets, place)),
            }
        }
        data.into_iter().map(|(octets, _)| octets).collect()
    }
}

/// `AAAA`, or `TYPE28` (RFC 3597 §5).
fn type_code(text: &str) -> Option<u16> {
    match text.strip_prefix("TYPE") {
        Some(digits) => digits.parse().ok().filter(|_| digits.bytes().all(|octet| octet.is_ascii_digit())),
        // The library's own names: a wildcard, and a number of its own invention.
        None if ["*", "ANAME"].contains(&text) => None,
        None => text.parse::<RecordType>().ok().map(u16::from),
    }
}

fn rcode(text: &str) -> Option<u16> {
    let named = RCODES.iter().find(|(name, _)| *name == text).map(|(_, code)| *code);
    let number = || text.parse().ok().filter(|code| *code <= MAX_RCODE);
    named.or_else(|| number().filter(|_| text.bytes().all(|octet| octet.is_ascii_digit())))
}

/// RDATA in canonical form, from what `dig` prints.
fn octets(text: &str, rtype: u16) -> Result<Box<[u8]>, RdataError> {
    let wire = rdata::parse(rtype, &rdata::words(text)?, &Name::root())?;
    let length = u16::try_from(wire.len()).expect("RDATA is no longer");
    // as the probe reads an answer
    let read = RData::read(&mut BinDecoder::new(&wire), RecordType::from(rtype), Restrict::new(length));
    let mut octets = Vec::new();
    let mut encoder = BinEncoder::new(&mut octets);
    encoder.set_canonical_form(true);
    let unread = |why: String| RdataError { word: None, why, instead: None };
    read.map_err(|error| unread(error.to_string()))?
        .emit(&mut encoder)
        .map_err(|error| unread(error.to_string()))?;
    Ok(octets.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_mnemonics_or_numbers() {
        for (text, code) in [
            ("A", Some(1)),
            ("AAAA", Some(28)),
            ("SOA", Some(6)),
            ("ANY", Some(255)),
            ("TYPE123", Some(123)),
            ("TYPE", None),
            ("TYPE+1", None),
            ("TYPE65536", None),
            ("a", None),
            ("28", None),
            ("*", None),
            ("ANAME", None),
        ] {
            assert_eq!(type_code(text), code, "{text}");
        }
    }

    #[test]
    fn data_is_compared_as_values() {
        let soa = "ns1.example.com. hostmaster.example.com. 1 3600 600 604800 30";
        for (rtype, one, other) in [
            (1, "192.0.2.1", "\\# 4 c0000201"),
            (28, "2001:db8:0:0::1", "2001:DB8::1"),
            (5, "WWW.example.com.", "www.example.com"),
            (15, "10 mx.Example.com.", "10  MX.example.com."),
            (33, "0 5 5060 sip.example.com.", "0 5 5060 SIP.example.com"),
            (6, soa, soa),
            (16, "\"v=spf1 -all\"", "\\# 12 0b 763d73706631202d616c6c"),
            (123, "\\# 2 ABcd", "\\# 2 ab cd"),
            (123, "\\# 0", "\\# 0"),
            (16, "\\200", "\\# 2 01c8"),
            (5, "www.example.com.", "\\# 17 03575757076578616d706c6503636f6d00"),
        ] {
            assert!(octets(one, rtype).is_ok(), "{one}");
            assert_eq!(octets(one, rtype), octets(other, rtype), "{one}, {other}");
        }
        assert_ne!(octets("\"a\" \"b\"", 16), octets("\"ab\"", 16));
        assert_ne!(octets("\"A\"", 16), octets("\"a\"", 16));
        for (rtype, text) in [
            (1, "192.0.2"),
            (1, "::1"),
            (1, ""),
            (15, "mx.example.com."),
            (123, "abc"),
            (43, "1 2 3 abcd"),
            (1, "\\# 4 c00002"),
            (1, "\\# 5 c000020101"),
            (1, "\\# 4 c00002xx"),
            (1, "\\#"),
        ] {
            assert!(octets(text, rtype).is_err(), "{text}");
        }
    }

    #[test]
    fn no_text_is_too_odd_to_be_refused() {
        let odd = [
            "(", ")", "\"", "\"a", "\\", "\\9", "\\999", ";", "( (", "$TTL 1", "@", "\t", "\n1", "é", "- -",
            "1 1 1 1",
        ];
        for rtype in 0..=260 {
            for text in odd {
                let _ = octets(text, rtype);
            }
        }
    }
}
