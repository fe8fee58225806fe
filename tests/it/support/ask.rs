//! A question, and a reply as `dig` shows it.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use haledns::authority::Snapshot;
use haledns::wire::{self, Client, Service, Transport};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, Record, RecordType};

/// What is asked, class IN.
#[derive(Clone, Debug)]
pub struct Question {
    name: Name,
    rtype: RecordType,
}

impl std::str::FromStr for Question {
    type Err = String;

    /// Reads `www.example.com AAAA`.
    fn from_str(text: &str) -> Result<Question, String> {
        let wrong = |why: &dyn std::fmt::Display| format!("`{text}` is no question: {why}");
        let (name, rtype) = text.split_once(' ').ok_or_else(|| wrong(&"write `name TYPE`"))?;
        let mut name = Name::from_ascii(name).map_err(|error| wrong(&error))?;
        name.set_fqdn(true);
        Ok(Question { name, rtype: rtype.trim().parse().map_err(|error| wrong(&error))? })
    }
}

impl Question {
    /// The query that `dig` would send.
    pub fn octets(&self) -> Vec<u8> {
        let mut message = Message::new(0x4a1e, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(Query::query(self.name.clone(), self.rtype));
        let mut edns = Edns::new();
        edns.set_max_payload(1232);
        message.set_edns(edns);
        message.to_vec().expect("a question of a scenario fits a message")
    }
}

/// A reply in the words of `dig`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// `NOERROR`, `NXDOMAIN`, …
    pub status: String,
    /// `qr aa rd`
    pub flags: String,
    /// One line a record, its fields apart by one space.
    pub answer: Vec<String>,
    pub authority: Vec<String>,
}

/// Asks a snapshot over UDP; `entropy` is the chance of this one answer.
pub fn snapshot(snapshot: &Snapshot, query: &[u8], entropy: u64) -> Reply {
    let mut out = [0; wire::MAX_UDP];
    let address = Ipv4Addr::LOCALHOST.into();
    let client = Client { transport: Transport::Udp, address, entropy, now: 1_800_000_000 };
    let replied = wire::respond(snapshot, &Service::default(), query, client, &mut out);
    Reply::read(&out[..replied.length])
}

/// Asks a server with the program `dig`; none if no reply came.
pub fn dig(server: SocketAddr, question: &Question) -> Option<Reply> {
    let output = Command::new("dig")
        .args(["+noall", "+comments", "+answer", "+authority", "+tries=1", "+time=2", "-4"])
        .arg(format!("@{}", server.ip()))
        .args(["-p", &server.port().to_string()])
        .args(["-q", &question.name.to_ascii(), "-t", &question.rtype.to_string()])
        .output()
        .expect("dig was found before");
    Reply::of_dig(&String::from_utf8_lossy(&output.stdout))
}

impl Reply {
    /// Reads a message.
    fn read(octets: &[u8]) -> Reply {
        let message = Message::from_vec(octets).expect("replies are well formed");
        assert_eq!(message.metadata.id, 0x4a1e);
        let metadata = &message.metadata;
        let flags = [
            ("qr", metadata.message_type == MessageType::Response),
            ("aa", metadata.authoritative),
            ("tc", metadata.truncation),
            ("rd", metadata.recursion_desired),
            ("ra", metadata.recursion_available),
            ("ad", metadata.authentic_data),
            ("cd", metadata.checking_disabled),
        ];
        let set: Vec<&str> = flags.iter().filter(|(_, set)| *set).map(|(flag, _)| *flag).collect();
        Reply {
            status: status(metadata.response_code),
            flags: set.join(" "),
            answer: message.answers.iter().map(line).collect(),
            authority: message.authorities.iter().map(line).collect(),
        }
    }

    /// Reads what `dig` printed.
    fn of_dig(text: &str) -> Option<Reply> {
        let between = |start: &str, end: char| {
            let from = text.find(start)? + start.len();
            Some(text[from..].split(end).next()?.trim().to_owned())
        };
        let section = |title: &str| -> Vec<String> {
            let lines = text.lines().skip_while(|line| !line.contains(title)).skip(1);
            lines.take_while(|line| !line.is_empty() && !line.starts_with(';')).map(single_spaced).collect()
        };
        Some(Reply {
            status: between("status: ", ',')?,
            flags: between("flags: ", ';')?,
            answer: section("ANSWER SECTION"),
            authority: section("AUTHORITY SECTION"),
        })
    }
}

fn status(code: ResponseCode) -> String {
    match code {
        ResponseCode::NoError => "NOERROR".into(),
        ResponseCode::NXDomain => "NXDOMAIN".into(),
        ResponseCode::ServFail => "SERVFAIL".into(),
        ResponseCode::FormErr => "FORMERR".into(),
        ResponseCode::NotImp => "NOTIMP".into(),
        ResponseCode::Refused => "REFUSED".into(),
        other => format!("RCODE{}", u16::from(other)),
    }
}

/// A record as `dig` prints it, but for the width of the gaps.
fn line(record: &Record) -> String {
    match &record.data {
        RData::TXT(text) => {
            let head = format!("{} {} {} TXT", record.name, record.ttl, record.dns_class);
            text.txt_data
                .iter()
                .fold(head, |line, part| format!("{line} {:?}", String::from_utf8_lossy(part)))
        }
        _ => record.to_string(),
    }
}

/// The same with one space in each gap.
pub fn single_spaced(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a line is the expected one, in which `*` stands for any field.
fn is_line(expected: &str, line: &str) -> bool {
    let (mut left, mut right) = (expected.split(' '), line.split(' '));
    loop {
        match (left.next(), right.next()) {
            (None, None) => return true,
            (Some(left), Some(right)) if left == "*" || left == right => {}
            _ => return false,
        }
    }
}

/// Nothing if the lines are those expected, in any order; else a diff.
pub fn compare(what: &str, expected: &[String], got: &[String]) -> Option<String> {
    let mut rest = got.to_vec();
    let mut diff = String::new();
    let mut differ = false;
    for line in expected {
        match rest.iter().position(|other| is_line(line, other)) {
            Some(place) => writeln!(diff, "      {}", rest.remove(place)),
            None => {
                differ = true;
                writeln!(diff, "    - {line}")
            }
        }
        .unwrap();
    }
    for line in &rest {
        differ = true;
        writeln!(diff, "    + {line}").unwrap();
    }
    differ.then(|| format!("  {what} (- expected, + got):\n{diff}"))
}

#[test]
fn a_difference_shows_what_is_missing_and_what_is_too_much() {
    let lines = |text: &[&str]| text.iter().map(|line| line.to_string()).collect::<Vec<_>>();
    assert_eq!(compare("answer", &lines(&["a 1", "b *"]), &lines(&["b 7", "a 1"])), None);
    assert_eq!(
        compare("answer", &lines(&["a 1", "b 2"]), &lines(&["a 1", "c 3"])).unwrap(),
        "  answer (- expected, + got):\n      a 1\n    - b 2\n    + c 3\n"
    );
}
