//! `demo`, whose endpoints have fixed addresses: one at a time on a machine.

use std::fs::{self, File};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use rustix::process::Signal;

use crate::support::dns::ask;
use crate::support::hale::{Hale, command, signal, until};
use crate::support::programs;

const NAME: &str = "www.gslb.example.com.";

/// The sample's addresses are taken by one demo at a time on a machine, so
/// these are one test: others would only wait for it.
#[test]
fn the_demo_keeps_its_word() {
    // another run of the tests may be at it
    let lock = File::create(std::env::temp_dir().join("hale-sample-endpoints.lock")).unwrap();
    lock.lock().unwrap();
    the_sample_served_beside_the_demos_endpoints_answers_with_them();
    a_signal_ends_the_board_as_well_as_a_key();
    keys_on_the_board_kill_endpoints_and_the_fallback_pool();
    the_tour_is_right_and_a_second_demo_is_told_that_it_runs();
}

fn the_tour_is_right_and_a_second_demo_is_told_that_it_runs() {
    let tour = Hale::start(command(["demo", "--tour", "--listen", "127.0.0.1:0"]));
    tour.printed(0, "all endpoints are up");
    let second = Hale::start(command(["demo", "--endpoints-only"])).ended();
    assert_eq!(second.code(), Some(1), "{}", second.log);
    assert!(second.log.contains("no endpoint at 127."), "{}", second.log);
    assert!(second.log.contains("is another demo running?"), "{}", second.log);
    // one with a server of its own takes another port for its endpoints
    let second = Hale::start(command(["demo", "--listen", "127.0.0.1:0"]));
    second.printed(0, "www.gslb.example.com. answers from pool eu, else us; at worst sorry");
    let (ended, _) = second.stop(Signal::TERM);
    assert_eq!(ended.code(), Some(0), "{}", ended.log);
    tour.printed(0, "tour complete: 9 of 9 steps answered as told");
    let ended = tour.ended();
    assert_eq!(ended.code(), Some(0), "{}{}", ended.out, ended.log);
}

fn the_sample_served_beside_the_demos_endpoints_answers_with_them() {
    let demo = Hale::start(command(["demo", "--endpoints-only"]));
    demo.printed(0, "start the server beside it:  hale serve zones");
    let hale = Hale::serve("zones");
    let reply = ask(hale.address(), NAME);
    assert!(reply.is(&["127.10.0.1", "127.10.0.2"]), "{reply:?}");
    let (ended, _) = demo.stop(Signal::TERM);
    assert_eq!(ended.code(), Some(0), "{}", ended.log);
}

/// Runs its arguments in a terminal of 80 columns and hands keys and output on.
const TERMINAL: &str = "
import fcntl, os, pty, select, struct, sys, termios
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', 40, 80, 0, 0))
while True:
    ready, _, _ = select.select([terminal, 0], [], [])
    try:
        if terminal in ready:
            octets = os.read(terminal, 65536)
            if not octets: break
            os.write(1, octets)
        if 0 in ready:
            keys = os.read(0, 1024)
            if not keys: break
            os.write(terminal, keys)
    except OSError:
        break
os.close(terminal)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";

/// Runs a demo in a terminal.
fn in_a_terminal(arguments: &[&str]) -> Hale {
    let mut terminal = Command::new("python3");
    terminal.args(["-c", TERMINAL, env!("CARGO_BIN_EXE_hale")]).args(arguments);
    Hale::start(terminal)
}

/// It ended well, and the terminal has its first screen again.
fn leaves_the_terminal_as_it_was(board: Hale) {
    let ended = board.ended();
    assert_eq!(ended.code(), Some(0), "{}{}", ended.out, ended.log);
    let (taken, given_back) = (ended.out.rfind("\x1b[?1049h"), ended.out.rfind("\x1b[?1049l"));
    assert!(taken.is_some() && taken < given_back, "{:?}", ended.out);
    assert!(TcpStream::connect("127.10.0.2:18080").is_err(), "its endpoints end with it");
}

fn a_signal_ends_the_board_as_well_as_a_key() {
    if !programs::need("python3") {
        return;
    }
    let board = in_a_terminal(&["demo", "--endpoints-only"]);
    board.printed(0, "127.10.0.1:18080    up");
    let children = format!("/proc/{0}/task/{0}/children", board.pid());
    let child = fs::read_to_string(children).unwrap();
    signal(child.trim().parse().unwrap(), Signal::TERM);
    leaves_the_terminal_as_it_was(board);
}

fn keys_on_the_board_kill_endpoints_and_the_fallback_pool() {
    if !programs::need("python3") {
        return;
    }
    let mut board = in_a_terminal(&["demo", "--listen", "127.0.0.1:0"]);
    board.printed(0, "127.10.0.1  127.10.0.2 (TTL 30)");
    let dig = board.printed(0, "in another terminal:").text;
    let words: Vec<_> = dig.split_whitespace().collect();
    let after = |word| words[words.iter().position(|other| *other == word).unwrap() + 1];
    let at = words.iter().find_map(|word| word.strip_prefix('@')).unwrap();
    let server: SocketAddr = format!("{at}:{}", after("-p")).parse().unwrap();
    assert!(ask(server, NAME).is(&["127.10.0.1", "127.10.0.2"]));

    let mut press = |keys: &str, shown: &str| {
        let mark = board.printed_mark();
        board.stdin().write_all(keys.as_bytes()).unwrap();
        board.printed(mark, shown);
    };
    press("1", "127.10.0.1:18080    down");
    press("f", "fallback pool sorry: disabled");
    press("f", "fallback pool sorry: enabled");
    press("", "endpoint eu/eu-1 is unhealthy");
    until("the answer follows", || ask(server, NAME).is(&["127.10.0.2"]));
    press("1", "127.10.0.1:18080    up");
    board.stdin().write_all(b"q").unwrap();
    leaves_the_terminal_as_it_was(board);
}
