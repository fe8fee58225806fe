//! Puts the parts together: files to engine, engine to probes and sockets.
//!
//! ```text
//! files ─► reload ─► Event ─►┐                      ┌─► probe ─► Event ─►┐
//!                            engine task ─► Effect ─┼─► publish ─► UDP workers, TCP
//!                            └◄──────────────────── └─► telemetry        │
//!                            └◄──────────────────────────────────────────┘
//! ```
//!
//! One task owns the engine. Probes run on threads of their own, apart from
//! those that answer.

mod announce;
pub mod demo;
mod limits;
mod lookups;
mod operator;
pub mod rehearse;
mod reload;
mod services;
mod systemd;
mod task;
mod threads;
pub mod timing;
mod user;

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use announce::Announcer;
use lookups::Lookups;

use crate::authority::Prepared;
use crate::clock::Clock;
use crate::config::{self, Loaded, ServiceSettings, Settings};
use crate::control::{Listener, view};
use crate::engine::{Change, Engine, Event};
use crate::events;
use crate::health::Memory;
use crate::history::{self, History};
use crate::model::{Model, Pool};
use crate::moment::Moment;
use crate::os;
use crate::probe::Prober;
use crate::publish::Publisher;
use crate::serve::{self, Certificates, Kind, ListenError, Passed, Pulse};
use crate::state::{self, Directory, Journal, OpenError};
use crate::telemetry::{self, Queries, Trouble};

use operator::{Desk, Upkeep};
use services::Services;
use task::EngineTask;
use threads::Threads;
pub use user::UserError;

pub use limits::raise_open_files;
pub use operator::tasks_of;
pub use reload::{Reloader, Watch};

/// How often the totals are logged, if they moved.
const TOTALS_EVERY: Duration = Duration::from_secs(60);

/// How long somebody waits to hear that something is on the disk.
const CONFIRM: Duration = Duration::from_secs(2);

/// Why the server didn't start.
#[derive(Debug)]
pub enum StartError {
    Listen(ListenError),
    State(OpenError),
    Threads(std::io::Error),
    Certificate(String),
    Signals(std::io::Error),
    User(UserError),
    /// It ended by itself, which is a defect.
    EngineEnded,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Listen(error) => write!(f, "{error}"),
            StartError::State(error) => write!(f, "{error}"),
            StartError::User(error) => write!(f, "{error}"),
            StartError::Threads(error) => write!(f, "no threads for probes: {error}"),
            StartError::Certificate(why) => write!(f, "the server's certificate: {why}"),
            StartError::Signals(error) => write!(f, "signals can't be waited for: {error}"),
            StartError::EngineEnded => f.write_str(
                "the health engine has ended by a defect of this program, told above; please report it",
            ),
        }
    }
}

impl std::error::Error for StartError {}

impl From<UserError> for StartError {
    fn from(error: UserError) -> StartError {
        StartError::User(error)
    }
}

impl From<ListenError> for StartError {
    fn from(error: ListenError) -> StartError {
        StartError::Listen(error)
    }
}

/// What answers, for those who look at it from beside: none before it does, and
/// after a stop.
type Serving = Mutex<Option<serve::Server>>;

/// A running server.
pub struct Running {
    server: Arc<Serving>,
    /// What encrypted transports show, where there are any.
    certificates: Option<Arc<Certificates>>,
    control: Control,
    engine: JoinHandle<()>,
    /// Answers operators, where there is a state directory.
    desk: Option<JoinHandle<std::convert::Infallible>>,
    reloads: mpsc::Receiver<reload::Request>,
    /// What was made of the files when they were read last.
    files: Arc<Mutex<view::Files>>,
    /// The engine ends when it is gone.
    stop: watch::Sender<()>,
    threads: Threads,
}

/// Hands configurations and questions to the engine of a running server, which
/// takes them in their order, before outcomes of probes.
#[derive(Clone)]
pub struct Control {
    wishes: mpsc::UnboundedSender<Wish>,
    services: Arc<Services>,
}

/// Something to be asked of the engine, or done with it, by its own task.
type Question = Box<dyn FnOnce(&mut Engine, Moment) + Send>;

/// Something that somebody wants of the engine's task.
enum Wish {
    Ask(Question),
    /// Another configuration.
    Apply(Prepared),
    /// To hear when all so far is on the disk, or why it isn't.
    Confirm(oneshot::Sender<Result<(), String>>),
}

impl Control {
    /// Puts another configuration in force.
    pub fn apply(&self, prepared: Prepared) {
        // an engine that has ended takes nothing more, and nobody waits for it
        let _ = self.wishes.send(Wish::Apply(prepared));
    }

    /// Tells clients what `settings` say from now on.
    pub fn present(&self, settings: &ServiceSettings) {
        self.services.present(settings);
    }

    /// Waits until what was done before is kept for the next start; else says
    /// why it isn't. None: the engine has ended.
    async fn confirm(&self) -> Option<Result<(), String>> {
        let (told, hears) = oneshot::channel();
        self.wishes.send(Wish::Confirm(told)).ok()?;
        match timeout(CONFIRM, hears).await {
            Ok(answer) => answer.ok(),
            Err(_) => Some(Err("the disk doesn't answer".to_owned())),
        }
    }

    /// Asks the engine; none if it has ended. What was asked before has been
    /// carried out by then.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Engine, Moment) -> T + Send + 'static,
    ) -> Option<T> {
        let (told, hears) = oneshot::channel();
        let asked = Box::new(move |engine: &mut Engine, now: Moment| drop(told.send(question(engine, now))));
        self.wishes.send(Wish::Ask(asked)).ok()?;
        hears.await.ok()
    }
}

/// Where a server keeps what outlives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateAt {
    /// Nowhere: it forgets, and no operator can ask it.
    Nowhere,
    /// Here, or it doesn't start.
    Path(PathBuf),
    /// Where it is usual, if that can be used.
    Usual,
}

impl StateAt {
    /// What `--state-dir` says, else the configuration.
    pub fn of(option: Option<PathBuf>, settings: &Settings) -> StateAt {
        option.or_else(|| settings.state_dir.clone()).map_or(StateAt::Usual, StateAt::Path)
    }

    /// Where that is, as far as it is known before.
    fn path(&self) -> Option<PathBuf> {
        match self {
            StateAt::Nowhere => None,
            StateAt::Path(path) => Some(path.clone()),
            StateAt::Usual => state::default_path(),
        }
    }

    fn open(self) -> Result<Option<Directory>, OpenError> {
        match self {
            StateAt::Nowhere => Ok(None),
            StateAt::Path(path) => Directory::open(&path).map(Some),
            StateAt::Usual => {
                const LOSS: &str = "nothing is kept over a restart, and no command reaches this server";
                let Some(path) = state::default_path() else {
                    warn!("there is no home for a state directory: {LOSS}; set `state_dir` under `server:`");
                    return Ok(None);
                };
                match Directory::open(&path) {
                    Err(error @ OpenError::Unusable { .. }) => {
                        warn!("{error}: {LOSS}; set `state_dir` under `server:`");
                        Ok(None)
                    }
                    opened => opened.map(Some),
                }
            }
        }
    }
}

/// Who is told of changes.
pub type Tell = Box<dyn FnMut(&Change, &Clock) + Send>;

/// Starts serving `loaded` without anything that outlives it.
pub async fn start(loaded: &Loaded, listen: &[SocketAddr], tell: Tell) -> Result<Running, StartError> {
    start_with(loaded, listen, tell, StateAt::Nowhere, Given::default()).await
}

/// What a process was given besides its files.
#[derive(Debug, Default)]
pub struct Given {
    /// Who to be once the sockets are open; none: whoever started it.
    pub user: Option<String>,
    /// Sockets that are open already.
    pub sockets: Vec<Passed>,
}

/// The history of a server with this state directory. It is no reason not to
/// start when it can't be written.
fn history(loaded: &Loaded, directory: Option<&Arc<Directory>>) -> Option<(History, Vec<events::Event>)> {
    let (kept, directory) = (loaded.settings.history?, Arc::clone(directory?));
    let config::History { max_size, max_files, max_age } = kept;
    let folder = history::folder(directory.path());
    let limits = history::Limits { max_size, max_files, max_age };
    let history = History::start_while(folder.clone(), limits, move || directory.is_there());
    let history = match history {
        Ok(history) => history,
        Err(error) => {
            warn!("no history is kept in {}: {error}", folder.display());
            return None;
        }
    };
    info!("history is kept in {}", folder.display());
    let left_open = match loaded.model.alerts.is_empty() {
        true => Vec::new(),
        false => history::left_open(&folder).unwrap_or_default(), // then everything is told anew
    };
    Some((history, left_open))
}

/// The secret of server cookies: kept in the state directory, so that clients
/// need no new ones after a restart.
fn cookie_secret(directory: Option<&Directory>) -> [u8; 16] {
    let kept = directory.map(Directory::cookie_secret).transpose();
    let kept = kept.unwrap_or_else(|error| {
        warn!("the secret of server cookies can't be kept: {error}; clients get new cookies after a restart");
        None
    });
    // a machine without chance of its own still gives the standard library some
    let own = || {
        os::random().unwrap_or_else(|_| {
            RandomState::new().hash_one(0_u8).to_be_bytes().repeat(2).try_into().expect("twice 8 is 16")
        })
    };
    kept.unwrap_or_else(own)
}

/// Starts serving `loaded`: claims the addresses, takes up what a former run
/// left, makes the first round of probes for the rest (for `startup_wait` at
/// most), and only then binds.
pub async fn start_with(
    loaded: &Loaded,
    listen: &[SocketAddr],
    tell: Tell,
    state: StateAt,
    given: Given,
) -> Result<Running, StartError> {
    let settings = &loaded.settings;
    let user = given.user.as_deref().map(user::find).transpose()?.flatten();
    let state_path = state.path();
    if let Some(user) = &user {
        if let Some(path) = &state_path {
            user::prepare_state(path, user)?;
        }
        user::warn_of(user, loaded);
    }
    let mut listeners = listeners(settings, listen);
    listeners.retain(|listener| given.sockets.iter().all(|passed| passed.kind() != listener.kind));
    let sockets = listeners.len() + given.sockets.len();
    let claim = serve::claim(&listeners)?.with(given.sockets);
    let claim = match &user {
        Some(user) => claim.opened_by(user::change(user)?),
        None => claim,
    };
    let certificates = match &settings.identity {
        Some(identity) => {
            let certificates = Certificates::new(&shown(identity)).map_err(StartError::Certificate)?;
            Some(Arc::new(certificates))
        }
        None => None,
    };
    let directory = state.open().map_err(StartError::State)?.map(Arc::new);
    let announcer = Announcer::new(history(loaded, directory.as_ref()));
    let mut limits = serve_limits(settings);
    let max_probes = raise_open_files(settings.max_probes, sockets, &mut limits);
    let clock = Clock::start();
    let mut engine = Engine::new(max_probes);
    engine.ready_by(clock.now() + settings.startup_wait);
    let mut memory = directory.as_ref().map(|directory| directory.read()).unwrap_or_default();
    let vouched = memory.alive;
    if directory.is_some() {
        let now = clock.now();
        engine.recall(std::mem::take(&mut memory), now.before(settings.state_max_age), now);
    }
    engine.handle(Event::Reload(Prepared::new(Arc::clone(&loaded.model))), clock.now());
    let threads = Threads::start().map_err(StartError::Threads)?; // ends with a start that fails

    let journal = directory.as_ref().map(|directory| {
        // nobody has looked yet: what is held was vouched for by the former run
        let memory = Memory { alive: vouched, ..engine.memory(clock.now()) };
        Journal::begin(Arc::clone(directory), memory)
    });
    let (events, inbox) = mpsc::unbounded_channel();
    let (wishes, wanted) = mpsc::unbounded_channel();
    let (reloads, wanted_reloads) = mpsc::channel(1);
    let (stop, stopped) = watch::channel(());
    let (ready, mut is_ready) = watch::channel(None);
    let publisher = Publisher::new(Arc::new(engine.snapshot()));
    let reader = publisher.reader();
    let secret = cookie_secret(directory.as_deref());
    let services = Arc::new(Services::new(&settings.service, secret, limits.tcp_idle));
    let control = Control { wishes, services: Arc::clone(&services) };
    let prober = Arc::new(Prober::new());
    let lookups = Arc::new(Lookups::new(&settings.resolvers, clock));
    let (history, notices) = announcer.counts();
    let serving = Arc::new(Serving::default());
    let files = Arc::new(Mutex::new(view::Files::in_force(view::time(clock.now()))));
    let desk = Desk {
        control: control.clone(),
        clock,
        prober: Arc::clone(&prober),
        probes: threads.probes(),
        reloads,
        places: Desk::places(),
        lookups: Arc::clone(&lookups),
        upkeep: Upkeep { history, notices, journal: journal.as_ref().map(Journal::counts) },
        files: Arc::clone(&files),
        serving: Arc::downgrade(&serving),
    };
    let task = EngineTask {
        engine,
        clock,
        publisher,
        inbox,
        wanted,
        events,
        prober,
        probes: threads.probes(),
        running: HashMap::new(),
        lookups,
        step: 0,
        tell,
        announcer,
        ready,
        stopped,
        totals: None,
        litter: true,
        journal,
        vouched,
        alive_at: None,
    };
    let engine = threads.engine().spawn(task.run());
    let desk = directory.and_then(|directory| open_desk(desk, &directory));

    info!(targets = targets(&loaded.model), "first round of probes");
    let complete = is_ready.wait_for(Option::is_some).await.is_ok_and(|complete| *complete == Some(true));
    if !complete {
        warn!(
            startup_wait = ?settings.startup_wait,
            "the first round of probes isn't complete; what is still unknown counts as down"
        );
    }
    let setup = serve::Setup {
        limits,
        certificates: certificates.clone(),
        https_path: settings.https_path.as_str().into(),
        proxies: settings.proxies.clone().into(),
    };
    let server = claim.bind(setup, reader, services.reader(), &Handle::current())?;
    for serve::Listener { kind, address } in server.listeners() {
        info!(zones = loaded.model.zones.len(), "serving on {address} ({kind})");
    }
    *serving.lock() = Some(server);
    Ok(Running {
        server: serving,
        certificates,
        control,
        engine,
        desk,
        reloads: wanted_reloads,
        files,
        stop,
        threads,
    })
}

/// Lets operators ask at the directory's socket, if there can be one.
fn open_desk(desk: Desk, directory: &Directory) -> Option<JoinHandle<std::convert::Infallible>> {
    let path = directory.join(state::SOCKET);
    let bind = move || {
        Listener::bind(&path)
            .inspect_err(|error| {
                warn!("no command reaches this server: {} can't be listened at: {error}", path.display());
            })
            .ok()
    };
    let (mut listener, desk) = (bind(), Arc::new(desk)); // before anything is said to be ready
    let mut taken = directory.taken();
    Some(tokio::spawn(async move {
        loop {
            tokio::select! {
                never = listen(listener.take(), Arc::clone(&desk)) => match never {},
                Ok(()) = taken.changed() => {}
            }
            listener = bind(); // the directory was made anew, and the old socket with it is gone
        }
    }))
}

async fn listen(listener: Option<Listener>, desk: Arc<Desk>) -> std::convert::Infallible {
    match listener {
        Some(listener) => listener.run(desk).await,
        None => std::future::pending().await,
    }
}

impl Running {
    /// Where it answers, port 0 resolved.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.server.lock().as_ref().map(serve::Server::addresses).unwrap_or_default()
    }

    /// A way to hand over another configuration.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// What operators want read again.
    fn take_reloads(&mut self) -> mpsc::Receiver<reload::Request> {
        std::mem::replace(&mut self.reloads, mpsc::channel(1).1)
    }

    /// What the transports have counted.
    pub fn counters(&self) -> serve::Totals {
        self.server.lock().as_ref().map(serve::Server::counters).unwrap_or_default()
    }

    /// Tells whether everything that answers is alive.
    fn pulse(&self) -> Pulse {
        self.server.lock().as_ref().expect("only a stop takes it out, and the rest with it").pulse()
    }

    /// Waits until the engine ends, which it does only by a defect.
    pub async fn failed(&mut self) {
        let _ = (&mut self.engine).await;
    }

    /// Answers what has arrived, then ends; gives the last count.
    pub async fn stop(self) -> serve::Totals {
        let Running { server, engine, desk, stop, threads, .. } = self;
        if let Some(desk) = desk {
            desk.abort(); // its socket's file goes with it
        }
        let server = server.lock().take().expect("only a stop takes it out");
        let totals = server.stop().await;
        drop(stop);
        if !engine.is_finished() {
            let _ = engine.await; // if it has panicked that was said already
        }
        let _ = tokio::task::spawn_blocking(|| threads.give_up()).await;
        totals
    }
}

/// How many endpoints are probed, each monitor counted.
fn targets(model: &Model) -> usize {
    let enabled = model.pools.iter().filter(|pool| pool.enabled);
    let endpoints = |pool: &Pool| pool.endpoints.iter().filter(|e| e.enabled).count();
    enabled.map(|pool| pool.tests.members.len() * pool.viewpoints.vantages.len() * endpoints(pool)).sum()
}

/// What the log tells of the transports.
fn queries(totals: &serve::Totals) -> Queries {
    Queries {
        queries: totals.queries,
        replies: totals.replies(),
        over: totals.over.to_string(),
        trouble: Trouble {
            slipped: totals.rate_slipped,
            dropped: totals.rate_dropped,
            unproxied: totals.unproxied + totals.proxy_errors,
            overflows: totals.overflows,
            unsent: totals.refused,
            evicted: totals.evicted,
            panics: totals.panics,
            restarts: totals.restarts,
        },
    }
}

/// Where a server with these settings answers; plain DNS at `listen`.
fn listeners(settings: &Settings, listen: &[SocketAddr]) -> Vec<serve::Listener> {
    let lists = [
        (Kind::Dns, listen),
        (Kind::Tls, &settings.listen_tls),
        (Kind::Https, &settings.listen_https),
        (Kind::Quic, &settings.listen_quic),
        (Kind::Http3, &settings.listen_http3),
    ];
    let of = |(kind, list): (Kind, &[SocketAddr])| {
        list.iter().map(|&address| serve::Listener { kind, address }).collect::<Vec<_>>()
    };
    lists.into_iter().flat_map(of).collect()
}

/// What is to be shown, as the transports take it.
fn shown(identity: &config::Identity) -> serve::Identity {
    let (certificates, key) = (Arc::clone(&identity.certificates), Arc::clone(&identity.key));
    serve::Identity { certificates, key }
}

fn serve_limits(settings: &Settings) -> serve::Limits {
    let config::Connections { most, per_client, idle, message, write, handshake } = settings.connections;
    let mut limits = serve::Limits {
        tcp_connections: most as usize,
        tcp_connections_per_client: per_client as usize,
        tcp_idle: idle,
        tcp_message: message,
        tcp_write: write,
        tls_handshake: handshake,
        quic_connections: most as usize,
        ..serve::Limits::default()
    };
    if let Some(workers) = settings.udp_workers {
        limits.udp_workers = workers.get();
    }
    limits.rate.clone_from(&settings.rate_limit);
    limits
}

/// Serves until SIGTERM or SIGINT; SIGHUP and changed files reload.
pub async fn serve(
    loaded: Loaded,
    listen: Vec<SocketAddr>,
    watch: Watch,
    state: StateAt,
    user: Option<String>,
) -> Result<(), StartError> {
    use tokio::signal::unix::{SignalKind, signal};
    let on = |kind| signal(kind).map_err(StartError::Signals);
    let mut terminate = on(SignalKind::terminate())?;
    let mut interrupt = on(SignalKind::interrupt())?;

    let given = Given { user, sockets: serve::passed()? };
    let mut running = tokio::select! {
        started = start_with(&loaded, &listen, Box::new(telemetry::tell), state, given) => started?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    let reloader = Reloader::new(watch, loaded).asked_by(running.take_reloads());
    let reloader = reloader.replacing(running.certificates.clone()).noting_in(Arc::clone(&running.files));
    let mut reloads = pin!(reloader.run(running.control()));
    systemd::ready();
    let watching = tokio::spawn(systemd::watch(running.control(), running.pulse()));
    let mut trouble = Trouble::default();
    let mut look_at = Instant::now() + TOTALS_EVERY;
    let outcome = loop {
        tokio::select! {
            _ = terminate.recv() => break Ok("SIGTERM"),
            _ = interrupt.recv() => break Ok("SIGINT"),
            _ = running.failed() => break Err(StartError::EngineEnded),
            never = &mut reloads => match never {},
            () = sleep_until(look_at) => {}
        }
        look_at += TOTALS_EVERY;
        let so_far = queries(&running.counters());
        if trouble != so_far.trouble {
            trouble = so_far.trouble;
            telemetry::tell_queries(&so_far);
        }
    };
    if let Ok(signal) = outcome {
        info!("stopping on {signal}");
    }
    watching.abort();
    systemd::stopping();
    let totals = running.stop().await;
    telemetry::tell_queries(&queries(&totals));
    outcome.map(drop)
}
