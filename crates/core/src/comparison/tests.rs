use super::effect::detectable_with;
use super::*;
use crate::random::Random;
use crate::time::Time;
use std::time::Duration;

/// A machine whose runs take the time that a function returns, without waiting.
struct Machine<F> {
    now: Time,
    seconds: F,
    /// The indices of the variants that were run.
    ran: Vec<usize>,
    /// The number of runs after which the user interrupts.
    patience: usize,
    /// The number of the run that fails.
    fails: Option<usize>,
    /// The numbers of the runs in which time stands still.
    still: Vec<usize>,
}

fn made<F: FnMut(usize, Time) -> f64>(seconds: F) -> Machine<F> {
    let (ran, still) = (Vec::new(), Vec::new());
    Machine { now: Time(0), seconds, ran, patience: usize::MAX, fails: None, still }
}

impl<F: FnMut(usize, Time) -> f64> Executor for Machine<F> {
    type Error = String;

    fn now(&self) -> Time {
        self.now
    }

    fn run(&mut self, variant: usize) -> Result<Made, String> {
        if self.ran.len() == self.patience {
            return Ok(Made::Interrupted);
        }
        if self.fails == Some(self.ran.len()) {
            return Err(format!("run {} failed", self.ran.len()));
        }
        self.ran.push(variant);
        if self.still.contains(&(self.ran.len() - 1)) {
            return Ok(Made::StoodStill(Duration::from_secs(60)));
        }
        let seconds = (self.seconds)(variant, self.now);
        self.now = self.now + Duration::from_secs_f64(seconds);
        Ok(Made::Run(Run { wall_seconds: seconds, ..Run::default() }))
    }
}

fn plan(variants: usize, length: Length) -> Plan {
    let application = |index: usize| Application {
        name: "a".to_owned(),
        command: vec![format!("command-{index}")],
        start_seconds: 0.0,
        pes: None,
    };
    let variant = |index| Variant {
        name: format!("v{index}"),
        workload: Workload { applications: vec![application(index)], completions: 1, fixed_seconds: None },
    };
    Plan {
        variants: (0..variants).map(variant).collect(),
        length,
        warmup: 0,
        seed: 1,
        setup: None,
        prepare: None,
        ignore_failure: false,
        same_output: false,
        timeout_seconds: None,
        printed: Vec::new(),
    }
}

fn trials_of<E: Executor>(executor: &mut E, plan: &Plan) -> Vec<Trial>
where
    E::Error: std::fmt::Debug,
{
    let mut trials = Vec::new();
    conduct(executor, plan, &mut trials, &mut |_| {}).unwrap();
    trials
}

#[test]
fn a_block_has_every_arm_once_and_the_next_one_mirrors_it() {
    let mut firsts = std::collections::BTreeSet::new();
    for block in (0..40).step_by(2) {
        let (one, mut next) = (order(7, 4, block), order(7, 4, block + 1));
        next.reverse();
        assert_eq!(one, next);
        firsts.insert(one[0]);
        let mut sorted = one;
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3]);
    }
    assert_eq!(firsts.len(), 4, "no arm always comes first");
    assert_ne!(order(7, 12, 0), order(8, 12, 0));
}

#[test]
fn runs_are_made_in_that_order_after_the_warm_ups() {
    let mut machine = made(|_, _| 1.0);
    let plan = Plan { warmup: 2, ..plan(2, Length::Runs(3)) };
    let mut said = Vec::new();
    let mut trials = Vec::new();
    let ending = conduct(&mut machine, &plan, &mut trials, &mut |progress| {
        said.push(match progress {
            Progress::Ran { trial } => format!("{},", trial.arm),
            Progress::Run { stage: Stage::Warmup, .. } => "w".to_owned(),
            Progress::Run { remaining, .. } => format!("{} s", remaining.unwrap().as_secs()),
            Progress::Planned { runs, remaining } => format!("{runs} runs, {} s", remaining.as_secs()),
            Progress::Block { trials, blocks } => format!("{} of {blocks} blocks", trials.len() / 3),
            Progress::Again { .. } => "again".to_owned(),
        });
    });
    assert_eq!(ending, Ok(Ending::Complete));
    let arms: Vec<usize> = trials.iter().map(|trial| trial.arm).collect();
    let expected: Vec<usize> = (0..3).flat_map(|block| order(1, 3, block)).collect();
    assert_eq!(arms, expected);
    assert_eq!(machine.ran[..4], [0, 1, 0, 1]);
    assert_eq!(machine.ran[4..], expected.iter().map(|&arm| arm % 2).collect::<Vec<_>>());
    // The executor reports each run.
    let (ran, printed): (Vec<String>, Vec<String>) = said.into_iter().partition(|word| word.ends_with(','));
    assert_eq!(ran, expected.iter().map(|arm| format!("{arm},")).collect::<Vec<_>>());
    let expected =
        "w w w w|9 runs, 9 s|9 s 8 s 7 s|1 of 3 blocks|6 s 5 s 4 s|2 of 3 blocks|3 s 2 s 1 s|3 of 3 blocks";
    assert_eq!(printed.join(" "), expected.replace('|', " "));
}

#[test]
fn a_run_in_which_time_stood_still_is_made_again_and_said() {
    let plan = Plan { warmup: 1, ..plan(2, Length::Runs(2)) };
    let mut machine = made(|variant, _| 1.0 + variant as f64);
    machine.still = vec![1, 4, 5];
    let (mut trials, mut said) = (Vec::new(), Vec::new());
    let ending = conduct(&mut machine, &plan, &mut trials, &mut |progress| {
        if let Progress::Again { variant, stood_still } = progress {
            said.push(format!("{variant} {stood_still:?}"));
        }
    });
    assert_eq!(ending, Ok(Ending::Complete));
    assert_eq!(trials, trials_of(&mut made(|variant, _| 1.0 + variant as f64), &Plan { warmup: 0, ..plan }));
    assert_eq!(machine.ran.len(), 2 + 6 + 3, "each of them once more");
    assert_eq!((machine.ran[1], machine.ran[4]), (machine.ran[2], machine.ran[5]), "at once");
    assert!(said.len() == 3 && said[0] == "v1 60s", "{said:?}");
}

#[test]
fn a_budget_ends_it_before_a_block_that_would_not_fit() {
    let mut machine = made(|_, _| 1.0);
    let trials = trials_of(&mut machine, &Plan { warmup: 1, ..plan(2, Length::BudgetSeconds(12.0)) });
    // Two seconds of warm-up, then blocks of three.
    assert_eq!((trials.len(), machine.now.as_secs_f64()), (9, 11.0));
}

#[test]
fn what_was_interrupted_or_failed_is_kept_and_goes_on_where_it_was() {
    let plan = plan(2, Length::Runs(4));
    let whole = trials_of(&mut made(|variant, _| 1.0 + variant as f64), &plan);
    let mut machine = made(|variant, _| 1.0 + variant as f64);
    let mut trials = Vec::new();
    machine.patience = 4;
    assert_eq!(conduct(&mut machine, &plan, &mut trials, &mut |_| {}), Ok(Ending::Interrupted));
    assert_eq!(trials, whole[..4]);
    machine.patience = usize::MAX;
    machine.fails = Some(6);
    assert!(conduct(&mut machine, &plan, &mut trials, &mut |_| {}).is_err());
    assert_eq!(trials, whole[..6]);
    machine.fails = None;
    assert_eq!(conduct(&mut machine, &plan, &mut trials, &mut |_| {}), Ok(Ending::Complete));
    assert_eq!(trials, whole);
    assert_eq!(conduct(&mut machine, &plan, &mut trials, &mut |_| {}), Ok(Ending::Complete));
    assert_eq!(machine.ran.len(), 12, "nothing is left to do");
}

#[test]
fn an_incomplete_block_is_not_compared() {
    let plan = plan(2, Length::Runs(8));
    let mut trials = trials_of(&mut made(|variant, _| 1.0 + variant as f64), &plan);
    let whole = findings(&plan, &trials);
    assert_eq!(whole.blocks, 8);
    let effect = whole.variants[1].effect(&Metric::Wall).unwrap();
    assert!((effect.ratio - 2.0).abs() < 1e-9 && effect.verdict == Verdict::More, "{effect:?}");
    trials.pop();
    let found = findings(&plan, &trials);
    assert_eq!((found.blocks, found.variants[1].effect(&Metric::Wall).unwrap().blocks), (7, 7));
    trials.truncate(5 * plan.arms());
    let found = findings(&plan, &trials);
    assert_eq!(found.variants[1].effect(&Metric::Wall).unwrap().verdict, Verdict::TooFew);
    assert_eq!(findings(&plan, &[]).variants[1].effects, []);
}

/// Times as on a busy machine: noise, occasional long disturbances, and a drift of 10 %.
fn noisy(seed: u64, ratio: f64, length: f64) -> impl FnMut(usize, Time) -> f64 {
    let mut random = Random::new(seed, 99);
    move |variant, now| {
        let burst = if random.unit() < 0.1 { 1.0 + random.unit() } else { 1.0 };
        let drift = 1.0 + 0.1 * now.as_secs_f64() / length;
        drift * burst * (1.0 + 0.01 * random.normal()) * if variant == 0 { 1.0 } else { ratio }
    }
}

/// The effects of the second variant on typical times and on their mean.
fn noisy_effects(seed: u64, ratio: f64, blocks: u32) -> [Effect; 2] {
    let plan = Plan { seed, ..plan(2, Length::Runs(blocks)) };
    let trials = trials_of(&mut made(noisy(seed, ratio, 3.0 * f64::from(blocks))), &plan);
    let found = findings(&plan, &trials);
    [Metric::Wall, Metric::MeanWall].map(|metric| *found.variants[1].effect(&metric).unwrap())
}

#[test]
fn equal_variants_seldom_look_different() {
    const TRIALS: u64 = 600;
    let mut wrong = [0; 2];
    for seed in 0..TRIALS {
        noisy_effects(seed, 1.0, 12).iter().zip(&mut wrong).for_each(|(effect, wrong)| {
            *wrong += u64::from(effect.verdict != Verdict::Unclear);
        });
    }
    let wrong = wrong.map(|wrong| wrong as f64 / TRIALS as f64);
    // 4.2 % by the ranks, plus two standard errors of this number of trials.
    assert!(wrong.iter().all(|wrong| *wrong <= 0.06), "{wrong:?}");
}

/// The effects of a variant, on typical times and on their mean, in so many blocks of such times.
fn effects_of(times: impl Fn(usize, &mut Random) -> f64, blocks: u32, seed: u64) -> [Effect; 2] {
    let plan = Plan { seed, ..plan(2, Length::Runs(blocks)) };
    let mut random = Random::new(seed, 7);
    let trials = trials_of(&mut made(|variant, _| times(variant, &mut random)), &plan);
    let found = &findings(&plan, &trials).variants[1];
    [Metric::Wall, Metric::MeanWall].map(|metric| *found.effect(&metric).unwrap())
}

/// A program that is delayed in more than half of its runs, against a variant that never is: 5.8 s against
/// 1.2 s on average, although the variant is slower than the program's good runs.
#[test]
fn an_effect_on_the_mean_is_found_where_typical_runs_do_not_show_it() {
    const TRIALS: u64 = 100;
    let times = |variant: usize, random: &mut Random| match variant {
        0 if random.unit() < 0.55 => 10.0 + 0.5 * random.normal(),
        0 => 0.6 + 0.02 * random.normal(),
        _ => 1.2 + 0.05 * random.normal(),
    };
    let [mut typical, mut mean] = [0, 0];
    for seed in 1..=TRIALS {
        let [of_typical, of_mean] = effects_of(times, 20, seed);
        typical += u64::from(of_typical.verdict == Verdict::Less);
        mean += u64::from(of_mean.verdict == Verdict::Less);
        assert_ne!(of_mean.verdict, Verdict::More);
    }
    assert!(mean >= 90 && typical <= 70, "found by the mean {mean} times, by typical runs {typical} times");
}

#[test]
fn a_difference_in_every_block_is_found_whatever_its_size() {
    let times = |variant: usize, random: &mut Random| match variant {
        0 if random.unit() < 0.5 => 60.0,
        0 => 1.3,
        _ => 1.2,
    };
    let [typical, mean] = effects_of(times, 12, 1);
    assert_eq!((typical.verdict, mean.verdict), (Verdict::Less, Verdict::Less));
    assert_eq!((typical.blocks_below, typical.blocks_above, typical.blocks), (12, 0, 12));
}

#[test]
fn one_variant_alone_is_said_to_be_compared_with_itself() {
    let plan = plan(1, Length::Runs(6));
    let trials = trials_of(&mut made(|_, _| 1.0), &plan);
    assert_eq!(findings(&plan, &trials).notes, [ALONE]);
}

#[test]
fn rounding_tells_nothing_apart() {
    // Half of the blocks are equal, the others far apart either way, so that the interval ends at 0.
    for (long, verdict_blocks) in [(1.3_f64, 12), (10.0, 12), (1.3, 20), (10.0, 20)] {
        for sign in [1.0, -1.0] {
            let up = (0..verdict_blocks).map(|block| match block {
                block if block % 2 == 0 => 0.0,
                1 => sign * (1.0 / long).ln(),
                _ => sign * (long / 1.0).ln(),
            });
            let effect = effect(&up.collect::<Vec<_>>()).unwrap();
            let end = if sign > 0.0 { effect.low } else { effect.high };
            assert!((end - 1.0).abs() < 1e-9, "{effect:?}");
            assert_eq!(effect.verdict, Verdict::Unclear, "{effect:?}");
        }
    }
}

#[test]
fn planted_effects_are_found_and_covered() {
    const TRIALS: u64 = 300;
    for ratio in [0.92, 1.1] {
        let effects: Vec<Effect> = (0..TRIALS).map(|seed| noisy_effects(seed, ratio, 20)[0]).collect();
        let expected = if ratio < 1.0 { Verdict::Less } else { Verdict::More };
        let share = |is: &dyn Fn(&&Effect) -> bool| effects.iter().filter(is).count() as f64 / TRIALS as f64;
        let found = share(&|effect| effect.verdict == expected);
        assert!(found >= 0.75, "{ratio}: {found}");
        let covered = share(&|effect| effect.low <= ratio && ratio <= effect.high);
        assert!(covered >= 0.93, "{ratio}: {covered}");
    }
}

#[test]
fn what_counts_as_detectable_is_found_that_often() {
    // Checks each comparison's promise, also for few blocks.
    for (blocks, time) in [
        (6, (|random| 0.02 * random.normal()) as fn(&mut Random) -> f64),
        (8, |random| 0.05 * -(1.0 - random.unit()).ln()),
        (20, |random| 0.02 * random.normal()),
        (20, |random| -(1.0 - random.unit()).ln() / 1.5),
    ] {
        const TRIALS: u64 = 150;
        let logs = |seed| {
            let mut random = Random::new(seed, blocks);
            (0..blocks).map(|_| time(&mut random) - time(&mut random)).collect::<Vec<f64>>()
        };
        let is_found = |seed: &u64| {
            let promised = effect(&logs(*seed)).unwrap().detectable.unwrap().ln_1p();
            let planted: Vec<f64> = logs(seed + TRIALS).iter().map(|log| log + promised).collect();
            effect(&planted).unwrap().verdict == Verdict::More
        };
        let found = (0..TRIALS).filter(is_found).count() as f64 / TRIALS as f64;
        // Within two standard errors of the promise, and not far above it.
        assert!((POWER - 0.065..=0.96).contains(&found), "{found} of {blocks} blocks");
    }
}

/// Noise that occasionally makes a command much slower affects either variant alike.
#[test]
fn what_is_detectable_does_not_depend_on_which_of_two_is_the_first() {
    let logs: Vec<f64> =
        (0..20).map(|block| if block % 5 == 0 { 0.4 } else { 0.01 * f64::from(block % 3) }).collect();
    let mirrored: Vec<f64> = logs.iter().map(|log| -log).collect();
    let of = |logs: &[f64]| detectable_with(logs, 20).unwrap().ln_1p();
    let ratio = of(&mirrored) / of(&logs);
    assert!((0.8..1.25).contains(&ratio), "{ratio}");
}

#[test]
fn more_blocks_tell_less() {
    let logs: Vec<f64> = (0..20).map(|block| 0.01 * f64::from(block % 5 - 2)).collect();
    let with = |blocks| detectable_with(&logs, blocks).unwrap().ln_1p();
    assert!((with(20) - effect(&logs).unwrap().detectable.unwrap().ln_1p()).abs() < 1e-12);
    let ratio = with(80) / with(20);
    assert!((0.4..0.55).contains(&ratio), "four times as many detect about half of it: {ratio}");
    assert_eq!(detectable_with(&logs[..2], 20), None);
}

#[test]
fn drift_outliers_load_and_failures_are_noted() {
    let plan = plan(2, Length::Runs(10));
    let mut trials = trials_of(&mut made(|_, now| 1.0 + now.as_secs_f64() * 1e-3), &plan);
    let notes = findings(&plan, &trials).notes;
    assert!(notes.iter().any(|note| note.starts_with("times drifted by +2.9 %")), "{notes:?}");
    for trial in &mut trials {
        trial.run = Run { wall_seconds: 1.0, ..Run::default() };
    }
    assert_eq!(findings(&plan, &trials).notes, Vec::<String>::new());
    trials[8].run.wall_seconds = 2.0;
    trials[9].run.exit_code = 3;
    trials[10].run.left_behind = 1;
    for trial in &mut trials {
        trial.run.others_pes = Some(0.5);
        trial.run.steal_share = Some(0.2);
    }
    let notes = findings(&plan, &trials).notes.join("\n");
    for words in [
        "1 of 30 runs are outliers",
        "in block 3: 2.000 s, +100 %",
        "others took 0.5 PEs' worth",
        "a hypervisor took 20 %",
        "1 of 30 runs failed",
        "1 of 30 runs left processes behind",
    ] {
        assert!(notes.contains(words), "no `{words}` in {notes}");
    }
}

#[test]
fn copies_have_a_mean_and_an_unfairness_and_different_commands_only_the_mean() {
    let mut workload = plan(1, Length::Runs(1)).variants[0].workload.clone();
    workload.applications.push(workload.applications[0].clone());
    let completion = |seconds| Completion { application: "a".to_owned(), seconds, times: 1 };
    let run = Run { completions: vec![completion(1.0), completion(4.0)], ..Run::default() };
    assert_eq!(Metric::Completion.of(&run, &workload), Some(2.0));
    assert_eq!(Metric::Unfairness.of(&run, &workload), Some(4.0));
    assert_eq!(Metric::Energy.of(&run, &workload), None, "not known is not 0");
    workload.applications[1].command = vec!["other".to_owned()];
    assert_eq!(Metric::Unfairness.of(&run, &workload), None);
}

fn printed(is_sample: bool) -> Printed {
    Printed { name: "lag".to_owned(), pattern: "lag ([0-9.]+)".to_owned(), is_sample }
}

#[test]
fn of_printed_values_the_last_counts_or_the_tails_that_enough_of_them_show() {
    let values: Vec<f64> = (1..=100).map(f64::from).collect();
    assert_eq!(printed(false).figures(&values), [("lag".to_owned(), 100.0)]);
    let tails = printed(true).figures(&values);
    let names: Vec<&str> = tails.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["lag p50", "lag p95", "lag p99"]);
    assert!((tails[2].1 - 99.01).abs() < 1e-9, "{tails:?}");
    assert_eq!(printed(true).figures(&values[..19]).len(), 1);
    assert!(printed(true).figures(&[]).is_empty() && printed(false).figures(&[]).is_empty());
}

#[test]
fn what_is_printed_and_throughput_are_compared_like_times() {
    let mut plan = plan(2, Length::Runs(8));
    plan.printed = vec![printed(false)];
    plan.variants.iter_mut().for_each(|variant| variant.workload.fixed_seconds = Some(1.0));
    let mut trials = trials_of(&mut made(|variant, _| 1.0 + variant as f64), &plan);
    for trial in &mut trials {
        let value = if plan.variant_of(trial.arm) == 1 { 3.0 } else { 1.0 };
        trial.run.printed.insert("lag".to_owned(), value + 1e-6 * trial.block as f64);
    }
    let found = findings(&plan, &trials);
    let effect = |metric| found.variants[1].effect(&metric).unwrap();
    let lag = Metric::Printed("lag".to_owned());
    assert!((effect(lag.clone()).ratio - 3.0).abs() < 1e-3 && effect(lag).verdict == Verdict::More);
    assert!((effect(Metric::Throughput).ratio - 0.5).abs() < 1e-9);
    assert_eq!(found.variants[1].effect(&Metric::Cpu), None, "in a fixed time it has no meaning");
}

#[test]
fn a_changed_setting_is_named() {
    let before = Setting { kernel: Some("6.1".to_owned()), ..Setting::default() };
    let after = Setting { smt: Some("on".to_owned()), ..before.clone() };
    assert_eq!(before.changes_since(&before), Vec::<String>::new());
    assert_eq!(after.changes_since(&before), ["SMT: not known before, on now"]);
}

#[test]
fn what_cannot_be_carried_out_is_refused() {
    let good = plan(2, Length::Runs(4));
    assert_eq!(good.check(), Ok(()));
    let refused = |change: fn(&mut Plan), words: &str| {
        let mut plan = good.clone();
        change(&mut plan);
        let error = plan.check().unwrap_err().to_string();
        assert!(error.contains(words), "no `{words}` in {error}");
    };
    refused(|plan| plan.variants.clear(), "nothing to run");
    refused(|plan| plan.variants[1].name = "v0".to_owned(), "two variants called `v0`");
    refused(|plan| plan.variants[0].workload.applications.clear(), "nothing to run");
    refused(|plan| plan.variants[0].workload.applications[0].command.clear(), "command of `a` is empty");
    refused(|plan| plan.variants[0].workload.applications[0].command.push("a\0".to_owned()), "zero byte");
    refused(|plan| plan.variants[0].workload.applications[0].start_seconds = f64::NAN, "the start of `a`");
    refused(|plan| plan.variants[0].workload.completions = 0, "the number of completions is 0");
    refused(|plan| plan.variants[0].workload.fixed_seconds = Some(0.0), "the fixed time");
    refused(|plan| plan.timeout_seconds = Some(0.0), "the timeout");
    refused(|plan| plan.printed = vec![printed(false), printed(true)], "two printed figures called `lag`");
    refused(|plan| plan.length = Length::Runs(0), "the number of runs is 0");
    refused(|plan| plan.length = Length::BudgetSeconds(-1.0), "the budget");
}

#[test]
fn runs_of_another_plan_are_refused() {
    let plan = plan(2, Length::Runs(4));
    let mut trials = trials_of(&mut made(|_, _| 1.0), &plan);
    assert_eq!(plan.check_trials(&trials), Ok(()));
    assert_eq!(plan.check_trials(&trials[..7]), Ok(()));
    trials.swap(4, 5);
    assert_eq!(plan.check_trials(&trials), Err(PlanError::Foreign(5)));
}
