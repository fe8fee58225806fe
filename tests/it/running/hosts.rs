//! Endpoints given by host name, looked up by a server of ours.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::{A, CNAME, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use serde_json::{Value, json};

use super::memory::serve;
use crate::support::dns::ask;
use crate::support::folder::Folder;
use crate::support::hale::{Hale, run, until};

/// What a resolver says of every name.
#[derive(Default)]
struct Word {
    addresses: Vec<Ipv4Addr>,
    /// It says SERVFAIL.
    fails: bool,
    /// It says that the name is an alias of itself.
    loops: bool,
    /// How often it was asked since the word was changed.
    asked: usize,
}

type Says = Arc<Mutex<Word>>;

fn word(last: &[u8]) -> Word {
    Word { addresses: last.iter().map(|&last| [192, 0, 2, last].into()).collect(), ..Word::default() }
}

/// A resolver that says what it is told to, with a TTL of a second, until the
/// process ends.
fn resolver(says: &Says) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let says = Arc::clone(says);
    thread::spawn(move || {
        let mut octets = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut octets) {
            let Ok(query) = Message::from_vec(&octets[..length]) else { continue };
            let mut reply = query.clone();
            reply.metadata.message_type = MessageType::Response;
            let question = &query.queries[0];
            let mut says = says.lock().unwrap();
            says.asked += 1;
            if says.fails {
                reply.metadata.response_code = ResponseCode::ServFail;
            } else if question.query_type() == RecordType::A {
                let record = |address: &Ipv4Addr| {
                    Record::from_rdata(question.name().clone(), 1, RData::A(A(*address)))
                };
                reply.answers.extend(says.addresses.iter().map(record));
            }
            if says.loops {
                let alias = RData::CNAME(CNAME(question.name().clone()));
                reply.answers = vec![Record::from_rdata(question.name().clone(), 1, alias)];
            } else if reply.answers.is_empty() && !says.fails {
                let root = Name::root;
                let soa = RData::SOA(SOA::new(root(), root(), 1, 1, 1, 1, 1));
                reply.authorities.push(Record::from_rdata(root(), 1, soa));
            }
            let _ = socket.send_to(&reply.to_vec().unwrap(), from);
        }
    });
    address
}

fn configuration(resolver: SocketAddr) -> String {
    format!(
        "server: {{ resolvers: [\"{resolver}\"] }}\n\
         zone: example.com\n\
         records: {{ '': {{ type: NS, value: ns1.example.net. }} }}\n\
         pools: {{ main: {{ endpoints: [ {{ name: web, address: web.example.net }} ] }} }}\n\
         load_balancers: {{ www: {{ default_pools: [main], fallback_pool: main }} }}\n"
    )
}

#[test]
fn b27_addresses_follow_the_name() {
    let says: Says = Arc::new(Mutex::new(word(&[1])));
    let folder = Folder::with("a.yaml", &configuration(resolver(&says)));
    let hale = Hale::serve(folder.path());
    let reply = ask(hale.address(), "www.example.com.");
    assert!(reply.is(&["192.0.2.1"]), "it serves when the name is looked up: {reply:?}\n{}", hale.log());
    *says.lock().unwrap() = word(&[2, 3]);
    until("the name has two other addresses", || {
        ask(hale.address(), "www.example.com.").is(&["192.0.2.2", "192.0.2.3"])
    });
    let mark = hale.mark();
    *says.lock().unwrap() = Word { fails: true, ..Word::default() };
    // IPv4 and IPv6, and each of them more than once
    until("look-ups fail several times", || says.lock().unwrap().asked > 8);
    hale.line_after(mark, "web.example.net");
    let reply = ask(hale.address(), "www.example.com.");
    assert!(reply.is(&["192.0.2.2", "192.0.2.3"]), "a lost look-up moves nothing: {reply:?}");
    // that it is so for an hour is a matter of time: see `Hosts`
    *says.lock().unwrap() = Word { loops: true, ..Word::default() };
    until("look-ups go round several times", || says.lock().unwrap().asked > 8);
    let reply = ask(hale.address(), "www.example.com.");
    assert!(reply.is(&["192.0.2.2", "192.0.2.3"]), "nor does an alias that goes round: {reply:?}");
    *says.lock().unwrap() = word(&[]);
    until("a name without addresses leaves nothing", || ask(hale.address(), "www.example.com.").is(&[]));
    *says.lock().unwrap() = word(&[4]);
    until("it comes back", || ask(hale.address(), "www.example.com.").is(&["192.0.2.4"]));
}

#[test]
fn an_endpoint_whose_name_has_no_address_is_shown_as_unresolved() {
    let says: Says = Arc::default();
    let folder = Folder::with("a.yaml", &configuration(resolver(&says)));
    let hale = serve(&folder);
    let say = |arguments: &[&str]| {
        run([arguments, &["--state-dir", folder.join("state").to_str().unwrap()]].concat())
    };
    let row = |of: &[&str]| {
        let ended = say(&[&["status"], of].concat());
        assert_eq!(ended.code(), Some(0), "{}", ended.log);
        let found = ended.out.lines().find(|line| line.starts_with("main/web"));
        found.unwrap_or_else(|| panic!("no row in {}", ended.out)).to_owned()
    };
    for of in [&[][..], &["main"], &["main/web"]] {
        let row = row(of);
        for part in ["web.example.net", "unresolved", "its host name has no address"] {
            assert!(row.contains(part), "{of:?}: {row}");
        }
    }
    assert!(say(&["status"]).out.contains("1 endpoint: 0 serving, 1 unresolved"));
    let status: Value = serde_json::from_str(&say(&["status", "--json"]).out).unwrap();
    let missing = &status["pools"][0]["unresolved"][0];
    assert_eq!(missing["name"], json!("web"));
    assert_eq!(missing["hostname"], json!("web.example.net"));
    assert_eq!(missing["state"], json!("unresolved"));
    assert_eq!(missing["reason"], json!("its host name has no address"));
    assert!(missing["since"].is_string(), "{missing}");
    let ended = say(&["drain", "main/web"]);
    assert_eq!(ended.code(), Some(1));
    assert!(ended.log.contains("endpoint `web` of pool main has no address now"), "{}", ended.log);
    hale.line("the endpoint host name web.example.net has no address");

    *says.lock().unwrap() = word(&[1]);
    until("it has an address", || row(&[]).contains("192.0.2.1"));
    let status: Value = serde_json::from_str(&say(&["status", "--json"]).out).unwrap();
    assert_eq!(status["pools"][0]["unresolved"], json!([]));
    assert_eq!(hale.count("web.example.net has no address"), 1);
}

#[test]
fn an_address_that_leaves_its_name_is_told_and_spoken_of_no_more() {
    let says: Says = Arc::new(Mutex::new(word(&[1, 2])));
    let folder = Folder::with("a.yaml", &configuration(resolver(&says)));
    let hale = serve(&folder);
    assert!(ask(hale.address(), "www.example.com.").is(&["192.0.2.1", "192.0.2.2"]));
    *says.lock().unwrap() = word(&[1]);
    hale.line("endpoint main/web@192.0.2.2 is gone: its host name has this address no more");
    let state = folder.join("state");
    let say = |arguments: &[&str]| run([arguments, &["--state-dir", state.to_str().unwrap()]].concat());
    until("the history has it", || say(&["history", "main"]).out.contains("up → gone"));
    for command in ["drain", "status"] {
        let ended = say(&[command, "main/web@192.0.2.2"]);
        assert_eq!((ended.code(), &*ended.out), (Some(1), ""), "{command}");
        let told = "its host name web.example.net hasn't this address now, but: web@192.0.2.1";
        assert!(ended.log.contains(told), "{command}: {}", ended.log);
    }
    folder.replace("a.yaml", &configuration(resolver(&says)).replace("name: web", "name: other"));
    hale.line("endpoint main/web@192.0.2.1 is gone");
}

#[test]
fn status_says_why_a_name_cannot_be_looked_up() {
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap(); // closed again
    let text = configuration(nobody).replace("server: {", "server: { startup_wait: 0s,");
    let folder = Folder::with("a.yaml", &text);
    let _hale = serve(&folder);
    until("the lookup has failed", || {
        let ended = run(["status", "--json", "--state-dir", folder.join("state").to_str().unwrap()]);
        let status: Value = serde_json::from_str(&ended.out).unwrap_or_default();
        let missing = &status["pools"][0]["unresolved"][0];
        missing["reason"] == json!("its host name can't be looked up") && missing["error"].is_string()
    });
}

#[test]
fn after_a_reload_a_new_host_name_can_be_spoken_of_at_once() {
    let says: Says = Arc::new(Mutex::new(word(&[1])));
    let text = configuration(resolver(&says));
    let folder = Folder::with("a.yaml", &text);
    let hale = serve(&folder);
    folder.write(
        "a.yaml",
        &text.replace("{ name: web,", "{ name: new, address: new.example.net }, { name: web,"),
    );
    for command in ["reload", "drain main/new", "status main/new"] {
        let state = folder.join("state");
        let ended = run(command.split(' ').chain(["--state-dir", state.to_str().unwrap()]));
        assert_eq!(ended.code(), Some(0), "{command}: {}{}", ended.log, hale.log());
    }
}

#[test]
fn a_probe_without_a_server_looks_host_names_up() {
    let says: Says = Arc::new(Mutex::new(Word { addresses: vec![[127, 0, 0, 1].into()], ..Word::default() }));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let text = configuration(resolver(&says))
        .replace("main: {", "main: { monitor: tcp,")
        .replace("zone:", &format!("monitors: {{ tcp: {{ type: tcp, port: {port} }} }}\nzone:"));
    let folder = Folder::with("a.yaml", &text);
    let file = folder.join("a.yaml");
    let probe = |of: &str| run(["probe", of, "--json", "--config", file.to_str().unwrap()]);
    for of in ["main", "main/web"] {
        let ended = probe(of);
        assert_eq!(ended.code(), Some(0), "{of}: {}", ended.log);
        assert_eq!(ended.log, "", "{of}");
        let found: Value = serde_json::from_str(&ended.out).unwrap();
        assert_eq!((&found[0]["address"], &found[0]["result"]), (&json!("127.0.0.1"), &json!("pass")));
    }
    let two = text.replace("{ name: web,", "{ name: own, address: 127.0.0.1 }, { name: web,");
    folder.write("a.yaml", &two);
    *says.lock().unwrap() = word(&[]);
    let told = "main/web (web.example.net) can't be probed: its host name has no address";
    let ended = probe("main");
    assert_eq!(ended.code(), Some(1));
    assert!(ended.out.contains("main/own") || ended.out.contains("\"own\""), "{}", ended.out);
    assert!(ended.log.contains(told), "{}", ended.log);
    let ended = probe("main/web");
    assert_eq!((ended.code(), &*ended.out), (Some(1), ""));
    assert!(ended.log.contains(told), "{}", ended.log);
}
