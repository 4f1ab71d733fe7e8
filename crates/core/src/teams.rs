//! Of how many threads parallel programs make their teams while others need PEs, too (`--adapt-team`).
//!
//! Problem: a runtime library takes a thread for each PE of the machine, at its start. Where several programs
//! share the machine, or a control group has a quota, there are more threads than PEs: they wait for each
//! other while some of them have no PE. Approach: while the threads of a process are held up, its teams are
//! of as many threads as it has PEs, which is what it really got: its CPU time over the time that has passed
//! ([`MEASURED_OVER`]). So whoever takes the rest (other programs, a quota, the hypervisor) needs no name.
//! Held up again, it gets still smaller teams. When it has not been held up for a while and PEs are idle
//! ([`IDLE_FROM`]), the library's own choice holds again, as an attempt; each relapse doubles that while
//! ([`CALM_MIN`] to [`CALM_MAX`]). While other threads use all PEs it is not tried: a program may take a size
//! for its whole work at the moment when it begins.
//!
//! It is asked for, as the order of sums depends on the size of a team, and with it how results are rounded.
//!
//! Limits: how many PEs have become free is found out by that attempt alone. PEs on which others only wait
//! count as used. Two libraries that each have teams
//! in one process get teams of the same size, as if only one were at work.

use crate::ids::ThreadId;
use crate::observe::{ProcessDelay, share};
use crate::plan::{Outcome, OutcomeKind, Placement, Setting, SettingKind, TURN, WantedSetting};
use crate::time::Time;
use crate::waits::{CALM_BELOW, DELAYED_FROM, IDLE_FROM};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

/// Over which time it is measured how many PEs a process gets.
pub const MEASURED_OVER: Duration = Duration::from_millis(80);

/// For how long it must not be held up at least before the library's own choice holds again, and at most.
pub const CALM_MIN: Duration = Duration::from_secs(1);
/// See [`CALM_MIN`].
pub const CALM_MAX: Duration = Duration::from_secs(10);

/// What is known of the teams of every process that is, or was, held up.
#[derive(Debug, Default)]
pub struct Teams {
    /// Whether anything may be changed.
    is_on: bool,
    processes: HashMap<ThreadId, Process>,
}

#[derive(Debug)]
struct Process {
    /// The size that is wanted, and why; `None`: the library's own choice.
    size: Option<(u32, Arc<str>)>,
    /// What it got since it began to be held up, or since that was last measured.
    got: Option<Got>,
    calm_since: Option<Time>,
    /// How long it must be calm, and when its own choice began to hold again.
    calm: Duration,
    calm_from: Option<Time>,
}

/// What a process got.
#[derive(Debug, Default)]
struct Got {
    elapsed_ns: u64,
    run_ns: u64,
    /// For how long its threads wanted a PE and had none.
    without_pe_ns: u64,
}

impl Got {
    /// Takes in a look; what it got of late, when that is known.
    fn take(&mut self, delay: &ProcessDelay) -> Option<Got> {
        self.elapsed_ns += delay.elapsed_ns;
        self.run_ns += delay.run_ns;
        self.without_pe_ns += delay.wait_ns + delay.throttled_ns;
        // In its own turn it gets all PEs, in others' none.
        let over = match delay.other_gangs {
            0 => MEASURED_OVER,
            others => TURN * (others + 1),
        };
        let is_measured = Duration::from_nanos(self.elapsed_ns) >= over;
        is_measured.then(|| std::mem::take(self))
    }

    /// Which share of the time they had none in which they wanted one.
    fn share_without_pe(&self) -> f64 {
        share(self.without_pe_ns, self.run_ns)
    }

    /// So many PEs.
    fn pes(&self) -> f64 {
        self.run_ns as f64 / self.elapsed_ns.max(1) as f64
    }
}

impl Teams {
    /// They may be changed, or not.
    pub fn new(is_on: bool) -> Self {
        Self { is_on, processes: HashMap::new() }
    }

    /// Takes in for how long a process was held up, on a machine of so many PEs. Whether something else is
    /// wanted now.
    pub fn take(&mut self, delay: &ProcessDelay, pes: usize, now: Time) -> bool {
        if !self.is_on {
            return false;
        }
        match self.processes.entry(delay.leader) {
            Entry::Vacant(entry) if delay.team_size.is_some() => {
                let reason = "it was held up before all was watched".into();
                let size = delay.team_size.map(|size| (size, reason));
                entry.insert(Process { size, ..Process::new() });
                true
            }
            entry => entry.or_insert_with(Process::new).take(delay, pes, now),
        }
    }

    /// Takes in what became of a change.
    pub fn take_outcome(&mut self, outcome: &Outcome) {
        let is_ours = outcome.change.setting_kind() == Some(SettingKind::TeamSize);
        if is_ours && matches!(outcome.result, OutcomeKind::Gone | OutcomeKind::NotOurs) {
            self.forget(outcome.thread);
        }
    }

    /// Whether the teams of any process are smaller than its own choice.
    pub fn is_any_smaller(&self) -> bool {
        self.processes.values().any(|process| process.size.is_some())
    }

    /// Adds what is wanted.
    pub fn add_to(&self, wanted: &mut Placement) {
        // That is decided here, whatever the policy.
        wanted.settings.retain(|(_, kind), _| *kind != SettingKind::TeamSize);
        for (&leader, process) in &self.processes {
            if let Some((size, reason)) = &process.size {
                let setting = WantedSetting { setting: Setting::TeamSize(*size), reason: reason.clone() };
                wanted.settings.insert((leader, SettingKind::TeamSize), setting);
            }
        }
    }

    /// A thread has ended.
    pub fn forget(&mut self, thread: ThreadId) {
        self.processes.remove(&thread);
    }
}

impl Process {
    fn new() -> Self {
        Self { size: None, got: None, calm_since: None, calm: CALM_MIN, calm_from: None }
    }

    fn take(&mut self, delay: &ProcessDelay, pes: usize, now: Time) -> bool {
        let share = delay.share_without_pe();
        if share >= CALM_BELOW {
            self.calm_since = None;
        } else if self.rest(delay, now) {
            return true;
        }
        let Some(got) = &mut self.got else {
            self.got = (share >= DELAYED_FROM).then(Got::default);
            return false;
        };
        let Some(measured) = got.take(delay) else { return false };
        if measured.share_without_pe() < DELAYED_FROM {
            self.got = None;
            return false;
        }
        let got = measured.pes();
        let size = (got.round() as u32).max(1);
        let present = self.size.as_ref().map_or(pes as u32, |(size, _)| *size);
        if size >= present {
            return false;
        }
        if self.size.is_none() {
            let relapsed = |from: Time| now.since(from) < 10 * self.calm;
            self.calm = match self.calm_from {
                Some(from) if relapsed(from) => (2 * self.calm).min(CALM_MAX),
                _ => CALM_MIN,
            };
        }
        self.size = Some((size, format!("its threads are held up: together they get {got:.1} PEs").into()));
        true
    }

    /// It is not held up now. Whether its own choice holds from now on.
    fn rest(&mut self, delay: &ProcessDelay, now: Time) -> bool {
        let since = *self.calm_since.get_or_insert(now);
        let (is_calm, is_idle) = (now.since(since) >= self.calm, delay.idle_percent >= Some(IDLE_FROM));
        let is_over = self.size.is_some() && is_calm && is_idle;
        if is_over {
            (self.size, self.calm_from) = (None, Some(now));
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Change;

    const LEADER: ThreadId = ThreadId { tid: 7, generation: 1 };
    const DELAY: ProcessDelay = ProcessDelay {
        leader: LEADER,
        run_ns: 0,
        wait_ns: 0,
        throttled_ns: 0,
        idle_percent: Some(IDLE_FROM),
        elapsed_ns: 100_000_000,
        adaptable: true,
        gives_way: false,
        other_gangs: 0,
        timeslices: None,
        spin_count: None,
        team_size: None,
    };

    /// Tells of a process on 8 PEs every 100 ms: each digit is a look, at which its threads got so many PEs
    /// and waited for as long (0: they are not held up; `b`: nor are they, but no PE is
    /// idle). The size of its teams after each, `.` its own.
    fn drawn(looks: &str) -> String {
        drawn_beside(0, looks)
    }

    /// The same while so many others take turns: its threads wait where the look says `0`.
    fn drawn_beside(other_gangs: u32, looks: &str) -> String {
        let mut teams = Teams::new(true);
        let sizes = looks.chars().zip(1u64..).map(|(look, index)| {
            let pes = u64::from(look.to_digit(10).unwrap_or_default());
            let idle_percent = Some(if look == 'b' { IDLE_FROM - 1 } else { IDLE_FROM });
            let run_ns = pes * 100_000_000;
            // Half of it as others have the PEs, half by a quota.
            let (wait_ns, throttled_ns) = match other_gangs {
                0 => (run_ns / 2, run_ns.div_ceil(2)),
                _ => ((8 - pes) * 100_000_000, 0),
            };
            let delay = ProcessDelay { run_ns, wait_ns, throttled_ns, idle_percent, other_gangs, ..DELAY };
            let before = size(&teams);
            let changed = teams.take(&delay, 8, Time(index * 100_000_000));
            assert_eq!(changed, before != size(&teams), "look {index}");
            size(&teams).map_or('.', |size| char::from_digit(size, 10).unwrap())
        });
        sizes.collect()
    }

    fn size(teams: &Teams) -> Option<u32> {
        let mut wanted = Placement::default();
        teams.add_to(&mut wanted);
        let setting = wanted.settings.get(&(LEADER, SettingKind::TeamSize))?.setting;
        let Setting::TeamSize(size) = setting else { panic!("{setting}") };
        Some(size)
    }

    #[test]
    fn teams_are_of_as_many_threads_as_there_are_pes_for_them() {
        assert_eq!(drawn("04440"), "..444");
        assert_eq!(drawn("0442211"), "..42211", "and smaller still");
        assert_eq!(drawn("0446"), "..44", "not larger while they are held up");
        assert_eq!(drawn("08888"), ".....", "a PE for each is enough");
        assert_eq!(drawn("040404"), "......", "each time for a moment");
        assert_eq!(drawn_beside(1, "08080808"), "..444444", "in turns with another one");
        assert_eq!(drawn_beside(3, "0800080008000"), "....222222222", "with three others");
    }

    #[test]
    fn its_own_choice_holds_again_after_a_calm_that_each_relapse_doubles() {
        let calm = "0".repeat(11);
        assert_eq!(drawn(&format!("44{calm}0")), format!(".4{}..", "4".repeat(10)));
        let longer = "0".repeat(21);
        let expected = format!(".4{}.{}{}.", "4".repeat(10), ".4", "4".repeat(20));
        assert_eq!(drawn(&format!("44{calm}44{longer}")), expected);
        let disturbed = "440000010000000000";
        assert_eq!(drawn(disturbed), format!(".{}", "4".repeat(17)), "a disturbance begins it anew");
        assert_eq!(drawn(&disturbed.replace('1', "0")), format!(".{}......", "4".repeat(11)));
    }

    #[test]
    fn its_own_choice_is_not_tried_while_no_pe_is_idle() {
        let busy = format!("44{}0", "b".repeat(30));
        assert_eq!(drawn(&busy), format!(".{}.", "4".repeat(31)));
        let too_soon = "44bbbbb0bbbbb0";
        assert_eq!(drawn(too_soon), format!(".{}.", "4".repeat(12)));
    }

    #[test]
    fn a_part_of_a_pe_is_one_thread() {
        let mut teams = Teams::new(true);
        let delay = ProcessDelay { run_ns: 20_000_000, wait_ns: 99_000_000, ..DELAY };
        let changed = |at: u64| teams.take(&delay, 2, Time(at * 100_000_000));
        assert_eq!([1, 2, 3].map(changed), [false, true, false]);
        assert_eq!(size(&teams), Some(1));
    }

    /// As one was made smaller before the engine was there.
    #[test]
    fn a_size_that_holds_already_holds_until_it_is_calm() {
        let mut teams = Teams::new(true);
        let smaller = ProcessDelay { team_size: Some(3), ..DELAY };
        assert!(teams.take(&smaller, 8, Time(100_000_000)));
        assert_eq!(size(&teams), Some(3));
        let changes = (2..20).filter(|at| teams.take(&smaller, 8, Time(at * 100_000_000)));
        assert_eq!((changes.collect::<Vec<_>>(), size(&teams)), (vec![12], None));
    }

    #[test]
    fn nothing_is_wanted_unasked_or_of_who_is_gone() {
        let delay = ProcessDelay { run_ns: 1, wait_ns: 1, ..DELAY };
        let mut off = Teams::default();
        assert!(!(1..9).any(|at| off.take(&delay, 2, Time(at * 100_000_000))));
        let mut teams = Teams::new(true);
        assert!((1..9).any(|at| teams.take(&delay, 2, Time(at * 100_000_000))));
        let change = Change::Set(Setting::TeamSize(1));
        let refused = OutcomeKind::Refused(String::new());
        teams.take_outcome(&Outcome { thread: LEADER, change: change.clone(), result: refused });
        assert_eq!(size(&teams), Some(1));
        teams.take_outcome(&Outcome { thread: LEADER, change, result: OutcomeKind::NotOurs });
        assert_eq!((size(&teams), teams.processes.len()), (None, 0));
    }
}
