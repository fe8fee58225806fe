//! Started as root, and somebody else before anything of the user's is touched.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::PathBuf;

use rustix::process::Signal;

use super::{WWW, fixed};
use crate::support::dns::ask;
use crate::support::folder::Folder;
use crate::support::hale::{Hale, command, run, until};
use crate::support::programs::need_root;

/// A folder that everybody can reach, with a configuration.
struct Place(PathBuf);

impl Place {
    fn new(name: &str, text: &str) -> Place {
        let path = std::env::temp_dir().join(format!("hale-user-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        let place = Place(path);
        place.write(text);
        place
    }

    fn write(&self, text: &str) {
        fs::write(self.file(), text).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.0.join("a.yaml")
    }

    fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    fn start(&self) -> Hale {
        let (file, state) = (self.file(), self.state());
        Hale::start(command([
            "serve",
            file.to_str().unwrap(),
            "--listen",
            "127.0.0.1:0",
            "--state-dir",
            state.to_str().unwrap(),
        ]))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn as_nobody(address: &str) -> String {
    format!("server: {{ user: nobody }}\n{}", fixed(address, 30))
}

const NOBODY: u32 = 65534;

#[test]
fn every_thread_is_the_user_and_may_nothing_more_and_the_server_goes_on() {
    if !need_root() {
        return;
    }
    let place = Place::new("threads", &as_nobody("192.0.2.1"));
    let hale = place.start();
    hale.line("root is given up");
    hale.address(); // the sockets are open, and nothing is left of root
    let mut threads = 0;
    for thread in fs::read_dir(format!("/proc/{}/task", hale.pid())).unwrap().flatten() {
        let status = fs::read_to_string(thread.path().join("status")).unwrap();
        let of = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(of("Uid:"), ["65534"; 4], "{status}");
        assert_eq!(of("Gid:"), ["65534"; 4], "{status}");
        assert!(!of("Groups:").contains(&"0".to_owned()), "{status}");
        for key in ["CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(of(key), ["0000000000000000"], "{status}");
        }
        threads += 1;
    }
    assert!(threads > 3, "workers, engine, log");
    assert!(ask(hale.address(), WWW).is(&["192.0.2.1"]));
    place.write(&as_nobody("192.0.2.2"));
    until("it reads its files", || ask(hale.address(), WWW).is(&["192.0.2.2"]));

    // what it keeps is the user's
    for entry in fs::read_dir(place.state()).unwrap().flatten() {
        assert_eq!(fs::symlink_metadata(entry.path()).unwrap().uid(), NOBODY, "{entry:?}");
    }
    let asked = run(["status", "--state-dir", place.state().to_str().unwrap()]);
    assert_eq!(asked.code(), Some(0), "{}", asked.log);
    let (ended, _) = hale.stop(Signal::TERM);
    assert_eq!(ended.code(), Some(0), "{}", ended.log);
    assert!(!place.state().join("control").exists(), "the socket is removed");
    // and taken up by the next run
    let next = place.start();
    assert!(ask(next.address(), WWW).is(&["192.0.2.2"]));
    assert_eq!(next.count("can't be"), 0, "{}", next.log());
}

#[test]
fn links_that_the_user_has_put_into_its_state_directory_lead_root_nowhere() {
    if !need_root() {
        return;
    }
    for (name, planted) in [
        ("lock", "lock"),
        ("cookie", "cookie-secret.new"),
        ("trial", "trial"),
        ("history", "history"),
        ("journal", "verdicts"),
    ] {
        let place = Place::new(name, &as_nobody("192.0.2.1"));
        let (state, victim) = (place.state(), place.0.join("victim"));
        fs::create_dir(&state).unwrap();
        match planted {
            "history" => fs::create_dir(&victim).unwrap(),
            _ => fs::write(&victim, "root's own").unwrap(),
        }
        fs::set_permissions(&victim, Permissions::from_mode(0o644)).unwrap();
        symlink(&victim, state.join(planted)).unwrap();
        lchown(state.join(planted), Some(NOBODY), Some(NOBODY)).unwrap();
        chown(&state, Some(NOBODY), Some(NOBODY)).unwrap();
        // it serves, or says why it doesn't; root's file is what it was
        let hale = place.start();
        until("it serves or has ended", || hale.log().contains("serving on") || hale.log().contains("can't"));
        let (data, mode) = (fs::metadata(&victim).unwrap(), 0o644);
        assert_eq!((data.uid(), data.permissions().mode() & 0o777), (0, mode), "{planted}");
        match planted {
            "history" => assert_eq!(fs::read_dir(&victim).unwrap().count(), 0),
            _ => assert_eq!(fs::read_to_string(&victim).unwrap(), "root's own", "{planted}"),
        }
    }
}

#[test]
fn low_ports_are_opened_for_the_user() {
    if !need_root() {
        return;
    }
    let place = Place::new("low", &as_nobody("192.0.2.1"));
    let (file, state) = (place.file(), place.state());
    // a port of this test's own: nothing else is at this address
    let listen = format!("127.53.{}.{}:999", std::process::id() >> 8 & 0xff, std::process::id() & 0xff);
    let (file, state) = (file.to_str().unwrap(), state.to_str().unwrap());
    let hale = Hale::start(command(["serve", file, "--listen", &listen, "--state-dir", state]));
    assert_eq!(hale.address().to_string(), listen);
    assert!(ask(hale.address(), WWW).is(&["192.0.2.1"]));
    assert_eq!(hale.count("receive buffer capped"), 0, "{}", hale.log());
}

#[test]
fn what_stands_in_the_way_of_the_user_is_said_before_anything_is_given_up() {
    if !need_root() {
        return;
    }
    let place = Place::new("refused", &as_nobody("192.0.2.1"));
    fs::create_dir(place.state()).unwrap();
    let ended = place.start().ended();
    let words =
        format!("doesn't belong to the user `nobody`: `chown -R nobody: {}`", place.state().display());
    assert_eq!(ended.code(), Some(1));
    assert!(ended.log.contains(&words), "{}", ended.log);

    chown(place.state(), Some(NOBODY), Some(NOBODY)).unwrap();
    fs::set_permissions(&place.0, Permissions::from_mode(0o700)).unwrap();
    let ended = place.start().ended();
    let words = format!("{} is closed to it; set `state_dir`", place.0.display());
    assert!(ended.log.contains(&words), "{}", ended.log);

    fs::set_permissions(&place.0, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(place.file(), Permissions::from_mode(0o600)).unwrap();
    let hale = place.start();
    hale.line("so no reload will work");
    assert!(ask(hale.address(), WWW).is(&["192.0.2.1"]));
}

#[test]
fn a_user_who_is_not_there_or_is_root_is_refused() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let path = folder.join("a.yaml");
    for (name, words) in [
        ("nobody-like-that", "hale: there is no user `nobody-like-that` on this system"),
        ("root", "hale: `root` is root, so nothing would be given up"),
    ] {
        let listen = ["--listen", "127.0.0.1:0"];
        let ended = run(["serve", path.to_str().unwrap(), "--user", name].into_iter().chain(listen));
        assert_eq!(ended.code(), Some(1));
        assert!(ended.log.contains(words), "{}", ended.log);
    }
}
