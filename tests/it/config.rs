//! What the configuration refuses, word for word, and what it takes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::folder::Folder;
use haledns::config::{self, Loaded, LogFormat, ProblemKind, Report};
use haledns::model::{
    AgentCheck, AnswerShape, Check, Combination, Dependency, Doubt, Ejection, Form, HealthSource,
    Maintenance, Member, Model, MonitorId, Moves, Name, Pool, PoolId, Quorum, Reach, Rules, Scope, Secret,
    Serial, SmtpSession, Source, SteeringPolicy, TcpCheck, Thresholds, VantageId, Viewpoints, Weight,
    WhenUnavailable, Window,
};
use haledns::rdata;

const CASES: &str = "tests/config";

/// Scenarios that are refused.
const SCENARIOS: &str = "tests/simulate/refused";

/// Every file and directory in `tests/config`, and every scenario in
/// `tests/simulate/refused`, against the report beside it.
/// With `UPDATE_EXPECTED=1` the reports are written anew, to be read over.
#[test]
fn every_problem_is_reported_in_these_words() {
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    let scenarios = || yaml_in(SCENARIOS).into_iter().map(|case| (case, SCENARIOS));
    for (case, folder) in cases().into_iter().map(|case| (case, CASES)).chain(scenarios()) {
        let report = match folder == CASES {
            true => config::load(std::slice::from_ref(&case)).map(|loaded| loaded.lint_report()),
            false => config::load_scenario(&case, &[]).map(|_| Report::default()),
        };
        let report = report.unwrap_or_else(|report| report);
        seen.extend(report.problems.iter().map(|problem| problem.kind.id()));
        let text = report.text(false).replace(&format!("{folder}/"), "");
        let expected = case.with_extension("expected");
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            fs::write(&expected, &text).unwrap();
        } else if fs::read_to_string(&expected).ok().as_deref() != Some(&text) {
            wrong.push(format!("--- {} is not what was reported:\n{text}", expected.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // Reported elsewhere: files too large to keep here, or not there at all, and
    // what only a history tells.
    let elsewhere = ["unreadable", "too_large", "too_many_problems", "quicker_than_start"];
    let unseen: Vec<_> =
        ProblemKind::IDS.iter().filter(|id| !seen.contains(*id) && !elsewhere.contains(id)).collect();
    assert!(unseen.is_empty(), "no case reports {unseen:?}");
}

fn cases() -> Vec<PathBuf> {
    yaml_in(CASES)
}

fn yaml_in(folder: &str) -> Vec<PathBuf> {
    let mut cases: Vec<PathBuf> = fs::read_dir(folder)
        .expect("tests run in the package's directory")
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir() || path.extension().is_some_and(|e| e == "yaml"))
        .filter(|path| !path.ends_with("accepted"))
        .collect();
    cases.sort();
    cases
}

/// Loads one file's text.
fn read(text: &str) -> Result<Loaded, Report> {
    config::load_texts(vec![("test.yaml".into(), text.into())])
}

fn accepted(path: &str) -> Loaded {
    match config::load(&[Path::new(CASES).join("accepted").join(path)]) {
        Ok(loaded) => loaded,
        Err(report) => panic!("{path} is refused:\n{report}"),
    }
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

#[test]
fn the_usual_three_files_are_one_configuration() {
    let loaded = accepted("three_files");
    assert_eq!(loaded.lints, []);
    assert_eq!(loaded.files.len(), 3);
    let settings = &loaded.settings;
    assert_eq!(settings.listen, ["127.0.0.1:5300".parse().unwrap()]);
    assert_eq!(settings.udp_workers.map(|workers| workers.get()), Some(2));
    assert_eq!(settings.startup_wait, Duration::from_secs(10));
    assert_eq!(settings.max_probes, Some(10000));
    assert!(settings.reload_guard && settings.allow_lints.is_empty());
    assert_eq!(settings.log, LogFormat::Auto);

    let model = &loaded.model;
    let monitor = &model.monitors[0];
    assert_eq!(monitor.recheck_interval, Some(Duration::from_secs(2)));
    assert_eq!(monitor.thresholds, Thresholds { up: 2, down: 3 });
    let Check::Http(http) = &monitor.check else { panic!("it is https") };
    assert!(http.tls.is_some());
    assert_eq!((http.method.as_str(), http.path.as_str()), ("GET", "/healthz"));
    assert_eq!(http.headers, [("Host".to_owned(), "www.example.com".to_owned())]);
    assert!(http.expected_codes.contains(204) && !http.expected_codes.contains(301));

    let names: Vec<_> = model.pools.iter().map(|pool| &*pool.name).collect();
    assert_eq!(names, ["eu", "sorry", "us"]);
    let eu = model.pool(PoolId(0));
    let weights: Vec<_> = eu.endpoints.iter().map(|endpoint| (endpoint.weight, endpoint.enabled)).collect();
    assert_eq!(weights, [(Weight(100), true), (Weight(50), true), (Weight(100), false)]);
    assert_eq!((eu.answer, eu.max_answers, eu.health_threshold), (AnswerShape::ByWeight, 8, 1));
    assert_eq!(model.pool(PoolId(1)).tests.members, []);

    let zone = &model.zones[0];
    assert_eq!(zone.apex, name("gslb.example.com"));
    assert_eq!((zone.soa.ttl, zone.soa.minimum, zone.soa.serial), (3600, 30, Serial::Auto));
    assert_eq!(&*zone.soa.mname, name("ns1.gslb.example.com").wire());
    assert_eq!(&*zone.soa.rname, name("hostmaster.example.com").wire());
    assert_eq!(zone.records.len(), 3);
    let [api, www] = &zone.load_balancers[..] else { panic!("two load balancers") };
    assert_eq!(www.name, name("www.gslb.example.com"));
    assert_eq!((www.ttl, &www.steering_policy), (30, &SteeringPolicy::Off));
    assert_eq!(www.default_pools, [PoolId(0), PoolId(2)]);
    assert_eq!(www.when_unavailable, WhenUnavailable::FallbackPool(PoolId(1)));
    assert_eq!(api.steering_policy, SteeringPolicy::Random(vec![Weight(70), Weight(30)]));
}

#[test]
fn the_keys_of_transports_reach_the_settings() {
    let loaded = read(
        "server:
  listen: 127.0.0.1:53
  listen_tls: [127.0.0.1:853, '[::1]:853']
  listen_https: 127.0.0.1:443
  listen_quic: 127.0.0.1:853
  listen_http3: 127.0.0.1:443
  https_path: /dns
  certificate: tests/config/accepted/client.pem
  private_key: tests/config/accepted/client.key
  tcp_connections: 500
  tcp_connections_per_client: 20
  tcp_idle_timeout: 30s
  tcp_message_timeout: 2s
  tcp_write_timeout: 3s
  tls_handshake_timeout: 500ms
zone: example.com
records: { '': { type: NS, value: ns1.example.net. } }
",
    );
    let loaded = loaded.unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(loaded.lints, []);
    let settings = loaded.settings;
    let show = |list: &[std::net::SocketAddr]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(show(&settings.listen), ["127.0.0.1:53"]);
    assert_eq!(show(&settings.listen_tls), ["127.0.0.1:853", "[::1]:853"]);
    assert_eq!(show(&settings.listen_https), ["127.0.0.1:443"]);
    assert_eq!(show(&settings.listen_quic), ["127.0.0.1:853"]);
    assert_eq!(show(&settings.listen_http3), ["127.0.0.1:443"]);
    assert_eq!(settings.https_path, "/dns");
    let identity = settings.identity.expect("both files are named");
    assert!(identity.certificates.starts_with(b"-----BEGIN CERTIFICATE-----"));
    assert!(!format!("{identity:?}").contains("PRIVATE"), "a key is nothing to show");
    let expected = config::Connections {
        most: 500,
        per_client: 20,
        idle: Duration::from_secs(30),
        message: Duration::from_secs(2),
        write: Duration::from_secs(3),
        handshake: Duration::from_millis(500),
    };
    assert_eq!(settings.connections, expected);
}

#[test]
fn programs_are_found_beside_the_file_that_names_them() {
    let folder = Folder::with(
        "a.yaml",
        "server: { allow_exec: true }
monitors:
  beside: { type: exec, command: [./bin/check, ./bin/check, 3, '$HOME'] }
  by_path: { type: exec, command: [check_it] }
  absolute: { type: exec, command: [/bin/check] }
zone: example.com
records: { '': { type: NS, value: ns1.example.net. } }
",
    );
    let loaded = config::load(&[folder.path().into()]).unwrap();
    assert!(loaded.settings.allow_exec);
    let commands: Vec<Vec<String>> = (loaded.model.monitors.iter())
        .map(|monitor| match &monitor.check {
            Check::Exec(check) => check.command.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    let beside = folder.join("./bin/check").display().to_string();
    assert_eq!(
        commands,
        [
            vec!["/bin/check".to_owned()],
            vec![beside, "./bin/check".into(), "3".into(), "$HOME".into()],
            vec!["check_it".into()]
        ]
    );
}

#[test]
fn a_datagram_holds_what_send_says() {
    for (send, payload) in
        [("", "hale\n"), (", send: 'a b'", "a b"), (", send: \"a\\r\\n\"", "a\r\n"), (", send: ''", "")]
    {
        let loaded =
            read(&format!("{ZONE}monitors: {{ udp: {{ type: udp_icmp, port: 9{send} }} }}")).unwrap();
        let Check::Udp(check) = &loaded.model.monitors[0].check else { panic!("it is udp_icmp") };
        assert_eq!((check.port, &*check.payload), (Some(9), payload.as_bytes()), "{send}");
    }
}

#[test]
fn api_objects_paste_in_under_their_names() {
    let loaded = accepted("pasted_from_api.yaml");
    // what is a lint here is usual there
    let usual = ["single_failure", "tcp_on_web_port", "no_host", "ttl_above_detection", "one_network"];
    let lints = loaded.lints.iter().map(|lint| lint.kind.id());
    assert_eq!(lints.filter(|id| !usual.contains(id)).collect::<Vec<_>>(), [""; 0]);
    let model = &loaded.model;
    let [tcp, web] = &model.monitors[..] else { panic!("two monitors") };
    assert_eq!(tcp.check, Check::Tcp(TcpCheck { port: Some(443), ..TcpCheck::default() }));
    assert_eq!(web.thresholds, Thresholds { up: 1, down: 1 });
    assert_eq!(web.recheck_interval, None);
    let Check::Http(http) = &web.check else { panic!("it is https") };
    assert_eq!((http.port, &http.expected_body), (None, &None));
    let pool = &model.pools[0];
    assert_eq!(pool.endpoints[0].host.as_deref(), Some("www.example.com"));
    assert_eq!((pool.endpoints[0].port, pool.endpoints[1].weight), (None, Weight(57)));
    let balancer = &model.zones[0].load_balancers[0];
    assert_eq!(balancer.name, name("www.example.com"));
    assert_eq!(balancer.steering_policy, SteeringPolicy::Off);
}

#[test]
fn every_key_of_http_and_tls_reaches_the_model() {
    let loaded = accepted("http_and_tls.yaml");
    assert_eq!(loaded.lints, []);
    let [load, plain, rpc, shake, web] = &loaded.model.monitors[..] else { panic!("five monitors") };

    let Check::Http(http) = &web.check else { panic!("it is https") };
    let pair = |one: &str, other: &str| (one.to_owned(), other.to_owned());
    assert_eq!(http.body.as_deref(), Some(&b"{\"deep\":true}"[..]));
    assert!(http.http2);
    assert_eq!(http.expected_regex.as_deref(), Some("\"status\": *\"(ok|degraded)\""));
    assert_eq!(
        http.expected_json,
        [pair("/status", "ok"), pair("/checks/0/up", "true"), pair("/load", "0.5")]
    );
    assert_eq!(http.expected_headers, [pair("X-Ready", "1"), pair("X-Any", "")]);
    let tls = http.tls.as_ref().unwrap();
    let day = Duration::from_secs(24 * 3600);
    assert_eq!((tls.degraded_below, tls.fail_below), (Some(14 * day), Some(3 * day)));
    let client = tls.client.as_ref().unwrap();
    assert!(client.certificates.starts_with(b"-----BEGIN CERTIFICATE-----"));
    assert!(client.key.starts_with(b"-----BEGIN PRIVATE KEY-----"));

    let Check::Tls(session) = &shake.check else { panic!("it is tls") };
    assert_eq!((session.port, session.tls.server_name.as_deref()), (None, Some("www.example.com")));
    assert_eq!(shake.check.usual_port(), Some(443));

    let Check::Grpc(grpc) = &rpc.check else { panic!("it is grpc") };
    assert!(grpc.tls.is_some());
    assert_eq!((&*grpc.service, grpc.authority.as_deref()), ("shop.Cart", Some("api.example.com")));
    let Check::Grpc(grpc) = &plain.check else { panic!("it is grpc") };
    assert_eq!((&grpc.tls, &*grpc.service, &grpc.authority), (&None, "", &None));

    let Check::Prometheus(metric) = &load.check else { panic!("it is prometheus") };
    assert_eq!(metric.url, "https://prometheus.example.com/p");
    assert_eq!(metric.query, "load1{instance=\"{address}:9100\"}");
    assert_eq!((metric.at_least, metric.at_most), (None, Some(10.0)));
}

#[test]
fn octodns_records_become_rdata() {
    let loaded = accepted("octodns_records.yaml");
    assert_eq!(loaded.lints, []);
    let zone = &loaded.model.zones[0];
    let rdata = |owner: &str, rtype: u16| {
        let owner = Name::parse(owner, &zone.apex).unwrap();
        let set = zone.records.iter().find(|set| set.owner == owner && set.rtype == rtype);
        set.map(|set| (set.ttl, set.rdata.iter().map(|rdata| rdata.to_vec()).collect::<Vec<_>>())).unwrap()
    };
    let wire = |text: &str| name(text).wire().to_vec();
    assert_eq!(rdata("", 2), (7200, vec![wire("ns1.example.com"), wire("ns.example.net")]));
    assert_eq!(rdata("ns1", 1), (300, vec![vec![192, 0, 2, 53]]));
    assert_eq!(rdata("www", 5).1, [wire("web.example.com")]);
    let (_, mail) = rdata("", 15);
    assert_eq!(
        mail,
        [
            [&[0, 10][..], &wire("mx1.example.com")].concat(),
            [&[0, 20][..], &wire("mx2.example.net")].concat()
        ]
    );
    assert_eq!(rdata("_dmarc", 16).1, [b"\x0fv=DMARC1;p=none"]);
    let (_, long) = rdata("long", 16);
    assert_eq!((long[0].len(), long[0][0], long[0][256]), (302, 255, 45));
    assert_eq!(rdata("empty", 16).1, [[0]]);
    assert_eq!(rdata("parts", 16).1, [b"\x06onetwo"]);
    assert_eq!(rdata("*", 28).1.len(), 1);
    assert_eq!(rdata("10", 1).1, [[192, 0, 2, 10]]);
    assert_eq!(zone.soa.serial, Serial::From(2024010101));
    assert_eq!(&*zone.soa.rname, name("hostmaster.example.com").wire());
}

#[test]
fn records_of_every_type_become_rdata() {
    let loaded = accepted("every_type.yaml");
    assert_eq!(loaded.lints, []);
    let zone = &loaded.model.zones[0];
    let show = |owner: &str, rtype: &str| {
        let owner = Name::parse(owner, &zone.apex).unwrap();
        let rtype = rdata::type_code(rtype).unwrap();
        let set = zone.records.iter().find(|set| set.owner == owner && set.rtype == rtype);
        let values = set.into_iter().flat_map(|set| &set.rdata);
        values.map(|rdata| rdata::show(rtype, rdata)).collect::<Vec<_>>()
    };
    let digest = "d2abde240d7cd3ee6b4b28c54df034b97983a1d16e8a410e4561cb106618e971";
    let ds = [
        "60485 13 2 d4b7d520e7bb5f0f67674a0cceb1e3e0614b93c4f9e99b8383f6a1e4469da50a",
        "60485 5 1 2bb183af5f22588179a53b0a98631fad1a292118",
    ];
    let service = "1 . mandatory=alpn,port alpn=h2,h3 no-default-alpn port=8443 ipv4hint=192.0.2.80 ech=AQID \
                   ipv6hint=2001:db8::80,2001:db8::81 dohpath=/dns-query{?dns} key65280=a\\032b";
    let expected: [(&str, &str, &[&str]); 30] = [
        ("", "NS", &["ns1.example.com.", "ns.example.net."]),
        ("", "MX", &["10 mail.example.com.", "0 MX2.example.net."]),
        (
            "",
            "CAA",
            &[
                "0 issue \"ca.example.net\"",
                "0 issue \"ca.example.org; account=1\"",
                "128 iodef \"mailto:\\\"sec\\\"@example.com\"",
            ],
        ),
        ("", "HTTPS", &["0 svc.example.com."]),
        ("", "CDS", &["0 0 0 00"]),
        ("ns1", "A", &["192.0.2.53"]),
        ("ns1", "AAAA", &["2001:db8::53"]),
        ("alias", "CNAME", &["www.example.net."]),
        ("old", "DNAME", &["new.example.net."]),
        ("sub", "DS", &ds),
        ("svc", "SVCB", &[service, "2 svc.example.net. alpn=h2", "3 svc.example.com."]),
        ("loc", "LOC", &["31 58 52.1 S 115 49 11.7 E 20m 10m 10m 2m", "1 0 0 N 2 0 0 W -2m 1m 10000m 10m"]),
        (
            "naptr",
            "NAPTR",
            &[
                "10 100 \"S\" \"SIP+D2U\" \"!^.*$!sip:info@example.com!\" .",
                "20 100 \"u\" \"E2U+sip\" \"!^\\\\+1(.*)$!sip:\\\\1@example.com!\" example.com.",
            ],
        ),
        ("_sip._udp", "SRV", &["10 20 5060 mail.example.com."]),
        ("5", "PTR", &["host.example.net.", "mail.example.com."]),
        ("ssh", "SSHFP", &["1 1 bf6b6825d2977c511a475bbefb88aad54a92ac73"]),
        ("key", "OPENPGPKEY", &["mQENBFit2jsBCA=="]),
        ("spf", "SPF", &["\"v=spf1 -all\""]),
        ("_443._tcp", "TLSA", &[&format!("3 1 1 {digest}")]),
        ("_http._tcp", "URI", &["10 1 \"https://www.example.com/a b\""]),
        (
            "txt",
            "TXT",
            &[
                "\"first string\" \"second string\" \"\"",
                "\"v=DKIM1; k=rsa\"",
                "\"back\\\\slash \\\"quoted\\\" \\195\\169\"",
                "\"onetwo\"",
            ],
        ),
        ("unknown", "TYPE65280", &["\\# 4 0a000001"]),
        ("generic", "A", &["192.0.2.1", "192.0.2.2"]),
        ("host", "HINFO", &["\"x86-64\" \"Linux 6\""]),
        ("host", "RP", &["admin.example.com. ."]),
        ("smime", "SMIMEA", &[&format!("3 1 1 {digest}")]),
        ("mac", "EUI48", &["00-00-5e-00-53-2a"]),
        ("mail", "A", &["192.0.2.25"]),
        ("svc", "A", &["192.0.2.80"]),
        ("sub", "NS", &["ns.example.net."]),
    ];
    for (owner, rtype, values) in &expected {
        assert_eq!(show(owner, rtype), *values, "{owner} {rtype}");
    }
    assert_eq!(zone.records.len(), expected.len());
}

#[test]
fn monitors_of_other_protocols_are_read() {
    let loaded = accepted("protocols.yaml");
    let check = |name: &str| {
        let monitor = loaded.model.monitors.iter().find(|monitor| &*monitor.name == name);
        monitor.unwrap_or_else(|| panic!("no {name}")).check.clone()
    };
    let octets = |text: &str| Some(text.as_bytes().into());
    let redis = TcpCheck { port: Some(6379), send: octets("PING\r\n"), expect: octets("+PONG") };
    assert_eq!(check("redis"), Check::Tcp(redis));
    assert_eq!(check("agent"), Check::Agent(AgentCheck { port: Some(5555), send: octets("eu-1\n") }));

    let Check::Smtp(mail) = check("mail") else { panic!("it is smtp") };
    assert_eq!((&*mail.hello, mail.session, mail.port), ("", SmtpSession::Plain, None));
    let Check::Smtp(mail) = check("submission") else { panic!("it is smtp") };
    assert_eq!((&*mail.hello, mail.session), ("probe.example.com", SmtpSession::StartTls));
    assert_eq!(mail.tls.server_name.as_deref(), Some("mail.example.com"));
    let Check::Smtp(mail) = check("submissions") else { panic!("it is smtp") };
    assert_eq!((&*mail.hello, mail.session), ("[192.0.2.1]", SmtpSession::Tls));

    let Check::Dns(dns) = check("dns") else { panic!("it is dns") };
    assert_eq!((dns.name, dns.rtype, dns.rcodes), (name("example.com"), 1, vec![0]));
    assert!(!dns.recursion && !dns.tcp && dns.data.is_empty());
    let Check::Dns(dns) = check("resolver") else { panic!("it is dns") };
    assert_eq!((dns.name, dns.rtype, dns.rcodes), (name("example.com"), 15, vec![0, 3, 16]));
    assert!(dns.recursion && dns.tcp);
    let mail = |preference| [&[0, preference][..], name("mx.example.com").wire()].concat().into();
    assert_eq!(dns.data, [mail(10), mail(20)]);
}

fn pool<'a>(model: &'a Model, name: &str) -> &'a Pool {
    model.pool(model.pool_named(name).unwrap_or_else(|| panic!("no pool {name}")))
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn vantages_and_where_pools_are_seen_from() {
    let loaded = accepted("health.yaml");
    assert_eq!(loaded.lints, []);
    let resolvers: Vec<String> = loaded.settings.resolvers.iter().map(ToString::to_string).collect();
    assert_eq!(resolvers, ["192.0.2.53:53", "192.0.2.54:5353", "[2001:db8::53]:53"]);
    let model = &loaded.model;
    let names: Vec<_> = model.vantages.iter().map(|vantage| &*vantage.name).collect();
    assert_eq!(names, ["fra", "mad", "nyc", "roof"]);
    let source = Source { ipv4: Some([192, 0, 2, 1].into()), ipv6: "2001:db8::1".parse().ok() };
    assert_eq!(model.vantages[0].reach, Reach::Here { source, namespace: Some("uplink-a".into()) });
    assert_eq!(model.vantages[0].canaries, model.pool_named("canaries"));
    assert_eq!(model.vantages[2].reach, Reach::Remote);
    assert_eq!((&model.vantages[2].region, &model.vantages[3].region), (&Some("ENAM".into()), &None));
    assert_eq!(model.doubt, Doubt { share: Some(60), window: secs(20), hold: secs(60) });

    let [fra, mad, nyc, roof] = [0, 1, 2, 3].map(VantageId);
    for (name, vantages, quorum, sources) in [
        (
            "eu",
            vec![fra, mad],
            Quorum::Regions,
            vec![HealthSource::Regional("WEU".into()), HealthSource::Global],
        ),
        ("us", vec![fra, mad, nyc, roof], Quorum::Regions, vec![HealthSource::Global]),
        (
            "db",
            vec![fra, mad, nyc, roof],
            Quorum::Vantages,
            vec![HealthSource::Local(fra), HealthSource::Global],
        ),
    ] {
        assert_eq!(pool(model, name).viewpoints, Viewpoints { vantages, quorum, sources }, "{name}");
    }
}

#[test]
fn without_vantages_there_is_one() {
    let text = |server: &str, keys: &str| {
        let text = format!(
            "server: {{ {server} }}\nmonitors: {{ web: {{}} }}\n{ZONE}\
             pools: {{ eu: {{ monitor: web, {keys} endpoints: [ {{ name: a, address: 192.0.2.1 }} ] }} }}\n"
        );
        read(&text).unwrap_or_else(|report| panic!("{report}")).model
    };
    let plain = text("", "");
    assert_eq!((&plain.vantages, plain.doubt), (&Model::default().vantages, Doubt::default()));
    assert_eq!(plain.pools[0].viewpoints, Viewpoints::default());
    let own = text("canaries: eu, site: { region: WEU }", "check_regions: [WEU],");
    assert_eq!((own.vantages[0].canaries, &own.vantages[0].region), (Some(PoolId(0)), &Some("WEU".into())));
    assert_eq!(own.doubt.share, Some(50), "canaries are looked at");
    assert_eq!(own.pools[0].viewpoints.quorum, Quorum::Regions);
    assert_eq!(text("canaries: eu, panic_share: off", "").doubt.share, None);
    let local = vec![HealthSource::Local(VantageId(0)), HealthSource::Global];
    assert_eq!(text("", "health_sources: [local, global],").pools[0].viewpoints.sources, local);
}

/// The local vantage is the one that says so, else the only one that is here.
#[test]
fn the_only_vantage_of_this_process_is_its_own() {
    let sources = |vantages: &str, sources: &str| {
        let text = format!(
            "vantages: {{ {vantages} }}\nmonitors: {{ web: {{}} }}\n{ZONE}\
             pools: {{ eu: {{ monitor: web, {sources} endpoints: [ {{ name: a, address: 192.0.2.1 }} ] }} }}\n"
        );
        read(&text).ok().map(|loaded| loaded.model.pools[0].viewpoints.sources.clone())
    };
    let global = Some(vec![HealthSource::Global]);
    let local = |id| Some(vec![HealthSource::Local(VantageId(id)), HealthSource::Global]);
    const ASKED: &str = "health_sources: [local, global],";
    for (vantages, asked, expected, why) in [
        ("a: { remote: true }, b: {}", "", global.clone(), "not asked for, not declared"),
        ("a: { remote: true }, b: {}", ASKED, local(1), "the only one here"),
        ("a: {}, b: {}", ASKED, None, "either of two"),
        ("a: {}, b: { local: true }", "", local(1), "declared"),
        ("a: { local: false }", ASKED, None, "it says that it isn't"),
    ] {
        assert_eq!(sources(vantages, asked), expected, "{why}");
    }
}

#[test]
fn groups_and_numbers_of_monitors_become_tests() {
    let loaded = accepted("health.yaml");
    let model = &loaded.model;
    let monitor = |name: &str| {
        let place = model.monitors.iter().position(|monitor| &*monitor.name == name).unwrap();
        MonitorId(place as u32)
    };
    let member = |name, votes, must_be_healthy| Member { monitor: monitor(name), votes, must_be_healthy };
    let tests = &pool(model, "eu").tests;
    assert_eq!(
        tests.members,
        [member("tcp", true, true), member("web", true, false), member("deep", false, false)],
        "`monitoring_only` is stronger than `must_be_healthy`, and who is disabled is not there"
    );
    assert_eq!(tests.combination, Combination::Majority);
    assert_eq!(pool(model, "us").tests.combination, Combination::AtLeast(1));
    assert_eq!(pool(model, "db").tests.combination, Combination::All);
}

#[test]
fn the_rules_around_a_verdict_are_read() {
    let loaded = accepted("health.yaml");
    let model = &loaded.model;
    let ejection = Ejection {
        consecutive_failures: Some(5),
        failure_percentage: Some(85),
        minimum_requests: 50,
        ejection_time: secs(30),
        max_ejection_time: secs(300),
        max_ejection_percent: 10,
    };
    let usual = Rules { ejection: Some(ejection), ..Rules::default() };
    assert_eq!(pool(model, "db").rules, usual);
    assert_eq!(
        pool(model, "eu").rules,
        Rules {
            start_period: Some(secs(60)),
            stale_after: secs(300),
            flap_limit: 3,
            flap_window: secs(1800),
            flap_hold: secs(300),
            slow_start: secs(120),
            drain_wait: secs(30),
            stale_if_error: secs(86400),
            ejection: Some(Ejection {
                consecutive_failures: None,
                minimum_requests: 100,
                ejection_time: secs(60),
                ..ejection
            }),
        }
    );
    let [api, www] = &model.zones[0].load_balancers[..] else { panic!("two load balancers") };
    let moves = Moves { failover_delay: secs(10), failback_delay: secs(300), manual_failback: false };
    assert_eq!(www.moves, moves);
    assert_eq!(api.moves, Moves { manual_failback: true, ..Moves::default() });
}

#[test]
fn host_names_keep_their_place_among_the_endpoints() {
    let loaded = accepted("health.yaml");
    let eu = pool(&loaded.model, "eu");
    let names: Vec<_> = eu.endpoints.iter().map(|endpoint| &*endpoint.name).collect();
    assert_eq!(names, ["eu-1", "eu-3"]);
    let [host] = &eu.hosts[..] else { panic!("one host name") };
    assert_eq!((host.place, &*host.hostname, &*host.endpoint.name), (1, "web.example.net", "web"));
    assert_eq!((host.endpoint.weight, host.endpoint.port), (Weight(50), Some(8443)));
    assert_eq!(host.endpoint.host.as_deref(), Some("www.example.com"));
}

#[test]
fn dependencies_and_maintenance_name_what_they_mean() {
    let loaded = accepted("health.yaml");
    let model = &loaded.model;
    let db = model.pool_named("db").unwrap();
    let main = Dependency { pool: db, endpoint: Some("main".into()) };
    let eu = pool(model, "eu");
    assert_eq!(eu.depends_on, [Dependency { pool: db, endpoint: None }, main.clone()]);
    assert_eq!(eu.hosts[0].endpoint.depends_on, [main]);
    let own = Dependency { pool: model.pool_named("eu").unwrap(), endpoint: Some("eu-1".into()) };
    assert_eq!(eu.endpoints[1].depends_on, [own]);

    let from = 4_925_494_800; // 2126-01-31T01:00:00Z
    let sunday = 6 * 86_400;
    let scope =
        |pool: &str, endpoint: Option<&str>| Scope { pool: pool.into(), endpoint: endpoint.map(Into::into) };
    let window = |of, when, reason: &str| Maintenance { of, when, reason: reason.into() };
    assert_eq!(
        model.maintenance,
        [
            window(scope("eu", Some("web")), Window::Once { from, until: from + 5400 }, "new disks"),
            window(scope("us", None), Window::Weekly { from: sunday - 3600, length: 7200 }, "backups"),
        ]
    );
}

/// Each vantage of this process makes probes of its own.
#[test]
fn probes_from_several_vantages_add_up() {
    let late = |vantages: &str| {
        let text = format!(
            "server: {{ max_probes: 2 }}\nvantages: {{ {vantages} }}\n\
             monitors: {{ web: {{ interval: 5s, timeout: 5s }} }}\n{ZONE}\
             pools: {{ eu: {{ monitor: web, endpoints: [ {{ name: a, address: 192.0.2.1 }} ] }} }}\n\
             load_balancers: {{ www: {{ default_pools: [eu], fallback_pool: eu }} }}\n"
        );
        let loaded = read(&text).unwrap_or_else(|report| panic!("{report}"));
        loaded.lints.iter().any(|lint| lint.kind.id() == "probes_late")
    };
    assert!(!late("a: {}, b: {}, c: { remote: true }"));
    assert!(late("a: {}, b: {}, c: {}"));
}

#[test]
fn alerts_say_who_is_told_of_what() {
    let loaded = accepted("alerts.yaml");
    assert_eq!(loaded.lints, []);
    let kept = loaded.settings.history.unwrap();
    assert_eq!((kept.max_size, kept.max_files), (1 << 20, 3));
    let [hook, ops, page] = &loaded.model.alerts[..] else { panic!("three routes") };
    assert_eq!(hook.receiver.form, Form::Webhook { secret: Some(Secret::new("s3cret")) });
    assert_eq!(hook.receiver.url.place(), "http://[::1]:9000");
    assert_eq!(&*hook.receiver.url.target, "/hale?x=1");
    assert!(hook.on.endpoint && hook.on.vantage && hook.unhealthy && !hook.healthy);
    assert_eq!(hook.pools.as_deref(), Some(&["eu".into()][..]));
    assert_eq!(hook.load_balancers.as_deref(), Some(&[name("www.example.com")][..]));
    let hours = |hours: u64| Some(Duration::from_secs(hours * 3600));
    assert_eq!((hook.delay, hook.repeat), (Duration::from_secs(30), hours(4)));
    assert_eq!(
        (ops.on.endpoint, ops.on.pool, ops.on.load_balancer, ops.on.vantage),
        (false, true, true, false)
    );
    assert_eq!((ops.repeat, page.repeat, ops.unhealthy && ops.healthy), (None, None, true));
    assert_eq!(page.receiver.url.place(), "https://events.pagerduty.com");

    let off = read(&format!("{ZONE}server: {{ history: off }}")).unwrap();
    assert_eq!(off.settings.history, None);
}

const ZONE: &str = "zone: example.com\nrecords: { '': { type: NS, value: ns1.example.net. } }\n";

/// A load balancer `lb` with these keys beside the required ones.
fn load_balancer(keys: &str) -> Result<Loaded, Report> {
    read(&format!(
        "{ZONE}pools: {{ a: {{ endpoints: [ {{ name: a, address: 192.0.2.1 }} ] }} }}\n\
         load_balancers: {{ lb: {{ default_pools: [a], fallback_pool: a, {keys} }} }}\n"
    ))
}

#[test]
fn off_is_off_however_it_is_written() {
    for value in ["off", "Off", "OFF", "\"off\"", "false", "\"\""] {
        let loaded = load_balancer(&format!("steering_policy: {value}")).unwrap();
        let balancer = &loaded.model.zones[0].load_balancers[0];
        assert_eq!(balancer.steering_policy, SteeringPolicy::Off, "{value}");
    }
    for value in ["off", "Off", "false"] {
        let loaded = read(&format!("{ZONE}monitors: {{ m: {{ recheck_interval: {value} }} }}")).unwrap();
        assert_eq!(loaded.model.monitors[0].recheck_interval, None, "{value}");
        let loaded = read(&format!("{ZONE}server: {{ reload_guard: {value} }}")).unwrap();
        assert!(!loaded.settings.reload_guard, "{value}");
    }
    for value in ["on", "true"] {
        let loaded = read(&format!("{ZONE}server: {{ reload_guard: {value} }}")).unwrap();
        assert!(loaded.settings.reload_guard, "{value}");
    }
}

#[test]
fn what_api_objects_say_of_proxying_is_taken_when_it_is_off() {
    for keys in [
        "proxied: false",
        "session_affinity: none",
        "session_affinity: \"\"",
        "session_affinity: ~",
        "rules: []",
        "region_pools: {}",
        "region_pools: ~",
        "location_strategy: { mode: pop, prefer_ecs: proximity }",
        "adaptive_routing: { failover_across_pools: false }",
        "networks: [cloudflare]",
    ] {
        if let Err(report) = load_balancer(keys) {
            panic!("{keys}: {report}");
        }
    }
}

#[test]
fn a_load_balancer_stands_at_the_apex_and_at_the_wildcard() {
    for (key, full) in [
        ("''", "example.com"),
        ("'@'", "example.com"),
        ("'*'", "*.example.com"),
        ("www.example.com.", "www.example.com"),
        ("A.b", "a.b.example.com"),
    ] {
        let text = format!(
            "{ZONE}pools: {{ a: {{ endpoints: [ {{ name: a, address: 192.0.2.1 }} ] }} }}\n\
             load_balancers: {{ {key}: {{ default_pools: [a], when_unavailable: nodata }} }}\n"
        );
        let loaded = read(&text).unwrap();
        let balancer = &loaded.model.zones[0].load_balancers[0];
        assert_eq!(balancer.name, name(full), "{key}");
        assert_eq!(balancer.when_unavailable, WhenUnavailable::Nodata);
    }
}

#[test]
fn an_alias_stands_for_a_whole_value() {
    let loaded = read(&format!(
        "{ZONE}monitors:\n  web: &web {{ type: https, path: /health }}\n  same: *web\n\
         pools:\n  eu: {{ monitor: same, endpoints: &eu [ {{ name: a, address: 192.0.2.1 }} ] }}\n  \
         us: {{ monitor: web, endpoints: *eu }}\n"
    ))
    .unwrap();
    assert_eq!(loaded.model.monitors[0].check, loaded.model.monitors[1].check);
    assert_eq!(loaded.model.pools[0].endpoints, loaded.model.pools[1].endpoints);
}

#[test]
fn a_byte_order_mark_and_crlf_change_nothing() {
    let plain = "zone: example.com\nrecords:\n  '':\n    type: NS\n    value: ns1.example.net.\n  t:\n    type: TXT\n    value: text\n";
    let model = read(plain).unwrap().model;
    assert_eq!(read(&format!("\u{feff}{plain}")).unwrap().model, model);
    assert_eq!(read(&plain.replace('\n', "\r\n")).unwrap().model, model);
    let report = read(&format!("\u{feff}ttl: x\r\n{}", plain.replace('\n', "\r\n"))).unwrap_err();
    assert_eq!((report.problems[0].line, report.problems[0].column), (1, 6));
}

#[test]
fn columns_count_characters() {
    let report =
        read(&format!("{ZONE}pools: {{ eu: {{ description: \"äöü\", endpoint: 1 }} }}\n")).unwrap_err();
    assert_eq!((report.problems[0].line, report.problems[0].column), (3, 36));
    assert_eq!(report.problems[0].place, "pools.eu.endpoint");
}

#[test]
fn a_report_is_json_for_programs() {
    let text = format!(
        "{ZONE}pools:\n  a: {{ endpoints: [ {{ name: x, address: 192.0.2.1 }}, {{ name: x, address: 192.0.2.2 }} ] }}\n"
    );
    let report = read(&text).unwrap_err();
    assert_eq!(
        report.json(),
        serde_json::json!([{
            "file": "test.yaml",
            "line": 4,
            "column": 62,
            "place": "pools.a.endpoints[1].name",
            "severity": "error",
            "kind": "listed_twice",
            "message": "the endpoint name `x` is listed twice",
            "help": "take one of the two away",
            "related": { "file": "test.yaml", "line": 4, "column": 29, "message": "it is listed first here" },
        }])
    );
}

#[test]
fn colour_changes_no_word() {
    let report = read("zone: a..b\n").unwrap_err();
    let coloured = report.text(true);
    assert!(coloured.contains("\x1b["));
    let mut plain = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once("\x1b[") {
        plain += before;
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    assert_eq!(plain + rest, report.text(false));
}

#[test]
fn what_cannot_be_read_is_a_problem_of_its_file() {
    let report = config::load(&["no/such/path".into()]).unwrap_err();
    assert_eq!(
        report.text(false),
        "no/such/path: error: cannot be read: No such file or directory (os error 2)\n\
         help: give the path of a YAML file, or of a directory with YAML files\n"
    );

    let scratch = Scratch::new("too_large");
    let file = scratch.0.join("large.yaml");
    fs::File::create(&file).unwrap().set_len((64 << 20) + 1).unwrap();
    let report = config::load(&[file]).unwrap_err();
    assert_eq!(report.problems[0].kind, ProblemKind::TooLarge { octets: (64 << 20) + 1, limit: 64 << 20 });
}

#[test]
fn what_is_no_regular_file_in_a_directory_is_refused_and_not_waited_for() {
    let folder =
        Folder::with("a.yaml", "zone: example.com\nrecords: { '': { type: NS, value: ns.example.net. } }\n");
    let pipe = folder.join("pipe.yaml");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", folder.join("zero.yaml")).unwrap();
    let report = config::load(&[folder.path().to_owned()]).unwrap_err().text(false);
    assert_eq!(report.matches("cannot be read: it is no regular file").count(), 2, "{report}");
    // one that is given by itself is read, but not without end
    let endless = config::load(&[folder.join("zero.yaml")]).unwrap_err().text(false);
    assert!(endless.contains("octets; at most"), "{endless}");
}

#[test]
fn a_path_given_twice_is_read_and_reported_once() {
    let scratch = Scratch::new("twice");
    let file = scratch.0.join("zone.yaml");
    fs::write(&file, ZONE).unwrap();
    let around = scratch.0.join(".").join("zone.yaml");
    let paths = [file.clone(), scratch.0.clone(), around, file.clone(), scratch.0.clone()];
    assert_eq!(config::load(&paths).unwrap().files, std::slice::from_ref(&file));

    fs::write(&file, "zone: [").unwrap();
    let missing = scratch.0.join("missing");
    let empty = scratch.0.join("empty");
    fs::create_dir(&empty).unwrap();
    let paths = [&missing, &missing, &empty, &empty, &scratch.0, &file].map(PathBuf::clone);
    let report = config::load(&paths).unwrap_err();
    let found: Vec<_> = report.problems.iter().map(|problem| (problem.kind.id(), &problem.file)).collect();
    assert_eq!(found, [("syntax", &file), ("unreadable", &missing), ("no_yaml_files", &empty)]);
}

/// What is missing may stand in what couldn't be read.
#[test]
fn an_unread_file_is_told_first_and_nothing_follows_from_its_absence() {
    let text = format!(
        "{ZONE}monitors: {{ unused: {{ type: http }} }}\n\
         load_balancers: {{ www: {{ default_pools: [eu], fallback_pool: eu, tll: 5 }} }}\n"
    );
    let scratch = Scratch::new("unread");
    let file = scratch.0.join("zone.yaml");
    fs::write(&file, text).unwrap();
    let missing = scratch.0.join("pools.yaml");
    let report = config::load(&[file.clone(), missing.clone()]).unwrap_err();
    let found: Vec<_> = report.problems.iter().map(|problem| (problem.kind.id(), &problem.file)).collect();
    assert_eq!(found, [("unreadable", &missing), ("unknown_key", &file)]);
}

#[cfg(unix)]
#[test]
fn a_mounted_configmap_is_read_once() {
    let scratch = Scratch::new("configmap");
    let real = scratch.0.join("..2026_01_01");
    fs::create_dir(&real).unwrap();
    fs::write(real.join("zone.yaml"), ZONE).unwrap();
    fs::write(real.join("other.txt"), "no YAML").unwrap();
    std::os::unix::fs::symlink("..2026_01_01", scratch.0.join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/zone.yaml", scratch.0.join("zone.yaml")).unwrap();
    let nested = scratch.0.join("nested");
    fs::create_dir(&nested).unwrap();
    fs::write(nested.join("pools.yml"), "pools: { a: { endpoints: [ { name: a, address: 192.0.2.1 } ] } }\n")
        .unwrap();

    let paths = [scratch.0.clone(), scratch.0.join("zone.yaml")];
    let loaded = config::load(&paths).unwrap();
    assert_eq!(loaded.files, [nested.join("pools.yml"), scratch.0.join("zone.yaml")]);
    assert_eq!(loaded.model.pools.len(), 1);
}

#[test]
fn a_ca_file_lies_beside_the_file_that_names_it() {
    let scratch = Scratch::new("ca_file");
    let pem = rcgen::generate_simple_self_signed(["ca.example.com".to_owned()]).unwrap().cert.pem();
    fs::write(scratch.0.join("ca.pem"), &pem).unwrap();
    let text = format!("{ZONE}monitors: {{ m: {{ type: https, ca_file: ca.pem }} }}\n");
    let loaded = config::load_texts(vec![(scratch.0.join("a.yaml"), text.into())]).unwrap();
    let Check::Http(http) = &loaded.model.monitors[0].check else { panic!("it is https") };
    let roots = http.tls.as_ref().and_then(|tls| tls.extra_roots.as_deref());
    assert_eq!(roots, Some(pem.as_bytes()));
}

/// A zone in a folder, with its file.
fn zone_with_file(keys: &str, file: &str, content: impl AsRef<[u8]>) -> Result<Loaded, Report> {
    let folder = Folder::with("zone.yaml", &format!("zone: example.com\nzone_file: {file}\n{keys}"));
    fs::write(folder.join(file), content).unwrap();
    config::load(&[folder.path().to_owned()])
}

const MASTER: &str =
    "$TTL 2h\n@ 1h SOA ns1 host 7 2h 20m 14d 60\n@ NS ns1\nns1 A 192.0.2.53\nt TXT \"a\" b ; c\n";

#[test]
fn keys_of_soa_go_before_the_soa_of_the_zone_file() {
    let loaded = zone_with_file("soa: { minimum: 30s, rname: dns }\n", "example.zone", MASTER).unwrap();
    let soa = &loaded.model.zones[0].soa;
    assert_eq!((soa.serial, soa.ttl, soa.refresh, soa.retry), (Serial::From(7), 3600, 7200, 1200));
    assert_eq!((soa.expire, soa.minimum), (14 * 86400, 30));
    assert_eq!(&*soa.mname, name("ns1.example.com").wire());
    assert_eq!(&*soa.rname, name("dns.example.com").wire());
    let auto = zone_with_file("soa: { serial: auto }\n", "example.zone", MASTER).unwrap();
    assert_eq!(auto.model.zones[0].soa.serial, Serial::Auto);
}

#[test]
fn records_of_the_zone_file_and_of_the_configuration_are_one_zone() {
    let keys = "records: { www: { type: A, value: 192.0.2.1 }, ns1: { type: AAAA, value: '2001:db8::1' } }\n";
    let loaded = zone_with_file(keys, "example.zone", MASTER).unwrap();
    let sets = loaded.model.zones[0].records.iter();
    let sets: BTreeSet<_> = sets.map(|set| (set.owner.to_string(), set.rtype, set.ttl)).collect();
    let expected = [
        ("example.com.", 2, 7200),
        ("ns1.example.com.", 1, 7200),
        ("ns1.example.com.", 28, 3600),
        ("t.example.com.", 16, 7200),
        ("www.example.com.", 1, 3600),
    ];
    assert_eq!(sets, BTreeSet::from(expected.map(|(owner, rtype, ttl)| (owner.to_owned(), rtype, ttl))));
    assert_eq!(loaded.files.len(), 2);
}

#[test]
fn other_line_ends_and_a_byte_order_mark_change_nothing_in_a_zone_file() {
    let unix = zone_with_file("", "example.zone", MASTER).unwrap();
    for text in [MASTER.replace('\n', "\r\n"), format!("\u{feff}{MASTER}"), MASTER.trim_end().to_owned()] {
        let other = zone_with_file("", "example.zone", &text).unwrap();
        assert_eq!(other.model, unix.model, "{text:?}");
    }
    let wrong = MASTER.replace("192.0.2.53", "192.0.2").replace('\n', "\r\n");
    let report = zone_with_file("", "example.zone", format!("\u{feff}{wrong}")).unwrap_err();
    assert_eq!((report.problems[0].line, report.problems[0].column), (4, 7));
    assert_eq!(
        report.problems[0].excerpt.as_ref().unwrap().text,
        "ns1 A 192.0.2",
        "without a carriage return"
    );
}

#[test]
fn the_format_of_a_zone_file_goes_by_its_name_unless_it_is_said() {
    let octodns = "---\n'':\n- type: NS\n  value: ns.example.net.\n- type: TXT\n  value: a\\; b\n";
    for (file, keys) in [("example.yml", ""), ("example.zone", "format: octodns\n")] {
        let loaded = zone_with_file(keys, file, octodns).unwrap();
        assert_eq!(&*loaded.model.zones[0].records[1].rdata[0], b"\x04a; b", "{file}");
    }
    let master = zone_with_file("format: master\n", "master.yaml", MASTER).unwrap();
    assert_eq!(master.model, zone_with_file("", "example.zone", MASTER).unwrap().model);
}

#[test]
fn a_file_with_a_thousand_problems_is_not_read_to_its_end() {
    let report = zone_with_file("", "example.zone", "x\n".repeat(2000)).unwrap_err();
    assert_eq!(report.problems.len(), 1001);
    assert_eq!(report.problems[1000].kind, ProblemKind::TooManyProblems { limit: 1000 });
}

#[test]
fn a_large_configuration_loads_and_its_typos_are_found() {
    let mut text = String::from(ZONE);
    text += "pools:\n";
    for i in 0..500 {
        text += &format!("  p{i}: {{ endpoints: [ {{ name: a, address: 192.0.2.1 }} ] }}\n");
    }
    text += "load_balancers:\n";
    for i in 0..500 {
        text += &format!("  l{i}: {{ default_pools: [p{i}], fallback_pool: q{i} }}\n");
    }
    let report = read(&text).unwrap_err();
    assert_eq!(report.problems.len(), 500);
    // What was meant is looked for only so often: each look goes over all names.
    let guesses = report.problems.iter().filter_map(|problem| problem.help.as_ref());
    assert_eq!(guesses.filter(|help| help.starts_with("did you mean")).count(), 200);
    assert_eq!(read(&text.replace(": q", ": p")).unwrap().model.pools.len(), 500);
}

/// Whatever slips a hand or a template makes, the answer is a report.
#[test]
fn no_slip_of_the_hand_is_a_panic() {
    let mut seed = 1u64;
    let mut chance = |below: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below
    };
    let slips = [
        "", " ", "\n", "\t", ":", ": ", "- ", "[", "]", "{", "}", "'", "\"", "*", "&a ", "~", "é", "#", "|",
        "0",
    ];
    for case in [
        "pasted_from_api.yaml",
        "octodns_records.yaml",
        "every_type.yaml",
        "three_files/pools.yaml",
        "health.yaml",
    ] {
        let text = fs::read_to_string(Path::new(CASES).join("accepted").join(case)).unwrap();
        let characters: Vec<char> = text.chars().collect();
        for _ in 0..700 {
            let at = chance(characters.len());
            let until = (at + chance(4) * chance(20)).min(characters.len());
            let mut broken: String = characters[..at].iter().collect();
            broken += slips[chance(slips.len())];
            broken.extend(&characters[until..]);
            if let Err(report) = read(&broken) {
                assert!(report.has_errors());
                for problem in &report.problems {
                    let lines = broken.matches('\n').count() + 2;
                    assert!(problem.line <= lines, "{}:{}\n{broken}", problem.line, problem.kind);
                }
                let _ = report.text(false);
            }
        }
    }
}

/// A directory of its own that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("hale-config-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
