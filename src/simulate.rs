//! The engine in virtual time: in worlds made from a seed, and in scenarios.
//!
//! ```text
//! seed ───► world: configuration, faults ─┐                                      ┌─► watch: what must hold
//!                                         ├─► drive: engine, probes in flight, time
//! script: what happens when ─► play ──────┘                                      └─► timeline ─► draw
//! ```
//!
//! [`drive`] is an engine without sockets and without a clock: time jumps to
//! what happens next. [`world`] throws at it what a network and its operators
//! do; [`watch`] looks at what must always hold, from the outcomes themselves
//! and not from what the engine made of them. After a calm phase every verdict
//! must be the truth.
//!
//! A [`script`] is a world as somebody tells it; [`play`] lives through it,
//! the [`timeline`] says what was so when, and [`draw`] shows it.

pub mod dice;
pub mod draw;
pub mod drive;
mod network;
pub mod play;
pub mod script;
pub mod timeline;
pub mod watch;
pub mod world;

pub use drive::{Drive, Nature};
pub use play::play;
pub use script::Script;
pub use timeline::Timeline;
pub use world::{Sabotage, Tally, run};
