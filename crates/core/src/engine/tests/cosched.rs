//! The rules of the co-scheduler for SMT siblings (Moseley et al., CF'05, §4.1), one test per rule.

use super::*;

// The last column repeats the one before: nothing is decided at the end.

/// The paper's machine: one core with two siblings. PE 1, the last of the core, is designated for high-cache
/// threads.
fn hyperthreading() -> Topology {
    machine(DomainKind::Core, 1, 2)
}

/// A thread with that FPU usage by hardware counters.
fn counted(fpu_usage: f64) -> ScriptedThread {
    misses(&[(0, 0.0)], fpu_usage)
}

/// A thread with those L2 misses per 100 cycles from each second on.
fn misses(phases: &[(u64, f64)], fpu_usage: f64) -> ScriptedThread {
    let rates = |&(from, l2_misses_per_100_cycles): &(u64, f64)| {
        (second(from), ScriptedRates { ipc: 1.0, l2_misses_per_100_cycles, ..ScriptedRates::default() })
    };
    ScriptedThread { rates: phases.iter().map(rates).collect(), ..ScriptedThread::steady(fpu_usage) }
}

fn timeline(policy: &str, topology: &Topology, threads: Vec<ScriptedThread>) -> String {
    let allowed = vec![(Time(0), topology.allowed.clone())];
    draw_policy(policy::build(policy).unwrap(), topology, allowed, 10, threads)
}

#[test]
fn unlike_threads_sit_beside_each_other() {
    // Two that use the FPU, two that do not, in the order in which taking the first would pair like with
    // like.
    check(
        timeline("cosched", &hyperthreading(), [0.9, 0.8, 0.1, 0.0].map(counted).into()),
        "0000000000
         0000000000
         1111111111
         1111111111",
    );
}

#[test]
fn only_the_first_of_the_queue_are_considered() {
    let threads = || [0.0, 0.3, 0.6, 1.0].map(counted).to_vec();
    // Beside thread 0 goes the most different: of two, thread 2; of three (the default), thread 3.
    for (window, expected) in [
        (1, "0000000000\n1111111111\n0000000000\n1111111111"),
        (2, "0000000000\n1111111111\n1111111111\n0000000000"),
        (3, "0000000000\n0000000000\n1111111111\n1111111111"),
    ] {
        check(timeline(&format!("cosched:window={window}"), &hyperthreading(), threads()), expected);
    }
}

#[test]
fn a_thread_is_passed_over_three_times_and_not_more() {
    // Thread 1 lies between the two kinds of others, one of which is always more different.
    let threads = || [0.0, 0.5, 1.0, 0.0, 1.0, 0.0, 1.0].map(counted).to_vec();
    let pes = |skips_max| {
        let drawn = timeline(&format!("cosched:skips_max={skips_max}"), &hyperthreading(), threads());
        drawn.lines().map(|row| row.chars().last().unwrap()).collect::<String>()
    };
    assert_eq!(pes(3), "0010110", "the fifth that is dealt is thread 1");
    assert_eq!(pes(9), "0010101", "without the limit it is the last");
}

#[test]
fn a_thread_without_counters_goes_first() {
    // Threads 1 and 2 are alike but for thread 2 having no counters yet.
    let mut threads = vec![counted(0.0), counted(0.9), ScriptedThread::steady(0.9)];
    check(
        timeline("cosched", &hyperthreading(), threads.clone()),
        "0000000000
         0000000000
         1111111111",
    );
    threads[2] = counted(0.9);
    check(
        timeline("cosched", &hyperthreading(), threads),
        "0000000000
         1111111111
         0000000000",
    );
}

#[test]
fn three_high_cache_quanta_fix_a_thread_and_a_weak_state_releases_it() {
    // High from 2 to 6 s: the counter is 3 at 5 s and 2 at 7 s. Once released, the thread stays: a move gains
    // nothing.
    let threads = vec![misses(&[(0, 0.0), (2, 2.0), (6, 0.0)], 0.0), misses(&[(0, 0.0)], 0.0)];
    check(
        timeline("cosched", &hyperthreading(), threads),
        "0000111111
         1111000000",
    );
    // Two high quanta are not enough, and the low ones between count down.
    let threads = vec![misses(&[(0, 0.0), (2, 2.0), (4, 0.0), (6, 2.0), (8, 0.0)], 0.0), counted(0.0)];
    check(
        timeline("cosched", &hyperthreading(), threads),
        "0000000000
         1111111111",
    );
}

#[test]
fn high_cache_threads_do_not_meet_and_at_most_half_of_the_threads_are_fixed() {
    let threads = || [2.0, 2.0, 2.0, 0.0].map(|high| misses(&[(0, high)], 0.0)).to_vec();
    // From 3 s on: two of the four threads are fixed on PE 1, the third high-cache thread is dealt.
    check(
        timeline("cosched", &hyperthreading(), threads()),
        "0011111111
         0011111111
         1100000000
         1100000000",
    );
    check(
        timeline("cosched:fixed_share_max=1", &hyperthreading(), threads()),
        "0011111111
         0011111111
         1111111111
         1100000000",
    );
}

#[test]
fn threads_are_dealt_anew_if_neighbours_then_differ_more() {
    // Alike at first. From 4 s on threads 0 and 1 have no misses, the two others two: thread 0 on PE 0 may
    // meet only threads like the others if thread 2 is there, too.
    let threads = |later: f64| -> Vec<ScriptedThread> {
        [0.0, 0.0, later, later].map(|later| misses(&[(0, 0.0), (4, later)], 0.0)).into()
    };
    check(
        timeline("cosched:fixed_share_max=0", &hyperthreading(), threads(2.0)),
        "0000000000
         1111000000
         0000111111
         1111111111",
    );
    check(
        timeline("cosched:fixed_share_max=0,gain_min=1e9", &hyperthreading(), threads(2.0)),
        "0000000000
         1111111111
         0000000000
         1111111111",
    );
}

#[test]
fn each_thread_has_a_core_of_its_own_while_there_are_enough() {
    check(
        timeline("cosched", &machine(DomainKind::Core, 2, 2), [0.9, 0.9].map(counted).into()),
        "0000000000
         2222222222",
    );
}

#[test]
fn smt_siblings_and_counters_are_needed_and_the_reason_is_said() {
    for (topology, threads, expected) in [
        (machine(DomainKind::Core, 4, 1), vec![counted(0.5); 3], "no two allowed PEs are siblings"),
        (hyperthreading(), steady(&[0.5, 0.5, 0.5]), "no hardware counters count L2 misses"),
    ] {
        let mut world = ScriptedWorld::new(vec![(Time(0), topology.allowed.clone())], threads, second(3));
        let mut engine = Engine::new(topology, policy::build("cosched").unwrap(), EngineConfig::default());
        control_loop(&mut world, &mut engine, |_, actions, _| assert!(actions.is_empty())).unwrap();
        assert!(engine.nothing_to_gain().unwrap().contains(expected));
    }
}
