//! The guardian: a small process that restores every mask when corewise dies without doing so itself.
//!
//! corewise writes each change to a file before it makes it ([`super::journal`]) and holds one end of a
//! socket. When that closes without the entry in the journal that everything is restored, corewise was
//! killed, and the guardian restores what the journal lists. Until then it is idle, and corewise never waits
//! for it. It lives in a session of its own, out of reach of the terminal's signals, and is a [`helper`]:
//! neither followed nor waited for. If BPF programs follow the threads, it receives their descriptors: the
//! programs then outlive corewise and know every thread that inherited a mask. The guardian also restores the
//! words that corewise writes into programs' memory ([`Words`]).

use super::journal::{self, Journal};
use super::ledger::{Entry, Ledger};
use super::mask::ActToken;
use super::members::{ByParentage, Members};
use super::restore::{Remains, be_in_time, restore};
use corewise_discovery::followed::Followed;
use corewise_sys::helper;
use corewise_sys::task::Task;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long the guardian tries to restore everything.
const WITHIN: Duration = Duration::from_secs(10);

/// The maximum number of descriptors that are handed over.
const DESCRIPTORS_MAX: usize = 32;

/// The guardian process, and the journal that it reads when corewise has died.
#[derive(Debug)]
pub struct Guardian {
    process: Task,
    socket: UnixStream,
    journal: Journal,
    /// Why changes would not be restored after a crash: nothing more may be bound then.
    failure: Option<String>,
    is_there: bool,
    notes: Vec<String>,
}

impl Guardian {
    /// Starts the guardian. This process must have only one thread.
    pub fn start() -> io::Result<Guardian> {
        let (journal, why_unnamed) = Journal::create()?;
        let (mut socket, theirs) = UnixStream::pair()?;
        let Some(pid) = helper::fork()? else {
            if let Err(error) = serve(theirs, &journal) {
                let _ = writeln!(io::stderr(), "corewise: its guardian process: {error}");
            }
            helper::end()
        };
        // Otherwise it would never be closed.
        drop(theirs);
        // The guardian sends a byte when it has detached itself.
        socket.read_exact(&mut [0])?;
        let process = Task::of(pid.as_raw() as u32)?.ok_or(io::Error::other("the guardian has ended"))?;
        let unnamed =
            |why| format!("{why}: if corewise and its guardian are both killed, what is bound stays bound");
        let notes = why_unnamed.map(unnamed).into_iter().collect();
        Ok(Guardian { process, socket, journal, failure: None, is_there: true, notes })
    }

    /// Returns a guardian for tests that is this process and does nothing.
    #[cfg(test)]
    pub fn idle() -> Guardian {
        let (socket, ear) = UnixStream::pair().unwrap();
        // Keep it open to the end of the test: sending to a closed socket is an error.
        std::mem::forget(ear);
        let journal = Journal::without_name().unwrap();
        Guardian {
            process: Task::own().unwrap(),
            socket,
            journal,
            failure: None,
            is_there: true,
            notes: Vec::new(),
        }
    }

    /// Returns the guardian with a journal that can hold nothing more, for tests.
    #[cfg(test)]
    pub fn without_space(mut self) -> Guardian {
        self.journal.limit = 0;
        self
    }

    /// Returns the guardian's process.
    pub fn process(&self) -> Task {
        self.process
    }

    /// Hands over the kernel's list of the followed threads, if there is one. Without it, the guardian
    /// searches threads that inherited a mask by their parents.
    pub fn hand_over(&mut self, followed: &Followed) {
        let descriptors: Vec<_> = followed.descriptors().map(|fd| fd.as_raw_fd()).collect();
        let message = [ControlMessage::ScmRights(&descriptors)];
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        let sent = sendmsg::<()>(self.socket.as_raw_fd(), &[IoSlice::new(b"!")], &message, flags, None);
        if let Err(errno) = sent {
            self.failure
                .get_or_insert(format!("cannot hand the followed threads over to the guardian: {errno}"));
        }
    }

    /// Returns a handle for entrusting it with words in memory.
    pub fn words(&self) -> io::Result<Words> {
        Ok(Words(self.socket.try_clone()?))
    }

    /// Writes a change that is about to be made into the journal. The ledger has it already.
    pub fn write(&mut self, entry: &Entry, ledger: &Ledger) {
        if let Err(error) = self.journal.write(entry, ledger) {
            let path = self.journal.path().unwrap_or(Path::new("the journal of changes")).display();
            self.failure.get_or_insert(format!("cannot write {path}: {error}"));
        }
    }

    /// Returns why nothing may be bound any more, if so.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Checks that the guardian process exists and is not stopped.
    pub fn look(&mut self) {
        let what = match self.process.state() {
            Ok(Some('T' | 't')) => "stopped",
            Ok(None) => "gone",
            // If `/proc` cannot be read (for want of descriptors), no thread is bound either.
            Ok(Some(_)) | Err(_) => return,
        };
        let failure = || format!("the guardian, which restores everything after a crash, is {what}");
        self.failure.get_or_insert_with(failure);
        self.is_there = false;
    }

    /// Returns whether the guardian was running at the last check.
    pub fn is_there(&self) -> bool {
        self.is_there
    }

    /// Returns notes for the user.
    pub fn notes(&self) -> Vec<String> {
        let failure = self.failure.iter().map(|why| format!("{why}: from then on nothing was bound"));
        self.notes.iter().cloned().chain(failure).collect()
    }

    /// Ends the guardian and deletes the journal, after everything was restored.
    pub fn dismiss(mut self, ledger: &mut Ledger) {
        ledger.note(Entry::Done);
        self.write(&Entry::Done, ledger);
        self.journal.close();
    }
}

/// A handle for announcing words that are about to be written into a program's memory.
#[derive(Debug)]
pub struct Words(UnixStream);

/// A word in a program's memory, with its original value and the one that corewise writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// Its address.
    pub address: u64,
    /// Its original value.
    pub own: u64,
    /// The value that corewise is about to write.
    pub ours: u64,
    /// Its width in bytes: at most 8, the lowest ones of the values.
    pub width: usize,
}

impl Words {
    /// Entrusts the guardian with a word: after corewise's death it restores the original value, if the word
    /// still has the value that corewise wrote. The descriptor `memory` stays with the program through an
    /// `exec`.
    pub fn entrust(&self, memory: BorrowedFd<'_>, word: Word) -> io::Result<()> {
        let descriptors = [memory.as_raw_fd()];
        let message = [ControlMessage::ScmRights(&descriptors)];
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        let bytes = word.to_bytes();
        sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(&bytes)], &message, flags, None)?;
        Ok(())
    }
}

impl Word {
    /// The size of a message about a word, in bytes.
    const LENGTH: usize = 32;

    fn to_bytes(self) -> [u8; Self::LENGTH] {
        let words = [self.address, self.own, self.ours, self.width as u64].map(u64::to_ne_bytes);
        words.concat().try_into().expect("four words have 32 bytes")
    }

    fn from_bytes(bytes: &[u8]) -> Option<Word> {
        let mut words =
            bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")));
        let is_whole = bytes.len() == Self::LENGTH;
        let mut next = || words.next().filter(|_| is_whole);
        let (address, own, ours) = (next()?, next()?, next()?);
        Some(Word { address, own, ours, width: (next()? as usize).min(8) })
    }

    /// Returns the present value; `None` if the program's memory no longer exists.
    pub fn read(self, memory: &File) -> Option<u64> {
        let mut present = [0; 8];
        let is_read = memory.read_at(&mut present[..self.width], self.address);
        is_read.is_ok_and(|count| count == self.width).then_some(u64::from_le_bytes(present))
    }

    fn give_back(self, memory: &File) {
        if self.read(memory) == Some(self.ours) {
            // The program may end at any time.
            let _ = memory.write_at(&self.own.to_le_bytes()[..self.width], self.address);
        }
    }
}

/// Runs the guardian process: detaches itself, waits for corewise's end, and restores what is left.
fn serve(socket: UnixStream, journal: &Journal) -> io::Result<()> {
    nix::unistd::setsid()?;
    ignore_termination_signals()?;
    // It must not keep open any other inherited descriptor.
    nix::unistd::dup2_stdin(socket)?;
    nix::unistd::dup2_stdout(journal.descriptor()?)?;
    // SAFETY: the call takes no pointer; from here on this process uses only the standard streams.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    helper::take_name(c"guardian");
    // It sleeps until it is needed, and must then run at once.
    let _in_time = be_in_time();
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    socket.write_all(b"!")?;
    let mut words = Vec::new();
    let followed = wait(&socket, &mut |memory: File, word: Word| {
        // Drop the memory of ended programs, as descriptors are scarce.
        words.retain(|(memory, word): &(File, Word)| word.read(memory).is_some());
        words.push((memory, word));
    })?;
    words.iter().rev().for_each(|(memory, word)| word.give_back(memory));
    let ledger = journal::read(io::stdout().as_fd())?;
    let remains = give_back(&ledger, followed)?;
    if remains == Remains::default() {
        return journal.path().map_or(Ok(()), std::fs::remove_file).or_else(not_there);
    }
    // Standard error may be closed.
    let _ = writeln!(io::stderr(), "corewise: after its process was killed: {remains}");
    Ok(())
}

fn not_there(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn give_back(ledger: &Ledger, followed: Option<Followed>) -> io::Result<Remains> {
    let token = ActToken::mint();
    if let Some(mut followed) = followed {
        // Processes that the kernel cannot list are found by their parents, which is the second search in any
        // case.
        let _ = restore(ledger, &token, &mut followed as &mut dyn Members, WITHIN);
    }
    restore(ledger, &token, &mut ByParentage::new(ledger.members()), WITHIN)
}

/// Waits for the end of corewise. Returns the descriptors handed over; words go to `entrust`.
fn wait(socket: &UnixStream, entrust: &mut impl FnMut(File, Word)) -> io::Result<Option<Followed>> {
    let mut descriptors = Vec::new();
    loop {
        let mut bytes = [0; Word::LENGTH];
        let mut buffer = [IoSliceMut::new(&mut bytes)];
        let mut space = cmsg_space!([std::os::fd::RawFd; DESCRIPTORS_MAX]);
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = match recvmsg::<()>(socket.as_raw_fd(), &mut buffer, Some(&mut space), flags) {
            Ok(message) => message,
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        let (length, mut received) = (message.bytes, Vec::new());
        for part in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(numbers) = part {
                // SAFETY: the kernel has just created these descriptors in this process, and they are not
                // used elsewhere.
                received.extend(numbers.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
            }
        }
        if length == 0 {
            return Ok(Followed::from_descriptors(descriptors));
        }
        match (Word::from_bytes(&bytes[..length]), received.pop()) {
            (Some(word), Some(memory)) => entrust(File::from(memory), word),
            (_, last) => descriptors.extend(received.into_iter().chain(last)),
        }
    }
}

/// Ignores termination signals: a signal to all of corewise's processes must not stop the one that restores.
pub fn ignore_termination_signals() -> io::Result<()> {
    use nix::sys::signal::{SigHandler, Signal, signal};
    for termination in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        // SAFETY: ignoring a signal installs no handler that could run.
        unsafe { signal(termination, SigHandler::SigIgn) }?;
    }
    Ok(())
}
