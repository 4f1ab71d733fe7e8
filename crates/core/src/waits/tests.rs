use super::idle::CLEARLY_IDLE_FROM;
use super::*;
use crate::plan::Change;

const LEADER: ThreadId = ThreadId { tid: 7, generation: 1 };
const BOTH: Mitigations = Mitigations { spin: true, turns: true };

/// Tells of a process every 10 ms: each letter is a look, at which its threads waited for a PE for a half of
/// their time (`#`), for a twentieth (`-`) or not at all (`.`). What holds after each: `s` for short waits,
/// `S` for the shortest.
fn drawn(looks: &str) -> String {
    let mut waits = Waits::new(BOTH);
    let states = looks.chars().zip(1u64..).map(|(look, index)| {
        let wait_ns = match look {
            '#' => 10_000_000,
            '-' => 500_000,
            _ => 0,
        };
        let before = wanted(&waits);
        let delay = ProcessDelay { run_ns: 10_000_000, wait_ns, ..held_up(true) };
        let changed = waits.take(&delay, Time(index * 10_000_000));
        assert_eq!(changed, before != wanted(&waits), "look {index}");
        match wanted(&waits)[..] {
            [] => '.',
            [Setting::SpinCount(SHORT_SPIN_COUNT)] => 's',
            [Setting::SpinCount(SHORTEST_SPIN_COUNT)] => 'S',
            ref other => panic!("{other:?}"),
        }
    });
    states.collect()
}

#[test]
fn who_is_held_up_spins_shortly_but_not_for_a_disturbance() {
    assert_eq!(drawn("..--.###"), "......ss", "each has waited for 10 ms");
    assert_eq!(drawn("#.#.--#.#"), ".........");
}

/// A program that has its PEs to itself is looked at rarely. *Measured* at the start of one that ran alone,
/// beside short commands that it started.
#[test]
fn one_long_look_says_nothing_of_what_is_over_by_the_next() {
    let look = |waits: &mut Waits, elapsed_us, run_us, wait_us, at_ms| {
        let ns = |us: u64| 1_000 * us;
        let (run_ns, wait_ns, elapsed_ns) = (ns(run_us), ns(wait_us), ns(elapsed_us));
        waits.take(&ProcessDelay { run_ns, wait_ns, elapsed_ns, ..held_up(true) }, at(at_ms))
    };
    let mut waits = Waits::new(BOTH);
    assert!(!look(&mut waits, 50_278, 80_165, 15_274, 50));
    assert!(!look(&mut waits, 5_147, 6_278, 124, 55));

    let mut waits = Waits::new(BOTH);
    assert!(!look(&mut waits, 47_784, 12_740, 3_012, 50), "its threads wanted a PE for a third of the time");
    assert!(!look(&mut waits, 7_433, 11_813, 2_425, 58));

    let mut waits = Waits::new(BOTH);
    assert!(!look(&mut waits, 50_278, 80_165, 15_274, 50));
    assert!(look(&mut waits, 5_147, 4_996, 5_147, 55), "it lasts");

    let mut waits = Waits::new(BOTH);
    assert!(!look(&mut waits, 21_375, 20_866, 20_055, 50));
    assert!(!look(&mut waits, 5_147, 10_143, 124, 55));
    assert!(look(&mut waits, 5_147, 4_996, 5_147, 60), "it lasts, though they had PEs by chance");

    assert!(look(&mut Waits::new(BOTH), 37_375, 34_866, 34_055, 50), "beside two busy processes");
}

/// Else a disturbance long after would find it held up, and samples of its spinning would be judged.
#[test]
fn who_has_been_held_up_for_long_without_a_cure_is_so_no_longer_after_a_moment() {
    let mut waits = Waits::new(BOTH);
    assert!((1..=500).all(|look| !waits.take(&held_up(false), at(10 * look))));
    assert_eq!(waits.to_judge(), [LEADER]);
    let calm = ProcessDelay { wait_ns: 0, ..held_up(false) };
    assert!((501..=502).all(|look| !waits.take(&calm, at(10 * look))));
    assert!(waits.to_judge().is_empty());
}

#[test]
fn who_is_held_up_all_the_same_spins_for_the_shortest_time_till_it_is_calm() {
    assert_eq!(drawn("#####---#............"), ".ssSSSSSSSSSSSSSSSSSS");
    assert_eq!(drawn("#####---#............."), ".ssSSSSSSSSSSSSSSSSSS.");
    assert_eq!(drawn("##--#-.-.#."), ".ssssssssSS", "in the mean that was long enough");
}

#[test]
fn its_own_choice_holds_again_after_a_calm_that_nothing_interrupts() {
    assert_eq!(drawn("##.........."), ".ssssssssss.", "calm for 10 periods");
    assert_eq!(drawn("##-.--..-.-."), ".ssssssssss.", "threads that wake up wait for a moment");
    assert_eq!(drawn("##.....#.............."), ".ssssssssssssssssssss.", "the calm begins anew");
}

#[test]
fn each_relapse_doubles_the_calm() {
    let calm = |looks: usize| ".".repeat(looks);
    let short = |looks: usize| "s".repeat(looks);
    let looks = format!("##{}##{}##", calm(10), calm(20));
    assert_eq!(drawn(&looks), format!(".{}..{}..s", short(10), short(20)));
}

/// Looks at a process that is delayed all the time, where every tenth look reports this idle share. Returns
/// the looks at which its waits became short, and those at which the library's own choice held again.
fn delayed_beside_idle_pes(idle_percent: u8, looks: u64) -> (Vec<u64>, Vec<u64>) {
    let mut waits = Waits::new(BOTH);
    let (mut short, mut own) = (Vec::new(), Vec::new());
    for look in 1..=looks {
        if !own.is_empty() && wanted(&waits).is_empty() {
            assert!(waits.to_judge().is_empty(), "turns would not help either");
        }
        let idle_percent = (look % 10 == 0).then_some(idle_percent);
        if waits.take(&ProcessDelay { idle_percent, ..held_up(true) }, at(10 * look)) {
            let is_own = wanted(&waits).is_empty();
            if is_own {
                own.push(look)
            } else if waits.is_first_step() {
                short.push(look)
            }
        }
    }
    (short, own)
}

impl Waits {
    /// Whether waits are short, but not the shortest.
    fn is_first_step(&self) -> bool {
        wanted(self) == [Setting::SpinCount(SHORT_SPIN_COUNT)]
    }
}

#[test]
fn short_waits_that_only_leave_pes_idle_are_suspended_for_ever_longer() {
    let (short, own) = delayed_beside_idle_pes(CLEARLY_IDLE_FROM, 1200);
    assert_eq!(own, [10, 70, 280, 1090], "suspended for 50, 200 and 800 looks");
    assert_eq!(short, [2, 60, 270, 1080]);
    assert_eq!(delayed_beside_idle_pes(IDLE_FROM, 75), (vec![2, 70], vec![20]), "twice in a row");
    assert_eq!(delayed_beside_idle_pes(IDLE_FROM - 1, 250), (vec![2], vec![]), "other threads use the PEs");
}

#[test]
fn own_code_that_spins_is_judged_also_after_short_waits_that_did_not_help() {
    let mut waits = Waits::new(BOTH);
    hold_up(&mut waits, held_up(true), 0);
    assert!(waits.take(&ProcessDelay { idle_percent: Some(CLEARLY_IDLE_FROM), ..held_up(true) }, at(100)));
    // The library has been unloaded: what spins now is the program's own code.
    hold_up(&mut waits, held_up(false), 200);
    assert_eq!(waits.to_judge(), [LEADER]);
}

/// Its own threads hold it up, and would more with its library's own choice.
#[test]
fn idle_pes_do_not_speak_against_short_waits_of_who_spins_all_the_same() {
    for (spinning, suspended) in [(49, true), (50, false)] {
        let mut waits = Waits::new(BOTH);
        hold_up(&mut waits, held_up(true), 0);
        waits.judge(LEADER, samples(100, 0), at(100));
        waits.judge(LEADER, samples(200, spinning), at(1_100));
        waits.take(&ProcessDelay { idle_percent: Some(CLEARLY_IDLE_FROM), ..held_up(true) }, at(1_200));
        assert_eq!(wanted(&waits).is_empty(), suspended, "{spinning}");
    }
}

/// As its waits were made short before the engine was there.
#[test]
fn what_holds_already_holds_until_it_is_calm() {
    let mut waits = Waits::new(BOTH);
    let shortened = ProcessDelay { spin_count: Some(SHORT_SPIN_COUNT), wait_ns: 0, ..held_up(true) };
    assert!(waits.take(&shortened, at(10)));
    assert_eq!(wanted(&waits), [Setting::SpinCount(SHORT_SPIN_COUNT)]);
    assert!((2..11).all(|look| !waits.take(&shortened, at(10 * look))) && waits.take(&shortened, at(110)));
    assert_eq!(wanted(&waits), []);
    assert!(!waits.take(&shortened, at(120)), "its own choice is about to hold");
}

/// Nobody gains by short waits then.
#[test]
fn who_is_held_up_by_a_quota_alone_keeps_its_own_waits() {
    let mut waits = Waits::new(BOTH);
    let throttled = ProcessDelay { wait_ns: 0, throttled_ns: 90_000_000, ..held_up(true) };
    assert!((1..100).all(|look| !waits.take(&throttled, at(10 * look))));
    assert_eq!(wanted(&waits), []);
    assert!(waits.to_judge().is_empty());
    let by_others_too = ProcessDelay { wait_ns: 10_000_000, ..throttled };
    assert!((100..110).any(|look| waits.take(&by_others_too, at(10 * look))));
}

fn at(ms: u64) -> Time {
    Time(ms * 1_000_000)
}

fn held_up(adaptable: bool) -> ProcessDelay {
    ProcessDelay {
        leader: LEADER,
        run_ns: 10_000_000,
        wait_ns: 10_000_000,
        throttled_ns: 0,
        idle_percent: None,
        elapsed_ns: 10_000_000,
        adaptable,
        gives_way: false,
        other_gangs: 0,
        timeslices: None,
        spin_count: None,
    }
}

/// Lets a process be held up for long enough, from a time on; whether something else is wanted then.
fn hold_up(waits: &mut Waits, delay: ProcessDelay, from_ms: u64) -> bool {
    waits.take(&delay, at(from_ms));
    waits.take(&delay, at(from_ms) + Duration::from_nanos(delay.elapsed_ns))
}

/// What is wanted for the process.
fn wanted(waits: &Waits) -> Vec<Setting> {
    let mut wanted = Placement::default();
    waits.add_to(&mut wanted);
    wanted.settings.values().map(|wanted| wanted.setting).collect()
}

/// Samples of a process whose first thread has so many, and spun in so many of them; another one spun only
/// before, and sleeps since.
fn samples(all: u64, spinning: u64) -> HashMap<ThreadId, Samples> {
    let asleep = ThreadId { tid: 8, generation: 1 };
    let slept = Samples { all: 1000, spinning: 1000, ..Samples::default() };
    [(LEADER, Samples { all, spinning, ..Samples::default() }), (asleep, slept)].into()
}

#[test]
fn who_still_spins_after_the_change_takes_turns_and_at_once_when_it_is_held_up_again() {
    let mut waits = Waits::new(BOTH);
    assert!(hold_up(&mut waits, held_up(true), 0));
    waits.judge(LEADER, samples(100, 90), at(200));
    waits.judge(LEADER, samples(200, 114), at(1_000));
    assert_eq!(
        wanted(&waits),
        [Setting::SpinCount(SHORT_SPIN_COUNT)],
        "that is little, and what was before the change does not count"
    );
    waits.judge(LEADER, samples(300, 174), at(2_000));
    let may = |count| [Setting::SpinCount(count), Setting::MayTakeTurns];
    assert_eq!(wanted(&waits), may(SHORT_SPIN_COUNT), "short waits are right while it is the only one");
    assert_eq!(told(&mut waits, 1, 2_100), [Setting::InTurns]);
    let calm = ProcessDelay { wait_ns: 0, elapsed_ns: 100_000_000, other_gangs: 1, ..held_up(true) };
    assert!((41..50).all(|look| !waits.take(&calm, at(100 * look))), "it may be its turn");
    assert!(waits.take(&calm, at(5_000)));
    assert_eq!(wanted(&waits), []);
    assert!(hold_up(&mut waits, held_up(true), 5_100));
    assert_eq!(wanted(&waits), may(SHORT_SPIN_COUNT));
    assert_eq!(told(&mut waits, 1, 5_200), [Setting::InTurns]);
    assert_eq!(told(&mut waits, 0, 5_300), may(SHORTEST_SPIN_COUNT), "it may be held up by itself");
}

#[test]
fn who_spins_in_waits_that_cannot_be_changed_takes_turns_once_there_are_samples_of_it() {
    let mut waits = Waits::new(BOTH);
    assert!(!waits.take(&held_up(false), at(0)));
    assert_eq!(waits.to_judge(), [LEADER]);
    waits.judge(LEADER, samples(100, 90), at(100));
    waits.judge(LEADER, samples(160, 126), at(399));
    assert_eq!(wanted(&waits), [], "too soon");
    waits.judge(LEADER, samples(139, 114), at(500));
    assert_eq!(wanted(&waits), [], "too few");
    assert!(waits.is_judged_soon(at(500)));
    assert!(!waits.is_judged_soon(at(2_000)), "what was not found soon is not looked for as often");
    waits.judge(LEADER, samples(140, 114), at(2_000));
    assert_eq!(wanted(&waits), [Setting::InTurns]);
}

#[test]
fn a_clear_case_takes_turns_sooner() {
    for (samples_then, ms, found) in [
        ((115, 115), 180, false),
        ((116, 111), 179, false),
        ((116, 111), 180, false),
        ((116, 112), 180, true),
    ] {
        let mut waits = Waits::new(BOTH);
        waits.take(&held_up(false), at(0));
        waits.judge(LEADER, samples(100, 100), at(100));
        waits.judge(LEADER, samples(samples_then.0, samples_then.1), at(ms));
        assert_eq!(!wanted(&waits).is_empty(), found, "{samples_then:?} after {ms} ms");
    }
}

#[test]
fn waits_that_give_way_count_unless_that_is_how_the_library_wants_it() {
    for (gives_way, giving_way, found) in [(false, 60, true), (true, 60, false), (true, 20, true)] {
        let mut waits = Waits::new(BOTH);
        waits.take(&ProcessDelay { gives_way, ..held_up(false) }, at(0));
        waits.judge(LEADER, samples(0, 0), at(100));
        let later = Samples { all: 100, spinning: 70, giving_way, kernel: 0 };
        waits.judge(LEADER, [(LEADER, later)].into(), at(2_000));
        assert_eq!(!wanted(&waits).is_empty(), found, "{gives_way} {giving_way}");
    }
}

/// Takes turns from 2.1 s on, as it spun for nine tenths of its time, and then spins for such a share (in
/// percent); what holds after that, and after it was held up again for the next 30 s.
fn in_turns(spinning: u64) -> (Vec<Setting>, Vec<Setting>) {
    let mut waits = Waits::new(BOTH);
    waits.take(&held_up(false), at(0));
    spin(&mut waits, 100);
    assert_eq!(wanted(&waits), [Setting::InTurns]);
    waits.judge(LEADER, samples(300, 190), at(3_100));
    assert_eq!(wanted(&waits), [Setting::InTurns], "the others take no turns yet");
    waits.judge(LEADER, samples(400, 190 + spinning), at(4_099));
    assert_eq!(wanted(&waits), [Setting::InTurns], "not every gang had its turns");
    waits.judge(LEADER, samples(400, 190 + spinning), at(4_100));
    let soon = wanted(&waits);
    for ms in (4_300..33_300).step_by(100) {
        waits.take(&held_up(false), at(ms));
    }
    waits.judge(LEADER, samples(500, 400), at(33_300));
    waits.judge(LEADER, samples(600, 500), at(34_300));
    (soon, wanted(&waits))
}

#[test]
fn turns_that_do_not_help_are_given_up_and_tried_again_later() {
    let turns = || vec![Setting::InTurns];
    assert_eq!(in_turns(76), (turns(), Vec::new()), "they helped at first, and then no more");
    assert_eq!(in_turns(77), (Vec::new(), turns()));
}

/// A process with short waits that wastes such a share of its samples (in percent) from 100 ms to 1.1 s; two
/// thirds of that in the kernel.
fn wasting(percent: u64) -> Waits {
    let mut waits = Waits::new(BOTH);
    hold_up(&mut waits, held_up(true), 0);
    waste(&mut waits, percent, 100);
    waits
}

/// It wastes such a share of a second's 300 samples; before that, it has many.
fn waste(waits: &mut Waits, percent: u64, from_ms: u64) {
    let tell = |all, spinning, kernel| [(LEADER, Samples { all, spinning, kernel, giving_way: 0 })].into();
    let (all, spinning, kernel) = (10 * from_ms, from_ms, from_ms);
    waits.judge(LEADER, tell(all, spinning, kernel), at(from_ms));
    waits.judge(LEADER, tell(all + 300, spinning + percent, kernel + 2 * percent), at(from_ms + 1_000));
}

/// What is wanted once it is told how many others take turns.
fn told(waits: &mut Waits, other_gangs: u32, at_ms: u64) -> Vec<Setting> {
    let before = wanted(waits);
    let changes = waits.take(&ProcessDelay { other_gangs, ..held_up(true) }, at(at_ms));
    assert_eq!(changes, before != wanted(waits));
    wanted(waits)
}

#[test]
fn who_wastes_time_by_short_waits_may_take_turns_and_does_as_long_as_others_do() {
    assert_eq!(wanted(&wasting(24)), [Setting::SpinCount(SHORT_SPIN_COUNT)]);
    let mut waits = wasting(25);
    let may = |count| [Setting::SpinCount(count), Setting::MayTakeTurns];
    assert_eq!(wanted(&waits), may(SHORT_SPIN_COUNT));
    assert_eq!(told(&mut waits, 0, 1_200), may(SHORT_SPIN_COUNT), "nobody else may");
    assert_eq!(waits.in_turns().count(), 0);
    assert_eq!(told(&mut waits, 1, 1_300), [Setting::InTurns]);
    assert_eq!(waits.in_turns().count(), 1);
    assert_eq!(told(&mut waits, 0, 1_400), may(SHORTEST_SPIN_COUNT), "the others take no turns any more");
}

/// Who would not follow them would disturb their turns.
#[test]
fn who_wastes_some_time_takes_turns_with_those_who_do() {
    for (percent, follows) in [(9, false), (10, true)] {
        let mut waits = Waits::new(BOTH);
        hold_up(&mut waits, ProcessDelay { other_gangs: 1, ..held_up(true) }, 0);
        waste(&mut waits, percent, 100);
        assert_eq!(told(&mut waits, 1, 1_200) == [Setting::InTurns], follows, "{percent}");
        if follows {
            waste(&mut waits, 23, 2_200);
            assert_eq!(wanted(&waits), [Setting::InTurns], "it need not gain by that");
        }
    }
}

#[test]
fn who_is_in_the_kernel_but_runs_for_long_at_a_time_wastes_nothing() {
    for (timeslices, wastes) in [(None, true), (Some(50), true), (Some(49), false), (Some(0), false)] {
        let mut waits = Waits::new(BOTH);
        hold_up(&mut waits, held_up(true), 0);
        let tell = |all, kernel| [(LEADER, Samples { all, kernel, ..Samples::default() })].into();
        waits.judge(LEADER, tell(0, 0), at(100));
        // What was before does not count.
        for ms in 101..110 {
            waits.take(&ProcessDelay { timeslices, ..held_up(true) }, at(ms));
        }
        waits.judge(LEADER, tell(100, 90), at(1_100));
        assert_eq!(wanted(&waits).len() == 2, wastes, "{timeslices:?}");
    }
}

#[test]
fn turns_are_judged_anew_when_one_more_takes_them_or_one_less() {
    let mut waits = wasting(40);
    assert_eq!(told(&mut waits, 1, 1_200), [Setting::InTurns]);
    assert_eq!(told(&mut waits, 2, 3_100), [Setting::InTurns]);
    waste(&mut waits, 90, 2_200);
    assert_eq!(wanted(&waits), [Setting::InTurns], "that was before all took turns");
    waste(&mut waits, 90, 4_100);
    assert_eq!(wanted(&waits), []);
}

#[test]
fn a_clear_waste_is_found_sooner() {
    for (samples, found) in [((16, 7), true), ((16, 6), false), ((15, 7), false)] {
        let mut waits = Waits::new(BOTH);
        hold_up(&mut waits, held_up(true), 0);
        let tell = |all, kernel| [(LEADER, Samples { all, kernel, ..Samples::default() })].into();
        waits.judge(LEADER, tell(0, 0), at(100));
        waits.judge(LEADER, tell(samples.0, samples.1), at(180));
        assert_eq!(wanted(&waits).len() == 2, found, "{samples:?}");
    }
}

#[test]
fn after_turns_in_vain_short_waits_are_better_than_nothing_unless_it_hardly_worked_with_them() {
    for (percent, short) in [(60, true), (80, false)] {
        let mut waits = Waits::new(BOTH);
        hold_up(&mut waits, held_up(true), 0);
        waits.judge(LEADER, samples(100, 0), at(200));
        waits.judge(LEADER, samples(200, percent), at(1_200));
        assert_eq!(told(&mut waits, 1, 1_200), [Setting::InTurns]);
        waits.judge(LEADER, samples(200, percent), at(2_200));
        waits.judge(LEADER, samples(300, 2 * percent), at(3_200));
        assert_eq!(wanted(&waits), []);
        hold_up(&mut waits, held_up(true), 3_300);
        assert_eq!(wanted(&waits) == [Setting::SpinCount(SHORT_SPIN_COUNT)], short, "{percent}");
    }
}

#[test]
fn who_wasted_time_by_short_waits_has_them_again_if_turns_waste_as_much() {
    for (percent, helps) in [(35, true), (36, false)] {
        let mut waits = wasting(40);
        assert_eq!(told(&mut waits, 1, 1_200), [Setting::InTurns]);
        waste(&mut waits, percent, 2_200);
        assert_eq!(wanted(&waits) == [Setting::InTurns], helps, "{percent}");
        if !helps {
            hold_up(&mut waits, held_up(true), 3_300);
            waste(&mut waits, 40, 3_400);
            assert_eq!(wanted(&waits), [Setting::SpinCount(SHORT_SPIN_COUNT)], "turns were in vain");
            waste(&mut waits, 40, 23_300);
            assert_eq!(wanted(&waits).len(), 2, "and may be tried again");
        }
    }
}

/// Another program may have come in the place of those with whom it took turns.
#[test]
fn who_wastes_time_by_short_waits_has_its_own_again_when_it_is_calm_and_may_take_turns_at_once_if_not() {
    let mut waits = wasting(30);
    let calm = ProcessDelay { wait_ns: 0, elapsed_ns: 100_000_000, ..held_up(true) };
    assert!(waits.take(&calm, at(1_200)));
    assert_eq!(wanted(&waits), []);
    assert!(hold_up(&mut waits, held_up(true), 1_300));
    assert_eq!(wanted(&waits), [Setting::SpinCount(SHORT_SPIN_COUNT), Setting::MayTakeTurns]);
    let idle = ProcessDelay { idle_percent: Some(CLEARLY_IDLE_FROM), ..held_up(true) };
    assert!(waits.take(&idle, at(1_400)));
    assert_eq!(wanted(&waits), [], "short waits leave PEs idle: nobody wants them");
}

#[test]
fn who_may_not_take_turns_does_not_for_wasted_time_either() {
    let mut waits = Waits::new(Mitigations { spin: true, turns: false });
    hold_up(&mut waits, held_up(true), 0);
    waste(&mut waits, 60, 100);
    assert_eq!(wanted(&waits), [Setting::SpinCount(SHORT_SPIN_COUNT)]);
}

/// It spins for nine tenths of two seconds.
fn spin(waits: &mut Waits, from_ms: u64) {
    waits.judge(LEADER, samples(100, 0), at(from_ms));
    waits.judge(LEADER, samples(200, 90), at(from_ms + 2_000));
}

#[test]
fn what_may_not_be_done_is_not_done() {
    let mut waits = Waits::new(Mitigations { spin: true, turns: false });
    hold_up(&mut waits, held_up(true), 0);
    spin(&mut waits, 100);
    assert_eq!(wanted(&waits), [], "short waits do not help");
    assert!(!hold_up(&mut waits, held_up(true), 2_200));
    let mut waits = Waits::new(Mitigations { spin: true, turns: false });
    hold_up(&mut waits, held_up(true), 0);
    waits.judge(LEADER, samples(100, 0), at(100));
    waits.judge(LEADER, samples(200, 70), at(2_100));
    assert_eq!(wanted(&waits), [Setting::SpinCount(SHORT_SPIN_COUNT)], "they help some of its threads");
    let mut waits = Waits::new(Mitigations { spin: false, turns: true });
    assert!(!hold_up(&mut waits, held_up(true), 0));
    spin(&mut waits, 100);
    assert_eq!(wanted(&waits), [Setting::InTurns]);
}

#[test]
fn what_is_wanted_names_the_reason() {
    let mut waits = Waits::new(BOTH);
    hold_up(&mut waits, ProcessDelay { run_ns: 30_000_000, elapsed_ns: 20_000_000, ..held_up(true) }, 0);
    let mut wanted = Placement::default();
    waits.add_to(&mut wanted);
    let setting = &wanted.settings[&(LEADER, SettingKind::SpinCount)];
    assert_eq!(setting.setting, Setting::SpinCount(SHORT_SPIN_COUNT));
    assert_eq!(&*setting.reason, "its threads waited for a PE for 25 % of their time");
}

#[test]
fn who_became_another_program_begins_anew_and_who_decided_otherwise_is_left_alone() {
    for (result, changes_again) in [(OutcomeKind::Gone, true), (OutcomeKind::NotOurs, false)] {
        let mut waits = Waits::new(BOTH);
        hold_up(&mut waits, held_up(true), 0);
        let change = Change::Set(Setting::SpinCount(SHORT_SPIN_COUNT));
        waits.take_outcome(&Outcome { thread: LEADER, change, result });
        assert_eq!(wanted(&waits), []);
        assert_eq!(hold_up(&mut waits, held_up(true), 100), changes_again);
    }
}

/// Its waits need no change, but two of its threads on one PE wait in vain.
#[test]
fn threads_that_give_way_are_kept_apart_while_their_program_is_held_up() {
    let delayed = ProcessDelay { gives_way: true, ..held_up(false) };
    let is_apart = |waits: &Waits| waits.apart().eq([LEADER]);
    let mut waits = Waits::new(BOTH);
    hold_up(&mut waits, delayed, 0);
    assert!(is_apart(&waits) && wanted(&waits).is_empty());

    let calm = ProcessDelay { wait_ns: 0, ..delayed };
    let calms: Vec<bool> = (10..120u64)
        .map(|look| {
            waits.take(&calm, at(10 * look));
            is_apart(&waits)
        })
        .collect();
    assert_eq!(calms.iter().filter(|is_apart| **is_apart).count(), 99, "until it was calm for a second");
    assert!(!is_apart(&waits));

    for (mitigations, delay) in
        [(Mitigations { spin: true, turns: false }, &delayed), (BOTH, &held_up(false))]
    {
        let mut waits = Waits::new(mitigations);
        hold_up(&mut waits, *delay, 0);
        assert!(!is_apart(&waits), "{mitigations:?} {delay:?}");
    }
}
