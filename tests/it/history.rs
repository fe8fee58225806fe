//! Files of events: written, put aside, removed, and read again.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use haledns::events::{Event, Kind, NewHealth, TestEvidence};
use haledns::history::{self, History, Limits, Rows, Wanted};
use haledns::moment::utc_millis;
use serde_json::json;

use crate::support::folder::Folder;
use crate::support::hale::{run, until};

fn event(number: u64, kind: &str, object: &str) -> Arc<Event> {
    let unix = Duration::from_secs(1_709_251_200 + number);
    let event = json!({
        "id": format!("{number:012x}-0000"), "timestamp": utc_millis(unix), "kind": kind, "object": object,
        "from": "healthy", "to": if number == 7 { "healthy" } else { "unhealthy" }, "changed": number != 7,
        "new_health": "unhealthy", "lasted_ms": 61_000, "summary": "s", "reason": "TCP Timeout",
    });
    Arc::new(Event::read(event.to_string().as_bytes()).unwrap())
}

fn limits(max_size: u64, max_files: usize) -> Limits {
    Limits { max_size, max_files, max_age: Duration::from_secs(86400) }
}

/// The numbers of the events that are read.
fn read(folder: &Folder, wanted: &Wanted) -> Vec<u64> {
    let mut numbers = Vec::new();
    history::read(folder.path(), wanted, |event| {
        numbers.push(u64::from_str_radix(event.id.split('-').next().unwrap(), 16).unwrap());
        Ok(())
    })
    .unwrap();
    numbers
}

fn files(folder: &Folder) -> Vec<String> {
    let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(name).collect();
    names.sort();
    names
}

#[test]
fn events_are_there_when_the_writer_has_ended_and_more_are_added_later() {
    let folder = Folder::new();
    for run in 0..2 {
        let history = History::start(folder.path().into(), limits(1 << 20, 8)).unwrap();
        for number in 0..1000 {
            history.take(&event(run * 1000 + number, "endpoint", "eu/a"));
        }
        assert_eq!(history.lost(), 0);
    }
    assert_eq!(read(&folder, &Wanted::default()), (0..2000).collect::<Vec<_>>());
}

#[test]
fn events_that_a_disk_does_not_take_are_bounded_in_octets_and_counted() {
    let folder = Folder::new();
    let pipe = folder.join("events.jsonl"); // full after 64 KiB: a disk that hangs
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
    let history = History::start(folder.path().into(), limits(1 << 40, 8)).unwrap();
    let object = format!("eu/{}", "x".repeat(10_000));
    let large = event(1, "endpoint", &object);
    let mut taken = 0u64;
    while history.lost() < 100 {
        history.take(&large);
        taken += 1;
        assert!(taken * 10_000 < 40 << 20, "no bound");
    }
    assert!(taken * 10_000 > 15 << 20, "{taken}");
    let mut lines = 0;
    until("what had room arrives, and nothing else is lost", || {
        let mut octets = [0; 64 << 10];
        while let Ok(length) = reader.read(&mut octets) {
            lines += octets[..length].iter().filter(|octet| **octet == b'\n').count() as u64;
        }
        lines + history.lost() == taken
    });
    history.take(&large);
    assert_eq!(history.lost(), 100, "there is room again");
}

#[test]
fn a_history_that_is_taken_away_is_made_anew_once_its_place_is_ours() {
    let folder = Folder::new();
    let place = folder.join("history");
    let is_ours = Arc::new(AtomicBool::new(true));
    let theirs = Arc::clone(&is_ours);
    let history =
        History::start_while(place.clone(), limits(1 << 20, 8), move || theirs.load(Ordering::Relaxed));
    let history = history.unwrap();
    let written = || fs::read_to_string(place.join("events.jsonl")).unwrap_or_default();
    history.take(&event(1, "endpoint", "eu/a"));
    until("it is written", || written().contains("eu/a"));
    fs::remove_dir_all(&place).unwrap();
    history.take(&event(2, "endpoint", "eu/b"));
    until("it is made anew", || written().contains("eu/b"));
    assert_eq!(history.counts().trouble(), None);

    is_ours.store(false, Ordering::Relaxed);
    fs::rename(&place, folder.join("moved")).unwrap();
    history.take(&event(3, "endpoint", "eu/c"));
    until("that is seen", || history.counts().trouble().is_some());
    assert!(!place.exists());
    is_ours.store(true, Ordering::Relaxed);
    history.take(&event(4, "endpoint", "eu/d"));
    until("what had to wait is there", || written().contains("eu/c") && written().contains("eu/d"));
    until("all is well", || history.counts().trouble().is_none());
    fs::remove_dir_all(&place).unwrap();
    until("also when nothing happens", || place.join("events.jsonl").exists());
    assert_eq!(history.lost(), 0);
}

#[test]
fn large_files_are_put_aside_and_the_oldest_removed() {
    let folder = Folder::new();
    let size = event(0, "pool", "eu").line().len() as u64 + 1;
    let history = History::start(folder.path().into(), limits(10 * size + 5, 3)).unwrap();
    for number in 0..55 {
        history.take(&event(number, "pool", "eu"));
    }
    drop(history);
    assert_eq!(files(&folder).len(), 3, "{:?}", files(&folder));
    let kept = read(&folder, &Wanted::default());
    assert!(kept.len() > 20 && kept.is_sorted() && *kept.last().unwrap() == 54, "{kept:?}");

    let old = fs::OpenOptions::new().write(true).open(folder.join(&files(&folder)[0])).unwrap();
    old.set_modified(std::time::SystemTime::now() - Duration::from_secs(2 * 86400)).unwrap();
    drop(History::start(folder.path().into(), limits(10 * size + 5, 3)).unwrap());
    assert_eq!(files(&folder).len(), 2, "what is too old goes at the start");
}

#[test]
fn a_line_cut_short_harms_no_other() {
    let folder = Folder::new();
    let whole = event(1, "pool", "eu").line();
    folder.write("events.jsonl", &format!("{whole}\n{}", &whole[..40]));
    assert_eq!(read(&folder, &Wanted::default()), [1]);
    let history = History::start(folder.path().into(), limits(1 << 20, 8)).unwrap();
    history.take(&event(2, "pool", "eu"));
    drop(history);
    assert_eq!(read(&folder, &Wanted::default()), [1, 2]);
}

#[test]
fn what_is_wanted_is_picked_out() {
    let folder = Folder::new();
    let history = History::start(folder.path().into(), limits(1 << 20, 8)).unwrap();
    for (number, kind, object) in [
        (1, "endpoint", "eu/a"),
        (2, "endpoint", "eu/b"),
        (3, "pool", "eu"),
        (4, "pool", "us"),
        (5, "load_balancer", "www.example.com."),
        (6, "test", "eu/a"),
        (7, "pool", "us"),
    ] {
        history.take(&event(number, kind, object));
    }
    drop(history);
    let object = |object: &str| Wanted { object: Some(object.into()), ..Wanted::default() };
    let unix = |number: u64| Some(Duration::from_secs(1_709_251_200 + number));
    for (wanted, numbers) in [
        (object("eu"), vec![1, 2, 3, 6]),
        (object("eu/a"), vec![1, 6]),
        (object("WWW.example.com"), vec![5]),
        (object("asia"), vec![]),
        (Wanted { since: unix(3), until: unix(5), ..Wanted::default() }, vec![3, 4, 5]),
        (Wanted { kind: Some(Kind::Pool), ..Wanted::default() }, vec![3, 4, 7]),
        (Wanted { changed_only: true, kind: Some(Kind::Pool), ..Wanted::default() }, vec![3, 4]),
        (Wanted { most: Some(2), ..Wanted::default() }, vec![6, 7]),
    ] {
        assert_eq!(read(&folder, &wanted), numbers, "{wanted:?}");
    }
}

#[test]
fn what_was_left_unhealthy_is_found_with_its_beginning() {
    let folder = Folder::new();
    let well = |number, kind: &str, object: &str| {
        let bad = Event::clone(&event(number, kind, object));
        Arc::new(Event { new_health: NewHealth::Healthy, ..bad })
    };
    let history = History::start(folder.path().into(), limits(1 << 20, 8)).unwrap();
    for event in [
        event(1, "endpoint", "eu/a"),
        event(2, "endpoint", "eu/b"),
        event(3, "endpoint", "eu/a"),
        well(4, "endpoint", "eu/b"),
        well(5, "pool", "eu/a"),
    ] {
        history.take(&event);
    }
    drop(history);
    let open = history::left_open(folder.path()).unwrap();
    let open: Vec<_> = open.iter().map(|event| (event.object.as_str(), &event.id[..12])).collect();
    assert_eq!(open, [("eu/a", "000000000001")]);
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let ended = run(["history", "--state-dir", "/nowhere/at/all"]);
    assert_eq!(ended.code(), Some(1));
    assert!(ended.log.contains("/nowhere/at/all/history: there is no history"), "{}", ended.log);
    let ended = run(["history", "--since", "yesterday"]);
    assert_eq!(ended.code(), Some(2));
    assert!(ended.log.contains("such as `2026-11-30T04:50` or `04:50`"), "{}", ended.log);
}

fn rows(events: &[Arc<Event>]) -> String {
    let mut out = Vec::new();
    let mut rows = Rows::new(&mut out, true);
    for event in events {
        rows.push(Event::clone(event)).unwrap();
    }
    assert_eq!(rows.finish().unwrap(), events.len() as u64);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_row_is_for_people() {
    let rows = rows(&[event(1, "endpoint", "eu/a")]);
    let words: Vec<_> = rows.lines().nth(1).unwrap().split_whitespace().collect();
    let expected = ["2024-03-01", "00:00:01.000Z", "endpoint", "eu/a", "healthy", "→", "unhealthy", "1m01s"];
    assert_eq!(words[..8], expected);
    assert!(rows.ends_with("TCP Timeout\n"), "{rows}");
    assert_eq!(self::rows(&[]), "", "no heading over nothing");
}

#[test]
fn long_words_keep_the_columns_and_unknown_times_are_left_out() {
    let long = Event {
        to: "unhealthy".into(),
        marks: vec!["starting".into(), "flapping".into()],
        ..Event::clone(&event(1, "endpoint", "a_pool_with_a_long_name/an_endpoint_with_one"))
    };
    let unknown = Event { lasted_ms: 0, ..Event::clone(&event(2, "vantage", "local")) };
    let rows = rows(&[Arc::new(long), event(3, "pool", "eu"), Arc::new(unknown)]);
    let reasons: Vec<_> = rows.lines().skip(1).map(|row| row.chars().count() - "TCP Timeout".len()).collect();
    assert!(reasons.iter().all(|at| *at == reasons[0]), "{rows}");
    let after = rows.lines().next().unwrap().find("after").unwrap();
    assert!(after > 0 && !rows.contains("0ms"), "{rows}");
}

#[test]
fn a_test_row_names_monitor_and_vantage() {
    let (monitor, vantage) = ("web".to_owned(), "local".to_owned());
    let evidence = TestEvidence { monitor, vantage, last_good: None, last_bad: None };
    let event = Event { evidence: Some(evidence), ..Event::clone(&event(1, "test", "eu/a")) };
    let rows = rows(&[Arc::new(event)]);
    assert!(rows.lines().nth(1).unwrap().ends_with("web from local: TCP Timeout"), "{rows}");
}

#[test]
fn where_nothing_is_kept_that_is_said_with_near_names() {
    let folder = Folder::new();
    let history = History::start(history::folder(folder.path()), limits(1 << 20, 8)).unwrap();
    history.take(&event(1, "endpoint", "eu-west/a"));
    drop(history);
    let state = folder.path().to_str().unwrap();
    for (arguments, said) in [
        (vec!["eu-wst"], "no event of `eu-wst` is kept in "),
        (vec!["eu-wst"], "; did you mean `eu-west`?"),
        (vec!["nosuch", "--json"], "no event of `nosuch` is kept in "),
        (vec!["eu-west", "--kind", "pool"], "no event of `eu-west` is kept that fits the other options"),
        (vec!["--until", "2020-01-01"], "no event is kept that fits what was asked for"),
        (vec!["--until", "2020-01-01", "--since", "09:00"], "no event is kept that fits"),
    ] {
        let ended = run(["history", "--state-dir", state].iter().chain(&arguments));
        assert_eq!(ended.code(), Some(0), "{}", ended.log);
        assert!(ended.out.is_empty() && ended.log.contains(said), "{arguments:?}: {}", ended.log);
    }
}
