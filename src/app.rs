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
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use announce::Announcer;
use lookups::Lookups;

use crate::authority::Prepared;
use crate::clock::Clock;
use crate::config::{self, Loaded, ServiceSettings, Settings};
use crate::control::Listener;
use crate::engine::{Change, Effect, Engine, Event, Lookup};
use crate::events;
use crate::health::{Memory, Outcome, ProbeResult, Reason, Record, ScheduleCounters, TargetId};
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
use threads::{Places, Threads};
pub use user::UserError;

pub use limits::raise_open_files;
pub use operator::tasks_of;
pub use reload::{Reloader, Watch};

/// How often the totals are logged, if they moved.
const TOTALS_EVERY: Duration = Duration::from_secs(60);

/// How often the wall clock is compared with the time line, and by how many
/// milliseconds it must have been set to be told of.
const CLOCK_EVERY: Duration = Duration::from_secs(10);
const LEAST_STEP: u64 = 1000;

/// How long somebody waits to hear that something is on the disk.
const CONFIRM: Duration = Duration::from_secs(2);

/// So many events are taken in one turn.
const BATCH: usize = 256;

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

/// Snapshots that readers still held are looked at again after so long.
const TIDY_EVERY: Duration = Duration::from_millis(500);

/// Who is told of changes.
pub type Tell = Box<dyn FnMut(&Change, &Clock) + Send>;

/// So often it is noted that the process is alive, which vouches for verdicts.
const ALIVE_EVERY: Duration = Duration::from_secs(10);

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
    let desk = Desk {
        control: control.clone(),
        clock,
        prober: Arc::clone(&prober),
        probes: threads.probes(),
        reloads,
        places: Desk::places(),
        lookups: Arc::clone(&lookups),
        upkeep: Upkeep { history, notices, journal: journal.as_ref().map(Journal::counts) },
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

/// The task that owns the engine.
struct EngineTask {
    engine: Engine,
    clock: Clock,
    publisher: Publisher<crate::authority::Snapshot>,
    inbox: mpsc::UnboundedReceiver<Event>,
    wanted: mpsc::UnboundedReceiver<Wish>,
    events: mpsc::UnboundedSender<Event>,
    prober: Arc<Prober>,
    probes: Places,
    /// The probes on their way.
    running: HashMap<TargetId, AbortHandle>,
    lookups: Arc<Lookups>,
    /// How far the wall clock had been set when it was last looked at.
    step: i64,
    tell: Tell,
    announcer: Announcer,
    /// Whether the first round was complete, once it is over.
    ready: watch::Sender<Option<bool>>,
    stopped: watch::Receiver<()>,
    totals: Option<ScheduleCounters>,
    /// A configuration was read since memory was last given back.
    litter: bool,
    journal: Option<Journal>,
    /// When the verdicts at hand were last known to be worth something.
    vouched: Option<Moment>,
    /// When that is noted next; none before the first round is over.
    alive_at: Option<Moment>,
}

impl EngineTask {
    async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut totals_at = Instant::now() + TOTALS_EVERY;
        let mut clock_at = Instant::now() + CLOCK_EVERY;
        loop {
            self.carry_out();
            self.remember();
            let mut wake_at = totals_at.min(clock_at);
            let wakes = [self.engine.wake_at(), self.announcer.wake_at(), self.alive_at];
            for at in wakes.into_iter().flatten() {
                wake_at = wake_at.min(self.clock.instant(at).into());
            }
            if !self.tidy_up() {
                wake_at = wake_at.min(Instant::now() + TIDY_EVERY);
            }
            let turn = turn(&mut self.wanted, &mut self.inbox, &mut batch);
            let wish = tokio::select! {
                biased;
                _ = self.stopped.changed() => break, // its sender is gone
                wish = turn => wish,
                _ = sleep_until(wake_at) => None,
            };
            let now = self.clock.now();
            match wish {
                Some(Wish::Ask(question)) => question(&mut self.engine, now),
                Some(Wish::Apply(prepared)) => {
                    self.engine.handle(Event::Reload(prepared), now);
                    self.litter = true;
                    telemetry::tell_reload(self.engine.model());
                }
                Some(Wish::Confirm(told)) => self.confirm(told),
                None => {}
            }
            for event in batch.drain(..) {
                if let Event::Probed { target, .. } = &event {
                    self.running.remove(target);
                }
                self.engine.handle(event, now);
            }
            self.engine.advance(now);
            self.announcer.advance(&self.engine, now);
            if Instant::now() >= clock_at {
                clock_at = Instant::now() + CLOCK_EVERY;
                self.watch_clock(now);
            }
            if Instant::now() >= totals_at {
                totals_at = Instant::now() + TOTALS_EVERY;
                self.tell_totals();
            }
        }
        self.alive_at = self.alive_at.map(|_| Moment::ZERO);
        self.remember();
        if let Some(journal) = self.journal {
            if journal.is_behind() {
                // the last chance to make up for what is missing
                journal.rewrite(Memory { alive: self.vouched, ..self.engine.memory(self.clock.now()) });
            }
            let _ = tokio::task::spawn_blocking(|| journal.end()).await;
        }
    }

    /// Has the journal say whether everything is on the disk.
    fn confirm(&self, told: oneshot::Sender<Result<(), String>>) {
        match &self.journal {
            Some(journal) => journal.confirm(told),
            None => drop(told.send(Err("there is no state directory".to_owned()))),
        }
    }

    /// Notes what is to outlive the process, beside what changes.
    fn remember(&mut self) {
        let Some(journal) = &self.journal else { return };
        let now = self.clock.now();
        if self.alive_at.is_some_and(|at| at <= now) {
            self.vouched = Some(now);
            self.alive_at = Some(now + ALIVE_EVERY);
            journal.append(Record::Alive(now));
        }
        if journal.wants_all() {
            journal.rewrite(Memory { alive: self.vouched, ..self.engine.memory(now) });
        }
    }

    /// Does what the engine wants done.
    fn carry_out(&mut self) {
        while let Some(effect) = self.engine.next_effect() {
            match effect {
                Effect::Probe { target, task } => {
                    let prober = Arc::clone(&self.prober);
                    let report = Report { target, events: self.events.clone(), outcome: None };
                    let probe = self.probes.of(&task.monitor.check).spawn(async move {
                        let mut report = report;
                        let outcome = prober.run(&task).await;
                        telemetry::tell_probe(&task, &outcome);
                        report.outcome = Some(outcome);
                    });
                    self.running.insert(target, probe.abort_handle());
                }
                Effect::Abandon { target } => {
                    if let Some(probe) = self.running.remove(&target) {
                        probe.abort();
                    }
                }
                Effect::Resolve { hostname } => self.look_up(hostname),
                Effect::Remember(record) => {
                    if let Some(journal) = &self.journal {
                        journal.append(record);
                    }
                }
                Effect::Publish(snapshot) => self.publisher.publish(snapshot),
                Effect::Ready { complete } => {
                    self.alive_at = self.journal.as_ref().map(|_| self.clock.now());
                    self.ready.send_replace(Some(complete));
                }
                Effect::Tell(change) => {
                    (self.tell)(&change, &self.clock);
                    self.announcer.tell(&change, &self.engine, &self.clock);
                }
            }
        }
    }

    /// Looks up a host name beside everything else.
    fn look_up(&self, hostname: Arc<str>) {
        let (events, lookups) = (self.events.clone(), Arc::clone(&self.lookups));
        tokio::spawn(async move {
            let name = Arc::clone(&hostname);
            let lookup = async move { lookups.look_up(&name).await };
            // on a task of its own: a panic there is a lookup that failed
            let lookup = tokio::spawn(lookup).await.unwrap_or(Lookup::Failed);
            let _ = events.send(Event::Resolved { hostname, lookup });
        });
    }

    /// Tells the engine when the wall clock was set.
    fn watch_clock(&mut self, now: Moment) {
        let step = self.clock.step();
        if step.abs_diff(self.step) >= LEAST_STEP {
            self.step = step;
            warn!(milliseconds = step, "the wall clock was set; times go by it, intervals don't");
            self.engine.handle(Event::ClockStepped(step), now);
        }
    }

    /// Frees old snapshots; tells whether none is left. Once those of an old
    /// configuration are gone, what they took goes back to the kernel.
    fn tidy_up(&mut self) -> bool {
        let swept = self.publisher.sweep();
        if swept && self.ready.borrow().is_some() && std::mem::take(&mut self.litter) {
            tokio::task::spawn_blocking(os::give_back_memory);
        }
        swept
    }

    fn tell_totals(&mut self) {
        let counters = self.engine.counters();
        let before = self.totals.replace(counters);
        if before != Some(counters) {
            telemetry::tell_probes(counters, before.unwrap_or_default());
        }
    }
}

/// What is to be done next: what somebody wants before outcomes of probes, one
/// thing a turn, and with it as many events as a turn takes. So neither waits
/// for more than one turn of the other, whatever comes in.
async fn turn(
    wanted: &mut mpsc::UnboundedReceiver<Wish>,
    inbox: &mut mpsc::UnboundedReceiver<Event>,
    batch: &mut Vec<Event>,
) -> Option<Wish> {
    let wish = tokio::select! {
        biased;
        Some(wish) = wanted.recv() => Some(wish),
        _ = inbox.recv_many(batch, BATCH) => None,
    };
    while batch.len() < BATCH
        && let Ok(event) = inbox.try_recv()
    {
        batch.push(event);
    }
    wish
}

/// Reports a probe's outcome when dropped: also if the probe panicked, so that
/// one defect never leaves a target waiting for ever.
struct Report {
    target: TargetId,
    events: mpsc::UnboundedSender<Event>,
    outcome: Option<Outcome>,
}

impl Drop for Report {
    fn drop(&mut self) {
        let aborted = || Outcome::new(ProbeResult::Error, Reason::OtherFailure, "probe_aborted");
        let outcome = self.outcome.take().unwrap_or_else(aborted);
        let _ = self.events.send(Event::Probed { target: self.target, outcome });
    }
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
    let reloader = reloader.replacing(running.certificates.clone());
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

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "zone: example.com\n\
                       records: { '': { type: NS, value: ns.example.net. } }\n\
                       monitors: { m: { type: tcp, port: 80 } }\n\
                       pools: { p: { monitor: m, endpoints: [{ name: e, address: 192.0.2.1 }] } }\n\
                       load_balancers: { www: { default_pools: [p], when_unavailable: nodata } }\n";

    fn next_probe(engine: &mut Engine) -> Option<TargetId> {
        std::iter::from_fn(|| engine.next_effect()).find_map(|effect| match effect {
            Effect::Probe { target, .. } => Some(target),
            _ => None,
        })
    }

    #[tokio::test]
    async fn d10_a_probe_that_panics_is_an_error_and_its_target_is_probed_again() {
        let loaded = config::load_texts(vec![("a.yaml".into(), ONE.into())]);
        let model = loaded.unwrap_or_else(|report| panic!("{report}")).model;
        let mut engine = Engine::new(10);
        let mut now = Moment::from_start(Duration::from_secs(1_700_000_000));
        engine.handle(Event::Reload(Prepared::new(model)), now);
        let (events, mut reported) = mpsc::unbounded_channel();
        for _ in 0..3 {
            let target = loop {
                engine.advance(now);
                if let Some(target) = next_probe(&mut engine) {
                    break target;
                }
                now = engine.wake_at().expect("its next beat is known");
            };
            let report = Report { target, events: events.clone(), outcome: None };
            let defect = tokio::spawn(async move {
                let _report = report;
                panic!("on purpose")
            });
            assert!(defect.await.is_err_and(|error| error.is_panic()));
            let event = reported.try_recv().expect("it is told as the probe goes");
            let Event::Probed { outcome, .. } = &event else { panic!("{event:?}") };
            assert_eq!((outcome.result, outcome.detail), (ProbeResult::Error, "probe_aborted"));
            engine.handle(event, now);
        }
    }

    #[tokio::test]
    async fn what_somebody_wants_comes_before_events_and_holds_none_of_them_up() {
        let (wishes, mut wanted) = mpsc::unbounded_channel();
        let (events, mut inbox) = mpsc::unbounded_channel();
        for _ in 0..10 * BATCH {
            events.send(Event::ClockStepped(0)).unwrap();
        }
        let mut batch = Vec::new();
        assert!(turn(&mut wanted, &mut inbox, &mut batch).await.is_none());
        assert_eq!(batch.len(), BATCH);
        for _ in 0..3 {
            wishes.send(Wish::Ask(Box::new(|_, _| {}))).unwrap();
        }
        for _ in 0..3 {
            batch.clear();
            let wish = turn(&mut wanted, &mut inbox, &mut batch).await;
            assert!(matches!(wish, Some(Wish::Ask(_))), "before what waits for longer");
            assert_eq!(batch.len(), BATCH, "and that goes on");
        }
        drop((wishes, batch));
        let mut batch = Vec::new();
        assert!(turn(&mut wanted, &mut inbox, &mut batch).await.is_none());
        assert_eq!(batch.len(), BATCH, "also when nobody can want anything any more");
    }
}
