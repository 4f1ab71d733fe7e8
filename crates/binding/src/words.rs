//! The words that were written to, by the place of their library.
//!
//! Problem: each new process may be a fork of a changed one, and a hostile user may have words changed in
//! thousands of processes. Approach: what a process has not mapped it has not inherited, so that only words
//! of the libraries that it has are looked at. A word is kept while a process lives that may have it: the
//! changed one, or a later one that runs the same program, as forks do. Words that only heirs can still have,
//! and that differ in nothing but the process that they were inherited from, are one.

use super::word::{Region, Word};
use corewise_code::library;
use corewise_sys::proc::{Memory, Proc};
use corewise_sys::shortage::unless_short;
use corewise_sys::task::Task;
use std::collections::{HashMap, HashSet};
use std::io;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words(HashMap<Region, HashMap<Place, Word>>);

/// The process, the number of its program, and the address.
type Place = (Task, u64, u64);

impl Words {
    /// Adds a word, or more values of ours of a known one.
    pub fn note(&mut self, word: Word) {
        let place = (word.process, word.program, word.address);
        let known = self.0.entry(word.library).or_default().entry(place);
        known.and_modify(|known| known.ours.extend(&word.ours)).or_insert(word);
    }

    /// Returns all words.
    pub fn iter(&self) -> impl Iterator<Item = &Word> {
        self.0.values().flat_map(HashMap::values)
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.0.values().map(HashMap::len).sum()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns those that a process has that was forked from one of theirs, or from a fork of that, while
    /// they had values of ours, if it still has them.
    pub fn in_fork(&self, fork: Task) -> io::Result<Vec<Word>> {
        let mapped = unless_short(Proc::own().code_mappings(fork.id))?.unwrap_or_default();
        let mapped: HashSet<Region> = mapped.into_iter().map(Region::of).collect();
        let known = mapped.iter().filter_map(|library| self.0.get(library)).flat_map(HashMap::values);
        let mut earlier =
            known.filter(|word| word.process.start <= fork.start && word.process != fork).peekable();
        let Some(_) = earlier.peek() else { return Ok(Vec::new()) };
        let Some((memory, program)) = program_of(fork.id)? else { return Ok(Vec::new()) };
        // Those of several processes may be at the same place: once there is enough.
        let mut found: HashMap<u64, Word> = HashMap::new();
        for word in earlier.filter(|word| word.program == program) {
            if !found.contains_key(&word.address)
                && let Some(word) = word.forked(fork, &memory)
            {
                found.insert(word.address, word);
            }
        }
        Ok(found.into_values().collect())
    }

    /// Drops the words that no living process can have.
    pub fn drop_outlived(&mut self) {
        let stacks: HashSet<u64> = self.iter().map(|word| word.stack).collect();
        // What cannot be seen may live.
        let Ok(running) = running_in_any(&stacks) else { return };
        let (mut kept, mut inherited) = (Words::default(), HashMap::new());
        for word in std::mem::take(&mut self.0).into_values().flat_map(HashMap::into_values) {
            let Some(processes) = running.get(&word.program) else { continue };
            if processes.contains(&word.process) {
                kept.note(word);
            } else if processes.iter().any(|process| process.start >= word.process.start) {
                let place = (word.library, word.mapping, word.program, word.address, word.own);
                let known = inherited.entry(place).or_insert_with(|| word.clone());
                known.ours.extend(word.ours);
                if word.process.start < known.process.start {
                    known.process = word.process;
                }
            }
        }
        inherited.into_values().for_each(|word| kept.note(word));
        *self = kept;
    }
}

/// Returns the processes that run each program, by its number, if their stack is one of these. Memory is read
/// of no other.
fn running_in_any(stacks: &HashSet<u64>) -> io::Result<HashMap<u64, HashSet<Task>>> {
    let mut running: HashMap<u64, HashSet<Task>> = HashMap::new();
    for pid in Proc::own().processes()? {
        let stat = unless_short(Proc::own().process(pid))?.flatten();
        let stat = stat.filter(|stat| stat.stack.is_some_and(|stack| stacks.contains(&stack)));
        if let Some(stat) = stat
            && let Some((_, program)) = program_of(pid)?
        {
            running.entry(program).or_default().insert(Task { id: pid, start: stat.start_ticks });
        }
    }
    Ok(running)
}

/// Returns the memory of a process and the number of its program; `None` if it has ended, or is a stranger's.
fn program_of(pid: u32) -> io::Result<Option<(Memory, u64)>> {
    let Some(memory) = unless_short(library::memory(pid))? else { return Ok(None) };
    let program = unless_short(Proc::own().program_number(pid, &memory))?;
    Ok(program.map(|program| (memory, program)))
}
