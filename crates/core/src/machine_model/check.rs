//! Checks the predictor against the memory pairs of a profile, most of which it was not fitted to.
//!
//! A neighbour of duty d alternates between its full demand and none: `1 / (1 - d + d/s)`.

use super::fit::{Fit, slowdown};
use super::{MachineModel, Parameter};
use crate::profile::{ContentionCurve, Evidence, MachineProfile, Measurement, Resource, Workload};
use serde::Serialize;

/// The model checked against measured pairs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// The kind of the measured figures.
    pub evidence: Evidence,
    /// The machine.
    pub machine: String,
    /// The source of each model parameter.
    pub parameters: Vec<Parameter>,
    /// All pairs that compete for memory.
    pub pairs: Vec<Compared>,
}

/// One slowdown, measured and predicted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// The class of the pair.
    pub class: String,
    /// The workload of the two threads.
    pub what: String,
    /// Whether the model was fitted to this pair.
    pub fitted: bool,
    /// The measured slowdown: own time beside the neighbour over the time alone.
    pub measured: Measurement,
    /// The slowdown predicted by the model.
    pub simulated: f64,
    /// Simulated over measured, less 1.
    pub error: f64,
}

/// The profile lacks a measurement that is needed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the machine profile lacks {what}: run `corewise calibrate` for longer")]
pub struct Absent {
    /// The missing measurement.
    pub what: &'static str,
}

impl MachineModel {
    /// Checks that the profile contains the clock, which a simulation of the machine needs.
    pub fn has_clock(&self) -> Result<(), Absent> {
        let known = self.parameter("ghz").is_some_and(|ghz| ghz.from.is_some());
        let what = "the pair of int-add-chain, which tells the clock";
        if known { Ok(()) } else { Err(Absent { what }) }
    }
}

/// Checks the model against every memory pair of the profile.
pub fn check(profile: &MachineProfile) -> Result<Check, Absent> {
    let mut fit = Fit::of(profile);
    fit.model.has_clock()?;
    let fitted = fit.readers().map(|(pair, _)| (pair.class, pair.workload));
    fit.model.memory.overlap = 0.0;
    let pairs = profile.pairs.iter().filter(|pair| fit.is_of_memory(pair.workload));
    let mut compared: Vec<Compared> = pairs
        .filter_map(|pair| {
            let measured = slowdown(pair)?;
            let simulated = fit.predicted(pair.class, pair.workload.first)?;
            let fitted = fitted == Some((pair.class, pair.workload));
            Some(fit.compared(pair.class, pair.workload.to_string(), fitted, measured, simulated))
        })
        .collect();
    let curves = profile.contention.iter().filter(|curve| curve.resource == Resource::MemoryBandwidth);
    compared.extend(curves.flat_map(|curve| fit.compared_curve(curve)));
    if compared.is_empty() {
        return Err(Absent { what: "pairs on regions much larger than the caches" });
    }
    let about = profile.circumstances.processor.as_ref();
    let machine = format!("{} ({})", about.unwrap_or(&profile.reported.origin), profile.evidence);
    Ok(Check { evidence: profile.evidence, machine, parameters: fit.model.parameters, pairs: compared })
}

impl Fit<'_> {
    fn compared(
        &self,
        class: usize,
        what: String,
        fitted: bool,
        measured: Measurement,
        simulated: f64,
    ) -> Compared {
        let class = self.profile.classes[class].name.clone();
        Compared { class, what, fitted, measured, simulated, error: simulated / measured.value - 1.0 }
    }

    fn compared_curve(&self, curve: &ContentionCurve) -> Vec<Compared> {
        let both = Workload { first: curve.load, second: curve.load };
        let full = if self.is_of_memory(both) { self.predicted(curve.class, curve.load) } else { None };
        let point = |full: f64, (duty, measured): &(f64, Measurement)| {
            let what = format!("{}, neighbour at {:.0} %", curve.load, 100.0 * duty);
            self.compared(curve.class, what, false, *measured, 1.0 / (1.0 - duty + duty / full))
        };
        full.map_or_else(Vec::new, |full| curve.points.iter().map(|at| point(full, at)).collect())
    }
}
