use super::*;
use crate::terminal::keys::Key;
use corewise_core::cpuset::CpuSet;
use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::ids::{AppId, PeId, ThreadId};
use corewise_core::observe::{
    ApplicationReading, CounterReading, Hints, Input, Observation, SampleReading, Standing, ThreadReading,
};
use corewise_core::plan::Assignment;
use corewise_core::policy;
use corewise_core::report::Sources;
use corewise_core::time::Time;
use corewise_core::top::DaemonState;
use corewise_core::topology::Topology;
use std::sync::Arc;

const SECOND: u64 = 1_000_000_000;

/// The names of the programs; each has as many threads as its place in the list.
const PROGRAMS: [&str; 5] = ["povray", "hmmsearch", "python3", "cc1plus", "bash"];

fn about() -> About {
    About {
        what: "all programs of this user".to_owned(),
        sources: Sources { discovery: "poll".to_owned(), counters: "sample".to_owned() },
        look: Look { colors: false, unicode: true },
        notes: vec!["process 1 was left out".to_owned()],
        replayed_seconds: None,
    }
}

/// One of so many threads that are busy in turn.
fn reading(index: u32, second: u64, allowed: &CpuSet) -> ThreadReading {
    let app = (0..5).find(|app| index < (app + 1) * (app + 2) / 2).unwrap_or(4);
    let pe = allowed.iter().nth(index as usize % allowed.len());
    let busy = 100 - u64::from(index % 10) * 10;
    let fp = if app == 0 || app == 2 { 180.0 } else { 10.0 } * second as f64;
    let sample = SampleReading {
        judged: 200 * second,
        spinning: 20 * second * u64::from(index % 3),
        fp,
        vector: fp,
        ..SampleReading::default()
    };
    ThreadReading {
        thread: ThreadId { tid: 1000 + index, generation: 7 },
        pid: 1000 + index,
        app: AppId(app),
        name: PROGRAMS[app as usize].into(),
        cpu_ns: second * busy * SECOND / 100,
        runnable_ns: None,
        runnable: true,
        last_pe: pe,
        standing: if index == 3 { Standing::SelfPinned } else { Standing::Free },
        permitted: Arc::new(allowed.clone()),
        counters: Some(CounterReading::Sample(sample)),
        progress: None,
        hints: Hints::default(),
        sizing: corewise_core::observe::Sizing::Fixed,
        ended: false,
    }
}

fn application(app: u32, second: u64) -> ApplicationReading {
    let ns = second * SECOND;
    ApplicationReading {
        app: AppId(app),
        name: PROGRAMS[app as usize].into(),
        processes: 1,
        runnable_thread_ns: ns * u64::from(app + 1),
        active_ns: ns,
        sequential_ns: if app == 1 { ns / 2 } else { 0 },
        runnable_max: app + 1,
        exact: true,
        ..ApplicationReading::default()
    }
}

/// A machine with so many threads after so many seconds; some PEs may be offline then.
fn top(machine: Topology, policy: &str, (threads, seconds): (u32, u64), offline: &[u32]) -> Top {
    let allowed = machine.pes.clone();
    let mut engine = Engine::new(machine, policy::build(policy).unwrap(), EngineConfig::default());
    let mut top = Top::default();
    for second in 1..=seconds {
        let mut allowed = allowed.clone();
        if second == seconds {
            offline.iter().for_each(|pe| allowed.remove(PeId(*pe)));
        }
        let observation = Observation {
            at: Time(second * SECOND),
            threads: (0..threads).map(|index| reading(index, second, &allowed)).collect(),
            applications: (0..5).map(|app| application(app, second)).collect(),
            own_cpu_ns: second * 5_000_000,
            answers_cpu_ns: 0,
            allowed,
            ..Observation::default()
        };
        let actions = engine.step(&observation);
        top.take(&Input::Observation(observation), &actions, &engine);
    }
    top
}

fn small() -> Top {
    top(Topology::synthetic("pack:1 l2:2 core:1 pu:1").unwrap(), "default", (7, 8), &[])
}

/// 16 PEs with SMT, of two kinds.
fn hybrid() -> Topology {
    let machine = Topology::synthetic("pack:1 l3:1 l2:4 core:2 pu:2").unwrap();
    machine.with_stated_kinds("0-7", Some("8-15")).unwrap()
}

fn press(screen: &mut Screen, top: &Top, keys: &str) -> Vec<Effect> {
    keys.chars().map(|c| screen.press(Key::Char(c), top)).collect()
}

fn strike(screen: &mut Screen, top: &Top, keys: &[Key]) {
    keys.iter().for_each(|key| assert_eq!(screen.press(*key, top), Effect::Draw));
}

fn drawn(top: &Top, screen: &Screen, size: (u16, u16)) -> String {
    shown(top, screen, &about(), size)
}

#[test]
fn the_first_screen_of_a_small_machine() {
    insta::assert_snapshot!("small", drawn(&small(), &Screen::default(), (80, 24)));
    insta::assert_snapshot!("small_wide", drawn(&small(), &Screen::default(), (160, 24)));
}

#[test]
fn a_machine_with_smt_and_two_kinds_of_pes() {
    let top = top(hybrid(), "spread", (15, 8), &[5]);
    insta::assert_snapshot!("hybrid", drawn(&top, &Screen::default(), (80, 24)));
    insta::assert_snapshot!("hybrid_wide", drawn(&top, &Screen::default(), (180, 50)));
}

#[test]
fn many_pes_are_grouped_by_what_they_share() {
    let machine = Topology::synthetic("pack:2 l3:4 core:16 pu:2").unwrap();
    let top = top(machine, "default", (15, 8), &[7, 9]);
    insta::assert_snapshot!("many", drawn(&top, &Screen::default(), (80, 24)));
}

#[test]
fn a_thread_is_explained() {
    let module = Topology::synthetic("module:2 core:2 pu:1").unwrap();
    let top = top(module, "spread", (7, 8), &[]);
    let mut screen = Screen::default();
    screen.press(Key::Enter, &top);
    insta::assert_snapshot!("thread", drawn(&top, &screen, (80, 40)));
    let mut screen = Screen::default();
    strike(&mut screen, &top, &[Key::Tab, Key::Enter]);
    insta::assert_snapshot!("application", drawn(&top, &screen, (80, 40)));
}

#[test]
fn what_a_daemon_has_bound_is_not_taken_for_the_threads_own_choice() {
    let (mut top, mut screen) = (small(), Screen::default());
    // It has set its own PEs, as it seems from outside.
    let bound = Assignment { pes: "1".parse().unwrap(), reason: "its FPU is free".into() };
    top.daemon = Some(DaemonState {
        policy: "spread".to_owned(),
        own_share: Some(0.004),
        findings: vec!["placement gains 1.20".to_owned()],
        bound: [(1003, bound)].into(),
    });
    let seen = drawn(&top, &screen, (120, 24));
    let head =
        "The daemon (policy spread) has bound 1 of 7 threads, takes 0.4 % of a PE; placement gains 1.20";
    assert!(
        seen.contains(head) && seen.contains("1: its FPU is free") && !seen.contains("by itself"),
        "{seen}"
    );
    press(&mut screen, &top, "/python3");
    strike(&mut screen, &top, &[Key::Enter, Key::Enter]);
    let explained = drawn(&top, &screen, (120, 40));
    assert!(explained.contains("The daemon has bound it to 1: its FPU is free."), "{explained}");
    assert!(!explained.contains("Its user permits"), "{explained}");
    assert!(
        explained.contains("Its policy is spread.") && explained.contains("Measured: placement"),
        "{explained}"
    );
}

#[test]
fn help_says_what_is_not_known_here_and_fits_in_two_screens() {
    let (top, mut screen) = (small(), Screen::default());
    press(&mut screen, &top, "?");
    let help = drawn(&top, &screen, (80, 60));
    insta::assert_snapshot!("help", help);
    assert!(help.contains("process 1 was left out"), "{help}");
    assert!(help.trim_end().lines().count() <= 60);
    let first = drawn(&top, &screen, (80, 24));
    assert!(!first.contains("process 1 was left out"));
    for _ in 0..10 {
        screen.press(Key::PageDown, &top);
    }
    assert!(drawn(&top, &screen, (80, 24)).contains("process 1 was left out"), "the end");
    screen.press(Key::Escape, &top);
    assert_eq!(screen.page, Page::Machine);
}

#[test]
fn rows_are_sorted_filtered_and_chosen() {
    let (top, mut screen) = (small(), Screen::default());
    let tids = |screen: &Screen| -> Vec<u32> {
        screen.thread_rows(&top).iter().map(|thread| thread.tid - 1000).collect()
    };
    assert_eq!(tids(&screen), [0, 1, 2, 3, 4, 5, 6], "by CPU");
    press(&mut screen, &top, "s");
    assert_eq!((screen.sort, tids(&screen)), (Sort::Fpu, vec![0, 3, 4, 5, 1, 2, 6]));
    press(&mut screen, &top, "s");
    assert_eq!((screen.sort, tids(&screen)), (Sort::Spin, vec![2, 5, 1, 4, 0, 3, 6]));
    press(&mut screen, &top, "s");
    assert_eq!((screen.sort, tids(&screen)), (Sort::Pe, vec![0, 2, 4, 6, 1, 3, 5]));
    press(&mut screen, &top, "s");
    assert_eq!(screen.sort, Sort::Name);
    press(&mut screen, &top, "sS");
    assert_eq!(screen.sort, Sort::Name);
    press(&mut screen, &top, "s/PYq");
    assert!(screen.is_typing, "a letter is no key then");
    strike(&mut screen, &top, &[Key::Backspace, Key::Enter]);
    assert_eq!(tids(&screen), [3, 4, 5]);
    strike(&mut screen, &top, &[Key::Down, Key::Down, Key::Down, Key::Up]);
    assert_eq!(screen.thread.map(|thread| thread.tid), Some(1004));
    // The row stays chosen in another order, and when all are shown again.
    press(&mut screen, &top, "s");
    screen.press(Key::Escape, &top);
    assert_eq!((screen.thread.map(|thread| thread.tid), tids(&screen).len()), (Some(1004), 7));
    press(&mut screen, &top, "/nothing");
    assert!(drawn(&top, &screen, (80, 24)).contains("no thread has such a name"));
    screen.press(Key::End, &top);
    screen.press(Key::Enter, &top);
    screen.press(Key::Down, &top);
    screen.press(Key::Enter, &top);
    assert!(drawn(&top, &screen, (80, 24)).contains("Nothing is chosen"));
}

#[test]
fn keys_end_stop_and_pause_it() {
    let (top, mut screen) = (small(), Screen::default());
    assert_eq!(press(&mut screen, &top, " q"), [Effect::Draw, Effect::Quit]);
    assert!(screen.is_paused && drawn(&top, &screen, (80, 24)).contains("PAUSED"));
    assert_eq!(screen.press(Key::Control('z'), &top), Effect::Stop);
    press(&mut screen, &top, "/");
    assert_eq!(screen.press(Key::Control('c'), &top), Effect::Quit, "whatever else is open");
}

#[test]
fn a_replay_shows_its_time_and_speed() {
    let (top, mut screen) = (small(), Screen::default());
    press(&mut screen, &top, "++");
    let about = About { replayed_seconds: Some(40.0), ..about() };
    let drawn = shown(&top, &screen, &about, (80, 24));
    assert!(drawn.lines().next().unwrap().ends_with("8 of 40 s ×4"), "{drawn}");
    press(&mut screen, &top, &"-".repeat(99));
    assert!(screen.speed() > 0.0);
}

/// No size, state or machine makes it panic, and no line is longer than the terminal.
#[test]
fn it_draws_in_any_size() {
    let off: Vec<u32> = (1..16).collect();
    let machines = [Top::default(), small(), top(hybrid(), "spread", (200, 3), &off)];
    let screens = ["", "?", "/x", " "].map(|keys| {
        let mut screen = Screen::default();
        press(&mut screen, &machines[1], keys);
        screen
    });
    for top in &machines {
        for screen in &screens {
            for size in [(1, 1), (40, 10), (41, 11), (80, 24), (300, 100)] {
                let drawn = drawn(top, screen, size);
                assert!(drawn.lines().all(|line| line.chars().count() <= size.0 as usize), "{drawn}");
            }
        }
    }
}

#[test]
fn without_unicode_every_mark_is_ascii() {
    let look = Look { colors: false, unicode: false };
    let about = About { look, ..about() };
    let drawn = shown(&top(hybrid(), "spread", (15, 8), &[5]), &Screen::default(), &about, (80, 24));
    assert!(drawn.is_ascii(), "{drawn}");
}

#[test]
fn names_cannot_control_the_terminal() {
    let mut top = small();
    for thread in top.threads.values_mut() {
        thread.name = "\u{1b}[2J\u{202e}evil".into();
        thread.program = Some("a\nb\u{9b}".into());
    }
    let mut screen = Screen::default();
    for _ in 0..2 {
        let drawn = drawn(&top, &screen, (80, 24));
        assert!(!drawn.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{drawn:?}");
        screen.press(Key::Enter, &top);
    }
}

#[test]
fn one_screen_as_text_holds_every_row() {
    let top = top(hybrid(), "spread", (15, 8), &[]);
    let text = text(&top, &Screen::default(), &about(), 100);
    for tid in 1000..1015 {
        assert!(text.contains(&format!(" {tid} ")), "{tid} in {text}");
    }
    assert!(!text.contains("q quit") && text.ends_with('\n') && !text.ends_with("\n\n"), "{text}");
}
