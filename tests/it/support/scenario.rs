//! Scenario files: a configuration, what the network does, what answers say.
//!
//! ```yaml
//! title: an endpoint that fails leaves the answers, and comes back
//! ids: [L2]
//! config: |
//!   zone: example.com
//!   …
//! endpoints: { default: up, 192.0.2.2: refused }
//! steps:
//!   - at: 10s
//!     ask: www.example.com A
//!     answer: [www.example.com. 30 IN A 192.0.2.1]
//!   - endpoints: { 192.0.2.1: hang }
//!     ask: www.example.com A
//!     answer: []
//!     becomes: { within: 50s, not_before: 20s }
//! ```
//!
//! An endpoint is `up`, `refused`, `hang` (every attempt times out), `reset`,
//! `error` (the probe can't be made) or answers with a code such as `503`;
//! `hang then 503` is one attempt after the other; `-+--++` is one probe after
//! the other, the last for all further ones. `192.0.2.1 by tcp` is what the
//! monitor tcp finds there, `192.0.2.1 from nyc` what one vantage does; a bare
//! address takes both back.
//!
//! `hosts` says what lookups of host names find from then on: addresses (for
//! 30 s each time), none for a name that doesn't exist, `fails` for nobody
//! knows.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use haledns::config::{self, Loaded, Report};
use serde::Deserialize;

use super::ask::{Question, Reply, compare, single_spaced};

/// One scenario file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    #[serde(skip)]
    pub file: PathBuf,
    pub title: String,
    /// What of the documented behaviour it shows.
    pub ids: Vec<String>,
    pub config: Config,
    /// The configuration is refused, with a problem of this kind.
    pub refused: Option<String>,
    #[serde(default)]
    pub endpoints: BTreeMap<String, Word>,
    #[serde(default)]
    pub hosts: BTreeMap<String, Addresses>,
    #[serde(default)]
    pub start: Start,
    /// It runs against a real server as well.
    #[serde(default)]
    pub live: bool,
    #[serde(default)]
    pub steps: Vec<Step>,
}

/// One file of a configuration, or several by name.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Config {
    Text(String),
    Files(BTreeMap<String, String>),
}

/// A single value of YAML that may be a number.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Word {
    Number(u16),
    Text(String),
}

/// What a lookup of a host name finds.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Addresses {
    Found(Vec<IpAddr>),
    Lost(Lost),
}

/// A lookup that comes to nothing.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lost {
    Fails,
}

/// When the first step begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// After the first round of probes, like a server's first reply.
    #[default]
    Settled,
    /// Before any probe.
    Cold,
}

/// One step: first the time moves, then the world changes, then it is looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Step {
    /// Said when the step fails.
    pub why: Option<String>,
    /// Since the start.
    pub at: Option<Span>,
    /// Since the step before.
    pub after: Option<Span>,
    pub endpoints: BTreeMap<String, Word>,
    pub hosts: BTreeMap<String, Addresses>,
    /// What an operator says of `POOL/ENDPOINT`, as in `override` of `hale
    /// simulate`. Not in live scenarios.
    pub r#override: BTreeMap<String, String>,
    /// Another configuration.
    pub reload: Option<Config>,
    /// The same configuration with texts in it replaced; each stands there once.
    pub edit: BTreeMap<String, String>,

    pub ask: Option<Text<Question>>,
    /// `NOERROR` if nothing is said.
    pub status: Option<String>,
    pub flags: Option<String>,
    /// All lines of the answer, in any order; `*` stands for any field.
    pub answer: Option<Vec<String>>,
    /// The answer is one line of these.
    pub one_of: Option<Vec<String>>,
    /// Of many answers so many in a hundred carry each line, and no others.
    pub shares: Option<BTreeMap<String, f64>>,
    pub authority: Option<Vec<String>>,
    /// The states of pools by name.
    pub pools: BTreeMap<String, String>,
    /// The states of load balancers by name.
    pub load_balancers: BTreeMap<String, String>,

    /// What is expected isn't so yet, and comes within this time.
    pub becomes: Option<Becomes>,
    /// What is expected is so during all of this time.
    pub stays: Option<Span>,

    /// All that was told of endpoints, pools and load balancers since the step
    /// before that looked at it.
    pub told: Option<Vec<String>>,
    /// How many probes of an address began since the step before that looked at it.
    pub probes: BTreeMap<IpAddr, Count>,
    /// The first zone's serial against the step before that looked at it.
    pub serial: Option<SerialStep>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Becomes {
    pub within: Span,
    #[serde(default)]
    pub not_before: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SerialStep {
    Noted,
    Same,
    Higher,
}

/// A length of time, such as `15s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Deserialize)]
#[serde(try_from = "String")]
pub struct Span(pub Duration);

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Span, String> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match &text[digits.len()..] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(format!("`{text}` is no time: write `200ms`, `15s`, `10m` or `1h`")),
        };
        let number: f64 = digits.parse().map_err(|_| format!("`{text}` is no time"))?;
        Ok(Span(Duration::from_secs_f64(number * unit)))
    }
}

/// How often: `3`, or `9 to 11`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Count(pub RangeInclusive<usize>);

impl TryFrom<String> for Count {
    type Error = String;

    fn try_from(text: String) -> Result<Count, String> {
        let (least, most) = text.split_once(" to ").unwrap_or((&text, &text));
        let number = |part: &str| part.parse().map_err(|_| format!("`{text}` is no count"));
        Ok(Count(number(least)?..=number(most)?))
    }
}

/// Something written as a text.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
#[serde(bound = "T: std::str::FromStr<Err = String>")]
pub struct Text<T> {
    pub text: String,
    pub value: T,
}

impl<T: std::str::FromStr<Err = String>> TryFrom<String> for Text<T> {
    type Error = String;

    fn try_from(text: String) -> Result<Text<T>, String> {
        Ok(Text { value: text.parse()?, text })
    }
}

/// What an endpoint does to probes.
#[derive(Clone, Debug, PartialEq)]
pub enum Behaviour {
    /// Within a probe one attempt after the other; the last goes on.
    Attempts(Vec<Attempt>),
    /// One probe after the other, passing or not; the last goes on.
    Probes(Vec<bool>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Attempt {
    Up,
    Refused,
    Hang,
    Reset,
    Code(u16),
    /// The probe can't be made.
    Error,
}

impl Word {
    pub fn behaviour(&self) -> Result<Behaviour, String> {
        let text = match self {
            Word::Number(code) => code.to_string(),
            Word::Text(text) => text.clone(),
        };
        if !text.is_empty() && text.chars().all(|c| c == '+' || c == '-') {
            return Ok(Behaviour::Probes(text.chars().map(|c| c == '+').collect()));
        }
        let attempt = |word: &str| match word {
            "up" => Ok(Attempt::Up),
            "refused" => Ok(Attempt::Refused),
            "hang" => Ok(Attempt::Hang),
            "reset" => Ok(Attempt::Reset),
            "error" => Ok(Attempt::Error),
            code => {
                code.parse().map(Attempt::Code).map_err(|_| format!("`{text}` is nothing an endpoint does"))
            }
        };
        text.split(" then ").map(attempt).collect::<Result<_, _>>().map(Behaviour::Attempts)
    }
}

/// What the endpoints of a world do.
#[derive(Clone, Debug)]
pub struct Network {
    pub default: Behaviour,
    pub by_address: BTreeMap<IpAddr, Behaviour>,
    /// For one monitor or vantage.
    seen: BTreeMap<IpAddr, Vec<(Seen, Behaviour)>>,
}

/// Who sees something else than the others.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    By(String),
    From(String),
}

impl Default for Network {
    fn default() -> Network {
        Network {
            default: Behaviour::Attempts(vec![Attempt::Up]),
            by_address: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }
}

impl Network {
    pub fn change(&mut self, words: &BTreeMap<String, Word>) -> Result<(), String> {
        for (address, word) in words {
            match address.as_str() {
                "default" => self.default = word.behaviour()?,
                key => {
                    let words: Vec<&str> = key.split(' ').collect();
                    let seen = match words[..] {
                        [_] => None,
                        [_, "by", monitor] => Some(Seen::By(monitor.into())),
                        [_, "from", vantage] => Some(Seen::From(vantage.into())),
                        _ => return Err(format!("`{key}` is neither an address nor one seen by somebody")),
                    };
                    let address = words[0].parse().map_err(|_| format!("`{key}` is no address"))?;
                    let Some(seen) = seen else {
                        self.seen.remove(&address);
                        self.by_address.insert(address, word.behaviour()?);
                        continue;
                    };
                    let there = self.seen.entry(address).or_default();
                    there.retain(|(other, _)| *other != seen);
                    there.push((seen, word.behaviour()?));
                }
            }
        }
        Ok(())
    }

    /// What one monitor sees from one vantage.
    pub fn seen(&self, address: IpAddr, monitor: &str, vantage: &str) -> &Behaviour {
        let there = self.seen.get(&address).map(|seen| &seen[..]).unwrap_or_default();
        let special = there.iter().find(|(seen, _)| match seen {
            Seen::By(name) => name == monitor,
            Seen::From(name) => name == vantage,
        });
        special.map_or_else(|| self.of(address), |(_, behaviour)| behaviour)
    }

    pub fn of(&self, address: IpAddr) -> &Behaviour {
        self.by_address.get(&address).unwrap_or(&self.default)
    }
}

impl Config {
    /// The files, with `PORT` in them replaced.
    pub fn load(&self, port: u16) -> Result<Loaded, Report> {
        let octets = |text: &str| text.replace("PORT", &port.to_string()).into_bytes();
        config::load_texts(match self {
            Config::Text(text) => vec![("config.yaml".into(), octets(text))],
            Config::Files(files) => {
                files.iter().map(|(name, text)| (PathBuf::from(name), octets(text))).collect()
            }
        })
    }

    /// Replaces texts, each of which must stand there once.
    fn edit(&mut self, edits: &BTreeMap<String, String>) -> Result<(), String> {
        let mut texts: Vec<&mut String> = match self {
            Config::Text(text) => vec![text],
            Config::Files(files) => files.values_mut().collect(),
        };
        for (from, to) in edits {
            let count: usize = texts.iter().map(|text| text.matches(from.as_str()).count()).sum();
            if count != 1 {
                return Err(format!("`{from}` stands {count} times in the configuration, not once"));
            }
            texts.iter_mut().for_each(|text| **text = text.replace(from, to));
        }
        Ok(())
    }
}

impl Step {
    /// The configuration after this step, if it changes.
    pub fn config(&self, before: &Config) -> Result<Option<Config>, String> {
        if self.reload.is_none() && self.edit.is_empty() {
            return Ok(None);
        }
        let mut config = self.reload.as_ref().unwrap_or(before).clone();
        config.edit(&self.edit)?;
        Ok(Some(config))
    }

    /// What is wrong with a reply; `shares` apart, which takes many.
    pub fn complaint(&self, reply: &Reply) -> Option<String> {
        let single = |what: &str, expected: &str, got: &str| {
            (expected != got).then(|| format!("  {what}: expected {expected}, got {got}\n"))
        };
        let spaced = |lines: &[String]| lines.iter().map(|line| single_spaced(line)).collect::<Vec<_>>();
        let answer = match (&self.answer, &self.one_of) {
            (Some(lines), _) => compare("answer", &spaced(lines), &reply.answer),
            (_, Some(lines)) => {
                let one = |line| compare("one line of the answer", &[line], &reply.answer);
                let differences: Vec<_> = spaced(lines).into_iter().map(one).collect();
                let last = differences.last().cloned().flatten();
                last.filter(|_| differences.iter().all(Option::is_some))
            }
            _ => None,
        };
        let parts = [
            single("status", self.status.as_deref().unwrap_or("NOERROR"), &reply.status),
            self.flags.as_ref().and_then(|flags| single("flags", flags, &reply.flags)),
            answer,
            self.authority.as_ref().and_then(|it| compare("authority", &spaced(it), &reply.authority)),
        ];
        let all: String = parts.into_iter().flatten().collect();
        (!all.is_empty()).then_some(all)
    }

    /// What makes no sense in it.
    fn nonsense(&self, live: bool) -> Option<&'static str> {
        let answers = [self.answer.is_some(), self.one_of.is_some(), self.shares.is_some()];
        let asked = answers.contains(&true)
            || self.status.is_some()
            || self.flags.is_some()
            || self.authority.is_some();
        let looks = self.ask.is_some() || !self.pools.is_empty() || !self.load_balancers.is_empty();
        let timed =
            self.at.is_some() || self.after.is_some() || self.stays.is_some() || !self.hosts.is_empty();
        let counted = self.shares.is_some() || self.serial.is_some() || !self.probes.is_empty();
        match () {
            _ if self.ask.is_some() != asked => Some("`ask` and what is expected go together"),
            _ if answers.iter().filter(|is| **is).count() > 1 => Some("it expects two answers"),
            _ if self.becomes.is_some() && (self.stays.is_some() || !looks) => {
                Some("`becomes` waits for one thing expected")
            }
            _ if self.stays.is_some() && !looks => Some("`stays` watches something expected"),
            _ if self.shares.is_some() && (self.becomes.is_some() || self.stays.is_some()) => {
                Some("`shares` are counted at one moment")
            }
            _ if self.at.is_some() && self.after.is_some() => Some("`at` and `after` say two times"),
            _ if live && (timed || counted) => Some("a live scenario waits for answers, not for times"),
            _ => None,
        }
    }
}

/// All scenario files, by name.
pub fn all() -> Vec<Scenario> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| read(file)).collect()
}

fn read(file: &Path) -> Scenario {
    let name = file.file_name().expect("a file has a name").to_string_lossy().into_owned();
    let text = fs::read_to_string(file).unwrap();
    let mut scenario = parse(&text).unwrap_or_else(|why| panic!("tests/scenarios/{name}: {why}"));
    scenario.file = PathBuf::from(name);
    scenario
}

/// Reads a scenario and finds what makes no sense in it.
pub fn parse(text: &str) -> Result<Scenario, String> {
    let scenario: Scenario = serde_yaml::from_str(text).map_err(|error| error.to_string())?;
    if scenario.refused.is_some() != scenario.steps.is_empty() {
        return Err("it has steps, or `refused`".into());
    }
    for (step, number) in scenario.steps.iter().zip(1..) {
        if let Some(why) = step.nonsense(scenario.live) {
            return Err(format!("step {number}: {why}"));
        }
    }
    Ok(scenario)
}

#[test]
fn what_a_scenario_cannot_mean_is_refused() {
    for (text, complaint) in [
        ("title: t\nids: []\nconfig: c\nsteps: [{ awser: [] }]", "unknown field `awser`"),
        ("title: t\nids: []\nconfig: c\nstep: []", "unknown field `step`"),
        ("title: t\nids: []\nconfig: c", "it has steps"),
        ("title: t\nids: []\nconfig: c\nsteps: [{ answer: [] }]", "step 1: `ask`"),
        ("title: t\nids: []\nconfig: c\nsteps: [{ at: 5 }]", "`5` is no time"),
        ("title: t\nids: []\nconfig: c\nsteps: [{ at: 5x }]", "`5x` is no time"),
        ("title: t\nids: []\nconfig: c\nsteps: [{ stays: 5s }]", "`stays` watches"),
        ("title: t\nids: []\nconfig: c\nlive: true\nsteps: [{ at: 5s }]", "a live scenario"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(complaint), "{text}: {error}");
    }
}
