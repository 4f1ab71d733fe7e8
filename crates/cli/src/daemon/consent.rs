//! What the daemon may do with each process: by the rules, and as far as no `corewise run` places it.

use super::detached::Detached;
use super::power;
use super::reserved::Reserved;
use crate::process_facts;
use crate::rules_files;
use corewise_core::cpuset::CpuSet;
use corewise_core::observe::Treatment;
use corewise_core::topology::Topology;
use corewise_live::{Consent, Where};
use corewise_render::terminal::Name;
use corewise_rules::{Fact, NONE, PowerSaver, RuleErrors, Rules, Settings, Verdict};
use corewise_sys::environment;
use corewise_sys::proc::Proc;
use corewise_sys::task::Task;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The rules in force, and what follows from them for the processes that were looked at.
pub struct Consents {
    directories: Vec<PathBuf>,
    rules: Rules,
    machine: Topology,
    found: HashMap<u32, Found>,
    said: Said,
    detached: Detached,
    reserved: Reserved,
    /// What says that the machine saves power, if that matters.
    saving: Option<String>,
    looked: Instant,
}

/// How often it is looked at what others decide: some firmware is slow to tell its profile.
const LOOKED_WITHIN: Duration = Duration::from_secs(1);

/// What may be done with a process, and why.
#[derive(Debug, Clone)]
pub struct Found {
    /// Where its threads may be placed.
    pub place: Where,
    /// Whether it may be changed how they wait.
    pub waits: bool,
    /// How it is placed, if not as everything else.
    pub treatment: Option<Arc<Treatment>>,
    /// The name of the rule that applies to it.
    pub rule: Option<Rc<str>>,
    /// Why it is left alone, if it is not a rule that says so.
    pub why_not: Option<&'static str>,
}

impl Found {
    /// It is left alone.
    fn left_alone(rule: Option<Rc<str>>, why_not: Option<&'static str>) -> Found {
        Found { place: Where::Nowhere, waits: false, treatment: None, rule, why_not }
    }
}

/// Pairs of a rule and a program's name: the log already says that the rule applies to the program.
type Said = HashSet<(String, String)>;

/// The number of these: a machine may run any number of programs.
const SAID_MAX: usize = 1000;

impl Consents {
    /// Reads the rules.
    pub fn read(directories: Vec<PathBuf>, machine: Topology) -> Result<Consents, RuleErrors> {
        let rules = rules_files::read(&directories)?;
        let (found, said, detached) = (HashMap::new(), Said::new(), Detached::default());
        let (reserved, saving, looked) = (Reserved::default(), None, Instant::now());
        let mut consents =
            Consents { directories, rules, machine, found, said, detached, reserved, saving, looked };
        consents.look_at(Path::new("/"));
        Ok(consents)
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
        self.look_at(Path::new("/"));
        let count = self.rules.rules.len();
        log::info!(corewise_event = "reload", corewise_rules = count; "the rules were read again: {count}");
        Ok(count)
    }

    /// Looks at what others decide for the whole machine.
    fn look_at(&mut self, root: &Path) {
        self.looked = Instant::now();
        self.reserved = Reserved::read(root);
        let matters = self.rules.daemon.power_saver.unwrap_or_default() == PowerSaver::LeaveAlone;
        self.saving = if matters { power::saving(root) } else { None };
    }

    /// Returns what others decide for the whole machine, in words.
    pub fn notes(&self) -> Vec<String> {
        let reserved = Some(self.reserved.to_string()).filter(|words| !words.is_empty());
        let reserved = reserved.map(|words| format!("{words}: no thread is placed there"));
        let words = |why| format!("no thread is placed but where a rule names its PEs, to save power: {why}");
        let saving = self.saving.as_ref().map(words);
        reserved.into_iter().chain(saving).collect()
    }

    /// Where a rule names the PEs of a program, it stays on them also while the machine saves power.
    fn place(&mut self, pid: u32) -> Where {
        match self.found(pid).place.clone() {
            Where::Anywhere if self.saving.is_some() => Where::Nowhere,
            place => place,
        }
    }

    fn treatment(&mut self, pid: u32) -> Option<Arc<Treatment>> {
        let treatment = self.found(pid).treatment.clone()?;
        let unplaced = || Treatment { policy: Some(NONE.into()), ..Treatment::clone(&treatment) };
        Some(if self.saving.is_some() { Arc::new(unplaced()) } else { treatment })
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
    let among = settings.pes.as_ref().and_then(|choice| choice.on(machine));
    let confined = among.as_ref().is_some_and(|among| !machine.pes.is_subset(among));
    let place = among.map_or(Where::Anywhere, Where::Among);
    let treatment = treatment(rules, &settings, confined).map(Arc::new);
    Found { place, waits: settings.waits.is_none_or(|waits| waits.any()), treatment, rule, why_not: None }
}

/// Returns how programs with these settings are placed, if not as everything else.
fn treatment(rules: &Rules, settings: &Settings, confined: bool) -> Option<Treatment> {
    let (policy, guard) = (settings.policy.as_ref(), settings.guard.unwrap_or(true));
    // Those who name the same policy share it, and choose when the first of them does.
    let first =
        policy.and_then(|_| rules.rules.iter().position(|rule| rule.settings.policy == settings.policy));
    let order = first.unwrap_or_default() as u32;
    let policy = policy.map(|policy| policy.to_string().into());
    let treatment = Treatment { policy, order, guard, confined };
    (treatment.policy.is_some() || !guard || confined).then_some(treatment)
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
    fn reserved(&mut self) -> CpuSet {
        let mut consents = self.0.borrow_mut();
        if consents.looked.elapsed() >= LOOKED_WITHIN {
            consents.look_at(Path::new("/"));
        }
        consents.reserved.pes()
    }

    fn to_placement(&mut self, pid: u32) -> Where {
        self.0.borrow_mut().place(pid)
    }

    fn to_waits(&mut self, pid: u32) -> bool {
        self.0.borrow_mut().found(pid).waits
    }

    fn treatment(&mut self, pid: u32) -> Option<Arc<Treatment>> {
        self.0.borrow_mut().treatment(pid)
    }

    fn forget(&mut self, pid: u32) {
        let mut consents = self.0.borrow_mut();
        consents.found.remove(&pid);
        consents.detached.forget(pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The consents by these rules on a machine of four PEs.
    fn by(rules: &str) -> (tempfile::TempDir, Consents) {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("rules.toml"), rules).unwrap();
        let machine = Topology::synthetic("core:4 pu:1").unwrap();
        let mut consents = Consents::read(vec![directory.path().to_owned()], machine).unwrap();
        consents.look_at(&directory.path().join("no machine"));
        (directory, consents)
    }

    #[test]
    fn a_policy_chooses_when_the_first_rule_that_names_it_does_and_the_guard_is_that_of_the_rule() {
        let rules = "[daemon]\nguard = 'off'\n\
                     [[rule]]\nname = 'a'\nmatch.name = 'no such'\nguard = 'on'\n\
                     [[rule]]\nname = 'b'\nmatch.name = 'no such'\npolicy = 'pa'\n\
                     [[rule]]\nname = 'c'\nmatch.user = '*'\npolicy = 'pa'\nguard = 'on'\nwaits = 'off'\n";
        let (_directory, mut consents) = by(rules);
        let found = consents.found(std::process::id());
        let expected = Treatment { policy: Some("pa".into()), order: 1, guard: true, confined: false };
        assert_eq!((found.treatment.as_deref(), found.waits), (Some(&expected), false));
        let only_unguarded = Treatment { policy: None, order: 0, guard: false, confined: false };
        let (_directory, mut consents) = by("[daemon]\nguard = 'off'\n");
        assert_eq!(consents.found(std::process::id()).treatment.as_deref(), Some(&only_unguarded));
        let (_directory, mut consents) = by("");
        assert_eq!(consents.found(std::process::id()).treatment, None);
    }

    #[test]
    fn nothing_is_placed_while_the_machine_saves_power_unless_a_rule_says_otherwise() {
        for (rules, expected) in
            [("", Where::Nowhere), ("[daemon]\npower-saver = 'ignore'\n", Where::Anywhere)]
        {
            let (directory, mut consents) = by(rules);
            let own = std::process::id();
            assert_eq!((consents.place(own), consents.notes()), (Where::Anywhere, Vec::new()));
            let profile = directory.path().join("sys/firmware/acpi/platform_profile");
            std::fs::create_dir_all(profile.parent().unwrap()).unwrap();
            std::fs::write(&profile, "low-power\n").unwrap();
            consents.look_at(directory.path());
            assert_eq!(consents.place(own), expected, "{rules}");
            assert_eq!(consents.notes().len(), usize::from(expected == Where::Nowhere));
            std::fs::write(&profile, "performance\n").unwrap();
            consents.look_at(directory.path());
            assert_eq!(consents.place(own), Where::Anywhere);
        }
    }

    #[test]
    fn a_program_stays_on_the_pes_of_its_rule_while_the_machine_saves_power() {
        let rule =
            |pes: &str| format!("[[rule]]\nname = 'a'\nmatch.user = '*'\npes = '{pes}'\npolicy = 'pa'\n");
        let own = std::process::id();
        let (_directory, mut consents) = by(&rule("2-3"));
        let treatment = |policy: &str| {
            Some(Arc::new(Treatment { policy: Some(policy.into()), order: 0, guard: true, confined: true }))
        };
        assert_eq!(consents.treatment(own), treatment("pa"));
        consents.saving = Some("a test".to_owned());
        assert_eq!(consents.place(own), Where::Among("2-3".parse().unwrap()));
        assert_eq!(consents.treatment(own), treatment(NONE));
        let (_directory, mut consents) = by(&rule("0-7"));
        assert!(!consents.treatment(own).unwrap().confined, "these are all PEs");
    }
}
