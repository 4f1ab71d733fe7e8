//! The guardian: a small process that restores every change when corewise dies, hangs or is stopped.
//!
//! corewise writes each change to a journal before it makes it ([`super::journal`]) and holds one end of a
//! socket. When that closes without the entry in the journal that everything is restored, corewise was
//! killed, and the guardian restores what the journal lists. Until then it is idle, and corewise never waits
//! for it. It lives in a session of its own, out of reach of the terminal's signals, and is a [`helper`]:
//! neither followed nor waited for.
//!
//! Over the socket it receives what a journal cannot hold ([`super::changes`]): the BPF programs that follow
//! the threads, if there are any (they then outlive corewise and know every thread that inherited a change),
//! and the memory of the programs that corewise writes to, which the guardian may not be permitted to open.
//!
//! It also looks at corewise now and then ([`heartbeat`](super::heartbeat)): if corewise hangs or is stopped,
//! it gives everything back. While programs take turns, it looks more often: if corewise is stopped, nothing
//! would end the turn of the program that has it, and the others would wait for as long. It makes them normal
//! until corewise goes on.

use super::act_token::ActToken;
use super::changes::{Changes, Message};
use super::heartbeat::{self, Heartbeat, IfHung, Looks, Still};
use super::journal::{self, Journal};
use super::restore::{Remains, make_all_normal, restore};
use super::sched_policy;
use super::word::Memories;
use corewise_core::plan::TURN;
use corewise_discovery::followed::Followed;
use corewise_sys::helper;
use corewise_sys::proc::{Memory, Proc};
use corewise_sys::shortage::raise_limits;
use corewise_sys::standard_error;
use corewise_sys::task::Task;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, socketpair,
};
use nix::unistd::Pid;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// How long the guardian tries to restore everything.
const WITHIN: Duration = Duration::from_secs(10);

/// The maximum number of descriptors that are handed over at once.
const DESCRIPTORS_MAX: usize = 32;

/// The maximum length of a message's text.
const MESSAGE_MAX: usize = 64;

/// The guardian process, and the journal that it reads when corewise has died.
#[derive(Debug)]
pub struct Guardian {
    changes: Changes,
    notes: Vec<String>,
}

impl Guardian {
    /// Starts the guardian of this thread's loop. This process must have only one thread.
    pub fn start(if_hung: IfHung) -> io::Result<Guardian> {
        let (journal, why_unnamed) = Journal::create()?;
        let (socket, theirs) = pair()?;
        let (heartbeat, corewise) = (Heartbeat::begin()?, Task::own()?);
        let looks = Looks::at(heartbeat, nix::unistd::gettid().as_raw() as u32);
        let Some(pid) = helper::fork()? else {
            let watch = Watch::of(corewise, (heartbeat, looks), if_hung);
            if let Err(error) = serve(watch, theirs, &journal) {
                standard_error::say(&format!("corewise: its guardian process: {error}\n"));
            }
            standard_error::finish();
            helper::end()
        };
        // Otherwise it would never be closed.
        drop(theirs);
        // The guardian sends a byte when it has detached itself.
        if nix::unistd::read(&socket, &mut [0])? == 0 {
            return Err(io::Error::other("the guardian has ended"));
        }
        let guardian = Task::of(pid.as_raw() as u32)?.ok_or(io::Error::other("the guardian has ended"))?;
        let unnamed = |why| {
            format!("{why}: if corewise and its guardian are both killed, what was changed stays changed")
        };
        let changes = Changes::new(guardian, socket, journal, heartbeat);
        Ok(Guardian { changes, notes: why_unnamed.map(unnamed).into_iter().collect() })
    }

    /// Returns a guardian for tests that is this process and does nothing.
    #[cfg(test)]
    pub fn idle() -> Guardian {
        let (socket, ear) = pair().unwrap();
        // Keep it open to the end of the test: sending to a closed socket is an error.
        std::mem::forget(ear);
        let journal = Journal::without_name().unwrap();
        let changes = Changes::new(Task::own().unwrap(), socket, journal, Heartbeat::begin().unwrap());
        Guardian { changes, notes: Vec::new() }
    }

    /// Returns the guardian with a journal that can hold nothing more, for tests.
    #[cfg(test)]
    pub fn without_space(self) -> Guardian {
        self.changes.take_space();
        self
    }

    /// Returns the guardian's process.
    pub fn process(&self) -> Task {
        self.changes.guardian()
    }

    /// Returns the record of changes, for everything that changes something.
    pub fn changes(&self) -> Changes {
        self.changes.clone()
    }

    /// Returns notes for the user.
    pub fn notes(&self) -> Vec<String> {
        self.notes.iter().cloned().chain(self.changes.notes()).collect()
    }

    /// Ends the guardian and deletes the journal, after everything was restored.
    pub fn dismiss(self) {
        self.changes.close();
    }
}

/// Two ends of a socket that keeps messages apart.
fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?)
}

/// Runs the guardian process: detaches itself, waits for corewise's end, and restores what is left.
fn serve(mut watch: Watch, socket: OwnedFd, journal: &Journal) -> io::Result<()> {
    standard_error::begin_in_helper();
    nix::unistd::setsid()?;
    ignore_termination_signals()?;
    // It must not keep open any other inherited descriptor.
    nix::unistd::dup2_stdin(socket)?;
    nix::unistd::dup2_stdout(journal.descriptor()?)?;
    // SAFETY: the call takes no pointer; from here on this process uses only the standard streams.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    helper::take_name(c"guardian");
    // Whatever corewise runs out of, its guardian has: limits are each process's own.
    let _raised = raise_limits();
    Proc::own().outlast_others();
    // It sleeps until it is needed, and must then run at once.
    let _first = sched_policy::run_first();
    nix::unistd::write(io::stdin().as_fd(), b"!")?;
    watch.wait()?;
    let remains = watch.restore()?;
    if remains.is_nothing() {
        return journal.path().map_or(Ok(()), std::fs::remove_file).or_else(not_there);
    }
    standard_error::say(&format!("corewise: after its process was killed: {remains}\n"));
    Ok(())
}

fn not_there(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// What the guardian knows while it waits for the end of corewise, which has the other end of standard input.
struct Watch {
    corewise: Task,
    heartbeat: Heartbeat,
    looks: Looks,
    if_hung: IfHung,
    turns_are_taken: bool,
    followed: Option<Followed>,
    memories: Memories,
}

impl Watch {
    fn of(corewise: Task, (heartbeat, looks): (Heartbeat, Looks), if_hung: IfHung) -> Watch {
        let (turns_are_taken, followed, memories) = (false, None, Memories::default());
        Watch { corewise, heartbeat, looks, if_hung, turns_are_taken, followed, memories }
    }

    /// Waits for the end of corewise, and gives everything back meanwhile where corewise cannot.
    fn wait(&mut self) -> io::Result<()> {
        let mut looked = Instant::now();
        loop {
            if looked.elapsed() >= heartbeat::LOOK {
                looked = Instant::now();
                if let Some(why) = self.looks.look() {
                    self.take_over(why);
                }
            }
            standard_error::flush();
            if !has_message_within(if self.turns_are_taken { TURN } else { heartbeat::LOOK })? {
                if self.turns_are_taken && matches!(self.corewise.state(), Ok(Some('T' | 't'))) {
                    let ledger = journal::read(io::stdout().as_fd())?.ledger;
                    make_all_normal(&ledger, &ActToken::mint());
                }
                continue;
            }
            match receive(io::stdin().as_fd())? {
                None => return Ok(()),
                Some((Some(Message::Followed), descriptors)) => {
                    self.followed = Followed::from_descriptors(descriptors);
                }
                Some((Some(Message::Memory(process)), descriptors)) => {
                    let memory = Memory::from_descriptors(descriptors);
                    memory.into_iter().for_each(|memory| self.memories.keep(process, memory));
                }
                Some((Some(Message::Turns(are_taken)), _)) => self.turns_are_taken = are_taken,
                Some((None, _)) => {}
            }
        }
    }

    /// Restores what the journal lists.
    fn restore(&mut self) -> io::Result<Remains> {
        let ledger = journal::read(io::stdout().as_fd())?.ledger;
        Ok(restore(&ledger, &ActToken::mint(), self.followed.as_mut(), &self.memories, WITHIN))
    }

    /// Gives everything back in corewise's place, which is still.
    fn take_over(&mut self, why: Still) {
        let place = self.looks.place().map(|place| format!(" (it waits in {place})"));
        let place = place.filter(|_| why == Still::Hung).unwrap_or_default();
        let pid = self.corewise.id;
        self.heartbeat.take();
        if (why, self.if_hung) == (Still::Hung, IfHung::End) {
            // First of all: what is killed changes nothing more, even where it ends only later.
            let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
        }
        let remains = match self.restore() {
            Ok(remains) if remains.is_nothing() => String::new(),
            Ok(remains) => format!("; {remains}"),
            Err(error) => format!("; not everything could be restored: {error}"),
        };
        self.heartbeat.note_given_back(why);
        let how = match (why, self.if_hung) {
            // It tells that itself when it goes on.
            (Still::Stopped, _) if remains.is_empty() => return,
            (Still::Stopped, _) => "is stopped:",
            (Still::Hung, IfHung::End) => "hangs and was killed:",
            (Still::Hung, IfHung::LetBe) => "hangs:",
        };
        let text = format!("its process {pid} {how} what it had changed was given back{place}{remains}");
        standard_error::say(&format!("corewise: {text}\n"));
    }
}

/// Returns whether there is a message, or the end, within this time.
fn has_message_within(time: Duration) -> io::Result<bool> {
    let stdin = io::stdin();
    let mut ear = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    match poll(&mut ear, PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX)) {
        Ok(count) => Ok(count > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Receives a message with its descriptors; `None` at the end.
fn receive(socket: BorrowedFd) -> io::Result<Option<(Option<Message>, Vec<OwnedFd>)>> {
    let mut bytes = [0; MESSAGE_MAX];
    let mut buffer = [IoSliceMut::new(&mut bytes)];
    let mut space = cmsg_space!([RawFd; DESCRIPTORS_MAX]);
    let message = loop {
        match recvmsg::<()>(socket.as_raw_fd(), &mut buffer, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC) {
            Err(Errno::EINTR) => continue,
            result => break result?,
        }
    };
    let (length, mut received) = (message.bytes, Vec::new());
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(numbers) = part {
            // SAFETY: the kernel has just created these descriptors in this process, and they are not used
            // elsewhere.
            received.extend(numbers.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    let message = std::str::from_utf8(&bytes[..length]).ok().and_then(Message::parse);
    Ok((length > 0).then_some((message, received)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_one_by_one_with_their_descriptors() {
        let (ours, theirs) = pair().unwrap();
        let journal = Journal::without_name().unwrap();
        let changes = Changes::new(Task::own().unwrap(), ours, journal, Heartbeat::begin().unwrap());
        let memory = Message::Memory(Task { id: u32::MAX, start: u64::MAX });
        let sent =
            [(Message::Followed, 3), (memory, 1), (Message::Turns(true), 0), (Message::Turns(false), 0)];
        for (message, count) in sent {
            changes.send(message, &vec![theirs.as_raw_fd(); count]).unwrap();
        }
        for (message, count) in sent {
            let (received, descriptors) = receive(theirs.as_fd()).unwrap().unwrap();
            assert_eq!((received, descriptors.len()), (Some(message), count));
        }
        drop(changes);
        assert!(receive(theirs.as_fd()).unwrap().is_none());
    }
}
