//! Lookups of endpoints' host names, and what is told of them: when they begin
//! to fail, why, and when they succeed again. Operators see the same.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::{info, warn};

use crate::clock::Clock;
use crate::engine::Lookup;
use crate::moment::Moment;
use crate::resolve::{Found, Resolver};

/// The resolver, and what was said of each name last.
pub struct Lookups {
    /// None: the system has no resolver that can be used.
    resolver: Option<Resolver>,
    clock: Clock,
    since: Moment,
    told: Mutex<HashMap<Arc<str>, Told>>,
}

/// Why a name has no addresses, or no new ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// When that began.
    pub since: Moment,
    /// What the last lookup met; none: an answer, that there is no address.
    pub error: Option<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            Some(error) => write!(f, "its host name can't be looked up: {error}"),
            None => f.write_str("its host name has no address"),
        }
    }
}

/// What was said of a name.
#[derive(Debug, Default, PartialEq)]
struct Told {
    failure: Option<Failure>,
    left_out: Option<String>,
}

impl Lookups {
    /// Those of these servers, or of the system's if there are none.
    pub fn new(servers: &[SocketAddr], clock: Clock) -> Lookups {
        let resolver = Resolver::new(servers)
            .inspect_err(|error| warn!("host names of endpoints can't be looked up: {error}"))
            .ok();
        Lookups { resolver, clock, since: clock.now(), told: Mutex::default() }
    }

    /// Why the last lookup of a name found no addresses, if it didn't.
    pub fn failure(&self, hostname: &str) -> Option<Failure> {
        if self.resolver.is_none() {
            let error = Some("the system has no resolver that can be used".to_owned());
            return Some(Failure { since: self.since, error });
        }
        self.told.lock().get(hostname)?.failure.clone()
    }

    /// Looks a name up, and tells what is new about that.
    pub async fn look_up(&self, hostname: &Arc<str>) -> Lookup {
        let Some(resolver) = &self.resolver else { return Lookup::Failed };
        let found = resolver.lookup(hostname).await;
        self.tell(hostname, &found);
        found.lookup
    }

    fn tell(&self, hostname: &Arc<str>, found: &Found) {
        let mut told = self.told.lock();
        let before = told.remove(hostname).unwrap_or_default();
        // a failure shows no addresses: what was said of them still holds
        let kept = before.left_out.clone().filter(|_| found.failure.is_some());
        let failed = found.failure.is_some() || found.lookup == Lookup::NoSuchName;
        let failure = failed.then(|| Failure {
            since: before.failure.as_ref().map_or_else(|| self.clock.now(), |failure| failure.since),
            error: found.failure.clone(),
        });
        let now = Told { failure, left_out: found.left_out.clone().or(kept) };
        match (&before.failure, &now.failure) {
            (before, Some(now)) if before.as_ref() != Some(now) => match &now.error {
                Some(why) => warn!("the endpoint host name {hostname} can't be looked up: {why}"),
                None => warn!("the endpoint host name {hostname} has no address"),
            },
            (Some(_), None) => info!("the endpoint host name {hostname} is looked up again"),
            _ => {}
        }
        if let Some(left_out) = &now.left_out
            && now.left_out != before.left_out
        {
            warn!("of the addresses of the endpoint host name {hostname} are left out: {left_out}");
        }
        if now != Told::default() {
            told.insert(Arc::clone(hostname), now);
        }
    }
}
