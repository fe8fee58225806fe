//! Columns of text, with colours for those who see them.

/// A colour of a terminal's own palette.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    Plain,
    Good,
    Doubtful,
    Bad,
    Faint,
}

/// One cell.
#[derive(Clone, Debug)]
pub struct Cell {
    pub text: String,
    pub colour: Colour,
}

impl Cell {
    pub fn new(text: impl Into<String>, colour: Colour) -> Cell {
        Cell { text: text.into(), colour }
    }

    pub fn plain(text: impl Into<String>) -> Cell {
        Cell::new(text, Colour::Plain)
    }
}

/// Text in a colour, if colours are wanted.
pub fn paint(text: &str, colour: Colour, colours: bool) -> String {
    let code = match colour {
        Colour::Plain => return text.to_owned(),
        Colour::Good => 32,
        Colour::Doubtful => 33,
        Colour::Bad => 31,
        Colour::Faint => 2,
    };
    if colours && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Rows below a head, two spaces between columns. A column in which nothing
/// stands is left out; what doesn't fit into `columns` is cut off.
pub fn table(head: &[&str], rows: &[Vec<Cell>], colours: bool, columns: Option<usize>) -> String {
    let width = |text: &str| text.chars().count();
    let column = |n: usize| rows.iter().map(move |row| width(&row[n].text)).max().unwrap_or_default();
    let widths: Vec<(usize, usize)> =
        (0..head.len()).filter(|n| column(*n) > 0).map(|n| (n, column(n).max(width(head[n])))).collect();
    let line = |cell: &dyn Fn(usize) -> Cell| {
        let mut left = columns.unwrap_or(usize::MAX);
        let mut line = String::new();
        for (place, (n, width_of)) in widths.iter().enumerate() {
            let Cell { text, colour } = cell(*n);
            let text = cut(&text, left);
            left = left.saturating_sub(width_of + 2);
            line += &paint(&text, colour, colours);
            if place + 1 < widths.len() {
                line += &" ".repeat(width_of + 2 - width(&text).min(*width_of));
            }
        }
        line.trim_end().to_owned() + "\n"
    };
    let mut out = line(&|n| Cell::new(head[n], Colour::Faint));
    for row in rows {
        out += &line(&|n| row[n].clone());
    }
    out
}

/// At most so many letters.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut kept: String = text.chars().take(most.saturating_sub(1)).collect();
    if most > 0 {
        kept.push('…');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other_and_empty_ones_are_left_out() {
        let row = |cells: [&str; 3]| cells.map(Cell::plain).to_vec();
        let rows = [row(["a", "", "long words"]), row(["bcdé", "", "x"])];
        assert_eq!(
            table(&["H", "EMPTY", "WHY"], &rows, false, None),
            "H     WHY\na     long words\nbcdé  x\n"
        );
        assert_eq!(table(&["H", "EMPTY", "WHY"], &rows, false, Some(10)), "H     WHY\na     lon…\nbcdé  x\n");
    }

    #[test]
    fn colours_take_no_room() {
        let rows = [vec![Cell::new("up", Colour::Good), Cell::plain("x")]];
        assert_eq!(
            table(&["A", "B"], &rows, true, None),
            "\x1b[2mA\x1b[0m   \x1b[2mB\x1b[0m\n\x1b[32mup\x1b[0m  x\n"
        );
        assert_eq!(paint("up", Colour::Good, false), "up");
    }
}
