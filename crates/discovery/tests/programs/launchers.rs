//! What real launchers start, by both sources: which of it is one application.

use super::*;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A launcher. In its script `$sim` is a program, `$d` the folder of the [`FILES`], and
/// `$twice` code.
struct Shape {
    name: &'static str,
    script: &'static str,
    /// The applications below the script, by name, each with the number of processes that it has at least.
    applications: &'static [(&'static str, usize)],
}

const fn shape(
    name: &'static str,
    script: &'static str,
    applications: &'static [(&'static str, usize)],
) -> Shape {
    Shape { name, script, applications }
}

const EACH: &[(&str, usize)] = &[("sim", 1), ("sim", 1)];

const SHAPES: &[Shape] = &[
    shape("dash", "$sim & $sim & wait", EACH),
    shape("subshells", "( $sim; : ) & ( exec $sim ) & wait", EACH),
    shape("a pipeline", "$sim | $sim", EACH),
    shape("command substitution", "(x=$($sim)) & x=$($sim)", EACH),
    shape("bash", "bash -c '$sim & $sim & wait'", &[("bash", 1), ("sim", 1), ("sim", 1)]),
    shape(
        "a shell by another name",
        "ln -s $(command -v sh) $d/jobs; $d/jobs -c '$sim & $sim & wait'",
        &[("jobs", 1), ("sim", 1), ("sim", 1)],
    ),
    shape("make -j", "make -s -j2 -f $d/Makefile", &[("make", 1), ("sim", 1), ("sim", 1)]),
    shape("ninja", "ninja -j2 -f $d/build.ninja -C $d", &[("ninja", 1), ("sim", 1), ("sim", 1)]),
    shape("xargs -P", "echo a b | xargs -P2 -n1 $sim", &[("sim", 1), ("sim", 1), ("xargs", 1)]),
    shape("find -exec", "find $d/Makefile -exec $sim {} ';'", &[("find", 1), ("sim", 1)]),
    shape("GNU parallel", "perl $d/parallel $sim", &[("parallel", 1), ("sim", 1), ("sim", 1)]),
    shape("cron", "perl $d/cron sh -c \"exec $sim\"", &[("cron", 1), ("sim", 1), ("sim", 1)]),
    shape("run-parts", "perl $d/run-parts $d/exec.sh", &[("run-parts", 1), ("sim", 1), ("sim", 1)]),
    shape(
        "wrappers",
        "setsid nice nohup env X=1 timeout 100 $sim & stdbuf -oL nice -n1 timeout 100 $sim & wait",
        &[("sim", 2), ("sim", 2)],
    ),
    shape("a wrapper of unknown name", "perl $d/prepare $sim & perl $d/prepare $sim & wait", EACH),
    shape("a script called as its program", "$d/script/sim & $d/script/sim & wait", EACH),
    shape("env -S", "$d/tool & $d/tool & wait", &[("tool", 1), ("tool", 1)]),
    shape("mpirun", "ln -s $(command -v perl) $d/mpirun; $d/mpirun -e \"$twice\" $sim", &[("sim", 3)]),
    shape("prted", "perl $d/prted $sim", &[("prted", 1), ("sim", 2)]),
    shape("torchrun", "python3 $d/torchrun", &[("torchrun", 1), ("train.py", 2)]),
    shape("multiprocessing, fork", "python3 $d/pool.py fork", &[("pool.py", 3)]),
    shape("multiprocessing, spawn", "python3 $d/pool.py spawn", &[("pool.py", 3)]),
    shape("multiprocessing, forkserver", "python3 $d/pool.py forkserver", &[("pool.py", 3)]),
    shape("concurrent.futures", "python3 $d/futures.py", &[("futures.py", 3)]),
    shape("prefork", "perl $d/prefork", &[("prefork", 3)]),
    shape("titles", "perl $d/postgres", &[("postgres", 3)]),
    shape("a program that executes itself", "perl $d/again", &[("again", 2)]),
];

/// Starts a command twice.
const TWICE: &str = "$n=2; for (1..$n) { fork or exec @ARGV } wait; wait";

const POOL: &str = "import multiprocessing, sys, time
if __name__ == '__main__':
    multiprocessing.set_start_method(sys.argv[1])
    with multiprocessing.Pool(2) as pool:
        pool.map(time.sleep, [60, 60])
";

const FUTURES: &str = "import concurrent.futures, time
if __name__ == '__main__':
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        list(pool.map(time.sleep, [60, 60]))
";

const TORCHRUN: &str = "import os, subprocess, sys
command = [sys.executable, '-u', os.path.dirname(__file__) + '/train.py']
[rank.wait() for rank in [subprocess.Popen(command) for _ in range(2)]]
";

const FILES: &[(&str, &str)] = &[
    ("Makefile", "all: a b\na b:\n\t$(sim)\n"),
    ("build.ninja", "rule sim\n  command = $$sim\nbuild a: sim\nbuild b: sim\n"),
    ("parallel", TWICE),
    ("cron", TWICE),
    ("prted", TWICE),
    ("run-parts", "for (1, 2) { fork or exec @ARGV } wait; wait"),
    ("exec.sh", "#!/bin/sh\nexec $sim\n"),
    ("prepare", "exec @ARGV"),
    ("script/sim", "#!/bin/sh\nexec $sim\n"),
    ("tool", "#!/usr/bin/env -S perl -w\nsleep 60;"),
    ("torchrun", TORCHRUN),
    ("train.py", "import time\ntime.sleep(60)\n"),
    ("pool.py", POOL),
    ("futures.py", FUTURES),
    ("prefork", "fork or sleep 60 for (1, 2); wait; wait"),
    ("postgres", "for (1, 2) { fork or do { $0 = 'postgres: checkpointer '; sleep 60 } } wait; wait"),
    ("again", "sleep 60 if $ARGV[0] > 1; $n = $ARGV[0] + 1; fork or exec $^X, $0, $n; exec $^X, $0, 2"),
];

fn write_files(folder: &Path) {
    std::fs::create_dir(folder.join("script")).unwrap();
    for (name, text) in FILES {
        std::fs::write(folder.join(name), text).unwrap();
        std::fs::set_permissions(folder.join(name), PermissionsExt::from_mode(0o755)).unwrap();
    }
}

/// The living applications below the script, by name, each with its number of processes. Left out are shells
/// that some versions replace by their last command, and some do not.
fn applications(live: &Live) -> Vec<(String, usize)> {
    let living = live.programs.iter().map(|program| (&*program.name, live.processes(program.app)));
    let living = living.filter(|(name, processes)| *processes > 0 && !name.starts_with("sh"));
    let name = |name: &str| name.split_once(" #").map_or(name, |(name, _)| name).to_owned();
    let mut found: Vec<_> = living.map(|(shown, processes)| (name(shown), processes)).collect();
    found.sort();
    found
}

#[test]
fn what_a_launcher_starts_is_one_application_and_what_a_shell_or_job_runner_starts_is_one_each() {
    let wrong = std::cell::RefCell::new(Vec::new());
    for shape in SHAPES {
        let tool = shape.script.split(' ').next().unwrap();
        let has_tool = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output().unwrap();
        if matches!(tool, "bash" | "make" | "ninja" | "python3") && !has_tool.status.success() {
            eprintln!("{}: there is no {tool}", shape.name);
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        write_files(folder.path());
        let set = format!("d={}; twice='{TWICE}'; export {BURN}='1 1'\n", folder.path().display());
        with_both(&(set + shape.script), |live| {
            let deadline = Instant::now() + Duration::from_secs(30);
            while !is_as_wanted(&applications(live), shape.applications) {
                live.look();
                if Instant::now() > deadline {
                    let found = (live.source.name(), shape.name, applications(live));
                    return wrong.borrow_mut().push(format!("{found:?}"));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
    }
    assert!(wrong.borrow().is_empty(), "{:#?}", wrong.borrow());
}

fn is_as_wanted(found: &[(String, usize)], wanted: &[(&str, usize)]) -> bool {
    let is_at_least =
        |(found, wanted): (&(String, usize), &(&str, usize))| found.0 == wanted.0 && found.1 >= wanted.1;
    found.len() == wanted.len() && found.iter().zip(wanted).all(is_at_least)
}
