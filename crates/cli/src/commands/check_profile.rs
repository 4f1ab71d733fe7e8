//! `corewise sim --check-profile`: compares the model with the memory pairs that a calibration measured.

use crate::outputs::JsonOutput;
use crate::profile_file;
use anyhow::{Context, Result};
use corewise_core::machine_model::{Check, Compared, check};
use corewise_render::profile::words;
use corewise_render::table::Table;
use std::fmt::Write;
use std::path::Path;

/// The largest error of a prediction that counts as good.
const GOOD: f64 = 0.1;

/// Prints how the model of a profile's machine compares with the profile; returns the exit status.
pub fn execute(path: &Path, json: &JsonOutput) -> Result<u8> {
    let profile = profile_file::read(path)?;
    let check = check(&profile).with_context(|| path.display().to_string())?;
    json.show(&check, || describe(&check))?;
    Ok(0)
}

fn describe(check: &Check) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_description(&mut text, check);
    text
}

fn write_description(out: &mut String, check: &Check) -> std::fmt::Result {
    writeln!(out, "{}, and what the simulator makes of it\n\nThe model's parameters", check.machine)?;
    let mut parameters = Table::new("<><");
    for parameter in &check.parameters {
        let from = parameter.from.as_deref().unwrap_or("not measured: the simulator's default");
        parameters.row([parameter.name, &format!("{:.2}", parameter.value), from]);
    }
    let mut pairs = Table::new("<<>>><");
    pairs.row(["", "", &check.evidence.to_string(), "simulated", "error"]);
    for pair in &check.pairs {
        pairs.row([
            pair.class.clone(),
            pair.what.clone(),
            words::interval(pair.measured),
            format!("{:.2}", pair.simulated),
            format!("{:.1} %", 100.0 * pair.error),
            (if pair.fitted { "(fitted)" } else { "" }).to_owned(),
        ]);
    }
    write!(out, "{parameters}\nSlowdown of two threads on memory\n{pairs}")?;
    let predicted: Vec<&Compared> = check.pairs.iter().filter(|pair| !pair.fitted).collect();
    let good = predicted.iter().filter(|pair| pair.error.abs() <= GOOD).count();
    let sure = predicted.iter().filter(|pair| width(pair) <= GOOD).count();
    let worst = predicted.iter().map(|pair| pair.error.abs()).fold(0.0, f64::max);
    writeln!(
        out,
        "\n{good} of {} predictions are within {:.0} %, the worst is off by {:.1} %; {sure} of them are \
         measured to ±{:.0} % or better",
        predicted.len(),
        100.0 * GOOD,
        100.0 * worst,
        100.0 * GOOD
    )
}

/// Returns half of the measured interval, relative to the value.
fn width(pair: &Compared) -> f64 {
    (pair.measured.high - pair.measured.low) / 2.0 / pair.measured.value
}
