//! The guardian: a small process that gives every mask back when corewise dies without doing so itself.
//!
//! corewise writes each change to a pipe before it makes it. When the pipe closes without the word that all
//! is given back, corewise was killed, and the guardian restores what its book says. It lives in a session of
//! its own, out of reach of the terminal's signals, and is a child of nobody in the application, so it is
//! neither followed nor waited for.

use super::affinity::{self, ActToken};
use super::ledger::{Entry, Ledger};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, Command, Stdio};

/// The hidden subcommand under which the binary runs as guardian.
pub const SUBCOMMAND: &str = "guardian";

/// The writing end of the guardian's pipe.
#[derive(Debug)]
pub struct Guardian {
    pipe: ChildStdin,
}

impl Guardian {
    /// Starts this binary as guardian. Call it before corewise becomes a child subreaper, so that the
    /// guardian's orphaned process is not adopted.
    pub fn start() -> std::io::Result<Guardian> {
        let mut starter = Command::new("/proc/self/exe")
            .arg(SUBCOMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .current_dir("/")
            .spawn()?;
        let pipe = starter.stdin.take().expect("standard input was asked to be a pipe");
        let status = starter.wait()?;
        if status.success() {
            Ok(Guardian { pipe })
        } else {
            Err(std::io::Error::other(format!("the guardian did not start: {status}")))
        }
    }

    /// Tells the guardian of a change that is about to be made.
    pub fn tell(&mut self, entry: &Entry) -> std::io::Result<()> {
        self.pipe.write_all(entry.to_line().as_bytes())
    }
}

/// What the guardian process does: detaches itself, keeps the book, and restores if corewise vanishes.
pub fn main() -> std::io::Result<()> {
    // SAFETY: this process has one thread, so the child may use everything that the parent could.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Parent { .. } => return Ok(()),
        nix::unistd::ForkResult::Child => nix::unistd::setsid()?,
    };
    ignore_polite_signals()?;
    let mut ledger = keep_book(std::io::stdin())?;
    ledger.restore(&ActToken::mint(), &affinity::get(0)?)
}

fn keep_book(pipe: impl Read) -> std::io::Result<Ledger> {
    let mut ledger = Ledger::default();
    for line in BufReader::new(pipe).lines() {
        if let Some(entry) = Entry::parse(&line?) {
            ledger.note(entry);
        }
    }
    Ok(ledger)
}

/// Whoever stops corewise with a signal to all its processes must not stop the one that tidies up.
fn ignore_polite_signals() -> std::io::Result<()> {
    use nix::sys::signal::{SigHandler, Signal, signal};
    for polite in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        // SAFETY: ignoring a signal installs no handler that could run.
        unsafe { signal(polite, SigHandler::SigIgn) }?;
    }
    Ok(())
}
