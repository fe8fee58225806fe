//! Connections over TCP: messages in them, and how long they live.

use super::other::wait_for_a_line;
use super::*;

#[test]
fn a22_three_queries_in_one_segment_get_three_replies_in_order() {
    let world = World::with(few());
    let mut stream = world.tcp();
    for round in 0..3 {
        let numbers = [round * 3 + 1, round * 3 + 2, round * 3 + 3];
        stream.write_all(&numbers.map(framed).concat()).unwrap();
        assert_eq!(ids(&mut stream, 3), numbers);
    }
}

#[test]
fn a22_a_query_may_come_octet_by_octet() {
    let world = World::with(few());
    let mut stream = world.tcp();
    for octet in framed(1) {
        stream.write_all(&[octet]).unwrap();
    }
    assert_eq!(ids(&mut stream, 1), [1]);
    // the length's two octets, and a message together with half of the next length
    let two = [framed(2), framed(3)].concat();
    let middle = two.len() / 2;
    stream.write_all(&two[..1]).unwrap();
    stream.write_all(&two[1..=middle]).unwrap();
    assert_eq!(ids(&mut stream, 1), [2]);
    stream.write_all(&two[middle + 1..]).unwrap();
    assert_eq!(ids(&mut stream, 1), [3]);
}

#[test]
fn many_pipelined_queries_with_long_replies_are_all_answered() {
    let world = World::new(&LOOPBACK, few(), longest);
    let mut stream = world.tcp();
    stream.write_all(&(0..300).flat_map(framed).collect::<Vec<_>>()).unwrap();
    for number in 0..300 {
        let reply = read(&mut stream).expect("a reply");
        assert_eq!((id(&reply), reply.len()), (number, 65535));
    }
    ask_over(&mut stream, 300);
}

#[test]
fn the_longest_message_is_taken() {
    let world = World::with(few());
    let mut stream = world.tcp();
    let mut long = query(1);
    long.resize(65535, 0);
    stream.write_all(&[&65535_u16.to_be_bytes()[..], &long, &framed(2)].concat()).unwrap();
    // whatever the first is answered with, the second is found behind it
    until("both are seen", || world.counters().queries == 2);
    let mut reply = read(&mut stream).expect("a reply");
    if id(&reply) == 1 {
        reply = read(&mut stream).expect("a reply");
    }
    assert_eq!(id(&reply), 2);
}

#[test]
fn a_half_closed_connection_gets_its_replies() {
    let world = World::with(few());
    let mut stream = world.tcp();
    stream.write_all(&[1, 2, 3].map(framed).concat()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(ids(&mut stream, 3), [1, 2, 3]);
    assert_eq!(read(&mut stream), None);
    until("the connection is gone", || world.counters().open == 0);
}

#[test]
fn an_impossible_length_closes_the_connection_after_the_replies_before_it() {
    let world = World::with(few());
    for length in [0_u16, 1, 11] {
        let mut stream = world.tcp();
        let junk = [&length.to_be_bytes()[..], &[0; 100]].concat();
        stream.write_all(&[framed(1), framed(2), junk].concat()).unwrap();
        assert_eq!(ids(&mut stream, 2), [1, 2]);
        assert_eq!(read(&mut stream), None, "length {length}");
    }
}

#[test]
fn an_idle_connection_is_closed_at_the_limit() {
    let world = World::with(Limits { tcp_idle: Duration::from_millis(200), ..few() });
    let mut silent = world.tcp();
    assert_eq!(read(&mut silent), None);
    let mut stream = world.tcp();
    let begun = Instant::now();
    for number in 0..3 {
        ask_over(&mut stream, number);
    }
    assert_eq!(read(&mut stream), None);
    assert!(begun.elapsed() >= Duration::from_millis(200));
    until("both are gone", || world.counters().open == 0);
}

#[test]
fn octets_that_drip_in_do_not_extend_a_messages_limit() {
    let world = World::with(Limits { tcp_message: Duration::from_millis(200), ..few() });
    let mut stream = world.tcp();
    ask_over(&mut stream, 1);
    stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    stream.write_all(&60_000_u16.to_be_bytes()).unwrap();
    let mut dripped = 0;
    let ended = loop {
        match stream.read(&mut [0]) {
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {}
            other => break other,
        }
        if stream.write_all(&[0]).is_err() {
            break Ok(0);
        }
        dripped += 1;
        assert!(dripped < 2_000, "lives for ever");
    };
    assert!(matches!(ended, Ok(0) | Err(_)));
    assert!(dripped > 1, "closed at once");
}

#[test]
fn an_http_client_does_not_hang() {
    let world = World::with(Limits { tcp_message: Duration::from_millis(100), ..few() });
    let mut stream = world.tcp();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert_eq!(read(&mut stream), None);
}

#[test]
fn a_client_that_reads_no_replies_is_closed() {
    let limits = Limits { tcp_write: Duration::from_millis(100), ..few() };
    let world = World::new(&LOOPBACK, limits, at_length);
    let mut stream = world.tcp();
    stream.write_all(&(0..2_000).flat_map(framed).collect::<Vec<_>>()).unwrap();
    until("the connection is gone", || world.counters().open == 0);
    assert!(world.counters().queries < 2_000, "most was never answered");
}

#[test]
fn at_the_cap_the_longest_idle_connection_makes_room() {
    let world = World::with(Limits { tcp_connections: 2, ..few() });
    let (mut first, mut second) = (world.tcp(), world.tcp());
    ask_over(&mut second, 1);
    ask_over(&mut first, 1);
    let mut third = world.tcp();
    ask_over(&mut third, 1);
    assert_eq!(read(&mut second), None);
    ask_over(&mut first, 2);
    ask_over(&mut third, 2);
    assert_eq!(world.counters().evicted, 1);
}

#[test]
fn a_new_client_is_answered_while_others_hoard_all_connections() {
    let world = World::with(Limits { tcp_connections: 8, ..few() });
    let mut hoard: Vec<TcpStream> = (0..16).map(|_| world.tcp()).collect();
    for stream in &mut hoard {
        let _ = stream.write_all(&[0]); // the older half is closed already
    }
    ask(&udp(world.address()), 1);
    for number in 0..20 {
        ask_over(&mut world.tcp(), number);
    }
    until("no more are open than may be", || world.counters().open <= 8);
    assert!(world.counters().evicted >= 9);
}

#[test]
fn d03_without_descriptors_clients_are_still_answered_and_accepting_does_not_spin() {
    let mut other = Other::new("few-descriptors", "");
    let address = other.hear().parse().unwrap();
    let hoard: Vec<TcpStream> = (0..40).map(|_| tcp(address)).collect();
    for number in 0..100 {
        ask(&udp(address), number);
    }
    ask_over(&mut tcp(address), 1);
    drop(hoard);
    other.say("how often did accepting fail?");
    let failures: u64 = other.hear().parse().unwrap();
    assert!((1..200).contains(&failures), "{failures} times");
}

pub fn plays_few_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let world = World::with(few());
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(open + 5), maximum }).unwrap();
    say(world.address());
    wait_for_a_line();
    say(world.counters().accept_errors);
    wait_for_a_line();
}
