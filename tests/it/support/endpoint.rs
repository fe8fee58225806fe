//! HTTP endpoints on loopback that live, hang or are dead.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
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

/// Connections of one of its addresses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub connections: usize,
    pub open: usize,
    /// The most that were ever open at once.
    pub most: usize,
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
                let notes = Arc::clone(&notes);
                thread::spawn(move || talk(stream, manner, &notes));
            }
        });
        Endpoint { address, listener, seen, accepting: Some(accepting) }
    }

    /// What each address has seen.
    pub fn seen(&self) -> HashMap<IpAddr, Seen> {
        self.seen.lock().unwrap().clone()
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

fn talk(mut stream: TcpStream, manner: Manner, notes: &Mutex<HashMap<IpAddr, Seen>>) {
    let Ok(local) = stream.local_addr() else { return };
    let note = |change: fn(&mut Seen)| change(notes.lock().unwrap().entry(local.ip()).or_default());
    note(|seen| {
        seen.connections += 1;
        seen.open += 1;
        seen.most = seen.most.max(seen.open);
    });
    let mut head = Vec::new();
    let mut octets = [0; 1024];
    while let Ok(length @ 1..) = stream.read(&mut octets) {
        head.extend_from_slice(&octets[..length]);
        if manner == Manner::Answers && head.ends_with(b"\r\n\r\n") {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            break;
        }
    }
    note(|seen| seen.open -= 1);
}
