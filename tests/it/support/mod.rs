//! What several test modules share.

pub mod certificates;
pub mod dns;
pub mod endpoint;
pub mod folder;
pub mod hale;
pub mod programs;
pub mod server;
