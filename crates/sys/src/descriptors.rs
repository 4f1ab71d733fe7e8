//! Reserves descriptors for later where few may be open (`ulimit -n 24`).

use std::fs::File;
use std::io;

/// Runs `act`, which may open as many descriptors as it can, while `count` of them stay free. Fails if fewer
/// are free now.
pub fn leaving_free<T>(count: usize, act: impl FnOnce() -> T) -> io::Result<T> {
    let kept: Vec<File> = (0..count).map(|_| File::open("/dev/null")).collect::<io::Result<_>>()?;
    let result = act();
    drop(kept);
    Ok(result)
}
