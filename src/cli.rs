//! The operator's commands: what they ask of a server, and how it looks.
//!
//! Each gives the text to be printed. Finding the server is the same for all:
//! the socket in its state directory.

mod probe;
mod served;
mod status;
mod table;

use std::fmt;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use crate::config::Report;
use crate::control::{Answer, Client, ClientError, Done, Refusal, Request, view};
use crate::state;

pub use probe::{Shown, probe, probe_files};

/// How often a command that waits looks again.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Where a running server is.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// Its socket.
    pub socket: Option<PathBuf>,
    /// Its state directory.
    pub state_dir: Option<PathBuf>,
}

/// How text looks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    pub colours: bool,
    /// Lines are cut to so many columns.
    pub columns: Option<usize>,
    /// JSON instead.
    pub json: bool,
}

/// Why a command has nothing to show.
#[derive(Debug)]
pub enum CommandError {
    Client(ClientError),
    Refused(Refusal),
    /// The configuration that was to be read.
    Config(Report),
    Nothing(String),
    Threads(std::io::Error),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::Client(error) => write!(f, "{error}"),
            CommandError::Refused(refusal) => f.write_str(&refusal.message),
            CommandError::Config(report) => {
                write!(f, "the configuration is refused:\n{}", report.text(false))
            }
            CommandError::Nothing(why) => f.write_str(why),
            CommandError::Threads(error) => write!(f, "no threads for probes: {error}"),
        }
    }
}

impl std::error::Error for CommandError {}

impl From<ClientError> for CommandError {
    fn from(error: ClientError) -> CommandError {
        CommandError::Client(error)
    }
}

impl Server {
    /// The sockets it may be at, the likeliest first.
    fn sockets(&self) -> Vec<PathBuf> {
        let in_directory = |path: PathBuf| path.join(state::SOCKET);
        if let Some(socket) = &self.socket {
            return vec![socket.clone()];
        }
        match &self.state_dir {
            Some(path) => vec![in_directory(path.clone())],
            None => state::candidates().into_iter().map(in_directory).collect(),
        }
    }

    fn connect(&self) -> Result<Client, CommandError> {
        Ok(Client::connect(&self.sockets())?)
    }

    fn ask(&self, request: &Request) -> Result<Answer, CommandError> {
        ask(&mut self.connect()?, request)
    }
}

fn ask(client: &mut Client, request: &Request) -> Result<Answer, CommandError> {
    match client.ask(request)? {
        Answer::Refused(refusal) => Err(CommandError::Refused(refusal)),
        answer => Ok(answer),
    }
}

/// A server of another version may answer so.
fn beside_the_point() -> CommandError {
    CommandError::Nothing("the server's answer is to another question; are they of one version?".to_owned())
}

/// Everything that is held, or what is known of one pool or endpoint.
pub fn status(server: &Server, of: Option<&str>, style: Style) -> Result<String, CommandError> {
    let status = status_of(&mut server.connect()?, of)?;
    Ok(match style.json {
        true => json(&status),
        false => status::text(&status, of.is_some_and(|of| of.contains('/')), style),
    })
}

fn status_of(client: &mut Client, of: Option<&str>) -> Result<view::Status, CommandError> {
    match ask(client, &Request::Status { of: of.map(str::to_owned) })? {
        Answer::Status(status) => Ok(*status),
        _ => Err(beside_the_point()),
    }
}

/// Has something done, and tells what follows.
pub fn change(server: &Server, request: &Request, style: Style) -> Result<String, CommandError> {
    let Answer::Done(done) = server.ask(request)? else { return Err(beside_the_point()) };
    Ok(if style.json { json(&done) } else { done_text(&done) })
}

fn done_text(done: &Done) -> String {
    let mut text = format!("{}\n", done.message);
    for note in &done.notes {
        text += &format!("  {note}\n");
    }
    text
}

/// Waits until nothing of a pool or endpoint that is drained is at any client.
pub fn wait_until_drained(server: &Server, of: &str) -> Result<String, CommandError> {
    let mut client = server.connect()?;
    loop {
        let status = status_of(&mut client, Some(of))?;
        let pools = &status.pools;
        let said = pools.iter().flat_map(|pool| {
            pool.overrides.iter().chain(pool.endpoints.iter().flat_map(|endpoint| &endpoint.overrides))
        });
        let drains: Vec<&view::Override> = said.filter(|said| said.action == "drain").collect();
        if drains.is_empty() {
            return Err(CommandError::Nothing(format!(
                "{of} is no longer drained: somebody took it back, or it ended"
            )));
        }
        // times of one form are in order as texts
        let ends = |drain: &&&view::Override| drain.until.is_some() && drain.until < drain.drained_at;
        if let (Some(drain), true) = (drains.iter().find(ends), drains.iter().all(|drain| ends(&drain))) {
            let time = |time: &Option<String>| time.clone().unwrap_or_default();
            return Err(CommandError::Nothing(format!(
                "{of} is never drained: that takes until {}, and the drain ends at {}; give --for more time",
                time(&drain.drained_at),
                time(&drain.until)
            )));
        }
        let draining = pools.iter().flat_map(|pool| &pool.endpoints).any(|it| it.fitness == "draining");
        if !draining {
            return Ok(format!("{of} is drained: no client can have its address any more\n"));
        }
        sleep(LOOK_EVERY);
    }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).expect("plain texts and numbers") + "\n"
}
