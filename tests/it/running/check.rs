//! `check`, and what `serve` says of a bad configuration.

use super::fixed;
use crate::events::Bench;
use crate::support::folder::Folder;
use crate::support::hale::run;

/// A misspelt key in line 3.
const BROKEN: &str =
    "zone: example.test\nrecords: { '': { type: NS, value: ns1.example.org. } }\nrecrods: {}\n";

#[test]
fn the_sample_zones_pass_even_strictly() {
    let ended = run(["check", "--strict", "zones"]);
    assert_eq!((ended.code(), &*ended.log), (Some(0), ""), "{}", ended.out);
    assert!(ended.out.contains("no errors: 1 zone, 2 load balancers, 3 pools"), "{}", ended.out);
}

#[test]
fn exit_codes_tell_good_from_bad_from_misused() {
    let good = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let lint = Folder::with("a.yaml", &fixed("192.0.2.1", 86400));
    let bad = Folder::with("a.yaml", BROKEN);
    let path = |folder: &Folder| folder.path().to_str().unwrap().to_owned();
    let (good, lint, bad) = (path(&good), path(&lint), path(&bad));
    for (arguments, code) in [
        (vec!["check", &good], 0),
        (vec!["check", "--strict", &good], 0),
        (vec!["check", &lint], 0),
        (vec!["check", "--strict", &lint], 1),
        (vec!["check", &bad], 1),
        (vec!["check", "/nowhere"], 1),
        (vec!["check"], 2),
        (vec!["check", "--no-such-option", &good], 2),
        (vec!["serve", &good, "--listen", "nonsense"], 2),
        (vec!["no-such-command"], 2),
        (vec![], 2),
        (vec!["--version"], 0),
    ] {
        let ended = run(&arguments);
        assert_eq!(ended.code(), Some(code), "{arguments:?}: {}{}", ended.out, ended.log);
    }
}

#[test]
fn json_holds_the_place_the_message_and_the_help() {
    let folder = Folder::with("a.yaml", BROKEN);
    let ended = run(["check", "--json", folder.path().to_str().unwrap()]);
    assert_eq!(ended.code(), Some(1));
    let report: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    let problem = report["problems"].get(0).or(report.get(0)).expect("a problem");
    assert!(problem["file"].as_str().unwrap().ends_with("a.yaml"), "{problem}");
    assert_eq!((&problem["line"], &problem["column"]), (&3.into(), &1.into()), "{problem}");
    assert!(problem["message"].as_str().unwrap().contains("`recrods`"), "{problem}");
    assert!(problem["help"].as_str().unwrap().contains("records"), "{problem}");

    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let ended = run(["check", "--json", folder.path().to_str().unwrap()]);
    assert_eq!(ended.code(), Some(0));
    serde_json::from_str::<serde_json::Value>(&ended.out).expect("JSON also when all is well");
}

#[test]
fn serve_of_a_bad_configuration_prints_what_check_prints_and_exits_1() {
    let folder = Folder::with("a.yaml", BROKEN);
    let path = folder.path().to_str().unwrap();
    let (checked, served) = (run(["check", path]), run(["serve", path, "--listen", "127.0.0.1:0"]));
    assert_eq!((served.code(), &*served.out), (Some(1), ""));
    assert!(served.log.contains("a.yaml:3:1"), "{}", served.log);
    assert_eq!(served.log, checked.out);
}

/// The history of a pool `eu` with an endpoint that was out so often.
fn outages(times: u64) -> String {
    let mut bench = Bench::new(2, "web");
    for turn in 0..5 + 6 * times {
        let is_out = turn > 2 && (turn - 3) % 6 < 4;
        bench.probe(11_000 * turn, |endpoint| endpoint != "e2" || !is_out);
    }
    bench.events.iter().map(|event| event.line() + "\n").collect()
}

#[test]
fn a_start_that_takes_longer_than_the_run_of_failures_is_told_from_the_history() {
    let folder = Folder::new();
    let configuration = |down: u32| {
        format!(
            "server: {{ state_dir: {} }}\n\
             monitors:\n  web: {{ type: tcp, port: 81, interval: 10s, recheck_interval: off,\n    consecutive_down: {down} }}\n\
             pools: {{ eu: {{ monitor: web, endpoints: [ {{ name: e2, address: 192.0.2.2 }} ] }} }}\n\
             zone: example.com\nrecords: {{ '': {{ type: NS, value: ns.example.net. }} }}\n\
             load_balancers: {{ www: {{ default_pools: [eu], when_unavailable: nodata }} }}\n",
            folder.path().display()
        )
    };
    std::fs::create_dir(folder.join("history")).unwrap();
    for (times, down, told) in [(2, 3, false), (3, 3, true), (3, 5, false)] {
        folder.write("history/events.jsonl", &outages(times));
        folder.write("a.yaml", &configuration(down));
        let ended = run(["check", folder.join("a.yaml").to_str().unwrap()]);
        assert_eq!(ended.code(), Some(0), "{}", ended.out);
        let lint = "a.yaml:4:23: warning[quicker_than_start]: endpoints of pool `eu` came back by themselves 3 times, typically after 44s; the monitor `web` takes them out sooner than that";
        assert_eq!(ended.out.contains(lint), told, "{times} {down}: {}", ended.out);
    }
    std::fs::remove_dir_all(folder.join("history")).unwrap();
    let ended = run(["check", "--strict", folder.join("a.yaml").to_str().unwrap()]);
    assert_eq!(ended.code(), Some(0), "no history is no matter: {}", ended.out);
}
