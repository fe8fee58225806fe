//! Who is told of bad news, and of which.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Name;

/// A way for news to somebody.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    pub name: Arc<str>,
    pub receiver: Receiver,
    pub on: Subjects,
    /// Of endpoints and pools only these; none: all.
    pub pools: Option<Vec<Arc<str>>>,
    /// Of load balancers only these; none: all.
    pub load_balancers: Option<Vec<Name>>,
    /// Whether bad news is told, and good.
    pub unhealthy: bool,
    pub healthy: bool,
    /// What is over within this time is never told.
    pub delay: Duration,
    /// It is told again after so long, while it lasts.
    pub repeat: Option<Duration>,
}

impl Route {
    /// One with everything else as it is when a configuration says nothing.
    pub fn new(name: &str, receiver: Receiver) -> Route {
        Route {
            name: name.into(),
            receiver,
            on: Subjects { pool: true, load_balancer: true, ..Subjects::default() },
            pools: None,
            load_balancers: None,
            unhealthy: true,
            healthy: true,
            delay: Duration::ZERO,
            repeat: None,
        }
    }
}

/// What news may be about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subjects {
    pub endpoint: bool,
    pub pool: bool,
    pub load_balancer: bool,
    pub vantage: bool,
}

/// Where news goes, and in whose form.
#[derive(Clone, Debug, PartialEq)]
pub struct Receiver {
    pub form: Form,
    pub url: Url,
    /// Roots beside the built-in ones, as PEM.
    pub extra_roots: Option<Arc<[u8]>>,
}

/// In which form a receiver takes news.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// Cloudflare's generic webhook; the secret goes into its header.
    Webhook { secret: Option<Secret> },
    /// An incoming webhook of Slack.
    Slack,
    /// PagerDuty's Events API, version 2.
    PagerDuty { routing_key: Secret },
}

/// An address of HTTP.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    pub tls: bool,
    /// A name or an address, without brackets.
    pub host: Arc<str>,
    pub port: u16,
    /// Path and query.
    pub target: Arc<str>,
}

impl fmt::Debug for Url {
    /// As [`Url::place`]: what comes after it may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place())
    }
}

impl Url {
    /// Scheme, host and port: what may be shown.
    pub fn place(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    /// Host and port, the port only where it isn't the scheme's.
    pub fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.to_string(),
        };
        match (self.tls, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Takes it in.
    pub fn new(text: &str) -> Secret {
        Secret(text.into())
    }

    /// The text itself, for who sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_secret_is_not_shown() {
        let url = Url { tls: true, host: "::1".into(), port: 8443, target: "/T0/abc".into() };
        let form = Form::PagerDuty { routing_key: Secret::new("R0UT1NG") };
        let shown = format!("{:?}", Route::new("ops", Receiver { form, url, extra_roots: None }));
        assert!(shown.contains("https://[::1]:8443"), "{shown}");
        assert!(!shown.contains("abc") && !shown.contains("R0UT1NG"), "{shown}");
    }
}
