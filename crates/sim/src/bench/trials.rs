//! Tests discovery on machines of many shapes whose sharing is known.
//!
//! A trial consists of a shape, a numbering of its PEs, and what is reported: the truth, the truth of another
//! numbering (a hypervisor that reports wrong siblings), or a flat machine without caches. All of it and the
//! noise follow from the seed. The result is exact if it contains every group of every kind and no other.

use super::{Conditions, ModelMachine, Tally, renumbered};
use crate::machine::{Machine, MachineSpec};
use crate::random::Random;
use corewise_core::calibrate::discover::{self, Found, KINDS};
use corewise_core::cpuset::CpuSet;
use corewise_core::topology::Topology;

/// Shapes from 2 to 256 PEs. Those of four PEs are the paper's (Table 1).
pub const SHAPES: [&str; 24] = [
    "pack:1 l3:1(size=8MB) l2:2(size=512kB) core:1 pu:1",
    "pack:1 l2:1(size=2MB) core:1 pu:2",
    "pack:2 l2:1(size=1MB) core:1 pu:1",
    "pack:1 l3:1(size=6MB) l2:3(size=256kB) core:1 pu:1",
    "numa:2 pack:1 l2:2(size=1MB) core:1 pu:1",
    "pack:1 l3:1(size=8MB) l2:2(size=2MB) module:1 core:2 pu:1",
    "pack:1 l2:2(size=512kB) core:1 pu:2",
    "pack:1 l2:2(size=3MB) core:2 pu:1",
    "pack:1 l3:1(size=8MB) l2:2(size=256kB) core:1 pu:2",
    "numa:2 pack:1 l3:1(size=8MB) l2:2(size=256kB) core:1 pu:1",
    "numa:2 pack:1 l3:1(size=8MB) l2:1(size=256kB) core:1 pu:2",
    "pack:1 l3:1(size=8MB) l2:4(size=2MB) module:1 core:2 pu:1",
    "pack:1 l3:2(size=16MB) l2:3(size=512kB) core:1 pu:2",
    "numa:2 pack:1 l3:1(size=10MB) l2:2(size=512kB) core:1 pu:4",
    "numa:4 pack:1 l3:1(size=6MB) l2:6(size=512kB) core:1 pu:1",
    "numa:2 pack:1 l3:2(size=32MB) l2:4(size=1MB) core:1 pu:2",
    "pack:1 l3:1(size=24MB) l2:12(size=2MB) core:4 pu:1",
    "numa:4 pack:1 l3:2(size=8MB) l2:4(size=2MB) module:1 core:2 pu:1",
    "numa:2 pack:1 l3:1(size=40MB) l2:16(size=2MB) core:1 pu:2",
    "numa:2 pack:1 l3:6(size=32MB) l2:8(size=1MB) core:1 pu:1",
    "numa:2 pack:1 l3:8(size=16MB) l2:4(size=512kB) core:1 pu:2",
    "numa:4 pack:1 l3:1(size=32MB) l2:12(size=1MB) core:1 pu:4",
    "numa:2 pack:1 l3:16(size=32MB) l2:4(size=1MB) core:1 pu:2",
    "numa:4 pack:1 l3:1(size=48MB) l2:16(size=1MB) module:1 core:4 pu:1",
];

/// How the PEs of a shape are numbered.
const NUMBERINGS: [&str; 3] = ["in order", "siblings half the machine apart", "shuffled"];

/// What is reported about a machine.
const REPORTED: [&str; 3] = ["the truth", "another numbering's sharing", "nothing"];

/// The result of one trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// The shape.
    pub shape: String,
    /// Its numbering and what was reported, in words.
    pub variant: String,
    /// Its PEs.
    pub pes: usize,
    /// The discovered groups.
    pub found: Found,
    /// Whether they are exactly the truth.
    pub exact: bool,
    /// The number of repetitions and their tasks.
    pub tally: Tally,
    /// The duration in the simulated machine's time, in seconds.
    pub seconds: f64,
}

/// Runs discovery on a machine of a shape; numbering, report and noise follow from the seed.
pub fn trial(shape: &str, conditions: Conditions, seed: u64) -> Trial {
    let mut random = Random::new(seed, 1);
    let plain = Topology::synthetic(shape).expect("the shapes are written correctly");
    let count = plain.pes.len() as u32;
    let (numbering, reported) = (random.below(NUMBERINGS.len()), random.below(REPORTED.len()));
    let numbers: Vec<u32> = match numbering {
        0 => (0..count).collect(),
        1 => (0..count).map(|pe| pe / 2 + pe % 2 * count.div_ceil(2)).collect(),
        _ => shuffled(count, &mut random),
    };
    let truth = renumbered(&plain, &numbers).expect("a permutation keeps every invariant");
    let reported_topology = match reported {
        0 => truth.clone(),
        1 => renumbered(&plain, &shuffled(count, &mut random)).expect("a permutation keeps every invariant"),
        _ => Topology::synthetic(&format!("pu:{count}")).expect("a flat machine"),
    };
    let machine = Machine::with_topology(MachineSpec::plain(shape), truth).expect("plain parameters");
    let mut machine = ModelMachine::new(machine, conditions, seed);
    let found = discover::discover(&mut machine, &reported_topology);
    let exact = is_exact(machine.truth(), &found);
    Trial {
        shape: shape.to_owned(),
        variant: format!("numbered {}, reported {}", NUMBERINGS[numbering], REPORTED[reported]),
        pes: count as usize,
        found,
        exact,
        tally: machine.tally(),
        seconds: corewise_core::calibrate::Executor::now(&machine).as_secs_f64(),
    }
}

/// Returns whether the result is exact. A kind of domain that the machine lacks may be left undetermined, but
/// must have no groups.
fn is_exact(truth: &Topology, found: &Found) -> bool {
    KINDS.into_iter().all(|kind| {
        let expected = discover::groups(truth, kind, &truth.pes);
        let groups = found.discovery.groups.iter().filter(|(of, _)| *of == kind);
        let groups: Vec<CpuSet> = groups.map(|(_, pes)| pes.clone()).collect();
        let judged = found.discovery.looked_for.contains(&kind);
        groups == expected && (judged || truth.domains(kind).next().is_none())
    })
}

fn shuffled(count: u32, random: &mut Random) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count).collect();
    for last in (1..numbers.len()).rev() {
        numbers.swap(last, random.below(last + 1));
    }
    numbers
}
