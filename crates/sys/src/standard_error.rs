//! Standard error: what corewise says, without ever waiting for a reader while it holds something.
//!
//! Problem: who reads may stop reading (`corewise daemon 2>&1 | less`, Ctrl-S, a logger that hangs). A write
//! then waits for ever, with every signal blocked, and whatever is changed stays changed. `O_NONBLOCK` is no
//! way out: it would hold for all who share the open file. Approach: what is said goes into a buffer of
//! [`ROOM`], and from there as much to standard error as it takes at once. A pipe or terminal is opened anew
//! for that, as a file of our own that never waits; where this is not permitted, it is asked whether it takes
//! [`PIPE_BUF`] bytes. A socket is asked not to wait. The loop writes the rest later ([`flush`]). A message
//! that finds no room is left out and counted, and the next one that finds room says how many there were.
//!
//! Nothing waits from the moment at which signals are taken over ([`crate::signals`]) until they have their
//! effect again: then a signal ends a write that waits, and what is said arrives however slow the reader is.
//!
//! Limits: a file is written as ever: only a disk or a server that hangs delays that. Between asking a pipe
//! and writing to it, another writer may fill it.

use crate::proc::Proc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};
use nix::sys::stat::{SFlag, fstat};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How much may wait for a reader: some hundred lines, more than a daemon writes in a minute.
const ROOM: usize = 64 << 10;

/// What a pipe takes as a whole if it takes anything.
const PIPE_BUF: usize = libc::PIPE_BUF;

/// When to try again to write what is left: a reader notices no delay.
const AGAIN: Duration = Duration::from_millis(100);

/// How long the end waits for a reader if nothing may wait: one that reads at all needs less.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

static SAID: Mutex<Said> = Mutex::new(Said { rest: Vec::new(), missing: 0, left_out: 0, hurried: 0 });

/// What was said and not written yet.
struct Said {
    rest: Vec<u8>,
    /// The messages that were left out since the last one that found room.
    missing: u64,
    /// All that were left out.
    left_out: u64,
    /// How many reasons there are not to wait.
    hurried: usize,
}

fn said() -> MutexGuard<'static, Said> {
    SAID.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While one of these exists, nothing that is said waits for a reader.
#[derive(Debug)]
pub struct NeverWait(());

/// From now on nothing that is said waits for a reader.
pub fn never_wait() -> NeverWait {
    said().hurried += 1;
    NeverWait(())
}

impl Drop for NeverWait {
    fn drop(&mut self) {
        said().hurried -= 1;
    }
}

/// Says a message, which is one or several whole lines. A closed standard error is not an error.
pub fn say(message: &str) {
    let mut said = said();
    if said.hurried == 0 {
        said.write_all();
        let _ = io::stderr().write_all(message.as_bytes());
        return;
    }
    said.write_some();
    said.add(message);
    said.write_some();
}

/// Writes what is left as far as that is possible at once.
pub fn flush() {
    said().write_some();
}

/// Returns the time until [`flush`] is due; `None` if nothing is left.
pub fn due_within() -> Option<Duration> {
    (!said().rest.is_empty()).then_some(AGAIN)
}

/// Returns how many messages were left out, as nobody read them.
pub fn left_out() -> u64 {
    said().left_out
}

/// Writes what is left, and waits for the reader: for a moment only if nothing may wait.
pub fn finish() {
    let mut said = said();
    if said.hurried == 0 {
        return said.write_all();
    }
    let end = Instant::now() + ENDS_WITHIN;
    while !said.rest.is_empty() && Instant::now() < end {
        let stream = io::stderr();
        let mut ready = [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)];
        let _ = poll(&mut ready, PollTimeout::try_from(AGAIN).unwrap_or(PollTimeout::MAX));
        said.write_some();
    }
}

/// Forgets what is left, in a process that was just forked: the other one writes it.
pub fn begin_in_helper() {
    let mut said = said();
    said.rest.clear();
    (said.missing, said.hurried) = (0, said.hurried + 1);
}

impl Said {
    fn add(&mut self, message: &str) {
        let note = match self.missing {
            0 => String::new(),
            missing => format!("corewise: {missing} messages were left out here, as nobody read them\n"),
        };
        if self.rest.len() + note.len() + message.len() > ROOM {
            (self.missing, self.left_out) = (self.missing + 1, self.left_out + 1);
            return;
        }
        self.missing = 0;
        self.rest.extend(note.as_bytes());
        self.rest.extend(message.as_bytes());
    }

    /// Writes what is possible without waiting.
    fn write_some(&mut self) {
        while !self.rest.is_empty() {
            match write_at_once(&self.rest) {
                Ok(written) => drop(self.rest.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Nobody will read it any more.
                Err(_) => self.rest.clear(),
            }
            if self.rest.is_empty() && self.missing > 0 {
                self.add("");
            }
        }
    }

    /// Writes everything, and waits for the reader.
    fn write_all(&mut self) {
        self.write_some();
        // If nobody reads it any more, there is nothing to do.
        let _ = io::stderr().write_all(&std::mem::take(&mut self.rest));
    }
}

/// Writes the beginning of it to standard error, as much as is possible without waiting.
fn write_at_once(bytes: &[u8]) -> io::Result<usize> {
    let stream = io::stderr();
    let mut ready = [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)];
    if poll(&mut ready, PollTimeout::ZERO)? == 0 {
        return Err(ErrorKind::WouldBlock.into());
    }
    let bytes = &bytes[..bytes.len().min(PIPE_BUF)];
    let mode = fstat(stream.as_fd())?.st_mode & SFlag::S_IFMT.bits();
    if mode == SFlag::S_IFSOCK.bits() {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        return Ok(send(stream.as_raw_fd(), bytes, flags)?);
    }
    let waits = mode == SFlag::S_IFIFO.bits() || mode == SFlag::S_IFCHR.bits();
    match waits.then(own_file) {
        Some(Ok(mut own)) => own.write(bytes),
        Some(Err(_)) | None => stream.lock().write(bytes),
    }
}

/// Opens what standard error is as a file of our own that never waits.
fn own_file() -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    File::options().write(true).custom_flags(flags).open(Proc::own().own_file(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::process::{Child, Command, Stdio};

    fn nothing() -> Said {
        Said { rest: Vec::new(), missing: 0, left_out: 0, hurried: 1 }
    }

    #[test]
    fn what_finds_no_room_is_counted_and_the_next_message_says_so() {
        let mut said = nothing();
        let line = format!("{}\n", "x".repeat(999));
        (0..100).for_each(|_| said.add(&line));
        let kept = ROOM / line.len();
        assert_eq!((said.rest.len(), said.missing, said.left_out), (kept * 1000, 35, 35));
        said.rest.clear();
        said.add("next\n");
        let text = String::from_utf8(said.rest.clone()).unwrap();
        assert_eq!(text, "corewise: 35 messages were left out here, as nobody read them\nnext\n");
        assert_eq!((said.missing, said.left_out), (0, 35));
    }

    /// In a process of its own, as standard error is that of all tests.
    #[test]
    fn a_write_that_nobody_reads_does_not_wait() {
        const CHILD: &str = "STANDARD_ERROR_TEST";
        if std::env::var_os(CHILD).is_some() {
            let _never = never_wait();
            (0..1000).for_each(|_| say(&format!("{}\n", "x".repeat(999))));
            assert!(left_out() > 0);
            println!("has said all");
            return finish();
        }
        let start = |log: Stdio| {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "standard_error::tests::a_write_that_nobody_reads_does_not_wait"]);
            child.args(["--nocapture"]).env(CHILD, "1").stdout(Stdio::piped()).stderr(log);
            child.spawn().unwrap()
        };
        let ends = |child: Child| {
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("has said all"), "{said}");
        };
        let (mut reader, writer) = std::io::pipe().unwrap();
        ends(start(writer.into()));
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("xxx") && text.len() < 1_000_000, "{}", text.len());
        let terminal = nix::pty::openpty(None, None).unwrap();
        ends(start(terminal.slave.into()));
        let (_reader, socket) = std::os::unix::net::UnixStream::pair().unwrap();
        ends(start(OwnedFd::from(socket).into()));
    }
}
