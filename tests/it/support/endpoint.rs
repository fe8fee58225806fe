//! HTTP endpoints on loopback that live, hang or are dead.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use socket2::SockRef;

/// What an endpoint does with a connection.
#[derive(Clone, Copy, PartialEq)]
pub enum Manner {
    /// Answers 200.
    Answers,
    /// Accepts and says nothing.
    Hangs,
}

/// What one of its addresses has seen.
#[derive(Debug, Default)]
pub struct Seen {
    pub connections: usize,
    /// How often a connection came while the one before was still open at the
    /// client's side.
    pub overlaps: usize,
    last: Option<TcpStream>,
}

impl Seen {
    fn note(&mut self, stream: &TcpStream) {
        self.connections += 1;
        let last = std::mem::replace(&mut self.last, stream.try_clone().ok());
        // on loopback the end of a connection has arrived before the next one can
        let open = |last: &TcpStream| {
            let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
            let peeked = SockRef::from(last).recv_with_flags(&mut [MaybeUninit::uninit()], flags);
            peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        };
        self.overlaps += usize::from(last.as_ref().is_some_and(open));
    }
}

/// Listens until dropped.
pub struct Endpoint {
    pub address: SocketAddr,
    listener: Arc<TcpListener>,
    seen: Arc<Mutex<HashMap<IpAddr, Seen>>>,
    accepting: Option<thread::JoinHandle<()>>,
}

impl Endpoint {
    /// At a free port of `ip`.
    pub fn start(ip: &str, manner: Manner) -> Endpoint {
        Endpoint::at(SocketAddr::new(ip.parse().unwrap(), 0), manner)
    }

    pub fn at(address: SocketAddr, manner: Manner) -> Endpoint {
        let listener = Arc::new(TcpListener::bind(address).unwrap());
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<HashMap<IpAddr, Seen>>> = Arc::default();
        let (accepts, notes) = (Arc::clone(&listener), Arc::clone(&seen));
        let accepting = thread::spawn(move || {
            while let Ok((stream, _)) = accepts.accept() {
                if let Ok(local) = stream.local_addr() {
                    notes.lock().unwrap().entry(local.ip()).or_default().note(&stream);
                }
                thread::spawn(move || talk(stream, manner));
            }
        });
        Endpoint { address, listener, seen, accepting: Some(accepting) }
    }

    /// What each address has seen.
    pub fn seen(&self) -> MutexGuard<'_, HashMap<IpAddr, Seen>> {
        self.seen.lock().unwrap()
    }

    pub fn connections(&self) -> usize {
        self.seen().values().map(|seen| seen.connections).sum()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // ends the accept that is under way
        let _ = SockRef::from(&*self.listener).shutdown(Shutdown::Both);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn talk(mut stream: TcpStream, manner: Manner) {
    let mut head = Vec::new();
    let mut octets = [0; 1024];
    while let Ok(length @ 1..) = stream.read(&mut octets) {
        head.extend_from_slice(&octets[..length]);
        if manner == Manner::Answers && head.ends_with(b"\r\n\r\n") {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
    }
}
