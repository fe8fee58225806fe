//! Who may come in.
//!
//! An address that a first packet claims may be anybody's. A connection begun
//! for it costs memory and a signature, and is charged to somebody who may know
//! nothing of it; so only few are begun before the client has shown that it
//! gets what is sent there, and none that would make another client leave. Who
//! leaves for those that have is decided as over TCP.

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::serve::seats::{Network, Seat, Seats};

/// Handshakes at a time, beyond which addresses have to be proven.
const UNPROVEN: usize = 32;

/// All connections, over all addresses.
#[derive(Debug)]
pub(super) struct Hall {
    rules: Rules,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct Rules {
    connections: usize,
    /// Of clients in one network.
    each: usize,
}

#[derive(Debug)]
struct State {
    next: u64,
    seats: Seats<u64>,
    handshakes: usize,
}

/// What comes of a new connection.
#[derive(Debug)]
pub(super) enum Entrance {
    /// At the cost of so many others.
    Welcome(Guest, usize),
    /// The client must show first that it is where it says.
    Prove,
    Full,
}

/// A connection's place; free again when this is dropped.
#[derive(Debug)]
pub(super) struct Guest {
    hall: Arc<Hall>,
    number: u64,
    pub seat: Arc<Seat>,
    /// The handshake is not over.
    shaking: bool,
}

impl Hall {
    pub fn new(connections: usize, each: usize) -> Hall {
        let state = State { next: 0, seats: Seats::new(connections, each), handshakes: 0 };
        Hall { rules: Rules { connections, each }, state: Mutex::new(state) }
    }

    /// Decides about a client that says it is at `address`; `proven`: and is.
    pub fn enter(self: &Arc<Hall>, address: IpAddr, proven: bool, now: u64) -> Entrance {
        let network = Network::from(address);
        let mut state = self.state.lock();
        let occupancy = Occupancy {
            connections: state.seats.taken(),
            handshakes: state.handshakes,
            of_network: state.seats.held_by(network),
        };
        if !proven && is_crowded(self.rules, occupancy) {
            return Entrance::Prove;
        }
        let Some(evicted) = state.seats.make_room(Some(network), now) else { return Entrance::Full };
        let (number, seat) = (state.next, Arc::new(Seat::new(now)));
        state.next += 1;
        state.handshakes += 1;
        state.seats.sit(number, Arc::clone(&seat), Some(network));
        Entrance::Welcome(Guest { hall: Arc::clone(self), number, seat, shaking: true }, evicted)
    }

    /// Rings for everybody.
    pub fn last_orders(&self) {
        self.state.lock().seats.last_orders();
    }
}

impl Guest {
    /// The handshake is over.
    pub fn sit_down(&mut self) {
        if std::mem::take(&mut self.shaking) {
            self.hall.state.lock().handshakes -= 1;
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.sit_down();
        self.hall.state.lock().seats.leave(self.number);
    }
}

#[derive(Clone, Copy, Debug)]
struct Occupancy {
    /// Those in their handshake among them.
    connections: usize,
    handshakes: usize,
    of_network: usize,
}

/// Whether there is little left for somebody who may be somebody else.
fn is_crowded(Rules { connections, each }: Rules, now: Occupancy) -> bool {
    now.handshakes >= UNPROVEN
        || now.connections >= connections - connections / 4
        || now.of_network >= each - each / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_proven_takes_nothing_from_others() {
        let rules = Rules { connections: 100, each: 40 };
        for (connections, handshakes, of_network, crowded, why) in [
            (0, 0, 0, false, "nobody there"),
            (74, 31, 29, false, "there is room"),
            (32, 32, 0, true, "too many handshakes"),
            (75, 0, 0, true, "little room"),
            (60, 0, 30, true, "a network with many connections"),
            (100, 0, 0, true, "no room"),
        ] {
            let now = Occupancy { connections, handshakes, of_network };
            assert_eq!(is_crowded(rules, now), crowded, "{why}");
        }
        let nobody = Occupancy { connections: 0, handshakes: 0, of_network: 0 };
        assert!(!is_crowded(Rules { connections: 1, each: 1 }, nobody), "the first of one");
    }

    #[test]
    fn seats_are_free_again_when_their_guests_are_gone() {
        let hall = Arc::new(Hall::new(2, 2));
        let enter = |address: &str, proven| hall.enter(address.parse().expect("written here"), proven, 0);
        let Entrance::Welcome(mut first, 0) = enter("192.0.2.1", false) else { panic!("there is room") };
        let Entrance::Welcome(second, 0) = enter("192.0.2.2", true) else { panic!("there is room") };
        assert!(matches!(enter("198.51.100.1", false), Entrance::Prove));
        first.sit_down();
        let Entrance::Welcome(_third, 1) = enter("198.51.100.1", true) else { panic!("one has to go") };
        assert!(first.seat.is_evicted() != second.seat.is_evicted());
        drop((first, second));
        let state = hall.state.lock();
        assert_eq!((state.seats.taken(), state.handshakes), (1, 1));
    }

    #[test]
    fn without_seats_nobody_comes_in() {
        let hall = Arc::new(Hall::new(0, 0));
        assert!(matches!(hall.enter([192, 0, 2, 1].into(), true, 0), Entrance::Full));
    }
}
