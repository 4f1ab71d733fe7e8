//! What shells propose while somebody types a command line.
//!
//! Problem: what can stand at a place follows from the tree of commands, from files, and from what runs at
//! that moment; a script that lists it knows the first alone. Approach: the scripts of the shells ask
//! `corewise complete -- WORD…`, with the words up to the cursor. Options, commands and words of lists come
//! from the tree, other values from [`proposals`], by what the help calls the value. Where words of another
//! command are typed, only their number is answered, and the shell completes that command by its own means.
//!
//! The answer has a line for each proposal: the word, a tabulator, and what it is. The line with a number
//! begins with the tabulator. Limit: a word that holds one of these two characters is not proposed.

use crate::experiments;
use clap::{Arg, Command};
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter, complete,
};
use corewise_core::policy;
use corewise_sys::cgroup::Hierarchy;
use corewise_sys::proc::Proc;
use corewise_topology as topology;
use corewise_topology::Source;
use nix::unistd::Uid;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;

/// The argument that holds another command and its arguments.
const COMMAND: &str = "command";

/// The endings of files by option, or by what the help calls an argument without one.
const ENDINGS: [(&str, &[&str]); 21] = [
    ("json", &["json"]),
    ("html", &["html"]),
    ("csv", &["csv"]),
    ("report", &["json", "html", "txt"]),
    ("profile", &["json"]),
    ("resume", &["json"]),
    ("check-profile", &["json"]),
    ("machine", &["json", "toml", "xml", "gz", "bz2"]),
    ("recorded-on", &["json", "toml", "xml", "gz", "bz2"]),
    ("ipc-ratios", &["toml"]),
    ("fpu-modules", &["toml"]),
    ("workload", &["toml"]),
    ("store", &["sqlite"]),
    ("metrics-file", &["prom"]),
    ("REPORT", &["json"]),
    ("PROFILE", &["json"]),
    ("A", &["json"]),
    ("B", &["json"]),
    ("SCENARIO", &["toml", "json"]),
    ("TABLE", &["csv"]),
    ("MODEL", &["json"]),
];

/// Returns the answer for words whose last one is being typed.
pub fn answer(tree: &Command, words: Vec<OsString>) -> String {
    let words: Vec<OsString> = [OsString::from("corewise")].into_iter().chain(words).collect();
    if let Some(count) = words_of_command(tree, &words) {
        return format!("\t{count}\n");
    }
    let last = words.len() - 1;
    let found = complete(&mut with_proposals(tree.clone()), words, last, None).unwrap_or_default();
    let mut answer = String::new();
    for candidate in found {
        let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        let (value, help) =
            (candidate.get_value().to_string_lossy(), help.lines().next().unwrap_or_default());
        if !value.contains(['\t', '\n']) {
            // Writing to a string cannot fail.
            let _ = match help {
                "" => writeln!(answer, "{value}"),
                help => writeln!(answer, "{value}\t{help}"),
            };
        }
    }
    answer
}

/// Returns how many of the last words are another command with its arguments, if they are. At its first word,
/// one that is empty or begins with `-` may become an option of ours as well, unless `--` stands before it.
fn words_of_command(tree: &Command, words: &[OsString]) -> Option<usize> {
    let matches = tree.clone().ignore_errors(true).try_get_matches_from(words).ok()?;
    let mut matches = &matches;
    while let Some((_, below)) = matches.subcommand() {
        matches = below;
    }
    let count = matches.try_get_raw(COMMAND).ok()??.count();
    let is_open =
        words.last().is_some_and(|word| word.is_empty() || word.as_encoded_bytes().starts_with(b"-"));
    let is_separate = words[..words.len() - 1].iter().any(|word| word == "--");
    (count > 1 || count == 1 && (is_separate || !is_open)).then_some(count)
}

fn with_proposals(command: Command) -> Command {
    let command = command.mut_args(|argument| match proposals(&argument) {
        Some(proposals) => argument.add(proposals),
        None => argument,
    });
    command.mut_subcommands(with_proposals)
}

/// Returns what is proposed for the value of an argument, if the tree does not know it.
fn proposals(argument: &Arg) -> Option<ArgValueCompleter> {
    let kind = argument.get_value_names()?.first()?.as_str();
    let name = argument.get_long().unwrap_or(kind);
    let ending = ENDINGS.iter().find(|(of, _)| *of == name).map(|(_, endings)| *endings);
    Some(match (kind, ending) {
        ("PID", _) => ArgValueCompleter::new(processes),
        ("POLICY", _) => ArgValueCompleter::new(policies),
        ("CPUS" | "LOCATION", _) => ArgValueCompleter::new(places),
        ("NAME|all", _) => ArgValueCompleter::new(named_experiments),
        ("NAME", _) if matches!(name, "unit" | "service") => ArgValueCompleter::new(units),
        ("NAME", _) if name == kind => ArgValueCompleter::new(policies),
        ("DIR", _) => ArgValueCompleter::new(PathCompleter::dir()),
        (_, Some(endings)) => ArgValueCompleter::new(PathCompleter::any().filter(move |path| {
            path.is_dir()
                || path.extension().is_some_and(|ending| endings.iter().any(|known| ending == *known))
        })),
        ("FILE" | "PATH" | "OUT" | "RECORDING", _) => ArgValueCompleter::new(PathCompleter::any()),
        _ => return None,
    })
}

/// Returns those that begin with what is typed.
fn beginning(typed: &OsStr, all: impl Iterator<Item = (String, String)>) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let candidate = |(value, help): (String, String)| CompletionCandidate::new(value).help(Some(help.into()));
    all.filter(|(value, _)| value.starts_with(&*typed)).map(candidate).collect()
}

/// The processes of this user, to root all, with their names. Who types a name means a number.
fn processes(typed: &OsStr) -> Vec<CompletionCandidate> {
    let (proc, user) = (Proc::own(), Uid::effective());
    let is_ours = |pid: &u32| user.is_root() || proc.owner(*pid).is_ok_and(|owner| owner == user.as_raw());
    let pids = proc.processes().unwrap_or_default().into_iter().filter(is_ours);
    // Kernel threads have no command line.
    let named: Vec<(u32, String)> = pids.filter_map(|pid| Some((pid, proc.program_name(pid)?))).collect();
    let word = typed.to_string_lossy();
    if word.starts_with(|c: char| c.is_alphabetic()) {
        let meant = named.into_iter().filter(|(_, name)| name.starts_with(&*word));
        return beginning(OsStr::new(""), meant.map(|(pid, name)| (pid.to_string(), name)));
    }
    beginning(typed, named.into_iter().map(|(pid, name)| (pid.to_string(), name)))
}

fn policies(typed: &OsStr) -> Vec<CompletionCandidate> {
    beginning(typed, policy::KINDS.iter().map(|kind| (kind.name.to_owned(), kind.rule.to_owned())))
}

/// Kinds of PEs of this machine.
fn places(typed: &OsStr) -> Vec<CompletionCandidate> {
    let kinds =
        topology::load(&Source::Live, None).map(|topology| topology.summary().kinds).unwrap_or_default();
    let known = kinds.into_iter().filter(|kind| kind.name != "unknown");
    beginning(typed, known.map(|kind| (kind.name.clone(), format!("the PEs {}", kind.pes))))
}

fn named_experiments(typed: &OsStr) -> Vec<CompletionCandidate> {
    let all = ("all".to_owned(), "each of them".to_owned());
    let mut found =
        beginning(typed, experiments::names().into_iter().map(|name| (name.to_owned(), String::new())));
    found.extend(beginning(typed, std::iter::once(all)));
    found.extend(PathCompleter::dir().complete(typed));
    found
}

/// The running units of systemd.
fn units(typed: &OsStr) -> Vec<CompletionCandidate> {
    let names = Hierarchy::mounted().map(|hierarchy| hierarchy.unit_names()).unwrap_or_default();
    beginning(typed, names.into_iter().map(|name| (name, String::new())))
}
