//! What of `server:` is read at the start alone, and so waits for the next one.

use std::fmt;
use std::fmt::Display;

use ipnet::IpNet;

use super::{Connections, History, LogFormat, Settings, show_duration};
use crate::model::RateLimit;

/// A key whose value isn't the one that the server runs with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Later {
    pub key: &'static str,
    /// The value in force,
    pub now: String,
    /// and the one of the next start.
    pub then: String,
}

impl Display for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Later { key, now, then } = self;
        write!(f, "`{key}` from {now} to {then}")
    }
}

impl Settings {
    /// What is different in `next` and takes a start to work, if a server was
    /// started with these settings.
    pub fn later(&self, next: &Settings) -> Vec<Later> {
        let both = self.read_at_start().into_iter().zip(next.read_at_start());
        let changed = both.filter(|((_, now), (_, then))| now != then);
        changed.map(|((key, now), (_, then))| Later { key, now, then }).collect()
    }

    /// Each key that is read at the start alone, with its value. None of them is
    /// a secret.
    fn read_at_start(&self) -> [(&'static str, String); 23] {
        // what is left out here works with a reload
        let Settings {
            listen,
            listen_tls,
            listen_https,
            listen_quic,
            listen_http3,
            https_path,
            identity: _,
            proxies,
            connections: Connections { most, per_client, idle, message, write, handshake },
            udp_workers,
            state_dir,
            startup_wait,
            state_max_age,
            max_probes,
            reload_guard: _,
            allow_exec: _,
            log,
            resolvers,
            allow_lints: _,
            history,
            service: _,
            rate_limit,
            user,
        } = self;
        let log = match log {
            LogFormat::Auto => "auto",
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        };
        [
            ("listen", list(listen, "none")),
            ("listen_tls", list(listen_tls, "none")),
            ("listen_https", list(listen_https, "none")),
            ("listen_quic", list(listen_quic, "none")),
            ("listen_http3", list(listen_http3, "none")),
            ("https_path", https_path.clone()),
            ("proxy_protocol", networks(proxies)),
            ("tcp_connections", most.to_string()),
            ("tcp_connections_per_client", per_client.to_string()),
            ("tcp_idle_timeout", show_duration(*idle)),
            ("tcp_message_timeout", show_duration(*message)),
            ("tcp_write_timeout", show_duration(*write)),
            ("tls_handshake_timeout", show_duration(*handshake)),
            ("udp_workers", or(udp_workers.as_ref(), "one a core")),
            ("state_dir", or(state_dir.as_ref().map(|path| path.display()), "the usual place")),
            ("startup_wait", show_duration(*startup_wait)),
            ("state_max_age", show_duration(*state_max_age)),
            ("max_probes", or(max_probes.as_ref(), "the default")),
            ("log", log.to_owned()),
            ("resolvers", list(resolvers, "the system's")),
            ("history", or(history.as_ref().map(kept), "off")),
            ("rate_limit", or(rate_limit.as_ref().map(rates), "none")),
            ("user", or(user.as_ref(), "none")),
        ]
    }
}

fn or(value: Option<impl Display>, absent: &str) -> String {
    value.map_or_else(|| absent.to_owned(), |value| value.to_string())
}

/// As YAML has it in a line; one alone without brackets.
fn list<T: Display>(items: &[T], none: &str) -> String {
    match items {
        [] => none.to_owned(),
        [one] => one.to_string(),
        _ => format!("[{}]", items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// Single addresses as they are written.
fn networks(networks: &[IpNet]) -> String {
    let shown = |network: &IpNet| match network.prefix_len() == network.max_prefix_len() {
        true => network.addr().to_string(),
        false => network.to_string(),
    };
    list(&networks.iter().map(shown).collect::<Vec<_>>(), "none")
}

fn kept(History { max_size, max_files, max_age }: &History) -> String {
    let size = match max_size {
        size if size % (1 << 20) == 0 => format!("{}MiB", size >> 20),
        size if size % (1 << 10) == 0 => format!("{}KiB", size >> 10),
        size => size.to_string(),
    };
    format!("{{ max_size: {size}, max_files: {max_files}, max_age: {} }}", show_duration(*max_age))
}

/// What isn't as it is without being written.
fn rates(limits: &RateLimit) -> String {
    let usual = RateLimit::default();
    let responses = limits.responses_per_second;
    let mut keys = vec![format!("responses_per_second: {responses}")];
    let mut add = |key: &str, value: String, usual: String| {
        if value != usual {
            keys.push(format!("{key}: {value}"));
        }
    };
    for (key, rate) in [
        ("nodata_per_second", limits.nodata_per_second),
        ("nxdomains_per_second", limits.nxdomains_per_second),
        ("referrals_per_second", limits.referrals_per_second),
        ("errors_per_second", limits.errors_per_second),
    ] {
        add(key, rate.to_string(), responses.to_string());
    }
    add("window", show_duration(limits.window), show_duration(usual.window));
    add("slip", limits.slip.to_string(), usual.slip.to_string());
    add("ipv4_prefix_length", limits.ipv4_prefix_length.to_string(), usual.ipv4_prefix_length.to_string());
    add("ipv6_prefix_length", limits.ipv6_prefix_length.to_string(), usual.ipv6_prefix_length.to_string());
    add("exempt", networks(&limits.exempt), networks(&usual.exempt));
    add("log_only", limits.log_only.to_string(), usual.log_only.to_string());
    format!("{{ {} }}", keys.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::load_texts;
    use super::*;

    fn read(server: &str) -> Settings {
        let text = format!(
            "server: {server}\nzone: example.com\nrecords: {{ '': {{ type: NS, value: ns.example.net. }} }}\n"
        );
        load_texts(vec![("a.yaml".into(), text.into())]).unwrap_or_else(|report| panic!("{report}")).settings
    }

    #[test]
    fn each_key_that_waits_for_a_start_is_named_with_both_values() {
        for (now, then, expected) in [
            ("{}", "{ nsid: one, cookies: off, allow_exec: true, reload_guard: off }", &[][..]),
            ("{ listen: '127.0.0.1:5300' }", "{}", &[]),
            (
                "{ listen: ['127.0.0.1:53', '[::1]:53'], udp_workers: 2 }",
                "{ listen: '127.0.0.1:53' }",
                &[
                    "`listen` from [127.0.0.1:53, [::1]:53] to 127.0.0.1:53",
                    "`udp_workers` from 2 to one a core",
                ],
            ),
            (
                "{ rate_limit: { responses_per_second: 5 } }",
                "{ rate_limit: { responses_per_second: 5, errors_per_second: 2, exempt: 192.0.2.7, slip: 2 } }",
                &["`rate_limit` from { responses_per_second: 5 } to \
                   { responses_per_second: 5, errors_per_second: 2, exempt: 192.0.2.7 }"],
            ),
            (
                "{ tcp_idle_timeout: 90s, history: off, log: json }",
                "{ history: { max_size: 1MiB }, state_dir: /var/lib/other }",
                &[
                    "`tcp_idle_timeout` from 1m30s to 10s",
                    "`state_dir` from the usual place to /var/lib/other",
                    "`log` from json to auto",
                    "`history` from off to { max_size: 1MiB, max_files: 8, max_age: 90d }",
                ],
            ),
        ] {
            let told: Vec<String> = read(now).later(&read(then)).iter().map(Later::to_string).collect();
            assert_eq!(told, expected, "{now} to {then}");
        }
    }
}
