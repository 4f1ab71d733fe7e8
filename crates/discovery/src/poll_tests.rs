//! Polling against made-up `/proc` trees, and the estimate on its own.

use super::*;
use crate::{Choice, Extent};
use corewise_sys::cgroup::Hierarchy;
use std::fs;
use std::path::PathBuf;

const PARENT: u32 = 10;

/// A made-up `/proc`.
struct Fixture {
    root: tempfile::TempDir,
    now: Instant,
}

impl Fixture {
    fn new() -> Self {
        let fixture = Fixture { root: tempfile::tempdir().unwrap(), now: Instant::now() };
        fixture.created(1);
        fixture.thread(PARENT, PARENT, 1, "corewise S");
        fixture
    }

    fn task(&self, pid: u32, tid: u32) -> PathBuf {
        self.root.path().join(format!("{pid}/task/{tid}"))
    }

    /// `what` is the name and the state. It starts at tick `tid`, so that two threads of one id differ.
    fn thread(&self, pid: u32, tid: u32, parent: u32, what: &str) {
        self.thread_of(pid, tid, parent, what, u64::from(tid), 0);
    }

    fn thread_of(&self, pid: u32, tid: u32, parent: u32, what: &str, start_ticks: u64, cpu_ticks: u64) {
        let (name, state) = what.split_once(' ').unwrap();
        let before = "0 0 0 -1 0 0 0 0 0";
        let between = "0 ".repeat(16);
        let stat = format!(
            "{tid} ({name}) {state} {parent} {before} {cpu_ticks} 0 0 0 20 0 1 0 {start_ticks} {between} 3"
        );
        fs::create_dir_all(self.task(pid, tid)).unwrap();
        fs::write(self.task(pid, tid).join("stat"), stat).unwrap();
        let status = format!("Tgid:\t{pid}\nVmSize:\t8 kB\n");
        fs::write(self.root.path().join(format!("{pid}/status")), status).unwrap();
    }

    fn times(&self, pid: u32, tid: u32, run_ns: u64, wait_ns: u64) {
        fs::write(self.task(pid, tid).join("schedstat"), format!("{run_ns} {wait_ns} 1\n")).unwrap();
    }

    fn ends(&self, pid: u32, tid: u32) {
        fs::remove_dir_all(self.task(pid, tid)).unwrap();
        if fs::read_dir(self.task(pid, tid).parent().unwrap()).unwrap().next().is_none() {
            fs::remove_dir_all(self.root.path().join(pid.to_string())).unwrap();
        }
    }

    fn created(&self, id: u32) {
        fs::write(self.root.path().join("loadavg"), format!("0.00 0.00 0.00 1/2 {id}\n")).unwrap();
    }

    fn open(&self, excluded: &[u32]) -> Poll {
        self.open_on(&[Root::ChildrenOf(PARENT)], excluded)
    }

    fn open_on(&self, roots: &[Root], excluded: &[u32]) -> Poll {
        let proc = Proc::at(self.root.path());
        let excluded = [&[PARENT], excluded].concat();
        let options = Options {
            roots: roots.to_vec(),
            excluded,
            proc,
            extent: Extent::default(),
            choice: Choice::Poll,
        };
        Poll::with_descriptors(&options, 0, self.now).unwrap()
    }

    /// Lets time pass and polls; returns the ids that appeared.
    fn poll_after(&mut self, poll: &mut Poll, ms: u64) -> Vec<u32> {
        self.now += Duration::from_millis(ms);
        let mut tids: Vec<u32> = poll.poll(self.now).unwrap().iter().map(|thread| thread.tid).collect();
        tids.sort();
        tids
    }
}

/// Each thread as `tid name`, with `R` if runnable and `ended` if so.
fn drawn(poll: &mut Poll) -> Vec<String> {
    let mut lines: Vec<String> = poll
        .threads()
        .unwrap()
        .iter()
        .map(|thread| {
            let runnable = if thread.runnable { " R" } else { "" };
            let ended = if thread.ended { " ended" } else { "" };
            format!("{} {}{runnable}{ended}", thread.tid, thread.name)
        })
        .collect();
    lines.sort();
    lines
}

#[test]
fn follows_descendants_but_neither_corewise_nor_its_guardian() {
    let mut fixture = Fixture::new();
    fixture.thread(PARENT, 11, 1, "own-thread S");
    fixture.thread(20, 20, PARENT, "guardian S");
    fixture.thread(30, 30, PARENT, "app R");
    fixture.thread(30, 31, PARENT, "worker S");
    fixture.thread(40, 40, 30, "child S");
    fixture.thread(50, 50, 1, "stranger R");
    let mut poll = fixture.open(&[20]);
    assert_eq!(fixture.poll_after(&mut poll, 5), [30, 31, 40]);
    assert_eq!(
        drawn(&mut poll),
        ["30 app R", "31 worker S", "40 child S"].map(|line| line.replace(" S", ""))
    );
}

/// What is reported after this time: application, number of runnable threads, the only one.
fn reported(fixture: &mut Fixture, poll: &mut Poll, ms: u64) -> Vec<(u32, u32, Option<u32>)> {
    fixture.now += Duration::from_millis(ms);
    let news = poll.refresh_at(fixture.now).unwrap().runnable;
    news.iter().map(|news| (news.app.0, news.count, news.only.map(|only| only.tid))).collect()
}

#[test]
fn changes_of_tlp_are_reported_once_if_asked_for() {
    let mut fixture = Fixture::new();
    fixture.thread(30, 30, PARENT, "app R");
    fixture.thread(30, 31, PARENT, "worker R");
    fixture.thread(40, 40, 1, "other S");
    let mut poll = fixture.open_on(&[Root::ChildrenOf(PARENT), Root::Process(40)], &[]);
    assert_eq!(reported(&mut fixture, &mut poll, 20), [], "nobody has asked");
    poll.report_tlp();
    assert_eq!(reported(&mut fixture, &mut poll, 20), [(0, 2, None)]);
    assert_eq!(reported(&mut fixture, &mut poll, 20), []);
    fixture.thread(30, 30, PARENT, "app S");
    fixture.thread(40, 40, 1, "other R");
    assert_eq!(reported(&mut fixture, &mut poll, 20), [(0, 1, Some(31)), (1, 1, Some(40))]);
    fixture.thread(30, 30, PARENT, "app R");
    fixture.thread(30, 31, PARENT, "worker D");
    assert_eq!(reported(&mut fixture, &mut poll, 20), [(0, 1, Some(30))], "another one");
    fixture.ends(30, 30);
    fixture.ends(40, 40);
    assert_eq!(reported(&mut fixture, &mut poll, 20), [(0, 0, None), (1, 0, None)]);
}

#[test]
fn counting_runnable_threads_costs_no_more_than_its_share() {
    let mut fixture = Fixture::new();
    fixture.thread(30, 30, PARENT, "app R");
    let mut poll = fixture.open(&[]);
    poll.report_tlp();
    for (cost_us, next_ms) in [(0, 10), (100, 10), (1_000, 100), (5_000_000, 1_000)] {
        poll.tlp_changes(fixture.now, Duration::from_micros(cost_us));
        let (_, due) = poll.reported.as_ref().unwrap();
        assert_eq!(due.duration_since(fixture.now).as_millis(), next_ms, "{cost_us} us");
    }
    // Nobody counts before the time has come.
    poll.due = fixture.now + Duration::from_secs(9);
    poll.last_created = poll.proc.last_created();
    assert_eq!(reported(&mut fixture, &mut poll, 999), []);
}

#[test]
fn an_orphan_stays_and_a_daemon_whose_parent_was_never_seen_is_found() {
    let mut fixture = Fixture::new();
    fixture.thread(30, 30, PARENT, "app S");
    fixture.thread(40, 40, 30, "child S");
    let mut poll = fixture.open(&[]);
    assert_eq!(fixture.poll_after(&mut poll, 5), [30, 40]);
    // 30 ends, 40 is re-parented to init (no subreaper), and 60 comes up as our child (with one).
    fixture.ends(30, 30);
    fixture.thread(40, 40, 1, "child S");
    fixture.thread(60, 60, PARENT, "daemon S");
    fixture.created(60);
    assert_eq!(fixture.poll_after(&mut poll, 5), [60]);
    assert_eq!(drawn(&mut poll), ["30 app ended", "40 child", "60 daemon"]);
    assert_eq!(drawn(&mut poll), ["40 child", "60 daemon"], "an end is reported once");
}

#[test]
fn nothing_is_listed_while_nothing_was_created() {
    let mut fixture = Fixture::new();
    fixture.thread(30, 30, PARENT, "app S");
    let mut poll = fixture.open(&[]);
    assert_eq!(fixture.poll_after(&mut poll, 5), [30]);
    fixture.thread(30, 31, PARENT, "worker S");
    assert_eq!(fixture.poll_after(&mut poll, 5), [0; 0], "loadavg tells of nothing new");
    fixture.created(31);
    assert_eq!(fixture.poll_after(&mut poll, 5), [31]);
    fixture.thread(30, 32, PARENT, "worker S");
    assert_eq!(fixture.poll_after(&mut poll, 1000), [32], "now and then it is listed nevertheless");
}

#[test]
fn a_recycled_id_is_another_thread() {
    let mut fixture = Fixture::new();
    fixture.thread(30, 30, PARENT, "app S");
    fixture.thread_of(30, 31, PARENT, "old S", 500, 0);
    let mut poll = fixture.open(&[]);
    fixture.poll_after(&mut poll, 5);
    fixture.thread_of(30, 31, PARENT, "new S", 900, 0);
    fixture.poll_after(&mut poll, 5);
    assert_eq!(fixture.poll_after(&mut poll, 5), [31]);
    let generations: Vec<(u64, bool)> =
        poll.threads().unwrap().iter().filter(|t| t.tid == 31).map(|t| (t.generation, t.ended)).collect();
    assert_eq!(generations, [(500, true), (900, false)]);
}

#[test]
fn a_zombie_has_ended_once() {
    let mut fixture = Fixture::new();
    fixture.thread(30, 30, PARENT, "app S");
    let mut poll = fixture.open(&[]);
    fixture.poll_after(&mut poll, 5);
    fixture.thread(30, 30, PARENT, "app Z");
    assert_eq!(drawn(&mut poll), ["30 app ended"]);
    assert_eq!(fixture.poll_after(&mut poll, 2000), [0; 0]);
    assert_eq!(drawn(&mut poll), [""; 0]);
    fixture.ends(30, 30);
    assert_eq!(drawn(&mut poll), [""; 0]);
}

#[test]
fn times_come_from_schedstat_else_from_ticks() {
    let mut fixture = Fixture::new();
    fixture.thread(30, 30, PARENT, "app R");
    fixture.times(30, 30, 7_000_000, 3_000_000);
    fixture.thread_of(30, 31, PARENT, "ticks R", 31, 5);
    fixture.thread_of(30, 32, PARENT, "zeros R", 32, 6);
    fixture.times(30, 32, 0, 0);
    let mut poll = fixture.open(&[]);
    fixture.poll_after(&mut poll, 5);
    let times: Vec<_> = poll.threads().unwrap().iter().map(|t| (t.tid, t.cpu_ns, t.runnable_ns)).collect();
    let tick = poll.ns_per_tick;
    assert_eq!(times, [(30, 7_000_000, Some(10_000_000)), (31, 5 * tick, None), (32, 6 * tick, None)]);
}

#[test]
fn parallelism_is_exact_in_the_mean_and_leaves_out_the_past() {
    let mut fixture = Fixture::new();
    fixture.thread(30, 30, PARENT, "app R");
    fixture.times(30, 30, 900_000_000, 0);
    fixture.created(30);
    let mut poll = fixture.open(&[]);
    fixture.poll_after(&mut poll, 0);
    assert_eq!(poll.parallelism(AppId(0)).runnable_thread_ns, 0);
    // Alone for 100 ms; then with a second thread, which was created 40 ms into 100 ms and waited for 10.
    fixture.times(30, 30, 1_000_000_000, 0);
    fixture.poll_after(&mut poll, 100);
    fixture.times(30, 30, 1_100_000_000, 0);
    fixture.thread(30, 31, PARENT, "late R");
    fixture.times(30, 31, 50_000_000, 10_000_000);
    fixture.created(31);
    fixture.poll_after(&mut poll, 100);
    let expected = Parallelism {
        runnable_thread_ns: 260_000_000,
        active_ns: 200_000_000,
        sequential_ns: 140_000_000,
        runnable_max: 2,
        exact: false,
    };
    assert_eq!(poll.parallelism(AppId(0)), expected);
}

#[test]
fn the_estimate_keeps_to_what_the_times_allow() {
    // Times runnable and the number runnable at the end of 100; then the time active and sequential.
    let check = |runnable_ns: &[u64], runnable_at_end, expected: (u64, u64)| {
        let (active, sequential) = estimate(runnable_ns, runnable_at_end, 100);
        assert_eq!((active, sequential), expected, "{runnable_ns:?}, {runnable_at_end} at the end");
    };
    check(&[], 0, (0, 0));
    check(&[0, 0], 1, (0, 0));
    check(&[40], 0, (40, 40));
    check(&[100], 1, (100, 100));
    check(&[100, 100, 100], 3, (100, 0));
    check(&[100, 100], 1, (100, 0));
    check(&[100, 30], 2, (100, 70));
    check(&[100, 50, 50, 50], 4, (100, 0));
    check(&[100, 50, 50, 50], 1, (100, 50));
}

#[test]
fn the_interval_grows_while_nothing_happens_and_pays_for_its_cost() {
    let fixture = Fixture::new();
    let mut poll = fixture.open(&[]);
    let mut intervals = Vec::new();
    for changed in [true, false, false, false, false, false, false, true] {
        poll.schedule(fixture.now, changed, Duration::ZERO);
        intervals.push((poll.due - fixture.now).as_millis());
    }
    assert_eq!(intervals, [5, 10, 20, 40, 80, 160, 250, 5]);
    for (changed, cost_ms, earliest_ms, due_ms) in [
        (true, 2, 100, 100),
        (false, 0, 5, 10),
        (false, 1, 500, 500),
        (false, 9, 1000, 1000),
        (true, 500, 1000, 1000),
    ] {
        poll.schedule(fixture.now, changed, Duration::from_millis(cost_ms));
        let ms = |at: Instant| (at - fixture.now).as_millis();
        assert_eq!((ms(poll.earliest), ms(poll.due)), (earliest_ms, due_ms), "a poll of {cost_ms} ms");
    }
}

#[test]
fn running_processes_are_followed_with_what_descends_from_them_and_from_then_on() {
    let mut fixture = Fixture::new();
    fixture.thread_of(30, 30, 1, "server R", 30, 7);
    fixture.times(30, 30, 900_000_000, 50_000_000);
    fixture.thread(31, 31, 30, "worker S");
    fixture.thread(40, 40, 1, "other R");
    fixture.thread(50, 50, 1, "stranger R");
    fixture.created(50);
    let mut poll = fixture.open_on(&[Root::Process(30), Root::Process(40)], &[]);
    fixture.poll_after(&mut poll, 0);
    // 40 starts a child, and 30 runs for 80 of 100 ms.
    fixture.times(30, 30, 980_000_000, 50_000_000);
    fixture.thread(60, 60, 40, "child S");
    fixture.created(60);
    fixture.poll_after(&mut poll, 100);
    let mut facts: Vec<_> =
        poll.threads().unwrap().iter().map(|t| (t.tid, t.app, t.cpu_ns, t.runnable_ns)).collect();
    facts.sort();
    let [first, second] = [AppId(0), AppId(1)];
    assert_eq!(facts[0], (30, first, 80_000_000, Some(80_000_000)));
    assert_eq!(
        facts.iter().map(|f| (f.0, f.1)).collect::<Vec<_>>()[1..],
        [(31, first), (40, second), (60, second)]
    );
    assert_eq!(poll.parallelism(first).runnable_thread_ns, 80_000_000);
    assert!(!poll.is_idle());
    for pid in [30, 31, 40, 60] {
        fixture.ends(pid, pid);
    }
    fixture.poll_after(&mut poll, 2000);
    assert!(poll.is_idle());
}

#[test]
fn a_process_is_followed_from_its_entry_into_a_control_group_and_its_children_from_their_start() {
    let mut fixture = Fixture::new();
    let groups = tempfile::tempdir().unwrap();
    fs::create_dir(groups.path().join("inner")).unwrap();
    let put =
        |group: &str, pids: &str| fs::write(groups.path().join(group).join("cgroup.procs"), pids).unwrap();
    fixture.thread(30, 30, 1, "first R");
    fixture.thread(31, 31, 1, "later R");
    fixture.thread(40, 40, 30, "elsewhere R");
    for pid in [30, 31, 40] {
        fixture.times(pid, pid, 500_000_000, 0);
    }
    put("", "30\n10\n");
    put("inner", "");
    fixture.created(40);
    let group = Hierarchy::at(groups.path()).group("/").unwrap();
    let mut poll = fixture.open_on(&[Root::Group(group)], &[]);
    assert_eq!(fixture.poll_after(&mut poll, 0), [30], "neither corewise nor what was started before");
    put("inner", "31\n");
    fixture.thread(50, 50, 30, "child R");
    fixture.times(50, 50, 30_000_000, 0);
    fixture.created(50);
    assert_eq!(fixture.poll_after(&mut poll, 100), [31, 50]);
    fixture.times(31, 31, 520_000_000, 0);
    fixture.poll_after(&mut poll, 100);
    let mut cpu_ms: Vec<_> = poll.threads().unwrap().iter().map(|t| (t.tid, t.cpu_ns / 1_000_000)).collect();
    cpu_ms.sort();
    assert_eq!(cpu_ms, [(30, 0), (31, 20), (50, 30)], "what was done before does not count");
}

#[test]
fn a_process_is_followed_with_its_descendants_from_when_it_is_named() {
    let mut fixture = Fixture::new();
    fixture.thread(30, 30, PARENT, "app R");
    fixture.thread(50, 50, 1, "stranger R");
    fixture.times(50, 50, 500_000_000, 0);
    fixture.thread(51, 51, 50, "child R");
    let roots = [Root::ChildrenOf(PARENT), Root::Others { all: false }];
    let mut poll = fixture.open_on(&roots, &[]);
    assert_eq!(fixture.poll_after(&mut poll, 5), [30]);
    assert!(poll.attach(PARENT).is_err() && poll.attach(99).is_err(), "corewise, and nobody");
    poll.attach(50).unwrap();
    assert_eq!(fixture.poll_after(&mut poll, 5), [50, 51]);
    fixture.times(50, 50, 510_000_000, 0);
    fixture.poll_after(&mut poll, 100);
    let others = |facts: &&ThreadFacts| facts.app == AppId(1);
    let threads = poll.threads().unwrap();
    let mut cpu_ms: Vec<_> = threads.iter().filter(others).map(|t| (t.tid, t.cpu_ns / 1_000_000)).collect();
    cpu_ms.sort();
    assert_eq!(cpu_ms, [(50, 10), (51, 0)], "what was done before does not count");
}
