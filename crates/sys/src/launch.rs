//! Starts programs, as if the parent of corewise had started them: the only place that does.
//!
//! Problem: a program inherits what its parent has changed for itself, and each way of starting one (`std`'s,
//! the C library's) changes or keeps something else. A program that is measured with SIGTERM blocked does not
//! behave as it does alone. Approach: one way for all. The child restores what corewise was
//! [started with](crate::inherited), and differs from that in what its [`Launch`] says, and nothing else. It
//! waits before `exec`, so that it can be watched from its first instruction.
//!
//! Everything is prepared before the `fork`; the child then only makes system calls. So corewise may have
//! threads.

use crate::affinity;
use crate::inherited::{self, Timers};
use crate::signals::Signals;
use corewise_core::cpuset::CpuSet;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{ForkResult, Pid, fork, pipe2, setpgid};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

/// The destination of the command's standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Standard output: the user wants the command's output.
    Own,
    /// Standard error: the user wants what corewise prints.
    ToStandardError,
}

/// A standard stream of a program.
#[derive(Debug, Default)]
pub enum Stream {
    /// That of corewise; closed if it was closed.
    #[default]
    Inherited,
    /// The standard error of corewise.
    StandardError,
    /// This file or pipe.
    Of(OwnedFd),
}

impl Stream {
    /// Nothing to read; what is written is discarded.
    pub fn null() -> io::Result<Stream> {
        Ok(File::options().read(true).write(true).open("/dev/null")?.into())
    }
}

impl From<File> for Stream {
    fn from(file: File) -> Stream {
        Stream::Of(file.into())
    }
}

impl From<OwnedFd> for Stream {
    fn from(descriptor: OwnedFd) -> Stream {
        Stream::Of(descriptor)
    }
}

/// A program to be started, and how it differs from what corewise was started with.
#[derive(Debug)]
pub struct Launch {
    words: Vec<CString>,
    /// `NAME=VALUE`, without those that are replaced.
    environment: Vec<CString>,
    streams: [Stream; 3],
    directory: Option<CString>,
    pes: Option<CpuSet>,
    descriptor: Option<OwnedFd>,
    timers: Option<Timers>,
    leads_group: bool,
    ends_with_corewise: bool,
}

/// A child that waits for [`Waiting::start`].
#[derive(Debug)]
pub struct Waiting {
    pid: Pid,
    go: File,
    failure: File,
}

/// A started program, which goes on when this is dropped.
#[derive(Debug)]
pub struct Running {
    pid: Pid,
    ended: Option<ExitStatus>,
}

/// Why a command did not start.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The command contains a zero byte.
    #[error("`{0}` holds a zero byte, which no command can")]
    ZeroByte(String),
    /// The program does not exist.
    #[error("cannot find the command `{0}`: {remedy}", remedy = remedy(.0))]
    NotFound(String),
    /// The program exists but cannot be executed.
    #[error("cannot execute `{command}`: {errno}")]
    CannotExecute {
        /// The command.
        command: String,
        /// The system's error.
        errno: Errno,
    },
    /// No process could be created.
    #[error("cannot create a process: {0}")]
    Fork(#[from] Errno),
    /// The pipe to the child broke.
    #[error("cannot talk to the new process: {0}")]
    Pipe(#[from] std::io::Error),
}

fn remedy(command: &str) -> &'static str {
    match command.starts_with('-') {
        true => "options of corewise stand before the command, and before `--`",
        false => "check the spelling, PATH and permission",
    }
}

impl LaunchError {
    /// Returns the exit status that a shell would give: 127 not found, 126 not executable.
    pub fn exit_status(&self) -> u8 {
        match self {
            LaunchError::NotFound(_) => 127,
            LaunchError::CannotExecute { .. } => 126,
            _ => 125,
        }
    }
}

/// Creates the process of the command that corewise stands in front of. It gets corewise's timers and these
/// environment variables, and from now on its signals.
pub fn prepare(
    command: &[OsString],
    signals: &mut Signals,
    output: Output,
    variables: &[(&str, String)],
) -> Result<Waiting, LaunchError> {
    let mut launch = Launch::of(command)?;
    for (name, value) in variables {
        launch = launch.variable(name, value)?;
    }
    if output == Output::ToStandardError {
        launch = launch.output(Stream::StandardError);
    }
    launch.timers = Some(signals.inherited().timers());
    let waiting = launch.create()?;
    signals.command_created(waiting.pid())?;
    Ok(waiting)
}

fn c_string(text: &OsStr) -> Result<CString, LaunchError> {
    CString::new(text.as_bytes()).map_err(|_| LaunchError::ZeroByte(text.to_string_lossy().into_owned()))
}

unsafe extern "C" {
    /// The environment of this process: pointers to `NAME=VALUE`, up to a null pointer.
    static environ: *const *const libc::c_char;
}

/// Returns the environment of this process as it is: `std` leaves out what has no name.
fn own_environment() -> Vec<CString> {
    let mut all = Vec::new();
    // SAFETY: the variable is one of the C library.
    let mut next = unsafe { environ };
    // SAFETY: the array ends with a null pointer; no other thread changes the environment, which `std`
    // demands of its callers, too.
    while !next.is_null() && unsafe { !(*next).is_null() } {
        // SAFETY: as above; each pointer is to a string.
        all.push(unsafe { CStr::from_ptr(*next) }.to_owned());
        // SAFETY: as above; this was not the last one.
        next = unsafe { next.add(1) };
    }
    all
}

impl Launch {
    /// Prepares a program with its arguments.
    pub fn of<Word: AsRef<OsStr>>(words: impl IntoIterator<Item = Word>) -> Result<Launch, LaunchError> {
        let words = words.into_iter().map(|word| c_string(word.as_ref())).collect::<Result<Vec<_>, _>>()?;
        Ok(Launch {
            words,
            environment: own_environment(),
            streams: Default::default(),
            directory: None,
            pes: None,
            descriptor: None,
            timers: None,
            leads_group: false,
            ends_with_corewise: false,
        })
    }

    /// Sets its standard input.
    pub fn input(mut self, stream: impl Into<Stream>) -> Launch {
        self.streams[0] = stream.into();
        self
    }

    /// Sets its standard output.
    pub fn output(mut self, stream: impl Into<Stream>) -> Launch {
        self.streams[1] = stream.into();
        self
    }

    /// Sets its standard error.
    pub fn error(mut self, stream: impl Into<Stream>) -> Launch {
        self.streams[2] = stream.into();
        self
    }

    /// Sets an environment variable.
    pub fn variable(self, name: &str, value: &str) -> Result<Launch, LaunchError> {
        let mut launch = self.without_variable(name);
        launch.environment.push(c_string(format!("{name}={value}").as_ref())?);
        Ok(launch)
    }

    /// Removes an environment variable.
    pub fn without_variable(mut self, name: &str) -> Launch {
        let is_it = |entry: &CString| {
            entry.to_bytes().strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
        };
        self.environment.retain(|entry| !is_it(entry));
        self
    }

    /// Sets the directory in which it runs.
    pub fn directory(mut self, directory: &Path) -> Result<Launch, LaunchError> {
        self.directory = Some(c_string(directory.as_os_str())?);
        Ok(self)
    }

    /// Restricts it to these PEs.
    pub fn pes(mut self, pes: CpuSet) -> Launch {
        self.pes = Some(pes);
        self
    }

    /// Hands a descriptor over to it, under the same number.
    pub fn descriptor(mut self, descriptor: OwnedFd) -> Launch {
        self.descriptor = Some(descriptor);
        self
    }

    /// Makes it the leader of a process group of its own, by which it can be ended with what it starts.
    pub fn leading_a_group(mut self) -> Launch {
        self.leads_group = true;
        self
    }

    /// Kills it when the thread that starts it ends.
    pub fn ending_with_corewise(mut self) -> Launch {
        self.ends_with_corewise = true;
        self
    }

    /// Creates its process, which waits.
    pub fn create(self) -> Result<Waiting, LaunchError> {
        let (wait, go) = pipe2(OFlag::O_CLOEXEC)?;
        let (failure, report) = pipe2(OFlag::O_CLOEXEC)?;
        let (words, environment) = (pointers(&self.words), pointers(&self.environment));
        // SAFETY: the child makes system calls only until it executes the program.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => {
                Ok(Waiting { pid: child, go: go.into(), failure: failure.into() })
            }
            ForkResult::Child => {
                drop((go, failure));
                self.wait_and_become(&words, &environment, wait, report)
            }
        }
    }

    /// Starts it. It is reaped by [`Running::wait`], or by another wait for all children.
    pub fn start(self) -> Result<Running, LaunchError> {
        let name = self.name();
        Ok(Running { pid: self.create()?.start(&name)?, ended: None })
    }

    /// Becomes it: this process executes it, as if the parent of corewise had. Returns only the reason why
    /// that is not possible.
    pub fn become_it(self) -> LaunchError {
        let (words, environment) = (pointers(&self.words), pointers(&self.environment));
        match self.execute(&words, &environment) {
            Errno::ENOENT => LaunchError::NotFound(self.name()),
            errno => LaunchError::CannotExecute { command: self.name(), errno },
        }
    }

    fn name(&self) -> String {
        self.words.first().map_or_else(String::new, |word| word.to_string_lossy().into_owned())
    }

    /// Executes it in this process. Returns only an error. Makes system calls only.
    fn execute(&self, words: &[*const libc::c_char], environment: &[*const libc::c_char]) -> Errno {
        self.prepare_self().err().unwrap_or_else(|| {
            // SAFETY: both arrays end with a null pointer; all others are to strings that `self` owns.
            unsafe { libc::execvpe(words[0], words.as_ptr(), environment.as_ptr()) };
            Errno::last()
        })
    }

    /// Runs in the child and does not return.
    fn wait_and_become(
        &self,
        words: &[*const libc::c_char],
        environment: &[*const libc::c_char],
        wait: OwnedFd,
        report: OwnedFd,
    ) -> ! {
        let mut go = [0u8];
        // An end of file means that corewise died before the start: do not run the program.
        if File::from(wait).read_exact(&mut go).is_ok() {
            let errno = self.execute(words, environment);
            // If the parent is gone, there is no reader.
            let _ = File::from(report).write_all(&(errno as i32).to_ne_bytes());
        }
        // SAFETY: `_exit` ends the process at once and runs none of the parent's exit handlers.
        unsafe { libc::_exit(127) }
    }

    /// Gives this process the attributes of the program.
    fn prepare_self(&self) -> Result<(), Errno> {
        for (number, stream) in (0..).zip(&self.streams) {
            match stream {
                Stream::Inherited => {}
                Stream::StandardError => duplicate(libc::STDERR_FILENO, number)?,
                Stream::Of(descriptor) => duplicate(descriptor.as_raw_fd(), number)?,
            }
        }
        for (number, _) in (0..).zip(&self.streams).filter(|(_, to)| matches!(to, Stream::Inherited)) {
            inherited::restore_stream(number);
        }
        if let Some(descriptor) = &self.descriptor {
            // SAFETY: the call takes no pointer.
            Errno::result(unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFD, 0) })?;
        }
        if self.leads_group {
            setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
        }
        if self.ends_with_corewise {
            prctl::set_pdeathsig(Signal::SIGKILL)?;
        }
        if let Some(directory) = &self.directory {
            nix::unistd::chdir(directory.as_c_str())?;
        }
        self.pes.as_ref().map_or(Ok(()), affinity::narrow_self)?;
        self.timers.iter().for_each(Timers::go_on);
        inherited::restore()
    }
}

/// Returns what `exec` takes: pointers to the strings, and a null pointer.
fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
}

fn duplicate(descriptor: RawFd, to: RawFd) -> Result<(), Errno> {
    // SAFETY: this process is about to execute another program and no longer uses what the stream was.
    Errno::result(unsafe { libc::dup2(descriptor, to) }).map(drop)
}

impl Waiting {
    /// Returns the child's process ID.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Lets the command start. Returns when it runs, or with the reason why it does not; the child is then
    /// reaped.
    pub fn start(mut self, command: &str) -> Result<Pid, LaunchError> {
        self.go.write_all(b"!")?;
        let mut answer = Vec::new();
        self.failure.read_to_end(&mut answer)?;
        let Ok(code) = <[u8; 4]>::try_from(answer.as_slice()) else { return Ok(self.pid) };
        let _ = nix::sys::wait::waitpid(self.pid, None);
        let command = command.to_owned();
        Err(match Errno::from_raw(i32::from_ne_bytes(code)) {
            Errno::ENOENT => LaunchError::NotFound(command),
            errno => LaunchError::CannotExecute { command, errno },
        })
    }
}

impl Running {
    /// Returns its process ID.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns how it ended, if it has.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, Errno> {
        self.wait_with(libc::WNOHANG)
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Result<ExitStatus, Errno> {
        Ok(self.wait_with(0)?.expect("without a flag it is waited for"))
    }

    fn wait_with(&mut self, flags: libc::c_int) -> Result<Option<ExitStatus>, Errno> {
        while self.ended.is_none() {
            let mut status = 0;
            // Not nix's, which knows no real-time signals.
            // SAFETY: the status is a valid place for the answer.
            match Errno::result(unsafe { libc::waitpid(self.pid.as_raw(), &mut status, flags) }) {
                Ok(0) => break,
                Ok(_) => self.ended = Some(ExitStatus::from_raw(status)),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(self.ended)
    }

    /// Kills it, if it has not ended.
    pub fn kill(&mut self) {
        if self.ended.is_none() {
            // It is still ours, even if it has ended: it was not waited for.
            let _ = kill(self.pid, Signal::SIGKILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::SigSet;
    use std::io::{Seek, SeekFrom};

    /// Runs a program and returns what it prints.
    fn printed(launch: Launch) -> String {
        let mut file = tempfile::tempfile().unwrap();
        let mut running = launch.output(file.try_clone().unwrap()).start().unwrap();
        assert!(running.wait().unwrap().success());
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        text
    }

    /// The signals that a program blocks and ignores.
    fn signals() -> String {
        printed(Launch::of(["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]).unwrap())
    }

    #[test]
    fn a_program_gets_the_signals_that_this_one_was_started_with() {
        let before = signals();
        let changed = std::thread::spawn(|| {
            SigSet::all().thread_block().unwrap();
            signals()
        });
        assert_eq!(changed.join().unwrap(), before, "whatever the thread blocks that starts it");
        // Rust's runtime ignores SIGPIPE; the two signals of the C library are bits 31 and 32.
        let ignored = before.split_once("SigIgn:").unwrap().1.trim();
        let ignored = u64::from_str_radix(ignored, 16).unwrap();
        assert_eq!(ignored, inherited::ignored(), "{before}");
    }

    #[test]
    fn a_program_differs_in_what_is_said_and_in_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let line = "pwd; echo $A $B; ps -o pgid= -p $$ | tr -d ' '; echo $$; cat";
        let mut text = tempfile::tempfile().unwrap();
        text.write_all(b"read").unwrap();
        text.seek(SeekFrom::Start(0)).unwrap();
        let launch = Launch::of(["sh", "-c", line]).unwrap().input(text).leading_a_group();
        let launch = launch.directory(folder.path()).unwrap().variable("A", "a").unwrap();
        let said = printed(launch.variable("B", "b").unwrap().without_variable("B"));
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!((lines[0], lines[1]), (folder.path().to_str().unwrap(), "a"), "{said}");
        assert_eq!((lines[2], lines[4]), (lines[3], "read"), "{said}");
        let whole = printed(Launch::of(["env"]).unwrap());
        let own = std::process::Command::new("env").output().unwrap().stdout;
        assert_eq!(whole, String::from_utf8(own).unwrap());
    }

    #[test]
    fn what_cannot_be_started_says_why_and_what_runs_can_be_killed() {
        let error = |word: &str| Launch::of([word]).and_then(Launch::start).unwrap_err();
        assert!(matches!(error("no-such-program"), LaunchError::NotFound(_)));
        assert_eq!((error("/").exit_status(), error("a\0b").exit_status()), (126, 125));
        let mut running = Launch::of(["sleep", "600"]).unwrap().start().unwrap();
        assert_eq!(running.try_wait(), Ok(None));
        running.kill();
        assert_eq!(running.wait().unwrap().signal(), Some(libc::SIGKILL));
        running.kill();
    }
}
