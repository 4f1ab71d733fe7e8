//! Programs as applications, by both sources, against real processes.
//!
//! The programs are this test binary itself under other names (links to it), started by a shell. What they do
//! is in the environment (see [`scenario`]). Without the privilege for BPF only polling is tested.

#[path = "programs/launchers.rs"]
mod launchers;
#[path = "programs/rings.rs"]
mod rings;

use corewise_core::ids::{AppId, ThreadId};
use corewise_core::observe::RunnableThreads;
use corewise_discovery as discovery;
use corewise_discovery::{Choice, Discovery, ExecutedProgram, Extent, Options, Root, ThreadFacts};
use corewise_sys::proc::Proc;
use corewise_testing::skip;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How many threads burn CPU time until they have used so many milliseconds each; then they sleep.
const BURN: &str = "COREWISE_TEST_BURN";

/// Not a test of its own: what the programs of the tests do.
#[test]
fn scenario() {
    if std::env::var_os(rings::RING).is_some() {
        rings::poll();
    }
    if let Ok(burn) = std::env::var(BURN) {
        perform(&burn);
    }
}

fn perform(burn: &str) {
    let (threads, ms) = burn.split_once(' ').unwrap();
    let ms: u64 = ms.parse().unwrap();
    let burn = move || {
        burn_for(Duration::from_millis(ms));
        std::thread::sleep(Duration::from_secs(if ms > 0 { 60 } else { 0 }));
    };
    let burners: Vec<_> = (0..threads.parse().unwrap()).map(|_| std::thread::spawn(burn)).collect();
    burners.into_iter().for_each(|burner| burner.join().unwrap());
}

/// Burns CPU time: wall time says little on a busy machine.
fn burn_for(time: Duration) {
    let clock = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID;
    let used = || Duration::from(nix::time::clock_gettime(clock).unwrap());
    let until = used() + time;
    while used() < until {
        std::hint::black_box((0..1000u64).sum::<u64>());
    }
}

/// A shell script below a shell that stands in corewise's place, and what its source has reported.
struct Live {
    supervisor: Child,
    source: Box<dyn Discovery>,
    programs: Vec<ExecutedProgram>,
    threads: Vec<ThreadFacts>,
    ended: Vec<ThreadFacts>,
    runnable: BTreeMap<AppId, RunnableThreads>,
    executed: Vec<ThreadId>,
    _links: tempfile::TempDir,
}

impl Live {
    /// Starts `script`, in which `$single` and `$parallel` are programs; `None` where BPF is not permitted.
    fn start(script: &str, choice: Choice, extent: Extent) -> Option<Live> {
        let links = tempfile::tempdir().unwrap();
        for name in ["single", "parallel", "sim"] {
            symlink(std::env::current_exe().unwrap(), links.path().join(name)).unwrap();
        }
        let program = |name: &str| format!("{} --exact scenario", links.path().join(name).display());
        std::fs::write(links.path().join("job.sh"), script).unwrap();
        // `:` keeps the shell from executing the job in its own place.
        let supervisor = Command::new("sh")
            .args(["-c", "read go; sh \"$0\"; :"])
            .arg(links.path().join("job.sh"))
            .envs(["single", "parallel", "sim"].map(|name| (name, program(name))))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let roots = vec![Root::ChildrenOf(supervisor.id())];
        let excluded = vec![supervisor.id()];
        let options = Options { roots, excluded, proc: Proc::at("/proc"), extent, choice };
        let source = match discovery::open(&options) {
            Ok((source, _)) => source,
            Err(error) if choice == Choice::Bpf && error.to_string().contains("not permitted") => {
                let mut supervisor = supervisor;
                drop(supervisor.stdin.take());
                supervisor.wait().unwrap();
                skip!(Bpf, "{error}");
            }
            Err(error) => panic!("{error}"),
        };
        let mut live = Live {
            supervisor,
            source,
            programs: Vec::new(),
            threads: Vec::new(),
            ended: Vec::new(),
            runnable: BTreeMap::new(),
            executed: Vec::new(),
            _links: links,
        };
        live.source.report_tlp();
        drop(live.supervisor.stdin.take());
        Some(live)
    }

    fn look(&mut self) {
        let news = self.source.refresh().unwrap();
        self.runnable.extend(news.runnable.into_iter().map(|runnable| (runnable.app, runnable)));
        self.executed.extend(news.executed);
        let (ended, threads) = self.source.threads().unwrap().into_iter().partition(|thread| thread.ended);
        self.ended.extend::<Vec<_>>(ended);
        self.threads = threads;
        self.programs = self.source.programs();
    }

    fn until(&mut self, what: &str, condition: impl Fn(&Live) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            self.look();
            if condition(self) {
                return;
            }
            let (name, programs, threads) = (self.source.name(), &self.programs, &self.threads);
            assert!(Instant::now() < deadline, "{name}: {what}: {programs:#?} {threads:#?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The only application of this name.
    fn app(&self, name: &str) -> AppId {
        let named: Vec<_> = self.programs.iter().filter(|program| &*program.name == name).collect();
        assert_eq!(named.len(), 1, "{name}: {:#?}", self.programs);
        named[0].app
    }

    fn processes(&self, app: AppId) -> usize {
        self.threads.iter().filter(|thread| thread.app == app && thread.tid == thread.pid).count()
    }

    fn threads_of(&self, app: AppId) -> impl Iterator<Item = &ThreadFacts> {
        self.threads.iter().chain(&self.ended).filter(move |thread| thread.app == app)
    }

    /// All CPU time so far.
    fn burnt(&self, app: AppId) -> Duration {
        Duration::from_nanos(self.threads_of(app).map(|thread| thread.cpu_ns).sum())
    }

    fn is_at_rest(&self) -> bool {
        self.threads.iter().all(|thread| !thread.runnable)
    }

    /// No thread is runnable, and nobody is counted as such.
    fn assert_no_count_is_left(&mut self) {
        self.until("no count is left", |live| {
            live.is_at_rest() && live.runnable.values().all(|runnable| runnable.count == 0)
        });
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        for thread in self.threads.iter().filter(|thread| thread.tid == thread.pid) {
            let pid = nix::unistd::Pid::from_raw(thread.pid as i32);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::SIGKILL);
        }
        let _ = self.supervisor.wait();
    }
}

fn with_both(script: &str, check: impl Fn(&mut Live)) {
    with(&[Choice::Bpf, Choice::Poll], Extent::Program, script, check);
}

fn with(choices: &[Choice], extent: Extent, script: &str, check: impl Fn(&mut Live)) {
    for &choice in choices {
        if let Some(mut live) = Live::start(script, choice, extent) {
            check(&mut live);
        }
    }
}

#[test]
fn two_programs_of_a_script_are_two_applications_with_their_own_parallelism() {
    let script = format!("{BURN}='1 900' $single & {BURN}='2 900' $parallel & wait");
    with_both(&script, |live| {
        live.until("both have burnt", |live| {
            let burnt = |name: &str, ms| {
                let mut named = live.programs.iter().filter(|program| &*program.name == name);
                named.next().is_some_and(|program| live.burnt(program.app) >= Duration::from_millis(ms))
            };
            burnt("single", 900) && burnt("parallel", 1800) && live.is_at_rest()
        });
        let (single, parallel) = (live.app("single"), live.app("parallel"));
        assert!(live.programs.iter().all(|program| program.executed_by == AppId(0)), "{:#?}", live.programs);
        assert_eq!((live.processes(AppId(0)), live.processes(single), live.processes(parallel)), (1, 1, 1));
        live.assert_no_count_is_left();
        for app in [single, parallel] {
            let of_threads = live.threads_of(app).filter_map(|thread| thread.runnable_ns).sum::<u64>();
            let of_threads = of_threads as f64 / 1e9;
            let seen = live.source.parallelism(app);
            let sum = seen.runnable_thread_ns as f64 / 1e9;
            assert!((sum - of_threads).abs() < 0.1 + 0.1 * of_threads, "{sum} {of_threads} {seen:?}");
            assert_eq!(seen.exact, live.source.name() == "bpf");
        }
        let (of_single, of_parallel) = (live.source.parallelism(single), live.source.parallelism(parallel));
        if of_single.exact {
            let mean = of_single.runnable_thread_ns as f64 / of_single.active_ns as f64;
            assert!(mean < 1.1, "{of_single:?}");
            assert!(of_parallel.runnable_max >= 2, "{of_parallel:?}");
        }
    });
}

#[test]
fn copies_of_a_program_that_one_shell_starts_are_applications_of_their_own() {
    let script = format!("export {BURN}='1 300'; $parallel & $parallel & env X=1 $parallel & wait");
    with_both(&script, |live| {
        live.until("all three have burnt", |live| {
            let burnt = live.programs.iter().map(|program| live.burnt(program.app)).sum::<Duration>();
            burnt >= Duration::from_millis(900) && live.is_at_rest()
        });
        let apps: Vec<_> = ["parallel", "parallel #2", "parallel #3"].map(|name| live.app(name)).into();
        assert_eq!(live.processes(AppId(0)), 1, "{:#?}", live.threads);
        assert!(apps.iter().all(|app| live.processes(*app) == 1), "{:#?}", live.threads);
        live.assert_no_count_is_left();
    });
}

#[test]
fn a_process_that_executes_another_program_of_the_same_name_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go");
    let script = format!("while [ ! -e {} ]; do sleep 0.02; done; exec sh -c 'sleep 60; :'", go.display());
    with_both(&script, |live| {
        let is_script = |thread: &ThreadFacts| thread.app == AppId(0) && &*thread.name == "sh";
        live.until("it runs", |live| live.threads.iter().any(|thread| &*thread.name == "sleep"));
        let leader = live.threads.iter().find(|thread| is_script(thread)).unwrap().id();
        live.executed.clear();
        std::fs::write(&go, "").unwrap();
        live.until("it has executed another one", |live| live.executed.contains(&leader));
        std::fs::remove_file(&go).unwrap();
    });
}

#[test]
fn everything_below_a_command_is_one_application_if_that_is_wanted() {
    let script = format!("{BURN}='1 50' $single & {BURN}='2 50' $parallel & wait");
    with(&[Choice::Bpf, Choice::Poll], Extent::Command, &script, |live| {
        live.until("all are there", |live| {
            live.threads.iter().filter(|thread| thread.tid == thread.pid).count() == 3 && live.is_at_rest()
        });
        assert_eq!((live.processes(AppId(0)), live.programs.len()), (3, 0));
    });
}

#[test]
fn a_row_of_short_programs_is_as_many_applications_as_run_at_once() {
    let script = format!("export {BURN}='1 0'; seq 400 | xargs -P3 -n1 $single; exec sleep 60");
    with(&[Choice::Bpf], Extent::Program, &script, |live| {
        live.until("all have ended", |live| {
            live.ended.len() >= 1200 && live.threads.iter().any(|thread| &*thread.name == "sleep")
        });
        live.assert_no_count_is_left();
        let of_row = live.programs.iter().filter(|program| program.name.starts_with("single"));
        // Some more begin before the first ones are known.
        assert!((2..=16).contains(&of_row.count()), "{:#?}", live.programs);
        assert!(live.source.notes().is_empty(), "{:?}", live.source.notes());
    });
}

#[test]
fn programs_that_come_and_go_leave_nothing_behind() {
    let script = format!(
        "export {BURN}='1 0'; for n in $(seq 300); do $single & sh -c \"true; $parallel\" & wait; done; \
         exec sleep 60"
    );
    with(&[Choice::Bpf], Extent::Program, &script, |live| {
        live.until("all have ended", |live| {
            live.ended.len() >= 900 && live.threads.iter().any(|thread| &*thread.name == "sleep")
        });
        live.assert_no_count_is_left();
        // The last one may not have left when the next one begins.
        let name = |program: &ExecutedProgram| program.name.split(" #").next().unwrap().to_owned();
        let named: BTreeSet<_> = live.programs.iter().map(name).collect();
        assert_eq!(named.iter().collect::<Vec<_>>(), ["parallel", "seq", "sh", "single", "sleep"]);
        assert!(live.programs.len() < 30, "{:#?}", live.programs);
        let started = |wanted: &str| {
            let named = live.programs.iter().filter(|program| name(program) == wanted);
            let apps: Vec<_> = named.map(|program| program.app).collect();
            live.ended.iter().filter(|of| apps.contains(&of.app) && of.tid == of.pid).count()
        };
        assert_eq!((started("single"), started("parallel")), (300, 300));
        assert!(live.source.notes().is_empty(), "{:?}", live.source.notes());
    });
}
