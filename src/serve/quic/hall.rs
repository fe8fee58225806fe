//! Who may come in, and who has to leave for it.
//!
//! An address that a first packet claims may be anybody's. A connection begun
//! for it costs memory and a signature, and is charged to somebody who may know
//! nothing of it; so only few are begun before the client has shown that it
//! gets what is sent there, and none that would make another client leave.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use quinn::VarInt;

/// Handshakes at a time, beyond which addresses have to be proven.
const UNPROVEN: usize = 32;

/// All connections, over all addresses.
#[derive(Debug)]
pub(super) struct Hall {
    rules: Rules,
    state: Mutex<State>,
    /// Ticks with each connection's progress, to tell whose is the oldest.
    progress: AtomicU64,
    evicted: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Rules {
    connections: usize,
    /// Of clients in one network.
    per_network: usize,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    seats: HashMap<u64, Seat>,
    networks: HashMap<Network, usize>,
    handshakes: usize,
}

#[derive(Debug)]
struct Seat {
    network: Network,
    /// `Hall::progress` when the client last got on.
    progress: Arc<AtomicU64>,
    /// None during the handshake. With the code of a connection closed early.
    connection: Option<(quinn::Connection, VarInt)>,
}

/// What is taken for one client: an IPv4 address, or a /56 of IPv6, which is
/// what a site gets.
type Network = IpAddr;

/// What comes of a new connection.
#[derive(Debug)]
pub(super) enum Entrance {
    Welcome(Guest),
    /// The client must show first that it is where it says.
    Prove,
    Full,
}

/// A connection's place; empty again when this is dropped.
#[derive(Debug)]
pub(super) struct Guest {
    hall: Arc<Hall>,
    number: u64,
    progress: Arc<AtomicU64>,
}

impl Hall {
    pub fn new(connections: usize, per_network: usize) -> Hall {
        let (state, progress, evicted) = Default::default();
        Hall { rules: Rules { connections, per_network }, state, progress, evicted }
    }

    /// Decides about a client that says it is at `address`; `proven`: and is.
    pub fn enter(self: &Arc<Hall>, address: IpAddr, proven: bool) -> Entrance {
        let network = network(address);
        let mut state = self.state.lock();
        let now = Occupancy {
            connections: state.seats.len(),
            handshakes: state.handshakes,
            of_network: state.networks.get(&network).copied().unwrap_or(0),
        };
        match judge(self.rules, now, proven) {
            Judgement::Welcome => {}
            Judgement::Prove => return Entrance::Prove,
            Judgement::MakeRoom if self.evict(&mut state) => {}
            Judgement::MakeRoom | Judgement::Full => return Entrance::Full,
        }
        let number = state.next;
        state.next += 1;
        state.handshakes += 1;
        *state.networks.entry(network).or_default() += 1;
        let progress = Arc::new(AtomicU64::new(self.progress.fetch_add(1, Relaxed)));
        state.seats.insert(number, Seat { network, progress: Arc::clone(&progress), connection: None });
        Entrance::Welcome(Guest { hall: Arc::clone(self), number, progress })
    }

    /// Closes the connection that has made no progress for the longest; false when there is none.
    fn evict(&self, state: &mut State) -> bool {
        let seated = state.seats.iter().filter(|(_, seat)| seat.connection.is_some());
        let Some((&number, _)) = seated.min_by_key(|(_, seat)| seat.progress.load(Relaxed)) else {
            return false;
        };
        self.evicted.fetch_add(1, Relaxed);
        if let Some((connection, code)) = state.leave(number) {
            connection.close(code, b"");
        }
        true
    }

    /// Connections closed early to make room for a new one.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }
}

impl State {
    /// Frees a seat; gives the connection if the seat was not free yet.
    fn leave(&mut self, number: u64) -> Option<(quinn::Connection, VarInt)> {
        let seat = self.seats.remove(&number)?;
        if seat.connection.is_none() {
            self.handshakes -= 1;
        }
        if let Some(count) = self.networks.get_mut(&seat.network) {
            *count -= 1;
            if *count == 0 {
                self.networks.remove(&seat.network);
            }
        }
        seat.connection
    }
}

impl Guest {
    /// The handshake is done. `early` is the code of a close to make room.
    pub fn sit_down(&self, connection: quinn::Connection, early: VarInt) {
        let mut state = self.hall.state.lock();
        if let Some(seat) = state.seats.get_mut(&self.number) {
            seat.connection = Some((connection, early));
            state.handshakes -= 1;
        }
        drop(state);
        self.got_on();
    }

    /// Makes this the connection that got on last.
    pub fn got_on(&self) {
        self.progress.store(self.hall.progress.fetch_add(1, Relaxed), Relaxed);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.hall.state.lock().leave(self.number);
    }
}

fn network(address: IpAddr) -> Network {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            [a, b, c, d & 0xff00, 0, 0, 0, 0].into()
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Occupancy {
    /// Those in their handshake among them.
    connections: usize,
    handshakes: usize,
    of_network: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judgement {
    Welcome,
    Prove,
    MakeRoom,
    Full,
}

fn judge(rules: Rules, now: Occupancy, proven: bool) -> Judgement {
    let Rules { connections, per_network } = rules;
    let crowded = now.handshakes >= UNPROVEN
        || now.connections >= connections - connections / 4
        || now.of_network >= per_network - per_network / 4;
    if !proven && crowded {
        Judgement::Prove
    } else if now.of_network >= per_network {
        Judgement::Full
    } else if now.connections >= connections {
        Judgement::MakeRoom
    } else {
        Judgement::Welcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_proven_takes_nothing_from_others() {
        use Judgement::{Full, MakeRoom, Prove, Welcome};
        let rules = Rules { connections: 100, per_network: 40 };
        for (connections, handshakes, of_network, unproven, proven, why) in [
            (0, 0, 0, Welcome, Welcome, "nobody there"),
            (74, 0, 29, Welcome, Welcome, "there is room"),
            (31, 31, 0, Welcome, Welcome, "many handshakes"),
            (32, 32, 0, Prove, Welcome, "too many handshakes"),
            (75, 0, 0, Prove, Welcome, "little room"),
            (75, 0, 30, Prove, Welcome, "a network with many connections"),
            (60, 0, 40, Prove, Full, "a network with too many"),
            (100, 0, 0, Prove, MakeRoom, "no room"),
            (100, 0, 40, Prove, Full, "no room, and a network with too many"),
        ] {
            let now = Occupancy { connections, handshakes, of_network };
            assert_eq!(judge(rules, now, false), unproven, "{why}");
            assert_eq!(judge(rules, now, true), proven, "{why}");
        }
    }

    #[test]
    fn with_the_smallest_limits_everybody_has_to_prove_the_address() {
        let rules = Rules { connections: 1, per_network: 1 };
        let nobody = Occupancy { connections: 0, handshakes: 0, of_network: 0 };
        assert_eq!(judge(rules, nobody, false), Judgement::Welcome);
        let nothing = Rules { connections: 0, per_network: 0 };
        assert_eq!(judge(nothing, nobody, false), Judgement::Prove);
        assert_eq!(judge(nothing, nobody, true), Judgement::Full);
    }

    #[test]
    fn seats_are_free_again_when_their_guests_are_gone() {
        let hall = Arc::new(Hall::new(2, 2));
        let enter = |address: &str, proven| hall.enter(address.parse().unwrap(), proven);
        let Entrance::Welcome(first) = enter("2001:db8:0:1::1", true) else { panic!("there is room") };
        let Entrance::Welcome(_second) = enter("2001:db8:0:2::1", true) else { panic!("there is room") };
        assert!(matches!(enter("2001:db8::3", true), Entrance::Full), "the same /56");
        assert!(matches!(enter("192.0.2.1", true), Entrance::Full), "handshakes can't be evicted");
        assert!(matches!(enter("192.0.2.1", false), Entrance::Prove));
        drop(first);
        assert!(matches!(enter("192.0.2.1", true), Entrance::Welcome(_)));
        let state = hall.state.lock();
        assert_eq!((state.seats.len(), state.networks.len(), state.handshakes), (1, 1, 1));
    }
}
