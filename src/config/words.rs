//! What is known about keys beyond those that take effect.
//!
//! An API object pasted into a file carries fields that say nothing here,
//! fields of a later version, and fields of proxied load balancing. This
//! table tells them apart, so that a typo is the only unknown key.

use super::problem::ProblemKind;

/// What becomes of a key that no shape has.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// Taken and left out: it says what the server knows better, or remarks.
    Ignored,
    /// Refused, unless its value says no more than its absence.
    Later { harmless: &'static [&'static str], instead: &'static str },
    /// Refused: it is known, but belongs to something else.
    Elsewhere { instead: &'static str },
    /// Refused likewise.
    Proxied { harmless: &'static [&'static str], instead: &'static str },
}

/// The words for one shape.
#[derive(Debug)]
pub struct Words {
    /// As messages name it.
    pub name: &'static str,
    /// Keys whose null means absent, as Cloudflare's API writes it.
    pub null: &'static [&'static str],
    /// Second spellings, left out of lists of keys.
    pub aliases: &'static [&'static str],
    ignored: &'static [&'static str],
    fates: &'static [(&'static str, Fate)],
}

impl Words {
    pub fn fate(&self, key: &str) -> Option<Fate> {
        if self.ignored.contains(&key) {
            return Some(Fate::Ignored);
        }
        self.fates.iter().find(|(name, _)| *name == key).map(|(_, fate)| *fate)
    }
}

const fn later(instead: &'static str) -> Fate {
    Fate::Later { harmless: &[], instead }
}

const fn unless(harmless: &'static [&'static str], instead: &'static str) -> Fate {
    Fate::Later { harmless, instead }
}

const fn proxied(harmless: &'static [&'static str], instead: &'static str) -> Fate {
    Fate::Proxied { harmless, instead }
}

const fn elsewhere(instead: &'static str) -> Fate {
    Fate::Elsewhere { instead }
}

const NONE: Words = Words { name: "this map", null: &[], aliases: &[], ignored: &[], fates: &[] };

const OF_POOL: &str = "it is a key of a pool";
const NO_PLACES: &str = "steering does not go by places; take the key away";
const BY_ORDER: &str =
    "list the pools in `default_pools`, and steer them by `steering_policy: off` or `random`";

static FILE: Words = Words { name: "a file", fates: &[("places", later(BY_ORDER))], ..NONE };

static ZONE: Words = Words { name: "a zone", ..NONE };

static SERVER: Words = Words { name: "`server`", ..NONE };

static RATE_LIMIT: Words = Words {
    name: "`rate_limit`",
    fates: &[
        ("all_per_second", later("limit each kind of reply by its own key")),
        ("qps_scale", later("write the rates that shall hold at any load")),
        ("max_table_size", later("the table has a fixed size of 1 MiB")),
        ("min_table_size", later("the table has a fixed size of 1 MiB")),
        ("exempt_clients", elsewhere("write the networks under `exempt`")),
    ],
    ..NONE
};

static SITE: Words = Words {
    name: "`site`",
    fates: &[("country", later(NO_PLACES)), ("data_center", later(NO_PLACES))],
    ..NONE
};

static VANTAGE: Words = Words { name: "a vantage", ignored: &["description"], ..NONE };
static MAINTENANCE: Words = Words { name: "a maintenance window", ..NONE };

static MONITOR_GROUP: Words =
    Words { name: "a monitor group", ignored: &["id", "description", "created_on", "modified_on"], ..NONE };

static MEMBER: Words = Words {
    name: "a member of a monitor group",
    aliases: &["monitor_id"],
    ignored: &["created_at", "updated_at"],
    ..NONE
};

static HISTORY: Words = Words { name: "`history`", ..NONE };

static ALERT: Words = Words { name: "an alert", ..NONE };

static SOA: Words = Words { name: "`soa`", ..NONE };

static RECORD: Words = Words {
    name: "a record",
    ignored: &["octodns"],
    fates: &[
        ("dynamic", later("describe pools and a load balancer instead")),
        ("geo", later("describe pools and a load balancer instead")),
        ("healthcheck", later("describe pools and a load balancer instead")),
        ("depends_on", elsewhere("write it into each value that depends on something")),
    ],
    ..NONE
};

static MONITOR: Words = Words {
    name: "a monitor",
    null: &["header", "port", "expected_body", "expected_codes"],
    ignored: &["id", "description", "created_on", "modified_on"],
    fates: &[
        ("probe_zone", proxied(&[], "take it away: probes go straight to the address")),
        ("flap_limit", elsewhere(OF_POOL)),
        ("flap_window", elsewhere(OF_POOL)),
        ("flap_hold", elsewhere(OF_POOL)),
        ("stale_after", elsewhere(OF_POOL)),
        ("stale_if_error", elsewhere(OF_POOL)),
    ],
    ..NONE
};

static POOL: Words = Words {
    name: "a pool",
    null: &[
        "monitor",
        "monitor_group",
        "check_regions",
        "health_sources",
        "origin_steering",
        "endpoint_steering",
    ],
    aliases: &["origins", "minimum_origins", "origin_steering", "name"],
    ignored: &[
        "id",
        "description",
        "created_on",
        "modified_on",
        "disabled_at",
        "healthy",
        "failure_reason",
        "networks",
        "notification_email",
        "notification_filter",
        "latitude",
        "longitude",
    ],
    fates: &[(
        "load_shedding",
        unless(&["0", "random", "hash"], "lower the pool's weight under `random_steering` instead"),
    )],
};

static ENDPOINT: Words = Words {
    name: "an endpoint",
    null: &["header", "port"],
    ignored: &["id", "disabled_at", "healthy", "failure_reason", "flatten_cname", "description"],
    fates: &[(
        "virtual_network_id",
        proxied(&[], "take it away: endpoints are reached by this machine's own routes"),
    )],
    ..NONE
};

static LOAD_BALANCER: Words = Words {
    name: "a load balancer",
    null: &["random_steering", "session_affinity", "fallback_pool"],
    aliases: &["name", "proxied", "session_affinity"],
    ignored: &[
        "id",
        "description",
        "created_on",
        "modified_on",
        "networks",
        "zone_name",
        "session_affinity_ttl",
        "session_affinity_attributes",
    ],
    fates: &[
        ("rules", later(BY_ORDER)),
        ("pool_sets", later(BY_ORDER)),
        ("region_pools", later(BY_ORDER)),
        ("country_pools", later(BY_ORDER)),
        ("pop_pools", later(BY_ORDER)),
        ("location_strategy", unless(&["pop", "proximity"], BY_ORDER)),
        ("adaptive_routing", proxied(&["false"], "take it away")),
        ("tunnel_id", proxied(&[], "take it away")),
        ("fallback", later("the fallback pool answers whatever its health")),
    ],
};

static EJECTION: Words = Words { name: "`ejection`", ..NONE };
static FAMILY_THRESHOLD: Words = Words { name: "`family_threshold`", ..NONE };
static RANDOM_STEERING: Words =
    Words { name: "`random_steering`", null: &["pool_weights", "default_weight"], ..NONE };
static SLO: Words = Words { name: "`slo`", ..NONE };
static STEERING: Words = Words { name: "`endpoint_steering`", ..NONE };
static SCENARIO: Words = Words { name: "a scenario", ..NONE };
static STEP: Words = Words { name: "a step", ..NONE };

/// The words for the shape of this name.
pub fn of(shape: &str) -> &'static Words {
    match shape {
        "File" => &FILE,
        "Zone" => &ZONE,
        "Server" => &SERVER,
        "Site" => &SITE,
        "RateLimit" => &RATE_LIMIT,
        "Vantage" => &VANTAGE,
        "Maintenance" => &MAINTENANCE,
        "History" => &HISTORY,
        "Alert" => &ALERT,
        "Soa" => &SOA,
        "Record" => &RECORD,
        "Monitor" => &MONITOR,
        "MonitorGroup" => &MONITOR_GROUP,
        "Member" => &MEMBER,
        "Pool" => &POOL,
        "Ejection" => &EJECTION,
        "Endpoint" => &ENDPOINT,
        "LoadBalancer" => &LOAD_BALANCER,
        "FamilyThreshold" => &FAMILY_THRESHOLD,
        "Slo" => &SLO,
        "RandomSteering" => &RANDOM_STEERING,
        "Steering" => &STEERING,
        "Scenario" => &SCENARIO,
        "Step" => &STEP,
        _ => &NONE,
    }
}

/// What to do with a definition that stands where a name is due.
pub fn apart(key: &str) -> Option<String> {
    let section = match key.split('[').next()? {
        "monitor" | "monitors" => "monitors",
        "monitor_group" => "monitor_groups",
        "fallback_pool" | "default_pools" | "depends_on" | "canaries" => "pools",
        _ => return None,
    };
    Some(format!("define it under `{section}` and name it here"))
}

/// The key that a single value in a list of maps stands for.
pub fn wrapped_in(key: &str) -> Option<&'static str> {
    key.starts_with("members[").then_some("monitor")
}

/// Whether the map under a key has single values, so that a list of pairs means
/// the same.
pub fn is_of_pairs(key: &str) -> bool {
    matches!(key, "header" | "pool_weights")
}

/// What to do with a list that stands where one value is due.
pub fn one_of_several(key: &str) -> &'static str {
    match key {
        "monitor" => "several monitors, all of which must pass, are written as `monitors: [a, b]`",
        "fallback_pool" => "keep one of them; pools in failover order belong into `default_pools`",
        _ => "keep one of them",
    }
}

/// What does here what other programs call so.
pub fn steering_by_another_name(policy: &str) -> Option<&'static str> {
    let policy = policy.to_ascii_lowercase().replace(['-', ' '], "_");
    match policy.as_str() {
        "failover" | "fail_over" | "priority" | "ordered" | "order" | "first" | "active_passive"
        | "standard" | "static" | "none" => {
            Some("write `off`: the first available pool of `default_pools` answers, which is failover")
        }
        "round_robin"
        | "roundrobin"
        | "rr"
        | "weighted"
        | "weight"
        | "weights"
        | "weighted_round_robin"
        | "wrr"
        | "ratio"
        | "weighted_random"
        | "shuffle"
        | "active_active" => {
            Some("write `random`: each answer draws a pool, evenly or by the weights of `random_steering`")
        }
        _ => None,
    }
}

/// What to write for a lint that there isn't.
pub fn lint_meant(id: &str) -> String {
    match nearest(id, ProblemKind::LINTS.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "write the word that stands in `warning[…]`".to_owned(),
    }
}

/// The word most like `word`, if one is like enough to be meant.
pub fn nearest<'a>(word: &str, mut among: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let most = (word.chars().count() / 3).clamp(1, 3);
    let begun = |candidate: &&str| word.len() >= 3 && candidate.starts_with(word);
    among
        .clone()
        .filter(|candidate| candidate.len().abs_diff(word.len()) <= 2 * most)
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, candidate)| (*distance, candidate.len().abs_diff(word.len())))
        .map(|(_, candidate)| candidate)
        .or_else(|| among.find(begun))
}

/// How many letters must be added, taken away, changed or swapped with their
/// neighbour to make `b` of `a`; case doesn't count.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().map(|c| c.to_ascii_lowercase()).collect();
    let b: Vec<char> = b.chars().map(|c| c.to_ascii_lowercase()).collect();
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let changed = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + changed);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(rows[i - 2][j - 2] + 1);
            }
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_finds_the_word_meant() {
        let keys = ["steering_policy", "default_pools", "fallback_pool", "ttl", "endpoints", "enabled"];
        for (typo, meant) in [
            ("stering_policy", Some("steering_policy")),
            ("endpoint", Some("endpoints")),
            ("tll", Some("ttl")),
            ("Enabled", Some("enabled")),
            ("fallback_pools", Some("fallback_pool")),
            ("healthcheck", None),
            ("fall", Some("fallback_pool")),
            ("x", None),
        ] {
            assert_eq!(nearest(typo, keys.into_iter()), meant, "{typo}");
        }
    }
}
