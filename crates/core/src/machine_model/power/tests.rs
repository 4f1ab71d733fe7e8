use super::*;
use crate::topology::Topology;

fn domain() -> ClockDomain {
    ClockDomain {
        pes: "0-3".to_owned(),
        per: Per::All,
        points: [(1.0, 0.8), (2.0, 1.0), (3.0, 1.2)].map(|(ghz, volt)| Point { ghz, volt }).into(),
        max_ghz: None,
        limit_w: None,
        turbo_ghz: vec![3.0, 2.5],
        transition_us: 10.0,
        dynamic_uw_per_mhz_v2: 1000.0,
        further_pe: 0.2,
        waiting: 0.5,
        static_w: 0.6,
        idle: [(0.3, 2.0, 0.0), (0.1, 50.0, 100.0)]
            .map(|(power_w, exit_us, residency_us)| IdleState { power_w, exit_us, residency_us })
            .into(),
    }
}

fn power(domains: Vec<ClockDomain>) -> Power {
    Power {
        governor: Governor::Performance,
        rate_limit_us: None,
        uncore: Uncore::default(),
        memory_w_per_gb_per_s: 0.0,
        domains,
    }
}

fn plan(topology: &str, domains: Vec<ClockDomain>) -> Result<Plan, PowerError> {
    Plan::new(power(domains), &MachineModel::from(Topology::synthetic(topology).expect("a topology")))
}

fn near(found: f64, known: f64) {
    assert!((found - known).abs() < 1e-9, "{found} is not {known}");
}

#[test]
fn power_follows_voltage_clock_and_activity() {
    let domain = domain();
    near(domain.volt(1.5), 0.9);
    near(domain.volt(3.0), 1.2);
    near(domain.volt(0.5), 0.8);
    near(domain.pe_w(2.0, 1, 0.0), 0.5 + 2.0);
    near(domain.pe_w(2.0, 1, 0.4), 0.5 + 2.0 * 0.8);
    near(domain.pe_w(2.0, 2, 0.0), (0.5 + 2.0 * 1.2) / 2.0);
}

#[test]
fn governors_choose_among_the_points_within_the_limits() {
    let mut domain = domain();
    let wanted = |domain: &ClockDomain, governor, utilisation: f64, active| {
        domain.wanted_ghz(governor, || utilisation, active)
    };
    near(wanted(&domain, Governor::Performance, 0.0, 1), 3.0);
    near(wanted(&domain, Governor::Performance, 0.0, 7), 2.5);
    near(wanted(&domain, Governor::Powersave, 1.0, 1), 1.0);
    for (utilisation, ghz) in [(0.0, 1.0), (0.26, 1.0), (0.27, 2.0), (0.53, 2.0), (0.54, 3.0), (1.0, 3.0)] {
        near(wanted(&domain, Governor::Schedutil, utilisation, 1), ghz);
    }
    domain.max_ghz = Some(2.0);
    near(wanted(&domain, Governor::Performance, 0.0, 1), 2.0);
}

#[test]
fn idle_states_deepen_with_time() {
    let domain = domain();
    assert_eq!(domain.idle_state(99.0).map(|state| state.exit_us), Some(2.0));
    assert_eq!(domain.idle_state(100.0).map(|state| state.exit_us), Some(50.0));
    near(domain.idle_uj(50.0), 15.0);
    near(domain.idle_uj(1100.0), 30.0 + 100.0);
}

#[test]
fn utilisation_halves_in_32_periods() {
    let mut utilisation = Utilisation(1.0);
    utilisation.advance(33_554_432, 0.0);
    near(utilisation.0, 0.5);
    utilisation.advance(1 << 40, 0.75);
    near(utilisation.0, 0.75);
}

#[test]
fn domains_are_divided_as_they_say() {
    let per = |per, pes: &str| ClockDomain { per, pes: pes.to_owned(), ..domain() };
    let shape = "pack:2 l3:1 l2:2 module:1 core:2 pu:1";
    for (kind, clocks) in [(Per::Core, 8), (Per::Module, 4), (Per::Package, 2), (Per::All, 1)] {
        let plan = plan(shape, vec![per(kind, "0-7")]).expect("a plan");
        assert_eq!(
            (plan.clocks.len(), plan.groups.len(), plan.packages, plan.cores.len()),
            (clocks, if kind == Per::All { 1 } else { 2 }, 2, 8)
        );
    }
    let two = plan(shape, vec![per(Per::All, "0-1"), per(Per::Core, "2-7")]).expect("a plan");
    assert_eq!((two.clocks.len(), two.clock_of[0], two.clock_of[1]), (7, 0, 0));
}

#[test]
fn errors_name_the_parameter() {
    let with = |change: fn(&mut ClockDomain)| {
        let mut domain = domain();
        change(&mut domain);
        plan("core:4 pu:1", vec![domain]).expect_err("an error").to_string()
    };
    for (error, words) in [
        (with(|domain| domain.pes = "0-2".into()), "PE 3 is in 0 of the clock domains"),
        (with(|domain| domain.pes = "9".into()), "9"),
        (with(|domain| domain.points.clear()), "number of points is 0"),
        (with(|domain| domain.points[1].ghz = 0.5), "points.ghz is 0.5"),
        (with(|domain| domain.turbo_ghz = vec![4.0]), "turbo_ghz is 4"),
        (with(|domain| domain.waiting = 2.0), "waiting is 2, it must be 0 to 1"),
        (with(|domain| domain.idle[1].residency_us = 0.0), "idle.residency_us is 0"),
        (with(|domain| domain.static_w = f64::NAN), "static_w is NaN"),
    ] {
        assert!(error.contains(words), "{error} does not say {words}");
    }
    let split = |pes: &str| ClockDomain { pes: pes.to_owned(), ..domain() };
    let error = plan("core:2 pu:2", vec![split("0"), split("1-3")]).expect_err("a split core");
    assert!(error.to_string().contains("the PEs 0-1 of one core"), "{error}");
}

#[test]
fn a_limit_of_power_lowers_the_clock_with_every_active_core() {
    // A core takes 1.04, 2.5 and 4.92 W at 1, 2 and 3 GHz.
    let domain = ClockDomain { limit_w: Some(5.0), turbo_ghz: Vec::new(), ..domain() };
    for (active, ghz) in [(0, 3.0), (1, 3.0), (2, 2.0), (3, 1.0), (4, 1.0), (8, 1.0)] {
        near(domain.limit_ghz(active), ghz);
    }
}
