//! Words for a report's figures, wherever people read them.

use corewise_core::report::Report;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_short_command_is_printed_as_a_time() {
        assert_eq!(own_cost_of(0.0037, 0.01), "4 ms of CPU time");
        assert_eq!(own_cost_of(0.05, 10.0), "0.50 % of a PE");
    }
}
