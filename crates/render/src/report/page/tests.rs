//! The page in a real browser, with honest and with hostile reports.

use super::render;
use crate::page::browser;
use corewise_core::classify::{FpuClass, IntensityClass, ParallelismClass};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::observe::{Standing, Target};
use corewise_core::report::{
    ApplicationReport, Binding, Decision, Host, Overhead, RanOn, Report, Shared, Sources, ThreadReport,
    WaitsReport,
};
use corewise_core::topology::DomainKind;
use corewise_testing::needs;

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

fn decision(at_ns: u64, tid: u32, pe: Option<u32>, reason: &str) -> Decision {
    let (reason, outcome) = (reason.to_owned(), Some("done".to_owned()));
    Decision { at_ns, tid, pes: pe.map(|pe| CpuSet::single(PeId(pe))), setting: None, reason, outcome }
}

pub fn report(threads: Vec<ThreadReport>, decisions: Vec<Decision>) -> Report {
    let application = ApplicationReport {
        name: "pair.sh".into(),
        target: Target::Command,
        allowed: None,
        from_seconds: 0.0,
        ended_seconds: None,
        cpu_seconds: 31.2,
        tlp_mean: 3.71,
        sequential_fraction: Some(0.112),
        parallelism_evidence: "exact",
        runnable_max: 4,
        parallelism_class: Some(ParallelismClass::PartiallySequential),
        intensity_class: Some(IntensityClass::Compute),
        fpu_usage: Some(0.49),
        vector_usage: Some(0.24),
        l2_misses_per_100_cycles: None,
        ipc: None,
    };
    Report {
        command: vec!["demo/pair.sh".into(), "target/demo".into()],
        policy: "spread".to_owned(),
        verdict: None,
        dry_run: false,
        evidence: "measured",
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
fn pair() -> Report {
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
        decision(s(10.4), 4211, None, "the run has ended"),
    ];
    report(threads, decisions)
}

/// More of everything than a page can show, on a machine with many PEs.
fn crowd() -> Report {
    let one = |index: u32| {
        let at = |i: u32| u64::from(i) * SECOND_NS;
        let ran: Vec<_> = (0..10).map(|i| (at(i), at(i + 1), (index * 7 + i * i) % 64, 0.5)).collect();
        thread(1000 + index, &format!("worker {index}"), &ran, &[])
    };
    let freed =
        |index: u32| decision(u64::from(index) * SECOND_NS / 100, 1000 + index, None, "it fell below 0.25");
    report((0..1000).map(one).collect(), (0..700).map(freed).collect())
}

const HOSTILE: [&str; 6] = [
    "<script>document.title='owned'</script>",
    "\"><img src=https://a.example/x onerror=alert(1)>",
    "'-->]]></title></svg><style>*{display:none}</style>",
    "\u{202e}desrever\u{0}\u{1b}[31m",
    "&lt;b&gt;",
    "</table></body><h2>forged</h2>",
];

fn hostile() -> Report {
    let threads = HOSTILE.iter().enumerate().map(|(i, name)| thread(i as u32, name, &[(0, 9, 0, 1.0)], &[]));
    let decisions =
        HOSTILE.iter().enumerate().map(|(i, reason)| decision(SECOND_NS, i as u32, Some(0), reason));
    let mut report = report(threads.collect(), decisions.collect());
    report.command = HOSTILE.map(str::to_owned).to_vec();
    report.notes = report.command.clone();
    report.verdict = Some(HOSTILE[0].into());
    report.machine = HOSTILE[1].into();
    report.applications[0].name = HOSTILE[2].into();
    report
}

fn dom(report: &Report) -> String {
    browser::dom(&render(report))
}

fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

#[test]
fn a_browser_shows_every_thread_decision_and_figure() {
    needs!(Chromium);
    let dom = dom(&pair());
    assert_eq!(count(&dom, "<g class=\"row\">"), 4);
    assert_eq!(count(&dom, "class=\"mark"), 3);
    assert_eq!(count(&dom, "id=\"decision-"), 3);
    assert_eq!(count(&dom, "href=\"#decision-"), 3);
    assert_eq!(count(&dom, "class=\"binding\""), 2);
    assert_eq!(count(&dom, "class=\"meter\""), 3);
    for shown in [
        "<code>demo/pair.sh target/demo</code>",
        "on PE 0, bound, 3.00 s to 10.40 s, ran 100 % of the time",
        "on PE 1, free, 7.00 s to 8.00 s, ran 30 % of the time",
        "PEs 0-1 share: l2",
        "node7",
        "Opteron 6272",
        "6.12.1",
        "2000-02-28 23:59 UTC",
        "takes the first PE of module 0",
        "PS, partially sequential",
        "CI, compute-intensive",
        "0.30 % of a PE",
        "2 samples were lost",
        "title=\"not known\">–",
    ] {
        assert!(dom.contains(shown), "{shown} is not in {dom}");
    }
}

#[test]
fn a_browser_paints_the_page() {
    needs!(Chromium);
    for (name, report, bytes_min) in [("pair", pair(), 40_000), ("crowd", crowd(), 100_000)] {
        let png = browser::screenshot(&render(&report));
        // A page without its drawing and tables compresses to a few kilobytes.
        assert!(png.starts_with(b"\x89PNG") && png.len() > bytes_min, "{name}: {} bytes", png.len());
    }
}

#[test]
fn a_crowd_is_folded() {
    needs!(Chromium);
    let dom = dom(&crowd());
    assert_eq!(count(&dom, "<g class=\"row\">"), 60);
    assert_eq!(count(&dom, "id=\"decision-"), 500);
    assert!(dom.contains("and 940 more threads, 117.5 min of CPU time together"));
    assert!(dom.contains("60 of 1000 threads, the busiest. 940 more are in the JSON report."));
    assert!(dom.contains("500 of 700 decisions, the first. 200 more are in the JSON report."));
    assert!(dom.len() < 1 << 20, "{} bytes", dom.len());
}

#[test]
fn hostile_texts_stay_texts() {
    needs!(Chromium);
    let dom = dom(&hostile());
    for element in ["<script", "<img", "<h2>forged", "<b>", "<style>*", "onerror=\"", "\u{202e}", "\u{1b}"] {
        assert!(!dom.contains(element), "{element} got into {dom}");
    }
    assert_eq!(count(&dom, "<g class=\"row\">"), HOSTILE.len());
    assert_eq!(count(&dom, "<table"), 2);
    assert!(dom.contains(r"\u202edesrever\u0000\u001b[31m"));
    assert!(dom.contains("&amp;lt;b&amp;gt;"));
}

#[test]
fn the_page_asks_for_nothing_outside_itself() {
    browser::check_self_contained(&render(&pair()));
}

#[test]
fn an_empty_run_has_a_page() {
    let mut report = report(Vec::new(), Vec::new());
    report.wall_seconds = 0.0;
    let page = render(&report);
    assert!(page.contains("every thread ran where the kernel put it") && !page.contains("NaN"), "{page}");
}
