//! A comparison as CSV: a line for each run, in the order in which they were made.

use super::Comparison;
use corewise_core::comparison::Metric;

/// The table.
pub fn write(comparison: &Comparison) -> String {
    let mut text = String::from(
        "block,variant,control,wall_seconds,user_seconds,system_seconds,completion_seconds,unfairness,\
         energy_joules,exit_code,load,others_pes,steal_share,left_behind\n",
    );
    let plan = &comparison.plan;
    for trial in &comparison.trials {
        let (variant, run) = (&plan.variants[plan.variant_of(trial.arm)], &trial.run);
        let figure = |metric: Metric| known(metric.of(run, &variant.workload));
        let cells = [
            (trial.block + 1).to_string(),
            quoted(&variant.name),
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
        ];
        text += &cells.join(",");
        text.push('\n');
    }
    text
}

/// Nothing where nothing is known.
fn known(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}
