//! Sends notices: one POST each, in order, as often as it takes.
//!
//! Each route has a task and a queue of its own, so that a receiver that hangs
//! holds up nobody else, and the engine never. A notice that can't be delivered
//! is tried again with growing gaps for about an hour, and sooner when there is
//! more to tell. What is over before its beginning could be delivered is dropped,
//! beginning and end, and a queue that is full drops its oldest notice; both are
//! counted and told.
//!
//! Secrets stand in requests alone: log lines name the route, and the place of
//! its receiver without the path.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tracing::{debug, info, warn};

use crate::alerts::{Notice, Turn, body};
use crate::model::{Form, Receiver, Route};

/// So many notices of a route wait, and so many octets of them; the oldest of
/// more are dropped.
const WAITING: usize = 1000;
const WAITING_OCTETS: usize = 4 << 20;

/// So long the rest of an answer is waited for once its code is known.
const LINGER: Duration = Duration::from_secs(1);

/// So much of an answer is read.
const MAX_ANSWER: usize = 64 << 10;

/// How hard it is tried.
#[derive(Clone, Debug)]
pub struct Patience {
    /// For one attempt.
    pub timeout: Duration,
    /// Before each further attempt; then it is given up.
    pub gaps: Vec<Duration>,
    /// News makes another attempt once the last failure is so long ago.
    pub soon: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        let gaps = [1, 5, 30, 120, 300, 600, 1200, 1200];
        let gaps = gaps.map(Duration::from_secs).to_vec();
        Patience { timeout: Duration::from_secs(10), gaps, soon: Duration::from_secs(5) }
    }
}

/// The senders of all routes. To be used inside a runtime.
#[derive(Debug, Default)]
pub struct Notifier {
    patience: Patience,
    senders: HashMap<Arc<str>, Sender>,
    counts: Arc<Counts>,
}

/// What is counted of all routes together.
#[derive(Debug, Default)]
pub struct Counts {
    dropped: AtomicU64,
}

impl Counts {
    /// How many notices were dropped since the start because too many waited.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Counts further ones.
    pub fn add_dropped(&self, number: u64) {
        self.dropped.fetch_add(number, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Sender {
    inbox: mpsc::UnboundedSender<Notice>,
    /// Octets that its task has not taken yet.
    waiting: Arc<AtomicUsize>,
    /// How many found no room since that was so last.
    dropped: u64,
    task: JoinHandle<()>,
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Notifier {
    /// One that tries so hard.
    pub fn new(patience: Patience) -> Notifier {
        Notifier { patience, ..Notifier::default() }
    }

    /// What is counted, to be looked at from elsewhere.
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// Gives up what is to be sent on routes that aren't there any more.
    pub fn adopt<'a>(&mut self, routes: impl Iterator<Item = &'a Arc<Route>>) {
        let names: Vec<&str> = routes.map(|route| &*route.name).collect();
        self.senders.retain(|name, _| names.contains(&&**name));
    }

    /// Sends a notice some time; never waits.
    pub fn send(&mut self, notice: Notice) {
        let name = Arc::clone(&notice.route.name);
        let (patience, counts) = (&self.patience, &self.counts);
        let sender = self.senders.entry(name).or_insert_with(|| {
            let (inbox, notices) = mpsc::unbounded_channel();
            let waiting = Arc::new(AtomicUsize::new(0));
            let outbox = Outbox::new(patience.clone(), Arc::clone(counts));
            let task = tokio::spawn(run(notices, Arc::clone(&waiting), outbox));
            Sender { inbox, waiting, dropped: 0, task }
        });
        let octets = notice.octets();
        if sender.waiting.load(Ordering::Relaxed) + octets > WAITING_OCTETS {
            counts.add_dropped(1);
            if sender.dropped == 0 {
                warn!("notices of alerts are dropped, because too many come at once");
            }
            sender.dropped += 1;
            return;
        }
        if sender.dropped > 0 {
            let dropped = std::mem::take(&mut sender.dropped);
            info!(dropped, "notices of alerts find room again");
        }
        sender.waiting.fetch_add(octets, Ordering::Relaxed);
        let _ = sender.inbox.send(notice); // its task ends only with the sender
    }
}

/// Sends the notices of one route; takes in what comes also while one is on
/// its way.
async fn run(mut inbox: mpsc::UnboundedReceiver<Notice>, waiting: Arc<AtomicUsize>, mut outbox: Outbox) {
    let timeout = outbox.patience.timeout;
    let mut sending: Option<Pin<Box<dyn Future<Output = Attempt> + Send>>> = None;
    loop {
        let due = if sending.is_none() { outbox.due(Instant::now()) } else { None };
        tokio::select! {
            received = inbox.recv() => match received {
                Some(notice) => {
                    waiting.fetch_sub(notice.octets(), Ordering::Relaxed);
                    outbox.take(notice, sending.is_some(), Instant::now());
                }
                None => return,
            },
            ended = async { sending.as_mut().expect("only while there is one").await }, if sending.is_some() => {
                sending = None;
                outbox.ended(ended, Instant::now());
            }
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                sending = outbox.current().map(|notice| Box::pin(attempt(notice, timeout)) as _);
            }
        }
    }
}

/// What waits to be sent on one route. Knows no sockets: it says when to try
/// and is told how that ended.
struct Outbox {
    patience: Patience,
    current: Option<Current>,
    queue: VecDeque<Notice>,
    counts: Arc<Counts>,
    /// When the receiver failed, if it did so the last time.
    failed: Option<Instant>,
    /// Since the last that was told of these: too many waited.
    dropped: u64,
    /// It was over before it could be told.
    obsolete: u64,
}

/// The notice whose turn it is.
struct Current {
    notice: Notice,
    failures: usize,
    /// How many of the gaps are used up.
    gaps: usize,
    /// When it is tried by those, and when in truth: news doesn't wait for a long gap.
    due: Instant,
    next: Instant,
    /// It failed, but its receiver may have it.
    may_have_arrived: bool,
    /// News came while it was on its way.
    hurry: bool,
}

impl Outbox {
    fn new(patience: Patience, counts: Arc<Counts>) -> Outbox {
        let queue = VecDeque::new();
        Outbox { patience, current: None, queue, counts, failed: None, dropped: 0, obsolete: 0 }
    }

    /// When to try next, while nothing is on its way.
    fn due(&mut self, now: Instant) -> Option<Instant> {
        if self.current.is_none() {
            let notice = self.queue.pop_front()?;
            let next = self.soon(now);
            self.current = Some(Current {
                notice,
                failures: 0,
                gaps: 0,
                due: next,
                next,
                may_have_arrived: false,
                hurry: false,
            });
        }
        self.current.as_ref().map(|current| current.next)
    }

    /// At once, unless the receiver has failed just now.
    fn soon(&self, now: Instant) -> Instant {
        self.failed.map_or(now, |at| now.max(at + self.patience.soon))
    }

    fn current(&self) -> Option<Notice> {
        self.current.as_ref().map(|current| current.notice.clone())
    }

    fn take(&mut self, notice: Notice, on_its_way: bool, now: Instant) {
        let (turn, incident) = (notice.turn, notice.incident.clone());
        self.queue.push_back(notice);
        if turn == Turn::End && self.forget(&incident, on_its_way) {
            return;
        }
        let soon = self.soon(now);
        if let Some(current) = &mut self.current {
            current.hurry |= on_its_way;
            current.next = current.next.min(soon);
        }
        while self.queue.len() > WAITING || self.octets() > WAITING_OCTETS {
            self.queue.pop_front();
            self.dropped += 1;
            self.counts.add_dropped(1);
        }
    }

    fn octets(&self) -> usize {
        self.queue.iter().map(Notice::octets).sum()
    }

    /// Drops what still waits of an incident whose end waits, too: nobody needs
    /// to hear that it lasts, and the end only who may have heard of its
    /// beginning. Says whether the end was dropped.
    fn forget(&mut self, incident: &str, on_its_way: bool) -> bool {
        let before = self.queue.len() + usize::from(self.current.is_some());
        let mut untold = false;
        self.queue.retain(|of| {
            let over = of.incident == incident && of.turn != Turn::End;
            untold |= over && of.turn == Turn::Start;
            !over
        });
        let is_current = |of: &&mut Current| of.notice.incident == incident && of.notice.turn != Turn::End;
        if let Some(current) = self.current.as_mut().filter(is_current)
            && !on_its_way
        {
            untold |= current.notice.turn == Turn::Start && !current.may_have_arrived;
            self.current = None;
        }
        if untold {
            self.queue.retain(|of| of.incident != incident);
        }
        let after = self.queue.len() + usize::from(self.current.is_some());
        self.obsolete += (before - after) as u64;
        if after == 0 {
            self.tell_counts(); // nothing is left whose delivery would be the occasion
        }
        untold
    }

    fn ended(&mut self, attempt: Attempt, now: Instant) {
        let Some(mut current) = self.current.take() else { return };
        let Route { name, receiver, .. } = &*current.notice.route;
        let place = receiver.url.place();
        let failures = current.failures + 1;
        let error = match attempt.outcome {
            Ok(()) => {
                let failures = current.failures;
                if failures > 0 {
                    info!(alert = %name, failures, "a notice has reached {place} after all");
                }
                let title = current.notice.title();
                debug!(alert = %name, turn = ?current.notice.turn, "notice sent to {place}: {title}");
                self.failed = None;
                self.tell_counts();
                return;
            }
            Err(error) => error,
        };
        let early = now < current.due;
        let due = match (early, self.patience.gaps.get(current.gaps)) {
            _ if error.is_final() => None,
            (true, _) => Some(current.due), // tried for the sake of others: that costs it nothing
            (false, gap) => gap.map(|gap| now + *gap),
        };
        let Some(due) = due else {
            let title = current.notice.title();
            warn!(alert = %name, failures, "a notice was given up, {place} doesn't take it: {error}; it says: {title}");
            self.failed = None;
            return;
        };
        if failures == 1 {
            warn!(alert = %name, "a notice can't be delivered to {place}: {error}; it is tried again");
        }
        self.failed = Some(now);
        current.failures = failures;
        current.gaps += usize::from(!early);
        current.due = due;
        current.next = if current.hurry { due.min(self.soon(now)) } else { due };
        current.hurry = false;
        current.may_have_arrived |= attempt.sent && error.may_have_arrived();
        let incident = current.notice.incident.clone();
        self.current = Some(current);
        if self.queue.iter().any(|of| of.incident == incident && of.turn == Turn::End) {
            self.forget(&incident, false);
        }
    }

    fn tell_counts(&mut self) {
        let (dropped, obsolete) = (std::mem::take(&mut self.dropped), std::mem::take(&mut self.obsolete));
        if dropped > 0 {
            warn!(dropped, "notices of alerts were dropped, because too many waited");
        }
        if obsolete > 0 {
            info!(
                dropped = obsolete,
                "notices of alerts were dropped, because what they tell of was over before they could be delivered"
            );
        }
    }
}

/// How an attempt ended.
struct Attempt {
    outcome: Result<(), Undelivered>,
    /// It came so far that the receiver may have read it.
    sent: bool,
}

async fn attempt(notice: Notice, longest: Duration) -> Attempt {
    let mut sent = false;
    let posted = timeout(longest, post(&notice.route.receiver, &notice, &mut sent)).await;
    Attempt { outcome: posted.unwrap_or(Err(Undelivered::TimedOut)), sent }
}

/// Why an attempt failed.
#[derive(Debug)]
enum Undelivered {
    TimedOut,
    Io(io::Error),
    Http(hyper::Error),
    /// The receiver answered with this.
    Refused(StatusCode),
    /// It can't even be tried.
    Request(&'static str),
}

impl Undelivered {
    /// Whether trying again is no use.
    fn is_final(&self) -> bool {
        match self {
            Undelivered::TimedOut | Undelivered::Io(_) | Undelivered::Http(_) => false,
            Undelivered::Refused(code) => [400, 413].contains(&code.as_u16()),
            Undelivered::Request(_) => true,
        }
    }

    /// Whether a receiver that was reached may have taken the notice all the same.
    fn may_have_arrived(&self) -> bool {
        match self {
            Undelivered::TimedOut | Undelivered::Http(_) => true,
            Undelivered::Refused(code) => *code == StatusCode::GATEWAY_TIMEOUT,
            Undelivered::Io(_) | Undelivered::Request(_) => false,
        }
    }
}

impl fmt::Display for Undelivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Undelivered::TimedOut => f.write_str("no answer in time"),
            Undelivered::Io(error) => write!(f, "{error}"),
            Undelivered::Http(error) => write!(f, "{error}"),
            Undelivered::Refused(code) => write!(f, "answered with {code}"),
            Undelivered::Request(why) => f.write_str(why),
        }
    }
}

impl From<io::Error> for Undelivered {
    fn from(error: io::Error) -> Undelivered {
        Undelivered::Io(error)
    }
}

impl From<hyper::Error> for Undelivered {
    fn from(error: hyper::Error) -> Undelivered {
        Undelivered::Http(error)
    }
}

/// One attempt, over a connection of its own.
async fn post(receiver: &Receiver, notice: &Notice, sent: &mut bool) -> Result<(), Undelivered> {
    let request = request(receiver, notice)?;
    let url = &receiver.url;
    let stream = TcpStream::connect((&*url.host, url.port)).await?;
    let status = match url.tls {
        false => {
            *sent = true;
            exchange(stream, request).await?
        }
        true => {
            let name = ServerName::try_from(url.host.to_string())
                .map_err(|_| Undelivered::Request("its host is no name of a certificate"))?;
            let config = tls(receiver.extra_roots.as_deref())?;
            let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
            *sent = true;
            exchange(stream, request).await?
        }
    };
    if status.is_success() { Ok(()) } else { Err(Undelivered::Refused(status)) }
}

fn request(receiver: &Receiver, notice: &Notice) -> Result<Request<Full<Bytes>>, Undelivered> {
    const UNFIT: Undelivered = Undelivered::Request("its address or secret can't be sent");
    let mut builder = Request::post(&*receiver.url.target)
        .header(header::HOST, receiver.url.authority())
        .header(header::USER_AGENT, concat!("hale/", env!("CARGO_PKG_VERSION")))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONNECTION, "close");
    if let Form::Webhook { secret: Some(secret) } = &receiver.form {
        let mut value = HeaderValue::from_str(secret.reveal()).map_err(|_| UNFIT)?;
        value.set_sensitive(true);
        builder = builder.header(HeaderName::from_static("cf-webhook-auth"), value);
    }
    builder.body(Full::from(body(notice).to_string())).map_err(|_| UNFIT)
}

fn tls(extra_roots: Option<&[u8]>) -> Result<ClientConfig, Undelivered> {
    const UNFIT: Undelivered = Undelivered::Request("its `ca_file` holds no trusted roots");
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for root in CertificateDer::pem_slice_iter(extra_roots.unwrap_or_default()) {
        roots.add(root.map_err(|_| UNFIT)?).map_err(|_| UNFIT)?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder =
        builder.with_safe_default_protocol_versions().expect("the provider has suites for TLS 1.2 and 1.3");
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// One request and the code of its answer; whatever the connection needs is
/// done in here, so that nothing outlives it.
async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<StatusCode, Undelivered>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let answer = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        // its words are of no use, but a server may take offence at a client that doesn't read
        let rest = Limited::new(response.into_body(), MAX_ANSWER).collect();
        let _ = timeout(LINGER, rest).await;
        Ok(status)
    };
    tokio::pin!(connection, answer);
    tokio::select! {
        answered = &mut answer => answered,
        ended = &mut connection => {
            ended?;
            answer.await // what came before the end is still to be read
        }
    }
}
