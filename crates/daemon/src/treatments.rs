//! How the daemon treats each process: by the rules, by who has detached it, by whether a `corewise run`
//! places it, and by whether the machine saves power. Together they are one [`Treatment`].

use crate::detached::Detached;
use crate::power;
use crate::reserved::Reserved;
use corewise_core::cpuset::CpuSet;
use corewise_core::observe::Treatment;
use corewise_core::topology::Topology;
use corewise_core::waits::WaitChanges;
use corewise_live::MakeTreatments;
use corewise_render::terminal::Name;
use corewise_rulebook as rulebook;
use corewise_rules::{Fact, Matched, NONE, PowerSaver, RuleErrors, Rules, Settings};
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
pub struct Treatments {
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

/// How a process is treated.
#[derive(Debug, Clone)]
pub struct Found {
    /// How; the default: as everything else.
    pub treatment: Arc<Treatment>,
    /// The same, were it not that the machine saves power.
    otherwise: Arc<Treatment>,
    /// The name of the rule that applies to it.
    pub rule: Option<Rc<str>>,
}

impl Found {
    fn new(otherwise: Treatment, rule: Option<Rc<str>>, saving: Option<&str>) -> Found {
        let otherwise = Arc::new(otherwise);
        let mut found = Found { treatment: Arc::clone(&otherwise), otherwise, rule };
        found.take_saving(saving);
        found
    }

    /// What says that the machine saves power, if anything. Where a rule names the PEs of a program, it stays
    /// on them.
    fn take_saving(&mut self, saving: Option<&str>) {
        let Treatment { left_alone, pes, .. } = &*self.otherwise;
        let Some(why) = saving.filter(|_| left_alone.is_none()) else {
            self.treatment = Arc::clone(&self.otherwise);
            return;
        };
        let mut treatment = Treatment::clone(&self.otherwise);
        match pes {
            Some(_) => treatment.policy = Some(NONE.into()),
            None => treatment.left_alone = Some(format!("the machine saves power: {why}").into()),
        }
        self.treatment = Arc::new(treatment);
    }
}

/// Pairs of a rule and a program's name: the log already says that the rule applies to the program.
type Said = HashSet<(String, String)>;

/// The number of these: a machine may run any number of programs.
const SAID_MAX: usize = 1000;

impl Treatments {
    /// Reads the rules.
    pub fn read(directories: Vec<PathBuf>, machine: Topology) -> Result<Treatments, RuleErrors> {
        let rules = rulebook::files::read(&directories)?;
        let (found, said, detached) = (HashMap::new(), Said::new(), Detached::default());
        let (reserved, saving, looked) = (Reserved::default(), None, Instant::now());
        let mut treatments =
            Treatments { directories, rules, machine, found, said, detached, reserved, saving, looked };
        treatments.look_at(Path::new("/"));
        Ok(treatments)
    }

    /// Returns the rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Reads the rules again, and returns their number. If anything is wrong, the former ones stay in force.
    pub fn reload(&mut self) -> Result<usize, RuleErrors> {
        self.rules = rulebook::files::read(&self.directories).inspect_err(|errors| {
            log::warn!(corewise_event = "reload"; "the rules stay as they are: {errors}");
        })?;
        self.found.clear();
        self.said.clear();
        self.look_at(Path::new("/"));
        let count = self.rules.rules.len();
        log::info!(corewise_event = "reload", corewise_rules = count; "the rules were read again: {count}");
        Ok(count)
    }

    /// Takes in the machine: it may have PEs by now that a rule names and that were offline at the start.
    pub fn take_machine(&mut self, machine: &Topology) {
        if self.machine.pes != machine.pes {
            self.machine = machine.clone();
            self.found.clear();
        }
    }

    /// Looks at what others decide for the whole machine.
    fn look_at(&mut self, root: &Path) {
        self.looked = Instant::now();
        self.reserved = Reserved::read(root);
        let matters = self.rules.daemon.power_saver.unwrap_or_default() == PowerSaver::LeaveAlone;
        let saving = if matters { power::saving(root) } else { None };
        if saving != self.saving {
            self.saving = saving;
            let saving = self.saving.as_deref();
            self.found.values_mut().for_each(|found| found.take_saving(saving));
        }
    }

    /// Returns what others decide for the whole machine, in words.
    pub fn notes(&self) -> Vec<String> {
        let reserved = Some(self.reserved.to_string()).filter(|words| !words.is_empty());
        let reserved = reserved.map(|words| format!("{words}: no thread is placed there"));
        let words = |why| format!("no thread is placed but where a rule names its PEs, to save power: {why}");
        let saving = self.saving.as_ref().map(words);
        reserved.into_iter().chain(saving).collect()
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

    /// Returns how a process is treated.
    pub fn found(&mut self, pid: u32) -> &Found {
        let Treatments { rules, machine, found, said, detached, saving, .. } = self;
        found.entry(pid).or_insert_with(|| {
            let (treatment, rule) = match detached.has(pid) {
                true => (Treatment::untouched("it was detached; `corewise attach` takes that back"), None),
                false => look(rules, machine, pid, said),
            };
            Found::new(treatment, rule, saving.as_deref())
        })
    }
}

fn look(rules: &Rules, machine: &Topology, pid: u32, said: &mut Said) -> (Treatment, Option<Rc<str>>) {
    let proc = Proc::own();
    if environment::started_by(&proc, pid).ok().flatten().is_some_and(environment::runs_corewise) {
        return (Treatment::untouched("the `corewise run` that started it places it"), None);
    }
    let facts = rulebook::facts::of(&proc, pid, rules.ask_for(Fact::BuildId));
    let Matched { rule, watched, settings } = rules.matching(&facts);
    let rule = rule.map(|rule| Rc::from(rule.name.as_str()));
    if let Some(rule) = &rule {
        say(said, rule, facts.name.as_deref().unwrap_or("?"), watched);
    }
    if !watched {
        let why =
            if rule.is_some() { "its rule says so" } else { "the rules leave alone what they do not name" };
        return (Treatment::untouched(why), rule);
    }
    (treatment(rules, &settings, machine), rule)
}

/// Returns how programs with these settings are treated.
fn treatment(rules: &Rules, settings: &Settings, machine: &Topology) -> Treatment {
    let pes = settings.pes.as_ref().and_then(|choice| choice.on(machine));
    let (policy, guard) = (settings.policy.as_ref(), settings.guard.unwrap_or(true));
    // Those who name the same policy share it, and choose when the first of them does.
    let first =
        policy.and_then(|_| rules.rules.iter().position(|rule| rule.settings.policy == settings.policy));
    let order = first.unwrap_or_default() as u32;
    Treatment {
        pes: pes.filter(|pes| !machine.pes.is_subset(pes)),
        policy: policy.map(|policy| policy.to_string().into()),
        order,
        guard,
        waits: settings.waits.unwrap_or(WaitChanges::ALL),
        left_alone: None,
    }
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

/// The treatments of the daemon, which can also read its rules again.
pub struct Shared(pub Rc<RefCell<Treatments>>);

impl MakeTreatments for Shared {
    fn reserved(&mut self) -> CpuSet {
        let mut treatments = self.0.borrow_mut();
        if treatments.looked.elapsed() >= LOOKED_WITHIN {
            treatments.look_at(Path::new("/"));
        }
        treatments.reserved.pes()
    }

    fn treatment(&mut self, pid: u32) -> Option<Arc<Treatment>> {
        let mut treatments = self.0.borrow_mut();
        let treatment = &treatments.found(pid).treatment;
        (**treatment != Treatment::default()).then(|| Arc::clone(treatment))
    }

    fn forget(&mut self, pid: u32) {
        let mut treatments = self.0.borrow_mut();
        treatments.found.remove(&pid);
        treatments.detached.forget(pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The treatments by these rules on a machine of four PEs.
    fn by(rules: &str) -> (tempfile::TempDir, Treatments) {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("rules.toml"), rules).unwrap();
        let machine = Topology::synthetic("core:4 pu:1").unwrap();
        let mut treatments = Treatments::read(vec![directory.path().to_owned()], machine).unwrap();
        treatments.look_at(&directory.path().join("no machine"));
        (directory, treatments)
    }

    /// How this process is treated.
    fn own(treatments: &mut Treatments) -> Treatment {
        Treatment::clone(&treatments.found(std::process::id()).treatment)
    }

    #[test]
    fn a_policy_chooses_when_the_first_rule_that_names_it_does_and_the_guard_is_that_of_the_rule() {
        let rules = "[daemon]\nguard = 'off'\n\
                     [[rule]]\nname = 'a'\nmatch.name = 'no such'\nguard = 'on'\n\
                     [[rule]]\nname = 'b'\nmatch.name = 'no such'\npolicy = 'pa'\n\
                     [[rule]]\nname = 'c'\nmatch.user = '*'\npolicy = 'pa'\nguard = 'on'\n";
        let (_directory, mut treatments) = by(rules);
        let expected = Treatment { policy: Some("pa".into()), order: 1, ..Treatment::default() };
        assert_eq!(own(&mut treatments), expected);
        let (_directory, mut treatments) = by("[daemon]\nguard = 'off'\n");
        assert_eq!(own(&mut treatments), Treatment { guard: false, ..Treatment::default() });
        let (_directory, mut treatments) = by("");
        assert_eq!(own(&mut treatments), Treatment::default());
        assert_eq!(Shared(Rc::new(RefCell::new(treatments))).treatment(std::process::id()), None);
    }

    #[test]
    fn a_rule_that_names_pes_holds_on_those_that_came_online_after_the_start() {
        let (_directory, mut treatments) = by("[[rule]]\nname = 'a'\nmatch.user = '*'\npes = '4'\n");
        assert_eq!(own(&mut treatments).pes, None, "there is no such PE");
        treatments.take_machine(&Topology::synthetic("core:5 pu:1").unwrap());
        assert_eq!(own(&mut treatments).pes, Some("4".parse().unwrap()));
    }

    #[test]
    fn what_a_rule_permits_about_waits_is_what_its_word_says_else_the_daemons() {
        let rule = "[[rule]]\nname = 'a'\nmatch.user = '*'\n";
        let waits = |rules: &str| own(&mut by(rules).1).waits.word();
        for word in ["off", "spin", "turns", "auto"] {
            assert_eq!(waits(&format!("{rule}waits = '{word}'\n")), word);
            assert_eq!(waits(&format!("[daemon]\nwaits = '{word}'\n{rule}")), word);
            assert_eq!(waits(&format!("[daemon]\nwaits = 'off'\n{rule}waits = '{word}'\n")), word);
        }
        assert_eq!(waits(rule), "auto");
    }

    #[test]
    fn nothing_is_placed_while_the_machine_saves_power_unless_a_rule_says_otherwise() {
        for (rules, is_left_alone) in [("", true), ("[daemon]\npower-saver = 'ignore'\n", false)] {
            let (directory, mut treatments) = by(rules);
            assert_eq!((own(&mut treatments), treatments.notes()), (Treatment::default(), Vec::new()));
            let profile = directory.path().join("sys/firmware/acpi/platform_profile");
            std::fs::create_dir_all(profile.parent().unwrap()).unwrap();
            std::fs::write(&profile, "low-power\n").unwrap();
            treatments.look_at(directory.path());
            let Treatment { left_alone, waits, .. } = own(&mut treatments);
            let says_why = left_alone.is_some_and(|why| why.contains("saves power"));
            assert_eq!((says_why, waits), (is_left_alone, WaitChanges::ALL), "{rules}");
            assert_eq!(treatments.notes().len(), usize::from(is_left_alone));
            std::fs::write(&profile, "performance\n").unwrap();
            treatments.look_at(directory.path());
            assert_eq!(own(&mut treatments), Treatment::default());
        }
    }

    #[test]
    fn a_program_stays_on_the_pes_of_its_rule_while_the_machine_saves_power() {
        let rule =
            |pes: &str| format!("[[rule]]\nname = 'a'\nmatch.user = '*'\npes = '{pes}'\npolicy = 'pa'\n");
        let (_directory, mut treatments) = by(&rule("2-3"));
        let expected = |policy: &str| {
            let pes = Some("2-3".parse().unwrap());
            Treatment { pes, policy: Some(policy.into()), ..Treatment::default() }
        };
        assert_eq!(own(&mut treatments), expected("pa"));
        treatments.found.get_mut(&std::process::id()).unwrap().take_saving(Some("a test"));
        assert_eq!(own(&mut treatments), expected(NONE));
        let (_directory, mut treatments) = by(&rule("0-7"));
        assert_eq!(own(&mut treatments).pes, None, "these are all PEs");
    }

    #[test]
    fn what_is_detached_or_left_alone_by_a_rule_keeps_its_waits_and_it_is_said_why() {
        let alone = "[[rule]]\nname = 'a'\nmatch.user = '*'\nleave-alone = true\n";
        let (_directory, mut treatments) = by(alone);
        assert_eq!(own(&mut treatments), Treatment::untouched("its rule says so"));
        let (_directory, mut treatments) = by("[daemon]\nwatch = 'matched'\n");
        assert!(own(&mut treatments).left_alone.unwrap().contains("do not name"));
        let (_directory, mut treatments) = by("");
        let this = Task::of(std::process::id()).unwrap().unwrap();
        treatments.detach(&[this], true);
        let treatment = own(&mut treatments);
        assert!(treatment.left_alone.unwrap().contains("detached") && !treatment.waits.any());
        treatments.detach(&[this], false);
        assert_eq!(own(&mut treatments), Treatment::default());
    }
}
