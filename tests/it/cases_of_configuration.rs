//! What went wrong for others with configuration, each case under its id.
//! The words of reports stand in `tests/config`; here is what is taken and what
//! is not.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use haledns::authority::Prepared;
use haledns::config::{self, Loaded};
use haledns::engine::{Engine, Event};
use haledns::model::{Model, SteeringPolicy};
use haledns::moment::Moment;

fn load(text: impl AsRef<[u8]>) -> Result<Loaded, String> {
    let files = vec![(PathBuf::from("all.yaml"), text.as_ref().to_vec())];
    config::load_texts(files).map_err(|report| report.text(false))
}

fn taken(text: impl AsRef<[u8]>) -> Arc<Model> {
    let shown = String::from_utf8_lossy(text.as_ref()).into_owned();
    load(text).unwrap_or_else(|report| panic!("{report}\nof\n{shown}")).model
}

/// Refused, with a place and all of these words.
fn refused(text: impl AsRef<[u8]>, words: &[&str]) {
    let shown = String::from_utf8_lossy(text.as_ref()).into_owned();
    let report = load(text).err().unwrap_or_else(|| panic!("taken:\n{shown}"));
    for word in words.iter().copied().chain(["all.yaml:"]) {
        assert!(report.contains(word), "no `{word}` in\n{report}\nof\n{shown}");
    }
}

/// What lints say of a text that is taken.
fn lints(text: &str) -> String {
    load(text).unwrap_or_else(|report| panic!("{report}")).lint_report().text(false)
}

const POOLS: &str = "
pools:
  p1: { endpoints: [ { name: a, address: 192.0.2.11 } ] }
  p2: { endpoints: [ { name: a, address: 192.0.2.12 } ] }
";

/// One zone with `www` described by these keys.
fn balanced(keys: &str) -> String {
    format!(
        "zone: example.com\nrecords: {{ '': {{ type: NS, value: ns1.example.net. }} }}\n\
         load_balancers:\n  www: {{ {keys}, default_pools: [p1], fallback_pool: p2 }}\n{POOLS}"
    )
}

/// One zone with these records.
fn zone(records: &str) -> String {
    format!("zone: example.com\nrecords:\n  '': {{ type: NS, value: ns1.example.net. }}\n{records}")
}

/// One pool with these keys, used by nobody in particular.
fn pool(keys: &str) -> String {
    balanced("ttl: 30")
        .replace("p1: {", &format!("p1: {{ {keys},"))
        .replace(", endpoints: [ { name: a, address: 192.0.2.11 } ] }", " }")
}

/// One endpoint at this address, as YAML writes it.
fn address(written: &str) -> String {
    pool(&format!("endpoints: [ {{ name: a, address: {written} }} ]"))
}

/// One monitor with these keys.
fn monitor(keys: &str) -> String {
    format!("monitors: {{ m: {{ {keys} }} }}\n{}", balanced("ttl: 30").replace("p1: {", "p1: { monitor: m,"))
}

#[test]
fn c01_off_is_off_however_a_tool_writes_it_and_never_another_policy() {
    for written in ["off", "\"off\"", "'off'", "Off", "OFF", "false"] {
        let model = taken(balanced(&format!("steering_policy: {written}")));
        assert_eq!(model.zones[0].load_balancers[0].steering_policy, SteeringPolicy::Off, "{written}");
    }
    for written in ["no", "true", "on", "of", "1"] {
        refused(balanced(&format!("steering_policy: {written}")), &["off"]);
    }
    for written in ["on", "yes", "\"true\"", "1"] {
        refused(balanced(&format!("enabled: {written}")), &["true"]);
    }
}

#[test]
fn c02_bare_words_that_yaml_makes_something_else_of_are_told() {
    for written in ["false", "true", "null", "~"] {
        refused(
            pool(&format!("monitors: [{written}], endpoints: [ {{ name: a, address: 192.0.2.11 }} ]")),
            &[],
        );
    }
    for name in ["1e3", "0x10", "2024-01-01", "NO", "on", "Y"] {
        let text = balanced("ttl: 30").replace("p1", name);
        match load(&text) {
            Ok(loaded) => assert!(loaded.model.pools.iter().any(|pool| *pool.name == *name), "{name}"),
            Err(report) => assert!(report.contains("quotes"), "{report}"),
        }
    }
}

#[test]
fn c04_numbers_are_never_read_as_something_else() {
    for written in ["0443", "0o20", "1_000", "80.0", "\"443\"", "65536", "0", "-1", "8e1", "0x50", "10:30"] {
        refused(monitor(&format!("type: tcp, port: {written}")), &["port"]);
    }
    for written in ["1e3", "1_0", "-1", "4294967296", "017"] {
        refused(balanced(&format!("ttl: {written}")), &["ttl"]);
    }
    for (serial, good) in
        [("2024010101", true), ("4294967295", true), ("4294967296", false), ("-1", false), ("1.5", false)]
    {
        let text = zone(&format!("soa: {{ serial: {serial} }}\n"));
        assert_eq!(load(&text).is_ok(), good, "{serial}");
    }
    refused(pool("endpoints: [ { name: a, address: 192.0.2.11, weight: -1 } ]"), &["weight"]);
}

#[test]
fn c05_expected_codes_have_one_grammar() {
    for written in ["200", "\"200\"", "2xx", "[200, 302]", "[\"2xx\", 301]", "\"200,301\"", "2XX"] {
        taken(monitor(&format!("type: http, expected_codes: {written}")));
    }
    for written in ["20x", "600", "[]", "99", "2x", "garbage", "[200, garbage]"] {
        refused(monitor(&format!("type: http, expected_codes: {written}")), &[]);
    }
}

#[test]
fn c06_merge_keys_are_refused_and_aliases_stay_bounded() {
    refused("base: &base { type: tcp }\nmonitors: { m: { <<: *base, port: 80 } }\n", &[]);
    refused(
        format!("x-base: &b {{ name: a, address: 192.0.2.11 }}\n{}", pool("endpoints: [*b]")),
        &["x-base"],
    );
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for n in 1..10 {
        let list = vec![format!("*a{}", n - 1); 10].join(", ");
        writeln!(bomb, "a{n}: &a{n} [{list}]").unwrap();
    }
    refused(bomb, &[]);
}

#[test]
fn c07_marks_and_line_ends_change_nothing_tabs_and_other_encodings_are_told() {
    let text = zone("  txt: { type: TXT, value: plain }\n");
    let plain = taken(&text);
    for other in [
        format!("\u{feff}{text}"),
        text.replace('\n', "\r\n"),
        format!("\u{feff}{}", text.replace('\n', "\r\n")),
    ] {
        assert_eq!(taken(&other), plain, "{other:?}");
    }
    refused("zone: example.com\nrecords:\n\t'': { type: NS, value: ns1.example.net. }\n", &[":3:"]);
    refused(text.replace("plain", "caf\u{0}e"), &[":4:"]);
    let mut latin = text.replace("plain", "cafX").into_bytes();
    let at = latin.iter().position(|octet| *octet == b'X').unwrap();
    latin[at] = 0xe9;
    refused(latin, &["UTF-8"]);
    let utf16: Vec<u8> = [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    refused(utf16, &["UTF-16"]);
}

#[test]
fn c09_addresses_are_taken_as_they_stand_or_not_at_all() {
    for written in [
        "010.0.0.1",
        "192.0.2.010",
        "192.0.2",
        "192.0.2.1/32",
        "\"[2001:db8::1]\"",
        "\"2001:db8::1%eth0\"",
        "\"::ffff:192.0.2.1\"",
        "0.0.0.0",
        "\"::\"",
        "224.0.0.1",
        "\"ff02::1\"",
        "\"192.0.2.1 \"",
        "255.255.255.255",
    ] {
        refused(address(written), &["address"]);
    }
    taken(address("127.0.0.1"));
    let twice =
        "endpoints: [ { name: a, address: \"2001:DB8::1\" }, { name: b, address: \"2001:db8:0::1\" } ]";
    assert!(
        load(pool(twice))
            .map_or_else(|report| report, |loaded| loaded.lint_report().text(false))
            .contains("2001:db8::1")
    );
}

#[test]
fn c11_what_cannot_stand_together_is_told_with_both_places() {
    for (records, words) in [
        ("  '@': { type: CNAME, value: x }\n", &["apex"][..]),
        ("  x: [ { type: CNAME, value: y }, { type: TXT, value: z } ]\n", &["CNAME", "TXT"]),
        ("  x: { type: MX, value: { preference: 10, exchange: 192.0.2.1 } }\n", &["192.0.2.1"]),
        ("  other.example.org.: { type: A, value: 192.0.2.1 }\n", &["example.org"]),
        ("  sub: { type: NS, value: ns.sub }\n  x.sub: { type: TXT, value: z }\n", &["sub.example.com."]),
    ] {
        refused(zone(records), words);
    }
    let below = balanced("ttl: 30")
        .replace("records: { ", "records: { sub: { type: NS, value: ns.sub }, ")
        .replace("  www:", "  www.sub:");
    refused(below, &["sub.example.com."]);
    let beside =
        |records: &str| balanced("ttl: 30").replace("records: { ", &format!("records: {{ {records}, "));
    assert!(lints(&beside("www: { type: A, value: 192.0.2.1 }")).contains("www.example.com."));
    assert!(!lints(&beside("www: { type: TXT, value: text }")).contains("www.example.com."));
    taken(balanced("ttl: 30").replace("  www:", "  '':"));
    assert!(lints(&zone("  sub: { type: NS, value: ns.sub }\n")).contains("ns.sub.example.com."), "no glue");
}

#[test]
fn c15_zero_empty_and_absurd_values_end_in_words_not_in_panics() {
    let endpoints = |weights: &[&str]| {
        let each = weights
            .iter()
            .enumerate()
            .map(|(n, weight)| format!("{{ name: e{n}, address: 192.0.2.1{n}, weight: {weight} }}"));
        pool(&format!("endpoints: [ {} ]", each.collect::<Vec<_>>().join(", ")))
    };
    for weights in [&["0", "0"][..], &["0", "1"], &["1", "1", "1"]] {
        let model = taken(endpoints(weights));
        let mut engine = Engine::new(1);
        engine.handle(Event::Reload(Prepared::new(model)), Moment::ZERO);
        let _ = engine.snapshot();
    }
    refused(endpoints(&["4294967295", "4294967295"]), &["weight"]);
    refused(pool("endpoints: []"), &["endpoints"]);
    refused(balanced("ttl: 30").replace("default_pools: [p1]", "default_pools: []"), &["default_pools"]);
    refused(balanced("ttl: 30").replace(", fallback_pool: p2", ""), &["fallback_pool"]);
    for keys in ["interval: 0", "retries: 100", "consecutive_up: 1e3"] {
        refused(monitor(&format!("type: tcp, port: 80, {keys}")), &[]);
    }
    let all_off = pool("endpoints: [ { name: a, address: 192.0.2.11, enabled: false } ]");
    taken(all_off);
}

#[test]
fn c17_unknown_keys_are_errors_with_what_was_meant() {
    refused(balanced("stering_policy: off"), &["steering_policy"]);
    refused(pool("endpoint: [ { name: a, address: 192.0.2.11 } ]"), &["endpoints"]);
    refused(format!("{}healthcheck: {{ path: / }}\n", balanced("ttl: 30")), &["healthcheck"]);
    refused(format!("{}---\nzone: example.org\n", balanced("ttl: 30")), &[]);
    refused(format!("{}zonez: {{}}\n", balanced("ttl: 30")), &["zones"]);
}

#[test]
fn c18_a_changed_zone_is_answered_at_once_under_a_greater_serial() {
    let text = |address: &str, serial: u32| {
        zone(&format!("  www: {{ type: A, value: {address} }}\nsoa: {{ serial: {serial} }}\n"))
    };
    let mut engine = Engine::new(1);
    let mut serial = |text: &str| {
        engine.handle(
            Event::Reload(Prepared::new(taken(text))),
            Moment::from_start(std::time::Duration::from_secs(100)),
        );
        engine.snapshot().serials[0]
    };
    let first = serial(&text("192.0.2.1", 2_024_010_101));
    assert_eq!(first, 2_024_010_101);
    assert_eq!(serial(&text("192.0.2.1", 2_024_010_101)), first, "nothing has changed");
    let edited = serial(&text("192.0.2.2", 2_024_010_101));
    assert!(edited > first, "the same serial was written, but the contents differ");
    let lowered = serial(&text("192.0.2.3", 5));
    assert!(lowered > edited, "a serial that was lowered is not taken back");
}

#[test]
fn c20_names_ttls_and_durations_have_their_edges() {
    for (ttl, good) in [
        ("30s", true),
        ("1h30m", true),
        ("0", true),
        ("-1", false),
        ("2147483648", false),
        ("500ms", false),
        ("1.5", false),
    ] {
        assert_eq!(
            load(zone(&format!("  x: {{ type: A, ttl: {ttl}, value: 192.0.2.1 }}\n"))).is_ok(),
            good,
            "{ttl}"
        );
    }
    let label = |length: usize| "x".repeat(length);
    let long = [label(63), label(63), label(63), label(49)].join("."); // 255 octets with example.com
    for (name, good) in [
        (label(63), true),
        (label(64), false),
        ("_dmarc".into(), true),
        ("-x".into(), true),
        ("xn--bcher-kva".into(), true),
        ("a..b".into(), false),
        (r"a\.b".into(), true),
        (long.clone(), true),
        (format!("{long}x"), false),
    ] {
        assert_eq!(
            load(zone(&format!("  '{name}': {{ type: A, value: 192.0.2.1 }}\n"))).is_ok(),
            good,
            "{name}"
        );
    }
    refused(zone("  'bücher': { type: A, value: 192.0.2.1 }\n"), &["xn--bcher-kva"]);
    for length in [255, 256, 4000] {
        let model = taken(zone(&format!("  t: {{ type: TXT, value: {} }}\n", "t".repeat(length))));
        let set = model.zones[0].records.iter().find(|set| set.rtype == 16).unwrap();
        let mut rest = &set.rdata[0][..];
        let mut text = 0;
        while let Some((&octets, after)) = rest.split_first() {
            text += usize::from(octets);
            rest = &after[usize::from(octets)..];
        }
        assert_eq!(text, length, "cut into strings of 255 octets at most");
    }
}
