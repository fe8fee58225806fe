//! A world with sockets: a server, endpoints on loopback addresses, and `dig`.
//!
//! A step waits until what it expects is so, for a bounded time and no longer.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use haledns::app::{self, Running};
use haledns::authority::Prepared;
use haledns::model::Model;

use super::ask;
use super::scenario::{Attempt, Behaviour, Config, Network, Scenario};
use super::server::{Server, Step as Script, answer};

/// No condition may take longer; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Plays a scenario against a real server; says what went wrong.
pub async fn run(scenario: &Scenario) -> Result<(), String> {
    let mut endpoints = Endpoints::new();
    let mut config = scenario.config.clone();
    let loaded = load(&config, endpoints.port)?;
    endpoints.network.change(&scenario.endpoints)?;
    endpoints.bring_about(&loaded.model).await?;
    let anywhere = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
    let server = app::start(&loaded, &anywhere, Box::new(|_, _| ())).await.map_err(|e| e.to_string())?;
    let mut model = loaded.model;
    let mut outcome = Ok(());
    for (step, number) in scenario.steps.iter().zip(1..) {
        endpoints.network.change(&step.endpoints)?;
        if !step.r#override.is_empty() {
            return Err(format!("step {number}: nobody operates a live scenario"));
        }
        if let Some(next) = step.config(&config)? {
            config = next;
            model = load(&config, endpoints.port)?.model;
            endpoints.bring_about(&model).await?;
            server.control().apply(Prepared::new(Arc::clone(&model)));
        } else {
            endpoints.bring_about(&model).await?;
        }
        let Some(question) = &step.ask else { continue };
        let complaint = wait_for(&server, question.value.clone(), |reply| step.complaint(reply)).await;
        if let Some(complaint) = complaint {
            let why = step.why.as_deref().unwrap_or_default();
            outcome = Err(format!("step {number}, live: {why}\n  ask {}\n{complaint}", question.text));
            break;
        }
    }
    server.stop().await;
    outcome
}

/// Asks again and again until nothing is wrong with the reply.
async fn wait_for(
    server: &Running,
    question: ask::Question,
    complaint: impl Fn(&ask::Reply) -> Option<String>,
) -> Option<String> {
    let address = server.addresses()[0];
    let deadline = Instant::now() + PATIENCE;
    loop {
        let question = question.clone();
        let reply = tokio::task::spawn_blocking(move || ask::dig(address, &question)).await.unwrap();
        let wrong = match &reply {
            Some(reply) => complaint(reply)?,
            None => "  no reply\n".to_owned(),
        };
        if Instant::now() > deadline {
            return Some(format!("{wrong}  and so it was for {PATIENCE:?}\n"));
        }
    }
}

fn load(config: &Config, port: u16) -> Result<haledns::config::Loaded, String> {
    config.load(port).map_err(|report| format!("the configuration is refused:\n{report}"))
}

/// The endpoints, each a server of its own.
struct Endpoints {
    port: u16,
    /// Holds the port on an address that is no endpoint's, so that no other
    /// test is given it.
    _port: TcpListener,
    network: Network,
    running: BTreeMap<IpAddr, (Behaviour, Option<Server>)>,
}

impl Endpoints {
    fn new() -> Endpoints {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        Endpoints { port, _port: listener, network: Network::default(), running: BTreeMap::new() }
    }

    /// Makes the model's endpoints do what the network says.
    async fn bring_about(&mut self, model: &Model) -> Result<(), String> {
        let addresses = model.pools.iter().flat_map(|pool| &pool.endpoints).map(|endpoint| endpoint.address);
        for address in addresses {
            let wanted = self.network.of(address).clone();
            match self.running.remove(&address) {
                Some(running) if running.0 == wanted => {
                    self.running.insert(address, running);
                    continue;
                }
                Some((_, Some(server))) => server.stop().await,
                _ => {}
            }
            let script = match &wanted {
                Behaviour::Attempts(attempts) if attempts.len() == 1 => script(attempts[0])?,
                _ => return Err("live endpoints do one thing at a time".into()),
            };
            let server = match script {
                None => None,
                Some(script) => {
                    Some(Server::at(SocketAddr::new(address, self.port), vec![script], None).await)
                }
            };
            self.running.insert(address, (wanted, server));
        }
        Ok(())
    }
}

/// What the endpoint plays; none: nobody listens.
fn script(attempt: Attempt) -> Result<Option<Vec<Script>>, String> {
    Ok(match attempt {
        Attempt::Refused => None,
        Attempt::Up => Some(answer("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")),
        Attempt::Code(code) => Some(answer(format!("HTTP/1.1 {code} Said\r\ncontent-length: 0\r\n\r\n"))),
        Attempt::Hang => Some(vec![Script::Hold]),
        Attempt::Reset => Some(vec![Script::Head, Script::Reset]),
        Attempt::Error => return Err("nothing on the network makes a probe impossible".into()),
    })
}
