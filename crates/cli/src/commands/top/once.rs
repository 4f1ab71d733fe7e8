//! One screen as text, for scripts.

use super::beside::Beside;
use corewise_core::engine::Engine;
use corewise_core::observe::Input;
use corewise_core::plan::Action;
use corewise_core::top::Top;
use corewise_live::{Onlooker, Trees};
use corewise_render::terminal::live;
use corewise_render::top::{About, Screen, text};
use std::cell::{Cell, RefCell};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

/// The columns of one screen as text where no terminal tells them.
const COLUMNS: u16 = 120;

/// What sees each round of the loop.
type See = dyn FnMut(&Input, &[Action], &Engine);

/// Ends the world after the first observation.
pub struct Once(Rc<Cell<bool>>);

impl Once {
    /// Creates it, with what writes the first observation to `shown`.
    pub fn begin(
        about: About,
        shown: Rc<RefCell<String>>,
        mut beside: Beside,
    ) -> (Box<dyn Onlooker>, Box<See>) {
        let is_over = Rc::new(Cell::new(false));
        let (once, mut top) = (Once(Rc::clone(&is_over)), Top::default());
        let see = move |input: &Input, actions: &[Action], engine: &Engine| {
            if is_over.get() {
                return;
            }
            top.take(input, actions, engine);
            if input.observation().is_some() {
                beside.ask(&mut top);
                *shown.borrow_mut() = print(&top, &about);
                is_over.set(true);
            }
        };
        (Box::new(once), Box::new(see))
    }
}

impl Onlooker for Once {
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn due_within(&self) -> Option<Duration> {
        None
    }

    fn serve(&mut self, _: &mut dyn Trees) -> bool {
        self.0.get()
    }
}

/// The last observation of a recording in which anything lives.
#[derive(Default)]
pub struct Last {
    top: Top,
    last: Top,
}

impl Last {
    /// Takes in one round of the loop.
    pub fn take(&mut self, input: &Input, actions: &[Action], engine: &Engine) {
        self.top.take(input, actions, engine);
        if input.observation().is_some() && !self.top.threads.is_empty() {
            self.last = self.top.clone();
        }
    }

    /// Returns it as text.
    pub fn text(&self, about: &About) -> String {
        print(&self.last, about)
    }
}

fn print(top: &Top, about: &About) -> String {
    text(top, &Screen::default(), about, live::columns().unwrap_or(COLUMNS))
}
