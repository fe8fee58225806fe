//! Hale: an authoritative DNS server that answers only with what is healthy.

pub mod authority;
pub mod config;
pub mod health;
pub mod model;
pub mod moment;
pub mod publish;
pub mod wire;
