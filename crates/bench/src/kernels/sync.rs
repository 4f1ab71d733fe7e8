//! Kernels of synchronisation: two threads that wait for each other (interdependencies, §3.1).
//!
//! - **Alternate**, the paper's: a shared variable holds the number of one of the two threads. Each reads it
//!   until it differs from its own number, then writes its own. Unit: a write.
//! - **FetchAdd**: both add 1 to one shared variable by an atomic read-modify-write, as fast as they can.
//!   Unit: an addition.
//! - **HandOver**: the first thread writes the next number into its cache line, the second waits for it and
//!   writes it into its own, for which the first waits. Unit: a hand-over, which is half a round trip. Unlike
//!   Alternate, no line has two writers.
//!
//! Each thread counts what it did itself; the sum of both counts is the work. Waiting is plain reading,
//! without a pause instruction, as in the paper: on SMT siblings the spinning of one costs the other, and
//! that belongs to the picture.

use super::measuring_loop::{Facts, KernelError, Loop, Made};
use super::shared_lines::{Role, SharedLines};
use corewise_core::kernels::Kernel;
use std::arch::asm;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(super) const FACTS: &[Facts] = &[
    Facts { kernel: Kernel::Alternate, bytes_read: 8, bytes_written: 8, operations: 0 },
    Facts { kernel: Kernel::FetchAdd, bytes_read: 8, bytes_written: 8, operations: 1 },
    Facts { kernel: Kernel::HandOver, bytes_read: 8, bytes_written: 8, operations: 0 },
];

/// Writes, hand-overs or additions in a chunk.
const CHUNK: u64 = 128;

/// Reads that a waiting thread makes before it looks at `stop`.
const PATIENCE: u64 = 256;

/// Prepares a synchronisation kernel.
pub(super) fn prepare(kernel: Kernel, lines: Arc<SharedLines>, role: Role) -> Made {
    Ok(match kernel {
        Kernel::Alternate => Box::new(Alternate { lines, role }),
        Kernel::FetchAdd => Box::new(FetchAdd { lines }),
        Kernel::HandOver => Box::new(HandOver { lines, role, next: 1 }),
        _ => return Err(KernelError::Unwritten(kernel)),
    })
}

struct Alternate {
    lines: Arc<SharedLines>,
    role: Role,
}

impl Loop for Alternate {
    fn chunk(&mut self, stop: &AtomicBool) -> f64 {
        let mut left = CHUNK;
        while left > 0 && !stop.load(Ordering::Relaxed) {
            left -= alternate(&self.lines.first.0, self.role as u64, left);
        }
        (CHUNK - left) as f64
    }
}

struct FetchAdd {
    lines: Arc<SharedLines>,
}

impl Loop for FetchAdd {
    fn chunk(&mut self, _stop: &AtomicBool) -> f64 {
        fetch_add(&self.lines.first.0, CHUNK);
        CHUNK as f64
    }
}

struct HandOver {
    lines: Arc<SharedLines>,
    role: Role,
    /// The number to be handed over next.
    next: u64,
}

impl Loop for HandOver {
    fn chunk(&mut self, stop: &AtomicBool) -> f64 {
        let SharedLines { first, second } = &*self.lines;
        let mut left = CHUNK;
        while left > 0 && !stop.load(Ordering::Relaxed) {
            // The first thread may write a number once the answer to the one before has come; the second once
            // it has come itself.
            let taken = match self.role {
                Role::First => hand_over(&second.0, self.next - 1, &first.0, self.next, left),
                Role::Second => hand_over(&first.0, self.next, &second.0, self.next, left),
            };
            self.next += taken;
            left -= taken;
        }
        (CHUNK - left) as f64
    }
}

/// Writes `own` into `line` up to `times` times, each time after something else was read there. Gives up when
/// [`PATIENCE`] reads in a row showed `own`. Returns the number of writes.
fn alternate(line: &AtomicU64, own: u64, times: u64) -> u64 {
    let mut left = times;
    // SAFETY: reads and writes only the eight bytes of `line`, an atomic variable.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            ".p2align 6",
            "2: mov {spins}, {patience}",
            "3: cmp qword ptr [{line}], {own}",
            "jne 4f",
            "dec {spins}",
            "jnz 3b",
            "jmp 5f",
            "4: mov qword ptr [{line}], {own}",
            "dec {left}",
            "jnz 2b",
            "5:",
            line = in(reg) line.as_ptr(),
            own = in(reg) own,
            left = inout(reg) left,
            patience = const PATIENCE,
            spins = out(reg) _,
            options(nostack),
        );
    }
    // SAFETY: as for x86-64 above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            ".p2align 6",
            "2: mov {spins}, #{patience}",
            "3: ldr {seen}, [{line}]",
            "cmp {seen}, {own}",
            "b.ne 4f",
            "subs {spins}, {spins}, #1",
            "b.ne 3b",
            "b 5f",
            "4: str {own}, [{line}]",
            "subs {left}, {left}, #1",
            "b.ne 2b",
            "5:",
            line = in(reg) line.as_ptr(),
            own = in(reg) own,
            left = inout(reg) left,
            patience = const PATIENCE,
            seen = out(reg) _,
            spins = out(reg) _,
            options(nostack),
        );
    }
    times - left
}

/// Up to `times` times: waits until `awaited` shows `expected`, then writes `next` into `written`, and counts
/// both on. Gives up when [`PATIENCE`] reads in a row showed something else. Returns the number of writes.
fn hand_over(awaited: &AtomicU64, expected: u64, written: &AtomicU64, next: u64, times: u64) -> u64 {
    let mut left = times;
    // SAFETY: reads and writes only the eight bytes of each of two atomic variables.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            ".p2align 6",
            "2: mov {spins}, {patience}",
            "3: cmp qword ptr [{awaited}], {expected}",
            "je 4f",
            "dec {spins}",
            "jnz 3b",
            "jmp 5f",
            "4: mov qword ptr [{written}], {next}",
            "inc {expected}",
            "inc {next}",
            "dec {left}",
            "jnz 2b",
            "5:",
            awaited = in(reg) awaited.as_ptr(),
            written = in(reg) written.as_ptr(),
            expected = inout(reg) expected => _,
            next = inout(reg) next => _,
            left = inout(reg) left,
            patience = const PATIENCE,
            spins = out(reg) _,
            options(nostack),
        );
    }
    // SAFETY: as for x86-64 above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            ".p2align 6",
            "2: mov {spins}, #{patience}",
            "3: ldar {seen}, [{awaited}]",
            "cmp {seen}, {expected}",
            "b.eq 4f",
            "subs {spins}, {spins}, #1",
            "b.ne 3b",
            "b 5f",
            "4: stlr {next}, [{written}]",
            "add {expected}, {expected}, #1",
            "add {next}, {next}, #1",
            "subs {left}, {left}, #1",
            "b.ne 2b",
            "5:",
            awaited = in(reg) awaited.as_ptr(),
            written = in(reg) written.as_ptr(),
            expected = inout(reg) expected => _,
            next = inout(reg) next => _,
            left = inout(reg) left,
            patience = const PATIENCE,
            seen = out(reg) _,
            spins = out(reg) _,
            options(nostack),
        );
    }
    times - left
}

/// Adds 1 to `line` so many times.
fn fetch_add(line: &AtomicU64, times: u64) {
    // SAFETY: reads and writes only the eight bytes of `line`, an atomic variable.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            ".p2align 6",
            "2: mov {one}, 1",
            "lock xadd qword ptr [{line}], {one}",
            "dec {left}",
            "jnz 2b",
            line = in(reg) line.as_ptr(),
            left = inout(reg) times => _,
            one = out(reg) _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("lse") {
        // SAFETY: as above; the instruction is there.
        unsafe {
            asm!(
                ".arch_extension lse",
                ".p2align 6",
                "2: ldaddal {one}, {seen}, [{line}]",
                "subs {left}, {left}, #1",
                "b.ne 2b",
                line = in(reg) line.as_ptr(),
                left = inout(reg) times => _,
                one = in(reg) 1u64,
                seen = out(reg) _,
                options(nostack),
            );
        }
    } else {
        // SAFETY: as for x86-64 above.
        unsafe {
            asm!(
                ".p2align 6",
                "2: ldaxr {seen}, [{line}]",
                "add {seen}, {seen}, #1",
                "stlxr {failed:w}, {seen}, [{line}]",
                "cbnz {failed:w}, 2b",
                "subs {left}, {left}, #1",
                "b.ne 2b",
                line = in(reg) line.as_ptr(),
                left = inout(reg) times => _,
                seen = out(reg) _,
                failed = out(reg) _,
                options(nostack),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// Runs `work`, which another thread stops after a moment.
    fn stopped_soon(work: impl FnOnce(&AtomicBool) -> f64) -> f64 {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(5));
                stop.store(true, Ordering::Relaxed);
            });
            work(&stop)
        })
    }

    /// Runs a kernel on two threads until the first has done this many chunks; returns the work of each and
    /// their shared memory.
    fn run(kernel: Kernel, chunks: u32) -> ([u64; 2], Arc<SharedLines>) {
        let lines = Arc::new(SharedLines::default());
        let (stop, start) = (AtomicBool::new(false), Barrier::new(2));
        let work = |role| {
            let mut made = prepare(kernel, lines.clone(), role).unwrap();
            start.wait();
            let mut work = 0.0;
            let mut done = 0;
            while !stop.load(Ordering::Relaxed) && (role == Role::Second || done < chunks) {
                work += made.chunk(&stop);
                done += 1;
            }
            stop.store(true, Ordering::Relaxed);
            work as u64
        };
        let done = std::thread::scope(|scope| {
            let second = scope.spawn(|| work(Role::Second));
            [work(Role::First), second.join().unwrap()]
        });
        (done, lines)
    }

    #[test]
    fn both_sides_of_an_alternation_write() {
        let ([first, second], lines) = run(Kernel::Alternate, 1);
        assert_eq!(first, CHUNK);
        // The variable began with the first's number, so the second wrote first.
        assert!(second == first || second == first + 1, "{first} and {second} writes");
        assert_eq!(lines.first.0.load(Ordering::Relaxed), u64::from(second > first));
    }

    #[test]
    fn hand_overs_match_on_both_sides() {
        let ([first, second], lines) = run(Kernel::HandOver, 1);
        assert_eq!(first, CHUNK);
        assert!(second == first || second + 1 == first, "{first} and {second} hand-overs");
        assert_eq!(lines.first.0.load(Ordering::Relaxed), first);
        assert_eq!(lines.second.0.load(Ordering::Relaxed), second);
    }

    #[test]
    fn no_addition_is_lost() {
        let ([first, second], lines) = run(Kernel::FetchAdd, 100);
        assert_eq!(first, 100 * CHUNK);
        assert_eq!(lines.first.0.load(Ordering::Relaxed), first + second);
    }

    #[test]
    fn no_worker_waits_for_a_partner_that_has_left() {
        for (kernel, role, done) in [
            (Kernel::Alternate, Role::First, 0),
            (Kernel::Alternate, Role::Second, 1),
            (Kernel::HandOver, Role::First, 1),
            (Kernel::HandOver, Role::Second, 0),
        ] {
            let mut made = prepare(kernel, Arc::default(), role).unwrap();
            assert_eq!(stopped_soon(|stop| made.chunk(stop)), f64::from(done), "{kernel:?}, {role:?}");
            assert_eq!(made.chunk(&AtomicBool::new(true)), 0.0, "{kernel:?}, {role:?}");
        }
    }

    #[test]
    fn a_hand_over_that_was_stopped_goes_on_where_it_was() {
        let lines = Arc::new(SharedLines::default());
        let mut first = HandOver { lines: lines.clone(), role: Role::First, next: 1 };
        let mut second = HandOver { lines: lines.clone(), role: Role::Second, next: 1 };
        for _ in 0..3 {
            // Alone, each goes one step and then waits until it is stopped.
            for waiting in [&mut first, &mut second] {
                stopped_soon(|stop| waiting.chunk(stop));
            }
        }
        assert_eq!((first.next, second.next), (4, 4));
        assert_eq!(lines.second.0.load(Ordering::Relaxed), 3);
    }
}
