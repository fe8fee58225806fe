//! Everything on loopback: real endpoints, the real server, the sample zone.
//!
//! On a terminal a board shows endpoints and answers while keys kill and
//! revive; `--tour` plays the same story unattended and checks every answer.

mod ask;
mod board;
mod endpoints;
mod tour;

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::{Control, Running, StartError};
use crate::authority::Prepared;
use crate::clock::Clock;
use crate::config::{self, Loaded, Report};
use crate::engine::Change;
use crate::health::Verdict;
use crate::model::Scope;
use crate::model::{LoadBalancer, Model, Name, PoolId, SteeringPolicy, WhenUnavailable};
use crate::telemetry;
use endpoints::Endpoint;

pub use ask::{Answer, ask};

/// The sample configuration, as it lies in `zones/`.
const SAMPLE: [(&str, &str); 3] = [
    ("zones/gslb.example.com.yaml", include_str!("../../zones/gslb.example.com.yaml")),
    ("zones/pools.yaml", include_str!("../../zones/pools.yaml")),
    ("zones/server.yaml", include_str!("../../zones/server.yaml")),
];

/// The port of the sample's endpoints.
const SAMPLE_PORT: u16 = 18080;

/// What the demonstration does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Shows a board and obeys keys.
    Interactive,
    /// Plays the story and checks it.
    Tour,
    /// Endpoints only; the server is somebody else's.
    EndpointsOnly,
}

/// Why the demonstration could not be given.
#[derive(Debug)]
pub enum DemoError {
    Sample(Report),
    Endpoint {
        address: SocketAddr,
        error: std::io::Error,
    },
    Start(StartError),
    Terminal(std::io::Error),
    /// A signal ended the tour.
    Interrupted,
    /// A step of the tour was not answered as told.
    Tour {
        step: &'static str,
        expected: String,
        got: String,
        within: Duration,
    },
}

impl fmt::Display for DemoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DemoError::Sample(report) => {
                write!(f, "the sample configuration is broken:\n{}", report.text(false))
            }
            DemoError::Endpoint { address, error } => {
                write!(f, "no endpoint at {address}: {error}; is another demo running?")
            }
            DemoError::Start(error) => {
                write!(f, "{error}\nhale: another place to answer: hale demo --listen 127.0.0.1:5301")
            }
            DemoError::Terminal(error) => write!(f, "the terminal can't be used: {error}"),
            DemoError::Interrupted => f.write_str("tour: interrupted"),
            DemoError::Tour { step, expected, got, within } => {
                write!(f, "tour: {step}: expected {expected} within {within:.0?}, the last answer was {got}")
            }
        }
    }
}

impl std::error::Error for DemoError {}

/// The stage: endpoints, and the server with them.
struct Stage {
    model: Arc<Model>,
    endpoints: Vec<Endpoint>,
    server: Option<Server>,
    /// Whether the fallback pool is enabled.
    fallback: bool,
    changes: mpsc::UnboundedReceiver<Change>,
    /// The latest verdict on each endpoint, by pool and name.
    verdicts: HashMap<(Arc<str>, Arc<str>), Verdict>,
}

struct Server {
    running: Running,
    control: Control,
    address: SocketAddr,
}

/// Gives the demonstration.
pub async fn run(mode: Mode, listen: SocketAddr) -> Result<(), DemoError> {
    let mut signals = Signals::catch().map_err(DemoError::Terminal)?;
    super::raise_open_files(None, 1, &mut crate::serve::Limits::default());
    let mut loaded = sample(SAMPLE_PORT)?;
    let mut endpoints = endpoints::raise(&loaded.model).await;
    if endpoints.is_err() && mode != Mode::EndpointsOnly {
        // another demo has the sample's addresses; this one has its own server to tell of a port
        loaded = sample(free_port().unwrap_or(SAMPLE_PORT))?;
        endpoints = endpoints::raise(&loaded.model).await;
    }
    let endpoints = endpoints.map_err(|(address, error)| DemoError::Endpoint { address, error })?;
    let mut stage = Stage::set(mode, loaded, endpoints, listen).await?;
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let outcome = match mode {
        Mode::Tour => tokio::select! {
            played = tour::play(&mut stage) => played,
            () = signals.any() => Err(DemoError::Interrupted),
        },
        Mode::Interactive | Mode::EndpointsOnly if terminal => tokio::select! {
            shown = board::show(&mut stage) => shown,
            () = signals.any() => Ok(()), // and the terminal is given back
        },
        Mode::Interactive | Mode::EndpointsOnly => {
            stage.tell_what_to_type();
            tokio::select! {
                () = signals.any() => Ok(()),
                never = stage.tell_changes() => match never {},
            }
        }
    };
    if let Some(server) = stage.server.take() {
        server.running.stop().await;
    }
    outcome
}

/// The sample configuration, its endpoints at `port`.
fn sample(port: u16) -> Result<Loaded, DemoError> {
    let ports = [SAMPLE_PORT, port].map(|port| format!("port: {port}"));
    let texts =
        SAMPLE.map(|(name, text)| (PathBuf::from(name), text.replace(&ports[0], &ports[1]).into_bytes()));
    config::load_texts(texts.into()).map_err(DemoError::Sample)
}

/// A TCP port that is free on every loopback address.
fn free_port() -> Option<u16> {
    Some(std::net::TcpListener::bind("0.0.0.0:0").ok()?.local_addr().ok()?.port())
}

/// Prints a line; who reads no further, as `head` does, has seen enough.
fn say(line: impl fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

impl Stage {
    async fn set(
        mode: Mode,
        loaded: Loaded,
        endpoints: Vec<Endpoint>,
        listen: SocketAddr,
    ) -> Result<Stage, DemoError> {
        let (tell, changes) = mpsc::unbounded_channel();
        let mut server = None;
        if mode != Mode::EndpointsOnly {
            let tell = move |change: &Change, _: &Clock| {
                let _ = tell.send(change.clone());
            };
            let running = super::start(&loaded, &[listen], Box::new(tell)).await.map_err(DemoError::Start)?;
            let (control, address) = (running.control(), running.addresses()[0]);
            server = Some(Server { running, control, address });
        }
        let verdicts = HashMap::new();
        Ok(Stage { model: loaded.model, endpoints, server, fallback: true, changes, verdicts })
    }

    /// What has happened since the last look, in a few words each.
    fn hear(&mut self) -> Vec<String> {
        let mut heard = Vec::new();
        while let Ok(change) = self.changes.try_recv() {
            heard.push(self.note(change));
        }
        heard
    }

    /// Keeps what a change says of an endpoint; gives it back in a few words.
    fn note(&mut self, change: Change) -> String {
        let headline = telemetry::headline(&change);
        if let Change::Endpoint { scope: Scope { pool, endpoint: Some(endpoint) }, to, .. } = change {
            self.verdicts.insert((pool, endpoint), to.verdict);
        }
        headline
    }

    /// What the server holds of an endpoint.
    fn health(&self, endpoint: &Endpoint) -> &'static str {
        match self.verdicts.get(&(Arc::clone(&endpoint.pool), Arc::clone(&endpoint.name))) {
            Some(Verdict::Healthy) => "healthy",
            Some(Verdict::Unhealthy) => "unhealthy",
            Some(Verdict::Unknown) => "unknown",
            None => "not monitored",
        }
    }

    /// Prints every change as it comes; never ends.
    async fn tell_changes(&mut self) -> Infallible {
        loop {
            match self.changes.recv().await {
                Some(change) => say(self.note(change)),
                None => std::future::pending().await,
            }
        }
    }

    /// Kills what lives, revives what is dead.
    async fn toggle(&mut self, number: usize) {
        let Some(endpoint) = self.endpoints.get_mut(number) else { return };
        if endpoint.is_up() {
            endpoint.kill().await;
        } else {
            // where it stood a moment ago it can stand again; if not, it stays down on the board
            let _ = endpoint.revive().await;
        }
    }

    /// Enables or disables the fallback pool.
    fn set_fallback(&mut self, enabled: bool) {
        self.fallback = enabled;
        let mut model = Model::clone(&self.model);
        for pool in &mut model.pools {
            if &*pool.name == "sorry" {
                pool.enabled = enabled;
            }
        }
        if let Some(server) = &self.server {
            server.control.apply(Prepared::new(Arc::new(model)));
        }
    }

    /// The sample's load balancers.
    fn names(&self) -> Vec<Name> {
        let zones = self.model.zones.iter();
        zones.flat_map(|zone| zone.load_balancers.iter().map(|balancer| balancer.name.clone())).collect()
    }

    /// The command that shows the first load balancer's answer.
    fn dig(&self) -> Option<String> {
        let server = self.server.as_ref()?.address;
        let name = self.names().pop()?.to_string();
        Some(format!("dig @{} -p {} {}", server.ip(), server.port(), name.trim_end_matches('.')))
    }

    /// What each load balancer is told to do, in a few words.
    fn plans(&self) -> Vec<(Name, String)> {
        let pool = |id: &PoolId| &*self.model.pool(*id).name;
        let plan = |balancer: &LoadBalancer| {
            let names = balancer.default_pools.iter().map(pool);
            let mut plan = match &balancer.steering_policy {
                SteeringPolicy::Off => names.collect::<Vec<_>>().join(", else "),
                SteeringPolicy::Random(weights) => {
                    let shares = names.zip(weights).map(|(name, weight)| format!("{} of {name}", weight.0));
                    format!("drawn by weight: {}", shares.collect::<Vec<_>>().join(", "))
                }
            };
            if let WhenUnavailable::FallbackPool(id) = &balancer.when_unavailable {
                plan += &format!("; at worst {}", pool(id));
            }
            (balancer.name.clone(), plan)
        };
        self.model.zones.iter().flat_map(|zone| zone.load_balancers.iter().map(plan)).collect()
    }

    fn tell_what_to_type(&self) {
        for endpoint in &self.endpoints {
            say(format_args!("endpoint {}/{} listens on {}", endpoint.pool, endpoint.name, endpoint.address));
        }
        match self.dig() {
            Some(dig) => {
                for (name, plan) in self.plans() {
                    say(format_args!("{name} answers from pool {plan}"));
                }
                say(format_args!("ask:  {dig}\nstop: Ctrl-C; on a terminal keys kill and revive endpoints"));
            }
            None => say("start the server beside it:  hale serve zones\nstop: Ctrl-C"),
        }
    }
}

/// The signals that end the demonstration, caught from its beginning.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// The terminal is gone.
    hangup: Signal,
}

impl Signals {
    fn catch() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for one of them.
    async fn any(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
