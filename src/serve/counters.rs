//! What each worker counts, and the sum over all of them.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::wire::Transport;

/// One worker's numbers, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counters {
    queries: AtomicU64,
    truncated: AtomicU64,
    refused: AtomicU64,
    panics: AtomicU64,
    unproxied: AtomicU64,
    slipped: AtomicU64,
    rate_dropped: AtomicU64,
    restarts: AtomicU64,
    /// Goes on while the worker does, whether or not there is something to do.
    turns: AtomicU64,
    rcodes: [AtomicU64; 16],
}

/// Everything counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Messages received, over all transports.
    pub queries: u64,
    pub over: Transports,
    /// Replies by RCODE (its low four bits).
    pub rcodes: [u64; 16],
    /// Replies that said TC.
    pub truncated: u64,
    /// Replies the kernel would not send.
    pub refused: u64,
    /// Queries whose answering panicked; their clients got SERVFAIL.
    pub panics: u64,
    /// Queries from a proxy that came without a header of it that can be read.
    pub unproxied: u64,
    /// Replies that were too many for their network, and were sent short instead;
    pub rate_slipped: u64,
    /// or not at all.
    pub rate_dropped: u64,
    /// Threads that ended by a panic, and were started anew.
    pub restarts: u64,
    /// Datagrams the kernel threw away because a socket's buffer was full.
    pub overflows: u64,
    /// Stream connections taken, and those of them open now.
    pub accepted: u64,
    pub open: u64,
    /// Connections closed early to make room for a new one.
    pub evicted: u64,
    /// Times no connection could be accepted.
    pub accept_errors: u64,
    /// Handshakes of TLS that came to nothing.
    pub handshakes_failed: u64,
    /// Connections of proxies without a header of the PROXY protocol.
    pub proxy_errors: u64,
}

/// Messages received over each transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transports {
    pub udp: u64,
    pub tcp: u64,
    pub tls: u64,
    pub https: u64,
    pub quic: u64,
}

/// Those that were used, such as `UDP 12, TLS 3`.
impl fmt::Display for Transports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Transports { udp, tcp, tls, https, quic } = *self;
        let all = [("UDP", udp), ("TCP", tcp), ("TLS", tls), ("HTTPS", https), ("QUIC", quic)];
        let used = all.iter().filter(|(_, count)| *count > 0);
        let used: Vec<String> = used.map(|(name, count)| format!("{name} {count}")).collect();
        f.write_str(if used.is_empty() { "none" } else { "" })?;
        f.write_str(&used.join(", "))
    }
}

impl Transports {
    fn of(&mut self, transport: Transport) -> &mut u64 {
        match transport {
            Transport::Udp => &mut self.udp,
            Transport::Tcp => &mut self.tcp,
            Transport::Tls => &mut self.tls,
            Transport::Https => &mut self.https,
            Transport::Quic => &mut self.quic,
        }
    }
}

impl Counters {
    pub fn queries(&self, count: usize) {
        self.queries.fetch_add(count as u64, Relaxed);
    }

    /// Counts a reply by what its header says.
    pub fn reply(&self, reply: &[u8]) {
        if let [_, _, high, low, ..] = *reply {
            self.rcodes[usize::from(low & 0x0f)].fetch_add(1, Relaxed);
            if high & 0x02 != 0 {
                self.truncated.fetch_add(1, Relaxed);
            }
        }
    }

    pub fn refused(&self, count: usize) {
        if count > 0 {
            self.refused.fetch_add(count as u64, Relaxed);
        }
    }

    pub fn panic(&self) {
        self.panics.fetch_add(1, Relaxed);
    }

    pub fn unproxied(&self) {
        self.unproxied.fetch_add(1, Relaxed);
    }

    pub fn slipped(&self) {
        self.slipped.fetch_add(1, Relaxed);
    }

    pub fn rate_dropped(&self) {
        self.rate_dropped.fetch_add(1, Relaxed);
    }

    pub fn restart(&self) {
        self.restarts.fetch_add(1, Relaxed);
    }

    pub fn turn(&self) {
        self.turns.fetch_add(1, Relaxed);
    }

    /// A number that changes while the worker is alive.
    pub fn turns(&self) -> u64 {
        self.turns.load(Relaxed)
    }

    /// Adds these numbers, all of one transport.
    pub fn add_to(&self, totals: &mut Totals, transport: Transport) {
        let queries = self.queries.load(Relaxed);
        totals.queries += queries;
        *totals.over.of(transport) += queries;
        totals.truncated += self.truncated.load(Relaxed);
        totals.refused += self.refused.load(Relaxed);
        totals.panics += self.panics.load(Relaxed);
        totals.unproxied += self.unproxied.load(Relaxed);
        totals.rate_slipped += self.slipped.load(Relaxed);
        totals.rate_dropped += self.rate_dropped.load(Relaxed);
        totals.restarts += self.restarts.load(Relaxed);
        for (sum, one) in totals.rcodes.iter_mut().zip(&self.rcodes) {
            *sum += one.load(Relaxed);
        }
    }
}

impl Totals {
    /// Replies made, over all RCODEs.
    pub fn replies(&self) -> u64 {
        self.rcodes.iter().sum()
    }

    /// What was received and got no reply: not a query, or nothing that may be answered.
    pub fn dropped(&self) -> u64 {
        self.queries.saturating_sub(self.replies())
    }
}
