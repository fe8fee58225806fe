//! What was so when: of load balancers, pools and endpoints.
//!
//! All times count from the moment at which the server began to answer.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::authority::BalancerState;
use crate::health::PoolState;
use crate::model::{Name, Scope};

/// A life, from its beginning to its end.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    pub title: Option<String>,
    /// Unix time of the beginning.
    pub start: u64,
    pub length: Duration,
    pub balancers: Vec<BalancerRow>,
    pub pools: Vec<PoolRow>,
    pub endpoints: Vec<EndpointRow>,
    pub events: Vec<Happened>,
    pub checks: Vec<Checked>,
    /// Probes made.
    pub probes: u64,
}

/// What something was, one after the other.
#[derive(Clone, Debug)]
pub struct Track<T>(Vec<Span<T>>);

/// Something that was so for a while.
#[derive(Clone, Debug, PartialEq)]
pub struct Span<T> {
    pub from: Duration,
    pub to: Duration,
    pub value: T,
}

/// A load balancer.
#[derive(Clone, Debug)]
pub struct BalancerRow {
    pub name: Name,
    /// The longest TTL it had, in seconds.
    pub ttl: u32,
    pub track: Track<Held>,
}

/// What is held of a load balancer.
#[derive(Clone, Debug, PartialEq)]
pub enum Held {
    /// No configuration in force has it.
    Absent,
    /// No server is there to answer.
    Down,
    Answers(Answering),
}

impl Held {
    /// What it answers, if it does.
    pub fn answers(&self) -> Option<&Answering> {
        match self {
            Held::Answers(answering) => Some(answering),
            Held::Absent | Held::Down => None,
        }
    }
}

/// What a load balancer answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Answering {
    pub state: BalancerState,
    /// The pools that answer; none: only the SOA.
    pub pools: Vec<Arc<str>>,
    /// They are the fallback pool.
    pub fallback: bool,
    pub addresses: BTreeSet<IpAddr>,
    /// Those among the addresses that don't work.
    pub unfit: BTreeSet<(Scope, IpAddr)>,
}

/// A pool.
#[derive(Clone, Debug)]
pub struct PoolRow {
    pub name: Arc<str>,
    pub track: Track<Option<PoolState>>,
}

/// An endpoint.
#[derive(Clone, Debug)]
pub struct EndpointRow {
    pub scope: Scope,
    pub address: IpAddr,
    pub track: Track<Option<Stand>>,
}

/// Where an endpoint stands, and what is true of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stand {
    /// How it stands, in one word.
    pub word: &'static str,
    /// It may be in answers.
    pub up: bool,
    /// Of its weight it gets a part.
    pub partial: bool,
    pub stale: bool,
    pub degraded: bool,
    pub starting: bool,
    /// Probes or reports have said something of it.
    pub measured: bool,
    /// Clients are served there.
    pub works: bool,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Happened {
    pub at: Duration,
    pub who: Who,
    pub text: String,
}

/// Who did it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Scenario,
    Server,
}

/// What was expected, and what came.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    pub at: Duration,
    /// Where the scenario says it.
    pub place: String,
    pub what: String,
    pub expected: String,
    pub got: String,
}

impl Checked {
    /// Whether it came as expected.
    pub fn holds(&self) -> bool {
        self.expected == self.got
    }
}

/// An address that answers carried while it did not work.
#[derive(Clone, Debug, PartialEq)]
pub struct Exposure {
    pub scope: Scope,
    pub address: IpAddr,
    pub from: Duration,
    /// When it left the answers, or worked again.
    pub to: Duration,
    pub end: End,
    /// When no client had it any more, or it worked again: an answer is kept
    /// for its TTL.
    pub clients_until: Duration,
}

/// How an exposure ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The address left the answers.
    Left,
    /// The endpoint worked again.
    Worked,
    /// It lasted as long as the timeline.
    Lasted,
}

impl<T> Default for Track<T> {
    fn default() -> Track<T> {
        Track(Vec::new())
    }
}

impl<T: PartialEq> Track<T> {
    /// From `at` on it is `value`; tells whether that is something else.
    pub fn note(&mut self, at: Duration, value: T) -> bool {
        if let Some(last) = self.0.last_mut() {
            if last.value == value {
                return false;
            }
            last.to = at;
            if last.from == at {
                self.0.pop();
                if self.0.last().is_some_and(|last| last.value == value) {
                    self.0.last_mut().expect("there is one").to = Duration::MAX;
                    return true;
                }
            }
        }
        self.0.push(Span { from: at, to: Duration::MAX, value });
        true
    }

    /// It ends at `at`.
    fn close(&mut self, at: Duration) {
        self.0.retain(|span| span.from < at);
        if let Some(last) = self.0.last_mut() {
            last.to = last.to.min(at);
        }
    }

    /// What it was, in order and without gaps.
    pub fn spans(&self) -> &[Span<T>] {
        &self.0
    }
}

impl Timeline {
    /// Cuts off what comes after `at`.
    pub fn close(&mut self, at: Duration) {
        self.length = at;
        self.balancers.iter_mut().for_each(|row| row.track.close(at));
        self.pools.iter_mut().for_each(|row| row.track.close(at));
        self.endpoints.iter_mut().for_each(|row| row.track.close(at));
        self.events.retain(|event| event.at <= at);
    }

    /// The endpoints of a pool.
    pub fn endpoints_of<'a>(&'a self, pool: &'a str) -> impl Iterator<Item = &'a EndpointRow> {
        self.endpoints.iter().filter(move |row| &*row.scope.pool == pool)
    }

    /// When the address works again after `at`; none: not in this timeline.
    fn works_again(&self, scope: &Scope, address: IpAddr, at: Duration) -> Option<Duration> {
        let row = self.endpoints.iter().find(|row| row.scope == *scope && row.address == address)?;
        let mut later = row.track.spans().iter().filter(|span| span.to > at);
        later.find(|span| span.value.is_some_and(|stand| stand.works)).map(|span| span.from.max(at))
    }

    /// What of a load balancer's answers did not work, by time.
    pub fn exposures(&self, balancer: &BalancerRow) -> Vec<Exposure> {
        let mut found: Vec<Exposure> = Vec::new();
        let spans = balancer.track.spans();
        for (number, span) in spans.iter().enumerate() {
            let Some(answering) = span.value.answers() else { continue };
            for (scope, address) in &answering.unfit {
                let unfit = |span: &Span<Held>| {
                    let there = (scope.clone(), *address);
                    span.value.answers().is_some_and(|other| other.unfit.contains(&there))
                };
                if number > 0 && unfit(&spans[number - 1]) {
                    continue; // it began before
                }
                let last = spans[number..].iter().take_while(|span| unfit(span)).last().unwrap_or(span);
                let after = spans.iter().find(|span| span.from >= last.to);
                let still = after
                    .and_then(|span| span.value.answers())
                    .is_some_and(|it| it.addresses.contains(address));
                let end = match (after, still) {
                    (None, _) => End::Lasted,
                    (Some(_), true) => End::Worked,
                    (Some(_), false) => End::Left,
                };
                let ttl = Duration::from_secs(u64::from(balancer.ttl));
                let clients_until = match end {
                    End::Worked => last.to,
                    End::Lasted | End::Left => {
                        let again = self.works_again(scope, *address, last.to);
                        again.map_or(last.to + ttl, |again| again.min(last.to + ttl))
                    }
                };
                let (scope, address) = (scope.clone(), *address);
                found.push(Exposure { scope, address, from: span.from, to: last.to, end, clients_until });
            }
        }
        found.sort_by_key(|exposure| exposure.from);
        found
    }
}

impl BalancerRow {
    /// How long something in its answers did not work.
    pub fn unfit_for(&self) -> Duration {
        self.lasting(|held| held.answers().is_some_and(|it| !it.unfit.is_empty()))
    }

    /// How long it had no address to answer with, or nobody answered.
    pub fn silent_for(&self) -> Duration {
        self.lasting(|held| match held {
            Held::Absent => false,
            Held::Down => true,
            Held::Answers(answering) => answering.addresses.is_empty(),
        })
    }

    fn lasting(&self, is: impl Fn(&Held) -> bool) -> Duration {
        self.track.spans().iter().filter(|span| is(&span.value)).map(|span| span.to - span.from).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn what_lasts_no_time_leaves_no_trace() {
        let mut track = Track::default();
        for (at, value) in [(0, 'a'), (5, 'b'), (5, 'a'), (7, 'c'), (7, 'd'), (9, 'd')] {
            track.note(seconds(at), value);
        }
        track.close(seconds(10));
        let spans: Vec<_> =
            track.spans().iter().map(|s| (s.from.as_secs(), s.to.as_secs(), s.value)).collect();
        assert_eq!(spans, [(0, 7, 'a'), (7, 10, 'd')]);
    }

    #[test]
    fn clients_follow_an_answer_by_its_ttl_unless_the_endpoint_works_again() {
        let scope = Scope { pool: "eu".into(), endpoint: Some("eu-1".into()) };
        let address = IpAddr::from([192, 0, 2, 1]);
        for (left, works, end, until) in [
            (20, 100, End::Left, 50),
            (20, 40, End::Left, 40),
            (60, 40, End::Worked, 40),
            (200, 200, End::Lasted, 130),
        ] {
            let mut timeline = Timeline::default();
            let stand = |works| Stand {
                word: "healthy",
                up: true,
                partial: false,
                stale: false,
                degraded: false,
                starting: false,
                measured: true,
                works,
            };
            let mut track = Track::default();
            for (at, works) in [(0, true), (10, false), (works, true)] {
                track.note(seconds(at), Some(stand(works)));
            }
            timeline.endpoints.push(EndpointRow { scope: scope.clone(), address, track });
            let mut track = Track::default();
            let answering = |there: bool, unfit: bool| Answering {
                state: BalancerState::Healthy,
                pools: vec!["eu".into()],
                fallback: false,
                addresses: there.then_some(address).into_iter().collect(),
                unfit: unfit.then(|| (scope.clone(), address)).into_iter().collect(),
            };
            let mut moments = vec![0, 10, left, works];
            moments.sort_unstable();
            for at in moments {
                let there = at < left;
                track.note(seconds(at), Held::Answers(answering(there, there && (10..works).contains(&at))));
            }
            let name = "www.example.com".parse().unwrap();
            timeline.balancers.push(BalancerRow { name, ttl: 30, track });
            timeline.close(seconds(100));
            let found = timeline.exposures(&timeline.balancers[0]);
            let [only] = &found[..] else { panic!("{found:?}") };
            assert_eq!(
                (only.from, only.end, only.clients_until),
                (seconds(10), end, seconds(until)),
                "{left} {works}"
            );
        }
    }
}
