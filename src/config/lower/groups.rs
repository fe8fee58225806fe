//! Which monitors a pool has, and how their verdicts become one.

use super::super::place::{Place, Spot};
use super::super::problem::ProblemKind;
use super::super::reader::{Field, Scalar, brief};
use super::super::shape;
use super::pools::Known;
use super::{Definitions, Lower};
use crate::model::{Combination, Member, MonitorId, Tests};

/// A group's members, disabled ones left out.
pub(super) type Groups = Vec<Vec<Member>>;

impl Lower<'_> {
    /// The monitor groups, by name.
    pub(super) fn monitor_groups(
        &self,
        definitions: &Definitions<'_, shape::MonitorGroup>,
        monitors: &Definitions<'_, shape::Monitor>,
    ) -> Groups {
        let members = |(name, field): &(&str, &Field<shape::MonitorGroup>)| match field {
            Field::Given(place, shape) => self.members(name, *place, shape, monitors),
            _ => Vec::new(),
        };
        definitions.sorted.iter().map(members).collect()
    }

    fn members(
        &self,
        name: &str,
        place: Place,
        shape: &shape::MonitorGroup,
        monitors: &Definitions<'_, shape::Monitor>,
    ) -> Vec<Member> {
        let help = "list its monitors: `members: [ { monitor: web } ]`";
        let list = match &shape.members {
            Field::Absent => {
                self.missing(place, &format!("the monitor group `{name}`"), "members", help);
                return Vec::new();
            }
            Field::Broken(_) => return Vec::new(),
            Field::Given(place, list) => {
                if list.is_empty() {
                    self.empty_list(*place, help);
                }
                list
            }
        };
        let mut named: Vec<(MonitorId, Place)> = Vec::new();
        let mut members = Vec::new();
        let mut broken = false;
        for field in list {
            let Field::Given(place, shape) = field else {
                broken = true;
                continue;
            };
            let monitor = self.either(&shape.monitor, &shape.monitor_id);
            if monitor.is_absent() {
                let help = "write the name of one of `monitors`, such as `monitor: web`";
                self.missing(*place, "a member of a monitor group", "monitor", help);
            }
            let enabled = self.boolean(&shape.enabled, true);
            let monitoring_only = self.boolean(&shape.monitoring_only, false);
            let must_be_healthy = self.boolean(&shape.must_be_healthy, false);
            let Some(monitor) = self.monitor_named(monitor, &mut named, monitors) else {
                broken = true;
                continue;
            };
            if enabled {
                let must_be_healthy = must_be_healthy && !monitoring_only;
                members.push(Member { monitor, votes: !monitoring_only, must_be_healthy });
            }
        }
        if !broken && !list.is_empty() && !members.iter().any(|member| member.votes) {
            let kind = ProblemKind::NoVoter { name: name.into() };
            let help = "enable a member without `monitoring_only`, or take the group away".to_owned();
            self.gather.warn(Spot::Key(place), kind, Some(help), None);
        }
        members
    }

    /// A monitor by its name, and one that is not among `named` yet.
    fn monitor_named(
        &self,
        field: &Field<Scalar>,
        named: &mut Vec<(MonitorId, Place)>,
        monitors: &Definitions<'_, shape::Monitor>,
    ) -> Option<MonitorId> {
        let (name, place) = self.text(field)?;
        let Some(id) = monitors.id(name).map(MonitorId) else {
            self.no_such_monitor(name, place, monitors);
            return None;
        };
        if let Some((_, first)) = named.iter().find(|(other, _)| *other == id) {
            self.listed_twice(place, *first, &format!("the monitor `{name}`"));
            return None;
        }
        named.push((id, place));
        Some(id)
    }

    /// The pool's monitors, and the places that name them.
    pub(super) fn tests(&self, shape: &shape::Pool, known: &Known<'_>) -> (Tests, Vec<(MonitorId, Place)>) {
        let is_empty = |field: &Field<Scalar>| field.get().is_some_and(|scalar| scalar.text.is_empty());
        let group = shape.monitor_group.place().filter(|_| !is_empty(&shape.monitor_group));
        let single = shape.monitor.place().filter(|_| !is_empty(&shape.monitor));
        if let (Some(one), Some(several)) = (shape.monitor.place(), shape.monitors.place()) {
            let help = "put all of them into `monitors`";
            self.exclude(("monitor", one), ("monitors", several), help);
        } else if let (Some(one), Some(group)) = (single, group) {
            let help = "keep `monitor_group`, and put the monitor into the group";
            self.exclude(("monitor", one), ("monitor_group", group), help);
        }
        if let (Some(several), Some(group)) = (shape.monitors.place(), group) {
            let help = "keep `monitor_group`, and put the monitors into the group";
            self.exclude(("monitors", several), ("monitor_group", group), help);
        }
        let named = self.monitors_of(shape, known.monitors);
        let least = self.at_least(shape, named.len());
        let Some((name, place)) = self.text(&shape.monitor_group).filter(|_| group.is_some()) else {
            let tests = Tests::all(named.iter().map(|(id, _)| *id));
            return (Tests { combination: least.unwrap_or(tests.combination), ..tests }, named);
        };
        let Some(id) = known.groups.id(name) else {
            if known.groups.complete {
                let help = self.define(name, "monitor_groups", known.groups);
                let kind = ProblemKind::NoSuchGroup { name: brief(name) };
                self.gather.refuse(Spot::Value(place), kind, Some(help));
            }
            return (Tests::default(), Vec::new());
        };
        let members = known.members[id as usize].clone();
        let named = members.iter().map(|member| (member.monitor, place)).collect();
        (Tests { members, combination: Combination::Majority }, named)
    }

    fn exclude(&self, first: (&str, Place), second: (&str, Place), help: &str) {
        self.gather.refuse_with(
            Spot::Key(second.1),
            ProblemKind::BothKeys { first: first.0.into(), second: second.0.into() },
            Some(help.into()),
            (Spot::Key(first.1), "the other one is here"),
        );
    }

    fn at_least(&self, shape: &shape::Pool, monitors: usize) -> Option<Combination> {
        let place = shape.at_least.place()?;
        let Field::Given(_, list) = &shape.monitors else {
            if shape.monitors.is_absent() {
                let help = "list the monitors, of which so many must pass, as `monitors: [a, b, c]`";
                let kind = ProblemKind::MissingKey { of: "`at_least`".into(), key: "monitors".into() };
                self.gather.refuse(Spot::Key(place), kind, Some(help.into()));
            }
            return None;
        };
        // those that were refused are meant to be there all the same
        let most = list.0.len().max(monitors).max(1) as u64;
        Some(Combination::AtLeast(self.number(&shape.at_least, 1..=most, 1) as u32))
    }

    fn monitors_of(
        &self,
        shape: &shape::Pool,
        monitors: &Definitions<'_, shape::Monitor>,
    ) -> Vec<(MonitorId, Place)> {
        let single = std::iter::once(&shape.monitor)
            .filter(|_| shape.monitors.is_absent())
            .filter(|field| field.get().is_some_and(|scalar| !scalar.text.is_empty()));
        if let Field::Given(place, list) = &shape.monitors
            && list.0.is_empty()
        {
            self.empty_list(*place, "name a monitor, or take the key away: the pool is then not monitored");
        }
        let several = shape.monitors.get().map(|list| &list.0[..]).unwrap_or_default();
        let mut named: Vec<(MonitorId, Place)> = Vec::new();
        for field in single.chain(several) {
            self.monitor_named(field, &mut named, monitors);
        }
        named
    }

    fn no_such_monitor(&self, name: &str, place: Place, monitors: &Definitions<'_, shape::Monitor>) {
        if !monitors.complete {
            return; // it may be in what couldn't be read
        }
        let help = self.define(name, "monitors", monitors);
        let kind = ProblemKind::NoSuchMonitor { name: brief(name) };
        self.gather.refuse(Spot::Value(place), kind, Some(help));
    }
}
