//! `check`, and what `serve` says of a bad configuration.

use super::fixed;
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
