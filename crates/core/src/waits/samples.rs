//! What samples tell of how threads wait.

use crate::ids::ThreadId;
use crate::observe::SampleReading;
use std::collections::HashMap;

/// What samples have told of a thread so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Samples {
    /// How many there are.
    pub all: u64,
    /// Those in which it spun.
    pub spinning: u64,
    /// Those of them in which it gave its PE away meanwhile.
    pub giving_way: u64,
    /// Those in the kernel.
    pub kernel: u64,
}

impl From<&SampleReading> for Samples {
    fn from(reading: &SampleReading) -> Samples {
        let SampleReading { judged, spinning, giving_way, kernel, unknown, .. } = *reading;
        Samples { all: judged + spinning + kernel + unknown, spinning, giving_way, kernel }
    }
}

/// What the samples of a process's threads say together.
#[derive(Debug)]
pub(super) struct Shares {
    /// How many there are.
    pub all: u64,
    /// The share in which they spun, as far as that is no good to others.
    pub spinning: f64,
    /// The share in which they did, or were in the kernel in order to wait or to wake others.
    pub wasted: f64,
}

impl Shares {
    /// Whether a share of these samples is so large, and not by chance: it is two standard errors above.
    pub fn is_at_least(&self, share: f64, least: f64) -> bool {
        share >= least + 2.0 * (least * (1.0 - least) / self.all as f64).sqrt()
    }

    /// Of those that came between two looks. (By their number, not by thread: an idle one has none, whatever
    /// it did last.) If its library lets waiting threads give way, whom others need does so by itself. If
    /// its threads block often, that is what they do in the kernel, mostly.
    pub fn between(
        before: &HashMap<ThreadId, Samples>,
        now: &HashMap<ThreadId, Samples>,
        gives_way: bool,
        blocks: bool,
    ) -> Shares {
        let (mut all, mut spinning, mut kernel) = (0, 0u64, 0);
        for (thread, now) in now {
            let before = before.get(thread).copied().unwrap_or_default();
            all += now.all.saturating_sub(before.all);
            spinning += now.spinning.saturating_sub(before.spinning);
            kernel += now.kernel.saturating_sub(before.kernel);
            if gives_way {
                spinning = spinning.saturating_sub(now.giving_way.saturating_sub(before.giving_way));
            }
        }
        let share = |of: u64| of as f64 / all as f64;
        Shares {
            all,
            spinning: share(spinning),
            wasted: share(if blocks { spinning + kernel } else { spinning }),
        }
    }
}
