//! Bookkeeping of processes, threads and code, by records made up over this test's own memory.

use super::*;
use crate::code::{Backing, Mapping};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use std::num::NonZeroUsize;

/// `addsd xmm0,xmm0; syscall` and `add eax,eax; nop; nop; syscall`.
const FLOAT: &[u8] = &[0xf2, 0x0f, 0x58, 0xc0, 0x0f, 0x05];
const INTEGER: &[u8] = &[0x01, 0xc0, 0x90, 0x90, 0x0f, 0x05];

/// A page of this process that a compiler at run time could use.
struct Page(std::ptr::NonNull<u8>);

impl Page {
    fn new() -> Page {
        let length = NonZeroUsize::new(4096).unwrap();
        let writable = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new anonymous mapping, not placed over anything.
        let page = unsafe { mmap_anonymous(None, length, writable, MapFlags::MAP_PRIVATE) };
        Page(page.unwrap().cast())
    }

    fn write(&self, code: &[u8]) {
        // SAFETY: the page is mapped writable, longer than the code, and nobody else refers to it.
        unsafe { self.0.copy_from_nonoverlapping(std::ptr::NonNull::from(code).cast(), code.len()) };
    }

    fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }
}

fn event(pid: u32, tid: u32, kind: EventKind) -> Event {
    Event { time: 0, pid, tid, kind }
}

fn sample(pid: u32, tid: u32, ip: u64) -> Event {
    event(pid, tid, EventKind::Sample { ip, kernel: false, pe: 0 })
}

fn memory_map(pid: u32, page: &Page) -> Event {
    let (start, end) = (page.address(), page.address() + 4096);
    event(pid, pid, EventKind::Map(Mapping { start, end, offset: 0, backing: Backing::Memory }))
}

fn file_map(pid: u32, path: &std::path::Path) -> Event {
    let key = crate::mapped_file::listed_as(&std::fs::File::open(path).unwrap()).unwrap();
    let backing = Backing::File(key, path.to_str().unwrap().into());
    event(pid, pid, EventKind::Map(Mapping { start: 0x10000, end: 0x11000, offset: 0, backing }))
}

fn named(name: &str, by_exec: bool) -> EventKind {
    EventKind::Name { name: name.into(), by_exec }
}

fn in_kernel(pid: u32, tid: u32) -> Event {
    event(pid, tid, EventKind::Sample { ip: 0xffff_ffff_8100_0000, kernel: true, pe: 5 })
}

/// `(judged, unknown, fp)` of a thread.
fn counts(sampling: &Sampling, tid: u32) -> (u64, u64, f64) {
    let reading = sampling.threads.read(tid).unwrap();
    (reading.judged, reading.unknown, reading.fp)
}

#[test]
fn replaced_code_in_memory_is_judged_anew() {
    let own = std::process::id();
    let page = Page::new();
    let mut sampling = Sampling::new();
    page.write(FLOAT);
    sampling.take_all(vec![memory_map(own, &page), sample(own, 1, page.address())], false);
    assert_eq!(counts(&sampling, 1), (1, 0, 1.0));
    sampling.take_all(vec![sample(own, 1, page.address())], false);
    assert_eq!(counts(&sampling, 1), (2, 0, 2.0));
    assert_eq!(sampling.cost.judged_anew, 1, "unchanged memory costs a comparison only");
    page.write(INTEGER);
    sampling.take_all(vec![sample(own, 1, page.address())], false);
    assert_eq!(counts(&sampling, 1), (3, 0, 2.0));
}

#[test]
fn a_forked_process_has_its_parents_code_until_it_executes_another_program() {
    // Process ids above the kernel's limit: no such process is there to be read.
    const PARENT: u32 = 1 << 23;
    const CHILD: u32 = PARENT + 1;
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    std::fs::write(&program, FLOAT).unwrap();
    let mut sampling = Sampling::new();
    sampling.take_all(
        vec![
            file_map(PARENT, &program),
            event(CHILD, CHILD, EventKind::Fork { parent: PARENT, creator: PARENT }),
            sample(CHILD, CHILD, 0x10000),
            event(CHILD, CHILD, named("program", true)),
            sample(CHILD, CHILD, 0x10000),
            sample(PARENT, PARENT, 0x10000),
            sample(PARENT, PARENT, 0x20000),
        ],
        false,
    );
    assert_eq!(counts(&sampling, CHILD), (1, 1, 1.0));
    assert_eq!(counts(&sampling, PARENT), (1, 1, 1.0));
}

#[test]
fn a_replaced_file_is_not_taken_for_the_mapped_one() {
    const PID: u32 = 1 << 23;
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    std::fs::write(&program, FLOAT).unwrap();
    let map = file_map(PID, &program);
    std::fs::write(directory.path().join("newer"), INTEGER).unwrap();
    std::fs::rename(directory.path().join("newer"), &program).unwrap();
    let mut sampling = Sampling::new();
    sampling.take_all(vec![map, sample(PID, PID, 0x10000)], false);
    assert_eq!(counts(&sampling, PID), (0, 1, 0.0));
}

#[test]
fn kernel_samples_are_kept_apart() {
    let mut sampling = Sampling::new();
    sampling.take_all(vec![in_kernel(1, 2), event(1, 2, EventKind::Lost(3))], false);
    assert_eq!(sampling.threads.read(2), Some(SampleReading { kernel: 1, ..SampleReading::default() }));
    assert_eq!(sampling.threads.ran_on(2), BTreeMap::from([(PeId(5), 1)]));
    assert_eq!(sampling.lost, 3);
}

#[test]
fn the_last_reading_of_each_ended_thread_is_told_once_however_late() {
    let mut sampling = Sampling::new();
    // Two threads that had the same id, one after the other.
    for samples in [1, 2] {
        sampling.take_all(vec![event(1, 2, EventKind::Fork { parent: 1, creator: 1 })], false);
        (0..samples).for_each(|_| sampling.take_all(vec![in_kernel(1, 2)], false));
        sampling.take_all(vec![event(1, 2, EventKind::Exit)], false);
    }
    (0..100).for_each(|_| sampling.take_all(Vec::new(), false));
    let mut last = || sampling.threads.last(2).map(|reading| reading.kernel);
    assert_eq!([last(), last(), last()], [Some(1), Some(2), None]);
    assert!(sampling.threads.tids().is_empty(), "nothing is kept of what was told");
}

#[test]
fn an_end_that_others_saw_first_is_not_told_again() {
    let mut sampling = Sampling::new();
    sampling.take_all(vec![in_kernel(1, 2)], false);
    assert!(sampling.threads.last(2).is_some());
    assert_eq!((sampling.threads.last(2), sampling.threads.read(2)), (None, None));
    sampling.take_all(vec![event(1, 2, EventKind::Exit)], false);
    assert_eq!(sampling.threads.last(2), None);
    assert!(sampling.threads.unclaimed(&HashSet::new(), RATE_HZ).is_empty());
}

#[test]
fn of_several_threads_the_one_that_executes_a_program_goes_on() {
    let mut sampling = Sampling::new();
    let executed = event(1, 1, named("program", true));
    sampling.take_all(vec![in_kernel(1, 1), in_kernel(1, 2), executed], false);
    assert_eq!(sampling.threads.tids(), BTreeSet::from([1, 2]), "the reading of 2 waits");
    assert!(sampling.threads.last(2).is_some());
    sampling.take_all(vec![event(1, 1, EventKind::Exit)], true);
    assert!(!sampling.threads.has_process(1), "the process has ended with its last thread");
}

#[test]
fn threads_that_nobody_else_saw_are_told_with_what_is_known_of_them() {
    let mut sampling = Sampling::new();
    for tid in [2, 3] {
        let begin = Event { time: 70, ..event(tid, tid, EventKind::Fork { parent: 1, creator: 1 }) };
        let rest = [event(tid, tid, named("short", true)), in_kernel(tid, tid)];
        sampling.take_all([vec![begin], rest.to_vec()].concat(), false);
        sampling.take_all(vec![event(tid, tid, EventKind::Exit)], false);
    }
    let told = sampling.threads.unclaimed(&HashSet::from([3]), 100);
    let [(facts, CounterReading::Sample(reading))] = &told[..] else { panic!("{told:?}") };
    assert_eq!((facts.tid, facts.pid, facts.generation, &*facts.name), (2, 2, 70, "short"));
    assert_eq!((facts.cpu_ns, facts.ended, reading.kernel), (10_000_000, true, 1));
    assert!(sampling.threads.last(3).is_some(), "others thought it alive and ask for it now");
}

#[test]
fn strangers_are_dropped_where_the_records_are_those_of_all_processes() {
    let mut sampling = Sampling::new();
    sampling.threads.begin(10, 10, 0, 0);
    let fork = |parent, child| event(child, child, EventKind::Fork { parent, creator: parent });
    let exits = [20, 21].map(|pid| event(pid, pid, EventKind::Exit)).to_vec();
    sampling.take_all(vec![fork(10, 20), fork(11, 21), event(21, 21, named("stranger", true))], true);
    assert_eq!(sampling.threads.tids(), BTreeSet::from([10, 20]));
    sampling.take_all(exits, true);
    assert_eq!(sampling.threads.tids(), BTreeSet::from([10]));
}

/// `while (!cas(lock)) pause; y = y * a + b; lock = 0;`, counted: as GCC compiles it.
const LOCKED_WORK: &str = "f39089c8f00fb1155c2d000085c075f0f20f10074983c001f20f59c2f20f58c1f20f1107\
                           c7053a2d0000000000004c39c675cfc3";

/// `(waiting, judged)` of a thread with samples at these offsets, again and again.
fn waiting(code: &str, offsets: &[u64]) -> (u64, u64) {
    let bytes: Vec<u8> =
        (0..code.len()).step_by(2).map(|at| u8::from_str_radix(&code[at..at + 2], 16).unwrap()).collect();
    let page = Page::new();
    page.write(&bytes);
    let own = std::process::id();
    let mut sampling = Sampling::new();
    let samples = offsets.iter().cycle().take(offsets.len() * 20);
    let samples = samples.map(|offset| sample(own, 1, page.address() + offset));
    sampling.take_all(std::iter::once(memory_map(own, &page)).chain(samples).collect(), false);
    let reading = sampling.threads.read(1).unwrap();
    (reading.spinning, reading.judged)
}

/// The offsets are those at which samples of such threads were seen.
#[test]
fn only_a_lock_that_is_held_is_waited_for() {
    let free = [4, 12, 12, 20, 12, 4, 12, 12, 20, 12];
    assert_eq!(waiting(LOCKED_WORK, &free), (0, 200));
    let held = [2, 12, 0, 4, 2, 0, 12, 2, 0, 0];
    let (spinning, judged) = waiting(LOCKED_WORK, &held);
    assert!(spinning > 195 && judged < 5, "{spinning} {judged}");
}

/// `while (!ready()) ;`: most samples are in what is called, which does not say who called it.
#[test]
fn a_called_function_waits_with_its_caller() {
    // 1: call ready; test eax,eax; je 1b; ret;
    // ready: mov eax,[rip+8]; test eax,eax; setne al; movzx eax,al; ret
    let code = "e80500000085c074f7c38b050800000085c00f95c00fb6c0c3";
    let (spinning, judged) = waiting(code, &[10, 16, 10, 5, 16, 18, 10, 16]);
    assert!(spinning > 150 && judged < 10, "{spinning} {judged}");
}
