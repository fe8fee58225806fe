//! The parameters of SVCB and HTTPS records (RFC 9460, 9461, 9540, 9848).

use std::net::{Ipv4Addr, Ipv6Addr};

use data_encoding::BASE64;

use super::word::{bare, unescaped};
use super::{Flaw, Word, number};

const MANDATORY: u16 = 0;
const ALPN: u16 = 1;
const NO_DEFAULT_ALPN: u16 = 2;
const PORT: u16 = 3;
/// Keys of the hints of addresses (RFC 9460 §14.3.2).
pub const IPV4_HINT: u16 = 4;
pub const IPV6_HINT: u16 = 6;
const ECH: u16 = 5;
const DOHPATH: u16 = 7;
const OHTTP: u16 = 8;
/// Reserved: it is never used (RFC 9460 §14.3.2).
const INVALID: u16 = 65535;

/// The parameters that have names, in the order of their numbers.
pub const KEYS: [&str; 9] =
    ["mandatory", "alpn", "no-default-alpn", "port", "ipv4hint", "ech", "ipv6hint", "dohpath", "ohttp"];

/// Appends the parameters that words mean, in the order of their keys.
pub(super) fn encode(words: &[Word<'_>], wire: &mut Vec<u8>) -> Result<(), Flaw> {
    let mut parameters: Vec<(u16, Vec<u8>, usize)> = Vec::new();
    let mut words = words.iter().enumerate().peekable();
    while let Some((at, word)) = words.next() {
        let equals = word.text.iter().position(|octet| *octet == b'=');
        let (name, mut value) = match equals {
            None => (word.text, None),
            Some(equals) => (&word.text[..equals], Some(unquoted(&word.text[equals + 1..]))),
        };
        // readers that end a word where quotes begin give the value by itself
        if value == Some(b"")
            && let Some((_, next)) = words.next_if(|(_, next)| next.quoted)
        {
            value = Some(next.text);
        }
        let key = key(name).ok_or_else(|| unknown(at, name))?;
        if let Some((_, _, first)) = parameters.iter().find(|(other, ..)| *other == key) {
            let shown = key_name(key);
            let instead = "put its values into one".to_owned();
            let why = format!("`{shown}` stands twice, at first in parameter {}", first + 1);
            return Err(Flaw::new(at, why).with(instead));
        }
        let octets = value_of(key, name, value).map_err(|(why, instead)| Flaw { at, why, instead })?;
        if u16::try_from(octets.len()).is_err() {
            return Err(Flaw::new(at, "a value has at most 65535 octets"));
        }
        parameters.push((key, octets, at));
    }
    parameters.sort_by_key(|(key, ..)| *key);
    let pairs: Vec<(u16, &[u8])> = parameters.iter().map(|(key, octets, _)| (*key, &octets[..])).collect();
    if let Some((key, why, instead)) = flaw(&pairs) {
        let at = parameters.iter().find(|(other, ..)| *other == key).map_or(0, |(_, _, at)| *at);
        return Err(Flaw { at, why, instead });
    }
    for (key, octets) in pairs {
        wire.extend(key.to_be_bytes());
        wire.extend((octets.len() as u16).to_be_bytes()); // it was looked at above
        wire.extend_from_slice(octets);
    }
    Ok(())
}

fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value)
}

fn key(name: &[u8]) -> Option<u16> {
    if let Some(at) = KEYS.iter().position(|known| known.as_bytes() == name) {
        return Some(at as u16); // there are nine
    }
    let digits = name.strip_prefix(b"key")?;
    let plain = digits == b"0" || !digits.starts_with(b"0");
    number::decimal(digits).filter(|_| plain)
}

fn key_name(key: u16) -> String {
    KEYS.get(usize::from(key)).map_or_else(|| format!("key{key}"), |name| (*name).to_owned())
}

fn unknown(at: usize, name: &[u8]) -> Flaw {
    let name = String::from_utf8_lossy(name);
    let lower = name.to_ascii_lowercase();
    let flaw = Flaw::new(at, format!("`{name}` is not a parameter"));
    match KEYS.contains(&&*lower) {
        true => flaw.with(format!("write `{lower}`")),
        false => flaw.with(format!("the parameters are: {}, and `key65280` for others", KEYS.join(", "))),
    }
}

type Why = (String, Option<String>);

fn why(why: impl Into<String>, instead: &str) -> Why {
    (why.into(), Some(instead.to_owned()))
}

/// The octets of one parameter.
fn value_of(key: u16, name: &[u8], value: Option<&[u8]>) -> Result<Vec<u8>, Why> {
    let text = unescaped(value.unwrap_or_default()).map_err(|why| (why, None))?;
    if name.starts_with(b"key") {
        return Ok(text); // the octets themselves, whatever the key
    }
    let mut octets = Vec::new();
    match key {
        MANDATORY => {
            let keys = text.split(|octet| *octet == b',').map(|name| {
                self::key(name).ok_or_else(|| {
                    let shown = String::from_utf8_lossy(name);
                    why(format!("`{shown}` is not a parameter"), "write for example `mandatory=alpn`")
                })
            });
            let mut keys = keys.collect::<Result<Vec<u16>, Why>>()?;
            keys.sort_unstable();
            octets.extend(keys.into_iter().flat_map(u16::to_be_bytes));
        }
        ALPN => {
            for id in list(&text).map_err(|why| (why, None))? {
                let length = u8::try_from(id.len()).ok().filter(|length| *length > 0);
                octets.push(length.ok_or_else(|| {
                    why("a protocol's name has 1 to 255 octets", "write for example `alpn=h2,h3`")
                })?);
                octets.extend(id);
            }
        }
        NO_DEFAULT_ALPN | OHTTP if value.is_some_and(|value| !value.is_empty()) => {
            let shown = key_name(key);
            return Err(why(format!("`{shown}` has no value"), &format!("write `{shown}` alone")));
        }
        NO_DEFAULT_ALPN | OHTTP => {}
        PORT => {
            let port: Option<u16> = number::decimal(&text);
            let wrong = || why("`port` is a number from 0 to 65535", "write for example `port=8443`");
            octets.extend(port.ok_or_else(wrong)?.to_be_bytes());
        }
        IPV4_HINT | IPV6_HINT if text == b"auto" => {}
        IPV4_HINT | IPV6_HINT => {
            for address in text.split(|octet| *octet == b',') {
                let text = str::from_utf8(address).unwrap_or_default();
                if key == IPV4_HINT {
                    let address = text.parse::<Ipv4Addr>().map_err(|_| {
                        why(
                            format!("`{text}` is not an IPv4 address"),
                            "write for example `ipv4hint=192.0.2.1`",
                        )
                    });
                    octets.extend(address?.octets());
                } else {
                    let address = text.parse::<Ipv6Addr>().map_err(|_| {
                        why(
                            format!("`{text}` is not an IPv6 address"),
                            "write for example `ipv6hint=2001:db8::1`",
                        )
                    });
                    octets.extend(address?.octets());
                }
            }
        }
        ECH => {
            let decoded = BASE64.decode(&text).ok().filter(|octets| !octets.is_empty());
            let wrong = || why("`ech` is a list of configurations in base 64", "write it as `ech=AEX…`");
            octets = decoded.ok_or_else(wrong)?;
        }
        _ => octets = text,
    }
    Ok(octets)
}

/// The items of a list with commas, in which `\,` and `\\` are a comma and a
/// backslash (RFC 9460 appendix A.1).
fn list(text: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut items = vec![Vec::new()];
    let mut rest = text.iter();
    while let Some(octet) = rest.next() {
        let item = items.last_mut().expect("there is always one");
        match octet {
            b',' => items.push(Vec::new()),
            b'\\' => match rest.next() {
                Some(octet @ (b',' | b'\\')) => item.push(*octet),
                _ => return Err("within a list a backslash stands before a comma or a backslash".into()),
            },
            _ => item.push(*octet),
        }
    }
    Ok(items)
}

/// The parameters in the RDATA of a well-formed SVCB or HTTPS record: key and
/// value (RFC 9460 §2.2). What stands before them is what is left over.
pub fn service_params(rdata: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = &rdata[service_params_at(rdata)..];
    std::iter::from_fn(move || {
        let (head, after) = rest.split_first_chunk::<4>()?;
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let (value, after) = after.split_at_checked(length)?;
        rest = after;
        Some((u16::from_be_bytes([head[0], head[1]]), value))
    })
}

/// Where the parameters begin: behind the priority and the target's name.
pub fn service_params_at(rdata: &[u8]) -> usize {
    let mut at = 2;
    while let Some(&length) = rdata.get(at) {
        at += 1 + usize::from(length);
        if length == 0 {
            return at;
        }
    }
    rdata.len()
}

/// Whether a parameter is a hint of addresses that is left open, as `auto`
/// writes it: none in a message is empty (RFC 9460 §7.3).
pub fn is_open_hint(key: u16, value: &[u8]) -> bool {
    matches!(key, IPV4_HINT | IPV6_HINT) && value.is_empty()
}

/// The parameters one after the other; else what is wrong.
fn parameters(octets: &[u8]) -> Result<Vec<(u16, &[u8])>, String> {
    let mut pairs: Vec<(u16, &[u8])> = Vec::new();
    let mut rest = octets;
    while !rest.is_empty() {
        let [a, b, c, d, after @ ..] = rest else { return Err("end within a key".into()) };
        let key = u16::from_be_bytes([*a, *b]);
        let length = usize::from(u16::from_be_bytes([*c, *d]));
        let (value, after) = after.split_at_checked(length).ok_or("end within a value")?;
        if pairs.last().is_some_and(|(last, _)| *last >= key) {
            return Err("are not in the order of their keys, each once".into());
        }
        pairs.push((key, value));
        rest = after;
    }
    Ok(pairs)
}

/// What is wrong with octets, to be said after `the parameters`.
pub(super) fn flaw_in(octets: &[u8]) -> Option<String> {
    match parameters(octets) {
        Err(why) => Some(why),
        Ok(pairs) => flaw(&pairs).map(|(_, why, _)| format!("are wrong: {why}")),
    }
}

/// What is wrong with parameters: the key, why, and what to write.
fn flaw(pairs: &[(u16, &[u8])]) -> Option<(u16, String, Option<String>)> {
    // a hint that is left open may turn out to be none
    let has = |key: u16| pairs.iter().any(|(other, value)| *other == key && !is_open_hint(key, value));
    pairs
        .iter()
        .find_map(|(key, value)| flaw_of(*key, value, &has).map(|(why, instead)| (*key, why, instead)))
}

fn flaw_of(key: u16, value: &[u8], has: &dyn Fn(u16) -> bool) -> Option<Why> {
    let multiple = |of: usize| !value.is_empty() && value.len().is_multiple_of(of);
    let plain = |text: &str| Some((text.to_owned(), None));
    match key {
        MANDATORY if !multiple(2) => plain("`mandatory` is a list of keys"),
        MANDATORY => {
            let keys: Vec<u16> =
                value.as_chunks::<2>().0.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
            if keys.contains(&MANDATORY) {
                return plain("`mandatory` is never in its own list");
            }
            if !keys.is_sorted_by(|one, other| one < other) {
                return plain("a key stands twice in `mandatory`, or they are not in their order");
            }
            let absent = keys.into_iter().find(|key| !has(*key)).map(key_name)?;
            let instead = format!("add `{absent}`, or take it out of the list");
            Some((format!("`{absent}` is mandatory and not there"), Some(instead)))
        }
        ALPN => {
            let mut rest = value;
            while let Some((length, after)) = rest.split_first() {
                match after.split_at_checked(usize::from(*length)) {
                    Some((_, after)) if *length > 0 => rest = after,
                    _ => return plain("`alpn` is a list of protocols, each of 1 to 255 octets"),
                }
            }
            value.is_empty().then(|| ("`alpn` names at least one protocol".to_owned(), None))
        }
        NO_DEFAULT_ALPN | OHTTP if !value.is_empty() => {
            Some((format!("`{}` has no value", key_name(key)), None))
        }
        NO_DEFAULT_ALPN if !has(ALPN) => {
            Some(why("without `alpn` no protocol is left", "add `alpn`, or take `no-default-alpn` away"))
        }
        PORT if value.len() != 2 => plain("`port` has 2 octets"),
        IPV4_HINT | IPV6_HINT if value.is_empty() => None,
        IPV4_HINT if !multiple(4) => plain("`ipv4hint` is a list of IPv4 addresses"),
        IPV6_HINT if !multiple(16) => plain("`ipv6hint` is a list of IPv6 addresses"),
        ECH if value.is_empty() => plain("`ech` is empty"),
        DOHPATH if str::from_utf8(value).is_err() => plain("`dohpath` is a template in UTF-8"),
        INVALID => plain("key65535 is reserved and never used"),
        _ => None,
    }
}

/// An alias has no parameters (RFC 9460 §2.4.2).
pub(super) fn check(parts: &[&[u8]]) -> Result<(), Flaw> {
    match parts {
        [[0, 0], _, parameters] if !parameters.is_empty() => {
            let why = "a record of priority 0 is an alias, and its parameters mean nothing";
            Err(Flaw::new(2, why).with("write priority 1, or take the parameters away"))
        }
        _ => Ok(()),
    }
}

/// Shows octets that have been looked at.
pub(super) fn show(octets: &[u8], text: &mut String) {
    let pairs = parameters(octets).unwrap_or_default();
    let shown: Vec<String> = pairs.iter().map(|(key, value)| show_one(*key, value)).collect();
    *text += &shown.join(" ");
}

fn show_one(key: u16, value: &[u8]) -> String {
    let mut text = key_name(key);
    if is_open_hint(key, value) {
        return text + "=auto";
    }
    if matches!(key, NO_DEFAULT_ALPN | OHTTP) || value.is_empty() {
        return text;
    }
    text.push('=');
    match key {
        MANDATORY => {
            let keys = value.as_chunks::<2>().0.iter().map(|pair| key_name(u16::from_be_bytes(*pair)));
            text += &keys.collect::<Vec<_>>().join(",");
        }
        ALPN => {
            let (mut list, mut rest) = (Vec::new(), value);
            while let Some((length, after)) = rest.split_first() {
                let (id, after) = after.split_at(usize::from(*length).min(after.len()));
                if !list.is_empty() {
                    list.push(b',');
                }
                for octet in id {
                    if matches!(octet, b',' | b'\\') {
                        list.push(b'\\');
                    }
                    list.push(*octet);
                }
                rest = after;
            }
            bare(&list, &mut text);
        }
        PORT => text += &value.iter().fold(0u32, |sum, octet| sum << 8 | u32::from(*octet)).to_string(),
        IPV4_HINT => {
            let all = value.as_chunks::<4>().0.iter().map(|octets| Ipv4Addr::from(*octets).to_string());
            text += &all.collect::<Vec<_>>().join(",");
        }
        IPV6_HINT => {
            let all = value.as_chunks::<16>().0.iter().map(|octets| Ipv6Addr::from(*octets).to_string());
            text += &all.collect::<Vec<_>>().join(",");
        }
        ECH => text += &BASE64.encode(value),
        _ => bare(value, &mut text),
    }
    text
}
