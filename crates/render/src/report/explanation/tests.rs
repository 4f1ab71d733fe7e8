use super::{of_run, of_thread};
use crate::report::fixture::{SECOND_NS, decision, pair, report, thread};
use corewise_core::classify::FpuClass;
use corewise_core::guard::waits::{WaitsFindings, WaitsState};
use corewise_core::guard::{BACK, EPOCH, Findings, Gain, State};
use corewise_core::losses::Lost;
use corewise_core::observe::{ProgressSource, Standing};
use corewise_core::report::{PredictedReport, Report};

fn found(state: State, meter: Option<ProgressSource>, gain: Option<Gain>) -> Findings {
    let mut findings = Findings::default();
    (findings.state, findings.meter, findings.gain) = (state, meter, gain);
    (findings.trials, findings.trial_seconds) = (2, 3.0);
    findings
}

/// A placement that was tried in epochs and reverted, beside threads that are left alone.
fn tried() -> Report {
    let mut report = pair();
    for pair in 0..12 {
        let at = 3 * SECOND_NS + pair * 48_000_000;
        report.decisions.push(decision(at, 4211, None, EPOCH));
        report.decisions.push(decision(at + 1_000_000, 4211, Some(1), BACK));
        report.decisions.push(decision(at + 24_000_000, 4211, Some(0), "the same reason, each time"));
    }
    report.decisions.push(decision(4 * SECOND_NS, 4211, None, "placement reverted after 0.6 s"));
    report.decisions[1].outcome = Some("refused: EPERM".into());
    let gain = Gain { value: -0.031, low: Some(-0.05), high: Some(-0.012) };
    let mut findings = found(State::TakenBack, Some(ProgressSource::Instructions), Some(gain));
    findings.taken_back_after_seconds = Some(0.6);
    report.guard = Some(findings);
    report.threads[2].standing = Standing::SelfPinned;
    report.waits.spinning_cpu_seconds = Some(1.5);
    report.waits.processes_with_short_waits = 2;
    report.waits.processes_in_turns = 1;
    report.waits.guard = Some(WaitsFindings {
        state: WaitsState::TakenBack,
        meter: Some(ProgressSource::WorkingTime),
        gain: Some(Gain { value: -0.1, low: Some(-0.141), high: Some(-0.057) }),
        runs: 2,
        taken_back_after_seconds: Some(26.2),
        ..WaitsFindings::default()
    });
    report
}

#[test]
fn a_run_is_explained() {
    insta::assert_snapshot!(of_run(&pair()));
}

#[test]
fn what_was_refused_taken_back_or_left_alone_is_explained() {
    insta::assert_snapshot!(of_run(&tried()));
}

#[test]
fn one_thread_is_explained_and_repetitions_are_summarised() {
    insta::assert_snapshot!(of_thread(&tried(), 4211).unwrap());
    assert_eq!(of_thread(&tried(), 99), None);
}

#[test]
fn each_answer_to_whether_it_helped_has_its_own_words() {
    let gain = Gain { value: 0.073, low: Some(0.051), high: Some(0.094) };
    let guarded = |state, meter, gain| Some(found(state, meter, gain));
    let points = Some(ProgressSource::Points);
    let with = |change: &dyn Fn(&mut Report)| {
        let mut report = pair();
        change(&mut report);
        of_run(&report)
    };
    let check = |text: String, words: &str| assert!(text.contains(words), "no `{words}` in {text}");
    check(with(&|r| r.guard = guarded(State::Kept, points, Some(gain))), "Yes. The placement was switched");
    check(
        with(&|r| r.guard = guarded(State::Kept, points, Some(gain))),
        "7.3 % more was done (with 95 % certainty between +5.1 and +9.4 %). So it was kept.",
    );
    check(with(&|r| r.guard = guarded(State::Fell, points, Some(gain))), "At first.");
    check(with(&|r| r.guard = guarded(State::Unclear, points, Some(gain))), "Unclear.");
    check(with(&|r| r.guard = guarded(State::NotJudged, points, None)), "the run was too short");
    check(with(&|r| r.guard = guarded(State::NotJudged, None, None)), "Not measured");
    check(with(&|_| ()), "the run had no guard");
    check(with(&|r| r.decisions.clear()), "wanted to bind no thread");
    check(
        with(&|r| r.nothing_to_gain = Some("nothing is shared".into())),
        "Nothing was placed: nothing is shared.",
    );
    check(with(&|r| r.policy = "default".into()), "there is nothing to judge");
    let lost = |units| Lost { units, memory: 0.05, ..Lost::default() };
    let predicted = PredictedReport {
        seconds: 3.0,
        free_pe_seconds_per_second: lost(0.4),
        placed_pe_seconds_per_second: lost(0.1),
    };
    check(
        with(&|r| r.predicted = Some(predicted)),
        "the threads lose 0.45 seconds of CPU time per second to each other, with it 0.15 (0.40 and 0.10 by \
         shared units).",
    );
    let replayed = with(&|r| {
        r.dry_run = true;
        r.decisions.iter_mut().for_each(|decision| decision.outcome = None);
    });
    check(replayed.clone(), "This was a dry run");
    check(replayed, "it would have been bound to PE 0");
}

#[test]
fn reasons_of_being_free_are_those_of_the_policy() {
    let free = |class, policy: &str| {
        let mut report = report(vec![thread(7, "t", &[(0, 9, 0, 1.0)], &[])], Vec::new());
        (report.threads[0].fpu_class, report.policy) = (class, policy.to_owned());
        of_run(&report)
    };
    for (class, policy, words) in [
        (FpuClass::Light, "spread", "uses floating point too little"),
        (FpuClass::Unknown, "spread:hysteresis=0.1", "too little is known about its usage"),
        (FpuClass::Light, "pa:stay=1s", "the policy never asked to bind it"),
        (FpuClass::Unknown, "no such policy", "the policy never asked to bind it"),
    ] {
        let text = free(class, policy);
        assert!(text.contains(words), "no `{words}` in {text}");
    }
}

#[test]
fn a_name_writes_no_lines_of_its_own() {
    let text = of_run(&report(vec![thread(7, "a\nb\u{1b}[2J", &[], &[])], Vec::new()));
    assert!(text.contains("a\\u000ab\\u001b[2J 7"), "{text}");
}
