use super::*;
use crate::bench::{Conditions, ModelMachine};
use crate::scenario::Scenario;
use corewise_core::calibrate::{Settings, calibrate};
use corewise_core::ids::PeId;
use corewise_core::kernels::Kernel;
use corewise_core::machine_model::{Source, check};
use corewise_core::profile::{Evidence, Measurement, Resource};
use corewise_core::topology::DomainKind;

const TRUTH: &str = "name = 'truth'\nghz = 2.5\nspeeds = [{ pes = '6-7', speed = 0.5 }]\n\
    topology = 'pack:1 l3:1(size=16MB) l2:4(size=512kB) core:1 pu:2'\n\
    units = { issue_conflict = 0.7, fpu_conflict = 0.4 }\n\
    memory = { l3_latency_cycles = 50, memory_latency_cycles = 250, bandwidth_gb_per_s = 12 }";

/// What a calibration finds on a model machine.
fn profile() -> MachineProfile {
    let truth = Machine::new(toml::from_str(TRUTH).unwrap()).unwrap();
    let reported = truth.model.topology.clone();
    let mut model = ModelMachine::new(truth, Conditions { clock_fall: 0.0, ..Conditions::default() }, 1);
    let settings = Settings { evidence: Evidence::Simulated, nas: Vec::new(), ..Settings::quick() };
    calibrate(&mut model, &reported, &settings, &mut |_| ())
}

fn value(model: &MachineModel, name: &str) -> f64 {
    model.parameter(name).unwrap_or_else(|| panic!("no {name}")).value
}

#[test]
fn the_parameters_of_a_known_machine_are_found() {
    let profile = profile();
    let model = MachineModel::from_profile(&profile);
    for (name, truth, tolerance) in [
        ("ghz", 2.5, 0.03),
        ("issue_width", 4.0, 0.05),
        ("issue_conflict", 0.7, 0.1),
        ("l3_latency_ns", 20.0, 0.15),
        ("memory_latency_ns", 100.0, 0.2),
    ] {
        let found = value(&model, name);
        assert!((found / truth - 1.0).abs() < tolerance, "{name}: {found}");
    }
    let simulated = machine(&profile).unwrap().model;
    let speeds: Vec<f64> = simulated.pes.iter().map(|pe| (pe.speed * 10.0).round() / 10.0).collect();
    assert_eq!(speeds, [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5]);
    assert_eq!((simulated.ghz, simulated.units, simulated.memory), (model.ghz, model.units, model.memory));
    let unknown: Vec<&str> = model.parameters.iter().filter(|p| p.from.is_none()).map(|p| p.name).collect();
    assert_eq!(unknown, ["overlap", "remote_factor", "smt_cost"]);
    assert!(
        model.parameters.iter().all(|p| (p.confidence > 0.5) == p.from.is_some()),
        "{:?}",
        model.parameters
    );
    // Siblings are 12 ns apart, cores within the L3 40.
    let latency = |a, b| model.latency_ns(PeId(a), PeId(b));
    for (figure, truth) in [(latency(0, 1), 12.0), (latency(0, 7), 40.0)] {
        assert!((figure.value / truth - 1.0).abs() < 0.1 && figure.source == Source::Profile, "{figure:?}");
    }
    let curve = model.contention(Resource::Integer, PeId(0), PeId(1)).unwrap();
    assert!((curve.slowdown_at(1.0) / 1.7 - 1.0).abs() < 0.1 && curve.source == Source::Profile, "{curve:?}");
    assert_eq!(model.contention(Resource::Integer, PeId(0), PeId(2)), None, "they are no siblings");
}

#[test]
fn the_model_repeats_what_it_was_fitted_to_and_is_held_against_the_rest() {
    let profile = profile();
    let check = check(&profile).unwrap();
    let (fitted, predicted): (Vec<_>, Vec<_>) = check.pairs.iter().partition(|pair| pair.fitted);
    assert!(fitted.len() == 1 && fitted[0].error.abs() < 0.01, "{fitted:?}");
    for what in ["write 64 MiB", "copy 64 MiB", "load-latency 64 MiB", "neighbour at 50 %"] {
        assert!(predicted.iter().any(|pair| pair.what.contains(what)), "no {what} in {predicted:?}");
    }
    // Regions that the caches hold tell nothing about memory.
    assert!(check.pairs.iter().all(|pair| pair.what.contains("64 MiB")), "{:?}", check.pairs);
}

#[test]
fn slowdowns_that_no_bandwidth_explains_are_reported() {
    for (slowdown, words, conflict) in [(1.0, "at least", 0.0), (3.0, "more than the model", 2.0)] {
        let mut profile = profile();
        for pair in &mut profile.pairs {
            let same = Measurement { value: slowdown, low: slowdown, high: slowdown, repetitions: 9 };
            pair.slowdowns = pair.slowdowns.map(|_| (same, same));
        }
        let model = MachineModel::from_profile(&profile);
        let bandwidth = model.parameter("bandwidth_gb_per_s").unwrap();
        assert!(bandwidth.from.as_ref().unwrap().contains(words), "{bandwidth:?}");
        assert_eq!(value(&model, "issue_conflict"), conflict);
    }
}

#[test]
fn a_profile_without_a_clock_makes_no_machine() {
    let mut profile = profile();
    profile.pairs.retain(|pair| pair.workload.first.kernel != Kernel::IntAddChain);
    let error = machine(&profile).map(|machine| machine.spec).unwrap_err().to_string();
    assert!(error.contains("clock") && error.contains("calibrate"), "{error}");
}

#[test]
fn a_scenario_runs_on_a_calibrated_machine_and_may_say_otherwise() {
    let text = "name = 's'\ndemand.int = {}\n\
        application = [{ name = 'a', steps = [{ each = { mcycles = 1, demand = 'int' } }] }]\n";
    let read = |machine: &str| -> toml::Table { toml::from_str(&format!("{text}{machine}")).unwrap() };
    let mut table = read("machine = { profile = 'p.json', memory = { overlap = 0.25 } }");
    assert_eq!(take_name(&mut table).as_deref(), Some("p.json"));
    put(&mut table, &profile()).unwrap();
    let scenario = Scenario::from_table(table, &[]).unwrap();
    assert_eq!(scenario.machine.memory.overlap, 0.25);
    assert!((scenario.machine.ghz - 2.5).abs() < 0.1, "{}", scenario.machine.ghz);
    let sim = scenario.simulation(&scenario.variants[0], 1).unwrap();
    assert_eq!(
        (sim.machine.model.pes.len(), sim.machine.model.topology.domains(DomainKind::Core).count()),
        (8, 4)
    );
    let mut both = read("machine = { profile = 'p.json', topology = 'pu:1' }");
    take_name(&mut both);
    let error = put(&mut both, &profile()).unwrap_err().to_string();
    assert!(error.contains("`topology`"), "{error}");
    assert_eq!(take_name(&mut read("machine = { name = 'm', topology = 'pu:1' }")), None);
}
