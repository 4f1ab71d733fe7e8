//! Timelines: each letter is a look at a process with two threads on two PEs, 50 ms after the last one.

use super::*;
use crate::observe::{IdleWait, IdleWaits, SampleReading};
use crate::plan::{Change, Setting};

const LEADER: ThreadId = ThreadId { tid: 7, generation: 1 };
const BOTH: WaitChanges = WaitChanges { spin: true, turns: true };
const LOOK_MS: u64 = 50;

/// A process in a drawn world.
struct Drawn {
    waits: Waits,
    /// What its treatment permits.
    may: WaitChanges,
    reading: ProcessReading,
    samples: SampleReading,
}

impl Drawn {
    fn new(may: WaitChanges, kind: impl Into<IdleWaits>) -> Drawn {
        let reading = ProcessReading { waits: kind.into(), ..ProcessReading::example(LEADER) };
        let mut waits = Waits::new(may, Switching::default());
        let by_treatment = WaitChanges::ALL;
        waits.take(&reading, by_treatment, reading.at);
        Drawn { waits, may: by_treatment, reading, samples: SampleReading::default() }
    }

    fn looks(&mut self, looks: &str) -> String {
        looks.chars().map(|look| self.look(look)).collect()
    }

    /// One look, at which
    /// - `.`: its threads had their PEs to themselves,
    /// - `#`: another program with as many threads used the same PEs,
    /// - `+`: the same, and its threads waited every 10 µs if its waits were short,
    /// - `~`: a disturbance took one PE for half of the time,
    /// - `*`: as `#`, and it spun in its own code, whatever its waits, but in turns.
    fn look(&mut self, look: char) -> char {
        let state = self.state();
        let (run, wait, idle, blocks_per_s) = match (look, state) {
            ('.', 's') => (1.6, 0.0, 0.4, 20_000),
            ('.', _) => (2.0, 0.0, 0.0, 100),
            ('~', 's') => (1.2, 0.1, 0.35, 30_000),
            ('~', _) => (1.5, 0.5, 0.0, 300),
            ('+', 's') => (1.0, 0.5, 0.02, 100_000),
            ('#', 's') => (1.0, 0.5, 0.02, 5_000),
            (_, _) => (1.0, 1.0, 0.0, 300),
        };
        let ns = |pes: f64| (pes * LOOK_MS as f64 * 1e6) as u64;
        let reading = &mut self.reading;
        reading.at.0 += LOOK_MS * 1_000_000;
        reading.run_ns += ns(run);
        reading.wait_ns += ns(wait);
        reading.timeslices = Some(reading.timeslices.unwrap_or(0) + blocks_per_s * LOOK_MS / 1_000);
        let idle_so_far = reading.idle_ns.unwrap_or(0) + ns(idle);
        reading.idle_ns = Some(idle_so_far);
        let reading = *reading;
        self.waits.take(&reading, self.may, reading.at);
        let all = (200.0 * run * LOOK_MS as f64 / 1e3) as u64;
        let (spinning, kernel) = match (look, state) {
            ('*', 'o' | 's') => (all * 3 / 4, 0),
            ('+', 's') => (0, all / 2),
            _ => (0, 0),
        };
        self.samples.spinning += spinning;
        self.samples.kernel += kernel;
        self.samples.judged += all - spinning - kernel;
        for leader in self.waits.to_judge() {
            self.waits.judge(leader, [(leader, &self.samples)].into_iter().collect(), reading.at);
        }
        self.state()
    }

    fn limit(&mut self, may: WaitChanges) {
        self.may = may;
        self.waits.limit(|pid| if pid == LEADER.tid { may } else { WaitChanges::NONE });
    }

    /// Looks at a program in a quota of so many PEs, every second one of which ends a period. Half of its
    /// work is serial, and with short waits it blocks so often in a second.
    fn periods(&mut self, periods: usize, quota: Option<f64>, blocks_per_s: u64) -> String {
        let look = |index| {
            let is_short = self.state() == 's';
            let (wanted, rests): (f64, f64) = if is_short { (1.5, 0.5) } else { (2.0, 0.0) };
            let run = quota.map_or(wanted, |quota| wanted.min(quota));
            let running = run / wanted;
            let ns = |pes: f64| (pes * LOOK_MS as f64 * 1e6) as u64;
            let stopped = (2.0 - rests) * (1.0 - running);
            let reading = &mut self.reading;
            reading.at.0 += LOOK_MS * 1_000_000;
            reading.quota_permille = quota.map(|quota| (1e3 * quota) as u32);
            // A quota is spent at the beginning of its period, and what it stops is known at its end.
            let spent =
                if index % 2 == 0 { (2.0 * run).min(wanted) } else { 2.0 * run - (2.0 * run).min(wanted) };
            reading.run_ns += ns(spent);
            reading.throttled_ns += if index % 2 == 0 { 0 } else { 2 * ns(stopped) };
            let longest = if index % 2 == 0 { 0.0 } else { 2.0 * (1.0 - running) };
            reading.stopped_ns = Some(reading.stopped_ns.unwrap_or(0) + ns(longest));
            let blocks_per_s = if is_short { blocks_per_s } else { 100 };
            reading.timeslices = Some(reading.timeslices.unwrap_or(0) + blocks_per_s * LOOK_MS / 1_000);
            reading.idle_ns = Some(reading.idle_ns.unwrap_or(0) + ns(2.0 - spent));
            let reading = *reading;
            self.waits.take(&reading, self.may, reading.at);
            self.state()
        };
        (0..2 * periods).map(look).collect()
    }

    /// `o`: own waits, `s`: short ones, `S`: short ones, and it offers to take turns, `t`: turns.
    fn state(&self) -> char {
        let mut wanted = Placement::default();
        self.waits.add_to(&mut wanted);
        let settings: Vec<Setting> = wanted.settings.values().map(|wanted| wanted.setting).collect();
        match settings[..] {
            [] => 'o',
            [Setting::SpinCount(_)] => 's',
            [Setting::SpinCount(_), Setting::MayTakeTurns] => 'S',
            [Setting::InTurns] => 't',
            ref other => panic!("{other:?}"),
        }
    }
}

/// What holds after each look.
fn drawn(kind: impl Into<IdleWaits>, looks: &str) -> String {
    Drawn::new(BOTH, kind).looks(looks)
}

fn adaptable(looks: &str) -> String {
    drawn(IdleWait::Adaptable, looks)
}

#[test]
fn a_lone_program_is_left_alone() {
    assert_eq!(adaptable(".........."), "oooooooooo");
}

#[test]
fn waits_are_short_while_pes_are_lacking_and_not_for_a_single_disturbance() {
    assert_eq!(adaptable("#.#..#..####....."), "ooooooooossssoooo");
}

#[test]
fn waits_are_short_in_a_quota_that_spinning_spends() {
    for quota in [0.5, 1.0, 1.5] {
        let states = Drawn::new(BOTH, IdleWait::Adaptable).periods(20, Some(quota), 2_000);
        assert!(
            states.starts_with("ooo") && states[6..].chars().all(|state| state == 's'),
            "{quota}: {states}"
        );
    }
    for quota in [None, Some(2.0), Some(8.0)] {
        let states = Drawn::new(BOTH, IdleWait::Adaptable).periods(20, quota, 2_000);
        assert!(states.chars().all(|state| state == 'o'), "{quota:?}: {states}");
    }
    for kind in [IdleWait::Fixed, IdleWait::MayYield, IdleWait::Yield] {
        let states = Drawn::new(BOTH, kind).periods(20, Some(1.0), 2_000);
        assert!(states.chars().all(|state| state == 'o'), "{kind:?} cannot rest: {states}");
    }
}

#[test]
fn own_waits_come_back_when_the_quota_is_lifted_and_short_ones_when_it_returns() {
    let mut program = Drawn::new(BOTH, IdleWait::Adaptable);
    assert!(program.periods(10, Some(1.0), 2_000).ends_with('s'));
    assert!(program.periods(10, None, 2_000).ends_with('o'));
    assert!(program.periods(10, Some(0.5), 2_000).ends_with('s'));
    assert!(program.periods(10, Some(4.0), 2_000).ends_with('o'));
}

#[test]
fn short_waits_that_cost_more_than_a_quota_loses_are_tried_ever_more_rarely() {
    let states = Drawn::new(BOTH, IdleWait::Adaptable).periods(300, Some(1.0), 100_000);
    let tries: Vec<usize> = states.split('o').map(str::len).filter(|&length| length > 0).collect();
    assert!(tries.len() >= 3 && tries.iter().all(|&length| length <= 5), "{states}");
    assert!(states.matches('s').count() < states.len() / 5, "{states}");
}

#[test]
fn the_guard_does_not_try_what_only_a_quota_asks_for() {
    let mut program = Drawn::new(BOTH, IdleWait::Adaptable);
    program.periods(10, Some(1.0), 2_000);
    assert!(program.waits.saves_quota(LEADER) && !program.waits.is_any_changed_for_others());
    program.looks("####");
    assert!(!program.waits.saves_quota(LEADER) && program.waits.is_any_changed_for_others());
}

#[test]
fn short_waits_that_leave_pes_idle_are_tried_ever_more_rarely() {
    let states = adaptable(&"~".repeat(200));
    let tries: Vec<usize> = states.split('o').map(str::len).filter(|&length| length > 0).collect();
    assert!(tries.len() >= 3 && tries.iter().all(|&length| length <= 4), "{states}");
    let last_pause = states.trim_end_matches('s').rsplit('s').next().unwrap_or_default();
    assert!(last_pause.len() > 20, "{states}");
    assert!(states.matches('s').count() < 30, "{states}");
}

#[test]
fn a_program_that_waits_all_the_time_offers_turns_and_takes_them_with_another() {
    let mut program = Drawn::new(BOTH, IdleWait::Adaptable);
    let states = program.looks("++++++++++++++++");
    assert!(states.starts_with("oss") && states.ends_with('S') && !states.contains('t'), "{states}");
    program.reading.other_gangs = 1;
    let states = program.looks("++++");
    assert_eq!(states, "tttt");
    program.reading.other_gangs = 0;
    let states = program.looks("+");
    assert_eq!(states, "S", "nobody else takes turns any more");
}

#[test]
fn a_program_with_rare_waits_offers_no_turns() {
    assert!(!adaptable(&"#".repeat(100)).contains('S'));
}

#[test]
fn own_code_that_spins_leads_to_turns_until_no_other_program_needs_the_pes() {
    let states = drawn(IdleWait::Fixed, "*********************");
    assert!(states.starts_with("oooooooooo") && states.ends_with('t'), "{states}");
    assert!(!drawn(IdleWait::Fixed, &"#".repeat(60)).contains('t'), "it works");
    let states = drawn(IdleWait::Fixed, &format!("{}{}", "*".repeat(20), ".".repeat(20)));
    assert!(states.contains('t') && states.ends_with('o'), "{states}");
}

#[test]
fn turns_that_do_not_help_are_given_up() {
    let mut program = Drawn::new(BOTH, IdleWait::Fixed);
    program.reading.other_gangs = 1;
    for _ in 0..20 {
        program.look('*');
    }
    assert_eq!(program.state(), 't');
    // It spins as before.
    let mut states = String::new();
    for _ in 0..60 {
        program.samples.spinning += 40;
        states.push(program.look('#'));
    }
    assert!(states.starts_with("ttt") && states.ends_with('o'), "{states}");
}

#[test]
fn samples_are_worth_opening_where_blocks_cost_much_or_threads_never_rest() {
    let needs = |kind, looks: &str| {
        let mut program = Drawn::new(BOTH, kind);
        program.looks(looks);
        program.waits.needs_samples()
    };
    assert!(needs(IdleWait::Adaptable, "++++++++") && !needs(IdleWait::Adaptable, "########"));
    assert!(needs(IdleWait::Fixed, "####") && !needs(IdleWait::Fixed, "...."));
    assert!(
        !needs(IdleWait::Yield, "####") && needs(IdleWait::Yield, &"#".repeat(16)),
        "it lacks PEs for long"
    );
    assert!(needs(IdleWait::Adaptable, "********"), "its waits are short, but it spins in its own code");
}

#[test]
fn threads_that_yield_are_kept_apart_once_they_have_lacked_pes_for_long() {
    let mut program = Drawn::new(BOTH, IdleWait::Yield);
    let is_apart = |program: &Drawn| program.waits.apart(program.reading.at).next().is_some();
    let after: Vec<bool> = (0..20)
        .map(|_| {
            program.look('#');
            is_apart(&program)
        })
        .collect();
    assert!(!after[9] && after[19], "{after:?}");
    program.looks("....");
    assert!(!is_apart(&program));
}

#[test]
fn each_of_several_libraries_in_a_process_is_decided_as_it_is() {
    let of = |other| [IdleWait::Adaptable, other].into_iter().collect::<IdleWaits>();
    // Waits of the one are short as soon as those of a process that has it alone.
    for other in [IdleWait::Fixed, IdleWait::Yield, IdleWait::MayYield] {
        assert_eq!(drawn(of(other), "#######"), adaptable("#######"), "{other:?}");
    }
    // What the other spins leads to turns.
    let mut program = Drawn::new(BOTH, of(IdleWait::Fixed));
    let states = program.looks("********************");
    assert!(states.starts_with("oss") && states.ends_with('S'), "{states}");
    program.reading.other_gangs = 1;
    assert!(program.looks("****").ends_with('t'));
    // Threads that yield are kept apart, also while those of the other sleep.
    let mut program = Drawn::new(BOTH, of(IdleWait::Yield));
    program.looks(&"#".repeat(20));
    assert_eq!((program.state(), program.waits.apart(program.reading.at).count()), ('s', 1));
    let fixed = [IdleWait::Yield, IdleWait::Fixed].into_iter().collect::<IdleWaits>();
    let mut program = Drawn::new(BOTH, fixed);
    program.looks("####");
    assert!(program.waits.needs_samples(), "only samples show whether the other spins");
}

#[test]
fn a_spin_count_that_somebody_else_has_set_is_theirs() {
    let mut program = Drawn::new(BOTH, IdleWait::Adaptable);
    program.looks("###");
    assert_eq!(program.state(), 's');
    let outcome = |result| Outcome {
        thread: LEADER,
        change: Change::Set(Setting::SpinCount(Switching::default().spins_per_block)),
        result,
    };
    program.waits.take_outcome(&outcome(OutcomeKind::NotOurs));
    program.looks("#########");
    assert_eq!(program.state(), 'o');
    program.waits.take_outcome(&outcome(OutcomeKind::Gone));
    program.looks("#########");
    assert_eq!(program.state(), 's', "it is another program now");
}

#[test]
fn what_was_found_about_the_waits_of_a_program_does_not_hold_for_the_next_one_in_its_place() {
    let mut program = Drawn::new(BOTH, IdleWait::Adaptable);
    program.looks("###");
    let change = Change::Set(Setting::SpinCount(Switching::default().spins_per_block));
    program.waits.take_outcome(&Outcome { thread: LEADER, change, result: OutcomeKind::NotOurs });
    program.looks("#########");
    assert_eq!(program.state(), 'o');
    program.waits.take_programs(&[Program { leader: LEADER, name: "next".into() }]);
    program.looks("#########");
    assert_eq!(program.state(), 's');
}

#[test]
fn what_may_not_be_changed_stays() {
    let none = WaitChanges { spin: false, turns: true };
    let mut program = Drawn::new(none, IdleWait::Adaptable);
    assert!((0..40).all(|_| program.look('#') == 'o'));
    assert!((0..40).any(|_| program.look('*') == 't'), "its waits are fixed then");
}

#[test]
fn what_a_rule_does_not_permit_is_given_back_at_once_and_begins_anew_without_the_rule() {
    let mut program = Drawn::new(BOTH, IdleWait::Adaptable);
    for may in [WaitChanges::NONE, WaitChanges { spin: false, turns: true }] {
        assert!(program.looks("####").ends_with('s'));
        program.limit(may);
        assert!(!program.waits.is_any_changed_for_others());
        assert!((0..20).all(|_| program.look('#') == 'o'), "{may:?}");
        program.limit(WaitChanges::ALL);
    }
    program.looks("++++++++++++++++");
    assert_eq!(program.state(), 'S');
    program.limit(WaitChanges { spin: true, turns: false });
    assert_eq!(program.state(), 's', "short waits are permitted, and no turns");
    program.reading.other_gangs = 1;
    assert_eq!(program.looks("++"), "ss");
    program.limit(WaitChanges::ALL);
    assert_eq!(program.looks("++"), "tt");
    program.limit(WaitChanges { spin: true, turns: false });
    assert_eq!(program.state(), 'o');
}

#[test]
fn a_rule_permits_for_one_process_what_the_option_permits_for_all() {
    for kind in [IdleWait::Adaptable, IdleWait::Fixed, IdleWait::Yield, IdleWait::MayYield] {
        for may in ["off", "spin", "turns", "auto"].map(|word| WaitChanges::from_word(word).unwrap()) {
            let states = |option: WaitChanges, rule: WaitChanges| {
                let mut program = Drawn::new(option, kind);
                program.limit(rule);
                program.looks(&format!("{}{}{}", "#".repeat(20), "*".repeat(30), "+".repeat(20)))
            };
            assert_eq!(states(BOTH, may), states(may, BOTH), "{kind:?} {may:?}");
        }
    }
}

#[test]
fn samples_that_come_late_are_judged_as_soon_as_those_from_the_start() {
    let mut program = Drawn::new(BOTH, IdleWait::Adaptable);
    program.looks("###");
    program.waits.judge_anew();
    let (at, second) = (program.reading.at, 1_000_000_000);
    let mut within = |now: Time, samples: Samples| {
        program.waits.judge(LEADER, samples, now);
        program.waits.judged_within(now)
    };
    let rarely = within(Time(at.0 + second), Samples::default())
        .max(within(Time(at.0 + 5 * second), Samples::default()));
    let reading = SampleReading { judged: 1, ..SampleReading::default() };
    let often = within(Time(at.0 + 6 * second), [(LEADER, &reading)].into_iter().collect());
    assert!(often < rarely, "{often:?} {rarely:?}");
}
