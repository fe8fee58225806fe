//! What a line of HAProxy's agent check says.
//!
//! Words with spaces, tabs or commas between, in letters of either case; of
//! each kind the last one counts. A word that begins with `#` begins a
//! description, which is for people.

use super::{AgentReport, AgentWish};

/// What an agent says of its endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentLine {
    /// Whether the endpoint works; none: it says nothing about that.
    pub state: Option<AgentState>,
    pub report: AgentReport,
    /// At least one word was understood.
    pub understood: bool,
}

/// Whether an endpoint works, in its own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentState {
    Up,
    Down,
    Failed,
    Stopped,
}

impl AgentLine {
    /// Reads a line, whose end is the first CR or LF if it has one.
    pub fn read(octets: &[u8]) -> AgentLine {
        let mut line = AgentLine::default();
        let end = octets.iter().position(|octet| b"\r\n".contains(octet)).unwrap_or(octets.len());
        let words = octets[..end].split(|octet| b" \t,".contains(octet)).filter(|word| !word.is_empty());
        for word in words.take_while(|word| word[0] != b'#') {
            let understood = line.take(&word.to_ascii_lowercase());
            line.understood |= understood;
        }
        line
    }

    fn take(&mut self, word: &[u8]) -> bool {
        match word {
            b"up" => self.state = Some(AgentState::Up),
            b"down" => self.state = Some(AgentState::Down),
            // HAProxy knows `fail`; its manual long said `failed`.
            b"fail" | b"failed" => self.state = Some(AgentState::Failed),
            b"stopped" => self.state = Some(AgentState::Stopped),
            b"ready" => self.report.wish = Some(AgentWish::Ready),
            b"drain" => self.report.wish = Some(AgentWish::Drain),
            b"maint" => self.report.wish = Some(AgentWish::Maint),
            _ if word.starts_with(b"maxconn:") => {} // nothing to a name server
            _ => match percent(word) {
                Some(percent) => self.report.percent = Some(percent),
                None => return false,
            },
        }
        true
    }
}

/// A whole number of percent; above 100 is 100.
fn percent(word: &[u8]) -> Option<u8> {
    let digits = word.strip_suffix(b"%").filter(|digits| !digits.is_empty())?;
    digits.iter().try_fold(0_u8, |sum, digit| {
        digit.is_ascii_digit().then(|| sum.saturating_mul(10).saturating_add(digit - b'0').min(100))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The state, the wish and the share; `?` when nothing was understood.
    fn told(text: &str) -> String {
        let line = AgentLine::read(text.as_bytes());
        let state = line.state.map(|state| format!("{state:?}"));
        let wish = line.report.wish.map(|wish| format!("{wish:?}"));
        let percent = line.report.percent.map(|percent| format!("{percent}%"));
        let unknown = (!line.understood).then(|| "?".to_owned());
        [state, wish, percent, unknown].into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_line_is_read_word_by_word() {
        for (text, says) in [
            ("up\n", "Up"),
            ("UP", "Up"),
            ("down # no disk\n", "Down"),
            ("down\t#up\n", "Down"),
            ("failed", "Failed"),
            ("fail", "Failed"),
            ("stopped\r\n", "Stopped"),
            ("ready\n", "Ready"),
            ("drain\n", "Drain"),
            ("Maint\n", "Maint"),
            ("75%\n", "75%"),
            ("0%\n", "0%"),
            ("150%\n", "100%"),
            ("99999999999999999999%\n", "100%"),
            ("up ready 50%\n", "Up Ready 50%"),
            ("  up,drain,\t10%  \n", "Up Drain 10%"),
            ("down drain\n", "Down Drain"),
            ("drain ready up down 10% 20%\n", "Down Ready 20%"),
            ("maxconn:30\n", ""),
            ("up maxconn:30\n", "Up"),
            ("up later\n", "Up"),
            ("up\ndown\n", "Up"),
            ("# up\n", "?"),
            ("up#down\n", "?"),
            ("\n", "?"),
            ("", "?"),
            ("75\n", "?"),
            ("%\n", "?"),
            ("-5%\n", "?"),
            ("7.5%\n", "?"),
            ("5%%\n", "?"),
            ("HTTP/1.1 200 OK\r\n", "?"),
        ] {
            assert_eq!(told(text), says, "{text:?}");
        }
    }
}
