//! The journal's lines.
//!
//! A head and then one record a line, each as `CHECKSUM JSON`: eight
//! hexadecimal digits of CRC-32 over the JSON, so that a line which was cut off
//! or changed is recognised and the others are not lost with it. Times are
//! milliseconds of Unix time. The newest record of a key counts.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::health::{
    Action, AgentWish, EndpointKey, EndpointMemory, MachineMemory, Memory, Override, Record, Slot, Subject,
    TargetKey, TargetMemory, Verdict,
};
use crate::model::{Name, Scope, Weight};
use crate::moment::Moment;

/// What the head's JSON says. Another version is another format.
const HEAD: &str = r#"{"format":"hale verdicts","version":1}"#;

/// The first line, with its end.
pub fn head() -> String {
    framed(HEAD)
}

/// One record as a line, with its end.
pub fn line(record: &Record) -> String {
    let json = serde_json::to_string(&Entry::from(record)).expect("plain texts and numbers");
    framed(&json)
}

fn framed(json: &str) -> String {
    format!("{:08x} {json}\n", checksum(json.as_bytes()))
}

/// What a journal holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    pub memory: Memory,
    /// How many records it was made of.
    pub records: usize,
    /// Lines that were changed after they were written, or say nothing known.
    pub damaged: usize,
    /// The last line was cut off.
    pub torn: bool,
}

/// The file begins like no journal of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownHead;

impl fmt::Display for UnknownHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it doesn't begin as this version's files do")
    }
}

/// Reads a whole journal, as far as it is intact.
pub fn read(octets: &[u8]) -> Result<Contents, UnknownHead> {
    let mut contents = Contents::default();
    let head = head();
    let Some(body) = octets.strip_prefix(head.as_bytes()) else {
        contents.torn = !octets.is_empty();
        return if head.as_bytes().starts_with(octets) { Ok(contents) } else { Err(UnknownHead) };
    };
    for line in body.split_inclusive(|octet| *octet == b'\n') {
        match line.strip_suffix(b"\n") {
            Some(line) => match record(line) {
                Some(record) => {
                    contents.records += 1;
                    contents.memory.take(record);
                }
                None => contents.damaged += 1,
            },
            None => contents.torn = true,
        }
    }
    Ok(contents)
}

fn record(line: &[u8]) -> Option<Record> {
    let (digits, rest) = line.split_at_checked(8)?;
    let json = rest.strip_prefix(b" ")?;
    let expected = format!("{:08x}", checksum(json));
    if digits != expected.as_bytes() {
        return None;
    }
    serde_json::from_slice::<Entry>(json).ok()?.record()
}

/// CRC-32 as Ethernet, gzip and PNG have it.
fn checksum(octets: &[u8]) -> u32 {
    static TABLE: [u32; 256] = table();
    !octets.iter().fold(!0, |sum, octet| (sum >> 8) ^ TABLE[((sum ^ u32::from(*octet)) & 0xff) as usize])
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut octet = 0;
    while octet < 256 {
        let (mut sum, mut bit) = (octet as u32, 0);
        while bit < 8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 };
            bit += 1;
        }
        table[octet] = sum;
        octet += 1;
    }
    table
}

/// A record as it is written.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Entry {
    Target {
        pool: Arc<str>,
        endpoint: Arc<str>,
        address: IpAddr,
        monitor: Arc<str>,
        vantage: Arc<str>,
        /// A hash of what was tested, in hexadecimal digits.
        test: String,
        verdict: Word,
        since: u64,
        run: Option<(bool, u32)>,
        reported: Option<u64>,
    },
    Endpoint {
        pool: Arc<str>,
        endpoint: Arc<str>,
        address: IpAddr,
        verdict: Word,
        since: u64,
        flaps: Vec<u64>,
        ejections: u32,
        ejected_until: Option<u64>,
        #[serde(default)]
        wish: Option<WishWord>,
        #[serde(default = "whole")]
        percent: u8,
    },
    Override {
        pool: Arc<str>,
        endpoint: Option<Arc<str>>,
        slot: SlotWord,
        said: Option<Said>,
    },
    Serial {
        zone: String,
        serial: u32,
    },
    Balancer {
        name: String,
        pools: Vec<Arc<str>>,
    },
    State {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pool: Option<Arc<str>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        endpoint: Option<Arc<str>>,
        /// In place of a pool.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        load_balancer: Option<String>,
        state: Arc<str>,
        since: u64,
    },
    Host {
        name: Arc<str>,
        addresses: Vec<IpAddr>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fresh_until: Option<u64>,
        /// An hour later, in files from before pools said how long.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<u64>,
    },
    Alive {
        at: u64,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    action: String,
    /// Of the action `weight`, in hundredths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight: Option<u8>,
    reason: Arc<str>,
    by: Arc<str>,
    since: u64,
    until: Option<u64>,
    drained_at: u64,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Unknown,
    Healthy,
    Unhealthy,
}

/// What an agent wishes when it wishes anything.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WishWord {
    Drain,
    Maint,
}

/// The share of an endpoint whose agent asks for nothing else.
fn whole() -> u8 {
    100
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SlotWord {
    Traffic,
    Health,
    Weight,
}

impl From<Verdict> for Word {
    fn from(verdict: Verdict) -> Word {
        match verdict {
            Verdict::Unknown => Word::Unknown,
            Verdict::Healthy => Word::Healthy,
            Verdict::Unhealthy => Word::Unhealthy,
        }
    }
}

impl From<Word> for Verdict {
    fn from(word: Word) -> Verdict {
        match word {
            Word::Unknown => Verdict::Unknown,
            Word::Healthy => Verdict::Healthy,
            Word::Unhealthy => Verdict::Unhealthy,
        }
    }
}

impl From<Slot> for SlotWord {
    fn from(slot: Slot) -> SlotWord {
        match slot {
            Slot::Traffic => SlotWord::Traffic,
            Slot::Health => SlotWord::Health,
            Slot::Weight => SlotWord::Weight,
        }
    }
}

impl From<SlotWord> for Slot {
    fn from(word: SlotWord) -> Slot {
        match word {
            SlotWord::Traffic => Slot::Traffic,
            SlotWord::Health => Slot::Health,
            SlotWord::Weight => Slot::Weight,
        }
    }
}

fn millis(moment: Moment) -> u64 {
    moment.elapsed().as_millis() as u64
}

fn moment(millis: u64) -> Moment {
    Moment::from_start(Duration::from_millis(millis))
}

impl From<&Record> for Entry {
    fn from(record: &Record) -> Entry {
        match record {
            Record::Target(key, held) => Entry::Target {
                pool: Arc::clone(&key.endpoint.pool),
                endpoint: Arc::clone(&key.endpoint.endpoint),
                address: key.endpoint.address,
                monitor: Arc::clone(&key.monitor),
                vantage: Arc::clone(&key.vantage),
                test: format!("{:016x}", held.test),
                verdict: held.machine.verdict.into(),
                since: millis(held.machine.since),
                run: held.machine.run,
                reported: held.reported.map(millis),
            },
            Record::Endpoint(key, held) => Entry::Endpoint {
                pool: Arc::clone(&key.pool),
                endpoint: Arc::clone(&key.endpoint),
                address: key.address,
                verdict: held.verdict.into(),
                since: millis(held.since),
                flaps: held.flaps.iter().copied().map(millis).collect(),
                ejections: held.ejections,
                ejected_until: held.ejected_until.map(millis),
                wish: match held.wish {
                    Some(AgentWish::Drain) => Some(WishWord::Drain),
                    Some(AgentWish::Maint) => Some(WishWord::Maint),
                    Some(AgentWish::Ready) | None => None,
                },
                percent: held.percent,
            },
            Record::Override(scope, slot, said) => Entry::Override {
                pool: Arc::clone(&scope.pool),
                endpoint: scope.endpoint.clone(),
                slot: (*slot).into(),
                said: said.as_ref().map(|said| Said {
                    action: said.action.as_str().to_owned(),
                    weight: said.action.weight().map(|weight| weight.0),
                    reason: Arc::clone(&said.reason),
                    by: Arc::clone(&said.by),
                    since: millis(said.since),
                    until: said.until.map(millis),
                    drained_at: millis(said.drained_at),
                }),
            },
            Record::Serial(zone, serial) => Entry::Serial { zone: zone.to_string(), serial: *serial },
            Record::Balancer(name, pools) => Entry::Balancer { name: name.to_string(), pools: pools.clone() },
            Record::State(Subject::Scope(scope), state, since) => Entry::State {
                pool: Some(Arc::clone(&scope.pool)),
                endpoint: scope.endpoint.clone(),
                load_balancer: None,
                state: Arc::clone(state),
                since: millis(*since),
            },
            Record::State(Subject::Balancer(name), state, since) => Entry::State {
                pool: None,
                endpoint: None,
                load_balancer: Some(name.to_string()),
                state: Arc::clone(state),
                since: millis(*since),
            },
            Record::Host(name, addresses, fresh_until) => Entry::Host {
                name: Arc::clone(name),
                addresses: addresses.clone(),
                fresh_until: Some(millis(*fresh_until)),
                until: None,
            },
            Record::Alive(at) => Entry::Alive { at: millis(*at) },
        }
    }
}

impl Said {
    fn action(&self) -> Option<Action> {
        let weight = match self.weight {
            Some(hundredths @ 0..=100) => Some(Weight(hundredths)),
            Some(_) => return None,
            None => None,
        };
        Action::of(&self.action, weight)
    }
}

impl Entry {
    /// The record; none if it has words that this version doesn't know.
    fn record(self) -> Option<Record> {
        let name = |text: &str| text.parse::<Name>().ok();
        Some(match self {
            Entry::Target {
                pool,
                endpoint,
                address,
                monitor,
                vantage,
                test,
                verdict,
                since,
                run,
                reported,
            } => Record::Target(
                TargetKey { endpoint: EndpointKey { pool, endpoint, address }, monitor, vantage },
                TargetMemory {
                    test: u64::from_str_radix(&test, 16).ok()?,
                    machine: MachineMemory { verdict: verdict.into(), since: moment(since), run },
                    reported: reported.map(moment),
                },
            ),
            Entry::Endpoint {
                pool,
                endpoint,
                address,
                verdict,
                since,
                flaps,
                ejections,
                ejected_until,
                wish,
                percent,
            } => Record::Endpoint(
                EndpointKey { pool, endpoint, address },
                EndpointMemory {
                    verdict: verdict.into(),
                    since: moment(since),
                    flaps: flaps.into_iter().map(moment).collect(),
                    ejections,
                    ejected_until: ejected_until.map(moment),
                    wish: wish.map(|wish| match wish {
                        WishWord::Drain => AgentWish::Drain,
                        WishWord::Maint => AgentWish::Maint,
                    }),
                    percent: percent.min(100),
                },
            ),
            Entry::Override { pool, endpoint, slot, said } => {
                let said = match said {
                    None => None,
                    Some(said) => Some(Override {
                        action: said.action().filter(|action| action.slot() == slot.into())?,
                        reason: said.reason,
                        by: said.by,
                        since: moment(said.since),
                        until: said.until.map(moment),
                        drained_at: moment(said.drained_at),
                    }),
                };
                Record::Override(Scope { pool, endpoint }, slot.into(), said)
            }
            Entry::Serial { zone, serial } => Record::Serial(name(&zone)?, serial),
            Entry::Balancer { name: balancer, pools } => Record::Balancer(name(&balancer)?, pools),
            Entry::State { pool, endpoint, load_balancer, state, since } => {
                let of = match (pool, load_balancer) {
                    (Some(pool), None) => Subject::Scope(Scope { pool, endpoint }),
                    (None, Some(balancer)) => Subject::Balancer(name(&balancer)?),
                    _ => return None,
                };
                Record::State(of, state, moment(since))
            }
            Entry::Host { name, addresses, fresh_until, until } => {
                let before = || Some(until?.saturating_sub(3_600_000));
                Record::Host(name, addresses, moment(fresh_until.or_else(before)?))
            }
            Entry::Alive { at } => Record::Alive(moment(at)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Moment {
        Moment::from_start(Duration::from_secs(second))
    }

    fn endpoint(name: &str) -> EndpointKey {
        EndpointKey { pool: "eu".into(), endpoint: name.into(), address: "192.0.2.1".parse().unwrap() }
    }

    fn target(name: &str, verdict: Verdict, second: u64) -> Record {
        let key = TargetKey { endpoint: endpoint(name), monitor: "web".into(), vantage: "local".into() };
        let machine =
            MachineMemory { verdict, since: at(second), run: Some((verdict == Verdict::Healthy, 2)) };
        Record::Target(key, TargetMemory { test: u64::MAX - 7, machine, reported: Some(at(second)) })
    }

    fn drain(since: u64) -> Override {
        Override {
            action: Action::Drain,
            reason: "kernel \"update\"\nand more".into(),
            by: "alice".into(),
            since: at(since),
            until: Some(at(since + 600)),
            drained_at: at(since + 30),
        }
    }

    fn weight(hundredths: u8) -> Override {
        Override { action: Action::Weight(Weight(hundredths)), until: None, ..drain(13) }
    }

    /// All kinds of records, several of some keys.
    fn story() -> Vec<Record> {
        let scope = Scope { pool: "eu".into(), endpoint: Some("a".into()) };
        let whole = Scope { pool: "eu".into(), endpoint: None };
        let held = EndpointMemory {
            verdict: Verdict::Unhealthy,
            since: at(12),
            flaps: vec![at(10), at(12)],
            ejections: 3,
            ejected_until: Some(at(99)),
            wish: Some(AgentWish::Drain),
            percent: 40,
        };
        vec![
            target("a", Verdict::Healthy, 10),
            target("b", Verdict::Healthy, 10),
            Record::Serial("example.com".parse().unwrap(), 7),
            Record::Host("web.example.net".into(), vec!["192.0.2.1".parse().unwrap()], at(70)),
            Record::Alive(at(11)),
            target("a", Verdict::Unhealthy, 12),
            Record::Endpoint(endpoint("a"), held),
            Record::Override(scope.clone(), Slot::Traffic, Some(drain(13))),
            Record::Override(scope.clone(), Slot::Weight, Some(weight(50))),
            Record::Override(scope.clone(), Slot::Weight, Some(weight(0))),
            Record::Override(
                whole.clone(),
                Slot::Health,
                Some(Override { action: Action::Healthy, ..drain(13) }),
            ),
            Record::Override(whole.clone(), Slot::Health, None),
            Record::State(Subject::Scope(whole), "healthy".into(), at(13)),
            Record::State(Subject::Scope(scope), "draining".into(), at(13)),
            Record::State(Subject::Balancer("example.com".parse().unwrap()), "healthy eu".into(), at(13)),
            Record::Balancer(
                Name::parse("a\\.b", &"example.com".parse().unwrap()).unwrap(),
                vec!["eu".into()],
            ),
            target("a", Verdict::Healthy, 14),
            Record::Serial("example.com".parse().unwrap(), 8),
            target("b", Verdict::Unhealthy, 15),
            Record::Alive(at(20)),
        ]
    }

    fn written(records: &[Record]) -> Vec<u8> {
        (head() + &records.iter().map(line).collect::<String>()).into_bytes()
    }

    fn memory(records: &[Record]) -> Memory {
        let mut memory = Memory::default();
        records.iter().for_each(|record| memory.take(record.clone()));
        memory
    }

    #[test]
    fn every_record_is_read_as_it_was_written() {
        assert_eq!(checksum(b"123456789"), 0xcbf4_3926, "the check value of CRC-32");
        for record in story() {
            let contents = read(&written(std::slice::from_ref(&record))).unwrap();
            assert_eq!((contents.records, contents.damaged, contents.torn), (1, 0, false));
            assert_eq!(contents.memory, memory(std::slice::from_ref(&record)), "{record:?}");
        }
        let contents = read(&written(&story())).unwrap();
        assert_eq!(contents.memory, memory(&story()), "the newest of each key");
        let again: Vec<Record> = contents.memory.clone().records().collect();
        assert_eq!(read(&written(&again)).unwrap().memory, contents.memory);
    }

    #[test]
    fn an_override_that_says_nothing_known_costs_its_line() {
        let said = |slot: &str, action: &str| {
            let json = format!(
                r#"{{"override":{{"pool":"eu","endpoint":"a","slot":"{slot}","said":{{"action":{action},"reason":"","by":"alice","since":1,"until":null,"drained_at":1}}}}}}"#
            );
            let contents = read((head() + &framed(&json)).as_bytes()).unwrap();
            (contents.memory.overrides.into_values().map(|said| said.action).next(), contents.damaged)
        };
        // as files have had it before there were weights
        assert_eq!(said("traffic", r#""drain""#), (Some(Action::Drain), 0));
        assert_eq!(said("weight", r#""weight","weight":25"#), (Some(Action::Weight(Weight(25))), 0));
        for (slot, action) in [
            ("weight", r#""weight""#),
            ("weight", r#""weight","weight":101"#),
            ("traffic", r#""weight","weight":25"#),
            ("traffic", r#""drain","weight":25"#),
            ("weight", r#""heavy","weight":25"#),
        ] {
            assert_eq!(said(slot, action), (None, 1), "{slot} {action}");
        }
    }

    #[test]
    fn addresses_of_host_names_are_read_as_files_of_before_have_them() {
        for (times, fresh_until) in [
            (r#""until":3700000"#, Some(at(100))),
            (r#""fresh_until":100000"#, Some(at(100))),
            (r#""until":1000"#, Some(at(0))),
            (r#""late":1"#, None),
        ] {
            let json = format!(r#"{{"host":{{"name":"web","addresses":["192.0.2.1"],{times}}}}}"#);
            let contents = read((head() + &framed(&json)).as_bytes()).unwrap();
            let held = contents.memory.hosts.into_values().next();
            assert_eq!(held.map(|(_, until)| until), fresh_until, "{times}");
        }
    }

    #[test]
    fn a_journal_cut_off_anywhere_says_what_stood_before() {
        let story = story();
        let whole = written(&story);
        for length in 0..=whole.len() {
            let contents = read(&whole[..length]).unwrap_or_else(|_| panic!("{length} octets are set aside"));
            let complete = whole[..length].iter().filter(|octet| **octet == b'\n').count();
            assert_eq!(contents.memory, memory(&story[..complete.saturating_sub(1)]), "{length} octets");
            let torn = length > 0 && whole[length - 1] != b'\n';
            assert_eq!((contents.torn, contents.damaged), (torn, 0), "{length} octets");
        }
    }

    #[test]
    fn a_changed_octet_costs_its_line_and_no_other() {
        let story = story();
        let whole = written(&story);
        let first = head().len();
        for place in 0..whole.len() {
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[place] ^= 1 << bit;
                let Ok(contents) = read(&changed) else {
                    assert!(place < first, "octet {place}: only a bad head sets the file aside");
                    continue;
                };
                assert!(place >= first, "octet {place}: a bad head is not taken");
                let hit = whole[first..place].iter().filter(|octet| **octet == b'\n').count();
                // an end that is gone makes two lines one
                let lost = if whole[place] == b'\n' { hit..(hit + 2).min(story.len()) } else { hit..hit + 1 };
                let rest: Vec<Record> = [&story[..lost.start], &story[lost.end..]].concat();
                assert_eq!(contents.memory, memory(&rest), "octet {place}, bit {bit}");
                assert!(contents.damaged > 0 || contents.torn, "octet {place}, bit {bit}: it is told");
            }
        }
    }

    #[test]
    fn a_file_of_another_kind_is_none_of_ours() {
        for octets in [
            &b"{}\n"[..],
            b"\0\0\0\0\0\0\0\0",
            framed(r#"{"format":"hale verdicts","version":2}"#).as_bytes(),
            framed("").as_bytes(),
        ] {
            assert_eq!(read(octets), Err(UnknownHead));
        }
        assert_eq!(read(b""), Ok(Contents::default()));
    }

    #[test]
    fn what_a_newer_version_may_add_costs_its_line() {
        let unknown = framed(r#"{"novelty":{"x":1}}"#) + &framed(r#"{"alive":{"at":1,"more":2}}"#);
        let contents = read((head() + &unknown + &line(&Record::Alive(at(3)))).as_bytes()).unwrap();
        assert_eq!((contents.records, contents.damaged), (1, 2));
        assert_eq!(contents.memory.alive, Some(at(3)));
    }
}
