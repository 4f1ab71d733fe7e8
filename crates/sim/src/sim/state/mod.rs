//! What the simulation knows: a file for each part of it. The file of the same name outside of this folder
//! says what happens to it. Nothing here knows of the simulation as a whole.

pub(crate) mod beside;
pub(crate) mod demands;
pub(crate) mod dispatching;
pub(crate) mod gangs;
pub(crate) mod groups;
pub(crate) mod lanes;
pub(crate) mod lines;
pub(crate) mod memory;
pub(crate) mod news;
pub(crate) mod paces;
pub(crate) mod placement;
pub(crate) mod power;
pub(crate) mod process;
pub(crate) mod queues;
