//! `timing`: the table for people, the figures for programs.

use crate::support::folder::Folder;
use crate::support::hale::run;

#[test]
fn the_table_has_every_event_in_80_columns() {
    let ended = run(["timing", "--config", "zones"]);
    assert_eq!((ended.code(), &*ended.log), (Some(0), ""), "{}", ended.out);
    for part in [
        "www.gslb.example.com.  TTL 30 s",
        "pools eu, us, by the monitor web",
        "an endpoint fails at once",
        "an endpoint hangs",
        "an endpoint comes back",
        "a new endpoint, from the reload",
        "wait for the next beat",
        "TTL of the answers before",
        "the last client has moved",
        "caches that overstay",
    ] {
        assert!(ended.out.contains(part), "no `{part}` in\n{}", ended.out);
    }
    let long: Vec<&str> = ended.out.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(long.is_empty(), "{long:#?}");
    assert_eq!(run(["timing", "zones"]).out, ended.out, "a path alone is enough");
}

#[test]
fn json_holds_all_figures_and_they_add_up() {
    let ended = run(["timing", "api.gslb.example.com", "--config", "zones", "--json"]);
    let all: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    let [balancer] = &all["load_balancers"].as_array().unwrap()[..] else {
        panic!("one is asked for: {all}")
    };
    assert_eq!((&balancer["name"], &balancer["ttl"]), (&"api.gslb.example.com.".into(), &30.0.into()));
    let pools = balancer["pools"].as_array().unwrap();
    assert_eq!(pools.len(), 2);
    for event in ["refused", "hanging", "back", "new"] {
        let course = &pools[0][event];
        for column in ["least", "typical", "worst"] {
            let parts = course["parts"].as_array().unwrap().iter();
            let sum: f64 = parts.map(|part| part[column].as_f64().unwrap()).sum();
            let total = course["clients"][column].as_f64().unwrap();
            assert!((sum - total).abs() < 1e-6, "{event}, {column}: {sum} and {total}");
        }
    }
    // 2.2 s to the beat, 2 s to the next, a probe of 1 s, 20 ms, and the TTL
    assert_eq!(balancer["worst"], 35.22);
    assert_eq!(pools[0]["hanging"]["answers"]["worst"], 5.22);
}

#[test]
fn what_cannot_be_shown_is_explained() {
    let broken = Folder::with("a.yaml", "zone: example.test\n");
    let broken = broken.path().to_str().unwrap();
    for (arguments, told) in [
        (vec!["timing"], "`hale timing --config PATH`"),
        (vec!["timing", "www.example.com"], "`hale timing NAME --config PATH`"),
        (vec!["timing", "nowhere.example.com", "--config", "zones"], "there are: api.gslb.example.com., www"),
        (vec!["timing", "--config", broken], "has no NS records"),
        (vec!["timing", "--config", "/nowhere"], "cannot be read"),
    ] {
        let ended = run(&arguments);
        assert_eq!((ended.code(), &*ended.out), (Some(1), ""), "{arguments:?}");
        assert!(ended.log.contains(told), "{arguments:?}: {}", ended.log);
    }
}

#[test]
fn a_short_name_is_enough_if_no_other_begins_so() {
    let ended = run(["timing", "www", "--config", "zones"]);
    assert_eq!(ended.code(), Some(0), "{}", ended.log);
    assert!(
        ended.out.starts_with("www.gslb.example.com.") && !ended.out.contains("api.gslb"),
        "{}",
        ended.out
    );
}

#[test]
fn a_missed_promise_is_refused_below_the_figures() {
    let text = "monitors: { web: { type: tcp, port: 9 } }\n\
                pools: { eu: { monitor: web, endpoints: [ { name: a, address: 192.0.2.1 } ] } }\n\
                zone: example.test\nrecords: { '': { type: NS, value: ns1.example.net. } }\n\
                load_balancers: { www: { default_pools: [eu], fallback_pool: eu, slo: { failover: 9s } } }\n";
    let folder = Folder::with("a.yaml", text);
    let ended = run(["timing", "--config", folder.path().to_str().unwrap()]);
    assert_eq!(ended.code(), Some(1));
    assert!(ended.out.contains("the last client has moved"), "{}", ended.out);
    assert!(ended.log.contains("of the pool `eu` by the monitor `web`"), "{}", ended.log);
}
