//! `corewise manual`: manual pages and completions, for packages.

use super::completions::Shell;
use crate::{examples, help, whole_file};
use anyhow::{Context, Result};
use clap::{Command, ValueEnum};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::io;
use std::path::PathBuf;

/// Write manual pages and completions, for packages.
///
/// Writes DIR/man/man1/*.1, a page for each command, and DIR/completions/ with a file for bash, zsh and fish.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub struct Manual {
    /// The directory, which is made if need be
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Manual {
    /// Writes those of the command tree; returns the exit status.
    pub fn execute(self, tree: &Command) -> Result<u8> {
        let pages = made(self.directory.join("man/man1"))?;
        for (words, command) in help::visible(tree) {
            let page = page(&words, command)?;
            whole_file::write(&pages.join(format!("{}.1", words.replace(' ', "-"))), &page)?;
        }
        let completions = made(self.directory.join("completions"))?;
        for shell in Shell::value_variants() {
            whole_file::write(&completions.join(shell.file()), shell.completion().as_bytes())?;
        }
        Ok(0)
    }
}

fn made(path: PathBuf) -> Result<PathBuf> {
    std::fs::create_dir_all(&path)
        .with_context(|| format!("cannot make the directory {}", path.display()))?;
    Ok(path)
}

/// Returns the page of a command, given with its words.
fn page(words: &str, command: Command) -> io::Result<Vec<u8>> {
    let (has_options, has_commands) =
        (command.get_arguments().next().is_some(), command.get_subcommands().next().is_some());
    let release = format!("corewise {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command).title(words.replace(' ', "-").to_uppercase()).source(release);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if has_options {
        man.render_options_section(&mut page)?;
    }
    if has_commands {
        man.render_subcommands_section(&mut page)?;
    }
    let mut examples = examples::of(words).peekable();
    if examples.peek().is_some() {
        let mut section = Roff::new();
        section.control("SH", ["EXAMPLES"]);
        for (line, what) in examples {
            section.control("PP", []).text([roman(what)]);
            section.control("EX", []).text([roman(line)]).control("EE", []);
        }
        section.to_writer(&mut page)?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of a page without roff's escapes.
    fn text(page: &[u8]) -> String {
        String::from_utf8(page.to_vec()).unwrap().replace("\\*(Aq", "'").replace('\\', "")
    }

    #[test]
    fn every_command_has_a_page_with_its_options_and_each_shell_its_completion() {
        let (directory, tree) = (tempfile::tempdir().unwrap(), crate::tree());
        Manual { directory: directory.path().to_owned() }.execute(&tree).unwrap();
        for (words, command) in help::visible(&tree) {
            let file = directory.path().join(format!("man/man1/{}.1", words.replace(' ', "-")));
            let page = text(&std::fs::read(&file).unwrap());
            let longs = command.get_arguments().filter(|argument| !argument.is_hide_set());
            for (argument, long) in longs.filter_map(|argument| Some((argument, argument.get_long()?))) {
                let help = argument.get_long_help().or(argument.get_help()).unwrap().to_string();
                let begin: String = help.chars().take(30).collect();
                assert!(page.contains(&format!("--{long}")), "{words} --{long}: {page}");
                assert!(page.contains(begin.lines().next().unwrap()), "{words} --{long}: {page}");
            }
            for (line, _) in examples::of(&words) {
                assert!(page.contains(line.replace('\\', "").as_str()), "{words}: {line}");
            }
        }
        assert!(directory.path().join("man/man1/corewise-paths-record.1").exists());
        assert!(!directory.path().join("man/man1/corewise-manual.1").exists());
        for file in ["corewise.bash", "_corewise", "corewise.fish"] {
            let completion =
                std::fs::read_to_string(directory.path().join("completions").join(file)).unwrap();
            assert!(completion.contains(" complete -- "), "{file}");
        }
    }
}
