//! The cells of a calibration: what is measured.
//!
//! The workloads are those of interdependencies §3: synchronisation, memory by region size, integer and
//! floating-point computation beside each other, conversions. Added are branches, the widest vector unit, and
//! a probe whether it slows a neighbour's clock; contention curves, the speed of each PE, latencies of single
//! pairs, checks of the classes, and the NAS benchmarks.
//!
//! Each cell is small enough that many passes fit into the budget: the interval comes from scatter between
//! passes, so passes are worth more than cells. On large machines the number of arms per pass is limited.

use super::cell::{Arm, Cell, ClassArms, Contrast, CurveArm, Place, Purpose};
use super::classes::{Classes, Star};
use super::{Mode, Settings, Task, whole_pages};
use crate::ids::PeId;
use crate::kernels::{Focus, Kernel, Nas, ProblemClass};
use crate::profile::{Load, Missing, Resource, Workload};
use crate::topology::{DomainKind, Topology, size};

/// The number of random pairs per class that check the representative.
pub(super) const CHECKS_FULL: usize = 3;
/// The same in a quick calibration.
pub(super) const CHECKS_QUICK: usize = 1;

/// The number of PEs up to which the latency of every pair is measured.
const ALL_PAIRS_PES_FULL: usize = 32;
/// The same in a quick calibration.
const ALL_PAIRS_PES_QUICK: usize = 16;

/// The number of pairs per cell of latencies.
const LATENCIES_PER_CELL: usize = 16;

/// The maximum number of repetitions in which the speeds of all PEs are measured once. On larger machines PEs
/// that are distant in logical order run at the same time, with kernels that share nothing across cores.
const SPEED_ARMS_MAX: usize = 64;

/// The kernels that distinguish fast from slow PEs: throughput of both kinds of unit, the clock, branches.
const SPEED_KERNELS: [Kernel; 4] = [Kernel::IntAdd, Kernel::IntAddChain, Kernel::FpAdd, Kernel::Branches];

/// The workloads that compare random pairs with the representative of their class.
const CHECK_WORKLOADS: [(Kernel, u64); 4] =
    [(Kernel::HandOver, 0), (Kernel::IntAdd, 0), (Kernel::FpAdd, 0), (Kernel::Read, 256 << 10)];

/// The share of a cache that each of two threads uses: together they exceed it, one alone does not.
const CACHE_SHARE: f64 = 0.6;

/// The size of the region that measures memory, as a multiple of the L3. It is limited so that the first
/// touch stays short.
const MEMORY_PER_L3: u64 = 4;
const MEMORY_REGION_MIN: u64 = 64 << 20;
const MEMORY_REGION_MAX_FULL: u64 = 1 << 30;
const MEMORY_REGION_MAX_QUICK: u64 = 256 << 20;

/// The cells, and what could not be planned.
#[derive(Debug, Default)]
pub(super) struct Planned {
    pub cells: Vec<Cell>,
    pub missing: Vec<Missing>,
}

/// Plans everything that the settings request for these classes.
pub(super) fn plan(topology: &Topology, classes: &Classes, settings: &Settings) -> Planned {
    let mut plan = Planned { cells: Vec::new(), missing: impossible(classes) };
    for (index, star) in classes.stars.iter().enumerate() {
        plan.cells.extend(workloads(settings).into_iter().filter_map(|workload| pair_cell(workload, star)));
        plan.cells.extend(settings.nas.iter().map(|&(nas, size)| nas_cell(nas, size, star)));
        let earlier = &classes.stars[..index];
        let is_new = |class: usize| !earlier.iter().any(|star| star.partners.iter().any(|it| it.0 == class));
        let partners = star.partners.iter().copied().filter(|&(class, _)| is_new(class)).collect();
        plan.add_contention(topology, &Star { partners, ..*star }, settings);
    }
    let logical = topology.pes_in_logical_order().into_iter();
    let pes: Vec<PeId> = logical.filter(|&pe| topology.allowed.contains(pe)).collect();
    plan.cells.extend(SPEED_KERNELS.map(|kernel| speed_cell(kernel, &pes)));
    let all_pairs_pes_max =
        if settings.mode == Mode::Quick { ALL_PAIRS_PES_QUICK } else { ALL_PAIRS_PES_FULL };
    plan.cells.extend(latency_cells(&pes, classes, all_pairs_pes_max));
    plan.cells.extend(check_cells(classes));
    plan.cells.retain(|cell| cell.kernels().all(|kernel| settings.kernels.contains(&kernel)));
    plan
}

/// Returns what the shape of the machine rules out.
fn impossible(classes: &Classes) -> Vec<Missing> {
    let missing = |what: &str, why: String| Missing { what: what.to_owned(), why };
    let deltas = "Δ of close against distant placement";
    match classes.classes.as_slice() {
        [] => vec![missing(
            "everything about pairs of PEs",
            "there is only one PE that may be used: allow more (cpuset, affinity mask, offline PEs)"
                .to_owned(),
        )],
        [only] => {
            let why = "so there is no close and distant partner; each pair is compared with running alone";
            vec![missing(deltas, format!("all pairs of PEs are alike ({}), {why}", only.name))]
        }
        several => {
            let is_covered = |a, b| {
                let has = |star: &Star, class| star.partners.iter().any(|&(index, _)| index == class);
                classes.stars.iter().any(|star| has(star, a) && has(star, b))
            };
            let pairs = (0..several.len()).flat_map(|a| (a + 1..several.len()).map(move |b| (a, b)));
            let reported = |(a, b): (usize, usize)| {
                let (close, distant) = (&several[a].name, &several[b].name);
                missing(
                    &format!("{deltas}, {close} against {distant}"),
                    "no PE has partners of both".to_owned(),
                )
            };
            pairs.filter(|&(a, b)| !is_covered(a, b)).map(reported).collect()
        }
    }
}

/// Returns the workloads of pairs.
fn workloads(settings: &Settings) -> Vec<Workload> {
    use Kernel::*;
    let quick = settings.mode == Mode::Quick;
    // 4 KiB to 128 MiB; in a quick calibration one size for each level that a machine usually has.
    let regions: Vec<u64> = if quick {
        [14, 18, 22, 26].map(|log| 1 << log).to_vec()
    } else {
        (12..=27).map(|log| 1 << log).collect()
    };
    let plain = |kernel| Workload::both(kernel, 0);
    let mut workloads: Vec<Workload> = [Alternate, FetchAdd, HandOver].map(plain).to_vec();
    for kernel in [Read, Write, Copy, LoadLatency] {
        workloads.extend(regions.iter().map(|&bytes| Workload::both(kernel, bytes)));
    }
    for (int, fp) in [(IntAdd, FpAdd), (IntAddChain, FpAddChain), (IntDiv, FpDiv), (IntDivChain, FpDivChain)]
    {
        workloads.extend([plain(int), plain(fp), mix(int, fp)]);
    }
    workloads.extend([ConvertF32, ConvertI24, Branches, WideFma].map(plain));
    // The chain of additions shows the clock that remains beside a neighbour with high power draw.
    workloads.push(mix(IntAddChain, WideFma));
    workloads
}

/// Returns a workload of two threads with one kernel each.
fn mix(first: Kernel, second: Kernel) -> Workload {
    let load = |kernel| Load { kernel, region_bytes: 0 };
    Workload { first: load(first), second: load(second) }
}

/// Returns the cell that measures a workload alone and on the pairs of a star; `None` if the star has no
/// pairs and running alone tells nothing.
fn pair_cell(workload: Workload, star: &Star) -> Option<Cell> {
    let kernel = workload.first.kernel;
    let joint = kernel.needs_partner();
    if star.partners.is_empty() && kernel.focus() != Focus::Memory {
        return None;
    }
    let mut arms = Vec::new();
    let mut add = |arm| {
        arms.push(arm);
        arms.len() - 1
    };
    let alone = (!joint).then(|| add(Arm::alone(star.reference, workload.first)));
    let mut class_arms = |&(class, partner): &(usize, PeId)| ClassArms {
        class,
        alone: (!joint).then(|| add(Arm::alone(partner, workload.second))),
        together: add(Arm::pair(workload, star.reference, partner)),
    };
    let classes: Vec<ClassArms> = star.partners.iter().map(&mut class_arms).collect();
    let rates: Vec<Contrast> =
        classes.iter().map(|class| arms[class.together].rate(class.together)).collect();
    let mut wanted = differences(&rates);
    if joint {
        wanted.extend(rates);
    } else {
        wanted.extend(classes.iter().filter_map(|class| class.against_alone(&arms, alone)));
    }
    if star.partners.is_empty() {
        wanted.extend(alone.map(|arm| Contrast::rate(arm, 0)));
    }
    let purpose = Purpose::Pair { workload, alone, classes };
    Some(Cell { label: workload.to_string(), purpose, arms, wanted })
}

/// Returns each rate minus each of those after it.
fn differences(rates: &[Contrast]) -> Vec<Contrast> {
    let with_later = |(at, a): (usize, &Contrast)| {
        let minus = |b: &Contrast| a.clone().minus(b.clone());
        rates[at + 1..].iter().map(minus).collect::<Vec<_>>()
    };
    rates.iter().enumerate().flat_map(with_later).collect()
}

/// Returns the cell that measures a NAS benchmark with one thread and on the pairs of a star.
fn nas_cell(nas: Nas, size: ProblemClass, star: &Star) -> Cell {
    let with =
        |partner: Option<PeId>| Arm::Nas(nas, size, std::iter::once(star.reference).chain(partner).collect());
    let pairs = star.partners.iter().map(|&(_, partner)| with(Some(partner)));
    let arms: Vec<Arm> = std::iter::once(with(None)).chain(pairs).collect();
    let rates: Vec<Contrast> = (0..arms.len()).map(|arm| Contrast::rate(arm, 0)).collect();
    let wanted = if rates.len() > 1 { differences(&rates) } else { rates };
    let classes = star.partners.iter().map(|&(class, _)| class).collect();
    let label = format!("{}.{size:?}", nas.name());
    Cell { label, purpose: Purpose::Nas { nas, size, classes }, arms, wanted }
}

/// Returns the cell that measures the speeds of all PEs by one kernel.
fn speed_cell(kernel: Kernel, pes: &[PeId]) -> Cell {
    let count = pes.len().min(SPEED_ARMS_MAX);
    let load = Load { kernel, region_bytes: 0 };
    let task = |&pe: &PeId| Task::new(pe, load.kernel, load.region_bytes);
    let arm = |first: usize| Arm::Tasks(pes.iter().skip(first).step_by(count).map(task).collect());
    let arms: Vec<Arm> = (0..count).map(arm).collect();
    let place = |(at, &pe): (usize, &PeId)| Place { pe, arm: at % count, task: at / count };
    let places: Vec<Place> = pes.iter().enumerate().map(place).collect();
    let against_first = |place: &Place| Contrast::rate(place.arm, place.task).minus(Contrast::rate(0, 0));
    let wanted = places.iter().map(against_first).collect();
    let label = format!("speed of each PE by {}", kernel.name());
    Cell { label, purpose: Purpose::Speeds { kernel, places }, arms, wanted }
}

/// Returns the cells that measure latencies: of every pair, or on large machines of the measured pairs of
/// each class.
fn latency_cells(pes: &[PeId], classes: &Classes, all_pairs_pes_max: usize) -> Vec<Cell> {
    let pairs: Vec<(PeId, PeId)> = if pes.len() <= all_pairs_pes_max {
        pes.iter().enumerate().flat_map(|(at, &a)| pes[at + 1..].iter().map(move |&b| (a, b))).collect()
    } else {
        classes.classes.iter().flat_map(|class| class.measured.iter().copied()).collect()
    };
    let kernel = Kernel::HandOver;
    let cell = |(index, pairs): (usize, &[(PeId, PeId)])| Cell {
        label: format!("latency of pairs, part {}", index + 1),
        purpose: Purpose::Latencies { kernel, pairs: pairs.to_vec() },
        arms: pairs.iter().map(|&(a, b)| Arm::pair(Workload::both(kernel, 0), a, b)).collect(),
        wanted: (0..pairs.len()).map(|arm| Contrast::rate(arm, 0)).collect(),
    };
    pairs.chunks(LATENCIES_PER_CELL).enumerate().map(cell).collect()
}

/// Returns the cells that compare the random pairs of each class with its representative.
fn check_cells(classes: &Classes) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (index, class) in classes.classes.iter().enumerate().filter(|(_, class)| class.measured.len() > 1) {
        for (kernel, region_bytes) in CHECK_WORKLOADS {
            let workload = Workload::both(kernel, region_bytes);
            let arms: Vec<Arm> = class.measured.iter().map(|&(a, b)| Arm::pair(workload, a, b)).collect();
            let against_first = |arm: usize| arms[arm].rate(arm).minus(arms[0].rate(0));
            let wanted = (1..arms.len()).map(against_first).collect();
            let label = format!("check of {} by {workload}", class.name);
            cells.push(Cell { label, purpose: Purpose::Check { class: index }, arms, wanted });
        }
    }
    cells
}

impl Planned {
    /// Adds the contention curves on the pairs of a star.
    fn add_contention(&mut self, topology: &Topology, star: &Star, settings: &Settings) {
        if star.partners.is_empty() {
            return;
        }
        for resource in Resource::ALL {
            match contention_load(resource, topology, star.reference, settings.mode) {
                Ok(load) => self.cells.push(contention_cell(resource, load, star, settings.mode)),
                Err(why) => {
                    self.missing.push(Missing { what: format!("contention curve of {resource}"), why });
                }
            }
        }
    }
}

/// Returns what victim and neighbour run to compete for a resource.
fn contention_load(
    resource: Resource,
    topology: &Topology,
    reference: PeId,
    mode: Mode,
) -> Result<Load, String> {
    let size_of = |kind: DomainKind| {
        let bytes = topology.domain_of(kind, reference).and_then(|domain| domain.bytes);
        bytes.filter(|&bytes| bytes > 0).ok_or("the size of this cache is not reported".to_owned())
    };
    let part_of = |kind| size_of(kind).map(|bytes| whole_pages(bytes as f64 * CACHE_SHARE));
    let load = |kernel, region_bytes| Load { kernel, region_bytes };
    Ok(match resource {
        Resource::Fpu => load(Kernel::FpAdd, 0),
        Resource::Integer => load(Kernel::IntAdd, 0),
        Resource::L1 => load(Kernel::Read, part_of(DomainKind::L1)?),
        Resource::L2 => load(Kernel::Read, part_of(DomainKind::L2)?),
        Resource::L3 => load(Kernel::Read, part_of(DomainKind::L3)?),
        Resource::MemoryBandwidth => {
            let region_max =
                if mode == Mode::Quick { MEMORY_REGION_MAX_QUICK } else { MEMORY_REGION_MAX_FULL };
            let l3 = size_of(DomainKind::L3).unwrap_or(0);
            let region = (MEMORY_PER_L3 * l3).next_power_of_two().clamp(MEMORY_REGION_MIN, region_max);
            if region < 2 * l3 {
                return Err(format!(
                    "a region of {} is not much larger than an L3 of {}",
                    size(region),
                    size(l3)
                ));
            }
            load(Kernel::Read, region)
        }
    })
}

/// Returns the cell of one resource's curves on the pairs of a star.
fn contention_cell(resource: Resource, load: Load, star: &Star, mode: Mode) -> Cell {
    let duties: &[f64] = if mode == Mode::Quick { &[0.5, 1.0] } else { &[0.25, 0.5, 0.75, 1.0] };
    let mut arms = vec![Arm::alone(star.reference, load)];
    let mut points = Vec::new();
    for &(class, partner) in &star.partners {
        for &duty in duties {
            points.push(CurveArm { class, duty, arm: arms.len() });
            let victim = Task::new(star.reference, load.kernel, load.region_bytes);
            arms.push(Arm::Tasks(vec![victim, Task { pe: partner, duty, ..victim }]));
        }
    }
    let slowdown = |point: &CurveArm| Contrast::rate(0, 0).minus(Contrast::rate(point.arm, 0));
    let wanted = points.iter().map(slowdown).collect();
    let label = format!("contention for {resource} by {load}");
    Cell { label, purpose: Purpose::Contention { resource, load, points }, arms, wanted }
}
