//! Tables as text: columns as wide as their widest cell, and a last column that fits the rest of the line.

use super::names::{shorten, wrap};
use anstyle::Style;
use std::io::{self, Write};

/// No style at all.
pub(crate) const PLAIN: Style = Style::new();

/// Where a column's text stands in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// What happens to a last column that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    /// It holds names: their least telling parts are left out.
    Names,
    /// It holds sentences: they go on in the next line.
    Text,
}

/// The least that a last column gets, however narrow the line is.
const LEAST: usize = 24;

/// One cell.
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell { text, style: PLAIN }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<(String, Style)> for Cell {
    fn from((text, style): (String, Style)) -> Self {
        Cell { text, style }
    }
}

/// Columns as wide as their widest cell, two blanks apart, indented by two.
pub(crate) struct Table {
    columns: Vec<Align>,
    rows: Vec<Vec<Cell>>,
    last: Last,
}

impl Table {
    /// A table with these headings.
    pub(crate) fn new(columns: &[(&str, Align)], last: Last) -> Self {
        let heads = columns.iter().map(|(name, _)| (*name).into()).collect();
        Table { columns: columns.iter().map(|(_, align)| *align).collect(), rows: vec![heads], last }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        self.rows.push(cells.into());
    }

    /// Writes it in lines of `width` characters, if that is limited.
    pub(crate) fn write(&self, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
        let widest = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(widest).collect();
        let before_last: usize = widths.split_last().map_or(0, |(_, before)| before.iter().map(|width| width + 2).sum::<usize>()) + 2;
        let room = width.map(|width| width.saturating_sub(before_last).max(LEAST));
        for row in &self.rows {
            // Blanks wait for the next cell that has text, so that no line ends in some.
            let mut blanks = 2;
            for (index, ((cell, align), width)) in row.iter().zip(&self.columns).zip(&widths).enumerate() {
                let Cell { text, style } = cell;
                let is_last = index + 1 == self.columns.len();
                let lines = match room.filter(|_| is_last) {
                    None => vec![text.clone()],
                    Some(room) if self.last == Last::Names => vec![shorten(text, room)],
                    Some(room) => wrap(text, room),
                };
                for (line, text) in lines.iter().enumerate() {
                    if line > 0 {
                        writeln!(out)?;
                        blanks = before_last;
                    }
                    let padding = width.saturating_sub(text.chars().count());
                    let (before, after) = if *align == Align::Right { (padding, 0) } else { (0, padding) };
                    blanks += before;
                    if !text.is_empty() {
                        write!(out, "{:blanks$}{style}{text}{style:#}", "")?;
                        blanks = 0;
                    }
                    blanks += after + 2;
                }
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Align::{Left, Right};
    use super::*;

    fn text(table: &Table, width: Option<usize>) -> String {
        let mut out = Vec::new();
        table.write(width, &mut out).expect("write");
        String::from_utf8(out).expect("utf-8")
    }

    #[test]
    fn the_last_column_fits_the_line() {
        let mut names = Table::new(&[("N", Right), ("NAME", Left)], Last::Names);
        names.row(["10".into(), "a_name_of_more_than_thirty_characters".into()]);
        assert_eq!(text(&names, None), "   N  NAME\n  10  a_name_of_more_than_thirty_characters\n");
        assert_eq!(text(&names, Some(36)), "   N  NAME\n  10  a_name_of_more_th...characters\n");
        let mut notes = Table::new(&[("N", Right), ("", Left)], Last::Text);
        notes.row(["1".into(), "some words that need more than one line".into()]);
        notes.row(["2".into(), "".into()]);
        assert_eq!(text(&notes, Some(30)), "  N\n  1  some words that need more\n     than one line\n  2\n");
    }
}
