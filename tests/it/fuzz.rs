//! What the fuzzing targets look for holds for their seeds, among which are the
//! findings of former runs.

#[path = "../fuzz/properties.rs"]
mod properties;

use std::fs;
use std::path::Path;

fn seeds(target: &str, property: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds").join(target);
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let octets = fs::read(entry.path()).unwrap();
        let held = std::panic::catch_unwind(|| property(&octets));
        assert!(held.is_ok(), "{}", entry.path().display());
        count += 1;
    }
    assert!(count > 3, "{target} has seeds");
}

#[test]
fn queries_get_well_formed_replies() {
    seeds("query", properties::query);
}

#[test]
fn master_files_are_read_to_their_end() {
    seeds("zone_file", properties::zone_file);
}

#[test]
fn rdata_that_is_shown_can_be_read_again() {
    seeds("rdata", properties::rdata);
}

#[test]
fn configurations_are_taken_or_refused_with_places() {
    seeds("yaml", properties::yaml);
}

#[test]
fn headers_of_proxies_end_where_they_say() {
    seeds("proxy", properties::proxy);
}
