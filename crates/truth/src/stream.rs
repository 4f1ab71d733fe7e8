//! Assembles the plugin's messages to the blocks that each thread executes.
//!
//! Every message begins with its kind, process id and thread id. Numbers are in the machine's own byte order.

use super::TruthError;
use corewise_code::elf::ElfProgram;
use corewise_paths::program::Program;
use corewise_paths::window::{Location, ModuleId};
use rustc_hash::{FxHashMap, FxHashSet};

/// The maximum size of one message: its header, and the numbers of executed blocks.
pub(super) const MESSAGE_BYTES_MAX: usize = 3 * 4 + (16 << 10) * 4;

/// Bytes of a page that QEMU translates.
const PAGE: u64 = 4096;

const LOADED: u32 = 0;
const BLOCK: u32 = 1;
const EXECUTED: u32 = 2;
const FORKED: u32 = 3;
const EXECUTES: u32 = 4;
const ENDED: u32 = 5;

/// Consecutive instructions that QEMU translated together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The first instruction.
    pub start: Location,
    /// The last instruction.
    pub last: Location,
    /// The number of instructions.
    pub instructions: u32,
}

/// The blocks that one thread has executed.
#[derive(Debug, Clone)]
pub struct Executed<'a> {
    /// The thread's id.
    pub tid: u32,
    described: &'a [Block],
    ids: std::slice::Iter<'a, [u8; 4]>,
}

impl<'a> Iterator for Executed<'a> {
    type Item = &'a Block;

    fn next(&mut self) -> Option<&'a Block> {
        self.ids.next().map(|&id| &self.described[u32::from_ne_bytes(id) as usize])
    }
}

/// The state of a process, as far as its end is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    /// It is about to execute another program; it continues if that fails.
    Executing,
    Ended,
}

struct Process {
    state: State,
    blocks: Vec<Block>,
}

/// The trace so far.
pub(super) struct Stream {
    program: ElfProgram,
    processes: FxHashMap<u32, Process>,
    threads: FxHashSet<u32>,
    /// The plugin has been loaded.
    pub(super) is_loaded: bool,
    pub(super) blocks: u64,
}

/// Reads numbers from a message.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], TruthError> {
        let (field, rest) = self.0.split_first_chunk().ok_or_else(|| damaged("a message is too short"))?;
        self.0 = rest;
        Ok(*field)
    }

    fn u32(&mut self) -> Result<u32, TruthError> {
        Ok(u32::from_ne_bytes(self.take()?))
    }

    fn u64(&mut self) -> Result<u64, TruthError> {
        Ok(u64::from_ne_bytes(self.take()?))
    }
}

fn damaged(problem: impl Into<String>) -> TruthError {
    TruthError::Damaged { problem: problem.into() }
}

impl Stream {
    /// Makes a trace of these modules, in the order in which the plugin knows them.
    pub(super) fn new(program: ElfProgram) -> Stream {
        Stream {
            program,
            processes: FxHashMap::default(),
            threads: FxHashSet::default(),
            is_loaded: false,
            blocks: 0,
        }
    }

    /// Takes in a message; passes executed blocks to `sink`.
    pub(super) fn take(
        &mut self,
        message: &[u8],
        sink: &mut impl FnMut(Executed<'_>),
    ) -> Result<(), TruthError> {
        let mut fields = Fields(message);
        let (kind, pid, tid) = (fields.u32()?, fields.u32()?, fields.u32()?);
        if kind == FORKED {
            return self.forked(pid, &mut fields);
        }
        self.is_loaded = true;
        if kind == LOADED {
            return Ok(());
        }
        let process =
            self.processes.entry(pid).or_insert_with(|| Process { state: State::Running, blocks: vec![] });
        process.state = match kind {
            EXECUTES => State::Executing,
            ENDED => State::Ended,
            _ => State::Running,
        };
        match kind {
            BLOCK => {
                let block = described(&mut fields, &self.program, process.blocks.len())?;
                process.blocks.push(block);
            }
            EXECUTED => {
                self.threads.insert(tid);
                let (ids, _) = fields.0.as_chunks::<4>();
                let highest = ids.iter().map(|&id| u32::from_ne_bytes(id)).max();
                if let Some(id) = highest.filter(|&id| id as usize >= process.blocks.len()) {
                    return Err(damaged(format!("block {id} was not described")));
                }
                let executed = Executed { tid, described: &process.blocks, ids: ids.iter() };
                self.blocks += ids.len() as u64;
                sink(executed);
            }
            EXECUTES | ENDED => {}
            other => return Err(damaged(format!("message of the unknown kind {other}"))),
        }
        Ok(())
    }

    fn forked(&mut self, pid: u32, fields: &mut Fields<'_>) -> Result<(), TruthError> {
        let (parent, known) = (fields.u32()?, fields.u32()? as usize);
        let parent = self.processes.get(&parent).and_then(|process| process.blocks.get(..known));
        // Nothing of a traced module may have been executed yet.
        let blocks = if known == 0 { Some(&[][..]) } else { parent };
        let blocks = blocks.ok_or_else(|| damaged("a forked process has an unknown parent"))?.to_vec();
        self.processes.insert(pid, Process { state: State::Running, blocks });
        Ok(())
    }

    /// Returns the number of threads that executed anything.
    pub(super) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Returns whether anything of the modules was executed.
    pub(super) fn has_started(&self) -> bool {
        self.processes.values().any(|process| !process.blocks.is_empty())
    }

    /// Returns the number of processes that executed another program.
    pub(super) fn executing(&self) -> usize {
        self.count(State::Executing)
    }

    /// Returns the number of processes that ended without a message, because they were killed.
    pub(super) fn lost(&self) -> usize {
        self.count(State::Running)
    }

    fn count(&self, state: State) -> usize {
        self.processes.values().filter(|process| process.state == state).count()
    }
}

/// Returns the block that a message describes; blocks are numbered from 0.
fn described(fields: &mut Fields<'_>, program: &ElfProgram, number: usize) -> Result<Block, TruthError> {
    let (id, module, instructions) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let (start, before_last, last) = (fields.u64()?, fields.u64()?, fields.u64()?);
    if id as usize != number {
        return Err(damaged(format!("block {id} comes where block {number} should")));
    }
    let module = ModuleId(module);
    let elf = program.elf(module).ok_or_else(|| damaged(format!("unknown module {module:?}")))?;
    let location = |offset| {
        let address = elf.segments().address(offset);
        let address = address
            .ok_or_else(|| damaged(format!("{} is not loaded at {offset:#x}", elf.path().display())))?;
        Ok::<_, TruthError>(Location { module, address })
    };
    let block = Block { start: location(start)?, last: location(last)?, instructions };
    let length = program.instruction(block.last).map_or(1, |instruction| u64::from(instruction.length));
    // QEMU stops before an instruction that reaches into the next page, unless it is the first, but its
    // plugin interface has already counted it.
    if instructions > 1 && (block.last.address + length - 1) / PAGE != block.start.address / PAGE {
        return Ok(Block { last: location(before_last)?, instructions: instructions - 1, ..block });
    }
    Ok(block)
}
