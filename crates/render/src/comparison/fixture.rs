//! A made-up comparison for the tests of the presentation, with names that need escaping.

use super::Comparison;
use corewise_core::comparison::{Application, Length, Plan, Run, Setting, Trial, Variant, Workload, order};

/// Ten blocks; the second variant takes a tenth longer, and the control a little less than the baseline.
pub fn comparison() -> Comparison {
    let variant = |name: &str| {
        let command = ["prog", "a b"].map(str::to_owned).to_vec();
        let application = Application { name: "copy".to_owned(), command, start_seconds: 0.0, pes: None };
        let workload = Workload { applications: vec![application], completions: 1, fixed_seconds: None };
        Variant { name: name.to_owned(), workload }
    };
    let plan = Plan {
        variants: vec![variant("default"), variant("a <b> & c\u{1b}")],
        length: Length::Runs(10),
        warmup: 1,
        seed: 1,
        setup: None,
        prepare: None,
        ignore_failure: false,
        same_output: false,
        timeout_seconds: None,
        printed: Vec::new(),
    };
    let trial = |block: usize, arm: usize| {
        let wall_seconds = [1.0, 1.1, 0.999][arm] * (1.0 + 0.002 * (block * (arm + 1) % 5) as f64);
        Trial { block, arm, run: Run { wall_seconds, user_seconds: 0.5, ..Run::default() } }
    };
    let trials = (0..10).flat_map(|block| order(1, 3, block).into_iter().map(move |arm| trial(block, arm)));
    let setting = Setting { kernel: Some("6.12".to_owned()), ..Setting::default() };
    Comparison { trials: trials.collect(), plan, setting }
}
