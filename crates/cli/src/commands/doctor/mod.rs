//! `corewise doctor`: what this machine offers to corewise, and what to do about what is missing.
//!
//! Problem: corewise works on any machine, with less where something is missing, and only the notes of
//! reports say what is missing. Approach: each thing that corewise uses is one entry of [`checks`]. What can
//! be tried is tried with the code that a run uses, so that the two never disagree; the rest comes from files
//! below a root directory. By its type, a missing thing carries what its absence costs and the line that
//! gives it ([`Finding::Missing`]).
//!
//! Limits: nothing is known of what a running program allows (`prctl`, `OMP_PLACES`); its report tells.

mod checks;
mod machine;
mod others;

use crate::outputs::JsonOutput;
use anyhow::Result;
use checks::{Check, Finding};
use corewise_render::table::Table;
use corewise_render::terminal::Name;
use machine::Machine;
use serde::{Serialize, Serializer};
use std::path::Path;

/// Show what this machine offers to corewise, and how to get what is missing.
///
/// For each thing that is missing it says what that costs, and which line gives it. It tries what a run would
/// use, and changes nothing. The exit status is 1 only where corewise cannot work at all.
#[derive(Debug, clap::Args)]
pub struct Doctor {
    #[command(flatten)]
    json: JsonOutput,
}

/// What `--json` writes.
#[derive(Serialize)]
struct Examined {
    /// Whether corewise can work at all.
    works: bool,
    /// Texts by what they are about.
    #[serde(serialize_with = "as_map")]
    machine: Vec<(&'static str, String)>,
    checks: Vec<Check>,
}

impl Doctor {
    /// Examines this machine; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        self.json.check()?;
        let machine = Machine::at(Path::new("/"));
        let mut checks = checks::all(&machine);
        checks.push(Check { name: "decides alone", finding: others::services(&machine) });
        let works = !checks.iter().any(|check| matches!(check.finding, Finding::Needed { .. }));
        let examined = Examined { works, machine: machine.facts(), checks };
        self.json.show(&examined, || human(&examined))?;
        Ok(if works { 0 } else { 1 })
    }
}

/// Writes pairs as a map, in their order.
fn as_map<S: Serializer>(pairs: &[(&str, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, what)| (name, what)))
}

fn human(examined: &Examined) -> String {
    let mut machine = Table::new("<<");
    examined.machine.iter().for_each(|(name, what)| machine.row([*name, &Name(what).to_string()]));
    let mut table = Table::new("<<<");
    for Check { name, finding } in &examined.checks {
        let (state, what) = match finding {
            Finding::Here { what } => ("yes", what),
            Finding::Missing { what, .. } => ("no", what),
            Finding::Needed { what, .. } => ("NO", what),
        };
        table.row([state, name, &Name(what).to_string()]);
        if let Finding::Missing { costs, remedy, .. } | Finding::Needed { costs, remedy, .. } = finding {
            table.row(["", "", &format!("costs: {costs}")]);
            table.row(["", "", &format!("remedy: {}", Name(remedy))]);
        }
    }
    let missing =
        examined.checks.iter().filter(|check| !matches!(check.finding, Finding::Here { .. })).count();
    let summary = match (missing, examined.works) {
        (_, false) => "corewise cannot work here: see NO below.".to_owned(),
        (0, _) => "corewise works here, and nothing is missing.".to_owned(),
        (missing, _) => {
            format!("corewise works here, without {missing} of {} things.", examined.checks.len())
        }
    };
    format!("{summary}\n\n{machine}\n{table}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_reported_with_its_cost_and_its_remedy() {
        let missing = Finding::missing("no such directory", "no board", "export A=b");
        let check = |name, finding| Check { name, finding };
        let here = Finding::Here { what: "by BPF\u{1b}".to_owned() };
        let mut examined = Examined {
            works: true,
            machine: vec![("runs in", "the bare machine".to_owned())],
            checks: vec![check("threads", here), check("board", missing)],
        };
        let text = human(&examined);
        for line in [
            "  runs in  the bare machine\n",
            "  yes  threads  by BPF\\u001b\n",
            "  no   board    no such directory\n",
            "                costs: no board\n",
            "                remedy: export A=b\n",
            "corewise works here, without 1 of 2 things.\n\n  runs in",
        ] {
            assert!(text.contains(line), "{line:?}: {text}");
        }
        examined.works = false;
        assert!(human(&examined).starts_with("corewise cannot work here: see NO below.\n"));
        examined.works = true;
        examined.checks.truncate(1);
        assert!(human(&examined).starts_with("corewise works here, and nothing is missing.\n"));
    }
}
