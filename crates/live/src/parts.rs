//! What a live world is made of.

use crate::application::{Application, Ends};
use crate::processes::Processes;
use crate::upgrade::Deferred;
use corewise_binding::actuators::Actuators;
use corewise_binding::shared::board::SharedBoard;
use corewise_counters::CounterSource;
use corewise_counters::progress::WorkMeter;
use corewise_discovery::Discovery;
use corewise_sys::signals::Signals;
use std::cell::RefCell;
use std::rc::Rc;

/// The parts of a live world.
pub struct Parts {
    /// What the user named, in order of [`AppId`](corewise_core::ids::AppId)s.
    pub applications: Vec<Application>,
    /// What ends the run.
    pub ends: Ends,
    /// The source of threads.
    pub discovery: Box<dyn Discovery>,
    /// The source of counters.
    pub counters: Box<dyn CounterSource>,
    /// What changes threads.
    pub actuators: Actuators,
    /// The processes with several threads, if their waits may be changed.
    pub processes: Option<Processes>,
    /// Measures progress if the counters do not; `None` if progress is not needed.
    pub work: Option<WorkMeter>,
    /// What all runs of the user share, if changes of waits are guarded. Here it is read, the loop's owner
    /// writes.
    pub board: Rc<RefCell<Option<SharedBoard>>>,
    /// The signals.
    pub signals: Signals,
    /// What a run that begins with light sources has yet to get.
    pub deferred: Option<Deferred>,
}
