//! What is said over a connection, and what it means when it breaks.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

use super::{Failure, Phase, Progress, tls};
use crate::health::Reason;

/// How long the peer is waited for after the verdict; within the attempt's deadline.
const LINGER: Duration = Duration::from_millis(100);

/// Sends all of it.
pub(super) async fn say(stream: &mut (impl AsyncWrite + Unpin), octets: &[u8]) -> Result<(), Failure> {
    stream.write_all(octets).await.map_err(|error| failure(&error))?;
    stream.flush().await.map_err(|error| failure(&error))
}

/// How many octets came next; 0: the peer has closed. Their beginning is kept.
pub(super) async fn listen(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut [u8],
    progress: &mut Progress,
) -> Result<usize, Failure> {
    match stream.read(buffer).await {
        Ok(0) => Ok(0),
        Ok(length) => {
            progress.hear(&buffer[..length]);
            Ok(length)
        }
        // Over TLS: a FIN without close_notify.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        Err(error) => Err(failure(&error)),
    }
}

/// Says goodbye and lets the peer finish for a short time, as far as `left`
/// octets go: a socket closed with octets unread would reset the connection.
pub(super) async fn part(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    mut left: usize,
    progress: &Progress,
) {
    let until = progress.deadline.min(Instant::now() + LINGER);
    // Whatever comes of it, the verdict stands.
    let _ = timeout_at(until, async {
        stream.shutdown().await?;
        let mut buffer = [0; 1024];
        while left > 0 {
            match stream.read(&mut buffer).await? {
                0 => break,
                length => left = left.saturating_sub(length),
            }
        }
        io::Result::Ok(())
    })
    .await;
}

/// The same when a FIN in the middle of a message means `closed`.
pub(super) fn broken(error: &io::Error, closed: Failure) -> Failure {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => closed,
        _ => failure(error),
    }
}

/// What an error of a connection that stood means.
fn failure(error: &io::Error) -> Failure {
    if let Some(error) = tls::cause(error) {
        return tls::failure(error);
    }
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe => {
            Failure::Failed(Reason::ConnectionReset, "connection_reset")
        }
        io::ErrorKind::TimedOut => Failure::TimedOut(Phase::Response),
        io::ErrorKind::HostUnreachable => Failure::Failed(Reason::NoRouteToHost, "host_unreachable"),
        io::ErrorKind::NetworkUnreachable => {
            Failure::Failed(Reason::NetworkUnreachable, "network_unreachable")
        }
        _ => Failure::Failed(Reason::OtherFailure, "io_error"),
    }
}
