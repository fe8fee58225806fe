//! What several test modules share.

pub mod allocations;
pub mod ask;
pub mod certificates;
pub mod live;
pub mod programs;
pub mod scenario;
pub mod server;
pub mod world;
