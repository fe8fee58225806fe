mod config;
mod layers;
mod probe;
mod running;
mod serve;
mod support;
