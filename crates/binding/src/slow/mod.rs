//! Slowing PEs down, so that a machine of equal PEs can stand for an asymmetric one.
//!
//! Problem. What corewise does on asymmetric machines must be tried on machines that are not asymmetric, and
//! measurements need a known speed. Nothing may stay slow, however corewise ends.
//!
//! Approach. Either the clock is limited ([`Means::Frequency`], [`crate::frequency`]), or a real-time thread
//! bound to the PE takes a share of each period of a few milliseconds ([`Means::Threads`], [`duty`]), which
//! ends with its process. The resulting speed is measured ([`speed`]), alternating with the PE's own speed,
//! before it is used.
//!
//! Source. Slow cores by a lower frequency are usual in papers on asymmetric machines; the threads are ours.
//!
//! Limits. A PE with a slower clock is slower at the work of its core, not at waiting for memory; a PE whose
//! time is taken is slower at everything, in steps of a period. How the kernel sees the load of such a PE:
//! docs/emulate-slow.md.

pub mod duty;
pub mod error;
mod limits;
mod speed;

use self::duty::DutyCycle;
use self::error::{SlowError, TRIES};
use self::limits::Limits;
use crate::frequency::{self, SYSTEM};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::stats::median;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// The lowest speed: less would leave a PE no time for the kernel's own work.
pub const SPEED_MIN: f64 = 0.1;

/// The tolerated deviation of the measured speed from the requested one.
pub const TOLERANCE: f64 = 0.05;

/// The number of pairs of samples, one at full and one at reduced speed, of which a measurement is the
/// median. Slow changes of the machine affect both samples of a pair.
const PAIRS: u32 = 7;

/// The means of slowing PEs down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Means {
    /// Limits on their clocks.
    Frequency,
    /// Real-time threads that take a share of the PEs' time.
    Threads,
}

/// The requested slowdown.
#[derive(Debug, Clone)]
pub struct Wish {
    /// The PEs.
    pub pes: CpuSet,
    /// The requested share of their present speed, from [`SPEED_MIN`] to below 1.
    pub speed: f64,
    /// The period of which threads take a share.
    pub period: Duration,
    /// The means; `None` means the clock if possible, else threads.
    pub by: Option<Means>,
}

/// PEs that are slowed down; dropping restores their speed.
#[derive(Debug)]
pub struct SlowPes {
    brake: Brake,
    measured: Vec<(PeId, f64)>,
    why_not_frequency: Option<SlowError>,
    /// Held until the end.
    _locks: Vec<File>,
}

/// What slows the PEs down.
#[derive(Debug)]
enum Brake {
    Frequency(Box<Limits>),
    Threads(Vec<DutyCycle>),
}

/// The result for a PE.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Achieved {
    /// The PE.
    pub pe: PeId,
    /// Its speed as measured at the start, as a share of its own.
    pub measured: f64,
    /// The share of its time that was left since then, if threads take the rest: 0 to 1.
    pub time_left: Option<f64>,
}

impl SlowPes {
    /// Slows PEs down and measures their speed. After an error nothing stays changed.
    pub fn start(wish: &Wish) -> Result<SlowPes, SlowError> {
        let locks = wish.pes.iter().map(lock).collect::<Result<Vec<_>, _>>()?;
        let begin = |means| {
            let brake = match means {
                Means::Frequency => Brake::limits(wish)?,
                Means::Threads => Brake::threads(wish)?,
            };
            let measured = verify(wish, &brake)?;
            Ok((brake, measured))
        };
        let mut why_not_frequency = None;
        let (brake, measured) = match wish.by {
            Some(means) => begin(means),
            None => begin(Means::Frequency).or_else(|why_not| {
                why_not_frequency = Some(why_not);
                begin(Means::Threads)
            }),
        }?;
        Ok(SlowPes { brake, measured, why_not_frequency, _locks: locks })
    }

    /// Returns the means in use.
    pub fn by(&self) -> Means {
        match self.brake {
            Brake::Frequency(_) => Means::Frequency,
            Brake::Threads(_) => Means::Threads,
        }
    }

    /// Returns why the clock was not used, if it was tried.
    pub fn why_not_frequency(&self) -> Option<&SlowError> {
        self.why_not_frequency.as_ref()
    }

    /// Returns the measured speeds.
    pub fn achieved(&self) -> Vec<Achieved> {
        let duties: &[DutyCycle] = match &self.brake {
            Brake::Frequency(_) => &[],
            Brake::Threads(duties) => duties,
        };
        let time_left = |pe| Some(1.0 - duties.iter().find(|duty| duty.pe() == pe)?.taken_share()?);
        let of = |&(pe, measured): &(PeId, f64)| Achieved { pe, measured, time_left: time_left(pe) };
        self.measured.iter().map(of).collect()
    }
}

/// Locks a PE until the file is dropped. The lock is on the kernel's own directory, which all users share.
fn lock(pe: PeId) -> Result<File, SlowError> {
    let directory = File::open(Path::new(SYSTEM).join(format!("cpu{pe}")));
    let directory = directory.map_err(|error| SlowError::NoPe { pe, error })?;
    directory.try_lock().map_err(|_| SlowError::Taken { pe })?;
    Ok(directory)
}

impl Brake {
    fn limits(wish: &Wish) -> Result<Brake, SlowError> {
        let system = Path::new(SYSTEM);
        let plan = frequency::plan(system, &wish.pes, wish.speed)?;
        let limits = Limits::open(system, plan).map_err(SlowError::Limit)?;
        Ok(Brake::Frequency(Box::new(limits)))
    }

    fn threads(wish: &Wish) -> Result<Brake, SlowError> {
        let share = 1.0 - wish.speed;
        let allowed = duty::share_max(Path::new("/"));
        if share > allowed {
            return Err(SlowError::Throttled { allowed, share, speed_min: 1.0 - allowed });
        }
        let start = |pe| DutyCycle::start(pe, share, wish.period);
        Ok(Brake::Threads(wish.pes.iter().map(start).collect::<Result<_, _>>()?))
    }

    fn set(&self, on: bool) -> Result<(), SlowError> {
        match self {
            Brake::Frequency(limits) => limits.set(on).map_err(SlowError::Limit),
            Brake::Threads(duties) => {
                duties.iter().for_each(|duty| duty.set(on));
                Ok(())
            }
        }
    }
}

/// Returns the speeds as shares of the PEs' own, once all are close enough to the requested one. The brake is
/// on then.
fn verify(wish: &Wish, brake: &Brake) -> Result<Vec<(PeId, f64)>, SlowError> {
    let mut tries = 0;
    loop {
        let shares = measure(wish, brake)?;
        let miss = |&(_, share): &(PeId, f64)| (share - wish.speed).abs();
        let farthest = shares.iter().copied().max_by(|a, b| miss(a).total_cmp(&miss(b)));
        tries += 1;
        match farthest.filter(|farthest| miss(farthest) > TOLERANCE) {
            None => return Ok(shares),
            Some((pe, measured)) if tries == TRIES => {
                return Err(SlowError::Missed { pe, measured, wanted: wish.speed });
            }
            Some(_) => {}
        }
    }
}

fn measure(wish: &Wish, brake: &Brake) -> Result<Vec<(PeId, f64)>, SlowError> {
    let look = |on| {
        brake.set(on)?;
        // Wait for the effect: threads sleep for up to a period, clocks change within milliseconds.
        std::thread::sleep(2 * wish.period);
        speed::measure(&wish.pes, wish.period)
    };
    let mut ratios = vec![Vec::new(); wish.pes.len()];
    for _ in 0..PAIRS {
        let (own, slow) = (look(false)?, look(true)?);
        let pairs = own.iter().zip(&slow);
        ratios.iter_mut().zip(pairs).for_each(|(ratios, (own, slow))| ratios.push(slow / own));
    }
    let median = |ratios: Vec<f64>| median(&ratios).expect("there are pairs");
    Ok(wish.pes.iter().zip(ratios).map(|(pe, ratios)| (pe, median(ratios))).collect())
}
