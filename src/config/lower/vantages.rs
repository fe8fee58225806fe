//! Where endpoints are probed from, and whose word counts for a pool.

use std::sync::Arc;
use std::time::Duration;

use super::super::place::{Place, Spot};
use super::super::problem::ProblemKind;
use super::super::reader::{Field, Scalar, brief};
use super::super::shape;
use super::{Definitions, Lower, Switch, simple_name};
use crate::model::{Doubt, HealthSource, Model, PoolId, Quorum, Reach, Vantage, VantageId, Viewpoints};

/// Cloudflare's regions. Operators may have others of their own.
const REGIONS: [&str; 13] =
    ["WNAM", "ENAM", "WEU", "EEU", "NSAM", "SSAM", "OC", "ME", "NAF", "SAF", "SAS", "SEAS", "NEAS"];
const ALL_REGIONS: &str = "ALL_REGIONS";
const SOURCES: &str = "write `[local, global]` or `[regional, global]`";

/// The vantages, and what this server is among them.
pub(super) struct Sites {
    pub vantages: Vec<Arc<Vantage>>,
    /// The vantage that is this server itself.
    local: Option<VantageId>,
    /// `local: true` says so.
    is_declared: bool,
    /// This server's region, and nothing said of it was refused.
    region: Option<Arc<str>>,
    /// Nothing of the vantages was left unread.
    complete: bool,
}

impl Lower<'_> {
    pub(super) fn vantages(
        &self,
        definitions: &Definitions<'_, shape::Vantage>,
        server: Option<&shape::Server>,
        pools: &Definitions<'_, shape::Pool>,
    ) -> Sites {
        let absent = shape::Server::default();
        let server = server.unwrap_or(&absent);
        let region = server.site.get().and_then(|site| self.region(&site.region));
        let sound = definitions.sorted.iter().all(|(_, field)| field.get().is_some());
        let complete = definitions.complete && sound;
        if definitions.sorted.is_empty() {
            let canaries = self.canaries(&server.canaries, pools);
            let own = Vantage { region: region.clone(), canaries, ..Vantage::default() };
            let local = Some(VantageId(0));
            return Sites { vantages: vec![Arc::new(own)], local, is_declared: false, region, complete };
        }
        let first = definitions.sorted.iter().filter_map(|(_, field)| field.place()).min();
        if let (Some(place), Some(first)) = (server.canaries.place(), first) {
            self.gather.refuse_with(
                Spot::Key(place),
                ProblemKind::BothKeys { first: "vantages".into(), second: "canaries".into() },
                Some("write `canaries` on the vantage that it is for".into()),
                (Spot::Key(first), "the first vantage is here"),
            );
        }
        let vantages: Vec<Arc<Vantage>> = (definitions.sorted.iter())
            .map(|(name, field)| Arc::new(self.vantage(name, field, pools)))
            .collect();
        let declared = self.declared_local(definitions);
        Sites {
            local: declared.or_else(|| only_here(definitions)),
            is_declared: declared.is_some(),
            vantages,
            region,
            complete,
        }
    }

    fn vantage(
        &self,
        name: &str,
        field: &Field<shape::Vantage>,
        pools: &Definitions<'_, shape::Pool>,
    ) -> Vantage {
        let plain = Vantage { name: name.into(), ..Vantage::default() };
        let Field::Given(_, shape) = field else { return plain };
        let remote = self.boolean(&shape.remote, false);
        if let Some(at) = shape.remote.place().filter(|_| remote) {
            let local = shape.local.place().filter(|_| is_true(&shape.local));
            let excluded = [shape.source.place(), shape.namespace.place(), local];
            for place in excluded.into_iter().flatten() {
                let key = self.gather.key_of(place);
                self.gather.refuse_with(
                    Spot::Key(place),
                    ProblemKind::BothKeys { first: "remote".into(), second: key },
                    Some("another machine probes from there and reports; take one of the two away".into()),
                    (Spot::Key(at), "the other one is here"),
                );
            }
        }
        let source = self.source(&shape.source);
        let namespace = self.namespace(&shape.namespace);
        let reach = if remote { Reach::Remote } else { Reach::Here { source, namespace } };
        let canaries = self.canaries(&shape.canaries, pools);
        Vantage { region: self.region(&shape.region), reach, canaries, ..plain }
    }

    /// The one vantage that says `local: true`.
    fn declared_local(&self, definitions: &Definitions<'_, shape::Vantage>) -> Option<VantageId> {
        let mut saying: Vec<(Place, VantageId)> = Vec::new();
        for ((_, field), id) in definitions.sorted.iter().zip(0..) {
            let Some(shape) = field.get() else { continue };
            let says = self.boolean(&shape.local, false) && !is_true(&shape.remote);
            saying.extend(shape.local.place().filter(|_| says).map(|place| (place, VantageId(id))));
        }
        saying.sort();
        let (&(first, local), others) = saying.split_first()?;
        for (place, _) in others {
            self.gather.refuse_with(
                Spot::Value(*place),
                ProblemKind::SeveralLocal {},
                Some("keep the one that stands where this server's users are".into()),
                (Spot::Value(first), "the other one is here"),
            );
        }
        Some(local)
    }

    fn namespace(&self, field: &Field<Scalar>) -> Option<Arc<str>> {
        let (text, place) = self.text(field)?;
        let odd = |c: char| c.is_whitespace() || c.is_control();
        let why = match text {
            "" => {
                self.empty_text(place, "a network namespace");
                return None;
            }
            "." | ".." => "it is a directory",
            text if text.contains('/') && !text.starts_with('/') => "a path begins with `/`",
            text if text.starts_with('/') && is_other_file(text) => "it is no file of a namespace",
            text if text.contains(odd) => "there is white space in it",
            text => return Some(text.into()),
        };
        let kind = ProblemKind::NotNamespace { value: brief(text), why: why.into() };
        let help = "write a name that `ip netns` lists, or a path such as `/proc/1/ns/net`".to_owned();
        self.gather.refuse(Spot::Value(place), kind, Some(help));
        None
    }

    /// A region's code: one of Cloudflare's, or one of the operator's own.
    fn region(&self, field: &Field<Scalar>) -> Option<Arc<str>> {
        let (text, place) = self.text(field)?;
        let refuse = |help: String| {
            let kind = ProblemKind::NotRegion { value: brief(text) };
            self.gather.refuse(Spot::Value(place), kind, Some(help));
            None
        };
        if let Some(help) = region_meant(text) {
            return refuse(help);
        }
        if !simple_name(text) {
            return refuse("its letters are a-z, A-Z, 0-9, `-` and `_`, as in `WEU`".into());
        }
        Some(text.into())
    }

    fn canaries(&self, field: &Field<Scalar>, pools: &Definitions<'_, shape::Pool>) -> Option<PoolId> {
        let (name, place) = self.text(field)?;
        self.pool_id(name, Spot::Value(place), pools)
    }

    /// When vantages doubt themselves.
    pub(super) fn doubt(&self, server: Option<&shape::Server>, vantages: &[Arc<Vantage>]) -> Doubt {
        let (millis, secs) = (Duration::from_millis, Duration::from_secs);
        let usual = Doubt::default();
        let sees_itself = vantages.len() > 1 || vantages.iter().any(|vantage| vantage.canaries.is_some());
        let share = sees_itself.then_some(50);
        let Some(server) = server else { return Doubt { share, ..usual } };
        Doubt {
            share: match self.switch(&server.panic_share) {
                Switch::Absent => share,
                Switch::Off => None,
                Switch::On | Switch::Other(..) => Some(self.number(&server.panic_share, 1..=100, 50) as u8),
            },
            window: self.duration(&server.panic_window, millis(100)..=secs(600), usual.window),
            hold: self.duration(&server.panic_hold, secs(1)..=secs(3600), usual.hold),
        }
    }

    /// Where a pool is seen from, and whose word counts.
    pub(super) fn viewpoints(&self, shape: &shape::Pool, sites: &Sites) -> Viewpoints {
        let all = || (0..sites.vantages.len() as u32).map(VantageId).collect();
        let listed = shape.check_regions.get().map(|list| &list.0[..]).unwrap_or_default();
        let named: Vec<(&str, Place)> = listed.iter().filter_map(|field| self.text(field)).collect();
        let mut regions: Vec<(&str, Place)> = Vec::new();
        for (text, place) in &named {
            match regions.iter().find(|(other, _)| other == text) {
                Some((_, first)) => {
                    self.listed_twice(*place, *first, &format!("the region `{}`", brief(text)));
                }
                None => regions.push((text, *place)),
            }
        }
        let every = regions.iter().find(|(text, _)| *text == ALL_REGIONS).copied();
        let single = regions.iter().find(|(text, _)| *text != ALL_REGIONS);
        if let (Some((_, place)), Some((single, _))) = (every, single) {
            let kind = ProblemKind::BothKeys { first: ALL_REGIONS.into(), second: brief(single) };
            let help = "write `[ALL_REGIONS]` alone, or the regions without it".to_owned();
            self.gather.refuse(Spot::Value(place), kind, Some(help));
        }
        let vantages: Vec<VantageId> = match every {
            _ if regions.is_empty() => all(),
            Some(_) => all(),
            None => {
                regions.retain(|(text, place)| self.is_seen(text, *place, sites));
                let there = |vantage: &Vantage| {
                    let region = vantage.region.as_deref();
                    region.is_some_and(|region| regions.iter().any(|(text, _)| *text == region))
                };
                let ids = sites.vantages.iter().zip(0..).filter(|(vantage, _)| there(vantage));
                ids.map(|(_, id)| VantageId(id)).collect()
            }
        };
        let asks_regions = !named.is_empty();
        let in_own =
            every.is_some() || regions.iter().any(|(text, _)| Some(*text) == sites.region.as_deref());
        Viewpoints {
            vantages: if vantages.is_empty() { all() } else { vantages },
            quorum: if asks_regions { Quorum::Regions } else { Quorum::Vantages },
            sources: self.health_sources(shape, sites, asks_regions, in_own),
        }
    }

    /// Whether some vantage is in a region; refuses it otherwise.
    fn is_seen(&self, text: &str, place: Place, sites: &Sites) -> bool {
        let known = || sites.vantages.iter().filter_map(|vantage| vantage.region.as_deref());
        if known().any(|region| region == text) {
            return true;
        }
        if sites.complete {
            let mut known: Vec<&str> = known().collect();
            known.sort_unstable();
            known.dedup();
            let help = region_meant(text).unwrap_or_else(|| match &known[..] {
                [] => format!("no vantage has a region: write `region: {}` on one", brief(text)),
                known => format!("the regions of `vantages` are: {}", known.join(", ")),
            });
            let kind = ProblemKind::NoSuchRegion { name: brief(text) };
            self.gather.refuse(Spot::Value(place), kind, Some(help));
        }
        false
    }

    fn health_sources(
        &self,
        shape: &shape::Pool,
        sites: &Sites,
        asks_regions: bool,
        in_own: bool,
    ) -> Vec<HealthSource> {
        let global = vec![HealthSource::Global];
        let listed = match &shape.health_sources {
            Field::Broken(_) => return global,
            Field::Given(_, list) => &list.0[..],
            Field::Absent => &[],
        };
        let words: Vec<&str> = listed.iter().filter_map(|field| self.text(field)).map(|(w, _)| w).collect();
        if words.len() < listed.len() {
            return global; // that was refused
        }
        let place = shape.health_sources.place();
        let needs = |source: &str, needs: &str, help: &str| {
            let kind = ProblemKind::SourceNeeds { source: source.into(), needs: needs.into() };
            let at = Spot::Value(place.expect("only what is listed needs something"));
            self.gather.refuse(at, kind, Some(help.into()));
            global.clone()
        };
        match (&words[..], sites.local, &sites.region) {
            ([], Some(local), _) if sites.is_declared && !asks_regions => {
                vec![HealthSource::Local(local), HealthSource::Global]
            }
            ([], ..) => global,
            (["local", "global"], ..) if asks_regions => needs(
                "local",
                "a pool without `check_regions`",
                "write `[regional, global]`, or take `check_regions` away",
            ),
            (["local", "global"], Some(local), _) => vec![HealthSource::Local(local), HealthSource::Global],
            (["local", "global"], None, _) if !sites.complete => global,
            (["local", "global"], None, _) => {
                needs("local", "a vantage of this server's own", "write `local: true` on one of `vantages`")
            }
            (["regional", "global"], ..) if !asks_regions => {
                needs("regional", "`check_regions`", "list the regions that this pool is probed from")
            }
            (["regional", "global"], _, None) if !self.whole => global,
            (["regional", "global"], _, None) => needs(
                "regional",
                "this server's region",
                "write `site: { region: WEU }` under `server`, with this server's own region",
            ),
            (["regional", "global"], _, Some(region)) if in_own => {
                vec![HealthSource::Regional(Arc::clone(region)), HealthSource::Global]
            }
            (["regional", "global"], _, Some(region)) => needs(
                "regional",
                &format!("this server's region, {region}, among `check_regions`"),
                &format!("add {region} to `check_regions`, or take `health_sources` away"),
            ),
            _ => {
                let value = brief(&format!("[{}]", words.join(", ")));
                let kind = ProblemKind::NotHealthSources { value };
                if let Some(place) = place {
                    self.gather.refuse(Spot::Value(place), kind, Some(SOURCES.into()));
                }
                global
            }
        }
    }

    /// Warns of vantages that no pool uses, and of canaries that tell nothing.
    pub(super) fn unused_vantages(
        &self,
        model: &Model,
        definitions: &Definitions<'_, shape::Vantage>,
        server: Option<&shape::Server>,
    ) {
        for (vantage, id) in model.vantages.iter().zip(0..).map(|(vantage, id)| (vantage, VantageId(id))) {
            let field = definitions.get(&vantage.name);
            let own = definitions.sorted.is_empty().then_some(server).flatten();
            let canaries = field.map(|shape| &shape.canaries).or(own.map(|server| &server.canaries));
            if let (Some(pool), Some(place)) = (vantage.canaries, canaries.and_then(Field::place)) {
                let pool = model.pool(pool);
                let why = match () {
                    _ if !pool.enabled => "it is disabled",
                    _ if !pool.is_monitored() => "it has no monitor",
                    _ if !pool.viewpoints.vantages.contains(&id) => "it isn't probed from there",
                    _ => continue,
                };
                let kind = ProblemKind::CanariesSilent { pool: pool.name.to_string(), why: why.into() };
                let help = "name a pool of endpoints that never fail all together".to_owned();
                self.gather.warn(Spot::Value(place), kind, Some(help), None);
            }
        }
        for vantage in model.vantages.iter().filter(|vantage| vantage.reach == Reach::Remote) {
            let place = definitions.get(&vantage.name).and_then(|shape| shape.remote.place());
            let Some(place) = place else { continue };
            let kind = ProblemKind::RemoteVantage { name: vantage.name.to_string() };
            let help =
                "take the vantage away, or let this server probe from there by `source` or `namespace`";
            self.gather.warn(Spot::Key(place), kind, Some(help.to_owned()), None);
        }
        let used = model.pools.iter().flat_map(|pool| &pool.viewpoints.vantages).map(|id| id.0).collect();
        for (name, place) in definitions.without(&used) {
            let kind = ProblemKind::UnusedVantage { name: name.into() };
            let help = "list its region in the `check_regions` of a pool, or take it away".to_owned();
            self.gather.warn(Spot::Key(place), kind, Some(help), None);
        }
    }
}

fn is_true(field: &Field<Scalar>) -> bool {
    field.get().is_some_and(|scalar| scalar.text.eq_ignore_ascii_case("true"))
}

/// The only vantage that this process probes from, if there is one and nothing
/// says otherwise.
fn only_here(definitions: &Definitions<'_, shape::Vantage>) -> Option<VantageId> {
    let ids = definitions.sorted.iter().zip(0..);
    let mut here = ids.filter_map(|((_, field), id)| Some((field.get()?, id)));
    let mut here = here.by_ref().filter(|(shape, _)| !is_true(&shape.remote));
    let (shape, id) = here.next()?;
    (here.next().is_none() && shape.local.is_absent()).then_some(VantageId(id))
}

/// What to write for a region that is none.
fn region_meant(text: &str) -> Option<String> {
    if text == ALL_REGIONS {
        return Some("a vantage is in one region; pools say `check_regions: [ALL_REGIONS]`".into());
    }
    if text.eq_ignore_ascii_case("IN") {
        return Some("South Asia is `SAS`".into());
    }
    let code = REGIONS.iter().find(|code| code.eq_ignore_ascii_case(text) && **code != text)?;
    Some(format!("write `{code}`"))
}

/// Whether something else than a namespace's file is there: a device, a pipe
/// or a directory. What is missing may come later.
fn is_other_file(path: &str) -> bool {
    std::fs::metadata(path).is_ok_and(|data| !data.is_file())
}
