//! Who is told of what, when, and how often: in virtual time, and by sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use haledns::alerts::{Alerts, Notice, Turn, body};
use haledns::config;
use haledns::events::Event;
use haledns::model::{Model, Route};
use haledns::moment::{Moment, utc_millis};
use haledns::notify::{Notifier, Patience};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::certificates::Authority;
use crate::support::folder::Folder;
use crate::support::hale::{Hale, command, until};
use crate::support::server::{Seen, Server, Step, answer};

fn at(seconds: u64) -> Moment {
    Moment::from_start(Duration::from_secs(1_709_251_200 + seconds))
}

/// A configuration with these alerts, and 300 endpoints in the pool `eu`.
fn model(alerts: &str) -> Arc<Model> {
    let list: Vec<String> =
        (0..300).map(|n| format!("{{ name: e{n}, address: 10.0.{}.{} }}", n / 250, n % 250 + 1)).collect();
    let text = format!(
        "alerts: {alerts}\n\
         pools:\n  eu: {{ endpoints: [ {} ] }}\n  us: {{ endpoints: [ {{ name: a, address: 192.0.2.1 }} ] }}\n\
         zone: example.com\n\
         records: {{ '': {{ type: NS, value: ns.example.net. }} }}\n\
         load_balancers: {{ www: {{ default_pools: [eu, us], when_unavailable: nodata }} }}\n",
        list.join(", ")
    );
    config::load_texts(vec![("a.yaml".into(), text.into())]).unwrap_or_else(|report| panic!("{report}")).model
}

/// An event as it would come.
fn event(kind: &str, object: &str, health: &str, seconds: u64) -> Arc<Event> {
    let timestamp = utc_millis(at(seconds).elapsed());
    let name = object.split('/').next().unwrap();
    let pool = json!({
        "id": name, "name": name, "healthy": true, "changed": false, "minimum_origins": 1, "state": "degraded",
        "origins_total": 300, "origins_enabled": 300, "origins_healthy": 299,
    });
    let event = json!({
        "id": format!("{seconds:08}-{object}"), "timestamp": timestamp, "kind": kind, "object": object,
        "from": "healthy", "to": "unhealthy", "changed": true, "new_health": health, "lasted_ms": 5,
        "summary": format!("{kind} {object} is {health}"), "reason": "TCP connection failed",
        "pool": if ["pool", "endpoint"].contains(&kind) { pool } else { Value::Null },
    });
    Arc::new(Event::read(event.to_string().as_bytes()).unwrap())
}

/// Alerts, and what they have told, with when.
struct Bench {
    alerts: Alerts,
    now: u64,
    told: Vec<(u64, Notice)>,
}

impl Bench {
    fn new(alerts: &str) -> Bench {
        let mut bench = Bench { alerts: Alerts::default(), now: 0, told: Vec::new() };
        bench.alerts.adopt(&model(alerts), at(0));
        bench
    }

    /// Goes on to a second, waking whenever that is asked for.
    fn go(&mut self, seconds: u64) {
        while let Some(wake) = self.alerts.wake_at().filter(|wake| *wake <= at(seconds)) {
            self.now = self.now.max(wake.since(at(0)).as_secs());
            self.alerts.advance(wake);
            while let Some(notice) = self.alerts.next_notice() {
                self.told.push((self.now, notice));
            }
            assert!(self.alerts.wake_at().is_none_or(|next| next > wake), "it would spin");
        }
        self.now = seconds;
    }

    fn event(&mut self, seconds: u64, kind: &str, object: &str, health: &str) {
        self.go(seconds);
        self.alerts.take(&event(kind, object, health, seconds), at(seconds));
    }

    /// Second, beginning or end, and the first object.
    fn story(&self) -> Vec<(u64, &'static str, &str)> {
        let word = |turn| match turn {
            Turn::Start => "start",
            Turn::Repeat(_) => "repeat",
            Turn::End => "end",
        };
        self.told.iter().map(|(at, notice)| (*at, word(notice.turn), notice.named[0].as_str())).collect()
    }
}

const ALL: &str = "{ ops: { type: slack, url: 'http://x/', on: [endpoint, pool, load_balancer, vantage] } }";

#[test]
fn d04_bad_news_is_told_once_and_its_end_once() {
    let mut bench = Bench::new("{ ops: { type: slack, url: 'http://x/' } }");
    bench.event(0, "pool", "eu", "unknown");
    bench.event(5, "pool", "eu", "healthy"); // the first verdict is no news
    bench.event(10, "endpoint", "eu/e1", "unhealthy"); // not asked for
    bench.event(10, "pool", "eu", "unhealthy");
    bench.event(20, "pool", "eu", "unhealthy"); // other words for the same
    bench.event(25, "pool", "us", "healthy"); // another object
    bench.event(40, "pool", "eu", "healthy");
    bench.event(50, "pool", "eu", "healthy");
    bench.go(10_000);
    assert_eq!(bench.story(), [(12, "start", "eu"), (42, "end", "eu")]);
    let [(_, start), (_, end)] = &bench.told[..] else { panic!() };
    assert_eq!((&start.incident, &start.key), (&end.incident, &end.key));
    assert_eq!(end.lasted, Duration::from_secs(32));
    assert!(end.title().contains("pool eu is healthy"), "{}", end.title());
}

#[test]
fn what_is_too_short_is_never_told() {
    let mut bench = Bench::new("{ ops: { type: slack, url: 'http://x/', delay: 30s } }");
    bench.event(0, "pool", "eu", "unhealthy");
    bench.event(29, "pool", "eu", "healthy");
    bench.event(100, "pool", "eu", "unhealthy");
    bench.event(150, "pool", "eu", "out");
    bench.go(1000);
    assert_eq!(bench.story(), [(132, "start", "eu"), (152, "end", "eu")], "taken out by hand is an end, too");
    assert!(bench.told[1].1.closed.is_some());
}

#[test]
fn it_is_repeated_while_it_lasts() {
    let mut bench = Bench::new("{ ops: { type: slack, url: 'http://x/', repeat: 1h } }");
    bench.event(0, "pool", "eu", "unhealthy");
    bench.event(8000, "pool", "eu", "healthy");
    bench.go(100_000);
    let expected = [(2, "start", "eu"), (3602, "repeat", "eu"), (7202, "repeat", "eu"), (8002, "end", "eu")];
    assert_eq!(bench.story(), expected);
}

#[test]
fn filters_say_what_is_told() {
    for (keys, expected) in [
        ("new_health: unhealthy", vec!["start eu", "start www.example.com.", "start us"]),
        ("new_health: healthy", vec!["end eu"]),
        ("pools: us", vec!["start www.example.com.", "start us"]),
        ("pools: us, on: pool", vec!["start us"]),
        ("load_balancers: www.example.com., on: load_balancer", vec!["start www.example.com."]),
        ("on: vantage", vec!["start local"]),
        ("on: endpoint, pools: eu", vec!["start eu/e1"]),
    ] {
        let mut bench = Bench::new(&format!("{{ ops: {{ type: slack, url: 'http://x/', {keys} }} }}"));
        bench.event(0, "pool", "eu", "unhealthy");
        bench.event(3, "load_balancer", "www.example.com.", "unhealthy");
        bench.event(6, "pool", "us", "unhealthy");
        bench.event(6, "vantage", "local", "unhealthy");
        bench.event(6, "endpoint", "eu/e1", "unhealthy");
        bench.event(6, "endpoint", "us/a", "unhealthy");
        bench.event(6, "test", "us/a", "unhealthy");
        bench.event(20, "pool", "eu", "healthy");
        bench.go(100);
        let mut story: Vec<_> = bench.story().iter().map(|(_, turn, of)| format!("{turn} {of}")).collect();
        if !keys.contains("new_health") {
            story.retain(|line| line.starts_with("start"));
        }
        story.retain(|line| keys.contains("pools") || !line.contains("start us/"));
        assert_eq!(story, expected, "{keys}");
    }
}

#[test]
fn d04_two_hundred_that_fall_at_once_are_one_notice() {
    let mut bench = Bench::new(ALL);
    for n in 0..200 {
        bench.event(n / 150, "endpoint", &format!("eu/e{n}"), "unhealthy");
    }
    for n in 0..200 {
        bench.event(100 + n, "endpoint", &format!("eu/e{n}"), "healthy");
    }
    bench.go(10_000);
    let [(2, start), (_, end)] = &bench.told[..] else { panic!("{:?}", bench.story()) };
    assert_eq!((start.total, start.named.len()), (200, 5));
    assert_eq!(start.title(), "200 endpoints are unhealthy");
    assert!(start.details().contains(" and 195 more"), "{}", start.details());
    assert_eq!((end.turn, &end.key), (Turn::End, &start.key), "when the last of them is well");
}

#[test]
fn d04_an_endpoint_that_comes_and_goes_makes_little_noise() {
    let mut bench = Bench::new(ALL);
    for n in 0..40 {
        let health = if n % 2 == 0 { "unhealthy" } else { "healthy" };
        bench.event(n * 15, "endpoint", "eu/e1", health);
    }
    bench.go(20_000);
    let story = bench.story();
    assert_eq!(story.len(), 6, "{story:?}");
    assert_eq!(*story.last().unwrap(), (585 + 302, "end", "eu/e1"), "well for five minutes");
    assert!(bench.told[4].1.flapping && bench.told[4].1.details().contains("comes and goes"));
}

#[test]
fn a_reload_keeps_what_is_open_and_ends_what_is_gone() {
    let mut bench = Bench::new(ALL);
    bench.event(0, "endpoint", "eu/e1", "unhealthy");
    bench.event(0, "endpoint", "eu/gone", "unhealthy");
    bench.go(10);
    bench.alerts.adopt(&model(ALL), at(10));
    bench.event(20, "endpoint", "eu/e1", "healthy");
    bench.go(100);
    let expected =
        [(2, "start", "eu/e1"), (2, "start", "eu/gone"), (12, "end", "eu/gone"), (22, "end", "eu/e1")];
    assert_eq!(bench.story(), expected);
    assert!(bench.told[2].1.title().contains("no longer watched"));
    bench.event(200, "endpoint", "eu/e1", "unhealthy");
    bench.go(300);
    bench.alerts.adopt(&model("{}"), at(300));
    bench.event(310, "endpoint", "eu/e1", "healthy");
    bench.go(400);
    assert_eq!(bench.told.len(), 5, "nobody is there to be told");
}

#[test]
fn what_a_former_run_has_left_open_ends_and_is_not_told_again() {
    let mut bench = Bench::new("{ ops: { type: slack, url: 'http://x/', on: endpoint, delay: 60s } }");
    let open = [("eu/e1", 0), ("eu/e2", 4990), ("eu/gone", 0)];
    let open = open.map(|(object, seconds)| event("endpoint", object, "unhealthy", seconds));
    bench.alerts.recall(&open, &model("{}"), at(5000));
    bench.event(5001, "endpoint", "eu/e1", "unhealthy");
    bench.event(5010, "endpoint", "eu/e1", "healthy");
    bench.go(10_000);
    let expected = [(5012, "end", "eu/e1"), (5052, "start", "eu/e2")];
    assert_eq!(bench.story(), expected, "of the second nobody had been told yet");
}

#[test]
fn bodies_have_the_receivers_shape() {
    let form = |keys: &str| {
        let mut bench = Bench::new(&format!("{{ ops: {{ on: [pool, endpoint], {keys} }} }}"));
        bench.event(0, "pool", "eu", "unhealthy");
        bench.event(60, "pool", "eu", "healthy");
        bench.go(100);
        bench.told.iter().map(|(_, notice)| body(notice)).collect::<Vec<_>>()
    };
    let [start, end] = &form("type: webhook, url: 'http://x/'")[..] else { panic!() };
    assert_eq!(start["alert_event"], "ALERT_STATE_EVENT_START");
    assert_eq!(end["alert_event"], "ALERT_STATE_EVENT_END");
    assert_eq!(start["alert_correlation_id"], end["alert_correlation_id"]);
    assert_eq!((&start["policy_name"], &start["name"]), (&json!("ops"), &json!("pool eu is unhealthy")));
    assert_eq!(
        (&start["data"]["pool_name"], &start["data"]["new_health"]),
        (&json!("eu"), &json!("Unhealthy"))
    );
    assert_eq!((&end["data"]["new_health"], &end["data"]["lasted_seconds"]), (&json!("Healthy"), &json!(62)));
    assert_eq!(start["ts"], 1_709_251_202);

    let [start, end] = &form("type: pagerduty, routing_key: R0UT1NG")[..] else { panic!() };
    assert_eq!((&start["event_action"], &end["event_action"]), (&json!("trigger"), &json!("resolve")));
    assert_eq!((&start["dedup_key"], &end["dedup_key"]), (&json!("hale/pool/eu"), &json!("hale/pool/eu")));
    assert_eq!(start["routing_key"], "R0UT1NG");
    let payload = &start["payload"];
    assert_eq!((&payload["severity"], &payload["source"]), (&json!("critical"), &json!("eu")));
    assert_eq!(payload["timestamp"], "2024-03-01T00:00:02.000Z");

    let [start, _] = &form("type: slack, url: 'http://x/'")[..] else { panic!() };
    assert_eq!(start["text"], ":red_circle: pool eu is unhealthy");
    assert_eq!(start["blocks"].as_array().unwrap().len(), 2);
}

// ---- sending ------------------------------------------------------------------------------------

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn quick() -> Patience {
    let (timeout, gap) = (Duration::from_millis(400), Duration::from_millis(20));
    Patience { timeout, gaps: vec![gap; 20], soon: gap }
}

/// A notice for a route of type webhook to this address, about this pool.
fn notice(url: &str, keys: &str, pool: &str) -> Notice {
    let mut bench =
        Bench::new(&format!("{{ ops: {{ type: webhook, url: '{url}', secret: s3cret, {keys} }} }}"));
    bench.event(0, "pool", pool, "unhealthy");
    bench.go(10);
    bench.told.pop().unwrap().1
}

/// The notices of one route named otherwise.
fn named(name: &str, notice: Notice) -> Notice {
    Notice { route: Arc::new(Route { name: name.into(), ..Route::clone(&notice.route) }), ..notice }
}

fn bodies(seen: &[Seen]) -> Vec<Value> {
    let body = |seen: &Seen| {
        let (_, body) = seen.received.split_once("\r\n\r\n")?;
        serde_json::from_str(body).ok()
    };
    seen.iter().filter_map(body).collect()
}

#[tokio::test]
async fn a_notice_is_posted_with_its_secret() {
    let server = Server::start(answer(OK)).await;
    let mut notifier = Notifier::new(quick());
    notifier.send(notice(&format!("http://{}/hook?a=b", server.address), "", "eu"));
    let seen = server.ended(1).await;
    let head = seen[0].received.to_ascii_lowercase();
    assert!(head.starts_with("post /hook?a=b http/1.1\r\n"), "{head}");
    for line in
        [&format!("host: {}", server.address), "cf-webhook-auth: s3cret", "content-type: application/json"]
    {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{line}: {head}");
    }
    assert_eq!(bodies(&seen)[0]["data"]["pool_name"], "eu");
}

#[tokio::test]
async fn a_notice_goes_over_tls_to_who_holds_the_name() {
    let authority = Authority::new();
    let server = Server::tls(authority.issue(&["localhost"], 2000, 4000), answer(OK)).await;
    let mut notice = notice(&format!("https://localhost:{}/", server.address.port()), "", "eu");
    let mut notifier = Notifier::new(quick());
    notifier.send(notice.clone());
    server.ended(2).await; // tried, and tried again: nobody vouches for it
    assert!(bodies(&server.ended(1).await).is_empty());
    let mut route = Route::clone(&notice.route);
    route.name = "with_roots".into();
    route.receiver.extra_roots = authority.roots();
    notice.route = Arc::new(route);
    notifier.send(notice);
    server.received("s3cret").await;
}

#[tokio::test]
async fn what_is_refused_or_hangs_is_tried_again_in_order() {
    let failing = answer("HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n");
    let hang = vec![Step::Head, Step::Hold];
    let scripts = vec![failing, hang, vec![Step::Reset], answer(OK)];
    let server = Server::sequence(scripts).await;
    let url = format!("http://{}/", server.address);
    let mut notifier = Notifier::new(quick());
    notifier.send(notice(&url, "", "eu"));
    notifier.send(notice(&url, "", "us"));
    let seen = server.ended(5).await;
    let order: Vec<_> = bodies(&seen).iter().map(|body| body["data"]["pool_name"].clone()).collect();
    let last = &order[order.len() - 2..];
    assert_eq!(last, [json!("eu"), json!("us")], "{order:?}");
    assert_eq!(order.iter().filter(|pool| **pool == json!("us")).count(), 1);
}

#[tokio::test]
async fn d04_a_receiver_that_hangs_holds_up_nobody_else() {
    let (hangs, works) = (Server::start(vec![Step::Hold]).await, Server::start(answer(OK)).await);
    let mut notifier = Notifier::new(Patience { timeout: Duration::from_secs(30), ..quick() });
    for _ in 0..3 {
        let stuck = notice(&format!("http://{}/", hangs.address), "", "eu");
        notifier.send(named("stuck", stuck));
    }
    notifier.send(notice(&format!("http://{}/", works.address), "", "eu"));
    works.ended(1).await;
    assert_eq!(hangs.connections(), 1, "one at a time");
}

/// A receiver that isn't there yet, and where it will be.
async fn away() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Waits for one that comes, and answers nobody.
async fn hung_up(away: TcpListener) {
    drop(away.accept().await.unwrap());
}

#[tokio::test]
async fn what_was_meant_while_the_receiver_was_away_comes_when_it_is_back() {
    let (away, address) = away().await;
    let mut notifier = Notifier::new(quick());
    let url = format!("http://{address}/");
    notifier.send(notice(&url, "", "eu"));
    notifier.send(notice(&url, "", "us"));
    hung_up(away).await;
    let back = Server::at(address, vec![answer(OK)], None).await;
    let seen = back.ended(2).await;
    assert_eq!(bodies(&seen).len(), 2);
}

/// The beginning and the end of one incident of a pool.
fn both(url: &str, pool: &str) -> [Notice; 2] {
    let mut bench = Bench::new(&format!("{{ ops: {{ type: webhook, url: '{url}' }} }}"));
    bench.event(0, "pool", pool, "unhealthy");
    bench.event(60, "pool", pool, "healthy");
    bench.go(100);
    let [(_, start), (_, end)] = &bench.told[..] else { panic!("{:?}", bench.story()) };
    [start.clone(), end.clone()]
}

#[tokio::test]
async fn news_does_not_wait_for_a_long_gap() {
    let failing = answer("HTTP/1.1 503 Oh\r\ncontent-length: 0\r\n\r\n");
    let server = Server::sequence(vec![failing, answer(OK)]).await;
    let url = format!("http://{}/", server.address);
    let hour = vec![Duration::from_secs(3600); 8];
    let mut notifier = Notifier::new(Patience { gaps: hour, ..quick() });
    notifier.send(notice(&url, "", "eu"));
    server.ended(1).await;
    notifier.send(notice(&url, "", "us"));
    let pools: Vec<_> =
        bodies(&server.ended(3).await).iter().map(|body| body["data"]["pool_name"].clone()).collect();
    assert_eq!(pools, [json!("eu"), json!("eu"), json!("us")]);
}

#[tokio::test]
async fn what_is_over_before_it_could_be_delivered_is_not_told() {
    let (away, address) = away().await;
    let url = format!("http://{address}/");
    let mut notifier = Notifier::new(Patience { gaps: vec![Duration::from_millis(20); 2000], ..quick() });
    notifier.send(notice(&url, "", "eu")); // another incident, which lasts
    for told in both(&url, "us").into_iter().chain(both(&url, "eu").into_iter().take(1)) {
        notifier.send(told);
    }
    hung_up(away).await;
    let back = Server::at(address, vec![answer(OK)], None).await;
    notifier.send(notice(&url, "", "us"));
    let seen = bodies(&back.ended(3).await);
    let told: Vec<_> =
        seen.iter().map(|body| (body["data"]["pool_name"].clone(), body["alert_event"].clone())).collect();
    let start = json!("ALERT_STATE_EVENT_START");
    let expected = ["eu", "eu", "us"].map(|pool| (json!(pool), start.clone()));
    assert_eq!(told, expected, "the pair of the other is left out");
}

#[tokio::test]
async fn the_end_is_told_to_who_may_have_heard_of_the_beginning() {
    let hang = vec![Step::Head, Step::Hold];
    let server = Server::sequence(vec![hang, answer(OK)]).await;
    let url = format!("http://{}/", server.address);
    let mut notifier = Notifier::new(quick());
    let [start, end] = both(&url, "eu");
    notifier.send(start);
    server.received("POST").await;
    notifier.send(end);
    let seen = bodies(&server.ended(2).await);
    assert_eq!(seen.last().unwrap()["alert_event"], "ALERT_STATE_EVENT_END", "{seen:?}");
}

#[test]
fn a_server_posts_what_falls_and_what_recovers() {
    use crate::support::endpoint::{Endpoint, Manner};
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(Server::start(answer(OK)));
    let endpoint = Endpoint::start("127.0.0.1", Manner::Answers);
    let folder = Folder::new();
    let text = format!(
        "server: {{ state_dir: {} }}\n\
         alerts: {{ ops: {{ type: webhook, url: 'http://{}/', secret: s3cret, on: [endpoint, pool] }} }}\n\
         monitors: {{ web: {{ type: http, interval: 200ms, consecutive_up: 1, consecutive_down: 1 }} }}\n\
         pools: {{ eu: {{ monitor: web, endpoints: [ {{ name: a, address: 127.0.0.1, port: {} }} ] }} }}\n\
         zone: example.test\n\
         records: {{ '': {{ type: NS, value: ns.example.net. }} }}\n\
         load_balancers: {{ www: {{ default_pools: [eu], when_unavailable: nodata }} }}\n",
        folder.join("state").display(),
        server.address,
        endpoint.address.port(),
    );
    folder.write("a.yaml", &text);
    let hale = Hale::serve(folder.join("a.yaml"));
    let address = endpoint.address;
    drop(endpoint);
    let told = |count| runtime.block_on(async { bodies(&server.ended(count).await) });
    hale.line("pool eu is critical");
    until("the fall is told", || server.connections() >= 2);
    let starts = told(2);
    let back = Endpoint::at(address, Manner::Answers);
    until("the recovery is told", || server.connections() >= 4);
    let all = told(4);
    let ids = |bodies: &[Value]| {
        let mut ids: Vec<_> = bodies.iter().map(|body| body["alert_correlation_id"].to_string()).collect();
        ids.sort();
        ids
    };
    assert_eq!(ids(&starts), ids(&all[2..]), "the recovery of the same objects");
    assert!(all[2..].iter().all(|body| body["data"]["new_health"] == "Healthy"), "{all:?}");
    // it falls, the server is stopped, it recovers, the server is started again
    let mark = hale.mark();
    drop(back);
    hale.line_after(mark, "pool eu is critical");
    until("the second fall is told", || server.connections() >= 6);
    told(6);
    let (ended, _) = hale.stop(Signal::TERM);
    let _back = Endpoint::at(address, Manner::Answers);
    let hale = Hale::serve(folder.join("a.yaml"));
    until("the second recovery is told", || server.connections() >= 8);
    let all = told(8);
    assert_eq!(ids(&all[4..6]), ids(&all[6..]), "{all:?}");
    drop(hale);
    assert!(!ended.log.contains("s3cret"), "{}", ended.log);

    let state = folder.join("state");
    let history = |more: &[&str]| {
        let arguments = ["history", "--state-dir", state.to_str().unwrap()];
        let ended = Hale::start(command(arguments.iter().chain(more))).ended();
        assert_eq!(ended.code(), Some(0), "{}", ended.log);
        ended.out
    };
    let rows = history(&["eu/a", "--kind", "endpoint"]);
    let expected = ["unknown → healthy", "healthy → unhealthy", "unhealthy → healthy"];
    assert_eq!(rows.lines().count(), 6, "a heading, these, a fall and a new beginning: {rows}");
    for (row, moved) in rows.lines().skip(1).zip(expected) {
        assert!(row.contains(moved) && row.contains("eu/a"), "{row}");
    }
    let fall = history(&["eu/a", "--evidence", "--since", "1h", "-n", "3"]);
    assert!(fall.contains("last bad ") && fall.contains("connect_refused"), "{fall}");
    assert_eq!(history(&["--until", "2020-01-01"]), "");
    let lines = history(&["--json"]);
    assert!(lines.lines().all(|line| Event::read(line.as_bytes()).is_some()), "{lines}");
}
