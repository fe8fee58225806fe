//! Which addresses can be endpoints.

use std::net::IpAddr;

/// Why no packet to this address reaches one endpoint; none if one may.
pub fn why_unfit(address: IpAddr) -> Option<&'static str> {
    const LINK_LOCAL: &str = "a link-local address has meaning on one link only";
    const MULTICAST: &str = "it is a multicast address";
    match address {
        IpAddr::V4(v4) => match v4.octets() {
            [0, ..] => Some("0.0.0.0/8 means \"this network\""),
            [169, 254, ..] => Some(LINK_LOCAL),
            [224..=239, ..] => Some(MULTICAST),
            [255, 255, 255, 255] => Some("it is the broadcast address"),
            [240..=255, ..] => Some("240.0.0.0/4 is reserved"),
            _ => None,
        },
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Some("it is an IPv4 address mapped into IPv6"),
        IpAddr::V6(v6) if v6.is_unspecified() => Some("it is the unspecified address"),
        IpAddr::V6(v6) if v6.is_multicast() => Some(MULTICAST),
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Some(LINK_LOCAL),
        IpAddr::V6(_) => None,
    }
}
