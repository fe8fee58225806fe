//! How values of each type are written: OctoDNS's keys, in the order in which
//! a master file has the words.

use crate::rdata::rtype::*;

/// How a value is written.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// One text, which is cut into strings; or a map with the strings.
    Texts,
    /// One word.
    Word,
    /// A map of these keys.
    Keys(&'static [Key]),
    /// A map of a priority, a target and a map of parameters.
    Service,
    /// All words in one text, as a master file has them.
    Line,
}

/// A key of a value, for one word.
pub(super) struct Key {
    pub name: &'static str,
    /// OctoDNS's older spelling.
    pub alias: Option<&'static str>,
    /// What it is when it is absent, if it may be.
    pub default: Option<&'static str>,
    /// The word may hold spaces, and stands in quotes.
    pub quoted: bool,
}

const fn key(name: &'static str) -> Key {
    Key { name, alias: None, default: None, quoted: false }
}

const fn or(name: &'static str, default: &'static str) -> Key {
    Key { default: Some(default), ..key(name) }
}

const fn was(name: &'static str, alias: &'static str) -> Key {
    Key { alias: Some(alias), ..key(name) }
}

const fn quoted(name: &'static str) -> Key {
    Key { quoted: true, ..key(name) }
}

const CAA: u16 = 257;
const LOC: u16 = 29;
const SSHFP: u16 = 44;
const TLSA: u16 = 52;
pub(super) const URI: u16 = 256;
const DIRECTIONS: [&str; 2] = ["lat_direction", "long_direction"];

static CAA_KEYS: [Key; 3] = [or("flags", "0"), key("tag"), quoted("value")];
static DS_KEYS: [Key; 4] = [key("key_tag"), key("algorithm"), key("digest_type"), key("digest")];
/// As OctoDNS called them by mistake: the same words under other names.
static OLD_DS_KEYS: [Key; 4] = [key("flags"), key("protocol"), key("algorithm"), key("public_key")];
static LOC_KEYS: [Key; 12] = [
    key("lat_degrees"),
    or("lat_minutes", "0"),
    or("lat_seconds", "0"),
    key(DIRECTIONS[0]),
    key("long_degrees"),
    or("long_minutes", "0"),
    or("long_seconds", "0"),
    key(DIRECTIONS[1]),
    key("altitude"),
    or("size", "1"),
    or("precision_horz", "10000"),
    or("precision_vert", "10"),
];
static MX_KEYS: [Key; 2] = [was("preference", "priority"), was("exchange", "value")];
static NAPTR_KEYS: [Key; 6] = [
    key("order"),
    key("preference"),
    quoted("flags"),
    quoted("service"),
    quoted("regexp"),
    key("replacement"),
];
static SRV_KEYS: [Key; 4] = [key("priority"), key("weight"), key("port"), key("target")];
static SSHFP_KEYS: [Key; 3] = [key("algorithm"), key("fingerprint_type"), key("fingerprint")];
static TLSA_KEYS: [Key; 4] = [
    or("certificate_usage", "0"),
    or("selector", "0"),
    or("matching_type", "0"),
    key("certificate_association_data"),
];
static URI_KEYS: [Key; 3] = [key("priority"), key("weight"), quoted("target")];

/// How values of a type are written; `has` tells whether one has a key.
pub(super) fn form(rtype: u16, has: impl Fn(&str) -> bool) -> Form {
    match rtype {
        TXT | SPF => Form::Texts,
        A | AAAA | CNAME | DNAME | NS | PTR => Form::Word,
        CAA => Form::Keys(&CAA_KEYS),
        DS if has("flags") || has("public_key") => Form::Keys(&OLD_DS_KEYS),
        DS => Form::Keys(&DS_KEYS),
        LOC => Form::Keys(&LOC_KEYS),
        MX => Form::Keys(&MX_KEYS),
        NAPTR => Form::Keys(&NAPTR_KEYS),
        SRV => Form::Keys(&SRV_KEYS),
        SSHFP => Form::Keys(&SSHFP_KEYS),
        TLSA => Form::Keys(&TLSA_KEYS),
        URI => Form::Keys(&URI_KEYS),
        SVCB | HTTPS => Form::Service,
        _ => Form::Line,
    }
}

/// The types in OctoDNS's schema.
pub(super) const OCTODNS: [&str; 20] = [
    "A",
    "AAAA",
    "CAA",
    "CNAME",
    "DNAME",
    "DS",
    "HTTPS",
    "LOC",
    "MX",
    "NAPTR",
    "NS",
    "OPENPGPKEY",
    "PTR",
    "SPF",
    "SRV",
    "SSHFP",
    "SVCB",
    "TLSA",
    "TXT",
    "URI",
];

/// A value as it may look.
pub(super) fn example(rtype: u16) -> &'static str {
    match rtype {
        CAA => "{ flags: 0, tag: issue, value: ca.example.net }",
        DS => "{ key_tag: 60485, algorithm: 13, digest_type: 2, digest: … }",
        LOC => {
            "{ lat_degrees: 52, lat_minutes: 22, lat_seconds: 23, lat_direction: N, long_degrees: 4, \
             long_minutes: 53, long_seconds: 32, long_direction: E, altitude: -2 }"
        }
        MX => "{ preference: 10, exchange: mail }",
        NAPTR => {
            "{ order: 100, preference: 50, flags: s, service: SIP+D2U, regexp: '', replacement: _sip._udp }"
        }
        SRV => "{ priority: 10, weight: 5, port: 5060, target: sip }",
        SSHFP => "{ algorithm: 4, fingerprint_type: 2, fingerprint: … }",
        SVCB | HTTPS => "{ svcpriority: 1, targetname: ., svcparams: { alpn: [h2, h3] } }",
        TLSA => "{ certificate_usage: 3, selector: 1, matching_type: 1, certificate_association_data: … }",
        TXT | SPF => "{ strings: [one, two] }",
        URI => "{ priority: 10, weight: 1, target: 'https://www.example.com/' }",
        other => crate::rdata::example(other),
    }
}
