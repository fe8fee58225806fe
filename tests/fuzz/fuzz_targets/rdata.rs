#![no_main]

#[path = "../properties.rs"]
#[allow(dead_code)] // each target takes one of them
mod properties;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| properties::rdata(octets));
