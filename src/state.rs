//! The state directory: what outlives a restart, and who may use it.
//!
//! ```text
//! Effect::Remember ─► Journal ─► a thread of its own ─► verdicts      the journal
//! Engine::memory   ─►    │                              verdicts.new  one being written anew
//!                        └─ what is lost is told once   lock          held while the server runs
//! ```
//!
//! Owns the directory's lock, the journal's format (`format`) and when it is
//! written, synced and written anew (`writer`). A file that cannot be read is
//! set aside and never keeps a server from starting; a disk that cannot be
//! written never keeps it from serving.
//!
//! Knows nothing of what the records mean: that is `health::Memory`'s business.

mod directory;
mod format;
mod writer;

pub use directory::{Directory, OpenError, candidates, default_path};
pub use format::{Contents, UnknownHead, head, line, read};
pub use writer::{Counts, Journal};

/// The control socket's name in the directory.
pub const SOCKET: &str = "control";

/// The journal's name in the directory.
pub const JOURNAL: &str = "verdicts";
