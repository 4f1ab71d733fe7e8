//! Rules: how corewise's daemon treats which running programs.
//!
//! **Problem.** A daemon sees every program of a machine, and some need other treatment than the rest: one
//! must be left alone, one may use the slow PEs only. Their author wants to know what applies to a
//! process and why, and must not lose a working configuration by a typing error.
//!
//! **Approach.** Files of TOML hold rules. A rule has conditions on the [facts](Facts) of a process and
//! [settings](Settings) for those of which all conditions hold. Two principles:
//!
//! 1. *The first that says something wins*: the first rule that matches decides alone, and so does the first
//!    file that sets a key of `[daemon]`. So one reads from the top until it fits, and never has to merge.
//!    This is ssh_config(5)'s principle; in udev and systemd the last one wins.
//! 2. *All or nothing*: [`Rules::read`] returns the rules of all files, or every error of all files. A
//!    caller that reads them anew replaces the old ones only by whole new ones.
//!
//! Files are ordered by their names (`rules.toml`, then those of `rules.d`), and a file replaces one of the
//! same name in a less important directory, as systemd's and udev's do: so an administrator changes or
//! disables (by an empty file) one file of a distribution, and its updates never touch the change. Finding
//! and reading the files is the caller's, as this crate is a function of their contents.
//!
//! An unknown fact fulfils no condition: a rule never applies by lack of knowledge.
//!
//! **Source.** The order of files is that of systemd.unit(5) and udev(7), the principle of the first rule
//! that of ssh_config(5).
//!
//! **Limits.** Conditions have no "not": an exception is a rule of its own before the rule. A rule says
//! nothing about the interval, as one engine serves all programs; this is in `[daemon]`. A rule is about one
//! process, and its children are judged by their own facts.

mod condition;
mod error;
mod facts;
mod read;
mod rule;
mod rules;
mod settings;

pub use condition::{Condition, Mismatch};
pub use error::{Place, Problem, RuleError, RuleErrors};
pub use facts::{Fact, Facts};
pub use read::SourceFile;
pub use rule::Rule;
pub use rules::{Matched, Rules};
pub use settings::{
    Applications, DaemonSettings, INTERVAL_MIN, NONE, PeChoice, PowerSaver, Settings, Watch, policy_word,
};
#[cfg(test)]
mod tests;
