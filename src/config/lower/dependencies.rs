//! What pools and endpoints need: whether it exists, and whether it goes round
//! in a circle.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::place::{Place, Spot};
use super::super::problem::ProblemKind;
use super::super::reader::{Branch, Field, OneOrMany, Scalar, Tree, brief};
use super::super::{shape, words};
use super::{Definitions, Lower};
use crate::model::{Dependency, PoolId, Scope};

/// A pool, or one of its endpoints.
type Node = (u32, Option<Arc<str>>);

/// Who needs whom, and where it says so.
#[derive(Default)]
pub(super) struct Needs(RefCell<BTreeMap<Node, Vec<(Node, Place)>>>);

impl Needs {
    fn add(&self, from: Node, to: Node, place: Place) {
        self.0.borrow_mut().entry(from).or_default().push((to, place));
    }

    /// What a node needs. A pool is only as good as its endpoints, and what it
    /// needs each of them needs.
    fn of(&self, node: &Node) -> Vec<(Node, Option<Place>)> {
        let all = self.0.borrow();
        let said = |node: &Node| {
            let said = all.get(node).map(|list| &list[..]).unwrap_or_default();
            said.iter().map(|(to, place)| (to.clone(), Some(*place))).collect::<Vec<_>>()
        };
        let mut needs = said(node);
        match node {
            (pool, None) => {
                let ends = all.range((*pool, None)..(*pool + 1, None)).map(|(from, _)| from);
                needs.extend(ends.filter(|(_, end)| end.is_some()).map(|end| (end.clone(), None)));
            }
            (pool, Some(_)) => needs.extend(said(&(*pool, None))),
        }
        needs
    }
}

impl Lower<'_> {
    /// What a pool, or one of its endpoints, depends on.
    pub(super) fn depends_on(
        &self,
        field: &Field<OneOrMany<Scalar>>,
        own: &Scope,
        pools: &Definitions<'_, shape::Pool>,
        needs: &Needs,
    ) -> Vec<Dependency> {
        self.named_dependencies(field, pools, |to, place| {
            let PoolId(id) = to.pool;
            let same_pool = pools.id(&own.pool) == Some(id);
            if same_pool && (own.endpoint.is_none() || to.endpoint.is_none() || to.endpoint == own.endpoint) {
                let scope = Scope { pool: pools.sorted[id as usize].0.into(), endpoint: to.endpoint.clone() };
                let kind = ProblemKind::NeedsItself { of: own.to_string(), value: brief(&scope.to_string()) };
                let help = "name another pool, or an endpoint of another pool".to_owned();
                self.gather.refuse(Spot::Value(place), kind, Some(help));
                return false;
            }
            if let Some(from) = pools.id(&own.pool) {
                needs.add((from, own.endpoint.clone()), (id, to.endpoint.clone()), place);
            }
            true
        })
    }

    /// What the value of a record depends on.
    pub(super) fn record_depends_on(
        &self,
        branch: &Branch,
        pools: &Definitions<'_, shape::Pool>,
    ) -> Vec<Dependency> {
        let written = match &branch.tree {
            Tree::List(items) => &items[..],
            Tree::Null | Tree::Single(_) => std::slice::from_ref(branch),
            Tree::Map(_) => {
                self.wrong_tree(
                    branch,
                    "one name or a list",
                    "write for example `mail/mx1`, or `[mail/mx1, db]`",
                );
                return Vec::new();
            }
        };
        let item = |item: &Branch| Some(Field::Given(item.place, self.single(item)?.clone()));
        let items: Vec<Field<Scalar>> = written.iter().filter_map(item).collect();
        if items.is_empty() && !written.is_empty() {
            return Vec::new(); // what is wrong has been said
        }
        self.named_dependencies(&Field::Given(branch.place, OneOrMany(items)), pools, |to, place| {
            self.followed.borrow_mut().push((to.clone(), place));
            true
        })
    }

    /// The pools and endpoints of a list, none twice, as far as they are `right`.
    fn named_dependencies(
        &self,
        field: &Field<OneOrMany<Scalar>>,
        pools: &Definitions<'_, shape::Pool>,
        right: impl Fn(&Dependency, Place) -> bool,
    ) -> Vec<Dependency> {
        let Field::Given(place, list) = field else { return Vec::new() };
        if list.0.is_empty() {
            self.empty_list(*place, "name a pool or an endpoint (`eu`, `eu/eu-1`), or take the key away");
        }
        let mut found: Vec<(Dependency, Place)> = Vec::new();
        for item in &list.0 {
            let Some((text, place)) = self.text(item) else { continue };
            let Some(scope) = self.scope(text, place, pools) else { continue };
            let id = pools.id(&scope.pool).expect("a scope's pool exists");
            let to = Dependency { pool: PoolId(id), endpoint: scope.endpoint };
            if let Some((_, first)) = found.iter().find(|(other, _)| *other == to) {
                self.listed_twice(place, *first, &format!("`{}`", brief(text)));
            } else if right(&to, place) {
                found.push((to, place));
            }
        }
        found.into_iter().map(|(dependency, _)| dependency).collect()
    }

    /// `POOL` or `POOL/ENDPOINT`, if it exists.
    fn scope(&self, text: &str, place: Place, pools: &Definitions<'_, shape::Pool>) -> Option<Scope> {
        let (pool, endpoint) = match text.split_once('/') {
            Some((pool, endpoint)) => (pool, Some(endpoint)),
            None => (text, None),
        };
        self.pool_id(pool, Spot::Value(place), pools)?;
        if let Some(endpoint) = endpoint {
            self.endpoint_exists(pool, endpoint, place, pools)?;
        }
        Some(Scope { pool: pool.into(), endpoint: endpoint.map(Into::into) })
    }

    /// Refuses an endpoint that the pool doesn't have. Where the pool isn't
    /// readable, nobody knows.
    pub(super) fn endpoint_exists(
        &self,
        pool: &str,
        endpoint: &str,
        place: Place,
        pools: &Definitions<'_, shape::Pool>,
    ) -> Option<()> {
        let shape = pools.get(pool)?;
        let list = if shape.endpoints.is_absent() { &shape.origins } else { &shape.endpoints };
        let list = list.get()?;
        let names: Vec<Option<&str>> =
            (list.iter()).map(|field| Some(&*field.get()?.name.get()?.text)).collect();
        if names.contains(&Some(endpoint)) {
            return Some(());
        }
        if names.iter().all(Option::is_some) {
            let known: Vec<&str> = names.into_iter().flatten().collect();
            let near = words::nearest(endpoint, known.iter().copied());
            let help = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => {
                    let more = if known.len() > 8 { ", …" } else { "" };
                    let some: Vec<String> = known.iter().take(8).map(|name| brief(name)).collect();
                    format!("its endpoints are: {}{more}", some.join(", "))
                }
            };
            let kind = ProblemKind::NoSuchEndpoint { pool: brief(pool), name: brief(endpoint) };
            self.gather.refuse(Spot::Value(place), kind, Some(help));
        }
        None
    }

    /// Refuses what needs itself by way of others, once for each circle.
    pub(super) fn circles(&self, needs: &Needs, pools: &Definitions<'_, shape::Pool>) {
        let name = |(pool, endpoint): &Node| {
            let pool = pools.sorted[*pool as usize].0.into();
            Scope { pool, endpoint: endpoint.clone() }.to_string()
        };
        let starts: Vec<Node> = needs.0.borrow().keys().cloned().collect();
        let mut done: BTreeSet<Node> = BTreeSet::new();
        let mut told: BTreeSet<Place> = BTreeSet::new();
        for start in starts {
            if done.contains(&start) {
                continue;
            }
            // the way down to where we are: a node, how it was reached, and what is left of its needs
            let mut way = vec![(start.clone(), None, needs.of(&start).into_iter())];
            let mut on_way = BTreeMap::from([(start, 0)]);
            while let Some((_, _, left)) = way.last_mut() {
                let Some((next, place)) = left.next() else {
                    if let Some((node, ..)) = way.pop() {
                        on_way.remove(&node);
                        done.insert(node);
                    }
                    continue;
                };
                if let Some(&begin) = on_way.get(&next) {
                    let places = way[begin + 1..].iter().map(|(_, place, _)| *place).chain([place]);
                    let closing: Option<Place> = places.flatten().last();
                    if let Some(closing) = closing.filter(|closing| told.insert(*closing)) {
                        let nodes = way[begin..].iter().map(|(node, ..)| name(node)).chain([name(&next)]);
                        let path = nodes.collect::<Vec<_>>().join(" -> ");
                        let help = "take one of these dependencies away".to_owned();
                        let kind = ProblemKind::NeedsCircle { path };
                        self.gather.refuse(Spot::Value(closing), kind, Some(help));
                    }
                } else if !done.contains(&next) {
                    let further = needs.of(&next).into_iter();
                    on_way.insert(next.clone(), way.len());
                    way.push((next, place, further));
                }
            }
        }
    }
}
