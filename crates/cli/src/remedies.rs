//! What helps with a command line that is wrong, where `clap` has no advice or a bad one.
//!
//! It proposes the subcommand with the most similar name, also hidden ones and not for `help`; names what two
//! commands call differently; and knows no reason why two arguments exclude each other.

use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Where to read what to do, in messages about something that is missing.
pub const ASK: &str = "`corewise doctor` says what is missing";

/// Options that another command has, or that people expect, and what does it: the command, the option, the
/// remedy.
const ELSEWHERE: [(&str, &str, &str); 3] = [
    ("run", "--html", "the page of a run is a report: --report FILE"),
    ("characterize", "--html", "the page of a run is a report: --report FILE"),
    ("run", "--csv", "a table of a run is a report: --report FILE, which ends in .txt or .json"),
];

/// Returns the error with a remedy; `words` is the command line, `tree` the commands that there are.
pub fn added(mut error: clap::Error, words: &[String], tree: &Command) -> clap::Error {
    let command = words.get(1).map_or("", String::as_str);
    let text = |error: &clap::Error, kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let near = nearest(&text(&error, ContextKind::InvalidSubcommand), tree);
            error.remove(ContextKind::SuggestedSubcommand);
            if !near.is_empty() {
                error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(near));
            }
        }
        ErrorKind::UnknownArgument => {
            let option = text(&error, ContextKind::InvalidArg);
            let known = ELSEWHERE.iter().find(|(of, name, _)| *of == command && *name == option);
            if let Some((_, _, remedy)) = known {
                let file = words.iter().skip_while(|word| **word != option).nth(1);
                advise(&mut error, &remedy.replace("FILE", file.map_or("FILE", String::as_str)));
            }
        }
        ErrorKind::ArgumentConflict if command == "compare" => {
            advise(&mut error, "one command with its arguments stands behind ` -- `: compare … -- sleep 1");
        }
        _ => {}
    }
    error
}

fn advise(error: &mut clap::Error, remedy: &str) {
    error.remove(ContextKind::SuggestedArg);
    let remedy = vec![StyledStr::from(remedy.to_owned())];
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(remedy));
}

/// Returns the visible subcommand that is meant: one that shares half of the letters at least. Two letters
/// exchanged are one difference.
fn nearest(name: &str, tree: &Command) -> Vec<String> {
    let visible = tree.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name);
    let near = visible.map(|known| (strsim::damerau_levenshtein(name, known), known)).min();
    let near = near.filter(|(distance, _)| 2 * distance <= name.chars().count());
    near.map(|(_, known)| known.to_owned()).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    fn said(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = tree().try_get_matches_from(&words).expect_err(line);
        added(error, &words, &tree()).render().to_string()
    }

    #[test]
    fn each_mistake_has_its_remedy() {
        for (line, remedy) in [
            ("corewise rnu -- true", "similar subcommand exists: 'run'"),
            ("corewise help rum", "similar subcommand exists: 'run'"),
            ("corewise policy pa", "similar subcommand exists: 'policies'"),
            ("corewise run --html x.html -- true", "--report x.html"),
            ("corewise compare --policy pa --runs 2 sleep 0.01", "behind ` -- `"),
            ("corewise run --pid abc", "number of a process"),
            ("corewise daemon --metrics localhost:9", "127.0.0.1:9"),
        ] {
            assert!(said(line).contains(remedy), "{line}: {}", said(line));
        }
        assert!(!said("corewise xyzzy").contains("similar"), "{}", said("corewise xyzzy"));
        assert!(!said("corewise policy pa").contains("policy-keeper"));
    }
}
