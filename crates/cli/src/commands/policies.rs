//! `corewise policies`: lists the policies and explains their parameters.

use crate::outputs::JsonOutput;
use anyhow::Result;
use corewise_core::policy::{KINDS, Needs, Parameter, PolicyKind};
use corewise_render::table::Table;
use serde::Serialize;
use std::fmt::Write;

/// List the policies, or explain one.
///
/// An explanation tells the policy's rule, its parameters, and what it needs of the machine. A policy is
/// chosen with `--policy NAME`, or with parameters as in `--policy pa:hp_threshold=3,stay=500ms`.
#[derive(Debug, clap::Args)]
pub struct Policies {
    /// The policy to explain; all are listed without one
    #[arg(value_name = "NAME", value_parser = PolicyKind::find)]
    policy: Option<&'static PolicyKind>,
    #[command(flatten)]
    json: JsonOutput,
}

/// A policy in JSON.
#[derive(Serialize)]
struct Described {
    name: &'static str,
    machine: &'static str,
    rule: &'static str,
    why: &'static str,
    source: &'static str,
    required_readings: Vec<&'static str>,
    used_readings: Vec<&'static str>,
    events: Vec<&'static str>,
    parameters: Vec<Parameter>,
}

impl Described {
    fn of(kind: &PolicyKind) -> Self {
        let Needs { required, used, events } = kind.needs();
        Self {
            name: kind.name,
            machine: kind.machine,
            rule: kind.rule,
            why: kind.why,
            source: kind.source,
            required_readings: required.iter().map(|reading| reading.words()).collect(),
            used_readings: used.iter().map(|reading| reading.words()).collect(),
            events: events.iter().map(|event| event.words()).collect(),
            parameters: kind.parameters(),
        }
    }
}

impl Policies {
    /// Prints the policies; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        match self.policy.map(Described::of) {
            Some(policy) => self.json.show(&policy, || explain(&policy))?,
            None => {
                let all: Vec<Described> = KINDS.iter().map(|kind| Described::of(kind)).collect();
                self.json.show(&all, list)?;
            }
        }
        Ok(0)
    }
}

fn list() -> String {
    let mut table = Table::new("<<");
    for kind in KINDS {
        table.row([kind.name, kind.rule]);
        let names: Vec<&str> = kind.parameters().iter().map(|parameter| parameter.name).collect();
        if !names.is_empty() {
            table.row(["", &format!("parameters: {}", names.join(", "))]);
        }
    }
    format!("A policy says which threads run on which PEs; `spread` is the default.\n\n{table}")
}

fn explain(policy: &Described) -> String {
    let listed = |words: &[&str]| if words.is_empty() { "nothing".to_owned() } else { words.join(", ") };
    let mut text = format!(
        "{}: {}.\n\n  why        {}\n  for        {}\n  source     {}\n  needs      {}\n  also uses  {}\n",
        policy.name,
        policy.rule,
        policy.why,
        policy.machine,
        policy.source,
        listed(&policy.required_readings),
        listed(&policy.used_readings),
    );
    for Parameter { name, default, values, unit, doc } in &policy.parameters {
        let unit = if unit.is_empty() { String::new() } else { format!(" ({unit})") };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n  {name}: {doc}\n    {values}{unit}; default: {default}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_listed_and_explained_with_all_its_parameters() {
        for kind in KINDS {
            let is_it = |line: &&str| line.starts_with(&format!("  {} ", kind.name));
            assert!(list().lines().find(is_it).is_some_and(|line| line.ends_with(kind.rule)), "{}", list());
            let explained = explain(&Described::of(kind));
            for Parameter { name, default, values, doc, .. } in kind.parameters() {
                assert!(explained.contains(&format!("{name}: {doc}\n")), "{explained}");
                assert!(explained.contains(&values) && explained.contains(&default), "{explained}");
            }
        }
    }
}
