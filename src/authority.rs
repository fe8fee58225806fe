//! What is answered for which name: compiled snapshots and look-ups in them.
//!
//! ```text
//! model ─┐
//!        ├─► compile ─► Snapshot { names, serials, balancers, members } ─► find(name) ─► node
//! health ┘
//! ```
//!
//! `compile` does all that depends on configuration and health alone; the
//! query path only looks up and draws. Knows no message format beyond that of
//! names and records.

mod compile;
mod members;
mod names;

pub use crate::rdata::rtype;
pub use compile::{
    Balancer, BalancerState, BalancerStatus, Compiler, InUse, Prepared, Recompiled, Snapshot, Traffic,
};
pub use members::{Held, Members};
pub use names::{Found, Key, Names, Node, RECORD_HEAD, Rrset, ZoneInfo};
