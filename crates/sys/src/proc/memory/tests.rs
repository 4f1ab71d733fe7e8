use super::*;
use corewise_testing::{needs, skip};
use std::ffi::CString;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::{Receiver, channel};

/// A file system of one file. It says which pages it is asked for, by a message each, and has none of them.
struct OneFile {
    at: tempfile::NamedTempFile,
    asked: Receiver<()>,
}

impl OneFile {
    /// `None` if nothing may be mounted.
    fn mounted() -> Option<OneFile> {
        let at = tempfile::NamedTempFile::new().unwrap();
        let mut device = OpenOptions::new().read(true).write(true).open("/dev/fuse").ok()?;
        let options = format!("fd={},rootmode=100644,user_id=0,group_id=0", device.as_raw_fd());
        let (options, place) = (CString::new(options).unwrap(), path(&at));
        let (kind, flags) = (c"fuse".as_ptr(), libc::MS_NOSUID | libc::MS_NODEV);
        // SAFETY: the strings live through the call.
        let answer = unsafe { libc::mount(kind, place.as_ptr(), kind, flags, options.as_ptr().cast()) };
        if answer != 0 {
            return None;
        }
        let (ask, asked) = channel();
        // It ends with the file system.
        std::thread::spawn(move || {
            let mut request = vec![0; 1 << 17];
            while device.read(&mut request).is_ok_and(|length| length > 0) {
                let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
                // The numbers and lengths are those of Linux's <linux/fuse.h>.
                let (error, answer) = match word(4) {
                    GET_ATTRIBUTES => (0, attributes()),
                    OPEN => (0, vec![0; 16]),
                    INITIALISE => {
                        let version = [7u32, 31].map(u32::to_ne_bytes).concat();
                        (0, [version, vec![0; 56]].concat())
                    }
                    READ => {
                        let _ = ask.send(());
                        (-libc::EIO, Vec::new())
                    }
                    _ => (0, Vec::new()),
                };
                let head = [(16 + answer.len() as u32).to_ne_bytes(), error.to_ne_bytes()].concat();
                // A request that nobody waits for any more has no answer.
                let _ = device.write(&[&head, &request[8..16], &answer].concat());
            }
        });
        Some(OneFile { at, asked })
    }
}

const GET_ATTRIBUTES: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const INITIALISE: u32 = 26;

/// Those of a regular file of 1 MiB.
fn attributes() -> Vec<u8> {
    let long = [0u64, 0, 1, 1 << 20, 8, 0, 0, 0].map(u64::to_ne_bytes).concat();
    let short = [0u32, 0, 0, 0o100_644, 1, 0, 0, 0, 4096, 0].map(u32::to_ne_bytes).concat();
    [long, short].concat()
}

fn path(at: &tempfile::NamedTempFile) -> CString {
    CString::new(at.path().as_os_str().as_bytes()).unwrap()
}

impl Drop for OneFile {
    fn drop(&mut self) {
        let at = path(&self.at);
        // SAFETY: the string lives through the call.
        unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) };
    }
}

/// Maps two pages, of a file if there is one; they stay.
fn map(file: Option<&File>, share: i32) -> u64 {
    let (access, length) = (libc::PROT_READ | libc::PROT_WRITE, 2 * page_size() as usize);
    let (descriptor, kind) = file.map_or((-1, libc::MAP_ANONYMOUS), |file| (file.as_raw_fd(), 0));
    // SAFETY: a new mapping where the kernel finds room for it.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), length, access, share | kind, descriptor, 0) };
    assert_ne!(mapped, libc::MAP_FAILED);
    mapped as u64
}

fn touch(address: u64) {
    // SAFETY: the address is that of a mapping of these tests, to which nothing refers.
    unsafe { std::ptr::with_exposed_provenance_mut::<u8>(address as usize).write_volatile(1) };
}

fn own() -> Memory {
    Proc::own().memory(std::process::id(), true).unwrap()
}

fn kind(result: io::Result<()>) -> Option<io::ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn a_file_system_of_another_process_is_never_asked() {
    needs!(Root);
    let Some(system) = OneFile::mounted() else { skip!(Fuse, "FUSE cannot be mounted") };
    let file = File::open(system.at.path()).unwrap();
    // What is private may be written to, whatever the file permits.
    let address = map(Some(&file), libc::MAP_PRIVATE);
    assert_eq!(kind(own().read(address, &mut [0; 64])), Some(io::ErrorKind::WouldBlock));
    assert_eq!(kind(own().write(address, &[1])), Some(io::ErrorKind::WouldBlock));
    assert!(system.asked.try_recv().is_err(), "nobody has asked for a page");
}

/// Forks a process that maps a file where it has its arguments and variables, and runs `look` while it waits.
fn with_strings_in<T>(file: Option<&File>, look: impl FnOnce(u32) -> T) -> T {
    let (mut ear, mouth) = std::io::pipe().unwrap();
    let stat = std::fs::read("/proc/self/stat").unwrap();
    let (start, end) = place_of_strings(&stat, "cmdline").unwrap();
    let start = start / page_size() * page_size();
    let (length, place) = ((end - start) as usize, std::ptr::with_exposed_provenance_mut(start as usize));
    let fixed = libc::MAP_PRIVATE | libc::MAP_FIXED;
    // SAFETY: the child makes system calls only, until it is killed.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        if let Some(file) = file {
            // SAFETY: this thread has another stack, and uses neither arguments nor variables.
            unsafe { libc::mmap(place, length, libc::PROT_READ, fixed, file.as_raw_fd(), 0) };
        }
        // SAFETY: the byte lives through the call.
        unsafe { libc::write(mouth.as_raw_fd(), c"!".as_ptr().cast(), 1) };
        loop {
            // SAFETY: the call has no arguments.
            unsafe { libc::pause() };
        }
    }
    ear.read_exact(&mut [0]).unwrap();
    let seen = look(child as u32);
    // SAFETY: it is this process's child, which nobody else waits for.
    unsafe { libc::kill(child, libc::SIGKILL) };
    // SAFETY: the call writes nothing without an address.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    seen
}

#[test]
fn arguments_and_variables_are_read_only_from_memory() {
    needs!(Root);
    let Some(system) = OneFile::mounted() else { skip!(Fuse, "FUSE cannot be mounted") };
    let file = File::open(system.at.path()).unwrap();
    let read = |pid| {
        let name = Proc::own().program_name(pid).is_some();
        [name, Proc::own().arguments(pid).is_ok(), Proc::own().environment(pid).is_ok()]
    };
    assert_eq!(with_strings_in(None, read), [true; 3]);
    assert_eq!(with_strings_in(Some(&file), read), [false; 3]);
    assert!(system.asked.try_recv().is_err(), "nobody has asked for a page");
}

#[test]
fn memory_in_use_is_read_and_private_memory_is_written_to() {
    let (memory, page) = (own(), page_size());
    let private = map(None, libc::MAP_PRIVATE);
    let mut bytes = [7; 2];
    assert_eq!(kind(memory.read(private, &mut bytes)), Some(io::ErrorKind::WouldBlock), "not in use yet");
    touch(private);
    let across = private + page - 1;
    assert_eq!(kind(memory.read(across, &mut bytes)), Some(io::ErrorKind::WouldBlock), "half of it is");
    memory.read_what_is_there(across, &mut bytes);
    assert_eq!(bytes, [0, 7]);
    touch(private + page);
    memory.write(private + page, &[9]).unwrap();
    memory.read(across, &mut bytes).unwrap();
    assert_eq!(bytes, [0, 9]);
    let shared = map(None, libc::MAP_SHARED);
    touch(shared);
    memory.read(shared, &mut bytes).unwrap();
    assert_eq!(bytes, [1, 0]);
    assert_eq!(kind(memory.write(shared, &[9])), Some(io::ErrorKind::WouldBlock));
    // An address that no program can have.
    assert!(memory.read(u64::MAX - 1, &mut bytes).is_err());
}

#[test]
fn of_a_program_that_has_ended_nothing_can_be_read() {
    let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let memory = Proc::own().memory(child.id(), true).unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(kind(memory.read(0x1000, &mut [0])), Some(io::ErrorKind::UnexpectedEof));
    assert_eq!(kind(memory.write(0x1000, &[0])), Some(io::ErrorKind::UnexpectedEof));
}
