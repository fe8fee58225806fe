//! What several test modules share.

pub mod certificates;
pub mod server;
