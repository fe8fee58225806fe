//! Probes against servers that do as they are told.

mod agent;
mod dns;
mod exec;
mod grpc;
mod http;
mod http2;
mod https;
mod icmp;
mod namespace;
mod prometheus;
mod smtp;
mod tcp;
mod tls;
mod udp;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use haledns::health::{Outcome, ProbeResult, ProbeTask};
use haledns::model::{Check, Monitor, Reach, Source, TcpCheck, Thresholds, Vantage};
use haledns::probe::Prober;

/// Shorter than the usual timeout, for probes that are to run into it.
const SHORT: Duration = Duration::from_millis(200);
/// More than anything takes that ends by itself; less than the usual timeout.
const LONG: Duration = Duration::from_secs(3);

/// One probe in the making.
struct Probe(ProbeTask);

impl Probe {
    fn new(to: SocketAddr, check: Check) -> Probe {
        let monitor = Monitor { thresholds: Thresholds { up: 1, down: 1 }, ..Monitor::new("test", check) };
        Probe(ProbeTask {
            pool: "eu".into(),
            endpoint: "eu-1".into(),
            address: to.ip(),
            hostname: None,
            port: to.port(),
            host: None,
            monitor: Arc::new(monitor),
            vantage: Arc::default(),
        })
    }

    fn within(mut self, timeout: Duration) -> Probe {
        Arc::make_mut(&mut self.0.monitor).timeout = timeout;
        self
    }

    fn retries(mut self, retries: u8) -> Probe {
        Arc::make_mut(&mut self.0.monitor).retries = retries;
        self
    }

    fn host(mut self, host: &str) -> Probe {
        self.0.host = Some(host.into());
        self
    }

    fn source(mut self, source: &str) -> Probe {
        let source = Source { ipv4: source.parse().ok(), ipv6: source.parse().ok() };
        Arc::make_mut(&mut self.0.monitor).reading.source = source;
        self
    }

    /// From inside a network namespace, given by name or path.
    fn inside(mut self, namespace: &str) -> Probe {
        let reach = Reach::Here { source: Source::default(), namespace: Some(namespace.into()) };
        self.0.vantage = Arc::new(Vantage { reach, ..Vantage::default() });
        self
    }

    async fn run(self) -> Outcome {
        Prober::new().run(&self.0).await
    }
}

/// What tests compare: the status, and the reason with its detail.
fn told(outcome: &Outcome) -> String {
    let status = outcome.status.map_or("-".to_owned(), |status| status.to_string());
    match outcome.result {
        ProbeResult::Pass => format!("{status} pass"),
        ProbeResult::Fail => format!("{status} {:?} {}", outcome.reason, outcome.detail),
        ProbeResult::Error => format!("{status} error {:?} {}", outcome.reason, outcome.detail),
    }
}

#[test]
fn a_probe_has_no_room_for_what_only_others_need() {
    let (prober, probe) =
        (Prober::new(), Probe::new(([127, 0, 0, 1], 1).into(), Check::Tcp(TcpCheck::default())));
    let octets = size_of_val(&prober.run(&probe.0));
    assert!(octets < 2500, "{octets}");
}
