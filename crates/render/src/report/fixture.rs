//! Reports made up for tests.

use corewise_core::classify::{FpuClass, IntensityClass, ParallelismClass};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::observe::{Standing, Target};
use corewise_core::report::{
    ApplicationReport, Binding, Decision, Host, Overhead, RanOn, Report, Shared, Sources, ThreadReport,
    WaitsReport,
};
use corewise_core::topology::DomainKind;

/// In nanoseconds.
pub const SECOND_NS: u64 = 1_000_000_000;

/// A thread that ran from one time to another on a PE for a share of the time, and was bound from one time to
/// another to a PE.
pub fn thread(tid: u32, name: &str, ran: &[(u64, u64, u32, f64)], bound: &[(u64, u64, u32)]) -> ThreadReport {
    let ran_on = |&(from_ns, to_ns, pe, share)| RanOn { from_ns, to_ns, pe: Some(PeId(pe)), share };
    let binding = |&(from_ns, to_ns, pe)| Binding { from_ns, to_ns, pes: CpuSet::single(PeId(pe)) };
    ThreadReport {
        tid,
        pid: 100,
        name: name.into(),
        program: None,
        cpu_seconds: 7.5,
        fpu_usage: None,
        vector_usage: None,
        fpu_usage_source: None,
        fpu_usage_confidence: None,
        fpu_class: FpuClass::Unknown,
        spin_share: None,
        memory_share: None,
        branch_share: None,
        l2_misses_per_100_cycles: None,
        ipc: None,
        standing: if bound.is_empty() { Standing::Free } else { Standing::Bound },
        bindings: bound.iter().map(binding).collect(),
        ran_on: ran.iter().map(ran_on).collect(),
    }
}

/// A decision about a thread that was carried out: a PE, or none.
pub fn decision(at_ns: u64, tid: u32, pe: Option<u32>, reason: &str) -> Decision {
    let (reason, outcome) = (reason.to_owned(), Some("done".to_owned()));
    Decision { at_ns, tid, pes: pe.map(|pe| CpuSet::single(PeId(pe))), setting: None, reason, outcome }
}

/// A report of these threads and decisions.
pub fn report(threads: Vec<ThreadReport>, decisions: Vec<Decision>) -> Report {
    let application = ApplicationReport {
        name: "pair.sh".into(),
        executed_by: None,
        target: Target::Command,
        allowed: None,
        from_seconds: 0.0,
        ended_seconds: None,
        cpu_seconds: 31.2,
        busy_pes_mean: Some(3.0),
        tlp_mean: 3.71,
        sequential_fraction: Some(0.112),
        parallelism_evidence: "exact".into(),
        runnable_max: 4,
        parallelism_class: Some(ParallelismClass::PartiallySequential),
        intensity_class: Some(IntensityClass::Compute),
        fpu_usage: Some(0.49),
        vector_usage: Some(0.24),
        l2_misses_per_100_cycles: None,
        ipc: None,
    };
    Report {
        headline: String::new(),
        command: vec!["demo/pair.sh".into(), "target/demo".into()],
        policy: "spread".to_owned(),
        nothing_to_gain: None,
        dry_run: false,
        evidence: "measured".into(),
        machine: "synthetic pack:1 l2:2 core:2".into(),
        shared: [(DomainKind::L2, "0-1"), (DomainKind::L2, "2-3"), (DomainKind::Package, "0-3")]
            .map(|(resource, pes)| Shared { resource, pes: pes.parse().unwrap() })
            .into(),
        host: Some(Host {
            name: Some("node7".into()),
            processor: Some("Opteron 6272".into()),
            kernel: Some("6.12.1".into()),
            unix_time: Some(951_782_340),
        }),
        wall_seconds: 10.4,
        sources: Sources { discovery: "bpf".into(), counters: "sample".into() },
        threads,
        more_threads: Vec::new(),
        applications: vec![application],
        decisions,
        decisions_left_out: 0,
        waits: WaitsReport::default(),
        guard: None,
        overhead: Overhead {
            cpu_seconds: 0.031,
            fraction_of_wall: 0.003,
            round_ms_median: Some(0.3),
            round_ms_max: Some(1.2),
            peak_memory_bytes: Some(12 << 20),
        },
        notes: vec!["2 samples were lost".into()],
    }
}

/// Two programs of the paper's pair, the floating-point ones bound to one module each.
pub fn pair() -> Report {
    let s = |seconds: f64| (seconds * SECOND_NS as f64) as u64;
    let known = |thread, usage: f64, cpu_seconds| ThreadReport {
        fpu_usage: Some(usage),
        vector_usage: Some(usage / 2.0),
        fpu_usage_source: Some("sample (estimate)".into()),
        fpu_usage_confidence: Some(0.92),
        fpu_class: if usage > 0.4 { FpuClass::Intensive } else { FpuClass::Light },
        spin_share: Some(0.0),
        cpu_seconds,
        ..thread
    };
    let threads = vec![
        known(
            thread(
                4211,
                "povray",
                &[(s(1.0), s(3.0), 1, 0.9), (s(3.0), s(10.4), 0, 1.0)],
                &[(s(3.0), s(10.4), 0)],
            ),
            0.91,
            9.8,
        ),
        known(
            thread(
                4213,
                "povray",
                &[(s(1.0), s(3.0), 0, 0.8), (s(3.0), s(10.4), 2, 1.0)],
                &[(s(3.0), s(10.4), 2)],
            ),
            0.90,
            9.7,
        ),
        known(
            thread(
                4212,
                "hmm2search",
                &[(s(1.0), s(3.0), 2, 0.7), (s(3.0), s(7.0), 3, 1.0), (s(7.0), s(8.0), 1, 0.3)],
                &[],
            ),
            0.04,
            6.9,
        ),
        thread(
            4214,
            "hmm2search",
            &[(s(1.0), s(3.0), 3, 0.5), (s(3.0), s(6.0), 1, 0.9), (s(6.0), s(8.5), 3, 1.0)],
            &[],
        ),
    ];
    let reason =
        "FPU usage 0.91 is above 0.30; rank 1 of 2 takes the first PE of module 0; considered: module 1";
    let decisions = vec![
        decision(s(3.0), 4211, Some(0), reason),
        decision(
            s(3.0),
            4213,
            Some(2),
            "FPU usage 0.90 is above 0.30; rank 2 of 2 takes the first PE of module 1",
        ),
        decision(s(10.4), 4211, None, "the run is over"),
    ];
    report(threads, decisions)
}
