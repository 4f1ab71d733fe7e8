//! A word of a library in a running program, and the only way of writing there.
//!
//! Problem: a library is closed and its addresses hold something else; a process executes another program, or
//! ends and leaves its number to another. What writes later, be it to restore, must not write there.
//! Approach: a word knows where it was found: in which process, in which program (the number that the kernel
//! gives to each program that is executed, `AT_RANDOM`), in which mappings, and which values may stand there.
//! Every writer uses [`Word::write`], which checks all of this at every write, and looks at the mappings
//! again right afterwards: if they have changed meanwhile, it undoes what it wrote. What cannot be read is
//! not written.
//!
//! A fork has its parent's program, mappings and values. So a process that was forked from a changed one is
//! known by these alone, whatever its parent is by now ([`super::words`]).
//!
//! Limits: between the write and the look afterwards, some microseconds, a program may read a value of ours
//! in memory that it has just mapped there.

use corewise_code::library;
use corewise_core::plan::OutcomeKind;
use corewise_sys::proc::mappings::ListedMapping;
use corewise_sys::proc::{Memory, Proc};
use corewise_sys::task::Task;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::str::FromStr;

/// A word of one copy of a library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Its process.
    pub process: Task,
    /// The number of the program that the process executes.
    pub program: u64,
    /// The address of the program's first stack, which forks share, and most other programs do not.
    pub stack: u64,
    /// Its address.
    pub address: u64,
    /// Its width in bytes: 1, 4 or 8.
    pub width: usize,
    /// The value that stood there at first.
    pub own: u64,
    /// The values that corewise may have written.
    pub ours: BTreeSet<u64>,
    /// The mapping of the library's code.
    pub library: Region,
    /// The mapping that holds the word.
    pub mapping: Region,
}

/// What is mapped, and where; without its end, which moves when its neighbour is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// Offset in the file.
    pub offset: u64,
    /// The file's device, `(major, minor)`; zeros without a file.
    pub device: (u32, u32),
    /// The file's inode; 0 without a file.
    pub inode: u64,
}

/// Why a value was not written.
#[derive(Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The program has ended, become another, or unloaded the library.
    Gone,
    /// Somebody else has written there.
    NotOurs,
    /// The system's answer.
    Refused(String),
}

impl From<WriteError> for OutcomeKind {
    fn from(error: WriteError) -> OutcomeKind {
        match error {
            WriteError::Gone => OutcomeKind::Gone,
            WriteError::NotOurs => OutcomeKind::NotOurs,
            WriteError::Refused(why) => OutcomeKind::Refused(why),
        }
    }
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> WriteError {
        // Of a process that has ended, nothing is left to read.
        let is_gone = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof)
            || error.raw_os_error() == Some(libc::ESRCH);
        if is_gone { WriteError::Gone } else { WriteError::Refused(error.to_string()) }
    }
}

impl Word {
    /// Returns the word at an address of a process, with what stands there now. `library` is an address in
    /// the code of the library that it belongs to. `None` if it cannot be read, or its place not be known.
    pub fn found(process: u32, memory: &Memory, address: u64, width: usize, library: u64) -> Option<Word> {
        let stat = Proc::own().process(process).ok()??;
        let (process, stack) = (Task { id: process, start: stat.start_ticks }, stat.stack?);
        let region = |at| Region::at(process.id, at).ok()?;
        let (library, mapping) = (region(library)?, region(address)?);
        let program = Proc::own().program_number(process.id, memory).ok()?;
        let own = read(memory, address, width)?;
        Some(Word { process, program, stack, address, width, own, ours: BTreeSet::new(), library, mapping })
    }

    /// Returns whether it is the same word of the same program.
    pub fn is_same(&self, other: &Word) -> bool {
        (self.process, self.program, self.address) == (other.process, other.program, other.address)
    }

    /// Writes a value, if everything is as it was, and the library's own value or one of ours stands there.
    /// Returns whether another value stood there.
    pub fn write(&self, memory: &Memory, value: u64) -> Result<bool, WriteError> {
        self.check(memory)?;
        let before = self.read(memory).ok_or(WriteError::Gone)?;
        if before == value {
            return Ok(false);
        }
        if before != self.own && !self.ours.contains(&before) {
            return Err(WriteError::NotOurs);
        }
        self.put(memory, value)?;
        let after = self.check(memory);
        if after.is_err() && self.read(memory) == Some(value) {
            self.put(memory, before)?;
        }
        after.map(|()| true)
    }

    /// Restores the library's own value. Returns whether another one stood there. Without the process's
    /// `memory`, that is opened.
    pub fn restore(&self, memory: Option<&Memory>) -> Result<bool, WriteError> {
        match memory {
            Some(memory) => self.write(memory, self.own),
            None => self.write(&library::memory(self.process.id)?, self.own),
        }
    }

    /// Returns the word of a fork of its process with this memory, if it has a value of ours there.
    pub(super) fn forked(&self, fork: Task, memory: &Memory) -> Option<Word> {
        let word = Word { process: fork, ..self.clone() };
        let has_ours = word.ours.contains(&word.read(memory)?);
        (has_ours && word.check(memory).is_ok()).then_some(word)
    }

    /// Returns what stands there; `None` if the program's memory is no more.
    pub fn read(&self, memory: &Memory) -> Option<u64> {
        read(memory, self.address, self.width)
    }

    fn put(&self, memory: &Memory, value: u64) -> Result<(), WriteError> {
        Ok(memory.write(self.address, &value.to_le_bytes()[..self.width])?)
    }

    /// Checks that it is where it was found. The memory was opened before: if the process executes another
    /// program meanwhile, that is the memory of the former.
    fn check(&self, memory: &Memory) -> Result<(), WriteError> {
        let process = Task::of(self.process.id).map_err(io::Error::from)?;
        let is_there = process == Some(self.process)
            && Region::at(self.process.id, self.library.start)? == Some(self.library)
            && Region::at(self.process.id, self.address)? == Some(self.mapping)
            && Proc::own().program_number(self.process.id, memory)? == self.program;
        if is_there { Ok(()) } else { Err(WriteError::Gone) }
    }
}

fn read(memory: &Memory, address: u64, width: usize) -> Option<u64> {
    let mut value = [0; 8];
    memory.read(address, &mut value[..width]).is_ok().then(|| u64::from_le_bytes(value))
}

impl Region {
    /// Returns what a process has mapped at an address; `None` if nothing.
    fn at(pid: u32, address: u64) -> io::Result<Option<Region>> {
        Ok(Proc::own().mapping_at(pid, address)?.map(Region::of))
    }

    /// Returns that of a mapping.
    pub fn of(listed: ListedMapping) -> Region {
        let ListedMapping { start, offset, device, inode, .. } = listed;
        Region { start, offset, device, inode }
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Region { start, offset, device: (major, minor), inode } = self;
        write!(f, "{start:x}+{offset:x}@{major}:{minor}:{inode}")
    }
}

impl FromStr for Region {
    type Err = ();

    fn from_str(text: &str) -> Result<Region, ()> {
        let (place, file) = text.split_once('@').ok_or(())?;
        let (start, offset) = place.split_once('+').ok_or(())?;
        let hexadecimal = |text: &str| u64::from_str_radix(text, 16).map_err(drop);
        let mut numbers = file.split(':').map(|number| number.parse::<u64>().map_err(drop));
        let mut next = || numbers.next().unwrap_or(Err(()));
        let device = (next()? as u32, next()? as u32);
        let inode = next()?;
        numbers.next().map_or(Ok(()), |_| Err(()))?;
        Ok(Region { start: hexadecimal(start)?, offset: hexadecimal(offset)?, device, inode })
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Word { process, program, stack, address, width, own, library, mapping, .. } = self;
        write!(f, "{process} {program:x} {stack:x} {address:x} {width} {own} {library} {mapping}")?;
        self.ours.iter().try_for_each(|value| write!(f, " {value}"))
    }
}

impl Word {
    /// Parses the output of [`Display`](fmt::Display), word by word, to the last.
    pub fn parse<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Word> {
        let process = words.next()?.parse().ok()?;
        let mut hexadecimal = || u64::from_str_radix(words.next()?, 16).ok();
        let (program, stack, address) = (hexadecimal()?, hexadecimal()?, hexadecimal()?);
        let width = words.next()?.parse().ok().filter(|width| matches!(width, 1 | 4 | 8))?;
        let own = words.next()?.parse().ok()?;
        let (library, mapping) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let ours = words.map(|value| value.parse().ok()).collect::<Option<BTreeSet<u64>>>()?;
        let word = Word { process, program, stack, address, width, own, ours, library, mapping };
        (!word.ours.is_empty()).then_some(word)
    }
}

/// The memory of processes, kept open by a process that might not be permitted to open it.
#[derive(Debug, Default)]
pub struct Memories(HashMap<Task, Memory>);

impl Memories {
    /// Keeps the memory of a process. That of processes that have ended is let go, as descriptors are few.
    pub fn keep(&mut self, process: Task, memory: Memory) {
        self.0.retain(|process, _| process.lives().unwrap_or(true));
        self.0.insert(process, memory);
    }

    /// Returns the memory of a process, if it was kept.
    pub fn of(&self, process: Task) -> Option<&Memory> {
        self.0.get(&process)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::words::Words;
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::path::PathBuf;
    use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

    /// A program with a word in its own file's memory, which it forks, unmaps or leaves by executing itself,
    /// as it is ordered (`f`, `m`, `e`). It prints a line when that is done; a fork waits for the end.
    const PROGRAM: &str = r#"
        #include <stdio.h>
        #include <sys/mman.h>
        #include <unistd.h>
        static unsigned long page[512] __attribute__((aligned(4096))) = {300123};
        int main(int arguments, char **argument) {
            char order = 0;
            page[1] = 1;  // Only memory of its own is written to.
            printf("%lx %lx\n", (long)page, (long)main);
            for (fflush(stdout); read(0, &order, 1) == 1; fflush(stdout)) {
                if (order == 'e') return execv("/proc/self/exe", argument);
                if (order == 'm') {
                    mmap(page, 4096, 3, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                    *page = 200;
                }
                int child = order == 'f' ? fork() : 1;
                if (child == 0) { for (;;) pause(); }
                printf("%d\n", child);
            }
            return arguments > 9;
        }"#;

    pub struct Program {
        child: Child,
        input: ChildStdin,
        output: BufReader<ChildStdout>,
        _directory: tempfile::TempDir,
    }

    impl Program {
        /// With a word in which 200 stands.
        pub fn start() -> (Program, Word) {
            let directory = tempfile::tempdir().unwrap();
            let path = |name: &str| -> PathBuf { directory.path().join(name) };
            std::fs::write(path("program.c"), PROGRAM).unwrap();
            let compiled = Command::new("cc").arg("-o").arg(path("program")).arg(path("program.c")).status();
            assert!(compiled.unwrap().success());
            let mut child =
                Command::new(path("program")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
            let mut program = Program { child, input, output, _directory: directory };
            let addresses = program.line();
            let mut addresses = addresses.split(' ').map(|text| u64::from_str_radix(text, 16).unwrap());
            let (address, code) = (addresses.next().unwrap(), addresses.next().unwrap());
            let memory = program.memory();
            // The start of the code's mapping, as a library has it.
            let code = Region::at(program.child.id(), code).unwrap().unwrap().start;
            let mut word = Word::found(program.child.id(), &memory, address, 8, code).unwrap();
            assert_eq!(word.own, 300_123);
            word.ours.insert(200);
            assert_eq!(word.write(&memory, 200), Ok(true));
            assert_eq!(word.read(&memory), Some(200));
            (program, word)
        }

        pub fn memory(&self) -> Memory {
            library::memory(self.child.id()).unwrap()
        }

        fn line(&mut self) -> String {
            let mut line = String::new();
            self.output.read_line(&mut line).unwrap();
            line.trim().to_owned()
        }

        fn order(&mut self, order: u8) -> String {
            self.input.write_all(&[order]).unwrap();
            self.line()
        }
    }

    impl Drop for Program {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    #[test]
    fn only_the_own_value_or_one_of_ours_is_overwritten() {
        let (program, word) = Program::start();
        let memory = program.memory();
        let strange = Word { own: 7, ours: BTreeSet::from([8]), ..word.clone() };
        assert_eq!(strange.restore(None), Err(WriteError::NotOurs));
        assert_eq!(word.restore(None), Ok(true));
        assert_eq!((word.restore(None), word.read(&memory)), (Ok(false), Some(300_123)));
        assert_eq!(word.write(&memory, 200), Ok(true), "as at first");
        let earlier =
            Word { process: Task { start: word.process.start - 1, ..word.process }, ..word.clone() };
        assert_eq!(earlier.restore(None), Err(WriteError::Gone), "an earlier owner of its number");
        assert_eq!(Word { program: 0, ..word.clone() }.restore(None), Err(WriteError::Gone));
        drop(program);
        assert_eq!(word.write(&memory, 300_123), Err(WriteError::Gone));
    }

    #[test]
    fn what_is_mapped_there_since_is_left_alone() {
        let (mut program, word) = Program::start();
        let memory = program.memory();
        program.order(b'm');
        assert_eq!(word.read(&memory), Some(200), "the value alone does not show it");
        assert_eq!(
            (word.restore(None), word.restore(Some(&memory))),
            (Err(WriteError::Gone), Err(WriteError::Gone))
        );
        assert_eq!(word.read(&memory), Some(200));
    }

    #[test]
    fn another_program_of_the_same_process_is_left_alone() {
        let (mut program, word) = Program::start();
        let memory = program.memory();
        program.order(b'e');
        assert_eq!(
            (word.restore(None), word.restore(Some(&memory))),
            (Err(WriteError::Gone), Err(WriteError::Gone))
        );
    }

    #[test]
    fn forks_are_known_without_their_parent_and_other_runs_of_the_program_are_not_forks() {
        let (mut program, word) = Program::start();
        let child: u32 = program.order(b'f').parse().unwrap();
        let child = Task::of(child).unwrap().unwrap();
        assert_eq!(word.restore(None), Ok(true));
        // Whatever its parent has by now, and when that has ended.
        drop(program);
        let earlier = Task { start: word.process.start - 1, ..word.process };
        let of = |words: &[&Word]| {
            let mut all = Words::default();
            words.iter().for_each(|word| all.note((*word).clone()));
            all
        };
        let mut words = of(&[&word, &Word { process: earlier, ours: BTreeSet::from([7]), ..word.clone() }]);
        let in_fork = words.in_fork(child).unwrap();
        assert_eq!((in_fork.len(), in_fork[0].restore(None)), (1, Ok(true)));
        assert_eq!(words.in_fork(child).unwrap(), [], "it has its own value again");
        let (_other, other) = Program::start();
        let as_if_there = Word { process: word.process, program: word.program, ..other.clone() };
        assert_eq!(of(&[&as_if_there]).in_fork(other.process).unwrap(), [], "it was executed, not forked");
        words.note(other.clone());
        words.note(Word { program: 7, ..other.clone() });
        words.drop_outlived();
        let inherited = Word { process: earlier, ours: BTreeSet::from([7, 200]), ..word };
        assert_eq!(words, of(&[&inherited, &other]), "a fork may have the first two");
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(child.id as i32),
            nix::sys::signal::Signal::SIGKILL,
        )
        .unwrap();
        while child.lives().unwrap() {
            std::thread::yield_now();
        }
        words.drop_outlived();
        assert_eq!(words, of(&[&other]));
    }
}
