//! The timeline as one file of SVG, for light and dark backgrounds.

use std::fmt::Write;
use std::time::Duration;

use super::super::timeline::{BalancerRow, Held, Span, Timeline, Track, Who};
use super::{Letters, Sign, Tone, clock, endpoint_sign, pool_sign, short, sign, tick, words_of};

const WIDTH: f64 = 1200.0;
const LABELS: f64 = 250.0;
const MARGIN: f64 = 16.0;
const ROW: f64 = 22.0;
const BAR: f64 = 16.0;
/// A letter's width, about.
const LETTER: f64 = 7.0;

const STYLE: &str = "\
svg { background: #ffffff; font: 12px system-ui, sans-serif; }
text { fill: #1f2328; } .faint { fill: #59636e; } .in { font-size: 11px; fill: #ffffff; }
.grid { stroke: #d1d9e0; } .deed { stroke: #8250df; stroke-dasharray: 3 3; } .mark { fill: #8250df; }
.good { fill: #1a7f37; } .fair { fill: #9a6700; } .bad { fill: #cf222e; } .out { fill: #0969da; }
.empty { fill: #818b98; }
@media (prefers-color-scheme: dark) {
svg { background: #0d1117; }
text { fill: #f0f6fc; } .faint { fill: #9198a1; } .in { fill: #ffffff; }
.grid { stroke: #3d444d; } .deed { stroke: #ab7df8; } .mark { fill: #ab7df8; }
.good { fill: #238636; } .fair { fill: #9e6a03; } .bad { fill: #da3633; } .out { fill: #1f6feb; }
.empty { fill: #656c76; }
}
";

/// The timeline as a drawing.
pub fn svg(timeline: &Timeline) -> String {
    let mut drawing = Drawing { timeline, y: MARGIN, out: String::new() };
    drawing.draw();
    let height = drawing.y + MARGIN;
    let title = timeline.title.as_deref().unwrap_or("A scenario played by hale simulate");
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\">\n<title>{}</title>\n<style>\n{STYLE}</style>\n{}</svg>\n",
        escaped(title),
        drawing.out
    )
}

struct Drawing<'a> {
    timeline: &'a Timeline,
    /// Where the next line begins.
    y: f64,
    out: String,
}

impl Drawing<'_> {
    fn draw(&mut self) {
        let timeline = self.timeline;
        if let Some(title) = &timeline.title {
            self.line(MARGIN, title, "");
        }
        let top = self.y;
        self.y += ROW;
        let letters = Letters::of(timeline);
        let mut rows = std::mem::take(&mut self.out);
        for row in &timeline.balancers {
            let words = |held: &Held| {
                let Some(answering) = held.answers() else { return "nobody answers".to_owned() };
                if answering.addresses.is_empty() {
                    return "no address".to_owned();
                }
                let all: Vec<String> = answering.addresses.iter().map(ToString::to_string).collect();
                let from = Letters::words(&(answering.pools.clone(), answering.fallback));
                format!("{from}: {}", all.join(", "))
            };
            self.row(&row.name.to_string(), 0.0, &row.track, |it| letters.sign(it), words);
            self.clients(row);
        }
        self.y += ROW / 2.0;
        for pool in &timeline.pools {
            let state = |state: &Option<_>| pool_sign(*state).means.to_owned();
            self.row(&format!("pool {}", pool.name), 0.0, &pool.track, |state| pool_sign(*state), state);
            for end in timeline.endpoints_of(&pool.name) {
                let stand = |stand: &Option<_>| endpoint_sign(*stand).means.to_owned();
                let name = end.scope.to_string();
                self.row(&name, 14.0, &end.track, |stand| endpoint_sign(*stand), stand);
            }
        }
        let bars = std::mem::take(&mut self.out);
        let bottom = self.y;
        self.grid(top, bottom);
        rows += &std::mem::take(&mut self.out);
        self.out = rows + &bars;
        self.y += ROW / 2.0;
        for (number, place) in letters.0.iter().enumerate() {
            let letter = char::from(b'A' + (number % 26) as u8);
            self.line(MARGIN, &format!("{letter}: answers from {}", Letters::words(place)), "");
        }
        if timeline.balancers.iter().any(|row| !timeline.exposures(row).is_empty()) {
            self.line(MARGIN, "!: answers carry what does not work", "");
            self.line(MARGIN, "~: clients may still have such an answer", "");
        }
        self.y += ROW / 2.0;
        for event in &timeline.events {
            let mark = if event.who == Who::Scenario { "▼ " } else { "" };
            self.words(MARGIN + 70.0, "end", &clock(event.at), "faint");
            self.line(MARGIN + 80.0, &format!("{mark}{}", event.text), "");
        }
        self.y += ROW / 2.0;
        for row in &timeline.balancers {
            for line in words_of(timeline, row) {
                let indent = if line.starts_with(' ') { 14.0 } else { 0.0 };
                self.line(MARGIN + indent, line.trim_start(), "");
            }
        }
        for check in timeline.checks.iter().filter(|check| !check.holds()) {
            let place = format!("{}: {} at {}", check.place, check.what, clock(check.at));
            self.line(MARGIN, &format!("{place}: expected {}, got {}", check.expected, check.got), "");
        }
    }

    fn x(&self, at: Duration) -> f64 {
        let share = at.as_secs_f64() / self.timeline.length.as_secs_f64().max(0.001);
        LABELS + share.min(1.0) * (WIDTH - LABELS - MARGIN)
    }

    fn grid(&mut self, top: f64, bottom: f64) {
        let every = tick(self.timeline.length, 12);
        let mut at = Duration::ZERO;
        while at <= self.timeline.length {
            let x = self.x(at);
            let _ = writeln!(
                self.out,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{bottom:.1}\"/>",
                top + 14.0
            );
            let anchor = if at + every > self.timeline.length { "end" } else { "start" };
            let _ = writeln!(
                self.out,
                "<text class=\"faint\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
                top + 10.0,
                clock(at)
            );
            at += every;
        }
        for event in self.timeline.events.iter().filter(|event| event.who == Who::Scenario) {
            let x = self.x(event.at);
            let _ = writeln!(
                self.out,
                "<g><title>{} {}</title><line class=\"deed\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" \
                 y2=\"{bottom:.1}\"/><path class=\"mark\" d=\"M{:.1} {:.1}h8l-4 6z\"/></g>",
                clock(event.at),
                escaped(&event.text),
                top + 14.0,
                x - 4.0,
                top + 14.0
            );
        }
    }

    fn row<T: PartialEq>(
        &mut self,
        name: &str,
        indent: f64,
        track: &Track<T>,
        of: impl Fn(&T) -> Sign,
        words: impl Fn(&T) -> String,
    ) {
        self.words(MARGIN + indent, "start", &short(name), "");
        for Span { from, to, value } in track.spans() {
            let (sign, words) = (of(value), words(value));
            if sign.letter != ' ' {
                self.bar((*from, *to), sign, &words);
            }
        }
        self.y += ROW;
    }

    fn bar(&mut self, (from, to): (Duration, Duration), sign: Sign, words: &str) {
        let (x, end) = (self.x(from), self.x(to));
        let width = (end - x).max(1.5);
        let class = sign.tone.class();
        let title = format!("{} to {}: {words}", clock(from), clock(to));
        let _ = write!(
            self.out,
            "<g><title>{}</title><rect class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" \
             height=\"{BAR}\" rx=\"2\"/>",
            escaped(&title),
            self.y
        );
        let letter = if sign.letter.is_ascii_graphic() { sign.letter.to_string() } else { String::new() };
        let brief = words.split(':').next().unwrap_or_default();
        let fits = |label: &&str| label.chars().count() as f64 * LETTER + 6.0 < width;
        let label = [words, brief, &letter].into_iter().find(fits).unwrap_or_default();
        if !label.is_empty() {
            let _ = write!(
                self.out,
                "<text class=\"in\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x + 4.0,
                self.y + 12.0,
                escaped(label)
            );
        }
        self.out += "</g>\n";
    }

    /// Below a load balancer: what its clients got that does not work.
    fn clients(&mut self, row: &BalancerRow) {
        let exposures = self.timeline.exposures(row);
        if exposures.is_empty() {
            return;
        }
        self.words(MARGIN + 14.0, "start", "clients", "faint");
        let end = self.timeline.length;
        for exposure in &exposures {
            let who = format!("{} ({})", exposure.scope, exposure.address);
            if exposure.to < exposure.clients_until.min(end) {
                let words = format!("clients may still have {who}, which does not work");
                let until = exposure.clients_until.min(end);
                self.bar((exposure.to, until), sign('~', Tone::Fair, 0, ""), &words);
            }
            let words = format!("answers carry {who}, which does not work");
            self.bar((exposure.from, exposure.to), sign('!', Tone::Bad, 0, ""), &words);
        }
        self.y += ROW;
    }

    fn line(&mut self, x: f64, text: &str, class: &str) {
        self.words(x, "start", text, class);
        self.y += ROW - 4.0;
    }

    fn words(&mut self, x: f64, anchor: &str, text: &str, class: &str) {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let _ = writeln!(
            self.out,
            "<text{class} x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            self.y + 12.0,
            escaped(text)
        );
    }
}

impl Tone {
    fn class(self) -> &'static str {
        match self {
            Tone::Good => "good",
            Tone::Fair => "fair",
            Tone::Bad => "bad",
            Tone::Out => "out",
            Tone::Empty => "empty",
        }
    }
}

/// A text as XML takes it.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            letter if letter.is_control() => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}
