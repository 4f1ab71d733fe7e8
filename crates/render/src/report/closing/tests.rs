use super::*;
use crate::report::fixture::{decision, pair, report, thread};
use crate::report::{explanation, page, table};
use corewise_core::guard::waits::{WaitsFindings, WaitsState};
use corewise_core::guard::{Findings, Gain, State};
use corewise_core::observe::ProgressSource;
use corewise_core::report::{ChangedProgram, WaitsReport, headline_of_unwatched};

const NOTHING_SHARED: &str =
    "no two allowed PEs share an FPU, so keeping FPU-intensive threads apart gains nothing";

fn programs(counts: &[(&str, u64)]) -> Vec<ChangedProgram> {
    counts.iter().map(|&(name, processes)| ChangedProgram { name: name.into(), processes }).collect()
}

/// A run of four trainings on a machine without anything shared, changed like this.
fn trainings(change: impl Fn(&mut Report)) -> Report {
    let mut run = report((1..=4).map(|tid| thread(tid, "python3", &[], &[])).collect(), Vec::new());
    for thread in &mut run.threads {
        (thread.program, thread.spin_share) = (Some("train.py".into()), Some(0.0));
    }
    run.nothing_to_gain = Some(NOTHING_SHARED.to_owned());
    run.waits.handled = true;
    change(&mut run);
    run
}

fn spinning(report: &mut Report) {
    report.waits.programs = programs(&[("train.py", 4)]);
    report.waits.processes_with_short_waits = 4;
    report.waits.spinning_cpu_seconds = Some(18.6);
}

fn found(state: WaitsState, gain: Option<(f64, f64, f64)>) -> Option<WaitsFindings> {
    let gain = gain.map(|(value, low, high)| Gain { value, low: Some(low), high: Some(high) });
    let meter = Some(ProgressSource::WorkingTime);
    let taken_back_after_seconds = (state == WaitsState::TakenBack).then_some(26.2);
    Some(WaitsFindings { state, meter, gain, runs: 4, taken_back_after_seconds, ..WaitsFindings::default() })
}

fn placed(state: State, gain: Option<(f64, f64, f64)>) -> Report {
    let mut report = pair();
    let gain = gain.map(|(value, low, high)| Gain { value, low: Some(low), high: Some(high) });
    let mut findings = Findings::default();
    (findings.state, findings.meter, findings.gain) = (state, Some(ProgressSource::Points), gain);
    findings.taken_back_after_seconds = (state == State::TakenBack).then_some(0.6);
    report.guard = Some(findings);
    report
}

/// The closing line of each typical run whose waits were changed.
fn changed_waits() -> Vec<(&'static str, String)> {
    let run = |change: &dyn Fn(&mut Report)| of_run(&trainings(change));
    vec![
        (
            "spin counts lowered, too short for a verdict",
            run(&|r| {
                spinning(r);
                r.waits.guard = found(WaitsState::NotJudged, None);
            }),
        ),
        (
            "spin counts and turns, judged",
            run(&|r| {
                spinning(r);
                r.waits.processes_in_turns = 2;
                r.waits.guard = found(WaitsState::Kept, Some((1.1, 0.8, 1.6)));
            }),
        ),
        (
            "taken back",
            run(&|r| {
                spinning(r);
                r.waits.guard = found(WaitsState::TakenBack, Some((-0.1, -0.141, -0.057)));
            }),
        ),
        (
            "turns alone, of several programs, without a guard",
            run(&|r| {
                r.waits.programs = programs(&[("train.py", 2), ("solver", 1), ("eval.py", 1)]);
                r.waits.processes_in_turns = 4;
            }),
        ),
        ("a smaller team", run(&|r| r.waits.team_size = Some(3))),
        (
            "a team of fast PEs",
            run(&|r| (r.waits.team_size, r.waits.team_pes) = (Some(6), Some("0-5".parse().unwrap()))),
        ),
        ("a schedule", run(&|r| r.waits.schedule = Some("guided".into()))),
    ]
}

/// The closing line of each other typical run.
fn others() -> Vec<(&'static str, String)> {
    let run = |change: &dyn Fn(&mut Report)| of_run(&trainings(change));
    vec![
        ("placed, and unclear", of_run(&placed(State::Unclear, Some((-0.002, -0.102, 0.11))))),
        ("placed and judged", of_run(&placed(State::Kept, Some((0.073, 0.051, 0.094))))),
        ("placed and reverted", of_run(&placed(State::TakenBack, Some((-0.031, -0.05, -0.012))))),
        ("placed, without a guard", of_run(&pair())),
        ("nothing", run(&|_| ())),
        ("nothing of another policy", run(&|r| (r.policy, r.nothing_to_gain) = ("pa".to_owned(), None))),
        ("nothing wanted", run(&|r| (r.policy, r.waits.handled) = ("default".to_owned(), false))),
        (
            "a dry run",
            run(&|r| {
                r.dry_run = true;
                r.nothing_to_gain = None;
                r.decisions = vec![decision(0, 1, Some(0), "a"), decision(0, 2, Some(0), "a")];
            }),
        ),
        ("watched late", run(&|r| r.applications[0].from_seconds = 4.04)),
        (
            "not watched",
            of_unwatched(
                &headline_of_unwatched(&WaitsReport::default(), "the command ended before watching began"),
                Duration::from_millis(660),
                Some(Duration::from_millis(1_200)),
            ),
        ),
        (
            "not watched, but changed",
            of_unwatched(
                &headline_of_unwatched(&trainings(spinning).waits, "the command ended before watching began"),
                Duration::from_millis(660),
                None,
            ),
        ),
    ]
}

#[test]
fn the_closing_line_says_first_what_was_done_and_what_that_gained() {
    let lines: Vec<_> = changed_waits()
        .into_iter()
        .chain(others())
        .map(|(run, line)| format!("{run}:\n  {line}\n"))
        .collect();
    insta::assert_snapshot!(lines.concat());
}

#[test]
fn every_form_has_the_same_first_sentence() {
    let run = trainings(spinning);
    let sentence = headline(&run).to_string();
    assert!(explanation::of_run(&run).starts_with(&sentence));
    assert!(explanation::of_thread(&run, 1).unwrap().starts_with(&sentence));
    assert!(table::render(&run).starts_with(&sentence));
    assert!(page::render(&run).contains(&format!("<p class=\"headline\">{sentence}</p>")));
    assert!(sentence.ends_with(&format!("{}.", of_run(&run).split(". 10.40 s").next().unwrap())));
}

#[test]
fn a_hostile_name_stays_in_the_line() {
    let run = trainings(|run| {
        spinning(run);
        run.waits.programs = programs(&[("a\nb\u{1b}[2J", 4)]);
    });
    for form in [of_run(&run), table::render(&run), explanation::of_run(&run)] {
        assert!(form.contains("a\\u000ab\\u001b[2J (4 processes)"), "{form}");
    }
}
