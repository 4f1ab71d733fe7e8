//! `corewise rules`: checks the rules of the daemon, and explains what applies to a process.

use crate::options::RulesPlace;
use crate::outputs::JsonOutput;
use anyhow::{Result, bail};
use corewise_core::waits::WaitChanges;
use corewise_daemon::client::{Connection, candidates};
use corewise_render::table::Table;
use corewise_render::terminal::{Name, print};
use corewise_rulebook as rulebook;
use corewise_rules::{Fact, Facts, Matched, PeChoice, Rules as All, Settings, policy_word};
use corewise_sys::proc::Proc;
use serde::Serialize;
use serde_json::json;
use std::path::PathBuf;

/// Check the daemon's rules, or explain which apply to a process.
///
/// Rules are in rules.toml and rules.d/*.toml, in ~/.config/corewise (not root's), /etc/corewise and
/// /usr/lib/corewise; docs/rules.md describes them. Nothing is changed by these commands.
#[derive(Debug, clap::Args)]
pub struct Rules {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Read rules and tell everything that is wrong; the exit status is 1 then
    Check {
        /// The files to read together, in this order; those that are installed if left out
        #[arg(value_name = "FILE", conflicts_with = "config_dir")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        place: RulesPlace,
    },
    /// Have the running daemon read its rules again; if anything is wrong with them, it keeps the former ones
    Reload {
        /// The daemon's socket
        #[arg(long, value_name = "FILE")]
        socket: Option<PathBuf>,
    },
    /// Tell what is known of a process, which rules match it, and what applies
    Why {
        /// The process
        #[arg(value_name = "PID", value_parser = crate::values::pid)]
        pid: u32,
        #[command(flatten)]
        json: JsonOutput,
        #[command(flatten)]
        place: RulesPlace,
    },
}

impl Rules {
    /// Checks or explains; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        match self.action {
            Action::Check { files, place } => {
                let rules = match files.is_empty() {
                    true => rulebook::files::read(&place.directories()?)?,
                    false => rulebook::files::read_files(&files)?,
                };
                let count = rules.rules.len();
                print(&format!("{count} rule{}, no errors\n", if count == 1 { "" } else { "s" }))?;
            }
            Action::Reload { socket } => {
                let mut daemon = Connection::open(&candidates(socket.as_deref()))?;
                let answer = daemon.ask("Reload", json!({}))?;
                print(&format!("{} rules in force\n", answer["rules"]))?;
            }
            Action::Why { pid, json, place } => {
                let rules = rulebook::files::read(&place.directories()?)?;
                let proc = Proc::own();
                if proc.hides(pid) {
                    bail!("/proc hides process {pid} (hidepid): ask as its user, or as root");
                }
                if proc.status(pid)?.is_none() {
                    bail!("there is no process {pid}: name a running one");
                }
                let facts = rulebook::facts::of(&proc, pid, true);
                let why = Why::new(pid, &facts, &rules);
                json.show(&why, || why.shown())?;
            }
        }
        Ok(0)
    }
}

/// What applies to a process, and why.
#[derive(Serialize)]
struct Why<'a> {
    pid: u32,
    facts: &'a Facts,
    rules: Vec<Judged<'a>>,
    /// The rule that decides.
    rule: Option<&'a str>,
    watched: bool,
    settings: Settings,
}

#[derive(Serialize)]
struct Judged<'a> {
    name: &'a str,
    place: String,
    /// The first condition that does not hold; `None` if the rule matches.
    mismatch: Option<String>,
}

impl<'a> Why<'a> {
    fn new(pid: u32, facts: &'a Facts, rules: &'a All) -> Why<'a> {
        let Matched { rule, watched, settings } = rules.matching(facts);
        let judged = rules.rules.iter().map(|rule| Judged {
            name: &rule.name,
            place: rule.place.to_string(),
            mismatch: rule.mismatch(facts).map(|mismatch| mismatch.to_string()),
        });
        let rule = rule.map(|rule| rule.name.as_str());
        Why { pid, facts, rules: judged.collect(), rule, watched, settings }
    }

    fn shown(&self) -> String {
        let mut table = Table::new("<<<");
        table.words(&format!("process {}", self.pid));
        for fact in Fact::ALL {
            table.row([fact.word(), &Name(&self.facts.shown(fact)).to_string()]);
        }
        table.words("rules, of which the first that matches decides");
        for Judged { name, place, mismatch } in &self.rules {
            let result = match mismatch {
                Some(mismatch) => mismatch,
                None if self.rule == Some(name) => "matches",
                None => "matches, but an earlier one decides",
            };
            table.row([Name(name).to_string(), Name(result).to_string(), Name(place).to_string()]);
        }
        if self.rules.is_empty() {
            table.row(["none"]);
        }
        let by = self.rule.map_or("no rule".to_owned(), |rule| format!("`{}`", Name(rule)));
        table.words(&format!("what applies, by {by}"));
        table.row(["watched", if self.watched { "yes" } else { "no" }]);
        if self.watched {
            let pes = match &self.settings.pes {
                Some(PeChoice::Kinds(kinds)) => {
                    format!("{} ones, if the machine has such", kinds.join(" and "))
                }
                Some(PeChoice::List(pes)) => format!("{pes}, as far as the machine has them"),
                None => "all".to_owned(),
            };
            table.row(["PEs", &pes]);
            table.row(["waits", self.settings.waits.map_or("as the daemon's", WaitChanges::word)]);
            let policy = self.settings.policy.as_ref().map_or("the daemon's".to_owned(), policy_word);
            table.row(["policy", &policy]);
            table.row(["guard", if self.settings.guard.unwrap_or(true) { "on" } else { "off" }]);
            table.row(["adapt-team", if self.settings.adapt_team { "yes" } else { "no" }]);
        }
        table.to_string()
    }
}
