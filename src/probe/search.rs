//! Looks for a text in octets that arrive piece by piece.

/// Knuth–Morris–Pratt: keeps no octet of what has passed, and no text makes it
/// slow.
#[derive(Debug)]
pub(super) struct Search<'a> {
    text: &'a [u8],
    letters: Letters,
    /// For each prefix of the text: how much of it is also its own end.
    borders: Vec<usize>,
    /// How much of the text the octets so far end with.
    matched: usize,
}

/// Whether ASCII letters match in either case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Letters {
    EitherCase,
    AsWritten,
}

impl<'a> Search<'a> {
    /// A search for `text`, which isn't empty.
    pub fn new(text: &'a [u8], letters: Letters) -> Search<'a> {
        let mut search = Search { text, letters, borders: Vec::with_capacity(text.len()), matched: 0 };
        search.borders.push(0);
        for &octet in &text[1..] {
            search.advance(octet);
            search.borders.push(search.matched);
        }
        search.matched = 0;
        search
    }

    /// Whether the text ends in `piece`; not to be fed again after that.
    pub fn feed(&mut self, piece: &[u8]) -> bool {
        piece.iter().any(|&octet| {
            self.advance(octet);
            self.matched == self.text.len()
        })
    }

    fn advance(&mut self, octet: u8) {
        while !self.continues(octet) {
            if self.matched == 0 {
                return;
            }
            self.matched = self.borders[self.matched - 1];
        }
        self.matched += 1;
    }

    fn continues(&self, octet: u8) -> bool {
        let due = self.text[self.matched];
        match self.letters {
            Letters::EitherCase => octet.eq_ignore_ascii_case(&due),
            Letters::AsWritten => octet == due,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Letters::{AsWritten, EitherCase};
    use super::*;

    #[test]
    fn a_text_is_found_wherever_the_pieces_are_cut() {
        for (text, letters, body, found) in [
            ("alive", EitherCase, "I am ALIVE!", true),
            ("ALIVE", EitherCase, "alive", true),
            ("aab", EitherCase, "aaab", true),
            ("abab", EitherCase, "abaabab", true),
            ("abcabd", EitherCase, "abcabcabd", true),
            ("a", EitherCase, "bcA", true),
            ("a.ive", EitherCase, "alive", false),
            ("alive", EitherCase, "aliv", false),
            ("alive", EitherCase, "", false),
            ("Zdraví", EitherCase, "zDRAVí", true),
            ("Zdraví", EitherCase, "zDRAVÍ", false),
            ("+PONG\r\n", AsWritten, "+PONG\r\n", true),
            ("+PONG", AsWritten, "+pong\r\n", false),
            ("aAb", AsWritten, "aaAaAb", true),
            ("abab", AsWritten, "abAbabab", true),
        ] {
            let body = body.as_bytes();
            for cut in 0..=body.len() {
                let mut search = Search::new(text.as_bytes(), letters);
                let seen = search.feed(&body[..cut]) || search.feed(&body[cut..]);
                assert_eq!(seen, found, "{text} in {body:?} cut at {cut}");
            }
        }
    }
}
