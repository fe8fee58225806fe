//! What one probe needs to know.

use std::net::IpAddr;
use std::sync::Arc;

use crate::model::Monitor;

/// One probe to be made: where, and what to test.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeTask {
    pub pool: Arc<str>,
    pub endpoint: Arc<str>,
    pub address: IpAddr,
    /// The monitor's, else the endpoint's, else the protocol's.
    pub port: u16,
    /// The endpoint's own Host, which goes before the monitor's.
    pub host: Option<Arc<str>>,
    pub monitor: Arc<Monitor>,
}
