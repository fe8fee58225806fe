//! Maintenance windows: what is worked on, and when.

use std::time::Duration;

use super::super::place::{Place, Spot};
use super::super::problem::ProblemKind;
use super::super::reader::{Field, Scalar, brief};
use super::super::{shape, value};
use super::{Definitions, Lower};
use crate::clock::Clock;
use crate::model::{Maintenance, Scope, Window};
use crate::moment;

const WHEN: &str =
    "write `from: 2027-01-31T02:00:00Z` with `until` or `for`, or `weekly: \"sun 02:00\"` with `for`";
const A_YEAR: Duration = Duration::from_secs(366 * 24 * 3600);
const A_WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
const A_SECOND: Duration = Duration::from_secs(1);

impl Lower<'_> {
    pub(super) fn maintenance<'f>(
        &self,
        lists: impl Iterator<Item = &'f Field<Vec<Field<shape::Maintenance>>>>,
        pools: &Definitions<'_, shape::Pool>,
    ) -> Vec<Maintenance> {
        let now = Clock::start().now().elapsed().as_secs();
        let windows = lists.filter_map(Field::get).flatten();
        let given = windows.filter_map(|field| Some((field.place()?, field.get()?)));
        given.filter_map(|(place, shape)| self.window(place, shape, pools, now)).collect()
    }

    fn window(
        &self,
        place: Place,
        shape: &shape::Maintenance,
        pools: &Definitions<'_, shape::Pool>,
        now: u64,
    ) -> Option<Maintenance> {
        let of = self.worked_on(place, shape, pools);
        let reason = self.text(&shape.reason).filter(|(text, place)| {
            if text.is_empty() {
                self.empty_text(*place, "a reason");
            }
            !text.is_empty()
        });
        if shape.reason.is_absent() {
            let help = "say what is done, such as `reason: kernel update`";
            self.missing(place, "a maintenance window", "reason", help);
        }
        let when = self.when(place, shape)?;
        if let Window::Once { until, .. } = when
            && until <= now
        {
            let at = [&shape.until, &shape.from].into_iter().find_map(Field::place).unwrap_or(place);
            let kind = ProblemKind::WindowOver { until: moment::utc(until) };
            self.gather.warn(Spot::Value(at), kind, Some("take the window away".into()), None);
        }
        Some(Maintenance { of: of?, when, reason: reason?.0.into() })
    }

    fn worked_on(
        &self,
        place: Place,
        shape: &shape::Maintenance,
        pools: &Definitions<'_, shape::Pool>,
    ) -> Option<Scope> {
        if shape.pool.is_absent() {
            self.missing(place, "a maintenance window", "pool", "name the pool that is worked on");
        }
        let (pool, at) = self.text(&shape.pool)?;
        self.pool_id(pool, Spot::Value(at), pools)?;
        let endpoint = match &shape.endpoint {
            Field::Absent => None,
            field => {
                let (name, at) = self.text(field)?;
                self.endpoint_exists(pool, name, at, pools)?;
                Some(name.into())
            }
        };
        Some(Scope { pool: pool.into(), endpoint })
    }

    fn when(&self, place: Place, shape: &shape::Maintenance) -> Option<Window> {
        if let (Some(weekly), Some(other)) =
            (shape.weekly.place(), shape.from.place().or(shape.until.place()))
        {
            let key = self.gather.key_of(other);
            self.gather.refuse_with(
                Spot::Key(other),
                ProblemKind::BothKeys { first: "weekly".into(), second: key },
                Some("a window is once or every week: take one of the two away".into()),
                (Spot::Key(weekly), "the other one is here"),
            );
            return None;
        }
        if !shape.weekly.is_absent() {
            return self.weekly(place, shape);
        }
        if shape.from.is_absent() {
            let key = "from` or `weekly";
            self.missing(place, "a maintenance window", key, WHEN);
        }
        let from = self.time(&shape.from);
        let until = self.time(&shape.until);
        match (&shape.until, &shape.r#for) {
            (Field::Absent, Field::Absent) => {
                let help = "write when it ends, such as `until: 2027-01-31T04:00:00Z`, or `for: 2h`";
                self.missing(place, "a maintenance window", "until` or `for", help);
                None
            }
            (Field::Absent, length) => {
                let length = self.length(length, A_YEAR)?;
                let from = from?;
                Some(Window::Once { from, until: from + length })
            }
            (until_at, length) => {
                if let (Some(one), Some(other)) = (until_at.place(), length.place()) {
                    self.gather.refuse_with(
                        Spot::Key(other),
                        ProblemKind::BothKeys { first: "until".into(), second: "for".into() },
                        Some("keep one of the two".into()),
                        (Spot::Key(one), "the other one is here"),
                    );
                }
                let (from, until) = (from?, until?);
                if until <= from {
                    let kind = ProblemKind::WindowBackwards {};
                    let help = format!("write a time after {}", moment::utc(from));
                    let at = until_at.place().unwrap_or(place);
                    self.gather.refuse(Spot::Value(at), kind, Some(help));
                    return None;
                }
                Some(Window::Once { from, until })
            }
        }
    }

    fn weekly(&self, place: Place, shape: &shape::Maintenance) -> Option<Window> {
        if shape.r#for.is_absent() {
            let help = "write how long it lasts, such as `for: 2h`";
            self.missing(place, "a weekly maintenance window", "for", help);
        }
        let length = self.length(&shape.r#for, A_WEEK);
        let (text, at) = self.text(&shape.weekly)?;
        let Some(from) = value::weekly(text) else {
            let kind = ProblemKind::NotWeekly { value: brief(text) };
            let help = "write a day and a time in UTC, such as `\"sun 02:00\"`, or with an offset: \
                        `\"sun 02:00+02:00\"`";
            self.gather.refuse(Spot::Value(at), kind, Some(help.into()));
            return None;
        };
        Some(Window::Weekly { from, length: length? as u32 })
    }

    /// Whole seconds that a window lasts.
    fn length(&self, field: &Field<Scalar>, most: Duration) -> Option<u64> {
        let length = self.duration(field, A_SECOND..=most, A_SECOND);
        field.get().map(|_| length.as_secs())
    }

    fn time(&self, field: &Field<Scalar>) -> Option<u64> {
        let (text, place) = self.text(field)?;
        match value::time(text) {
            Ok(time) => Some(time),
            Err(help) => {
                let kind = ProblemKind::NotTime { value: brief(text) };
                self.gather.refuse(Spot::Value(place), kind, Some(help));
                None
            }
        }
    }
}
