//! The [`Actuator`] of turns: programs that spin run one after the other, each as a whole.
//!
//! Problem: a thread that spins for another holds the PE that the other needs, as long as the system's
//! scheduler knows of neither. Approach (gang scheduling): all threads of a process run for [`TURN`] as
//! normal threads, while those of the other processes get only what is left over (`SCHED_IDLE`), and so on in
//! a circle. Nobody is stopped: a PE that a gang leaves free is used by the others.
//!
//! Several corewise of a user need no leader for that. Each gang has a place among those that they share
//! ([`super::shared::places`]); every run that looks at the places knows all gangs, and whose turn it is
//! follows from the clock, which is the same for all. Only gangs that share PEs take turns with each other
//! ([`super::shared::gangs`]).
//!
//! Where the kernel divides the PEs among groups of processes first, the part of a gang's group is changed
//! along with its threads ([`super::group`]), if gangs of other groups take turns, too.
//!
//! Processes that mpirun or its like has started wait for each other: they are one gang, known by their
//! common parent. A corewise that MPI has started does not know the gangs of the others, and lets no process
//! take turns.
//!
//! Limits: to make a thread normal again takes CAP_SYS_NICE (or a limit on nice levels that allows it).
//! Threads with a scheduling policy of their own take no turns. Without a runtime directory only the gangs of
//! one corewise take turns. A process that a gang starts while it is not its turn inherits the policy: it is
//! made normal when it is first seen, or at the end, if it is known to descend from the gang
//! ([`super::descent`]).

use super::act_token::ActToken;
use super::actuator::Actuator;
use super::changes::Changes;
use super::group::Slowed;
use super::ledger::Entry;
use super::sched_policy::{self, NORMAL};
use super::shared::gangs::{self, Gangs};
use super::shared::places::Places;
use super::thread_weight::WeightChange;
use corewise_core::ids::ThreadId;
use corewise_core::plan::{Action, Change, OutcomeKind, Setting, SettingKind, TURN};
use corewise_discovery::NewThread;
use corewise_sys::task::Task;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Why no program takes turns where others have locked the file of places.
const LOCKED: &str = "a program that is not corewise has locked the file `turns` in the runtime directory";

/// Where `proc` and `sys` lie.
const ROOT: &str = "/";

/// The processes that take turns.
#[derive(Debug)]
pub struct Turns {
    token: ActToken,
    changes: Changes,
    places: Places,
    /// By process id.
    members: BTreeMap<u32, Member>,
    /// The place of each gang of this corewise, by the process that it is known by.
    own: BTreeMap<u32, i64>,
    /// The gangs of all corewise.
    gangs: Gangs,
    /// Which turn was acted on, counted from the clock's beginning.
    acted_on: Option<u128>,
    /// Whether threads can be made normal again.
    permitted: bool,
}

#[derive(Debug)]
struct Member {
    process: Task,
    gang: u32,
    /// Its group, if the part of that may be changed.
    group: Option<Slowed>,
    /// Whether its threads are normal now.
    runs: bool,
}

impl Turns {
    /// Creates the actuator, which records its changes there, with the gangs of the other corewise of this
    /// user.
    pub fn open(changes: Changes) -> io::Result<Turns> {
        Ok(Turns::of(changes, gangs::places()?, sched_policy::can_become_normal_again()))
    }

    fn of(changes: Changes, places: Places, permitted: bool) -> Turns {
        Turns {
            token: ActToken::mint(),
            changes,
            places,
            members: BTreeMap::new(),
            own: BTreeMap::new(),
            gangs: Gangs::default(),
            acted_on: None,
            permitted,
        }
    }

    /// Lets the threads of a process run in turns with those of others.
    fn let_take_turns(&mut self, pid: u32) -> OutcomeKind {
        let process = match Task::of(pid) {
            Ok(Some(process)) => process,
            Ok(None) => return OutcomeKind::Gone,
            Err(error) => return OutcomeKind::Refused(error.to_string()),
        };
        if self.members.get(&pid).is_some_and(|member| member.process == process) {
            return OutcomeKind::Done;
        }
        if let Err(why) = self.check(pid) {
            return OutcomeKind::Refused(why);
        }
        let group = Slowed::of(Path::new(ROOT), pid);
        let mut entries = std::iter::once(Entry::InTurns(process)).chain(group.clone().map(Entry::Slowed));
        let handed_out = self.changes.hand_out_weight(process, WeightChange::Idle);
        let recorded = handed_out.and_then(|()| entries.try_for_each(|entry| self.changes.record(&entry)));
        if let Err(why) = recorded {
            let _ = self.changes.record(&Entry::NoTurns(pid));
            return OutcomeKind::Refused(why);
        }
        self.changes.note_turns(true);
        self.join(process, group)
    }

    /// Lets the threads of a process run whenever there is a PE. If they cannot be made normal, it stays
    /// recorded that they take turns.
    fn end_turns(&mut self, pid: u32) -> OutcomeKind {
        let Some(member) = self.members.get(&pid) else { return OutcomeKind::Done };
        if let Err(error) = sched_policy::make_normal(&self.token, member.process) {
            return OutcomeKind::Refused(error.to_string());
        }
        self.leave(pid);
        // If it cannot be written, the guardian restores what is restored.
        let _ = self.changes.record(&Entry::NoTurns(pid));
        self.changes.note_turns(!self.members.is_empty());
        OutcomeKind::Done
    }

    /// Whether a process may take turns, and if not, why.
    fn check(&self, pid: u32) -> Result<(), String> {
        if !self.permitted {
            return Err("to let programs take turns needs CAP_SYS_NICE".to_owned());
        }
        if gangs::is_of_mpi(std::process::id()) {
            return Err("corewise is itself a process of an MPI program: start mpirun under it".to_owned());
        }
        if gangs::threads_of(pid)
            .into_iter()
            .any(|tid| sched_policy::of(tid).is_ok_and(|policy| policy != NORMAL))
        {
            return Err("its threads have a scheduling policy of their own".to_owned());
        }
        Ok(())
    }

    /// Lets a process take turns from now on. It was [checked](Turns::check) and is in the journal, as is its
    /// group, if it has one.
    fn join(&mut self, process: Task, group: Option<Slowed>) -> OutcomeKind {
        let gang = gangs::leader_of(process.id);
        if !self.own.contains_key(&gang) {
            let place = gangs::place(number(group.as_ref()), gang);
            if !self.places.take(place) {
                let why = match self.places.are_locked_by_strangers() {
                    true => LOCKED,
                    false => "another corewise lets it take turns",
                };
                return OutcomeKind::Refused(why.to_owned());
            }
            self.own.insert(gang, place);
        }
        self.members.insert(process.id, Member { process, gang, group, runs: true });
        // Otherwise the thread that begins a turn waits for those whose turn ends.
        sched_policy::set_runs_first(true);
        OutcomeKind::Done
    }

    /// A process takes no turns any more; its threads are normal again.
    fn leave(&mut self, pid: u32) {
        let Some(member) = self.members.remove(&pid) else { return };
        if let Some(group) = &member.group {
            // It stays recorded to the end.
            let _ = group.give_back(&self.token, Path::new(ROOT));
        }
        if self.members.values().all(|other| other.gang != member.gang)
            && let Some(place) = self.own.remove(&member.gang)
        {
            self.places.leave(place);
        }
        if self.members.is_empty() {
            sched_policy::set_runs_first(false);
        }
    }

    /// Lets those run whose turn it is, and no others. (What a thread starts meanwhile inherits its policy.)
    fn act(&mut self) {
        let turn = gangs::now().as_nanos() / TURN.as_nanos();
        if self.members.is_empty() || self.acted_on.replace(turn) == Some(turn) {
            return;
        }
        self.refresh_gangs();
        let circles = self.gangs.circles();
        let now: Vec<i64> = circles.iter().map(|circle| circle[turn as usize % circle.len()]).collect();
        self.act_on_groups(&circles, &now);
        let has_turn = |gang: u32| self.own.get(&gang).is_some_and(|place| now.contains(place));
        let due: Vec<(u32, bool)> =
            self.members.iter().map(|(&pid, member)| (pid, has_turn(member.gang))).collect();
        // Those that get PEs before those that lose them.
        for wanted in [true, false] {
            for &(pid, runs) in due.iter().filter(|(_, runs)| *runs == wanted) {
                let member = self.members.get_mut(&pid).expect("it was just listed");
                if member.runs == runs {
                    continue;
                }
                let (from, to) = if runs { (libc::SCHED_IDLE, NORMAL) } else { (NORMAL, libc::SCHED_IDLE) };
                // What cannot be changed now is tried again at the next turn.
                if sched_policy::change(&self.token, member.process, from, to).is_ok() {
                    member.runs = runs;
                }
            }
        }
    }

    /// Lets the groups of the gangs that have their turn get their part, and the others the least one. If all
    /// gangs of a circle are of one group, how that fares among others is not theirs to change.
    fn act_on_groups(&self, circles: &[Vec<i64>], now: &[i64]) {
        let of = |place: &i64| gangs::group(*place);
        let among_others = |group: i64| {
            circles
                .iter()
                .any(|all| all.iter().any(|at| of(at) == group) && all.iter().any(|at| of(at) != group))
        };
        let runs = |group: i64| now.iter().any(|place| of(place) == group) || !among_others(group);
        let groups = self.members.iter().filter_map(|(&pid, member)| Some((pid, member.group.as_ref()?)));
        let due: Vec<(u32, &Slowed, bool)> =
            groups.map(|(pid, group)| (pid, group, runs(number(Some(group))))).collect();
        for wanted in [true, false] {
            for (pid, group, runs) in due.iter().filter(|(.., runs)| *runs == wanted) {
                // The process may have ended; and if the part cannot be changed, turns affect only threads.
                let _ = group.let_run(&self.token, Path::new(ROOT), *pid, *runs);
            }
        }
    }

    /// Looks at the places of all gangs of all corewise; how many there are.
    fn refresh_gangs(&mut self) -> usize {
        let mut places = self.places.others();
        places.extend(self.places.own());
        places.sort_unstable();
        let count = places.len();
        self.gangs.refresh(places, gangs::now());
        count
    }
}

impl Actuator for Turns {
    /// [`Weights`](super::weights::Weights) gives back what new threads have inherited.
    fn meet(&mut self, _: &NewThread) {}

    /// A process that has ended is forgotten with its last thread.
    fn forget(&mut self, _: ThreadId) {}

    fn retain_processes(&mut self, living: &HashSet<u32>) {
        let ended: Vec<u32> = self.members.keys().copied().filter(|pid| !living.contains(pid)).collect();
        ended.into_iter().for_each(|pid| drop(self.end_turns(pid)));
    }

    fn apply(&mut self, action: &Action) -> Option<OutcomeKind> {
        match action.change {
            Change::Set(Setting::InTurns | Setting::MayTakeTurns) => {
                Some(self.let_take_turns(action.thread.tid))
            }
            Change::Reset(SettingKind::Turns) => Some(self.end_turns(action.thread.tid)),
            _ => None,
        }
    }

    fn due_within(&self) -> Option<Duration> {
        let passed = gangs::now().as_nanos() % TURN.as_nanos();
        (!self.members.is_empty()).then(|| TURN - Duration::from_nanos(passed as u64))
    }

    fn act_in_time(&mut self) {
        self.act();
    }

    fn take_given_back(&mut self) -> Vec<(u32, Change)> {
        let all: Vec<u32> = self.members.keys().copied().collect();
        all.iter().for_each(|pid| drop(self.end_turns(*pid)));
        all.into_iter().map(|pid| (pid, Change::Reset(SettingKind::Turns))).collect()
    }

    fn give_back(&mut self) {
        self.take_given_back();
    }

    fn notes(&self) -> Vec<String> {
        let locked = self.places.are_locked_by_strangers();
        locked.then(|| format!("programs of other runs take no turns: {LOCKED}")).into_iter().collect()
    }
}

/// The number of a group; 0 for those whose part is not changed.
fn number(group: Option<&Slowed>) -> i64 {
    group.map_or(0, |slowed| slowed.group.number() as i64)
}

#[cfg(test)]
mod tests;
