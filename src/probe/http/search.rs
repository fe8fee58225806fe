//! Looks for a text in octets that arrive piece by piece.

/// Knuth–Morris–Pratt, case-insensitive in ASCII: keeps no octet of what has
/// passed, and no text makes it slow.
#[derive(Debug)]
pub(super) struct Search<'a> {
    text: &'a [u8],
    /// For each prefix of the text: how much of it is also its own end.
    borders: Vec<usize>,
    /// How much of the text the octets so far end with.
    matched: usize,
}

impl<'a> Search<'a> {
    /// A search for `text`, which isn't empty.
    pub fn new(text: &'a [u8]) -> Search<'a> {
        let mut search = Search { text, borders: Vec::with_capacity(text.len()), matched: 0 };
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
        while !octet.eq_ignore_ascii_case(&self.text[self.matched]) {
            if self.matched == 0 {
                return;
            }
            self.matched = self.borders[self.matched - 1];
        }
        self.matched += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_wherever_the_pieces_are_cut() {
        for (text, body, found) in [
            ("alive", "I am ALIVE!", true),
            ("ALIVE", "alive", true),
            ("aab", "aaab", true),
            ("abab", "abaabab", true),
            ("abcabd", "abcabcabd", true),
            ("a", "bcA", true),
            ("a.ive", "alive", false),
            ("alive", "aliv", false),
            ("alive", "", false),
            ("Zdraví", "zDRAVí", true),
            ("Zdraví", "zDRAVÍ", false),
        ] {
            let body = body.as_bytes();
            for cut in 0..=body.len() {
                let mut search = Search::new(text.as_bytes());
                let seen = search.feed(&body[..cut]) || search.feed(&body[cut..]);
                assert_eq!(seen, found, "{text} in {body:?} cut at {cut}");
            }
        }
    }
}
