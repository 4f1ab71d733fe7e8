//! The seam between decision and machine, and the only control loop.
//!
//! The real machine, a recording and a model machine implement [`World`]. A policy that was tried in one
//! runs unchanged in the others.

use crate::engine::Engine;
use crate::observe::Observation;
use crate::plan::Action;
use crate::time::Time;

pub mod scripted;

/// A machine with threads on it.
pub trait World {
    /// What can go wrong with the world as a whole. (A single thread's trouble is an observation.)
    type Error;

    /// The time now.
    fn now(&self) -> Time;

    /// Looks at everything once.
    fn observe(&mut self) -> Result<Observation, Self::Error>;

    /// Carries out actions. Their outcomes are part of the next observation.
    fn apply(&mut self, actions: &[Action]);

    /// Lets time pass until `deadline`, or less if something happened that wants a look at once.
    fn wait_until(&mut self, deadline: Time) -> Result<Wake, Self::Error>;
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// The deadline came.
    Deadline,
    /// Every application has ended, or the world was told to stop: observe once more, then restore.
    Finished,
}

/// Runs the loop until the world is finished, then gives back every mask and setting that is still changed.
///
/// `watch` sees each observation and the actions that followed from it: the recorder and the report listen
/// here.
pub fn control_loop<W: World>(
    world: &mut W,
    engine: &mut Engine,
    mut watch: impl FnMut(&Observation, &[Action], &Engine),
) -> Result<(), W::Error> {
    let result = steps(world, engine, &mut watch);
    // Also after an error: what was changed is given back.
    world.apply(&engine.release_all());
    result
}

fn steps<W: World>(
    world: &mut W,
    engine: &mut Engine,
    watch: &mut impl FnMut(&Observation, &[Action], &Engine),
) -> Result<(), W::Error> {
    let mut deadline = world.now();
    loop {
        deadline = (deadline + engine.interval()).max(world.now());
        let wake = world.wait_until(deadline)?;
        let observation = world.observe()?;
        let mut actions = engine.step(&observation);
        if wake == Wake::Finished {
            // Nobody is bound any more, but whom this step frees the engine no longer counts as bound.
            actions.retain(|action| action.change.gives_back());
            world.apply(&actions);
            watch(&observation, &[], engine);
            return Ok(());
        }
        world.apply(&actions);
        watch(&observation, &actions, engine);
    }
}
