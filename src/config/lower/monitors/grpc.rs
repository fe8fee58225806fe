//! Monitors of type grpc.

use crate::config::lower::Lower;
use crate::config::shape;
use crate::model::{Check, GrpcCheck};

impl Lower<'_> {
    pub(super) fn grpc_check(&self, shape: &shape::Monitor) -> Check {
        Check::Grpc(GrpcCheck {
            port: self.port(&shape.port),
            tls: None,
            service: String::new(),
            authority: None,
        })
    }
}
