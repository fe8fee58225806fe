//! Monitors of type prometheus.

use crate::config::lower::Lower;
use crate::config::shape;
use crate::model::{Check, PrometheusCheck};

impl Lower<'_> {
    pub(super) fn prometheus_check(&self, shape: &shape::Monitor) -> Check {
        Check::Prometheus(PrometheusCheck {
            url: String::new(),
            tls: self.tls(shape),
            query: String::new(),
            at_least: None,
            at_most: None,
        })
    }
}
