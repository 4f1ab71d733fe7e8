//! The interface between decisions and a machine, and the only control loop.
//!
//! The real machine, recordings and simulated machines implement [`World`]. A policy that was tried in one
//! runs unchanged in the others.

use crate::engine::Engine;
use crate::ids::ThreadId;
use crate::machine_model::MachineModel;
use crate::observe::{EventBatch, EventKind, Input, Observation};
use crate::plan::Action;
use crate::time::Time;
use std::time::Duration;

pub mod scripted;

/// A machine with threads on it.
pub trait World {
    /// An error of the world as a whole. (Trouble with a single thread is an observation.)
    type Error;

    /// Returns the present time.
    fn now(&self) -> Time;

    /// Observes the complete state.
    fn observe(&mut self) -> Result<Observation, Self::Error>;

    /// Carries out actions. Their outcomes are part of the next observation.
    fn apply(&mut self, actions: &[Action]);

    /// Subscribes to events: from now on events of these kinds end a wait as soon as the world sees them.
    fn subscribe(&mut self, kinds: &[EventKind]);

    /// Takes note of how the engine would have it look from now on. A world in which looking costs nothing
    /// has nothing to do.
    fn tune(&mut self, look: Look);

    /// Returns a better model of the machine, once, when it has become known. A world that knows its machine
    /// from the start has none.
    fn better_machine(&mut self) -> Option<MachineModel>;

    /// Waits until `deadline`, or until a subscribed event happens.
    fn wait_until(&mut self, deadline: Time) -> Result<Wake, Self::Error>;
}

/// How an engine would have its world look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// For so long events are left alone after some were taken in.
    pub rest: Duration,
    /// The progress of this thread's process is measured.
    pub measured: Option<ThreadId>,
}

/// Why a wait ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Wake {
    /// The deadline was reached.
    Deadline,
    /// Events happened before the deadline.
    Events(EventBatch),
    /// Every application has ended, or the world was stopped: observe once more, then restore.
    Finished,
}

/// Runs the loop until the world is finished, then restores every mask and setting that is still changed.
///
/// `watch` receives each input with the actions that followed from it, for recorders and reports.
pub fn control_loop<W: World>(
    world: &mut W,
    engine: &mut Engine,
    mut watch: impl FnMut(&Input, &[Action], &Engine),
) -> Result<(), W::Error> {
    let result = steps(world, engine, &mut watch);
    // Restore after an error, too.
    world.apply(&engine.release_all());
    result
}

fn steps<W: World>(
    world: &mut W,
    engine: &mut Engine,
    watch: &mut impl FnMut(&Input, &[Action], &Engine),
) -> Result<(), W::Error> {
    let mut kinds = engine.event_kinds();
    world.subscribe(&kinds);
    let mut deadline = world.now() + engine.interval();
    loop {
        let wake = world.wait_until(deadline)?;
        if let Some(machine) = world.better_machine() {
            engine.set_machine(machine);
        }
        let finished = match wake {
            Wake::Events(batch) => {
                let actions = engine.react(&batch);
                world.apply(&actions);
                watch(&Input::Events(batch), &actions, engine);
                deadline = deadline.min(world.now() + engine.interval());
                continue;
            }
            Wake::Deadline => false,
            Wake::Finished => true,
        };
        let observation = world.observe()?;
        let mut actions = engine.step(&observation);
        if finished {
            // The run is over: keep only the actions that restore. A thread freed in this step no longer
            // counts as bound.
            actions.retain(|action| action.change.gives_back());
            world.apply(&actions);
            actions.clear();
        } else {
            world.apply(&actions);
            world.tune(Look { rest: engine.rest(), measured: engine.guarded() });
        }
        watch(&Input::Observation(observation), &actions, engine);
        // Rules may bring in other policies.
        if engine.event_kinds() != kinds {
            kinds = engine.event_kinds();
            world.subscribe(&kinds);
        }
        if finished {
            return Ok(());
        }
        deadline = (deadline + engine.interval()).max(world.now());
    }
}
