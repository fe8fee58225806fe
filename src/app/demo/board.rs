//! The board on a terminal: endpoints, answers, what happened; keys act.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::{cursor, execute, terminal};
use hickory_proto::rr::{Name, RecordType};
use tokio::sync::mpsc;

use super::{Answer, DemoError, Stage, ask};
use crate::telemetry;

/// The board is drawn so often, and after every key.
const DRAW_EVERY: Duration = Duration::from_millis(250);

/// How many past changes are shown.
const HEADLINES: usize = 8;

/// Shows the board until `q`.
pub async fn show(stage: &mut Stage) -> Result<(), DemoError> {
    let _terminal = Screen::take().map_err(DemoError::Terminal)?;
    let mut keys = read_keys();
    let mut headlines = VecDeque::new();
    let begun = Instant::now();
    loop {
        while let Ok(change) = stage.headlines.try_recv() {
            let at = begun.elapsed().as_secs_f64();
            headlines.push_back(format!("{at:7.1} s  {}", telemetry::headline(&change)));
        }
        while headlines.len() > HEADLINES {
            headlines.pop_front();
        }
        let answers = answers(stage).await;
        draw(&board(stage, &answers, &headlines)).map_err(DemoError::Terminal)?;
        let key = tokio::select! {
            key = keys.recv() => key,
            _ = tokio::time::sleep(DRAW_EVERY) => continue,
        };
        match key {
            Some('q') | None => return Ok(()),
            Some('f') => stage.set_fallback(!stage.fallback),
            Some(digit) => {
                if let Some(number) = digit.to_digit(10).and_then(|digit| digit.checked_sub(1)) {
                    stage.toggle(number as usize).await;
                }
            }
        }
    }
}

/// What each load balancer answers now.
async fn answers(stage: &Stage) -> Vec<(Name, Option<Answer>)> {
    let Some(server) = &stage.server else { return Vec::new() };
    let mut answers = Vec::new();
    for name in stage.names() {
        let name = Name::from_ascii(name.to_string()).expect("a name of the sample");
        let answer = ask(server.address, &name, RecordType::A).await;
        answers.push((name, answer));
    }
    answers
}

/// The board as text.
fn board(stage: &Stage, answers: &[(Name, Option<Answer>)], headlines: &VecDeque<String>) -> String {
    let mut text = String::new();
    let line =
        |text: &mut String, args: std::fmt::Arguments| writeln!(text, "{args}").expect("a String takes all");
    match stage.dig() {
        Some(dig) => line(&mut text, format_args!("hale demo      ask in another terminal:  {dig}\n")),
        None => line(&mut text, format_args!("hale demo      endpoints only, beside:  hale serve zones\n")),
    }
    line(&mut text, format_args!("  key  endpoint       address             listener"));
    for (endpoint, key) in stage.endpoints.iter().zip(1..) {
        let name = format!("{}/{}", endpoint.pool, endpoint.name);
        let state = if endpoint.is_up() { "up" } else { "down" };
        line(&mut text, format_args!("   {key}   {name:<14} {:<19} {state}", endpoint.address.to_string()));
    }
    if stage.server.is_some() {
        let state = if stage.fallback { "enabled" } else { "disabled" };
        line(&mut text, format_args!("   f   fallback pool sorry: {state}"));
    }
    line(&mut text, format_args!("   q   quit\n"));
    for (name, answer) in answers {
        let answer = answer.as_ref().map_or("no answer".to_owned(), Answer::to_string);
        line(&mut text, format_args!("  {name} A  {answer}"));
    }
    line(&mut text, format_args!(""));
    for headline in headlines {
        line(&mut text, format_args!("{headline}"));
    }
    text
}

fn draw(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    execute!(out, cursor::MoveTo(0, 0))?;
    for line in text.lines() {
        execute!(out, terminal::Clear(terminal::ClearType::CurrentLine))?;
        write!(out, "{line}\r\n")?;
    }
    execute!(out, terminal::Clear(terminal::ClearType::FromCursorDown))?;
    out.flush()
}

/// The terminal in raw mode, on its second screen, until dropped.
struct Screen;

impl Screen {
    fn take() -> std::io::Result<Screen> {
        terminal::enable_raw_mode()?;
        let screen = Screen;
        execute!(std::io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // nothing better can be done if the terminal is gone
        let _ = execute!(std::io::stdout(), terminal::LeaveAlternateScreen, cursor::Show);
        let _ = terminal::disable_raw_mode();
    }
}

/// Keys as they are pressed; Ctrl-C and Escape come as `q`. Reading blocks, so
/// it has a thread of its own, which ends with the process.
fn read_keys() -> mpsc::UnboundedReceiver<char> {
    let (keys, pressed) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        while let Ok(event) = crossterm::event::read() {
            let Event::Key(key) = event else { continue };
            let control = key.modifiers.contains(KeyModifiers::CONTROL);
            let letter = match key.code {
                KeyCode::Char('c') if control => 'q',
                KeyCode::Esc => 'q',
                KeyCode::Char(letter) => letter.to_ascii_lowercase(),
                _ => continue,
            };
            if key.kind == KeyEventKind::Press && keys.send(letter).is_err() {
                return;
            }
        }
    });
    pressed
}
