//! PROXY protocol, version 2: what a load balancer says of its client, in
//! octets before the client's own.
//!
//! ```text
//! 12 octets  1        1                 2         length octets
//! signature  version, family,           length    source, destination,
//!            command  kind of socket              and what is skipped
//! ```
//!
//! Owns which headers are taken. Knows neither who may send one, nor sockets:
//! the same function serves datagrams, which have all of it or are no good,
//! and streams, where it is asked again when more has come.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The beginning of every header; no DNS message begins so, over any transport.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// The beginning of version 1, which is a line of text.
const TEXT: [u8; 6] = *b"PROXY ";
/// Octets before the addresses.
const FIXED: usize = 16;
/// The longest header taken. Addresses and all extensions of today fit many
/// times over, and nobody can make us wait for 64 KiB of nothing.
pub const LONGEST: usize = 4096;

/// What the octets so far amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The header isn't complete: at least so many octets are wanted, counted
    /// from its beginning.
    Incomplete { wanted: usize },
    /// The header takes so many octets; the client's own follow.
    Header { length: usize, source: Source },
}

/// For whom the proxy speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// For this client. An IPv4 address is never in its form mapped into IPv6.
    Client(SocketAddr),
    /// For itself, as its health checks do: the command LOCAL, or no address.
    Proxy,
}

/// Why it is no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It begins differently.
    Signature,
    /// It is the text of version 1.
    Text,
    Version(u8),
    Command(u8),
    /// An address family other than IPv4 and IPv6.
    Family(u8),
    /// Neither a stream nor datagrams.
    Kind(u8),
    /// Too short for the addresses it is said to hold.
    TooShort {
        length: usize,
        least: usize,
    },
    TooLong {
        length: usize,
    },
}

/// Reads the header that stands at the beginning of `octets`. What is wrong is
/// said as soon as it can be known.
pub fn read(octets: &[u8]) -> Result<Read, Wrong> {
    let begun = octets.len().min(SIGNATURE.len());
    if octets[..begun] != SIGNATURE[..begun] {
        return match octets.len() < TEXT.len() && TEXT.starts_with(octets) {
            true => Ok(Read::Incomplete { wanted: TEXT.len() }),
            false if octets.starts_with(&TEXT) => Err(Wrong::Text),
            false => Err(Wrong::Signature),
        };
    }
    let Some(fixed) = octets.first_chunk::<FIXED>() else {
        return Ok(Read::Incomplete { wanted: FIXED });
    };
    let [version, command] = halves(fixed[12]);
    let [family, kind] = halves(fixed[13]);
    let length = FIXED + usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if version != 2 {
        return Err(Wrong::Version(version));
    }
    if length > LONGEST {
        return Err(Wrong::TooLong { length });
    }
    // LOCAL goes without addresses, whatever is said of them
    let least = match (command, family, kind) {
        (0, ..) => FIXED,
        (2.., ..) => return Err(Wrong::Command(command)),
        (1, _, 3..) => return Err(Wrong::Kind(kind)),
        (1, 0, _) => FIXED,
        (1, 1, _) => FIXED + 2 * (4 + 2),
        (1, 2, _) => FIXED + 2 * (16 + 2),
        (1, ..) => return Err(Wrong::Family(family)),
    };
    if length < least {
        return Err(Wrong::TooShort { length, least });
    }
    let Some(addresses) = octets.get(FIXED..length) else {
        return Ok(Read::Incomplete { wanted: length });
    };
    let source = match (command, family) {
        (1, 1) => ipv4(addresses),
        (1, 2) => ipv6(addresses),
        _ => None,
    };
    Ok(Read::Header { length, source: source.map_or(Source::Proxy, Source::Client) })
}

fn halves(octet: u8) -> [u8; 2] {
    [octet >> 4, octet & 15]
}

/// Source, destination, and their ports.
fn ipv4(addresses: &[u8]) -> Option<SocketAddr> {
    let source: [u8; 4] = *addresses.first_chunk()?;
    Some(SocketAddr::new(Ipv4Addr::from(source).into(), port(&addresses[8..])?))
}

fn ipv6(addresses: &[u8]) -> Option<SocketAddr> {
    let source: [u8; 16] = *addresses.first_chunk()?;
    let source: IpAddr = Ipv6Addr::from(source).to_canonical();
    Some(SocketAddr::new(source, port(&addresses[32..])?))
}

fn port(octets: &[u8]) -> Option<u16> {
    octets.first_chunk().map(|port| u16::from_be_bytes(*port))
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Signature => f.write_str("it begins without a PROXY protocol header"),
            Wrong::Text => f.write_str(
                "it begins with a PROXY protocol header of version 1, which is text; \
                 let the proxy send version 2",
            ),
            Wrong::Version(version) => {
                write!(f, "its PROXY protocol header has version {version}, where 2 is understood")
            }
            Wrong::Command(command) => {
                write!(f, "its PROXY protocol header has the unknown command {command}")
            }
            Wrong::Family(3) => f.write_str("its PROXY protocol header tells of a client at a Unix socket"),
            Wrong::Family(family) => {
                write!(f, "its PROXY protocol header has the unknown address family {family}")
            }
            Wrong::Kind(kind) => write!(f, "its PROXY protocol header has the unknown kind of socket {kind}"),
            Wrong::TooShort { length, least } => {
                write!(f, "its PROXY protocol header has {length} octets, where the addresses want {least}")
            }
            Wrong::TooLong { length } => {
                write!(f, "its PROXY protocol header has {length} octets, more than {LONGEST}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::chance::Chance;

    /// A header with this version and command, family and kind, and what follows the length.
    fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).expect("a length of 16 bits");
        [&SIGNATURE[..], &[command, family], &length.to_be_bytes(), rest].concat()
    }

    const V4: [u8; 12] = [192, 0, 2, 7, 203, 0, 113, 1, 0x12, 0x34, 0, 53];

    fn v6(source: &str) -> Vec<u8> {
        let source: Ipv6Addr = source.parse().expect("an address");
        [&source.octets()[..], &Ipv6Addr::LOCALHOST.octets(), &[0x12, 0x34, 0, 53]].concat()
    }

    #[test]
    fn the_source_is_the_clients_and_what_follows_the_addresses_is_skipped() {
        let extended = [&V4[..], &[0x04, 0, 2, 7, 7]].concat();
        for (octets, source, why) in [
            (header(0x21, 0x11, &V4), Some("192.0.2.7:4660"), "IPv4 over a stream"),
            (header(0x21, 0x12, &V4), Some("192.0.2.7:4660"), "IPv4 in a datagram"),
            (header(0x21, 0x10, &V4), Some("192.0.2.7:4660"), "IPv4 over whatever"),
            (header(0x21, 0x12, &extended), Some("192.0.2.7:4660"), "with an extension"),
            (header(0x21, 0x22, &v6("2001:db8::7")), Some("[2001:db8::7]:4660"), "IPv6"),
            (header(0x21, 0x22, &v6("::ffff:192.0.2.7")), Some("192.0.2.7:4660"), "IPv4 mapped into IPv6"),
            (header(0x21, 0x00, &[]), None, "no address at all"),
            (header(0x21, 0x00, &extended), None, "whatever follows it"),
            (header(0x20, 0x00, &[]), None, "the proxy's own"),
            (header(0x20, 0x12, &V4), None, "the proxy's own, with addresses to be ignored"),
            (header(0x20, 0xff, &[1]), None, "and with nonsense"),
        ] {
            let source = source.map_or(Source::Proxy, |source| Source::Client(source.parse().expect("one")));
            let whole = Ok(Read::Header { length: octets.len(), source });
            assert_eq!(read(&octets), whole, "{why}");
            assert_eq!(read(&[&octets[..], b"a query"].concat()), whole, "{why}, and a query after it");
        }
    }

    #[test]
    fn what_is_no_header_is_said_at_its_first_wrong_octet() {
        let long = header(0x21, 0x11, &[0; LONGEST - FIXED]);
        let one_more = header(0x21, 0x11, &[0; LONGEST - FIXED + 1]);
        assert!(read(&long).is_ok());
        for (octets, wrong) in [
            (&b"\0"[..], Wrong::Signature),
            (&b"\r\n\r\n\0\r\nQUIT\r"[..], Wrong::Signature),
            (&b"PROXY TCP4 192.0.2.7 203.0.113.1 4660 53\r\n"[..], Wrong::Text),
            (&b"PROXIES"[..], Wrong::Signature),
            (&header(0x11, 0x11, &V4), Wrong::Version(1)),
            (&header(0x31, 0x11, &V4), Wrong::Version(3)),
            (&header(0x22, 0x11, &V4), Wrong::Command(2)),
            (&header(0x21, 0x31, &[0; 216]), Wrong::Family(3)),
            (&header(0x21, 0x41, &V4), Wrong::Family(4)),
            (&header(0x21, 0x13, &V4), Wrong::Kind(3)),
            (&header(0x21, 0x12, &V4[..11]), Wrong::TooShort { length: 27, least: 28 }),
            (&header(0x21, 0x22, &V4), Wrong::TooShort { length: 28, least: 52 }),
            (&one_more[..FIXED], Wrong::TooLong { length: LONGEST + 1 }),
        ] {
            assert_eq!(read(octets), Err(wrong), "{octets:?}");
        }
    }

    #[test]
    fn a_header_that_comes_octet_by_octet_wants_more_until_it_is_whole() {
        let octets = header(0x21, 0x12, &[&V4[..], &[0x04, 0, 1, 0]].concat());
        for end in 0..octets.len() {
            let wanted = if end < FIXED { FIXED } else { octets.len() };
            assert_eq!(read(&octets[..end]), Ok(Read::Incomplete { wanted }), "{end} octets");
        }
        for end in 1..TEXT.len() {
            assert_eq!(
                read(&TEXT[..end]),
                Ok(Read::Incomplete { wanted: TEXT.len() }),
                "version 1 in the making"
            );
        }
    }

    #[test]
    fn whatever_comes_is_answered_within_its_bounds() {
        let mut chance = Chance::new();
        for _ in 0..200_000 {
            let mut octets = header(0x21, 0x11, &V4);
            octets.truncate(chance.next() as usize % (octets.len() + 1));
            for _ in 0..chance.next() % 4 {
                let at = chance.next() as usize % octets.len().max(1);
                if let Some(octet) = octets.get_mut(at) {
                    *octet = chance.next() as u8;
                }
            }
            match read(&octets) {
                Ok(Read::Header { length, .. }) => {
                    assert!((FIXED..=octets.len()).contains(&length), "{octets:?}")
                }
                Ok(Read::Incomplete { wanted }) => {
                    assert!(octets.len() < wanted && wanted <= LONGEST, "{octets:?}");
                }
                Err(wrong) => assert!(!wrong.to_string().is_empty()),
            }
        }
    }
}
