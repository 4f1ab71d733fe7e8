//! A terminal that a display has for itself: everything that was on it comes back at the end, also after a
//! panic, and each time the display stops.

use super::keys::{Key, Keyboard};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{execute, style};
use ratatui::layout::Size;
use ratatui::{Frame, Terminal};
use std::fs::File;
use std::io::{Error, ErrorKind, IsTerminal, Read, Result, Stdout, stdin, stdout};
use std::os::fd::{AsFd, BorrowedFd};

/// When output has colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Color {
    /// On a terminal that has them, unless the variable `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Returns what a terminal shows by these variables of the environment (`NO_COLOR`, `TERM`, and the locale:
/// `LC_ALL`, `LC_CTYPE`, `LANG`).
pub fn look(color: Color, variable: impl Fn(&str) -> Option<String>) -> Look {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let is_dumb = set("TERM").is_none_or(|term| term == "dumb");
    let colors = match color {
        Color::Auto => set("NO_COLOR").is_none() && !is_dumb,
        Color::Always => true,
        Color::Never => false,
    };
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
    let locale = locale.to_lowercase();
    // The console of Linux has few of the characters.
    let unicode =
        (locale.contains("utf-8") || locale.contains("utf8")) && set("TERM").as_deref() != Some("linux");
    Look { colors, unicode }
}

/// Returns whether standard input and standard output are a terminal.
pub fn is_there() -> bool {
    stdin().is_terminal() && stdout().is_terminal()
}

/// Returns the columns of the terminal that standard output is, if it is one.
pub fn columns() -> Option<u16> {
    let size = ratatui::crossterm::terminal::size().ok().filter(|_| stdout().is_terminal());
    size.map(|(columns, _)| columns).filter(|columns| *columns > 0)
}

/// What a terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Whether there are colours.
    pub colors: bool,
    /// Whether there are more characters than ASCII's.
    pub unicode: bool,
}

/// The terminal of a display.
pub struct LiveTerminal {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    size: Option<Size>,
    input: File,
    keyboard: Keyboard,
}

impl LiveTerminal {
    /// Takes the terminal over.
    pub fn open(look: &Look) -> Result<LiveTerminal> {
        // Otherwise the library has an opinion of its own.
        style::force_color_output(look.colors);
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        // Not the buffered one: what it has read already, no descriptor tells.
        let input = File::from(stdin().as_fd().try_clone_to_owned()?);
        take_over()?;
        let terminal = Terminal::new(CrosstermBackend::new(stdout())).inspect_err(|_| give_back())?;
        Ok(LiveTerminal { terminal, size: None, input, keyboard: Keyboard::default() })
    }

    /// Returns whether the terminal has another size than when it was drawn.
    pub fn is_resized(&self) -> bool {
        self.terminal.size().ok() != self.size
    }

    /// Lets `draw` draw on the whole terminal, in the size that it has now.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> Result<()> {
        self.size = self.terminal.size().ok();
        self.terminal.draw(draw).map(drop)
    }

    /// Returns the descriptor that is readable when a key was pressed, or the terminal is gone.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.input.as_fd()
    }

    /// Waits for keys and returns them. A terminal that is gone is an error.
    pub fn keys(&mut self) -> Result<Vec<Key>> {
        let mut bytes = [0; 1024];
        match self.input.read(&mut bytes)? {
            0 => Err(Error::new(ErrorKind::UnexpectedEof, "the terminal is gone")),
            length => Ok(self.keyboard.take(&bytes[..length])),
        }
    }

    /// Gives the terminal back while `stop` lasts.
    pub fn leave_during<T>(&mut self, stop: impl FnOnce() -> T) -> Result<()> {
        give_back();
        let _ = stop();
        take_over()?;
        self.terminal.clear()
    }
}

impl Drop for LiveTerminal {
    fn drop(&mut self) {
        give_back();
    }
}

fn take_over() -> Result<()> {
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen).inspect_err(|_: &Error| give_back())
}

/// A terminal that is gone needs nothing.
fn give_back() {
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_and_characters_are_those_that_the_user_and_the_terminal_have() {
        let with = |color, variables: &[(&str, &str)]| {
            let find = |name: &str| variables.iter().find(|(of, _)| *of == name);
            look(color, |name| find(name).map(|(_, value)| (*value).to_owned()))
        };
        let usual = [("TERM", "xterm"), ("LANG", "de_DE.UTF-8")];
        assert_eq!(with(Color::Auto, &usual), Look { colors: true, unicode: true });
        assert_eq!(with(Color::Never, &usual), Look { colors: false, unicode: true });
        let is_colored = |color, more| with(color, &[usual[0], usual[1], more]).colors;
        assert!(!is_colored(Color::Auto, ("NO_COLOR", "1")) && is_colored(Color::Always, ("NO_COLOR", "1")));
        assert!(is_colored(Color::Auto, ("NO_COLOR", "")), "as https://no-color.org has it");
        assert_eq!(with(Color::Auto, &[("TERM", "dumb")]), Look { colors: false, unicode: false });
        assert!(!with(Color::Auto, &[usual[0], usual[1], ("LC_ALL", "C")]).unicode, "LC_ALL wins");
    }
}
