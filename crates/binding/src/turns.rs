//! Programs that spin take turns, each as a whole.
//!
//! Problem: a thread that spins for another holds the PE that the other needs, as long as the system's
//! scheduler knows of neither. Approach (gang scheduling): all threads of a process run for [`TURN`] as
//! normal threads, while those of the other processes get only what is left over (`SCHED_IDLE`), and so on in
//! a circle. Nobody is stopped: a PE that a gang leaves free is used by the others.
//!
//! Several corewise of a user need no leader for that. Each gang has a place among those that they share
//! ([`super::slots`]); whoever looks at the places knows all gangs, and whose turn it is follows from the
//! clock, which is the same for all. Only gangs that share PEs take turns with each other ([`gangs`]).
//!
//! Where the kernel divides the PEs among groups of processes first, the part of a gang's group is changed
//! along with its threads ([`super::group`]), if gangs of other groups take turns, too.
//!
//! Processes that mpirun or its like has started wait for each other: they are one gang, known by their
//! common parent. Who is MPI's own child cannot tell the others' gangs, and lets nobody take turns.
//!
//! Limits: to make a thread normal again takes CAP_SYS_NICE (or a limit on nice levels that allows it).
//! Threads with a scheduling policy of their own take no turns. Without a runtime directory only the gangs of
//! one corewise take turns. A process that a gang starts while it is not its turn inherits the policy: it is
//! made normal when it is first seen, or at the end.

mod gangs;

use self::gangs::{Gangs, PLACES};
use super::group::{GROUPS_MAX, Slowed};
use super::ledger::Ledger;
use super::mask::ActToken;
use super::members::{ByParentage, Members, Membership};
use super::slots::Slots;
use corewise_core::plan::{OutcomeKind, TURN};
use corewise_sys::proc::Proc;
use corewise_sys::task::Task;
use nix::errno::Errno;
use nix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Why no program takes turns where others have locked the file of places.
const LOCKED: &str = "a program that is not corewise has locked the file `turns` in the runtime directory";

/// Where `proc` and `sys` lie.
const ROOT: &str = "/";

/// Set by those who start the processes of an MPI program.
const MPI_VARIABLES: [&str; 4] = ["PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MPI_LOCALRANKID"];

/// The processes that take turns.
#[derive(Debug)]
pub struct Turns {
    places: Slots,
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
    /// Since when programs have taken turns, in units of start times.
    since: Option<u64>,
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

/// The places of all gangs of this user.
fn places() -> io::Result<Slots> {
    Slots::open("turns", PLACES)
}

/// Whether any gang of this user takes turns, or may, on the PEs of a process.
pub fn are_taken_beside(pid: u32) -> bool {
    let mut gangs = Gangs::default();
    gangs.refresh(places().map(|places| places.others()).unwrap_or_default(), now());
    !gangs.circle(&gangs::pes_of(pid)).is_empty()
}

impl Turns {
    /// With those of the other corewise of this user.
    pub fn open() -> io::Result<Turns> {
        let permitted = std::thread::spawn(can_become_normal_again).join().unwrap_or(false);
        Ok(Turns::of(places()?, permitted))
    }

    fn of(places: Slots, permitted: bool) -> Turns {
        let (members, own, gangs) = (BTreeMap::new(), BTreeMap::new(), Gangs::default());
        Turns { places, members, own, gangs, acted_on: None, permitted, since: None }
    }

    /// Whether a process may take turns, and if not, why.
    pub fn check(&self, pid: u32) -> Result<(), String> {
        if !self.permitted {
            return Err("to let programs take turns needs CAP_SYS_NICE".to_owned());
        }
        if gangs::is_of_mpi(std::process::id()) {
            return Err("corewise is itself a process of an MPI program: start mpirun under it".to_owned());
        }
        if threads_of(pid).into_iter().any(|tid| policy_of(tid).is_ok_and(|policy| policy != NORMAL)) {
            return Err("its threads have a scheduling policy of their own".to_owned());
        }
        Ok(())
    }

    /// What a user should know, in words.
    pub fn note(&self) -> Option<String> {
        self.places
            .are_locked_by_strangers()
            .then(|| format!("programs of other runs take no turns: {LOCKED}"))
    }

    /// Whether no program takes turns.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Must be called before any program takes turns, with the present in units of start times.
    pub fn begin(&mut self, now: u64) {
        self.since.get_or_insert(now);
    }

    /// Lets a process take turns from now on. It was [checked](Turns::check) and is in the journal, as is its
    /// group, if it has one.
    pub fn join(&mut self, process: Task, group: Option<Slowed>) -> OutcomeKind {
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
        be_in_time(true);
        OutcomeKind::Done
    }

    /// Whether this process takes turns already.
    pub fn takes(&self, process: Task) -> bool {
        self.members.get(&process.id).is_some_and(|member| member.process == process)
    }

    /// How many gangs take turns on the PEs of a process, without its own gang.
    pub fn gangs_beside(&mut self, pid: u32) -> usize {
        self.refresh_gangs();
        self.gangs.beside(pid, &self.own)
    }

    /// A process takes no turns any more; its threads are normal again. Whether it took any.
    pub fn leave(&mut self, token: &ActToken, pid: u32) -> bool {
        let Some(member) = self.members.remove(&pid) else { return false };
        make_normal(token, member.process);
        if let Some(group) = &member.group {
            group.give_back(token, Path::new(ROOT));
        }
        if self.members.values().all(|other| other.gang != member.gang)
            && let Some(place) = self.own.remove(&member.gang)
        {
            self.places.leave(place);
        }
        if self.members.is_empty() {
            be_in_time(false);
        }
        true
    }

    /// A new process that has inherited the policy of one that had no turn becomes normal, whoever its parent
    /// is by now.
    pub fn meet(&self, token: &ActToken, pid: u32) {
        let Some(since) = self.since.filter(|_| !self.members.contains_key(&pid)) else { return };
        if is_idle_since(pid, since)
            && let Ok(Some(process)) = Task::of(pid)
        {
            make_normal(token, process);
        }
    }

    /// Until when the next turn begins; `None` if nobody takes turns.
    pub fn due_within(&self) -> Option<Duration> {
        let passed = now().as_nanos() % TURN.as_nanos();
        (!self.members.is_empty()).then(|| TURN - Duration::from_nanos(passed as u64))
    }

    /// Lets those run whose turn it is, and no others. (What a thread starts meanwhile inherits its policy.)
    pub fn act(&mut self, token: &ActToken) {
        let turn = now().as_nanos() / TURN.as_nanos();
        if self.members.is_empty() || self.acted_on.replace(turn) == Some(turn) {
            return;
        }
        self.refresh_gangs();
        let circles = self.gangs.circles();
        let now: Vec<i64> = circles.iter().map(|circle| circle[turn as usize % circle.len()]).collect();
        self.act_on_groups(token, &circles, &now);
        let has_turn = |gang: u32| self.own.get(&gang).is_some_and(|place| now.contains(place));
        let due: Vec<(u32, bool)> =
            self.members.iter().map(|(&pid, member)| (pid, has_turn(member.gang))).collect();
        // Who gets PEs before those who lose them.
        for wanted in [true, false] {
            for &(pid, runs) in due.iter().filter(|(_, runs)| *runs == wanted) {
                let member = self.members.get_mut(&pid).expect("it was just listed");
                if member.runs == runs {
                    continue;
                }
                member.runs = runs;
                let (from, to) = if runs { (libc::SCHED_IDLE, NORMAL) } else { (NORMAL, libc::SCHED_IDLE) };
                change(token, member.process, from, to);
            }
        }
    }

    /// Lets the groups of the gangs that have their turn get their part, and the others the least one. If all
    /// gangs of a circle are of one group, how that fares among others is not theirs to change.
    fn act_on_groups(&self, token: &ActToken, circles: &[Vec<i64>], now: &[i64]) {
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
                group.let_run(token, Path::new(ROOT), *pid, *runs);
            }
        }
    }

    /// Looks at the places of all gangs of all corewise; how many there are.
    fn refresh_gangs(&mut self) -> usize {
        let mut places = self.places.others();
        places.extend(self.places.own());
        places.sort_unstable();
        let count = places.len();
        self.gangs.refresh(places, now());
        count
    }
}

/// Restores the parts of all groups, and the policies of all that take turns by a journal. Who has inherited
/// that of one of them is found by who looks at all threads ([`super::restore`]).
pub fn restore(ledger: &Ledger, token: &ActToken) {
    ledger.slowed().iter().for_each(|group| group.give_back(token, Path::new(ROOT)));
    ledger.in_turns().for_each(|process| make_normal(token, process));
}

/// Makes everybody normal who takes turns by a journal, and what they have started meanwhile, for as long as
/// corewise is stopped. What takes turns when it goes on has its turn soon.
pub fn make_all_normal(ledger: &Ledger, token: &ActToken) {
    restore(ledger, token);
    let Some(since) = ledger.turns_since() else { return };
    // Who ends meanwhile needs nothing.
    let _ = ByParentage::new(ledger.members()).look(&mut |tid, belongs| {
        if belongs == Membership::Yes && is_idle_since(tid, since) {
            let _ = make_thread_normal(token, tid);
        }
        Ok(())
    });
}

/// Returns whether a thread is `SCHED_IDLE` and was created since a time, in units of start times.
pub fn is_idle_since(tid: u32, since: u64) -> bool {
    let is_new = |thread: Task| thread.start >= since;
    policy_of(tid) == Ok(libc::SCHED_IDLE) && Task::of(tid).ok().flatten().is_some_and(is_new)
}

/// Makes a thread normal.
pub fn make_thread_normal(_: &ActToken, tid: u32) -> Result<(), Errno> {
    set_policy(tid, NORMAL)
}

/// The number of a group; 0 for those whose part is not changed.
fn number(group: Option<&Slowed>) -> i64 {
    group.map_or(0, |slowed| slowed.group.number() as i64)
}

const NORMAL: i32 = libc::SCHED_OTHER;

fn make_normal(token: &ActToken, process: Task) {
    change(token, process, libc::SCHED_IDLE, NORMAL);
}

/// Gives those of its threads that have one scheduling policy another. Threads come and go meanwhile: the
/// next turn finds them.
fn change(_: &ActToken, process: Task, from: i32, to: i32) {
    if !Task::of(process.id).is_ok_and(|now| now == Some(process)) {
        return;
    }
    for tid in threads_of(process.id) {
        if policy_of(tid) == Ok(from) {
            // It may have ended.
            let _ = set_policy(tid, to);
        }
    }
}

fn threads_of(pid: u32) -> Vec<u32> {
    Proc::own().threads(pid).ok().flatten().unwrap_or_default()
}

fn policy_of(tid: u32) -> Result<i32, Errno> {
    // SAFETY: the call takes no pointer.
    Errno::result(unsafe { libc::sched_getscheduler(tid as i32) })
}

fn set_policy(tid: u32, policy: i32) -> Result<(), Errno> {
    set_policy_and_priority(tid, policy, 0)
}

fn set_policy_and_priority(tid: u32, policy: i32, sched_priority: i32) -> Result<(), Errno> {
    let parameters = libc::sched_param { sched_priority };
    // SAFETY: the parameters live through the call, which only reads them.
    Errno::result(unsafe { libc::sched_setscheduler(tid as i32, policy, &parameters) }).map(drop)
}

/// Lets this thread run before all normal ones, or no longer: else who is to begin a turn waits for those
/// whose turn ends. Where that is not permitted, turns begin late. Who is started has a policy of its own.
fn be_in_time(always: bool) {
    let (policy, priority) = if always { (libc::SCHED_RR, 1) } else { (libc::SCHED_OTHER, 0) };
    let _ = set_policy_and_priority(0, policy | libc::SCHED_RESET_ON_FORK, priority);
}

/// Tried in a thread of its own, which ends with what it has become.
fn can_become_normal_again() -> bool {
    set_policy(0, libc::SCHED_IDLE).and_then(|()| set_policy(0, NORMAL)).is_ok()
}

/// The same for all processes of the machine.
fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has CLOCK_MONOTONIC").into()
}

#[cfg(test)]
mod tests;
