//! Lints allowed by a comment: `# hale: allow long_ttl` on the line that is
//! meant, or on lines of comments directly above it; `;` in a master file.

use super::place::{Gather, Source, Span};
use super::problem::ProblemKind;
use super::words;

/// What such a comment begins with.
const MARK: &str = "hale: allow ";

/// Whether the lint `id` is allowed at a line.
pub fn at(source: &Source, line: usize, id: &str) -> bool {
    let mark = source.comment;
    let allows = |line: usize| allowed(source.line(line), mark).any(|(allowed, _)| allowed == id);
    let above = (1..line).rev().take_while(|line| source.line(*line).trim_start().starts_with(mark));
    allows(line) || above.into_iter().any(allows)
}

/// Records what comments allow and there isn't.
pub fn unknown(gather: &Gather) {
    for (file, source) in gather.sources().iter().enumerate() {
        if !source.text.contains(MARK) {
            continue;
        }
        for (line, number) in source.text.lines().zip(1..) {
            for (id, at) in allowed(line, source.comment).filter(|(id, _)| !ProblemKind::LINTS.contains(id)) {
                let column = line[..at].chars().count() + 1;
                let end_column = column + id.chars().count();
                let span = Span { line: number, column, end_line: number, end_column };
                gather.warn_at(file, span, ProblemKind::UnknownLint { id: id.into() }, words::lint_meant(id));
            }
        }
    }
}

/// The ids that a line's comment allows, with their octets in the line.
fn allowed(line: &str, sign: char) -> impl Iterator<Item = (&str, usize)> {
    let begin = comment(line, sign).unwrap_or(line.len());
    let marked = line[begin..].trim_start_matches(sign).trim_start();
    let ids = marked.strip_prefix(MARK).unwrap_or_default();
    let separate = |c: char| c == ',' || c.is_whitespace();
    ids.split(separate)
        .filter(|id| !id.is_empty())
        .map(|id| (id, id.as_ptr() as usize - line.as_ptr() as usize))
}

/// Where a line's comment with the mark begins: at its `#`, or `;` in a master
/// file, which begins the line or stands behind a space.
fn comment(line: &str, sign: char) -> Option<usize> {
    let mark = line.rfind(MARK)?;
    let begin = line[..mark].trim_end().trim_end_matches(sign).len();
    let before = line[..begin].chars().next_back();
    (line[begin..].starts_with(sign) && before.is_none_or(char::is_whitespace)).then_some(begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_allows_lints_at_its_line_or_below_it() {
        let text = "a: 1 # hale: allow one, two\nb: 2\n# because\n#hale: allow three\n  # hale: allow four\nc: 3\n\
                    d: \"x# hale: allow five\"\ne: 1 # see # hale: allow six\n";
        let source = Source::new("a.yaml".into(), text.into());
        for (line, id, is_allowed) in [
            (1, "one", true),
            (1, "two", true),
            (1, "three", false),
            (2, "one", false),
            (6, "three", true),
            (6, "four", true),
            (7, "four", false),
            (7, "five", false),
            (8, "six", true),
            (0, "one", false),
        ] {
            assert_eq!(at(&source, line, id), is_allowed, "line {line}, {id}");
        }
    }
}
