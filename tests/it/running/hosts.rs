//! Endpoints given by host name, looked up by a server of ours.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record, RecordType};

use crate::support::dns::ask;
use crate::support::folder::Folder;
use crate::support::hale::{Hale, until};

/// The addresses that a resolver has for every name.
type Says = Arc<Mutex<Vec<Ipv4Addr>>>;

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
            if question.query_type() == RecordType::A {
                let record = |address: &Ipv4Addr| {
                    Record::from_rdata(question.name().clone(), 1, RData::A(A(*address)))
                };
                reply.answers.extend(says.lock().unwrap().iter().map(record));
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
    let says: Says = Arc::new(Mutex::new(vec![[192, 0, 2, 1].into()]));
    let folder = Folder::with("a.yaml", &configuration(resolver(&says)));
    let hale = Hale::serve(folder.path());
    let reply = ask(hale.address(), "www.example.com.");
    assert!(reply.is(&["192.0.2.1"]), "it serves when the name is looked up: {reply:?}\n{}", hale.log());
    *says.lock().unwrap() = vec![[192, 0, 2, 2].into(), [192, 0, 2, 3].into()];
    until("the name has two other addresses", || {
        ask(hale.address(), "www.example.com.").is(&["192.0.2.2", "192.0.2.3"])
    });
    // that nothing moves while lookups fail is a matter of time: see `Hosts`
    *says.lock().unwrap() = Vec::new();
    until("a name without addresses leaves nothing", || ask(hale.address(), "www.example.com.").is(&[]));
    *says.lock().unwrap() = vec![[192, 0, 2, 4].into()];
    until("it comes back", || ask(hale.address(), "www.example.com.").is(&["192.0.2.4"]));
}
