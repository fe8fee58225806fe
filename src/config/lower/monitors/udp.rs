//! Monitors of type udp_icmp.

use crate::config::lower::Lower;
use crate::config::shape;
use crate::model::{Check, UdpCheck};

/// What a datagram holds that nobody has written; an empty one would be dropped by many.
const USUAL_PAYLOAD: &str = "hale\n";

/// Fits into one packet on every path.
const MAX_PAYLOAD: usize = 1232;

impl Lower<'_> {
    pub(super) fn udp_check(&self, shape: &shape::Monitor) -> Check {
        let payload = match self.text(&shape.send) {
            None => USUAL_PAYLOAD,
            Some((text, place)) if text.len() > MAX_PAYLOAD => {
                let range = format!("at most {MAX_PAYLOAD} octets fit into one datagram");
                self.out_of_range(place, text, range, None);
                USUAL_PAYLOAD
            }
            Some((text, _)) => text,
        };
        Check::Udp(UdpCheck { port: self.port(&shape.port), payload: payload.as_bytes().into() })
    }
}
