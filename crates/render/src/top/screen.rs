//! What the user has chosen, and what each key changes.

use super::rows::{self, Sort, position};
use crate::terminal::keys::Key;
use corewise_core::ids::{AppId, ThreadId};
use corewise_core::top::Top;

/// The rows or lines that a page has, for the keys that turn one.
const PAGE_LINES: usize = 10;

/// The fastest and the slowest replay, as powers of two.
const SPEEDS: std::ops::RangeInclusive<i32> = -4..=10;

/// What a key asks of the caller of the display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Draw again.
    Draw,
    /// End.
    Quit,
    /// Stop, as Ctrl-Z does everywhere.
    Stop,
}

/// What the middle of the screen shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Page {
    /// PEs, programs and threads.
    #[default]
    Machine,
    /// What the marks and keys mean.
    Help,
    /// Everything about the chosen thread or program.
    Explanation,
}

/// In which table a row is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Focus {
    /// That of threads.
    #[default]
    Threads,
    /// That of applications.
    Applications,
}

/// What the user has chosen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Screen {
    /// What the middle shows.
    pub page: Page,
    /// In which table a row is chosen.
    pub focus: Focus,
    /// The chosen thread; `None` for the first one.
    pub thread: Option<ThreadId>,
    /// The chosen application; `None` for the first one.
    pub app: Option<AppId>,
    /// The order of rows.
    pub sort: Sort,
    /// Only rows with this in a name are shown, in upper or lower case.
    pub filter: String,
    /// Whether the keys are characters of the filter.
    pub is_typing: bool,
    /// Whether nothing new is shown.
    pub is_paused: bool,
    /// The lines of a text that have been scrolled away.
    pub scroll: usize,
    /// The speed of a replay as a power of two.
    pub speed_log2: i32,
    /// Whether nobody can press a key: no keys are shown, and everything is.
    pub is_still: bool,
}

impl Screen {
    /// Takes in a key.
    pub fn press(&mut self, key: Key, top: &Top) -> Effect {
        match key {
            Key::Control('c') => return Effect::Quit,
            Key::Control('z') => return Effect::Stop,
            _ if self.is_typing => self.type_in(key),
            Key::Char('q') => return Effect::Quit,
            _ => match self.page {
                Page::Machine => self.press_on_machine(key, top),
                Page::Help | Page::Explanation => self.press_on_text(key),
            },
        }
        Effect::Draw
    }

    /// Returns the threads that are shown, in order.
    pub fn thread_rows(&self, top: &Top) -> Vec<ThreadId> {
        rows::threads(top, &self.filter, self.sort)
    }

    /// Returns the applications that are shown, in order.
    pub fn app_rows(&self, top: &Top) -> Vec<AppId> {
        rows::applications(top, &self.filter, self.sort)
    }

    /// Returns the speed of a replay.
    pub fn speed(&self) -> f64 {
        f64::from(self.speed_log2).exp2()
    }

    fn type_in(&mut self, key: Key) {
        match key {
            Key::Char(c) => self.filter.push(c),
            Key::Backspace => drop(self.filter.pop()),
            Key::Enter => self.is_typing = false,
            Key::Escape => {
                self.filter.clear();
                self.is_typing = false;
            }
            _ => {}
        }
    }

    fn press_on_text(&mut self, key: Key) {
        match key {
            Key::Escape | Key::Enter | Key::Backspace | Key::Char('?') => self.page = Page::Machine,
            Key::Up | Key::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            Key::Down | Key::Char('j') => self.scroll += 1,
            Key::PageUp => self.scroll = self.scroll.saturating_sub(PAGE_LINES),
            Key::PageDown | Key::Char(' ') => self.scroll += PAGE_LINES,
            Key::Home => self.scroll = 0,
            _ => {}
        }
    }

    fn press_on_machine(&mut self, key: Key, top: &Top) {
        match key {
            Key::Char('?') | Key::Char('h') => self.open(Page::Help),
            Key::Enter => self.open(Page::Explanation),
            Key::Escape => self.filter.clear(),
            Key::Char('/') => self.is_typing = true,
            Key::Char('s') => self.sort = self.sort.next(1),
            Key::Char('S') => self.sort = self.sort.next(Sort::ALL.len() - 1),
            Key::Char(' ') | Key::Char('p') => self.is_paused = !self.is_paused,
            Key::Char('+') => self.speed_log2 = (self.speed_log2 + 1).min(*SPEEDS.end()),
            Key::Char('-') => self.speed_log2 = (self.speed_log2 - 1).max(*SPEEDS.start()),
            Key::Tab => {
                self.focus = match self.focus {
                    Focus::Threads => Focus::Applications,
                    Focus::Applications => Focus::Threads,
                }
            }
            Key::Up | Key::Char('k') => self.choose(top, |at, _| at.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.choose(top, |at, _| at + 1),
            Key::PageUp => self.choose(top, |at, _| at.saturating_sub(PAGE_LINES)),
            Key::PageDown => self.choose(top, |at, _| at + PAGE_LINES),
            Key::Home => self.choose(top, |_, _| 0),
            Key::End => self.choose(top, |_, last| last),
            Key::Char(_) | Key::Control(_) | Key::Backspace => {}
        }
    }

    fn open(&mut self, page: Page) {
        (self.page, self.scroll) = (page, 0);
    }

    /// Chooses another row, given the present one and the last one.
    fn choose(&mut self, top: &Top, to: impl Fn(usize, usize) -> usize) {
        match self.focus {
            Focus::Threads => self.thread = chosen(&self.thread_rows(top), self.thread, to),
            Focus::Applications => self.app = chosen(&self.app_rows(top), self.app, to),
        }
    }
}

fn chosen<T: Copy + PartialEq>(rows: &[T], now: Option<T>, to: impl Fn(usize, usize) -> usize) -> Option<T> {
    let last = rows.len().checked_sub(1)?;
    rows.get(to(position(rows, now), last).min(last)).copied()
}
