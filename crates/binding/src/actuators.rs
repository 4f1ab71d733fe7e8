//! All actuators of a run behind one name.
//!
//! Each change goes to the actuator that carries out its kind; one that none carries out is
//! [`OutcomeKind::Unsupported`]. They share the record of changes, and with it the guardian. At the end
//! everything is given back in a fixed order: first turns, then whatever the record has of threads, with what
//! others have inherited of it ([`crate::restore`]), and the waits of programs last, as a hostile program can
//! delay those who read its memory; only then the guardian is dismissed.
//!
//! Another actuator is one more line in [`Actuators::begin`].

use super::act_token::ActToken;
use super::actuator::Actuator;
use super::changes::Changes;
use super::guardian::Guardian;
use super::ledger::Entry;
use super::masks::Masks;
use super::restore::{Remains, restore_threads, restore_words};
use super::runtimes::Runtimes;
use super::thread_weight;
use super::turns::Turns;
use super::weights::Weights;
use super::word::Memories;
use corewise_core::cpuset::CpuSet;
use corewise_core::engine::EngineConfig;
use corewise_core::ids::ThreadId;
use corewise_core::observe::{IdleWaits, Sizing, Standing};
use corewise_core::plan::{Action, Change, Outcome, OutcomeKind};
use corewise_discovery::asks::Ask;
use corewise_discovery::followed::Followed;
use corewise_discovery::{NewThread, Start, ThreadFacts};
use corewise_sys::standard_error;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long threads that inherited a change may delay the end of a run; after that, the guardian continues.
const WITHIN: Duration = Duration::from_millis(300);

/// The same limit without a guardian.
const WITHIN_ALONE: Duration = Duration::from_secs(5);

/// Returns whether any thread's weight can be changed, and changed back.
pub fn may_change_weights() -> bool {
    thread_weight::may_lower_all()
}

/// Changes threads in all ways that there are, and restores everything; see the module documentation.
pub struct Actuators {
    /// They also know who decides where a thread runs, if nothing is changed.
    masks: Masks,
    /// `None` if waits are not to be changed. They are searched before anything is changed.
    runtimes: Option<Runtimes>,
    /// `None` for a dry run, and after everything was given back.
    acting: Option<Acting>,
}

/// What changes threads otherwise, and what restores.
struct Acting {
    guardian: Guardian,
    /// The kernel's list of the threads, if there is one. Without it, threads that inherited a change are
    /// found by their parents.
    followed: Option<Followed>,
    /// In the order in which they give back.
    actuators: Vec<Box<dyn Actuator>>,
}

impl Actuators {
    /// Creates the actuators that a run with these parameters needs. They change nothing yet.
    pub fn new(config: &EngineConfig) -> Actuators {
        let runtimes = config.changes_waits().then(|| Runtimes::new(config));
        Actuators { masks: Masks::default(), runtimes, acting: None }
    }

    /// Changes threads from now on.
    pub fn begin(&mut self, guardian: Guardian) -> io::Result<()> {
        let changes = guardian.changes();
        // A failure shows before anything is changed.
        let _ = changes.record(&Entry::Guardian(guardian.process()));
        self.masks.begin(changes.clone())?;
        self.runtimes.iter_mut().for_each(|runtimes| runtimes.begin(changes.clone()));
        let actuators: Vec<Box<dyn Actuator>> =
            vec![Box::new(Turns::open(changes.clone())?), Box::new(Weights::new(changes))];
        self.acting = Some(Acting { guardian, followed: None, actuators });
        Ok(())
    }

    /// Uses the kernel's list of the threads from now on, as does the guardian. Without it, threads that
    /// inherited a change are found by their parents.
    pub fn follow(&mut self, followed: io::Result<Followed>) {
        if let (Some(acting), Ok(followed)) = (&mut self.acting, followed) {
            acting.guardian.changes().hand_over(&followed);
            acting.followed = Some(followed);
            self.masks.follow();
        }
    }

    /// All actuators, in the order in which they give back.
    fn each(&self) -> impl Iterator<Item = &dyn Actuator> {
        let runtimes = self.runtimes.iter().map(|runtimes| runtimes as &dyn Actuator);
        let others = self.acting.iter().flat_map(|acting| &acting.actuators).map(|actuator| &**actuator);
        runtimes.chain(others).chain([&self.masks as &dyn Actuator])
    }

    fn each_mut(&mut self) -> impl Iterator<Item = &mut dyn Actuator> {
        let runtimes = self.runtimes.iter_mut().map(|runtimes| runtimes as &mut dyn Actuator);
        let others = self.acting.iter_mut().flat_map(|acting| &mut acting.actuators);
        let others = others.map(|actuator| &mut **actuator as &mut dyn Actuator);
        runtimes.chain(others).chain([&mut self.masks as &mut dyn Actuator])
    }

    /// Registers a new thread.
    pub fn meet(&mut self, thread: &NewThread) {
        self.each_mut().for_each(|actuator| actuator.meet(thread));
    }

    /// Forgets a thread that has ended.
    pub fn forget(&mut self, thread: ThreadId) {
        self.each_mut().for_each(|actuator| actuator.forget(thread));
    }

    /// Forgets all processes but the living ones.
    pub fn retain_processes(&mut self, living: &HashSet<u32>) {
        self.each_mut().for_each(|actuator| actuator.retain_processes(living));
    }

    /// Gives threads that run with the mask of a bound thread their own masks back. A process that starts
    /// programs is not bound any more.
    pub fn give_back_to(&mut self, starts: &[Start]) {
        self.masks.give_back_to(starts);
    }

    /// A process runs another program than the last one with its ID.
    pub fn note_program(&mut self, pid: u32) {
        self.masks.note_program(pid);
    }

    /// Registers processes that have started others: they are not bound (any more).
    pub fn note_starters(&mut self, processes: &[u32]) {
        self.masks.note_starters(processes);
    }

    /// Returns whether a thread was bound, as opposed to moved.
    pub fn has_bound(&self) -> bool {
        self.masks.has_bound
    }

    /// Takes in which processes have asked for what bound threads cannot have; `None` if nobody can see that.
    /// What a bound thread needs all PEs for gets its mask back. Returns notes for the user.
    pub fn note_asks(&mut self, asks: Option<&[Ask]>) -> Vec<String> {
        self.masks.note_asks(asks)
    }

    /// Returns how the program of a process chooses the number of its threads.
    pub fn sizing(&self, pid: u32) -> Sizing {
        self.masks.sizing(pid)
    }

    /// Begins a pass over all threads; later decisions rest on the state found from now on. `allowed` are the
    /// PEs that corewise itself may use: those that user and cpuset allow for the whole application.
    pub fn begin_look(&mut self, allowed: &Arc<CpuSet>) {
        self.masks.begin_look(allowed);
    }

    /// Returns who decides where the thread runs, and the PEs that its user permits. The thread lives and was
    /// found since the pass began.
    pub fn standing(&mut self, thread: &ThreadFacts) -> (Standing, Arc<CpuSet>) {
        self.masks.standing(thread)
    }

    /// Takes in what a reading shows of a process: its number of threads (0 if it is gone), and the share of
    /// the time in which they wanted a PE but waited for it. Looks for its runtime libraries if that is due.
    pub fn look_at_process(&mut self, leader: ThreadId, threads: usize, waiting_share: f64) {
        self.runtimes.iter_mut().for_each(|runtimes| runtimes.look(leader, threads, waiting_share));
    }

    /// Returns how the idle threads of a process wait, and whether that was changed.
    pub fn waits(&self, pid: u32) -> (IdleWaits, bool) {
        self.runtimes.as_ref().map_or((IdleWaits::default(), false), |runtimes| runtimes.waits(pid))
    }

    /// Returns the PEs to which other runs of corewise have bound threads.
    pub fn taken(&self) -> CpuSet {
        self.masks.taken()
    }

    /// Carries out changes and returns their outcomes. A dry run does nothing and returns no outcomes.
    pub fn apply(&mut self, actions: &[Action]) -> Vec<Outcome> {
        let Some(acting) = &mut self.acting else { return Vec::new() };
        if !actions.is_empty() {
            acting.guardian.changes().guardian_is_there();
        }
        if actions.iter().any(|action| matches!(action.change, Change::Bind(_) | Change::Move(_)))
            && let Some(bound) = acting.followed.as_mut().and_then(Followed::take_heirs)
        {
            self.masks.watch_heirs(bound);
        }
        let outcome = |action: &Action| {
            let result = self.each_mut().find_map(|actuator| actuator.apply(action));
            let result = result.unwrap_or(OutcomeKind::Unsupported);
            Outcome { thread: action.thread, change: action.change.clone(), result }
        };
        let outcomes = actions.iter().map(outcome).collect();
        self.masks.claim_bound_pes();
        outcomes
    }

    /// Returns the time until an actuator's own next action is due; `None` if there is none.
    pub fn due_within(&self) -> Option<Duration> {
        self.each().filter_map(Actuator::due_within).min()
    }

    /// Carries out the actuators' own actions that are due.
    pub fn act_in_time(&mut self) {
        if self.acting.as_ref().is_some_and(|acting| !acting.guardian.changes().are_held()) {
            return;
        }
        self.each_mut().for_each(|actuator| actuator.act_in_time());
    }

    /// Returns by which changes of which threads and processes everything was given back in corewise's place,
    /// if that has happened since the last call.
    pub fn take_given_back(&mut self) -> Vec<(u32, Change)> {
        let changes = self.acting.as_ref().map(|acting| acting.guardian.changes());
        let Some(changes) = changes.filter(Changes::were_given_back) else { return Vec::new() };
        let given_back = self.each_mut().flat_map(Actuator::take_given_back).collect();
        changes.take_up();
        given_back
    }

    /// Returns notes for the user.
    pub fn notes(&self) -> Vec<String> {
        let of_guardian = self.acting.iter().flat_map(|acting| acting.guardian.notes());
        of_guardian.chain(self.each().flat_map(Actuator::notes)).collect()
    }

    /// Restores everything, and only observes from then on. What cannot be restored is left to the guardian
    /// and the next corewise.
    pub fn give_back(&mut self) {
        let mut acting = self.acting.take();
        let restored = acting.as_mut().map(Acting::restore_threads);
        self.runtimes.iter_mut().for_each(Runtimes::give_back);
        if let (Some(acting), Some(restored)) = (acting, restored) {
            acting.restore_words(restored);
        }
        // Inherited masks are given back in time until now.
        self.masks.give_back();
    }
}

impl Acting {
    fn restore_threads(&mut self) -> Remains {
        self.actuators.iter_mut().for_each(|actuator| actuator.give_back());
        let ledger = self.guardian.changes().ledger();
        let within = self.within();
        restore_threads(&ledger, &ActToken::mint(), self.followed.as_mut(), within)
    }

    /// Restores the words of programs, and lets the guardian go if nothing remains.
    fn restore_words(self, threads: Remains) {
        let changes = self.guardian.changes();
        let words = restore_words(&changes.ledger(), &Memories::default(), self.within());
        let remains = threads.with(words);
        if remains.is_nothing() {
            return self.guardian.dismiss();
        }
        // Otherwise it sees the socket close and continues.
        if !changes.guardian_is_there() {
            standard_error::say(&format!("corewise: not everything could be restored: {remains}\n"));
        }
    }

    /// How long restoring may take.
    fn within(&self) -> Duration {
        if self.guardian.changes().guardian_is_there() { WITHIN } else { WITHIN_ALONE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_core::plan::{Setting, SettingKind, Weight};
    use corewise_sys::niceness;
    use corewise_testing::needs;
    use std::process::Command;

    /// Actuators of a run that does not change waits.
    fn acting() -> Actuators {
        let mut config = EngineConfig::default();
        (config.waits.spin, config.waits.turns) = (false, false);
        let mut actuators = Actuators::new(&config);
        actuators.begin(Guardian::idle()).unwrap();
        actuators
    }

    #[test]
    fn a_change_that_no_actuator_carries_out_is_unsupported_and_a_dry_run_answers_nothing() {
        let changes = [Change::Set(Setting::SpinCount(7)), Change::Reset(SettingKind::SpinCount)];
        let thread = ThreadId { tid: std::process::id(), generation: 0 };
        let actions = changes.map(|change| Action { thread, change, reason: "".into() });
        // In a thread of its own, whose mask shows what its user permits.
        std::thread::spawn(move || {
            let mut actuators = acting();
            let results = actuators.apply(&actions).into_iter().map(|outcome| outcome.result);
            assert_eq!(results.collect::<Vec<_>>(), [OutcomeKind::Unsupported, OutcomeKind::Unsupported]);
            actuators.give_back();
            assert!(actuators.apply(&actions).is_empty());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_weight_reaches_its_actuator_and_is_given_back_at_the_end() {
        needs!(Root);
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let tid = child.id();
        let mut actuators = acting();
        let set = |percent| Change::Set(Setting::Weight(Weight::Percent(percent)));
        let reset = Change::Reset(SettingKind::Weight);
        for (change, level) in [(set(2842), -15), (reset, 0), (set(50), 3)] {
            let thread = ThreadId { tid, generation: 0 };
            let outcome = actuators.apply(&[Action { thread, change: change.clone(), reason: "".into() }]);
            assert_eq!(outcome, [Outcome { thread, change, result: OutcomeKind::Done }]);
            assert_eq!(niceness::level_of(tid), Ok(level));
        }
        actuators.give_back();
        assert_eq!(niceness::level_of(tid), Ok(0));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
