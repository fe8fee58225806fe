//! Response rate limiting: who gets too many replies of one kind.
//!
//! Each network has an account for each kind of reply, and for each name that
//! it asks for. A reply costs what a second holds divided by the rate; time
//! pays it back. An account is one number, the time at which everything is paid:
//!
//! ```text
//!       a second ago        now                         now + window
//!   ────────┼────────────────┼──────────────────────────────┼────
//!    nothing was sent      all of a second's           nobody owes more
//!    lately                replies are sent
//! ```
//!
//! Beyond *now* replies are too many. They cost as well, so whoever floods is
//! let off only when it stops, and then after the window at the latest.
//!
//! All workers share one table of fixed size, without a lock. Its key is drawn
//! at the start, so that nobody can choose whose account to spoil. Two networks
//! with the same set and tag share an account, which makes limiting stricter for
//! both; that is one pair in 2^34. When a set is full, the account that owes the
//! least is forgotten, which makes limiting looser for its network. A worker
//! that loses the race for a slot several times leaves the reply unpaid.
//!
//! Knows nothing of sockets and clocks: the time is an argument.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use ipnet::IpNet;

use crate::model::{Name, RateLimit};
use crate::wire::Class;

/// What becomes of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Send,
    /// Too many: a short one goes out, which leads a real client to TCP.
    Slip,
    Drop,
}

/// Accounts in one cache line, of which one may hold a network's.
const WAYS: usize = 8;
/// 131,072 accounts, 1 MiB.
const SETS: usize = 1 << 14;
/// Bits of a slot that hold a time, in microseconds: it goes round in 203 days.
const TIME_BITS: u32 = 44;
const TIME: u64 = (1 << TIME_BITS) - 1;
/// So much may be sent at once after silence: a second's worth.
const BURST: i64 = 1_000_000;
/// By so much the times of two workers differ at most.
const SKEW: i64 = 10_000_000;
/// A slot is fought for so often.
const ATTEMPTS: usize = 4;

/// The accounts of all networks.
#[derive(Debug)]
pub(super) struct Limiter {
    sets: Box<[Set]>,
    key: RandomState,
    /// What one reply of each class costs, in microseconds; 0: nothing.
    costs: [u32; 5],
    window: i64,
    slip: u64,
    ipv4_mask: u64,
    ipv6_mask: u64,
    exempt: Box<[IpNet]>,
    pub log_only: bool,
    marks: [Mark; MARKS],
    quiet: u64,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Set([AtomicU64; WAYS]);

impl Limiter {
    pub fn new(limits: &RateLimit) -> Limiter {
        Limiter::with_sets(limits, SETS)
    }

    fn with_sets(limits: &RateLimit, sets: usize) -> Limiter {
        let cost = |per_second: u32| BURST as u32 / per_second.max(1) * u32::from(per_second > 0);
        let mask = |length: u8| u64::MAX << (64 - u32::from(length.clamp(1, 64)));
        let mut costs = [0; 5];
        for class in CLASSES {
            costs[class as usize] = cost(match class {
                Class::Answer => limits.responses_per_second,
                Class::Referral => limits.referrals_per_second,
                Class::NoData => limits.nodata_per_second,
                Class::Nxdomain => limits.nxdomains_per_second,
                Class::Error => limits.errors_per_second,
            });
        }
        Limiter {
            sets: (0..sets).map(|_| Set::default()).collect(),
            key: RandomState::new(),
            costs,
            window: i64::try_from(limits.window.as_micros()).unwrap_or(i64::MAX).min(TIME as i64 / 4),
            slip: limits.slip.into(),
            ipv4_mask: mask(limits.ipv4_prefix_length.min(32)),
            ipv6_mask: mask(limits.ipv6_prefix_length),
            exempt: limits.exempt.clone().into(),
            log_only: limits.log_only,
            marks: std::array::from_fn(|_| Mark::default()),
            quiet: limits.window.max(LEAST_QUIET).as_millis() as u64,
        }
    }

    /// Judges one reply, at `now` in milliseconds; `chance` decides which of
    /// those that are too many are sent short.
    pub fn decide(&self, now: u64, to: IpAddr, class: Class, subject: u32, chance: u64) -> Verdict {
        let cost = self.costs[class as usize];
        if cost == 0 {
            return Verdict::Send;
        }
        let network = self.network(to);
        let about = u64::from(subject) << 32 | u64::from(network.is_ipv6) << 8 | class as u64;
        let mut hasher = self.key.build_hasher();
        hasher.write_u64(network.bits);
        hasher.write_u64(about);
        let hash = hasher.finish();
        if self.charge(hash, now * 1000, cost) || self.is_exempt(to) {
            return Verdict::Send;
        }
        self.mark(network, class, subject, now);
        match self.slip {
            0 => Verdict::Drop,
            // by chance, not in turn: nobody can arrange to get all the short ones
            slip if chance.is_multiple_of(slip) => Verdict::Slip,
            _ => Verdict::Drop,
        }
    }

    /// Has an account pay for one reply; tells whether it could.
    fn charge(&self, hash: u64, now: u64, cost: u32) -> bool {
        let set = &self.sets[hash as usize % self.sets.len()].0;
        let tag = hash & !TIME;
        let mut within = true;
        for _ in 0..ATTEMPTS {
            let (slot, seen) = find(set, tag, now);
            let paid = if seen != 0 && seen & !TIME == tag { ahead(seen, now, self.window) } else { -BURST };
            let (after, enough) = pay(paid, cost, self.window);
            within = enough;
            let next = tag | now.wrapping_add_signed(after) & TIME;
            let order = Ordering::Relaxed; // a slot is all there is to know
            if slot.compare_exchange_weak(seen, next, order, order).is_ok() {
                break;
            }
        }
        within
    }

    fn network(&self, address: IpAddr) -> Network {
        match address {
            IpAddr::V4(address) => {
                Network { is_ipv6: false, bits: u64::from(address.to_bits()) << 32 & self.ipv4_mask }
            }
            IpAddr::V6(address) => {
                Network { is_ipv6: true, bits: (address.to_bits() >> 64) as u64 & self.ipv6_mask }
            }
        }
    }

    fn is_exempt(&self, address: IpAddr) -> bool {
        self.exempt.iter().any(|network| network.contains(&address))
    }
}

/// The slot that holds a tag, else the one whose loss matters the least, and
/// what it holds.
fn find(set: &[AtomicU64; WAYS], tag: u64, now: u64) -> (&AtomicU64, u64) {
    let mut least = (&set[0], 0, i64::MAX);
    for slot in set {
        let seen = slot.load(Ordering::Relaxed);
        if seen != 0 && seen & !TIME == tag {
            return (slot, seen);
        }
        let owed = if seen == 0 { i64::MIN } else { ahead(seen, now, TIME as i64 / 4) };
        if owed < least.2 {
            least = (slot, seen, owed);
        }
    }
    (least.0, least.1)
}

/// How far a slot's time lies ahead of now, in microseconds; what is long past
/// counts as one burst ago. Times go round, so one that no account can have is
/// one that has come round.
fn ahead(slot: u64, now: u64, window: i64) -> i64 {
    let apart = (slot.wrapping_sub(now) << (64 - TIME_BITS)) as i64 >> (64 - TIME_BITS);
    if apart > window + SKEW { -BURST } else { apart.clamp(-BURST, window) }
}

/// One more reply: where that leaves an account, and whether it could pay.
fn pay(ahead: i64, cost: u32, window: i64) -> (i64, bool) {
    let after = ahead + i64::from(cost);
    (after.min(window), after <= 0)
}

// ---- who is limited -----------------------------------------------------------------------------

const CLASSES: [Class; 5] = [Class::Answer, Class::Referral, Class::NoData, Class::Nxdomain, Class::Error];

/// Places to note limited networks in, for those who tell of them; with more
/// at once, some are not told of.
const MARKS: usize = 64;
/// Lines about networks in a second at most.
const LINES: usize = 4;
/// Limiting has ended when for this time, and the window, nothing was too many.
const LEAST_QUIET: Duration = Duration::from_secs(5);

/// The beginning of addresses, all that belongs to one account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    is_ipv6: bool,
    bits: u64,
}

/// A network that was limited lately. The two halves are not written at once:
/// at worst a line of the log mixes two networks.
#[derive(Debug, Default)]
struct Mark {
    bits: AtomicU64,
    /// What the reply was about for which it was marked.
    subject: AtomicU32,
    /// Class, family and time, 0: free.
    about: AtomicU64,
}

const MARKED: u64 = 1 << 63;
const CLAIMED: u64 = 1 << 62;
const IPV6: u64 = 1 << 61;
const CLASS_SHIFT: u32 = 56;
const MILLISECONDS: u64 = (1 << CLASS_SHIFT) - 1;

impl Limiter {
    /// Where a network is marked; many share a place.
    fn mark_of(&self, network: Network, class: Class) -> usize {
        self.key.hash_one((network.bits, class as u8)) as usize % MARKS
    }

    fn mark(&self, network: Network, class: Class, subject: u32, now: u64) {
        let Mark { bits, subject: marked_for, about } = &self.marks[self.mark_of(network, class)];
        let family = if network.is_ipv6 { IPV6 } else { 0 };
        let mine = MARKED | family | (class as u64) << CLASS_SHIFT | now & MILLISECONDS;
        match about.load(Ordering::Acquire) {
            0 if about.compare_exchange(0, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok() => {
                bits.store(network.bits, Ordering::Relaxed);
                marked_for.store(subject, Ordering::Relaxed);
                about.store(mine, Ordering::Release);
            }
            0 => {} // another worker was quicker
            seen if seen == mine => {}
            seen if (seen ^ mine) & !MILLISECONDS == 0 && bits.load(Ordering::Relaxed) == network.bits => {
                about.store(mine, Ordering::Release);
            }
            _ => {} // another network's, which is limited or was so lately
        }
    }
}

/// Tells of networks that begin and end to be limited; looks once a second,
/// outside of the workers.
#[derive(Debug)]
pub(super) struct Teller {
    /// Who was told of, at each mark's place.
    told: [Option<Told>; MARKS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    network: Network,
    class: Class,
}

/// A line to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub begins: bool,
    /// Such as `192.0.2.0/24`.
    pub network: String,
    pub class: Class,
    /// What was asked for when it began: a number among all names of that time.
    pub subject: u32,
}

impl Teller {
    pub fn new() -> Teller {
        Teller { told: [None; MARKS] }
    }

    /// What there is to tell at `now`, in milliseconds; a few lines at most, the
    /// rest stays for the next time.
    pub fn look(&mut self, limiter: &Limiter, now: u64) -> Vec<Line> {
        let mut lines = Vec::new();
        for (mark, told) in limiter.marks.iter().zip(&mut self.told) {
            if lines.len() == LINES {
                break;
            }
            let about = mark.about.load(Ordering::Acquire);
            if about & MARKED == 0 {
                continue;
            }
            let network = Network { is_ipv6: about & IPV6 != 0, bits: mark.bits.load(Ordering::Relaxed) };
            let Some(&class) = CLASSES.iter().find(|class| **class as u64 == about >> CLASS_SHIFT & 7) else {
                continue;
            };
            let current = Told { network, class };
            let subject = mark.subject.load(Ordering::Relaxed);
            let line = |begins| Line { begins, network: limiter.show(network), class, subject };
            if told.is_none() {
                *told = Some(current);
                lines.push(line(true));
            } else if (now & MILLISECONDS).saturating_sub(about & MILLISECONDS) >= limiter.quiet {
                let order = Ordering::Relaxed;
                if mark.about.compare_exchange(about, 0, order, order).is_ok() {
                    *told = None;
                    lines.push(line(false));
                }
            }
        }
        lines
    }
}

impl Limiter {
    fn show(&self, network: Network) -> String {
        match network.is_ipv6 {
            false => {
                let address = Ipv4Addr::from_bits((network.bits >> 32) as u32);
                format!("{address}/{}", self.ipv4_mask.leading_ones())
            }
            true => {
                let address = Ipv6Addr::from_bits(u128::from(network.bits) << 64);
                format!("{address}/{}", self.ipv6_mask.leading_ones())
            }
        }
    }
}

/// A class in the words of the configuration.
fn word(class: Class) -> &'static str {
    match class {
        Class::Answer => "responses",
        Class::Referral => "referrals",
        Class::NoData => "nodata",
        Class::Nxdomain => "nxdomains",
        Class::Error => "errors",
    }
}

impl Line {
    /// What the number of names stands for, which nobody asks on the way of a
    /// reply; none where it stands for all errors.
    pub fn asked(&self, name_of: impl FnOnce(u32) -> Option<Name>) -> Option<String> {
        let of = match self.class {
            Class::Answer | Class::Referral | Class::NoData => "",
            Class::Nxdomain => "the zone ",
            Class::Error => return None,
        };
        name_of(self.subject).map(|name| format!("{of}{name}"))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line { network, class, .. } = self;
        let class = word(*class);
        match self.begins {
            true => write!(f, "replies to {network} are limited ({class})"),
            false => write!(f, "replies to {network} are no longer limited ({class})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    /// A time some way into a run.
    const NOW: u64 = 3_600_000;

    fn limits(per_second: u32) -> RateLimit {
        RateLimit {
            responses_per_second: per_second,
            nodata_per_second: per_second,
            nxdomains_per_second: per_second,
            referrals_per_second: per_second,
            errors_per_second: per_second,
            slip: 0,
            ..RateLimit::default()
        }
    }

    /// How many of `count` replies at one time go out.
    fn sent(limiter: &Limiter, now: u64, to: IpAddr, count: usize) -> usize {
        let decide = |_: &usize| limiter.decide(now, to, Class::Answer, 1, 0) == Verdict::Send;
        (0..count).filter(decide).count()
    }

    #[test]
    fn an_account_pays_for_a_seconds_replies_and_time_pays_it_back() {
        const MS: i64 = 1000;
        for (paid, cost, expected, why) in [
            (-1000 * MS, 200_000, (-800 * MS, true), "the first after a silence"),
            (-200 * MS, 200_000, (0, true), "the last of a second's"),
            (-199 * MS, 200_000, (MS, false), "one more"),
            (15_000 * MS, 200_000, (15_000 * MS, false), "nobody owes more than the window"),
            (14_900 * MS, 200_000, (15_000 * MS, false), "nor by a part of one"),
            (-1000 * MS, 1_000_000, (0, true), "one a second"),
        ] {
            assert_eq!(pay(paid, cost, 15_000 * MS), expected, "{why}");
        }
    }

    #[test]
    fn a_slots_time_is_read_whatever_has_gone_round() {
        let window = 15_000_000;
        for (slot, now, expected, why) in [
            (NOW, NOW, 0, "now"),
            (NOW + 5, NOW, 5, "a little ahead"),
            (NOW + 15_000_000, NOW, window, "as far as it may"),
            (NOW + 15_000_001, NOW, window, "by another worker's clock"),
            (NOW, NOW + 500_000, -500_000, "half a second ago"),
            (NOW, NOW + 90_000_000, -BURST, "long ago"),
            (2, TIME - 2, 5, "ahead, round the corner"),
            (TIME, 4 + (1 << TIME_BITS), -5, "behind, round the corner"),
            (NOW + 60_000_000, NOW, -BURST, "no account is so far ahead: it has come round"),
        ] {
            assert_eq!(ahead(slot & TIME, now, window), expected, "{why}");
        }
    }

    #[test]
    fn a_network_gets_its_rate_and_is_forgiven_when_it_stops() {
        let limiter = Limiter::new(&limits(5));
        assert_eq!(sent(&limiter, NOW, A, 100), 5, "a second's worth at once");
        assert_eq!(sent(&limiter, NOW + 14_000, A, 1), 0, "the window isn't over");
        assert_eq!(sent(&limiter, NOW + 31_000, A, 100), 5, "it is, and a second more");
        let steady = Limiter::new(&limits(5));
        let total: usize = (0..100).map(|tick| sent(&steady, NOW + tick * 200, A, 1)).sum();
        assert_eq!(total, 100, "at the rate nothing is too many");
        let flood = Limiter::new(&limits(5));
        let total: usize = (0..1000).map(|tick| sent(&flood, NOW + tick * 20, A, 1)).sum();
        assert!((5..=8).contains(&total), "a flood gets a second's worth, and no more: {total}");
        let idle = Limiter::new(&limits(5));
        assert_eq!((sent(&idle, NOW, A, 5), sent(&idle, NOW + 400, A, 5)), (5, 2), "what time has paid back");
    }

    #[test]
    fn networks_names_and_kinds_have_accounts_of_their_own() {
        let limiter = Limiter::new(&limits(1));
        let decide =
            |to: &str, class, subject| limiter.decide(NOW, to.parse().expect("one"), class, subject, 0);
        for (to, class, subject, expected, why) in [
            ("192.0.2.1", Class::Answer, 1, Verdict::Send, "the first"),
            ("192.0.2.200", Class::Answer, 1, Verdict::Drop, "the same /24"),
            ("192.0.3.1", Class::Answer, 1, Verdict::Send, "another one"),
            ("192.0.2.1", Class::Answer, 2, Verdict::Send, "another name"),
            ("192.0.2.1", Class::NoData, 1, Verdict::Send, "another kind"),
            ("192.0.2.1", Class::Nxdomain, 1, Verdict::Send, "and another"),
            ("192.0.2.1", Class::Referral, 1, Verdict::Send, "and another"),
            ("192.0.2.1", Class::Error, 0, Verdict::Send, "and errors"),
            ("192.0.2.9", Class::Error, 0, Verdict::Drop, "all together"),
            ("2001:db8:0:1::1", Class::Answer, 1, Verdict::Send, "IPv6"),
            ("2001:db8:0:ff::9", Class::Answer, 1, Verdict::Drop, "the same /56"),
            ("2001:db8:0:100::", Class::Answer, 1, Verdict::Send, "another one"),
        ] {
            assert_eq!(decide(to, class, subject), expected, "{to} {class:?} {subject}: {why}");
        }
    }

    #[test]
    fn a_rate_of_0_is_no_limit_and_exempt_networks_have_none() {
        let only_errors = RateLimit { errors_per_second: 1, ..RateLimit::default() };
        assert_eq!(sent(&Limiter::new(&only_errors), NOW, A, 100), 100);
        let exempt = vec!["192.0.2.0/25".parse().expect("a network")];
        let limiter = Limiter::new(&RateLimit { exempt, ..limits(1) });
        assert_eq!(sent(&limiter, NOW, A, 100), 100);
        assert_eq!(
            sent(&limiter, NOW, "192.0.2.200".parse().expect("one"), 100),
            0,
            "the rest of its network"
        );
    }

    #[test]
    fn one_of_so_many_slips() {
        for (slip, expected) in [(0, 0..=0), (1, 995..=995), (2, 497..=498), (10, 99..=100)] {
            let limiter = Limiter::new(&RateLimit { slip, ..limits(5) });
            let slipped =
                (0..1000).filter(|chance| limiter.decide(NOW, A, Class::Answer, 1, *chance) == Verdict::Slip);
            assert!(expected.contains(&slipped.count()), "slip {slip}");
        }
    }

    #[test]
    fn a_flood_from_everywhere_does_not_free_whoever_owes() {
        let limiter = Limiter::with_sets(&limits(5), 4);
        assert_eq!(sent(&limiter, NOW, A, 100), 5);
        for n in 0..10_000_u32 {
            let other = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + (n << 8)));
            assert_eq!(
                sent(&limiter, NOW + 1000, other, 1),
                1,
                "a full table never limits whoever owes nothing"
            );
        }
        assert_eq!(sent(&limiter, NOW + 1000, A, 10), 0);
    }

    #[test]
    fn workers_share_the_accounts() {
        let limiter = Limiter::new(&limits(1000));
        let total: usize = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(|| sent(&limiter, NOW, A, 10_000))).collect();
            workers.into_iter().map(|worker| worker.join().expect("it counts")).sum()
        });
        assert!((1000..1400).contains(&total), "a lost race may leave a reply unpaid: {total}");
    }

    #[test]
    fn limiting_is_told_when_it_begins_and_when_it_has_ended_a_few_lines_at_a_time() {
        // one in which the two networks don't share a mark: its key is drawn
        let [first, second]: [IpAddr; 2] = [A, "2001:db8::1".parse().expect("one")];
        let apart = |limiter: &Limiter| {
            let [first, second] = [limiter.network(first), limiter.network(second)];
            limiter.mark_of(first, Class::Answer) != limiter.mark_of(second, Class::Error)
        };
        let mut drawn = std::iter::repeat_with(|| Limiter::new(&limits(1)));
        let limiter = drawn.find(apart).expect("it goes on for ever");
        let mut teller = Teller::new();
        assert_eq!(teller.look(&limiter, NOW), []);
        sent(&limiter, NOW, A, 10);
        limiter.decide(NOW, "2001:db8::1".parse().expect("one"), Class::Error, 0, 0);
        limiter.decide(NOW, "2001:db8::2".parse().expect("one"), Class::Error, 0, 0);
        let words = |lines: Vec<Line>| {
            let mut words: Vec<String> = lines.iter().map(Line::to_string).collect();
            words.sort();
            words
        };
        let begun = [
            "replies to 192.0.2.0/24 are limited (responses)",
            "replies to 2001:db8::/56 are limited (errors)",
        ];
        assert_eq!(words(teller.look(&limiter, NOW + 500)), begun);
        assert_eq!(teller.look(&limiter, NOW + 1500), []);
        sent(&limiter, NOW + 10_000, A, 5);
        let ended = ["replies to 2001:db8::/56 are no longer limited (errors)"];
        assert_eq!(words(teller.look(&limiter, NOW + 15_000)), ended);
        let ended = ["replies to 192.0.2.0/24 are no longer limited (responses)"];
        assert_eq!(words(teller.look(&limiter, NOW + 25_000)), ended);
        sent(&limiter, NOW + 90_000, A, 10);
        assert_eq!(words(teller.look(&limiter, NOW + 90_000)), [begun[0]], "and told again");

        for n in 0..200 {
            sent(&limiter, NOW, IpAddr::V4(Ipv4Addr::new(10, 0, n, 1)), 2);
        }
        assert_eq!(teller.look(&limiter, NOW).len(), LINES);
    }

    #[test]
    fn what_was_asked_first_is_named_and_a_zone_where_names_are_missing() {
        let name = |number| (number == 7).then(|| "www.example.com".parse().expect("a name"));
        for (class, subject, expected) in [
            (Class::Answer, 7, Some("www.example.com.")),
            (Class::NoData, 7, Some("www.example.com.")),
            (Class::Referral, 7, Some("www.example.com.")),
            (Class::Nxdomain, 7, Some("the zone www.example.com.")),
            (Class::Error, 7, None),
            (Class::Answer, 8, None),
        ] {
            let limiter = Limiter::new(&limits(1));
            for subject in [subject, subject, 9] {
                limiter.decide(NOW, A, class, subject, 0);
            }
            let [line] = &Teller::new().look(&limiter, NOW)[..] else { panic!("one network") };
            assert_eq!(line.asked(name).as_deref(), expected, "{class:?} {subject}");
        }
    }
}
