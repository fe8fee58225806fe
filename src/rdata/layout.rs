//! What the RDATA of each type consists of.
//!
//! A new type is a row here; one that has a part of its own needs that in
//! `part`, and one whose parts depend on each other a function in `check`.

use super::Flaw;
use super::check::{any, caa, dnskey, ds, naptr, sshfp, tlsa, uri, zonemd};
use super::part::Part::{self, *};

/// How the data of one type is written.
pub(super) struct Layout {
    pub rtype: u16,
    /// In the order of the words and of the octets, with what they are called.
    pub parts: &'static [(&'static str, Part)],
    /// What isn't seen in one part alone.
    pub check: fn(&[&[u8]]) -> Result<(), Flaw>,
    /// As a master file has it.
    pub example: &'static str,
}

/// The layout of a type, if it has one.
pub(super) fn of(rtype: u16) -> Option<&'static Layout> {
    ALL.binary_search_by_key(&rtype, |layout| layout.rtype).ok().map(|at| &ALL[at])
}

const fn row(
    rtype: u16,
    parts: &'static [(&'static str, Part)],
    check: fn(&[&[u8]]) -> Result<(), Flaw>,
    example: &'static str,
) -> Layout {
    Layout { rtype, parts, check, example }
}

const DIGEST: &[(&str, Part)] =
    &[("key tag", U16), ("algorithm", Algorithm), ("digest type", U8), ("digest", Hex)];
const KEY: &[(&str, Part)] =
    &[("flags", U16), ("protocol", U8), ("algorithm", Algorithm), ("public key", Base64)];
const ASSOCIATION: &[(&str, Part)] = &[
    ("certificate usage", U8),
    ("selector", U8),
    ("matching type", U8),
    ("certificate association data", Hex),
];
const SERVICE: &[(&str, Part)] = &[("priority", U16), ("target name", Name), ("parameters", Parameters)];
const MAILBOX: &[(&str, Part)] = &[("mailbox", Name)];
const TEXTS: &[(&str, Part)] = &[("text", Texts)];

const DIGEST_EXAMPLE: &str = "60485 13 2 d4b7d520e7bb5f0f67674a0cceb1e3e0614b93c4f9e99b8383f6a1e4469da50a";
const KEY_EXAMPLE: &str =
    "257 3 13 mdsswUyr3DPW132mOi8V9xESWE8jTo0dxCjjnopKl+GqJxpVXckHAeF+KkxLbxILfDLUT0rAK9iUzy1L53eKGQ==";
const ASSOCIATION_EXAMPLE: &str = "3 1 1 d2abde240d7cd3ee6b4b28c54df034b97983a1d16e8a410e4561cb106618e971";

/// In the order of their numbers.
pub(super) static ALL: &[Layout] = &[
    row(1, &[("address", V4)], any, "192.0.2.1"),
    row(2, &[("name server", Name)], any, "ns1.example.com."),
    row(3, MAILBOX, any, "mail.example.com."),
    row(4, MAILBOX, any, "mail.example.com."),
    row(5, &[("target", Name)], any, "www.example.com."),
    row(
        6,
        &[
            ("primary server", Name),
            ("mailbox", Name),
            ("serial", U32),
            ("refresh", Seconds),
            ("retry", Seconds),
            ("expire", Seconds),
            ("minimum", Seconds),
        ],
        any,
        "ns1.example.com. hostmaster.example.com. 1 3600 600 604800 30",
    ),
    row(7, MAILBOX, any, "mail.example.com."),
    row(8, MAILBOX, any, "mail.example.com."),
    row(9, MAILBOX, any, "mail.example.com."),
    row(12, &[("target", Name)], any, "www.example.com."),
    row(13, &[("CPU", Text), ("operating system", Text)], any, r#""x86-64" "Linux""#),
    row(
        14,
        &[("responsible mailbox", Name), ("mailbox for errors", Name)],
        any,
        "list.example.com. errors.example.com.",
    ),
    row(15, &[("preference", U16), ("exchange", Name)], any, "10 mail.example.com."),
    row(16, TEXTS, any, r#""v=spf1 -all""#),
    row(17, &[("mailbox", Name), ("name of texts", Name)], any, "admin.example.com. info.example.com."),
    row(18, &[("subtype", U16), ("host", Name)], any, "1 afsdb.example.com."),
    row(21, &[("preference", U16), ("host", Name)], any, "10 relay.example.com."),
    row(
        26,
        &[("preference", U16), ("name of RFC 822", Name), ("name of X.400", Name)],
        any,
        "10 a.example.com. b.example.com.",
    ),
    row(28, &[("address", V6)], any, "2001:db8::1"),
    row(29, &[("location", Location)], any, "52 22 23 N 4 53 32 E -2m 0m 10000m 10m"),
    row(
        33,
        &[("priority", U16), ("weight", U16), ("port", U16), ("target", Name)],
        any,
        "10 5 5060 sip.example.com.",
    ),
    row(
        35,
        &[
            ("order", U16),
            ("preference", U16),
            ("flags", Text),
            ("service", Text),
            ("regexp", Text),
            ("replacement", Name),
        ],
        naptr,
        r#"100 50 "s" "SIP+D2U" "" _sip._udp.example.com."#,
    ),
    row(36, &[("preference", U16), ("exchanger", Name)], any, "10 kx.example.com."),
    row(
        37,
        &[("type", Certificate), ("key tag", U16), ("algorithm", Algorithm), ("certificate", Base64)],
        any,
        "1 0 0 MIIBAA==",
    ),
    row(39, &[("target", Name)], any, "other.example.net."),
    row(43, DIGEST, ds, DIGEST_EXAMPLE),
    row(
        44,
        &[("algorithm", U8), ("fingerprint type", U8), ("fingerprint", Hex)],
        sshfp,
        "4 2 9f2b1c6d1e3a5b7c8d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e",
    ),
    row(48, KEY, dnskey, KEY_EXAMPLE),
    row(49, &[("identifier", Base64)], any, "AAIBY2/AuCccgoJbsaxcQc9TUapptP69lOjxfNuVAA2kjEA="),
    row(52, ASSOCIATION, tlsa, ASSOCIATION_EXAMPLE),
    row(53, ASSOCIATION, tlsa, ASSOCIATION_EXAMPLE),
    row(59, DIGEST, ds, DIGEST_EXAMPLE),
    row(60, KEY, dnskey, KEY_EXAMPLE),
    row(61, &[("key", Base64)], any, "mQENBFit2jsBCADrbl5vjVxYeAE0"),
    row(62, &[("serial", U32), ("flags", U16), ("types", Types)], any, "66 3 A NS AAAA"),
    row(
        63,
        &[("serial", U32), ("scheme", U8), ("hash algorithm", U8), ("digest", Hex)],
        zonemd,
        "2018031500 1 1 fb0abc8fbe01b6f2a2e3bcb6b6b9ab2b83f1eb2f0b3a27c0f0f9d8b0a5b7a4d1fb0abc8fbe01b6f2a2e3bcb6b6b9ab2b",
    ),
    row(64, SERVICE, super::service::check, "1 svc.example.com. alpn=h2,h3 port=8443"),
    row(65, SERVICE, super::service::check, "1 . alpn=h2,h3 ipv4hint=192.0.2.1"),
    row(99, TEXTS, any, r#""v=spf1 -all""#),
    row(105, &[("preference", U16), ("locator", V4)], any, "10 10.1.2.0"),
    row(107, &[("preference", U16), ("name", Name)], any, "10 l64.example.com."),
    row(108, &[("address", Eui(6))], any, "00-00-5e-00-53-2a"),
    row(109, &[("address", Eui(8))], any, "00-00-5e-ef-10-00-00-2a"),
    row(
        256,
        &[("priority", U16), ("weight", U16), ("target", Value)],
        uri,
        r#"10 1 "https://www.example.com/path""#,
    ),
    row(257, &[("flags", U8), ("tag", Tag), ("value", Value)], caa, r#"0 issue "ca.example.net""#),
    row(258, TEXTS, any, r#""app-name:WOLFGANG|app-class:OAM""#),
    row(261, TEXTS, any, r#""qnamemin" "exterr=15-17""#),
    row(262, TEXTS, any, r#""BTC" "example""#),
    row(32769, DIGEST, ds, DIGEST_EXAMPLE),
];
