//! A machine profile as text, for a terminal.

use crate::profile::comparisons::{Comparison, comparisons, headline};
use crate::profile::words;
use crate::table::Table;
use crate::terminal::Name;
use corewise_core::cpuset::CpuSet;
use corewise_core::kernels::Kernel;
use corewise_core::profile::{MachineProfile, Measurement, PairResult, Subject, Workload};
use corewise_core::topology::size;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Result, Write};

/// Renders a summary; the page, the CSV and the JSON have the details.
pub fn render(profile: &MachineProfile) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_all(&mut text, profile);
    text
}

fn write_all(out: &mut String, profile: &MachineProfile) -> Result {
    sentence(out, &headline(profile))?;
    head(out, profile)?;
    latencies(out, profile)?;
    for comparison in comparisons(profile) {
        one_comparison(out, profile, &comparison)?;
    }
    memory_alone(out, profile)?;
    speeds(out, profile)?;
    nas(out, profile)?;
    tail(out, profile)
}

/// Writes a sentence, broken into lines that fit a terminal.
fn sentence(out: &mut String, words: &str) -> Result {
    const COLUMNS: usize = 100;
    let mut line = String::new();
    for word in words.split_inclusive(' ') {
        if line.chars().count() + word.trim_end().chars().count() > COLUMNS {
            writeln!(out, "{}", line.trim_end())?;
            line.clear();
        }
        line += word;
    }
    writeln!(out, "{line}")
}

fn head(out: &mut String, profile: &MachineProfile) -> Result {
    let about = &profile.circumstances;
    let machine = Name(about.processor.as_deref().unwrap_or(&profile.reported.origin));
    writeln!(
        out,
        "{}: {machine}, {} PEs, {:.1} s, {} repetitions in {} passes, {} thrown away",
        profile.evidence,
        profile.reported.pes.len(),
        about.seconds,
        about.repetitions,
        about.passes,
        about.discarded
    )?;
    if !profile.complete {
        writeln!(out, "INCOMPLETE: not everything that was planned was measured")?;
    }
    for class in &profile.classes {
        let measured: Vec<String> = class.measured.iter().map(|(a, b)| format!("{a}-{b}")).collect();
        let pairs = if class.pairs == 1 { "1 pair" } else { &format!("{} pairs", class.pairs) };
        writeln!(out, "{}: {pairs}, measured {}", Name(&class.name), measured.join(", "))?;
    }
    let Some(found) = &profile.discovered else { return Ok(()) };
    for &kind in &found.looked_for {
        let groups = found.groups.iter().filter(|group| group.0 == kind);
        let groups: Vec<String> = groups.map(|(_, pes)| pes.to_string()).collect();
        let shown = if groups.is_empty() { "no two PEs".to_owned() } else { groups.join(" | ") };
        writeln!(out, "found to share one {}: {shown}", kind.word())?;
    }
    found.disagreements.iter().try_for_each(|words| writeln!(out, "DIFFERS: {}", Name(words)))
}

fn latencies(out: &mut String, profile: &MachineProfile) -> Result {
    let kernels = Kernel::ALL.into_iter().filter(|kernel| kernel.needs_partner());
    let time = |kernel, class| {
        let is_it = |pair: &&PairResult| (pair.class, pair.workload) == (class, Workload::both(kernel, 0));
        let pair = profile.pairs.iter().find(is_it)?;
        Some(words::interval(words::in_unit(kernel, pair.rate).1))
    };
    let mut rows = vec![
        std::iter::once("ns each")
            .chain(profile.classes.iter().map(|c| &*c.name))
            .map(str::to_owned)
            .collect(),
    ];
    for kernel in kernels {
        let times: Vec<Option<String>> =
            (0..profile.classes.len()).map(|class| time(kernel, class)).collect();
        if times.iter().any(Option::is_some) {
            let cells = times.into_iter().map(|time| time.unwrap_or("-".to_owned()));
            rows.push(std::iter::once(kernel.name().to_owned()).chain(cells).collect());
        }
    }
    table(out, "Synchronisation latency", &rows)
}

/// Writes workloads one below another, and memory as a table of regions against kernels.
fn one_comparison(out: &mut String, profile: &MachineProfile, comparison: &Comparison) -> Result {
    let mut rows = vec![
        ["", "Δ [95 %]", if comparison.alone { "slowdown [95 %]" } else { "better" }]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut memory: BTreeMap<u64, BTreeMap<Kernel, String>> = BTreeMap::new();
    for cell in &comparison.cells {
        match cell.subject {
            Subject::Workload(it) if it.first == it.second && it.first.kernel.needs_region() => {
                let doubt = if cell.is_uncertain() { "?" } else { "" };
                let delta = format!("{:+.2} ±{:.2}{doubt}", cell.delta.value, half_width(cell.delta));
                memory.entry(it.first.region_bytes).or_default().insert(it.first.kernel, delta);
            }
            subject => {
                let preference = cell.preference.map(|preference| preference.to_string());
                let last = preference.or_else(|| slowdown(profile, subject)).unwrap_or_default();
                rows.push(vec![subject.to_string(), words::signed(cell.delta), last]);
            }
        }
    }
    table(out, &format!("Δ: {}", comparison.name), &rows)?;
    by_region(out, &format!("Δ of memory: {}; ? where the noise is larger", comparison.name), &memory)
}

/// Formats the slowdowns of a workload's two threads, for machines with one class of pairs.
fn slowdown(profile: &MachineProfile, subject: Subject) -> Option<String> {
    let pair = profile.pairs.iter().find(|pair| Subject::Workload(pair.workload) == subject)?;
    let (first, second) = pair.slowdowns?;
    let is_mix = pair.workload.first != pair.workload.second;
    let rest = if is_mix { format!("; {}", words::interval(second)) } else { String::new() };
    Some(words::interval(first) + &rest)
}

fn memory_alone(out: &mut String, profile: &MachineProfile) -> Result {
    let mut regions: BTreeMap<u64, BTreeMap<Kernel, String>> = BTreeMap::new();
    for point in &profile.memory {
        let rate = words::in_unit(point.load.kernel, point.rate).1;
        regions.entry(point.load.region_bytes).or_default().insert(point.load.kernel, words::margin(rate));
    }
    by_region(out, "Memory of one thread alone: GB/s, latency in ns", &regions)
}

fn by_region(out: &mut String, heading: &str, cells: &BTreeMap<u64, BTreeMap<Kernel, String>>) -> Result {
    let kernels: BTreeSet<Kernel> = cells.values().flat_map(|row| row.keys().copied()).collect();
    let names = kernels.iter().map(|kernel| kernel.name().to_owned());
    let mut rows: Vec<Vec<String>> = vec![std::iter::once(String::new()).chain(names).collect()];
    for (&bytes, row) in cells {
        let own = kernels.iter().map(|kernel| row.get(kernel).cloned().unwrap_or("-".to_owned()));
        rows.push(std::iter::once(size(bytes)).chain(own).collect());
    }
    table(out, heading, &rows)
}

/// Writes the speeds, with PEs of the same speed (to a hundredth) together.
fn speeds(out: &mut String, profile: &MachineProfile) -> Result {
    let mut kernels: BTreeMap<Kernel, BTreeMap<i64, (CpuSet, f64)>> = BTreeMap::new();
    for speed in &profile.speeds {
        let hundredths = (speed.relative.value * 100.0).round() as i64;
        let entry = kernels.entry(speed.kernel).or_default().entry(-hundredths).or_default();
        entry.0 = entry.0.union(&CpuSet::single(speed.pe));
        entry.1 = entry.1.max(half_width(speed.relative));
    }
    if !kernels.is_empty() {
        writeln!(out, "\nSpeed relative to the fastest PE")?;
    }
    for (kernel, groups) in kernels {
        let reported = groups.into_iter().map(|(hundredths, (pes, width))| {
            format!("{:.2} ±{width:.2} on PE {pes}", -hundredths as f64 / 100.0)
        });
        writeln!(out, "  {}: {}", kernel.name(), reported.collect::<Vec<_>>().join("; "))?;
    }
    Ok(())
}

fn nas(out: &mut String, profile: &MachineProfile) -> Result {
    let mut rows = vec![["", "where", "seconds [95 %]", "result"].map(str::to_owned).to_vec()];
    for result in &profile.nas {
        let place = result.pair_class.map_or("one thread", |class| words::class(profile, class));
        rows.push(vec![
            Subject::Nas(result.nas, result.class).to_string(),
            place.to_owned(),
            words::interval(result.seconds),
            if result.verified { "as published" } else { "WRONG" }.to_owned(),
        ]);
    }
    table(out, "NAS parallel benchmarks", &rows)
}

fn tail(out: &mut String, profile: &MachineProfile) -> Result {
    if !profile.missing.is_empty() {
        writeln!(out, "\nNot measured")?;
    }
    words::missing(profile).iter().try_for_each(|missing| writeln!(out, "  {missing}"))?;
    profile.circumstances.notes.iter().try_for_each(|note| writeln!(out, "note: {}", Name(note)))
}

fn half_width(estimate: Measurement) -> f64 {
    (estimate.high - estimate.low) / 2.0
}

/// Writes a table with the first column left-aligned and the others right-aligned; nothing if there is only
/// the heading.
fn table(out: &mut String, heading: &str, rows: &[Vec<String>]) -> Result {
    if rows.len() < 2 {
        return Ok(());
    }
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut table = Table::new(&format!("<{}", ">".repeat(columns.saturating_sub(1))));
    rows.iter().for_each(|row| table.row(row));
    write!(out, "\n{heading}\n{table}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::fixture;

    #[test]
    fn a_terminal_shows_it_in_short() {
        insta::assert_snapshot!(render(&fixture::two_pes()));
    }

    #[test]
    fn every_comparison_has_its_preferences() {
        let text = render(&fixture::smt());
        for shown in ["Δ: same core against same L3", "distant", "unknown", "0.79 ±0.02 on PE 3", "0-1, 2-3"]
        {
            assert!(text.contains(shown), "no `{shown}` in:\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
    }
}
