//! No counters: times and states only. Policies that need more find `None` and say so.

use super::source::CounterSource;
use corewise_core::observe::CounterReading;
use corewise_core::policy::Reading;
use corewise_discovery::NewThread;

/// The source that counts nothing.
#[derive(Debug, Default)]
pub struct NoCounters;

impl CounterSource for NoCounters {
    fn name(&self) -> String {
        "none".into()
    }

    fn gives(&self, _: Reading) -> bool {
        false
    }

    fn watch(&mut self, _thread: &NewThread) {}

    fn drain(&mut self) {}

    fn read(&mut self, _tid: u32) -> Option<CounterReading> {
        None
    }

    fn last(&mut self, _tid: u32) -> Option<CounterReading> {
        None
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}
