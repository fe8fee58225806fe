//! Load balancers: their pools, their steering, what answers at the end.

use std::time::Duration;

use super::super::place::{Place, Spot};
use super::super::problem::ProblemKind;
use super::super::reader::{Field, Named, Scalar, brief};
use super::super::{shape, words};
use super::records::Unsure;
use super::zones::Balancers;
use super::{Definitions, Lower, Switch};
use crate::model::{LoadBalancer, Name, PoolId, SteeringPolicy, TtlPolicy, Weight, WhenUnavailable};

/// Above it a failure is followed late.
pub(super) const LONG_TTL: u32 = 300;

impl Lower<'_> {
    pub(super) fn load_balancers(
        &self,
        field: &Field<Named<shape::LoadBalancer>>,
        apex: &Name,
        pools: &Definitions<'_, shape::Pool>,
        unsure: &mut Unsure,
    ) -> Balancers {
        let mut all = Balancers::new();
        if self.is_torn(field) {
            unsure.add_everything();
        }
        for (key, field) in field.get().map(|named| &named.0[..]).unwrap_or_default() {
            let place = field.place().expect("what a map holds has a place");
            let Some(name) = self.owner(key, place, apex) else {
                unsure.add_everything();
                continue;
            };
            if let Some((_, first)) = all.get(&name) {
                self.gather.refuse_with(
                    Spot::Key(place),
                    ProblemKind::DefinedTwice { what: "load balancer".into(), name: name.to_string() },
                    Some("two keys make one name; keep one of them".into()),
                    (Spot::Key(*first), "it is defined first here"),
                );
                continue;
            }
            let Field::Given(place, shape) = field else {
                unsure.add(&name);
                continue;
            };
            let balancer = self.load_balancer(key, name.clone(), *place, shape, apex, pools);
            all.insert(name, (balancer, *place));
        }
        all
    }

    fn load_balancer(
        &self,
        key: &str,
        name: Name,
        place: Place,
        shape: &shape::LoadBalancer,
        apex: &Name,
        pools: &Definitions<'_, shape::Pool>,
    ) -> LoadBalancer {
        if let Some((text, at)) = self.text(&shape.name) {
            let full = text.parse::<Name>().is_ok_and(|read| read == name);
            let relative = Name::parse(text, apex).is_ok_and(|read| read == name);
            if !full && !relative {
                let kind = ProblemKind::OtherName { key: brief(key), name: brief(text) };
                let help = "take `name` away: the key is the name".to_owned();
                self.gather.refuse(Spot::Value(at), kind, Some(help));
            }
        }
        if self.boolean(&shape.proxied, false)
            && let Some(place) = shape.proxied.place()
        {
            self.proxied_value(place, "true", "write `proxied: false`, or take the key away");
        }
        if let Some((text, place)) = self.text(&shape.session_affinity) {
            match text {
                "" | "none" => {}
                "ip_cookie" | "source_ip" => {
                    self.later_value(place, text, "write `none`, or take the key away");
                }
                "cookie" | "header" => {
                    self.proxied_value(place, text, "write `none`, or take the key away");
                }
                _ => self.unknown_value(place, text, &["none"]),
            }
        }
        let ttl = self.seconds(&shape.ttl, 86400, 30);
        let ttl_policy = self.ttl_policy(&shape.ttl_policy);
        let is_long = ttl > LONG_TTL && ttl_policy == TtlPolicy::Fixed;
        if let Some(place) = shape.ttl.place().filter(|_| is_long) {
            let help = format!("30s is usual, above {LONG_TTL}s is for what hardly ever fails");
            self.gather.warn(Spot::Value(place), ProblemKind::LongTtl { ttl }, Some(help), None);
        }
        let listed = self.default_pools(key, place, shape, pools);
        let steering_policy = self.steering_policy(key, place, shape, &listed, pools);
        LoadBalancer {
            name,
            enabled: self.boolean(&shape.enabled, true),
            ttl,
            ttl_policy,
            steering_policy,
            default_pools: listed.iter().map(|(id, _)| *id).collect(),
            when_unavailable: self.when_unavailable(key, place, shape, pools),
            moves: self.moves(shape),
            slo: self.slo(&shape.slo),
        }
    }

    fn ttl_policy(&self, field: &Field<Scalar>) -> TtlPolicy {
        match self.text(field) {
            None | Some(("fixed", _)) => TtlPolicy::Fixed,
            Some(("derived", _)) => TtlPolicy::Derived,
            Some((other, place)) => {
                self.unknown_value(place, other, &["fixed", "derived"]);
                TtlPolicy::Fixed
            }
        }
    }

    /// At most so long from a failure to the last client moved.
    fn slo(&self, field: &Field<shape::Slo>) -> Option<Duration> {
        let Field::Given(place, slo) = field else { return None };
        if slo.failover.is_absent() {
            self.missing(
                *place,
                "`slo`",
                "failover",
                "write the longest time, such as `slo: { failover: 60s }`",
            );
            return None;
        }
        let range = Duration::from_secs(1)..=Duration::from_secs(86_400);
        slo.failover.get().map(|_| self.duration(&slo.failover, range, Duration::from_secs(86_400)))
    }

    fn default_pools(
        &self,
        key: &str,
        place: Place,
        shape: &shape::LoadBalancer,
        pools: &Definitions<'_, shape::Pool>,
    ) -> Vec<(PoolId, Place)> {
        let help = "list the pools in failover order: `default_pools: [eu, us]`";
        let mut listed: Vec<(PoolId, Place)> = Vec::new();
        match &shape.default_pools {
            Field::Absent => {
                self.missing(place, &format!("the load balancer `{key}`"), "default_pools", help)
            }
            Field::Broken(_) => {}
            Field::Given(place, list) if list.is_empty() => self.empty_list(*place, help),
            Field::Given(_, list) => {
                for field in list {
                    let Some((name, place)) = self.text(field) else { continue };
                    let Some(id) = self.pool_id(name, Spot::Value(place), pools) else { continue };
                    match listed.iter().find(|(other, _)| *other == id) {
                        Some((_, first)) => self.listed_twice(place, *first, &format!("the pool `{name}`")),
                        None => listed.push((id, place)),
                    }
                }
            }
        }
        listed
    }

    pub(super) fn pool_id(
        &self,
        name: &str,
        spot: Spot,
        pools: &Definitions<'_, shape::Pool>,
    ) -> Option<PoolId> {
        if let Some(id) = pools.id(name) {
            return Some(PoolId(id));
        }
        if !pools.complete {
            return None; // it may be in what couldn't be read
        }
        let help = self.define(name, "pools", pools);
        self.gather.refuse(spot, ProblemKind::NoSuchPool { name: brief(name) }, Some(help));
        None
    }

    fn steering_policy(
        &self,
        key: &str,
        place: Place,
        shape: &shape::LoadBalancer,
        listed: &[(PoolId, Place)],
        pools: &Definitions<'_, shape::Pool>,
    ) -> SteeringPolicy {
        let absent = shape::RandomSteering::default();
        let random = shape.random_steering.get().unwrap_or(&absent);
        let default = self.weight(&random.default_weight, Weight(100));
        let mut by_pool: Vec<(PoolId, Weight)> = Vec::new();
        for (name, field) in random.pool_weights.get().map(|named| &named.0[..]).unwrap_or_default() {
            let weight = self.weight(field, default);
            let Some(at) = field.place() else { continue };
            let Some(id) = self.pool_id(name, Spot::Key(at), pools) else { continue };
            if !listed.iter().any(|(other, _)| *other == id) {
                let kind = ProblemKind::UnusedWeight { pool: name.clone() };
                let help = "add the pool to `default_pools`, or take the weight away".to_owned();
                self.gather.warn(Spot::Key(at), kind, Some(help), None);
            }
            by_pool.push((id, weight));
        }
        match self.switch(&shape.steering_policy) {
            Switch::Absent | Switch::Off | Switch::Other("", _) => {
                let says = !random.default_weight.is_absent() || !by_pool.is_empty();
                if let Some(at) = shape.random_steering.place().filter(|_| says) {
                    let broken = matches!(shape.steering_policy, Field::Broken(_));
                    let kind = ProblemKind::WeightsWithoutRandom { name: key.into() };
                    let help = "write `steering_policy: random`, or take `random_steering` away".to_owned();
                    if !broken {
                        self.gather.warn(Spot::Key(at), kind, Some(help), None);
                    }
                }
                SteeringPolicy::Off
            }
            Switch::Other("random", _) => {
                let weight_of = |id: &PoolId| {
                    by_pool.iter().find(|(other, _)| other == id).map_or(default, |(_, weight)| *weight)
                };
                let weights: Vec<Weight> = listed.iter().map(|(id, _)| weight_of(id)).collect();
                if !weights.is_empty() && weights.iter().all(|weight| weight.0 == 0) {
                    let kind = ProblemKind::AllWeightsZero { of: format!("the load balancer `{key}`") };
                    let help = "raise a weight under `random_steering`".to_owned();
                    self.gather.warn(Spot::Key(place), kind, Some(help), None);
                }
                SteeringPolicy::Random(weights)
            }
            Switch::Other(
                other @ ("geo"
                | "dynamic_latency"
                | "proximity"
                | "least_outstanding_requests"
                | "least_connections"),
                place,
            ) => {
                self.later_value(place, other, "the policies are `off` (failover order) and `random`");
                SteeringPolicy::Off
            }
            Switch::On => {
                if let Field::Given(place, scalar) = &shape.steering_policy {
                    self.unknown_value(*place, &scalar.text, &["off", "random"]);
                }
                SteeringPolicy::Off
            }
            Switch::Other(other, place) => {
                match words::steering_by_another_name(other) {
                    None => self.unknown_value(place, other, &["off", "random"]),
                    Some(help) => {
                        let expected = "`off`, `random`".into();
                        let kind = ProblemKind::UnknownValue { value: brief(other), expected };
                        self.gather.refuse(Spot::Value(place), kind, Some(help.into()));
                    }
                }
                SteeringPolicy::Off
            }
        }
    }

    fn when_unavailable(
        &self,
        key: &str,
        place: Place,
        shape: &shape::LoadBalancer,
        pools: &Definitions<'_, shape::Pool>,
    ) -> WhenUnavailable {
        let fallback = self
            .text(&shape.fallback_pool)
            .and_then(|(name, place)| self.pool_id(name, Spot::Value(place), pools));
        match self.text(&shape.when_unavailable) {
            Some(("nodata", at)) => {
                if let Some(fallback) = shape.fallback_pool.place() {
                    self.gather.refuse_with(
                        Spot::Value(at),
                        ProblemKind::BothKeys {
                            first: "fallback_pool".into(),
                            second: "when_unavailable: nodata".into(),
                        },
                        Some("with `nodata` nothing falls back; take one of the two away".into()),
                        (Spot::Key(fallback), "the other one is here"),
                    );
                }
                return WhenUnavailable::Nodata;
            }
            Some(("last_good", at)) => {
                self.later_value(at, "last_good", "write `fallback_pool` or `nodata`");
            }
            None | Some(("fallback_pool", _)) => {
                if shape.fallback_pool.is_absent() && !matches!(shape.when_unavailable, Field::Broken(_)) {
                    let kind = ProblemKind::NoFallback { name: key.into() };
                    let help = "name the pool that answers when no other is available, or write \
                                `when_unavailable: nodata` to answer nothing then";
                    self.gather.refuse(Spot::Key(place), kind, Some(help.into()));
                }
            }
            Some((other, at)) => self.unknown_value(at, other, &["fallback_pool", "nodata"]),
        }
        WhenUnavailable::FallbackPool(fallback.unwrap_or(PoolId(0)))
    }
}
