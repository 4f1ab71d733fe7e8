//! What has happened so far: counted for [`crate::metrics`], and written to the log where somebody may want
//! to act.

use crate::exposition::Samples;
use crate::series::{CHANGES, GAIN, GIVEN_BACK, GUARD_SECONDS, LOOKS, OWN_CPU, VERDICTS, word};
use corewise_core::engine::Engine;
use corewise_core::guard::State;
use corewise_core::guard::waits::WaitsState;
use corewise_core::observe::Input;
use corewise_core::plan::{Change, Outcome, OutcomeKind, SettingKind};
use std::collections::BTreeSet;
use std::time::Duration;

/// The number of different refusals that are logged.
const REFUSALS_MAX: usize = 100;

/// What a guard judges.
const PLACEMENT: &str = "placement";
const WAITS: &str = "waits";

/// The label of changes of PEs; a setting has the word of its kind.
const PES: &str = "pes";

/// What has happened so far.
pub struct Tally {
    counted: Samples,
    own_cpu: Duration,
    /// The time until the next look, as of the last one.
    pub interval: Duration,
    judged: Judged,
    guards: Guards,
    refusals: BTreeSet<(String, String)>,
}

/// How far the guards' verdicts are counted.
#[derive(Default, Clone, Copy, PartialEq)]
struct Judged {
    trials: u32,
    fallen: u32,
    waits: WaitsState,
    waits_second: u64,
}

/// What the guards have measured so far.
#[derive(Default)]
struct Guards {
    seconds: [f64; 2],
    gains: [Option<f64>; 2],
}

impl Tally {
    /// Nothing has happened yet. Counters that may count one day are 0 from the beginning, so that nobody
    /// misses their first increase.
    pub fn new() -> Tally {
        let mut counted = Samples::default();
        counted.add(&LOOKS, &[], 0.0);
        let kinds = SettingKind::ALL.iter().map(word).chain([PES.to_owned()]);
        for (kind, outcome) in kinds.flat_map(|kind| OutcomeKind::EACH.map(|of| (kind.clone(), word(&of)))) {
            counted.add(&CHANGES, &[&kind, &outcome], 0.0);
            counted.add(&GIVEN_BACK, &[&kind, &outcome], 0.0);
        }
        State::VERDICTS.iter().for_each(|of| counted.add(&VERDICTS, &[PLACEMENT, &word(of)], 0.0));
        WaitsState::VERDICTS.iter().for_each(|of| counted.add(&VERDICTS, &[WAITS, &word(of)], 0.0));
        Tally {
            counted,
            own_cpu: Duration::ZERO,
            interval: Duration::ZERO,
            judged: Judged::default(),
            guards: Guards::default(),
            refusals: BTreeSet::new(),
        }
    }

    /// Takes in one round of the loop.
    pub fn take(&mut self, input: &Input, engine: &Engine) {
        input.outcomes().iter().for_each(|outcome| self.take_outcome(outcome));
        self.take_placement_verdict(engine);
        self.take_waits_verdict(engine);
        if let Some(observation) = input.observation() {
            self.counted.add(&LOOKS, &[], 1.0);
            self.own_cpu = Duration::from_nanos(observation.own_cpu_ns);
            self.interval = engine.interval();
        }
    }

    /// Returns what is counted.
    pub fn samples(&self) -> Samples {
        let mut samples = self.counted.clone();
        samples.add(&OWN_CPU, &[], self.own_cpu.as_secs_f64());
        for (index, about) in [PLACEMENT, WAITS].into_iter().enumerate() {
            samples.add(&GUARD_SECONDS, &[about], self.guards.seconds[index]);
            if let Some(gain) = self.guards.gains[index] {
                samples.add(&GAIN, &[about], gain);
            }
        }
        samples
    }

    fn take_outcome(&mut self, outcome: &Outcome) {
        let kind = kind_of(&outcome.change);
        let metric = if outcome.change.gives_back() { &GIVEN_BACK } else { &CHANGES };
        self.counted.add(metric, &[&kind, &word(&outcome.result)], 1.0);
        let OutcomeKind::Refused(why) = &outcome.result else { return };
        // Each refusal once, as the next thread will be refused for the same reason.
        if self.refusals.len() < REFUSALS_MAX && self.refusals.insert((kind.clone(), why.clone())) {
            let tid = outcome.thread.tid;
            log::warn!(
                corewise_event = "refused", corewise_what = kind.as_str(), corewise_reason = why.as_str();
                "the system refuses to change {kind} of threads (first of thread {tid}): {why}"
            );
        }
    }

    fn take_placement_verdict(&mut self, engine: &Engine) {
        let Some(found) = engine.findings() else { return };
        self.guards.seconds[0] = found.trial_seconds;
        self.guards.gains[0] = found.gain.map(|gain| gain.value);
        let judged = Judged { trials: found.trials, fallen: found.fallen, ..self.judged };
        if judged != self.judged {
            self.judged = judged;
            self.judge(PLACEMENT, &word(&found.state), &found.to_string());
        }
    }

    fn take_waits_verdict(&mut self, engine: &Engine) {
        let Some(found) = engine.waits_findings() else { return };
        self.guards.seconds[1] = found.off_seconds;
        self.guards.gains[1] = found.gain.map(|gain| gain.value);
        // Taken back again after a while: the state is the same, the verdict another one.
        let verdict = engine.note().map(|note| note.verdict).filter(|verdict| verdict.is_off);
        let waits_second = verdict.map_or(self.judged.waits_second, |verdict| verdict.second);
        let judged = Judged { waits: found.state, waits_second, ..self.judged };
        if judged != self.judged {
            self.judged = judged;
            if found.state != WaitsState::NotJudged {
                self.judge(WAITS, &word(&found.state), &found.to_string());
            }
        }
    }

    fn judge(&mut self, about: &'static str, verdict: &str, words: &str) {
        self.counted.add(&VERDICTS, &[about, verdict], 1.0);
        let level = match verdict {
            "taken_back" | "fell" => log::Level::Warn,
            _ => log::Level::Info,
        };
        log::log!(
            level, corewise_event = "guard", corewise_about = about, corewise_verdict = verdict;
            "the guard: {words}"
        );
    }
}

fn kind_of(change: &Change) -> String {
    change.setting_kind().map_or_else(|| PES.to_owned(), |kind| word(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::{Format, text};
    use corewise_core::ids::ThreadId;
    use corewise_core::plan::Setting;

    fn outcome(change: Change, result: OutcomeKind) -> Outcome {
        Outcome { thread: ThreadId { tid: 7, generation: 0 }, change, result }
    }

    #[test]
    fn changes_are_counted_by_what_and_outcome() {
        let mut tally = Tally::new();
        let bind = || Change::Bind("0".parse().unwrap());
        for (change, result) in [
            (bind(), OutcomeKind::Done),
            (bind(), OutcomeKind::Done),
            (bind(), OutcomeKind::Refused("no".to_owned())),
            (Change::Free, OutcomeKind::Gone),
            (Change::Set(Setting::SpinCount(1)), OutcomeKind::Done),
            (Change::Reset(SettingKind::Turns), OutcomeKind::NotOurs),
        ] {
            tally.take_outcome(&outcome(change, result));
        }
        let all = [&CHANGES, &GIVEN_BACK, &VERDICTS, &GUARD_SECONDS, &LOOKS, &OWN_CPU];
        let text = text(&all, &tally.samples(), Format::OpenMetrics, &[]);
        for line in [
            "corewise_changes_total{what=\"pes\",outcome=\"done\"} 2",
            "corewise_changes_total{what=\"pes\",outcome=\"refused\"} 1",
            "corewise_changes_total{what=\"spin_count\",outcome=\"done\"} 1",
            "corewise_given_back_total{what=\"pes\",outcome=\"gone\"} 1",
            "corewise_given_back_total{what=\"turns\",outcome=\"not_ours\"} 1",
            "corewise_changes_total{what=\"weight\",outcome=\"done\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert_eq!(text.matches("outcome=").count(), 2 * 4 * 6, "all are known before");
    }
}
