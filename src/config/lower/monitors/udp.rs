//! Monitors of type udp_icmp.

use crate::config::lower::Lower;
use crate::config::shape;
use crate::model::{Check, UdpCheck};

impl Lower<'_> {
    pub(super) fn udp_check(&self, shape: &shape::Monitor) -> Check {
        Check::Udp(UdpCheck { port: self.port(&shape.port), payload: Box::default() })
    }
}
