//! Waits in crates of Rust, and work: crates backoff|channel|spin|lock|rayon|works.
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{LazyLock, Mutex};

static MADE: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicBool = AtomicBool::new(false);

fn clock(id: i32) -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(id, &mut now) };
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}
fn cpu() -> f64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}
fn going() -> bool {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID) < 1.5
}
fn tell(tid: i32, waited: f64, total: f64) {
    let Ok(path) = std::env::var("TRUTH") else { return };
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    writeln!(file, "{tid} {waited:.6} {total:.6}").unwrap();
}
fn tid() -> i32 {
    unsafe { libc::gettid() }
}
#[inline(never)]
fn work(n: u64) -> f64 {
    std::hint::black_box((0..n).fold(std::hint::black_box(1.0), |x, _| x * 1.0000001 + 0.5))
}
/// One thread makes, the other waits until it has.
fn pair(wait: impl Fn(u64) + Send, make: impl Fn()) {
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut seen, mut waited) = (0, 0.0);
            while !DONE.load(Acquire) {
                let since = cpu();
                wait(seen);
                waited += cpu() - since;
                seen = MADE.load(Acquire);
                work(60_000);
            }
            tell(tid(), waited, cpu());
        });
        while going() {
            work(1_500_000);
            MADE.fetch_add(1, Release);
            make();
        }
        DONE.store(true, Release);
        make();
    });
    tell(tid(), 0.0, cpu());
}
fn locked(lock: impl Fn() + Sync, unlock: impl Fn() + Sync) {
    let body = || {
        let mut waited = 0.0;
        while going() {
            let since = cpu();
            lock();
            waited += cpu() - since;
            work(300_000);
            unlock();
            work(1_000);
        }
        tell(tid(), waited, cpu());
    };
    std::thread::scope(|scope| {
        scope.spawn(body);
        body();
    });
}
fn idle(seen: u64) -> bool {
    MADE.load(Acquire) == seen && !DONE.load(Relaxed)
}
fn main() {
    match std::env::args().nth(1).unwrap_or_default().as_str() {
        "backoff" => pair(
            |seen| {
                let backoff = crossbeam_utils::Backoff::new();
                while idle(seen) {
                    backoff.snooze();
                }
            },
            || {},
        ),
        "channel" => {
            let (send, receive) = crossbeam_channel::unbounded();
            pair(move |_| while receive.try_recv().is_err() && !DONE.load(Relaxed) {}, move ||
                    send.send(1).unwrap())
        }
        "spin" => {
            static LOCK: spin::Mutex<()> = spin::Mutex::new(());
            locked(|| std::mem::forget(LOCK.lock()), || unsafe { LOCK.force_unlock() })
        }
        "lock" => {
            static LOCK: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
            locked(|| std::mem::forget(LOCK.lock()), || unsafe { LOCK.force_unlock() })
        }
        "rayon" => {
            static WORKED: LazyLock<Mutex<std::collections::BTreeMap<i32, f64>>> =
                    LazyLock::new(Default::default);
            let part = |n| {
                let since = cpu();
                work(n);
                *WORKED.lock().unwrap().entry(tid()).or_default() += cpu() - since;
            };
            rayon::ThreadPoolBuilder::new().num_threads(2).build_global().unwrap();
            rayon::scope(|_| {
                while going() {
                    rayon::join(|| part(1_000_000), || part(50_000));
                }
            });
            for (tid, worked) in &*WORKED.lock().unwrap() {
                let run = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap();
                let total = run.split(' ').next().unwrap().parse::<f64>().unwrap() * 1e-9;
                tell(*tid, total - worked, total);
            }
        }
        "works" => {
            let mut counts = std::collections::HashMap::new();
            while going() {
                for i in 0..20_000u64 {
                    *counts.entry(i * 7919 % 997).or_insert(0) += 1;
                }
            }
            tell(tid(), 0.0, cpu());
        }
        _ => std::process::exit(2),
    }
}
