//! Compares emulated windows with what the thread really does next:
//! `cargo run --release -p corewise-branches --example shadow_against_step -- [--windows N] [--hz N]
//! [--branches N] COMMAND…`
//!
//! The command's output goes to standard error. The exit status is 1 if any window differed.

use corewise_branches::{Backend, Options};
use corewise_paths::window::End;
use corewise_sys::launch::Output;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

fn main() {
    let mut options =
        Options { backend: Backend::Shadow, output: Output::ToStandardError, ..Options::default() };
    let mut windows_max = 1000;
    let mut arguments = std::env::args_os().skip(1).peekable();
    while let Some(option) = arguments.next_if(|argument| argument.to_string_lossy().starts_with("--")) {
        let number = arguments.next().and_then(|text| text.to_str()?.parse::<f64>().ok()).expect("a number");
        match option.to_str() {
            Some("--windows") => windows_max = number as usize,
            Some("--hz") => options.period = Duration::from_secs_f64(1.0 / number),
            Some("--branches") => options.branches_max = number as u32,
            _ => panic!("unknown option {option:?}"),
        }
    }
    let command: Vec<OsString> = arguments.collect();
    report(&command, &options, windows_max);
}

#[cfg(target_arch = "x86_64")]
fn report(command: &[OsString], options: &Options, windows_max: usize) {
    let verified = corewise_branches::verify::verify(command, options, windows_max, &mut |_| {});
    let (recorded, verification) = verified.unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(125);
    });
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    for window in &recorded.recording.windows {
        let reason = match &window.ended {
            End::Unsupported(mnemonic) => format!("unsupported {mnemonic}"),
            other => format!("{other:?}"),
        };
        *ends.entry(reason).or_default() += 1;
    }
    let windows = recorded.recording.windows.len();
    let full = ends.get("Full").copied().unwrap_or(0);
    println!(
        "{} windows compared, {} mismatches, {} interrupted; full {:.1} % of {windows}",
        verification.compared,
        verification.mismatches.len(),
        verification.interrupted,
        100.0 * full as f64 / windows.max(1) as f64,
    );
    println!("ends: {ends:?}; without window: {:?}", recorded.recording.without_window);
    for mismatch in verification.mismatches.iter().take(5) {
        println!("{mismatch}");
    }
    std::process::exit(i32::from(!verification.mismatches.is_empty()));
}

#[cfg(not(target_arch = "x86_64"))]
fn report(_: &[OsString], _: &Options, _: usize) {
    println!("shadow is for x86-64 only");
}
