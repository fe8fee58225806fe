mod config;
mod layers;
mod probe;
mod serve;
mod support;
mod wire;
