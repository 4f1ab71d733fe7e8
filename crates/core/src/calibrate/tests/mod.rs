//! Whole calibrations of simulated machines.

mod model;

use super::*;
use crate::ids::PeId;
use crate::kernels::{Kernel, Nas, ProblemClass};
use crate::machine_model::Curve;
use crate::profile::{
    self, Circumstances, MachineProfile, Measurement, Preference, Resource, Subject, Workload,
};
use model::{Model, OVERHEAD};
use proptest::prelude::*;
use std::time::Duration;

const SMT: &str = "pack:1 l3:1(size=32MB) l2:2(size=1MB) l1:1(size=32kB) core:1 pu:2";

/// Only kernels, and few of them.
fn settings(kernels: &[Kernel]) -> Settings {
    Settings { kernels: kernels.to_vec(), nas: Vec::new(), ..Settings::quick() }
}

/// Calibrates, and checks that the profile can be written and read.
fn run(model: &mut Model, settings: &Settings) -> MachineProfile {
    let topology = model.topology.clone();
    let profile = calibrate(model, &topology, settings, &mut |_| ());
    let read = profile::parse(&profile::to_json(&profile)).expect("what is written can be read");
    assert!(read == profile, "what is read is what was written");
    profile
}

fn class(profile: &MachineProfile, name: &str) -> usize {
    profile.classes.iter().position(|class| class.name == name).unwrap()
}

/// One of twenty intervals misses the truth, but hardly any by as much as its width.
fn check_near(what: &str, found: &Measurement, truth: f64) {
    let width = found.high - found.low;
    assert!(
        found.low - width / 2.0 <= truth && truth <= found.high + width / 2.0,
        "{what}: {truth}, {found:?}"
    );
    assert!(found.high - found.low < 0.15 * truth.abs().max(1.0), "{what}: {found:?} is wide");
}

fn delta_of(
    profile: &MachineProfile,
    close: &str,
    distant: &str,
    kernel: Kernel,
) -> (Measurement, Preference) {
    let (close, distant) = (class(profile, close), class(profile, distant));
    let is_it = |delta: &&profile::Delta| {
        matches!(delta.subject, Subject::Workload(it) if it.first.kernel == kernel && it.first == it.second)
            && (delta.close, delta.distant) == (close, distant)
    };
    let delta = profile.deltas.iter().find(is_it).unwrap();
    (delta.delta, delta.preference)
}

#[test]
fn an_smt_machine_shows_what_its_siblings_share() {
    let mut model = Model { outliers: 0.03, drift_per_minute: 0.2, ..Model::new(SMT, 1) };
    let profile = run(&mut model, &settings(&[Kernel::Alternate, Kernel::FpAdd, Kernel::IntAdd]));
    assert_eq!(profile.classes.iter().map(|class| class.pairs).collect::<Vec<_>>(), [2, 4]);
    let (sync, preference) = delta_of(&profile, "same core", "same L3", Kernel::Alternate);
    check_near("synchronisation", &sync, 3.0);
    assert_eq!(preference, Preference::Close);
    let (fp, preference) = delta_of(&profile, "same core", "same L3", Kernel::FpAdd);
    check_near("computation", &fp, -0.9);
    assert_eq!(preference, Preference::Distant);
    assert!(profile.deltas.iter().all(|delta| delta.delta.repetitions >= 5));
    let both = Workload::both(Kernel::FpAdd, 0);
    let (first, second) = profile.slowdowns(class(&profile, "same core"), &both).unwrap();
    check_near("first thread", &first, 1.9);
    check_near("second thread", &second, 1.9);
    let curve = profile.contention(class(&profile, "same core"), Resource::Fpu).unwrap();
    check_near("half of the demand", &curve.points[0].1, 1.45);
    assert!((Curve::from(curve).slowdown_at(0.25) - 1.225).abs() < 0.02, "between none and half");
    assert!(profile.speeds.iter().all(|speed| (speed.relative.value - 1.0).abs() < 0.03));
    assert!(profile.complete && profile.circumstances.seconds <= 60.0);
}

#[test]
fn nothing_shared_is_known_to_be_indifferent() {
    let mut model = Model { noise: 0.01, ..Model::new("numa:2 pack:1 l3:1 core:8 pu:1", 2) };
    let settings = Settings { interval_width: 0.01, ..settings(&[Kernel::HandOver, Kernel::IntAdd]) };
    let profile = run(&mut model, &settings);
    let (_, preference) = delta_of(&profile, "same L3", "across", Kernel::IntAdd);
    assert_eq!(preference, Preference::Indifferent);
    let (latency, preference) = delta_of(&profile, "same L3", "across", Kernel::HandOver);
    check_near("hand-over", &latency, 4.0);
    assert_eq!(preference, Preference::Close);
    assert_eq!(profile.latencies.len(), 16 * 15 / 2);
    let latency = profile.latencies.iter().find(|latency| (latency.a, latency.b) == (PeId(0), PeId(9)));
    check_near("nanoseconds", &latency.unwrap().ns, 500.0);
    assert!(profile.classes.iter().all(|class| class.largest_deviation.unwrap() < 1.05));
}

#[test]
fn noise_above_the_difference_is_unknown() {
    let mut model = Model { noise: 0.5, ..Model::new(SMT, 3) };
    let settings =
        Settings { budget: Duration::from_secs(2), ..settings(&[Kernel::Branches, Kernel::LoadLatency]) };
    let profile = run(&mut model, &settings);
    let unknown = profile.deltas.iter().filter(|delta| delta.preference == Preference::Unknown).count();
    assert!(unknown * 2 > profile.deltas.len(), "{:?}", profile.deltas);
    assert!(profile.circumstances.notes.iter().any(|note| note.contains("wider intervals")));
}

#[test]
fn two_alike_pes_have_no_distant_pair() {
    let mut model = Model::new("core:2 pu:1", 4);
    let profile = run(&mut model, &settings(&[Kernel::Read, Kernel::FpAdd, Kernel::WideFma]));
    assert!(profile.deltas.is_empty());
    let why = profile.missing.iter().find(|missing| missing.what.starts_with('Δ')).unwrap();
    assert!(why.why.contains("alike (same node)"), "{why:?}");
    let of = |kernel, bytes| {
        let workload = Workload::both(kernel, bytes);
        profile.pairs.iter().find(|pair| pair.workload == workload).unwrap().delta_alone.unwrap()
    };
    check_near("reading memory", &of(Kernel::Read, 64 << 20), -0.3);
    check_near("reading a cache", &of(Kernel::Read, 16 << 10), 0.0);
    assert!(
        profile.missing.iter().any(|missing| missing.what == "contention curve of L2"),
        "no size reported"
    );
    assert!(profile.contention(0, Resource::MemoryBandwidth).is_some());
    assert_eq!(profile.memory.len(), 4);
}

#[test]
fn one_pe_has_a_memory_curve_and_a_speed() {
    let mut model = Model::new("pu:1", 5);
    let profile = run(&mut model, &Settings { nas: vec![(Nas::Ep, ProblemClass::S)], ..Settings::quick() });
    assert!(profile.classes.is_empty() && profile.pairs.is_empty() && profile.contention.is_empty());
    assert_eq!(profile.memory.len(), 4 * 4);
    assert!(profile.speeds.iter().all(|speed| (speed.relative.low, speed.relative.high) == (1.0, 1.0)));
    assert_eq!((profile.nas.len(), profile.nas[0].pair_class), (1, None));
    assert!(profile.missing[0].why.contains("only one PE"), "{:?}", profile.missing);
}

#[test]
fn a_pe_that_always_loses_half_of_its_time_is_slow_and_not_noisy() {
    let mut model = Model::new("core:2 pu:1", 6);
    model.left.insert(PeId(1), 0.5);
    let profile = run(&mut model, &settings(&[Kernel::IntAdd, Kernel::FpAdd]));
    for speed in &profile.speeds {
        let truth = if speed.pe == PeId(1) { 0.5 } else { 1.0 };
        assert!((speed.relative.value / truth - 1.0).abs() < 0.03, "{speed:?}");
    }
    let Circumstances { repetitions, discarded, notes, .. } = &profile.circumstances;
    assert!(discarded * 50 < *repetitions, "{discarded} of {repetitions}");
    assert!(notes.iter().any(|note| note.starts_with("PE 1 usually loses ")), "{notes:?}");
    let kinds = profile.topology().kinds;
    let kinds: Vec<_> = kinds.iter().map(|kind| (kind.name.as_str(), kind.pes.to_string())).collect();
    assert_eq!(kinds, [("fast", "0".to_owned()), ("slow", "1".to_owned())]);
}

#[test]
fn stolen_time_is_thrown_away_and_counted() {
    let mut model = Model { stolen: 0.05, ..Model::new("core:2 pu:1", 7) };
    let profile = run(&mut model, &settings(&[Kernel::IntAdd]));
    let Circumstances { repetitions, discarded, lost_share, .. } = profile.circumstances;
    let share = discarded as f64 / (repetitions + discarded) as f64;
    assert!((0.04..0.12).contains(&share), "a pair is disturbed nearly twice as often: {share}");
    assert!((lost_share - 0.02).abs() < 0.01, "{lost_share}");
    assert!(profile.pairs.iter().all(|pair| pair.discarded > 0));
    check_near("slowdown", &profile.pairs[0].delta_alone.unwrap(), 0.0);
}

#[test]
fn an_interrupt_leaves_a_partial_profile() {
    for at_ms in [0, 10, 700, 2000] {
        let mut model = Model { interrupt_at: Duration::from_millis(at_ms), ..Model::new(SMT, 8) };
        let profile = run(&mut model, &Settings::default());
        assert!(!profile.complete);
        assert!(profile.missing.iter().any(|missing| missing.why.contains("interrupted")), "{at_ms}");
        assert!(profile.circumstances.seconds < at_ms as f64 / 1e3 + 0.1);
    }
}

#[test]
fn failed_measurements_are_missing_and_the_rest_goes_on() {
    let mut model = Model::new(SMT, 9);
    model.failure = |task| {
        let unit = || ExecutorError::Unavailable { what: "AVX-512".into(), why: "this PE has none".into() };
        let gone = || ExecutorError::Pe { pe: task.pe, why: "it went offline".into() };
        match task.kernel {
            Kernel::WideFma => Some(unit()),
            _ => (task.pe == PeId(3)).then(gone),
        }
    };
    let profile = run(&mut model, &settings(&[Kernel::WideFma, Kernel::FpAdd]));
    let missing: Vec<_> = profile.missing.iter().map(|it| format!("{}: {}", it.what, it.why)).collect();
    let expected = ["wide-fma: AVX-512: this PE has none", "PE 3: PE 3 cannot be used: it went offline"];
    assert!(expected.iter().all(|it| missing.contains(&(*it).to_owned())), "{missing:?}");
    assert!(profile.pairs.iter().all(|pair| pair.workload.first.kernel == Kernel::FpAdd));
    let measured: Vec<u32> = profile.speeds.iter().map(|speed| speed.pe.0).collect();
    assert_eq!(measured, [0, 1, 2]);
    assert!(profile.complete, "what this machine has was measured: {missing:?}");
}

#[test]
fn nas_benchmarks_run_as_far_as_the_time_allows() {
    let mut model = Model::new(SMT, 10);
    let profile = run(&mut model, &Settings { kernels: vec![Kernel::FpAdd], ..Settings::default() });
    let of = |class: ProblemClass| profile.nas.iter().filter(|nas| nas.class == class).count();
    assert_eq!((of(ProblemClass::S), of(ProblemClass::W)), (15, 15), "one thread and two classes");
    assert!(profile.nas.iter().all(|nas| nas.verified == (nas.nas != Nas::Is) && nas.own));
    let nas_delta = profile.deltas.iter().find(|delta| matches!(delta.subject, Subject::Nas(..))).unwrap();
    assert!(nas_delta.delta.value.abs() < 0.1, "{nas_delta:?}");

    let mut slow = Model { nas_s: 30.0, ..Model::new(SMT, 10) };
    let profile = run(&mut slow, &Settings { kernels: vec![Kernel::FpAdd], ..Settings::quick() });
    assert!(profile.circumstances.seconds < 60.0 + 30.0, "one repetition more than the budget at most");
    assert!(
        !profile.complete && profile.missing.iter().any(|missing| missing.why.contains("fewer benchmarks"))
    );
    assert!(profile.pairs.iter().all(|pair| pair.rate.repetitions >= 3) && !profile.pairs.is_empty());
}

#[test]
fn the_whole_default_fits_its_budget_and_leaves_nothing_out() {
    let mut model = Model::new(SMT, 11);
    let profile = run(&mut model, &Settings { nas: Vec::new(), ..Settings::default() });
    assert!(profile.complete && profile.missing.is_empty(), "{:?}", profile.missing);
    assert_eq!(profile.memory.len(), 64);
    assert_eq!(profile.pairs.len(), 2 * (3 + 64 + 12 + 5));
    assert_eq!(profile.contention.len(), 2 * 6);
    assert_eq!(profile.speeds.len(), 4 * 4);
}

#[test]
fn progress_never_goes_back() {
    let mut model = Model::new(SMT, 12);
    let topology = model.topology.clone();
    let mut reported: Vec<Progress> = Vec::new();
    calibrate(&mut model, &topology, &Settings::quick(), &mut |progress| reported.push(progress.clone()));
    assert!(reported.is_sorted_by(|a, b| {
        a.done <= b.done && a.remaining >= b.remaining && a.pass <= b.pass && a.cells_done <= b.cells_done
    }));
    assert!(reported.iter().any(|progress| progress.phase == Phase::Nas));
}

#[test]
fn a_seed_fixes_a_calibration() {
    let of = |seed| run(&mut Model::new(SMT, 13), &Settings { seed, ..settings(&[Kernel::FpAdd]) });
    assert!(of(1) == of(1) && of(1) != of(2));
}

/// With noise, outliers and drift, and although a cell ends as soon as its interval is narrow.
#[test]
fn intervals_hold_the_truth() {
    let (mut covered, mut all) = (0, 0);
    for seed in 0..150 {
        let mut model =
            Model { outliers: 0.02, drift_per_minute: 0.2, noise: 0.04, ..Model::new("core:2 pu:1", seed) };
        let settings = Settings { seed, ..settings(&[Kernel::Read]) };
        for pair in &run(&mut model, &settings).pairs {
            let truth = if pair.workload.first.region_bytes > 1 << 20 { -0.3 } else { 0.0 };
            let found = pair.delta_alone.unwrap();
            covered += u32::from(found.low <= truth && truth <= found.high);
            all += 1;
        }
    }
    assert!(f64::from(covered) >= 0.92 * f64::from(all), "{covered} of {all}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_budget_is_kept(
        budget_ms in 0u64..4000,
        window_ms in 1u64..60,
        machine in prop::sample::select(vec!["pu:1", "core:2 pu:1", SMT, "numa:2 pack:1 l3:1 core:4 pu:2"]),
        nas_s in 0.001f64..3.0,
        seed in 0u64..1000,
    ) {
        let mut model = Model { nas_s, ..Model::new(machine, seed) };
        let (budget, window) = (Duration::from_millis(budget_ms), Duration::from_millis(window_ms));
        let settings = Settings { budget, window, seed, ..Settings::quick() };
        let profile = run(&mut model, &settings);
        // A NAS run may take longer than any estimate, if no class of it was run before.
        let nas = Duration::from_secs_f64(nas_s * 1.3);
        let spent = Duration::from_secs_f64(profile.circumstances.seconds);
        prop_assert!(spent <= budget + (window + OVERHEAD).max(nas), "{spent:?} of {budget:?}");
        prop_assert!(profile.complete || !profile.missing.is_empty());
    }
}
