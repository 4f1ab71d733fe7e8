//! Where results go: files that the user names, and `--json`, alike in every command.

use crate::whole_file::{self, Stream};
use anyhow::{Context, Result};
use clap::builder::{MapValueParser, PathBufValueParser, TypedValueParser, ValueParserFactory};
use corewise_render::terminal;
use serde::Serialize;
use std::ffi::OsString;
use std::io::Write;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// Standard output, as `-` in place of a file name.
const STDOUT: &str = "/dev/stdout";

/// A file or directory that is written. `-` is standard output, and `%p` in a name is the number of this
/// process, so that two runs do not overwrite each other's; `%%` is a percent sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputFile(PathBuf);

impl From<OsString> for OutputFile {
    fn from(name: OsString) -> Self {
        let pid = std::process::id().to_string();
        let filled = |text: &str| {
            let parts: Vec<String> = text.split("%%").map(|part| part.replace("%p", &pid)).collect();
            parts.join("%")
        };
        OutputFile(match name.to_str() {
            Some("-") => STDOUT.into(),
            Some(text) => filled(text).into(),
            None => name.into(),
        })
    }
}

/// An empty name is refused.
impl ValueParserFactory for OutputFile {
    type Parser = MapValueParser<PathBufValueParser, fn(PathBuf) -> OutputFile>;

    fn value_parser() -> Self::Parser {
        PathBufValueParser::new().map(|path| OutputFile::from(path.into_os_string()))
    }
}

impl OutputFile {
    /// Returns whether it is standard output.
    pub fn is_stdout(&self) -> bool {
        self.0 == Path::new(STDOUT)
    }
}

impl Deref for OutputFile {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for OutputFile {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

/// Results for scripts: `--json` prints them, `--json=FILE` writes them.
#[derive(Debug, Clone, clap::Args)]
pub struct JsonOutput {
    /// Print the result as JSON, or write it to a file: --json=FILE
    #[arg(
        long = "json",
        id = "json",
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "-"
    )]
    file: Option<OutputFile>,
}

impl JsonOutput {
    /// Returns whether the result is wanted as JSON.
    pub fn is_wanted(&self) -> bool {
        self.file.is_some()
    }

    /// Returns whether JSON takes the place of the text for people.
    pub fn is_printed(&self) -> bool {
        self.file.as_ref().is_some_and(OutputFile::is_stdout)
    }

    /// Returns the file to write, if one is named.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref().filter(|_| !self.is_printed())
    }

    /// Fails before a possibly long run if the file could not be written at its end.
    pub fn check(&self) -> Result<()> {
        self.file().map_or(Ok(()), whole_file::check_writable)
    }

    /// Prints the text for people, or JSON in its place, and writes the file.
    pub fn show(&self, result: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        let json = match self.file {
            Some(_) => serde_json::to_string_pretty(result)? + "\n",
            None => String::new(),
        };
        self.show_written(|| json, text)
    }

    /// The same of a result with a format of its own.
    pub fn show_written(&self, json: impl FnOnce() -> String, text: impl FnOnce() -> String) -> Result<()> {
        if self.is_printed() {
            return Ok(terminal::print(&json())?);
        }
        if let Some(file) = self.file() {
            whole_file::write(file, json().as_bytes())?;
        }
        Ok(terminal::print(&text())?)
    }

    /// Opens a sequence of results, if it is wanted; standard output may belong to a command.
    pub fn lines(&self, may_print: bool) -> Result<Option<JsonLines>> {
        Ok(match (&self.file, self.file()) {
            (None, _) => None,
            (_, Some(file)) => {
                let opened = whole_file::start(file);
                let context = || format!("cannot write {}", file.display());
                Some(JsonLines::Written(opened.with_context(context)?))
            }
            _ if may_print => Some(JsonLines::Printed),
            _ => Some(JsonLines::Said),
        })
    }

    /// The same where standard output belongs to a command: one line of JSON on standard error.
    pub fn say(&self, result: &impl Serialize, say: impl FnOnce()) -> Result<()> {
        if let Some(file) = self.file() {
            whole_file::write(file, (serde_json::to_string_pretty(result)? + "\n").as_bytes())?;
        }
        if self.is_printed() {
            terminal::message_json(&serde_json::to_string(result)?);
        } else {
            say();
        }
        Ok(())
    }
}

/// Results one after another, each a line of JSON.
pub enum JsonLines {
    /// On standard output.
    Printed,
    /// On standard error, as standard output belongs to a command.
    Said,
    /// In a file.
    Written(Stream),
}

impl JsonLines {
    /// Writes a line.
    pub fn write(&mut self, result: &impl Serialize) -> Result<()> {
        let line = serde_json::to_string(result)?;
        match self {
            JsonLines::Printed => terminal::print(&(line + "\n"))?,
            JsonLines::Said => terminal::message_json(&line),
            JsonLines::Written(file) => writeln!(file, "{line}")?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use clap::builder::ValueParser;

    fn name(text: &str) -> String {
        OutputFile::from(OsString::from(text)).display().to_string()
    }

    #[test]
    fn a_dash_is_standard_output_and_percent_p_is_the_process() {
        let pid = std::process::id();
        assert_eq!(name("-"), "/dev/stdout");
        assert_eq!(name("run-%p.json"), format!("run-{pid}.json"));
        assert_eq!(name("a/%p%%p"), format!("a/{pid}%p"));
        assert_eq!(name("100 %.txt"), "100 %.txt");
    }

    /// What each command writes, by the names of these options.
    #[test]
    fn every_option_that_names_an_output_file_takes_these_names() {
        const OUTPUTS: [&str; 7] = ["json", "html", "csv", "svg", "output", "report", "record"];
        let wanted = ValueParser::from(clap::value_parser!(OutputFile)).type_id();
        let mut cli = crate::Cli::command();
        cli.build();
        let mut commands = vec![cli];
        let mut wrong = Vec::new();
        while let Some(command) = commands.pop() {
            let arguments = command
                .get_arguments()
                .filter(|argument| argument.get_long().is_some_and(|long| OUTPUTS.contains(&long)));
            let others = arguments.filter(|argument| argument.get_value_parser().type_id() != wanted);
            wrong.extend(others.map(|argument| format!("{} {argument}", command.get_name())));
            commands.extend(command.get_subcommands().cloned());
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
