//! What outlives the process.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use super::start::dead;
use super::{WWW, fixed, probed};
use crate::support::dns::ask;
use crate::support::endpoint::{Endpoint, Manner};
use crate::support::folder::Folder;
use crate::support::hale::{Hale, command, run, until};
use crate::support::ports::free_address;
use crate::support::programs::{missing, need, need_root};

/// `hale serve FOLDER` with its state in FOLDER/state.
pub fn serving(folder: &Folder) -> Command {
    let arguments = ["serve", folder.path().to_str().unwrap(), "--listen", "127.0.0.1:0", "--state-dir"];
    command(arguments.into_iter().chain([folder.join("state").to_str().unwrap()]))
}

pub fn serve(folder: &Folder) -> Hale {
    let hale = Hale::start(serving(folder));
    hale.address();
    hale
}

fn journal(folder: &Folder) -> String {
    fs::read_to_string(folder.join("state/verdicts")).unwrap_or_default()
}

/// Of probed endpoints, so that nothing is known for a minute after a probe.
fn slow(endpoints: &[SocketAddr]) -> String {
    let text = probed(endpoints, 30).replace("interval: 200ms, timeout: 5s", "interval: 60s, timeout: 50s");
    format!("server: {{ startup_wait: 10m }}\n{}", text.replace("consecutive_up: 1", "consecutive_up: 2"))
}

#[test]
fn h5_verdicts_survive_a_kill_and_the_next_start_waits_for_nothing() {
    let good = Endpoint::start("127.0.0.1", Manner::Answers);
    let bad = dead("127.0.0.2");
    let folder = Folder::with("a.yaml", &slow(&[good.address, bad]));
    let first = serve(&folder);
    assert!(ask(first.address(), WWW).is(&["127.0.0.1"]));
    until("verdicts and a sign of life are written", || journal(&folder).contains("\"alive\""));
    first.stop(Signal::KILL);
    let serial = journal(&folder).matches("\"serial\"").count();
    assert!(serial > 0, "{}", journal(&folder));

    // the other way round now; but one hangs for long, and one pass is not enough for the other
    let good_address = good.address;
    drop(good);
    let hangs = Endpoint::at(good_address, Manner::Hangs);
    let _revived = Endpoint::at(bad, Manner::Answers);
    let second = serve(&folder);
    assert!(ask(second.address(), WWW).is(&["127.0.0.1"]), "{}", second.log());
    until("it is probed all the same", || hangs.connections() > 0);
    assert!(ask(second.address(), WWW).is(&["127.0.0.1"]));
    second.stop(Signal::KILL);
    // a start that found out nothing is vouched for by the one before
    let third = serve(&folder);
    assert!(ask(third.address(), WWW).is(&["127.0.0.1"]));
}

#[test]
fn h5_verdicts_that_are_too_old_are_not_used() {
    let good = Endpoint::start("127.0.0.1", Manner::Answers);
    let text = probed(&[good.address], 30).replace("timeout: 5s", "timeout: 60s");
    let folder =
        Folder::with("a.yaml", &format!("server: {{ state_max_age: 0, startup_wait: 500ms }}\n{text}"));
    let first = serve(&folder);
    assert!(ask(first.address(), WWW).is(&["127.0.0.1"]));
    until("a sign of life is written", || journal(&folder).contains("\"alive\""));
    first.stop(Signal::TERM);
    let address = good.address;
    drop(good);
    let _hangs = Endpoint::at(address, Manner::Hangs);
    let second = serve(&folder);
    second.line("the first round of probes isn't complete");
    assert!(ask(second.address(), WWW).is(&["203.0.113.5"]));
}

#[test]
fn h16_overrides_survive_a_kill_and_a_reload_and_end_by_themselves() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let first = serve(&folder);
    let state = folder.join("state");
    let order = |arguments: &[&str]| {
        let ended = run(arguments.iter().copied().chain(["--state-dir", state.to_str().unwrap()]));
        assert_eq!(ended.code(), Some(0), "{arguments:?}: {}", ended.log);
        ended.out
    };
    order(&["disable", "main/one", "--reason", "a new disk"]);
    assert!(ask(first.address(), WWW).is(&["203.0.113.5"]), "at once");
    until("it is written", || journal(&folder).contains("a new disk"));
    first.stop(Signal::KILL);

    let second = serve(&folder);
    assert!(ask(second.address(), WWW).is(&["203.0.113.5"]), "from the first answer on");
    assert!(order(&["status", "main"]).contains("a new disk"));
    folder.replace("a.yaml", &fixed("192.0.2.2", 30));
    second.line("configuration reloaded");
    assert!(ask(second.address(), WWW).is(&["203.0.113.5"]), "it belongs to the name");
    order(&["enable", "main/one"]);
    assert!(ask(second.address(), WWW).is(&["192.0.2.2"]));
    order(&["override", "main/one", "unhealthy", "--for", "1s"]);
    assert!(ask(second.address(), WWW).is(&["203.0.113.5"]));
    until("it ends by itself", || ask(second.address(), WWW).is(&["192.0.2.2"]));
    second.stop(Signal::TERM);
    let third = serve(&folder);
    assert!(ask(third.address(), WWW).is(&["192.0.2.2"]));
    assert!(!order(&["status"]).contains("unhealthy"));
}

#[test]
fn a_weight_survives_a_kill_and_a_reload_until_it_ends() {
    let two = |last: u8| {
        let endpoints = format!("192.0.2.{last} }}, {{ name: two, address: 192.0.2.9");
        fixed(&endpoints, 30)
    };
    let folder = Folder::with("a.yaml", &two(1));
    let first = serve(&folder);
    let state = folder.join("state");
    let order = |arguments: &[&str]| {
        let ended = run(arguments.iter().copied().chain(["--state-dir", state.to_str().unwrap()]));
        assert_eq!(ended.code(), Some(0), "{arguments:?}: {}", ended.log);
        ended.out
    };
    assert!(ask(first.address(), WWW).is(&["192.0.2.1", "192.0.2.9"]));
    order(&["override", "main/one", "weight", "0", "--reason", "canary"]);
    assert!(ask(first.address(), WWW).is(&["192.0.2.9"]));
    until("it is written", || journal(&folder).contains("canary"));
    first.stop(Signal::KILL);

    let second = serve(&folder);
    assert!(ask(second.address(), WWW).is(&["192.0.2.9"]), "from the first answer on");
    folder.replace("a.yaml", &two(2));
    second.line("configuration reloaded");
    assert!(ask(second.address(), WWW).is(&["192.0.2.9"]), "it belongs to the name");
    order(&["override", "main/one", "weight", "0", "--for", "1s"]);
    until("it ends by itself", || ask(second.address(), WWW).is(&["192.0.2.2", "192.0.2.9"]));
    second.stop(Signal::TERM);
    let third = serve(&folder);
    assert!(ask(third.address(), WWW).is(&["192.0.2.2", "192.0.2.9"]), "and stays so");
}

#[test]
fn two_servers_do_not_share_a_state_directory() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let first = serve(&folder);
    let ended = Hale::start(serving(&folder)).ended();
    assert_eq!(ended.code(), Some(1));
    let held =
        format!("is held by another hale, pid {}; give this one its own with `state_dir`", first.pid());
    assert!(ended.log.contains(&held), "{}", ended.log);
    assert!(ask(first.address(), WWW).is(&["192.0.2.1"]));
}

#[test]
fn a_file_that_cannot_be_read_is_set_aside_and_three_of_them_are_kept() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    fs::create_dir(folder.join("state")).unwrap();
    for year in 2021..2025 {
        folder.write(&format!("state/verdicts.bad-{year}0101T000000Z"), "old");
    }
    folder.write("state/verdicts", "something else altogether\n");
    let hale = serve(&folder);
    let line = hale.line("can't be used: it doesn't begin as this version's files do").text;
    let names = fs::read_dir(folder.join("state")).unwrap().flatten();
    let mut aside: Vec<String> = names
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name.starts_with("verdicts.bad-"))
        .collect();
    aside.sort();
    assert_eq!(aside[..2], ["verdicts.bad-20230101T000000Z", "verdicts.bad-20240101T000000Z"]);
    assert!(aside.len() == 3 && line.contains(&aside[2]), "{aside:?}: {line}");
    assert_eq!(
        fs::read_to_string(folder.join("state").join(&aside[2])).unwrap(),
        "something else altogether\n"
    );
    assert!(ask(hale.address(), WWW).is(&["192.0.2.1"]));
}

#[test]
fn a_directory_that_cannot_be_used_is_a_refusal_if_it_was_asked_for_and_else_a_warning() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    folder.write("state", "this is a file");
    let ended = Hale::start(serving(&folder)).ended();
    assert_eq!(ended.code(), Some(1));
    assert!(
        ended.log.contains("the state directory") && ended.log.contains("can't be used"),
        "{}",
        ended.log
    );

    let path = folder.join("state");
    let mut usual = command(["serve", folder.path().to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    usual.env("STATE_DIRECTORY", &path);
    let hale = Hale::start(usual);
    hale.line("nothing is kept over a restart, and no command reaches this server");
    assert!(ask(hale.address(), WWW).is(&["192.0.2.1"]));
}

/// `hale serve` with its state on a file system of its own, where one can be
/// made.
fn on_a_small_disk(folder: &Folder, listen: SocketAddr) -> Option<Hale> {
    if !need("unshare") || !need("mount") || !need_root() {
        return None;
    }
    let tried = Command::new("unshare").args(["--mount", "mount", "-t", "tmpfs", "none", "/tmp"]).status();
    if !tried.is_ok_and(|status| status.success()) {
        missing("no file system can be mounted");
        return None;
    }
    fs::create_dir(folder.join("state")).unwrap();
    let script = "mount -t tmpfs -o size=128k none \"$1\" && shift && exec \"$@\"";
    let mut command = command([""; 0]);
    let binary = command.get_program().to_owned();
    command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(folder.join("state")).arg(binary);
    command.arg("serve").arg(folder.join("a.yaml")).args(["--listen", &listen.to_string(), "--state-dir"]);
    command.arg(folder.join("state")).env_remove("HALE_LOG");
    let hale = Hale::start(command);
    hale.address();
    Some(hale)
}

#[test]
fn a_full_disk_is_told_once_and_answers_go_on() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let Some(hale) = on_a_small_disk(&folder, free_address()) else { return };
    let state = format!("/proc/{}/root{}", hale.pid(), folder.join("state").display());
    let state = Path::new(&state);
    until("the journal is there", || state.join("verdicts").exists());
    let _ = fs::write(state.join("filler"), vec![0; 1 << 20]); // as much as there is room for
    let reason = "x".repeat(4000);
    let say = |arguments: &[&str]| {
        let ended = run([arguments, &["--state-dir", state.to_str().unwrap()]].concat());
        assert_eq!(ended.code(), Some(0), "{}", ended.log);
        ended.out
    };
    let order = |what: &str| say(&["override", "main/one", what, "--reason", &reason]);
    until("the disk is full", || order("unhealthy").contains("not saved"));
    hale.line("verdicts can't be written");
    for what in ["healthy", "unhealthy", "healthy"] {
        let told = order(what);
        assert!(told.contains("in force, but not saved: No space left on device"), "{told}");
    }
    let json: Value = serde_json::from_str(&say(&["drain", "main/one", "--json"])).unwrap();
    assert!(json["not_saved"].as_str().unwrap().contains("No space left"), "{json}");
    say(&["undrain", "main/one"]);
    assert!(say(&["status"]).contains("the journal can't be written: No space left"));
    assert!(ask(hale.address(), WWW).is(&["192.0.2.1"]), "orders and answers go on");
    assert_eq!(hale.count("verdicts can't be written"), 1);
    fs::remove_file(state.join("filler")).unwrap();
    hale.line("is written again");
    let text = fs::read_to_string(state.join("verdicts")).unwrap();
    assert!(text.contains("\"action\":\"healthy\""), "what was lost meanwhile is there: {text}");
    let told = order("unhealthy");
    assert!(!told.contains("not saved"), "{told}");
    assert!(!say(&["status"]).contains("can't be written"));
}

#[test]
fn the_history_goes_on_when_the_state_directory_was_removed() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let hale = serve(&folder);
    let state = folder.join("state");
    let order = |what: &str| {
        let ended = run([what, "main/one", "--state-dir", state.to_str().unwrap()]);
        assert_eq!(ended.code(), Some(0), "{what}: {}", ended.log);
        ended.out
    };
    let events = || fs::read_to_string(state.join("history/events.jsonl")).unwrap_or_default();
    order("disable");
    until("it is in the history", || events().contains("\"to\":\"disabled\""));
    fs::remove_dir_all(&state).unwrap();
    hale.line("it is made anew from memory");
    until("a new socket is there", || state.join("control").exists());
    let told = order("enable");
    assert!(!told.contains("not saved"), "{told}");
    until("what came later is in a new one", || events().contains("\"from\":\"disabled\""));
    fs::remove_dir_all(state.join("history")).unwrap();
    order("disable");
    until("and in another", || events().contains("\"to\":\"disabled\""));
    assert!(hale.count("was removed or replaced") <= 3, "once each: {}", hale.log());
    assert_eq!(hale.count("the history can't be written"), 0, "{}", hale.log());
}
