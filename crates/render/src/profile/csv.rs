//! A machine profile as CSV for further computation: one figure per line, all in one table.

use crate::csv;
use crate::profile::words;
use corewise_core::profile::{MachineProfile, Measurement, Subject, Workload};

const HEADING: [&str; 15] = [
    "evidence",
    "table",
    "class",
    "against",
    "run",
    "kernel",
    "region_bytes",
    "pes",
    "neighbour_duty",
    "unit",
    "value",
    "low",
    "high",
    "repetitions",
    "verdict",
];

/// What stands under the heading.
type Rows = Vec<[String; HEADING.len()]>;

/// The cells before the figure in a line; empty where they do not apply.
#[derive(Default)]
struct Line<'a> {
    table: &'static str,
    class: &'a str,
    against: &'a str,
    run: String,
    workload: Option<Workload>,
    pes: String,
    duty: Option<f64>,
    unit: String,
    verdict: String,
}

/// Returns the table.
pub fn render(profile: &MachineProfile) -> String {
    let mut rows = Rows::new();
    pairs(&mut rows, profile);
    deltas(&mut rows, profile);
    singles(&mut rows, profile);
    csv::table(HEADING, rows)
}

fn pairs(rows: &mut Rows, profile: &MachineProfile) {
    for pair in &profile.pairs {
        let line = |table, unit: &str| Line {
            table,
            class: words::class(profile, pair.class),
            run: pair.workload.to_string(),
            workload: Some(pair.workload),
            unit: unit.to_owned(),
            ..Line::default()
        };
        let unit = format!("{}/s", pair.workload.first.kernel.unit());
        add(rows, profile, line("pair-rate", &unit), pair.rate);
        if let Some(delta) = pair.delta_alone {
            add(rows, profile, Line { against: "alone", ..line("delta", "delta") }, delta);
        }
        if let Some((first, second)) = pair.slowdowns {
            add(rows, profile, line("slowdown-of-first", "ratio"), first);
            add(rows, profile, line("slowdown-of-second", "ratio"), second);
        }
    }
    for curve in &profile.contention {
        for &(duty, slowdown) in &curve.points {
            let line = Line {
                table: "contention",
                class: words::class(profile, curve.class),
                run: curve.resource.to_string(),
                workload: Some(Workload { first: curve.load, second: curve.load }),
                duty: Some(duty),
                unit: "ratio".to_owned(),
                ..Line::default()
            };
            add(rows, profile, line, slowdown);
        }
    }
}

fn deltas(rows: &mut Rows, profile: &MachineProfile) {
    for delta in &profile.deltas {
        let workload = match delta.subject {
            Subject::Workload(workload) => Some(workload),
            Subject::Nas(..) => None,
        };
        let line = Line {
            table: "delta",
            class: words::class(profile, delta.close),
            against: words::class(profile, delta.distant),
            run: delta.subject.to_string(),
            workload,
            unit: "delta".to_owned(),
            verdict: delta.preference.to_string(),
            ..Line::default()
        };
        add(rows, profile, line, delta.delta);
    }
}

fn singles(rows: &mut Rows, profile: &MachineProfile) {
    for latency in &profile.latencies {
        let (run, pes) = (latency.kernel.name().to_owned(), format!("{} {}", latency.a, latency.b));
        let workload = Some(Workload::both(latency.kernel, 0));
        let line =
            Line { table: "pair-latency", run, workload, pes, unit: "ns".to_owned(), ..Line::default() };
        add(rows, profile, line, latency.ns);
    }
    for point in &profile.memory {
        let workload = Some(Workload { first: point.load, second: point.load });
        let unit = format!("{}/s", point.load.kernel.unit());
        let line = Line { table: "alone", run: point.load.to_string(), workload, unit, ..Line::default() };
        add(rows, profile, line, point.rate);
    }
    for speed in &profile.speeds {
        let (run, pes) = (speed.kernel.name().to_owned(), speed.pe.to_string());
        let workload = Some(Workload::both(speed.kernel, 0));
        let line = Line { table: "speed", run, workload, pes, unit: "ratio".to_owned(), ..Line::default() };
        add(rows, profile, line, speed.relative);
    }
    for nas in &profile.nas {
        let line = Line {
            table: if nas.own { "nas" } else { "nas-binary" },
            class: nas.pair_class.map_or("one thread", |class| words::class(profile, class)),
            run: Subject::Nas(nas.nas, nas.class).to_string(),
            unit: "s".to_owned(),
            verdict: if nas.verified { "verified" } else { "not verified" }.to_owned(),
            ..Line::default()
        };
        add(rows, profile, line, nas.seconds);
    }
}

fn add(rows: &mut Rows, profile: &MachineProfile, line: Line, estimate: Measurement) {
    let kernel = line.workload.map(|workload| workload.first.kernel.name()).unwrap_or_default();
    let region = line.workload.map(|workload| workload.first.region_bytes).filter(|&bytes| bytes > 0);
    let optional = |value: Option<String>| value.unwrap_or_default();
    rows.push([
        profile.evidence.to_string(),
        line.table.to_owned(),
        line.class.to_owned(),
        line.against.to_owned(),
        line.run,
        kernel.to_owned(),
        optional(region.map(|bytes| bytes.to_string())),
        line.pes,
        optional(line.duty.map(|duty| duty.to_string())),
        line.unit,
        estimate.value.to_string(),
        estimate.low.to_string(),
        estimate.high.to_string(),
        estimate.repetitions.to_string(),
        line.verdict,
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::fixture;

    #[test]
    fn every_figure_has_a_line_and_every_line_its_columns() {
        let profile = fixture::smt();
        let csv = render(&profile);
        assert!(csv.lines().all(|line| line.split(',').count() == HEADING.len()));
        let of = |table: &str| csv.lines().filter(|line| line.split(',').nth(1) == Some(table)).count();
        let alone = profile.pairs.iter().filter(|pair| pair.delta_alone.is_some()).count();
        assert_eq!(of("delta"), profile.deltas.len() + alone);
        assert_eq!(of("pair-rate"), profile.pairs.len());
        assert_eq!(of("slowdown-of-second"), alone);
        assert_eq!((of("contention"), of("alone"), of("speed"), of("pair-latency")), (40, 64, 4, 6));
        let shown =
            |start: &str| csv.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
        insta::assert_snapshot!(
            [
                shown("simulated,pair-rate"),
                shown("simulated,delta,same core,alone"),
                shown("simulated,delta,same core,same L3"),
                shown("simulated,contention"),
                shown("simulated,pair-latency"),
                shown("simulated,alone"),
                shown("simulated,nas"),
            ]
            .join("\n")
        );
    }

    #[test]
    fn a_comma_in_a_name_is_quoted() {
        let mut profile = fixture::two_pes();
        profile.classes[0].name = "near, \"very\"".to_owned();
        assert!(render(&profile).contains(",\"near, \"\"very\"\"\","));
    }
}
