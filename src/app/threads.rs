//! The threads that engine and probes run on.
//!
//! A probe that hardly computes costs less than waking another thread would:
//! so those share one thread with the engine, which starts them and hears of
//! them. What computes, or starts programs, has threads of its own and holds
//! up neither.

use std::io;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::model::{Check, SmtpSession};

/// At the end probes are given up, and waited for so long at most.
const PROBES_END: Duration = Duration::from_millis(300);

/// At most so many threads for probes that compute.
const MOST_THREADS: usize = 4;

/// The threads of the engine and of probes; they end with it.
pub struct Threads {
    light: Threadpool,
    heavy: Threadpool,
}

impl Threads {
    pub fn start() -> io::Result<Threads> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Threads {
            light: Threadpool::start("engine", 1)?,
            heavy: Threadpool::start("probe", cores.min(MOST_THREADS))?,
        })
    }

    /// Where the engine's own task runs.
    pub fn engine(&self) -> Handle {
        self.light.handle()
    }

    /// To start probes on.
    pub fn probes(&self) -> Places {
        Places { light: self.light.handle(), heavy: self.heavy.handle() }
    }

    /// Waits until no probe is left, and no program of one; but not for a
    /// resolver that hangs.
    pub fn give_up(self) {
        let heavy = std::thread::spawn(|| self.heavy.give_up());
        self.light.give_up();
        let _ = heavy.join(); // it only waits
    }
}

/// Where probes run.
#[derive(Clone, Debug)]
pub struct Places {
    light: Handle,
    heavy: Handle,
}

impl Places {
    /// Where a probe with this check runs.
    pub fn of(&self, check: &Check) -> &Handle {
        if is_heavy(check) { &self.heavy } else { &self.light }
    }
}

/// Whether a probe does more than wait.
fn is_heavy(check: &Check) -> bool {
    match check {
        Check::Tls(_) | Check::Exec(_) | Check::Prometheus(_) => true,
        Check::Http(http) => http.tls.is_some(),
        Check::Grpc(grpc) => grpc.tls.is_some(),
        Check::Smtp(smtp) => smtp.session != SmtpSession::Plain,
        Check::Tcp(_) | Check::Icmp | Check::Udp(_) | Check::Dns(_) | Check::Agent(_) => false,
        Check::Push | Check::Static(_) => false,
    }
}

/// A runtime that ends when it is dropped, wherever that is.
struct Threadpool(Option<Runtime>);

impl Threadpool {
    fn start(name: &str, threads: usize) -> io::Result<Threadpool> {
        let runtime =
            Builder::new_multi_thread().worker_threads(threads).thread_name(name).enable_all().build()?;
        Ok(Threadpool(Some(runtime)))
    }

    fn handle(&self) -> Handle {
        self.0.as_ref().expect("taken only by its end").handle().clone()
    }

    fn give_up(mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_timeout(PROBES_END);
        }
    }
}

impl Drop for Threadpool {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background(); // a runtime may not end inside another by itself
        }
    }
}
