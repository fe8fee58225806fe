//! Settings that decide what clients get: proxies and rates.

use std::net::UdpSocket;

use rustix::process::Signal;

use super::{WWW, fixed};
use crate::support::dns::{ask_tcp, connect, query, read};
use crate::support::folder::Folder;
use crate::support::hale::{Hale, PATIENCE};

fn connect_udp(hale: &Hale) -> UdpSocket {
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(hale.address()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
}

#[test]
fn too_many_replies_are_sent_short_and_the_log_tells_whose_when_it_begins_and_when_it_ends() {
    let settings = "rate_limit: { responses_per_second: 5, slip: 1, window: 1s }";
    let folder = Folder::with("a.yaml", &format!("server: {{ {settings} }}\n{}", fixed("192.0.2.1", 30)));
    let hale = Hale::serve(folder.path());
    let client = connect_udp(&hale);
    let (mut whole, mut short) = (0, 0);
    for id in 0..100 {
        client.send(&query(id, WWW)).unwrap();
        let mut reply = [0; 1500];
        let length = client.recv(&mut reply).expect("slip: 1 answers all");
        match reply[2] & 2 != 0 {
            true => short += 1,
            false => {
                assert!(read(&reply[..length]).is(&["192.0.2.1"]));
                whole += 1;
            }
        }
    }
    assert!(whole >= 5 && short >= 20, "{whole} whole, {short} short");
    assert!(ask_tcp(&mut connect(hale.address()), WWW).is(&["192.0.2.1"]), "which leads to TCP");
    hale.line("replies to 127.0.0.0/24 are limited (responses), first for www.example.test.");
    hale.line("replies to 127.0.0.0/24 are no longer limited (responses)");
    let (ended, _) = hale.stop(Signal::TERM);
    assert!(ended.log.contains(&format!(" slipped={short}\n")), "{}", ended.log);
}

#[test]
fn the_log_names_the_zone_where_replies_about_missing_names_are_too_many() {
    let settings = "rate_limit: { responses_per_second: 1, slip: 1 }";
    let folder = Folder::with("a.yaml", &format!("server: {{ {settings} }}\n{}", fixed("192.0.2.1", 30)));
    let hale = Hale::serve(folder.path());
    let client = connect_udp(&hale);
    for id in 0..4 {
        client.send(&query(id, &format!("random{id}.example.test."))).unwrap();
        client.recv(&mut [0; 1500]).expect("slip: 1 answers all");
    }
    hale.line("replies to 127.0.0.0/24 are limited (nxdomains), first for the zone example.test.");
}

#[test]
fn whom_the_configuration_names_speaks_for_its_clients() {
    let settings = "proxy_protocol: [127.0.0.8, 192.0.2.0/24]";
    let folder = Folder::with("a.yaml", &format!("server: {{ {settings} }}\n{}", fixed("192.0.2.1", 30)));
    let hale = Hale::serve(folder.path());
    let proxy = UdpSocket::bind("127.0.0.8:0").unwrap();
    proxy.connect(hale.address()).unwrap();
    proxy.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0c\xc0\0\x02\x07\xcb\0\x71\x01\x12\x34\0\x35";
    proxy.send(&query(6, WWW)).unwrap(); // without a header it is nobody's
    proxy.send(&[&head[..], &query(7, WWW)].concat()).unwrap();
    let mut reply = [0; 1500];
    let length = proxy.recv(&mut reply).expect("a reply");
    assert_eq!(reply[..2], [0, 7]);
    assert!(read(&reply[..length]).is(&["192.0.2.1"]));
    let (ended, _) = hale.stop(Signal::TERM);
    let totals =
        ended.log.lines().find(|line| line.contains("queries since the start")).expect("the last count");
    assert!(totals.ends_with(" unproxied=1"), "what is zero is left out: {totals}");
}
