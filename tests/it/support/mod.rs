//! What several test modules share.

pub mod allocations;
pub mod ask;
pub mod certificates;
pub mod dns;
pub mod endpoint;
pub mod folder;
pub mod hale;
pub mod http2;
pub mod live;
pub mod message;
pub mod namespace;
pub mod nsd;
pub mod ports;
pub mod programs;
pub mod scenario;
pub mod server;
pub mod world;
