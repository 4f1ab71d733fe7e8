//! What holds of plans, of waits and of their guard whatever happens.

use corewise_core::board::{Agreed, Ask, Board, Note};
use corewise_core::cpuset::CpuSet;
use corewise_core::guard::waits::{Present, WaitsGuard};
use corewise_core::ids::ThreadId;
use corewise_core::machine_model::Switching;
use corewise_core::observe::{IdleWait, IdleWaits, ProcessReading};
use corewise_core::plan::{
    Action, Assignment, Change, Outcome, OutcomeKind, Placement, Setting, SettingKind, WantedSetting, Weight,
};
use corewise_core::time::Time;
use corewise_core::waits::{State, WaitChanges, Waits};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn thread(tid: u32) -> ThreadId {
    ThreadId { tid, generation: 1 }
}

/// Each thread's PEs, if it is bound, and its weight and turns.
type Drawn = Vec<(Option<u8>, Option<u32>, bool)>;

fn drawn() -> impl Strategy<Value = Drawn> {
    vec((option::of(1u8..16), option::of(50u32..200), any::<bool>()), 6)
}

fn placement(drawn: &Drawn) -> Placement {
    let mut placement = Placement::default();
    for (tid, (pes, weight, in_turns)) in (0..).zip(drawn) {
        let reason = || "drawn".into();
        if let Some(pes) = pes {
            let pes = CpuSet::from_words(&[u64::from(*pes)]);
            placement.bound.insert(thread(tid), Assignment { pes, reason: reason() });
        }
        let weight = weight.map(|percent| Setting::Weight(Weight::Percent(percent)));
        for setting in weight.into_iter().chain(in_turns.then_some(Setting::InTurns)) {
            let wanted = WantedSetting { setting, reason: reason() };
            placement.settings.insert((thread(tid), setting.kind()), wanted);
        }
    }
    placement
}

/// Carries the actions out.
fn after(mut placement: Placement, actions: &[Action]) -> Placement {
    for Action { thread, change, reason } in actions {
        match change {
            Change::Bind(pes) => {
                let to = Assignment { pes: pes.clone(), reason: reason.clone() };
                placement.bound.insert(*thread, to);
            }
            // The engine moves instead of binding, after the plan is made.
            Change::Move(_) => panic!("{change:?} follows from no placement"),
            Change::Free => drop(placement.bound.remove(thread)),
            Change::Set(setting) => {
                let set = WantedSetting { setting: *setting, reason: reason.clone() };
                placement.settings.insert((*thread, setting.kind()), set);
            }
            Change::Reset(kind) => drop(placement.settings.remove(&(*thread, *kind))),
        }
    }
    placement
}

/// What was drawn of one look: PE time run and waited for, idle, blocks, throttled, other gangs.
type Look = (u64, u64, u64, u64, u64, u32);

/// Lets a process be looked at every 50 ms.
struct Watched {
    waits: Waits,
    reading: ProcessReading,
}

const LEADER: u32 = 7;

impl Watched {
    fn new(may: WaitChanges, waits: IdleWaits) -> Watched {
        let reading = ProcessReading {
            leader: thread(LEADER),
            at: Time(0),
            threads: 2,
            pes: 2,
            run_ns: 0,
            wait_ns: 0,
            throttled_ns: 0,
            stopped_ns: None,
            quota_permille: None,
            timeslices: Some(0),
            idle_ns: Some(0),
            waits,
            other_gangs: 0,
        };
        Watched { waits: Waits::new(may, Switching::default()), reading }
    }

    fn look(&mut self, (run, wait, idle, blocks, throttled, gangs): Look) {
        let reading = &mut self.reading;
        reading.at.0 += 50_000_000;
        reading.run_ns += run * 1_000_000;
        reading.wait_ns += wait * 1_000_000;
        reading.throttled_ns += throttled * 1_000_000;
        reading.quota_permille = (throttled > 0).then_some(1_000);
        reading.idle_ns = reading.idle_ns.map(|ns| ns + idle * 1_000_000);
        reading.timeslices = reading.timeslices.map(|count| count + blocks);
        reading.other_gangs = gangs;
        self.waits.take(&self.reading, WaitChanges::ALL, self.reading.at);
    }

    fn settings(&self) -> Vec<Setting> {
        let mut placement = Placement::default();
        self.waits.add_to(&mut placement);
        placement.settings.values().map(|wanted| wanted.setting).collect()
    }
}

fn look() -> impl Strategy<Value = Look> {
    (0u64..100, 0u64..100, 0u64..50, 0u64..10_000, prop_oneof![3 => Just(0u64), 1 => 1u64..50], 0u32..2)
}

fn note() -> impl Strategy<Value = Note> {
    let second = || prop_oneof![4 => 7_000u64..7_060, 1 => any::<u64>()];
    let log = || option::of(prop_oneof![4 => -1.0f64..1.0, 1 => any::<f64>()]);
    let asks = vec((second(), prop_oneof![4 => 1u64..101, 1 => any::<u64>()]), 0..3);
    (any::<bool>(), any::<u32>(), asks, (second(), any::<bool>()), vec((second(), log()), 0..3)).prop_map(
        |(changes, gangs, asks, (second, is_off), results)| Note {
            changes,
            gangs,
            asks: asks.into_iter().map(|(second, off_ms)| Ask { second, off_ms }).collect(),
            verdict: Agreed { second, is_off },
            results,
        },
    )
}

proptest! {
    #[test]
    fn the_actions_between_two_placements_lead_from_one_to_the_other(from in drawn(), to in drawn()) {
        let (from, to) = (placement(&from), placement(&to));
        let actions = from.actions_towards(&to, (0..6).map(thread));
        let reached = after(from.clone(), &actions);
        let pes = |of: &Placement| {
            let mut pes: Vec<_> = of.bound.iter().map(|(of, to)| (*of, to.pes.clone())).collect();
            pes.sort_unstable_by_key(|(of, _)| *of);
            pes
        };
        let settings = |of: &Placement| -> Vec<_> {
            of.settings.iter().map(|(key, to)| (*key, to.setting)).collect()
        };
        prop_assert_eq!((pes(&reached), settings(&reached)), (pes(&to), settings(&to)));
        prop_assert_eq!(reached.actions_towards(&to, (0..6).map(thread)), vec![]);
        let is_bind = |action: &Action| matches!(action.change, Change::Bind(_));
        let first_bind = actions.iter().position(is_bind).unwrap_or(actions.len());
        let is_vacated = actions[first_bind..].iter().all(|action| action.change != Change::Free);
        prop_assert!(is_vacated, "PEs are vacated before they are filled");
    }

    #[test]
    fn waits_are_only_changed_as_permitted_and_as_the_library_can(
        (spin, turns) in any::<(bool, bool)>(),
        adaptable in any::<bool>(),
        looks in vec(look(), 1..60),
        left_at in option::of(0usize..60),
    ) {
        let may = WaitChanges { spin, turns };
        let kind = if adaptable { IdleWait::Adaptable } else { IdleWait::Fixed };
        let mut watched = Watched::new(may, kind.into());
        let mut is_left = false;
        for (at, look) in looks.into_iter().enumerate() {
            watched.look(look);
            let settings = watched.settings();
            let has = |kind: SettingKind| settings.iter().any(|setting| setting.kind() == kind);
            prop_assert!(!has(SettingKind::SpinCount) || spin && adaptable, "{:?}", settings);
            prop_assert!(!has(SettingKind::Turns) || turns, "{:?}", settings);
            prop_assert!(!is_left || settings.is_empty(), "somebody else decides: {:?}", settings);
            let in_turns = watched.waits.in_state(State::Turns).count();
            prop_assert!(in_turns == 0 || !has(SettingKind::SpinCount), "in turns its own waits hold");
            if left_at == Some(at) && may.any() {
                let change = Change::Set(Setting::SpinCount(100));
                let outcome = Outcome { thread: thread(LEADER), change, result: OutcomeKind::NotOurs };
                watched.waits.take_outcome(&outcome);
                is_left = true;
            }
        }
        watched.waits.limit(|_| WaitChanges::NONE);
        prop_assert_eq!(watched.settings(), vec![]);
    }

    #[test]
    fn whatever_others_write_on_the_board_the_guard_of_waits_keeps_its_clock_and_its_cost(
        notes in vec(vec(note(), 0..3), 1..40),
        changes in any::<bool>(),
        gangs in 0u32..4,
    ) {
        let mut guard = WaitsGuard::default();
        let began_s = 7_000u64;
        for (second, notes) in (0u64..).zip(notes) {
            let now = Time(second * 1_000_000_000 + 500_000_000);
            let clock = Time(now.0 + began_s * 1_000_000_000);
            let board = Board { clock, notes: (1u32..).zip(notes).collect() };
            guard.take(&board, Present { now, threads: &[], changes, gangs });
            let due = guard.due();
            let is_soon = due.is_none_or(|due| due > now && due.since(now).as_secs() < 2);
            prop_assert!(is_soon, "{:?} at {:?}", due, now);
            prop_assert_eq!(guard.note().is_some(), changes);
            let asks = guard.note().map_or(0, |note| note.asks.len());
            prop_assert_eq!(asks, 0, "without a meter nothing is asked for");
        }
    }
}
