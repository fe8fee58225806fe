//! The shape of the files: which keys stand where.
//!
//! Every key is a [`Field`], so that one that is wrong does not hide the
//! others. Meaning, ranges and defaults are `lower`'s.

use serde::Deserialize;

use super::reader::{Field, Named, OneOrMany, Scalar, SingleOrMap, Tree};

/// One file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct File {
    pub server: Field<Server>,
    pub monitors: Field<Named<Monitor>>,
    pub monitor_groups: Field<Named<MonitorGroup>>,
    pub pools: Field<Named<Pool>>,
    pub vantages: Field<Named<Vantage>>,
    pub maintenance: Field<Vec<Field<Maintenance>>>,
    pub zone: Field<Scalar>,
    pub ttl: Field<Scalar>,
    pub soa: Field<Soa>,
    pub records: Field<Records>,
    pub zone_file: Field<Scalar>,
    pub format: Field<Scalar>,
    pub load_balancers: Field<Named<LoadBalancer>>,
    pub zones: Field<Named<Zone>>,
    pub alerts: Field<Named<Alert>>,
}

/// A zone under `zones`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Zone {
    pub ttl: Field<Scalar>,
    pub soa: Field<Soa>,
    pub records: Field<Records>,
    pub zone_file: Field<Scalar>,
    pub format: Field<Scalar>,
    pub load_balancers: Field<Named<LoadBalancer>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    pub listen: Field<OneOrMany<Scalar>>,
    pub listen_tls: Field<OneOrMany<Scalar>>,
    pub listen_https: Field<OneOrMany<Scalar>>,
    pub listen_quic: Field<OneOrMany<Scalar>>,
    pub listen_http3: Field<OneOrMany<Scalar>>,
    pub https_path: Field<Scalar>,
    pub certificate: Field<Scalar>,
    pub private_key: Field<Scalar>,
    pub proxy_protocol: Field<OneOrMany<Scalar>>,
    pub tcp_connections: Field<Scalar>,
    pub tcp_connections_per_client: Field<Scalar>,
    pub tcp_idle_timeout: Field<Scalar>,
    pub tcp_message_timeout: Field<Scalar>,
    pub tcp_write_timeout: Field<Scalar>,
    pub tls_handshake_timeout: Field<Scalar>,
    pub udp_workers: Field<Scalar>,
    pub state_dir: Field<Scalar>,
    pub startup_wait: Field<Scalar>,
    pub state_max_age: Field<Scalar>,
    pub max_probes: Field<Scalar>,
    pub reload_guard: Field<Scalar>,
    pub allow_exec: Field<Scalar>,
    pub log: Field<Scalar>,
    pub history: Field<HistoryOrOff>,
    pub allow_lints: Field<OneOrMany<Scalar>>,
    pub site: Field<Site>,
    pub resolvers: Field<OneOrMany<Scalar>>,
    pub canaries: Field<Scalar>,
    pub panic_share: Field<Scalar>,
    pub panic_hold: Field<Scalar>,
    pub panic_window: Field<Scalar>,
    pub nsid: Field<Scalar>,
    pub version: Field<Scalar>,
    pub identity: Field<Scalar>,
    pub cookies: Field<Scalar>,
    pub cookie_secret_file: Field<Scalar>,
    pub rate_limit: Field<RateLimit>,
    pub user: Field<Scalar>,
}

/// How many replies of one kind a network gets.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimit {
    pub responses_per_second: Field<Scalar>,
    pub nodata_per_second: Field<Scalar>,
    pub nxdomains_per_second: Field<Scalar>,
    pub referrals_per_second: Field<Scalar>,
    pub errors_per_second: Field<Scalar>,
    pub window: Field<Scalar>,
    pub slip: Field<Scalar>,
    pub ipv4_prefix_length: Field<Scalar>,
    pub ipv6_prefix_length: Field<Scalar>,
    pub exempt: Field<OneOrMany<Scalar>>,
    pub log_only: Field<Scalar>,
}

/// Where this server is.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Site {
    pub region: Field<Scalar>,
}

/// A place that endpoints are probed from.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Vantage {
    pub region: Field<Scalar>,
    pub source: Field<OneOrMany<Scalar>>,
    pub namespace: Field<Scalar>,
    pub remote: Field<Scalar>,
    pub local: Field<Scalar>,
    pub canaries: Field<Scalar>,
}

/// A window in which a pool or an endpoint is worked on.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Maintenance {
    pub pool: Field<Scalar>,
    pub endpoint: Field<Scalar>,
    pub from: Field<Scalar>,
    pub until: Field<Scalar>,
    pub weekly: Field<Scalar>,
    pub r#for: Field<Scalar>,
    pub reason: Field<Scalar>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MonitorGroup {
    pub members: Field<Vec<Field<Member>>>,
}

/// A monitor in a group.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Member {
    pub monitor: Field<Scalar>,
    pub monitor_id: Field<Scalar>,
    pub enabled: Field<Scalar>,
    pub monitoring_only: Field<Scalar>,
    pub must_be_healthy: Field<Scalar>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct History {
    pub max_size: Field<Scalar>,
    pub max_files: Field<Scalar>,
    pub max_age: Field<Scalar>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Alert {
    pub r#type: Field<Scalar>,
    pub url: Field<Scalar>,
    pub secret: Field<Scalar>,
    pub routing_key: Field<Scalar>,
    pub ca_file: Field<Scalar>,
    pub on: Field<OneOrMany<Scalar>>,
    pub pools: Field<OneOrMany<Scalar>>,
    pub load_balancers: Field<OneOrMany<Scalar>>,
    pub new_health: Field<OneOrMany<Scalar>>,
    pub delay: Field<Scalar>,
    pub repeat: Field<Scalar>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Monitor {
    pub r#type: Field<Scalar>,
    pub method: Field<Scalar>,
    pub path: Field<Scalar>,
    pub port: Field<Scalar>,
    pub header: Field<Named<OneOrMany<Scalar>>>,
    pub interval: Field<Scalar>,
    pub timeout: Field<Scalar>,
    pub retries: Field<Scalar>,
    pub consecutive_up: Field<Scalar>,
    pub consecutive_down: Field<Scalar>,
    pub recheck_interval: Field<Scalar>,
    pub start_period: Field<Scalar>,
    pub source: Field<OneOrMany<Scalar>>,
    pub invert: Field<Scalar>,
    pub degraded_above: Field<Scalar>,
    pub fail_above: Field<Scalar>,
    pub body: Field<Scalar>,
    pub http_version: Field<Scalar>,
    pub expected_codes: Field<OneOrMany<Scalar>>,
    pub expected_body: Field<Scalar>,
    pub expected_regex: Field<Scalar>,
    pub expected_json: Field<Named<Scalar>>,
    pub expected_headers: Field<Named<Scalar>>,
    pub body_limit: Field<Scalar>,
    pub follow_redirects: Field<Scalar>,
    pub tls: Field<Scalar>,
    pub starttls: Field<Scalar>,
    pub allow_insecure: Field<Scalar>,
    pub server_name: Field<Scalar>,
    pub ca_file: Field<Scalar>,
    pub client_certificate: Field<Scalar>,
    pub client_key: Field<Scalar>,
    pub certificate_degraded: Field<Scalar>,
    pub certificate_fail: Field<Scalar>,
    pub send: Field<Scalar>,
    pub expect: Field<Scalar>,
    pub hello: Field<Scalar>,
    pub query_name: Field<Scalar>,
    pub query_type: Field<Scalar>,
    pub recursion: Field<Scalar>,
    pub transport: Field<Scalar>,
    pub expected_rcode: Field<OneOrMany<Scalar>>,
    pub expected_data: Field<OneOrMany<Scalar>>,
    pub service: Field<Scalar>,
    pub authority: Field<Scalar>,
    pub command: Field<Vec<Field<Scalar>>>,
    pub url: Field<Scalar>,
    pub query: Field<Scalar>,
    pub at_least: Field<Scalar>,
    pub at_most: Field<Scalar>,
    pub verdict: Field<Scalar>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pool {
    pub name: Field<Scalar>,
    pub enabled: Field<Scalar>,
    pub monitor: Field<Scalar>,
    pub monitors: Field<OneOrMany<Scalar>>,
    pub at_least: Field<Scalar>,
    pub monitor_group: Field<Scalar>,
    pub check_regions: Field<OneOrMany<Scalar>>,
    pub health_sources: Field<OneOrMany<Scalar>>,
    pub start_period: Field<Scalar>,
    pub stale_after: Field<Scalar>,
    pub flap_limit: Field<Scalar>,
    pub flap_window: Field<Scalar>,
    pub flap_hold: Field<Scalar>,
    pub slow_start: Field<Scalar>,
    pub drain_wait: Field<Scalar>,
    pub stale_if_error: Field<Scalar>,
    pub ejection: Field<Ejection>,
    pub depends_on: Field<OneOrMany<Scalar>>,
    pub health_threshold: Field<Scalar>,
    pub minimum_origins: Field<Scalar>,
    pub endpoint_steering: Field<SteeringOrName>,
    pub origin_steering: Field<SteeringOrName>,
    pub answer: Field<Scalar>,
    pub max_answers: Field<Scalar>,
    pub family_threshold: Field<FamilyThreshold>,
    pub endpoints: Field<Vec<Field<Endpoint>>>,
    pub origins: Field<Vec<Field<Endpoint>>>,
}

/// When outcomes of real traffic take an endpoint out.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ejection {
    pub consecutive_failures: Field<Scalar>,
    pub failure_percentage: Field<Scalar>,
    pub minimum_requests: Field<Scalar>,
    pub ejection_time: Field<Scalar>,
    pub max_ejection_time: Field<Scalar>,
    pub max_ejection_percent: Field<Scalar>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FamilyThreshold {
    pub ipv4: Field<Scalar>,
    pub ipv6: Field<Scalar>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Endpoint {
    pub name: Field<Scalar>,
    pub address: Field<Scalar>,
    pub enabled: Field<Scalar>,
    pub weight: Field<Scalar>,
    pub port: Field<Scalar>,
    pub header: Field<Named<OneOrMany<Scalar>>>,
    pub depends_on: Field<OneOrMany<Scalar>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Steering {
    pub policy: Field<Scalar>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoadBalancer {
    pub name: Field<Scalar>,
    pub enabled: Field<Scalar>,
    pub proxied: Field<Scalar>,
    pub ttl: Field<Scalar>,
    pub ttl_policy: Field<Scalar>,
    pub steering_policy: Field<Scalar>,
    pub random_steering: Field<RandomSteering>,
    pub default_pools: Field<Vec<Field<Scalar>>>,
    pub fallback_pool: Field<Scalar>,
    pub when_unavailable: Field<Scalar>,
    pub session_affinity: Field<Scalar>,
    pub failover_delay: Field<Scalar>,
    pub failback_delay: Field<Scalar>,
    pub failback: Field<Scalar>,
    pub slo: Field<Slo>,
}

/// What is promised.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Slo {
    pub failover: Field<Scalar>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomSteering {
    pub default_weight: Field<Scalar>,
    pub pool_weights: Field<Named<Scalar>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Soa {
    pub mname: Field<Scalar>,
    pub rname: Field<Scalar>,
    pub refresh: Field<Scalar>,
    pub retry: Field<Scalar>,
    pub expire: Field<Scalar>,
    pub minimum: Field<Scalar>,
    pub serial: Field<Scalar>,
    pub ttl: Field<Scalar>,
}

/// An RRset in OctoDNS's schema.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Record {
    pub r#type: Field<Scalar>,
    pub ttl: Field<Scalar>,
    pub value: Field<RecordValue>,
    pub values: Field<OneOrMany<RecordValue>>,
}

/// Records by owner name, as OctoDNS writes them.
pub type Records = Named<OneOrMany<Record>>;

/// `off`, or a map of limits.
pub type HistoryOrOff = SingleOrMap<History>;

/// `random`, or a map with the policy in it.
pub type SteeringOrName = SingleOrMap<Steering>;

/// A value of a record: a single one, or a map, in which SVCB has further ones.
pub type RecordValue = Tree;
