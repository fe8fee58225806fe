//! Another process: this test binary again, in a role.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};

use super::*;
use super::{claiming, streams};

const MARK: &str = "says: ";

pub struct Other {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Other {
    pub fn new(role: &str, argument: &str) -> Other {
        Other::start(Command::new(std::env::current_exe().unwrap()), role, argument).unwrap()
    }

    /// None when the process cannot be started or ends without having said anything.
    pub fn start(mut command: Command, role: &str, argument: &str) -> Option<Other> {
        command.args(["--exact", "serve::other::plays_another_process", "--nocapture"]);
        command.env("HALE_TEST_ROLE", role).env("HALE_TEST_ARGUMENT", argument);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().ok()?;
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let begun = output.fill_buf().is_ok_and(|octets| !octets.is_empty());
        let other = Other { child, output };
        begun.then_some(other)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if let Some((_, said)) = line.trim_end().split_once(MARK) {
                return said.into();
            }
            line.clear();
        }
        panic!("the other process ended without a word");
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_ref().unwrap(), "{line}").unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn say(what: impl std::fmt::Display) {
    println!("{MARK}{what}");
}

pub fn wait_for_a_line() {
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Not a test: what another process runs, told so by its environment.
#[test]
fn plays_another_process() {
    let Ok(role) = std::env::var("HALE_TEST_ROLE") else { return };
    let argument = std::env::var("HALE_TEST_ARGUMENT").unwrap_or_default();
    match role.as_str() {
        "both-wildcards" => plays_both_wildcards(),
        "few-descriptors" => streams::plays_few_descriptors(),
        "hale" => claiming::plays_hale(&argument),
        "claim" => claiming::plays_claim(&argument),
        "foreign-udp" => claiming::plays_foreign(Type::DGRAM, &argument),
        "foreign-tcp" => claiming::plays_foreign(Type::STREAM, &argument),
        _ => panic!("no such role: {role}"),
    }
}
