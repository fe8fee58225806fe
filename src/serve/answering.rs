//! One message in, one reply out, for every transport with connections.
//!
//! The buffers for that belong to the thread: no connection keeps any. Holds
//! what is counted of queries, for each of these transports.

use std::cell::RefCell;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arc_swap::Guard;

use super::Respond;
use super::chance::Chance;
use super::counters::{Counters, Totals};
use crate::authority::Snapshot;
use crate::clock;
use crate::publish::Glance;
use crate::wire::{self, Client, Service, Transport};

/// The longest message, and the room an answering function needs.
pub(super) const MESSAGE: usize = wire::MAX_MESSAGE;
/// A message shorter than a header is no message.
pub(super) const HEADER: usize = 12;
/// Octets read at once; holds the longest message.
const INPUT: usize = 68 * 1024;
/// Replies made at once; also the most a client can make us keep.
pub(super) const OUTPUT: usize = 256 * 1024;

/// Who is at the other end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub transport: Transport,
    pub address: IpAddr,
}

/// What answers are made from.
#[derive(Debug)]
pub(super) struct Answering {
    snapshots: Glance<Snapshot>,
    services: Glance<Service>,
    respond: Respond,
    tcp: Counters,
    tls: Counters,
    https: Counters,
    quic: Counters,
}

impl Answering {
    pub fn new(snapshots: Glance<Snapshot>, services: Glance<Service>, respond: Respond) -> Answering {
        let (tcp, tls, https, quic) = Default::default();
        Answering { snapshots, services, respond, tcp, tls, https, quic }
    }

    fn counters(&self, transport: Transport) -> &Counters {
        match transport {
            Transport::Udp | Transport::Tcp => &self.tcp, // datagrams have counters of their own
            Transport::Tls => &self.tls,
            Transport::Https => &self.https,
            Transport::Quic => &self.quic,
        }
    }

    pub fn add_to(&self, totals: &mut Totals) {
        for transport in [Transport::Tcp, Transport::Tls, Transport::Https, Transport::Quic] {
            self.counters(transport).add_to(totals, transport);
        }
    }

    /// Begins to answer a client's messages, all from the newest snapshot.
    pub fn round(&self, peer: Peer) -> Round<'_> {
        let (snapshot, service) = (self.snapshots.newest(), self.services.newest());
        Round { answering: self, peer, snapshot, service, now: clock::unix_seconds() }
    }

    /// Answers one message and hands the reply to `take`; an empty one if
    /// nothing may be sent.
    pub fn reply<T>(&self, message: &[u8], peer: Peer, take: impl FnOnce(&[u8]) -> T) -> T {
        Desk::use_it(|desk| {
            let length = self.round(peer).answer(message, &mut desk.chance, &mut desk.output);
            take(&desk.output[..length])
        })
    }
}

/// Messages of one client that are answered together.
pub(super) struct Round<'a> {
    answering: &'a Answering,
    peer: Peer,
    snapshot: Guard<Arc<Snapshot>>,
    service: Guard<Arc<Service>>,
    now: u32,
}

impl Round<'_> {
    /// Writes the reply to the beginning of `out`, which holds [`MESSAGE`]
    /// octets. 0: nothing may be sent. A panic becomes SERVFAIL.
    pub fn answer(&self, message: &[u8], chance: &mut Chance, out: &mut [u8]) -> usize {
        let Answering { respond, .. } = self.answering;
        let counters = self.answering.counters(self.peer.transport);
        let room = &mut out[..MESSAGE];
        let Peer { transport, address } = self.peer;
        let client = Client { transport, address, entropy: chance.next(), now: self.now };
        let replied = catch_unwind(AssertUnwindSafe(|| {
            respond(&self.snapshot, &self.service, message, client, room).length
        }));
        let length = replied.unwrap_or_else(|_| {
            counters.panic();
            super::server_failure(message, room)
        });
        counters.queries(1);
        if length > 0 {
            counters.reply(&room[..length]);
        }
        length
    }
}

/// What a thread works with; no connection keeps any of it.
pub(super) struct Desk {
    pub input: Box<[u8]>,
    pub output: Box<[u8]>,
    pub chance: Chance,
}

thread_local! {
    static DESK: RefCell<Desk> = RefCell::new(Desk {
        input: vec![0; INPUT].into(),
        output: vec![0; OUTPUT].into(),
        chance: Chance::new(),
    });
}

impl Desk {
    pub fn use_it<T>(work: impl FnOnce(&mut Desk) -> T) -> T {
        DESK.with_borrow_mut(work)
    }
}
