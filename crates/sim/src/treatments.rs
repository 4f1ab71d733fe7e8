//! How applications are treated, as by the rules and clients of a daemon: from when on which treatment holds.

use crate::machine::Machine;
use crate::program::duration;
use crate::sim::Sim;
use crate::variant::WaitsSpec;
use corewise_core::observe::{Event, Treatment, Treatments};
use corewise_core::time::Time;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// A treatment as written in a scenario.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TreatmentSpec {
    /// From when on it holds, until the next one does.
    #[serde(deserialize_with = "duration")]
    pub from: Duration,
    /// The PEs that the application must not leave, in any notation of `corewise topo --pes`.
    pub pes: Option<String>,
    /// Whether a guard measures what its placement gains.
    pub guard: bool,
    /// What may be changed about its waits.
    pub waits: WaitsSpec,
    /// Why it is not placed, if it is not.
    pub left_alone: Option<String>,
}

impl Default for TreatmentSpec {
    fn default() -> TreatmentSpec {
        let waits = WaitsSpec::Auto;
        TreatmentSpec { from: Duration::ZERO, pes: None, guard: true, waits, left_alone: None }
    }
}

impl TreatmentSpec {
    /// Returns from when on it holds, and the treatment.
    pub fn on(&self, machine: &Machine) -> Result<(Time, Treatment), String> {
        let treatment = Treatment {
            pes: self.pes.as_ref().map(|pes| machine.usable(pes)).transpose()?,
            guard: self.guard,
            waits: self.waits.changes(),
            left_alone: self.left_alone.as_deref().map(Into::into),
            ..Treatment::default()
        };
        Ok((Time(0) + self.from, treatment))
    }
}

/// What was reported of the treatments.
#[derive(Debug, Default)]
pub(crate) struct Reported(Arc<Treatments>);

impl Reported {
    /// Returns how all processes are treated now.
    pub fn all(&mut self, sim: &Sim) -> Arc<Treatments> {
        self.0 = Arc::new(in_force(sim));
        Arc::clone(&self.0)
    }

    /// Returns an event for each process that is treated in another way than was reported.
    pub fn news(&mut self, sim: &Sim) -> Vec<Event> {
        let before = std::mem::take(&mut self.0);
        let now = self.all(sim);
        let pids: BTreeSet<u32> = before.keys().chain(now.keys()).copied().collect();
        let changed = pids.into_iter().filter(|pid| before.get(pid) != now.get(pid));
        changed.map(|pid| Event::Treated { pid, treatment: now.get(&pid).cloned() }).collect()
    }
}

fn in_force(sim: &Sim) -> Treatments {
    if sim.apps.iter().all(|app| app.plan.treatments.is_empty()) {
        return Treatments::new();
    }
    let living = sim.present.iter().map(|&index| &sim.threads[index]).filter(|thread| !thread.ended);
    let treated = living.filter_map(|thread| {
        let mut begun = sim.apps[thread.app].plan.treatments.iter().filter(|(from, _)| *from <= sim.now);
        let (_, treatment) = begun.next_back()?;
        Some((thread.pid, Arc::new(treatment.clone().if_special()?)))
    });
    treated.collect()
}
