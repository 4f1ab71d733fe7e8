//! One run of a cell: how long its programs take, and what corewise changes meanwhile.

use super::{Cell, Way};
use crate::machine::Machine;
use crate::scenario::{ScenarioError, Variant, WaitsSpec};
use crate::world::SimWorld;
use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::ids::ThreadId;
use corewise_core::observe::Input;
use corewise_core::plan::{Action, Change, SettingKind};
use corewise_core::policy::{self, PolicySpec};
use corewise_core::time::Time;
use corewise_core::world::control_loop;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a run showed.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Seconds until all copies of the programs had ended; the cell's limit if they had not.
    pub seconds: f64,
    /// Whether they had not.
    pub is_cut_off: bool,
    /// The changes of waits, without those at the end of the run.
    pub changes: Vec<Changed>,
    /// The number of events that were simulated: what the run costs.
    pub events: u64,
}

/// A change of a process's waits.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// When it was made.
    pub at: Time,
    /// The copy of the program, by its number from 1, such as `cg 2`.
    pub program: String,
    /// What was changed, and to what.
    pub change: Change,
    /// Why.
    pub reason: Arc<str>,
}

impl Changed {
    /// Returns what kind of setting was changed.
    pub fn kind(&self) -> Option<SettingKind> {
        self.change.setting_kind()
    }
}

/// Runs a cell. `watch` receives everything that the engine takes in, with the actions that follow.
pub fn run(
    cell: &Cell,
    way: Way,
    seed: u64,
    mut watch: impl FnMut(&Input, &[Action]),
) -> Result<Outcome, ScenarioError> {
    let scenario = cell.scenario(way);
    let waits = if way == Way::Corewise { WaitsSpec::Auto } else { WaitsSpec::Off };
    let variant = Variant { waits, ..Variant::policy(PolicySpec::from(&policy::DEFAULT)) };
    let model = Machine::new(scenario.machine.clone())?.reported_model();
    let config = EngineConfig { waits: waits.changes(), ..EngineConfig::with_interval(scenario.interval) };
    let policy = variant.policy.build(None).map_err(|error| ScenarioError::Item {
        item: "variant",
        name: variant.name.clone(),
        problem: error.to_string(),
    })?;
    let mut engine = Engine::new(model, policy, config);
    let mut world = SimWorld::new(scenario.simulation(&variant, seed)?, seed);
    let mut actions: Vec<(Time, Action)> = Vec::new();
    let Ok(()) = control_loop(&mut world, &mut engine, |input, made, _| {
        let at = match input {
            Input::Observation(observation) => observation.at,
            Input::Events(batch) => batch.at,
        };
        watch(input, made);
        let of_waits = made.iter().filter(|action| action.change.setting_kind().is_some());
        actions.extend(of_waits.map(|action| (at, action.clone())));
    });
    let names = names(&world);
    let name_of = |thread: ThreadId| names.get(&thread).cloned().unwrap_or_else(|| thread.to_string());
    let changes = actions.into_iter().map(|(at, Action { thread, change, reason })| Changed {
        at,
        program: name_of(thread),
        change,
        reason,
    });
    let changes = changes.collect();
    let apps = world.sim().apps.iter().filter(|app| !app.plan.background);
    let ends: Option<Vec<f64>> = apps.map(|app| app.completions.first().copied()).collect();
    let seconds = ends.as_ref().map(|ends| ends.iter().copied().fold(0.0, f64::max));
    Ok(Outcome {
        seconds: seconds.unwrap_or(cell.limit().as_secs_f64()),
        is_cut_off: seconds.is_none(),
        changes,
        events: world.sim().events(),
    })
}

/// Returns the copies of programs by the IDs of their threads.
fn names(world: &SimWorld) -> BTreeMap<ThreadId, String> {
    let sim = world.sim();
    let number = |index: usize| {
        let before = sim.apps[..=index].iter();
        before.filter(|app| app.plan.name == sim.apps[index].plan.name).count()
    };
    let name = |index: usize| format!("{} {}", sim.apps[index].plan.name, number(index));
    sim.threads.iter().map(|thread| (thread.id, name(thread.app))).collect()
}
