//! Probes that leave from another network namespace.
//!
//! A namespace belongs to a thread, so each has one thread of its own with a
//! runtime: what is started on it makes its sockets inside. Threads start with
//! the first probe and end with [`Namespaces`].

use std::collections::HashMap;
use std::fs::File;
use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::{io, thread};

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{OnceCell, oneshot};
use tokio::task::JoinHandle;

use crate::os;

/// The namespaces that probes have left from.
#[derive(Debug, Default)]
pub(super) struct Namespaces(Mutex<HashMap<Arc<str>, Namespace>>);

/// It cannot be entered.
#[derive(Debug)]
pub(super) struct Unavailable;

#[derive(Debug)]
struct Namespace {
    /// Device and inode. A namespace that was deleted and made anew has the
    /// same name, and is another one.
    identity: (u64, u64),
    worker: Arc<OnceCell<Worker>>,
}

/// A thread inside a namespace; it ends with this value, and its probes with it.
#[derive(Debug)]
struct Worker {
    runtime: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Namespaces {
    /// Runs `work` inside the namespace of this name or path; gives it up when
    /// the future is dropped.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        name: &Arc<str>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Unavailable> {
        let (file, identity) = open(name).map_err(|_| Unavailable)?;
        let cell = self.cell(name, identity);
        let worker = cell.get_or_try_init(|| Worker::start(file)).await.map_err(|_| Unavailable)?;
        let mut work = Cancelled(worker.runtime.spawn(work));
        match (&mut work.0).await {
            Ok(done) => Ok(done),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(Unavailable), // the name has come to mean another namespace
        }
    }

    fn cell(&self, name: &Arc<str>, identity: (u64, u64)) -> Arc<OnceCell<Worker>> {
        let mut known = self.0.lock();
        let fresh = || Namespace { identity, worker: Arc::default() };
        let namespace = known.entry(Arc::clone(name)).or_insert_with(fresh);
        if namespace.identity != identity {
            *namespace = fresh();
        }
        Arc::clone(&namespace.worker)
    }
}

impl Worker {
    async fn start(namespace: File) -> io::Result<Worker> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, is_ready) = oneshot::channel();
        let thread = thread::Builder::new().name("probe-netns".into()).spawn(move || {
            let entered = os::enter_network_namespace(&namespace);
            drop(namespace);
            match entered.and_then(|()| Builder::new_current_thread().enable_all().build()) {
                Ok(runtime) => {
                    if ready.send(Ok(runtime.handle().clone())).is_ok() {
                        let _ = runtime.block_on(stopped);
                    }
                    runtime.shutdown_background(); // a resolver that hangs need not be waited for
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        })?;
        let runtime = is_ready.await.map_err(io::Error::other)??;
        Ok(Worker { runtime, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop = None;
        // Its probes are dropped where they stand, which takes no time.
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// A task that is given up with this value.
struct Cancelled<T>(JoinHandle<T>);

impl<T> Drop for Cancelled<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Opens a namespace; a bare name is looked up where `ip netns` keeps them.
fn open(name: &str) -> io::Result<(File, (u64, u64))> {
    let file = match name.contains('/') {
        true => File::open(name)?,
        false => {
            let place = |folder| File::open(format!("{folder}/{name}"));
            place("/run/netns").or_else(|_| place("/var/run/netns"))?
        }
    };
    let metadata = file.metadata()?;
    Ok((file, (metadata.dev(), metadata.ino())))
}
