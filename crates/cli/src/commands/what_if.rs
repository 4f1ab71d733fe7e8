//! `corewise what-if`: simulates how fast recorded threads would be on another machine.

use crate::options::{PolicyOptions, start_patiently};
use crate::outputs::JsonOutput;
use crate::{machine_file, recording_file, values};
use anyhow::{Context, Result};
use corewise_render::report::words::counters;
use corewise_render::table::Table;
use corewise_render::terminal::Name;
use corewise_sim::comparison::last_seed;
use corewise_sim::machine::MachineSpec;
use corewise_sim::what_if::{Prediction, Question, REPRODUCTION_ERROR_MAX, Range, predict};
use std::fmt::Write;
use std::path::PathBuf;

/// The name of the recording's machine.
const RECORDED: &str = "recorded";

/// Predict how fast a recorded program would be, on its machine or elsewhere.
///
/// Programs made of the recorded threads are simulated; the speedup comes with its uncertainty.
#[derive(Debug, clap::Args)]
pub struct WhatIf {
    /// A recording by `corewise run --record`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    policy: PolicyOptions,
    /// The machine: `recorded` (the same), a machine profile (.json), the machine of a scenario (.toml), one
    /// that hwloc exported (.xml) or that was recorded (.tar.gz, .tar.bz2, or a directory with its /sys and
    /// /proc), or one in a line ("pack:1 l2:4 core:2 pu:1")
    #[arg(long, value_name = "FILE|DIR|LINE", default_value = RECORDED)]
    machine: String,
    /// More than the recording has of the machine on which it was made: its profile, as for --machine, if it
    /// was not run with --profile
    #[arg(long, value_name = "FILE|DIR|LINE")]
    recorded_on: Option<String>,
    /// The first seed of the simulation
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::whole(0..=u64::MAX))]
    seed: u64,
    /// How many seeds, one after another
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = values::whole(1..=1000_u32))]
    runs: u32,
    #[command(flatten)]
    json: JsonOutput,
}

impl WhatIf {
    /// Predicts; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        self.json.check()?;
        let prediction = self.predict()?;
        self.json.show(&prediction, || describe(&prediction))?;
        Ok(0)
    }

    fn predict(&self) -> Result<Prediction> {
        // Build the policy once to report its errors; later calls succeed.
        drop(self.policy.policy(&start_patiently)?);
        let policy = || self.policy.policy(&start_patiently).expect("the policy was made a moment ago");
        let recorded_on = self.recorded_on.as_deref().map(machine_named).transpose()?.flatten();
        let name = self.file.display();
        let recording = recording_file::read(&self.file)?;
        let question = Question {
            recording: &recording,
            recorded_on,
            machine: machine_named(&self.machine)?,
            policy: &policy,
            fpu_threshold: self.policy.config().fpu_threshold,
            seed: self.seed,
            runs: self.runs,
        };
        predict(&question).with_context(|| format!("cannot predict anything from {name}"))
    }
}

/// Returns the machine with this name; `None` means the recording's.
fn machine_named(name: &str) -> Result<Option<MachineSpec>> {
    if name == RECORDED {
        return Ok(None);
    }
    machine_file::named(name).map(Some)
}

/// Returns the prediction for people.
pub fn describe(prediction: &Prediction) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_description(&mut text, prediction);
    text
}

fn write_description(out: &mut String, prediction: &Prediction) -> std::fmt::Result {
    let recorded = &prediction.recorded;
    writeln!(out, "{}\n", answer(prediction))?;
    writeln!(
        out,
        "recorded: {} on {}: {:.2} s, {:.2} s of CPU time, {} threads; what they use, by {}",
        Name(&recorded.command.join(" ")),
        Name(&recorded.machine),
        recorded.seconds,
        recorded.cpu_seconds,
        recorded.threads,
        Name(&counters(&recorded.counters))
    )?;
    let last = last_seed(prediction.seed, prediction.runs);
    writeln!(
        out,
        "{}: policy {} on {}, seeds {} to {last}\n",
        prediction.evidence,
        prediction.policy,
        Name(&prediction.machine),
        prediction.seed
    )?;
    if let (Some(speedup), Some(seconds), Some(over_recorded)) =
        (&prediction.speedup, &prediction.seconds, &prediction.over_recorded)
    {
        writeln!(out, "  speedup over the policy default there {}", range(speedup, ""))?;
        writeln!(out, "  predicted time                        {}", range(seconds, " s"))?;
        writeln!(out, "  speedup over the recording            {}", range(over_recorded, ""))?;
    } else {
        writeln!(
            out,
            "  do not trust this: the recording itself cannot be reproduced within {:.0} %, so nothing is \
             predicted",
            100.0 * REPRODUCTION_ERROR_MAX
        )?;
    }
    writeln!(
        out,
        "  the recording itself, simulated: {:.3} s, {:+.1} % off\n",
        prediction.reproduction.seconds,
        100.0 * prediction.reproduction.error
    )?;
    if prediction.speedup.is_some() {
        let mut table = Table::new("<<<");
        table.row(["assumption (simulated)", "over default there", "over the recording"]);
        for assumed in &prediction.assumptions {
            let ratios = [&assumed.speedup, &assumed.over_recorded].map(|ratio| range(ratio, ""));
            table.row([&assumed.words, &ratios[0], &ratios[1]]);
        }
        write!(out, "{table}")?;
    } else {
        writeln!(
            out,
            "the recording tells nothing of other load on the machine, nor which thread waited for which; \
             record on a quiet machine, with --recorded-on its profile"
        )?;
    }
    for unknown in &prediction.unknown {
        writeln!(out, "assumed: {}", Name(unknown))?;
    }
    for note in &prediction.notes {
        writeln!(out, "note: {}", Name(note))?;
    }
    Ok(())
}

/// The answer in one sentence.
fn answer(prediction: &Prediction) -> String {
    let Prediction { policy, machine, recorded, .. } = prediction;
    // "the recorded machine: its name".
    let machine = Name(machine.split(": ").next().unwrap_or(machine));
    let (Some(seconds), Some(speedup)) = (&prediction.seconds, &prediction.over_recorded) else {
        return format!(
            "Nothing can be said of the policy {policy} on {machine}: the simulation misses the recorded \
             {:.2} s by {:+.0} %.",
            recorded.seconds,
            100.0 * prediction.reproduction.error
        );
    };
    let change = match speedup {
        Range { low, .. } if *low > 1.0 => format!("{:.2} times as fast", speedup.value),
        Range { high, .. } if *high < 1.0 => format!("slower, {:.2} times as fast", speedup.value),
        _ => "neither faster nor slower as far as can be said".to_owned(),
    };
    format!(
        "Under the policy {policy} on {machine} these {:.2} s would take {:.2} s ({:.2} to {:.2}): {change} \
         (simulated).",
        recorded.seconds, seconds.value, seconds.low, seconds.high
    )
}

fn range(range: &Range, unit: &str) -> String {
    let Range { value, low, high } = range;
    format!("{value:.3}{unit} ({low:.3} to {high:.3})")
}
