//! Workload files: applications that run at the same time.

use anyhow::{Context, Result, bail};
use corewise_core::comparison::{Application, Workload};
use corewise_core::time::parse_duration;
use corewise_sys::input;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The maximum number of processes that a workload starts.
const COPIES_MAX: u32 = 10_000;

/// A workload, as written in its file.
#[derive(Debug, PartialEq)]
pub struct WorkloadFile {
    /// The applications.
    pub workload: Workload,
    /// The command that makes the inputs.
    pub setup: Option<String>,
    /// The command before each run.
    pub prepare: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default = "one")]
    completions: u32,
    setup: Option<String>,
    prepare: Option<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    application: Vec<WrittenApplication>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenApplication {
    name: String,
    command: Command,
    #[serde(default = "one")]
    copies: u32,
    #[serde(default)]
    start: Option<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
}

/// A command line, or its words.
#[derive(Deserialize)]
#[serde(untagged)]
enum Command {
    Line(String),
    Words(Vec<String>),
}

fn one() -> u32 {
    1
}

/// Reads a file.
pub fn read(path: &Path) -> Result<WorkloadFile> {
    let shown = path.display();
    let text = input::read_text(path, input::DOCUMENT_MAX)
        .with_context(|| format!("cannot read the workload {shown}"))?;
    parse(&text).with_context(|| format!("{shown} is not a workload: see the example in docs/compare.md"))
}

/// Parses the text of a file, for [`read`].
pub fn parse(text: &str) -> Result<WorkloadFile> {
    let written: Written = toml::from_str(text)?;
    let mut applications = Vec::new();
    for application in &written.application {
        let name = &application.name;
        let start_seconds = match &application.start {
            Some(start) => {
                parse_duration(start).with_context(|| format!("the start of `{name}`"))?.as_secs_f64()
            }
            None => 0.0,
        };
        if !(1..=COPIES_MAX).contains(&application.copies) {
            bail!("`{name}` has {} copies: write a number from 1 to {COPIES_MAX}", application.copies);
        }
        let command = command(application, &written.environment)?;
        let one = Application { name: name.clone(), command, start_seconds, pes: None };
        applications.push((one, application.copies));
    }
    let applications = applications.into_iter().flat_map(|(application, number)| copies(application, number));
    let workload = Workload {
        applications: applications.collect(),
        completions: written.completions,
        fixed_seconds: None,
    };
    Ok(WorkloadFile { workload, setup: written.setup, prepare: written.prepare })
}

/// Returns copies of the application, each with its own name.
pub fn copies(application: Application, number: u32) -> Vec<Application> {
    if number == 1 {
        return vec![application];
    }
    let copy = |index| Application { name: format!("{} {index}", application.name), ..application.clone() };
    (1..=number).map(copy).collect()
}

/// Returns the application with its environment, which env(1) sets.
fn command(application: &WrittenApplication, common: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let name = &application.name;
    let words = match &application.command {
        Command::Words(words) => words.clone(),
        Command::Line(line) => words(line).with_context(|| format!("the command of `{name}`"))?,
    };
    if words.is_empty() {
        bail!("the command of `{name}` is empty: write a program and its arguments");
    }
    let environment: BTreeMap<_, _> = common.iter().chain(&application.environment).collect();
    if let Some((variable, _)) = environment.iter().find(|(name, _)| name.is_empty() || name.contains('=')) {
        bail!("`{variable}` of `{name}` is not the name of a variable: write it without `=`");
    }
    let variables = environment.iter().map(|(name, value)| format!("{name}={value}"));
    let env = (!environment.is_empty()).then(|| "env".to_owned());
    Ok(env.into_iter().chain(variables).chain(words).collect())
}

/// Returns the words of a line that is quoted as for a shell.
pub fn words(line: &str) -> Result<Vec<String>> {
    shlex::split(line).with_context(|| format!("`{line}` has a quote without its end: close it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_has_copies_starts_and_environments() {
        let file = parse(
            "completions = 3\nsetup = 'make'\nenvironment = { A = '1', B = 'x' }\n\
             [[application]]\nname = 'one'\ncommand = \"prog 'a b'\"\ncopies = 2\nenvironment = { A = '2' }\n\
             [[application]]\nname = 'two'\ncommand = ['prog', 'a b']\nstart = '500ms'\n",
        )
        .unwrap();
        let commands: Vec<String> = file
            .workload
            .applications
            .iter()
            .map(|one| format!("{}: {:?} at {}", one.name, one.command, one.start_seconds))
            .collect();
        assert_eq!(
            commands,
            [
                r#"one 1: ["env", "A=2", "B=x", "prog", "a b"] at 0"#,
                r#"one 2: ["env", "A=2", "B=x", "prog", "a b"] at 0"#,
                r#"two: ["env", "A=1", "B=x", "prog", "a b"] at 0.5"#,
            ]
        );
        assert_eq!((file.workload.completions, file.setup.as_deref()), (3, Some("make")));
    }

    #[test]
    fn errors_name_line_and_remedy() {
        let application = "[[application]]\nname = 'a'\n";
        for (text, words) in [
            ("application = [", "line 1"),
            ("completions = 1\ncolour = 'red'", "unknown field `colour`"),
            ("completions = -1", "line 1"),
            ("completions = 1", "missing field `application`"),
            (&format!("{application}command = 7"), "line 3"),
            (&format!("{application}command = ''"), "the command of `a` is empty: write a program"),
            (&format!("{application}command = \"x 'y\""), "a quote without its end: close it"),
            (&format!("{application}command = 'x'\nstart = '5'"), "write a number and a unit"),
            (&format!("{application}command = 'x'\ncopies = 0"), "write a number from 1 to 10000"),
            (&format!("{application}command = 'x'\nenvironment = {{ 'A=' = '' }}"), "without `=`"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
