//! `hale simulate`: scenarios through the real program.

use std::process::Command;

use serde_json::Value;

use crate::support::folder::Folder;
use crate::support::hale::{Ended, Hale, run};
use crate::support::programs::need;

/// Two pools; a failure takes 10 s to 20 s to be noticed, and probes that hang
/// 2 s more.
const CONFIG: &str = "\
monitors:
  web: { type: http, port: 80, interval: 10s, timeout: 2s, retries: 0, consecutive_up: 2, consecutive_down: 2, recheck_interval: 10s }
pools:
  eu:
    monitor: web
    endpoints: [{ name: eu-1, address: 192.0.2.1 }, { name: eu-2, address: 192.0.2.2 }]
  us:
    monitor: web
    endpoints: [{ name: us-1, address: 198.51.100.1 }]
zone: example.com
records: { '': { type: NS, value: ns1.example.net. } }
load_balancers:
  www: { ttl: 30s, default_pools: [eu, us], when_unavailable: nodata }
";

/// The configuration above and a scenario.
fn folder(scenario: &str) -> Folder {
    let folder = Folder::with("config.yaml", CONFIG);
    folder.write("scenario.yaml", scenario);
    folder
}

fn simulate(folder: &Folder, options: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hale"));
    command.arg("simulate").arg("scenario.yaml").args(options).current_dir(folder.path());
    command.env("COLUMNS", "80");
    Hale::start(command).ended()
}

fn json(folder: &Folder) -> Value {
    let ended = simulate(folder, &["--json"]);
    assert_eq!(&*ended.log, "");
    serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {}", ended.out))
}

/// When the spans of a row begin, with one of their values each.
fn spans(row: &Value, key: &str) -> Vec<(f64, String)> {
    let spans = row["spans"].as_array().expect("spans").iter();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    spans.map(|span| (span["from"].as_f64().expect("a time"), text(&span[key]))).collect()
}

fn row<'a>(all: &'a Value, section: &str, name: &str) -> &'a Value {
    let rows = all[section].as_array().expect("rows");
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name} in {all:#}"))
}

#[test]
fn a_failover_is_drawn_and_told() {
    let folder = folder(
        "title: eu fails\n\
         config: config.yaml\n\
         for: 60s\n\
         steps:\n\
         - { at: 30s, endpoints: { eu: refused } }\n\
         - { at: 60s, expect: { www.example.com: us, eu: critical, us: critical } }\n",
    );
    let ended = simulate(&folder, &[]);
    assert_eq!((ended.code(), &*ended.log), (Some(1), ""), "one expectation is wrong");
    let expected = include_str!("../simulate/failover.txt");
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/simulate/failover.txt");
        std::fs::write(path, &ended.out).unwrap();
    } else {
        assert_eq!(ended.out, expected, "{}", ended.out);
    }
    assert_eq!(simulate(&folder, &[]).out, ended.out, "it goes the same each time");
}

#[test]
fn a_failure_is_noticed_when_two_probes_have_found_it() {
    for (manner, least, most) in
        [("refused", 10.0, 20.1), ("hang", 12.0, 22.1), ("503", 10.0, 20.1), ("slow 3s", 12.0, 22.1)]
    {
        let folder =
            folder(&format!("config: config.yaml\nsteps:\n- {{ at: 60s, endpoints: {{ eu: {manner} }} }}\n"));
        let all = json(&folder);
        for name in ["eu/eu-1", "eu/eu-2"] {
            let seen = spans(row(&all, "endpoints", name), "stands");
            let (at, _) = seen.iter().find(|(_, word)| word == "unhealthy").expect("it is noticed");
            let after = at - 60.0;
            assert!((least..most).contains(&after), "{manner}: {name} was noticed after {after} s");
        }
        let www = row(&all, "load_balancers", "www.example.com.");
        for unfit in www["unfit"].as_array().unwrap() {
            // a slow endpoint serves its clients all the same
            let (to, clients) = (unfit["to"].as_f64().unwrap(), unfit["clients_until"].as_f64().unwrap());
            assert_eq!((clients, &unfit["end"]), (to + 30.0, &"out_of_answers".into()), "{manner}: {unfit}");
        }
        assert_eq!(
            www["unfit"].as_array().unwrap().len(),
            if manner == "slow 3s" { 0 } else { 2 },
            "{manner}"
        );
    }
}

#[test]
fn operators_reloads_and_restarts_have_their_effect() {
    let folder = folder(
        "config: config.yaml\n\
         steps:\n\
         - { at: 10s, drain: eu/eu-1 }\n\
         - { at: 20s, expect: { eu/eu-1: draining, www.example.com A: 192.0.2.2 } }\n\
         - { at: 60s, expect: { eu/eu-1: drained } }\n\
         - { at: 61s, undrain: eu/eu-1, override: { eu/eu-2: unhealthy } }\n\
         - { after: 1s, expect: { eu/eu-1: healthy, eu/eu-2: forced_unhealthy, www.example.com A: [192.0.2.1] } }\n\
         - { at: 70s, override: { eu/eu-2: none }, disable: [eu] }\n\
         - { after: 1s, expect: { eu: disabled, www.example.com: us, www.example.com AAAA: [] } }\n\
         - { at: 80s, enable: eu, restart: 5s }\n\
         - { at: 90s, expect: { eu: healthy, eu/eu-2: healthy, www.example.com: healthy } }\n\
         - { at: 100s, reload: other.yaml }\n\
         - { at: 110s, expect: { asia/as-1: healthy, www.example.org A: 203.0.113.1 } }\n",
    );
    let other = "monitors: { web: { type: tcp, port: 80 } }\n\
                 pools: { asia: { monitor: web, endpoints: [{ name: as-1, address: 203.0.113.1 }] } }\n\
                 zone: example.org\nrecords: { '': { type: NS, value: ns1.example.net. } }\n\
                 load_balancers: { www: { default_pools: [asia], when_unavailable: nodata } }\n";
    folder.write("other.yaml", other);
    let ended = simulate(&folder, &[]);
    assert_eq!((ended.code(), &*ended.log), (Some(0), ""), "{}", ended.out);
    assert!(ended.out.contains("\n14 of 14 expectations hold\n"), "{}", ended.out);

    let all = json(&folder);
    let www = row(&all, "load_balancers", "www.example.com.");
    let silent = www["silent_seconds"].as_f64().unwrap();
    assert!((5.0..6.0).contains(&silent), "nobody answers while the server is away: {silent}");
    let last = www["spans"].as_array().unwrap().last().unwrap();
    assert!(last["to"].as_f64().unwrap() < 101.0, "it is gone with the reload: {last}");
    assert_eq!(spans(row(&all, "pools", "asia"), "state").last().unwrap().1, "healthy");
}

#[test]
fn a_weight_is_said_and_taken_back() {
    let folder = folder(
        "config: config.yaml\n\
         steps:\n\
         - { at: 10s, override: { eu/eu-1: weight 0 } }\n\
         - { after: 1s, expect: { eu/eu-1: healthy, eu: healthy, www.example.com A: 192.0.2.2 } }\n\
         - { at: 20s, override: { eu/eu-1: unhealthy, eu/eu-2: weight 0.25 } }\n\
         - { after: 1s, expect: { eu/eu-1: forced_unhealthy, www.example.com A: 192.0.2.2 } }\n\
         - { at: 30s, override: { eu/eu-1: none } }\n\
         - { after: 1s, expect: { eu/eu-1: healthy, www.example.com A: [192.0.2.1, 192.0.2.2] } }\n",
    );
    let ended = simulate(&folder, &[]);
    assert_eq!((ended.code(), &*ended.log), (Some(0), ""), "{}", ended.out);
    for told in
        ["override eu/eu-2: weight 0.25", "endpoint eu/eu-2 has weight 0.25", "override eu/eu-1: none"]
    {
        assert!(ended.out.contains(told), "{told}: {}", ended.out);
    }
}

#[test]
fn one_monitor_or_vantage_sees_what_others_do_not() {
    let folder = folder(
        "config: config.yaml\n\
         steps:\n\
         - { at: 1m, endpoints: { eu/eu-1 by web: hang } }\n\
         - { at: 2m, expect: { eu/eu-1: unhealthy } }\n\
         - { at: 2m, endpoints: { eu/eu-1: up } }\n\
         - { at: 3m, expect: { eu/eu-1: healthy } }\n\
         - { at: 3m, vantages: { local: down } }\n\
         - { at: 4m, expect: { www.example.com: [] , us: critical } }\n",
    );
    let ended = simulate(&folder, &["--config", "config.yaml"]);
    assert_eq!(ended.code(), Some(0), "{}{}", ended.out, ended.log);
    assert!(ended.out.contains("answered only with what works"), "{}", ended.out);
    assert!(ended.out.contains("it gave no address"), "{}", ended.out);
}

#[test]
fn host_names_lead_where_the_scenario_says() {
    let folder = folder(
        "config: config.yaml\n\
         hosts: { web.example.net: [192.0.2.7, 192.0.2.8] }\n\
         steps:\n\
         - { at: 10s, expect: { www.example.com A: [192.0.2.7, 192.0.2.8] } }\n\
         - { at: 10s, drain: eu/web, expect: { www.example.com: us } }\n\
         - { at: 20s, undrain: eu/web, hosts: { web.example.net: [192.0.2.9] } }\n\
         - { at: 90s, expect: { www.example.com A: 192.0.2.9, eu/web: healthy } }\n\
         - { at: 90s, hosts: { web.example.net: fails } }\n\
         - { at: 5m, expect: { www.example.com A: 192.0.2.9 } }\n",
    );
    let hosts = CONFIG.replace(
        "[{ name: eu-1, address: 192.0.2.1 }, { name: eu-2, address: 192.0.2.2 }]",
        "[{ name: web, address: web.example.net }]",
    );
    folder.write("config.yaml", &hosts);
    let ended = simulate(&folder, &[]);
    assert_eq!(ended.code(), Some(0), "{}{}", ended.out, ended.log);
    assert!(ended.out.contains("5 of 5 expectations hold"), "{}", ended.out);
}

#[test]
fn a_drawing_is_sound_xml_with_a_title_for_each_bar() {
    let folder = folder(
        "title: \"<eu> & co\"\n\
         config: config.yaml\n\
         steps: [{ at: 30s, endpoints: { eu/eu-1: flap 25s, us: hang } }]\n\
         for: 2m\n",
    );
    let ended = simulate(&folder, &["--svg", "drawing.svg"]);
    assert_eq!((ended.code(), &*ended.log), (Some(0), ""));
    let svg = std::fs::read_to_string(folder.join("drawing.svg")).unwrap();
    assert!(svg.contains("<title>&lt;eu&gt; &amp; co</title>"), "{svg}");
    assert!(svg.contains("prefers-color-scheme: dark"), "{svg}");
    assert_eq!(
        svg.matches("<rect ").count(),
        svg.matches("<g><title>").count() - 2,
        "two deeds have one too"
    );
    assert!(svg.contains("www.example.com."), "names are text");
    if need("xmllint") {
        let path = folder.join("drawing.svg");
        let checked = Command::new("xmllint").arg("--noout").arg(path).output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    }
}

#[test]
fn what_is_refused_is_told_with_its_place_and_plays_nothing() {
    let folder = folder("config: config.yaml\nsteps: [{ at: 30s, endpoints: { eu/eu-9: hang } }]\n");
    let ended = simulate(&folder, &["--json"]);
    assert_eq!((ended.code(), &*ended.out), (Some(1), ""));
    let message = "scenario.yaml:2:33: error: the pool `eu` has no endpoint `eu-9`";
    assert!(ended.log.contains(message), "{}", ended.log);
    assert!(ended.log.contains("1 error in scenario.yaml"), "{}", ended.log);

    folder.write("config.yaml", "zone: example.com\npools: 3\n");
    let ended = simulate(&folder, &[]);
    assert_eq!(ended.code(), Some(1));
    assert!(ended.log.contains("config.yaml:2:8: error:"), "{}", ended.log);

    for (arguments, code) in
        [(vec!["simulate"], 2), (vec!["simulate", "/nowhere"], 1), (vec!["simulate", "/"], 1)]
    {
        let ended = run(&arguments);
        assert_eq!((ended.code(), &*ended.out), (Some(code), ""), "{arguments:?}: {}", ended.log);
    }
    folder.write("config.yaml", CONFIG);
    folder.write("scenario.yaml", "config: config.yaml\n");
    let ended = simulate(&folder, &["--svg", "no/such/folder.svg"]);
    assert_eq!(ended.code(), Some(1));
    assert!(ended.log.contains("hale: no/such/folder.svg: "), "{}", ended.log);
}

#[test]
fn a_run_of_too_many_events_ends_with_a_word() {
    use haledns::{config, simulate, telemetry};
    let folder = folder("config: config.yaml\nfor: 1d\n");
    let script = config::load_scenario(&folder.join("scenario.yaml"), &[]).unwrap();
    let why = simulate::play(&script, 10_000, telemetry::headline).unwrap_err();
    assert!(why.contains("more than 10000 events"), "{why}");
    assert!(why.contains("shorten the scenario"), "{why}");
}
