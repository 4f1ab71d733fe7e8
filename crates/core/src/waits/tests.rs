use super::*;
use crate::plan::Change;

const LEADER: ThreadId = ThreadId { tid: 7, generation: 1 };

/// Tells of a process every 10 ms: each letter is a look, at which its threads waited for a PE for a half of
/// their time (`#`), for a twentieth (`-`) or not at all (`.`). What holds after each: `s` for short waits.
fn drawn(looks: &str) -> String {
    let mut waits = Waits::default();
    let states = looks.chars().zip(1u64..).map(|(look, index)| {
        let wait_ns = match look {
            '#' => 10_000_000,
            '-' => 500_000,
            _ => 0,
        };
        let before = waits.short().len();
        let delay = ProcessDelay { leader: LEADER, run_ns: 10_000_000, wait_ns };
        let changed = waits.take(&delay, Time(index * 10_000_000));
        assert_eq!(changed, before != waits.short().len(), "look {index}");
        if waits.short().is_empty() { '.' } else { 's' }
    });
    states.collect()
}

#[test]
fn who_is_held_up_spins_shortly_from_the_first_look_on() {
    assert_eq!(drawn("..--.##"), ".....ss");
}

#[test]
fn its_own_choice_holds_again_after_a_calm_that_nothing_interrupts() {
    assert_eq!(drawn("#..........."), "sssssssssss.", "calm for 10 periods");
    assert_eq!(drawn("#.....-..........."), "sssssssssssssssss.", "the calm begins anew");
}

#[test]
fn each_relapse_doubles_the_calm() {
    let calm = |looks: usize| ".".repeat(looks);
    let short = |looks: usize| "s".repeat(looks);
    let looks = format!("#{}#{}#", calm(11), calm(21));
    assert_eq!(drawn(&looks), format!("{}.{}.s", short(11), short(21)));
}

#[test]
fn who_still_spins_after_the_change_is_left_alone_for_good() {
    let mut waits = Waits::default();
    let held_up = ProcessDelay { leader: LEADER, run_ns: 1, wait_ns: 1 };
    assert!(waits.take(&held_up, Time(0)));
    let judged = |ms: u64| Time(ms * 1_000_000);
    waits.judge(LEADER, 0.9, judged(1_000));
    assert_eq!(waits.short(), [LEADER], "the samples are from before the change, too");
    waits.judge(LEADER, 0.1, judged(2_000));
    assert_eq!(waits.short(), [LEADER], "that is little");
    waits.judge(LEADER, 0.9, judged(3_000));
    assert_eq!(waits.short(), []);
    assert!(!waits.take(&held_up, judged(4_000)));
}

#[test]
fn what_is_wanted_names_the_reason() {
    let mut waits = Waits::default();
    waits.take(&ProcessDelay { leader: LEADER, run_ns: 3, wait_ns: 1 }, Time(0));
    let mut wanted = Placement::default();
    waits.add_to(&mut wanted);
    let setting = &wanted.settings[&(LEADER, SettingKind::SpinTurns)];
    assert_eq!(setting.setting, Setting::SpinTurns(SHORT_TURNS));
    assert_eq!(setting.reason, "its threads waited for a PE for 25 % of their time");
}

#[test]
fn who_became_another_program_begins_anew_and_who_decided_otherwise_is_left_alone() {
    let held_up = ProcessDelay { leader: LEADER, run_ns: 1, wait_ns: 1 };
    for (result, changes_again) in [(OutcomeKind::Gone, true), (OutcomeKind::NotOurs, false)] {
        let mut waits = Waits::default();
        waits.take(&held_up, Time(0));
        let change = Change::Set(Setting::SpinTurns(SHORT_TURNS));
        waits.take_outcome(&Outcome { thread: LEADER, change, result });
        assert_eq!(waits.short(), []);
        assert_eq!(waits.take(&held_up, Time(10_000_000)), changes_again);
    }
}
