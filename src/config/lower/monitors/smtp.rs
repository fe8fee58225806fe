//! Monitors of type smtp.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustls::pki_types::ServerName;

use crate::config::lower::Lower;
use crate::config::place::Spot;
use crate::config::problem::ProblemKind;
use crate::config::reader::brief;
use crate::config::shape;
use crate::model::{Check, SmtpCheck, SmtpSession};

impl Lower<'_> {
    pub(super) fn smtp_check(&self, shape: &shape::Monitor) -> Check {
        Check::Smtp(SmtpCheck {
            port: self.port(&shape.port),
            hello: self.hello(shape),
            session: self.smtp_session(shape),
            tls: self.tls(shape),
        })
    }

    fn smtp_session(&self, shape: &shape::Monitor) -> SmtpSession {
        let tls = self.boolean(&shape.tls, false);
        let starttls = self.boolean(&shape.starttls, false);
        match (tls, starttls) {
            (false, false) => {
                self.without_tls(shape, "write `starttls: true` or `tls: true`");
                SmtpSession::Plain
            }
            (false, true) => SmtpSession::StartTls,
            (true, false) => SmtpSession::Tls,
            (true, true) => {
                if let (Some(tls), Some(starttls)) = (shape.tls.place(), shape.starttls.place()) {
                    self.gather.refuse_with(
                        Spot::Key(starttls),
                        ProblemKind::BothKeys { first: "tls".into(), second: "starttls".into() },
                        Some(
                            "keep `tls` where TLS comes first (port 465), `starttls` where it is asked for"
                                .into(),
                        ),
                        (Spot::Key(tls), "the other one is here"),
                    );
                }
                SmtpSession::Tls
            }
        }
    }

    fn hello(&self, shape: &shape::Monitor) -> String {
        let Some((text, place)) = self.text(&shape.hello) else { return String::new() };
        if !text.is_empty() && !is_hello(text) {
            let bare = text.parse::<IpAddr>().ok().map(|address| match address {
                IpAddr::V4(address) => format!("write `\"[{address}]\"`"),
                IpAddr::V6(address) => format!("write `\"[IPv6:{address}]\"`"),
            });
            let help = bare.unwrap_or_else(|| {
                "write the name that the probe calls itself, such as `probe.example.com`".into()
            });
            self.gather.refuse(Spot::Value(place), ProblemKind::NotHello { value: brief(text) }, Some(help));
        }
        text.into()
    }
}

/// A domain name or an address literal (RFC 5321 §4.1.2, §4.1.3).
fn is_hello(text: &str) -> bool {
    match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(literal) => match literal.strip_prefix("IPv6:") {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            None => literal.parse::<Ipv4Addr>().is_ok(),
        },
        None => matches!(ServerName::try_from(text), Ok(ServerName::DnsName(_))) && !text.ends_with('.'),
    }
}
