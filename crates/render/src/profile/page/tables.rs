//! Tables with the contents of all figures, in words and numbers. Long ones are collapsed.

use super::figures::ROWS_MAX;
use crate::page::{known, table};
use crate::profile::words;
use corewise_core::profile::MachineProfile;
use maud::{Markup, html};

/// Renders the machine as reported and as measured, and the classes of its pairs.
pub fn machine(profile: &MachineProfile) -> Markup {
    let classes = html! {
        @for class in &profile.classes {
            @let measured: Vec<String> = class.measured.iter().map(|(a, b)| format!("{a}-{b}")).collect();
            tr {
                td.figure { (class.name) }
                td.figure { (class.pairs) }
                td.figure { (measured.join(", ")) }
                td.figure { (known(class.largest_deviation.map(|ratio| format!("{ratio:.3}")))) }
            }
        }
    };
    html! {
        section {
            h2 { "Machine" }
            pre.scroll { (profile.reported.draw()) }
            @if let Some(found) = &profile.discovered {
                h3 { "As it behaves" }
                ul {
                    @for (kind, pes) in &found.groups { li { "PEs " (pes) " share a " (kind.word()) } }
                    @for disagreement in &found.disagreements { li.differs { (disagreement) } }
                }
            }
            (table(&["Class of pairs", "Pairs", "Measured", "Largest ratio within"], &classes))
        }
    }
}

/// Renders every Δ.
pub fn deltas(profile: &MachineProfile) -> Markup {
    let rows = profile.deltas.iter().map(|d| {
        html! {
            td.figure { (d.subject) }
            td.figure { (words::class(profile, d.close)) }
            td.figure { (words::class(profile, d.distant)) }
            td.figure { (words::signed(d.delta)) }
            td.figure { (d.preference) }
            td.figure { (d.delta.repetitions) }
        }
    });
    folded("Δ of every workload", &["Run", "Close", "Distant", "Δ [95 %]", "Better", "Repetitions"], rows)
}

/// Renders the results of each class of pairs for each workload.
pub fn pairs(profile: &MachineProfile) -> Markup {
    let rows = profile.pairs.iter().map(|pair| {
        let (unit, rate) = words::in_unit(pair.workload.first.kernel, pair.rate);
        let slowdowns = pair.slowdowns.map(|(first, second)| {
            if pair.workload.first == pair.workload.second {
                words::interval(first)
            } else {
                format!("{}; {}", words::interval(first), words::interval(second))
            }
        });
        html! {
            td.figure { (words::class(profile, pair.class)) }
            td.figure { (pair.workload) }
            td.figure { (words::interval(rate)) " " (unit) }
            td.figure { (known(slowdowns)) }
            td.figure { (known(pair.delta_alone.map(words::signed))) }
            td.figure { (pair.discarded) }
        }
    });
    let columns =
        ["Class of pairs", "Run", "Rate of a thread [95 %]", "Slowdown", "Δ against alone", "Discarded"];
    folded("Every class and workload", &columns, rows)
}

/// Renders the speeds of single PEs.
pub fn speeds(profile: &MachineProfile) -> Markup {
    let rows = profile.speeds.iter().map(|speed| {
        html! {
            td.figure { (speed.pe) }
            td.figure { (speed.kernel.name()) }
            td.figure { (words::interval(speed.relative)) }
        }
    });
    folded("Speed of each PE", &["PE", "Run", "Relative speed [95 %]"], rows)
}

/// Renders the NAS benchmarks' times.
pub fn nas(profile: &MachineProfile) -> Markup {
    let rows = profile.nas.iter().map(|result| {
        html! {
            td.figure { (result.nas.name()) "." (format!("{:?}", result.class)) }
            td.figure { (if result.own { "built in" } else { "the user's binary" }) }
            td.figure { (result.pair_class.map_or("one thread", |class| words::class(profile, class))) }
            td.figure { (words::interval(result.seconds)) " s" }
            td.figure { (if result.verified { "yes" } else { "NO" }) }
        }
    });
    let columns = ["Benchmark", "Program", "Where", "Time [95 %]", "Result as published"];
    folded("NAS parallel benchmarks", &columns, rows)
}

/// Returns a collapsible section, which is open if it is short; nothing if it is empty.
fn folded(heading: &str, columns: &[&str], rows: impl ExactSizeIterator<Item = Markup>) -> Markup {
    let count = rows.len();
    if count == 0 {
        return Markup::default();
    }
    html! {
        section {
            details open[count <= ROWS_MAX] {
                summary { h2 { (heading) " (" (count) ")" } }
                (table(columns, &html! { @for row in rows { tr { (row) } } }))
            }
        }
    }
}
