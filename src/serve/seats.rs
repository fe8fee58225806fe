//! Who has a connection, and whose is closed to make room for another.
//!
//! Every client network has a part of all seats, and what goes first is what
//! costs its client least: a connection on which nothing has moved for a second
//! before one at work; of the former those that never asked anything, of the
//! latter those of the network that has most.
//!
//! Knows neither sockets nor clocks: times are nanoseconds since the start.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tokio::sync::Notify;

/// A seat's progress when it has been given to somebody else.
const EVICTED: u64 = u64::MAX;

/// A connection that got on within so many nanoseconds is at work.
const AT_WORK: u64 = 1_000_000_000;

/// A connection as the acceptor knows it.
#[derive(Debug, Default)]
pub(super) struct Seat {
    /// When this connection last got on.
    progress: AtomicU64,
    /// It has had an answer.
    answered: AtomicBool,
    /// Rung to make the connection finish up.
    pub last_orders: Notify,
}

impl Seat {
    pub fn new(now: u64) -> Seat {
        Seat { progress: now.into(), ..Seat::default() }
    }

    /// Notes that its client got an answer, or took one.
    pub fn got_on(&self, now: u64) {
        self.answered.store(true, Relaxed);
        let keep = |last| (last != EVICTED).then_some(now);
        let _ = self.progress.fetch_update(Relaxed, Relaxed, keep);
    }

    /// When it last got on.
    pub fn progress(&self) -> u64 {
        self.progress.load(Relaxed)
    }

    /// Whether the bell rang because somebody else sits here now.
    pub fn is_evicted(&self) -> bool {
        self.progress() == EVICTED
    }

    fn evict(&self) {
        self.progress.store(EVICTED, Relaxed);
        self.last_orders.notify_one();
    }
}

/// The network of a client: what one owner of addresses is taken to have, a /24
/// of IPv4 and a /56 of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Network {
    V4([u8; 3]),
    V6([u8; 7]),
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Network {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let [a, b, c, _] = address.octets();
                Network::V4([a, b, c])
            }
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, g, ..] = address.octets();
                Network::V6([a, b, c, d, e, f, g])
            }
        }
    }
}

/// All connections.
#[derive(Debug)]
pub(super) struct Seats<I> {
    taken: HashMap<I, Taken>,
    held: HashMap<Network, usize>,
    most: usize,
    most_each: usize,
}

#[derive(Debug)]
struct Taken {
    seat: Arc<Seat>,
    /// None: a proxy's, that hasn't said yet for whom it speaks.
    network: Option<Network>,
}

impl<I: Copy + Eq + Hash> Seats<I> {
    /// So many seats in all, and for each network.
    pub fn new(most: usize, most_each: usize) -> Seats<I> {
        Seats { taken: HashMap::new(), held: HashMap::new(), most, most_each }
    }

    /// Sees to it that one more of `network` can sit down, at the cost of
    /// another if need be: how many had to go; None if nobody could.
    pub fn make_room(&mut self, network: Option<Network>, now: u64) -> Option<usize> {
        if network.is_some_and(|network| self.held_by(network) >= self.most_each.max(1)) {
            return self.evict(now, network).then_some(1);
        }
        if self.taken.len() < self.most {
            return Some(0);
        }
        self.evict(now, None).then_some(1)
    }

    pub fn sit(&mut self, id: I, seat: Arc<Seat>, network: Option<Network>) {
        self.count(network, 1);
        self.taken.insert(id, Taken { seat, network });
    }

    pub fn leave(&mut self, id: I) {
        if let Some(Taken { network, .. }) = self.taken.remove(&id) {
            self.count(network, -1);
        }
    }

    /// Now it is known for whom a proxy speaks; true if another connection of
    /// that network had to go.
    pub fn identify(&mut self, id: I, network: Network, now: u64) -> bool {
        let Some(taken) = self.taken.get(&id).filter(|taken| taken.network.is_none()) else { return false };
        let seat = Arc::clone(&taken.seat);
        let full = self.held_by(network) >= self.most_each.max(1);
        let evicted = full && self.evict(now, Some(network));
        self.sit(id, seat, Some(network));
        evicted
    }

    /// Closes the connection that matters least, of `network` or of all; false
    /// when there is none.
    pub fn evict(&mut self, now: u64, network: Option<Network>) -> bool {
        let all = self.taken.iter().filter(|(_, taken)| network.is_none() || taken.network == network);
        let Some((&id, _)) = all.min_by_key(|(_, taken)| self.worth(taken, now)) else { return false };
        self.taken[&id].seat.evict();
        self.leave(id);
        true
    }

    /// Seats that are taken.
    pub fn taken(&self) -> usize {
        self.taken.len()
    }

    /// Rings for everybody.
    pub fn last_orders(&self) {
        self.taken.values().for_each(|taken| taken.seat.last_orders.notify_one());
    }

    /// The smallest goes first.
    fn worth(&self, taken: &Taken, now: u64) -> impl Ord + use<I> {
        let progress = taken.seat.progress();
        let at_work = now.saturating_sub(progress) < AT_WORK;
        let answered = taken.seat.answered.load(Relaxed);
        let of_few = Reverse(taken.network.map_or(1, |network| self.held_by(network)));
        // at work, a newcomer is no worse than others; but it goes before those
        // of a network as large
        (at_work, answered && !at_work, of_few, answered, progress)
    }

    /// Seats of one network that are taken.
    pub fn held_by(&self, network: Network) -> usize {
        self.held.get(&network).copied().unwrap_or(0)
    }

    fn count(&mut self, network: Option<Network>, change: isize) {
        let Some(network) = network else { return };
        let held = self.held_by(network).saturating_add_signed(change);
        match held {
            0 => _ = self.held.remove(&network),
            _ => _ = self.held.insert(network, held),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    type Sitting<'a> = &'a [(u8, u64, bool)];

    /// Connections of networks by their number: when each last got on, in
    /// seconds, and whether it was answered.
    fn seats(most: usize, each: usize, sitting: Sitting<'_>) -> (Seats<usize>, Vec<Arc<Seat>>) {
        let mut seats = Seats::new(most, each);
        let mut all = Vec::new();
        for (id, &(network, at, answered)) in sitting.iter().enumerate() {
            let seat = Arc::new(Seat::new(at * SECOND + id as u64));
            seat.answered.store(answered, Relaxed);
            seats.sit(id, Arc::clone(&seat), Some(Network::V4([network, 0, 0])));
            all.push(seat);
        }
        (seats, all)
    }

    #[test]
    fn the_connection_that_matters_least_makes_room() {
        let full: [(Sitting<'_>, u8, usize, &str); 9] = [
            (&[(1, 5, true), (2, 3, true), (3, 4, true)], 9, 1, "the longest idle"),
            (&[(1, 5, true), (2, 3, true), (3, 7, false)], 9, 2, "what never asked, before the idle"),
            (&[(1, 5, false), (2, 3, true), (3, 4, false)], 9, 2, "of these the oldest"),
            (&[(1, 5, true), (2, 3, true), (1, 6, true)], 9, 0, "the idle of the largest network"),
            (&[(1, 10, true), (2, 9, true), (3, 10, false)], 9, 1, "the idle before the newcomer"),
            (&[(1, 10, true), (2, 10, true), (3, 10, false)], 9, 2, "a newcomer among busy equals"),
            (&[(1, 10, true), (1, 10, true), (3, 10, false)], 9, 0, "the largest before a newcomer"),
            (&[(1, 3, true), (2, 2, true), (1, 4, true)], 1, 0, "a network at its cap pays itself"),
            (&[(1, 3, true), (2, 2, true), (1, 4, false)], 1, 2, "with what never asked, too"),
        ];
        for (sitting, comes, goes, why) in full {
            let (mut seats, all) = seats(3, 2, sitting);
            assert_eq!(
                seats.make_room(Some(Network::V4([comes, 0, 0])), 10 * SECOND + 100),
                Some(1),
                "{why}"
            );
            let gone: Vec<usize> = (0..3).filter(|&i| all[i].is_evicted()).collect();
            assert_eq!(gone, [goes], "{why}");
        }
    }

    #[test]
    fn with_room_nobody_goes() {
        let (mut seats, all) = seats(3, 2, &[(1, 1, false), (1, 1, false)]);
        assert_eq!(seats.make_room(Some(Network::V4([2, 0, 0])), 99 * SECOND), Some(0));
        assert_eq!(seats.make_room(Some(Network::V4([1, 0, 0])), 99 * SECOND), Some(1), "two at most");
        assert_eq!(all.iter().filter(|seat| seat.is_evicted()).count(), 1);
        assert_eq!(Seats::<usize>::new(0, 2).make_room(None, 0), None, "nobody is there to go");
    }

    #[test]
    fn a_proxys_client_counts_for_its_own_network() {
        let network = Network::V4([7, 0, 0]);
        let (mut seats, all) = seats(100, 2, &[(7, 1, true), (7, 2, true)]);
        for id in 10..20 {
            assert_eq!(seats.make_room(None, 3 * SECOND), Some(0), "a proxy has no cap");
            seats.sit(id, Arc::new(Seat::new(3 * SECOND)), None);
        }
        assert!(seats.identify(10, network, 3 * SECOND));
        assert!(all[0].is_evicted() && !all[1].is_evicted());
        seats.leave(1);
        assert!(!seats.identify(11, network, 3 * SECOND), "there is room again");
        assert!(!seats.identify(99, network, 3 * SECOND), "it has gone meanwhile");
        assert_eq!(seats.held_by(network), 2);
        (10..20).for_each(|id| seats.leave(id));
        assert!(seats.taken.is_empty() && seats.held.is_empty());
    }

    #[test]
    fn addresses_of_one_network() {
        let network = |text: &str| Network::from(text.parse::<IpAddr>().expect("written here"));
        for (one, other, same) in [
            ("192.0.2.1", "192.0.2.254", true),
            ("192.0.2.1", "192.0.3.1", false),
            ("192.0.2.1", "::ffff:192.0.2.9", true),
            ("2001:db8:0:100::1", "2001:db8:0:1ff::1", true),
            ("2001:db8:0:100::1", "2001:db8:0:200::1", false),
        ] {
            assert_eq!(network(one) == network(other), same, "{one} and {other}");
        }
    }
}
