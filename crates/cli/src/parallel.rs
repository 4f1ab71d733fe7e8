//! Runs independent work on several threads with Rayon; results keep the order of the work.

use anyhow::{Context, Result};
use std::num::NonZeroUsize;

/// Runs `work`, whose parallel iterators use this many threads.
pub fn in_parallel<T: Send>(threads: NonZeroUsize, work: impl FnOnce() -> T + Send) -> Result<T> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.get());
    let pool = pool.build().with_context(|| format!("cannot start {threads} threads: ask for fewer"))?;
    Ok(pool.install(work))
}
