//! A TCP server that follows a script and remembers what it saw.
//!
//! Each connection plays one script, step by step. Afterwards the server ends
//! its side and waits until the client has ended the other. Dropping the
//! server ends everything.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::certificates::{Authority, Identity};

/// What to do next on a connection.
#[derive(Clone)]
pub enum Step {
    /// Read until the empty line that ends a request's head.
    Head,
    /// Read until the end of a line.
    Line,
    Write(Vec<u8>),
    /// Write an octet at a time.
    Drip(Vec<u8>, Duration),
    /// Write this over and over until the client goes away.
    Endless(Vec<u8>),
    /// Say nothing until the client goes away.
    Hold,
    /// Close with an RST.
    Reset,
}

/// A script that reads a request and answers it with these octets.
pub fn answer(response: impl AsRef<[u8]>) -> Vec<Step> {
    vec![Step::Head, Step::Write(response.as_ref().to_vec())]
}

/// What one connection saw.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// All that was received, as text.
    pub received: String,
    /// The name in the TLS handshake.
    pub sni: Option<String>,
    /// Whether the client showed a certificate.
    pub certified: bool,
    pub ending: Option<Ending>,
}

/// How the client left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    /// A FIN; over TLS, after a close_notify.
    Closed,
    /// An RST, or over TLS a FIN without close_notify.
    Broken,
    /// We broke the connection.
    Ours,
}

pub struct Server {
    pub address: SocketAddr,
    seen: watch::Receiver<Vec<Seen>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Plays `script` on every connection.
    pub async fn start(script: Vec<Step>) -> Server {
        Server::on(Ipv4Addr::LOCALHOST.into(), vec![script], None).await
    }

    /// The same over TLS; the key need not be the certificate's.
    pub async fn tls(identity: Identity, script: Vec<Step>) -> Server {
        Server::on(Ipv4Addr::LOCALHOST.into(), vec![script], Some(identity)).await
    }

    /// One script for each connection, the last for all further ones.
    pub async fn sequence(scripts: Vec<Vec<Step>>) -> Server {
        Server::on(Ipv4Addr::LOCALHOST.into(), scripts, None).await
    }

    pub async fn on(ip: IpAddr, scripts: Vec<Vec<Step>>, identity: Option<Identity>) -> Server {
        Server::at((ip, 0).into(), scripts, identity).await
    }

    pub async fn at(address: SocketAddr, scripts: Vec<Vec<Step>>, identity: Option<Identity>) -> Server {
        Server::under(address, scripts, identity.map(|identity| tls_config(identity, None, &[]))).await
    }

    /// Over TLS of any kind.
    pub async fn under(address: SocketAddr, scripts: Vec<Vec<Step>>, config: Option<ServerConfig>) -> Server {
        Server::over(TcpListener::bind(address).await.unwrap(), scripts, config)
    }

    /// Over a listener that somebody else has made.
    pub fn over(listener: TcpListener, scripts: Vec<Vec<Step>>, config: Option<ServerConfig>) -> Server {
        let address = listener.local_addr().unwrap();
        let acceptor = config.map(|config| TlsAcceptor::from(Arc::new(config)));
        let (log, seen) = watch::channel(Vec::new());
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            let log = Arc::new(log);
            for index in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                log.send_modify(|seen: &mut Vec<Seen>| seen.push(Seen::default()));
                let script = scripts[index.min(scripts.len() - 1)].clone();
                let diary = Diary { log: log.clone(), index };
                connections.spawn(connection(stream, acceptor.clone(), script, diary));
            }
        });
        Server { address, seen, task }
    }

    /// Ends everything; afterwards nobody listens on the address.
    pub async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await; // it says that it was aborted
    }

    /// How many connections have come.
    pub fn connections(&self) -> usize {
        self.seen.borrow().len()
    }

    /// What the connections saw, once there are so many and all have ended.
    pub async fn ended(&self, connections: usize) -> Vec<Seen> {
        let mut seen = self.seen.clone();
        let done =
            |seen: &Vec<Seen>| seen.len() >= connections && seen.iter().all(|seen| seen.ending.is_some());
        let waiting = seen.wait_for(done);
        let all = tokio::time::timeout(Duration::from_secs(5), waiting).await;
        all.expect("the client should have closed its connections").unwrap().clone()
    }

    /// Waits until a connection has received something with `text` in it.
    pub async fn received(&self, text: &str) {
        let mut seen = self.seen.clone();
        let waiting = seen.wait_for(|seen| seen.iter().any(|seen| seen.received.contains(text)));
        tokio::time::timeout(Duration::from_secs(5), waiting)
            .await
            .expect("nothing of the kind came")
            .unwrap();
    }
}

/// A server's side of TLS: what it shows, whose certificates it demands of
/// clients, and what it speaks.
pub fn tls_config(identity: Identity, clients: Option<&Authority>, alpn: &[&str]) -> ServerConfig {
    let provider = Arc::new(ring::default_provider());
    let key = provider.key_provider.load_private_key(identity.key).unwrap();
    // Not `with_single_cert`: it refuses a key that isn't the certificate's.
    let identity = SingleCertAndKey::from(CertifiedKey::new(identity.chain, key));
    let builder =
        ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let roots = Arc::new(authority.store());
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(identity));
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

/// Where one connection writes down what it sees.
struct Diary {
    log: Arc<watch::Sender<Vec<Seen>>>,
    index: usize,
}

impl Diary {
    fn note(&self, change: impl FnOnce(&mut Seen)) {
        self.log.send_modify(|seen| change(&mut seen[self.index]));
    }
}

async fn connection(stream: TcpStream, acceptor: Option<TlsAcceptor>, script: Vec<Step>, diary: Diary) {
    let ending = match acceptor {
        None => {
            play(stream, script, &diary, |stream| {
                socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
            })
            .await
        }
        Some(acceptor) => match acceptor.accept(stream).await {
            Err(_) => Ending::Broken,
            Ok(stream) => {
                let session = stream.get_ref().1;
                let sni = session.server_name().map(str::to_owned);
                let certified = session.peer_certificates().is_some();
                diary.note(|seen| (seen.sni, seen.certified) = (sni, certified));
                play(stream, script, &diary, |stream| {
                    socket2::SockRef::from(stream.get_ref().0).set_linger(Some(Duration::ZERO)).unwrap();
                })
                .await
            }
        },
    };
    diary.note(|seen| seen.ending = Some(ending));
}

async fn play<S>(mut stream: S, script: Vec<Step>, diary: &Diary, reset: impl Fn(&S)) -> Ending
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    for step in script {
        let written = match step {
            Step::Head | Step::Line => {
                let until: &[u8] = if matches!(step, Step::Head) { b"\r\n\r\n" } else { b"\n" };
                match read_until(&mut stream, until, diary).await {
                    Some(ending) => return ending,
                    None => Ok(()),
                }
            }
            Step::Write(octets) => write(&mut stream, &octets).await,
            Step::Drip(octets, every) => drip(&mut stream, &octets, every).await,
            Step::Endless(octets) => loop {
                if let Err(error) = write(&mut stream, &octets).await {
                    break Err(error);
                }
            },
            Step::Hold => return read_on(&mut stream, diary).await,
            Step::Reset => {
                reset(&stream);
                return Ending::Ours;
            }
        };
        if written.is_err() {
            return Ending::Broken;
        }
    }
    // The client may be gone already; how it went shows in what is left to read.
    let _ = stream.shutdown().await;
    read_on(&mut stream, diary).await
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), octets: &[u8]) -> std::io::Result<()> {
    stream.write_all(octets).await?;
    stream.flush().await
}

async fn drip(stream: &mut (impl AsyncWrite + Unpin), octets: &[u8], every: Duration) -> std::io::Result<()> {
    let mut beat = tokio::time::interval(every);
    for octet in octets {
        beat.tick().await;
        write(stream, &[*octet]).await?;
    }
    Ok(())
}

async fn read_until(stream: &mut (impl AsyncRead + Unpin), until: &[u8], diary: &Diary) -> Option<Ending> {
    let mut head = Vec::new();
    while !head.ends_with(until) {
        match stream.read_u8().await {
            Ok(octet) => head.push(octet),
            Err(error) => {
                diary.note(|seen| seen.received.push_str(&String::from_utf8_lossy(&head)));
                return Some(match error.kind() {
                    std::io::ErrorKind::UnexpectedEof => Ending::Closed,
                    _ => Ending::Broken,
                });
            }
        }
    }
    diary.note(|seen| seen.received.push_str(&String::from_utf8_lossy(&head)));
    None
}

async fn read_on(stream: &mut (impl AsyncRead + Unpin), diary: &Diary) -> Ending {
    let mut octets = [0; 4096];
    loop {
        match stream.read(&mut octets).await {
            Ok(0) => return Ending::Closed,
            Ok(length) => {
                diary.note(|seen| seen.received.push_str(&String::from_utf8_lossy(&octets[..length])));
            }
            Err(_) => return Ending::Broken,
        }
    }
}
