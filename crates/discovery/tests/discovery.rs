//! Both sources of threads against real programs.
//!
//! The programs are this test binary itself, started again with a scenario's name in the environment (see
//! [`scenario`]). Between it and us stands a supervisor, in corewise's place: a child subreaper that starts
//! the program on command, so that the source is open by then. Without the privilege for BPF only polling is
//! tested.

use corewise_core::ids::AppId;
use corewise_core::observe::RunnableThreads;
use corewise_discovery as discovery;
use corewise_discovery::{Choice, Discovery, Extent, NewThread, Options, Parallelism, Root, ThreadFacts};
use corewise_sys::proc::Proc;
use corewise_testing::{needs, skip};
use nix::poll::{PollFd, PollFlags, ppoll};
use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SCENARIO: &str = "COREWISE_TEST_SCENARIO";
const SUPERVISE: &str = "COREWISE_TEST_SUPERVISE";

/// A scenario under way, and all that its source has reported.
struct Live {
    supervisor: Child,
    source: Box<dyn Discovery>,
    appeared: Vec<NewThread>,
    alive: Vec<ThreadFacts>,
    ended: Vec<ThreadFacts>,
    runnable: Vec<RunnableThreads>,
    parallelism: Parallelism,
}

impl Live {
    /// Starts `scenario` under the source of `choice`; `None` where BPF is not permitted.
    fn start(scenario: &str, choice: Choice) -> Option<Self> {
        let supervisor = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "scenario", "--nocapture"])
            .env(SCENARIO, scenario)
            .env(SUPERVISE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let Some(source) = open(&supervisor, choice) else {
            let mut supervisor = supervisor;
            supervisor.kill().unwrap();
            supervisor.wait().unwrap();
            return None;
        };
        let (appeared, alive, ended, runnable) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let parallelism = Parallelism::default();
        let mut live = Live { supervisor, source, appeared, alive, ended, runnable, parallelism };
        live.say("go");
        Some(live)
    }

    fn say(&mut self, line: &str) {
        let input = self.supervisor.stdin.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// From now on BPF is the source, which knows nothing yet. Whether it is permitted.
    fn change_over_to_bpf(&mut self) -> bool {
        let source = open(&self.supervisor, Choice::Bpf);
        let is_permitted = source.is_some();
        source.into_iter().for_each(|bpf| self.source = bpf);
        (self.appeared, self.ended) = (Vec::new(), Vec::new());
        is_permitted
    }

    fn look(&mut self) {
        let news = self.source.refresh().unwrap();
        self.appeared.extend(news.appeared);
        self.runnable.extend(news.runnable);
        let (ended, alive) = self.source.threads().unwrap().into_iter().partition(|thread| thread.ended);
        self.ended.extend::<Vec<_>>(ended);
        self.alive = alive;
        self.parallelism = self.source.parallelism(AppId(0));
    }

    /// Looks again and again until `condition` holds.
    fn until(&mut self, what: &str, condition: impl Fn(&Live) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            self.look();
            if condition(self) {
                return;
            }
            assert!(Instant::now() < deadline, "{}: {what}: {:#?}", self.source.name(), self.alive);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Looks only when the source wakes or wants it, until it reports such runnable threads.
    fn until_reported(&mut self, what: &str, condition: impl Fn(&RunnableThreads) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let news = self.source.refresh().unwrap();
            self.appeared.extend(news.appeared);
            if news.runnable.iter().any(&condition) {
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "never reported {what}");
            let nap = self.source.refresh_within().map_or(left, |within| within.min(left));
            let fds = self.source.wake_fds();
            let mut fds: Vec<_> = fds.into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            ppoll(&mut fds, Some(nap.into()), None).unwrap();
        }
    }

    /// Waits until the scenario has ended; returns the numbers it printed.
    fn finish(&mut self) -> Vec<u64> {
        self.until("everything has ended", |live| !live.appeared.is_empty() && live.alive.is_empty());
        let mut text = String::new();
        self.supervisor.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text.lines()
            .filter_map(|line| line.strip_prefix("measured "))
            .flat_map(|line| line.split(' ').map(|number| number.parse().unwrap()))
            .collect()
    }

    fn alive_named(&self, name: &str) -> usize {
        self.alive.iter().filter(|thread| &*thread.name == name).count()
    }
}

impl Drop for Live {
    /// Ends what the scenario left: only ids that are alive by the source's last word.
    fn drop(&mut self) {
        let processes: HashSet<u32> = self.alive.iter().map(|thread| thread.pid).collect();
        for pid in processes {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), nix::sys::signal::SIGKILL);
        }
        drop(self.supervisor.stdin.take());
        let _ = self.supervisor.wait();
    }
}

/// A source of what the supervisor starts; `None` where BPF is not permitted.
fn open(supervisor: &Child, choice: Choice) -> Option<Box<dyn Discovery>> {
    let roots = vec![Root::ChildrenOf(supervisor.id())];
    let options = Options {
        roots,
        excluded: vec![supervisor.id()],
        proc: Proc::at("/proc"),
        extent: Extent::default(),
        choice,
    };
    match discovery::open(&options) {
        Ok((source, _)) => Some(source),
        Err(error) if choice == Choice::Bpf && error.to_string().contains("not permitted") => {
            skip!(Bpf, "{error}");
        }
        Err(error) => panic!("{error}"),
    }
}

fn with_both(scenario: &str, check: impl Fn(&mut Live)) {
    with(&[Choice::Bpf, Choice::Poll], scenario, check);
}

fn with(choices: &[Choice], scenario: &str, check: impl Fn(&mut Live)) {
    for &choice in choices {
        if let Some(mut live) = Live::start(scenario, choice) {
            check(&mut live);
            // What the last look has met, and has ended by now, is news of the next refresh.
            let news = live.source.refresh().unwrap();
            live.appeared.extend(news.appeared);
            let once: HashSet<_> = live.ended.iter().map(|thread| (thread.tid, thread.generation)).collect();
            assert_eq!(once.len(), live.ended.len(), "each end is reported once");
            let met: HashSet<_> =
                live.appeared.iter().map(|thread| (thread.tid, thread.generation)).collect();
            assert_eq!(met.len(), live.appeared.len(), "each thread appears once");
            assert!(live.ended.iter().all(|thread| met.contains(&(thread.tid, thread.generation))));
        }
    }
}

/// Not a test of its own: what the programs of the tests do.
#[test]
fn scenario() {
    if std::env::var_os(SUPERVISE).is_some() {
        supervise();
    } else if let Ok(scenario) = std::env::var(SCENARIO) {
        perform(&scenario);
    }
}

fn perform(scenario: &str) {
    match scenario {
        "tree" => tree(),
        "short threads" => {
            for _ in 0..300 {
                spawn_named("short", || std::thread::sleep(Duration::from_millis(1))).join().unwrap();
            }
        }
        "crowd" => {
            let threads: Vec<_> = (0..2000).map(|_| spawn_named("crowd", || sleep_ms(60_000))).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
        "burn 1" => burn_and_rest(1),
        "burn 2" => burn_and_rest(2),
        "phases" => phases(),
        "exec from a thread" => panic!("{}", Command::new("sleep").arg("60").exec()),
        "alternation" => alternation(),
        "dips" => dips(),
        "reuse" => reuse(),
        "handover" => handover(),
        other => panic!("no scenario {other}"),
    }
}

fn supervise() {
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let mut program = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "scenario", "--nocapture"])
        .env_remove(SUPERVISE)
        .spawn()
        .unwrap();
    program.wait().unwrap();
    while nix::sys::wait::wait().is_ok() {}
}

fn spawn_named<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> std::thread::JoinHandle<T> {
    std::thread::Builder::new().name(name.to_owned()).stack_size(64 << 10).spawn(work).unwrap()
}

fn sleep_ms(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

fn burn_until(deadline: Instant) {
    while Instant::now() < deadline {
        std::hint::black_box((0..1000u64).sum::<u64>());
    }
}

/// Two named threads, a child that calls exec, and a daemon: forked twice, in a session of its own.
fn tree() {
    spawn_named("alpha", || sleep_ms(60_000));
    spawn_named("beta", || sleep_ms(60_000));
    let mut child = Command::new("sh").args(["-c", "sleep 0.6; exec sleep 60"]).spawn().unwrap();
    let mut daemon =
        Command::new("sh").args(["-c", "setsid sh -c 'tail -f /dev/null & sleep 0.1' &"]).spawn().unwrap();
    daemon.wait().unwrap();
    child.wait().unwrap();
}

fn burn_and_rest(threads: u64) {
    let deadline = Instant::now() + Duration::from_secs(1);
    let burners: Vec<_> = (0..threads)
        .map(|_| {
            spawn_named("burner", move || {
                burn_until(deadline);
                sleep_ms(60_000)
            })
        })
        .collect();
    burners.into_iter().for_each(|thread| thread.join().unwrap());
}

/// One thread for 200 ms, two for 100 ms, five times. Prints the time that it took with one and with two.
fn phases() {
    let (deadlines, orders) = std::sync::mpsc::channel();
    let helper = spawn_named("helper", move || orders.iter().for_each(burn_until));
    let (mut one, mut two) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..5 {
        let start = Instant::now();
        burn_until(start + Duration::from_millis(200));
        let between = Instant::now();
        let deadline = between + Duration::from_millis(100);
        deadlines.send(deadline).unwrap();
        burn_until(deadline);
        one += between - start;
        two += between.elapsed();
    }
    drop(deadlines);
    helper.join().unwrap();
    eprintln!("measured {} {}", one.as_nanos(), two.as_nanos());
}

/// One thread for 200 ms, two for 200 ms, for as long as anybody looks.
fn alternation() {
    let (deadlines, orders) = std::sync::mpsc::channel();
    spawn_named("helper", move || orders.iter().for_each(burn_until));
    loop {
        burn_until(Instant::now() + Duration::from_millis(200));
        let deadline = Instant::now() + Duration::from_millis(200);
        deadlines.send(deadline).unwrap();
        burn_until(deadline);
    }
}

/// Two threads, one of which rests for a moment, and then until a line comes; again and again.
fn dips() {
    spawn_named("helper", || {
        loop {
            burn_until(Instant::now() + Duration::from_millis(10));
            std::thread::sleep(Duration::from_micros(20));
            burn_until(Instant::now() + Duration::from_millis(10));
            if std::io::stdin().read_line(&mut String::new()).unwrap() == 0 {
                return;
            }
        }
    });
    burn_until(Instant::now() + Duration::from_secs(60));
}

/// Two threads on one PE hand a byte to and fro until the line `rest` comes. At each other line a thread
/// burns for 50 ms.
fn handover() {
    static OVER: AtomicBool = AtomicBool::new(false);
    let here = nix::sched::sched_getcpu().unwrap();
    let mut one = nix::sched::CpuSet::new();
    one.set(here).unwrap();
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &one).unwrap();
    let (there, back) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
    let hand_over = |mut from: std::io::PipeReader, mut to: std::io::PipeWriter| {
        move || {
            // The last one leaves its byte behind for the other.
            while from.read_exact(&mut [0]).is_ok() && to.write_all(&[0]).is_ok() {
                if OVER.load(Ordering::Relaxed) {
                    break;
                }
            }
            sleep_ms(60_000);
        }
    };
    back.1.try_clone().unwrap().write_all(&[0]).unwrap();
    spawn_named("burner", hand_over(there.0, back.1));
    spawn_named("burner", hand_over(back.0, there.1));
    for line in std::io::stdin().lines().map(Result::unwrap) {
        if line == "rest" {
            OVER.store(true, Ordering::Relaxed);
        } else {
            spawn_named("late", || burn_until(Instant::now() + Duration::from_millis(50)));
        }
    }
}

/// Makes the kernel give the id of an ended thread to a new one. Prints the id.
fn reuse() {
    let hold = || {
        let tid = nix::unistd::gettid().as_raw();
        sleep_ms(20);
        tid
    };
    let tid = spawn_named("first", hold).join().unwrap();
    // Other programs may take it first, any number of times.
    loop {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (tid - 1).to_string()).unwrap();
        let own = move || if nix::unistd::gettid().as_raw() == tid { hold() } else { 0 };
        if spawn_named("second", own).join().unwrap() == tid {
            break eprintln!("measured {tid}");
        }
    }
}

#[test]
fn a_tree_with_threads_exec_and_a_daemon_is_followed() {
    with_both("tree", |live| {
        live.until("all are there", |live| {
            ["alpha", "beta", "tail"].iter().all(|name| live.alive_named(name) == 1)
                && live.alive_named("sleep") == 1
                && live.alive_named("sh") == 0
        });
        let pid_of = |name: &str| live.alive.iter().find(|thread| &*thread.name == name).unwrap().pid;
        assert_eq!(pid_of("alpha"), pid_of("beta"));
        assert_ne!(pid_of("alpha"), pid_of("tail"));
        let supervisor = live.supervisor.id();
        assert!(live.alive.iter().chain(&live.ended).all(|thread| thread.pid != supervisor));
        if live.source.name() == "bpf" {
            let creators: HashMap<u32, Option<u32>> =
                live.appeared.iter().map(|thread| (thread.tid, thread.creator_tid)).collect();
            assert!(creators.values().all(Option::is_some));
            let alpha = live.alive.iter().find(|thread| &*thread.name == "alpha").unwrap();
            let creator = creators[&alpha.tid].unwrap();
            assert!(live.alive.iter().any(|thread| thread.tid == creator && thread.pid == alpha.pid));
        }
    });
}

#[test]
fn changes_of_the_number_of_runnable_threads_are_reported_if_asked_for() {
    with_both("alternation", |live| {
        live.until("both are there", |live| {
            live.alive_named("scenario") == 1 && live.alive_named("helper") == 1
        });
        assert_eq!(live.runnable, [], "nobody has asked");
        live.source.report_tlp();
        let first = live.alive.iter().find(|thread| &*thread.name == "scenario").unwrap().id();
        live.until("one, two and one again", |live| {
            let counts: Vec<u32> = live.runnable.iter().map(|runnable| runnable.count).collect();
            let seen = |pair: [u32; 2]| counts.windows(2).any(|of| of == pair);
            seen([1, 2]) && seen([2, 1]) && live.runnable.iter().any(|runnable| runnable.only == Some(first))
        });
        assert!(live.runnable.windows(2).all(|pair| pair[0] != pair[1]), "{:?}", live.runnable);
    });
}

#[test]
fn a_change_after_one_that_was_too_short_to_be_seen_wakes_a_waiting_thread() {
    with(&[Choice::Bpf], "dips", |live| {
        live.until("both are there", |live| {
            live.alive_named("scenario") == 1 && live.alive_named("helper") == 1
        });
        let first = live.alive.iter().find(|thread| &*thread.name == "scenario").unwrap().id();
        live.source.report_tlp();
        for _ in 0..20 {
            live.until_reported("that one rests", |runnable| runnable.only == Some(first));
            live.supervisor.stdin.as_mut().unwrap().write_all(b"go on\n").unwrap();
            live.until_reported("that both are runnable", |runnable| runnable.count == 2);
        }
    });
}

#[test]
fn bpf_follows_what_has_begun_before_it() {
    with(&[Choice::Poll], "tree", |live| {
        let all = |live: &Live| {
            ["alpha", "beta", "tail", "sleep"].iter().all(|name| live.alive_named(name) == 1)
                && live.alive_named("sh") == 0
        };
        live.until("all are there", all);
        if live.change_over_to_bpf() {
            live.until("all are there by BPF", all);
            // The creator of every thread is known, and the daemon is the supervisor's child by now.
            assert!(live.appeared.iter().all(|thread| thread.creator_tid.is_some()));
            let daemon = live.alive.iter().find(|thread| &*thread.name == "tail").unwrap().tid;
            let daemon = live.appeared.iter().find(|thread| thread.tid == daemon).unwrap();
            assert_eq!(daemon.creator_tid, Some(live.supervisor.id()));
        }
    });
    with(&[Choice::Poll], "burn 2", |live| {
        let rest = |live: &Live| {
            let burners = live.alive.iter().filter(|thread| &*thread.name == "burner");
            burners.filter(|burner| burner.cpu_ns > 0 && !burner.runnable).count() == 2
        };
        live.until("the burners rest", rest);
        if live.change_over_to_bpf() {
            assert_times_agree_with_proc(live);
            assert_eq!(live.alive_named("burner"), 2);
        }
    });
}

/// Nobody looks at most of them, and yet nothing is lost but how many threads were runnable meanwhile.
#[test]
fn switches_that_are_too_many_are_estimated() {
    with(&[Choice::Bpf], "handover", |live| {
        live.until("they are too many", |live| !live.parallelism.exact);
        live.say("late");
        live.until("its end is reported", |live| live.ended.iter().any(|thread| &*thread.name == "late"));
        let late = live.ended.iter().find(|thread| &*thread.name == "late").unwrap();
        assert!(late.cpu_ns > 0 && late.runnable_ns.unwrap() >= late.cpu_ns, "{late:?}");
        live.say("rest");
        live.until("they rest", |live| live.alive.iter().all(|thread| !thread.runnable));
        assert_times_agree_with_proc(live);
        live.until("they are watched again", |live| live.source.refresh_within().is_none());
        assert_times_agree_with_proc(live);
        assert_eq!(live.alive_named("burner"), 2);
        let busy_ns: u64 = live.alive.iter().map(|thread| thread.runnable_ns.unwrap()).sum();
        let estimated = live.parallelism.runnable_thread_ns as f64 / busy_ns as f64;
        assert!((0.3..3.0).contains(&estimated), "{estimated}: {:?}", live.parallelism);
        // What comes now is counted.
        let before = live.parallelism.runnable_thread_ns;
        live.ended.retain(|thread| &*thread.name != "late");
        live.say("late");
        live.until("its end is reported", |live| live.ended.iter().any(|thread| &*thread.name == "late"));
        let late = live.ended.iter().find(|thread| &*thread.name == "late").unwrap().runnable_ns.unwrap();
        let counted = (live.parallelism.runnable_thread_ns - before) as f64 / late as f64;
        assert!((0.9..2.0).contains(&counted), "{counted}: {late} {:?}", live.parallelism);
    });
}

#[test]
fn bpf_sees_every_thread_that_lives_for_a_millisecond() {
    with(&[Choice::Bpf], "short threads", |live| {
        live.finish();
        assert_eq!(live.ended.iter().filter(|thread| &*thread.name == "short").count(), 300);
        assert_eq!(live.appeared.len(), live.ended.len());
        assert!(live.source.notes().is_empty(), "{:?}", live.source.notes());
    });
}

#[test]
fn two_thousand_threads_at_once_are_seen() {
    with_both("crowd", |live| live.until("the crowd", |live| live.alive_named("crowd") == 2000));
}

#[test]
fn parallelism_of_one_and_of_two_busy_threads() {
    for threads in [1, 2] {
        with_both(&format!("burn {threads}"), |live| {
            let busy_ns = |live: &Live| {
                live.alive.iter().filter(|t| &*t.name == "burner").map(|t| t.runnable_ns.unwrap()).max()
            };
            live.until("they have burnt", |live| {
                busy_ns(live).is_some_and(|ns| ns > 300_000_000) && live.alive.iter().all(|t| !t.runnable)
            });
            let seen = live.parallelism;
            // The sum is exact by polling, too. How long they burnt is not: a hypervisor may take PEs away.
            let burnt: u64 = live.alive.iter().map(|thread| thread.runnable_ns.unwrap()).sum();
            let (sum, burnt) = (seen.runnable_thread_ns as f64 / 1e9, burnt as f64 / 1e9);
            let wanted = threads as f64;
            assert!((burnt * 0.9..burnt * 1.1 + 0.3).contains(&sum), "{}: {seen:?}", live.source.name());
            assert!(burnt < wanted * 1.2 + 0.3, "{}: {burnt}", live.source.name());
            assert_eq!(seen.exact, live.source.name() == "bpf");
            if seen.exact {
                let mean = seen.runnable_thread_ns as f64 / seen.active_ns as f64;
                assert!((wanted * 0.8..wanted * 1.1).contains(&mean), "{mean} {seen:?}");
            }
            assert_times_agree_with_proc(live);
        });
    }
}

/// The threads sleep, so that there is one truth.
fn assert_times_agree_with_proc(live: &mut Live) {
    live.look();
    for thread in live.alive.iter().filter(|thread| &*thread.name == "burner") {
        let file = Proc::at("/proc").schedstat(thread.pid, thread.tid, false).unwrap().unwrap();
        let truth = file.read().unwrap().unwrap();
        let runnable_ns = truth.run_ns + truth.wait_ns;
        for (name, seen, truth) in
            [("cpu", thread.cpu_ns, truth.run_ns), ("runnable", thread.runnable_ns.unwrap(), runnable_ns)]
        {
            // The kernel's own figure leaves out what a hypervisor took away.
            let difference = seen.abs_diff(truth);
            assert!(difference < 20_000_000 + truth / 20, "{}: {name}: {seen} {truth}", live.source.name());
        }
    }
}

#[test]
fn the_sequential_share_of_a_program_is_its_own_by_its_own_clock() {
    with(&[Choice::Bpf], "phases", |live| {
        let measured = live.finish();
        let (one, two) = (measured[0] as f64, measured[1] as f64);
        let (seen, own) = (live.parallelism, one / (one + two));
        let share = seen.sequential_ns as f64 / seen.active_ns as f64;
        assert!((share - own).abs() < 0.1, "{share} {own} {seen:?}");
        assert!(seen.runnable_max >= 2);
    });
}

#[test]
fn a_thread_that_calls_exec_takes_over_the_leaders_id() {
    with_both("exec from a thread", |live| {
        // A reader of `/proc` amid the exec can see the new name beside the old ID.
        live.until("exec", |live| match &live.alive[..] {
            [sleeper] => &*sleeper.name == "sleep" && sleeper.tid == sleeper.pid,
            _ => false,
        });
        let sleeper = live.alive[0].clone();
        if live.source.name() == "bpf" {
            assert!(live.ended.iter().any(|thread| thread.pid == sleeper.pid && thread.tid != sleeper.tid));
        }
    });
}

#[test]
fn a_reused_id_is_another_thread() {
    needs!(Root);
    with(&[Choice::Bpf], "reuse", |live| {
        let tid = live.finish()[0];
        let mut names: Vec<&str> = live
            .ended
            .iter()
            .filter(|thread| u64::from(thread.tid) == tid)
            .map(|thread| &*thread.name)
            .collect();
        names.sort();
        assert_eq!(names, ["first", "second"], "{}", live.source.name());
    });
}
