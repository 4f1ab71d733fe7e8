//! Spellings of version 0.1: they work for one version more, with a hint.

use std::ffi::OsString;

/// An option that is spelled differently now.
struct Spelling {
    /// The commands that have it; [`ALL`] if empty.
    commands: &'static [&'static str],
    was: &'static str,
    is: &'static str,
    value: Value,
}

/// What became of an option's value.
#[derive(Clone, Copy, PartialEq)]
enum Value {
    /// It stays.
    Same,
    /// A list has become an option for each.
    List,
    /// A file in the next word has become part of the option's word.
    File,
    /// There was none, which is `on` now.
    None,
}

const fn spelling(
    commands: &'static [&'static str],
    was: &'static str,
    is: &'static str,
    value: Value,
) -> Spelling {
    Spelling { commands, was, is, value }
}

/// Every command.
const ALL: &[&str] = &[];

const OLD: &[Spelling] = &[
    spelling(&["topo", "replay", "calibrate"], "--synthetic", "--machine", Value::Same),
    spelling(&["topo", "replay"], "--xml", "--machine", Value::Same),
    spelling(&["topo", "replay"], "--root", "--machine", Value::Same),
    spelling(&["topo", "replay"], "--profile", "--machine", Value::Same),
    spelling(&["compare"], "--policies", "--policy", Value::List),
    spelling(&["compare"], "--for", "--duration", Value::Same),
    spelling(ALL, "--json", "--json", Value::File),
    spelling(&["sim"], "--guard", "--guard", Value::None),
    spelling(&["pgo"], "--rounds", "--runs", Value::Same),
];

/// What `replay` took where `what-if` predicts now.
const OF_WHAT_IF: [&str; 3] = ["--recorded-on", "--seed", "--runs"];

/// Returns the words of a command line as they are spelled now, and a hint for each change.
pub fn renewed(words: impl IntoIterator<Item = OsString>) -> (Vec<OsString>, Vec<String>) {
    let mut words = words.into_iter().peekable();
    let mut new: Vec<OsString> = words.by_ref().take(2).collect();
    let command = new.get(1).map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let mut hints = Vec::new();
    while let Some(word) = words.next_if(|word| word != "--") {
        let text = word.to_string_lossy();
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (&*text, None),
        };
        let is_of = |commands: &[&str]| commands.is_empty() || commands.contains(&&*command);
        let is_old = |old: &&Spelling| old.was == name && is_of(old.commands);
        let Some(old) = OLD.iter().find(is_old) else {
            new.push(word);
            continue;
        };
        let next = words.peek().map(|next| next.to_string_lossy().into_owned());
        let Some((spelled, took_next)) = old.renew(value, next) else {
            new.push(word);
            continue;
        };
        if took_next {
            words.next();
        }
        hints.push(format!("`{name}` is spelled `{}` now", spelled.join(" ")));
        new.extend(spelled.into_iter().map(OsString::from));
    }
    new.extend(words);
    let is_of_what_if = |word: &OsString| OF_WHAT_IF.iter().any(|option| word == option);
    if command == "replay" && new.iter().any(is_of_what_if) {
        new[1] = "what-if".into();
        hints.push("the predictions of `replay` are the command `what-if` now".to_owned());
    }
    (new, hints)
}

impl Spelling {
    /// Returns the words in place of this option, and whether the next word is among them; `None` if it is
    /// spelled as it should be.
    fn renew(&self, value: Option<String>, next: Option<String>) -> Option<(Vec<String>, bool)> {
        let is = self.is.to_owned();
        let took_next = value.is_none();
        match self.value {
            Value::Same => Some((vec![is, value.or(next)?], took_next)),
            Value::List => {
                let list = value.or(next)?;
                let each = list.split(',').flat_map(|one| [is.clone(), one.to_owned()]);
                Some((each.collect(), took_next))
            }
            Value::File if took_next => {
                let file = next.filter(|next| is_json_file(next))?;
                Some((vec![format!("{is}={file}")], true))
            }
            Value::None if took_next && !matches!(next.as_deref(), Some("on" | "off")) => {
                Some((vec![is, "on".to_owned()], false))
            }
            Value::File | Value::None => None,
        }
    }
}

/// Returns whether a word after `--json` is the file that it wrote, and not the next argument.
fn is_json_file(word: &str) -> bool {
    let has_ending = word.to_ascii_lowercase().ends_with(".json") && !word.contains(' ');
    has_ending || word == "-" || word.starts_with("/dev/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &str, hints: usize) {
        let words = format!("corewise {line}");
        let (new, hinted) = renewed(words.split(' ').map(OsString::from));
        let new: Vec<_> = new.iter().skip(1).map(|word| word.to_string_lossy()).collect();
        assert_eq!((new.join(" ").as_str(), hinted.len()), (expected, hints), "{hinted:?}");
    }

    #[test]
    fn old_spellings_are_renewed_with_a_hint() {
        check("topo --xml m.xml", "topo --machine m.xml", 1);
        check("topo --root=dir --json", "topo --machine dir --json", 1);
        check("compare --policies pa,rr -- ./x", "compare --policy pa --policy rr -- ./x", 1);
        check("compare --json out.json a b", "compare --json=out.json a b", 1);
        check("experiment run all --json -", "experiment run all --json=-", 1);
        check("run --json x.json -- true", "run --json=x.json -- true", 1);
        check("sim s.toml --guard", "sim s.toml --guard on", 1);
        check("pgo --rounds 5 --build b", "pgo --runs 5 --build b", 1);
        check("replay r.cwr --machine recorded --seed 2", "what-if r.cwr --machine recorded --seed 2", 1);
    }

    #[test]
    fn what_is_spelled_as_now_stays_and_so_do_commands() {
        for line in [
            "",
            "run",
            "run --profile p.json -- pgo --rounds 5",
            "compare --json -- a --json b.json --policies c",
            "compare --json=a.json ./a",
            "compare --json ./a ./b",
            "sim s.toml --guard off",
            "topo --xml",
        ] {
            check(line.trim(), line.trim(), 0);
        }
    }
}
