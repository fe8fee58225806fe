//! Another configuration while running.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hickory_proto::op::ResponseCode;
use rustix::process::Signal;

use super::start::dead;
use super::{WWW, fixed, probed};
use crate::support::certificates::self_signed;
use crate::support::dns::{ask, ask_on, socket};
use crate::support::endpoint::{Endpoint, Manner};
use crate::support::folder::Folder;
use crate::support::hale::{Hale, PATIENCE, command, until};

const RELOADED: &str = "configuration reloaded";
const UNCHANGED: &str = "nothing has changed";
const KEPT: &str = "configuration not reloaded, the last good one stays in force";

/// Waits until `www` has this address.
fn becomes(hale: &Hale, address: &str) {
    until(address, || ask(hale.address(), WWW).is(&[address]));
}

/// So many reloads, and no more. The log is written by a thread of its own, so
/// a line may come later than the answers it tells of.
fn reloaded_times(hale: &Hale, times: usize) {
    until("the reloads are told", || hale.count(RELOADED) >= times);
    assert_eq!(hale.count(RELOADED), times, "{}", hale.log());
}

/// Asks for a reload, and waits for a line that only it writes.
fn hang_up(hale: &Hale, text: &str) -> usize {
    let mark = hale.mark();
    hale.signal(Signal::HUP);
    hale.line_after(mark, text);
    mark
}

#[test]
fn sighup_reads_the_files_again() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let hale = Hale::serve(folder.path());
    hang_up(&hale, UNCHANGED);
    folder.write("a.yaml", &fixed("192.0.2.2", 30));
    hang_up(&hale, RELOADED);
    becomes(&hale, "192.0.2.2");
}

#[test]
fn a_file_that_changes_in_place_is_noticed_every_time() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let hale = Hale::serve(folder.path());
    for address in ["192.0.2.2", "192.0.2.3"] {
        let begun = Instant::now();
        folder.write("a.yaml", &fixed(address, 30));
        becomes(&hale, address);
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
    reloaded_times(&hale, 2);
}

#[test]
fn c14_a_file_that_is_renamed_over_is_noticed_every_time() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let hale = Hale::serve(folder.join("a.yaml"));
    for address in ["192.0.2.2", "192.0.2.3"] {
        folder.replace("a.yaml", &fixed(address, 30));
        becomes(&hale, address);
    }
    reloaded_times(&hale, 2);
}

#[test]
fn c14_a_config_map_that_is_swapped_is_noticed_every_time() {
    // as the kubelet does it: a.yaml → ..data/a.yaml, ..data → ..N
    let folder = Folder::new();
    let put = |number: u8| {
        let name = format!("..{number}");
        fs::create_dir(folder.join(&name)).unwrap();
        folder.write(&format!("{name}/a.yaml"), &fixed(&format!("192.0.2.{number}"), 30));
        symlink(&name, folder.join("..data_tmp")).unwrap();
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    };
    put(1);
    symlink("..data/a.yaml", folder.join("a.yaml")).unwrap();
    let hale = Hale::serve(folder.path());
    for number in [2, 3] {
        put(number);
        fs::remove_dir_all(folder.join(&format!("..{}", number - 1))).unwrap();
        becomes(&hale, &format!("192.0.2.{number}"));
    }
    reloaded_times(&hale, 2);
    assert_eq!(hale.count(KEPT), 0);
}

#[test]
fn a_path_that_is_a_symlink_is_followed_where_it_points_now() {
    let folder = Folder::new();
    for number in 1..=3 {
        fs::create_dir(folder.join(&format!("v{number}"))).unwrap();
        folder.write(&format!("v{number}/a.yaml"), &fixed(&format!("192.0.2.{number}"), 30));
    }
    symlink("v1", folder.join("current")).unwrap();
    let hale = Hale::serve(folder.join("current"));
    for number in [2, 3] {
        symlink(format!("v{number}"), folder.join("next")).unwrap();
        fs::rename(folder.join("next"), folder.join("current")).unwrap();
        becomes(&hale, &format!("192.0.2.{number}"));
    }
}

#[test]
fn a_directory_that_goes_and_comes_back_is_noticed() {
    let folder = Folder::new();
    let zones = folder.join("zones");
    let put = |address: &str| {
        fs::create_dir(&zones).unwrap();
        folder.write("zones/a.yaml", &fixed(address, 30));
    };
    put("192.0.2.1");
    let hale = Hale::serve(&zones);
    for address in ["192.0.2.2", "192.0.2.3"] {
        let mark = hale.mark();
        fs::remove_dir_all(&zones).unwrap();
        hale.line_after(mark, KEPT);
        assert_eq!(ask(hale.address(), WWW).addresses.len(), 1, "the last good one serves");
        put(address);
        becomes(&hale, address);
    }
}

#[test]
fn c14_a_half_written_file_changes_nothing_until_it_is_complete() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let hale = Hale::serve(folder.path());
    let whole = fixed("192.0.2.2", 30);
    let cut = whole.find("192.0.2.2").unwrap() + 3; // within a flow mapping
    folder.write("a.yaml", ""); // an editor truncates first
    hale.line(KEPT);
    let mark = hale.mark();
    folder.write("a.yaml", &whole[..cut]);
    hale.line_after(mark, KEPT);
    assert!(ask(hale.address(), WWW).is(&["192.0.2.1"]));
    folder.write("a.yaml", &whole);
    becomes(&hale, "192.0.2.2");
    reloaded_times(&hale, 1);
}

#[test]
fn c14_touching_a_file_many_times_reloads_nothing() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let hale = Hale::serve(folder.path());
    for _ in 0..50 {
        folder.write("a.yaml", &fixed("192.0.2.1", 30));
        thread::sleep(Duration::from_millis(10)); // 50 changes in half a second
    }
    hale.line(UNCHANGED);
    folder.write("a.yaml", &fixed("192.0.2.2", 30));
    becomes(&hale, "192.0.2.2");
    reloaded_times(&hale, 1);
    assert!(hale.count(UNCHANGED) <= 2, "{}", hale.log()); // two, if a look fell into a long pause
}

#[test]
fn a_file_that_never_rests_does_not_hold_up_the_reload_of_others() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let hale = Hale::serve(folder.path());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let begun = Instant::now();
            while !done.load(Ordering::Relaxed) && begun.elapsed() < PATIENCE {
                folder.write("notes.txt", &format!("{:?}", begun.elapsed()));
                thread::sleep(Duration::from_millis(50));
            }
        });
        folder.replace("a.yaml", &fixed("192.0.2.2", 30));
        let begun = Instant::now();
        while !ask(hale.address(), WWW).is(&["192.0.2.2"]) && begun.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(20));
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(ask(hale.address(), WWW).is(&["192.0.2.2"]), "{}", hale.log());
}

#[test]
fn hidden_files_and_links_that_lead_in_circles_are_not_looked_at() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    for number in 0..8 {
        symlink(".", folder.join(&format!("circle{number}"))).unwrap();
    }
    let hale = Hale::serve(folder.path());
    folder.write(".a.yaml.swp", "an editor at work");
    folder.write("a.yaml", &fixed("192.0.2.2", 30));
    becomes(&hale, "192.0.2.2");
    folder.write(".a.yaml.swp", "an editor still at work");
    folder.write("a.yaml", &fixed("192.0.2.3", 30));
    becomes(&hale, "192.0.2.3");
    reloaded_times(&hale, 2);
    assert_eq!(hale.count(UNCHANGED), 0, "{}", hale.log());
}

#[test]
fn a_broken_file_keeps_the_old_answers_and_says_where_it_is_broken() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let hale = Hale::serve(folder.path());
    let broken = fixed("192.0.2.2", 30).replace("address:", "adress:");
    let column = broken.lines().nth(1).unwrap().find("adress").unwrap() + 1;
    folder.write("a.yaml", &broken);
    hale.line(KEPT);
    let place = hale.line("a.yaml:2:").text;
    assert!(place.contains(&format!("a.yaml:2:{column}: error")), "{place}");
    assert!(ask(hale.address(), WWW).is(&["192.0.2.1"]));
    folder.write("a.yaml", &fixed("192.0.2.2", 30));
    becomes(&hale, "192.0.2.2");
}

/// Four more load balancers beside `www`.
fn many(address: &str) -> String {
    let more = ["a", "b", "c", "d"]
        .map(|name| format!("  {name}: {{ ttl: 30, default_pools: [main], fallback_pool: sorry }}\n"));
    format!("{}{}", fixed(address, 30), more.concat())
}

#[test]
fn a_reload_that_removes_most_names_needs_the_guard_off() {
    let folder = Folder::with("a.yaml", &many("192.0.2.1"));
    let hale = Hale::serve(folder.path());
    folder.write("a.yaml", &fixed("192.0.2.2", 30));
    hang_up(&hale, "4 of 7 names would be gone, more than half");
    assert!(hale.count("`reload_guard: off` under `server:`") > 0);
    assert!(ask(hale.address(), WWW).is(&["192.0.2.1"]));
    assert!(ask(hale.address(), "d.example.test.").is(&["192.0.2.1"]));

    folder.write("a.yaml", &format!("server: {{ reload_guard: off }}\n{}", fixed("192.0.2.2", 30)));
    hang_up(&hale, RELOADED);
    becomes(&hale, "192.0.2.2");
    assert_eq!(ask(hale.address(), "d.example.test.").rcode, ResponseCode::NXDomain);
    assert_eq!(hale.count("takes effect with the next start"), 0, "the guard obeys at once");
}

#[test]
fn a_changed_server_section_waits_for_the_next_start() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let hale = Hale::serve(folder.path());
    folder.write("a.yaml", &format!("server: {{ udp_workers: 3 }}\n{}", fixed("192.0.2.2", 30)));
    hang_up(&hale, RELOADED);
    hale.line(
        "what has changed of `server:` takes effect with the next start: `udp_workers` from one a core to 3",
    );
    becomes(&hale, "192.0.2.2");
    // told once, also when other things change
    folder.write("a.yaml", &format!("server: {{ udp_workers: 3 }}\n{}", fixed("192.0.2.3", 30)));
    becomes(&hale, "192.0.2.3");
    folder.write("a.yaml", &fixed("192.0.2.2", 30));
    hale.line("`server:` is again what this server was started with");
    assert_eq!(hale.count("takes effect with the next start"), 1, "{}", hale.log());
}

#[test]
fn a_file_of_secrets_is_watched_wherever_it_lies() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    let secret = |digit: &str| format!("{}\n", digit.repeat(32));
    let path = elsewhere.join("secrets");
    elsewhere.write("secrets", &secret("1"));
    let server = format!("server: {{ cookie_secret_file: {} }}\n", path.display());
    folder.write("a.yaml", &(server + &fixed("192.0.2.1", 30)));
    let hale = Hale::serve(folder.path());
    elsewhere.replace("secrets", &secret("2"));
    hale.line(RELOADED);
    let mark = hale.mark();
    fs::remove_file(&path).unwrap();
    hale.line_after(mark, KEPT);
    assert_eq!(ask(hale.address(), WWW).addresses.len(), 1, "the last good one serves");
    let mark = hale.mark();
    elsewhere.write("secrets", &secret("2"));
    hale.line_after(mark, "it is in order, and says what is in force");
}

#[test]
fn a_file_that_a_monitor_names_is_watched_also_before_it_is_there() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let elsewhere = Folder::new();
    let hale = Hale::serve(folder.path());
    let path = elsewhere.join("ca.pem");
    let monitor = format!("monitors: {{ web: {{ type: tls, ca_file: {} }} }}\n", path.display());
    let text = fixed("192.0.2.2", 30).replace("main: { ", "main: { monitor: web, ");
    folder.write("a.yaml", &(monitor + &text));
    hale.line(KEPT);
    let mark = hale.mark();
    elsewhere.write("ca.pem", &self_signed(&["authority"], true).pem);
    hale.line_after(mark, RELOADED);
}

#[test]
fn a_removed_zone_is_refused_and_comes_back() {
    let other = "zone: other.test\nrecords: { '': { type: NS, value: ns.example.test. } }\n\
                 load_balancers: { www: { ttl: 30, default_pools: [main], fallback_pool: sorry } }\n";
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    folder.write("b.yaml", other);
    let hale = Hale::serve(folder.path());
    assert!(ask(hale.address(), "www.other.test.").is(&["192.0.2.1"]));
    fs::remove_file(folder.join("b.yaml")).unwrap();
    until("the zone goes", || ask(hale.address(), "www.other.test.").rcode == ResponseCode::Refused);
    assert!(ask(hale.address(), WWW).is(&["192.0.2.1"]));
    folder.write("b.yaml", other);
    until("the zone comes back", || ask(hale.address(), "www.other.test.").is(&["192.0.2.1"]));
}

#[test]
fn verdicts_survive_reloads_without_a_gap() {
    let lives = Endpoint::start("127.0.0.1", Manner::Answers);
    let endpoints = [lives.address, dead("127.0.0.2")];
    let folder = Folder::with("a.yaml", &probed(&endpoints, 30));
    let hale = Hale::serve(folder.path());
    let done = AtomicBool::new(false);
    let asked = thread::scope(|scope| {
        let asker = scope.spawn(|| {
            let socket = socket(hale.address());
            let mut asked = 0;
            while !done.load(Ordering::Relaxed) {
                let reply = ask_on(&socket, WWW);
                assert!(reply.is(&["127.0.0.1"]), "{reply:?}");
                asked += 1;
            }
            asked
        });
        for ttl in 31..41 {
            folder.replace("a.yaml", &probed(&endpoints, ttl));
            hang_up(&hale, RELOADED);
            // a changed monitor keeps the verdicts, too
            folder.replace("a.yaml", &probed(&endpoints, ttl).replace("timeout: 5s", "timeout: 6s"));
            hang_up(&hale, RELOADED);
        }
        done.store(true, Ordering::Relaxed);
        asker.join().unwrap()
    });
    assert!(asked > 100, "{asked}");
    assert!(hale.count("endpoint main/e1 is") <= 1, "no verdict moved: {}", hale.log());
}

#[test]
fn a_storm_of_sighups_is_weathered() {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let hale = Hale::serve(folder.path());
    for number in 0..500 {
        if number == 250 {
            folder.replace("a.yaml", &fixed("192.0.2.2", 30));
        }
        hale.signal(Signal::HUP);
        assert_eq!(ask(hale.address(), WWW).addresses.len(), 1);
    }
    becomes(&hale, "192.0.2.2");
    reloaded_times(&hale, 1);
    let (ended, took) = hale.stop(Signal::TERM);
    assert_eq!(ended.code(), Some(0));
    assert!(took < Duration::from_secs(2), "{took:?}");
}

/// Opens a named pipe for writing, once somebody reads it.
fn writer(pipe: &Path) -> File {
    let mut writer = None;
    until("somebody reads the pipe", || {
        writer = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(pipe).ok();
        writer.is_some()
    });
    writer.unwrap()
}

/// A server with a named pipe among its files: reading that takes until
/// somebody has written.
fn started_with_a_slow_file() -> (Folder, Hale) {
    let folder = Folder::with("a.yaml", &fixed("192.0.2.1", 30));
    let pipe = folder.join("slow.yaml");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut serve = command(["serve", "--listen", "127.0.0.1:0"]);
    serve.arg(folder.join("a.yaml")).arg(&pipe);
    let hale = Hale::start(serve);
    (folder, hale)
}

/// The same, serving.
fn with_a_slow_file() -> (Folder, Hale) {
    let (folder, hale) = started_with_a_slow_file();
    writer(&folder.join("slow.yaml")).write_all(b"monitors: {}\n").unwrap();
    hale.address();
    (folder, hale)
}

#[test]
fn a_slow_load_holds_up_neither_answers_nor_the_stop() {
    for asked_for in [false, true] {
        let (folder, hale) = with_a_slow_file();
        if asked_for {
            hale.signal(Signal::HUP);
        } else {
            folder.write("a.yaml", &fixed("192.0.2.2", 30));
        }
        let _holds_it_up = writer(&folder.join("slow.yaml"));
        hale.signal(Signal::HUP); // another one while it loads
        assert!(ask(hale.address(), WWW).is(&["192.0.2.1"]));
        let (ended, took) = hale.stop(Signal::TERM);
        assert_eq!(ended.code(), Some(0), "{}", ended.log);
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
}

#[test]
fn a_slow_load_takes_effect_when_it_is_done() {
    let (folder, hale) = with_a_slow_file();
    folder.write("a.yaml", &fixed("192.0.2.2", 30));
    hale.signal(Signal::HUP);
    writer(&folder.join("slow.yaml")).write_all(b"monitors: {}\n").unwrap();
    becomes(&hale, "192.0.2.2");
}

#[test]
fn a_hangup_while_the_first_configuration_is_read_ends_nothing() {
    let (folder, hale) = started_with_a_slow_file();
    let pipe = folder.join("slow.yaml");
    let mut first = writer(&pipe); // it is being read now
    hale.signal(Signal::HUP);
    first.write_all(b"monitors: {}\n").unwrap();
    drop(first);
    hale.address();
    writer(&pipe).write_all(b"monitors: {}\n").unwrap(); // and read once more, as asked for
    hale.line("configuration read again");
    assert!(ask(hale.address(), WWW).is(&["192.0.2.1"]));
}
