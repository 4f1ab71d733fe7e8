//! What must hold after every step, whatever happens: checked over random machines, programs and masks.

use super::*;
use crate::machine::MachineSpec;
use crate::scenario::{Scenario, Variant};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use proptest::prelude::*;
use std::time::Duration;

impl Sim {
    /// Panics where the books do not agree.
    fn audit(&self) {
        let mut places = vec![0; self.threads.len()];
        for (pe, cpu) in self.cpus.iter().enumerate() {
            for thread in cpu.queue.iter().copied().chain(cpu.running) {
                places[thread] += 1;
                let thread = &self.threads[thread];
                assert_eq!(thread.pe, Some(pe), "a thread knows where it is");
                assert!(thread.mask.contains(PeId(pe as u32)), "PE {pe} is outside of {}", thread.mask);
            }
            if cpu.running.is_none() {
                assert!(cpu.queue.is_empty(), "PE {pe} is idle with a queue");
            }
        }
        for (thread, places) in self.threads.iter().zip(places) {
            assert_eq!(places, usize::from(thread.ready), "a thread has a place just while it is ready");
            assert!(!thread.counted || thread.ready, "who counts as runnable is ready");
            assert!(!thread.ended || !thread.ready);
            assert!(thread.debt_ns >= 0.0);
        }
        assert_eq!(self.queued, self.cpus.iter().map(|cpu| cpu.queue.len()).sum::<usize>());
        for (index, app) in self.apps.iter().enumerate() {
            let counted = self.threads.iter().filter(|thread| thread.app == index && thread.counted).count();
            assert_eq!(app.parallelism.runnable as usize, counted);
            let cpu_ns = self.threads.iter().filter(|thread| thread.app == index).map(|thread| thread.cpu_ns);
            assert_eq!(app.cpu_ns, cpu_ns.sum::<u64>());
        }
        let busy = self.unit_busy.iter().sum::<u32>() as usize;
        assert_eq!(busy, self.cpus.iter().filter(|cpu| cpu.running.is_some()).count());
    }

    /// A round of the balancer leaves no PE idle that could take a waiting thread.
    fn audit_balance(&mut self) {
        self.balance();
        self.catch_up();
        for (pe, _) in self.cpus.iter().enumerate().filter(|(_, cpu)| cpu.running.is_none()) {
            let waiting = self.cpus.iter().flat_map(|cpu| cpu.queue.iter());
            let takeable = waiting.filter(|&&t| self.threads[t].mask.contains(PeId(pe as u32))).count();
            assert_eq!(takeable, 0, "PE {pe} is idle though it could take a waiting thread");
        }
    }
}

fn scenario(topology: &str, scheduler: &str, wait: &str, threads: usize, copies: usize) -> Scenario {
    let text = format!(
        "name = 'fuzz'\nos = {{ scheduler = '{scheduler}' }}\nstop = {{ completions = 3, time = '20s' }}\n\
         [demand]\nint = {{}}\nfp = {{ fpu = 0.9 }}\n\
         mem = {{ l2_misses_per_100_cycles = 2.0, working_set_mib = 9.0 }}\n\
         [[application]]\nname = 'loops'\nthreads = {threads}\nwait = {wait}\nvariation = 0.05\n\
         steps = [{{ repeat = {{ times = 4, steps = [\
         {{ serial = {{ mcycles = 9, demand = 'int' }} }}, \
         {{ parallel = {{ mcycles = 70, demand = 'fp', imbalance = 0.4 }} }}, \
         {{ critical = {{ lock = 'l', work = {{ mcycles = 3, demand = 'mem' }} }} }}, \
         'barrier', {{ sleep = '3ms' }}] }} }}]\n\
         [[application]]\nname = 'steady'\ncopies = {copies}\nstart = '5ms'\n\
         steps = [{{ each = {{ mcycles = 150, demand = 'mem' }} }}]\n\
         [machine]\nname = 'm'\ntopology = '{topology}'\n"
    );
    let mut scenario = Scenario::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let slow = crate::machine::SpeedSpec { pes: "pu:0".to_owned(), speed: 0.5 };
    scenario.machine = MachineSpec { speeds: vec![slow], ..scenario.machine };
    scenario
}

const TOPOLOGIES: [&str; 3] = [
    "core:1 pu:1",
    "pack:1 l3:1(size=8MB) l2:2(size=2MB) module:1 core:2 pu:1",
    "numa:2 pack:1 l3:1(size=4MB) core:2 pu:2",
];
const WAITS: [&str; 4] = [
    "'sleep'",
    "'spin'",
    "{ adaptive = { block_after = '2ms' } }",
    "{ spin_then_notify = { notify_after = '1ms', block_after = '6ms' } }",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_books_agree_after_every_step(
        (topology, wait, capacity) in (0usize..3, 0usize..4, any::<bool>()),
        (threads, copies, seed) in (1usize..6, 1usize..7, any::<u64>()),
        binds in proptest::collection::vec((0usize..20, 1u32..256), 0..40),
    ) {
        let scheduler = if capacity { "capacity" } else { "fair" };
        let scenario = scenario(TOPOLOGIES[topology], scheduler, WAITS[wait], threads, copies);
        let mut sim = scenario.simulation(&Variant::policy("default"), seed).expect("a simulation");
        let mut binds = binds.into_iter().cycle();
        loop {
            let finished = sim.run_until(sim.now + Duration::from_millis(7));
            sim.audit();
            sim.audit_balance();
            sim.audit();
            if finished {
                break;
            }
            if let Some((thread, mask)) = binds.next()
                && thread < sim.threads.len()
                && !sim.threads[thread].ended
            {
                let wanted: CpuSet = (0..8).filter(|bit| mask & (1 << bit) != 0).map(PeId).collect();
                let mask = wanted.intersection(&sim.machine.topology.pes);
                let mask = if mask.is_empty() { sim.machine.topology.pes.clone() } else { mask };
                sim.restrict(thread, mask);
                sim.audit();
            }
        }
        let completed = sim.apps.iter().all(|app| app.completions.len() >= 3);
        prop_assert!(completed, "no thread is left waiting for ever");
    }
}
