//! The demands of all programs, each once: a number is compared and copied at once.

use crate::program::{Op, Program};
use corewise_core::machine_model::contention::Demand;
use std::ops::Index;

/// The number of a demand.
pub(crate) type DemandId = u32;

/// All demands.
#[derive(Debug)]
pub(crate) struct Demands {
    all: Vec<Demand>,
    /// The demand of each op of each application's program; [`Demands::NONE`] of those without work.
    of_ops: Vec<Vec<DemandId>>,
}

impl Demands {
    /// That of a thread that spins, and that of one that has not begun.
    pub const SPIN: DemandId = 0;
    pub const NONE: DemandId = 1;

    /// Numbers the demands of applications' programs.
    pub fn new<'a>(programs: impl Iterator<Item = &'a Program>) -> Self {
        let mut all = vec![Demand::SPIN, Demand::default()];
        let mut number = |demand: &Demand| {
            let known = all.iter().position(|known| known == demand);
            known.unwrap_or_else(|| {
                all.push(*demand);
                all.len() - 1
            }) as DemandId
        };
        let mut of_op = |op: &Op| op.work().map_or(Self::NONE, |work| number(&work.demand));
        let of_ops = programs.map(|program| program.ops.iter().map(&mut of_op).collect()).collect();
        Self { all, of_ops }
    }

    /// Returns the number of an op's demand.
    pub fn of_op(&self, app: usize, op: usize) -> DemandId {
        self.of_ops[app][op]
    }

    /// Returns all demands by number.
    pub fn all(&self) -> &[Demand] {
        &self.all
    }
}

impl Index<DemandId> for Demands {
    type Output = Demand;

    fn index(&self, number: DemandId) -> &Demand {
        &self.all[number as usize]
    }
}
