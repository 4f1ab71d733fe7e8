//! Independent tasks on two threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// As many as the machines have on which this is developed.
const THREADS: usize = 2;

/// Returns the results of a function for all tasks, in their order.
pub fn map<T: Sync, R: Send>(tasks: &[T], function: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<R>>> = Mutex::new(tasks.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some((index, task)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    tasks.get(index).map(|task| (index, task))
                } {
                    let result = function(task);
                    results.lock().expect("no task panics")[index] = Some(result);
                }
            });
        }
    });
    let results = results.into_inner().expect("no task panics");
    results.into_iter().flatten().collect()
}
