//! What following threads costs and how soon it tells, on this machine:
//!
//! ```text
//! cargo run --release -p corewise-discovery --example discovery_cost -- WHAT
//!
//! scale     time per reading, 10 to 10,000 threads
//! latency   from a thread's creation to knowing it
//! idle      own CPU time with 10 sleeping threads
//! switches  the BPF programs' time per call (root), those that see what runs beside what included
//! files     schedstat kept open or opened each time
//! ```
//!
//! Each runs for BPF, where permitted, and for polling. The programs that are followed are this one again.

use corewise_core::ids::AppId;
use corewise_core::topology::Topology;
use corewise_discovery as discovery;
use corewise_discovery::{Choice, Discovery, Extent, Options, Root};
use corewise_sys::proc::Proc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let count = arguments.get(1).and_then(|number| number.parse().ok()).unwrap_or(0);
    match arguments.first().map(String::as_str) {
        Some("scale") => for_each_source(scale),
        Some("latency") => for_each_source(latency),
        Some("idle") => for_each_source(idle),
        Some("switches") => switches(),
        Some("files") => files(),
        Some("child-sleeping") => sleeping_threads(count),
        Some("child-creating") => creating_threads(count),
        Some("child-switching") => switching_threads(count),
        _ => eprintln!("discovery_cost scale|latency|idle|switches|files"),
    }
}

/// A program that is followed; it ends when this is dropped.
struct Program(Child);

impl Program {
    fn start(what: &str, count: usize) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        command.args([what, &count.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        Program(command.spawn().expect("this program can be started again"))
    }

    fn output(&mut self) -> BufReader<impl Read + use<>> {
        BufReader::new(self.0.stdout.take().expect("it is piped and taken once"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Failing means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn open(choice: Choice) -> Result<Box<dyn Discovery>, discovery::DiscoveryError> {
    let own = std::process::id();
    let (roots, excluded) = (vec![Root::ChildrenOf(own)], vec![own]);
    let options = Options { roots, excluded, proc: Proc::at("/proc"), extent: Extent::default(), choice };
    discovery::open(&options).map(|(source, _)| source)
}

fn for_each_source(measure: fn(&mut dyn Discovery)) {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit can be asked");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("the soft limit may rise to the hard one");
    for choice in [Choice::Bpf, Choice::Poll] {
        match open(choice) {
            Ok(mut source) => measure(&mut *source),
            Err(error) => println!("{error}"),
        }
    }
}

/// Sleeps until the source wants attention, as an event loop does, at most until `deadline`.
fn wait(source: &dyn Discovery, deadline: Instant) {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = source.refresh_within().map_or(left, |within| within.min(left));
    let wakers = source.wake_fds().into_iter().map(|waker| PollFd::new(waker, PollFlags::POLLIN));
    let timeout = PollTimeout::try_from(timeout).expect("it is less than a month");
    // An interrupted wait ends early, which does no harm.
    let _ = poll(&mut wakers.collect::<Vec<_>>(), timeout);
}

fn follow_for(source: &mut dyn Discovery, time: Duration) {
    let deadline = Instant::now() + time;
    while Instant::now() < deadline {
        wait(source, deadline);
        source.refresh().expect("the source works");
    }
}

fn median_and_p99(mut values: Vec<Duration>) -> (Duration, Duration) {
    values.sort();
    (values[values.len() / 2], values[values.len() * 99 / 100])
}

fn scale(source: &mut dyn Discovery) {
    for count in [10, 100, 1_000, 10_000] {
        let program = Program::start("child-sleeping", count);
        while source.threads().expect("the source works").len() < count {
            follow_for(source, Duration::from_millis(100));
        }
        let times = (0..30).map(|_| {
            std::thread::sleep(Duration::from_millis(20));
            let start = Instant::now();
            let threads = source.threads().expect("the source works");
            assert!(threads.len() > count);
            start.elapsed()
        });
        let (median, p99) = median_and_p99(times.collect());
        println!("{}: {count} sleeping threads: threads() median {median:?}, p99 {p99:?}", source.name());
        drop(program);
        follow_for(source, Duration::from_secs(1));
        source.threads().expect("the source works");
    }
}

fn latency(source: &mut dyn Discovery) {
    const THREADS: usize = 200;
    let mut program = Program::start("child-creating", THREADS);
    let mut known = HashMap::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    while known.len() < THREADS + 1 && Instant::now() < deadline {
        wait(source, deadline);
        for thread in source.refresh().expect("the source works").appeared {
            known.insert(thread.tid, monotonic());
        }
    }
    let lines = program.output().lines().take(THREADS);
    let latencies = lines.filter_map(|line| {
        let line = line.expect("the program prints text");
        let (tid, created) = line.split_once(' ').expect("the program prints two numbers");
        let created = Duration::from_nanos(created.parse().expect("it is a number"));
        let known = known.get(&tid.parse().expect("it is a number"))?;
        Some(known.saturating_sub(created))
    });
    let latencies: Vec<Duration> = latencies.collect();
    let seen = latencies.len();
    let (median, p99) = median_and_p99(latencies);
    println!("{}: {seen} of {THREADS} threads known after median {median:?}, p99 {p99:?}", source.name());
}

fn idle(source: &mut dyn Discovery) {
    const TIME: Duration = Duration::from_secs(10);
    let _program = Program::start("child-sleeping", 10);
    follow_for(source, Duration::from_secs(3));
    let own = || {
        let usage = getrusage(UsageWho::RUSAGE_SELF).expect("own usage can be asked");
        Duration::from_micros((usage.user_time().tv_sec() + usage.system_time().tv_sec()) as u64 * 1_000_000)
            + Duration::from_micros((usage.user_time().tv_usec() + usage.system_time().tv_usec()) as u64)
    };
    let before = own();
    for _ in 0..TIME.as_secs() {
        follow_for(source, Duration::from_secs(1));
        source.threads().expect("the source works");
        source.parallelism(AppId(0));
    }
    let share = (own() - before).as_secs_f64() / TIME.as_secs_f64();
    println!(
        "{}: idle with 10 threads, read once a second: {:.3} % of one CPU",
        source.name(),
        share * 100.0
    );
}

/// The kernel counts the time of BPF programs while the descriptor of `bpf_enable_stats` is open.
fn switches() {
    const SWITCHES: usize = 200_000;
    // SAFETY: it takes no memory of ours and returns a new descriptor or an error.
    let stats = unsafe { libbpf_rs::libbpf_sys::bpf_enable_stats(libbpf_rs::libbpf_sys::BPF_STATS_RUN_TIME) };
    assert!(stats >= 0, "BPF statistics need root");
    for followed in [false, true] {
        // Followed is what begins after the source was opened.
        let before = (!followed).then(|| Program::start("child-switching", SWITCHES));
        let source = match open(Choice::Bpf) {
            Ok(source) => source,
            Err(error) => return println!("{error}"),
        };
        let pes = std::thread::available_parallelism().map_or(1, usize::from);
        let machine = Topology::synthetic(&format!("l3:1 core:{pes} pu:1")).expect("a machine has PEs");
        let mut source = source;
        source.see_neighbours(&machine).expect("it is permitted like the rest");
        let mut program = before.unwrap_or_else(|| Program::start("child-switching", SWITCHES));
        program.0.stdin.take().expect("it is piped").write_all(b"go\n").expect("the program waits for this");
        program.0.wait().expect("it is our child");
        for info in libbpf_rs::query::ProgInfoIter::default().filter(|info| info.run_cnt > 1_000) {
            let (name, each_ns) =
                (info.name.to_string_lossy(), info.run_time_ns as f64 / info.run_cnt as f64);
            println!("followed: {followed}: {name}: {} calls, {each_ns:.0} ns each", info.run_cnt);
        }
        drop(source);
    }
}

fn files() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit can be asked");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("the soft limit may rise to the hard one");
    const THREADS: usize = 8_000;
    let program = Program::start("child-sleeping", THREADS);
    let (proc, pid) = (Proc::at("/proc"), program.0.id());
    std::thread::sleep(Duration::from_secs(5));
    let tids = proc.threads(pid).expect("/proc can be read").expect("the program runs");
    for keep in [true, false] {
        let open = |tid: &u32| proc.schedstat(pid, *tid, keep).expect("/proc can be read");
        let files: Vec<_> = tids.iter().filter_map(open).collect();
        let times = (0..10).map(|_| {
            let start = Instant::now();
            for file in &files {
                file.read().expect("/proc can be read");
            }
            start.elapsed()
        });
        let (median, _) = median_and_p99(times.collect());
        println!("schedstat of {} threads, kept open: {keep}: median {median:?}", files.len());
    }
    let start = Instant::now();
    tids.iter().for_each(|tid| drop(proc.stat(pid, *tid).expect("/proc can be read")));
    println!("stat of {} threads: {:?}", tids.len(), start.elapsed());
}

fn spawn(work: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::Builder::new().stack_size(32 << 10).spawn(work).expect("a thread can be created")
}

fn monotonic() -> Duration {
    Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has CLOCK_MONOTONIC"))
}

fn sleeping_threads(count: usize) {
    for _ in 0..count {
        spawn(|| std::thread::sleep(Duration::from_secs(600)));
    }
    std::thread::sleep(Duration::from_secs(600));
}

/// Creates a thread every 37 ms (no multiple of a polling interval) and prints ids and times of creation.
fn creating_threads(count: usize) {
    let mut lines = String::new();
    for _ in 0..count {
        std::thread::sleep(Duration::from_millis(37));
        let before = monotonic().as_nanos();
        let (sender, receiver) = std::sync::mpsc::channel();
        spawn(move || {
            sender.send(nix::unistd::gettid().as_raw()).expect("the creator waits");
            std::thread::sleep(Duration::from_secs(600));
        });
        let tid = receiver.recv().expect("the thread tells its id");
        lines += &format!("{tid} {before}\n");
    }
    print!("{lines}");
    std::thread::sleep(Duration::from_secs(600));
}

/// Two threads wake each other in turn, after a line on standard input.
fn switching_threads(count: usize) {
    std::io::stdin().read_line(&mut String::new()).expect("standard input can be read");
    let (ping, pong) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    let other = spawn(move || ping.1.iter().for_each(|()| pong.0.send(()).expect("the first waits")));
    for _ in 0..count / 2 {
        ping.0.send(()).expect("the second waits");
        pong.1.recv().expect("the second answers");
    }
    drop(ping.0);
    other.join().expect("the second ends");
}
