//! Branch records of running programs: windows of consecutively executed branches, with or without hardware.
//!
//! Three samplers record the same windows ([`corewise_paths::window`]). [`lbr`] reads the processor's own
//! branch records. [`shadow`] needs no hardware: now and then it emulates what a thread will do next, while
//! the thread is paused: preempted (`preempt`) or, where that is not permitted, stopped with `ptrace`
//! (`tracer`). [`step`] really executes a stopped thread's next branches one instruction at a time, which is
//! slow, and serves to verify the others. [`record()`] selects one of them and runs it on a command or a
//! running process.

#[cfg(target_arch = "x86_64")]
pub mod busy;
pub mod collect;
mod error;
#[cfg(target_arch = "x86_64")]
mod event;
pub mod lbr;
#[cfg(target_arch = "x86_64")]
mod mapped;
pub mod modules;
mod options;
#[cfg(target_arch = "x86_64")]
mod preempt;
#[cfg(target_arch = "x86_64")]
mod ptrace;
#[cfg(target_arch = "x86_64")]
mod record;
mod recorded;
#[cfg(target_arch = "x86_64")]
pub mod shadow;
#[cfg(target_arch = "x86_64")]
pub mod step;
mod target;
pub mod trace;
#[cfg(target_arch = "x86_64")]
mod tracer;
#[cfg(target_arch = "x86_64")]
pub mod verify;

pub use error::BranchError;
pub use options::{Backend, LONG_BRANCHES, LONG_PER_SECOND_MAX, Options, Target};
pub use recorded::{Progress, Recorded};

/// Records a target's windows until it ends, or as long as the options say. `on_progress` is called some
/// times per second.
///
/// A command must be started while this process has one thread (see [`corewise_sys::launch::prepare`]).
pub fn record(
    target: Target<'_>,
    options: &Options,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Recorded, BranchError> {
    if let Target::Pid(pid) = target
        && !target::is_alive(pid)
    {
        return Err(BranchError::NoProcess(pid));
    }
    let is_many = match target {
        Target::Command(_) | Target::Pid(_) => false,
        Target::Cgroup(_) | Target::System => true,
    };
    let mut recorded = match options.backend {
        Backend::Auto | Backend::Shadow if is_many => record_many(target, options, on_progress),
        backend if is_many => Err(BranchError::OneProcessOnly(backend)),
        Backend::Lbr => lbr::record(target, options, on_progress),
        Backend::Auto if lbr::probe().is_ok() => lbr::record(target, options, on_progress),
        Backend::Auto | Backend::Shadow => record_preempted(target, options, on_progress),
        Backend::ShadowPtrace => record_stopped(target, options, false, on_progress),
        Backend::Step => record_stopped(target, options, true, on_progress),
    }?;
    let Recorded { recording, pauses, .. } = &mut recorded;
    recording.period_ns = u64::try_from(options.period.as_nanos()).unwrap_or(u64::MAX);
    recording.branches_max = options.branches_max;
    if let (Some(median), Some(high)) = (pauses.quantile(0.5), pauses.quantile(0.95)) {
        let us = |ns: u32| f64::from(ns) / 1e3;
        let (count, median, high) = (pauses.count(), us(median), us(high));
        recording.notes.push(format!(
            "Threads were paused {count} times for {median:.0} µs (median; 95 %: {high:.0} µs)."
        ));
    }
    Ok(recorded)
}

#[cfg(target_arch = "x86_64")]
fn record_preempted(
    target: Target<'_>,
    options: &Options,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Recorded, BranchError> {
    match preempt::Preempting::prepare() {
        Ok(preempting) => preempting.record(target, options, on_progress),
        Err(reason) => {
            let mut recorded = record_stopped(target, options, false, on_progress)?;
            recorded.recording.notes.push(format!(
                "Threads were stopped with ptrace, which costs them more, as preempting them is not \
                 possible: {reason}."
            ));
            Ok(recorded)
        }
    }
}

/// Processes of a group or of the whole system are never stopped or traced.
#[cfg(target_arch = "x86_64")]
fn record_many(
    target: Target<'_>,
    options: &Options,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Recorded, BranchError> {
    let preempting = preempt::Preempting::prepare().map_err(BranchError::ManyNeedPreempting)?;
    preempting.record(target, options, on_progress)
}

#[cfg(not(target_arch = "x86_64"))]
fn record_many(_: Target<'_>, _: &Options, _: &mut dyn FnMut(Progress)) -> Result<Recorded, BranchError> {
    Err(BranchError::ManyNeedPreempting("it is for x86-64 only".to_owned()))
}

#[cfg(not(target_arch = "x86_64"))]
fn record_preempted(
    target: Target<'_>,
    options: &Options,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Recorded, BranchError> {
    record_stopped(target, options, false, on_progress)
}

#[cfg(target_arch = "x86_64")]
fn record_stopped(
    target: Target<'_>,
    options: &Options,
    step: bool,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Recorded, BranchError> {
    if step {
        // The thread would stand still for a tenth of a second.
        let options = &Options { long_one_in: Some(0), ..options.clone() };
        return record::record(target, options, "step", &mut step::Stepper::default(), on_progress);
    }
    let shadow = shadow::sampler::Shadow::new()
        .map_err(|errno| BranchError::System { what: "cannot make room for thunks", errno });
    record::record(target, options, "shadow-ptrace", &mut shadow?, on_progress)
}

#[cfg(not(target_arch = "x86_64"))]
fn record_stopped(
    _: Target<'_>,
    _: &Options,
    step: bool,
    _: &mut dyn FnMut(Progress),
) -> Result<Recorded, BranchError> {
    let sampler = if step { "step" } else { "shadow" };
    Err(BranchError::Unavailable { sampler, reason: "it is for x86-64 only".to_owned() })
}
