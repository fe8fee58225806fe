//! Programs of other people that some tests run.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// So many tests were skipped in this run.
static SKIPPED: AtomicUsize = AtomicUsize::new(0);

/// Whether `program` can be run. A test that cannot do without it ends when
/// this is false; with `HALE_REQUIRE_PROGRAMS=1` it fails instead.
pub fn need(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| {
        let metadata = folder.join(program).metadata();
        metadata.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    });
    found || missing(&format!("the program `{program}` is not installed"))
}

/// Whether these tests run as root; otherwise as with a program.
pub fn need_root() -> bool {
    rustix::process::geteuid().is_root() || missing("only root may do that")
}

/// Tells that a test is skipped, and why; or fails it.
pub fn missing(why: &str) -> bool {
    let required = std::env::var_os("HALE_REQUIRE_PROGRAMS").is_some_and(|value| value == "1");
    assert!(!required, "{why}, and HALE_REQUIRE_PROGRAMS=1");
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // Not `eprintln!`: what a passing test prints is kept from people's eyes.
    let number = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    let line = format!("SKIPPED no. {number}, {test}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    false
}

/// A Python that has `module`, under the same condition.
pub fn need_python(module: &str) -> Option<String> {
    // The system's packages are the system's Python's; what PyPI alone has is that of the check.
    let own = std::env::var("HALE_TEST_PYTHON").ok();
    let usual = ["/usr/bin/python3", "python3"].map(str::to_owned);
    let found = own.into_iter().chain(usual).find(|python| {
        let import = Command::new(python).args(["-c", &format!("import {module}")]).output();
        import.is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        missing(&format!("the Python module `{module}` is not installed"));
    }
    found
}
