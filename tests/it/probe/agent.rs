//! Agents that speak HAProxy's language, and what HAProxy makes of it.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use haledns::health::{AgentReport, AgentWish, Outcome};
use haledns::model::{AgentCheck, Check};

use super::{LONG, Probe, SHORT, told};
use crate::support::folder::Folder;
use crate::support::programs::need;
use crate::support::server::{Ending, Server, Step};

fn agent() -> Check {
    Check::Agent(AgentCheck::default())
}

async fn says(text: &str) -> (Server, Outcome) {
    let server = Server::start(vec![Step::Write(text.as_bytes().to_vec())]).await;
    let outcome = Probe::new(server.address, agent()).run().await;
    (server, outcome)
}

#[tokio::test]
async fn h14_an_agent_says_how_its_endpoint_is() {
    let none = AgentReport::default();
    let wish = |wish| AgentReport { wish: Some(wish), percent: None };
    for (text, result, report) in [
        ("up\n", "- pass", Some(none)),
        ("up", "- pass", Some(none)),
        ("UP 50%\r\n", "- pass", Some(AgentReport { wish: None, percent: Some(50) })),
        ("ready\n", "- pass", Some(wish(AgentWish::Ready))),
        ("drain\n", "- pass", Some(wish(AgentWish::Drain))),
        ("maint\n", "- pass", Some(wish(AgentWish::Maint))),
        ("maxconn:10\n", "- pass", Some(none)),
        ("down # no disk left\n", "- AgentDown agent_down", Some(none)),
        ("failed\n", "- AgentDown agent_failed", Some(none)),
        ("stopped, drain\n", "- AgentDown agent_stopped", Some(wish(AgentWish::Drain))),
        ("hello\n", "- AgentInvalidResponse malformed_response", None),
        ("\n", "- AgentInvalidResponse malformed_response", None),
        ("", "- AgentInvalidResponse malformed_response", None),
        ("HTTP/1.0 400 Bad Request\r\n\r\n", "- AgentInvalidResponse malformed_response", None),
    ] {
        let (server, outcome) = says(text).await;
        assert_eq!((&*told(&outcome), outcome.agent), (result, report), "{text:?}");
        assert_eq!(&*outcome.evidence.said, text.as_bytes());
        let seen = server.ended(1).await;
        assert_eq!((&*seen[0].received, seen[0].ending), ("", Some(Ending::Closed)), "{text:?}");
    }
}

#[tokio::test]
async fn an_agent_is_told_what_the_monitor_sends() {
    let server = Server::start(vec![Step::Line, Step::Write(b"up\n".to_vec()), Step::Hold]).await;
    let check = Check::Agent(AgentCheck { port: None, send: Some(b"eu-1\n"[..].into()) });
    assert_eq!(told(&Probe::new(server.address, check).run().await), "- pass");
    assert_eq!(server.ended(1).await[0].received, "eu-1\n");
}

#[tokio::test]
async fn a_line_without_an_end_is_waited_for_and_bounded() {
    let silent = Server::start(vec![Step::Write(b"up".to_vec()), Step::Hold]).await;
    let outcome = Probe::new(silent.address, agent()).within(SHORT).run().await;
    assert_eq!(told(&outcome), "- AgentTimeout response_timeout");
    let endless = Server::start(vec![Step::Endless(b"up ".to_vec())]).await;
    let outcome = Probe::new(endless.address, agent()).run().await;
    assert_eq!(told(&outcome), "- AgentInvalidResponse malformed_response");
    assert!(outcome.took < LONG);
}

#[tokio::test]
async fn an_agent_that_resets_or_is_not_there_fails() {
    let server = Server::start(vec![Step::Reset]).await;
    let address = server.address;
    let outcome = Probe::new(address, agent()).run().await;
    assert_eq!(told(&outcome), "- ConnectionReset connection_reset");
    server.stop().await;
    let outcome = Probe::new(address, agent()).run().await;
    assert_eq!(told(&outcome), "- TcpConnectionFailed connect_refused");
}

// The same texts, read by HAProxy.

/// What both make of a text.
#[derive(Debug, PartialEq)]
struct Reading {
    up: bool,
    wish: Option<AgentWish>,
    percent: Option<u8>,
}

impl Reading {
    /// Ours; what wasn't understood changes nothing, as with HAProxy.
    fn ours(outcome: &Outcome) -> Reading {
        let report = outcome.agent.unwrap_or_default();
        let said_down = told(outcome).contains("AgentDown");
        Reading {
            up: !said_down,
            wish: report.wish.filter(|wish| *wish != AgentWish::Ready), // which is how servers begin
            percent: Some(report.percent.unwrap_or(100)),
        }
    }

    /// HAProxy's `show servers state`, whose states and weights are numbers.
    fn theirs(row: &[&str]) -> Reading {
        const FORCED_MAINT: u32 = 0x01;
        const FORCED_DRAIN: u32 = 0x08;
        let number = |column: usize| row[column].parse::<u32>().unwrap();
        let (operational, administrative, weight) = (number(5), number(6), number(7));
        let wish = match administrative {
            state if state & FORCED_MAINT != 0 => Some(AgentWish::Maint),
            state if state & FORCED_DRAIN != 0 => Some(AgentWish::Drain),
            _ => None,
        };
        Reading {
            // In maintenance nothing is up, whatever was said of it.
            up: operational != 0 || wish == Some(AgentWish::Maint),
            wish,
            percent: u8::try_from(weight).ok(),
        }
    }
}

/// Runs until dropped.
struct Haproxy {
    child: Child,
    socket: std::path::PathBuf,
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Haproxy {
    fn start(folder: &Path, servers: &[Server]) -> Haproxy {
        let socket = folder.join("stats");
        let mut text = format!(
            "global\n  stats socket {} level admin\n\
             defaults\n  mode tcp\n  timeout connect 2s\n  timeout client 2s\n  timeout server 2s\n\
             backend agents\n  balance roundrobin\n",
            socket.display()
        );
        for (number, server) in servers.iter().enumerate() {
            let (ip, port) = (server.address.ip(), server.address.port());
            let line = format!(
                "  server s{number} {ip}:{port} weight 100 agent-check agent-addr {ip} agent-port {port} \
                 agent-inter 100ms"
            );
            writeln!(text, "{line}").unwrap();
        }
        let path = folder.join("haproxy.cfg");
        std::fs::write(&path, text).unwrap();
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(&path).stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Haproxy { child, socket }
    }

    fn ask(&self, command: &str) -> Option<String> {
        let mut stream = UnixStream::connect(&self.socket).ok()?;
        stream.write_all(format!("{command}\n").as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    fn readings(&self) -> Option<Vec<Reading>> {
        let answer = self.ask("show servers state agents")?;
        let rows = answer.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        Some(
            rows.filter(|row| row.len() > 7 && row[1] == "agents").map(|row| Reading::theirs(&row)).collect(),
        )
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h14_haproxy_reads_the_same_in_what_an_agent_says() {
    if !need("haproxy") {
        return;
    }
    let texts = [
        "up\n",
        "down\n",
        "DOWN # no disk left\n",
        "stopped\n",
        "fail\n",
        "down up\n",
        "drain\n",
        "maint\n",
        "ready\n",
        "drain ready\n",
        "75%\n",
        "up 10%\n",
        "0%\n",
        "up, drain,\t50%\n",
        "25% 40%\n",
        "hello\n",
        "up # down\n",
        "up#down\n",
        "down maxconn:10\r\n",
        "-5%\n",
    ];
    let mut servers = Vec::new();
    let mut ours = Vec::new();
    for text in texts {
        let (server, outcome) = says(text).await;
        servers.push(server);
        ours.push(Reading::ours(&outcome));
    }
    let folder = Folder::new();
    let haproxy = Haproxy::start(folder.path(), &servers);
    let begun = Instant::now();
    let theirs = loop {
        // An answer is acted on before the next question comes.
        let heard = servers.iter().all(|server| server.connections() > 2);
        match haproxy.readings() {
            Some(theirs) if heard && theirs.len() == texts.len() => break theirs,
            _ => assert!(begun.elapsed() < Duration::from_secs(20), "HAProxy doesn't ask"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let differences: Vec<_> =
        (texts.iter().zip(ours.iter().zip(&theirs))).filter(|(_, (ours, theirs))| ours != theirs).collect();
    assert!(differences.is_empty(), "text, we, HAProxy: {differences:#?}");
}
