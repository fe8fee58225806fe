//! What the log says, and that answers follow it.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::start::dead;
use super::{WWW, fixed, probed};
use crate::support::dns::{Reply, ask, ask_on, ask_tcp, connect, socket, try_ask};
use crate::support::endpoint::{Endpoint, Manner};
use crate::support::folder::Folder;
use crate::support::hale::{Hale, command, signal, until};
use crate::support::ports::free_address;

#[test]
fn d08_what_the_log_says_is_down_is_in_no_later_answer() {
    let (stays, goes) =
        (Endpoint::start("127.0.0.1", Manner::Answers), Endpoint::start("127.0.0.2", Manner::Answers));
    let text = format!("server: {{ udp_workers: 4 }}\n{}", probed(&[stays.address, goes.address], 30));
    let folder = Folder::with("a.yaml", &text);
    let hale = Hale::serve(folder.path());
    let address = hale.address();
    until("both answer", || ask(address, WWW).is(&["127.0.0.1", "127.0.0.2"]));

    let done = AtomicBool::new(false);
    let carried = Mutex::new(Vec::new()); // when the queries were sent that got the endpoint
    let note = |sent, reply: Reply| {
        assert!(reply.has("127.0.0.1"), "{reply:?}");
        if reply.has("127.0.0.2") {
            carried.lock().unwrap().push(sent);
        }
    };
    let mark = hale.mark();
    let at = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let sockets: Vec<_> = (0..8).map(|_| socket(address)).collect(); // spread over the workers
                while !done.load(Ordering::Relaxed) {
                    for socket in &sockets {
                        let sent = Instant::now();
                        note(sent, ask_on(socket, WWW));
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut streams: Vec<_> = (0..4).map(|_| connect(address)).collect();
            while !done.load(Ordering::Relaxed) {
                for stream in &mut streams {
                    let sent = Instant::now();
                    note(sent, ask_tcp(stream, WWW));
                }
            }
        });
        until("answers come", || !carried.lock().unwrap().is_empty());
        drop(goes);
        let at = hale.line_after(mark, "endpoint main/e2 is unhealthy").at;
        thread::sleep(Duration::from_millis(700)); // what would be wrong must have time to show
        done.store(true, Ordering::Relaxed);
        at
    });
    let late = carried.into_inner().unwrap().into_iter().max().unwrap().saturating_duration_since(at);
    assert!(late <= Duration::from_millis(100), "still answered {late:?} after the log said it is down");
}

#[test]
fn b29_json_lines_tell_every_change_with_from_to_reason_and_since() {
    let lives = Endpoint::start("127.0.0.1", Manner::Answers);
    let address = lives.address;
    let folder = Folder::with("a.yaml", &probed(&[address, dead("127.0.0.2")], 30));
    let path = folder.path().to_str().unwrap();
    let hale = Hale::start(command(["serve", path, "--listen", "127.0.0.1:0", "--log", "json"]));
    hale.address();
    drop(lives);
    hale.line("endpoint main/e1 is unhealthy");
    hale.line("load balancer www.example.test. is critical");
    let mark = hale.mark();
    let _revived = Endpoint::at(address, Manner::Answers);
    hale.line_after(mark, "endpoint main/e1 is healthy");
    hale.line_after(mark, "load balancer www.example.test. is");
    let (ended, _) = hale.stop(Signal::TERM);
    let lines: Vec<Value> = ended
        .log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
        .collect();
    let mut kinds = std::collections::BTreeSet::new();
    for line in &lines {
        assert!(line["timestamp"].is_string() && line["level"].is_string(), "{line}");
        assert!(line["message"].is_string(), "{line}");
        let kind = ["load_balancer", "endpoint", "pool"].into_iter().find(|key| line[key].is_string());
        let Some(kind) = kind else { continue };
        kinds.insert(kind);
        for key in ["from", "to", "reason", "since"] {
            assert!(line[key].as_str().is_some_and(|value| !value.is_empty()), "{key}: {line}");
        }
    }
    assert_eq!(kinds.len(), 3, "{kinds:?}");
    let back =
        |line: &&Value| line["endpoint"] == "e1" && line["to"] == "healthy" && line["from"] == "unhealthy";
    let line = lines.iter().find(back).expect("the endpoint came back");
    assert_eq!((&line["pool"], &line["monitor"]), (&"main".into(), &"web".into()));
    let went = lines.iter().find(|line| line["endpoint"] == "e1" && line["to"] == "unhealthy").unwrap();
    assert!(
        line["since"].as_str() >= went["since"].as_str(),
        "since when the old state had held: {line} {went}"
    );
}

#[test]
fn json_lines_are_lines_even_for_a_report_of_many() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let path = folder.path().to_str().unwrap();
    let hale = Hale::start(command(["serve", path, "--listen", "127.0.0.1:0", "--log", "json"]));
    hale.address();
    folder.write("a.yaml", &fixed("192.0.2.1", 30).replace("address", "adress").replace("ttl", "tll"));
    let line = hale.line("configuration not reloaded").text;
    let line: Value = serde_json::from_str(&line).unwrap();
    assert!(line["message"].as_str().unwrap().contains("a.yaml:2:"), "{line}");
}

#[test]
fn the_environment_filters_the_log() {
    let folder = Folder::with("a.yaml", &probed(&[dead("127.0.0.2")], 30));
    let start = |filter: &str| {
        let mut serve = command(["serve", folder.path().to_str().unwrap(), "--listen", "127.0.0.1:0"]);
        serve.env("HALE_LOG", filter);
        Hale::start(serve)
    };
    let quiet = start("warn");
    quiet.line("endpoint main/e1 is unhealthy");
    let (ended, _) = quiet.stop(Signal::TERM);
    assert!(!ended.log.contains("INFO"), "{}", ended.log);

    start("").address(); // as if it were not set
    let odd = start("haledns=loud");
    odd.address(); // as if it were not set, but said
    odd.line("HALE_LOG");
}

#[test]
fn a_log_that_nobody_reads_holds_up_neither_answers_nor_the_stop() {
    let (lives, goes) =
        (Endpoint::start("127.0.0.1", Manner::Answers), Endpoint::start("127.0.0.2", Manner::Answers));
    let folder = Folder::with("a.yaml", &probed(&[lives.address, goes.address], 30));
    let (reader, mut full) = std::io::pipe().unwrap();
    let log = full.try_clone().unwrap();
    let filled = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while full.write_all(&[b'\n'; 1024]).is_ok() {
                filled.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut before = 0;
        until("the pipe is full", || {
            thread::sleep(Duration::from_millis(50));
            std::mem::replace(&mut before, filled.load(Ordering::Relaxed)) == filled.load(Ordering::Relaxed)
                && before > 0
        });
        let address = free_address();
        let mut serve = command(["serve", folder.path().to_str().unwrap(), "--listen", &address.to_string()]);
        serve.env("STATE_DIRECTORY", folder.join("state")); // goes with the folder
        let mut child = Killed(serve.stderr(log).spawn().unwrap());
        let answers = |addresses: &[&str]| try_ask(address, WWW).is_some_and(|reply| reply.is(addresses));
        until("it serves", || answers(&["127.0.0.1", "127.0.0.2"]));
        drop(goes);
        until("the answer follows", || answers(&["127.0.0.1"]));
        folder.replace("a.yaml", &fixed("192.0.2.1", 30));
        until("the configuration follows", || answers(&["192.0.2.1"]));
        let begun = Instant::now();
        signal(child.0.id(), Signal::TERM);
        until("it stops", || child.0.try_wait().unwrap().is_some());
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        drop(reader); // ends the filling
    });
}

/// A child that is killed when dropped.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
