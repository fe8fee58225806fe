//! NSD, an authoritative server of other people, on a port of its own.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use hickory_proto::op::ResponseCode;
use rustix::process::Signal;

use super::dns::try_ask;
use super::folder::Folder;
use super::hale::{self, until};
use super::ports::free_address;

/// A running server; it ends when dropped.
pub struct Nsd {
    child: Child,
    address: SocketAddr,
    _folder: Folder,
}

impl Nsd {
    /// Serves one zone from a master file.
    pub fn serve(zone: &str, file: &Path) -> Nsd {
        let checked = Command::new("nsd-checkzone").arg(zone).arg(file).output().expect("it comes with nsd");
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        let folder = Folder::new();
        let address = free_address();
        let path = folder.path().display();
        folder.write(
            "nsd.conf",
            &format!(
                "server:\n  ip-address: 127.0.0.1\n  port: {}\n  username: \"\"\n  chroot: \"\"\n  database: \"\"\n  \
                 zonelistfile: \"{path}/zone.list\"\n  xfrdfile: \"{path}/xfrd.state\"\n  xfrdir: \"{path}\"\n  \
                 pidfile: \"{path}/nsd.pid\"\n  logfile: \"{path}/log\"\n  server-count: 1\n  \
                 minimal-responses: yes\n  round-robin: no\n  refuse-any: no\n  rrl-ratelimit: 0\nremote-control:\n  \
                 control-enable: no\nzone:\n  name: {zone}\n  zonefile: \"{}\"\n",
                address.port(),
                file.display()
            ),
        );
        let mut child = Command::new("nsd")
            .args(["-d", "-c"])
            .arg(folder.join("nsd.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nsd was found before");
        until("NSD answers", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!(
                    "NSD has ended, {status}: {}",
                    fs::read_to_string(folder.join("log")).unwrap_or_default()
                );
            }
            try_ask(address, zone).is_some_and(|reply| reply.rcode == ResponseCode::NoError)
        });
        Nsd { child, address, _folder: folder }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Nsd {
    fn drop(&mut self) {
        hale::signal(self.child.id(), Signal::TERM); // it ends its own children then
        let _ = self.child.wait();
    }
}
