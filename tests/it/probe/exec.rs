//! Probes of type exec.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use haledns::model::{Check, ExecCheck};

use super::{LONG, Probe, SHORT, told};
use crate::support::folder::Folder;
use crate::support::hale::until;

fn exec(command: &[&str]) -> Probe {
    let command = command.iter().map(|&part| part.into()).collect();
    Probe::new(SocketAddr::from(([192, 0, 2, 7], 8443)), Check::Exec(ExecCheck { command }))
}

fn shell(script: &str) -> Probe {
    exec(&["sh", "-c", script])
}

/// The numbers of processes that a script has written, once they are there.
fn pids(file: &Path, count: usize) -> Vec<String> {
    let read = || fs::read_to_string(file).unwrap_or_default();
    until("the script has started", || read().ends_with('\n') && read().lines().count() == count);
    read().lines().map(str::to_owned).collect()
}

/// Dead; whose parent is gone may not have been waited for yet.
fn dead(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')))
}

/// Dead and waited for.
fn gone(pid: &str) -> bool {
    !Path::new("/proc").join(pid).exists()
}

/// Writes its own number and that of a process it has started into `file`.
fn family(file: &Path, then: &str) -> Probe {
    shell(&format!("sleep 1000 & printf '%s\\n' $$ $! > {}; {then}", file.display()))
}

#[tokio::test]
async fn the_exit_status_decides() {
    for (script, expected) in [
        ("exit 0", "0 pass"),
        ("exit 1", "1 CommandFailed exit_status"),
        ("exit 255", "255 CommandFailed exit_status"),
        ("kill -TERM $$", "- CommandFailed killed_by_signal"),
        ("kill -KILL $$", "- CommandFailed killed_by_signal"),
    ] {
        let outcome = shell(script).run().await;
        assert_eq!(told(&outcome), expected, "{script}");
        assert!(outcome.took < LONG);
    }
}

#[tokio::test]
async fn what_cannot_be_started_tests_nothing() {
    let folder = Folder::with("plain", "#!/bin/sh\nexit 0\n");
    let plain = folder.join("plain").display().to_string();
    for command in [&*plain, "/no/such/program", "no-such-program", "/"] {
        let outcome = exec(&[command]).run().await;
        assert_eq!(told(&outcome), "- error OtherFailure command_not_started", "{command}");
    }
}

#[tokio::test]
async fn the_first_words_are_kept_also_of_one_that_goes_on_talking() {
    let outcome = exec(&["printf", "%s and %s", "$HALE_POOL", "a b"]).run().await;
    assert_eq!(String::from_utf8_lossy(&outcome.evidence.said), "$HALE_POOL and a b", "no shell sees it");

    let outcome = shell("echo out; echo err >&2; exit 3").run().await;
    assert_eq!(
        (told(&outcome), &*outcome.evidence.said),
        ("3 CommandFailed exit_status".into(), &b"out\n"[..])
    );

    // more than is read, and less than a pipe holds
    let outcome = shell("head -c 30000 /dev/zero | tr '\\0' x").run().await;
    assert_eq!((told(&outcome), &*outcome.evidence.said), ("0 pass".into(), &[b'x'; 128][..]));

    let outcome = shell("while :; do echo x; done").within(SHORT).run().await;
    assert_eq!(told(&outcome), "- CommandTimeout response_timeout");
    assert!(outcome.evidence.said.starts_with(b"x\nx\n"));
}

#[tokio::test]
async fn a_program_gets_the_endpoint_by_its_environment_and_nothing_else() {
    let outcome = exec(&["env"]).run().await;
    let said = String::from_utf8(outcome.evidence.said.to_vec()).unwrap();
    let mut lines: Vec<_> = said.lines().filter(|line| !line.starts_with("PATH=")).collect();
    lines.sort_unstable();
    let mut expected = ["HALE_POOL=eu", "HALE_ENDPOINT=eu-1", "HALE_ADDRESS=192.0.2.7", "HALE_PORT=8443"];
    expected.sort_unstable();
    assert!(lines.iter().all(|line| expected.iter().any(|due| due.starts_with(line))), "{said}");
    let due =
        "cat; test $HALE_POOL$HALE_ENDPOINT$HALE_ADDRESS$HALE_PORT = eueu-1192.0.2.78443 && test -n $PATH";
    assert_eq!(told(&shell(due).run().await), "0 pass", "and nothing comes from the standard input");
}

#[tokio::test]
async fn a_program_that_takes_too_long_is_killed_with_all_it_has_started() {
    let folder = Folder::new();
    let file = folder.join("pids");
    let outcome = family(&file, "wait").within(SHORT).run().await;
    assert_eq!(told(&outcome), "- CommandTimeout response_timeout");
    assert!((SHORT..LONG).contains(&outcome.took), "{:?}", outcome.took);
    let pids = pids(&file, 2);
    until("the program is waited for", || gone(&pids[0]));
    until("what it has started is dead", || dead(&pids[1]));
}

#[tokio::test]
async fn what_a_program_leaves_behind_is_killed_and_not_waited_for() {
    let folder = Folder::new();
    let file = folder.join("pids");
    let outcome = family(&file, "echo done; exit 0").run().await; // the sleep holds the pipe open
    assert_eq!((told(&outcome), &*outcome.evidence.said), ("0 pass".into(), &b"done\n"[..]));
    assert!(outcome.took < LONG);
    let pids = pids(&file, 2);
    assert!(gone(&pids[0]));
    until("what it has started is dead", || dead(&pids[1]));
}

#[tokio::test]
async fn orphans_are_waited_for_where_they_become_children_of_ours() {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    for then in ["exit 0", "wait"] {
        let folder = Folder::new();
        let file = folder.join("pids");
        family(&file, then).within(SHORT).run().await;
        for pid in pids(&file, 2) {
            until("both are dead and waited for", || gone(&pid));
        }
    }
}

#[tokio::test]
async fn a_probe_that_is_given_up_kills_its_program() {
    let folder = Folder::new();
    let file = folder.join("pids");
    let probe = tokio::spawn(family(&file, "wait").within(LONG * 20).run());
    let there = file.clone();
    let pids = tokio::task::spawn_blocking(move || pids(&there, 2)).await.unwrap();
    assert!(!dead(&pids[0]) && !dead(&pids[1]));
    probe.abort();
    assert!(probe.await.unwrap_err().is_cancelled());
    until("the program is waited for", || gone(&pids[0]));
    until("what it has started is dead", || dead(&pids[1]));
}
