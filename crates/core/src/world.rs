//! The seam between decision and machine, and the only control loop.
//!
//! The real machine, a recording and a model machine implement [`World`]. A policy that was tried in one
//! runs unchanged in the others.

use crate::engine::Engine;
use crate::ids::ThreadId;
use crate::observe::{EventBatch, EventKind, Input, Observation};
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

    /// From now on events of these kinds end a wait as soon as they happen, as far as the world sees them.
    fn subscribe(&mut self, kinds: &[EventKind]);

    /// Somebody wants to know from now on how much the threads of this one's process do. What a world knows
    /// anyway it tells unasked.
    fn measure(&mut self, _of: ThreadId) {}

    /// Lets time pass until `deadline`, or less if something happened that was asked for.
    fn wait_until(&mut self, deadline: Time) -> Result<Wake, Self::Error>;
}

/// Why a wait ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Wake {
    /// The deadline came.
    Deadline,
    /// Something happened before.
    Events(EventBatch),
    /// Every application has ended, or the world was told to stop: observe once more, then restore.
    Finished,
}

/// Runs the loop until the world is finished, then gives back every mask and setting that is still changed.
///
/// `watch` sees each input and the actions that followed from it: the recorder and the report listen here.
pub fn control_loop<W: World>(
    world: &mut W,
    engine: &mut Engine,
    mut watch: impl FnMut(&Input, &[Action], &Engine),
) -> Result<(), W::Error> {
    let result = steps(world, engine, &mut watch);
    // Also after an error: what was changed is given back.
    world.apply(&engine.release_all());
    result
}

fn steps<W: World>(
    world: &mut W,
    engine: &mut Engine,
    watch: &mut impl FnMut(&Input, &[Action], &Engine),
) -> Result<(), W::Error> {
    world.subscribe(&engine.event_kinds());
    let mut deadline = world.now() + engine.interval();
    loop {
        let finished = match world.wait_until(deadline)? {
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
            // Nobody is bound any more, but whom this step frees the engine no longer counts as bound.
            actions.retain(|action| action.change.gives_back());
            world.apply(&actions);
            actions.clear();
        } else {
            world.apply(&actions);
            engine.guarded().into_iter().for_each(|thread| world.measure(thread));
        }
        watch(&Input::Observation(observation), &actions, engine);
        if finished {
            return Ok(());
        }
        deadline = (deadline + engine.interval()).max(world.now());
    }
}
