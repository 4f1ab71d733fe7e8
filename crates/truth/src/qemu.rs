//! Runs a program under QEMU with the plugin.

use super::stream::{Executed, MESSAGE_BYTES_MAX, Stream};
use super::{Trace, TruthError, program_path};
use corewise_code::Isa;
use corewise_code::elf::{ElfFile, ElfProgram};
use corewise_paths::window::Module;
use corewise_sys::launch::{Launch, Stream as Output};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;

/// `plugin.c`, compiled.
const PLUGIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/truth_plugin.so"));

/// How a program is traced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// QEMU's user mode; `None` means `qemu-ARCHITECTURE` of the program.
    pub qemu: Option<PathBuf>,
    /// The processor to emulate, as QEMU names it. `max` has everything that QEMU can emulate.
    pub cpu: String,
    /// Whether to discard the program's standard output.
    pub is_quiet: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { qemu: None, cpu: "max".to_owned(), is_quiet: false }
    }
}

/// Runs a command under QEMU and passes the executed blocks of the modules to `sink`, some thousands of one
/// thread at a time, in the order in which the thread executed them. Locations refer to `modules` by index.
/// Ends when the program and all processes that it forked have ended.
pub fn run(
    command: &[String],
    modules: &[Module],
    settings: &Settings,
    mut sink: impl FnMut(Executed<'_>),
) -> Result<Trace, TruthError> {
    let program = program_path(command.first().map_or("", String::as_str))?;
    let isa = ElfFile::open(&program)?.isa();
    let qemu = settings.qemu.clone().unwrap_or_else(|| PathBuf::from(qemu_of(isa)));
    let mut stream = Stream::new(ElfProgram::open(modules)?);

    let channel = |what| move |source: Errno| TruthError::Channel { what, source: source.into() };
    let file = |what| move |source| TruthError::Channel { what, source };
    let directory = tempfile::tempdir().map_err(file("cannot make a directory for the plugin"))?;
    let plugin = directory.path().join("truth.so");
    std::fs::write(&plugin, PLUGIN).map_err(file("cannot write the plugin"))?;
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
        .map_err(channel("cannot make a channel to QEMU"))?;
    let paths: String = modules.iter().map(|module| format!("{}\0", module.path)).collect();
    send(ours.as_raw_fd(), paths.as_bytes(), MsgFlags::empty())
        .map_err(channel("cannot send the modules to the plugin"))?;

    // A comma separates the plugin's arguments; a doubled one is part of the path.
    let escaped = plugin.to_string_lossy().replace(',', ",,");
    let plugin = format!("{escaped},fd={}", theirs.as_raw_fd());
    let options = ["-cpu", &settings.cpu, "-plugin", &plugin, "-0", &command[0]].map(OsStr::new);
    let words = [qemu.as_os_str()].into_iter().chain(options).chain([program.as_os_str()]);
    let words = words.chain(command[1..].iter().map(OsStr::new));
    let output = if settings.is_quiet {
        Output::null().map_err(file("cannot open /dev/null"))?
    } else {
        Output::Inherited
    };
    let start = || Launch::of(words)?.output(output).descriptor(theirs).start();
    let mut child = start().map_err(TruthError::NoQemu)?;
    let received = receive(&ours, &mut stream, &mut sink);
    if received.is_err() {
        // Without a reader it would run on for nothing.
        child.kill();
    }
    let status = child.wait().map_err(channel("cannot wait for QEMU"))?;
    received?;
    judged(&stream, status, qemu, program, settings)
}

fn qemu_of(isa: Isa) -> &'static str {
    match isa {
        Isa::X86 => "qemu-i386",
        Isa::X86_64 => "qemu-x86_64",
        Isa::Aarch64 => "qemu-aarch64",
    }
}

/// Receives messages until no process holds the other end.
fn receive(
    channel: &OwnedFd,
    stream: &mut Stream,
    sink: &mut impl FnMut(Executed<'_>),
) -> Result<(), TruthError> {
    let mut message = vec![0; MESSAGE_BYTES_MAX];
    loop {
        match recv(channel.as_raw_fd(), &mut message, MsgFlags::empty()) {
            Ok(0) | Err(Errno::ECONNRESET) => return Ok(()),
            Ok(length) => stream.take(&message[..length], sink)?,
            Err(Errno::EINTR) => {}
            Err(error) => {
                let source = error.into();
                return Err(TruthError::Channel { what: "cannot receive the trace", source });
            }
        }
    }
}

fn judged(
    stream: &Stream,
    status: ExitStatus,
    qemu: PathBuf,
    program: PathBuf,
    settings: &Settings,
) -> Result<Trace, TruthError> {
    if !stream.is_loaded {
        return Err(TruthError::PluginRefused { qemu, status });
    }
    if !stream.has_started() {
        return Err(TruthError::NotStarted { qemu, status, cpu: settings.cpu.clone() });
    }
    if let Some(number) = status.signal() {
        let signal = Signal::try_from(number).map_or_else(|_| format!("signal {number}"), |s| s.to_string());
        return Err(TruthError::Killed { program, signal });
    }
    let mut notes = vec![];
    if stream.executing() > 0 {
        let count = stream.executing();
        notes.push(format!("{count} processes executed another program, which was not traced"));
    }
    if stream.lost() > 0 {
        let count = stream.lost();
        notes.push(format!("{count} processes were killed: what they executed last is missing"));
    }
    Ok(Trace { status, blocks: stream.blocks, threads: stream.threads(), notes })
}
