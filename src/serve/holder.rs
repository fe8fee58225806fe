//! Who holds an address: found in `/proc`, to be named in an error.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Directories of `/proc` and descriptors looked at, at most.
const PROCESSES: usize = 8192;
const DESCRIPTORS: usize = 262_144;

/// A process, as an operator would look for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    /// The command's name alone.
    pub name: String,
    /// The command with its arguments; empty when it is not visible.
    pub command: String,
}

/// Which of the two transports of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Udp,
    Tcp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Udp => "UDP",
            Protocol::Tcp => "TCP",
        })
    }
}

impl Process {
    pub(super) fn of(pid: u32) -> Process {
        let read = |file| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        Process { pid, name: printable(&read("comm"), 40), command: printable(&read("cmdline"), 200) }
    }
}

/// Text of somebody else's, made fit for a terminal.
fn printable(octets: &[u8], most: usize) -> String {
    let text = String::from_utf8_lossy(octets);
    let text = text.trim_end_matches(['\0', '\n']);
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let mut short: String = text.chars().take(most).map(clean).collect();
    if text.chars().nth(most).is_some() {
        short.push('…');
    }
    short
}

/// The process that has a socket bound to `address`, or to one that overlaps it.
///
/// The kernel may leave out rows of a table that changes while it is read, so a look that finds
/// nothing is repeated.
pub(super) fn holder(address: SocketAddr, protocol: Protocol) -> Option<Process> {
    (0..3).find_map(|_| look_for_holder(address, protocol))
}

fn look_for_holder(address: SocketAddr, protocol: Protocol) -> Option<Process> {
    let tables = match protocol {
        Protocol::Udp => ["udp", "udp6"],
        Protocol::Tcp => ["tcp", "tcp6"],
    };
    let inodes: Vec<u64> = tables
        .iter()
        .filter_map(|table| fs::read_to_string(format!("/proc/net/{table}")).ok())
        .flat_map(|text| text.lines().skip(1).filter_map(Row::parse).collect::<Vec<_>>())
        .filter(|row| protocol == Protocol::Udp || row.listening)
        .filter(|row| row.local.port() == address.port() && overlap(row.local.ip(), address.ip()))
        .map(|row| row.inode)
        .collect();
    owner(&inodes)
}

/// The first process found with one of these sockets open.
pub(super) fn owner(inodes: &[u64]) -> Option<Process> {
    if inodes.is_empty() {
        return None;
    }
    let wanted: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let mut looks = DESCRIPTORS;
    let processes = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse::<u32>().ok()?;
        Some((pid, entry.path()))
    });
    for (pid, path) in processes.take(PROCESSES) {
        let Ok(descriptors) = fs::read_dir(path.join("fd")) else { continue };
        for descriptor in descriptors.flatten() {
            looks = looks.checked_sub(1)?;
            let target = fs::read_link(descriptor.path()).unwrap_or_default();
            if target.to_str().is_some_and(|target| wanted.iter().any(|socket| socket == target)) {
                return Some(Process::of(pid));
            }
        }
    }
    None
}

/// Whether sockets on the two cannot be told apart by address. A foreign socket on `::` may take
/// IPv4 as well.
fn overlap(theirs: IpAddr, ours: IpAddr) -> bool {
    match (theirs.to_canonical(), ours.to_canonical()) {
        (IpAddr::V6(theirs), IpAddr::V4(_)) => theirs.is_unspecified(),
        (IpAddr::V4(_), IpAddr::V6(_)) => false,
        (theirs, ours) => theirs == ours || theirs.is_unspecified() || ours.is_unspecified(),
    }
}

/// What matters of one line of `/proc/net/{udp,tcp}{,6}`.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    local: SocketAddr,
    listening: bool,
    inode: u64,
}

impl Row {
    fn parse(line: &str) -> Option<Row> {
        let mut words = line.split_ascii_whitespace();
        let (address, port) = words.nth(1)?.split_once(':')?;
        let state = words.nth(1)?;
        let inode = words.nth(5)?.parse().ok()?;
        // Each group of eight digits is a word in the machine's own order.
        let groups = (0..address.len()).step_by(8).map(|at| {
            let group = u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?;
            Some(group.to_ne_bytes())
        });
        let octets = groups.collect::<Option<Vec<_>>>()?.concat();
        let ip = match octets.len() {
            4 => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?)),
            16 => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?)),
            _ => return None,
        };
        let local = SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?);
        Some(Row { local, listening: state == "0A", inode })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn rows_of_proc_net() {
        let v4 = "  12: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4711 2 0 0";
        let v6 = "  0: B80D0120000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 99 1";
        for (line, local, listening, inode) in
            [(v4, "127.0.0.1:53", false, 4711), (v6, "[2001:db8::1]:8080", true, 99)]
        {
            let local = local.parse().expect("written here");
            assert_eq!(Row::parse(line), Some(Row { local, listening, inode }));
        }
        for line in
            ["", "1: 0100007F:0035", "1: 01x0007F:0035 0 07 0 0 0 0 0 1", "1: é100007F:0035 0 07 0 0 0 0 0 1"]
        {
            assert_eq!(Row::parse(line), None, "{line}");
        }
    }

    #[test]
    fn which_sockets_are_in_the_way() {
        for (theirs, ours, expected) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("0.0.0.0", "127.0.0.1", true),
            ("127.0.0.1", "0.0.0.0", true),
            ("::", "127.0.0.1", true),
            ("::1", "127.0.0.1", false),
            ("::ffff:127.0.0.1", "127.0.0.1", true),
            ("0.0.0.0", "::", false),
            ("::1", "::", true),
        ] {
            let ip = |text: &str| text.parse::<IpAddr>().expect("written here");
            assert_eq!(overlap(ip(theirs), ip(ours)), expected, "{theirs} for {ours}");
        }
    }

    #[test]
    fn text_from_elsewhere_is_made_printable() {
        assert_eq!(printable(b"hale\0--config\0a\x1b[2J\0", 40), "hale --config a [2J");
        assert_eq!(printable(b"abcdef\n", 3), "abc…");
    }
}
