//! The control socket, spoken to as programs do.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::folder::Folder;
use crate::support::hale::{Hale, PATIENCE, command};

const ZONE: &str = "\
pools:
  main: { endpoints: [{ name: e1, address: 192.0.2.1 }] }
zone: example.test
records: { '': { type: NS, value: ns1.example.net. } }
load_balancers: { www: { default_pools: [main], fallback_pool: main } }
";

struct Served {
    folder: Folder,
    _hale: Hale,
}

impl Served {
    fn start() -> Served {
        let folder = Folder::with("a.yaml", ZONE);
        let arguments = ["serve", folder.path().to_str().unwrap(), "--listen", "127.0.0.1:0", "--state-dir"];
        let state = folder.join("state");
        let hale = Hale::start(command(arguments.into_iter().chain([state.to_str().unwrap()])));
        hale.address();
        Served { folder, _hale: hale }
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("state/control")
    }

    fn connect(&self) -> BufReader<UnixStream> {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        BufReader::new(stream)
    }
}

fn say(stream: &mut BufReader<UnixStream>, line: &str) -> Value {
    stream.get_mut().write_all(line.as_bytes()).unwrap();
    hear(stream)
}

fn hear(stream: &mut BufReader<UnixStream>) -> Value {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
}

#[test]
fn a_connection_may_ask_several_times_and_mistakes_are_told() {
    let served = Served::start();
    let mode = |name| std::fs::metadata(served.folder.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("state"), mode("state/control")), (0o700, 0o600));
    let mut stream = served.connect();
    for (line, kind) in [
        ("nonsense\n", "bad_request"),
        ("\n", "bad_request"),
        ("{\"do\":\"dance\"}\n", "bad_request"),
        ("{\"do\":\"status\",\"off\":\"main\"}\n", "bad_request"),
        ("{\"do\":\"status\",\"of\":\"mian\"}\n", "unknown_pool"),
        ("{\"do\":\"probe\",\"of\":\"main\"}\n", "nothing_to_probe"),
        ("{\"do\":\"order\",\"what\":\"healthy\",\"of\":\"main\"}\n", "not_an_endpoint"),
        ("{\"do\":\"order\",\"what\":\"weight\",\"of\":\"main\",\"weight\":0.5}\n", "not_an_endpoint"),
        ("{\"do\":\"order\",\"what\":\"weight\",\"of\":\"main/e1\"}\n", "bad_request"),
        ("{\"do\":\"order\",\"what\":\"weight\",\"of\":\"main/e1\",\"weight\":1.5}\n", "bad_request"),
        ("{\"do\":\"order\",\"what\":\"weight\",\"of\":\"main/e1\",\"weight\":\"0.5\"}\n", "bad_request"),
        ("{\"do\":\"order\",\"what\":\"drain\",\"of\":\"main/e1\",\"weight\":0.5}\n", "bad_request"),
    ] {
        assert_eq!(say(&mut stream, line)["refused"]["kind"], json!(kind), "{line}");
    }
    let status = say(&mut stream, "{\"do\":\"status\"}\n");
    assert_eq!(status["status"]["pools"][0]["endpoints"][0]["serves"], json!(true));
    let done = say(&mut stream, "{\"do\":\"order\",\"what\":\"drain\",\"of\":\"main/e1\"}\n");
    assert!(done["done"]["drained_at"].is_string(), "{done}");
}

#[test]
fn a_line_without_end_is_cut_short() {
    let served = Served::start();
    let mut stream = served.connect();
    let _ = stream.get_mut().write_all(&vec![b'x'; (64 << 10) + 1]);
    assert_eq!(hear(&mut stream)["refused"]["kind"], json!("bad_request"));
    let end = stream.read(&mut [0; 16]);
    assert!(!matches!(end, Ok(1..)), "{end:?}");
}

#[test]
fn clients_that_stall_hold_up_nobody_and_silent_ones_give_way() {
    let served = Served::start();
    let mut asks = served.connect();
    let drain = "{\"do\":\"order\",\"what\":\"drain\",\"of\":\"main/e1\",\"for_ms\":0}\n";
    assert_eq!(say(&mut asks, drain)["refused"]["kind"], json!("bad_request"), "for no time at all");
    drop(asks);
    // one that never finishes its line, and one that never reads its answers
    let mut half = served.connect();
    half.get_mut().write_all(b"{\"do\":").unwrap();
    let mut deaf = served.connect();
    deaf.get_mut().set_nonblocking(true).unwrap();
    while deaf.get_mut().write(b"{\"do\":\"status\"}\n").is_ok() {}
    let mut other = served.connect();
    assert!(say(&mut other, "{\"do\":\"status\"}\n")["status"].is_object());
    let mut rest: Vec<_> = (0..40).map(|_| served.connect()).collect();
    let last = rest.last_mut().unwrap();
    assert!(say(last, "{\"do\":\"status\"}\n")["status"].is_object(), "silent ones give way");
    assert!(!matches!(half.read(&mut [0; 16]), Ok(1..)), "the longest silent one is let go");
    assert!(say(&mut other, "{\"do\":\"status\"}\n")["status"].is_object(), "who is connected goes on");
}
