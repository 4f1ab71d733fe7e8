//! Colours and marks: what a terminal without colours or without Unicode shows says the same.

use crate::terminal::is_invisible;
use crate::terminal::live::Look;
use corewise_core::top::History;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Plain,
    Title,
    Heading,
    Quiet,
    Keys,
    Busy,
    Intensive,
    Selected,
}

impl Look {
    /// Returns the style of a piece of text. Colours only repeat what words and marks say.
    pub fn style(&self, role: Role) -> Style {
        let (color, modifier) = match role {
            Role::Plain => (Color::Reset, Modifier::empty()),
            Role::Title => (Color::Reset, Modifier::BOLD),
            Role::Heading => (Color::Cyan, Modifier::BOLD),
            Role::Quiet => (Color::Reset, Modifier::DIM),
            Role::Keys | Role::Selected => (Color::Reset, Modifier::REVERSED),
            Role::Busy => (Color::Green, Modifier::empty()),
            Role::Intensive => (Color::Yellow, Modifier::empty()),
        };
        let style = Style::new().add_modifier(modifier);
        if self.colors { style.fg(color) } else { style }
    }

    /// Returns the mark of what is not known.
    pub fn unknown(&self) -> &'static str {
        if self.unicode { "—" } else { "?" }
    }

    /// Returns the mark of a PE that cannot be used.
    pub fn unusable(&self) -> char {
        if self.unicode { '×' } else { 'x' }
    }

    /// Returns a number, or the mark of what is not known.
    pub fn number(&self, value: Option<f64>, decimals: usize) -> String {
        value.map_or_else(|| self.unknown().to_owned(), |value| format!("{value:.decimals$}"))
    }

    /// Returns one mark for a share, 0..1: a space only for nothing at all.
    pub fn level(&self, share: f64) -> char {
        let marks: &[char] = match self.unicode {
            true => &[' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
            false => &[' ', '.', ':', '-', '=', '+', '*', '#', '@'],
        };
        let steps = (marks.len() - 1) as f64;
        marks[if share > 0.0 { (share.min(1.0) * steps).round().max(1.0) as usize } else { 0 }]
    }

    /// Returns the last values of a figure, one mark each, the latest at the right end.
    pub fn history(&self, history: &History, largest: f64, width: usize) -> String {
        let values = history.last(width);
        let padding = " ".repeat(width - values.len());
        padding + &values.map(|value| self.level(value / largest.max(f64::MIN_POSITIVE))).collect::<String>()
    }

    /// Returns a share, 0..1, as a bar.
    pub fn bar(&self, share: f64, width: usize) -> String {
        let (full, rest) = if self.unicode { ('█', '·') } else { ('#', '.') };
        let count = (share.clamp(0.0, 1.0) * width as f64).round() as usize;
        (0..width).map(|at| if at < count { full } else { rest }).collect()
    }

    /// Returns the marks of the first, the middle and the last of what belongs together.
    pub fn brackets(&self) -> [char; 3] {
        if self.unicode { ['┌', '│', '└'] } else { ['/', '|', '\\'] }
    }
}

/// Returns the text in exactly this many columns, cut or filled up. What could control a terminal is left
/// out.
pub fn fit(text: &str, width: usize) -> String {
    let (mut fitted, mut used) = (String::new(), 0);
    for c in text.chars().filter(|c| !is_invisible(*c)) {
        let columns = Span::raw(c.to_string()).width();
        if used + columns > width {
            break;
        }
        fitted.push(c);
        used += columns;
    }
    fitted + &" ".repeat(width - used)
}

/// The same at the right end of the columns. A number that is too long loses its end.
pub fn fit_right(text: &str, width: usize) -> String {
    let used = Span::raw(text).width();
    if used >= width { fit(text, width) } else { " ".repeat(width - used) + text }
}

/// Returns the text in lines of at most this many columns; all have the indentation of the text.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let indent = " ".repeat((text.len() - text.trim_start().len()).min(width / 2));
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is always a line");
        let columns = Span::raw(last.as_str()).width() + 1 + Span::raw(word).width();
        if last.is_empty() || columns > width {
            if !last.is_empty() {
                lines.push(String::new());
            }
            let last = lines.last_mut().expect("one was added");
            *last = format!("{indent}{word}");
        } else {
            last.push(' ');
            last.push_str(word);
        }
    }
    lines
}
