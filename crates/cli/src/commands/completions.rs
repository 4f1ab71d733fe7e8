//! `corewise completions`: completion scripts of shells.

use crate::help;
use anyhow::Result;
use clap::{Command, ValueEnum};
use corewise_render::terminal;

/// Print what a shell needs to complete options and commands.
///
/// The packages of corewise install these files; `corewise manual DIR` writes all of them.
#[derive(Debug, clap::Args)]
pub struct Completions {
    /// The shell
    #[arg(value_name = "bash|zsh|fish", value_enum, hide_possible_values = true)]
    shell: Shell,
}

/// A shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    /// The name of a completion's file, as the shell searches for it.
    pub fn file(self) -> &'static str {
        match self {
            Shell::Bash => "corewise.bash",
            Shell::Zsh => "_corewise",
            Shell::Fish => "corewise.fish",
        }
    }

    /// Returns the completion of a command tree.
    pub fn completion(self, tree: &Command) -> Vec<u8> {
        let shell = match self {
            Shell::Bash => clap_complete::Shell::Bash,
            Shell::Zsh => clap_complete::Shell::Zsh,
            Shell::Fish => clap_complete::Shell::Fish,
        };
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut help::shown(tree), "corewise", &mut text);
        text
    }
}

impl Completions {
    /// Prints that of the command tree; returns the exit status.
    pub fn execute(self, tree: &Command) -> Result<u8> {
        terminal::print(&String::from_utf8(self.shell.completion(tree))?)?;
        Ok(0)
    }
}
