use super::*;
use crate::machine::MachineSpec;

/// The paper's machines (Table 1) by the shapes of its Figure 1.
const ZAMBEZI: &str = "pack:1 l3:1(size=8MB) l2:2(size=2MB) module:1 core:2 pu:1";
const YORKFIELD: &str = "pack:1 l2:2(size=3MB) core:2 pu:1";
const SANDYBRIDGE: &str = "pack:1 l3:1(size=8MB) l2:2(size=256kB) core:1 pu:2";
const GAINESTOWN: &str = "numa:2 pack:1 l3:1(size=8MB) l2:2(size=256kB) core:1 pu:1";
const ITALY: &str = "numa:2 pack:1 l2:2(size=1MB) core:1 pu:1";

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn quiet(shape: &str) -> ModelMachine {
    let machine = Machine::new(MachineSpec::plain(shape)).expect("a machine");
    let exact = Conditions { noise: 0.0, outliers: 0.0, clock_fall: 0.0, ..Conditions::default() };
    ModelMachine::new(machine, exact, 1)
}

/// Both tasks' rates, the first on PE 0, the second on another one.
fn rates(machine: &mut ModelMachine, first: Kernel, second: Kernel, region: u64, other: u32) -> [f64; 2] {
    let tasks = [Task::new(PeId(0), first, region), Task::new(PeId(other), second, region)];
    let repetition = machine.run(&tasks, Duration::from_millis(1)).expect("a repetition");
    [repetition.runs[0].rate(), repetition.runs[1].rate()]
}

/// Δ of the close PE 1 against the distant PE 2, by the mean of both threads' times.
fn delta(shape: &str, first: Kernel, second: Kernel, region: u64) -> f64 {
    let mut machine = quiet(shape);
    let mut time = |other| rates(&mut machine, first, second, region, other).map(|rate| 1.0 / rate);
    let (close, distant) = (time(1), time(2));
    let ratio = (close[0] / distant[0] + close[1] / distant[1]) / 2.0;
    if ratio > 1.0 { 1.0 - ratio } else { 1.0 / ratio - 1.0 }
}

fn delta_of_both(shape: &str, kernel: Kernel, region: u64) -> f64 {
    delta(shape, kernel, kernel, region)
}

#[test]
fn close_synchronisation_is_faster_and_the_more_so_the_more_is_shared() {
    // Figure 2: a shared core before a shared L3 before nothing shared but the package.
    for kernel in [Kernel::Alternate, Kernel::FetchAdd, Kernel::HandOver] {
        let of = |shape| delta_of_both(shape, kernel, 0);
        assert!(of(SANDYBRIDGE) > 0.0 && of(ZAMBEZI) > 0.0 && of(YORKFIELD) > 0.0);
        assert!(of(GAINESTOWN) > of(ITALY) && of(ITALY) > 0.0);
    }
}

#[test]
fn reading_drops_where_a_shared_level_saturates() {
    // Figure 3: two regions no longer fit where one does.
    let read = |shape, region| delta_of_both(shape, Kernel::Read, region);
    for (shape, level) in
        [(SANDYBRIDGE, 32 * KIB), (SANDYBRIDGE, 256 * KIB), (YORKFIELD, 3 * MIB), (ZAMBEZI, 2 * MIB)]
    {
        let (fitting, shared) = (read(shape, level / 4), read(shape, level * 7 / 8));
        assert!(shared < fitting - 0.1, "{shape}, {level} bytes: {fitting} to {shared}");
    }
    // Nothing is shared there but, by one package, the way to memory.
    for region in [4 * KIB, 512 * KIB] {
        assert!(read(ITALY, region).abs() < 1e-9);
    }
    for shape in [SANDYBRIDGE, GAINESTOWN, ITALY, ZAMBEZI] {
        for exponent in 12..27 {
            assert!(read(shape, 1 << exponent) <= 1e-9, "distant is never slower on {shape}");
        }
    }
}

#[test]
fn computation_suffers_where_its_unit_is_shared() {
    use Kernel::{ConvertF32, FpAdd, FpDiv, IntAdd, IntDiv};
    // §3.3: in a module the divider of the FPU is shared and integers are not; additions hardly meet.
    for (first, second, low, high) in [
        (IntAdd, IntAdd, 0.0, 0.0),
        (IntDiv, IntDiv, 0.0, 0.0),
        (FpDiv, FpDiv, -1.0, -0.9),
        (FpAdd, FpAdd, -0.1, 0.0),
        (IntAdd, FpAdd, -0.1, 0.0),
        (IntDiv, FpDiv, -0.1, 0.0),
        (ConvertF32, ConvertF32, -1.0, -0.5),
    ] {
        let found = delta(ZAMBEZI, first, second, 0);
        assert!((low..=high).contains(&(found + 0.0)), "module, {first:?} and {second:?}: {found}");
    }
    // SMT: nearly twice as long, but for the mix of additions, which use different units.
    for (first, second, low, high) in [
        (IntAdd, IntAdd, -1.05, -0.9),
        (FpAdd, FpAdd, -1.1, -0.9),
        (FpDiv, FpDiv, -1.1, -0.9),
        (IntAdd, FpAdd, -0.4, 0.0),
    ] {
        let found = delta(SANDYBRIDGE, first, second, 0);
        assert!((low..=high).contains(&found), "SMT, {first:?} and {second:?}: {found}");
    }
    for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.focus() == Focus::Computation) {
        assert!(delta_of_both(ITALY, kernel, 0).abs() < 1e-9, "{kernel:?} needs nothing that is shared");
    }
}

#[test]
fn a_benchmark_loses_less_than_its_extreme_part() {
    // §3.4: the microbenchmarks bound what EP shows.
    let mut machine = quiet(ZAMBEZI);
    let mut seconds = |other| {
        let run = machine.run_nas(Nas::Ep, ProblemClass::W, &[PeId(0), PeId(other)]).expect("a run");
        run.elapsed.as_secs_f64()
    };
    let slowdown = seconds(1) / seconds(2);
    assert!(slowdown > 1.2 && slowdown - 1.0 < -delta_of_both(ZAMBEZI, Kernel::FpDiv, 0), "{slowdown}");
}

#[test]
fn a_neighbour_hurts_as_much_as_it_works() {
    let mut machine = quiet(SANDYBRIDGE);
    let mut slowdown = |duty| {
        let neighbour = Task { duty, ..Task::new(PeId(1), Kernel::IntAdd, 0) };
        let tasks = [Task::new(PeId(0), Kernel::IntAdd, 0), neighbour];
        let runs = machine.run(&tasks, Duration::from_millis(1)).expect("a repetition").runs;
        (12e9 / runs[0].rate(), runs[1].rate() / 12e9)
    };
    let (own, others) = slowdown(0.5);
    assert!((own - 1.5).abs() < 1e-9, "half of the time there is a neighbour");
    assert!((others - 0.25).abs() < 1e-9, "it works half of the time, and then always beside another");
}

#[test]
fn the_clock_falls_with_busy_pes_and_more_so_with_wide_vectors() {
    let machine = Machine::new(MachineSpec::plain(GAINESTOWN)).expect("a machine");
    let mut machine =
        ModelMachine::new(machine, Conditions { noise: 0.0, outliers: 0.0, ..Conditions::default() }, 1);
    let mut clock = |kernels: &[Kernel]| {
        let tasks: Vec<Task> =
            kernels.iter().zip(0..).map(|(&kernel, pe)| Task::new(PeId(pe), kernel, 0)).collect();
        machine.run(&tasks, Duration::from_millis(1)).expect("a repetition").runs[0].clock_ghz
    };
    let (chain, fma) = (Kernel::IntAddChain, Kernel::WideFma);
    assert_eq!(clock(&[chain]), Some(3.0));
    assert!(clock(&[chain, chain]) < clock(&[chain]));
    assert!(clock(&[chain, fma]) < clock(&[chain, chain]));
}

#[test]
fn noise_is_seeded_and_as_large_as_asked() {
    let draws = |seed| {
        let machine = Machine::new(MachineSpec::plain(ITALY)).expect("a machine");
        let mut machine =
            ModelMachine::new(machine, Conditions { outliers: 0.0, ..Conditions::default() }, seed);
        let mut draw = |_| {
            let task = Task::new(PeId(0), Kernel::IntAddChain, 0);
            let repetition = machine.run(&[task], Duration::from_millis(1)).expect("a repetition");
            (repetition.runs[0].rate() / 3e9).ln()
        };
        (0..2000).map(&mut draw).collect::<Vec<f64>>()
    };
    assert_eq!(draws(1), draws(1));
    assert_ne!(draws(1), draws(2));
    let squares: f64 = draws(1).iter().map(|draw| draw * draw).sum();
    assert!(((squares / 2000.0).sqrt() - 0.1).abs() < 0.01);
}

#[test]
fn what_cannot_be_run_is_refused() {
    let mut machine = quiet(ITALY);
    let window = Duration::from_millis(1);
    let error = machine.run(&[Task::new(PeId(9), Kernel::IntAdd, 0)], window).expect_err("no such PE");
    assert_eq!(error.to_string(), "PE 9 cannot be used: it is not online");
    let alone = [Task::new(PeId(0), Kernel::HandOver, 0)];
    assert_eq!(
        machine.run(&alone, window).expect_err("alone").to_string(),
        "hand-over: it needs two threads"
    );
}
