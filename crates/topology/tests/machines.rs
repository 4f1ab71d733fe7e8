//! Every recorded machine in `tests/machines` loads, with the right counts and the expected drawing.

use corewise_core::topology::Topology;
use corewise_topology::{Source, load};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// File, then PEs, cores, FPU modules, L2 caches, L3 caches, NUMA nodes, allowed PEs. The counts are those of
/// `hwloc-info` for the same file; an Opteron 6272 has eight modules of two cores.
const COUNTS: &[(&str, [usize; 7])] = &[
    ("16amd64-8n2c-cpusets.tar.gz", [15, 15, 0, 15, 0, 8, 10]),
    ("20em64t-hybrid-1p6c2t+2ca4co1t.tar.gz", [20, 14, 0, 8, 1, 1, 20]),
    ("8em64t-2s2ca2c.tar.gz", [8, 8, 0, 4, 0, 1, 8]),
    ("AMD-15h-Bulldozer-4xOpteron-6272.xml", [64, 64, 32, 32, 8, 1, 64]),
    ("AMD-19h-Zen4-2xEpyc-9654.xml", [384, 192, 0, 192, 24, 1, 384]),
    ("AMD-1Ah-Zen5StrixPoint-RyzenAI9HX370.xml", [24, 12, 0, 12, 2, 1, 24]),
    ("AMD-K8-SantaRosa-2xOpteron-2218.xml", [4, 4, 0, 4, 0, 1, 4]),
    ("Intel-Nehalem-2xXeon-X5550.xml", [16, 8, 0, 8, 2, 1, 16]),
    ("Intel-RaptorLake-Corei7-1370P.xml", [20, 14, 0, 8, 1, 1, 20]),
    ("Intel-SandyBridge-2xXeon-E5-2650.xml", [32, 16, 0, 16, 2, 1, 32]),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines")
}

fn machine(file: &str) -> Topology {
    load(&Source::of(&folder().join(file)), None).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_machine_has_the_right_counts() {
    for (file, expected) in COUNTS {
        let s = machine(file).summary();
        let found = [s.pes, s.cores, s.fpu_modules, s.l2_caches, s.l3_caches, s.numa_nodes, s.allowed_pes];
        assert_eq!(found, *expected, "{file}");
    }
}

/// A recorded machine is loaded in a copy of this process, made at any moment.
#[test]
fn other_threads_may_read_the_environment_while_a_machine_is_loaded() {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = std::env::temp_dir();
            }
        });
        let loaded = (0..20).map(|_| load(&Source::of(&folder().join(COUNTS[0].0)), None));
        let failed = loaded.filter_map(Result::err).next();
        is_over.store(true, Ordering::Relaxed);
        assert!(failed.is_none(), "{failed:?}");
    });
}

#[test]
fn every_machine_is_listed_and_drawn_as_expected() {
    let mut files: Vec<String> = std::fs::read_dir(folder())
        .expect("the folder of machines")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name in UTF-8"))
        .filter(|name| !name.ends_with(".md"))
        .collect();
    files.sort();
    assert_eq!(files, COUNTS.iter().map(|(file, _)| file.to_string()).collect::<Vec<_>>());
    for file in files {
        let topology = machine(&file);
        let notes: String = topology.notes.iter().map(|note| format!("note: {note}\n")).collect();
        let text = format!("{}\n{}{notes}", topology.draw(), topology.summary());
        assert!(text.lines().count() <= 24, "{file} does not fit on a screen");
        insta::assert_snapshot!(file, text);
    }
}

#[test]
fn pairs_of_fast_and_slow_pes_are_distinguished() {
    for (file, fast, slow) in [
        ("20em64t-hybrid-1p6c2t+2ca4co1t.tar.gz", "0-11", "12-19"),
        ("Intel-RaptorLake-Corei7-1370P.xml", "0-11", "12-19"),
        ("AMD-1Ah-Zen5StrixPoint-RyzenAI9HX370.xml", "0-3,12-15", "4-11,16-23"),
    ] {
        let topology = machine(file);
        assert_eq!(topology.locate("fast").unwrap().to_string(), fast, "{file}");
        assert_eq!(topology.locate("slow").unwrap().to_string(), slow, "{file}");
    }
}
