//! A timeline as people look at it: as text, and as a drawing.
//!
//! Every state has a sign of its own, so that nothing depends on colours.

mod svg;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use super::timeline::{BalancerRow, End, Exposure, Happened, Held, Span, Stand, Timeline, Track, Who};
use crate::authority::BalancerState;
use crate::health::PoolState;

pub use svg::svg;

/// The narrowest text that is drawn.
pub const LEAST_WIDTH: usize = 80;

/// Names longer than this are cut.
const LONGEST_NAME: usize = 32;

/// How good a state is; it makes the colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tone {
    Good,
    /// Worth a look.
    Fair,
    Bad,
    /// Out because somebody wants it out.
    Out,
    /// Nothing there, or nothing known.
    Empty,
}

/// How a state is shown. Of several in one place the gravest is seen.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sign {
    letter: char,
    tone: Tone,
    gravity: u8,
    means: &'static str,
}

const fn sign(letter: char, tone: Tone, gravity: u8, means: &'static str) -> Sign {
    Sign { letter, tone, gravity, means }
}

const ABSENT: Sign = sign(' ', Tone::Empty, 0, "not there");
const HEALTHY: Sign = sign('█', Tone::Good, 1, "healthy");
const DEGRADED: Sign = sign('▓', Tone::Fair, 3, "degraded");
const UNKNOWN: Sign = sign('░', Tone::Empty, 2, "unknown");

/// How an endpoint is shown.
fn endpoint_sign(stand: Option<Stand>) -> Sign {
    let Some(stand) = stand else { return ABSENT };
    match stand.word {
        _ if stand.up && !stand.works => sign('!', Tone::Bad, 20, "does not work, but counts as healthy"),
        _ if stand.up && stand.stale => sign('?', Tone::Fair, 6, "stale: nobody reports on it"),
        _ if stand.up && stand.degraded => DEGRADED,
        _ if stand.up && stand.partial => sign('▄', Tone::Fair, 4, "slow start: a part of its weight"),
        "healthy" => HEALTHY,
        "up" if !stand.measured => sign('=', Tone::Good, 1, "in answers, and nothing probes it"),
        "up" => sign('U', Tone::Fair, 5, "in answers, whatever probes say"),
        "unhealthy" if stand.works => sign('+', Tone::Fair, 8, "works, but counts as unhealthy"),
        "unhealthy" => sign('x', Tone::Bad, 15, "unhealthy"),
        "unknown" if stand.starting => sign('s', Tone::Fair, 7, "in its start period"),
        "unknown" => UNKNOWN,
        "forced_unhealthy" => sign('F', Tone::Out, 14, "unhealthy by an operator's word"),
        "ejected" => sign('e', Tone::Bad, 13, "ejected"),
        "flap_hold" => sign('f', Tone::Fair, 12, "held out after flapping"),
        "dependency_down" => sign('n', Tone::Bad, 13, "what it needs is down"),
        "disabled" => sign('-', Tone::Out, 9, "disabled"),
        "draining" => sign('d', Tone::Out, 11, "draining: clients may still have it"),
        "drained" => sign('D', Tone::Out, 10, "drained"),
        "maintenance" => sign('m', Tone::Out, 10, "in maintenance"),
        _ => sign('a', Tone::Out, 10, "out by its agent's word"),
    }
}

fn pool_sign(state: Option<PoolState>) -> Sign {
    match state {
        None => ABSENT,
        Some(PoolState::Healthy) => HEALTHY,
        Some(PoolState::Degraded) => DEGRADED,
        Some(PoolState::Critical) => sign('x', Tone::Bad, 15, "critical"),
        Some(PoolState::Unknown) => UNKNOWN,
        Some(PoolState::Disabled) => sign('-', Tone::Out, 9, "disabled"),
    }
}

/// The pools that answer, as one place of load balancers.
type Place = (Vec<Arc<str>>, bool);

/// A letter for each place that some load balancer answers from.
#[derive(Default)]
struct Letters(Vec<Place>);

impl Letters {
    fn of(timeline: &Timeline) -> Letters {
        let mut letters = Letters::default();
        let spans = timeline.balancers.iter().flat_map(|row| row.track.spans());
        for answering in spans.filter_map(|span| span.value.answers()) {
            let place = (answering.pools.clone(), answering.fallback);
            if !answering.addresses.is_empty() && !letters.0.contains(&place) {
                letters.0.push(place);
            }
        }
        letters
    }

    fn sign(&self, held: &Held) -> Sign {
        let answering = match held {
            Held::Absent => return ABSENT,
            Held::Down => return sign('.', Tone::Bad, 30, "nobody answers"),
            Held::Answers(answering) => answering,
        };
        if answering.addresses.is_empty() {
            return sign('_', Tone::Bad, 29, "no address: only the SOA");
        }
        let place = (&answering.pools, answering.fallback);
        let number = self.0.iter().position(|(pools, fallback)| (pools, *fallback) == place).unwrap_or(0);
        let letter = char::from(b'A' + (number % 26) as u8);
        let (tone, gravity) = match answering.state {
            BalancerState::Healthy => (Tone::Good, 1),
            BalancerState::Degraded => (Tone::Fair, 2),
            BalancerState::Critical => (Tone::Bad, 3),
        };
        sign(letter, tone, gravity, "")
    }

    fn words(place: &Place) -> String {
        let fallback = if place.1 { " (fallback)" } else { "" };
        format!("{}{fallback}", place.0.join(" and "))
    }
}

/// A time as rows and events write it: `1:02:03.5`, without what is zero
/// behind the point.
pub fn clock(time: Duration) -> String {
    let millis = (time.as_micros() + 500) / 1000;
    let (seconds, rest) = (millis / 1000, millis % 1000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let mut out = match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    };
    if rest > 0 {
        let _ = write!(out, ".{rest:03}");
        out.truncate(out.trim_end_matches('0').len());
    }
    out
}

/// A length of time: `4.2 s`, `3 min 5 s`.
fn lasting(time: Duration) -> String {
    let millis = (time.as_micros() + 500) / 1000;
    let (minutes, rest) = (millis / 60_000, millis % 60_000);
    let seconds = format!("{}", rest as f64 / 1000.0);
    match (minutes, rest) {
        (0, _) => format!("{seconds} s"),
        (_, 0) => format!("{minutes} min"),
        _ => format!("{minutes} min {seconds} s"),
    }
}

/// A name, cut to what fits.
fn short(name: &str) -> String {
    match name.chars().count() > LONGEST_NAME {
        true => name.chars().take(LONGEST_NAME - 1).chain(['…']).collect(),
        false => name.to_owned(),
    }
}

/// The timeline as text of so many columns.
pub fn text(timeline: &Timeline, width: usize, colour: bool) -> String {
    let names = timeline.balancers.iter().map(|row| row.name.to_string());
    let pools = timeline.pools.iter().map(|row| format!("pool {}", row.name));
    let ends = timeline.endpoints.iter().map(|row| format!("  {}", row.scope));
    let longest = names.chain(pools).chain(ends).map(|name| short(&name).chars().count()).max();
    let label = longest.unwrap_or(0);
    let cells = width.max(LEAST_WIDTH).saturating_sub(label + 2).max(10);
    let mut sheet = Sheet { timeline, label, cells, colour, seen: BTreeMap::new(), out: String::new() };
    sheet.draw();
    sheet.out
}

struct Sheet<'a> {
    timeline: &'a Timeline,
    label: usize,
    cells: usize,
    colour: bool,
    /// The signs that occur, by their letters.
    seen: BTreeMap<(u8, char, &'static str), Sign>,
    out: String,
}

impl Sheet<'_> {
    fn draw(&mut self) {
        let timeline = self.timeline;
        if let Some(title) = &timeline.title {
            self.out += &format!("{title}\n\n");
        }
        self.axis();
        let letters = Letters::of(timeline);
        for row in &timeline.balancers {
            self.row(&row.name.to_string(), &row.track, |it| letters.sign(it));
            self.clients(row);
        }
        self.out.push('\n');
        for pool in &timeline.pools {
            self.row(&format!("pool {}", pool.name), &pool.track, |state| pool_sign(*state));
            for end in timeline.endpoints_of(&pool.name) {
                self.row(&format!("  {}", end.scope), &end.track, |stand| endpoint_sign(*stand));
            }
        }
        self.legend(&letters);
        self.events();
        self.clients_in_words();
        self.checks();
    }

    /// Times above a line with marks.
    fn axis(&mut self) {
        let every = tick(self.timeline.length, self.cells / 8);
        let (mut above, mut below) = (vec![' '; self.cells + 12], vec!['─'; self.cells]);
        let mut at = Duration::ZERO;
        while at < self.timeline.length {
            let column = self.column(at);
            below[column] = if column == 0 { '├' } else { '┬' };
            for (place, letter) in above[column..].iter_mut().zip(clock(at).chars()) {
                *place = letter;
            }
            at += every;
        }
        for event in self.timeline.events.iter().filter(|event| event.who == Who::Scenario) {
            let column = self.column(event.at);
            below[column] = '▼';
        }
        for line in [above, below] {
            let line: String = line.into_iter().collect();
            self.out += &format!("{:label$}  {}\n", "", line.trim_end(), label = self.label);
        }
    }

    /// The column that a time falls into.
    fn column(&self, at: Duration) -> usize {
        let length = self.timeline.length.as_micros().max(1);
        let column = at.as_micros() * self.cells as u128 / length;
        (column as usize).min(self.cells - 1)
    }

    fn row<T: PartialEq>(&mut self, name: &str, track: &Track<T>, of: impl Fn(&T) -> Sign) {
        let mut cells: Vec<Sign> = vec![ABSENT; self.cells];
        for span in track.spans() {
            let sign = of(&span.value);
            self.seen.insert((sign.gravity, sign.letter, sign.means), sign);
            for cell in &mut cells[self.cells_of(span)] {
                if *cell == ABSENT || sign.gravity > cell.gravity {
                    *cell = sign;
                }
            }
        }
        self.line(name, &cells);
    }

    /// The cells that a span touches; one at least.
    fn cells_of<T>(&self, span: &Span<T>) -> std::ops::Range<usize> {
        let first = self.column(span.from);
        let last = self.column(span.to.saturating_sub(Duration::from_micros(1)).max(span.from));
        first..last + 1
    }

    fn line(&mut self, name: &str, cells: &[Sign]) {
        let name = short(name);
        let mut line = format!("{name:label$}  ", label = self.label);
        let mut tint = "";
        for cell in cells {
            let next = if self.colour { cell.tone.tint() } else { "" };
            if next != tint {
                line += if next.is_empty() { "\x1b[0m" } else { next };
                tint = next;
            }
            line.push(cell.letter);
        }
        if !tint.is_empty() {
            line += "\x1b[0m";
        }
        self.out += line.trim_end();
        self.out.push('\n');
    }

    /// Below a load balancer: what its clients got that does not work.
    fn clients(&mut self, row: &BalancerRow) {
        let exposures = self.timeline.exposures(row);
        if exposures.is_empty() {
            return;
        }
        let (answers, caches) = (
            sign('!', Tone::Bad, 28, "answers carry what does not work"),
            sign('~', Tone::Fair, 27, "clients may still have such an answer"),
        );
        let mut cells: Vec<Sign> = vec![ABSENT; self.cells];
        for exposure in &exposures {
            for (from, to, sign) in
                [(exposure.from, exposure.to, answers), (exposure.to, exposure.clients_until, caches)]
            {
                let to = to.min(self.timeline.length);
                if from >= to {
                    continue;
                }
                self.seen.insert((sign.gravity, sign.letter, sign.means), sign);
                for cell in &mut cells[self.cells_of(&Span { from, to, value: () })] {
                    if sign.gravity > cell.gravity {
                        *cell = sign;
                    }
                }
            }
        }
        self.line("  clients", &cells);
    }

    fn legend(&mut self, letters: &Letters) {
        let mut words: Vec<String> = (letters.0.iter().enumerate())
            .map(|(number, place)| {
                format!("{} {}", char::from(b'A' + (number % 26) as u8), Letters::words(place))
            })
            .collect();
        let mut letters: BTreeMap<char, Vec<&str>> = BTreeMap::new();
        let mut order: Vec<char> = Vec::new();
        for sign in self.seen.values().filter(|sign| !sign.means.is_empty() && sign.letter != ' ') {
            if !order.contains(&sign.letter) {
                order.push(sign.letter);
            }
            letters.entry(sign.letter).or_default().push(sign.means);
        }
        words.extend(order.iter().map(|letter| format!("{letter} {}", letters[letter].join("; or "))));
        words.push("▼ the scenario does something".into());
        self.out.push('\n');
        let width = self.label + self.cells + 2;
        let mut line = String::new();
        for word in words {
            if !line.is_empty() && line.chars().count() + word.chars().count() + 3 > width {
                self.out += &format!("{line}\n");
                line.clear();
            }
            line += &format!("{}{word}", if line.is_empty() { "" } else { "   " });
        }
        self.out += &format!("{line}\n");
    }

    fn events(&mut self) {
        self.out.push('\n');
        for Happened { at, who, text } in &self.timeline.events {
            let mark = if *who == Who::Scenario { '▼' } else { ' ' };
            self.out += &format!("{mark} {:<10} {text}\n", clock(*at));
        }
    }

    /// How long clients got what does not work, in words.
    fn clients_in_words(&mut self) {
        for row in &self.timeline.balancers {
            for line in [String::new()].into_iter().chain(words_of(self.timeline, row)) {
                self.out += &format!("{line}\n");
            }
        }
    }

    fn checks(&mut self) {
        let checks = &self.timeline.checks;
        if checks.is_empty() {
            return;
        }
        let failed: Vec<_> = checks.iter().filter(|check| !check.holds()).collect();
        self.out += &format!("\n{} of {} expectations hold\n", checks.len() - failed.len(), checks.len());
        for check in failed {
            self.out += &format!(
                "{}: {} at {}\n  expected {}\n  got      {}\n",
                check.place,
                check.what,
                clock(check.at),
                check.expected,
                check.got
            );
        }
    }
}

/// What came to a load balancer's clients, one line each.
fn words_of(timeline: &Timeline, row: &BalancerRow) -> Vec<String> {
    let exposures = timeline.exposures(row);
    let mut lines = Vec::new();
    let (unfit, silent) = (row.unfit_for(), row.silent_for());
    lines.push(match unfit.is_zero() {
        true => format!("{} answered only with what works", row.name),
        false => format!(
            "{} answered for {} with something that does not work (TTL {} s)",
            row.name,
            lasting(unfit),
            row.ttl
        ),
    });
    if !silent.is_zero() {
        lines.push(format!("  for {} it gave no address", lasting(silent)));
    }
    lines.extend(exposures.iter().map(|exposure| format!("  {}", exposure_in_words(exposure, row.ttl))));
    lines
}

fn exposure_in_words(exposure: &Exposure, ttl: u32) -> String {
    let Exposure { scope, address, from, to, end, clients_until } = exposure;
    let head = format!("{:<10} {scope} ({address}) failed: in answers", clock(*from));
    let (lasted, out) = (lasting(*to - *from), clock(*to));
    match end {
        End::Worked => format!("{head} until it worked again at {out} ({lasted})"),
        End::Lasted => format!("{head} to the end ({lasted})"),
        End::Left => {
            let moved = clock(*clients_until);
            let how = match *clients_until < *to + Duration::from_secs(u64::from(ttl)) {
                true => format!("in caches until it worked again at {moved}"),
                false => format!("in caches until {moved}"),
            };
            format!("{head} until {out} ({lasted}), {how}")
        }
    }
}

/// So far the marks of an axis lie apart, if about so many fit.
fn tick(length: Duration, fit: usize) -> Duration {
    const STEPS: [u64; 17] =
        [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400];
    let least = length.as_secs_f64() / fit.max(1) as f64;
    let found = STEPS.into_iter().find(|step| *step as f64 >= least);
    Duration::from_secs(found.unwrap_or_else(|| least.ceil() as u64))
}

impl Tone {
    fn tint(self) -> &'static str {
        match self {
            Tone::Good => "\x1b[32m",
            Tone::Fair => "\x1b[33m",
            Tone::Bad => "\x1b[31m",
            Tone::Out => "\x1b[36m",
            Tone::Empty => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_short() {
        for (millis, clocked, lasted) in [
            (0, "0:00", "0 s"),
            (4_200, "0:04.2", "4.2 s"),
            (63_010, "1:03.01", "1 min 3.01 s"),
            (3_723_500, "1:02:03.5", "62 min 3.5 s"),
            (120_000, "2:00", "2 min"),
        ] {
            let time = Duration::from_millis(millis);
            assert_eq!((clock(time).as_str(), lasting(time).as_str()), (clocked, lasted));
        }
    }

    #[test]
    fn marks_of_the_axis_lie_far_enough_apart() {
        for (length, fit, apart) in [(60, 8, 10), (600, 8, 120), (7, 8, 1), (1_000_000_000, 8, 125_000_000)] {
            assert_eq!(tick(Duration::from_secs(length), fit), Duration::from_secs(apart), "{length}");
        }
    }
}
