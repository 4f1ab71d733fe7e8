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
    let (command, name) = reached(words, tree);
    let text = |error: &clap::Error, kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let option = text(&error, ContextKind::InvalidArg);
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let near = nearest(&text(&error, ContextKind::InvalidSubcommand), command);
            error.remove(ContextKind::SuggestedSubcommand);
            if near.is_empty() {
                advise(&mut error, &format!("`{name} --help` lists the commands"));
            } else {
                error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(near));
            }
        }
        ErrorKind::UnknownArgument => {
            let known = ELSEWHERE.iter().find(|(of, known, _)| name.ends_with(of) && *known == option);
            if let Some((_, _, remedy)) = known {
                let file = words.iter().skip_while(|word| **word != option).nth(1);
                advise(&mut error, &remedy.replace("FILE", file.map_or("FILE", String::as_str)));
            } else if error.get(ContextKind::SuggestedArg).is_none() {
                advise(&mut error, &format!("`{name} --help` lists the options"));
            }
        }
        ErrorKind::InvalidValue if text(&error, ContextKind::InvalidValue).is_empty() => {
            advise(&mut error, &format!("write it behind the option: {option}"));
        }
        ErrorKind::TooManyValues => advise(&mut error, &format!("leave the value out: {option}")),
        ErrorKind::ArgumentConflict
            if name.ends_with("compare") && !words.iter().any(|word| word == "--") =>
        {
            advise(&mut error, "one command with its arguments stands behind ` -- `: compare … -- sleep 1");
        }
        ErrorKind::ArgumentConflict => advise(&mut error, "leave one of them out"),
        _ => {}
    }
    error
}

/// Returns the command that a line calls, and its name.
fn reached<'a>(words: &[String], tree: &'a Command) -> (&'a Command, String) {
    let mut reached = (tree, tree.get_name().to_owned());
    for word in words.iter().skip(1) {
        let Some(below) = reached.0.find_subcommand(word) else { break };
        reached = (below, format!("{} {word}", reached.1));
    }
    reached
}

fn advise(error: &mut clap::Error, remedy: &str) {
    error.remove(ContextKind::SuggestedArg);
    let remedy = vec![StyledStr::from(remedy.to_owned())];
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(remedy));
}

/// Returns the visible subcommand that is meant: one that shares half of the letters at least. Two letters
/// exchanged are one difference.
fn nearest(name: &str, command: &Command) -> Vec<String> {
    let visible = command.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name);
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
            ("corewise paths recrod", "similar subcommand exists: 'record'"),
            ("corewise xyzzy", "`corewise --help` lists the commands"),
            ("corewise run --xyzzy", "`corewise run --help` lists the options"),
            ("corewise run --dry-run=yes", "leave the value out: --dry-run"),
            ("corewise run --profile=", "write it behind the option: --profile <FILE>"),
            ("corewise run --pid 1 -- true", "leave one of them out"),
        ] {
            assert!(said(line).contains(remedy), "{line}: {}", said(line));
        }
        assert!(!said("corewise xyzzy").contains("similar"), "{}", said("corewise xyzzy"));
        assert!(!said("corewise policy pa").contains("policy-keeper"));
    }
}
