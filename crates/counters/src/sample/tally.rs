//! What a thread did at a sample, and what its samples add up to.

use super::ahead::Usual;
use super::spin::evidence::{History, Point, Shape};
use super::transfers::WorkAhead;
use corewise_core::observe::SampleReading;

/// What a thread did at a sample.
#[derive(Debug, Clone, Default)]
pub(super) struct Activity {
    pub wait: Option<(Point, Shape)>,
    /// Of a thread that does not wait there; `None` if it is not known.
    pub work: Option<Work>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Work {
    pub work_ahead: WorkAhead,
    pub memory: f64,
    pub branches: f64,
}

/// What a thread's samples add up to.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub reading: SampleReading,
    history: History,
    usual_fp: Usual,
    usual_vector: Usual,
}

impl Tally {
    /// Adds a sample in the kernel. A thread that yields waits for another.
    pub fn add_in_kernel(&mut self, yields: bool) {
        if yields {
            self.reading.spinning += 1;
            self.reading.yielding += 1;
        } else {
            self.reading.kernel += 1;
        }
    }

    /// Adds a sample in user code. `yields`: the code is of a runtime whose idle threads yield.
    pub fn add(&mut self, Activity { wait, work }: Activity, yields: bool) {
        let waits = match wait {
            Some((point, shape)) => self.history.may_wait(point, shape),
            None => self.history.work(),
        };
        match work {
            _ if waits => {
                self.reading.spinning += 1;
                self.reading.yielding += u64::from(yields);
            }
            None => self.reading.unknown += 1,
            Some(work) => self.work(&work),
        }
    }

    fn work(&mut self, Work { work_ahead, memory, branches }: &Work) {
        let (fp, vector) = (self.usual_fp.take(&work_ahead.fp), self.usual_vector.take(&work_ahead.vector));
        let reading = &mut self.reading;
        let (Some(fp), Some(vector)) = (fp, vector) else {
            reading.unknown += 1;
            return;
        };
        reading.judged += 1;
        reading.unseen += work_ahead.fp.unseen();
        reading.fp += fp;
        reading.vector += vector;
        reading.memory += memory;
        reading.branches += branches;
    }
}
