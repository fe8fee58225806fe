mod config;
mod docs;
mod layers;
mod probe;
mod scenarios;
mod serve;
mod support;
mod wire;
