//! The ways in which corewise starts programs: each gives a program what it gets alone.

use super::rows::Row;
use std::path::Path;

/// A way to start a program.
pub struct Starter {
    /// What starts it.
    pub name: &'static str,
    /// The words that start it, of which `@` stands for the program ([`words`]).
    under: &'static str,
    /// The same without corewise.
    alone: &'static str,
    /// Rows that it does not keep, as docs/contract.md says: part of their name or script.
    but: &'static [&'static str],
}

const ALONE: &str = "@";
/// What is a command line is run by a shell.
const IN_A_SHELL: &str = "sh -c exec${IFS}@";

/// Rows that differ with a child that is not the only one: it gets no timers, and its words must be UTF-8.
const OF_SEVERAL: &[&str] = &["timers", "$probe words"];
/// Rows that differ with a shell, which sets SIGCHLD, too.
const OF_A_LINE: &[&str] = &["timers", "$probe words", "ignored17"];

/// All of them; `run` has rows of its own beside these. (`emulate-slow` starts programs as `progress` does,
/// but would make every other test slow.)
pub const STARTERS: [Starter; 10] = [
    Starter { name: "run", under: "$C run --quiet -- @", alone: ALONE, but: &[] },
    Starter { name: "run --report", under: "$C run --report $D/r.json -- @", alone: ALONE, but: &[] },
    Starter { name: "characterize", under: "$C characterize -- @", alone: ALONE, but: &[] },
    Starter { name: "progress", under: "$C progress -- @", alone: ALONE, but: &[] },
    Starter {
        name: "paths record",
        under: "$C paths record --backend step -o $D/r.cwp -- @",
        alone: ALONE,
        but: &[],
    },
    Starter { name: "compare", under: "$C compare --runs 1 --warmup 0 -- @", alone: ALONE, but: OF_SEVERAL },
    Starter {
        name: "compare --prepare",
        under: "$C compare --runs 1 --warmup 0 --prepare exec${IFS}@ -- true",
        alone: IN_A_SHELL,
        but: OF_A_LINE,
    },
    Starter {
        name: "pgo --build",
        under: "$C pgo --dir $D/pgo --build X='{goflags}';exec${IFS}@ --run ./none",
        alone: IN_A_SHELL,
        but: &["timers", "$probe words", "ignored17", "a directory that is gone"],
    },
    Starter {
        name: "pgo --run",
        under: "$C pgo --dir $D/pgo --build X='{goflags}';cp${IFS}$probe${IFS}$D/prog --binary $D/prog \
                --record-max 1ms --run exec${IFS}@",
        alone: IN_A_SHELL,
        // It is run by a shell of that shell, and needs files that are not small.
        but: &[
            "timers",
            "$probe words",
            "ignored17",
            "with adopts",
            "a directory that is gone",
            "small files",
        ],
    },
    Starter {
        name: "a policy's command",
        under: "$C run --policy exec:exec${IFS}@ -- $probe await $D",
        alone: IN_A_SHELL,
        // It inherits no descriptors and may gain no rights.
        but: &["timers", "$probe words", "ignored17", "$probe attributes", "$probe descriptors"],
    },
];

impl Starter {
    /// Returns whether it keeps a row.
    pub fn keeps(&self, row: &Row) -> bool {
        !self.but.iter().any(|but| row.name.contains(but) || row.script.contains(but))
    }

    /// Returns the words for `$P` without corewise and under it. The program's output is kept in `folder`.
    pub fn words(&self, probe: &Path, folder: &Path) -> [String; 2] {
        let (probe, folder) = (probe.display().to_string(), folder.display().to_string());
        [self.alone, self.under].map(|words| {
            let words = words.replace("$C", env!("CARGO_BIN_EXE_corewise")).replace("$D", &folder);
            format!("{probe} start {folder} {} ::", words.replace("$probe", &probe))
        })
    }
}
