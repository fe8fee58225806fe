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

/// How long one query may take, and how often it is sent.
const TIMEOUT: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 2;

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
    pub async fn lookup(&self, hostname: &str) -> Lookup {
        let absolute = format!("{hostname}.");
        let (ipv4, ipv6) = tokio::join!(family(&self.ipv4, &absolute), family(&self.ipv6, &absolute));
        together(ipv4, ipv6)
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

async fn family(resolver: &TokioResolver, hostname: &str) -> Lookup {
    match resolver.lookup_ip(hostname).await {
        Ok(found) => {
            let addresses: Vec<IpAddr> = found.iter().collect();
            let ttl = found.valid_until().saturating_duration_since(Instant::now());
            match addresses.is_empty() {
                true => Lookup::NoSuchName,
                false => Lookup::Found { addresses, ttl },
            }
        }
        Err(NetError::Dns(DnsError::NoRecordsFound(NoRecords {
            response_code: ResponseCode::NXDomain | ResponseCode::NoError,
            ..
        }))) => Lookup::NoSuchName,
        Err(_) => Lookup::Failed,
    }
}

/// What two families make: a failure of one is a failure, for its addresses
/// would be missed.
fn together(one: Lookup, other: Lookup) -> Lookup {
    use Lookup::{Failed, Found, NoSuchName};
    match (one, other) {
        (Failed, _) | (_, Failed) => Failed,
        (NoSuchName, other) => other,
        (one, NoSuchName) => one,
        (Found { addresses, ttl }, Found { addresses: more, ttl: other }) => {
            Found { addresses: [addresses, more].concat(), ttl: ttl.min(other) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_that_fails_is_no_family_without_addresses() {
        let found = |last: u8, ttl| Lookup::Found {
            addresses: vec![[192, 0, 2, last].into()],
            ttl: Duration::from_secs(ttl),
        };
        let both = Lookup::Found {
            addresses: vec![[192, 0, 2, 1].into(), [192, 0, 2, 2].into()],
            ttl: Duration::from_secs(5),
        };
        for (one, other, expected) in [
            (found(1, 60), Lookup::NoSuchName, found(1, 60)),
            (Lookup::NoSuchName, found(1, 60), found(1, 60)),
            (found(1, 60), found(2, 5), both),
            (found(1, 60), Lookup::Failed, Lookup::Failed),
            (Lookup::NoSuchName, Lookup::NoSuchName, Lookup::NoSuchName),
        ] {
            assert_eq!(together(one, other), expected);
        }
    }
}
