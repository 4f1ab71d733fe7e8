//! What the daemon may do with each process: by the rules, and as far as no `corewise run` places it.

use crate::process_facts;
use crate::rules_files;
use corewise_core::topology::Topology;
use corewise_live::{Consent, Where};
use corewise_rules::{Fact, RuleErrors, Rules, Verdict};
use corewise_sys::environment;
use corewise_sys::proc::Proc;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;

/// The rules in force, and what follows from them for the processes that were looked at.
pub struct Consents {
    directories: Vec<PathBuf>,
    rules: Rules,
    machine: Topology,
    found: HashMap<u32, Found>,
}

struct Found {
    place: Where,
    waits: bool,
}

impl Consents {
    /// Reads the rules.
    pub fn read(directories: Vec<PathBuf>, machine: Topology) -> Result<Consents, RuleErrors> {
        let rules = rules_files::read(&directories)?;
        Ok(Consents { directories, rules, machine, found: HashMap::new() })
    }

    /// Returns the rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Reads the rules again, and returns their number. If anything is wrong, the former ones stay in force.
    pub fn reload(&mut self) -> Result<usize, RuleErrors> {
        self.rules = rules_files::read(&self.directories)?;
        self.found.clear();
        Ok(self.rules.rules.len())
    }

    fn found(&mut self, pid: u32) -> &Found {
        let Consents { rules, machine, found, .. } = self;
        found.entry(pid).or_insert_with(|| look(rules, machine, pid))
    }
}

fn look(rules: &Rules, machine: &Topology, pid: u32) -> Found {
    let proc = Proc::own();
    if environment::started_by(&proc, pid).is_some_and(environment::runs_corewise) {
        return Found { place: Where::Nowhere, waits: false };
    }
    let facts = process_facts::of(&proc, pid, rules.ask_for(Fact::BuildId));
    let Verdict { watched, settings, .. } = rules.matching(&facts);
    if !watched {
        return Found { place: Where::Nowhere, waits: false };
    }
    let among = settings.pes.and_then(|choice| choice.on(machine));
    let place = among.map_or(Where::Anywhere, Where::Among);
    Found { place, waits: settings.waits.is_none_or(|waits| waits.any()) }
}

/// The consents of the daemon, which can also read its rules again.
pub struct Shared(pub Rc<RefCell<Consents>>);

impl Consent for Shared {
    fn to_placement(&mut self, pid: u32) -> Where {
        self.0.borrow_mut().found(pid).place.clone()
    }

    fn to_waits(&mut self, pid: u32) -> bool {
        self.0.borrow_mut().found(pid).waits
    }

    fn forget(&mut self, pid: u32) {
        self.0.borrow_mut().found.remove(&pid);
    }
}
