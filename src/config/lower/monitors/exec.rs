//! Monitors of type exec.

use crate::config::lower::Lower;
use crate::config::shape;
use crate::model::{Check, ExecCheck};

impl Lower<'_> {
    pub(super) fn exec_check(&self, shape: &shape::Monitor) -> Check {
        let _ = shape;
        Check::Exec(ExecCheck { command: Vec::new() })
    }
}
