//! The operator's way to a running server: a Unix socket in its state directory.
//!
//! ```text
//! hale drain eu/eu-1 ─► Client ─► control ─► Listener ─► Operator (the server's own)
//! ```
//!
//! One JSON object a line, in both directions; a connection may ask several
//! times. Owns the protocol, its limits and what is shown of the engine
//! (`view`). Who asks is who the kernel says is at the other end. A client
//! that stalls holds up nobody.
//!
//! Knows nothing of what a request does: that is the [`Operator`]'s business.

mod client;
mod listener;
pub mod view;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use client::{Client, ClientError};
pub use listener::Listener;

/// The longest line taken.
pub const MAX_LINE: usize = 64 << 10;

/// Something an operator wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Show everything, one pool, one endpoint, or one name with its pools.
    Status {
        #[serde(default)]
        of: Option<String>,
    },
    /// Say something over the verdicts, or take it back.
    Order {
        what: What,
        of: String,
        #[serde(default)]
        reason: String,
        #[serde(default)]
        for_ms: Option<u64>,
        /// Of `weight`: 0 to 1, in hundredths.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weight: Option<f64>,
    },
    /// Send a load balancer's traffic back to its first pools.
    Failback { load_balancer: String },
    /// An endpoint reports by itself.
    Report { of: String, up: bool },
    /// Somebody reports outcomes of real traffic.
    Traffic { of: String, ok: u32, failed: u32 },
    /// Make one probe of each kind now.
    Probe { of: String },
    /// Read the configuration again.
    Reload {
        #[serde(default)]
        force: bool,
    },
}

/// What is to hold of a pool or an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    Drain,
    Undrain,
    Enable,
    Disable,
    Healthy,
    Unhealthy,
    /// The weight stands in for the configured one.
    Weight,
    /// Neither healthy nor unhealthy by word, nor of another weight: as measured
    /// and configured.
    Measured,
}

/// What comes back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Status(Box<view::Status>),
    Done(Done),
    Probed(Vec<view::Probed>),
    Refused(Refusal),
}

/// What was done, and what follows from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Done {
    pub message: String,
    /// What else there is to know, a sentence each.
    pub notes: Vec<String>,
    /// When it ends by itself.
    pub until: Option<String>,
    /// When no client can have the address any more.
    pub drained_at: Option<String>,
    /// It is in force, but a restart now would not know of it, for this reason.
    #[serde(default)]
    pub not_saved: Option<String>,
}

/// Why nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// A stable code such as `unknown_pool`.
    pub kind: String,
    pub message: String,
}

impl Refusal {
    /// One for this cause.
    pub fn new(kind: &str, message: impl Into<String>) -> Refusal {
        Refusal { kind: kind.to_owned(), message: message.into() }
    }
}

/// Carries out requests.
pub trait Operator: Send + Sync + 'static {
    /// Does what `by` wants.
    fn carry_out(&self, request: Request, by: Arc<str>) -> impl Future<Output = Answer> + Send;
}

/// The longest anybody waits for an answer: as long as probes may take.
const PATIENCE: Duration = Duration::from_secs(400);
