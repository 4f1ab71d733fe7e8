//! The figures of one machine: those of the resource-interdependencies paper (2 to 5, with their numbers),
//! and what schedulers use in addition.
//!
//! Δ needs a close and a distant pair. A machine on which all pairs are alike has none; there the same
//! figures show Δ against running alone, and say so.

use crate::chart::bars::{Bar, BarChart, Row};
use crate::chart::heat::HeatMap;
use crate::chart::lines::{Line, LineChart, Panel};
use crate::chart::{Axis, Figure, extent};
use crate::profile::comparisons::{Cell, Comparison, comparisons};
use crate::profile::words;
use corewise_core::kernels::{Focus, Kernel};
use corewise_core::profile::{
    ContentionCurve, Load, MachineProfile, Measurement, NasResult, Resource, Subject, Workload,
};
use corewise_core::topology::{DomainKind, size};
use maud::Markup;
use std::collections::BTreeSet;

/// The maximum number of rows in a figure; the table has them all.
pub const ROWS_MAX: usize = 40;

/// Returns every figure for which there is data.
pub fn figures(profile: &MachineProfile) -> Vec<Figure> {
    let comparisons = comparisons(profile);
    let mut figures = Vec::new();
    figures.extend(synchronisation(&comparisons));
    figures.extend(latencies(profile));
    figures.extend(heat_maps(profile));
    figures.extend(memory_deltas(profile, &comparisons));
    figures.extend(memory(profile));
    figures.extend(computation(&comparisons));
    figures.extend(nas(profile, &comparisons));
    figures.extend(contention(profile));
    figures.extend(speeds(profile));
    figures
}

fn bars(file: &str, title: &str, caption: &str, chart: &BarChart) -> Option<Figure> {
    if chart.rows.is_empty() {
        return None;
    }
    let (content, height) = chart.draw();
    Some(figure(file, title, caption, content, height))
}

fn lines(file: &str, title: &str, caption: &str, chart: &LineChart) -> Option<Figure> {
    if chart.panels.is_empty() {
        return None;
    }
    let (content, height) = chart.draw();
    Some(figure(file, title, caption, content, height))
}

fn figure(file: &str, title: &str, caption: &str, content: Markup, height: f64) -> Figure {
    Figure { file: file.to_owned(), title: title.to_owned(), caption: caption.to_owned(), content, height }
}

/// Draws bars of Δ for some kind of subjects, with a series for each comparison.
fn delta_bars(comparisons: &[Comparison], wanted: impl Fn(Subject) -> bool) -> BarChart {
    let mut subjects: Vec<Subject> = Vec::new();
    for cell in comparisons.iter().flat_map(|comparison| &comparison.cells) {
        if wanted(cell.subject) && !subjects.contains(&cell.subject) {
            subjects.push(cell.subject);
        }
    }
    let bar = |cell: &Cell| Bar { estimate: cell.delta, uncertain: cell.is_uncertain() };
    let row = |&subject: &Subject| Row {
        label: subject.to_string(),
        bars: comparisons.iter().map(|comparison| comparison.cell(subject).map(bar)).collect(),
    };
    let alone = comparisons.iter().any(|comparison| comparison.alone);
    BarChart {
        series: comparisons.iter().map(|comparison| comparison.name.clone()).collect(),
        rows: subjects.iter().map(row).collect(),
        x_label: if alone { "Δ against running alone" } else { "Δ" }.to_owned(),
        base: 0.0,
        hints: Some(if alone {
            ("the neighbour costs", "the neighbour helps")
        } else {
            ("distant is better", "close is better")
        }),
    }
}

fn synchronisation(comparisons: &[Comparison]) -> Option<Figure> {
    let chart = delta_bars(comparisons, |subject| focus(subject) == Some(Focus::Synchronisation));
    let caption = "Two threads that wait for each other: above 0 they do better close together. \
         The bar is Δ, the whisker its 95 % interval (an arrow: it goes on); a faint bar is smaller than the \
         noise.";
    bars("figure-2-synchronisation", "Figure 2: synchronisation", caption, &chart)
}

/// Returns the focus of both threads, if they have the same.
fn focus(subject: Subject) -> Option<Focus> {
    match subject {
        Subject::Workload(Workload { first, second }) if first.kernel.focus() == second.kernel.focus() => {
            Some(first.kernel.focus())
        }
        Subject::Workload(_) | Subject::Nas(..) => None,
    }
}

/// Draws how long a message takes, by class.
fn latencies(profile: &MachineProfile) -> Option<Figure> {
    let kernels = Kernel::ALL.into_iter().filter(|kernel| kernel.needs_partner());
    let time = |kernel: Kernel, class: usize| {
        let result =
            profile.pairs.iter().find(|p| p.class == class && p.workload == Workload::both(kernel, 0));
        result.map(|result| Bar { estimate: words::in_unit(kernel, result.rate).1, uncertain: false })
    };
    let row = |kernel: Kernel| Row {
        label: kernel.name().to_owned(),
        bars: (0..profile.classes.len()).map(|class| time(kernel, class)).collect(),
    };
    let rows = kernels.map(row).filter(|row| row.bars.iter().any(Option::is_some)).collect();
    let series = profile.classes.iter().map(|class| class.name.clone()).collect();
    let x_label = "nanoseconds".to_owned();
    let chart = BarChart { series, rows, x_label, base: 0.0, hints: None };
    let caption = "One write, one addition or one hand-over between the two threads of a pair, by class.";
    bars("synchronisation-latency", "Synchronisation latency by class of pairs", caption, &chart)
}

/// Draws the latencies of single pairs side by side, unless there is only one pair.
fn heat_maps(profile: &MachineProfile) -> Vec<Figure> {
    if profile.reported.pes.len() <= 2 {
        return Vec::new();
    }
    let kernels: Vec<Kernel> =
        Kernel::ALL.into_iter().filter(|k| profile.latencies.iter().any(|l| l.kernel == *k)).collect();
    let one = |kernel: Kernel| {
        let of_kernel = profile.latencies.iter().filter(|latency| latency.kernel == kernel);
        let ns = of_kernel.map(|l| ((l.a.min(l.b), l.a.max(l.b)), l.ns.value)).collect();
        let (content, height) = HeatMap { pes: profile.reported.pes_in_logical_order(), ns }.draw();
        let title = format!("Latency between PEs: {}", kernel.name());
        let caption = "Nanoseconds per unit of work. PEs stand in the order of the reported topology, \
             numbered as the operating system does; pairs without a colour were not measured on their own.";
        figure(&format!("pair-latency-{}", kernel.name()), &title, caption, content, height)
    };
    kernels.into_iter().map(one).collect()
}

/// Draws figure 3: a panel for each comparison, a curve for each kernel.
fn memory_deltas(profile: &MachineProfile, comparisons: &[Comparison]) -> Option<Figure> {
    let kernels: Vec<Kernel> = Kernel::ALL.into_iter().filter(|kernel| kernel.needs_region()).collect();
    let curve = |comparison: &Comparison, name: usize| {
        let of_kernel = comparison.cells.iter().filter_map(|cell| match cell.subject {
            Subject::Workload(it) if it.first == it.second && it.first.kernel == kernels[name] => {
                Some((it.first.region_bytes as f64, cell.delta))
            }
            _ => None,
        });
        Line { name, points: sorted(of_kernel.collect()) }
    };
    let curves = |comparison: &Comparison| -> Vec<Line> {
        let all = (0..kernels.len()).map(|name| curve(comparison, name));
        all.filter(|line| !line.points.is_empty()).collect()
    };
    let drawn: Vec<(&Comparison, Vec<Line>)> =
        comparisons.iter().map(|c| (c, curves(c))).filter(|(_, lines)| !lines.is_empty()).collect();
    let all: Vec<&Line> = drawn.iter().flat_map(|(_, lines)| lines).collect();
    let (low, high) = extent(&estimates(&all), 0.0);
    let (first, last) = regions(&all);
    let panels = drawn.into_iter().map(|(comparison, lines)| Panel {
        heading: comparison.name.clone(),
        lines,
        x: Axis::bytes(first, last, 6),
        y: Axis::linear(low, high, 6),
        labels: ("bytes per thread", if comparison.alone { "Δ against running alone" } else { "Δ" }),
        marks: caches(profile, first, last),
        base: Some(0.0),
    });
    let chart = LineChart { panels: panels.collect(), names: kernel_names(&kernels) };
    let caption = format!(
        "Two threads that move memory: {}. Bands are 95 % intervals (an arrow: one goes on), dashed lines \
         the sizes of caches as the machine reports them.",
        below_zero(comparisons)
    );
    lines("figure-3-memory", "Figure 3: memory", &caption, &chart)
}

/// Draws the bandwidth and latency of one thread alone by the size of its region.
fn memory(profile: &MachineProfile) -> Option<Figure> {
    let curve = |kernels: &[Kernel], name: usize| {
        let of_kernel = profile.memory.iter().filter(|point| point.load.kernel == kernels[name]);
        let points = of_kernel
            .map(|point| (point.load.region_bytes as f64, words::in_unit(point.load.kernel, point.rate).1));
        Line { name, points: sorted(points.collect()) }
    };
    let kernels = [Kernel::Read, Kernel::Write, Kernel::Copy, Kernel::LoadLatency];
    let (bandwidth, latency): (Vec<Line>, Vec<Line>) = (0..kernels.len())
        .map(|name| curve(&kernels, name))
        .filter(|line| !line.points.is_empty())
        .partition(|line| kernels[line.name] != Kernel::LoadLatency);
    let panel = |heading: &str, lines: Vec<Line>, y_label| {
        let all: Vec<&Line> = lines.iter().collect();
        let ((low, high), (first, last)) = (values(&all), regions(&all));
        Panel {
            heading: heading.to_owned(),
            x: Axis::bytes(first, last, 6),
            y: Axis::logarithmic(low, high),
            labels: ("bytes", y_label),
            marks: caches(profile, first, last),
            base: None,
            lines,
        }
    };
    let panels = [("Bandwidth", bandwidth, "GB/s"), ("Latency of a load", latency, "ns")];
    let panels = panels.into_iter().filter(|(_, lines, _)| !lines.is_empty());
    let panels = panels.map(|(heading, lines, unit)| panel(heading, lines, unit)).collect();
    let chart = LineChart { panels, names: kernel_names(&kernels) };
    let caption =
        "One thread, nothing beside it. Dashed lines are the sizes of caches as the machine reports them.";
    lines("memory-alone", "Memory of one thread alone", caption, &chart)
}

fn computation(comparisons: &[Comparison]) -> Option<Figure> {
    let is_computation = |subject| match subject {
        Subject::Workload(it) => !it.first.kernel.needs_region() && !it.first.kernel.needs_partner(),
        Subject::Nas(..) => false,
    };
    let chart = delta_bars(comparisons, is_computation);
    let caption = format!(
        "Two threads that compute: {}. a + b is one thread of each kind. A faint bar is smaller than \
         the noise.",
        below_zero(comparisons)
    );
    bars("figure-4-computation", "Figure 4: computation", &caption, &chart)
}

fn below_zero(comparisons: &[Comparison]) -> &'static str {
    match comparisons.first() {
        Some(comparison) if comparison.alone => {
            "below 0 each is slower than alone, at -1 both take twice as long; no pair of this machine is \
             known to be closer than another"
        }
        _ => "below 0 they do better far apart",
    }
}

/// Draws figure 5; if no pair is closer than another, it shows what a second thread gains.
fn nas(profile: &MachineProfile, comparisons: &[Comparison]) -> Option<Figure> {
    let chart = delta_bars(comparisons, |subject| matches!(subject, Subject::Nas(..)));
    let (file, title) = ("figure-5-nas", "Figure 5: NAS parallel benchmarks");
    if !chart.rows.is_empty() {
        let caption = "Two threads of a NAS benchmark: above 0 they do better close together.";
        return bars(file, title, caption, &chart);
    }
    let alone = profile.nas.iter().filter(|result| result.pair_class.is_none());
    let row = |one: &NasResult| {
        let speedup = |class| {
            let is_same = |r: &&NasResult| {
                (r.nas, r.class, r.own, r.pair_class) == (one.nas, one.class, one.own, Some(class))
            };
            let two = profile.nas.iter().find(is_same)?.seconds;
            let estimate = Measurement {
                value: one.seconds.value / two.value,
                low: one.seconds.low / two.high,
                high: one.seconds.high / two.low,
                repetitions: two.repetitions,
            };
            Some(Bar { estimate, uncertain: false })
        };
        let bars = (0..profile.classes.len()).map(speedup).collect();
        Row { label: Subject::Nas(one.nas, one.class).to_string(), bars }
    };
    let chart = BarChart {
        series: profile.classes.iter().map(|class| class.name.clone()).collect(),
        rows: alone.map(row).filter(|row| row.bars.iter().any(Option::is_some)).collect(),
        x_label: "time of one thread / time of two threads".to_owned(),
        base: 0.0,
        hints: None,
    };
    let caption = "What a second thread gains: 2 is all that it can. No pair of this machine is known to be \
         closer than another, so there is no Δ.";
    bars(file, title, caption, &chart)
}

/// Draws a panel for each class of pairs, with a curve for each resource.
fn contention(profile: &MachineProfile) -> Option<Figure> {
    let mut kinds: Vec<(Resource, Load)> = Vec::new();
    for curve in &profile.contention {
        if !kinds.contains(&(curve.resource, curve.load)) {
            kinds.push((curve.resource, curve.load));
        }
    }
    let all: Vec<Measurement> =
        profile.contention.iter().flat_map(|curve| curve.points.iter().map(|(_, y)| *y)).collect();
    let (low, high) = extent(&all, 1.0);
    let line = |curve: &ContentionCurve| Line {
        name: kinds.iter().position(|kind| *kind == (curve.resource, curve.load)).unwrap_or(0),
        points: sorted(curve.points.clone()),
    };
    let classes: BTreeSet<usize> = profile.contention.iter().map(|curve| curve.class).collect();
    let panels = classes.into_iter().map(|class| Panel {
        heading: words::class(profile, class).to_owned(),
        lines: profile.contention.iter().filter(|curve| curve.class == class).map(line).collect(),
        x: Axis::linear(0.0, 1.0, 5),
        y: Axis::linear(low, high, 6),
        labels: ("the neighbour's demand, as a share of its own full demand", "own slowdown"),
        marks: Vec::new(),
        base: Some(1.0),
    });
    let panels = panels.collect();
    let name = |&(resource, load)| format!("{resource} ({load})");
    let chart = LineChart { panels, names: kinds.iter().map(name).collect() };
    let caption = "What a neighbour costs, by how much of the time it works: 1 is nothing.";
    lines("contention", "Contention curves", caption, &chart)
}

fn speeds(profile: &MachineProfile) -> Option<Figure> {
    let kernels: BTreeSet<Kernel> = profile.speeds.iter().map(|speed| speed.kernel).collect();
    let mut slowest: Vec<_> = profile.reported.pes.iter().collect();
    let speed_of = |pe, kernel| profile.speeds.iter().find(|s| s.pe == pe && s.kernel == kernel);
    let lowest = |pe| {
        let own = profile.speeds.iter().filter(|speed| speed.pe == pe).map(|speed| speed.relative.value);
        own.fold(f64::INFINITY, f64::min)
    };
    if slowest.len() > ROWS_MAX {
        slowest.sort_by(|&a, &b| lowest(a).total_cmp(&lowest(b)));
        slowest.truncate(ROWS_MAX);
    }
    let row = |pe| Row {
        label: format!("PE {pe}"),
        bars: kernels
            .iter()
            .map(|&k| speed_of(pe, k).map(|speed| Bar { estimate: speed.relative, uncertain: false }))
            .collect(),
    };
    let chart = BarChart {
        series: kernels.iter().map(|kernel| kernel.name().to_owned()).collect(),
        rows: slowest.into_iter().map(row).filter(|row| row.bars.iter().any(Option::is_some)).collect(),
        x_label: "speed relative to the fastest PE".to_owned(),
        base: 0.0,
        hints: None,
    };
    let caption = "Each PE alone. Of a machine with many PEs the slowest are drawn; the table has all.";
    bars("speeds", "Speed of each PE", caption, &chart)
}

fn kernel_names(kernels: &[Kernel]) -> Vec<String> {
    kernels.iter().map(|kernel| kernel.name().to_owned()).collect()
}

fn sorted(mut points: Vec<(f64, Measurement)>) -> Vec<(f64, Measurement)> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

fn estimates(lines: &[&Line]) -> Vec<Measurement> {
    lines.iter().flat_map(|line| line.points.iter().map(|(_, y)| *y)).collect()
}

/// Returns the lowest and the highest value.
fn values(lines: &[&Line]) -> (f64, f64) {
    let all = estimates(lines).into_iter().map(|y| y.value).filter(|value| value.is_finite());
    all.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
}

/// Returns the smallest and the largest region.
fn regions(lines: &[&Line]) -> (u64, u64) {
    let all = || lines.iter().flat_map(|line| line.points.iter().map(|(x, _)| *x as u64));
    (all().min().unwrap_or(4096), all().max().unwrap_or(4096))
}

/// Returns the reported sizes of the machine's caches, each size once.
fn caches(profile: &MachineProfile, first: u64, last: u64) -> Vec<(f64, String)> {
    let named = [(DomainKind::L1, "L1"), (DomainKind::L2, "L2"), (DomainKind::L3, "L3")];
    let sizes: BTreeSet<(u64, &str)> = named
        .into_iter()
        .flat_map(|(kind, name)| profile.reported.domains(kind).filter_map(move |d| Some((d.bytes?, name))))
        .filter(|(bytes, _)| (first..=last).contains(bytes))
        .collect();
    sizes.into_iter().map(|(bytes, name)| (bytes as f64, format!("{name} {}", size(bytes)))).collect()
}
