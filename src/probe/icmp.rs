//! ICMP echo requests, and the replies to them (RFC 792, RFC 4443).
//!
//! Datagram sockets of ICMP need no privilege where the kernel's
//! `ping_group_range` has our group; elsewhere it takes a raw socket, which
//! sees the replies to everybody else, too. An identifier, a sequence number
//! and a token, all random, tell ours apart.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::{Protocol, Type};

use super::datagram::{Datagrams, unreachable, unsent};
use super::{Failure, Phase, Progress};
use crate::health::{ProbeTask, Reason};

/// Sends an echo request and awaits its reply.
pub(super) async fn probe(task: &ProbeTask, progress: &mut Progress) -> Result<(), Failure> {
    progress.phase = Phase::Response;
    let echo = Echo::new(task.address);
    let (socket, kind) = open(task)?;
    socket.send(&echo.request()).await.map_err(|error| unsent(&error))?;
    let mut room = [0; 1024];
    loop {
        match socket.receive(&mut room).await {
            Ok(length) if echo.is_reply(&room[..length], kind) => {
                progress.hear(&[]);
                return Ok(());
            }
            Ok(_) => {}
            Err(error) => {
                let length = socket.quoted(&mut room);
                // A raw socket hears of every echo to this address.
                if kind == Kind::Datagram || echo.is_quoted(&room[..length]) {
                    return Err(unreachable(&error));
                }
            }
        }
    }
}

/// What the kernel does with the packets of a socket.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// It puts in an identifier of its own and hands over what matches that.
    Datagram,
    /// Nothing; over IPv4 the IP header comes along.
    Raw,
}

fn open(task: &ProbeTask) -> Result<(Datagrams, Kind), Failure> {
    let to = SocketAddr::new(task.address, 0);
    let protocol = match task.address {
        IpAddr::V4(_) => Protocol::ICMPV4,
        IpAddr::V6(_) => Protocol::ICMPV6,
    };
    let connect = |kind| Datagrams::connect(to, task.source(), kind, protocol);
    let barred = |error: &io::Error| {
        matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::EPROTONOSUPPORT))
    };
    let opened = match connect(Type::DGRAM) {
        Err(error) if barred(&error) => connect(Type::RAW).map(|socket| (socket, Kind::Raw)),
        tried => tried.map(|socket| (socket, Kind::Datagram)),
    };
    opened.map_err(|error| match barred(&error) {
        true => Failure::NotTested(Reason::OtherFailure, "not_permitted"),
        false => unsent(&error),
    })
}

/// One echo request.
struct Echo {
    /// The types of request and reply.
    request: u8,
    reply: u8,
    /// The identifier, then the sequence number.
    mark: [u8; 4],
    token: [u8; 8],
}

impl Echo {
    fn new(to: IpAddr) -> Echo {
        let random = || RandomState::new().build_hasher().finish();
        let (request, reply) = match to {
            IpAddr::V4(_) => (8, 0),
            IpAddr::V6(_) => (128, 129),
        };
        Echo { request, reply, mark: (random() as u32).to_ne_bytes(), token: random().to_ne_bytes() }
    }

    /// Type, code, checksum, identifier, sequence number, token.
    fn request(&self) -> [u8; 16] {
        let mut packet = [0; 16];
        packet[0] = self.request;
        packet[4..8].copy_from_slice(&self.mark);
        packet[8..].copy_from_slice(&self.token);
        let sum = checksum(&packet); // ICMPv6 has another one, which the kernel puts in
        packet[2..4].copy_from_slice(&sum);
        packet
    }

    /// Whether a received packet answers this request.
    fn is_reply(&self, packet: &[u8], kind: Kind) -> bool {
        let header = match (kind, self.reply, packet) {
            (Kind::Raw, 0, [first, ..]) => usize::from(first & 0x0f) * 4,
            _ => 0,
        };
        let Some([icmp_type, 0, _, _, identifier @ .., _, _]) = packet.get(header..header + 8) else {
            return false;
        };
        let known = kind == Kind::Datagram || *identifier == self.mark[..2];
        *icmp_type == self.reply
            && known
            && packet[header + 6..header + 8] == self.mark[2..]
            && packet[header + 8..] == self.token
    }

    /// Whether an ICMP error quotes this request; routers quote as few as the
    /// first 8 octets.
    fn is_quoted(&self, quoted: &[u8]) -> bool {
        quoted.first() == Some(&self.request) && quoted.get(4..8) == Some(&self.mark[..])
    }
}

/// RFC 1071, of an even number of octets.
fn checksum(packet: &[u8]) -> [u8; 2] {
    let words = packet.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    (!(folded + (folded >> 16)) as u16).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo(to: &str) -> (Echo, Vec<u8>) {
        let echo =
            Echo { mark: [1, 2, 3, 4], token: *b"01234567", ..Echo::new(to.parse().expect("an address")) };
        let mut reply = echo.request().to_vec();
        reply[0] = echo.reply;
        (echo, reply)
    }

    fn with(packet: &[u8], at: usize, octet: u8) -> Vec<u8> {
        let mut packet = packet.to_vec();
        packet[at] = octet;
        packet
    }

    #[test]
    fn only_the_reply_to_this_request_counts() {
        for to in ["192.0.2.1", "2001:db8::1"] {
            let (echo, reply) = echo(to);
            for (at, octet, datagram, raw, what) in [
                (8, b'0', true, true, "itself"),
                (0, echo.request, false, false, "our own request, over loopback"),
                (0, 3, false, false, "another type"),
                (1, 1, false, false, "another code"),
                (4, 9, true, false, "another identifier, which the kernel may have put in"),
                (7, 9, false, false, "another sequence number"),
                (15, 9, false, false, "another token"),
            ] {
                let packet = with(&reply, at, octet);
                assert_eq!(echo.is_reply(&packet, Kind::Datagram), datagram, "{to}: {what}");
                let packet = match to.contains(':') {
                    true => packet,
                    false => [&[0x46; 24][..], &packet].concat(), // a header of six words
                };
                assert_eq!(echo.is_reply(&packet, Kind::Raw), raw, "{to}, raw: {what}");
                for length in 0..packet.len() {
                    assert!(!echo.is_reply(&packet[..length], Kind::Raw), "{to}: {length} octets of {what}");
                }
            }
        }
    }

    #[test]
    fn an_error_is_ours_when_it_quotes_our_request() {
        let (echo, reply) = echo("192.0.2.1");
        let request = echo.request();
        assert!(echo.is_quoted(&request) && echo.is_quoted(&request[..8]));
        assert!(!echo.is_quoted(&request[..7]) && !echo.is_quoted(&reply) && !echo.is_quoted(&[]));
        assert!(!echo.is_quoted(&with(&request, 7, 9)));
    }

    #[test]
    fn the_checksum_makes_the_sum_of_all_words_minus_zero() {
        for octet in [0, 1, 0x7f, 0xff] {
            let mut packet = [octet; 16];
            packet[2..4].fill(0);
            let sum = checksum(&packet);
            packet[2..4].copy_from_slice(&sum);
            assert_eq!(checksum(&packet), [0, 0], "{octet}");
        }
        // type 8, identifier 1, sequence number 2
        assert_eq!(checksum(&[8, 0, 0, 0, 0, 1, 0, 2]), [0xf7, 0xfc]);
    }
}
