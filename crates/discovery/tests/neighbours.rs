//! Which processes run beside which, as the kernel adds it up, against what threads measure of themselves.
//!
//! Two threads on two PEs ran together for at most as long as the one that ran less, and at least for what
//! both ran beyond the time that there was. On a machine where nobody disturbs them the two bounds meet. Some
//! sandboxes hide the switches of their own agent: it then seems to run on while a thread of ours has its PE,
//! so what both ran is theirs together or beside another process.

use corewise_core::topology::{DomainKind, Topology};
use corewise_discovery as discovery;
use corewise_discovery::{Choice, Discovery, Extent, Options, Root};
use corewise_sys::affinity;
use corewise_sys::proc::Proc;
use corewise_testing::skip;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "COREWISE_TEST_NEIGHBOURS";

/// A bound on what the clocks of the kernel and of threads differ by.
const SLACK: Duration = Duration::from_millis(10);

/// Not a test of its own: the program that is watched.
#[test]
fn program() {
    if std::env::var_os(ROLE).is_some() {
        perform();
    }
}

/// At a line of PEs it burns on each of them for a second, and prints the wall-clock time and what each
/// thread ran, in nanoseconds.
fn perform() {
    println!("ready");
    for line in std::io::stdin().lines().map(Result::unwrap) {
        let began = Instant::now();
        let burn = |pe: &str| {
            let pe: usize = pe.parse().unwrap();
            std::thread::spawn(move || {
                let mut one = nix::sched::CpuSet::new();
                one.set(pe).unwrap();
                nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &one).unwrap();
                while began.elapsed() < Duration::from_secs(1) {
                    std::hint::black_box((0..1000u64).sum::<u64>());
                }
                let clock = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID;
                Duration::from(nix::time::clock_gettime(clock).unwrap()).as_nanos()
            })
        };
        let threads: Vec<_> = line.split(' ').map(burn).collect();
        let ran: Vec<String> = threads.into_iter().map(|t| t.join().unwrap().to_string()).collect();
        println!("burnt {} {}", began.elapsed().as_nanos(), ran.join(" "));
    }
}

struct Watched {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
    source: Box<dyn Discovery>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Watched {
    /// Starts the program and watches it; `None` where BPF is not permitted.
    fn start(machine: &Topology) -> Option<Watched> {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "program", "--nocapture"])
            .env(ROLE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let options = Options {
            roots: vec![Root::Process(child.id())],
            excluded: Vec::new(),
            proc: Proc::at("/proc"),
            extent: Extent::default(),
            choice: Choice::Bpf,
        };
        let opened = discovery::open(&options).and_then(|(mut source, _)| {
            source.see_neighbours(machine)?;
            Ok(source)
        });
        let source = match opened {
            Ok(source) => source,
            Err(error) if error.to_string().contains("not permitted") => {
                let _ = (child.kill(), child.wait());
                skip!(Bpf, "{error}");
            }
            Err(error) => panic!("{error}"),
        };
        let mut watched = Watched { child, answers, source };
        watched.answer("ready");
        Some(watched)
    }

    /// Returns the words of the next answer that begins so.
    fn answer(&mut self, beginning: &str) -> Vec<String> {
        let mut line = String::new();
        while !line.starts_with(beginning) {
            line.clear();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "the program has ended");
            // The test harness begins the line.
            line = line.split_once(beginning).map_or(String::new(), |(_, rest)| format!("{beginning}{rest}"));
        }
        line.split_whitespace().skip(1).map(str::to_owned).collect()
    }

    /// Burns on PEs. Returns the wall-clock time and the time that each thread ran.
    fn burn(&mut self, pes: &str) -> (Duration, Vec<Duration>) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{pes}").unwrap();
        let times: Vec<Duration> =
            self.answer("burnt").iter().map(|ns| Duration::from_nanos(ns.parse().unwrap())).collect();
        (times[0], times[1..].to_vec())
    }

    /// Returns for how long threads of the program ran beside each other so far on PEs that share this, and
    /// for how long beside any process.
    fn together(&mut self, shared: DomainKind) -> (Duration, Duration) {
        self.source.refresh().unwrap();
        self.source.threads().unwrap();
        let id = self.child.id();
        let (mut own, mut all) = (Duration::ZERO, Duration::ZERO);
        for reading in self.source.beside().iter().filter(|reading| reading.shared == shared) {
            let (a, b) = reading.processes;
            let time = Duration::from_nanos(reading.ns);
            own += if (a, b) == (id, id) { time } else { Duration::ZERO };
            all += if a == id || b == id { time } else { Duration::ZERO };
        }
        (own, all)
    }
}

/// Where BPF is permitted.
fn with(machine: &Topology, check: impl FnOnce(Watched)) {
    if let Some(watched) = Watched::start(machine) {
        check(watched);
    }
}

#[test]
fn two_threads_on_neighbouring_pes_ran_together_for_as_long_as_both_ran() {
    let pes: Vec<u32> = affinity::get(0).unwrap().iter().map(|pe| pe.0).take(2).collect();
    let [a, b] = pes[..] else { skip!(TwoPes, "one PE is allowed") };
    let count = b + 1;
    let machine = Topology::synthetic(&format!("l3:1 core:{count} pu:1")).unwrap();
    with(&machine, |mut watched| {
        let before = watched.together(DomainKind::L3);
        let (wall, ran) = watched.burn(&format!("{a} {b}"));
        let after = watched.together(DomainKind::L3);
        let (own, all) = (after.0 - before.0, after.1 - before.1);
        let least = (ran[0] + ran[1]).saturating_sub(wall);
        let most = ran[0].min(ran[1]);
        assert!(own > Duration::ZERO && own <= most + SLACK, "{own:?}, at most {most:?}");
        assert!(all + SLACK >= least, "{own:?}, {all:?} with others, at least {least:?}");
        assert_eq!(watched.together(DomainKind::Core).0, Duration::ZERO);
    });
}

#[test]
fn two_threads_on_one_pe_never_ran_together() {
    let pe = affinity::get(0).unwrap().first().unwrap().0;
    let machine = Topology::synthetic(&format!("l3:1 core:{} pu:1", pe + 2)).unwrap();
    with(&machine, |mut watched| {
        let before = watched.together(DomainKind::L3);
        watched.burn(&format!("{pe} {pe}"));
        let together = watched.together(DomainKind::L3).0 - before.0;
        // Its first thread waits for its two threads on some PE, and prints.
        assert!(together < SLACK, "{together:?}");
    });
}
