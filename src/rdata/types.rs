//! The types of records: their mnemonics and numbers, as IANA lists them.

use std::borrow::Cow;

/// In the order of their numbers.
const TYPES: &[(u16, &str)] = &[
    (1, "A"),
    (2, "NS"),
    (3, "MD"),
    (4, "MF"),
    (5, "CNAME"),
    (6, "SOA"),
    (7, "MB"),
    (8, "MG"),
    (9, "MR"),
    (10, "NULL"),
    (11, "WKS"),
    (12, "PTR"),
    (13, "HINFO"),
    (14, "MINFO"),
    (15, "MX"),
    (16, "TXT"),
    (17, "RP"),
    (18, "AFSDB"),
    (19, "X25"),
    (20, "ISDN"),
    (21, "RT"),
    (22, "NSAP"),
    (23, "NSAP-PTR"),
    (24, "SIG"),
    (25, "KEY"),
    (26, "PX"),
    (27, "GPOS"),
    (28, "AAAA"),
    (29, "LOC"),
    (30, "NXT"),
    (31, "EID"),
    (32, "NIMLOC"),
    (33, "SRV"),
    (34, "ATMA"),
    (35, "NAPTR"),
    (36, "KX"),
    (37, "CERT"),
    (38, "A6"),
    (39, "DNAME"),
    (40, "SINK"),
    (41, "OPT"),
    (42, "APL"),
    (43, "DS"),
    (44, "SSHFP"),
    (45, "IPSECKEY"),
    (46, "RRSIG"),
    (47, "NSEC"),
    (48, "DNSKEY"),
    (49, "DHCID"),
    (50, "NSEC3"),
    (51, "NSEC3PARAM"),
    (52, "TLSA"),
    (53, "SMIMEA"),
    (55, "HIP"),
    (56, "NINFO"),
    (57, "RKEY"),
    (58, "TALINK"),
    (59, "CDS"),
    (60, "CDNSKEY"),
    (61, "OPENPGPKEY"),
    (62, "CSYNC"),
    (63, "ZONEMD"),
    (64, "SVCB"),
    (65, "HTTPS"),
    (66, "DSYNC"),
    (99, "SPF"),
    (100, "UINFO"),
    (101, "UID"),
    (102, "GID"),
    (103, "UNSPEC"),
    (104, "NID"),
    (105, "L32"),
    (106, "L64"),
    (107, "LP"),
    (108, "EUI48"),
    (109, "EUI64"),
    (128, "NXNAME"),
    (249, "TKEY"),
    (250, "TSIG"),
    (251, "IXFR"),
    (252, "AXFR"),
    (253, "MAILB"),
    (254, "MAILA"),
    (255, "ANY"),
    (256, "URI"),
    (257, "CAA"),
    (258, "AVC"),
    (259, "DOA"),
    (260, "AMTRELAY"),
    (261, "RESINFO"),
    (262, "WALLET"),
    (32768, "TA"),
    (32769, "DLV"),
];

/// The number of a type, by its mnemonic in letters of any case or as
/// `TYPE65280` (RFC 3597 §5).
pub fn type_code(mnemonic: &str) -> Option<u16> {
    if let Some((code, _)) = TYPES.iter().find(|(_, name)| name.eq_ignore_ascii_case(mnemonic)) {
        return Some(*code);
    }
    let (prefix, digits) = mnemonic.split_at_checked(4)?;
    let is_generic = prefix.eq_ignore_ascii_case("TYPE") && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| is_generic)
}

/// The mnemonic of a type, or `TYPE65280`.
pub fn type_name(code: u16) -> Cow<'static, str> {
    match TYPES.binary_search_by_key(&code, |(code, _)| *code) {
        Ok(at) => Cow::Borrowed(TYPES[at].1),
        Err(_) => Cow::Owned(format!("TYPE{code}")),
    }
}

/// Whether records of the type can stand in a zone: 0 is reserved, OPT and 128
/// to 255 are of messages and questions (RFC 6895 §3.1).
pub fn is_data(code: u16) -> bool {
    code != 0 && code != 41 && !(128..=255).contains(&code) && code != u16::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_one_mnemonic_and_one_number() {
        assert!(TYPES.is_sorted_by(|(a, _), (b, _)| a < b));
        for (code, name) in TYPES {
            assert_eq!(type_code(name), Some(*code), "{name}");
            assert_eq!(type_code(&name.to_lowercase()), Some(*code), "{name}");
            assert_eq!(type_name(*code), *name);
            assert_eq!(type_code(&format!("TYPE{code}")), Some(*code));
        }
        assert_eq!(type_name(65280), "TYPE65280");
        for text in ["", "TYPE", "TYPE65536", "TYPE+1", "TYPE 1", "TYPEé", "28", "*", "AAAAA"] {
            assert_eq!(type_code(text), None, "{text}");
        }
    }
}
