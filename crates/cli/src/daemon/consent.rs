//! What the daemon may do with each process: by the rules, and as far as no `corewise run` places it.

use super::detached::Detached;
use crate::process_facts;
use crate::rules_files;
use corewise_core::topology::Topology;
use corewise_live::{Consent, Where};
use corewise_render::terminal::Name;
use corewise_rules::{Fact, RuleErrors, Rules, Verdict};
use corewise_sys::environment;
use corewise_sys::proc::Proc;
use corewise_sys::task::Task;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::rc::Rc;

/// The rules in force, and what follows from them for the processes that were looked at.
pub struct Consents {
    directories: Vec<PathBuf>,
    rules: Rules,
    machine: Topology,
    found: HashMap<u32, Found>,
    said: Said,
    detached: Detached,
}

/// What may be done with a process, and why.
#[derive(Debug, Clone)]
pub struct Found {
    /// Where its threads may be placed.
    pub place: Where,
    /// Whether it may be changed how they wait.
    pub waits: bool,
    /// The name of the rule that applies to it.
    pub rule: Option<Rc<str>>,
    /// Why it is left alone, if it is not a rule that says so.
    pub why_not: Option<&'static str>,
}

impl Found {
    /// It is left alone.
    fn left_alone(rule: Option<Rc<str>>, why_not: Option<&'static str>) -> Found {
        Found { place: Where::Nowhere, waits: false, rule, why_not }
    }
}

/// The rules and names of programs of which the log has been told that one applies to the other.
type Said = HashSet<(String, String)>;

/// The number of these: a machine may run any number of programs.
const SAID_MAX: usize = 1000;

impl Consents {
    /// Reads the rules.
    pub fn read(directories: Vec<PathBuf>, machine: Topology) -> Result<Consents, RuleErrors> {
        let rules = rules_files::read(&directories)?;
        let (found, said, detached) = (HashMap::new(), Said::new(), Detached::default());
        Ok(Consents { directories, rules, machine, found, said, detached })
    }

    /// Returns the rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Reads the rules again, and returns their number. If anything is wrong, the former ones stay in force.
    pub fn reload(&mut self) -> Result<usize, RuleErrors> {
        self.rules = rules_files::read(&self.directories).inspect_err(|errors| {
            log::warn!(corewise_event = "reload"; "the rules stay as they are: {errors}");
        })?;
        self.found.clear();
        self.said.clear();
        let count = self.rules.rules.len();
        log::info!(corewise_event = "reload", corewise_rules = count; "the rules were read again: {count}");
        Ok(count)
    }

    /// Returns the name of the rule that matches a process, if it was looked at and one does.
    pub fn rule_of(&self, pid: u32) -> Option<&str> {
        self.found.get(&pid)?.rule.as_deref()
    }

    /// Decides whether clients have detached processes.
    pub fn detach(&mut self, processes: &[Task], is_detached: bool) {
        self.detached.decide(processes, is_detached);
        processes.iter().for_each(|task| drop(self.found.remove(&task.id)));
    }

    /// Returns what may be done with a process.
    pub fn found(&mut self, pid: u32) -> &Found {
        let Consents { rules, machine, found, said, detached, .. } = self;
        found.entry(pid).or_insert_with(|| match detached.has(pid) {
            true => Found::left_alone(None, Some("it was detached; `corewise attach` takes that back")),
            false => look(rules, machine, pid, said),
        })
    }
}

fn look(rules: &Rules, machine: &Topology, pid: u32, said: &mut Said) -> Found {
    let proc = Proc::own();
    if environment::started_by(&proc, pid).is_some_and(environment::runs_corewise) {
        return Found::left_alone(None, Some("the `corewise run` that started it places it"));
    }
    let facts = process_facts::of(&proc, pid, rules.ask_for(Fact::BuildId));
    let Verdict { rule, watched, settings } = rules.matching(&facts);
    let rule = rule.map(|rule| Rc::from(rule.name.as_str()));
    if let Some(rule) = &rule {
        say(said, rule, facts.name.as_deref().unwrap_or("?"), watched);
    }
    if !watched {
        let why_not = rule.is_none().then_some("the rules leave alone what they do not name");
        return Found::left_alone(rule, why_not);
    }
    let among = settings.pes.and_then(|choice| choice.on(machine));
    let place = among.map_or(Where::Anywhere, Where::Among);
    Found { place, waits: settings.waits.is_none_or(|waits| waits.any()), rule, why_not: None }
}

/// Tells the log once that a rule applies to programs of this name.
fn say(said: &mut Said, rule: &str, program: &str, watched: bool) {
    if said.len() < SAID_MAX && said.insert((rule.to_owned(), program.to_owned())) {
        let treated = if watched { "treated" } else { "left alone" };
        log::info!(
            corewise_event = "rule", corewise_rule = rule, corewise_program = program;
            "{} is {treated} by the rule {}", Name(program), Name(rule)
        );
    }
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
        let mut consents = self.0.borrow_mut();
        consents.found.remove(&pid);
        consents.detached.forget(pid);
    }
}
