//! What isn't seen in one part of RDATA alone: lengths that follow from types,
//! letters that may stand somewhere.

use super::Flaw;

pub(super) fn any(_: &[&[u8]]) -> Result<(), Flaw> {
    Ok(())
}

/// The last part has as many octets as its type, one before it, says.
fn length_of(parts: &[&[u8]], name: &str, kind: &str, lengths: &[(u8, usize)]) -> Result<(), Flaw> {
    let [.., of, octets] = parts else { return Ok(()) };
    let Some((code, length)) = lengths.iter().find(|(code, _)| [*code] == **of) else { return Ok(()) };
    if octets.len() == *length {
        return Ok(());
    }
    let why = format!("a {name} of {kind} {code} has {length} octets, this one has {}", octets.len());
    let other = lengths.iter().find(|(_, length)| *length == octets.len());
    let instead = match other {
        Some((other, _)) => format!("write {kind} {other} if the {name} is whole"),
        None => format!("write all of its {} hexadecimal digits", 2 * length),
    };
    Err(Flaw::new(parts.len() - 1, why).with(instead))
}

/// RFC 4034, 4509, 5933, 6605, 9558, 9563; `0 0 0 00` of a CDS asks for
/// removal (RFC 8078 §4).
pub(super) fn ds(parts: &[&[u8]]) -> Result<(), Flaw> {
    length_of(parts, "digest", "type", &[(1, 20), (2, 32), (3, 32), (4, 48), (5, 32), (6, 32)])
}

/// RFC 4255, RFC 6594.
pub(super) fn sshfp(parts: &[&[u8]]) -> Result<(), Flaw> {
    length_of(parts, "fingerprint", "type", &[(1, 20), (2, 32)])
}

/// RFC 6698 §2.1.3.
pub(super) fn tlsa(parts: &[&[u8]]) -> Result<(), Flaw> {
    length_of(parts, "hash", "matching type", &[(1, 32), (2, 64)])
}

/// RFC 8976 §2.2.
pub(super) fn zonemd(parts: &[&[u8]]) -> Result<(), Flaw> {
    if parts.last().is_some_and(|digest| digest.len() < 12) {
        return Err(Flaw::new(parts.len() - 1, "a digest has at least 12 octets"));
    }
    length_of(parts, "digest", "hash algorithm", &[(1, 48), (2, 64)])
}

/// RFC 4034 §2.1.2.
pub(super) fn dnskey(parts: &[&[u8]]) -> Result<(), Flaw> {
    match parts[1] {
        [3] => Ok(()),
        _ => Err(Flaw::new(1, "the protocol of a key is 3").with("write 3")),
    }
}

/// RFC 7553 §4.4.
pub(super) fn uri(parts: &[&[u8]]) -> Result<(), Flaw> {
    match parts[2].is_empty() {
        true => Err(Flaw::new(2, "the target is empty").with("write for example `https://www.example.com/`")),
        false => Ok(()),
    }
}

/// RFC 8659 §4.1.
pub(super) fn caa(parts: &[&[u8]]) -> Result<(), Flaw> {
    let tag = &parts[1][1..];
    if tag.is_empty() || !tag.iter().all(u8::is_ascii_alphanumeric) {
        let why = "a tag consists of letters and digits";
        return Err(Flaw::new(1, why).with("write for example `issue`, `issuewild` or `iodef`"));
    }
    Ok(())
}

/// RFC 3403 §4.1: flags are letters and digits, and a substitution has its
/// delimiter three times (RFC 3402 §3.2).
pub(super) fn naptr(parts: &[&[u8]]) -> Result<(), Flaw> {
    if !parts[2][1..].iter().all(u8::is_ascii_alphanumeric) {
        return Err(Flaw::new(2, "flags are letters and digits").with("write for example `u`, `s` or `a`"));
    }
    let Some((delimiter, rest)) = parts[4][1..].split_first() else { return Ok(()) };
    let wrong = |why: &str| Err(Flaw::new(4, why).with("write for example `!^.*$!sip:info@example.com!`"));
    if delimiter.is_ascii_digit() || matches!(delimiter, b'\\' | b'i') {
        return wrong("a digit, `\\` and `i` cannot delimit a substitution");
    }
    let (mut after, mut found, mut escaped) = (rest, 0, false);
    while let Some((octet, rest)) = after.split_first() {
        after = rest;
        if octet == delimiter && !escaped {
            found += 1;
        }
        escaped = *octet == b'\\' && !escaped;
        if found == 2 {
            break;
        }
    }
    match (found, after) {
        (2, b"" | b"i") => Ok(()),
        _ => wrong(
            "a substitution has its first character three times, with the flag `i` or nothing behind it",
        ),
    }
}
