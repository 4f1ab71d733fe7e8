//! Reports made up for tests.

use corewise_core::classify::{FpuClass, IntensityClass, ParallelismClass};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::observe::{Standing, Target};
use corewise_core::report::timeline::{PeOverTime, RunnableOverTime, Timeline};
use corewise_core::report::{
    ApplicationReport, Binding, Decision, Host, Overhead, PeKind, RanOn, Report, Shared, Sources,
    ThreadReport, WaitsReport,
};
use corewise_core::topology::DomainKind;
use std::collections::BTreeMap;

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

/// A PE that did nothing for an application.
fn idle(pe: PeId, application: usize) -> PeOverTime {
    PeOverTime {
        pe,
        application: Some(application),
        first_column: 0,
        ran: Vec::new(),
        fpu_intensive: Vec::new(),
        bound: Vec::new(),
        weighted: Vec::new(),
        bindings: Vec::new(),
    }
}

/// What these threads did, as threads of the first application, in columns of half a second.
fn timeline(threads: &[ThreadReport]) -> Timeline {
    const COLUMN_NS: u64 = SECOND_NS / 2;
    let mut pes: BTreeMap<PeId, PeOverTime> = BTreeMap::new();
    let list = || vec![0.0; 21];
    let new = |pe| PeOverTime {
        ran: list(),
        fpu_intensive: list(),
        bound: list(),
        bindings: list(),
        ..idle(pe, 0)
    };
    let add = |list: &mut [f64], from_ns: u64, to_ns: u64, share: f64| {
        for (column, sum) in (0..).zip(list) {
            let (begin, end) = ((column * COLUMN_NS).max(from_ns), ((column + 1) * COLUMN_NS).min(to_ns));
            *sum += share * end.saturating_sub(begin) as f64 / COLUMN_NS as f64;
        }
    };
    for thread in threads {
        for ran in &thread.ran_on {
            let pe = ran.pe.unwrap();
            let row = pes.entry(pe).or_insert_with(|| new(pe));
            add(&mut row.ran, ran.from_ns, ran.to_ns, ran.share);
            if thread.fpu_class == FpuClass::Intensive {
                add(&mut row.fpu_intensive, ran.from_ns, ran.to_ns, ran.share);
            }
        }
        for binding in &thread.bindings {
            let pe = binding.pes.first().unwrap();
            let row = pes.entry(pe).or_insert_with(|| new(pe));
            add(&mut row.bound, binding.from_ns, binding.to_ns, 1.0);
            row.bindings[(binding.from_ns / COLUMN_NS) as usize] += 1.0;
        }
    }
    for row in pes.values_mut() {
        for list in [&mut row.ran, &mut row.fpu_intensive, &mut row.bound, &mut row.bindings] {
            list.truncate(list.iter().rposition(|value| *value > 0.0).map_or(0, |last| last + 1));
        }
    }
    let mean = [vec![1.0; 4], vec![4.0; 12], vec![2.0; 5]].concat();
    let sequential = vec![1.0; 4];
    let runnable = RunnableOverTime { application: Some(0), first_column: 0, mean, sequential };
    Timeline { column_ns: COLUMN_NS, runnable: vec![runnable], pes: pes.into_values().collect() }
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
        predicted: None,
        beside: Vec::new(),
        dry_run: false,
        evidence: "measured".into(),
        machine: "synthetic pack:1 l2:2 core:2".into(),
        shared: [(DomainKind::L2, "0-1"), (DomainKind::L2, "2-3"), (DomainKind::Package, "0-3")]
            .map(|(resource, pes)| Shared { resource, pes: pes.parse().unwrap() })
            .into(),
        kinds: Vec::new(),
        timeline: timeline(&threads),
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

/// Two applications on one fast PE and two slow ones: one has a sequential phase, with a raised weight on the
/// fast PE, which the other one's only thread has before and after; its threads are bound to both slow PEs.
pub fn phases() -> Report {
    let mut report = report(Vec::new(), Vec::new());
    let other = ApplicationReport { name: "single".into(), ..report.applications[0].clone() };
    report.applications.push(other);
    let pes_of = |list: &str| list.parse::<CpuSet>().unwrap();
    report.kinds = [("fast", "2"), ("slow", "0-1")]
        .map(|(name, pes)| PeKind { name: name.to_owned(), pes: pes_of(pes) })
        .into();
    report.shared.clear();
    let (column_ns, count) = (SECOND_NS / 10, 104);
    let list = |value: fn(usize) -> f64| (0..count).map(value).collect::<Vec<f64>>();
    let phase = |column: usize| f64::from(u8::from((40..60).contains(&column)));
    let (claimed, free) = (list(phase), list(|column| f64::from(u8::from(!(40..60).contains(&column)))));
    let begins = |columns: &[usize]| (0..count).map(|c| f64::from(u8::from(columns.contains(&c)))).collect();
    let slow = |pe| PeOverTime {
        ran: list(|c| if c < 40 { 1.0 } else { 0.5 }),
        bound: vec![1.0; count],
        ..idle(PeId(pe), 0)
    };
    let fast = PeOverTime {
        ran: claimed.clone(),
        bound: claimed.clone(),
        weighted: claimed.clone(),
        bindings: begins(&[40]),
        ..idle(PeId(2), 0)
    };
    let single =
        PeOverTime { ran: free.clone(), bound: free.clone(), bindings: begins(&[0, 60]), ..idle(PeId(2), 1) };
    let runnable = |application, mean, sequential| RunnableOverTime {
        application: Some(application),
        first_column: 0,
        mean,
        sequential,
    };
    let mean = claimed.iter().map(|phase| 4.0 - 3.0 * phase).collect();
    report.timeline = Timeline {
        column_ns,
        runnable: vec![runnable(0, mean, claimed), runnable(1, vec![1.0; count], vec![1.0; count])],
        pes: vec![slow(0), slow(1), fast, single],
    };
    report
}
