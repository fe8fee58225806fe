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

pub mod demo;
mod limits;
pub mod rehearse;
mod reload;

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use crate::authority::Prepared;
use crate::clock::Clock;
use crate::config::{Loaded, Settings};
use crate::engine::{Change, Effect, Engine, Event, Lookup};
use crate::health::{Outcome, ProbeResult, Reason, ScheduleCounters, TargetId};
use crate::model::{Model, Pool};
use crate::moment::Moment;
use crate::os;
use crate::probe::Prober;
use crate::publish::Publisher;
use crate::resolve::Resolver;
use crate::serve::{self, ListenError};
use crate::telemetry;

pub use limits::raise_open_files;
pub use reload::{Reloader, Watch};

/// How often the totals are logged, if they moved.
const TOTALS_EVERY: Duration = Duration::from_secs(60);

/// How often the wall clock is compared with the time line, and by how many
/// milliseconds it must have been set to be told of.
const CLOCK_EVERY: Duration = Duration::from_secs(10);
const LEAST_STEP: u64 = 1000;

/// Why the server didn't start.
#[derive(Debug)]
pub enum StartError {
    Listen(ListenError),
    Threads(std::io::Error),
    Signals(std::io::Error),
    /// It ended by itself, which is a defect.
    EngineEnded,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Listen(error) => write!(f, "{error}"),
            StartError::Threads(error) => write!(f, "no threads for probes: {error}"),
            StartError::Signals(error) => write!(f, "signals can't be waited for: {error}"),
            StartError::EngineEnded => f.write_str(
                "the health engine has ended by a defect of this program, told above; please report it",
            ),
        }
    }
}

impl std::error::Error for StartError {}

impl From<ListenError> for StartError {
    fn from(error: ListenError) -> StartError {
        StartError::Listen(error)
    }
}

/// A running server.
pub struct Running {
    server: serve::Server,
    control: Control,
    engine: JoinHandle<()>,
    /// The engine ends when it is gone.
    stop: watch::Sender<()>,
    probes: ProbeThreads,
}

/// Hands events to the engine of a running server.
#[derive(Clone)]
pub struct Control {
    events: mpsc::UnboundedSender<Event>,
}

impl Control {
    /// Puts another configuration in force.
    pub fn apply(&self, prepared: Prepared) {
        // an engine that has ended takes nothing more, and nobody waits for it
        let _ = self.events.send(Event::Reload(prepared));
    }
}

/// At the end probes are given up, and waited for so long at most.
const PROBES_END: Duration = Duration::from_millis(300);

/// Snapshots that readers still held are looked at again after so long.
const TIDY_EVERY: Duration = Duration::from_millis(500);

/// Who is told of changes.
pub type Tell = Box<dyn FnMut(&Change, &Clock) + Send>;

/// Starts serving `loaded`: claims the addresses, makes the first round of
/// probes (for `startup_wait` at most), and only then binds.
pub async fn start(loaded: &Loaded, listen: &[SocketAddr], tell: Tell) -> Result<Running, StartError> {
    let settings = &loaded.settings;
    let claim = serve::claim(listen)?;
    let mut limits = serve_limits(settings);
    let max_probes = raise_open_files(settings.max_probes, listen.len(), &mut limits);
    let clock = Clock::start();
    let mut engine = Engine::new(max_probes);
    engine.ready_by(clock.now() + settings.startup_wait);
    engine.handle(Event::Reload(Prepared::new(Arc::clone(&loaded.model))), clock.now());
    let probes = Builder::new_multi_thread()
        .worker_threads(std::thread::available_parallelism().map_or(1, |cores| cores.get().min(4)))
        .thread_name("probe")
        .enable_all()
        .build()
        .map_err(StartError::Threads)?;
    let probes = ProbeThreads(Some(probes)); // at once: the start may fail or be given up

    let (events, inbox) = mpsc::unbounded_channel();
    let (stop, stopped) = watch::channel(());
    let (ready, mut is_ready) = watch::channel(None);
    let publisher = Publisher::new(Arc::new(engine.snapshot()));
    let reader = publisher.reader();
    let control = Control { events: events.clone() };
    let task = EngineTask {
        engine,
        clock,
        publisher,
        inbox,
        events,
        prober: Arc::new(Prober::new()),
        probes: probes.handle(),
        running: HashMap::new(),
        resolver: resolver(&settings.resolvers),
        step: 0,
        tell,
        ready,
        stopped,
        totals: None,
        litter: true,
    };
    let engine = tokio::spawn(task.run());

    info!(targets = targets(&loaded.model), "first round of probes");
    let complete = is_ready.wait_for(Option::is_some).await.is_ok_and(|complete| *complete == Some(true));
    if !complete {
        warn!(
            startup_wait = ?settings.startup_wait,
            "the first round of probes isn't complete; what is still unknown counts as down"
        );
    }
    let server = claim.bind(limits, reader, &Handle::current())?;
    for address in server.addresses() {
        info!(zones = loaded.model.zones.len(), "serving on {address} (UDP and TCP)");
    }
    Ok(Running { server, control, engine, stop, probes })
}

impl Running {
    /// Where it answers, port 0 resolved.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.server.addresses()
    }

    /// A way to hand over another configuration.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// What the transports have counted.
    pub fn counters(&self) -> serve::Totals {
        self.server.counters()
    }

    /// Waits until the engine ends, which it does only by a defect.
    pub async fn failed(&mut self) {
        let _ = (&mut self.engine).await;
    }

    /// Answers what has arrived, then ends; gives the last count.
    pub async fn stop(self) -> serve::Totals {
        let Running { server, engine, stop, probes, .. } = self;
        let totals = server.stop().await;
        drop(stop);
        if !engine.is_finished() {
            let _ = engine.await; // if it has panicked that was said already
        }
        let _ = tokio::task::spawn_blocking(|| probes.give_up()).await;
        totals
    }
}

/// The threads that probe; they end with this value, and nobody waits for the
/// results of their last probes.
struct ProbeThreads(Option<Runtime>);

impl ProbeThreads {
    fn handle(&self) -> Handle {
        self.0.as_ref().expect("taken only by its end").handle().clone()
    }

    /// Waits until no probe is left, and no program of one; but not for a
    /// resolver that hangs.
    fn give_up(mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_timeout(PROBES_END);
        }
    }
}

impl Drop for ProbeThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background(); // a runtime may not end inside another by itself
        }
    }
}

/// What looks up the host names of endpoints.
fn resolver(servers: &[SocketAddr]) -> Option<Resolver> {
    Resolver::new(servers)
        .inspect_err(|error| warn!("host names of endpoints can't be looked up: {error}"))
        .ok()
}

/// How many endpoints are probed, each monitor counted.
fn targets(model: &Model) -> usize {
    let enabled = model.pools.iter().filter(|pool| pool.enabled);
    let endpoints = |pool: &Pool| pool.endpoints.iter().filter(|e| e.enabled).count();
    enabled.map(|pool| pool.tests.members.len() * pool.viewpoints.vantages.len() * endpoints(pool)).sum()
}

fn serve_limits(settings: &Settings) -> serve::Limits {
    let mut limits = serve::Limits::default();
    if let Some(workers) = settings.udp_workers {
        limits.udp_workers = workers.get();
    }
    limits
}

/// The task that owns the engine.
struct EngineTask {
    engine: Engine,
    clock: Clock,
    publisher: Publisher<crate::authority::Snapshot>,
    inbox: mpsc::UnboundedReceiver<Event>,
    events: mpsc::UnboundedSender<Event>,
    prober: Arc<Prober>,
    probes: Handle,
    /// The probes on their way.
    running: HashMap<TargetId, AbortHandle>,
    /// None: the system has no resolver that can be used.
    resolver: Option<Resolver>,
    /// How far the wall clock had been set when it was last looked at.
    step: i64,
    tell: Tell,
    /// Whether the first round was complete, once it is over.
    ready: watch::Sender<Option<bool>>,
    stopped: watch::Receiver<()>,
    totals: Option<ScheduleCounters>,
    /// A configuration was read since memory was last given back.
    litter: bool,
}

impl EngineTask {
    async fn run(mut self) {
        const BATCH: usize = 256;
        let mut batch = Vec::with_capacity(BATCH);
        let mut totals_at = Instant::now() + TOTALS_EVERY;
        let mut clock_at = Instant::now() + CLOCK_EVERY;
        loop {
            self.carry_out();
            let mut wake_at = totals_at.min(clock_at);
            if let Some(at) = self.engine.wake_at() {
                wake_at = wake_at.min(self.clock.instant(at).into());
            }
            if !self.tidy_up() {
                wake_at = wake_at.min(Instant::now() + TIDY_EVERY);
            }
            tokio::select! {
                _ = self.inbox.recv_many(&mut batch, BATCH) => {}
                _ = sleep_until(wake_at) => {}
                _ = self.stopped.changed() => return, // its sender is gone
            }
            let now = self.clock.now();
            for event in batch.drain(..) {
                if let Event::Probed { target, .. } = &event {
                    self.running.remove(target);
                }
                let reload = matches!(event, Event::Reload(_));
                self.engine.handle(event, now);
                if reload {
                    self.litter = true;
                    telemetry::tell_reload(self.engine.model());
                }
            }
            self.engine.advance(now);
            if Instant::now() >= clock_at {
                clock_at = Instant::now() + CLOCK_EVERY;
                self.watch_clock(now);
            }
            if Instant::now() >= totals_at {
                totals_at = Instant::now() + TOTALS_EVERY;
                self.tell_totals();
            }
        }
    }

    /// Does what the engine wants done.
    fn carry_out(&mut self) {
        while let Some(effect) = self.engine.next_effect() {
            match effect {
                Effect::Probe { target, task } => {
                    let prober = Arc::clone(&self.prober);
                    let report = Report { target, events: self.events.clone(), outcome: None };
                    let probe = self.probes.spawn(async move {
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
                Effect::Remember(_) => {}
                Effect::Publish(snapshot) => self.publisher.publish(snapshot),
                Effect::Ready { complete } => drop(self.ready.send_replace(Some(complete))),
                Effect::Tell(change) => (self.tell)(&change, &self.clock),
            }
        }
    }

    /// Looks up a host name beside everything else.
    fn look_up(&self, hostname: Arc<str>) {
        let (events, resolver) = (self.events.clone(), self.resolver.clone());
        tokio::spawn(async move {
            let name = Arc::clone(&hostname);
            let lookup = async move {
                match resolver {
                    Some(resolver) => resolver.lookup(&name).await,
                    None => Lookup::Failed,
                }
            };
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
        if self.totals.replace(counters) != Some(counters) {
            telemetry::tell_probes(counters);
        }
    }
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
pub async fn serve(loaded: Loaded, listen: Vec<SocketAddr>, watch: Watch) -> Result<(), StartError> {
    use tokio::signal::unix::{SignalKind, signal};
    let on = |kind| signal(kind).map_err(StartError::Signals);
    let mut terminate = on(SignalKind::terminate())?;
    let mut interrupt = on(SignalKind::interrupt())?;

    let mut running = tokio::select! {
        started = start(&loaded, &listen, Box::new(telemetry::tell)) => started?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    let mut reloads = pin!(Reloader::new(watch, loaded).run(running.control()));
    let outcome = tokio::select! {
        _ = terminate.recv() => Ok("SIGTERM"),
        _ = interrupt.recv() => Ok("SIGINT"),
        _ = running.failed() => Err(StartError::EngineEnded),
        never = &mut reloads => match never {},
    };
    if let Ok(signal) = outcome {
        info!("stopping on {signal}");
    }
    let totals = running.stop().await;
    telemetry::tell_queries(totals.queries, totals.replies());
    outcome.map(drop)
}
