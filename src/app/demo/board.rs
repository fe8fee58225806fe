//! The board on a terminal: endpoints, answers, what happened; keys act.

use std::collections::VecDeque;
use std::io::Write;
use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::{cursor, execute, queue, terminal};
use hickory_proto::rr::{Name, RecordType};
use tokio::sync::mpsc;

use super::{Answer, DemoError, Stage, ask};

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
        let at = begun.elapsed().as_secs_f64();
        headlines.extend(stage.hear().into_iter().map(|headline| format!("{at:7.1} s  {headline}")));
        while headlines.len() > HEADLINES {
            headlines.pop_front();
        }
        let answers = answers(stage).await;
        draw(&board(stage, &answers), &headlines).map_err(DemoError::Terminal)?;
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

/// The board as text, without what happened.
fn board(stage: &Stage, answers: &[(Name, Option<Answer>)]) -> Vec<String> {
    let mut lines = match stage.dig() {
        Some(dig) => vec![format!("in another terminal:  {dig}"), String::new()],
        None => vec!["hale demo      endpoints only, beside:  hale serve zones".to_owned(), String::new()],
    };
    let served = stage.server.is_some();
    let heading = if served { "seen by Hale" } else { "" };
    lines.push(format!("  key  endpoint       address             listener  {heading}"));
    for (endpoint, key) in stage.endpoints.iter().zip(1..) {
        let name = format!("{}/{}", endpoint.pool, endpoint.name);
        let state = if endpoint.is_up() { "up" } else { "down" };
        let health = if served { stage.health(endpoint) } else { "" };
        lines.push(format!("   {key}   {name:<14} {:<19} {state:<9} {health}", endpoint.address.to_string()));
    }
    if served {
        let state = if stage.fallback { "enabled" } else { "disabled" };
        lines.push(format!("   f   fallback pool sorry: {state}"));
    }
    lines.extend(["   q   quit".to_owned(), String::new()]);
    for ((name, answer), (_, plan)) in answers.iter().zip(stage.plans()) {
        let answer = answer.as_ref().map_or("no answer".to_owned(), Answer::to_string);
        lines.extend([format!("  {name} A  {answer}"), format!("      pool {plan}"), String::new()]);
    }
    lines
}

/// Draws the board and, as far as there is room, the latest of what happened.
fn draw(board: &[String], headlines: &VecDeque<String>) -> std::io::Result<()> {
    let (columns, rows) = terminal::size().unwrap_or((80, 24));
    let room = usize::from(rows).saturating_sub(board.len() + 1).min(headlines.len());
    let latest = headlines.iter().skip(headlines.len() - room);
    let mut text = Vec::new();
    queue!(text, cursor::MoveTo(0, 0))?;
    for line in board.iter().chain(latest).take(usize::from(rows).saturating_sub(1)) {
        let line: String = line.chars().take(usize::from(columns).saturating_sub(1)).collect();
        write!(text, "{line}")?;
        queue!(text, terminal::Clear(terminal::ClearType::UntilNewLine))?;
        write!(text, "\r\n")?;
    }
    queue!(text, terminal::Clear(terminal::ClearType::FromCursorDown))?;
    let mut out = std::io::stdout().lock();
    out.write_all(&text)?;
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
