//! Server cookies (RFC 7873) in the form that all servers share (RFC 9018).
//!
//! ```text
//!  client cookie │ version 1 │ reserved │ time │ hash of all this and the client's address
//!       8        │     1     │    3     │  4   │  8
//! ```
//!
//! Nothing is kept of a client: who shows a cookie that we would have made at
//! the time it names gets what is sent to its address.

use std::fmt;
use std::hash::Hasher;
use std::net::IpAddr;

use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128, SipHasher24 as SipHasher128};

/// Octets of a client cookie.
pub const CLIENT: usize = 8;
/// Octets of our server cookies.
pub const SERVER: usize = 16;

/// A server cookie is good for so long, in seconds (RFC 9018 §4.3),
const LIFE: u32 = 3600;
/// and so far ahead of our clock.
const AHEAD: u32 = 300;
/// Every secret that is derived makes cookies for so long, in seconds.
const PERIOD: u32 = 86400;

/// 128 random bits.
pub type Secret = [u8; 16];

/// What server cookies are made with.
#[derive(Clone, PartialEq, Eq)]
pub enum Secrets {
    /// A new secret each day, made of this one: a cookie's time tells which one
    /// made it, so a change breaks no client.
    Daily(Secret),
    /// Secrets shared with other servers: the first makes cookies, all are good.
    Given(Vec<Secret>),
}

impl fmt::Debug for Secrets {
    /// Without the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Secrets::Daily(_) => "Daily(…)",
            Secrets::Given(_) => "Given(…)",
        })
    }
}

/// The COOKIE option of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    pub client: [u8; CLIENT],
    /// None: there was none, or one of a length that we never make.
    pub server: Option<[u8; SERVER]>,
}

impl Cookie {
    /// Reads the option's data; none if its length is wrong (RFC 7873 §5.2.2).
    pub fn read(data: &[u8]) -> Option<Cookie> {
        let (client, server) = data.split_first_chunk()?;
        match server.len() {
            0 | 8..=32 => Some(Cookie { client: *client, server: server.try_into().ok() }),
            _ => None,
        }
    }
}

impl Secrets {
    /// The server cookie for a client at `address`; `now` is Unix time.
    pub fn make(&self, client: [u8; CLIENT], address: IpAddr, now: u32) -> [u8; SERVER] {
        let mut cookie = [0; SERVER];
        cookie[0] = 1;
        cookie[4..8].copy_from_slice(&now.to_be_bytes());
        let secret = match self {
            Secrets::Daily(root) => of_period(root, now),
            Secrets::Given(secrets) => secrets.first().copied().unwrap_or_default(),
        };
        let hash = hash(&secret, client, &cookie, address);
        cookie[8..].copy_from_slice(&hash);
        cookie
    }

    /// Whether the cookie is one of ours, for this client and not too old.
    pub fn approve(&self, cookie: Cookie, address: IpAddr, now: u32) -> bool {
        let Some(server) = cookie.server else { return false };
        let [1, _, _, _, t1, t2, t3, t4, ..] = server else { return false };
        let made = u32::from_be_bytes([t1, t2, t3, t4]);
        let age = now.wrapping_sub(made); // serial number arithmetic (RFC 1982)
        if age > LIFE && age < AHEAD.wrapping_neg() {
            return false;
        }
        let good = |secret: &Secret| hash(secret, cookie.client, &server, address) == server[8..];
        match self {
            Secrets::Daily(root) => good(&of_period(root, made)),
            Secrets::Given(secrets) => secrets.iter().any(good),
        }
    }
}

/// The secret of the period in which `time` lies.
fn of_period(root: &Secret, time: u32) -> Secret {
    let mut hasher = SipHasher128::new_with_key(root);
    hasher.write(&(time / PERIOD).to_be_bytes());
    hasher.finish128().as_bytes()
}

/// The last eight octets of a server cookie (RFC 9018 §4.4).
fn hash(secret: &Secret, client: [u8; CLIENT], server: &[u8; SERVER], address: IpAddr) -> [u8; 8] {
    let mut input = [0; CLIENT + 8 + 16];
    input[..8].copy_from_slice(&client);
    input[8..16].copy_from_slice(&server[..8]);
    let length = match address {
        IpAddr::V4(address) => {
            input[16..20].copy_from_slice(&address.octets());
            20
        }
        IpAddr::V6(address) => {
            input[16..].copy_from_slice(&address.octets());
            32
        }
    };
    let mut hasher = SipHasher24::new_with_key(secret);
    hasher.write(&input[..length]);
    hasher.finish().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets<const N: usize>(hex: &str) -> [u8; N] {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        let octets: Vec<u8> = pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
        octets.try_into().unwrap()
    }

    /// RFC 9018, Appendix A.
    #[test]
    fn the_cookies_of_the_rfc_are_made_and_approved() {
        let secret = octets("e5e973e5a6b2a43f48e7dc849e37bfcf");
        let given = Secrets::Given(vec![secret]);
        let address: IpAddr = "198.51.100.100".parse().unwrap();
        let client = octets("2464c4abcf10c957");
        let first: [u8; 16] = octets("010000005cf79f111f8130c3eee29480");
        assert_eq!(given.make(client, address, 1_559_731_985), first);
        let cookie = Cookie { client, server: Some(first) };
        assert!(given.approve(cookie, address, 1_559_731_985));

        let other: IpAddr = "203.0.113.203".parse().unwrap();
        let client = octets("fc93fc62807ddb86");
        let second: [u8; 16] = octets("01abcdef5cf78f71a314227b6679ebf5");
        assert!(given.approve(Cookie { client, server: Some(second) }, other, 1_559_727_985));

        let new = Secrets::Given(vec![
            octets("445536bcd2513298075a5d379663c962"),
            octets("dd3bdf9344b678b185a6f5cb60fca715"),
        ]);
        let address: IpAddr = "2001:db8:220:1:59de:d0f4:8769:82b8".parse().unwrap();
        let client = octets("22681ab97d52c298");
        let third: [u8; 16] = octets("010000005cf7c57926556bd0934c72f8");
        assert!(new.approve(Cookie { client, server: Some(third) }, address, 1_559_741_961));
        let fourth: [u8; 16] = octets("010000005cf7c609a6bb79d16625507a");
        assert_eq!(new.make(client, address, 1_559_741_961), fourth);
    }

    #[test]
    fn a_cookie_is_good_for_an_hour_for_its_own_client_alone() {
        let secrets = Secrets::Daily([7; 16]);
        let (client, address) = ([1, 2, 3, 4, 5, 6, 7, 8], "192.0.2.1".parse().unwrap());
        let now = 1_800_000_000;
        let cookie = Cookie { client, server: Some(secrets.make(client, address, now)) };
        for (after, good) in [(-301_i64, false), (-300, true), (0, true), (3600, true), (3601, false)] {
            let then = (i64::from(now) + after) as u32;
            assert_eq!(secrets.approve(cookie, address, then), good, "{after}");
        }
        assert!(!secrets.approve(cookie, "192.0.2.2".parse().unwrap(), now));
        assert!(!secrets.approve(Cookie { client: [9; 8], ..cookie }, address, now));
        assert!(!Secrets::Daily([8; 16]).approve(cookie, address, now));
        assert!(!secrets.approve(Cookie { client, server: None }, address, now));
    }

    #[test]
    fn a_secret_of_yesterday_still_approves_and_time_may_go_round() {
        let secrets = Secrets::Daily([7; 16]);
        let (client, address) = ([0; 8], "2001:db8::1".parse().unwrap());
        for made in [PERIOD * 20_000 - 1, u32::MAX - 10] {
            let cookie = Cookie { client, server: Some(secrets.make(client, address, made)) };
            assert!(secrets.approve(cookie, address, made.wrapping_add(1800)), "{made}");
        }
        let [before, after] = [PERIOD * 20_000 - 1, PERIOD * 20_000];
        assert_ne!(of_period(&[7; 16], before), of_period(&[7; 16], after));
    }

    #[test]
    fn the_length_of_a_cookie_is_checked() {
        for (length, good) in [
            (0, false),
            (7, false),
            (8, true),
            (9, false),
            (15, false),
            (16, true),
            (24, true),
            (40, true),
            (41, false),
        ] {
            assert_eq!(Cookie::read(&vec![1; length]).is_some(), good, "{length}");
        }
    }
}
