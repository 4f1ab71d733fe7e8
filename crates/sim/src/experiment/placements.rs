//! Kernels on two PEs, close against distant: the effect of a machine's sharing on them.
//!
//! Problem: the measure of "Analyzing resource interdependencies" (§3) is not a schedule of programs but Δ,
//! the benefit of close over distant placement, of one kernel at a time on many machines. Approach: each
//! machine is a column, each kernel a row; the [simulated machine](crate::bench) runs the kernel on PEs 0 and
//! 1, which share most in the order of a synthetic topology, and on PEs 0 and 2. There is no noise, and one
//! clock, as in the paper ("dynamic frequency adjustments are deactivated"). In the results a row is a
//! scenario and a machine a variant, whose speedup is the distant time divided by the close one. Limits:
//! those of the simulated machine; if a row has several times, one for each thread, the mean of the ratios
//! counts.

use super::finding;
use super::scenario::ScenarioResult;
use crate::bench::{Conditions, ModelMachine};
use crate::comparison::{BySeed, Comparison, VariantResult};
use crate::estimate::Estimate;
use crate::machine::{Machine, MachineSpec};
use crate::scenario::{ScenarioError, set};
use corewise_core::calibrate::{Executor, ExecutorError, Task};
use corewise_core::ids::PeId;
use corewise_core::kernels::{Kernel, Nas, ProblemClass};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

const REFERENCE: PeId = PeId(0);
const CLOSE: PeId = PeId(1);
const DISTANT: PeId = PeId(2);

/// Which kernels run on which machines.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacementsSpec {
    /// Each as `[machine]` of a scenario. PE 1 is close to PE 0, PE 2 distant.
    pub machine: Vec<toml::Table>,
    /// The kernels.
    pub kernel: Vec<RowSpec>,
}

/// One row: two kernels at a time, or a NAS benchmark with two threads.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowSpec {
    /// Its name in the results.
    pub name: String,
    /// The kernel of each PE, as `corewise calibrate` names them.
    pub kernels: Option<[Kernel; 2]>,
    /// The region of each, in KiB: a multiple of 4.
    #[serde(default)]
    pub region_kib: u64,
    /// A benchmark and its size.
    pub nas: Option<(Nas, ProblemClass)>,
}

impl PlacementsSpec {
    /// Returns the names of the machines.
    pub(super) fn machines(&self) -> impl Iterator<Item = &str> {
        self.machine.iter().filter_map(|machine| machine.get("name")?.as_str())
    }

    /// Returns a result for each selected row on those [machines](Self::tables).
    pub(super) fn results(
        &self,
        patterns: &[String],
        machines: Vec<toml::Table>,
    ) -> Result<Vec<ScenarioResult>, ScenarioError> {
        let machines: Vec<Machine> = machines.into_iter().map(machine).collect::<Result<_, _>>()?;
        let rows = self.kernel.iter().filter(|row| finding::names(patterns, &row.name));
        rows.map(|row| row.result(&machines)).collect()
    }

    /// Returns each machine as the `[machine]` of a scenario, with those settings.
    pub(super) fn tables(&self, settings: &[String]) -> Result<Vec<toml::Table>, ScenarioError> {
        let with_settings = |table: &toml::Table| {
            let mut all: toml::Table = [("machine".to_owned(), table.clone().into())].into_iter().collect();
            settings.iter().try_for_each(|setting| set(&mut all, setting))?;
            Ok(all)
        };
        self.machine.iter().map(with_settings).collect()
    }
}

/// Returns the machine of a scenario.
pub(super) fn machine(mut all: toml::Table) -> Result<Machine, ScenarioError> {
    let spec = all.remove("machine").unwrap_or_else(|| toml::Table::new().into());
    let spec: MachineSpec =
        spec.try_into().map_err(|error: toml::de::Error| ScenarioError::Syntax(error.to_string()))?;
    Ok(Machine::new(spec)?)
}

impl RowSpec {
    fn result(&self, machines: &[Machine]) -> Result<ScenarioResult, ScenarioError> {
        let fault =
            |problem: String| ScenarioError::Item { item: "kernel", name: self.name.clone(), problem };
        if self.kernels.is_some() == self.nas.is_some() {
            return Err(fault("give either `kernels` or `nas`".to_owned()));
        }
        let variant = |name: &str, speedup: f64| VariantResult {
            name: name.to_owned(),
            policy: "default".to_owned(),
            applications: Vec::new(),
            speedup: Some(Estimate::exact(speedup)),
            all_done_seconds: None,
            all_done_speedup: None,
            weighted_speedup: None,
            weighted_speedup_over_default: None,
            fairness: None,
            energy: None,
            migrations: BTreeMap::new(),
            settings: BTreeMap::new(),
            by_seed: BySeed::default(),
            guard: None,
            timeline: String::new(),
            timeline_seconds: 0.0,
        };
        // The baseline of all: the distant placement of the same machine.
        let mut variants = vec![variant("default", 1.0)];
        for machine in machines {
            let speedup = self.speedup(machine).map_err(|error| fault(error.to_string()))?;
            variants.push(variant(&machine.spec.name, speedup));
        }
        let comparison = Comparison {
            scenario: self.name.clone(),
            evidence: "simulated",
            machine: machines.iter().map(|m| m.spec.name.as_str()).collect::<Vec<_>>().join(", "),
            seed: 1,
            runs: 1,
            variants,
        };
        Ok(ScenarioResult { name: self.name.clone(), comparison })
    }

    /// Returns the time on distant PEs divided by that on close ones.
    fn speedup(&self, machine: &Machine) -> Result<f64, ExecutorError> {
        let quiet = Conditions { noise: 0.0, outliers: 0.0, clock_fall: 0.0, ..Conditions::default() };
        let mut machine = ModelMachine::new(machine.clone(), quiet, 1);
        let (close, distant) = (self.times(&mut machine, CLOSE)?, self.times(&mut machine, DISTANT)?);
        let ratios = close.iter().zip(&distant).map(|(close, distant)| close / distant);
        Ok(close.len() as f64 / ratios.sum::<f64>())
    }

    /// Returns the seconds for the same work of each thread, or of both together.
    fn times(&self, machine: &mut ModelMachine, other: PeId) -> Result<Vec<f64>, ExecutorError> {
        let pes = [REFERENCE, other];
        if let Some((nas, class)) = self.nas {
            return Ok(vec![machine.run_nas(nas, class, &pes)?.elapsed.as_secs_f64()]);
        }
        let tasks = pes.into_iter().zip(self.kernels.into_iter().flatten());
        let tasks: Vec<Task> =
            tasks.map(|(pe, kernel)| Task::new(pe, kernel, self.region_kib << 10)).collect();
        let repetition = machine.run(&tasks, Duration::from_millis(10))?;
        Ok(repetition.runs.iter().map(|run| 1.0 / run.rate()).collect())
    }
}
