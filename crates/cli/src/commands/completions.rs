//! `corewise completions`: completion scripts of shells.

use anyhow::Result;
use clap::ValueEnum;
use corewise_render::terminal;

/// Print what a shell needs to complete commands, options and their values.
///
/// The shell then asks `corewise` itself what can stand at the cursor. The packages of corewise install these
/// files; `corewise manual DIR` writes all of them.
#[derive(Debug, clap::Args)]
pub struct Completions {
    /// The shell
    #[arg(value_name = "bash|zsh|fish", value_enum)]
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

    /// The completion, for the shell.
    pub fn completion(self) -> &'static str {
        match self {
            Shell::Bash => include_str!("../completions/corewise.bash"),
            Shell::Zsh => include_str!("../completions/_corewise"),
            Shell::Fish => include_str!("../completions/corewise.fish"),
        }
    }
}

impl Completions {
    /// Prints it; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        terminal::print(self.shell.completion())?;
        Ok(0)
    }
}
