//! Everything on loopback: real endpoints, the real server, the sample zone.
//!
//! On a terminal a board shows endpoints and answers while keys kill and
//! revive; `--tour` plays the same story unattended and checks every answer.

mod ask;
mod board;
mod endpoints;
mod tour;

use std::fmt;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::{Control, Running, StartError};
use crate::clock::Clock;
use crate::config::{self, Loaded, Report};
use crate::engine::Change;
use crate::model::{Model, Name};
use endpoints::Endpoint;

pub use ask::{Answer, ask};

/// The sample configuration, as it lies in `zones/`.
const SAMPLE: [(&str, &str); 3] = [
    ("zones/gslb.example.com.yaml", include_str!("../../zones/gslb.example.com.yaml")),
    ("zones/pools.yaml", include_str!("../../zones/pools.yaml")),
    ("zones/server.yaml", include_str!("../../zones/server.yaml")),
];

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
    headlines: mpsc::UnboundedReceiver<Change>,
}

struct Server {
    running: Running,
    control: Control,
    address: SocketAddr,
}

/// Gives the demonstration.
pub async fn run(mode: Mode, listen: SocketAddr) -> Result<(), DemoError> {
    let texts = SAMPLE.iter().map(|(name, text)| (PathBuf::from(name), text.as_bytes().to_vec()));
    let loaded = config::load_texts(texts.collect()).map_err(DemoError::Sample)?;
    super::raise_open_files(None, &crate::serve::Limits::default());
    let mut stage = Stage::set(mode, loaded, listen).await?;
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let outcome = match mode {
        Mode::Tour => tour::play(&mut stage).await,
        Mode::Interactive | Mode::EndpointsOnly if terminal => tokio::select! {
            shown = board::show(&mut stage) => shown,
            signal = wait_for_signal() => signal.map_err(DemoError::Terminal), // and the terminal is given back
        },
        Mode::Interactive | Mode::EndpointsOnly => {
            stage.tell_what_to_type();
            wait_for_signal().await.map_err(DemoError::Terminal)
        }
    };
    if let Some(server) = stage.server.take() {
        server.running.stop().await;
    }
    outcome
}

impl Stage {
    async fn set(mode: Mode, loaded: Loaded, listen: SocketAddr) -> Result<Stage, DemoError> {
        let mut endpoints = endpoints::of(&loaded.model);
        for endpoint in &mut endpoints {
            let revived = endpoint.revive().await;
            revived.map_err(|error| DemoError::Endpoint { address: endpoint.address, error })?;
        }
        let (tell, headlines) = mpsc::unbounded_channel();
        let mut server = None;
        if mode != Mode::EndpointsOnly {
            let tell = move |change: &Change, _: &Clock| {
                let _ = tell.send(change.clone());
            };
            let running = super::start(&loaded, &[listen], Box::new(tell)).await.map_err(DemoError::Start)?;
            let (control, address) = (running.control(), running.addresses()[0]);
            server = Some(Server { running, control, address });
        }
        Ok(Stage { model: loaded.model, endpoints, server, fallback: true, headlines })
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
            server.control.apply(Arc::new(model));
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

    fn tell_what_to_type(&self) {
        for endpoint in &self.endpoints {
            println!("endpoint {}/{} listens on {}", endpoint.pool, endpoint.name, endpoint.address);
        }
        match self.dig() {
            Some(dig) => println!("ask:  {dig}\nstop: Ctrl-C; on a terminal keys kill and revive endpoints"),
            None => println!("start the server beside it:  hale serve zones\nstop: Ctrl-C"),
        }
    }
}

async fn wait_for_signal() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = hangup.recv() => Ok(()), // the terminal is gone
        interrupted = tokio::signal::ctrl_c() => interrupted,
    }
}
