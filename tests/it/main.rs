mod probe;
mod support;
