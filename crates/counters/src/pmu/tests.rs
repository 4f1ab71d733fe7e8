//! The whole source, driven by software events: they exist on every machine, also without a PMU.

use super::*;
use corewise_core::cpuset::CpuSet;
use corewise_core::observe::PmuReading;
use corewise_testing::{needs, skip};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

/// Task clock stands for cycles, page faults for L2 misses; the formulas are of the kind that real files
/// have.
const SOFTWARE: &str = r#"
    title = "software events"
    source = "perf_event_open(2)"
    pmu = "perf"
    counters = 2
    cpu = []
    event = [
      { name = "clock", pfm = "PERF_COUNT_SW_TASK_CLOCK" },
      { name = "faults", pfm = "PERF_COUNT_SW_PAGE_FAULTS" },
      { name = "major", pfm = "PERF_COUNT_SW_PAGE_FAULTS_MAJ" },
    ]
    [formula]
    cycles = { is = "clock", confidence = 1, note = "Nanoseconds." }
    l2_misses = { is = "faults", confidence = 1, note = "Exact." }
    branches = { is = "major", confidence = 1, note = "Not often." }
    fpu_busy_cycles = { is = "clock * (1 - pow(1 - min(1, 0.25), 2))", confidence = 0.5, note = "Made up." }
"#;

fn software_kind(text: &str) -> Kind {
    let file = Arc::new(EventFile::parse("software", None, text).unwrap());
    Kind { device: "software".into(), perf_type: 1, pes: CpuSet::new(), file }
}

fn source(descriptors_max: usize) -> PmuSource {
    let ready = Ready::probe(Path::new("/"), vec![software_kind(SOFTWARE)]).unwrap();
    PmuSource::new(ready, descriptors_max)
}

fn thread(tid: u32) -> NewThread {
    NewThread { tid, pid: tid, creator_tid: None, generation: 0, created: Instant::now() }
}

fn read(source: &mut PmuSource, tid: u32) -> Option<PmuReading> {
    source.read(tid).map(|reading| match reading {
        CounterReading::Pmu(pmu) => pmu,
        CounterReading::Sample(_) => panic!("a sample from the PMU"),
    })
}

/// A Perl interpreter that evaluates each line of its input and answers a line: a child that works on demand.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start() -> Self {
        let mut child = Command::new("perl")
            .args(["-ne", "BEGIN { $| = 1 } eval $_; print \"done\\n\""])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut worker = Self { child, input, output: BufReader::new(output) };
        worker.run("1");
        worker
    }

    fn run(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        assert_eq!(answer, "done\n");
    }

    fn end(self) {
        let Self { mut child, input, output: _output } = self;
        drop(input);
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn page_faults_of_a_child_are_counted_and_stay_readable_after_its_end() {
    let mut worker = Worker::start();
    let tid = worker.child.id();
    let mut source = source(100);
    source.watch(&thread(tid));
    assert_eq!(read(&mut source, tid), None, "it sleeps: nothing is known yet");
    // 8 MiB, touched: between 4 faults (2 MiB pages) and 2,048, and some of the interpreter's own.
    worker.run("$x = 'a' x (8 << 20)");
    let first = read(&mut source, tid).unwrap();
    assert!((4..6_000).contains(&first.l2_misses.unwrap()), "{first:?}");
    assert_eq!((first.instructions, first.branch_misses), (None, None), "absent knowledge is None");
    worker.run("$y++ for 1..300000");
    let second = read(&mut source, tid).unwrap();
    assert!(second.cycles > first.cycles && second.l2_misses >= first.l2_misses);
    let usage = second.fpu_busy_cycles.unwrap() as f64 / second.cycles as f64;
    assert!((usage - 0.4375).abs() < 1e-3, "{usage}");
    assert_eq!((&*second.events, second.formula_confidence), ("software", 0.5));
    assert!(second.running_ns > 0 && second.running_ns <= second.enabled_ns);

    worker.end();
    let Some(CounterReading::Pmu(last)) = source.last(tid) else { panic!("no last reading") };
    assert!(last.cycles >= second.cycles, "the last reading comes after the end");
    assert_eq!(read(&mut source, tid), None);
    assert_eq!(source.notes(), Vec::<String>::new());
}

#[test]
fn what_cannot_be_watched_is_counted_in_a_note() {
    let mut source = source(7);
    let own = nix::unistd::gettid().as_raw() as u32;
    for tid in [own, u32::MAX >> 1, (u32::MAX >> 1) - 1, 1] {
        source.watch(&thread(tid));
    }
    assert_eq!(source.name(), "pmu software");
    // Three descriptors per thread, two threads within seven; a thread that is gone takes none.
    assert_eq!(source.notes()[0], "2 threads ended before they could be counted");
    let third = Worker::start();
    source.watch(&thread(third.child.id()));
    let limit = "1 threads not counted: the limit of open descriptors is reached";
    assert!(source.notes().iter().any(|note| note == limit), "{:?}", source.notes());
    source.watch(&thread(own));
    assert_eq!(source.watched.len(), 2, "watching a thread again takes its place");
    third.end();
}

#[test]
fn more_events_than_counters_make_several_groups() {
    let ready = Ready::probe(Path::new("/"), vec![software_kind(SOFTWARE)]).unwrap();
    assert_eq!(ready.kinds[0].layout.groups, [vec![0, 1], vec![2]]);
    assert_eq!((ready.files().as_str(), ready.descriptors_per_thread()), ("software", 3));
    assert!(ready.gives(Metric::L2Misses) && !ready.gives(Metric::Instructions));

    // Two kinds have one group each, and what does not fit is said.
    let two = vec![software_kind(SOFTWARE), software_kind(SOFTWARE)];
    let ready = Ready::probe(Path::new("/"), two).unwrap();
    assert_eq!(ready.kinds[1].layout.groups, [vec![0, 1]]);
    assert!(!ready.gives(Metric::Branches));
    assert_eq!(ready.notes[0], "software: major not counted, the counters do not suffice");
}

#[test]
fn refused_events_cost_their_formulas_only_unless_cycles_need_them() {
    let raw = |name| format!("{{ name = \"{name}\", raw = 9999, is = \"no such event\" }}");
    let faults = "{ name = \"faults\", pfm = \"PERF_COUNT_SW_PAGE_FAULTS\" }";
    let ready = Ready::probe(Path::new("/"), vec![software_kind(&SOFTWARE.replace(faults, &raw("faults")))]);
    let ready = ready.unwrap();
    assert!(ready.gives(Metric::Cycles) && !ready.gives(Metric::L2Misses));
    assert!(ready.notes[0].starts_with("software: event faults refused: "), "{:?}", ready.notes);

    let clock = "{ name = \"clock\", pfm = \"PERF_COUNT_SW_TASK_CLOCK\" }";
    let reason = Ready::probe(Path::new("/"), vec![software_kind(&SOFTWARE.replace(clock, &raw("clock")))]);
    let reason = reason.unwrap_err().to_string();
    assert!(reason.starts_with("the PMU software refuses the event `clock`: "), "{reason}");
}

#[test]
fn events_that_never_count_are_no_counters() {
    // A loop meets no major page fault: as "cycles" the event is accepted and stays 0.
    let silent = SOFTWARE.replace("PERF_COUNT_SW_TASK_CLOCK", "PERF_COUNT_SW_PAGE_FAULTS_MAJ");
    let reason = Ready::probe(Path::new("/"), vec![software_kind(&silent)]).unwrap_err().to_string();
    assert_eq!(reason, "the PMU software accepts events but does not count (usual in virtual machines)");
}

#[test]
fn a_kind_whose_pes_are_not_permitted_is_left_out() {
    let mut far = software_kind(SOFTWARE);
    far.pes = "100000".parse().unwrap();
    let reason = Ready::probe(Path::new("/"), vec![far.clone()]).unwrap_err().to_string();
    assert!(reason.starts_with("no trial on the PMU software was possible: "), "{reason}");
    let ready = Ready::probe(Path::new("/"), vec![far, software_kind(SOFTWARE)]).unwrap();
    assert_eq!(ready.kinds.len(), 1);
    assert!(ready.notes[0].starts_with("no trial"), "{:?}", ready.notes);
}

#[test]
fn this_machine_has_counters_or_a_reason() {
    match Ready::available(Path::new("/")) {
        Ok(ready) => {
            let mut source = PmuSource::new(ready, 1_000);
            let own = nix::unistd::gettid().as_raw() as u32;
            source.watch(&thread(own));
            let sum: u64 = (0..5_000_000u64).map(std::hint::black_box).sum();
            assert!(sum > 0 && read(&mut source, own).is_some_and(|reading| reading.cycles > 1_000_000));
        }
        Err(reason) => assert!(reason.to_string().len() > 20, "{reason}"),
    }
}

/// Makes the calling thread, and it alone, one of an unprivileged user. Needs root.
fn become_nobody() {
    // SAFETY: the raw call takes three integers and changes the credentials of the calling thread only.
    assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) }, 0);
}

#[test]
fn without_privileges_own_threads_are_counted_in_user_mode_and_those_of_others_are_refused() {
    needs!(Root);
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    if paranoid.trim() != "2" {
        skip!(Perf, "written for kernel.perf_event_paranoid 2, not {}", paranoid.trim());
    }
    let notes = std::thread::spawn(|| {
        become_nobody();
        let ready = Ready::probe(Path::new("/"), vec![software_kind(SOFTWARE)]).unwrap();
        assert!(ready.user_only);
        let mut source = PmuSource::new(ready, 100);
        source.watch(&thread(nix::unistd::gettid().as_raw() as u32));
        source.watch(&thread(1));
        assert_eq!(source.watched.len(), 1);
        source.notes()
    });
    assert_eq!(notes.join().unwrap(), ["1 threads that this user may not count"]);
}
