//! The limit on open files: raised, and shared out between probes and clients.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

use crate::serve;

/// Kept for sockets, files and the log.
const RESERVE: u64 = 128;

/// So many probes run at once unless the limit on open files is lower.
const DEFAULT_MAX_PROBES: u64 = 10_000;

/// Raises the soft limit on open files to the hard one. Returns how many
/// probes may run at once: `wanted`, as far as clients of DNS keep their part.
pub fn raise_open_files(wanted: Option<u32>, limits: &serve::Limits) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let open_files = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let kept = RESERVE + limits.tcp_connections as u64;
    let room = open_files.map_or(u64::MAX, |all| all.saturating_sub(kept)).max(1);
    let wanted = wanted.map_or(DEFAULT_MAX_PROBES, u64::from);
    if wanted > room {
        warn!(
            open_files,
            max_probes = room,
            "the limit on open files lets {room} probes run at once instead of {wanted}; \
             raise it with `ulimit -n` or LimitNOFILE="
        );
    }
    wanted.min(room) as usize
}
