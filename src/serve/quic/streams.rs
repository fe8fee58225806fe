//! quinn's streams as h3 wants them, with bounds.
//!
//! h3 keeps a frame until it has all of it, however long the frame says it is.
//! So octets are counted before h3 gets them: those of a request while it
//! lasts, those of control streams over the connection's life.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};
use quinn::{ConnectionError, ReadError, RecvStream, SendStream, VarInt, WriteError};
use tokio::sync::watch;

use super::http3::{EXCESSIVE_LOAD, NO_ERROR, REQUEST_CANCELLED};
use super::{Budget, Held};

/// Octets that all streams but the requests may carry: some thousand frames of
/// settings and priorities. Then the client has to connect anew.
const CONTROL: usize = 256 << 10;
/// Octets given to h3 at a time.
const CHUNK: usize = 2048;

type Waiting<T> = Pin<Box<dyn Future<Output = Result<T, ConnectionError>> + Send>>;

/// The streams of one connection.
pub(super) struct Streams {
    opener: Opener,
    requests: Option<Waiting<(SendStream, RecvStream)>>,
    controls: Option<Waiting<RecvStream>>,
    held: Budget,
    control: Budget,
}

/// Opens the server's own streams.
pub(super) struct Opener {
    connection: quinn::Connection,
    opening: Option<Waiting<SendStream>>,
    unacknowledged: Unacknowledged,
}

/// How many streams are finished whose client doesn't have all of them yet.
type Unacknowledged = Arc<watch::Sender<usize>>;

/// Tells when clients have all that was sent.
pub(super) struct Acknowledged(watch::Receiver<usize>);

impl Acknowledged {
    pub async fn all(mut self) {
        let _ = self.0.wait_for(|&count| count == 0).await;
    }
}

impl Streams {
    pub fn new(connection: quinn::Connection, held: Budget) -> (Streams, Acknowledged) {
        let (unacknowledged, receiver) = watch::channel(0);
        let opener = Opener { connection, opening: None, unacknowledged: Arc::new(unacknowledged) };
        let (requests, controls, control) = (None, None, Budget::new(CONTROL));
        (Streams { opener, requests, controls, held, control }, Acknowledged(receiver))
    }

    fn receiving(&self, stream: RecvStream, budget: &Budget) -> Receiving {
        Receiving { stream, held: budget.nothing_yet(), connection: self.opener.connection.clone() }
    }
}

impl quic::Connection<Bytes> for Streams {
    type RecvStream = Receiving;
    type OpenStreams = Opener;

    fn poll_accept_recv(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Receiving, ConnectionErrorIncoming>> {
        let connection = &self.opener.connection;
        let waiting = self.controls.get_or_insert_with(|| {
            let connection = connection.clone();
            Box::pin(async move { connection.accept_uni().await })
        });
        let accepted = ready!(waiting.as_mut().poll(context));
        self.controls = None;
        let control = self.control.clone();
        Poll::Ready(accepted.map(|stream| self.receiving(stream, &control)).map_err(lost))
    }

    fn poll_accept_bidi(&mut self, context: &mut Context<'_>) -> Poll<Result<Both, ConnectionErrorIncoming>> {
        let connection = &self.opener.connection;
        let waiting = self.requests.get_or_insert_with(|| {
            let connection = connection.clone();
            Box::pin(async move { connection.accept_bi().await })
        });
        let accepted = ready!(waiting.as_mut().poll(context));
        self.requests = None;
        let held = self.held.clone();
        Poll::Ready(accepted.map_err(lost).map(|(send, receive)| Both {
            sending: self.opener.sending(send),
            receiving: self.receiving(receive, &held),
        }))
    }

    fn opener(&self) -> Opener {
        let Opener { connection, unacknowledged, .. } = &self.opener;
        let (connection, unacknowledged) = (connection.clone(), Arc::clone(unacknowledged));
        Opener { connection, opening: None, unacknowledged }
    }
}

impl Opener {
    fn sending(&self, stream: SendStream) -> Sending {
        let unacknowledged = Arc::clone(&self.unacknowledged);
        Sending { stream, writing: None, finished: false, unacknowledged }
    }
}

impl quic::OpenStreams<Bytes> for Opener {
    type BidiStream = Both;
    type SendStream = Sending;

    fn poll_open_bidi(&mut self, _: &mut Context<'_>) -> Poll<Result<Both, StreamErrorIncoming>> {
        Poll::Ready(Err(StreamErrorIncoming::Unknown("a server makes no requests".into())))
    }

    fn poll_open_send(&mut self, context: &mut Context<'_>) -> Poll<Result<Sending, StreamErrorIncoming>> {
        let connection = &self.connection;
        let waiting = self.opening.get_or_insert_with(|| {
            let connection = connection.clone();
            Box::pin(async move { connection.open_uni().await })
        });
        let opened = ready!(waiting.as_mut().poll(context));
        self.opening = None;
        Poll::Ready(opened.map(|stream| self.sending(stream)).map_err(stream_lost))
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.connection.close(var_int(code.value()), reason);
    }
}

impl quic::OpenStreams<Bytes> for Streams {
    type BidiStream = Both;
    type SendStream = Sending;

    fn poll_open_bidi(&mut self, context: &mut Context<'_>) -> Poll<Result<Both, StreamErrorIncoming>> {
        self.opener.poll_open_bidi(context)
    }

    fn poll_open_send(&mut self, context: &mut Context<'_>) -> Poll<Result<Sending, StreamErrorIncoming>> {
        self.opener.poll_open_send(context)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.opener.close(code, reason);
    }
}

// ---- one direction ------------------------------------------------------------------------------

/// What a client sends.
pub(super) struct Receiving {
    stream: RecvStream,
    held: Held,
    connection: quinn::Connection,
}

impl quic::RecvStream for Receiving {
    type Buf = Bytes;

    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        let mut room = [0; CHUNK];
        let read = ready!(self.stream.poll_read(context, &mut room)).map_err(unread)?;
        if !self.held.more(read) {
            // For a request its end; for all others no way is left to go on.
            if self.stream.id().dir() == quinn::Dir::Uni {
                self.connection.close(EXCESSIVE_LOAD, b"");
            }
            let _ = self.stream.stop(EXCESSIVE_LOAD);
            let error_code = EXCESSIVE_LOAD.into_inner();
            return Poll::Ready(Err(StreamErrorIncoming::StreamTerminated { error_code }));
        }
        Poll::Ready(Ok((read > 0).then(|| Bytes::copy_from_slice(&room[..read]))))
    }

    fn stop_sending(&mut self, code: u64) {
        let _ = self.stream.stop(var_int(code)); // fails if the client has sent all
    }

    fn recv_id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        let _ = self.stream.stop(NO_ERROR); // what comes now is of no use
    }
}

/// What a client gets.
pub(super) struct Sending {
    stream: SendStream,
    writing: Option<WriteBuf<Bytes>>,
    finished: bool,
    unacknowledged: Unacknowledged,
}

impl quic::SendStream<Bytes> for Sending {
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        while let Some(data) = self.writing.as_mut().filter(|data| data.has_remaining()) {
            let stream = Pin::new(&mut self.stream);
            let written = ready!(stream.poll_write(context, data.chunk())).map_err(unwritten)?;
            data.advance(written);
        }
        self.writing = None;
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.writing = Some(data.into()); // h3 has waited for `poll_ready`
        Ok(())
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.finished = true;
        let finished = self.stream.finish();
        if finished.is_ok() {
            let (stopped, unacknowledged) = (self.stream.stopped(), Arc::clone(&self.unacknowledged));
            unacknowledged.send_modify(|count| *count += 1);
            tokio::spawn(async move {
                let _ = stopped.await;
                unacknowledged.send_modify(|count| *count -= 1);
            });
        }
        Poll::Ready(finished.map_err(|error| StreamErrorIncoming::Unknown(error.into())))
    }

    fn reset(&mut self, code: u64) {
        self.finished = true;
        let _ = self.stream.reset(var_int(code)); // fails if the client has all
    }

    fn send_id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.finished {
            let _ = self.stream.reset(REQUEST_CANCELLED); // half a response is none
        }
    }
}

/// A request and its response.
pub(super) struct Both {
    sending: Sending,
    receiving: Receiving,
}

impl quic::RecvStream for Both {
    type Buf = Bytes;

    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.receiving.poll_data(context)
    }

    fn stop_sending(&mut self, code: u64) {
        self.receiving.stop_sending(code);
    }

    fn recv_id(&self) -> StreamId {
        self.receiving.recv_id()
    }
}

impl quic::SendStream<Bytes> for Both {
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.sending.poll_ready(context)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.sending.send_data(data)
    }

    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.sending.poll_finish(context)
    }

    fn reset(&mut self, code: u64) {
        self.sending.reset(code);
    }

    fn send_id(&self) -> StreamId {
        self.sending.send_id()
    }
}

impl quic::BidiStream<Bytes> for Both {
    type SendStream = Sending;
    type RecvStream = Receiving;

    fn split(self) -> (Sending, Receiving) {
        (self.sending, self.receiving)
    }
}

// ---- words of the one for the other -------------------------------------------------------------

fn stream_id(id: quinn::StreamId) -> StreamId {
    u64::from(id).try_into().expect("both are numbers of 62 bits")
}

fn var_int(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}

fn lost(error: ConnectionError) -> ConnectionErrorIncoming {
    match error {
        ConnectionError::ApplicationClosed(close) => {
            ConnectionErrorIncoming::ApplicationClose { error_code: close.error_code.into() }
        }
        ConnectionError::TimedOut => ConnectionErrorIncoming::Timeout,
        other => ConnectionErrorIncoming::Undefined(Arc::new(other)),
    }
}

fn stream_lost(error: ConnectionError) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming { connection_error: lost(error) }
}

fn unread(error: ReadError) -> StreamErrorIncoming {
    match error {
        ReadError::Reset(code) => StreamErrorIncoming::StreamTerminated { error_code: code.into() },
        ReadError::ConnectionLost(error) => stream_lost(error),
        other => StreamErrorIncoming::Unknown(other.into()),
    }
}

fn unwritten(error: WriteError) -> StreamErrorIncoming {
    match error {
        WriteError::Stopped(code) => StreamErrorIncoming::StreamTerminated { error_code: code.into() },
        WriteError::ConnectionLost(error) => stream_lost(error),
        other => StreamErrorIncoming::Unknown(other.into()),
    }
}
