//! Probes from inside network namespaces.

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;

use haledns::model::{Check, ExecCheck, HttpCheck, TcpCheck};
use haledns::probe::Prober;

use super::{LONG, Probe, told};
use crate::support::hale::until;
use crate::support::namespace::Namespace;

fn tcp(to: SocketAddr) -> Probe {
    Probe::new(to, Check::Tcp(TcpCheck::default()))
}

fn listener(namespace: &Namespace) -> (TcpListener, SocketAddr) {
    let listener = namespace.inside(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// This process's threads inside.
fn threads(namespace: &Namespace) -> usize {
    let inode = fs::metadata(namespace.path()).unwrap().ino();
    let inside = |task: &fs::DirEntry| {
        fs::metadata(task.path().join("ns/net")).is_ok_and(|metadata| metadata.ino() == inode)
    };
    fs::read_dir("/proc/self/task").unwrap().flatten().filter(inside).count()
}

#[tokio::test]
async fn a_probe_reaches_what_is_only_inside() {
    let Some(namespace) = Namespace::new() else { return };
    let (_listener, address) = listener(&namespace);
    let prober = Prober::new();
    assert_eq!(told(&tcp(address).run().await), "- TcpConnectionFailed connect_refused", "from outside");
    for name in [&namespace.0, &namespace.path()] {
        assert_eq!(told(&prober.run(&tcp(address).inside(name).0).await), "- pass", "{name}");
    }
    until("one thread for each name", || threads(&namespace) == 2);
    drop(prober);
    until("its threads have ended", || threads(&namespace) == 0);
}

#[tokio::test]
async fn many_probes_share_one_thread() {
    let Some(namespace) = Namespace::new() else { return };
    let (_listener, address) = listener(&namespace);
    let prober = std::sync::Arc::new(Prober::new());
    let probes: Vec<_> = (0..50)
        .map(|_| {
            let (prober, probe) = (prober.clone(), tcp(address).inside(&namespace.0));
            tokio::spawn(async move { told(&prober.run(&probe.0).await) })
        })
        .collect();
    for probe in probes {
        assert_eq!(probe.await.unwrap(), "- pass");
    }
    until("only one thread is inside", || threads(&namespace) == 1);
}

#[tokio::test]
async fn a_namespace_that_cannot_be_entered_is_tried_again_and_one_made_anew_is_another() {
    let Some(namespace) = Namespace::new() else { return };
    let name = namespace.0.clone();
    drop(namespace);
    let prober = Prober::new();
    let somewhere = SocketAddr::from(([127, 0, 0, 1], 9));
    for name in [&*name, "/etc/hostname", "/no/such/file"] {
        let outcome = prober.run(&tcp(somewhere).inside(name).0).await;
        assert_eq!(told(&outcome), "- error OtherFailure namespace_unavailable", "{name}");
    }
    for _ in 0..3 {
        let Some(namespace) = Namespace::named(&name) else { return };
        let (_listener, address) = listener(&namespace);
        assert_eq!(told(&prober.run(&tcp(address).inside(&name).0).await), "- pass");
        until("a thread is inside", || threads(&namespace) == 1);
    }
}

#[tokio::test]
async fn a_program_runs_inside() {
    let Some(namespace) = Namespace::new() else { return };
    let command = ["readlink", "/proc/self/ns/net"].map(String::from).to_vec();
    let to = SocketAddr::from(([127, 0, 0, 1], 0));
    let outcome = Probe::new(to, Check::Exec(ExecCheck { command })).inside(&namespace.0).run().await;
    assert_eq!(told(&outcome), "0 pass");
    let inode = fs::metadata(namespace.path()).unwrap().ino();
    assert_eq!(String::from_utf8_lossy(&outcome.evidence.said), format!("net:[{inode}]\n"));
}

#[tokio::test]
async fn a_probe_that_is_given_up_closes_its_socket() {
    let Some(namespace) = Namespace::new() else { return };
    let (listener, address) = listener(&namespace);
    let prober = std::sync::Arc::new(Prober::new());
    let probe = Probe::new(address, Check::Http(HttpCheck::default())).within(LONG * 20).inside(&namespace.0);
    let runs = prober.clone();
    let probe = tokio::spawn(async move { runs.run(&probe.0).await });
    let accepting = tokio::task::spawn_blocking(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        assert!(stream.read(&mut request).unwrap() > 0);
        stream
    });
    let mut stream = accepting.await.unwrap();
    probe.abort();
    assert!(probe.await.unwrap_err().is_cancelled());
    stream.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the end has come");
}
