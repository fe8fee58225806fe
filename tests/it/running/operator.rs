//! What operators say, and what they are shown.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::memory::serve;
use super::start::dead;
use super::{WWW, fixed, probed};
use crate::support::dns::{ask, ask_tcp, connect};
use crate::support::endpoint::{Endpoint, Manner};
use crate::support::folder::Folder;
use crate::support::hale::{Ended, Hale, run, until};

/// A server, and commands about it.
struct Served {
    folder: Folder,
    hale: Hale,
}

impl Served {
    fn start(text: &str) -> Served {
        let folder = Folder::with("a.yaml", text);
        let hale = serve(&folder);
        Served { folder, hale }
    }

    fn try_run(&self, arguments: &[&str]) -> Ended {
        let state = self.folder.join("state");
        run(arguments.iter().copied().chain(["--state-dir", state.to_str().unwrap()]))
    }

    fn run(&self, arguments: &[&str]) -> String {
        let ended = self.try_run(arguments);
        assert_eq!(ended.code(), Some(0), "{arguments:?}: {}", ended.log);
        ended.out
    }

    fn refused(&self, arguments: &[&str]) -> String {
        let ended = self.try_run(arguments);
        assert_eq!((ended.code(), &*ended.out), (Some(1), ""), "{arguments:?}");
        ended.log
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[arguments, &["--json"]].concat())).unwrap()
    }

    fn answers(&self, addresses: &[&str]) -> bool {
        ask(self.hale.address(), WWW).is(addresses)
    }
}

#[test]
fn h11_a_drained_endpoint_leaves_the_answers_at_once_and_is_drained_after_the_ttl() {
    let lives = Endpoint::start("127.0.0.1", Manner::Answers);
    let served = Served::start(&probed(&[lives.address], 1));
    assert!(served.answers(&["127.0.0.1"]));
    let begun = Instant::now();
    let told = served.run(&["drain", "main/e1", "--reason", "new kernel"]);
    assert!(served.answers(&["203.0.113.5"]), "at once");
    assert!(told.contains("out of the answers") && told.contains("1s TTL"), "{told}");
    assert!(told.contains("`hale undrain main/e1`") && told.contains("pool main is critical"), "{told}");
    let shown = served.json(&["status", "main/e1"]);
    let endpoint = &shown["pools"][0]["endpoints"][0];
    assert_eq!((&endpoint["health"], &endpoint["serves"]), (&json!("healthy"), &json!(false)));
    assert_eq!(endpoint["overrides"][0]["reason"], json!("new kernel"));
    let told = served.run(&["drain", "main/e1", "--wait"]);
    assert!(told.contains("main/e1 is drained"), "{told}");
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(served.json(&["status", "main"])["pools"][0]["endpoints"][0]["fitness"], json!("drained"));
    let probes = lives.connections();
    until("it is probed all the same", || lives.connections() > probes);
    served.run(&["undrain", "main/e1"]);
    assert!(served.answers(&["127.0.0.1"]));
    assert!(served.run(&["undrain", "main/e1"]).contains("isn't drained"));
}

#[test]
fn h16_switching_off_and_on_and_forcing_verdicts() {
    let lives = Endpoint::start("127.0.0.1", Manner::Answers);
    let also = Endpoint::start("127.0.0.3", Manner::Answers);
    let text = probed(&[lives.address, dead("127.0.0.2"), also.address], 30);
    let served = Served::start(&text.replace("name: e3,", "name: e3, enabled: false,"));
    assert!(served.answers(&["127.0.0.1"]));
    served.run(&["disable", "main/e1"]);
    assert!(served.answers(&["203.0.113.5"]));
    assert!(served.refused(&["undrain", "main/e1"]).contains("`hale enable main/e1`"));
    served.run(&["enable", "main/e1"]);
    assert!(served.answers(&["127.0.0.1"]));
    assert!(served.run(&["enable", "main/e1"]).contains("enabled already"));
    served.run(&["enable", "main/e3"]);
    until("what the configuration has off is probed and serves", || {
        served.answers(&["127.0.0.1", "127.0.0.3"])
    });
    let told = served.run(&["disable", "main/e3"]);
    assert!(told.starts_with("main/e3 is disabled again, as configured\n"), "{told}");
    assert!(served.answers(&["127.0.0.1"]));
    let said = |of: &str| served.json(&["status", of])["pools"][0]["endpoints"][0]["overrides"].clone();
    assert_eq!(said("main/e3"), json!([]), "what is said as it is configured leaves no override");
    assert!(served.run(&["disable", "main/e3"]).contains("disabled already, in the configuration"));
    assert_eq!(said("main/e3"), json!([]));
    served.run(&["override", "main/e2", "healthy"]);
    assert!(served.answers(&["127.0.0.1", "127.0.0.2"]), "whatever probes say");
    served.run(&["override", "main/e2", "off"]);
    assert!(served.answers(&["127.0.0.1"]));
    served.run(&["override", "main/e1", "unhealthy"]);
    assert!(served.answers(&["203.0.113.5"]));
    served.run(&["override", "main/e1", "off"]);
    served.run(&["drain", "main"]);
    assert!(served.answers(&["203.0.113.5"]), "a pool as a whole");
    served.run(&["undrain", "main"]);
    served.run(&["disable", "main"]);
    assert!(served.answers(&["203.0.113.5"]));
    served.run(&["enable", "main"]);
    assert!(served.answers(&["127.0.0.1"]));
    served.run(&["disable", "main", "--for", "1s"]);
    assert!(served.answers(&["203.0.113.5"]));
    until("the pool is back by itself", || served.answers(&["127.0.0.1"]));
}

#[test]
fn an_enable_that_the_configuration_has_come_to_say_leaves_no_override() {
    let off = fixed("192.0.2.1", 30).replace("name: one,", "name: one, enabled: false,");
    assert!(off.contains("enabled: false"));
    let served = Served::start(&off);
    let told = served.run(&["enable", "main/one"]);
    assert!(told.starts_with("main/one is enabled over the configuration\n"), "nothing tests it: {told}");
    assert!(told.contains("`hale disable main/one`") && served.answers(&["192.0.2.1"]), "{told}");
    served.folder.replace("a.yaml", &fixed("192.0.2.1", 30));
    served.run(&["reload"]);
    served.run(&["enable", "main/one"]);
    let shown = served.json(&["status", "main/one"]);
    assert_eq!(shown["pools"][0]["endpoints"][0]["overrides"], json!([]), "as configured");
    let told = served.run(&["disable", "main/one"]);
    assert!(told.starts_with("main/one is disabled\n"), "nothing probes it: {told}");
}

#[test]
fn a_drain_that_ends_before_it_is_drained_says_so() {
    let served = Served::start(&fixed("192.0.2.1", 30));
    let told = served.run(&["drain", "main/one", "--for", "12s"]);
    assert!(told.contains("that is before it is drained"), "{told}");
    let begun = Instant::now();
    let ended = served.try_run(&["drain", "main/one", "--wait", "--for", "12s"]);
    assert_eq!(ended.code(), Some(1));
    assert!(ended.log.contains("main/one is never drained"), "{}", ended.log);
    assert!(begun.elapsed() < Duration::from_secs(11), "{:?}", begun.elapsed());
    assert!(!served.run(&["drain", "main/one", "--for", "31s"]).contains("before it is drained"));
}

#[test]
fn a_weight_is_said_over_the_configured_one() {
    let (one, two) =
        (Endpoint::start("127.0.0.1", Manner::Answers), Endpoint::start("127.0.0.2", Manner::Answers));
    let served = Served::start(&probed(&[one.address, two.address], 30));
    assert!(served.answers(&["127.0.0.1", "127.0.0.2"]));
    let told = served.run(&["override", "main/e1", "weight", "0", "--reason", "canary"]);
    assert!(
        told.contains("main/e1 has weight 0 by your word") && told.contains("`hale override main/e1 off`")
    );
    assert!(served.answers(&["127.0.0.2"]), "at once");
    assert!(served.run(&["status"]).contains("weight 0 by"), "{}", served.run(&["status"]));

    served.run(&["override", "main/e1", "weight", "0.25", "--reason", "canary"]);
    let seen: Vec<usize> = (0..64).map(|_| ask(served.hale.address(), WWW).addresses.len()).collect();
    assert!(seen.iter().all(|count| *count == 1), "unequal weights: one address an answer, {seen:?}");
    let text = served.run(&["status", "main/e1"]);
    assert!(text.contains("weight    0.25, configured 1\n") && text.contains("weight 0.25 by"), "{text}");
    assert!(text.contains(": canary since"), "{text}");
    let endpoint = &served.json(&["status", "main/e1"])["pools"][0]["endpoints"][0];
    assert_eq!((&endpoint["weight"], &endpoint["configured_weight"]), (&json!(0.25), &json!(1.0)));
    let said = &endpoint["overrides"][0];
    assert_eq!((&said["action"], &said["weight"]), (&json!("weight"), &json!(0.25)));

    // a verdict stands beside it, and both are taken back together
    served.run(&["override", "main/e1", "unhealthy"]);
    assert!(served.answers(&["127.0.0.2"]));
    let both = served.json(&["status", "main/e1"]);
    assert_eq!(both["pools"][0]["endpoints"][0]["overrides"].as_array().unwrap().len(), 2, "{both}");
    let told = served.run(&["override", "main/e1", "off"]);
    assert!(told.contains("is again what probes say") && told.contains("again the configured one"), "{told}");
    assert!(served.answers(&["127.0.0.1", "127.0.0.2"]));
    assert!(
        served.run(&["override", "main/e1", "off"]).contains("nothing was said of the health or the weight")
    );

    served.run(&["override", "main/e2", "weight", "0", "--for", "1s"]);
    assert!(served.answers(&["127.0.0.1"]));
    until("it ends by itself", || served.answers(&["127.0.0.1", "127.0.0.2"]));
    let state = served.folder.join("state");
    let history = || run(["history", "main", "--json", "--state-dir", state.to_str().unwrap()]).out;
    until("the history has the end", || history().contains("main/e2 has its configured weight again"));
    assert!(history().contains("endpoint main/e1 has weight 0.25: canary"), "{}", history());
}

#[test]
fn a_weight_is_a_number_from_0_to_1_in_hundredths() {
    let served = Served::start(&fixed("192.0.2.1", 30));
    for (arguments, told) in [
        (&["weight", "1.5"][..], "write a number from 0 to 1 in hundredths, such as `0.25`"),
        (&["weight", "nan"], "write a number from 0 to 1 in hundredths, such as `0.25`"),
        (&["weight", "-0.5"], "write a number from 0 to 1 in hundredths, such as `0.25`"),
        (&["weight", "0.333"], "write `0.33`: a weight is 0 to 1, in hundredths"),
        (&["weight", "50%"], "write `0.5`: a weight is 0 to 1, in hundredths"),
        (&["weight"], "`weight` takes a number from 0 to 1: write `hale override main/one weight 0.25`"),
        (&["healthy", "0.5"], "only `weight` takes a number: write `hale override main/one weight 0.5`"),
        (&["wieght", "0.5"], "a similar value exists: 'weight'"),
    ] {
        let ended = served.try_run(&[&["override", "main/one"], arguments].concat());
        assert_eq!((ended.code(), &*ended.out), (Some(2), ""), "{arguments:?}");
        assert!(ended.log.contains(told), "{arguments:?}: {}", ended.log);
    }
    assert!(served.refused(&["override", "main", "weight", "0.5"]).contains("write POOL/ENDPOINT"));
    assert!(served.answers(&["192.0.2.1"]));
}

#[test]
fn status_shows_health_and_fitness_with_their_evidence() {
    let lives = Endpoint::start("127.0.0.1", Manner::Answers);
    let served = Served::start(&probed(&[lives.address, dead("127.0.0.2")], 30));
    let text = served.run(&["status"]);
    for (line, words) in [
        ("www.example.test.", &["healthy", "main"][..]),
        ("main ", &["degraded", "1 of 2"]),
        ("sorry ", &["unknown", "no monitor"]),
        ("main/e1", &["127.0.0.1", "healthy", "yes"]),
        ("main/e2", &["127.0.0.2", "unhealthy  no ", "TCP connection failed"]),
        ("1 load balancer: 1 healthy", &[]),
        ("2 pools: 1 degraded, 1 unknown", &[]),
        ("3 endpoints: 2 serving", &[]),
    ] {
        let found =
            text.lines().find(|text| text.starts_with(line)).unwrap_or_else(|| panic!("{line}: {text}"));
        assert!(words.iter().all(|word| found.contains(word)), "{words:?}: {found}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80) && !text.contains('\x1b'), "{text}");
    until("the dead one was seen", || served.run(&["status", "main/e2"]).contains("(connect_refused)"));
    let text = served.run(&["status", "main/e1"]);
    assert!(text.contains("monitor web from") && text.contains("status 200"), "{text}");
    assert!(text.contains("last bad   none since the start"), "{text}");
    assert_eq!(served.json(&["status"])["load_balancers"][0]["serving"], json!(["main"]));
}

#[test]
fn status_counts_what_was_asked_and_how_it_was_answered() {
    let served = Served::start(&fixed("192.0.2.1", 30));
    let fresh = served.json(&["status"])["served"].clone();
    assert_eq!((&fresh["queries"], &fresh["replies"]), (&json!(0), &json!(0)));
    assert!(served.run(&["status"]).contains("\nqueries since the start: 0\nreplies: 0\n"));
    let mut stream = connect(served.hale.address());
    for _ in 0..2 {
        assert!(served.answers(&["192.0.2.1"]));
        assert_eq!(ask(served.hale.address(), "no.example.test.").addresses.len(), 0);
        assert!(ask_tcp(&mut stream, WWW).is(&["192.0.2.1"]));
    }
    ask(served.hale.address(), "www.example.org.");
    let counts = || served.json(&["status"])["served"].clone();
    until("all are counted", || counts()["replies"] == json!(7));
    let counted = counts();
    assert_eq!(counted["over"], json!({ "udp": 5, "tcp": 2, "tls": 0, "https": 0, "quic": 0 }));
    let rcodes = ["noerror", "nxdomain", "refused"].map(|rcode| counted["rcodes"][rcode].clone());
    assert_eq!(rcodes, [json!(4), json!(2), json!(1)]);
    assert_eq!((&counted["queries"], &counted["open"]), (&json!(7), &json!(1)));
    let text = served.run(&["status"]);
    assert!(text.contains("queries since the start: 7 (UDP 5, TCP 2)\n"), "{text}");
    assert!(text.contains("replies: 7 (NOERROR 4, NXDOMAIN 2, REFUSED 1)\n"), "{text}");
    assert!(text.contains("connections: 1 (open 1)\n"), "{text}");
    assert_eq!(served.json(&["status", "main"])["served"], json!(null), "of the whole server only");
}

#[test]
fn a_reload_names_what_waits_for_the_next_start() {
    let served = Served::start(&fixed("192.0.2.1", 30));
    let text = format!("server: {{ log: json, tcp_idle_timeout: 20s }}\n{}", fixed("192.0.2.1", 30));
    served.folder.replace("a.yaml", &text);
    let waits = "what has changed of `server:` takes effect with the next start: \
                 `tcp_idle_timeout` from 10s to 20s; `log` from auto to json";
    let told = served.run(&["reload"]);
    assert!(told.contains(&format!("\n  {waits}\n")), "{told}");
    let told = served.json(&["reload"]);
    let (message, notes) = (&told["message"], &told["notes"]);
    assert_eq!((message, notes), (&json!("nothing has changed"), &json!([waits])), "as long as it waits");
    assert_eq!(served.hale.count("takes effect with the next start"), 1, "the log tells once");
}

#[test]
fn status_tells_what_of_the_files_is_not_in_force() {
    let served = Served::start(&fixed("192.0.2.1", 30));
    let files = || served.json(&["status"])["files"].clone();
    let at_the_start = files();
    assert_eq!(at_the_start["state"], json!("in_force"));
    assert_eq!((&at_the_start["errors"], &at_the_start["later"]), (&json!(0), &json!([])));
    assert_eq!(at_the_start["start_refused"], json!(false));
    assert!(
        served.run(&["status"]).starts_with("LOAD BALANCER"),
        "nothing is said of files that are in force"
    );

    let later = format!("server: {{ udp_workers: 3 }}\n{}", fixed("192.0.2.1", 30));
    served.folder.replace("a.yaml", &later);
    let waits = json!([{ "key": "udp_workers", "from": "one a core", "to": "3" }]);
    until("what waits is told", || files()["later"] == waits);

    served.folder.replace("a.yaml", &later.replace("192.0.2.1", "192.0.2").replace("ttl:", "tll:"));
    until("they are refused", || files()["state"] == json!("refused"));
    let refused = files();
    assert_eq!((&refused["errors"], &refused["start_refused"]), (&json!(2), &json!(true)), "{refused}");
    assert_eq!(refused["later"], waits, "what was taken before still waits");
    let first = refused["first_error"].as_str().unwrap();
    assert!(first.contains("a.yaml:") && first.contains(": error: ") && !first.contains('\n'), "{first}");
    let text = served.run(&["status"]);
    assert!(text.starts_with("the files are refused since ") && text.contains(first), "{text}");
    assert!(
        text.contains("; a start would be refused\n") && text.contains("  … and 1 more error; "),
        "{text}"
    );
    assert!(text.contains("`udp_workers` from one a core to 3 waits for the next start\n"), "{text}");

    let fewer = fixed("192.0.2.1", 30).replace("  ns1: {", "  ns2: {").replace("value: ns1", "value: ns2");
    served.folder.replace("a.yaml", &fewer.replace("  www: {", "  other: {"));
    until("the guard refuses", || served.run(&["status"]).contains("a start would take them"));
    let guarded = files();
    assert_eq!((&guarded["state"], &guarded["start_refused"]), (&json!("refused"), &json!(false)));
    assert_eq!(guarded["since"], refused["since"], "they are refused since the first time");

    served.folder.replace("a.yaml", &fixed("192.0.2.1", 30));
    until("all is in force", || {
        let files = files();
        files["state"] == json!("in_force") && files["later"] == json!([])
    });
}

#[test]
fn names_that_do_not_exist_and_servers_that_do_not_run() {
    let served = Served::start(&fixed("192.0.2.1", 30));
    for (arguments, told) in [
        (&["drain", "mian"][..], "there is no pool `mian`; did you mean `main`?"),
        (&["drain", "main/on"], "pool main has no endpoint `on`; did you mean `one`?"),
        (&["status", "xyzzy"], "there is no pool `xyzzy`; there are: main, sorry"),
        (&["status", "xyzzy/one"], "there is no pool `xyzzy`; there are: main, sorry"),
        (&["status", "www"], "there is no pool `www`; did you mean the load balancer `www.example.test.`?"),
        (&["status", "ns1.example.test"], "neither a load balancer nor has it records that follow health"),
        (&["override", "main", "healthy"], "write POOL/ENDPOINT, such as main/one"),
        (&["failback", "www"], "there is no load balancer `www`; did you mean `www.example.test.`?"),
        (&["report", "main/one", "up"], "one of `type: push` does"),
        (&["report", "main/one", "--ok", "5"], "no rules for ejecting"),
        (&["probe", "main"], "no monitor tests pool main"),
    ] {
        let log = served.refused(arguments);
        assert!(log.contains(told), "{arguments:?}: {log}");
    }
    let told = served.run(&["failback", "www.example.test"]);
    assert!(told.contains("has nothing to go back to"), "{told}");
    let ended = run(["status", "--socket", "/nonexistent/control"]);
    assert_eq!(ended.code(), Some(1));
    assert!(
        ended.log.contains("no server answers at /nonexistent/control; is `hale serve` running?"),
        "{}",
        ended.log
    );
    let ended = served.try_run(&["drain", "main", "--for", "soon"]);
    assert_eq!(ended.code(), Some(2));
}

#[test]
fn a_probe_can_be_asked_for_with_and_without_a_server() {
    let lives = Endpoint::start("127.0.0.1", Manner::Answers);
    let served = Served::start(&probed(&[lives.address, dead("127.0.0.2")], 30));
    let text = served.run(&["probe", "main/e1"]);
    assert!(
        text.contains("by web (http)") && text.contains(": pass") && text.contains("connected"),
        "{text}"
    );
    let ended = served.try_run(&["probe", "main"]);
    assert_eq!(ended.code(), Some(1), "one failed");
    assert!(ended.out.contains("TCP connection failed (connect_refused)"), "{}", ended.out);
    let found = served.json(&["probe", "main/e1"]);
    assert_eq!((&found[0]["result"], &found[0]["status"]), (&json!("pass"), &json!(200)));
    drop(served.hale);
    let file = served.folder.join("a.yaml");
    let ended = run(["probe", "main/e1", "--json", "--config", file.to_str().unwrap()]);
    assert_eq!(ended.code(), Some(0), "{}", ended.log);
    let found: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(found[0]["monitor"], json!("web"));
}

#[test]
fn a_reload_can_be_asked_for_and_forced() {
    let served = Served::start(&fixed("192.0.2.1", 30));
    assert!(served.run(&["reload"]).contains("nothing has changed"));
    served.folder.replace("a.yaml", &fixed("192.0.2.2", 30));
    let told = served.run(&["reload"]);
    // it may have been seen before it was asked for
    assert!(told.contains("configuration reloaded") || told.contains("nothing has changed"), "{told}");
    until("the new answer", || served.answers(&["192.0.2.2"]));
    let fewer = fixed("192.0.2.2", 30).replace("  ns1: {", "  ns2: {").replace("value: ns1", "value: ns2");
    served.folder.replace("a.yaml", &fewer.replace("  www: {", "  other: {"));
    assert!(served.refused(&["reload"]).contains("hale reload --force"));
    assert!(served.answers(&["192.0.2.2"]));
    assert!(served.run(&["reload", "--force"]).contains("configuration reloaded"));
    until("it is in force", || ask(served.hale.address(), "other.example.test.").is(&["192.0.2.2"]));
    served.folder.replace("a.yaml", "zone: [");
    assert!(served.refused(&["reload"]).contains("a.yaml:"));
}

#[test]
fn a_refused_reload_shows_the_error_and_counts_the_warnings() {
    let served = Served::start(&fixed("192.0.2.1", 30));
    // a warning each, all of them before the error
    let monitors: String =
        (0..30).map(|n| format!("  m{n}: {{ type: tcp, port: 1, consecutive_down: 1 }}\n")).collect();
    let pools: String = (0..30)
        .map(|n| {
            format!(
                "  p{n}: {{ monitor: m{n}, endpoints: [{{ name: a, address: 192.0.2.9, weight: 0 }}] }}\n"
            )
        })
        .collect();
    let broken = fixed("192.0.2.1", 30).replace("pools:\n", &format!("monitors:\n{monitors}pools:\n{pools}"));
    served.folder.replace("a.yaml", &(broken + "alert: {}\n"));
    let told = served.refused(&["reload"]);
    assert!(told.contains("alert"), "{told}");
    assert!(!told.contains("warning["), "{told}");
    assert!(told.contains(" warnings; `hale check` shows all"), "{told}");
    let logged = &served.hale.line("configuration not reloaded").text;
    assert!(logged.contains("not reloaded"), "{logged}");
}

#[test]
fn after_a_reload_new_endpoints_can_be_spoken_of_and_are_answered_from() {
    let hangs = Endpoint::start("127.0.0.2", Manner::Hangs); // so that its first outcome is waited for
    let lives = Endpoint::start("127.0.0.1", Manner::Answers);
    let served = Served::start(&probed(&[lives.address], 30));
    for (number, endpoints) in
        [&[lives.address, hangs.address][..], &[lives.address]].repeat(3).iter().enumerate()
    {
        let text = probed(endpoints, 30).replace("203.0.113.5", &format!("203.0.113.{}", 10 + number));
        let text = text.replace(
            "  www: {",
            &format!("  new{number}: {{ default_pools: [sorry], fallback_pool: sorry }}\n  www: {{"),
        );
        served.folder.replace("a.yaml", &text);
        served.run(&["reload"]);
        let reply = ask(served.hale.address(), &format!("new{number}.example.test."));
        assert!(reply.is(&[&format!("203.0.113.{}", 10 + number)]), "{number}: {reply:?}");
        if endpoints.len() > 1 {
            served.run(&["drain", "main/e2"]);
        } else {
            assert!(served.refused(&["drain", "main/e2"]).contains("no endpoint `e2`"));
        }
    }
    served.folder.replace("a.yaml", "zone: [");
    let ended = served.try_run(&["reload"]);
    assert_eq!((ended.code(), &*ended.out), (Some(1), ""));
    assert!(ended.log.contains("a.yaml:2:1: error: not YAML"), "{}", ended.log);
}

#[test]
fn ten_thousand_endpoints_are_shown_quickly() {
    let pool = |pool: u32| {
        let endpoints = (0..100).map(|n| format!("{{ name: e{n}, address: 10.{pool}.0.{n} }}"));
        format!("  p{pool}: {{ endpoints: [{}] }}\n", endpoints.collect::<Vec<_>>().join(", "))
    };
    let pools: String = (0..100).map(pool).collect();
    let zone = fixed("192.0.2.1", 30);
    let served = Served::start(&zone.replace("pools:\n", &format!("pools:\n{pools}")));
    let begun = Instant::now();
    let text = served.run(&["status"]);
    assert!(text.contains("10002 endpoints: 10002 serving"), "{}", text.lines().last().unwrap());
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    let begun = Instant::now();
    served.run(&["drain", "p7"]);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

/// What stands behind a name in `hale status`.
const REASONS: &str = "\
monitors:
  good: { type: static, verdict: healthy }
  bad: { type: static, verdict: unhealthy }
  own: { type: push, interval: 60s }
pools:
  app: { monitor: good, depends_on: [db], endpoints: [{ name: a, address: 192.0.2.1 }] }
  db: { monitor: bad, endpoints: [{ name: a, address: 192.0.2.2 }] }
  eu: { monitor: good, slow_start: 2m, endpoints: [{ name: a, address: 192.0.2.3 }] }
  us:
    monitor: good
    ejection: { consecutive_failures: 5 }
    endpoints: [{ name: a, address: 192.0.2.4 }, { name: b, address: 192.0.2.5 }]
  reports: { monitor: own, endpoints: [{ name: a, address: 192.0.2.6 }] }
maintenance:
  - { pool: us, endpoint: b, from: 2020-01-31T02:00:00Z, until: 2126-01-31T04:00:00Z, reason: new disks }
zone: example.test
records: { '': { type: NS, value: ns1.example.net. } }
load_balancers:
  app: { default_pools: [app, reports], fallback_pool: us }
  www: { default_pools: [eu, us], fallback_pool: us, failback: manual }
";

#[test]
fn status_says_why_what_is_healthy_does_not_serve() {
    let served = Served::start(REASONS);
    let line = |begin: &str| {
        let text = served.run(&["status"]);
        let found = text.lines().find(|line| line.starts_with(begin));
        found.unwrap_or_else(|| panic!("no {begin} in {text}")).to_owned()
    };
    until("the dependency is seen", || line("app/a").contains("needs db, which is critical"));
    assert!(line("us/b").contains("new disks (until 2126-01-31T04:00:00Z)"), "{}", line("us/b"));
    until("its pools are named", || line("app.example.test.").contains("app is critical"));
    until("all is well", || line("www.example.test.").contains("healthy"));
    served.run(&["disable", "eu"]);
    assert!(line("eu/a").contains("no: pool disabled"), "{}", line("eu/a"));
    assert!(line("www.example.test.").contains("eu is disabled"), "{}", line("www.example.test."));
    let told = served.run(&["enable", "eu"]);
    assert!(told.contains("slow_start") && told.contains("after 2m"), "{told}");
    let waits = "eu is back, waits for: hale failback www.example.test.";
    assert!(line("www.example.test.").contains(waits), "{}", line("www.example.test."));
    served.run(&["failback", "www.example.test"]);
    assert!(!line("www.example.test.").contains("waits"), "{}", line("www.example.test."));
}

/// Three pools, of which a load balancer uses one after the other.
const IN_TURN: &str = "\
monitors:
  good: { type: static, verdict: healthy }
pools:
  eu: { monitor: good, endpoints: [{ name: a, address: 192.0.2.1 }, { name: b, address: 192.0.2.2, weight: 0 }] }
  us: { monitor: good, endpoints: [{ name: a, address: 192.0.2.3 }] }
  ap: { monitor: good, endpoints: [{ name: a, address: 192.0.2.4 }] }
zone: example.test
records: { '': { type: NS, value: ns1.example.net. } }
load_balancers:
  www: { default_pools: [eu, us, ap], when_unavailable: nodata }
  man: { default_pools: [eu, us, ap], when_unavailable: nodata, failback: manual }
";

#[test]
fn what_has_weight_0_does_not_serve_and_is_not_back() {
    let served = Served::start(IN_TURN);
    let line = |begin: &str| {
        let text = served.run(&["status"]);
        let found = text.lines().find(|line| line.starts_with(begin));
        found.unwrap_or_else(|| panic!("no {begin} in {text}")).to_owned()
    };
    until("all is well", || line("man.example.test.").contains("healthy"));
    assert!(line("eu/b").contains("no: weight 0") && line("eu/b").contains("weight 0 as configured"));
    assert!(line("4 endpoints").ends_with("3 serving"), "{}", line("4 endpoints"));
    served.run(&["override", "eu/a", "weight", "0", "--reason", "canary"]);
    assert!(line("eu/a").contains("no: weight 0") && line("eu/a").contains("canary"), "{}", line("eu/a"));
    assert!(line("4 endpoints").ends_with("2 serving"), "{}", line("4 endpoints"));
    let endpoint = &served.json(&["status", "eu/a"])["pools"][0]["endpoints"][0];
    assert_eq!((&endpoint["serves"], &endpoint["fitness"]), (&json!(false), &json!("weight_0")));
    let lack = "eu has nothing to answer with: all that is up has weight 0";
    for balancer in ["www.example.test.", "man.example.test."] {
        let line = line(balancer);
        assert!(line.contains("degraded") && line.contains(lack) && !line.contains("is back"), "{line}");
    }
    assert!(served.run(&["failback", "man.example.test"]).contains("nothing to go back to"));
    served.run(&["override", "eu/a", "off"]);
    let balancer = || line("man.example.test.");
    assert!(balancer().contains("eu is back, waits for: hale failback man.example.test."), "{}", balancer());
    assert!(served.run(&["failback", "man.example.test"]).contains("goes back"));
    assert!(!balancer().contains("waits"), "{}", balancer());
}

#[test]
fn only_a_pool_that_would_be_used_is_said_to_be_back() {
    let served = Served::start(IN_TURN);
    let balancer = || {
        let text = served.run(&["status"]);
        text.lines().find(|line| line.starts_with("man.example.test.")).expect("its line").to_owned()
    };
    until("all is well", || balancer().contains("healthy"));
    served.run(&["disable", "us"]);
    served.run(&["enable", "us"]);
    assert!(balancer().contains("  eu") && !balancer().contains("back"), "{}", balancer());
    served.run(&["disable", "us"]);
    served.run(&["disable", "eu"]);
    served.run(&["enable", "us"]);
    assert!(balancer().contains("us is back, waits for"), "it comes before ap: {}", balancer());
}

#[test]
fn load_balancers_are_in_the_order_of_their_names() {
    let zones = |zone: &str, names: &[&str]| {
        let balancers = names
            .iter()
            .map(|name| format!("      {name}: {{ default_pools: [main], fallback_pool: main }}\n"));
        format!(
            "  {zone}:\n    records: {{ '': {{ type: NS, value: ns.example.net. }} }}\n    load_balancers:\n{}",
            balancers.collect::<String>()
        )
    };
    let text = format!(
        "monitors: {{ m: {{ type: static, verdict: healthy }} }}\n\
         pools: {{ main: {{ monitor: m, endpoints: [{{ name: a, address: 192.0.2.1 }}] }} }}\nzones:\n{}{}",
        zones("b.test", &["www", "a", "mail"]),
        zones("a.test", &["shop.www", "www", "zz"])
    );
    let served = Served::start(&text);
    let ordered =
        ["www.a.test.", "shop.www.a.test.", "zz.a.test.", "a.b.test.", "mail.b.test.", "www.b.test."];
    let of = |shown: &Value| {
        let names = shown.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(of(&served.json(&["status"])["load_balancers"]), ordered);
    let path = served.folder.join("a.yaml");
    let timing = run(["timing", "--json", "--config", path.to_str().unwrap()]);
    let timing: Value = serde_json::from_str(&timing.out).unwrap_or_else(|_| panic!("{}", timing.log));
    let names = of(if timing.is_array() { &timing } else { &timing["load_balancers"] });
    assert_eq!(names, ordered);
}

#[test]
fn status_of_a_name_shows_it_with_its_pools() {
    let mail = "  mail:\n    type: MX\n    values:\n      \
                - { preference: 10, exchange: mx1.example.test., depends_on: spare }\n      \
                - { preference: 20, exchange: mx2.example.test. }\n";
    let spare = "pools:\n  spare: { endpoints: [{ name: one, address: 192.0.2.9 }] }\n";
    let zone = fixed("192.0.2.1", 30).replace("pools:\n", spare);
    let zone = zone.replace("load_balancers:\n", &format!("{mail}load_balancers:\n"));
    let served = Served::start(&zone);
    let names = |shown: &Value| {
        let rows = shown.as_array().unwrap().iter();
        rows.map(|row| row["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for name in ["www.example.test", "WWW.example.test."] {
        let shown = served.json(&["status", name]);
        assert_eq!(names(&shown["load_balancers"]), [WWW]);
        assert_eq!(
            (names(&shown["pools"]), names(&shown["records"])),
            (vec!["main".into(), "sorry".into()], vec![])
        );
    }
    let shown = served.json(&["status", "mail.example.test"]);
    assert_eq!(names(&shown["records"]), ["mail.example.test."]);
    assert_eq!((names(&shown["pools"]), names(&shown["load_balancers"])), (vec!["spare".into()], vec![]));
}

#[test]
fn a_run_that_is_under_way_is_told() {
    let monitors =
        "monitors:\n  own: { type: push, interval: 60s, consecutive_up: 2, consecutive_down: 3 }\n";
    let pools = "pools:\n  eu: { monitor: own, endpoints: [{ name: a, address: 192.0.2.3 }] }\n";
    let zone = fixed("192.0.2.1", 30).replace("pools:\n", pools);
    let served = Served::start(&format!("{monitors}{zone}"));
    let line = || {
        let text = served.run(&["status", "eu"]);
        text.lines().find(|line| line.starts_with("eu/a ")).expect("its line").to_owned()
    };
    for (state, health, why) in [
        ("up", "healthy", None),
        ("down", "healthy", Some("1 of 3 failures")),
        ("up", "healthy", None),
        ("down", "healthy", Some("1 of 3 failures")),
        ("down", "healthy", Some("2 of 3 failures")),
        ("down", "unhealthy", Some("eported")),
        ("up", "unhealthy", Some("  1 of 2 passes")),
        ("up", "healthy", None),
    ] {
        served.run(&["report", "eu/a", state]);
        until("the report counts", || {
            let line = line();
            let told = line.contains(" of ") || line.contains("eported");
            line.contains(&format!(" {health} ")) && why.map_or(!told, |why| line.contains(why))
        });
    }
}

#[test]
fn reports_say_what_they_lack() {
    let served = Served::start(REASONS);
    served.run(&["report", "reports/a", "down"]);
    let told = served.run(&["report", "reports/a", "up"]);
    assert!(told.contains("it stays unhealthy by own: 1 of 2 in a row"), "{told}");
    assert!(!served.run(&["report", "reports/a", "up"]).contains("in a row"));
    let told = served.run(&["report", "us/a", "--failed", "2"]);
    assert!(told.contains("not ejected: `consecutive_failures` is 5"), "{told}");
    let told = served.refused(&["probe", "reports/a"]);
    assert!(told.contains("it reports by itself"), "{told}");
}
