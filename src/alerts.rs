//! From events to notices: who is told what, and when.
//!
//! Owns the rule that bad news opens an incident and that the recovery of the
//! same object ends it; what is too short to be told; what is gathered into
//! one notice; and how an object that comes and goes is kept from making noise.
//! Each route goes by its own rules, and knows nothing of the others.
//!
//! ```text
//!   bad ─► waiting ──delay, gathering──► told ──recovered, gathering──► over
//!             │ good: never told          │ └─ comes and goes: over only when it has held
//!             └─► over                    └─ repeat
//! ```
//!
//! Knows no sockets and no clock: events and the time go in, notices come out.

mod bodies;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::events::{Event, Kind, NewHealth};
use crate::model::{Model, Route};
use crate::moment::Moment;

pub use bodies::body;

/// What happens within this time of the first of it goes out together.
const GATHER: Duration = Duration::from_secs(2);

/// More incidents than these make one notice.
const FEW: usize = 3;

/// So many of them are named in one.
const NAMED: usize = 5;

/// An object whose incidents were told so often within [`FLAP_WINDOW`] is over
/// only when it has been well for [`FLAP_HOLD`].
const FLAPS: usize = 3;
const FLAP_WINDOW: Duration = Duration::from_secs(600);
const FLAP_HOLD: Duration = Duration::from_secs(300);

/// So many notices wait to be fetched; further ones are dropped and counted.
const MOST_NOTICES: usize = 1000;

/// So many octets of them wait at most.
const MOST_OCTETS: usize = 4 << 20;

/// Something to be told.
#[derive(Clone, Debug)]
pub struct Notice {
    pub route: Arc<Route>,
    pub turn: Turn,
    /// The incident's own: the same at its beginning and its end, and never again.
    pub incident: String,
    /// The object's: so that a receiver knows what it has heard of already.
    pub key: String,
    pub kind: Kind,
    /// When it is told.
    pub at: Moment,
    /// How it began.
    pub opened: Arc<Event>,
    /// How it ended; none: it lasts, or what it was about isn't there any more.
    pub closed: Option<Arc<Event>>,
    /// Since the beginning.
    pub lasted: Duration,
    /// How many objects it is about, and the names of the first of them.
    pub total: usize,
    pub named: Vec<String>,
    /// It comes and goes.
    pub flapping: bool,
}

impl Notice {
    /// About how much room it takes.
    pub fn octets(&self) -> usize {
        let named: usize = self.named.iter().map(String::len).sum();
        let closed = self.closed.as_ref().map_or(0, |event| event.octets());
        self.incident.len() + self.key.len() + named + self.opened.octets() + closed
    }
}

/// Which word of an incident a notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Start,
    /// It lasts: the first repetition is number 1.
    Repeat(u32),
    End,
}

/// The state of all routes.
#[derive(Debug, Default)]
pub struct Alerts {
    routes: Vec<Ledger>,
    notices: VecDeque<Notice>,
    dropped: u64,
}

type Object = (Kind, String);

/// What one route has open.
#[derive(Debug)]
struct Ledger {
    route: Arc<Route>,
    incidents: BTreeMap<Object, Incident>,
    groups: BTreeMap<u64, Group>,
    next_group: u64,
    /// When incidents of an object were told of late.
    told: BTreeMap<Object, VecDeque<Moment>>,
    /// Nothing happens by itself before.
    wake_at: Option<Moment>,
}

#[derive(Debug)]
struct Incident {
    opened: Arc<Event>,
    since: Moment,
    stage: Stage,
    /// It is well again: when that may be told, and how it came.
    over: Option<(Moment, Option<Arc<Event>>)>,
}

#[derive(Debug)]
enum Stage {
    /// Not told before then.
    Waiting(Moment),
    /// Told by itself.
    Told(Repeats),
    /// Told as one of many.
    Among(u64),
}

/// Many incidents told by one notice.
#[derive(Debug)]
struct Group {
    opened: Arc<Event>,
    since: Moment,
    kind: Kind,
    total: usize,
    named: Vec<String>,
    left: BTreeSet<Object>,
    repeats: Repeats,
}

#[derive(Debug)]
struct Repeats {
    next: Option<Moment>,
    number: u32,
}

impl Alerts {
    /// Takes on the routes of a configuration; incidents of a route whose name
    /// stays go on, unless they are about what isn't there any more.
    pub fn adopt(&mut self, model: &Model, now: Moment) {
        let mut before: BTreeMap<Arc<str>, Ledger> =
            self.routes.drain(..).map(|ledger| (Arc::clone(&ledger.route.name), ledger)).collect();
        for route in &model.alerts {
            let mut ledger = match before.remove(&route.name) {
                Some(ledger) => Ledger { route: Arc::clone(route), ..ledger },
                None => Ledger::new(Arc::clone(route)),
            };
            for (object, incident) in &mut ledger.incidents {
                if incident.over.is_none() && !(is_there(model, object) && wants(route, &incident.opened)) {
                    incident.over = Some((now, None));
                }
            }
            ledger.wake_at = ledger.next(); // delay and repeat may be others
            self.routes.push(ledger);
        }
    }

    /// Takes up what a former run has left open, each with the event that it
    /// began with: what was told then is not told again, but its end is.
    pub fn recall(&mut self, open: &[Arc<Event>], model: &Model, now: Moment) {
        for ledger in &mut self.routes {
            for event in open {
                let object = (event.kind, event.object.clone());
                if wants(&ledger.route, event) && is_there(model, &object) {
                    ledger.recall(object, event, now);
                }
            }
            ledger.wake_at = ledger.next();
        }
    }

    /// Whether any route has an incident of this object.
    pub fn is_open(&self, kind: Kind, object: &str) -> bool {
        let object = (kind, object.to_owned());
        self.routes.iter().any(|ledger| ledger.incidents.contains_key(&object))
    }

    /// The routes in force.
    pub fn routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.iter().map(|ledger| &ledger.route)
    }

    /// Takes in an event.
    pub fn take(&mut self, event: &Arc<Event>, now: Moment) {
        for ledger in &mut self.routes {
            if wants(&ledger.route, event) {
                ledger.take(event, now);
            }
        }
    }

    /// Does what is due by now.
    pub fn advance(&mut self, now: Moment) {
        for ledger in &mut self.routes {
            if ledger.wake_at.is_some_and(|at| at <= now) {
                ledger.advance(now, &mut self.notices);
            }
        }
        let before = self.notices.len();
        self.notices.truncate(MOST_NOTICES);
        let mut octets = 0;
        let fit = self.notices.iter().take_while(|notice| {
            octets += notice.octets();
            octets <= MOST_OCTETS
        });
        let fit = fit.count();
        self.notices.truncate(fit);
        self.dropped += (before - fit) as u64;
    }

    /// When to call [`Alerts::advance`] next, if nothing happens before.
    pub fn wake_at(&self) -> Option<Moment> {
        self.routes.iter().filter_map(|ledger| ledger.wake_at).min()
    }

    /// The next thing to be told, in order.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// How many notices nobody fetched in time.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// Whether a route is for news of this kind, about this object.
fn wants(route: &Route, event: &Event) -> bool {
    let of_pool = || match (&route.pools, &event.pool) {
        (None, _) => true,
        (Some(pools), Some(pool)) => pools.iter().any(|name| **name == *pool.name),
        (Some(_), None) => false,
    };
    match event.kind {
        Kind::Endpoint => route.on.endpoint && of_pool(),
        Kind::Pool => route.on.pool && of_pool(),
        Kind::LoadBalancer => {
            let named = route.load_balancers.as_ref();
            route.on.load_balancer
                && named.is_none_or(|all| all.iter().any(|n| n.to_string() == event.object))
        }
        Kind::Vantage => route.on.vantage,
        Kind::Records | Kind::Test => false,
    }
}

/// Whether a configuration has what an incident is about.
fn is_there(model: &Model, (kind, name): &Object) -> bool {
    match kind {
        Kind::Endpoint => name.split_once('/').is_some_and(|(pool, endpoint)| {
            let pool = model.pool_named(pool).map(|id| model.pool(id));
            pool.is_some_and(|pool| pool.endpoints.iter().any(|of| &*of.name == endpoint))
        }),
        Kind::Pool => model.pool_named(name).is_some(),
        Kind::LoadBalancer => {
            let mut all = model.zones.iter().flat_map(|zone| &zone.load_balancers);
            all.any(|balancer| balancer.name.to_string() == *name)
        }
        Kind::Vantage => model.vantage_named(name).is_some(),
        Kind::Records | Kind::Test => false,
    }
}

impl Ledger {
    fn new(route: Arc<Route>) -> Ledger {
        Ledger {
            route,
            incidents: BTreeMap::new(),
            groups: BTreeMap::new(),
            next_group: 0,
            told: BTreeMap::new(),
            wake_at: None,
        }
    }

    fn recall(&mut self, object: Object, event: &Arc<Event>, now: Moment) {
        let since = Moment::from_start(event.unix());
        let due = since + self.route.delay;
        let stage = match due + GATHER <= now {
            true => Stage::Told(Repeats { next: self.route.repeat.map(|time| now + time), number: 0 }),
            false => Stage::Waiting(due),
        };
        self.incidents.insert(object, Incident { opened: Arc::clone(event), since, stage, over: None });
    }

    fn take(&mut self, event: &Arc<Event>, now: Moment) {
        let object = (event.kind, event.object.clone());
        let wake_at = match (event.new_health, self.incidents.get_mut(&object)) {
            (NewHealth::Unknown, _) | (NewHealth::Healthy | NewHealth::Out, None) => return,
            (NewHealth::Unhealthy, Some(incident)) => {
                incident.over = None; // other words for what is known, or a return too soon
                return;
            }
            (NewHealth::Unhealthy, None) => {
                let due = now + self.route.delay;
                let (opened, stage) = (Arc::clone(event), Stage::Waiting(due));
                self.incidents.insert(object, Incident { opened, since: now, stage, over: None });
                due + GATHER
            }
            (_, Some(Incident { stage: Stage::Waiting(_), .. })) => {
                self.incidents.remove(&object); // too short to be told
                return;
            }
            (_, Some(Incident { over: Some(_), .. })) => return,
            (_, Some(incident)) => {
                let at = if is_flapping(&self.told, &object, now) { now + FLAP_HOLD } else { now };
                incident.over = Some((at, Some(Arc::clone(event))));
                at + GATHER
            }
        };
        self.wake_at = Some(self.wake_at.map_or(wake_at, |at| at.min(wake_at)));
    }

    /// Tells all that is ripe, if the gathering time of any of it is over.
    fn advance(&mut self, now: Moment, out: &mut VecDeque<Notice>) {
        if self.next().is_some_and(|at| at <= now) {
            self.begin_all(now, out);
            self.end_all(now, out);
            self.repeat_all(now, out);
            self.told.retain(|_, times| {
                times.retain(|at| now.since(*at) < FLAP_WINDOW);
                !times.is_empty()
            });
        }
        self.wake_at = self.next();
    }

    /// When something is to be told.
    fn next(&self) -> Option<Moment> {
        let of_incidents =
            self.incidents.values().filter_map(|incident| match (&incident.over, &incident.stage) {
                (Some((at, _)), _) => Some(*at + GATHER),
                (None, Stage::Waiting(due)) => Some(*due + GATHER),
                (None, Stage::Told(repeats)) => repeats.next,
                (None, Stage::Among(_)) => None,
            });
        of_incidents.chain(self.groups.values().filter_map(|group| group.repeats.next)).min()
    }

    fn begin_all(&mut self, now: Moment, out: &mut VecDeque<Notice>) {
        let mut ripe: BTreeMap<Kind, Vec<Object>> = BTreeMap::new();
        for (object, incident) in &self.incidents {
            if matches!(incident.stage, Stage::Waiting(due) if due <= now) && incident.over.is_none() {
                ripe.entry(object.0).or_default().push(object.clone());
            }
        }
        // what waited and isn't there any more was never told
        self.incidents.retain(|_, of| !(matches!(of.stage, Stage::Waiting(_)) && of.over.is_some()));
        for (kind, mut objects) in ripe {
            objects.sort_by_key(|object| self.incidents[object].since);
            for object in &objects {
                self.told.entry(object.clone()).or_default().push_back(now);
            }
            let repeats = Repeats { next: self.route.repeat.map(|time| now + time), number: 0 };
            if objects.len() > FEW {
                self.begin_group(kind, objects, repeats, now, out);
                continue;
            }
            for object in objects {
                let flapping = is_flapping(&self.told, &object, now);
                let incident = self.incidents.get_mut(&object).expect("ripe ones are there");
                incident.stage = Stage::Told(Repeats { ..repeats });
                let notice = alone(&self.route, incident, Turn::Start, flapping, now);
                tell(notice, out);
            }
        }
    }

    fn begin_group(
        &mut self,
        kind: Kind,
        objects: Vec<Object>,
        repeats: Repeats,
        now: Moment,
        out: &mut VecDeque<Notice>,
    ) {
        let number = self.next_group;
        self.next_group += 1;
        for object in &objects {
            self.incidents.get_mut(object).expect("ripe ones are there").stage = Stage::Among(number);
        }
        let first = &self.incidents[&objects[0]];
        let group = Group {
            opened: Arc::clone(&first.opened),
            since: first.since,
            kind,
            total: objects.len(),
            named: objects.iter().take(NAMED).map(|(_, name)| name.clone()).collect(),
            left: objects.into_iter().collect(),
            repeats,
        };
        tell(together(&self.route, &group, Turn::Start, None, now), out);
        self.groups.insert(number, group);
    }

    fn end_all(&mut self, now: Moment, out: &mut VecDeque<Notice>) {
        let is_over = |incident: &Incident| incident.over.as_ref().is_some_and(|(at, _)| *at <= now);
        let over: Vec<Object> =
            self.incidents.iter().filter(|(_, of)| is_over(of)).map(|(object, _)| object.clone()).collect();
        for object in over {
            let incident = self.incidents.remove(&object).expect("found just now");
            let closed = incident.over.as_ref().and_then(|(_, event)| event.clone());
            match incident.stage {
                Stage::Waiting(_) => {}
                Stage::Told(_) => {
                    let flapping = is_flapping(&self.told, &object, now);
                    tell(alone(&self.route, &incident, Turn::End, flapping, now), out);
                }
                Stage::Among(number) => {
                    let Some(group) = self.groups.get_mut(&number) else { continue };
                    group.left.remove(&object);
                    if group.left.is_empty()
                        && let Some(group) = self.groups.remove(&number)
                    {
                        tell(together(&self.route, &group, Turn::End, closed, now), out);
                    }
                }
            }
        }
    }

    fn repeat_all(&mut self, now: Moment, out: &mut VecDeque<Notice>) {
        let Some(gap) = self.route.repeat else { return };
        let again = |repeats: &mut Repeats| {
            let due = repeats.next.is_some_and(|at| at <= now);
            if due {
                repeats.number += 1;
                repeats.next = Some(now + gap);
            }
            due
        };
        for (object, incident) in &mut self.incidents {
            if let (Stage::Told(repeats), None) = (&mut incident.stage, &incident.over)
                && again(repeats)
            {
                let turn = Turn::Repeat(repeats.number);
                let flapping = is_flapping(&self.told, object, now);
                tell(alone(&self.route, incident, turn, flapping, now), out);
            }
        }
        for group in self.groups.values_mut() {
            if again(&mut group.repeats) {
                let turn = Turn::Repeat(group.repeats.number);
                tell(together(&self.route, group, turn, None, now), out);
            }
        }
    }
}

fn is_flapping(told: &BTreeMap<Object, VecDeque<Moment>>, object: &Object, now: Moment) -> bool {
    let Some(times) = told.get(object) else { return false };
    times.iter().filter(|at| now.since(**at) < FLAP_WINDOW).count() >= FLAPS
}

/// Lets out what the route wants to hear.
fn tell(notice: Notice, out: &mut VecDeque<Notice>) {
    let wanted = match notice.turn {
        Turn::Start | Turn::Repeat(_) => notice.route.unhealthy,
        Turn::End => notice.route.healthy,
    };
    if wanted {
        out.push_back(notice);
    }
}

fn alone(route: &Arc<Route>, incident: &Incident, turn: Turn, flapping: bool, now: Moment) -> Notice {
    let opened = &incident.opened;
    Notice {
        route: Arc::clone(route),
        turn,
        incident: format!("{}-{}", opened.id, route.name),
        key: format!("hale/{}/{}", opened.kind.as_str(), opened.object),
        kind: opened.kind,
        at: now,
        opened: Arc::clone(opened),
        closed: incident.over.as_ref().and_then(|(_, event)| event.clone()),
        lasted: now.since(incident.since),
        total: 1,
        named: vec![opened.object.clone()],
        flapping,
    }
}

fn together(
    route: &Arc<Route>,
    group: &Group,
    turn: Turn,
    closed: Option<Arc<Event>>,
    now: Moment,
) -> Notice {
    let opened = &group.opened;
    Notice {
        route: Arc::clone(route),
        turn,
        incident: format!("{}-{}", opened.id, route.name),
        key: format!("hale/{}/{}", group.kind.plural().replace(' ', "_"), opened.id),
        kind: group.kind,
        at: now,
        opened: Arc::clone(opened),
        closed,
        lasted: now.since(group.since),
        total: group.total,
        named: group.named.clone(),
        flapping: false,
    }
}
