//! An HTTP/2 server that answers all requests alike and remembers them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use h2::RecvStream;
use h2::server::SendResponse;
use hyper::body::Bytes;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Request, Response};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// What to do with a request.
#[derive(Clone)]
pub enum Answer {
    Reply(Reply),
    /// The head of an answer, and then so much of a body as the client takes.
    Endless,
    /// Ends the stream with an error.
    Reset(h2::Reason),
    Silence,
}

/// A whole answer.
#[derive(Clone, Default)]
pub struct Reply {
    /// 0: 200.
    pub status: u16,
    /// 103 comes first.
    pub hints: bool,
    pub headers: Vec<(&'static str, &'static str)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(&'static str, &'static str)>,
}

/// What has come.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Heads of requests with their bodies.
    pub requests: Vec<(Arc<Parts>, Vec<u8>)>,
    /// For each connection that is over, whether the client ended it without
    /// an error.
    pub endings: Vec<bool>,
}

pub struct Server {
    pub address: SocketAddr,
    seen: watch::Receiver<Seen>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// In clear text, or over TLS.
    pub async fn start(config: Option<ServerConfig>, answer: Answer) -> Server {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = config.map(|config| TlsAcceptor::from(Arc::new(config)));
        let (log, seen) = watch::channel(Seen::default());
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            let log = Arc::new(log);
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (log, answer, acceptor) = (log.clone(), answer.clone(), acceptor.clone());
                connections.spawn(async move {
                    let polite = match acceptor {
                        None => serve(stream, answer, &log).await,
                        Some(acceptor) => match acceptor.accept(stream).await {
                            Ok(stream) => serve(stream, answer, &log).await,
                            Err(_) => false,
                        },
                    };
                    log.send_modify(|seen| seen.endings.push(polite));
                });
            }
        });
        Server { address, seen, task }
    }

    /// What has come, once so many connections are over.
    pub async fn ended(&self, connections: usize) -> Seen {
        let mut seen = self.seen.clone();
        let waiting = seen.wait_for(|seen| seen.endings.len() >= connections);
        let all = tokio::time::timeout(Duration::from_secs(5), waiting).await;
        all.expect("the client should have closed its connections").unwrap().clone()
    }
}

async fn serve<S>(stream: S, answer: Answer, log: &Arc<watch::Sender<Seen>>) -> bool
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let Ok(mut connection) = h2::server::handshake(stream).await else { return false };
    let mut requests = JoinSet::new();
    loop {
        match connection.accept().await {
            None => return true,
            Some(Err(_)) => return false,
            Some(Ok((request, respond))) => {
                requests.spawn(one(request, respond, answer.clone(), log.clone()));
            }
        }
    }
}

async fn one(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    answer: Answer,
    log: Arc<watch::Sender<Seen>>,
) {
    let (head, mut body) = request.into_parts();
    let mut content = Vec::new();
    while let Some(Ok(data)) = body.data().await {
        let _ = body.flow_control().release_capacity(data.len());
        content.extend_from_slice(&data);
    }
    log.send_modify(|seen| seen.requests.push((Arc::new(head), content)));
    match answer {
        Answer::Silence => std::future::pending().await,
        Answer::Reset(reason) => respond.send_reset(reason),
        Answer::Endless => {
            let Ok(mut stream) = respond.send_response(Response::new(()), false) else { return };
            loop {
                stream.reserve_capacity(8192);
                match std::future::poll_fn(|cx| stream.poll_capacity(cx)).await {
                    Some(Ok(room)) => {
                        if stream.send_data(vec![b'x'; room].into(), false).is_err() {
                            return;
                        }
                    }
                    _ => return,
                }
            }
        }
        Answer::Reply(reply) => {
            if reply.hints {
                let hints = Response::builder().status(103).body(()).unwrap();
                respond.send_informational(hints).unwrap();
            }
            let mut response = Response::new(());
            *response.status_mut() = reply.status.max(200).try_into().unwrap();
            *response.headers_mut() = fields(&reply.headers);
            let whole = reply.body.is_empty() && reply.trailers.is_empty();
            // The client may be gone already.
            let Ok(mut stream) = respond.send_response(response, whole) else { return };
            if !whole {
                let _ = stream.send_data(reply.body.into(), reply.trailers.is_empty());
            }
            if !reply.trailers.is_empty() {
                let _ = stream.send_trailers(fields(&reply.trailers));
            }
        }
    }
}

fn fields(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}
