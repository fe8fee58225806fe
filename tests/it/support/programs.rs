//! Programs that some tests need and some machines lack.

use std::process::{Command, Stdio};

/// Whether `program` is there. Without it the test says that it is skipped,
/// and fails where `HALE_REQUIRE_PROGRAMS=1` is set.
pub fn need(program: &str) -> bool {
    let mut asked = Command::new(program);
    asked.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if asked.status().is_ok() {
        return true;
    }
    let required = std::env::var_os("HALE_REQUIRE_PROGRAMS").is_some_and(|value| value == "1");
    assert!(!required, "{program} is missing, and HALE_REQUIRE_PROGRAMS=1 asks for it");
    println!("SKIPPED: {program} is missing");
    false
}
