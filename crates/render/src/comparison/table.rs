//! A comparison as a table for the terminal.

use super::{Comparison, DEFAULT, EVIDENCE, ratio, says_more, share, short_verdict, time_verdict};
use crate::table::Table;
use crate::terminal::Name;
use corewise_core::comparison::{Effect, Findings, Metric, Summary, VariantFindings};
use std::fmt::{Result, Write};

/// The maximum width of a name.
const NAME_MAX: usize = 40;

/// Returns the table.
pub fn render(comparison: &Comparison, findings: &Findings) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut text, comparison, findings);
    text
}

fn write(out: &mut String, comparison: &Comparison, findings: &Findings) -> Result {
    let plan = &comparison.plan;
    write!(out, "{}", answer(findings))?;
    writeln!(
        out,
        "{EVIDENCE}: {} blocks of {} runs, seed {}; {}",
        findings.blocks,
        plan.arms(),
        plan.seed,
        comparison.machine()
    )?;
    let baseline = &findings.variants[0].name;
    let against = if baseline == DEFAULT { DEFAULT } else { "the baseline" };
    let mut table = Table::new("<><<");
    table.row(["", "time", &format!("over {against} [95 %]")]);
    for variant in &findings.variants {
        let wall = variant.effect(&Metric::Wall);
        let words = time_verdict(&variant.effects).unwrap_or_default();
        row(&mut table, &shortened(&variant.name), &times(variant), wall, &words);
    }
    let floor = |metric: &Metric| {
        findings.noise_floor.iter().find(|(one, _)| one == metric).map(|(_, effect)| effect)
    };
    let words = "the baseline again: the noise floor";
    row(&mut table, "(control)", "", floor(&Metric::Wall), words);
    let others = Metric::all(&comparison.trials).into_iter().skip(1);
    for metric in others.filter(|metric| *metric != Metric::MeanWall || shows_mean(findings)) {
        let Some(floor) = floor(&metric) else { continue };
        table.words(&format!("\n  {}", Name(metric.name())));
        for variant in &findings.variants {
            let effect = variant.effect(&metric);
            let words = effect.map_or("", short_verdict);
            let figure = variant.summary(&metric).map_or_else(String::new, figure);
            row(&mut table, &shortened(&variant.name), &figure, effect, words);
        }
        row(&mut table, "(control)", "", Some(floor), "");
    }
    write!(out, "\n{table}")?;
    if let Some(least) = wall_effects(findings).filter_map(|effect| effect.detectable).reduce(f64::max) {
        writeln!(
            out,
            "\nA difference of {} or more in typical runs would be found with a probability of 80 %. One \
             interval in twenty misses the truth.",
            share(least)
        )?;
    }
    findings.notes.iter().try_for_each(|note| writeln!(out, "note: {note}"))
}

/// Returns a sentence about each of the first variants, and an empty line.
fn answer(findings: &Findings) -> String {
    const SENTENCES_MAX: usize = 4;
    let (baseline, others) = findings.variants.split_first().expect("a plan has a variant");
    let sentence = |variant: &VariantFindings| {
        let verdict = time_verdict(&variant.effects)?;
        let is = if ["faster", "slower"].iter().any(|word| verdict.starts_with(word)) { " is" } else { ":" };
        Some(format!("{} against {}{is} {verdict}.\n", shortened(&variant.name), shortened(&baseline.name)))
    };
    let sentences: String = others.iter().filter_map(sentence).take(SENTENCES_MAX).collect();
    if sentences.is_empty() { sentences } else { sentences + "\n" }
}

/// Returns whether the mean of any variant shows what its typical runs do not.
fn shows_mean(findings: &Findings) -> bool {
    findings.variants.iter().any(|variant| {
        let effects = variant.effect(&Metric::Wall).zip(variant.effect(&Metric::MeanWall));
        effects.is_some_and(|(typical, mean)| says_more(typical, mean))
    })
}

/// Returns the effects of all variants and the control on the time.
pub fn wall_effects(findings: &Findings) -> impl Iterator<Item = &Effect> {
    let of_variants = findings.variants.iter().flat_map(|variant| &variant.effects);
    let all = of_variants.chain(&findings.noise_floor);
    all.filter(|(metric, _)| *metric == Metric::Wall).map(|(_, effect)| effect)
}

fn times(variant: &VariantFindings) -> String {
    let Some(wall) = variant.wall() else { return "-".to_owned() };
    match wall.deviation {
        Some(deviation) => format!("{:.3} s ± {deviation:.3} s", wall.mean),
        None => format!("{:.3} s", wall.mean),
    }
}

/// Four digits, because figures can have any magnitude.
fn figure(summary: &Summary) -> String {
    let whole = summary.mean.abs().max(f64::MIN_POSITIVE).log10().floor() as i32;
    let decimals = (3 - whole).clamp(0, 9) as usize;
    match summary.deviation {
        Some(deviation) => format!("{:.decimals$} ± {deviation:.decimals$}", summary.mean),
        None => format!("{:.decimals$}", summary.mean),
    }
}

fn row(table: &mut Table, name: &str, time: &str, effect: Option<&Effect>, words: &str) {
    table.row([name, time, &effect.map_or_else(String::new, ratio), words]);
}

fn shortened(name: &str) -> String {
    let name = Name(name).to_string();
    if name.chars().count() <= NAME_MAX {
        return name;
    }
    name.chars().take(NAME_MAX - 1).chain(['…']).collect()
}
