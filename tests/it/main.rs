mod config;
mod layers;
mod probe;
mod scenarios;
mod serve;
mod support;
