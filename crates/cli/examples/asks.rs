//! A program that computes, and asks when it is told to, for tests of what bound threads cannot have.
//!
//! `asks THREADS` computes with so many threads. For each line of standard input the first of them answers
//! with a line: `mask` with the number of PEs that it may use, `deadline` with the error that the request
//! for `SCHED_DEADLINE` gets, 0 for none; it is an ordinary thread again at once. It ends with the input.

use nix::libc;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use std::hint::black_box;
use std::io::{BufRead, stdin};
use std::sync::mpsc::channel;
use std::thread::spawn;

/// `struct sched_attr` of sched_setattr(2).
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

fn set(policy: i32, ns: u64) -> i32 {
    let size = size_of::<SchedAttr>() as u32;
    let policy = policy as u32;
    let attr =
        SchedAttr { size, policy, runtime: ns, deadline: ns * 10, period: ns * 10, ..SchedAttr::default() };
    // SAFETY: the structure has the kernel's layout and lives until the call returns.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    if result == 0 { 0 } else { nix::errno::Errno::last_raw() }
}

fn main() {
    let threads: usize =
        std::env::args().nth(1).and_then(|word| word.parse().ok()).expect("usage: asks THREADS");
    for _ in 1..threads {
        spawn(|| {
            let mut x = 1.0_f64;
            loop {
                x = black_box(x * 1.000_000_1);
            }
        });
    }
    let (sender, lines) = channel();
    spawn(move || stdin().lock().lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let mut x = 1.0_f64;
    loop {
        (0..1_000_000).for_each(|_| x = black_box(x * 1.000_000_1));
        match lines.try_recv().as_deref() {
            Ok("mask") => {
                let mask = sched_getaffinity(Pid::from_raw(0)).expect("a thread may ask for its own mask");
                println!("{}", (0..CpuSet::count()).filter(|pe| mask.is_set(*pe) == Ok(true)).count());
            }
            Ok("deadline") => {
                let error = set(libc::SCHED_DEADLINE, 2_000_000);
                let back = if error == 0 { set(libc::SCHED_OTHER, 0) } else { 0 };
                assert_eq!(back, 0, "any thread may be an ordinary one");
                println!("{error}");
            }
            Ok(other) => panic!("`{other}` is none of mask, deadline"),
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
            Err(std::sync::mpsc::TryRecvError::Disconnected) => std::process::exit(0),
        }
    }
}
