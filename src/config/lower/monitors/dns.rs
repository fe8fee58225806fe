//! Monitors of type dns.

use crate::config::lower::Lower;
use crate::config::shape;
use crate::model::{Check, DnsCheck, Name};

impl Lower<'_> {
    pub(super) fn dns_check(&self, shape: &shape::Monitor) -> Check {
        Check::Dns(DnsCheck {
            port: self.port(&shape.port),
            name: Name::root(),
            rtype: 1,
            recursion: false,
            tcp: false,
            rcodes: vec![0],
            data: Vec::new(),
        })
    }
}
