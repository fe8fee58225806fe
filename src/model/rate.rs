//! How many replies of one kind a network may get in a second.

use std::time::Duration;

use ipnet::IpNet;

/// Limits of replies over UDP, in BIND's terms. A rate of 0 is no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Answers, for each name.
    pub responses_per_second: u32,
    pub nodata_per_second: u32,
    /// For each zone.
    pub nxdomains_per_second: u32,
    pub referrals_per_second: u32,
    /// All other errors together.
    pub errors_per_second: u32,
    /// Whoever has asked too much is forgiven after so long at most.
    pub window: Duration,
    /// One of so many replies that are too many is sent short instead of
    /// dropped; 0: none.
    pub slip: u32,
    /// Addresses that begin with the same so many bits are one network.
    pub ipv4_prefix_length: u8,
    pub ipv6_prefix_length: u8,
    /// Never limited.
    pub exempt: Vec<IpNet>,
    /// Count and tell, but send.
    pub log_only: bool,
}

impl Default for RateLimit {
    /// The usual values, under which nothing is limited yet.
    fn default() -> RateLimit {
        RateLimit {
            responses_per_second: 0,
            nodata_per_second: 0,
            nxdomains_per_second: 0,
            referrals_per_second: 0,
            errors_per_second: 0,
            window: Duration::from_secs(15),
            slip: 2,
            ipv4_prefix_length: 24,
            ipv6_prefix_length: 56,
            exempt: Vec::new(),
            log_only: false,
        }
    }
}
