//! Groups of threads: their weights, quotas and nice levels, and what is active in them.

use super::super::sched::queue::{IDLE_WEIGHT, NICE_0_WEIGHT};
use crate::program::duration;
use corewise_core::plan::Weight;
use corewise_core::time::Time;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The weight of each nice level from -20 to 19 (`sched_prio_to_weight`); level 0 has 1024.
const NICE_WEIGHTS: [i64; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904, 3906, 3121,
    2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87, 70, 56, 45, 36, 29,
    23, 18, 15,
];

/// The weight of a group unless it has another one, as of `cpu.weight`: that of a thread of nice level 0.
const WEIGHT: i64 = 100;

/// The nice levels.
pub const NICE_LEVELS: std::ops::RangeInclusive<i32> = -20..=19;

/// Returns the weight of a nice level, which must be in [`NICE_LEVELS`].
pub fn nice_weight(nice: i32) -> i64 {
    NICE_WEIGHTS[(nice + 20) as usize] * (NICE_0_WEIGHT / 1024)
}

/// A scheduling class of Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// `SCHED_OTHER`.
    #[default]
    Normal,
    /// `SCHED_BATCH`: a thread that wakes up interrupts no other one, unless of class idle.
    Batch,
    /// `SCHED_IDLE`: a weight of 3, whatever its nice level is; any other class interrupts it.
    Idle,
}

impl Class {
    /// Returns the weight of its threads.
    pub fn weight(self, nice: i32) -> i64 {
        if self == Class::Idle { IDLE_WEIGHT } else { nice_weight(nice) }
    }
}

/// Returns what becomes of a weight of a nice level: the weight of the level nearest to so many percent of
/// it, each level a factor of 1.25 (sched(7)).
pub(crate) fn changed_weight(own: i64, change: Weight) -> i64 {
    let Weight::Percent(percent) = change else { return IDLE_WEIGHT };
    let levels = (f64::from(percent) / 100.0).ln() / 1.25_f64.ln();
    let nice = NICE_LEVELS.min_by_key(|&nice| (nice_weight(nice) - own).abs()).unwrap_or(0);
    let nearest = (f64::from(nice) - levels).round() as i32;
    nice_weight(nearest.clamp(*NICE_LEVELS.start(), *NICE_LEVELS.end()))
}

/// A group as written in a scenario.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GroupSpec {
    /// Its weight among its siblings, as of `cpu.weight`: 1 to 10,000.
    pub weight: u32,
    /// The CPU time that it has in a period; as much as there is if left out.
    pub quota: Option<Quota>,
    /// The period of the quota.
    #[serde(deserialize_with = "duration")]
    pub period: Duration,
    /// The group that it is in.
    pub parent: Option<String>,
}

/// CPU time of all threads of a group together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Quota(#[serde(deserialize_with = "duration")] pub Duration);

impl Default for GroupSpec {
    fn default() -> Self {
        let period = Duration::from_millis(100);
        Self { weight: WEIGHT as u32, quota: None, period, parent: None }
    }
}

impl GroupSpec {
    /// Returns what is wrong with a group, if anything is. The ranges are Linux's.
    pub fn fault(name: &str, all: &BTreeMap<String, GroupSpec>) -> Option<&'static str> {
        let (least, most) = (Duration::from_millis(1), Duration::from_secs(1));
        let spec = &all[name];
        // A chain longer than the number of groups is a cycle.
        let parent = |name: &&str| all.get(*name)?.parent.as_deref();
        let depth = std::iter::successors(Some(name), parent).take(all.len() + 1).count();
        [
            (!(1..=10_000).contains(&spec.weight), "weight must be 1 to 10000"),
            (!(least..=most).contains(&spec.period), "period must be 1ms to 1s"),
            (spec.quota.is_some_and(|quota| quota.0 < least), "quota must be 1ms or more"),
            (spec.parent.as_ref().is_some_and(|parent| !all.contains_key(parent)), "its parent is no group"),
            (depth > all.len(), "it is in itself"),
        ]
        .into_iter()
        .find_map(|(broken, problem)| broken.then_some(problem))
    }
}

/// What a group has left of its quota.
#[derive(Debug)]
pub(crate) struct Budget {
    pub quota_ns: i64,
    pub period: Duration,
    /// CPU time left, as of `since`.
    pub left_ns: i64,
    since: Time,
    /// Threads that have a PE.
    running: i64,
    /// The number of the event that is valid.
    pub number: u32,
    pub is_spent: bool,
}

impl Budget {
    /// Accounts for the time so far, and returns when it will be spent.
    pub fn change(&mut self, now: Time, more: i64) -> Option<Time> {
        self.left_ns -= self.running * (now.0 - self.since.0) as i64;
        self.since = now;
        self.running += more;
        self.number = self.number.wrapping_add(1);
        let until = self.left_ns.max(0) as u64;
        (self.running > 0).then(|| Time(now.0 + until.div_ceil(self.running as u64)))
    }
}

/// A group.
#[derive(Debug)]
pub(crate) struct Group {
    pub weight: i64,
    pub parent: Option<usize>,
    pub is_session: bool,
    /// The weights of the threads in queues, and of the groups with such threads, that are in it.
    active: i64,
    pub budget: Option<Budget>,
}

/// All groups.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    pub all: Vec<Group>,
    /// Threads that want a PE, but whose group has spent its quota.
    pub held: Vec<usize>,
}

impl Groups {
    /// Creates the groups of a scenario.
    pub fn new(specs: &BTreeMap<String, GroupSpec>) -> Self {
        let place = |name: &String| specs.keys().position(|other| other == name);
        let group = |spec: &GroupSpec| Group {
            weight: i64::from(spec.weight) * NICE_0_WEIGHT / WEIGHT,
            parent: spec.parent.as_ref().and_then(place),
            is_session: false,
            active: 0,
            budget: spec.quota.map(|quota| Budget {
                quota_ns: quota.0.as_nanos() as i64,
                period: spec.period,
                left_ns: quota.0.as_nanos() as i64,
                since: Time(0),
                running: 0,
                number: 0,
                is_spent: false,
            }),
        };
        Self { all: specs.values().map(group).collect(), held: Vec::new() }
    }

    /// Adds a group for a session.
    pub fn add_session(&mut self) -> usize {
        let session =
            Group { weight: NICE_0_WEIGHT, parent: None, is_session: true, active: 0, budget: None };
        self.all.push(session);
        self.all.len() - 1
    }

    /// Returns a group and all that it is in, innermost first.
    pub fn path(&self, group: Option<usize>) -> impl Iterator<Item = usize> {
        std::iter::successors(group, |&group| self.all[group].parent)
    }

    /// Returns the quotas of a group and of all that it is in, in PEs.
    pub fn quotas(&self, group: Option<usize>) -> impl Iterator<Item = (usize, f64)> {
        self.path(group).filter_map(|group| {
            let budget = self.all[group].budget.as_ref()?;
            Some((group, budget.quota_ns as f64 / budget.period.as_nanos() as f64))
        })
    }

    /// Adds a thread's weight to what is active, or subtracts it.
    pub fn count(&mut self, group: Option<usize>, weight: i64, more: bool) {
        let (mut group, mut weight) = (group, weight);
        while let Some(index) = group {
            let this = &mut self.all[index];
            let was_idle = this.active == 0;
            this.active += if more { weight } else { -weight };
            if was_idle == (this.active == 0) {
                return;
            }
            (group, weight) = (this.parent, this.weight);
        }
    }

    /// Returns what a thread of this own weight counts as in its queue.
    pub fn weight(&self, group: Option<usize>, own: i64) -> i64 {
        let share = |weight: i64, group| {
            let Group { weight: all, active, .. } = self.all[group];
            (i128::from(weight) * i128::from(all) / i128::from(active.max(1))) as i64
        };
        self.path(group).fold(own, share).max(1)
    }

    /// Returns the number of threads that quotas keep from running.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Returns whether a group, or one that it is in, has spent its quota.
    pub fn is_spent(&self, group: Option<usize>) -> bool {
        self.path(group).any(|group| self.all[group].budget.as_ref().is_some_and(|budget| budget.is_spent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(text: &str) -> BTreeMap<String, GroupSpec> {
        toml::from_str(text).expect(text)
    }

    #[test]
    fn a_group_divides_its_weight_among_what_is_active_in_it() {
        let specs = groups("a = { weight = 300 }\nb = { parent = 'a' }\nc = { parent = 'a', weight = 200 }");
        let mut groups = Groups::new(&specs);
        let own = nice_weight(0);
        for _ in 0..2 {
            groups.count(Some(1), own, true);
        }
        assert_eq!(groups.weight(Some(1), own), 3 * own / 2);
        groups.count(Some(2), own, true);
        assert_eq!((groups.weight(Some(1), own), groups.weight(Some(2), own)), (own / 2, 2 * own));
        groups.count(Some(2), own, false);
        assert_eq!(groups.weight(Some(1), own), 3 * own / 2);
        assert_eq!(groups.weight(None, nice_weight(5)), 335 * own / 1024);
    }

    #[test]
    fn a_changed_weight_is_that_of_the_nearest_nice_level() {
        let changed = |nice, change| changed_weight(nice_weight(nice), change);
        assert_eq!(changed(0, Weight::Percent(2842)), nice_weight(-15));
        assert_eq!(changed(5, Weight::Percent(200)), nice_weight(2));
        assert_eq!(changed(-10, Weight::Percent(1_000_000)), nice_weight(-20));
        assert_eq!(changed(3, Weight::Percent(100)), nice_weight(3));
        assert_eq!(changed(3, Weight::Idle), IDLE_WEIGHT);
    }

    #[test]
    fn a_quota_lasts_as_long_as_its_threads_let_it() {
        let specs = groups("a = { quota = '50ms' }");
        let mut groups = Groups::new(&specs);
        let budget = groups.all[0].budget.as_mut().expect("a quota");
        assert_eq!(budget.change(Time(0), 1), Some(Time(50_000_000)));
        assert_eq!(budget.change(Time(10_000_000), 1), Some(Time(30_000_000)));
        assert_eq!(budget.change(Time(20_000_000), -2), None);
        assert_eq!(budget.left_ns, 20_000_000);
    }

    #[test]
    fn faults_are_found() {
        for (text, words) in [
            ("a.weight = 0", "weight must be"),
            ("a.period = '2s'", "period must be"),
            ("a.quota = '1us'", "quota must be"),
            ("a.parent = 'x'", "no group"),
            ("a.parent = 'b'\nb.parent = 'a'", "in itself"),
        ] {
            assert!(
                GroupSpec::fault("a", &groups(text)).is_some_and(|fault| fault.contains(words)),
                "{text}"
            );
        }
        assert_eq!(GroupSpec::fault("a", &groups("a.parent = 'b'\nb.quota = '30ms'")), None);
    }
}
