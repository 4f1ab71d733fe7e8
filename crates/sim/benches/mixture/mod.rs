//! What the benchmarks simulate: a mixture of compute- and memory-bound threads that use the FPU more or
//! less, some of which wait for each other.

use corewise_sim::scenario::{Scenario, Variant};
use corewise_sim::sim::Sim;

/// A machine of that many PEs: up to 16 with modules on one memory node, else nodes of 64 with SMT.
fn topology(pes: u32) -> String {
    if pes <= 16 {
        let (l3, l2) = (pes.div_ceil(8), (pes / 2).min(4));
        return format!("pack:1 l3:{l3}(size=16MB) l2:{l2}(size=2MB) module:1 core:2 pu:1");
    }
    format!("numa:{} pack:1 l3:4(size=32MB) l2:8(size=1MB) core:1 pu:2", pes / 64)
}

/// That many threads on that many PEs: about a quarter of each kind.
pub fn scenario(pes: u32, threads: u32) -> Scenario {
    let topology = topology(pes);
    let loops = threads / 16;
    let mut text = format!("name = 'bench'\n[machine]\nname = 'm'\ntopology = '{topology}'\nghz = 2.0\n");
    text += "[demand]\nint = { ipc = 1.5 }\nfp = { fpu = 0.8 }\n\
             mem = { l2_misses_per_100_cycles = 1.0, working_set_mib = 8.0 }\n";
    let others = threads - 4 * loops;
    for (place, demand) in ["int", "fp", "mem"].into_iter().enumerate() {
        let copies = others / 3 + u32::from((place as u32) < others % 3);
        if copies > 0 {
            text += &format!(
                "[[application]]\nname = '{demand}'\ncopies = {copies}\n\
                 steps = [{{ each = {{ mcycles = 1e6, demand = '{demand}' }} }}]\n"
            );
        }
    }
    if loops > 0 {
        text += &format!(
            "[[application]]\nname = 'loop'\ncopies = {loops}\nthreads = 4\nsteps = \
             [{{ repeat = {{ times = 1000000, steps = [\
             {{ serial = {{ mcycles = 2, demand = 'int' }} }}, {{ parallel = {{ mcycles = 80, \
             demand = 'fp', imbalance = 0.1 }} }}] }} }}]\n"
        );
    }
    Scenario::parse(&text).expect("a scenario")
}

/// The simulation of it under the system's own scheduler, before it begins.
pub fn started(scenario: &Scenario) -> Sim {
    scenario.simulation(&Variant::policy("default".parse().expect("a policy")), 1).expect("a simulation")
}
