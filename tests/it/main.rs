mod config;
mod docs;
mod layers;
mod probe;
mod serve;
mod support;
mod wire;
