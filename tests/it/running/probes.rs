//! What running probes take of the machine.

use std::fs;
use std::thread;
use std::time::Duration;

use super::WWW;
use crate::support::dns::{ask, connect};
use crate::support::endpoint::{Endpoint, Manner};
use crate::support::folder::Folder;
use crate::support::hale::{Hale, until};
use crate::support::server::{Server, Step};

#[test]
fn d12_two_hundred_endpoints_that_hang_take_one_descriptor_each_and_no_more() {
    const TARGETS: usize = 200;
    let hangs = Endpoint::start("0.0.0.0", Manner::Hangs);
    let port = hangs.address.port();
    let endpoints = (1..=TARGETS).map(|number| format!("{{ name: e{number}, address: 127.1.0.{number} }}"));
    let endpoints = endpoints.collect::<Vec<_>>().join(", ");
    // the timeout is longer than the interval: probes would pile up if they overlapped
    let monitor =
        format!("{{ type: http, port: {port}, interval: 100ms, timeout: 300ms, recheck_interval: 100ms }}");
    let folder = Folder::with("a.yaml", &super::zone(&endpoints, &monitor, 30));
    let hale = Hale::serve(folder.path());
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", hale.pid())).unwrap().count();
    let probes = || hangs.connections();

    until("every target has been probed", || hangs.seen().len() == TARGETS);
    until("and again", || probes() >= 3 * TARGETS);
    let most_in = |count: usize| {
        (0..count)
            .map(|_| {
                thread::sleep(Duration::from_millis(20));
                descriptors()
            })
            .max()
            .unwrap()
    };
    let before = most_in(25);
    let so_far = probes();
    until("a thousand more", || probes() > so_far + 5 * TARGETS);
    let after = most_in(25);
    assert!(after <= before + 20, "{before} descriptors, after a thousand probes {after}");
    assert!(after <= TARGETS + 100, "{after} descriptors for {TARGETS} targets");
    let overlaps: Vec<_> =
        hangs.seen().iter().filter(|(_, seen)| seen.overlaps > 0).map(|(ip, _)| *ip).collect();
    assert!(overlaps.is_empty(), "probed twice at once: {overlaps:?}");
    assert!(ask(hale.address(), WWW).is(&["203.0.113.5"]));
}

#[test]
fn the_endpoints_of_these_tests_see_overlaps() {
    let hangs = Endpoint::start("127.0.0.1", Manner::Hangs);
    let overlaps = |connections| {
        until("the connection is seen", || hangs.connections() == connections);
        hangs.seen().values().map(|seen| seen.overlaps).sum::<usize>()
    };
    let first = connect(hangs.address);
    assert_eq!(overlaps(1), 0);
    drop(first);
    let _second = connect(hangs.address);
    assert_eq!(overlaps(2), 0);
    let _third = connect(hangs.address);
    assert_eq!(overlaps(3), 1);
}

#[test]
fn b13_the_place_of_a_probe_that_hangs_is_free_again_at_its_deadline() {
    let (hangs, answers) =
        (Endpoint::start("127.0.0.1", Manner::Hangs), Endpoint::start("127.0.0.2", Manner::Answers));
    let text = super::probed(&[hangs.address, answers.address], 30).replace("timeout: 5s", "timeout: 100ms");
    let folder = Folder::with("a.yaml", &format!("server: {{ max_probes: 1 }}\n{text}"));
    let hale = Hale::serve(folder.path());
    until("both are probed in turns", || hangs.connections() >= 5 && answers.connections() >= 5);
    assert!(ask(hale.address(), WWW).is(&["127.0.0.2"]));
}

#[test]
fn b05_answers_larger_than_any_buffer_stop_no_schedule() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let script = |status: &str| {
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: 100000000\r\n\r\n");
        vec![Step::Head, Step::Write(head.into()), Step::Endless(b"all is well ".repeat(500))]
    };
    let scripts =
        ["404 Not Found", "200 OK", "404 Not Found", "404 Not Found", "200 OK"].map(script).to_vec();
    let server = runtime.block_on(Server::sequence(scripts));
    let text =
        super::probed(&[server.address], 30).replace("type: http", "type: http, expected_body: all is");
    let folder = Folder::with("a.yaml", &text);
    let hale = Hale::serve(folder.path());
    until("it is probed again and again", || server.connections() > 10);
    until("its last word counts", || ask(hale.address(), WWW).is(&["127.0.0.1"]));
}
