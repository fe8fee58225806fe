//! The PROXY protocol before messages and before TLS.

use super::encrypted::{Door, tcp_from, tls_over};
use super::*;

static SEEN: Mutex<Vec<(u16, IpAddr)>> = Mutex::new(Vec::new());

/// Notes who asked.
const NOTING: Respond = after!(|query, client| {
    SEEN.lock().unwrap().push((u16::from_be_bytes([query[0], query[1]]), client.address));
});

fn who_asked(number: u16) -> IpAddr {
    SEEN.lock().unwrap().iter().find(|(seen, _)| *seen == number).unwrap().1
}

/// A header of version 2 that speaks for this client; for nobody without one.
fn header(client: Option<IpAddr>) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    let extension = [4, 0, 2, 7, 7]; // skipped
    let (command, family, addresses) = match client {
        None => (0x20, 0, Vec::new()),
        Some(IpAddr::V4(client)) => (0x21, 0x11, [client.octets(), [192, 0, 2, 1]].concat()),
        Some(IpAddr::V6(client)) => (0x21, 0x21, [client.octets(), [1; 16]].concat()),
    };
    let ports = if client.is_some() { &[0x30, 0x39, 0, 53][..] } else { &[] };
    let length = (addresses.len() + ports.len() + extension.len()) as u16;
    header.extend([command, family]);
    header.extend(length.to_be_bytes());
    header.extend([&addresses[..], ports, &extension].concat());
    header
}

/// Takes headers from 127.0.5.0/24.
fn door(kind: Kind, limits: Limits) -> Door {
    let proxies = ["127.0.5.0/24".parse().unwrap()].into();
    Door::with(kind, Setup { limits, proxies, ..Setup::default() }, NOTING)
}

#[test]
fn a_proxy_speaks_for_its_client_before_messages_and_before_tls() {
    for (kind, base) in [(Kind::Dns, 100), (Kind::Tls, 200)] {
        let door = door(kind, few());
        for (client, number) in ["192.0.2.77", "2001:db8::77", "::ffff:198.51.100.7"].into_iter().zip(base..)
        {
            let client: IpAddr = client.parse().unwrap();
            let mut stream = tcp_from(5, door.world.address());
            stream.write_all(&header(Some(client))).unwrap();
            match kind {
                Kind::Dns => ask_over(&mut stream, number),
                _ => ask_over(&mut tls_over(stream, &door.client), number),
            }
            assert_eq!(who_asked(number), client.to_canonical(), "{kind:?}");
        }
    }
}

#[test]
fn a_proxy_speaks_for_itself_and_headers_come_in_parts() {
    let door = door(Kind::Dns, few());
    let mut stream = tcp_from(5, door.world.address());
    for octet in [header(None), framed(300)].concat() {
        stream.write_all(&[octet]).unwrap();
    }
    assert_eq!(ids(&mut stream, 1), [300]);
    assert_eq!(who_asked(300), IpAddr::from([127, 0, 5, 1]));
}

#[test]
fn nobody_else_is_looked_at_for_a_header() {
    let limits = Limits { tcp_message: Duration::from_millis(200), ..few() };
    let door = door(Kind::Dns, limits);
    let mut plain = tcp_from(6, door.world.address());
    ask_over(&mut plain, 400);
    assert_eq!(who_asked(400), IpAddr::from([127, 0, 6, 1]));
    let mut liar = tcp_from(6, door.world.address());
    liar.write_all(&[header(Some([192, 0, 2, 1].into())), framed(401)].concat()).unwrap();
    assert_eq!(read(&mut liar), None, "a header is no message");
    assert!(!SEEN.lock().unwrap().iter().any(|(number, _)| *number == 401));
    assert_eq!(door.world.counters().proxy_errors, 0);
}

#[test]
fn a_proxy_without_a_header_is_closed_in_time() {
    let limits = Limits { tcp_message: Duration::from_millis(200), ..few() };
    let door = door(Kind::Dns, limits);
    let mut without = tcp_from(5, door.world.address());
    without.write_all(&framed(500)).unwrap();
    assert_eq!(read(&mut without), None, "a message is no header");
    let mut slow = tcp_from(5, door.world.address());
    slow.write_all(&header(None)[..14]).unwrap();
    assert_eq!(read(&mut slow), None, "the rest doesn't come");
    let mut silent = tcp_from(5, door.world.address());
    assert_eq!(read(&mut silent), None, "nothing comes");
    until("all are gone", || door.open() == 0);
    assert_eq!((door.world.counters().proxy_errors, door.world.counters().queries), (3, 0));
}

#[test]
fn limits_count_the_proxys_client_and_not_the_proxy() {
    let door = door(Kind::Dns, Limits { tcp_connections_per_client: 1, ..few() });
    let by_proxy = |client: [u8; 4], number| {
        let mut stream = tcp_from(5, door.world.address());
        stream.write_all(&header(Some(client.into()))).unwrap();
        ask_over(&mut stream, number);
        stream
    };
    let mut first = by_proxy([192, 0, 2, 1], 600);
    let mut others: Vec<_> = (1..5).map(|network| by_proxy([198, 51, network, 1], 600)).collect();
    assert_eq!((door.world.counters().evicted, door.open()), (0, 5));
    let mut neighbour = by_proxy([192, 0, 2, 200], 600);
    assert_eq!(read(&mut first), None, "one for each network");
    others.iter_mut().chain([&mut neighbour]).for_each(|stream| ask_over(stream, 601));
    assert_eq!(door.world.counters().evicted, 1);
}
