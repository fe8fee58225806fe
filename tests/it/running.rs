//! The real program as its users meet it: a process, its log, its answers.

mod check;
mod demo;
mod hosts;
mod leaks;
mod limits;
mod listen;
mod load;
mod log;
mod memory;
mod operator;
mod probes;
mod reload;
mod start;
mod stop;
mod systemd;
mod timing;
mod user;
mod zone_files;

use std::net::SocketAddr;

/// A load balancer `www.example.test` that always answers with `address`.
fn fixed(address: &str, ttl: u32) -> String {
    zone(&format!("{{ name: one, address: {address} }}"), "", ttl)
}

/// The same with probed endpoints; 203.0.113.5 is the fallback.
fn probed(endpoints: &[SocketAddr], ttl: u32) -> String {
    let endpoints = endpoints.iter().zip(1..).map(|(endpoint, number)| {
        format!("{{ name: e{number}, address: {}, port: {} }}", endpoint.ip(), endpoint.port())
    });
    let endpoints = endpoints.collect::<Vec<_>>().join(", ");
    // a generous timeout: the machine may be busy, and dead endpoints refuse at once
    let monitor = "{ type: http, interval: 200ms, timeout: 5s, consecutive_up: 1, consecutive_down: 1 }";
    zone(&endpoints, monitor, ttl)
}

fn zone(endpoints: &str, monitor: &str, ttl: u32) -> String {
    let (monitors, monitor) = match monitor {
        "" => (String::new(), ""),
        monitor => (format!("monitors: {{ web: {monitor} }}\n"), "monitor: web, "),
    };
    format!(
        "{monitors}\
pools:
  main: {{ {monitor}endpoints: [{endpoints}] }}
  sorry: {{ endpoints: [{{ name: static, address: 203.0.113.5 }}] }}
zone: example.test
records:
  '': {{ type: NS, value: ns1 }}
  ns1: {{ type: A, value: 192.0.2.53 }}
load_balancers:
  www: {{ ttl: {ttl}, default_pools: [main], fallback_pool: sorry }}
"
    )
}

const WWW: &str = "www.example.test.";
