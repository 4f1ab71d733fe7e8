//! Records windows and prints a summary:
//! `cargo run --release -p corewise-branches --example shadow_record -- [--step] [--hz N] [--branches N]
//! [--pid PID] [--seconds N] COMMAND…`

use corewise_branches::{Backend, Options, Target, record};
use corewise_sys::launch::Output;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

fn main() {
    let mut options =
        Options { backend: Backend::Shadow, output: Output::ToStandardError, ..Options::default() };
    let mut pid = None;
    let mut arguments = std::env::args_os().skip(1).peekable();
    while let Some(option) = arguments.next_if(|argument| argument.to_string_lossy().starts_with("--")) {
        let mut number =
            || arguments.next().and_then(|text| text.to_str()?.parse::<f64>().ok()).expect("a number");
        match option.to_str() {
            Some("--step") => options.backend = Backend::Step,
            Some("--hz") => options.period = Duration::from_secs_f64(1.0 / number()),
            Some("--branches") => options.branches_max = number() as u32,
            Some("--pid") => pid = Some(number() as u32),
            Some("--seconds") => options.duration = Some(Duration::from_secs_f64(number())),
            _ => panic!("unknown option {option:?}"),
        }
    }
    let command: Vec<OsString> = arguments.collect();
    let target = pid.map_or(Target::Command(&command), Target::Pid);
    let recorded = match record(target, &options, &mut |_| {}) {
        Ok(recorded) => recorded,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(125);
        }
    };
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    for window in &recorded.recording.windows {
        *ends.entry(format!("{:?}", window.ended)).or_default() += 1;
    }
    println!("{} windows: {ends:?}", recorded.recording.windows.len());
    println!("without window: {:?}", recorded.recording.without_window);
    let us = |share| f64::from(recorded.pauses.quantile(share).unwrap_or(0)) / 1e3;
    println!("pauses in µs: 5 % {} median {} 95 % {} max {}", us(0.05), us(0.5), us(0.95), us(1.0));
    let instructions: u64 =
        recorded.recording.windows.iter().filter_map(|w| w.instructions).map(u64::from).sum();
    println!("instructions in a window: {}", instructions / recorded.recording.windows.len().max(1) as u64);
    for module in &recorded.recording.modules {
        println!("{} {:?}", module.path, module.build_id);
    }
    std::process::exit(recorded.exit_status.and_then(|status| status.code()).unwrap_or(0));
}
