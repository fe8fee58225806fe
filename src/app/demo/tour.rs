//! The story, unattended: every step says what it does and what must follow.

use std::time::{Duration, Instant};

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Name, RecordType};

use super::{Answer, DemoError, Stage, ask, say};

/// One step: what happens, and what the answer must become.
struct Step {
    tells: &'static str,
    acts: &'static [Act],
    rtype: RecordType,
    expects: Expect,
}

#[derive(Clone, Copy)]
enum Act {
    Kill(&'static str),
    Revive(&'static str),
    DisableFallback,
    EnableFallback,
}

/// What an answer must be.
enum Expect {
    /// Exactly these addresses.
    All(&'static [&'static str]),
    /// One of these addresses.
    OneOf(&'static [&'static str]),
    /// NOERROR, no address, the SOA.
    SoaOnly,
}

impl Expect {
    fn met_by(&self, answer: &Answer) -> bool {
        let data: Vec<&str> = answer.records.iter().map(|(_, data)| &**data).collect();
        let right = match self {
            Expect::All(addresses) => data == *addresses,
            Expect::OneOf(addresses) => matches!(data[..], [one] if addresses.contains(&one)),
            Expect::SoaOnly => data.is_empty() && answer.soa_ttl.is_some(),
        };
        right && answer.rcode == ResponseCode::NoError && answer.records.iter().all(|(ttl, _)| *ttl == 30)
    }

    fn told(&self) -> String {
        match self {
            Expect::All(addresses) => addresses.join(" and "),
            Expect::OneOf(addresses) => format!("one of {}", addresses.join(", ")),
            Expect::SoaOnly => "only the SOA".to_owned(),
        }
    }
}

const EU: &[&str] = &["127.10.0.1", "127.10.0.2"];
const US: &[&str] = &["127.20.0.1", "127.20.0.2"];

const STORY: &[Step] = &[
    Step { tells: "all endpoints are up", acts: &[], rtype: RecordType::A, expects: Expect::All(EU) },
    Step {
        tells: "asked for IPv6, which no endpoint has",
        acts: &[],
        rtype: RecordType::AAAA,
        expects: Expect::SoaOnly,
    },
    Step {
        tells: "eu-1 dies",
        acts: &[Act::Kill("eu-1")],
        rtype: RecordType::A,
        expects: Expect::All(&["127.10.0.2"]),
    },
    Step {
        tells: "eu-1 comes back",
        acts: &[Act::Revive("eu-1")],
        rtype: RecordType::A,
        expects: Expect::All(EU),
    },
    Step {
        tells: "all of pool eu dies: pool us takes over, one address by weight",
        acts: &[Act::Kill("eu-1"), Act::Kill("eu-2")],
        rtype: RecordType::A,
        expects: Expect::OneOf(US),
    },
    Step {
        tells: "pool us dies, too: the fallback pool answers",
        acts: &[Act::Kill("us-1"), Act::Kill("us-2")],
        rtype: RecordType::A,
        expects: Expect::All(&["127.30.0.1"]),
    },
    Step {
        tells: "the fallback pool is disabled, too",
        acts: &[Act::DisableFallback],
        rtype: RecordType::A,
        expects: Expect::SoaOnly,
    },
    Step {
        tells: "the fallback pool is enabled again",
        acts: &[Act::EnableFallback],
        rtype: RecordType::A,
        expects: Expect::All(&["127.30.0.1"]),
    },
    Step {
        tells: "everything comes back",
        acts: &[Act::Revive("eu-1"), Act::Revive("eu-2"), Act::Revive("us-1"), Act::Revive("us-2")],
        rtype: RecordType::A,
        expects: Expect::All(EU),
    },
];

/// Plays the story; ends at the first step that goes otherwise.
pub async fn play(stage: &mut Stage) -> Result<(), DemoError> {
    let server = stage.server.as_ref().expect("a tour has a server").address;
    let name = Name::from_ascii("www.gslb.example.com.").expect("a name");
    let longest = longest_change(stage);
    if let Some(dig) = stage.dig() {
        say(format_args!("{dig}\n"));
    }
    for (step, number) in STORY.iter().zip(1..) {
        say(format_args!("{number}/{}  {}", STORY.len(), step.tells));
        let begun = Instant::now();
        for act in step.acts {
            perform(stage, *act).await?;
        }
        let mut answer = None;
        while begun.elapsed() < longest {
            answer = ask(server, &name, step.rtype).await;
            if answer.as_ref().is_some_and(|answer| step.expects.met_by(answer)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for headline in stage.hear() {
            say(format_args!("     {headline}"));
        }
        match answer {
            Some(answer) if step.expects.met_by(&answer) => {
                let after = begun.elapsed().as_secs_f64();
                say(format_args!("     {name} {} → {answer}   after {after:.1} s\n", step.rtype));
            }
            other => {
                return Err(DemoError::Tour {
                    step: step.tells,
                    expected: step.expects.told(),
                    got: other.map_or("none at all".to_owned(), |answer| answer.to_string()),
                    within: longest,
                });
            }
        }
    }
    say(format_args!("tour complete: {} of {} steps answered as told", STORY.len(), STORY.len()));
    Ok(())
}

async fn perform(stage: &mut Stage, act: Act) -> Result<(), DemoError> {
    match act {
        Act::Kill(name) => {
            for endpoint in stage.endpoints.iter_mut().filter(|endpoint| *endpoint.name == *name) {
                endpoint.kill().await;
            }
        }
        Act::Revive(name) => {
            for endpoint in stage.endpoints.iter_mut().filter(|endpoint| *endpoint.name == *name) {
                let revived = endpoint.revive().await;
                revived.map_err(|error| DemoError::Endpoint { address: endpoint.address, error })?;
            }
        }
        Act::DisableFallback => stage.set_fallback(false),
        Act::EnableFallback => stage.set_fallback(true),
    }
    Ok(())
}

/// From a change in the world to the changed answer, at worst: every probe of
/// a run one interval (and its jitter) apart, the last one timing out; and a
/// second for a machine that has other things to do.
fn longest_change(stage: &Stage) -> Duration {
    let monitors = stage.model.monitors.iter();
    let longest = monitors.map(|monitor| {
        let run = monitor.thresholds.up.max(monitor.thresholds.down);
        monitor.interval * 11 / 10 * (run + 1) + monitor.timeout
    });
    longest.max().unwrap_or_default() + Duration::from_secs(1)
}
