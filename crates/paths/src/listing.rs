//! A function's code with its recorded figures, for display: which instructions take the time, how often each
//! is executed, which way its branches go, and the source lines.
//!
//! Time is that of the samples (a window begins where its thread was when the sample was taken), so it is
//! coarse if there are few windows. How often an instruction is executed, and its branches' ways, come from
//! the estimate that the exporters use ([`crate::export::counts`]); both are given as shares.

use crate::export::counts::Counts;
use crate::export::source::Place;
use crate::export::stacks::Callee;
use crate::program::Program;
use crate::window::{BranchRecording, Location, ModuleId};
use corewise_core::code::Flow;
use std::collections::BTreeMap;

/// The text for display of code, beside its meaning.
pub trait Source {
    /// Returns an instruction in assembly language, with absolute addresses.
    fn assembly(&self, at: Location) -> Option<String>;

    /// Returns the function and line of an instruction, and of what was inlined there, the outermost first.
    /// Empty without debug information.
    fn places(&self, at: Location) -> Vec<Place>;

    /// Returns the text of a line of the source; `None` if the file is not available.
    fn line(&self, place: &Place) -> Option<String>;
}

/// A function's executed instructions.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing {
    /// The function.
    pub function: Callee,
    /// Those that were executed, by address.
    pub instructions: Vec<Listed>,
}

/// An instruction that was executed.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// As linked.
    pub address: u64,
    /// In assembly language; `None` if it cannot be read.
    pub assembly: Option<String>,
    /// Share of all samples that were taken here.
    pub time: f64,
    /// How often it was executed, as a share of the function's most frequent instruction.
    pub executed: f64,
    /// Of a conditional branch: the share of its executions that took it.
    pub taken: Option<f64>,
    /// Its target, if that is always the same place in the function.
    pub target: Option<u64>,
    /// The target function, if it is always the same and another one.
    pub leads_to: Option<String>,
    /// Its lines, the outermost function's first.
    pub places: Vec<Place>,
    /// The text of the last of them.
    pub line: Option<String>,
    /// Whether code before it was not executed.
    pub behind_a_gap: bool,
}

/// The counts of a recording in some modules, computed once for all functions.
pub struct Listings<'a> {
    recording: &'a BranchRecording,
    program: &'a dyn Program,
    source: &'a dyn Source,
    counts: BTreeMap<ModuleId, Counts>,
    /// The time of the samples at each location.
    sampled: BTreeMap<Location, u64>,
}

impl<'a> Listings<'a> {
    /// Prepares listings; nothing is counted before one is requested.
    pub fn new(recording: &'a BranchRecording, program: &'a dyn Program, source: &'a dyn Source) -> Self {
        let mut sampled = BTreeMap::new();
        for window in &recording.windows {
            *sampled.entry(window.start).or_default() += recording.time_of(window);
        }
        Listings { recording, program, source, counts: BTreeMap::new(), sampled }
    }

    /// Returns the listing of a function; `None` for code outside functions.
    pub fn of(&mut self, function: Callee) -> Option<Listing> {
        let module = function.module;
        let at = |address| Location { module, address };
        let start = function.start?;
        let end = self.program.function(at(start))?.end;
        let counts = self.counts.entry(module);
        let counts = counts.or_insert_with(|| Counts::new(self.recording, module, self.program));
        let executions = executions(counts, (start, end), |address| {
            self.program.instruction(at(address)).map(|instruction| u64::from(instruction.length))
        });
        let taken = taken(counts, (start, end));
        let most = executions.values().map(|(_, count)| *count).max().unwrap_or(1).max(1) as f64;
        let all: u64 = self.sampled.values().sum();
        let mut behind = start;
        let mut instructions = Vec::new();
        for (&address, &(length, count)) in &executions {
            let flow = self.program.instruction(at(address))?.flow;
            let took = taken.get(&address).copied().unwrap_or(0) as f64;
            let is_branch = matches!(flow, Flow::Branch(_));
            let (inside, outside): (Vec<u64>, Vec<u64>) =
                target(address, flow).into_iter().partition(|target| (start..end).contains(target));
            let places = self.source.places(at(address));
            let name =
                |target: &u64| Callee::at(at(*target), self.program).name(self.recording, self.program);
            instructions.push(Listed {
                address,
                assembly: self.source.assembly(at(address)),
                time: self.sampled.get(&at(address)).copied().unwrap_or(0) as f64 / all as f64,
                executed: count as f64 / most,
                taken: is_branch.then(|| (took / count as f64).min(1.0)),
                target: inside.first().copied(),
                leads_to: outside.first().map(name),
                line: places.last().and_then(|place| self.source.line(place)),
                places,
                behind_a_gap: address != behind,
            });
            behind = address + length;
        }
        Some(Listing { function, instructions })
    }
}

fn target(address: u64, flow: Flow) -> Option<u64> {
    match flow {
        Flow::Jump(by) | Flow::Branch(by) | Flow::Call(by) => Some(address.wrapping_add_signed(by)),
        Flow::Next
        | Flow::JumpThrough(_)
        | Flow::CallThrough(_)
        | Flow::JumpAnywhere
        | Flow::CallAnywhere
        | Flow::Return
        | Flow::Kernel => None,
    }
}

/// Returns length and count of the executed instructions between two addresses.
fn executions(
    counts: &Counts,
    (start, end): (u64, u64),
    length: impl Fn(u64) -> Option<u64>,
) -> BTreeMap<u64, (u64, u64)> {
    let mut executions = BTreeMap::new();
    for ((first, last), count) in counts.ranges() {
        if last < start || first >= end {
            continue;
        }
        let mut address = first;
        // A run may continue from one function into the next.
        while address <= last && address < end {
            let Some(length) = length(address) else { break };
            if address >= start {
                executions.entry(address).or_insert((length, 0)).1 += count;
            }
            address += length;
        }
    }
    executions
}

/// Returns how often each instruction between two addresses transferred control.
fn taken(counts: &Counts, (start, end): (u64, u64)) -> BTreeMap<u64, u64> {
    let mut taken = BTreeMap::new();
    for (&(from, _), count) in &counts.transfers {
        if let Some(from) = from.filter(|from| (start..end).contains(from)) {
            *taken.entry(from).or_default() += count;
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::fixture::{self, EXECUTABLE, MadeUpLines, at};
    use crate::export::source::Lines;

    struct MadeUpSource;

    impl Source for MadeUpSource {
        fn assembly(&self, at: Location) -> Option<String> {
            Some(format!("instruction at {:x}", at.address))
        }

        fn places(&self, at: Location) -> Vec<Place> {
            MadeUpLines.places(at)
        }

        fn line(&self, place: &Place) -> Option<String> {
            Some(format!("the text of line {}", place.line))
        }
    }

    fn listed(recording: &BranchRecording, place: u64) -> Listing {
        let program = fixture::program();
        let mut listings = Listings::new(recording, &program, &MadeUpSource);
        listings.of(Callee::at(at(place), &program)).unwrap()
    }

    #[test]
    fn only_what_was_executed_is_listed_and_gaps_show() {
        let work = listed(&fixture::two_modules(), 0x1200);
        let addresses: Vec<u64> = work.instructions.iter().map(|listed| listed.address).collect();
        assert_eq!(addresses, [0x1200, 0x1204, 0x1208, 0x120c, 0x1210, 0x1218, 0x121c]);
        let gaps: Vec<u64> =
            work.instructions.iter().filter(|listed| listed.behind_a_gap).map(|l| l.address).collect();
        assert_eq!(gaps, [0x1218]);
    }

    #[test]
    fn a_branch_tells_how_often_it_is_taken_and_where_it_leads() {
        let work = listed(&fixture::two_modules(), 0x1200);
        let branch = &work.instructions[1];
        let taken = branch.taken.unwrap();
        assert!(taken > 0.05 && taken < 0.95, "{taken}");
        assert_eq!(branch.target, Some(0x1218));
        assert!(
            work.instructions.iter().filter(|listed| listed.address != 0x1204).all(|l| l.taken.is_none())
        );
        assert!(work.instructions.iter().any(|listed| listed.executed == 1.0));
        let main = listed(&fixture::two_modules(), 0x1100);
        let call = main.instructions.iter().find(|listed| listed.address == 0x1108).unwrap();
        assert_eq!((call.target, call.leads_to.as_deref()), (None, Some("work")));
    }

    #[test]
    fn inlined_calls_are_places_within_each_other() {
        let work = listed(&fixture::two_modules(), 0x1200);
        let of = |address| work.instructions.iter().find(|listed| listed.address == address).unwrap();
        let names =
            |address| of(address).places.iter().map(|p| (p.function.as_str(), p.line)).collect::<Vec<_>>();
        assert_eq!(names(0x1208), [("work", 20)]);
        assert_eq!(names(0x1210), [("work", 21), ("step", 22)]);
        assert_eq!(of(0x1210).line.as_deref(), Some("the text of line 22"));
    }

    #[test]
    fn time_is_that_of_the_samples_each_for_its_period() {
        let mut recording = fixture::two_modules();
        recording.windows[0].period_ns = Some(30_000_000);
        let main = listed(&recording, 0x1100);
        let at_start = main.instructions.iter().find(|listed| listed.address == 0x1100).unwrap();
        assert!((at_start.time - 3.0 / 5.0).abs() < 1e-9, "{}", at_start.time);
    }

    #[test]
    fn code_in_no_function_has_no_listing() {
        let (recording, program) = (fixture::two_modules(), fixture::program());
        let mut listings = Listings::new(&recording, &program, &MadeUpSource);
        assert_eq!(listings.of(Callee { module: EXECUTABLE, start: None }), None);
    }
}
