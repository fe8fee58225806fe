//! Monitors of type tcp.

use crate::config::lower::Lower;
use crate::config::shape;
use crate::model::{Check, TcpCheck};

impl Lower<'_> {
    pub(super) fn tcp_check(&self, shape: &shape::Monitor) -> Check {
        Check::Tcp(TcpCheck { port: self.port(&shape.port), send: None, expect: None })
    }
}
