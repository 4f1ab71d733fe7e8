//! Mistypes every option of every command, and judges what is said.
//!
//! Problem: a message that names neither what was wrong nor what to write instead is noticed only by those
//! who mistype. Approach: the tree of commands says which options there are. Each gets all of [`WRONG`], and
//! what the parser refuses is judged in this process. What the parser takes and is wrong nevertheless
//! ([`TAKEN`]) is run: this program starts itself as `corewise` ([`as_corewise`]), with all else right
//! ([`RIGHT`]). A message must name the input and a remedy ([`REMEDIES`]), and hold nothing of [`BANNED`].
//! Limits: two mistakes at once; what another machine refuses; whether a remedy helps.

use crate::hostile::samples;
use crate::outputs::OutputFile;
use crate::{help, remedies, run_command, tree};
use clap::builder::ValueParser;
use clap::{Arg, Command};
use rayon::prelude::*;
use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// What is given to every option. The parser refuses it, or takes it for a text.
const WRONG: [&str; 7] = ["", "abc", "-1", "99999999999999999999", "missing/file", "/", "broken.json"];

/// What the parser takes and is wrong nevertheless, by what the help calls the value. Any other text is
/// right.
const TAKEN: &[(&[&str], &[&str])] = &[
    (
        &["FILE", "PROFILE", "REPORT", "RECORDING", "SCENARIO", "TABLE", "MODEL", "A", "B"],
        &["missing/file", "/", "broken.json"],
    ),
    (&["FILE|DIR|LINE", "MACHINE"], &["missing/file", "broken.json", "abc"]),
    (&["FILE.prom"], &["missing/file", "missing/file.prom"]),
    (&["PATH"], &["missing/file"]),
    (&["DIR"], &["broken.json", "broken.json/x"]),
    (&["CPUS", "LIST", "LOCATION"], &["abc", "99999", "3-1", ""]),
    (&["NAME", "NAME|all", "PATH=VALUE"], &["abc", ""]),
    (&["TID"], &["99999"]),
    (&["PID"], &["4194305"]),
    (&["POLICY"], &["abc"]),
];

/// The same of files that are written.
const TAKEN_FOR_OUTPUTS: &[&str] = &["missing/file", "/"];

/// Commands that ask the daemon first or need what tests lack, and options that are judged when the program
/// is built.
const ELSEWHERE: [&str; 8] = [
    "attach",
    "detach",
    "status",
    "rules reload",
    "paths truth",
    "paths accuracy",
    "pgo --binary",
    "pgo --from",
];

/// What is right beside the mistake, by command, or by command and option. The files are those of
/// [`samples`].
const RIGHT: &[(&str, &str)] = &[
    ("run", "-- true"),
    ("run --pid", ""),
    ("run --cgroup", ""),
    ("run --unit", ""),
    ("run --duration", "--pid 1"),
    ("run --slow", "--fast 0 -- true"),
    ("compare", "--runs 1 -- true"),
    ("compare --workload", ""),
    ("compare --resume", ""),
    ("pairs", "--runs 1 true"),
    ("pairs --workload", ""),
    ("characterize", "-- true"),
    ("characterize --slow", "--fast 0 -- true"),
    ("explain", "report.json"),
    ("progress", "-- true"),
    ("progress --pid", ""),
    ("progress --duration", "--pid 1"),
    ("top", "--once"),
    ("top --slow", "--fast 0 --once"),
    ("daemon", "--dry-run --socket socket"),
    ("daemon --slow", "--fast 0 --dry-run --socket socket"),
    ("attach", "1"),
    ("detach", "1"),
    ("status --follow", "--json"),
    ("emulate-slow", "0 --speed 0.5 -- true"),
    ("emulate-slow --duration", "0 --speed 0.5"),
    ("calibrate", "--machine profile.json --budget 1s"),
    ("calibrate --npb", "--budget 1s"),
    ("profile show", "profile.json"),
    ("profile diff", "profile.json profile.json"),
    ("model fit", "table.csv"),
    ("model show", "model.json"),
    ("model check", "table.csv"),
    ("replay", "recording.cwr"),
    ("what-if", "recording.cwr --runs 1"),
    ("sim", "scenario.toml"),
    ("sim --fuzz", ""),
    ("sim --jobs", "--fuzz 1"),
    ("sim --check-profile", ""),
    ("sim --machine", "rt-app.json"),
    ("experiment run", "amp-single"),
    ("experiment run --seed", "amp-single --worlds 1"),
    ("experiment run --policy", "amp-single --worlds 1"),
    ("experiment run --resume", "amp-single --worlds 1"),
    ("experiment run --shard", "amp-single --worlds 1 --resume worlds.jsonl"),
    ("experiment merge", "worlds.jsonl"),
    ("rules why", "1"),
    ("paths record", "--output out -- true"),
    ("paths record --pid", "--output out"),
    ("paths report", "run.paths"),
    ("paths export", "run.paths --format autofdo"),
    ("paths merge", "run.paths --output out"),
    ("paths truth", "--output out -- true"),
    ("paths accuracy", "run.paths --truth truth.json"),
    ("pgo", "--build {flags} --run true"),
    ("pgo --dir", "--build {flags} --run true --binary report.json"),
    ("pgo record", "--pid 1"),
    ("pgo record --service", ""),
];

/// A message has one of these: what to write, what to do, or what there is.
const REMEDIES: &[&str] = &[
    " write ",
    " name ",
    " check ",
    " use ",
    " make ",
    " choose ",
    " leave ",
    " say ",
    " see ",
    " give ",
    " run ",
    " makes one",
    " shows one",
    " starts one",
    " prints the ",
    " lists ",
    " shows all",
    " expected ",
    " there are",
    " it has: ",
    " has the PEs ",
    " must end in ",
    " by `corewise ",
    " such as ",
    " similar ",
    "possible values: ",
    "were not provided",
    "--help` ",
];

/// What is for programmers, or leads nowhere.
const BANNED: &[&str] = &[
    "invalid digit",
    "cannot parse",
    "number would be zero",
    "too large to fit",
    "too small to fit",
    "invalid float",
    "invalid socket address",
    "attempted to convert",
    "doesn't match an existing",
    "UTF-8",
    "utf-8",
    "(os error",
    ".corewise-",
    "policy-keeper",
    "demo-program",
    "panicked",
    "ParseIntError",
    "called `",
    "thread '",
];

/// One mistake.
struct Case {
    option: String,
    value: String,
    words: Vec<String>,
}

/// What was said about it.
struct Said {
    text: String,
    status: Option<i32>,
}

impl Case {
    /// Returns what is wrong with the answer.
    fn faults(&self, said: &Said) -> Vec<String> {
        let mut faults = Vec::new();
        if said.status == Some(0) {
            return vec!["it is taken".to_owned()];
        }
        if said.status.is_none() {
            return vec!["it does not end".to_owned()];
        }
        let named = [self.value.as_str(), self.option.trim_start_matches('-'), "``"];
        if !named.iter().any(|name| !name.is_empty() && said.text.contains(name)) {
            faults.push("it does not name the input".to_owned());
        }
        let text = said.text.replace("For more information, try '--help'.", "");
        if !REMEDIES.iter().any(|remedy| text.contains(remedy)) {
            faults.push("it has no remedy".to_owned());
        }
        let banned = BANNED.iter().filter(|banned| said.text.contains(*banned));
        faults.extend(banned.map(|banned| format!("it says `{banned}`")));
        faults
    }
}

/// Returns every mistake that the parser sees, and those that it does not.
fn cases() -> (Vec<Case>, Vec<Case>) {
    let (mut by_parser, mut by_command) = (Vec::new(), Vec::new());
    let output = ValueParser::from(clap::value_parser!(OutputFile)).type_id();
    for (words, command) in help::visible(&tree()) {
        let Some((_, name)) = words.split_once(' ') else { continue };
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            by_parser.extend(WRONG.iter().filter_map(|value| mistake(name, argument, value)));
            let kind =
                argument.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
            let is_written = argument.get_value_parser().type_id() == output && kind != "DIR";
            let of_kind = TAKEN.iter().find(|(kinds, _)| kinds.contains(&kind)).map(|(_, wrong)| *wrong);
            let wrong = if is_written { TAKEN_FOR_OUTPUTS } else { of_kind.unwrap_or_default() };
            let option = format!("{name} --{}", argument.get_long().unwrap_or_default());
            if !ELSEWHERE.iter().any(|of| *of == name || *of == option) {
                by_command.extend(wrong.iter().filter_map(|value| mistake(name, argument, value)));
            }
        }
    }
    (by_parser, by_command)
}

/// Returns the case of an argument with this value.
fn mistake(command: &str, argument: &Arg, value: &str) -> Option<Case> {
    let takes = argument.get_num_args().is_some_and(|number| number.takes_values());
    let option = match argument.get_long() {
        Some(long) => format!("--{long}"),
        None if argument.get_index() == Some(1) => argument.get_value_names()?.first()?.to_string(),
        None => return None,
    };
    if option == "--help" || option.starts_with("COMMAND") || !takes && value != "abc" {
        return None;
    }
    let of = |wanted: &str| RIGHT.iter().find(|(name, _)| *name == wanted).map(|(_, right)| *right);
    let right = of(&format!("{command} {option}")).or(of(command)).unwrap_or("");
    let mut right: Vec<String> = right.split_whitespace().map(str::to_owned).collect();
    let mut words: Vec<String> =
        ["corewise"].into_iter().chain(command.split(' ')).map(str::to_owned).collect();
    match argument.get_long() {
        Some(_) => {
            words.push(format!("{option}={value}"));
            // What it replaces.
            if let Some(at) = right.iter().position(|word| *word == option) {
                right.drain(at..right.len().min(at + 1 + usize::from(takes)));
            }
            words.extend(right);
        }
        // The first of the words that are right is its place.
        None => {
            words.push(value.to_owned());
            words.extend(right.into_iter().skip_while(|word| !word.starts_with("--")));
        }
    }
    Some(Case { option, value: value.to_owned(), words })
}

/// Returns what the parser says; `None` if it takes the line.
fn parsed(tree: &mut Command, case: &Case) -> Option<Said> {
    let error = tree.try_get_matches_from_mut(&case.words).err()?;
    let status = Some(error.exit_code());
    Some(Said { text: remedies::added(error, &case.words, tree).render().to_string(), status })
}

/// The words of a line for [`as_corewise`].
const LINE: &str = "COREWISE_MISTYPED_LINE";

/// Is `corewise` with the line of the environment, where [`ran`] starts it.
#[test]
fn as_corewise() {
    if let Ok(line) = std::env::var(LINE) {
        let words: Vec<String> = serde_json::from_str(&line).unwrap();
        std::process::exit(run_command(words.into_iter().map(OsString::from)).into());
    }
}

/// Runs the line in the directory.
fn ran(case: &Case, directory: &Path) -> Said {
    const PATIENCE: Duration = Duration::from_secs(20);
    let said = tempfile::NamedTempFile::new().unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "mistyped::as_corewise", "--nocapture"])
        .env(LINE, serde_json::to_string(&case.words).unwrap())
        .envs([("XDG_RUNTIME_DIR", directory), ("HOME", directory), ("TMPDIR", directory)])
        .env("COREWISE_SOCKET", directory.join("no-daemon"))
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said.reopen().unwrap())
        .spawn()
        .unwrap();
    let end = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status.code().unwrap_or(255)),
            None if Instant::now() > end => break None,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    if status.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    Said { text: std::fs::read_to_string(said.path()).unwrap(), status }
}

#[test]
fn every_mistake_is_named_with_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    for (name, bytes) in samples() {
        std::fs::write(directory.path().join(name), bytes).unwrap();
    }
    std::fs::write(directory.path().join("broken.json"), "{").unwrap();
    let mut tree = tree();
    let (by_parser, by_command) = cases();
    let mut judged = Vec::new();
    for case in &by_parser {
        judged.extend(parsed(&mut tree, case).map(|said| (case, said)));
    }
    let refused = judged.len();
    let left: Vec<&Case> = by_command.iter().filter(|case| parsed(&mut tree, case).is_none()).collect();
    judged.par_extend(left.into_par_iter().map(|case| (case, ran(case, directory.path()))));
    let mut wrong = Vec::new();
    for (case, said) in &judged {
        let faults = case.faults(said);
        if !faults.is_empty() {
            wrong.push(format!("{}: {}\n    {}", case.words.join(" "), faults.join(", "), said.text.trim()));
        }
    }
    let (all, run) = (judged.len(), judged.len() - refused);
    eprintln!("{all} mistakes, {run} of them run; {} without a good answer", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_unknown_option_and_command_is_answered_with_what_there_is() {
    let mut root = tree();
    let mut wrong = Vec::new();
    for (words, command) in help::visible(&tree()) {
        let letters_exchanged =
            |name: &str| format!("{}{}{}", &name[..1], &name[2..3], &name[1..2]) + &name[3..];
        let longs = command.get_arguments().filter_map(Arg::get_long).filter(|long| long.len() > 4);
        let options = longs.map(|long| (format!("--{}", letters_exchanged(long)), format!("--{long}")));
        let below = command.get_subcommands().map(Command::get_name).filter(|name| name.len() > 3);
        let commands = below.map(|name| (letters_exchanged(name), name.to_owned()));
        let unknown = [("--xyzzy".to_owned(), format!("{words} --help"))];
        for (mistake, meant) in options.chain(commands).chain(unknown) {
            let words = words.split(' ').chain([mistake.as_str()]).map(str::to_owned).collect();
            let case = Case { option: mistake.clone(), value: mistake, words };
            match parsed(&mut root, &case) {
                Some(said) if said.text.contains(&meant) && case.faults(&said).is_empty() => {}
                said => wrong.push(format!("{}: {:?}", case.words.join(" "), said.map(|said| said.text))),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
