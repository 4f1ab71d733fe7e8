//! The Firefox Profiler's format (<https://profiler.firefox.com>, "Load a profile from file"): where each
//! thread was over time. A window is a sample of the calls at its start, as far as it shows them. Written
//! with the library of samply, the format's own tool.

use super::format::{Format, Needs, Writer};
use super::stacks;
use crate::program::Program;
use crate::window::{BranchRecording, Window};
use fxprof_processed_profile::{
    CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, Profile, ReferenceTimestamp, SamplingInterval,
    Timestamp,
};
use std::collections::BTreeMap;
use std::io::{Result, Write};

/// `--format firefox`.
pub const FORMAT: Format = Format {
    name: "firefox",
    about: "For <https://profiler.firefox.com>",
    writer: Writer::BranchRecording(write),
    needs: Needs::Nothing,
};

/// Writes the profile.
pub fn write(recording: &BranchRecording, program: &dyn Program, out: &mut dyn Write) -> Result<()> {
    serde_json::to_writer(out, &profile(recording, program)).map_err(Into::into)
}

fn profile(recording: &BranchRecording, program: &dyn Program) -> Profile {
    let name = recording.command.first().map_or("?", String::as_str);
    let interval = SamplingInterval::from_nanos(recording.period_ns.max(1));
    // The clock of a recording begins when the machine was started; the profile begins with its first window.
    let mut profile =
        Profile::new("corewise", ReferenceTimestamp::from_millis_since_unix_epoch(0.0), interval);
    let begin = recording.windows.iter().map(|window| window.time_ns).min().unwrap_or(0);
    let time = |window: &Window| Timestamp::from_nanos_since_reference(window.time_ns - begin);
    let start = Timestamp::from_nanos_since_reference(0);
    let mut threads: BTreeMap<u32, Vec<&Window>> = BTreeMap::new();
    for window in &recording.windows {
        threads.entry(window.tid).or_default().push(window);
    }
    let process = profile.add_process(name, threads.keys().next().copied().unwrap_or(0), start);
    for (tid, mut windows) in threads {
        windows.sort_by_key(|window| window.time_ns);
        let thread = profile.add_thread(process, tid, time(windows[0]), false);
        for window in windows {
            let at_start = stacks::pieces(window, program).into_iter().next();
            let stack = at_start.map_or_else(Vec::new, |piece| piece.stack);
            let frames: Vec<FrameInfo> = stack
                .iter()
                .map(|callee| FrameInfo {
                    frame: Frame::Label(profile.intern_string(&callee.name(recording, program))),
                    category_pair: CategoryHandle::OTHER.into(),
                    flags: FrameFlags::empty(),
                })
                .collect();
            let stack = profile.intern_stack_frames(thread, frames.into_iter());
            let period = CpuDelta::from_nanos(recording.time_of(window));
            profile.add_sample(thread, time(window), stack, period, 1);
        }
    }
    profile
}

#[cfg(test)]
mod tests {
    use crate::export::fixture;

    #[test]
    fn every_thread_has_its_samples() {
        let (recording, program) = (fixture::two_modules(), fixture::program());
        let text = fixture::text(|out| super::write(&recording, &program, out));
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let threads = json["threads"].as_array().unwrap();
        let samples: Vec<u64> =
            threads.iter().map(|thread| thread["samples"]["length"].as_u64().unwrap()).collect();
        assert_eq!(samples, [2, 1]);
        assert_eq!(threads[0]["tid"], "7");
        for name in ["main", "work", "libshared.so+0x5000"] {
            assert!(text.contains(&format!("\"{name}\"")), "no {name} in {text}");
        }
    }
}
