//! A server stops within a second, and loses nothing that has arrived.

use super::*;

#[test]
fn stop_answers_the_datagrams_that_have_arrived() {
    static GATE: Gate = Gate::new();
    let mut world = World::new(&LOOPBACK, few(), after!(|_, _| GATE.pass()));
    let socket = udp(world.address());
    socket.send(&query(0)).unwrap();
    GATE.wait_until_reached();
    for number in 1..200 {
        socket.send(&query(number)).unwrap();
    }
    let totals = world.stop(|| GATE.open());
    for number in 0..200 {
        assert_eq!(id(&hear(&socket)), number);
    }
    assert_eq!((totals.queries, totals.replies()), (200, 200));
}

#[test]
fn stop_answers_the_messages_that_have_arrived_and_closes() {
    static GATE: Gate = Gate::new();
    let mut world = World::new(&LOOPBACK, few(), after!(|_, _| GATE.pass()));
    let mut stream = world.tcp();
    stream.write_all(&framed(0)).unwrap();
    GATE.wait_until_reached();
    let mut late = world.tcp();
    late.write_all(&framed(7)).unwrap();
    stream.write_all(&(1..200).flat_map(framed).collect::<Vec<_>>()).unwrap();
    let totals = world.stop(|| GATE.open());
    assert_eq!(ids(&mut stream, 200), (0..200).collect::<Vec<_>>());
    assert_eq!(read(&mut stream), None);
    assert_eq!(ids(&mut late, 1), [7]);
    assert_eq!(read(&mut late), None);
    assert_eq!((totals.queries, totals.open), (201, 0));
}

#[test]
fn stop_returns_within_a_second_whatever_clients_do() {
    let mut idle = World::with(Limits { udp_workers: 3, ..Limits::default() });
    let address = idle.address();
    let begun = Instant::now();
    idle.stop(|| ());
    let asleep = begun.elapsed();
    assert!(asleep < Duration::from_millis(900), "sleeping workers were woken: {asleep:?}");
    claim_when_free(address);

    let mut world = World::new(&LOOPBACK, few(), at_length);
    let (_silent, mut partial, mut deaf) = (world.tcp(), world.tcp(), world.tcp());
    partial.write_all(&[0, 40, 1]).unwrap();
    deaf.write_all(&(0..2_000).flat_map(framed).collect::<Vec<_>>()).unwrap();
    until("all have begun", || world.counters().open == 3 && world.counters().queries > 0);
    let begun = Instant::now();
    let totals = world.stop(|| ());
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(totals.open, 0);
}

#[test]
fn a_dropped_server_frees_its_addresses() {
    let mut world = World::with(Limits::default());
    let address = world.address();
    drop(world.server.take());
    claim_when_free(address);
}
