//! Bookkeeping of processes, threads and code, by records made up over this test's own memory.

use super::*;
use corewise_code::Backing;
use corewise_core::observe::SampleReading;
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
    event(pid, tid, EventKind::Sample { ip, kernel: false, pe: 0, snapshot: None })
}

fn memory_map(pid: u32, page: &Page) -> Event {
    let (start, end) = (page.address(), page.address() + 4096);
    event(pid, pid, EventKind::Map(Mapping { start, end, offset: 0, backing: Backing::Memory }))
}

fn file_map(pid: u32, path: &std::path::Path) -> Event {
    let key = corewise_code::mapped_file::listed_as(&std::fs::File::open(path).unwrap()).unwrap();
    let backing = Backing::File(key, path.to_str().unwrap().into());
    event(pid, pid, EventKind::Map(Mapping { start: 0x10000, end: 0x11000, offset: 0, backing }))
}

fn named(name: &str, by_exec: bool) -> EventKind {
    EventKind::Name { name: name.into(), by_exec }
}

fn in_kernel(pid: u32, tid: u32) -> Event {
    event(pid, tid, EventKind::Sample { ip: 0xffff_ffff_8100_0000, kernel: true, pe: 5, snapshot: None })
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
fn mappings_that_come_and_go_are_not_kept_and_those_that_are_there_are() {
    const NOBODY: u32 = 1 << 23;
    let (own, here) =
        (std::process::id(), mappings_that_come_and_go_are_not_kept_and_those_that_are_there_are);
    let mut sampling = Sampling::new();
    for pid in [own, NOBODY] {
        let map = |index: u64| {
            let (start, backing) = (index << 13, Backing::Memory);
            event(pid, pid, EventKind::Map(Mapping { start, end: start + 4096, offset: 0, backing }))
        };
        for index in 1..=3 * CODE_MAX as u64 {
            sampling.take(map(index));
            assert!(sampling.spaces[&pid].mappings().len() <= CODE_MAX);
        }
    }
    assert!(sampling.spaces[&own].find(here as fn() as usize as u64).is_some(), "it is listed again");
    assert!(sampling.spaces[&NOBODY].find(3 * CODE_MAX as u64 * (1 << 13)).is_some(), "the last one");
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
fn the_last_reading_of_each_ended_thread_is_reported_once_however_late() {
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
    assert!(sampling.threads.tids().is_empty(), "nothing is kept of what was reported");
}

#[test]
fn an_end_that_others_saw_first_is_not_reported_again() {
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
fn threads_that_only_the_clock_saw_are_reported_with_what_is_known_of_them() {
    let mut sampling = Sampling::new();
    for tid in [2, 3] {
        let begin = Event { time: 70, ..event(tid, tid, EventKind::Fork { parent: 1, creator: 1 }) };
        let rest = [event(tid, tid, named("short", true)), in_kernel(tid, tid)];
        sampling.take_all([vec![begin], rest.to_vec()].concat(), false);
        sampling.take_all(vec![event(tid, tid, EventKind::Exit)], false);
    }
    let reported = sampling.threads.unclaimed(&HashSet::from([3]), 100);
    let [(facts, CounterReading::Sample(reading))] = &reported[..] else { panic!("{reported:?}") };
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

/// `while (!ready()) ;`: most samples are in what is called, which does not show its caller.
#[test]
fn a_called_function_waits_with_its_caller() {
    // 1: call ready; test eax,eax; je 1b; ret;
    // ready: mov eax,[rip+8]; test eax,eax; setne al; movzx eax,al; ret
    let code = "e80500000085c074f7c38b050800000085c00f95c00fb6c0c3";
    let (spinning, judged) = waiting(code, &[10, 16, 10, 5, 16, 18, 10, 16]);
    assert!(spinning > 150 && judged < 10, "{spinning} {judged}");
}

/// A sample of this process where registers and stack are known.
fn sample_with_snapshot(ip: u64, registers: &[(usize, u64)], stack: &[u64]) -> Event {
    let mut snapshot = Snapshot { registers: [0; 16], stack: stack.to_vec() };
    snapshot.registers[4] = 0x7000_0000;
    registers.iter().for_each(|&(number, value)| snapshot.registers[number] = value);
    let own = std::process::id();
    event(own, 1, EventKind::Sample { ip, kernel: false, pe: 0, snapshot: Some(Box::new(snapshot)) })
}

/// A sampled thread of this process with code in memory.
fn with_code(page: &Page, hex: &str) -> Sampling {
    let bytes: Vec<u8> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    page.write(&bytes);
    let mut sampling = Sampling::new();
    sampling.take_all(vec![memory_map(std::process::id(), page)], false);
    sampling
}

/// 0: `ret`; 1: `call rax; syscall`; 5: `jmp [rbx+rcx*8]`; 8: `addsd xmm0,xmm0; syscall`;
/// 14: `add eax,eax; syscall`; 18: `pop rbx; ret`.
const TRANSFERS: &str = "c3ffd00f05ff24cbf20f58c00f0501c00f055bc3";
const FLOAT_AT: u64 = 8;
const INTEGER_AT: u64 = 14;

#[test]
#[cfg(target_arch = "x86_64")]
fn a_return_leads_where_the_stack_says() {
    let page = Page::new();
    let mut sampling = with_code(&page, TRANSFERS);
    let at = page.address();
    for (ip, stack, expected) in [
        (0, vec![at + FLOAT_AT], (1, 0, 1.0)),
        (0, vec![at + INTEGER_AT], (2, 0, 1.0)),
        (18, vec![0, at + FLOAT_AT], (3, 0, 2.0)),
        // From one function to its caller, and from there to its own.
        (0, vec![at + 18, 0, at + FLOAT_AT], (4, 0, 3.0)),
        (0, vec![at + 18, 0, at + INTEGER_AT], (5, 0, 3.0)),
    ] {
        sampling.take_all(vec![sample_with_snapshot(at + ip, &[], &stack)], false);
        assert_eq!(counts(&sampling, 1), expected, "{stack:x?}");
    }
    assert_eq!(sampling.threads.read(1).unwrap().unseen, 0.0);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_call_through_a_pointer_leads_where_the_registers_say_and_so_do_others() {
    let page = Page::new();
    let mut sampling = with_code(&page, TRANSFERS);
    let at = page.address();
    // A function that begins with an addition, and one that does not: three times of four the former.
    for target in [FLOAT_AT, FLOAT_AT, INTEGER_AT, FLOAT_AT].repeat(25) {
        sampling.take_all(vec![sample_with_snapshot(at + 1, &[(0, at + target)], &[])], false);
    }
    assert_eq!(counts(&sampling, 1), (100, 0, 75.0));
    // Where the registers are not known, it is like those.
    sampling.take_all(vec![sample(std::process::id(), 1, at + 1)], false);
    let (judged, _, fp) = counts(&sampling, 1);
    assert_eq!(judged, 101);
    assert!((fp - 75.75).abs() < 0.02, "{fp}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn behind_a_jump_through_a_table_is_what_the_table_leads_to() {
    let page = Page::new();
    let mut sampling = with_code(&page, TRANSFERS);
    let table = [page.address() + INTEGER_AT, page.address() + FLOAT_AT];
    for index in 0..40 {
        let registers = [(3, table.as_ptr() as u64), (1, index % 2)];
        sampling.take_all(vec![sample_with_snapshot(page.address() + 5, &registers, &[])], false);
    }
    assert_eq!(counts(&sampling, 1), (40, 0, 20.0));
    // Samples whose way leads to the jump meet what lies behind it, not what is met at other samples.
    (0..60).for_each(|_| {
        sampling.take_all(vec![sample_with_snapshot(page.address() + INTEGER_AT, &[], &[])], false)
    });
    sampling.take_all(vec![sample(std::process::id(), 1, page.address() + 5)], false);
    let (judged, _, fp) = counts(&sampling, 1);
    assert_eq!(judged, 101);
    assert!((fp - 20.5).abs() < 0.02, "{fp}");
}

/// A wait that compares in every round by a function without a name: all samples are in the function.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_function_waits_with_the_loop_that_its_return_address_is_in() {
    let page = Page::new();
    // 1: call ready; test eax,eax; je 1b; ret;
    // ready: mov eax,[rip+8]; test eax,eax; setne al; movzx eax,al; ret
    let mut sampling = with_code(&page, "e80500000085c074f7c38b050800000085c00f95c00fb6c0c3");
    for offset in [10, 16, 18, 10].repeat(25) {
        sampling
            .take_all(vec![sample_with_snapshot(page.address() + offset, &[], &[page.address() + 5])], false);
    }
    let reading = sampling.threads.read(1).unwrap();
    assert!(reading.spinning > 95, "{reading:?}");
}

/// The queue is asked through a pointer, and there is no pause: what it leads to is known from samples.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_wait_through_a_pointer_is_recognised_once_it_is_known_where_it_leads() {
    let page = Page::new();
    // 0: call rbx; test al,al; jne 0b; ret; 7: mov rax,[rip+16]; cmp rax,[rip+16]; sete al; ret
    let empty = "ffd384c075fac3488b0510000000483b05100000000f94c0c3";
    let working = "ffd384c075fac348ff051000000031c0fec0c3";
    for (code, waits) in [(empty, true), (working, false)] {
        let mut sampling = with_code(&page, code);
        for offset in [0, 7, 0, 14, 2].repeat(80) {
            sampling.take_all(
                vec![sample_with_snapshot(
                    page.address() + offset,
                    &[(3, page.address() + 7)],
                    &[page.address() + 2],
                )],
                false,
            );
        }
        let reading = sampling.threads.read(1).unwrap();
        assert_eq!(reading.spinning > 250, waits, "{reading:?}");
        assert_eq!(reading.spinning == 0, !waits, "{reading:?}");
    }
}

/// The loop has a pause, but on another way around than the thread takes: going around is proof enough.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_loop_that_is_repeated_without_its_pause_is_a_wait() {
    // 0: mov eax,[rdi]; test eax,eax; jne 2f; cmp edx,4; jne 0b; pause; jmp 0b; 2: ret
    let code = "8b0785c0750a83fa0475f5f390ebf190c3";
    let flags = [0u64, 1];
    for (flag, waits) in [(&flags[0], true), (&flags[1], false)] {
        let page = Page::new();
        let mut sampling = with_code(&page, code);
        let registers = [(2, 3), (7, std::ptr::from_ref(flag) as u64)];
        for offset in [0, 6, 9, 0].repeat(25) {
            sampling.take_all(vec![sample_with_snapshot(page.address() + offset, &registers, &[])], false);
        }
        let reading = sampling.threads.read(1).unwrap();
        assert_eq!(reading.spinning, if waits { 100 } else { 0 }, "{reading:?}");
    }
}
