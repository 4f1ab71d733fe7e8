//! A cell: a set of measurements that are taken together, so that their figures can be compared.
//!
//! Figures that are compared (alone against beside another, close against distant) are measured right after
//! one another in random order, repeatedly, so that slow changes affect all of them equally. A cell lists
//! these repetitions as its *arms*; a *contrast* is a weighted sum of logarithms of their rates, such as
//! "half of each thread's rate when close, minus half of each when distant".

use super::Task;
use crate::ids::PeId;
use crate::kernels::{Kernel, Nas, ProblemClass};
use crate::profile::{Load, Resource, Workload};

/// What runs at the same time.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Arm {
    /// One kernel on each of several PEs.
    Tasks(Vec<Task>),
    /// A NAS benchmark with one thread on each PE.
    Nas(Nas, ProblemClass, Vec<PeId>),
}

/// The purpose of a cell, with the indices of the arms that serve it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Purpose {
    /// Measures a workload on pairs of every class of a star.
    Pair {
        workload: Workload,
        /// The first thread alone on the reference PE; none for synchronisation.
        alone: Option<usize>,
        classes: Vec<ClassArms>,
    },
    /// Measures the first thread's slowdown by a neighbour of varying duty; arm 0 has no neighbour.
    Contention { resource: Resource, load: Load, points: Vec<CurveArm> },
    /// Measures each PE's speed.
    Speeds { kernel: Kernel, places: Vec<Place> },
    /// Measures synchronisation latencies; pair i is measured by arm i.
    Latencies { kernel: Kernel, pairs: Vec<(PeId, PeId)> },
    /// Compares random pairs of a class (arms 1 and on) with its representative (arm 0).
    Check { class: usize },
    /// Measures a NAS benchmark: arm 0 with one thread, the others with two on a pair of each class in order.
    Nas { nas: Nas, size: ProblemClass, classes: Vec<usize> },
}

/// The arms of one class in a [`Purpose::Pair`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ClassArms {
    pub class: usize,
    /// The second thread alone on the partner; none for synchronisation.
    pub alone: Option<usize>,
    pub together: usize,
}

/// One point of a contention curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CurveArm {
    pub class: usize,
    pub duty: f64,
    pub arm: usize,
}

/// The arm and task that measure one PE's speed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Place {
    pub pe: PeId,
    pub arm: usize,
    pub task: usize,
}

/// The logarithm of the rate of one task of one arm, times a weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Term {
    pub arm: usize,
    pub task: usize,
    pub weight: f64,
}

/// A sum of terms.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Contrast(pub Vec<Term>);

/// A cell of the plan.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cell {
    /// A description for the user.
    pub label: String,
    pub purpose: Purpose,
    pub arms: Vec<Arm>,
    /// The contrasts whose intervals have to become narrow.
    pub wanted: Vec<Contrast>,
}

impl Arm {
    /// Returns an arm with the two threads of a pair.
    pub fn pair(workload: Workload, first: PeId, second: PeId) -> Self {
        let task = |pe, load: Load| Task::new(pe, load.kernel, load.region_bytes);
        Arm::Tasks(vec![task(first, workload.first), task(second, workload.second)])
    }

    /// Returns an arm with one thread alone.
    pub fn alone(pe: PeId, load: Load) -> Self {
        Arm::Tasks(vec![Task::new(pe, load.kernel, load.region_bytes)])
    }

    /// Returns the PEs in use, in the order of the tasks.
    pub fn pes(&self) -> Vec<PeId> {
        match self {
            Arm::Tasks(tasks) => tasks.iter().map(|task| task.pe).collect(),
            Arm::Nas(_, _, pes) => pes.clone(),
        }
    }

    /// Returns whether its threads work together, so that there is one rate.
    pub fn is_joint(&self) -> bool {
        match self {
            Arm::Tasks(tasks) => tasks.iter().any(|task| task.kernel.needs_partner()),
            Arm::Nas(..) => true,
        }
    }

    /// Returns the logarithm of the geometric mean of its threads' rates, or of the one rate of joint work.
    pub fn rate(&self, index: usize) -> Contrast {
        let tasks = if self.is_joint() { 1 } else { self.pes().len() };
        let weight = 1.0 / tasks as f64;
        Contrast((0..tasks).map(|task| Term { arm: index, task, weight }).collect())
    }
}

impl Contrast {
    /// Returns the logarithm of one task's rate.
    pub fn rate(arm: usize, task: usize) -> Self {
        Self(vec![Term { arm, task, weight: 1.0 }])
    }

    /// Returns the logarithm of the ratio of two contrasts.
    pub fn minus(mut self, other: Contrast) -> Self {
        self.0.extend(other.0.into_iter().map(|term| Term { weight: -term.weight, ..term }));
        self
    }

    /// Returns the logarithm of the geometric mean of two contrasts.
    pub fn mean_with(mut self, other: Contrast) -> Self {
        self.0.extend(other.0);
        self.0.iter_mut().for_each(|term| term.weight /= 2.0);
        self
    }
}

impl ClassArms {
    /// Returns as a logarithm how much faster the two threads are beside each other than each alone on its
    /// PE.
    pub fn against_alone(&self, arms: &[Arm], alone: Option<usize>) -> Option<Contrast> {
        let alone = Contrast::rate(alone?, 0).mean_with(Contrast::rate(self.alone?, 0));
        Some(arms[self.together].rate(self.together).minus(alone))
    }
}

impl Cell {
    /// Returns the kernels that the cell needs.
    pub fn kernels(&self) -> impl Iterator<Item = Kernel> {
        self.arms
            .iter()
            .flat_map(|arm| match arm {
                Arm::Tasks(tasks) => tasks.as_slice(),
                Arm::Nas(..) => &[],
            })
            .map(|task| task.kernel)
    }
}
