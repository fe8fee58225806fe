//! What one probe needs to know.

use std::net::IpAddr;
use std::sync::Arc;

use crate::model::{Monitor, Reach, Source, Vantage};

/// One probe to be made: where, and what to test.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeTask {
    pub pool: Arc<str>,
    pub endpoint: Arc<str>,
    pub address: IpAddr,
    /// The host name that the address was found under.
    pub hostname: Option<Arc<str>>,
    /// The monitor's, else the endpoint's, else the protocol's; 0 where there
    /// is none.
    pub port: u16,
    /// The endpoint's own Host, which goes before the monitor's.
    pub host: Option<Arc<str>>,
    pub monitor: Arc<Monitor>,
    pub vantage: Arc<Vantage>,
}

impl ProbeTask {
    /// Where the probe leaves from: as the monitor says, else the vantage.
    pub fn source(&self) -> Source {
        let own = self.monitor.reading.source;
        match &self.vantage.reach {
            Reach::Here { source, .. } => {
                Source { ipv4: own.ipv4.or(source.ipv4), ipv6: own.ipv6.or(source.ipv6) }
            }
            Reach::Remote => own,
        }
    }
}
