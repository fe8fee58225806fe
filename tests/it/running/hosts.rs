//! Endpoints given by host name, looked up by a server of ours.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record, RecordType};

use crate::support::dns::ask;
use crate::support::folder::Folder;
use crate::support::hale::{Hale, until};

/// What a resolver says of every name.
#[derive(Default)]
struct Word {
    addresses: Vec<Ipv4Addr>,
    /// It says SERVFAIL.
    fails: bool,
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
    *says.lock().unwrap() = word(&[]);
    until("a name without addresses leaves nothing", || ask(hale.address(), "www.example.com.").is(&[]));
    *says.lock().unwrap() = word(&[4]);
    until("it comes back", || ask(hale.address(), "www.example.com.").is(&["192.0.2.4"]));
}
