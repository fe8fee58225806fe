//! Lookups of endpoints' host names, and what is told of them: when they begin
//! to fail, why, and when they succeed again.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::{info, warn};

use crate::engine::Lookup;
use crate::resolve::{Found, Resolver};

/// The resolver, and what was said of each name last.
#[derive(Default)]
pub struct Lookups {
    /// None: the system has no resolver that can be used.
    resolver: Option<Resolver>,
    told: Mutex<HashMap<Arc<str>, Told>>,
}

/// What was said of a name.
#[derive(Debug, Default, PartialEq)]
struct Told {
    failure: Option<String>,
    left_out: Option<String>,
}

impl Lookups {
    /// Those of these servers, or of the system's if there are none.
    pub fn new(servers: &[SocketAddr]) -> Lookups {
        let resolver = Resolver::new(servers)
            .inspect_err(|error| warn!("host names of endpoints can't be looked up: {error}"))
            .ok();
        Lookups { resolver, ..Lookups::default() }
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
        let now = Told { failure: found.failure.clone(), left_out: found.left_out.clone().or(kept) };
        match (&before.failure, &now.failure) {
            (before, Some(why)) if before.as_ref() != Some(why) => {
                warn!("the endpoint host name {hostname} can't be looked up: {why}");
            }
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
