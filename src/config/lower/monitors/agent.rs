//! Monitors of type agent.

use crate::config::lower::Lower;
use crate::config::shape;
use crate::model::{AgentCheck, Check};

impl Lower<'_> {
    pub(super) fn agent_check(&self, shape: &shape::Monitor) -> Check {
        Check::Agent(AgentCheck { port: self.port(&shape.port), send: self.octets(&shape.send) })
    }
}
