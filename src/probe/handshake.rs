//! TLS handshakes, and the name and the dates of the certificate shown.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::client::TlsStream;

use super::tls::{Alpn, server_name};
use super::{Failure, Phase, Progress, connect, tls};
use crate::health::ProbeTask;
use crate::model::TlsSession;

/// Connects, shakes hands, says goodbye.
pub(super) async fn probe(
    configs: &tls::Configs,
    task: &ProbeTask,
    check: &TlsSession,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let stream = connect::connect(SocketAddr::new(task.address, task.port), task.source()).await?;
    progress.enter(Phase::Tls);
    let rules = Some(&check.tls);
    let mut stream =
        configs.handshake(stream, rules, &server_name(task, rules, None), Alpn::None, progress).await?;
    progress.enter(Phase::Response);
    progress.found = Some(Ok(()));
    // Whatever comes of the goodbye, the verdict stands.
    let until = progress.deadline.min(Instant::now() + LINGER);
    let _ = timeout_at(until, goodbye(&mut stream)).await;
    Ok(())
}

/// How long the server's goodbye is waited for; within the attempt's deadline.
const LINGER: Duration = Duration::from_millis(100);

/// A close_notify and a FIN, and the same from the server: a socket closed
/// with tickets unread (RFC 8446 §4.6.1) would reset the connection.
async fn goodbye(stream: &mut TlsStream<TcpStream>) -> io::Result<()> {
    stream.shutdown().await?;
    let mut octets = [0; 1024];
    while stream.read(&mut octets).await? > 0 {}
    Ok(())
}
