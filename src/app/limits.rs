//! The limit on open files: raised, and shared out between probes and clients.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

use crate::serve;

/// Kept for files, the log and the runtime.
const RESERVE: u64 = 64;

/// So many probes run at once unless the limit on open files is lower.
const DEFAULT_MAX_PROBES: u64 = 10_000;

/// Raises the soft limit on open files to the hard one and shares it out.
/// Returns how many probes may run at once: `wanted`, as far as clients of DNS
/// keep their part; with few files to share theirs becomes a quarter, or what
/// the probes leave.
pub fn raise_open_files(wanted: Option<u32>, addresses: usize, limits: &mut serve::Limits) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let open_files = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let wanted = wanted.map_or(DEFAULT_MAX_PROBES, u64::from);
    let Some(open_files) = open_files else { return wanted as usize };
    let sockets = (addresses * (limits.udp_workers + 1)) as u64;
    let (connections, probes) =
        share_out(open_files.saturating_sub(sockets), limits.tcp_connections as u64, wanted);
    if probes < wanted || connections < limits.tcp_connections as u64 {
        warn!(
            open_files,
            max_probes = probes,
            tcp_connections = connections,
            "the limit on open files lets {probes} probes and {connections} TCP connections be at once; \
             raise it with `ulimit -n` or LimitNOFILE="
        );
    }
    limits.tcp_connections = connections as usize;
    probes as usize
}

/// TCP connections and probes that so many open files allow.
fn share_out(open_files: u64, connections: u64, probes: u64) -> (u64, u64) {
    let room = open_files.saturating_sub(RESERVE).max(2);
    let connections = connections.min((room / 4).max(room.saturating_sub(probes)).max(1));
    (connections, probes.min(room - connections))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_open_files_are_shared_by_clients_and_probes() {
        for (open_files, shares) in [
            (1_048_576, (1000, 10_000)),
            (8192, (1000, 7128)),
            (1024, (240, 720)),
            (512, (112, 336)),
            (64, (1, 1)),
            (0, (1, 1)),
        ] {
            assert_eq!(share_out(open_files, 1000, 10_000), shares, "{open_files}");
        }
        assert_eq!(share_out(1024, 1000, 50), (910, 50), "what probes leave is the clients'");
    }
}
