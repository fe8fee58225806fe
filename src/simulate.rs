//! The engine in virtual time, in worlds made from a seed.
//!
//! ```text
//! seed ─► world: configuration, faults ─► drive: engine, probes in flight, time ─► watch: what must hold
//! ```
//!
//! [`drive`] is an engine without sockets and without a clock: time jumps to
//! what happens next. [`world`] throws at it what a network and its operators
//! do; [`watch`] looks at what must always hold, from the outcomes themselves
//! and not from what the engine made of them. After a calm phase every verdict
//! must be the truth.

pub mod dice;
pub mod drive;
pub mod watch;
pub mod world;

pub use drive::{Drive, Nature};
pub use world::{Sabotage, Tally, run};
