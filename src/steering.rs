//! Which pool answers, and with which of its endpoints.
//!
//! What depends on health alone is settled when these values are made: who is
//! eligible, weights, whether an answer carries one address or all. What is
//! left for a query is to draw, with chance as an argument.
//!
//! Looks at verdicts and pool states, never at a probe.

mod moves;

use std::net::IpAddr;
use std::sync::Arc;

use crate::health::{PoolHealth, PoolState, Standing};
use crate::model::{AnswerShape, MAX_ANSWERS, Pool, Weight};

pub use moves::Hold;

/// Chance as an argument: one number gives as many as a decision needs.
#[derive(Clone, Copy, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Chance that follows from `seed` alone.
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// A number from 0 to `bound - 1`, all equally likely; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        // one step of a Weyl sequence and a folded multiplication, as in wyrand
        self.0 = self.0.wrapping_add(0xa076_1d64_78bd_642f);
        let wide = u128::from(self.0) * u128::from(self.0 ^ 0xe703_7ed1_a0b4_28db);
        let mixed = (wide >> 64) as u64 ^ wide as u64;
        ((u128::from(mixed) * u128::from(bound)) >> 64) as u32
    }
}

/// How an answer is drawn from the candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Draw {
    /// All of them, rotated; if they are more than this, an even draw of so many.
    All(u8),
    /// So many, one after the other, by weight.
    ByWeight(u8),
}

/// A pool's addresses of one family that an answer may carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidates<const N: usize> {
    addresses: Box<[[u8; N]]>,
    /// Of each address in ten-thousandths, above 0.
    weights: Box<[u32]>,
    total: u32,
    /// Of each address the share of answers that it is in, in hundredths; none
    /// while all are whole.
    shares: Option<Box<[u8]>>,
    draw: Draw,
}

impl<const N: usize> Candidates<N> {
    /// Whether there is nothing to answer with.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// All addresses that an answer may carry.
    pub fn addresses(&self) -> &[[u8; N]] {
        &self.addresses
    }

    /// The same candidates without some addresses.
    fn without(&self, gone: impl Fn(&[u8; N]) -> bool) -> Candidates<N> {
        let stays: Vec<usize> =
            (0..self.addresses.len()).filter(|place| !gone(&self.addresses[*place])).collect();
        let weights: Box<[u32]> = stays.iter().map(|place| self.weights[*place]).collect();
        Candidates {
            addresses: stays.iter().map(|place| self.addresses[*place]).collect(),
            total: weights.iter().sum(),
            weights,
            shares: self.shares.as_ref().map(|shares| stays.iter().map(|place| shares[*place]).collect()),
            draw: self.draw,
        }
    }

    /// How many addresses an answer carries when none is left out.
    fn most(&self) -> usize {
        let (Draw::All(most) | Draw::ByWeight(most)) = self.draw;
        self.addresses.len().min(usize::from(most))
    }

    /// How many addresses the answer that `chance` gives carries.
    pub fn answer_size(&self, chance: Chance) -> usize {
        match (&self.shares, self.draw) {
            (Some(_), Draw::All(_)) => {
                let mut count = 0;
                self.draw(&mut { chance }, |_| count += 1);
                count
            }
            _ => self.most(),
        }
    }

    /// Hands over the addresses of one answer, in its order.
    pub fn draw(&self, chance: &mut Chance, mut each: impl FnMut(&[u8; N])) {
        let count = self.addresses.len();
        let number = self.most();
        match self.draw {
            Draw::All(_) if number == count => {
                let start = chance.below(count as u32) as usize;
                self.thinned((start..count).chain(0..start), chance, each);
            }
            Draw::All(_) => {
                // Floyd's draw of `number` out of `count`, begun at a drawn place
                let mut picked = Picked::default();
                for bound in count - number..count {
                    let one = chance.below(bound as u32 + 1) as usize;
                    picked.push(if picked.contains(one) { bound } else { one });
                }
                let (head, tail) = picked.as_slice().split_at(chance.below(number as u32) as usize);
                self.thinned(tail.iter().chain(head).map(|&place| place as usize), chance, each);
            }
            Draw::ByWeight(_) => {
                let mut picked = Picked::default();
                let mut left = self.total;
                for _ in 0..number {
                    let place = self.place_of(chance.below(left), &picked);
                    left -= self.weights[place];
                    picked.push(place);
                    each(&self.addresses[place]);
                }
            }
        }
    }

    /// Hands over these addresses, but for those that are left out this time;
    /// if that were all of them, none is.
    fn thinned(
        &self,
        places: impl Iterator<Item = usize> + Clone,
        chance: &mut Chance,
        mut each: impl FnMut(&[u8; N]),
    ) {
        let Some(shares) = &self.shares else {
            return places.for_each(|place| each(&self.addresses[place]));
        };
        let stays = |chance: &mut Chance, place: usize| chance.below(100) < u32::from(shares[place]);
        let mut foresight = *chance;
        let any = places.clone().any(|place| stays(&mut foresight, place));
        for place in places {
            if stays(chance, place) || !any {
                each(&self.addresses[place]);
            }
        }
    }

    /// The address on which `mark` falls when the weights of those not yet
    /// picked are laid end to end.
    fn place_of(&self, mut mark: u32, picked: &Picked) -> usize {
        for (place, weight) in self.weights.iter().enumerate() {
            if picked.contains(place) {
                continue;
            }
            match mark.checked_sub(*weight) {
                Some(rest) => mark = rest,
                None => return place,
            }
        }
        unreachable!("a mark lies below the sum of the weights")
    }
}

/// Places picked so far: on the stack, for the query path allocates nothing.
struct Picked {
    places: [u32; MAX_ANSWERS],
    count: usize,
}

impl Default for Picked {
    fn default() -> Picked {
        Picked { places: [0; MAX_ANSWERS], count: 0 }
    }
}

impl Picked {
    fn push(&mut self, place: usize) {
        self.places[self.count] = place as u32;
        self.count += 1;
    }

    fn as_slice(&self) -> &[u32] {
        &self.places[..self.count]
    }

    fn contains(&self, place: usize) -> bool {
        self.as_slice().contains(&(place as u32))
    }
}

/// What a pool can answer with, by family.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolOffer {
    /// Some while the pool is available to steering for A.
    pub ipv4: Option<Arc<Candidates<4>>>,
    /// Some while the pool is available to steering for AAAA.
    pub ipv6: Option<Arc<Candidates<16>>>,
    /// As the fallback pool: health is not looked at.
    pub fallback_ipv4: Arc<Candidates<4>>,
    /// As the fallback pool: health is not looked at.
    pub fallback_ipv6: Arc<Candidates<16>>,
}

impl PoolOffer {
    /// Whether steering may choose the pool, for either family.
    pub fn is_available(&self) -> bool {
        self.ipv4.is_some() || self.ipv6.is_some()
    }

    /// The same offer without some addresses: those of endpoints that are
    /// wanted out while a pool goes on answering for a while.
    pub fn without(&self, gone: &[IpAddr]) -> PoolOffer {
        let ipv4 =
            self.ipv4.as_ref().map(|all| Arc::new(all.without(|octets| gone.contains(&(*octets).into()))));
        let ipv6 =
            self.ipv6.as_ref().map(|all| Arc::new(all.without(|octets| gone.contains(&(*octets).into()))));
        PoolOffer {
            ipv4: ipv4.filter(|all| !all.is_empty()),
            ipv6: ipv6.filter(|all| !all.is_empty()),
            ..self.clone()
        }
    }

    /// Whether it has nothing to answer with as the fallback pool.
    pub fn fallback_is_empty(&self) -> bool {
        self.fallback_ipv4.is_empty() && self.fallback_ipv6.is_empty()
    }
}

/// What `pool` offers at this health, when its endpoints stand so.
pub fn offer(pool: &Pool, health: PoolHealth, standings: &[Standing]) -> PoolOffer {
    let up = |place: usize| standings[place].fitness.is_up() && standings[place].percent > 0;
    let eligible = |family: fn(&IpAddr) -> bool| {
        let all = pool.endpoints.iter().enumerate();
        let weighs = |place: usize, endpoint| standings[place].weight_of(endpoint) > Weight(0);
        all.filter(|(place, endpoint)| weighs(*place, endpoint) && up(*place) && family(&endpoint.address))
            .count() as u32
    };
    let ipv4 = eligible(IpAddr::is_ipv4);
    let ipv6 = eligible(IpAddr::is_ipv6);
    let enabled = health.state != PoolState::Disabled;
    let enough = !pool.is_monitored() || health.healthy >= pool.health_threshold.max(1);
    let available = enabled && ipv4 + ipv6 > 0 && enough;
    let family = &pool.family_threshold;
    // health is not looked at, but nobody is served who is wanted out
    let counts = |place: usize| enabled && standings[place].fitness.counts();
    let healthy = |place: usize| up(place).then(|| standings[place].percent);
    let fallback = |place: usize| counts(place).then_some(100);
    let weight = |place: usize| standings[place].weight_of(&pool.endpoints[place]);
    PoolOffer {
        ipv4: (available && ipv4 >= family.ipv4)
            .then(|| Arc::new(candidates(pool, weight, healthy, v4_octets))),
        ipv6: (available && ipv6 >= family.ipv6)
            .then(|| Arc::new(candidates(pool, weight, healthy, v6_octets))),
        fallback_ipv4: Arc::new(candidates(pool, weight, fallback, v4_octets)),
        fallback_ipv6: Arc::new(candidates(pool, weight, fallback, v6_octets)),
    }
}

/// The pool's candidates among the places that have a share, in hundredths. The
/// shape of the answer follows from the weights that people have given, in the
/// configuration or over it, never from health.
fn candidates<const N: usize>(
    pool: &Pool,
    weight: impl Fn(usize) -> Weight,
    share: impl Fn(usize) -> Option<u8>,
    octets: fn(&IpAddr) -> Option<[u8; N]>,
) -> Candidates<N> {
    let enabled = (0..pool.endpoints.len()).filter(|place| pool.endpoints[*place].enabled);
    let mut given = enabled.map(&weight).filter(|weight| *weight > Weight(0));
    let equal = given.next().is_none_or(|first| given.all(|weight| weight == first));
    let draw = match pool.answer {
        AnswerShape::All => Draw::All(pool.max_answers),
        AnswerShape::ByWeight if equal => Draw::All(pool.max_answers),
        AnswerShape::ByWeight => Draw::ByWeight(1),
        AnswerShape::Number(number) => Draw::ByWeight(number.min(pool.max_answers)),
    };
    let (mut addresses, mut weights, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    for (place, endpoint) in pool.endpoints.iter().enumerate() {
        let (Some(share), Some(address)) = (share(place), octets(&endpoint.address)) else { continue };
        let weight = weight(place);
        if weight > Weight(0) {
            addresses.push(address);
            weights.push(u32::from(weight.0) * u32::from(share));
            shares.push(share);
        }
    }
    let total = weights.iter().sum();
    let shares = shares.iter().any(|share| *share < 100).then(|| shares.into());
    Candidates { addresses: addresses.into(), weights: weights.into(), total, shares, draw }
}

fn v4_octets(address: &IpAddr) -> Option<[u8; 4]> {
    match address {
        IpAddr::V4(v4) => Some(v4.octets()),
        IpAddr::V6(_) => None,
    }
}

fn v6_octets(address: &IpAddr) -> Option<[u8; 16]> {
    match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) => Some(v6.octets()),
    }
}

/// The pools a query may go to, after health.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice<const N: usize> {
    /// No pool at all: NODATA.
    Nothing,
    /// This one.
    Pool(Arc<Candidates<N>>),
    /// Drawn by weight; the numbers are running totals.
    Random(Box<[(u32, Arc<Candidates<N>>)]>),
}

impl<const N: usize> Choice<N> {
    /// The choice when `pools` are available, each with its weight.
    pub fn by_weight(pools: impl Iterator<Item = (Weight, Arc<Candidates<N>>)>) -> Choice<N> {
        let mut total = 0;
        let totals: Box<[_]> = pools
            .filter(|(weight, _)| *weight > Weight(0))
            .map(|(weight, candidates)| {
                total += u32::from(weight.0);
                (total, candidates)
            })
            .collect();
        match &totals[..] {
            [] => Choice::Nothing,
            [(_, only)] => Choice::Pool(Arc::clone(only)),
            _ => Choice::Random(totals),
        }
    }

    /// The pool for one query.
    pub fn pick(&self, chance: &mut Chance) -> Option<&Candidates<N>> {
        match self {
            Choice::Nothing => None,
            Choice::Pool(candidates) => Some(candidates),
            Choice::Random(pools) => {
                let (total, _) = pools.last()?;
                let mark = chance.below(*total);
                let place = pools.partition_point(|(running, _)| *running <= mark);
                Some(&pools[place].1)
            }
        }
    }

    /// All addresses that answers may carry.
    pub fn addresses(&self) -> Vec<[u8; N]> {
        match self {
            Choice::Nothing => Vec::new(),
            Choice::Pool(candidates) => candidates.addresses().to_vec(),
            Choice::Random(pools) => {
                pools.iter().flat_map(|(_, candidates)| candidates.addresses()).copied().collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{DownCause, Fitness, OutCause, pool_health};
    use crate::model::{Endpoint, MonitorId, Tests};
    use std::collections::BTreeMap;

    const DRAWS: u64 = 20_000;

    /// A pool of endpoints `.1`, `.2`, … with these weights in hundredths.
    fn pool(weights: &[u8]) -> Pool {
        let endpoint = |(&weight, n): (&u8, u8)| Endpoint {
            weight: Weight(weight),
            ..Endpoint::new(&n.to_string(), [192, 0, 2, n].into())
        };
        let tests = Tests::all([MonitorId(0)]);
        Pool { tests, ..Pool::new("p", weights.iter().zip(1u8..).map(endpoint).collect()) }
    }

    /// What the pool offers when the endpoints with these last octets are healthy.
    fn offered(pool: &Pool, healthy: &[u8]) -> PoolOffer {
        let fitness = |place: usize| match () {
            _ if !pool.endpoints[place].enabled => Fitness::Out(OutCause::Disabled),
            _ if !pool.is_monitored() || healthy.contains(&(place as u8 + 1)) => Fitness::Up,
            _ => Fitness::Down(DownCause::Unhealthy),
        };
        let standing = |place| Standing { fitness: fitness(place), percent: 100, ..Standing::default() };
        let standings: Vec<_> = (0..pool.endpoints.len()).map(standing).collect();
        offer(pool, pool_health(pool, pool.enabled, &standings), &standings)
    }

    /// Last octets of one answer.
    fn drawn(candidates: &Candidates<4>, seed: u64) -> Vec<u8> {
        let mut answer = Vec::new();
        candidates.draw(&mut Chance::new(crate::health::scramble(seed)), |address| answer.push(address[3]));
        answer
    }

    /// How often each answer comes, its addresses sorted, in per cent.
    fn shares(candidates: &Candidates<4>) -> BTreeMap<Vec<u8>, f64> {
        let mut shares = BTreeMap::new();
        for seed in 0..DRAWS {
            let mut answer = drawn(candidates, seed);
            answer.sort();
            *shares.entry(answer).or_insert(0.0) += 100.0 / DRAWS as f64;
        }
        shares
    }

    #[track_caller]
    fn assert_shares(got: BTreeMap<Vec<u8>, f64>, expected: &[(&[u8], f64)], id: &str) {
        assert_eq!(got.len(), expected.len(), "{id}: {got:?}");
        for (answer, share) in expected {
            let seen = got.get(*answer).copied().unwrap_or(0.0);
            assert!((seen - share).abs() < 1.5, "{id}: {answer:?} came in {seen:.1} %, not {share} %");
        }
    }

    #[test]
    fn w1_w2_w4_shares_follow_the_weights_of_the_healthy() {
        for (id, weights, healthy, expected) in [
            ("W1", &[25, 25, 50][..], &[1, 2, 3][..], &[(&[1][..], 25.0), (&[2], 25.0), (&[3], 50.0)][..]),
            ("W2", &[25, 25, 50], &[1, 2], &[(&[1], 50.0), (&[2], 50.0)]),
            // equal weights above 0: both addresses, half of the answers begin with each
            ("W4", &[0, 100, 100], &[1, 2, 3], &[(&[2, 3], 100.0)]),
        ] {
            let offer = offered(&pool(weights), healthy);
            assert_shares(shares(&offer.ipv4.unwrap()), expected, id);
        }
    }

    #[test]
    fn w3_pools_are_drawn_by_weight_and_l6_the_rest_share() {
        let one = |n: u8| {
            let mut pool = pool(&[100]);
            pool.endpoints[0].address = [192, 0, 2, n].into();
            offered(&pool, &[1]).ipv4.unwrap()
        };
        let draw = |weights: &[(u8, u8)]| {
            let choice = Choice::by_weight(weights.iter().map(|&(n, weight)| (Weight(weight), one(n))));
            let mut seen = BTreeMap::new();
            for seed in 0..DRAWS {
                let mut chance = Chance::new(crate::health::scramble(seed));
                choice.pick(&mut chance).unwrap().draw(&mut chance, |address| {
                    *seen.entry(vec![address[3]]).or_insert(0.0) += 100.0 / DRAWS as f64;
                });
            }
            seen
        };
        assert_shares(draw(&[(1, 80), (2, 50), (3, 60)]), &[(&[1], 42.1), (&[2], 26.3), (&[3], 31.6)], "W3");
        assert_shares(draw(&[(1, 40), (3, 60)]), &[(&[1], 40.0), (&[3], 60.0)], "L6");
    }

    #[test]
    fn w5_all_weights_zero_make_the_pool_unavailable() {
        assert!(!offered(&pool(&[0, 0, 0]), &[1, 2, 3]).is_available());
    }

    #[test]
    fn a1_to_a8_and_a10_how_many_addresses_an_answer_has() {
        for (id, weights, healthy, expected) in [
            ("A1", &[100, 100, 100][..], &[1, 2, 3][..], &[(&[1, 2, 3][..], 100.0)][..]),
            ("A2", &[100, 100, 100], &[1, 3], &[(&[1, 3], 100.0)]),
            ("A3", &[100, 50], &[1, 2], &[(&[1], 66.7), (&[2], 33.3)]),
            ("A4", &[100, 50], &[2], &[(&[2], 100.0)]),
            ("A5", &[30, 30], &[1, 2], &[(&[1, 2], 100.0)]),
            (
                "A6",
                &[100, 100, 50, 50],
                &[1, 2, 3, 4],
                &[(&[1], 33.3), (&[2], 33.3), (&[3], 16.7), (&[4], 16.7)],
            ),
            ("A7", &[100, 100, 0], &[1, 2, 3], &[(&[1, 2], 100.0)]),
            ("A8", &[100, 100, 50], &[1, 2], &[(&[1], 50.0), (&[2], 50.0)]),
            ("A10", &[100], &[1], &[(&[1], 100.0)]),
        ] {
            let offer = offered(&pool(weights), healthy);
            assert_shares(shares(&offer.ipv4.unwrap()), expected, id);
        }
    }

    #[test]
    fn an_operators_weight_stands_in_for_the_configured_one() {
        for (weights, said, expected) in [
            (&[100, 100][..], &[(1, 25)][..], &[(&[1][..], 20.0), (&[2][..], 80.0)][..]),
            // equal again, so all addresses
            (&[100, 50], &[(1, 50)], &[(&[1, 2], 100.0)]),
            // 0 takes it out and leaves the shape as it is
            (&[100, 100, 100], &[(2, 0)], &[(&[1, 3], 100.0)]),
            (&[100, 50, 25], &[(1, 0), (2, 0)], &[(&[3], 100.0)]),
            // and back in
            (&[100, 0], &[(2, 100)], &[(&[1, 2], 100.0)]),
        ] {
            let pool = pool(weights);
            let weight = |n: u8| said.iter().find(|(of, _)| *of == n).map(|(_, weight)| Weight(*weight));
            let up = Standing { fitness: Fitness::Up, percent: 100, ..Standing::default() };
            let standings: Vec<_> =
                (1..=weights.len() as u8).map(|n| Standing { weight: weight(n), ..up }).collect();
            let offer = offer(&pool, pool_health(&pool, true, &standings), &standings);
            assert_shares(shares(&offer.ipv4.unwrap()), expected, &format!("{weights:?} {said:?}"));
            assert_shares(shares(&offer.fallback_ipv4), expected, &format!("{weights:?} {said:?}, fallback"));
        }
        let zero =
            Standing { fitness: Fitness::Up, percent: 100, weight: Some(Weight(0)), ..Standing::default() };
        let pool = pool(&[100]);
        assert!(!offer(&pool, pool_health(&pool, true, &[zero]), &[zero]).is_available());
    }

    #[test]
    fn p5_a_threshold_of_zero_does_not_make_an_empty_pool_available() {
        let zero = Pool { health_threshold: 0, ..pool(&[100, 100, 100]) };
        assert!(!offered(&zero, &[]).is_available());
        assert!(offered(&zero, &[2]).is_available());
    }

    #[test]
    fn answers_rotate() {
        let offer = offered(&pool(&[100; 4]), &[1, 2, 3, 4]);
        let mut firsts = [0; 5];
        for seed in 0..DRAWS {
            let answer = drawn(offer.ipv4.as_ref().unwrap(), seed);
            assert!(answer.windows(2).all(|pair| pair[1] == pair[0] % 4 + 1), "{answer:?} is no rotation");
            firsts[usize::from(answer[0])] += 1;
        }
        assert!(firsts[1..].iter().all(|&n| n > 4500), "{firsts:?}");
    }

    #[test]
    fn more_endpoints_than_max_answers_are_drawn_evenly_and_never_twice() {
        let many = pool(&[100; 20]);
        let all: Vec<u8> = (1..=20).collect();
        let offer = offered(&many, &all);
        let mut seen = [0; 21];
        for seed in 0..DRAWS {
            let mut answer = drawn(offer.ipv4.as_ref().unwrap(), seed);
            answer.iter().for_each(|&n| seen[usize::from(n)] += 1);
            answer.sort();
            answer.dedup();
            assert_eq!(answer.len(), 8);
        }
        let even = DRAWS as f64 * 8.0 / 20.0;
        assert!(seen[1..].iter().all(|&n| (f64::from(n) / even - 1.0).abs() < 0.08), "{seen:?}");
    }

    #[test]
    fn a_number_draws_by_weight_without_replacement() {
        let two = Pool { answer: AnswerShape::Number(2), ..pool(&[100, 100, 50]) };
        let got = shares(&offered(&two, &[1, 2, 3]).ipv4.unwrap());
        // by hand: P(1,2) = 2·(2/5·2/3), P(1,3) = P(2,3) = 2/5·1/3 + 1/5·1/2
        assert_shares(got, &[(&[1, 2], 53.3), (&[1, 3], 23.3), (&[2, 3], 23.3)], "two of three");
    }

    #[test]
    fn families_are_filtered_after_the_pool_was_chosen() {
        let mut mixed = pool(&[100, 100]);
        mixed.endpoints[1].address = "2001:db8::2".parse().unwrap();
        let offer = offered(&mixed, &[1, 2]);
        assert_eq!(offer.ipv4.as_ref().unwrap().answer_size(Chance::new(0)), 1);
        assert_eq!(offer.ipv6.as_ref().unwrap().answer_size(Chance::new(0)), 1);
        let offer = offered(&mixed, &[1]);
        assert!(offer.ipv6.as_ref().unwrap().is_empty(), "chosen, without an address of the family");
        mixed.family_threshold.ipv6 = 1;
        let offer = offered(&mixed, &[1]);
        assert!(offer.ipv4.is_some() && offer.ipv6.is_none(), "unavailable for that family only");
    }

    #[test]
    fn a_fallback_pool_ignores_health_but_not_the_operator() {
        let mut fallback = pool(&[100, 100, 100]);
        fallback.endpoints[2].enabled = false;
        assert_shares(shares(&offered(&fallback, &[]).fallback_ipv4), &[(&[1, 2], 100.0)], "enabled ones");
        fallback.enabled = false;
        assert!(offered(&fallback, &[1, 2]).fallback_ipv4.is_empty());
    }
}
