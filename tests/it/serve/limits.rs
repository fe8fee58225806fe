//! Cases A22 and A24: split and pipelined messages, and hoarders, over TCP and
//! within TLS alike.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::encrypted::{Door, Talk, doors};
use super::*;

const AT_ONCE: Duration = Duration::from_secs(1);

/// A new client from this subnet is answered within a second.
fn is_answered(door: &Door, subnet: u8) {
    let begun = Instant::now();
    let mut stream = door.connect_from(subnet);
    ask_over(&mut stream, 77);
    let took = begun.elapsed();
    assert!(took < AT_ONCE, "{:?}, subnet {subnet}: {took:?}", door.kind);
}

#[test]
fn a22_pipelined_and_split_messages_are_all_answered() {
    for door in doors(&few(), wire::respond) {
        let mut stream = door.connect();
        stream.write_all(&[framed(1), framed(2), framed(3)].concat()).unwrap();
        assert_eq!(ids(&mut stream, 3), [1, 2, 3], "{:?}: in one segment", door.kind);
        for octet in framed(4) {
            stream.write_all(&[octet]).unwrap();
            stream.flush().unwrap();
        }
        assert_eq!(ids(&mut stream, 1), [4], "{:?}: octet by octet", door.kind);
        let two = [framed(5), framed(6)].concat();
        let middle = two.len() / 2 + 1; // within the second length
        stream.write_all(&two[..middle]).unwrap();
        assert_eq!(ids(&mut stream, 1), [5], "{:?}", door.kind);
        stream.write_all(&two[middle..]).unwrap();
        assert_eq!(ids(&mut stream, 1), [6], "{:?}: a split length", door.kind);
    }
}

#[test]
fn a24_drips_do_not_outlive_the_messages_limit() {
    let limits = Limits { tcp_message: Duration::from_millis(300), tcp_connections: 8, ..few() };
    for door in doors(&limits, wire::respond) {
        let mut hoard: Vec<Box<dyn Talk>> = (0..8).map(|_| door.connect()).collect();
        until("all have been closed though octets came", || {
            hoard.retain_mut(|stream| stream.write_all(&[0]).and_then(|()| stream.flush()).is_ok());
            is_answered(&door, 0);
            is_answered(&door, 9);
            hoard.is_empty()
        });
    }
}

#[test]
fn a24_a_query_before_every_idle_limit_keeps_no_seat_for_ever() {
    let limits = Limits { tcp_connections: 6, ..few() };
    for door in doors(&limits, wire::respond) {
        let mut hoard: Vec<_> = (0..6).map(|_| door.connect()).collect();
        for (stream, number) in hoard.iter_mut().zip(1..) {
            ask_over(stream, number);
        }
        for _ in 0..5 {
            is_answered(&door, 9);
            is_answered(&door, 0);
            // they ask once more, and who has lost its seat comes back
            for stream in &mut hoard {
                let sent = stream.write_all(&framed(1)).and_then(|()| stream.flush());
                if sent.is_err() || read(stream).is_none() {
                    *stream = door.connect();
                    ask_over(stream, 1);
                }
            }
        }
        assert!(door.world.counters().evicted >= 5, "{:?}", door.kind);
    }
}

#[test]
fn a24_http_is_told_nothing_and_let_go() {
    let limits = Limits { tcp_message: Duration::from_millis(100), ..few() };
    for door in doors(&limits, wire::respond) {
        let mut stream = door.connect();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        assert_eq!(read(&mut stream), None, "{:?}", door.kind);
        until("its seat is free", || door.open() == 0);
    }
}

#[test]
fn a24_half_open_handshakes_leave_room_for_others() {
    let limits = Limits { tcp_connections: 4, ..few() };
    let door = Door::new(Kind::Tls, limits, wire::respond);
    let mut silent: Vec<TcpStream> = (0..8).map(|_| tcp(door.world.address())).collect();
    for subnet in [0, 9] {
        is_answered(&door, subnet);
    }
    for stream in &mut silent {
        let _ = stream.write_all(&[0x16, 3, 1]);
    }
    for subnet in [0, 9] {
        is_answered(&door, subnet);
    }
    until("no more are open than may be", || door.open() <= 4);
}

#[test]
fn a24_clients_that_never_read_are_closed_at_the_limit() {
    let limits = Limits { tcp_write: Duration::from_millis(200), tcp_connections: 4, ..few() };
    for door in doors(&limits, at_length) {
        let mut deaf = door.connect();
        // what is sent while nothing is read may not all be taken
        for number in 0..100 {
            if deaf.write_all(&framed(number).repeat(20)).is_err() {
                break;
            }
            if door.world.counters().queries > 20 {
                break;
            }
        }
        until("the connection is gone", || door.open() == 0);
        assert!(door.world.counters().queries < 2_000, "{:?}: most was never answered", door.kind);
    }
}

#[test]
fn a_network_has_its_part_of_the_connections_and_no_more() {
    let limits = Limits { tcp_connections_per_client: 2, ..few() };
    for door in doors(&limits, wire::respond) {
        let (mut first, mut second) = (door.connect_from(1), door.connect_from(1));
        let mut other = door.connect_from(2);
        ask_over(&mut other, 1);
        ask_over(&mut second, 1);
        ask_over(&mut first, 1);
        let mut third = door.connect_from(1);
        ask_over(&mut third, 1);
        assert_eq!(read(&mut second), None, "{:?}: the longest idle of its network", door.kind);
        for stream in [&mut first, &mut third, &mut other] {
            ask_over(stream, 2);
        }
        assert_eq!((door.world.counters().evicted, door.open()), (1, 3), "{:?}", door.kind);
    }
}

#[test]
fn at_the_cap_the_network_that_has_most_pays() {
    let limits = Limits { tcp_connections: 4, ..few() };
    for door in doors(&limits, wire::respond) {
        let mut single = door.connect_from(1);
        ask_over(&mut single, 1);
        let mut many: Vec<_> = (0..3).map(|_| door.connect_from(2)).collect();
        for stream in &mut many {
            ask_over(stream, 1);
        }
        let mut newcomer = door.connect_from(3);
        ask_over(&mut newcomer, 1);
        assert_eq!(read(&mut many[0]), None, "{:?}", door.kind);
        ask_over(&mut single, 2); // though it has been idle for longer
    }
}

/// Opens connections from this subnet and resets them, until told to end.
fn flood(subnet: u8, to: SocketAddr, end: &AtomicBool) {
    while !end.load(Relaxed) {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, subnet, 1], 0)).into()).unwrap();
        socket.set_linger(Some(Duration::ZERO)).unwrap();
        let _ = socket.connect(&to.into());
    }
}

/// Ends the floods, however a test ends.
struct AtTheEnd<'a>(&'a AtomicBool);

impl Drop for AtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn a24_a_newcomer_is_answered_while_its_own_network_opens_and_resets_connections() {
    for door in doors(&few(), wire::respond) {
        let end = AtomicBool::new(false);
        thread::scope(|scope| {
            let _at_the_end = AtTheEnd(&end);
            for _ in 0..3 {
                scope.spawn(|| flood(3, door.world.address(), &end));
            }
            let accepted = || door.world.counters().accepted;
            until("the flood is there", || accepted() > 100);
            let (mut asked, mut lost) = (0, 0);
            while accepted() < 5_000 {
                let mut stream = door.connect_from(3);
                asked += 1;
                let sent = stream.write_all(&framed(asked)).and_then(|()| stream.flush());
                lost += u16::from(sent.is_err() || read(&mut stream).is_none());
            }
            assert_eq!(lost, 0, "{:?}: of {asked}", door.kind);
        });
    }
}
