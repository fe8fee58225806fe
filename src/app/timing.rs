//! The figures of `timing` as people and programs read them.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::timing::{Course, Courses, OVERSTAYS, PoolTiming, Span, Timing};

/// How wide labels, figures and bars are; a line has no more than 80 columns.
const LABEL: usize = 32;
const FIGURE: usize = 9;
const BAR: usize = 18;

/// What may happen, and what its two ends are called.
type Event = (&'static str, &'static str, Option<&'static str>, fn(&Courses) -> &Course);

const EVENTS: [Event; 4] = [
    ("an endpoint fails at once", "out of the answers", Some("the last client has moved"), |c| &c.refused),
    ("an endpoint hangs", "out of the answers", Some("the last client has moved"), |c| &c.hanging),
    ("an endpoint comes back", "in the answers", Some("the last client may use it"), |c| &c.back),
    ("a new endpoint, from the reload", "in the answers", None, |c| &c.new),
];

/// A table for each load balancer, and what no figure holds.
pub fn text(timings: &[Timing]) -> String {
    let mut out = String::new();
    for timing in timings {
        write_timing(timing, &mut out).expect("writing to a String does not fail");
    }
    out += "caches that overstay, in no figure above:\n";
    for (who, how_long) in OVERSTAYS {
        out += &listed(who, how_long);
    }
    out
}

fn write_timing(timing: &Timing, out: &mut String) -> std::fmt::Result {
    write!(out, "{}  TTL {}", timing.name, time(timing.ttl))?;
    match (timing.slo, timing.worst()) {
        (Some(slo), Some(worst)) => writeln!(out, ", promised {}, at worst {}", time(slo), time(worst))?,
        (Some(slo), None) => writeln!(out, ", promised {}", time(slo))?,
        (None, _) => writeln!(out)?,
    }
    let mut left: Vec<&PoolTiming> = timing.pools.iter().collect();
    while let Some(first) = left.first().copied() {
        let (same, others): (Vec<_>, Vec<_>) = (left.into_iter())
            .partition(|pool| pool.courses == first.courses && pool.monitors == first.monitors);
        left = others;
        let names: Vec<&str> = same.iter().map(|pool| &*pool.pool).collect();
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        write!(out, "\npool{} {}", plural(names.len()), names.join(", "))?;
        let Some(courses) = &first.courses else {
            writeln!(out, ": nothing watches, a failure is never seen")?;
            continue;
        };
        let by = plural(first.monitors.len());
        writeln!(out, ", by the monitor{by} {}", first.monitors.join(", "))?;
        write_courses(courses, out)?;
    }
    out.push('\n');
    for note in &timing.notes {
        *out += &wrapped("note: ", note);
    }
    if !timing.notes.is_empty() {
        out.push('\n');
    }
    Ok(())
}

fn write_courses(courses: &Courses, out: &mut String) -> std::fmt::Result {
    let longest = EVENTS.iter().map(|event| (event.3)(courses).total().worst).max().unwrap_or_default();
    for (headline, answers, clients, course_of) in EVENTS {
        let course = course_of(courses);
        let (least, typical, worst) = ("least", "typical", "worst");
        writeln!(out, "  {headline:<LABEL$}{least:>FIGURE$}{typical:>FIGURE$}{worst:>FIGURE$}")?;
        let (mut told, mut passed) = (false, Duration::ZERO);
        for part in &course.parts {
            if !told && part.step.is_after_answers() {
                told = true;
                write_row("= ", answers, course.answers(), '─', (Duration::ZERO, longest), out)?;
            }
            write_row("  ", part.step.words(), part.span, '█', (passed, longest), out)?;
            passed += part.span.worst;
        }
        if !told {
            write_row("= ", answers, course.answers(), '─', (Duration::ZERO, longest), out)?;
        }
        if let Some(clients) = clients {
            write_row("= ", clients, course.total(), '─', (Duration::ZERO, longest), out)?;
        }
    }
    Ok(())
}

/// One line; the bar begins where what passed before ends.
fn write_row(
    mark: &str,
    label: &str,
    span: Span,
    ink: char,
    (passed, longest): (Duration, Duration),
    out: &mut String,
) -> std::fmt::Result {
    let cells = |time: Duration| (time.as_secs_f64() / longest.as_secs_f64().max(0.001) * BAR as f64).round();
    let from = (cells(passed) as usize).min(BAR - 1);
    let to = (cells(passed + span.worst) as usize).clamp(from + 1, BAR);
    let bar: String = " ".repeat(from) + &ink.to_string().repeat(to - from);
    let figures = [span.least, span.typical, span.worst].map(time);
    let width = LABEL - mark.len();
    write!(out, "  {mark}{label:<width$}")?;
    for figure in figures {
        write!(out, "{figure:>FIGURE$}")?;
    }
    writeln!(out, " {bar}")
}

/// A time in a few digits.
fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match () {
        _ if time.is_zero() => "0".to_owned(),
        _ if seconds < 1.0 => format!("{} ms", time.as_millis().max(1)),
        _ if seconds >= 100.0 => format!("{seconds:.0} s"),
        _ if (seconds * 10.0).round() % 10.0 == 0.0 => format!("{seconds:.0} s"),
        _ => format!("{seconds:.1} s"),
    }
}

/// A text in lines that fit, behind a mark.
fn wrapped(mark: &str, text: &str) -> String {
    let indent = " ".repeat(mark.chars().count());
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is a first line");
        if line.is_empty() || line.chars().count() + 1 + word.chars().count() + indent.len() <= 80 {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    let mut out = format!("{mark}{}\n", lines[0]);
    for line in &lines[1..] {
        out += &format!("{indent}{line}\n");
    }
    out
}

fn listed(who: &str, how_long: &str) -> String {
    wrapped(&format!("  {who:<35} "), how_long)
}

/// Everything, for programs: times in seconds.
pub fn json(timings: &[Timing]) -> Value {
    let caches = OVERSTAYS.map(|(who, how_long)| json!({ "who": who, "how_long": how_long }));
    json!({ "load_balancers": timings.iter().map(of_timing).collect::<Vec<_>>(), "caches": caches })
}

fn of_timing(timing: &Timing) -> Value {
    json!({
        "name": timing.name.to_string(),
        "ttl": timing.ttl.as_secs_f64(),
        "slo": timing.slo.map(|slo| slo.as_secs_f64()),
        "worst": timing.worst().map(|worst| worst.as_secs_f64()),
        "pools": timing.pools.iter().map(of_pool).collect::<Vec<_>>(),
        "notes": timing.notes,
    })
}

fn of_pool(pool: &PoolTiming) -> Value {
    let course = |of: fn(&Courses) -> &Course| pool.courses.as_ref().map(|courses| of_course(of(courses)));
    json!({
        "name": &*pool.pool,
        "monitors": pool.monitors.iter().map(|name| &**name).collect::<Vec<_>>(),
        "refused": course(|courses| &courses.refused),
        "hanging": course(|courses| &courses.hanging),
        "back": course(|courses| &courses.back),
        "new": course(|courses| &courses.new),
    })
}

fn of_course(course: &Course) -> Value {
    let span = |span: Span| {
        json!({
            "least": span.least.as_secs_f64(),
            "typical": span.typical.as_secs_f64(),
            "worst": span.worst.as_secs_f64(),
        })
    };
    let parts = course.parts.iter().map(|part| {
        let mut of = span(part.span);
        of["step"] = part.step.id().into();
        of
    });
    json!({
        "parts": parts.collect::<Vec<_>>(),
        "answers": span(course.answers()),
        "clients": span(course.total()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_few_digits() {
        for (millis, shown) in
            [(0, "0"), (20, "20 ms"), (1000, "1 s"), (2200, "2.2 s"), (46_620, "46.6 s"), (225_000, "225 s")]
        {
            assert_eq!(time(Duration::from_millis(millis)), shown);
        }
        assert_eq!(time(Duration::from_micros(1)), "1 ms");
    }

    #[test]
    fn long_texts_are_wrapped_under_their_beginning() {
        let text = wrapped("  mark ", &"word ".repeat(30));
        assert!(text.lines().count() == 3 && text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("       word")), "{text}");
    }
}
