//! Settings of threads: what a policy wants and the world may not support.

use super::*;
use crate::plan::{Setting, SettingKind, WantedSetting, Weight};

/// Wants a weight for every thread, and the second PE.
struct Heavy;

impl Policy for Heavy {
    fn name(&self) -> &str {
        "heavy"
    }

    fn needs(&self) -> Needs {
        Needs::NONE
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        let threads = || scene.threads.iter().map(|subject| subject.view.thread);
        let assignment = Assignment { pes: CpuSet::single(PeId(1)), reason: "test".into() };
        let setting = Setting::Weight(Weight::Percent(200));
        let wanted = WantedSetting { setting, reason: "test".into() };
        Placement {
            bound: threads().map(|thread| (thread, assignment.clone())).collect(),
            settings: threads().map(|thread| ((thread, SettingKind::Weight), wanted.clone())).collect(),
            nothing_to_gain: None,
        }
    }
}

#[test]
fn an_unsupported_setting_is_observed_and_not_asked_for_again() {
    let topology = bulldozer();
    let allowed = vec![(Time(0), topology.allowed.clone())];
    // The second comes later, when weights are known to be unsupported.
    let late = ScriptedThread { lives: second(5)..second(100), ..ScriptedThread::steady(0.0) };
    let mut world = ScriptedWorld::new(allowed, vec![ScriptedThread::steady(0.0), late], second(40));
    let mut engine = Engine::new(topology, Box::new(Heavy), EngineConfig::default());
    let (mut asked, mut outcomes) = (Vec::new(), Vec::new());
    control_loop(&mut world, &mut engine, |input, actions, _| {
        let about_settings = |change: &Change| change.setting_kind().is_some();
        let settings = actions.iter().filter(|action| about_settings(&action.change));
        asked.extend(settings.map(|action| (input.at(), action.thread, action.change.clone())));
        outcomes.extend(input.outcomes().iter().filter(|o| about_settings(&o.change)).cloned());
    })
    .unwrap();
    let change = Change::Set(Setting::Weight(Weight::Percent(200)));
    assert_eq!(asked, [(second(1), id(0), change.clone())]);
    assert_eq!(outcomes, [Outcome { thread: id(0), change, result: OutcomeKind::Unsupported }]);
    assert!(engine.present().settings.is_empty());
}

#[test]
fn a_setting_is_kept_refused_and_given_back_as_a_binding_is() {
    let step = |engine: &mut Engine, second, outcomes| {
        let actions = engine.step(&observe(second, Standing::Free, outcomes));
        actions.into_iter().filter(|action| action.change.setting_kind().is_some()).collect::<Vec<_>>()
    };
    let set = Change::Set(Setting::Weight(Weight::Percent(200)));
    let mut engine = Engine::new(bulldozer(), Box::new(Heavy), EngineConfig::default());
    let first = step(&mut engine, 1, Vec::new());
    assert_eq!(first[0].change, set);
    let refused = outcome(&first[0], OutcomeKind::Refused("EPERM".to_owned()));
    assert!(step(&mut engine, 2, vec![refused]).is_empty(), "left alone for a while");
    let again = step(&mut engine, 40, Vec::new());
    assert_eq!(again[0].change, set);
    let done = vec![outcome(&again[0], OutcomeKind::Done)];
    assert!(step(&mut engine, 41, done).is_empty(), "it has it");
    let released = engine.release_all();
    assert!(released.iter().any(|action| action.change == Change::Reset(SettingKind::Weight)));
}

/// While corewise is stopped, its guardian gives everything back: nobody fights with it.
#[test]
fn what_was_given_back_in_corewises_place_is_changed_again_however_often() {
    let mut engine = Engine::new(bulldozer(), Box::new(Heavy), EngineConfig::default());
    let weight = Change::Set(Setting::Weight(Weight::Percent(200)));
    let mut outcomes = Vec::new();
    for at in (1..20).step_by(2) {
        let actions = engine.step(&observe(at, Standing::Free, std::mem::take(&mut outcomes)));
        let changes: Vec<Change> = actions.iter().map(|action| action.change.clone()).collect();
        assert_eq!(changes, [Change::Bind(CpuSet::single(PeId(1))), weight.clone()], "at {at} s");
        let done = actions.iter().map(|action| outcome(action, OutcomeKind::Done)).collect();
        assert!(engine.step(&observe(at + 1, Standing::Bound, done)).is_empty());
        let given_back = [Change::Free, Change::Reset(SettingKind::Weight)];
        let thread = actions[0].thread;
        outcomes.extend(given_back.map(|change| Outcome { thread, change, result: OutcomeKind::GivenBack }));
    }
    assert_eq!(engine.notes().count(), 0);
}
