//! The lines of memory that threads of a process hand to each other ([`crate::sim::lines`]).

/// The lines of a process, with the PE that wrote each last.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    barrier: Line,
    locks: Vec<Line>,
    pools: Vec<Line>,
}

type Line = Option<usize>;

/// What a line belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Of {
    Barrier,
    Lock(usize),
    Pool(usize),
}

impl Lines {
    /// The lines of so many locks and pools, which nobody has written.
    pub fn new(locks: usize, pools: usize) -> Lines {
        Lines { barrier: None, locks: vec![None; locks], pools: vec![None; pools] }
    }

    /// A PE writes a line. Returns the one that wrote it before.
    pub fn write(&mut self, of: Of, pe: usize) -> Option<usize> {
        let line = match of {
            Of::Barrier => Some(&mut self.barrier),
            Of::Lock(number) => self.locks.get_mut(number),
            Of::Pool(number) => self.pools.get_mut(number),
        };
        line.and_then(|line| line.replace(pe))
    }
}
