//! The display on a terminal: it is drawn when there is something new, but not too often.

use super::beside::Beside;
use anyhow::{Context, Error, Result};
use corewise_core::engine::Engine;
use corewise_core::observe::Input;
use corewise_core::plan::Action;
use corewise_core::top::Top;
use corewise_live::{Onlooker, Trees};
use corewise_render::terminal::live::LiveTerminal;
use corewise_render::top::{About, Effect, Screen, draw};
use corewise_sys::signals::stop_by_number;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use std::cell::RefCell;
use std::io::{Stdin, stdin};
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The least time between two drawings: a tenth of a second seems immediate.
const DRAWN_WITHIN: Duration = Duration::from_millis(100);

/// A display that the loop feeds, and that is served in between.
pub type Shared = Rc<RefCell<Display>>;

/// The display.
pub struct Display {
    /// `None` once it is closed.
    terminal: Option<LiveTerminal>,
    top: Top,
    beside: Beside,
    screen: Screen,
    about: About,
    /// Whether there is something new since it was drawn, and when that was.
    is_old: bool,
    drawn: Option<Instant>,
    is_over: bool,
    failure: Option<Error>,
}

impl Display {
    /// Takes the terminal over.
    pub fn open(about: About, beside: Beside) -> Result<Display> {
        let terminal = LiveTerminal::open(&about.look).context("cannot take over the terminal")?;
        Ok(Display {
            terminal: Some(terminal),
            top: Top::default(),
            beside,
            screen: Screen::default(),
            about,
            is_old: true,
            drawn: None,
            is_over: false,
            failure: None,
        })
    }

    /// Takes in one round of the loop, unless it is paused. At the end of a recording nothing lives any more:
    /// what was there before stays to be looked at.
    pub fn take(&mut self, input: &Input, actions: &[Action], engine: &Engine) {
        let is_empty = |input: &Input| {
            input.observation().is_some_and(|observation| observation.threads.iter().all(|t| t.ended))
        };
        if self.screen.is_paused || (self.about.replayed_seconds.is_some() && is_empty(input)) {
            return;
        }
        self.top.take(input, actions, engine);
        if input.observation().is_some() {
            self.beside.ask(&mut self.top);
            self.is_old = true;
        }
    }

    /// Returns what the user has chosen.
    pub fn screen(&self) -> &Screen {
        &self.screen
    }

    /// Returns whether the user wants to end, or the terminal is gone.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the time until it is to be drawn.
    pub fn due_within(&self) -> Option<Duration> {
        let since = self.drawn.map_or(DRAWN_WITHIN, |drawn| drawn.elapsed());
        self.is_old.then(|| DRAWN_WITHIN.saturating_sub(since))
    }

    /// Takes in keys, and draws if that is due. Returns whether it is over.
    pub fn serve(&mut self) -> bool {
        if let Err(error) = self.try_serve() {
            self.failure.get_or_insert(error);
            self.is_over = true;
        }
        self.is_over
    }

    fn try_serve(&mut self) -> Result<()> {
        let Some(mut terminal) = self.terminal.take() else { return Ok(()) };
        let result = self.show_on(&mut terminal);
        self.terminal = Some(terminal);
        result
    }

    fn show_on(&mut self, terminal: &mut LiveTerminal) -> Result<()> {
        let mut keys = Vec::new();
        while is_readable(terminal) {
            keys.extend(terminal.keys().context("cannot read keys")?);
        }
        for key in keys {
            match self.screen.press(key, &self.top) {
                Effect::Draw => {}
                Effect::Quit => self.is_over = true,
                Effect::Stop => {
                    // Where nobody could continue it, it goes on.
                    let stop = || stop_by_number(Signal::SIGTSTP as i32);
                    terminal.leave_during(stop).context("cannot take the terminal over again")?;
                }
            }
            self.is_old = true;
        }
        self.is_old |= terminal.is_resized();
        let is_due = self.drawn.is_none_or(|drawn| drawn.elapsed() >= DRAWN_WITHIN);
        if self.is_old && is_due {
            let Display { top, screen, about, .. } = &*self;
            terminal.draw(|frame| draw(frame, top, screen, about)).context("cannot draw")?;
            (self.is_old, self.drawn) = (false, Some(Instant::now()));
        }
        Ok(())
    }

    /// Gives the terminal back; returns what went wrong.
    pub fn close(&mut self) -> Option<Error> {
        self.terminal = None;
        self.failure.take()
    }
}

/// Returns whether there are keys, or the terminal is gone.
fn is_readable(terminal: &LiveTerminal) -> bool {
    let mut descriptors = [PollFd::new(terminal.fd(), PollFlags::POLLIN)];
    poll(&mut descriptors, PollTimeout::ZERO).is_ok_and(|count| count > 0)
}

/// The display as an onlooker of the live world.
pub struct Looker {
    display: Shared,
    input: Stdin,
}

impl Looker {
    /// Creates it.
    pub fn new(display: Shared) -> Looker {
        Looker { display, input: stdin() }
    }
}

impl Onlooker for Looker {
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.input.as_fd())
    }

    fn due_within(&self) -> Option<Duration> {
        self.display.borrow().due_within()
    }

    fn serve(&mut self, _: &mut dyn Trees) -> bool {
        self.display.borrow_mut().serve()
    }
}
