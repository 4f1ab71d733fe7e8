//! The page in a real browser, with honest and with hostile reports.

use super::render;
use crate::page::browser;
use crate::report::fixture::{SECOND_NS, decision, pair, phases, report, thread};
use corewise_core::report::Report;
use corewise_testing::needs;

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
    report.nothing_to_gain = Some(HOSTILE[0].into());
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
fn a_browser_shows_phases_above_the_lanes_of_fast_and_slow_pes() {
    needs!(Chromium);
    let dom = dom(&phases());
    assert_eq!(count(&dom, "class=\"parallelism\""), 2);
    assert_eq!(count(&dom, "class=\"did\""), 4);
    for shown in [
        "pair.sh: number of runnable threads, up to 4 here",
        "PEs 2 are fast",
        "PEs 0-1 are slow",
        "PE 0 (slow), pair.sh: ran 7.20 s, bound 10.40 s",
        "PE 2 (fast), single: ran 8.40 s, bound 8.40 s in 2 bindings",
        "bound, and with a raised weight",
        "One column is 100.0 ms.",
    ] {
        assert!(dom.contains(shown), "{shown} is not in {dom}");
    }
}

/// Many threads that are swapped every few milliseconds.
fn flicker() -> Report {
    let swaps = |index: u64| {
        let at = move |swap: u64| (swap * 10 + index) * SECOND_NS / 1_000;
        let bound: Vec<_> =
            (0..1_000).map(|swap| (at(swap), at(swap) + 10_000_000, (swap % 4) as u32)).collect();
        thread(index as u32, "worker", &[(0, 10 * SECOND_NS, 0, 0.5)], &bound)
    };
    report((0..60).map(swaps).collect(), Vec::new())
}

#[test]
fn very_many_bindings_make_no_large_page() {
    let page = render(&flicker());
    assert_eq!(count(&page, "class=\"binding\""), 600);
    assert!(page.contains("59400 short bindings are not drawn here, but below in sum."));
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
}

#[test]
fn a_browser_paints_the_page() {
    needs!(Chromium);
    for (name, report, bytes_min) in
        [("pair", pair(), 40_000), ("phases", phases(), 40_000), ("crowd", crowd(), 100_000)]
    {
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
    assert_eq!(count(&dom, "<table"), 3);
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

#[test]
fn every_form_begins_with_what_was_done_about_waits() {
    let mut report = pair();
    report.nothing_to_gain = Some("nothing is shared".into());
    report.waits.processes_with_short_waits = 4;
    report.waits.processes_in_turns = 2;
    let page = render(&report);
    let forms = [
        ("page", page.split_once("class=\"headline\"").unwrap().1),
        ("text", &crate::report::table::render(&report)),
        ("explanation", &crate::report::explanation::of_run(&report)),
    ];
    for (name, form) in forms {
        let beginning: String = form.chars().take(400).collect();
        for done in ["sleep instead of spin", "4 processes", "take turns", "2 processes"] {
            assert!(beginning.contains(done), "{name}: no `{done}` in {beginning}");
        }
    }
}

#[test]
fn the_page_begins_with_the_busiest_program() {
    let mut report = report(vec![thread(1, "a", &[(0, 9, 0, 1.0)], &[])], Vec::new());
    let shell = &mut report.applications[0];
    (shell.name, shell.cpu_seconds) = ("sh".into(), 0.01);
    let mut solver = shell.clone();
    (solver.name, solver.executed_by, solver.cpu_seconds) = ("solver".into(), Some("sh".into()), 30.0);
    report.applications.push(solver);
    let page = render(&report);
    let at = |heading: &str| page.find(heading).unwrap_or_else(|| panic!("no {heading} in {page}"));
    assert!(at("<h2>Application solver</h2>") < at("<h2>Application sh</h2>"));
}
