//! Runs a command to which the system refuses what a container often refuses: hardware counters, clock
//! samples and BPF. For testing what corewise does without them.
//!
//! `refused CALL,... COMMAND ARGS...`, where CALL is `bpf`, `perf_event_open` or `sched_setaffinity`. The
//! calls fail with `EPERM`, for the command and all that it starts.

use nix::errno::Errno;
use nix::libc;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::os::unix::process::CommandExt;
use std::process::Command;

fn main() {
    let mut words = std::env::args().skip(1);
    let (Some(calls), Some(command)) = (words.next(), words.next()) else {
        panic!("usage: refused CALL,... COMMAND ARGS...");
    };
    let rules = calls.split(',').map(|call| (number(call), Vec::new())).collect();
    let refuse = SeccompAction::Errno(Errno::EPERM as u32);
    let machine = std::env::consts::ARCH.try_into().expect("seccomp knows this machine");
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, refuse, machine).expect("the rules are plain");
    let program: BpfProgram = filter.try_into().expect("the filter is small");
    seccompiler::apply_filter(&program).expect("a process may refuse itself something");
    panic!("{command}: {}", Command::new(&command).args(words).exec());
}

fn number(call: &str) -> i64 {
    match call {
        "bpf" => libc::SYS_bpf,
        "perf_event_open" => libc::SYS_perf_event_open,
        "sched_setaffinity" => libc::SYS_sched_setaffinity,
        _ => panic!("`{call}` is none of bpf, perf_event_open, sched_setaffinity"),
    }
}
