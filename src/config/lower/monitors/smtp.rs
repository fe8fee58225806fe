//! Monitors of type smtp.

use crate::config::lower::Lower;
use crate::config::shape;
use crate::model::{Check, SmtpCheck, SmtpSession};

impl Lower<'_> {
    pub(super) fn smtp_check(&self, shape: &shape::Monitor) -> Check {
        Check::Smtp(SmtpCheck {
            port: self.port(&shape.port),
            hello: "localhost".into(),
            session: SmtpSession::Plain,
            tls: self.tls(shape),
        })
    }
}
