//! A resolver of other people in front: Unbound asks for every name of the
//! sample zones, strictly minimised and with the case of letters drawn, and
//! gets what a direct query gets.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use haledns::config;
use haledns::model::{LoadBalancer, Model, WhenUnavailable};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};

use crate::support::folder::Folder;
use crate::support::hale::{Hale, PATIENCE, until};
use crate::support::ports::free_address;
use crate::support::programs::need;

/// Killed when dropped.
struct Resolver {
    child: Child,
    address: SocketAddr,
    _folder: Folder,
}

impl Resolver {
    /// Unbound, which asks `server` for these zones.
    fn unbound(zones: &[String], server: SocketAddr) -> Resolver {
        let folder = Folder::new();
        let address = free_address();
        let mut text = format!(
            "server:
  interface: 127.0.0.1@{port}
  port: {port}
  do-daemonize: no
  chroot: \"\"
  username: \"\"
  directory: \"{folder}\"
  pidfile: \"\"
  use-syslog: no
  logfile: \"\"
  do-ip6: no
  do-not-query-localhost: no
  access-control: 127.0.0.0/8 allow
  module-config: \"iterator\"
  qname-minimisation-strict: yes
  use-caps-for-id: yes
  harden-below-nxdomain: yes
  harden-referral-path: yes
  val-log-level: 2
remote-control:
  control-enable: no
",
            port = address.port(),
            folder = folder.path().display(),
        );
        for zone in zones {
            text +=
                &format!("stub-zone:\n  name: \"{zone}\"\n  stub-addr: {}@{}\n", server.ip(), server.port());
        }
        folder.write("unbound.conf", &text);
        let child = Command::new("unbound")
            .arg("-d")
            .arg("-c")
            .arg(folder.join("unbound.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut resolver = Resolver { child, address, _folder: folder };
        until("unbound answers", || {
            assert_eq!(resolver.child.try_wait().unwrap(), None, "unbound has ended");
            ask_once(address, &zones[0], RecordType::SOA, Duration::from_millis(200)).is_some()
        });
        resolver
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// RCODE, and the records of the answer without their TTLs.
type Answer = (ResponseCode, BTreeSet<String>);

fn ask_once(server: SocketAddr, name: &str, rtype: RecordType, wait: Duration) -> Option<Answer> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(wait)).unwrap();
    let mut message = Message::new(0x2222, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), rtype));
    let mut edns = Edns::new();
    edns.set_max_payload(1232);
    message.set_edns(edns);
    socket.send_to(&message.to_vec().unwrap(), server).unwrap();
    let mut octets = [0; 4096];
    let length = socket.recv(&mut octets).ok()?;
    let reply = Message::from_vec(&octets[..length]).ok()?;
    let records = reply
        .answers
        .iter()
        .map(|record| format!("{} {} {}", record.name.to_lowercase(), record.record_type(), record.data));
    Some((reply.metadata.response_code, records.collect()))
}

fn ask(server: SocketAddr, name: &str, rtype: RecordType) -> Answer {
    ask_once(server, name, rtype, PATIENCE).unwrap_or_else(|| panic!("no reply for {name} {rtype}"))
}

fn zone_files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("zones")
}

/// The addresses that a load balancer may answer with, as text.
fn addresses(model: &Model, balancer: &LoadBalancer) -> BTreeSet<String> {
    let fallback = match balancer.when_unavailable {
        WhenUnavailable::FallbackPool(pool) => Some(pool),
        WhenUnavailable::Nodata => None,
    };
    let pools = balancer.default_pools.iter().copied().chain(fallback);
    pools.flat_map(|pool| &model.pool(pool).endpoints).map(|endpoint| endpoint.address.to_string()).collect()
}

#[test]
fn unbound_resolves_every_name_of_the_sample_zones() {
    if !need("unbound") {
        return;
    }
    let loaded = config::load(&[zone_files()]).unwrap();
    let model = &loaded.model;
    // nobody is there to be probed, and nothing shall be waited for
    let folder = Folder::new();
    for entry in fs::read_dir(zone_files()).unwrap().flatten() {
        let text = fs::read_to_string(entry.path()).unwrap();
        folder.write(
            entry.file_name().to_str().unwrap(),
            &text.replace("startup_wait: 10s", "startup_wait: 0"),
        );
    }
    let hale = Hale::serve(folder.path());
    let zones: Vec<String> = model.zones.iter().map(|zone| zone.apex.to_string()).collect();
    let resolver = Resolver::unbound(&zones, hale.address());
    let mut asked = 0;
    for zone in &model.zones {
        let types = |code: u16| RecordType::from(code);
        let mut questions: BTreeSet<(String, RecordType)> =
            zone.records.iter().map(|set| (set.owner.to_string(), types(set.rtype))).collect();
        let apex = zone.apex.to_string();
        questions.insert((apex.clone(), RecordType::SOA));
        for name in [format!("no-such-name.{apex}"), format!("a.b.c.{apex}")] {
            questions.insert((name, RecordType::A));
        }
        for set in &zone.records {
            // what exists under another type
            questions.insert((set.owner.to_string(), RecordType::SRV));
        }
        for (name, rtype) in questions {
            let direct = ask(hale.address(), &name, rtype);
            let (rcode, records) = ask(resolver.address, &name, rtype);
            if !records.iter().any(|record| record.contains(" CNAME ")) {
                assert_eq!((rcode, records), direct, "{name} {rtype}");
            }
            asked += 1;
        }
        for balancer in &zone.load_balancers {
            let name = balancer.name.to_string();
            let (rcode, records) = ask(resolver.address, &name, RecordType::A);
            let possible = addresses(model, balancer);
            let given: Vec<&str> = records.iter().filter_map(|record| record.rsplit(' ').next()).collect();
            assert!(rcode == ResponseCode::NoError && !given.is_empty(), "{name}");
            assert!(given.iter().all(|address| possible.contains(*address)), "{name}: {given:?}");
            let (rcode, records) = ask(resolver.address, &name, RecordType::AAAA);
            assert_eq!((rcode, records.len()), (ResponseCode::NoError, 0), "{name} AAAA");
            asked += 2;
        }
    }
    assert!(asked > 10, "{asked}");
}
