//! Hale: an authoritative DNS server that answers only with what is healthy.

#![deny(unsafe_code)] // but for `os`, which says why

pub mod alerts;
pub mod app;
pub mod authority;
pub mod cli;
pub mod clock;
pub mod config;
pub mod control;
pub mod engine;
pub mod events;
pub mod health;
pub mod history;
pub mod master;
pub mod model;
pub mod moment;
pub mod notify;
pub mod os;
pub mod probe;
pub mod publish;
pub mod rdata;
pub mod resolve;
pub mod serve;
pub mod simulate;
pub mod state;
pub mod steering;
pub mod telemetry;
pub mod timing;
pub mod wire;
pub mod x509;
