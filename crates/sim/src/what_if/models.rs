//! The machines of a what-if: the recorded one, from its calibration or else from the recording, and the
//! target.

use super::error::WhatIfError;
use super::history::{Histories, Known, Segment};
use super::question::Question;
use crate::machine::{Machine, MachineSpec, Pmu, SpeedSpec};
use crate::measured::machine;
use crate::sim::sched::Os;
use corewise_core::ids::PeId;
use corewise_core::machine_model::MachineModel;
use corewise_core::topology::{CpuKind, ReportedSpeed, Topology};

/// The name of a machine that is only known from the recording.
const NAME: &str = "the recorded machine";

/// Clocks of kinds of PEs that differ by less count as equal.
const SAME_CLOCK: f64 = 0.05;

/// A machine with the system's scheduler.
pub struct Model {
    /// The parameters.
    pub spec: MachineSpec,
    /// Its shape.
    pub topology: Topology,
    /// The scheduler.
    pub os: Os,
    /// Whether it is the recording's machine: only there the masks that threads set themselves have a
    /// meaning.
    pub is_recorded: bool,
}

/// Both machines.
pub struct Models {
    /// The recording's machine. Its counters have no noise.
    pub recorded: Model,
    /// The target machine.
    pub wished: Model,
    /// Recorded core cycles by thread and segment.
    pub cycles: Vec<Vec<f64>>,
    /// Limits of the prediction, in words.
    pub notes: Vec<String>,
}

/// Creates both.
pub fn of(question: &Question<'_>, histories: &Histories) -> Result<Models, WhatIfError> {
    let mut notes = Vec::new();
    let allowed = histories.allowed.clone();
    let recorded_shape = &question.recording.header.topology;
    let wished = question.machine.clone().map(Machine::new).transpose()?;
    let calibrated = question.recording.header.profile.as_deref().and_then(|profile| machine(profile).ok());
    let recorded_on = question.recorded_on.clone().or_else(|| calibrated.map(|machine| machine.spec));
    let mut recorded = match recorded_on {
        None => {
            let ghz = wished.as_ref().map(|machine| machine.spec.ghz);
            let shape = Topology { allowed, ..recorded_shape.clone() };
            Machine::with_topology(by_recording(histories, &shape, ghz, &mut notes)?, shape)?
        }
        Some(spec) => {
            let Machine { model: MachineModel { topology, .. }, spec, .. } = Machine::new(spec)?;
            if topology.pes != recorded_shape.pes {
                let (given, recorded) = (topology.pes.to_string(), recorded_shape.pes.to_string());
                return Err(WhatIfError::OtherMachine { given, recorded });
            }
            Machine::with_topology(spec, Topology { allowed, ..topology })?
        }
    };
    let cycles = cycles(histories, &recorded);
    let (noise, os) = (recorded.spec.pmu, Os::default());
    recorded.spec.pmu = Pmu { noise: 0.0, counting: 1.0 };
    let model = |machine: Machine, is_recorded| Model {
        spec: machine.spec,
        topology: machine.model.topology,
        os,
        is_recorded,
    };
    let is_recorded = wished.is_none();
    let wished = wished.unwrap_or_else(|| {
        let mut same = recorded.clone();
        same.spec.pmu = noise;
        same
    });
    notes.extend(limits(question, histories, is_recorded));
    Ok(Models { recorded: model(recorded, true), wished: model(wished, is_recorded), cycles, notes })
}

/// Returns the recorded machine as the recording shows it.
fn by_recording(
    histories: &Histories,
    shape: &Topology,
    wished_ghz: Option<f64>,
    notes: &mut Vec<String>,
) -> Result<MachineSpec, WhatIfError> {
    let mut spec = MachineSpec { shape: Some(shape.clone()), ..MachineSpec::plain(&shape.origin) };
    spec.name = NAME.to_owned();
    notes.push(
        "latencies, bandwidth and conflicts of the recorded machine are the simulator's defaults; \
         --recorded-on takes its profile instead"
            .to_owned(),
    );
    let clocks: Vec<Option<f64>> =
        shape.kinds.iter().map(|kind| clock_on(histories, |pe| kind.pes.contains(pe))).collect();
    if let Some(known) = clocks.iter().copied().collect::<Option<Vec<f64>>>().filter(|all| !all.is_empty()) {
        spec.ghz = known.iter().copied().fold(0.0, f64::max);
        let speeds = shape.kinds.iter().zip(known).map(|(kind, clock)| (kind, clock / spec.ghz));
        let differs = speeds.filter(|(_, speed)| (speed - 1.0).abs() > SAME_CLOCK);
        spec.speeds = differs
            .map(|(kind, speed)| SpeedSpec { pes: kind.pes.to_string(), speed, reported: None })
            .collect();
        return Ok(spec);
    }
    // On some kinds no thread ran for long: what the machine reports of its kinds must do.
    spec.speeds = SpeedSpec::reported(NAME, shape).map_err(WhatIfError::UnknownMachine)?;
    let relative = |kind: &CpuKind| kind.speed.as_ref().map_or(1.0, ReportedSpeed::relative);
    let kinds = shape.kinds.iter().zip(&clocks);
    let fastest = kinds.filter_map(|(kind, clock)| Some((*clock)? / relative(kind))).reduce(f64::max);
    if let Some(speed) = shape.kinds.first().and_then(|kind| kind.speed.as_ref()) {
        notes.push(format!("the speeds of the recorded machine's PEs are those by its {}", speed.source));
    }
    if let Some(ghz) = fastest.or_else(|| clock_on(histories, |_| true)) {
        spec.ghz = ghz;
    } else if let Some(ghz) = wished_ghz {
        spec.ghz = ghz;
        notes.push(
            "the clock of the recorded machine is not known: its fastest PEs are taken to be as fast as \
             those of speed 1 of the other machine"
                .to_owned(),
        );
    }
    Ok(spec)
}

/// Returns the median rate of the cycle counter of threads that stayed on such PEs, weighted by CPU time.
fn clock_on(histories: &Histories, on: impl Fn(PeId) -> bool) -> Option<f64> {
    let stayed = |pair: &[Segment]| {
        let both = [&pair[0], &pair[1]].iter().all(|segment| segment.pe.is_some_and(&on));
        both.then_some((pair[1].cycles_per_ns?, pair[1].cpu_ns))
    };
    let pairs = histories.threads.iter().flat_map(|thread| thread.segments.windows(2));
    let mut rates: Vec<(f64, u64)> = pairs.filter_map(stayed).filter(|(rate, _)| *rate > 0.0).collect();
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = rates.iter().map(|(_, ns)| ns).sum::<u64>() / 2;
    let mut below = 0;
    let middle = rates.iter().find(|(_, ns)| {
        below += ns;
        below > half
    });
    middle.map(|(rate, _)| *rate)
}

/// Returns the core cycles of each segment: as counted, else the time at the clock of the PE where it was
/// seen.
fn cycles(histories: &Histories, machine: &Machine) -> Vec<Vec<f64>> {
    let of = |segment: &Segment| {
        let speed = segment.pe.and_then(|pe| machine.model.pes.get(pe.0 as usize)).map_or(1.0, |pe| pe.speed);
        segment.cpu_ns as f64 * segment.cycles_per_ns.unwrap_or(machine.spec.ghz * speed)
    };
    histories.threads.iter().map(|thread| thread.segments.iter().map(of).collect()).collect()
}

/// Returns which demands of the threads were not measured by any counter, with the affected share of the CPU
/// time.
pub fn unknown(histories: &Histories) -> Vec<String> {
    type IsUnknown = fn(&Known) -> bool;
    let figures: [(&str, IsUnknown); 3] = [
        ("FPU usage", |known| known.fpu.is_none()),
        ("L2 misses", |known| known.l2_misses.is_none()),
        ("instructions per cycle", |known| known.ipc.is_none()),
    ];
    let segments = || histories.threads.iter().flat_map(|thread| &thread.segments);
    let all: u64 = segments().map(|segment| segment.cpu_ns).sum();
    let mut words: Vec<String> = figures
        .into_iter()
        .filter_map(|(name, is_unknown)| {
            let of: u64 = segments().filter(|s| is_unknown(&s.known)).map(|s| s.cpu_ns).sum();
            let percent = 100.0 * of as f64 / all.max(1) as f64;
            (percent >= 1.0).then(|| format!("{name}: not known for {percent:.0} % of the CPU time"))
        })
        .collect();
    words.push("working sets, and which L2 misses the L3 served: never known".to_owned());
    words.push("which thread waited for which: not known".to_owned());
    words
}

/// Returns the limits of this prediction.
fn limits(question: &Question<'_>, histories: &Histories, is_recorded: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if question.recording.truncated {
        notes.push("the recording breaks off: its end is not predicted".to_owned());
    }
    let nothing_counted = histories.threads.iter().flat_map(|thread| &thread.segments).all(|segment| {
        let Known { fpu, ipc, l2_misses, .. } = segment.known;
        fpu.is_none() && ipc.is_none() && l2_misses.is_none()
    });
    if nothing_counted {
        notes.push(
            "the recording has no usable counters: what threads ask of shared units and caches is \
                    assumed altogether"
                .to_owned(),
        );
    }
    if histories.threads.iter().any(|thread| !thread.knows_queueing) {
        notes.push(
            "for some threads, time waiting for a PE is not known and counts as other waiting".to_owned(),
        );
    }
    let pinned = histories.threads.iter().filter(|thread| thread.pinned.is_some()).count();
    if pinned > 0 && !is_recorded {
        notes.push(format!(
            "{pinned} threads were placed by their program or user; on the other machine \
                            they are free"
        ));
    }
    notes
}
