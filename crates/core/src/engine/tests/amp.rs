//! The rules of the schedulers for fast and slow PEs (Saez et al., CF'10), one test per rule.

use super::*;
use crate::observe::Hints;
use crate::policy::Claims;
use std::ops::Range;

// The last column repeats the one before: nothing is decided at the end.

/// A machine of last-level caches with `width` PEs each; the given PEs are fast.
fn asymmetric(caches: u32, width: u32, fast: &str) -> Topology {
    let machine = machine(DomainKind::L3, caches, width);
    let fast: CpuSet = fast.parse().unwrap();
    let slow = machine.pes.difference(&fast);
    let kind = |name: &str, pes| CpuKind { name: name.to_owned(), pes, evidence: Vec::new(), speed: None };
    Topology { kinds: vec![kind("fast", fast), kind("slow", slow)], ..machine }
}

/// The paper's 1FC-3SC: one chip, PE 0 is fast.
fn one_fast() -> Topology {
    asymmetric(1, 4, "0")
}

/// The paper's 4FC-12SC: four chips, the first PE of each is fast.
fn four_fast() -> Topology {
    asymmetric(4, 4, "0,4,8,12")
}

/// A thread of an application that runs all the time.
fn thread(app: u32) -> ScriptedThread {
    ScriptedThread { app: AppId(app), ..ScriptedThread::steady(0.0) }
}

/// One that is blocked in those seconds.
fn blocked(app: u32, seconds: Range<u64>) -> ScriptedThread {
    ScriptedThread { blocked: vec![second(seconds.start)..second(seconds.end)], ..thread(app) }
}

/// The threads of an application that runs `width` of them all the time.
fn application(app: u32, width: usize) -> Vec<ScriptedThread> {
    vec![thread(app); width]
}

fn timeline(policy: &str, topology: &Topology, seconds: u64, threads: Vec<ScriptedThread>) -> String {
    let allowed = vec![(Time(0), topology.allowed.clone())];
    draw_policy(policy::build(policy).unwrap(), topology, allowed, seconds, threads)
}

#[test]
fn busyfcs_gives_an_idle_fast_pe_to_any_runnable_thread() {
    // §2.3: fast cores never go idle before slow cores; no thread is moved while none is idle.
    let threads = vec![blocked(0, 2..4), thread(0), thread(0)];
    check(
        timeline("busyfcs", &one_fast(), 6, threads),
        "00....
         ..0000
         ......",
    );
}

fn with_weights(policy: &str, topology: &Topology, seconds: u64, threads: Vec<ScriptedThread>) -> String {
    let config = EngineConfig { claims: Claims::Weights, ..EngineConfig::default() };
    let allowed = vec![(Time(0), topology.allowed.clone())];
    draw_with(config, policy::build(policy).unwrap(), topology, allowed, seconds, threads)
}

#[test]
fn a_claim_by_weight_binds_no_other_thread() {
    // A single-threaded application beside a highly parallel one. It blocks from 3 to 5 s and ends at 8 s.
    for name in ["pa", "mintlp"] {
        let mut threads = [blocked(0, 3..5)].to_vec();
        threads[0].lives = second(0)..second(8);
        threads.extend(application(1, 4));
        check(
            with_weights(name, &one_fast(), 9, threads),
            "+++..++
             .........
             .........
             .........
             .........",
        );
    }
}

#[test]
fn a_claim_needs_no_weight_where_no_other_thread_wants_the_pe() {
    // The four others begin to work later.
    let threads = [application(0, 1), vec![blocked(1, 0..3); 4]].concat();
    check(
        with_weights("pa", &one_fast(), 6, threads),
        "000+++
         ......
         ......
         ......
         ......",
    );
}

#[test]
fn threads_of_a_highly_parallel_application_are_bound_only_where_a_fast_pe_might_idle() {
    // Four threads on four PEs: no fast one idles. With two runnable threads it might.
    let threads = [thread(0), thread(0), thread(0), blocked(0, 3..20)].to_vec();
    check(
        with_weights("pa:hp_threshold=1", &one_fast(), 6, threads),
        "...000
         ......
         ......
         ......",
    );
}

#[test]
fn rr_shares_the_fast_pes_equally() {
    // §2.3: equally shares fast and slow cores among all threads.
    check(
        timeline("rr", &one_fast(), 7, application(0, 3)),
        "0ss0sss
         s0ss0ss
         ss0ss00",
    );
    let twice = timeline("rr:stay=2s", &one_fast(), 7, application(0, 3));
    check(
        twice,
        "00sssss
         ss00sss
         ssss000",
    );
}

#[test]
fn rr_counts_a_newcomer_as_one_that_had_least() {
    let mut threads = application(0, 3);
    threads[2].lives = second(4)..second(20);
    check(
        timeline("rr", &one_fast(), 11, threads),
        "0s0ss0ss0ss
         s0s0ss0ss00
            s0ss0sss",
    );
}

#[test]
fn mintlp_prefers_the_least_parallel_application_and_serves_it_first_come() {
    // §2.1. Application 0 is parallel, 1 and 2 have one thread each; 2 comes later and displaces no thread.
    let mut threads = application(0, 3);
    threads.extend(application(1, 1));
    threads.push(ScriptedThread { lives: second(0)..second(4), ..threads[3].clone() });
    threads[4].app = AppId(2);
    threads[3].lives = second(2)..second(9);
    check(
        timeline("mintlp", &one_fast(), 7, threads),
        "sssssss
         sssssss
         sssssss
          ss0000
         000",
    );
}

#[test]
fn mintlp_gives_the_serial_phase_of_a_parallel_application_the_fast_pe() {
    // The application is sequential from 2 to 5 s; its rival has two threads all the time, the second of
    // which is on PE 0 from the start.
    let mut threads = vec![thread(0), blocked(0, 2..5), blocked(0, 2..5)];
    threads.extend(application(1, 2));
    check(
        timeline("mintlp", &one_fast(), 8, threads),
        "ss000sss
         ssssssss
         ssssssss
         sssss000
         00ssssss",
    );
}

#[test]
fn pa_runs_mp_threads_on_fast_pes_and_hp_threads_on_slow_ones() {
    // One fast PE: hp_threshold is 2. Three runnable threads are highly parallel, a single one is not.
    let mut threads = application(0, 3);
    threads.extend(application(1, 1));
    check(
        timeline("pa", &one_fast(), 4, threads),
        "ssss
         ssss
         ssss
         0000",
    );
}

#[test]
fn pa_hp_threshold_is_one_more_than_the_fast_pes_and_can_be_set() {
    let workload = || [application(0, 2), application(1, 3)].concat();
    // Two threads are within the default of 2 and share the fast PE; the three others never have it.
    check(
        timeline("pa", &one_fast(), 6, workload()),
        "0s0s00
         s0s0ss
         ssssss
         ssssss
         ssssss",
    );
    check(
        timeline("pa:hp_threshold=3", &one_fast(), 6, workload()),
        "0sssss
         s0ssss
         ss0sss
         sss0ss
         ssss00",
    );
}

#[test]
fn pa_puts_a_thread_that_enters_a_sequential_phase_before_all_others_until_its_boost_is_spent() {
    // Application 0 is sequential from 2 s on, which is seen at 3 s; application 1 has always one thread.
    // After the boost (one second, then three) both are MP, and the stay of the first begins.
    let threads = || vec![thread(0), blocked(0, 2..20), blocked(0, 2..20), thread(1)];
    check(
        timeline("pa", &one_fast(), 8, threads()),
        "ss00s0ss
         ssssssss
         ssssssss
         00ss0s00",
    );
    check(
        timeline("pa:amp_boost_ticks=300", &one_fast(), 8, threads()),
        "ss0000ss
         ssssssss
         ssssssss
         00ssss00",
    );
}

#[test]
fn pa_boosts_every_new_sequential_phase_and_no_single_threaded_application() {
    // Application 0 alternates: parallel, sequential (2-3 s), parallel, sequential (5-6 s).
    let mut worker = blocked(0, 2..3);
    worker.blocked.push(second(5)..second(6));
    let threads = vec![thread(0), worker.clone(), worker, thread(1)];
    check(
        timeline("pa", &one_fast(), 8, threads),
        "ss0ss0ss
         ssssssss
         ssssssss
         00s00s00",
    );
}

#[test]
fn pa_swaps_in_one_step_and_not_for_a_phase_that_is_over_before_it() {
    // 0.2 s of sequential phase within a step: the mean stays parallel and no thread is moved.
    let tenth = |n: u64| Time(n * 100_000_000);
    let mut threads = vec![thread(0), thread(0), thread(0), thread(1)];
    for worker in &mut threads[1..3] {
        worker.blocked = vec![tenth(23)..tenth(25)];
    }
    check(
        timeline("pa", &one_fast(), 5, threads),
        "sssss
         sssss
         sssss
         00000",
    );
}

#[test]
fn pa_takes_the_fast_pe_from_a_thread_that_tells_it_spins() {
    // §2.2.1. The stay of the first would last to the end; it spins from 2 to 5 s.
    let mut threads = [application(0, 1), application(1, 1)].concat();
    let spins = |spinning| Hints { spinning, ..Hints::default() };
    threads[0].hints = vec![(second(2), spins(true)), (second(5), spins(false))];
    check(
        timeline("pa:stay=60s", &one_fast(), 7, threads),
        "0ssssss
         s000000",
    );
}

#[test]
fn pa_swaps_no_highly_parallel_thread_in_for_one_that_spins() {
    // §2.2.1: it is only a candidate to leave. From 5 s on a single-threaded application wants the fast PE.
    let spins = |spinning| Hints { spinning, ..Hints::default() };
    let mut threads = [application(0, 3), application(1, 1)].concat();
    threads[0].hints = vec![(second(2), spins(true)), (second(4), spins(false)), (second(5), spins(true))];
    threads[3].lives = second(5)..second(20);
    check(
        timeline("pa", &one_fast(), 8, threads),
        "0000ssss
         ssssssss
         ssssssss
             0000",
    );
}

#[test]
fn mintlp_leaves_a_spinning_thread_on_its_fast_pe_while_no_other_wants_it() {
    let spins = |spinning| Hints { spinning, ..Hints::default() };
    let mut threads = [application(0, 1), vec![blocked(1, 0..4)]].concat();
    threads[0].hints = vec![(second(2), spins(true))];
    check(
        timeline("mintlp", &one_fast(), 7, threads),
        "0000sss
         ssss000",
    );
}

#[test]
fn of_equal_candidates_the_nearest_to_the_free_fast_pe_is_promoted() {
    // §3.4. Two chips, PEs 0 and 4 are fast. The thread on PE 4 ends; thread 3 is on its chip, 1 and 2 are
    // not.
    let threads = || {
        let mut threads = application(0, 7);
        threads[4].lives = Time(0)..second(2);
        threads
    };
    for name in ["mintlp", "pa"] {
        let drawn = timeline(name, &asymmetric(2, 4, "0,4"), 5, threads());
        let rows: Vec<&str> = drawn.lines().collect();
        assert!(rows[3].ends_with("444"), "{name}:\n{drawn}");
        assert_eq!(rows.iter().filter(|row| row.contains('4')).count(), 2, "{name}:\n{drawn}");
    }
}

#[test]
fn threads_take_turns_below_their_own_caches() {
    // §3.4. Two chips, PEs 0 and 4 are fast: four threads have the slow PEs of the first one, two those of
    // the other one, and all may use both fast ones. None crosses for its turn, though two have theirs more
    // often.
    for (name, apps) in [("rr", 1), ("pa", 6)] {
        let permitted = |index: u32| Some(if index < 4 { "0-4" } else { "0,4-7" }.parse().unwrap());
        let of = |index: u32| ScriptedThread { permitted: permitted(index), ..thread(index % apps) };
        let threads: Vec<_> = (0..6).map(of).collect();
        let drawn = timeline(name, &asymmetric(2, 4, "0,4"), 12, threads);
        let rows: Vec<&str> = drawn.lines().map(str::trim).collect();
        for (index, row) in rows.iter().enumerate() {
            let (own, other) = if index < 4 { ('0', '4') } else { ('4', '0') };
            assert!(row.contains(own) && !row.contains(other), "{name}, thread {index}:\n{drawn}");
        }
    }
}

#[test]
fn a_fast_pe_that_nobody_at_home_wants_is_had_by_one_of_another_cache() {
    // One goes to the other chip and stays, the others take turns.
    let of_first = ScriptedThread { permitted: Some("0-4".parse().unwrap()), ..thread(0) };
    let drawn = timeline("rr", &asymmetric(2, 4, "0,4"), 12, vec![of_first; 4]);
    let rows: Vec<&str> = drawn.lines().map(str::trim).collect();
    let stays = rows.iter().filter(|row| row.ends_with("44444444")).count();
    let takes_turns = rows.iter().filter(|row| row.contains('0') && row.contains('s')).count();
    assert_eq!((stays, takes_turns), (1, 3), "{drawn}");
}

#[test]
fn which_of_the_fast_pes_of_a_cache_a_thread_has_is_left_to_the_system() {
    // Two fast SMT cores, PEs 0-1 and 2-3: no thread is treated as if the machine had one PE.
    let with_ratios = "static-ipc:ratios.thread 0=2,ratios.thread 1=2,ratios.thread 2=2";
    for name in ["busyfcs", "rr", "mintlp", "pa", with_ratios] {
        let mut threads = application(0, 3);
        threads[2].lives = second(2)..second(20);
        let drawn = timeline(name, &every_policys_machine(), 5, threads);
        let rows: Vec<&str> = drawn.lines().map(str::trim).collect();
        assert_eq!((rows[0], rows[1], rows[2]), ("*****", "*****", "****"), "{name}:\n{drawn}");
    }
}

#[test]
fn pa_keeps_the_master_thread_on_a_fast_pe_whenever_it_is_active() {
    // §2.2.2. The master is the last thread of a highly parallel application; it sleeps from 3 to 5 s.
    let mut threads = [application(0, 3), vec![blocked(0, 3..5)], application(1, 1)].concat();
    threads[3].hints = vec![(Time(0), Hints { master: true, ..Hints::default() })];
    check(
        timeline("pa", &one_fast(), 8, threads),
        "ssssssss
         ssssssss
         ssssssss
         000ss000
         sss00sss",
    );
}

#[test]
fn pa_lets_highly_parallel_threads_have_the_fast_pes_that_are_left_over() {
    // Fast PEs never idle: one MP thread, four fast PEs, three of them for six HP threads, which then stay.
    let mut threads = application(0, 6);
    threads.extend(application(1, 1));
    let drawn = timeline("pa", &four_fast(), 4, threads);
    let on_fast = drawn.lines().filter(|row| !row.contains('s')).count();
    assert_eq!(on_fast, 4, "{drawn}");
    assert_eq!(drawn.lines().last().unwrap().len(), 4, "the MP thread never leaves its fast PE: {drawn}");
}

#[test]
fn a_promoted_thread_takes_the_fast_pe_of_its_own_cache() {
    // §3.4 on 4FC-12SC: each thread is held on a chip by its user until it is alone there.
    for (permitted, fast) in [("1-3,0,4,8,12", "0"), ("5-7,0,4,8,12", "4"), ("13-15,0,4,8,12", "c")] {
        let permitted: CpuSet = permitted.parse().unwrap();
        // Its application becomes sequential at 2 s; until then the fast PEs belong to four others.
        let mut threads: Vec<_> = (1..=4).map(|app| blocked(app, 2..20)).collect();
        let mut rest = vec![blocked(0, 2..20); 6];
        rest[0].blocked.clear();
        rest[0].permitted = Some(permitted);
        threads.extend(rest);
        let drawn = timeline("pa", &four_fast(), 5, threads);
        let row = drawn.lines().nth(4).unwrap();
        assert!(row.starts_with("ss") && row.ends_with(fast), "{drawn}");
    }
}

#[test]
fn a_thread_that_stays_among_the_best_keeps_its_fast_pe() {
    // Two chips, PEs 0 and 4 are fast; threads 0 and 4 are there from the start and stay while all are equal.
    // Thread 6 is promoted from the chip of PE 0, but thread 0 is there.
    let mut threads = vec![thread(1)];
    threads.extend(vec![blocked(0, 2..20); 5]);
    threads.push(ScriptedThread { permitted: Some(CpuSet::first_n(5)), ..thread(0) });
    let drawn = timeline("pa", &asymmetric(2, 4, "0,4"), 6, threads);
    let rows: Vec<&str> = drawn.lines().collect();
    assert_eq!((rows[0], rows[4], rows[6]), ("000000", "44ssss", "ss4444"), "{drawn}");
}

#[test]
fn no_thread_is_kept_on_slow_pes_while_a_fast_one_is_free() {
    // From 2 s on one thread is left for two fast PEs: the sleepers may wake up on the other.
    let threads = vec![thread(0), blocked(0, 2..20), blocked(0, 2..20)];
    check(
        timeline("mintlp", &asymmetric(1, 4, "0-1"), 5, threads),
        "*****
         **...
         ss...",
    );
}

#[test]
fn more_threads_than_pes_share_the_fast_ones_in_proportion() {
    // §2.1 "to preserve load balance": eight threads on four PEs, so two on the fast one.
    let drawn = timeline("rr", &one_fast(), 3, application(0, 8));
    assert_eq!(drawn.lines().filter(|row| row.starts_with('0')).count(), 2, "{drawn}");
}

#[test]
fn an_asymmetric_machine_is_needed_and_the_reason_is_said() {
    let kind = |name: &str, pes: &str| CpuKind {
        name: name.to_owned(),
        pes: pes.parse().unwrap(),
        evidence: Vec::new(),
        speed: None,
    };
    for (kinds, allowed, expected) in [
        (vec![], "0-3", "nothing is known about the speed"),
        (vec![kind("all", "0-3")], "0-3", "all PEs are equally fast"),
        (vec![kind("unknown", "0-3")], "0-3", "contradict each other"),
        (vec![kind("fast", "0"), kind("slow", "1-3")], "1-3", "(1-3) are all of one kind"),
        (vec![kind("fast", "0-1"), kind("slow", "2-3")], "0-1", "(0-1) are all of one kind"),
    ] {
        let topology = Topology { kinds, ..machine(DomainKind::L3, 1, 4) };
        for name in ["busyfcs", "rr", "mintlp", "pa"] {
            let allowed = vec![(Time(0), allowed.parse().unwrap())];
            let mut world = ScriptedWorld::new(allowed, application(0, 2), second(3));
            let mut engine =
                Engine::new(topology.clone(), policy::build(name).unwrap(), EngineConfig::default());
            control_loop(&mut world, &mut engine, |_, actions, _| assert!(actions.is_empty())).unwrap();
            let said = engine.nothing_to_gain().unwrap();
            assert!(said.contains(expected), "{name}: {said}");
        }
    }
}

#[test]
fn static_ipc_gives_the_fast_pes_to_the_highest_ratios() {
    // §2.3. Thread 0 has no ratio and comes last; thread 3 appears late with the highest.
    let policy = "static-ipc:ratios.thread 1=1.1,ratios.thread 2=1.9,ratios.thread 3=2.0";
    let mut threads = application(0, 4);
    threads[3].lives = second(4)..second(20);
    check(
        timeline(policy, &one_fast(), 6, threads),
        "ssssss
         ssssss
         000sss
            000",
    );
}

#[test]
fn static_ipc_without_ratios_says_so() {
    let mut world = ScriptedWorld::new(vec![(Time(0), CpuSet::first_n(4))], application(0, 2), second(2));
    let mut engine = Engine::new(one_fast(), policy::build("static-ipc").unwrap(), EngineConfig::default());
    control_loop(&mut world, &mut engine, |_, actions, _| assert!(actions.is_empty())).unwrap();
    assert!(engine.nothing_to_gain().unwrap().contains("no IPC ratios are given"));
}

/// A thread with those IPCs on fast and slow PEs from each time on.
fn with_ipc(phases: &[(u64, f64, f64)]) -> ScriptedThread {
    let rates = |&(from, ipc, ipc_on_slow): &(u64, f64, f64)| {
        (second(from), ScriptedRates { ipc, ipc_on_slow, ..ScriptedRates::default() })
    };
    ScriptedThread { rates: phases.iter().map(rates).collect(), ..thread(0) }
}

#[test]
fn measured_ipc_samples_each_thread_on_both_kinds_and_then_ranks() {
    // Ratios 1.0, 2.0 and 1.5: each is measured on the fast PE once, then the second keeps it.
    let threads = vec![with_ipc(&[(0, 0.5, 0.5)]), with_ipc(&[(0, 2.0, 1.0)]), with_ipc(&[(0, 1.5, 1.0)])];
    check(
        timeline("measured-ipc", &one_fast(), 7, threads),
        "0ssssss
         s0s0000
         ss0ssss",
    );
}

#[test]
fn measured_ipc_follows_a_change_and_not_the_noise() {
    // At 5 s the ratio of the thread on the fast PE falls from 2.0 to 1.8 (noise: its rival has 1.85), at 8 s
    // to 1.
    let threads = vec![with_ipc(&[(0, 2.0, 1.0), (5, 1.8, 1.0), (8, 1.0, 1.0)]), with_ipc(&[(0, 1.85, 1.0)])];
    check(
        timeline("measured-ipc", &one_fast(), 11, threads),
        "0s000000sss
         s0ssssss000",
    );
}

#[test]
fn measured_ipc_remembers_a_thread_that_sleeps() {
    let mut threads = vec![with_ipc(&[(0, 1.0, 1.0)]), with_ipc(&[(0, 2.0, 1.0)])];
    threads[0].blocked = vec![second(4)..second(6)];
    check(
        timeline("measured-ipc", &one_fast(), 9, threads),
        "0ssssssss
         s00000000",
    );
}

#[test]
fn measured_ipc_needs_hardware_counters() {
    let mut world = ScriptedWorld::new(vec![(Time(0), CpuSet::first_n(4))], application(0, 2), second(2));
    let mut engine = Engine::new(one_fast(), policy::build("measured-ipc").unwrap(), EngineConfig::default());
    control_loop(&mut world, &mut engine, |_, actions, _| assert!(actions.is_empty())).unwrap();
    assert!(engine.nothing_to_gain().unwrap().contains("no hardware counters"));
}
