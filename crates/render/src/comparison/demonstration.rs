//! What `corewise demo` has shown, in one sentence.
//!
//! A comparison can end in many ways, and somebody who has met corewise a minute ago asks one thing: does it
//! help here? A gain counts if the interval of the typical runs or that of the mean excludes chance, as a few
//! very long runs are as bad for users as many slightly longer ones. Where nothing can be said, the sentence
//! says why, and what would help.

use super::{Comparison, DEFAULT, share};
use corewise_core::comparison::{
    BLOCKS_MIN, Effect, Findings, Length, Metric, Summary, VariantFindings, Verdict, disturbances,
};

/// Circumstances that the runs do not show.
#[derive(Debug, Clone, Copy, Default)]
pub struct Circumstances {
    /// A daemon treats all programs, also those of the baseline.
    pub has_daemon: bool,
    /// The user ended the comparison.
    pub is_interrupted: bool,
}

/// A difference that is more than chance.
struct Difference<'a> {
    effect: &'a Effect,
    /// Seconds without corewise, and with it.
    seconds: [f64; 2],
    of: &'static str,
}

/// Returns the verdict on a comparison of programs as they are with the same under corewise.
pub fn verdict(comparison: &Comparison, found: &Findings, circumstances: Circumstances) -> String {
    let copies = comparison.plan.variants[0].workload.applications.len();
    let walls = [0, 1].map(|variant| found.variants.get(variant).and_then(VariantFindings::wall));
    let [Some(without), Some(under)] = walls else {
        return "nothing can be said: no run has ended".to_owned();
    };
    let differences = differences(&found.variants[1], without, under);
    match differences.as_slice() {
        [] => undecided(comparison, found, circumstances, [without.median, under.median]),
        [typical, mean] if typical.effect.verdict != mean.effect.verdict => format!(
            "{}, but {}; chance is excluded in both: look at the times above",
            took(copies, typical),
            took(copies, mean)
        ),
        [main, ..] => format!(
            "with corewise {}; chance is excluded (95 % interval of the ratio: {:.2} to {:.2})",
            took(copies, main),
            main.effect.low,
            main.effect.high
        ),
    }
}

fn differences<'a>(corewise: &'a VariantFindings, without: &Summary, under: &Summary) -> Vec<Difference<'a>> {
    let typical = (Metric::Wall, [without.median, under.median], "");
    let mean = (Metric::MeanWall, [without.mean, under.mean], " on average");
    let difference = |(metric, seconds, of)| {
        let effect = corewise.effect(&metric)?;
        let is_clear = matches!(effect.verdict, Verdict::Less | Verdict::More);
        is_clear.then_some(Difference { effect, seconds, of })
    };
    [typical, mean].into_iter().filter_map(difference).collect()
}

fn took(copies: usize, Difference { seconds: [without, under], of, .. }: &Difference<'_>) -> String {
    let programs = if copies == 1 { "one program".to_owned() } else { format!("{copies} programs at once") };
    format!("{programs} took {} instead of {} s{of}", seconds(*under), seconds(*without))
}

/// Three digits for what takes less than a second.
fn seconds(value: f64) -> String {
    if value < 0.1 { format!("{value:.3}") } else { format!("{value:.2}") }
}

/// No difference was more than chance.
fn undecided(
    comparison: &Comparison,
    found: &Findings,
    circumstances: Circumstances,
    [without, under]: [f64; 2],
) -> String {
    let times = format!("{} s with corewise, {} s without", seconds(under), seconds(without));
    let busy: Vec<String> = disturbances(&comparison.trials).into_iter().flatten().collect();
    let longer = format!("run `corewise demo --budget {}m`", longer_budget(comparison, found));
    let made = format!("{} of {BLOCKS_MIN} blocks were made", found.blocks);
    match found.blocks < BLOCKS_MIN {
        _ if circumstances.has_daemon => "nothing can be said, as a daemon treats these programs with and \
                                          without `corewise run`: stop it, then run `corewise demo`"
            .to_owned(),
        true if circumstances.is_interrupted => {
            format!("stopped too early to tell ({made}): run `corewise demo`")
        }
        true if busy.is_empty() => format!("this machine was too slow to tell: {made}; {longer}"),
        true => format!("this machine was too busy to tell: {made}, {}; {longer}", busy.join(", ")),
        false if !busy.is_empty() => {
            format!("this machine was too busy to tell ({times}): {}; {longer}", busy.join(", "))
        }
        false => no_difference(comparison, found, &times),
    }
}

/// On a quiet machine: what would have been found, and where a difference is more likely.
fn no_difference(comparison: &Comparison, found: &Findings, times: &str) -> String {
    let least = found.variants[1].effect(&Metric::Wall).and_then(|effect| effect.detectable);
    let least = least.map_or(String::new(), |least| format!("; one of {} or more would be", share(least)));
    let copies = 2 * comparison.plan.variants[0].workload.applications.len();
    format!(
        "no difference was found ({times}{least}): so many programs do not get in each other's way here; for \
         more of them, run `corewise demo --copies {copies}`"
    )
}

/// Returns the minutes in which there would be twice as many blocks as a verdict needs, at least twice the
/// present time.
fn longer_budget(comparison: &Comparison, found: &Findings) -> u64 {
    let runs = &comparison.trials;
    let spent: f64 = runs.iter().map(|trial| trial.run.wall_seconds).sum();
    let per_block = spent / runs.len().max(1) as f64 * comparison.plan.arms() as f64;
    let present = match comparison.plan.length {
        Length::BudgetSeconds(seconds) => seconds,
        Length::Runs(_) => per_block * found.blocks as f64,
    };
    ((per_block * 2.0 * BLOCKS_MIN as f64).max(2.0 * present) / 60.0).ceil().max(1.0) as u64
}

/// What to do next with a program of one's own.
pub fn next_step() -> String {
    format!(
        "next, your own program: `corewise run -- COMMAND` treats it, and\n  corewise compare --copies 2 \
         --runs 12 --variant corewise='corewise run -q --' -- COMMAND\nmeasures what that gains over \
         `{DEFAULT}`, the command as it is"
    )
}

#[cfg(test)]
mod tests {
    use super::super::fixture::comparison;
    use super::*;
    use corewise_core::comparison::Trial;

    /// Runs of so many blocks, by the seconds of each arm: as it is, under corewise, the control.
    fn compared(blocks: usize, seconds: impl Fn(usize, usize) -> f64) -> Comparison {
        let mut comparison = comparison();
        comparison.plan.length = Length::BudgetSeconds(45.0);
        comparison.trials.retain(|trial| trial.block < blocks);
        for Trial { block, arm, run } in &mut comparison.trials {
            run.wall_seconds = seconds(*block, *arm);
        }
        comparison
    }

    fn said(comparison: &Comparison) -> String {
        said_with(comparison, Circumstances::default())
    }

    fn said_with(comparison: &Comparison, circumstances: Circumstances) -> String {
        verdict(comparison, &comparison.findings(), circumstances)
    }

    /// A little noise that differs from run to run.
    fn noise(block: usize, arm: usize) -> f64 {
        1.0 + 0.01 * ((block * 7 + arm * 3) % 5) as f64
    }

    #[test]
    fn a_gain_is_said_with_both_times() {
        let gain = compared(10, |block, arm| [0.92, 0.13, 0.92][arm] * noise(block, arm));
        let said = said(&gain);
        assert!(said.starts_with("with corewise one program took 0.13 instead of 0.94 s; "), "{said}");
        assert!(said.contains("chance is excluded (95 % interval of the ratio: 0.1"), "{said}");
    }

    #[test]
    fn a_loss_is_said_in_the_same_words() {
        let said = said(&compared(10, |block, arm| [1.0, 1.5, 1.0][arm] * noise(block, arm)));
        assert!(said.contains("took 1.53 instead of 1.02 s; chance is excluded"), "{said}");
    }

    #[test]
    fn a_gain_on_average_alone_is_a_gain() {
        // Half of the runs as they are take ten times as long, the others a little less than under corewise.
        let said = said(&compared(10, |block, arm| match (arm, block % 2) {
            (1, _) => 1.01 * noise(block, arm),
            (_, 0) => 10.0 * noise(block, arm),
            _ => noise(block, arm),
        }));
        assert!(said.contains(" on average; chance is excluded"), "{said}");
    }

    #[test]
    fn too_few_blocks_name_the_reason_and_a_longer_budget() {
        let mut few = compared(4, |block, arm| [6.0, 1.0, 5.0][arm] * noise(block, arm));
        assert_eq!(
            said(&few),
            "this machine was too slow to tell: 4 of 6 blocks were made; run `corewise demo --budget 3m`"
        );
        few.trials.iter_mut().for_each(|trial| trial.run.others_pes = Some(1.7));
        assert_eq!(
            said(&few),
            "this machine was too busy to tell: 4 of 6 blocks were made, others took 1.7 PEs' worth of time; \
             run `corewise demo --budget 3m`"
        );
        let stopped = said_with(&few, Circumstances { is_interrupted: true, ..Default::default() });
        assert_eq!(stopped, "stopped too early to tell (4 of 6 blocks were made): run `corewise demo`");
    }

    #[test]
    fn no_difference_names_what_would_be_found_or_what_kept_the_machine_busy() {
        let mut equal = compared(10, |block, arm| noise(block, (arm + block) % 3));
        let quiet = said(&equal);
        assert!(quiet.starts_with("no difference was found (1.0"), "{quiet}");
        assert!(quiet.contains("`corewise demo --copies 2`"), "{quiet}");
        equal.trials.iter_mut().for_each(|trial| trial.run.steal_share = Some(0.3));
        let busy = said(&equal);
        assert!(busy.starts_with("this machine was too busy to tell ("), "{busy}");
        assert!(
            busy.contains("a hypervisor took 30 % of the machine's time; run `corewise demo --budget 2m`")
        );
        let beside = said_with(&equal, Circumstances { has_daemon: true, ..Default::default() });
        assert!(beside.contains("stop it, then run `corewise demo`"), "{beside}");
    }

    #[test]
    fn a_comparison_without_runs_says_so() {
        let mut none = compared(0, |_, _| 1.0);
        none.trials.clear();
        assert_eq!(said(&none), "nothing can be said: no run has ended");
    }
}
