//! What the server tells of itself, as it is in force.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::config::{Cookies, ServiceSettings};
use crate::publish::{Publisher, Reader};
use crate::wire::{Secret, Secrets, Service};

/// The one place that changes it.
#[derive(Debug)]
pub struct Services {
    publisher: Mutex<Publisher<Service>>,
    in_force: Mutex<Service>,
    /// What cookies are made of unless secrets are given.
    own: Secret,
    keepalive: u16,
}

impl Services {
    /// Begins with what `settings` say. Cookies are made of `own`; connections
    /// may be idle for `idle`.
    pub fn new(settings: &ServiceSettings, own: Secret, idle: Duration) -> Services {
        let keepalive = u16::try_from(idle.as_millis() / 100).unwrap_or(u16::MAX);
        let first = service(settings, own, keepalive);
        let publisher = Mutex::new(Publisher::new(Arc::new(first.clone())));
        Services { publisher, in_force: Mutex::new(first), own, keepalive }
    }

    /// A reading end, for those who answer.
    pub fn reader(&self) -> Reader<Service> {
        self.publisher.lock().reader()
    }

    /// Puts other settings in force, if they are others.
    pub fn present(&self, settings: &ServiceSettings) {
        let next = service(settings, self.own, self.keepalive);
        let mut in_force = self.in_force.lock();
        if *in_force != next {
            self.publisher.lock().publish(Arc::new(next.clone()));
            *in_force = next;
        }
    }
}

fn service(settings: &ServiceSettings, own: Secret, keepalive: u16) -> Service {
    let ServiceSettings { nsid, version, identity, cookies } = settings.clone();
    let cookies = match cookies {
        Cookies::Off => None,
        Cookies::Own => Some(Secrets::Daily(own)),
        Cookies::Given(secrets) => Some(secrets),
    };
    Service { nsid, version, id: identity, cookies, keepalive }
}
