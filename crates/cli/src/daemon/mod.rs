//! The daemon: it watches and places the programs of a machine or a user, and tells about them.
//!
//! Problem. BulldOver was a daemon: programs are placed although nobody types a prefix, and whoever wants can
//! ask what was done (BulldOver §IV). Approach. The same loop and engine as for a command, around all
//! processes instead of one. The loop has one thread: clients of the [`socket`] have their turn in it as an
//! onlooker of the world, and [`interface`] answers from the [`Top`] that the loop keeps up to date. So no
//! lock can be held and no state can be half new; in return each turn does a bounded amount of work.
//!
//! Which policy places a program, and whether it is placed at all, is in the rules ([`consent`]).

pub mod client;
pub mod consent;
mod interface;
mod power;
mod reserved;
mod socket;

use anyhow::Result;
use consent::Consents;
use corewise_core::engine::Engine;
use corewise_core::observe::Input;
use corewise_core::plan::Action;
use corewise_core::report::Sources;
use corewise_core::top::Top;
use corewise_live::Onlooker;
use socket::Socket;
use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The socket of the machine's daemon, which root runs.
pub const OF_MACHINE: &str = "/run/corewise.socket";

/// Returns where the daemon of this user has its socket: that of root is the machine's.
pub fn socket_of_user() -> Result<PathBuf, String> {
    if nix::unistd::geteuid().is_root() {
        return Ok(OF_MACHINE.into());
    }
    let directory = corewise_binding::runtime_directory::Directory::to_write()?;
    Ok(directory.path().join("daemon.socket"))
}

/// What the daemon knows.
pub struct Known {
    /// The present state.
    pub top: Top,
    /// The sources in use.
    pub sources: Sources,
    /// What those who ask should know.
    pub notes: Vec<String>,
    /// The rules.
    pub consents: Rc<RefCell<Consents>>,
    /// Since when it runs.
    began: Instant,
}

/// What is known, as the loop updates it and clients are told it.
pub struct Daemon {
    known: Known,
    socket: Socket,
}

impl Daemon {
    /// Opens the socket.
    pub fn open(
        path: &Path,
        consents: Rc<RefCell<Consents>>,
        sources: Sources,
        notes: Vec<String>,
    ) -> Result<Rc<RefCell<Daemon>>> {
        let known = Known { top: Top::default(), sources, notes, consents, began: Instant::now() };
        Ok(Rc::new(RefCell::new(Daemon { known, socket: Socket::bind(path)? })))
    }

    /// Takes in one round of the loop, and tells it those who follow.
    pub fn take(&mut self, input: &Input, actions: &[Action], engine: &Engine) {
        self.known.top.take(input, actions, engine);
        if input.observation().is_some() {
            let known = &self.known;
            self.socket.tell_followers(|peer| interface::status(known, peer, true));
        }
    }
}

/// The socket's turns in the loop.
pub struct Clients {
    daemon: Rc<RefCell<Daemon>>,
    descriptor: OwnedFd,
}

impl Clients {
    /// Creates it.
    pub fn of(daemon: Rc<RefCell<Daemon>>) -> Result<Clients> {
        let descriptor = daemon.borrow().socket.descriptor()?;
        Ok(Clients { daemon, descriptor })
    }
}

impl Onlooker for Clients {
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.descriptor.as_fd())
    }

    fn due_within(&self) -> Option<Duration> {
        None
    }

    fn take_turn(&mut self) -> bool {
        let Daemon { known, socket } = &mut *self.daemon.borrow_mut();
        socket.take_turn(|request, peer| interface::answer(known, request, peer));
        false
    }
}
