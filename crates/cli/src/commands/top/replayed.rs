//! A recording that is shown at its own speed, or another one.
//!
//! The recorded world never waits. Here the loop's observer waits before each input until its time has come;
//! meanwhile the display is shown. When it is over, the world is finished.

use super::display::Shared;
use anyhow::{Context, Result};
use corewise_core::machine_model::MachineModel;
use corewise_core::observe::{EventKind, Observation};
use corewise_core::plan::Action;
use corewise_core::recording::RecordedWorld;
use corewise_core::time::Time;
use corewise_core::world::{Look, Wake, World};
use corewise_sys::signals::Signals;
use nix::poll::{PollFd, PollFlags, ppoll};
use std::cell::RefCell;
use std::convert::Infallible;
use std::io::stdin;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How often a display that plays on looks whether its speed has changed.
const TICK: Duration = Duration::from_millis(100);

/// A recording that ends when its display does.
pub struct Played {
    world: RecordedWorld,
    clock: Rc<RefCell<Clock>>,
}

/// The time that is shown.
pub struct Clock {
    display: Shared,
    signals: Signals,
    /// How far the recording has been played, in seconds of its own.
    played: f64,
    looked: Instant,
    is_asked_to_end: bool,
}

impl Played {
    /// Begins at the start of the recording.
    pub fn new(world: RecordedWorld, display: Shared) -> Result<Played> {
        let signals = Signals::open().context("cannot take over the signals")?;
        let clock = Clock { display, signals, played: 0.0, looked: Instant::now(), is_asked_to_end: false };
        Ok(Played { world, clock: Rc::new(RefCell::new(clock)) })
    }

    /// Returns the clock.
    pub fn clock(&self) -> Rc<RefCell<Clock>> {
        Rc::clone(&self.clock)
    }
}

impl Clock {
    fn is_over(&self) -> bool {
        self.is_asked_to_end || self.display.borrow().is_over()
    }

    /// Plays until this time of the recording.
    pub fn play_until(&mut self, at: Time) {
        while self.played < at.as_secs_f64() && !self.is_over() {
            let (speed, is_paused) = {
                let display = self.display.borrow();
                (display.screen().speed(), display.screen().is_paused)
            };
            let left = Duration::from_secs_f64((at.as_secs_f64() - self.played) / speed);
            self.wait(if is_paused { TICK } else { left.min(TICK) });
            let passed = self.looked.elapsed().as_secs_f64();
            self.looked = Instant::now();
            self.played += if is_paused { 0.0 } else { passed * speed };
        }
    }

    /// Shows the end until the user has seen enough.
    pub fn play_on(&mut self) {
        while !self.is_over() {
            self.wait(TICK);
        }
    }

    /// Shows the display, and waits for a key, a signal, or so long.
    fn wait(&mut self, most: Duration) {
        if self.display.borrow_mut().serve() {
            return;
        }
        let due = self.display.borrow().due_within().map_or(most, |due| due.min(most));
        let input = stdin();
        let mut descriptors = [input.as_fd(), self.signals.fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        // Nothing is lost if it ends early.
        let _ = ppoll(&mut descriptors, Some(due.into()), None);
        self.is_asked_to_end |= self.signals.take_signals(None).unwrap_or(true);
    }
}

impl World for Played {
    type Error = Infallible;

    fn now(&self) -> Time {
        self.world.now()
    }

    fn observe(&mut self) -> Result<Observation, Infallible> {
        self.world.observe()
    }

    fn apply(&mut self, actions: &[Action]) {
        self.world.apply(actions);
    }

    fn subscribe(&mut self, kinds: &[EventKind]) {
        self.world.subscribe(kinds);
    }

    fn tune(&mut self, look: Look) {
        self.world.tune(look);
    }

    fn better_machine(&mut self) -> Option<MachineModel> {
        self.world.better_machine()
    }

    fn wait_until(&mut self, deadline: Time) -> Result<Wake, Infallible> {
        let wake = self.world.wait_until(deadline)?;
        Ok(if self.clock.borrow().is_over() { Wake::Finished } else { wake })
    }
}
