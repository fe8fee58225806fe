//! What several test modules share.

pub mod allocations;
pub mod certificates;
pub mod server;
