//! A comparison as CSV: a line for each run, in the order of the runs.

use super::Comparison;
use crate::csv;
use corewise_core::comparison::Metric;

const HEADING: [&str; 15] = [
    "block",
    "variant",
    "control",
    "wall_seconds",
    "user_seconds",
    "system_seconds",
    "completion_seconds",
    "unfairness",
    "energy_joules",
    "exit_code",
    "load",
    "others_pes",
    "steal_share",
    "left_behind",
    "timed_out",
];

/// Returns the table.
pub fn write(comparison: &Comparison) -> String {
    let metrics = Metric::all(&comparison.trials);
    let printed: Vec<Metric> = metrics.into_iter().filter(|one| matches!(one, Metric::Printed(_))).collect();
    let heading: Vec<&str> = HEADING.into_iter().chain(printed.iter().map(Metric::name)).collect();
    let plan = &comparison.plan;
    let rows = comparison.trials.iter().map(|trial| {
        let (variant, run) = (&plan.variants[plan.variant_of(trial.arm)], &trial.run);
        let figure = |metric: Metric| known(metric.of(run, &variant.workload));
        let cells = [
            (trial.block + 1).to_string(),
            variant.name.clone(),
            (trial.arm == plan.variants.len()).to_string(),
            run.wall_seconds.to_string(),
            run.user_seconds.to_string(),
            run.system_seconds.to_string(),
            figure(Metric::Completion),
            figure(Metric::Unfairness),
            figure(Metric::Energy),
            run.exit_code.to_string(),
            known(run.load),
            known(run.others_pes),
            known(run.steal_share),
            run.left_behind.to_string(),
            run.timed_out.to_string(),
        ];
        let printed = printed.iter().map(|metric| known(metric.of(run, &variant.workload)));
        cells.into_iter().chain(printed).collect::<Vec<_>>()
    });
    csv::table(heading, rows)
}

/// Returns an empty cell for an unknown value.
fn known(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}
