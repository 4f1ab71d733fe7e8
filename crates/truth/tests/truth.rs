//! Exact traces by QEMU of a program whose control flow is known (`traced.c`).

use corewise_code::elf::ElfFile;
use corewise_paths::program::Function;
use corewise_truth as truth;
use corewise_truth::{Block, Settings, Trace, TruthError};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn compiled(directory: &Path) -> String {
    let program = directory.join("traced").to_str().unwrap().to_owned();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traced.c");
    let status = Command::new("cc").args(["-O1", "-pthread", "-o", &program, source]).status();
    assert!(status.expect("the C compiler runs").success());
    program
}

/// How often each block was executed, per thread.
type Counts = HashMap<u32, HashMap<(u64, u64), u64>>;

fn traced(command: &[String], settings: &Settings) -> Result<(Trace, Counts), TruthError> {
    let modules = truth::modules(command, &[])?;
    let mut counts = Counts::new();
    let trace = truth::run(command, &modules, settings, |executed| {
        let counts = counts.entry(executed.tid).or_default();
        for Block { start, last, .. } in executed {
            *counts.entry((start.address, last.address)).or_default() += 1;
        }
    })?;
    Ok((trace, counts))
}

/// How often the block that begins a function was executed, per thread that did, in order.
fn entries(counts: &Counts, function: &Function) -> Vec<u64> {
    let at_start = |((start, _), count): (&(u64, u64), &u64)| (*start == function.start).then_some(*count);
    let mut entries: Vec<u64> =
        counts.values().map(|blocks| blocks.iter().filter_map(at_start).sum()).filter(|&n| n > 0).collect();
    entries.sort_unstable();
    entries
}

fn quiet() -> Settings {
    Settings { is_quiet: true, ..Settings::default() }
}

#[test]
fn every_executed_block_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let program = compiled(directory.path());
    let (trace, counts) = traced(&[program.clone(), "argument".into()], &quiet()).unwrap();
    assert_eq!(trace.status.code(), Some(7));
    assert_eq!(trace.blocks, counts.values().flat_map(HashMap::values).sum::<u64>());
    // The program's three threads and its three children.
    assert_eq!(trace.threads, 6);
    assert_eq!(trace.notes, ["1 processes executed another program, which was not traced"]);

    let functions = ElfFile::open(Path::new(&program)).unwrap().functions().unwrap();
    let function = |name: &str| functions.iter().find(|f| f.name.as_deref() == Some(name)).unwrap();
    let entries_of = |name| entries(&counts, function(name));
    assert_eq!(entries_of("main"), [1]);
    assert_eq!(entries_of("loop"), [1]);
    // fib(15) by calls: 2 fib(16) - 1.
    assert_eq!(entries_of("recursive"), [1973]);
    assert_eq!(entries_of("in_thread"), [3000, 5000]);
    assert_eq!(entries_of("in_child"), [1, 1, 1]);

    let within = |name: &str| {
        let range = function(name).start..function(name).end;
        let blocks = counts.values().flatten().filter(move |((start, _), _)| range.contains(start));
        blocks.map(|(_, count)| *count)
    };
    assert_eq!(within("loop").max(), Some(39_999), "the first of 40,000 rounds is part of the entry's block");
    assert_eq!(within("crossing").sum::<u64>(), 3, "before, across and behind the end of the page");
    assert_eq!(within("copy").max(), Some(1), "repetitions of one instruction are one execution of it");
}

#[test]
fn paths_are_counted_exactly() {
    let directory = tempfile::tempdir().unwrap();
    let command = [compiled(directory.path())];
    let modules = truth::modules(&command, &[]).unwrap();
    let counted = truth::count_paths(&command, &modules, &quiet(), 1 << 16).unwrap();
    assert_eq!(counted.breaks, 0);
    let functions = ElfFile::open(Path::new(&command[0])).unwrap().functions().unwrap();
    let function = |name: &str| functions.iter().find(|f| f.name.as_deref() == Some(name)).unwrap();
    // A path begins at every entry of a function.
    let begun_at = |start| {
        let paths = counted.profile.paths.iter().filter(|(path, _)| path.start.address == start);
        paths.map(|(_, count)| count).sum::<f64>()
    };
    assert_eq!(begun_at(function("recursive").start), 1973.0);
    assert_eq!(begun_at(function("in_thread").start), 8000.0);
    let edges_within = |function: &Function| {
        let range = function.start..function.end;
        let edges = counted.profile.edges.iter();
        let edges = edges.filter(move |((from, _), _)| range.contains(&from.address));
        edges.map(|(_, &count)| count).collect::<Vec<f64>>()
    };
    assert!(edges_within(function("loop")).contains(&39_999.0), "the loop's branch back");
}

#[test]
fn what_cannot_be_traced_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let program = compiled(directory.path());
    let error = |command: &[&str], settings: Settings| {
        let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
        traced(&command, &settings).map(|_| ()).unwrap_err()
    };
    let missing = error(&["no-such-program"], quiet());
    assert!(matches!(missing, TruthError::NoProgram { .. }), "{missing}");

    let script = directory.path().join("script");
    std::fs::write(&script, "#!/bin/sh\n").unwrap();
    let script = error(&[script.to_str().unwrap()], quiet());
    assert!(matches!(script, TruthError::NoElf { .. }), "{script}");

    let no_qemu = error(&[&program], Settings { qemu: Some(PathBuf::from("/no/qemu")), ..quiet() });
    assert!(no_qemu.to_string().contains("apt-get install qemu-user"), "{no_qemu}");

    let refused = error(&[&program], Settings { qemu: Some(PathBuf::from("/bin/false")), ..quiet() });
    assert!(matches!(refused, TruthError::PluginRefused { .. }), "{refused}");

    let no_cpu = error(&[&program], Settings { cpu: "no-such-cpu".into(), ..quiet() });
    assert!(matches!(no_cpu, TruthError::NotStarted { .. }), "{no_cpu}");

    let killed = error(&[&program, "terminate"], quiet());
    assert!(killed.to_string().contains("SIGTERM"), "{killed}");
}
