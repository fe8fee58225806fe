//! Sends notices: one POST each, in order, as often as it takes.
//!
//! Each route has a task and a queue of its own, so that a receiver that hangs
//! holds up nobody else, and the engine never. A notice that can't be delivered
//! is tried again with growing gaps for about an hour. A queue that is full
//! drops its oldest notice, counted and told.
//!
//! Secrets stand in requests alone: log lines name the route, and the place of
//! its receiver without the path.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
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
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tracing::{debug, warn};

use crate::alerts::{Notice, body};
use crate::model::{Form, Receiver, Route};

/// So many notices of a route wait; the oldest of more are dropped.
const WAITING: usize = 1000;

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
}

impl Default for Patience {
    fn default() -> Patience {
        let gaps = [1, 5, 30, 120, 300, 600, 1200, 1200];
        Patience { timeout: Duration::from_secs(10), gaps: gaps.map(Duration::from_secs).to_vec() }
    }
}

/// The senders of all routes. To be used inside a runtime.
#[derive(Debug, Default)]
pub struct Notifier {
    patience: Patience,
    senders: HashMap<Arc<str>, Sender>,
}

#[derive(Debug)]
struct Sender {
    inbox: mpsc::UnboundedSender<Notice>,
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
        Notifier { patience, senders: HashMap::new() }
    }

    /// Gives up what is to be sent on routes that aren't there any more.
    pub fn adopt<'a>(&mut self, routes: impl Iterator<Item = &'a Arc<Route>>) {
        let names: Vec<&str> = routes.map(|route| &*route.name).collect();
        self.senders.retain(|name, _| names.contains(&&**name));
    }

    /// Sends a notice some time; never waits.
    pub fn send(&mut self, notice: Notice) {
        let name = Arc::clone(&notice.route.name);
        let patience = &self.patience;
        let sender = self.senders.entry(name).or_insert_with(|| {
            let (inbox, notices) = mpsc::unbounded_channel();
            Sender { inbox, task: tokio::spawn(run(notices, patience.clone())) }
        });
        let _ = sender.inbox.send(notice); // its task ends only with the sender
    }
}

/// Sends the notices of one route. The queue is emptied of what is too much
/// also while one is on its way.
async fn run(mut inbox: mpsc::UnboundedReceiver<Notice>, patience: Patience) {
    let mut queue: VecDeque<Notice> = VecDeque::new();
    let mut sending: Option<Pin<Box<dyn Future<Output = ()> + Send>>> = None;
    let mut dropped = 0u64;
    loop {
        if sending.is_none()
            && let Some(notice) = queue.pop_front()
        {
            sending = Some(Box::pin(deliver(notice, patience.clone())));
        }
        tokio::select! {
            received = inbox.recv() => match received {
                Some(notice) => queue.push_back(notice),
                None => return,
            },
            () = async { sending.as_mut().expect("only while there is one").await }, if sending.is_some() => {
                sending = None;
                if dropped > 0 {
                    warn!(dropped, "notices of alerts were dropped, because too many waited");
                    dropped = 0;
                }
            }
        }
        while queue.len() > WAITING {
            queue.pop_front();
            dropped += 1;
        }
    }
}

/// Tries until it is taken, refused for good, or too late.
async fn deliver(notice: Notice, patience: Patience) {
    let Route { name, receiver, .. } = &*notice.route;
    let place = receiver.url.place();
    let mut gaps = patience.gaps.iter();
    let mut failures = 0;
    loop {
        let attempt = timeout(patience.timeout, post(receiver, &notice)).await;
        let error = match attempt.unwrap_or(Err(Undelivered::TimedOut)) {
            Ok(()) => {
                if failures > 0 {
                    warn!(alert = %name, failures, "a notice has reached {place} after all");
                }
                debug!(alert = %name, turn = ?notice.turn, "notice sent to {place}: {}", notice.title());
                return;
            }
            Err(error) => error,
        };
        failures += 1;
        let gap = gaps.next().filter(|_| !error.is_final());
        match gap {
            Some(gap) if failures == 1 => {
                warn!(alert = %name, "a notice can't be delivered to {place}: {error}; it is tried again");
                sleep(*gap).await;
            }
            Some(gap) => sleep(*gap).await,
            None => {
                let title = notice.title();
                warn!(alert = %name, failures, "a notice was given up, {place} doesn't take it: {error}; it says: {title}");
                return;
            }
        }
    }
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
async fn post(receiver: &Receiver, notice: &Notice) -> Result<(), Undelivered> {
    let request = request(receiver, notice)?;
    let url = &receiver.url;
    let stream = TcpStream::connect((&*url.host, url.port)).await?;
    let status = match url.tls {
        false => exchange(stream, request).await?,
        true => {
            let name = ServerName::try_from(url.host.to_string())
                .map_err(|_| Undelivered::Request("its host is no name of a certificate"))?;
            let config = tls(receiver.extra_roots.as_deref())?;
            let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
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
