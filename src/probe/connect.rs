//! TCP connections, and what it means when there is none.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::task::Poll;

use tokio::net::{TcpSocket, TcpStream};

use super::{Failure, Phase, Progress};
use crate::health::Reason;
use crate::model::Source;

/// Connects to `to`, from `source` where it has an address of that family.
pub(super) async fn connect(to: SocketAddr, source: Source) -> Result<TcpStream, Failure> {
    let mut connecting = pin!(leave(to, source));
    // What fails at once was refused by our own system; later, word came from the network.
    let (connected, origin) = match poll_fn(|cx| Poll::Ready(connecting.as_mut().poll(cx))).await {
        Poll::Ready(connected) => (connected, Origin::System),
        Poll::Pending => (connecting.await, Origin::Network),
    };
    let stream = connected.map_err(|error| failure(&error, origin))?;
    // A closed local port in the ephemeral range can connect to itself (simultaneous open).
    match stream.local_addr() {
        Ok(from) if from == to => Err(REFUSED),
        _ => Ok(stream),
    }
}

async fn leave(to: SocketAddr, source: Source) -> io::Result<TcpStream> {
    let (socket, from) = match to {
        SocketAddr::V4(_) => (TcpSocket::new_v4()?, source.ipv4.map(IpAddr::from)),
        SocketAddr::V6(_) => (TcpSocket::new_v6()?, source.ipv6.map(IpAddr::from)),
    };
    if let Some(from) = from {
        socket.bind(SocketAddr::new(from, 0))?;
    }
    socket.connect(to).await
}

/// Connects to the first address of `name` that lets us.
pub(super) async fn connect_by_name(
    name: &str,
    port: u16,
    source: Source,
    progress: &mut Progress,
) -> Result<TcpStream, Failure> {
    if let Ok(address) = name.parse::<IpAddr>() {
        progress.phase = Phase::Connect;
        return connect(SocketAddr::new(address, port), source).await;
    }
    progress.phase = Phase::Resolve;
    let addresses = tokio::net::lookup_host((name, port)).await.map_err(|error| lookup_failure(&error))?;
    progress.enter(Phase::Connect);
    let mut last = UNKNOWN_HOST;
    for address in addresses {
        match connect(address, source).await {
            Ok(stream) => return Ok(stream),
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

const REFUSED: Failure = Failure::Failed(Reason::TcpConnectionFailed, "connect_refused");
const UNKNOWN_HOST: Failure = Failure::Failed(Reason::DnsUnknownHost, "unknown_host");

/// Where a failed connect was decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Origin {
    /// In `connect(2)`: routes, limits, rules of this machine.
    System,
    /// Afterwards, by a reset, an ICMP error or silence.
    Network,
}

/// What it means that a socket can't be made or connected.
pub(super) fn failure(error: &io::Error, origin: Origin) -> Failure {
    use Failure::{Failed, NotTested, TimedOut};
    let Some(number) = error.raw_os_error() else {
        return Failed(Reason::TcpConnectionFailed, "connect_failed");
    };
    match (number, origin) {
        // Over loopback the reset arrives before connect(2) returns.
        (libc::ECONNREFUSED, _) => REFUSED,
        (libc::ECONNRESET | libc::ECONNABORTED, _) => Failed(Reason::TcpConnectionFailed, "connect_reset"),
        (libc::ETIMEDOUT, _) => TimedOut(Phase::Connect),
        (libc::EHOSTUNREACH | libc::EHOSTDOWN, _) => Failed(Reason::NoRouteToHost, "host_unreachable"),
        (libc::ENETUNREACH, Origin::Network) => Failed(Reason::NetworkUnreachable, "network_unreachable"),
        (libc::ENETUNREACH | libc::ENETDOWN, _) => {
            NotTested(Reason::NetworkUnreachable, "network_unreachable")
        }
        (libc::EADDRNOTAVAIL, _) => NotTested(Reason::NetworkUnreachable, "no_local_address"),
        (libc::EAFNOSUPPORT, _) => NotTested(Reason::NetworkUnreachable, "address_family_unsupported"),
        (libc::EMFILE | libc::ENFILE, _) => NotTested(Reason::OtherFailure, "too_many_open_files"),
        (libc::ENOBUFS | libc::ENOMEM, _) => NotTested(Reason::OtherFailure, "no_buffer_space"),
        // ICMPv6 "administratively prohibited" arrives as EACCES.
        (libc::EACCES | libc::EPERM, Origin::Network) => {
            Failed(Reason::TcpConnectionFailed, "administratively_prohibited")
        }
        (libc::EACCES | libc::EPERM, Origin::System) => NotTested(Reason::OtherFailure, "not_permitted"),
        (_, Origin::Network) => Failed(Reason::TcpConnectionFailed, "connect_failed"),
        (_, Origin::System) => NotTested(Reason::OtherFailure, "socket_error"),
    }
}

/// `getaddrinfo` answers in words only: these are the ones that deny the name.
fn lookup_failure(error: &io::Error) -> Failure {
    const DENIED: [&str; 5] = [
        "Name or service not known",
        "No address associated with hostname",
        "Name does not resolve",
        "Name has no usable address",
        "nodename nor servname provided, or not known",
    ];
    let words = error.to_string();
    match DENIED.iter().any(|denied| words.contains(denied)) {
        true => UNKNOWN_HOST,
        false => Failure::NotTested(Reason::OtherFailure, "resolver_failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::Origin::{Network, System};
    use super::*;

    #[test]
    fn h17_a_cause_on_this_side_is_not_a_failure_of_the_endpoint() {
        for (number, source, tested, detail) in [
            (libc::ECONNREFUSED, System, true, "connect_refused"),
            (libc::ECONNREFUSED, Network, true, "connect_refused"),
            (libc::ECONNRESET, Network, true, "connect_reset"),
            (libc::EHOSTUNREACH, System, true, "host_unreachable"),
            (libc::EHOSTUNREACH, Network, true, "host_unreachable"),
            (libc::ENETUNREACH, Network, true, "network_unreachable"),
            (libc::ENETUNREACH, System, false, "network_unreachable"),
            (libc::EACCES, Network, true, "administratively_prohibited"),
            (libc::EACCES, System, false, "not_permitted"),
            (libc::EPERM, System, false, "not_permitted"),
            (libc::EADDRNOTAVAIL, System, false, "no_local_address"),
            (libc::EMFILE, System, false, "too_many_open_files"),
            (libc::ENFILE, System, false, "too_many_open_files"),
            (libc::ENOBUFS, System, false, "no_buffer_space"),
            (libc::EAFNOSUPPORT, System, false, "address_family_unsupported"),
            (i32::MAX, System, false, "socket_error"),
            (i32::MIN, Network, true, "connect_failed"),
        ] {
            let found = failure(&io::Error::from_raw_os_error(number), source);
            let expected = match found {
                Failure::Failed(_, found) => (true, found),
                Failure::NotTested(_, found) => (false, found),
                Failure::TimedOut(_) => panic!("{number} is no timeout"),
            };
            assert_eq!(expected, (tested, detail), "{number} from {source:?}");
        }
    }

    #[test]
    fn the_system_giving_up_is_a_timeout() {
        let error = io::Error::from_raw_os_error(libc::ETIMEDOUT);
        assert_eq!(failure(&error, Network), Failure::TimedOut(Phase::Connect));
    }

    #[test]
    fn h17_a_name_that_does_not_exist_fails_and_a_resolver_that_does_not_answer_is_an_error() {
        for (words, failed) in [
            ("failed to lookup address information: Name or service not known", true),
            ("failed to lookup address information: No address associated with hostname", true),
            ("failed to lookup address information: Name does not resolve", true),
            ("failed to lookup address information: Temporary failure in name resolution", false),
            ("failed to lookup address information: Try again", false),
        ] {
            let found = lookup_failure(&io::Error::other(words));
            assert_eq!(found == UNKNOWN_HOST, failed, "{words}");
        }
    }
}
