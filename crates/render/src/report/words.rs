//! Words for a report's figures, wherever people read them.

use corewise_core::classify::ParallelismClass;
use corewise_core::report::Report;
use std::borrow::Cow;

/// Says by what threads were found.
pub fn discovery(source: &str) -> &str {
    match source {
        "bpf" => "the kernel (BPF)",
        "poll" | "tree" => "looking into /proc",
        "none" => "nothing",
        other => other,
    }
}

/// Says by what is known what threads used.
pub fn counters(source: &str) -> Cow<'_, str> {
    match source.split_once(' ') {
        None if source == "sample" => "clock samples".into(),
        None if source == "none" => "nothing".into(),
        Some(("pmu", files)) => format!("hardware counters ({files})").into(),
        _ => source.into(),
    }
}

/// Describes the cost of corewise itself. Start and end cost the same however short the command is, so a
/// share of the time is only meaningful for long runs.
pub fn own_cost(report: &Report) -> String {
    own_cost_of(report.overhead.cpu_seconds, report.wall_seconds)
}

fn own_cost_of(cpu_seconds: f64, wall_seconds: f64) -> String {
    const SHARE_FROM_SECONDS: f64 = 1.0;
    if wall_seconds < SHARE_FROM_SECONDS {
        format!("{:.0} ms of CPU time", 1e3 * cpu_seconds)
    } else {
        format!("{:.2} % of a PE", 100.0 * cpu_seconds / wall_seconds)
    }
}

/// Names a class of parallelism.
pub fn of_parallelism(class: ParallelismClass) -> &'static str {
    match class {
        ParallelismClass::SingleThreaded => "ST, single-threaded",
        ParallelismClass::PartiallySequential => "PS, partially sequential",
        ParallelismClass::HighlyParallel => "HP, highly parallel",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_have_plain_names() {
        assert_eq!(
            ["bpf", "tree", "scripted"].map(discovery),
            ["the kernel (BPF)", "looking into /proc", "scripted"]
        );
        assert_eq!(
            ["sample", "none", "pmu amd"].map(counters),
            ["clock samples", "nothing", "hardware counters (amd)"]
        );
    }

    #[test]
    fn the_cost_of_a_short_command_is_printed_as_a_time() {
        assert_eq!(own_cost_of(0.0037, 0.01), "4 ms of CPU time");
        assert_eq!(own_cost_of(0.05, 10.0), "0.50 % of a PE");
    }
}
