//! What is answered for which name: compiled snapshots and look-ups in them.

/// Everything the query path reads: immutable, replaced as a whole.
#[derive(Debug, Default)]
pub struct Snapshot {}
