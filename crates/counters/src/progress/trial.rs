//! Tries by execute breakpoints, for a moment each, which points a thread passes rarely enough to be counted.

use super::counter::{Counter, TOO_HIGH, WATCHED_MAX, dear};
use super::points::Point;
use corewise_core::progress::affordable;
use corewise_sys::proc::{Proc, SchedstatFile};
use std::io;
use std::time::{Duration, Instant};

/// How long a point is tried: first so briefly that one that is passed in each iteration of a loop costs
/// little; then, if it was not passed too often, long enough to be passed at all.
const TRIALS: [Duration; 2] = [Duration::from_millis(3), Duration::from_millis(20)];

/// How long to wait at most until the thread has run, and how long it must have run for a valid trial, in
/// nanoseconds.
const TRIAL_MAX: Duration = Duration::from_millis(60);
const TRIAL_RUN_NS: u64 = 1_000_000;

/// Returns the points that a thread passes rarely enough to be counted, alone and all together; first those
/// that it was seen to pass. `None` if it has ended. A thread that sleeps most of the time delays each trial:
/// points that have not been tried within `time`, and once more within the same time, are dropped.
pub fn rare(pid: u32, tid: u32, candidates: Vec<Point>, time: Duration) -> io::Result<Option<Vec<Point>>> {
    let Ok(Some(schedstat)) = Proc::own().schedstat(pid, tid, true) else { return Ok(None) };
    // Each with its passes per second in the last trial.
    let mut left: Vec<(f64, Point)> = candidates.into_iter().map(|point| (0.0, point)).collect();
    for trial in TRIALS {
        let (mut rare, begin) = (Vec::new(), Instant::now());
        for tried in left.chunks(WATCHED_MAX).take_while(|_| begin.elapsed() < time) {
            match rates(trial, tid, tried, &schedstat) {
                Ok(found) => rare.extend(found),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        left = rare;
    }
    let rates: Vec<f64> = left.iter().map(|(rate, point)| dear(*rate, point.rate_max)).collect();
    let mut kept: Vec<&(f64, Point)> = affordable(&rates).into_iter().map(|index| &left[index]).collect();
    // The sort is stable: otherwise the order of the candidates remains.
    kept.sort_by_key(|(rate, _)| *rate == 0.0);
    Ok(Some(kept.into_iter().map(|(_, point)| point.clone()).collect()))
}

/// Returns those of at most [`WATCHED_MAX`] points that are passed rarely enough, with their passes per
/// second.
fn rates(
    trial: Duration,
    tid: u32,
    tried: &[(f64, Point)],
    schedstat: &SchedstatFile,
) -> io::Result<Vec<(f64, Point)>> {
    let watched: Vec<Counter> =
        tried.iter().map(|(_, point)| Counter::watch(tid, point.address)).collect::<io::Result<_>>()?;
    let run_ns = || schedstat.read().ok().flatten().map_or(0, |times| times.run_ns);
    let (begin, before) = (Instant::now(), run_ns());
    loop {
        std::thread::sleep(trial);
        if run_ns().saturating_sub(before) >= TRIAL_RUN_NS {
            break;
        }
        if begin.elapsed() >= TRIAL_MAX {
            return Ok(Vec::new());
        }
    }
    let passed_s = begin.elapsed().as_secs_f64();
    let mut rare = Vec::new();
    for ((_, point), counter) in tried.iter().zip(watched) {
        // A point near the limit is passed some more times by chance.
        let most = 3.0 + TOO_HIGH * point.rate_max * passed_s;
        let passes = counter.read()? as f64;
        if passes <= most {
            rare.push((passes / passed_s, point.clone()));
        }
    }
    Ok(rare)
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_core::progress::RATE_MAX;
    use corewise_testing::{needs, skip};
    use std::hint::black_box;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    #[inline(never)]
    fn often() {
        black_box(1);
    }

    #[inline(never)]
    fn seldom() {
        black_box(2);
    }

    #[inline(never)]
    fn never() {
        black_box(3);
    }

    #[test]
    fn what_is_passed_all_the_time_is_left_out_and_what_is_never_passed_comes_last() {
        needs!(Perf);
        static OVER: AtomicBool = AtomicBool::new(false);
        let (sender, receiver) = channel();
        let thread = std::thread::spawn(move || {
            sender.send(nix::unistd::gettid().as_raw() as u32).unwrap();
            while !OVER.load(Ordering::Relaxed) {
                (0..200_000).for_each(|_| black_box(often as fn())());
                black_box(seldom as fn())();
            }
            black_box(never as fn())();
        });
        let point = |name: &str, function: fn()| Point {
            module: 0,
            offset: 0,
            address: function as usize as u64,
            name: name.to_owned(),
            rate_max: RATE_MAX,
        };
        let points = vec![point("often", often), point("never", never), point("seldom", seldom)];
        let tid = receiver.recv().unwrap();
        // On a busy machine the thread may run so little in a trial that the result is wrong.
        let begin = Instant::now();
        let found = loop {
            let found = rare(std::process::id(), tid, points.clone(), Duration::from_secs(1));
            let Ok(Some(rare)) = &found else { break found.map(|_| false) };
            if rare.iter().map(|point| point.name.as_str()).eq(["seldom", "never"]) {
                break Ok(true);
            }
            assert!(begin.elapsed() < Duration::from_secs(120), "{rare:?}");
        };
        OVER.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        match found {
            Ok(found) => assert!(found, "the thread runs"),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => skip!(Perf, "{error}"),
            Err(error) => panic!("{error}"),
        }
    }
}
