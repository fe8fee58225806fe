//! Addresses of endpoints given by host name.
//!
//! Each family is asked for by itself and without a cache: one that fails must
//! not look like one that has no addresses. Which names, how often, and what a
//! failure means is the engine's business.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ProtocolConfig, ResolverConfig,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError, NoRecords};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::{Resolver as Hickory, ResolverBuilder, TokioResolver};

use crate::engine::Lookup;
use crate::model::why_unfit;

/// How long a query may take, in which it is sent several times, and how often
/// another one is made after an error.
const TIMEOUT: Duration = Duration::from_millis(4500);
const ATTEMPTS: usize = 1;

/// How long a lookup may take, whatever comes between.
const LOOKUP: Duration = Duration::from_secs(5);

/// So many addresses of one name are taken.
const MAX_ADDRESSES: usize = 64;

/// What came of a lookup.
#[derive(Debug)]
pub struct Found {
    pub lookup: Lookup,
    /// Why it failed, if it did.
    pub failure: Option<String>,
    /// Addresses that can't be endpoints, or are too many, and why.
    pub left_out: Option<String>,
}

/// Looks up host names.
#[derive(Clone)]
pub struct Resolver {
    ipv4: TokioResolver,
    ipv6: TokioResolver,
}

impl Resolver {
    /// One that asks these servers, or those of the system if there are none.
    pub fn new(servers: &[SocketAddr]) -> Result<Resolver, NetError> {
        let of = |strategy| -> Result<TokioResolver, NetError> {
            let mut builder = match servers {
                [] => Hickory::builder_tokio()?,
                servers => of_servers(servers),
            };
            let options = builder.options_mut();
            options.ip_strategy = strategy;
            options.cache_size = 0;
            options.timeout = TIMEOUT;
            options.attempts = ATTEMPTS;
            builder.build()
        };
        Ok(Resolver { ipv4: of(LookupIpStrategy::Ipv4Only)?, ipv6: of(LookupIpStrategy::Ipv6Only)? })
    }

    /// The addresses of `hostname`, of both families together.
    pub async fn lookup(&self, hostname: &str) -> Found {
        let absolute = format!("{hostname}.");
        let both = async { tokio::join!(family(&self.ipv4, &absolute), family(&self.ipv6, &absolute)) };
        match tokio::time::timeout(LOOKUP, both).await {
            Ok((ipv4, ipv6)) => sift(together(ipv4, ipv6)),
            Err(_) => sift(Err(NO_ANSWER.to_owned())),
        }
    }
}

const NO_ANSWER: &str = "no answer in time";

/// What is found, or why nothing is known.
type Looked = Result<Lookup, String>;

/// Leaves out what can't be an endpoint, as it is refused where it is written.
fn sift(looked: Looked) -> Found {
    let failed = |why, left_out| Found { lookup: Lookup::Failed, failure: Some(why), left_out };
    let (mut addresses, ttl) = match looked {
        Err(why) => return failed(why, None),
        Ok(Lookup::Found { addresses, ttl }) => (addresses, ttl),
        Ok(lookup) => return Found { lookup, failure: None, left_out: None },
    };
    addresses.sort();
    addresses.dedup();
    let mut left_out: Vec<String> = Vec::new();
    addresses.retain(|address| match why_unfit(*address) {
        None => true,
        Some(why) => {
            left_out.push(format!("{address} ({why})"));
            false
        }
    });
    if left_out.len() > MAX_ADDRESSES {
        let more = left_out.split_off(MAX_ADDRESSES).len();
        left_out.push(format!("{more} like them"));
    }
    if addresses.len() > MAX_ADDRESSES {
        left_out.push(format!("all but the lowest {MAX_ADDRESSES} of {}", addresses.len()));
        addresses.truncate(MAX_ADDRESSES);
    }
    let left_out = (!left_out.is_empty()).then(|| left_out.join(", "));
    match addresses.is_empty() {
        true => failed("none of its addresses can be an endpoint".to_owned(), left_out),
        false => Found { lookup: Lookup::Found { addresses, ttl }, failure: None, left_out },
    }
}

/// A failure in the words of people who look after resolvers.
fn why(error: &NetError) -> String {
    match error {
        NetError::Timeout => NO_ANSWER.to_owned(),
        NetError::NoConnections => "no server can be reached".to_owned(),
        NetError::Dns(DnsError::ResponseCode(code)) => of_code(*code),
        NetError::Dns(DnsError::NoRecordsFound(none)) => of_code(none.response_code),
        other => other.to_string(),
    }
}

fn of_code(code: ResponseCode) -> String {
    match code {
        ResponseCode::ServFail => "SERVFAIL".to_owned(),
        ResponseCode::Refused => "REFUSED".to_owned(),
        other => other.to_string(),
    }
}

fn of_servers(servers: &[SocketAddr]) -> ResolverBuilder<TokioRuntimeProvider> {
    let server = |address: &SocketAddr| {
        let connection = |protocol| {
            let mut connection = ConnectionConfig::new(protocol);
            connection.port = address.port();
            connection
        };
        let connections = vec![connection(ProtocolConfig::Udp), connection(ProtocolConfig::Tcp)];
        NameServerConfig::new(address.ip(), true, connections)
    };
    let config = ResolverConfig::from_parts(None, Vec::new(), servers.iter().map(server).collect());
    Hickory::builder_with_config(config, TokioRuntimeProvider::default())
}

/// What was said of one family.
#[derive(Clone, Debug, PartialEq)]
enum Said {
    Addresses(Vec<IpAddr>, Duration),
    /// There are none: an SOA, or NXDOMAIN, vouches for it (RFC 2308 §2).
    None,
    /// There were none in the answer, as where a chain of aliases goes round, or
    /// records belong to another name.
    NoneFound,
    Failed(String),
}

async fn family(resolver: &TokioResolver, hostname: &str) -> Said {
    match resolver.lookup_ip(hostname).await {
        Ok(found) => {
            let addresses: Vec<IpAddr> = found.iter().collect();
            let ttl = found.valid_until().saturating_duration_since(Instant::now());
            if addresses.is_empty() { Said::NoneFound } else { Said::Addresses(addresses, ttl) }
        }
        Err(NetError::Dns(DnsError::NoRecordsFound(NoRecords { response_code, soa, .. }))) => {
            match response_code {
                ResponseCode::NXDomain => Said::None,
                ResponseCode::NoError if soa.is_some() => Said::None,
                ResponseCode::NoError => Said::NoneFound,
                other => Said::Failed(of_code(other)),
            }
        }
        Err(error) => Said::Failed(why(&error)),
    }
}

/// What two families make: a failure of one is a failure, for its addresses
/// would be missed. Many resolvers leave out the SOA where the other family has
/// addresses, but where neither has any somebody is to vouch for that.
fn together(one: Said, other: Said) -> Looked {
    use Said::{Addresses, Failed, None, NoneFound};
    match (one, other) {
        (Failed(why), _) | (_, Failed(why)) => Err(why),
        (Addresses(addresses, ttl), Addresses(more, other)) => {
            Ok(Lookup::Found { addresses: [addresses, more].concat(), ttl: ttl.min(other) })
        }
        (Addresses(addresses, ttl), None | NoneFound) | (None | NoneFound, Addresses(addresses, ttl)) => {
            Ok(Lookup::Found { addresses, ttl })
        }
        (None, None | NoneFound) | (NoneFound, None) => Ok(Lookup::NoSuchName),
        (NoneFound, NoneFound) => Err("an answer without addresses, and without an SOA".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_that_fails_is_no_family_without_addresses() {
        use Said::{Addresses, None, NoneFound};
        let of = |last: &[u8]| last.iter().map(|&last| [192, 0, 2, last].into()).collect::<Vec<IpAddr>>();
        let some = |last: u8, ttl| Addresses(of(&[last]), Duration::from_secs(ttl));
        let found =
            |last: &[u8], ttl| Ok(Lookup::Found { addresses: of(last), ttl: Duration::from_secs(ttl) });
        let failed = || Said::Failed("SERVFAIL".to_owned());
        let unvouched = || Err("an answer without addresses, and without an SOA".to_owned());
        for (one, other, expected) in [
            (some(1, 60), None, found(&[1], 60)),
            (some(1, 60), NoneFound, found(&[1], 60)),
            (some(1, 60), some(2, 5), found(&[1, 2], 5)),
            (None, None, Ok(Lookup::NoSuchName)),
            (None, NoneFound, Ok(Lookup::NoSuchName)),
            (NoneFound, NoneFound, unvouched()),
            (some(1, 60), failed(), Err("SERVFAIL".to_owned())),
            (None, failed(), Err("SERVFAIL".to_owned())),
        ] {
            assert_eq!(together(one.clone(), other.clone()), expected, "{one:?} {other:?}");
            let turned = together(other.clone(), one.clone()).map(sorted);
            assert_eq!(turned, expected, "{other:?} {one:?}");
        }
    }

    fn sorted(mut lookup: Lookup) -> Lookup {
        if let Lookup::Found { addresses, .. } = &mut lookup {
            addresses.sort();
        }
        lookup
    }

    /// A server that says what `reply` makes of a query, after a while.
    async fn server(wait: Duration, reply: fn(&mut [u8])) -> SocketAddr {
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let socket = std::sync::Arc::new(socket);
            let mut octets = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut octets).await {
                let (socket, mut octets) = (std::sync::Arc::clone(&socket), octets[..length].to_vec());
                tokio::spawn(async move {
                    tokio::time::sleep(wait).await;
                    octets[2] |= 0x80; // a response
                    reply(&mut octets);
                    socket.send_to(&octets, from).await
                });
            }
        });
        address
    }

    #[tokio::test]
    async fn why_a_lookup_failed_is_told_and_a_slow_server_is_waited_for() {
        let now = Duration::ZERO;
        for (wait, reply, failure) in [
            (now, (|octets| octets[3] |= 2) as fn(&mut [u8]), Some("SERVFAIL")),
            (now, |octets| octets[3] |= 5, Some("REFUSED")),
            (Duration::from_secs(3), |octets| octets[3] |= 3, None),
            (Duration::from_secs(60), |_| {}, Some(NO_ANSWER)),
        ] {
            let resolver = Resolver::new(&[server(wait, reply).await]).unwrap();
            let began = Instant::now();
            let found = resolver.lookup("web.example.net").await;
            assert_eq!(found.failure.as_deref(), failure);
            assert!(began.elapsed() < LOOKUP + Duration::from_secs(1));
        }
    }

    #[test]
    fn addresses_of_a_name_are_sifted_as_written_ones_are() {
        let of = |addresses: Vec<IpAddr>| sift(Ok(Lookup::Found { addresses, ttl: Duration::from_secs(60) }));
        let unfit = ["0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "240.0.0.1", "169.254.0.1"];
        for text in unfit.into_iter().chain(["fe80::1", "::ffff:192.0.2.1"]) {
            let address: IpAddr = text.parse().unwrap();
            let found = of(vec![address]);
            assert_eq!(found.lookup, Lookup::Failed, "{text}");
            assert!(found.failure.is_some() && found.left_out.unwrap().starts_with(&address.to_string()));
            let found = of(vec![address, [192, 0, 2, 1].into()]);
            let ttl = Duration::from_secs(60);
            assert_eq!(found.lookup, Lookup::Found { addresses: vec![[192, 0, 2, 1].into()], ttl }, "{text}");
        }
        let many = of((0..=255).rev().map(|last| [192, 0, 2, last].into()).collect());
        let Lookup::Found { addresses, .. } = many.lookup else { panic!("{:?}", many.lookup) };
        assert_eq!((addresses.len(), addresses[0]), (MAX_ADDRESSES, [192, 0, 2, 0].into()));
        assert_eq!(many.left_out.as_deref(), Some("all but the lowest 64 of 256"));
    }
}
