//! From the text of a file to rules.
//!
//! The TOML is walked by hand, as serde ends at the first error and forgets where values were. A value that
//! is wrong is reported and left out, and the walk goes on. Of a text that is no TOML only that is reported:
//! what the rest of it means depends on where its tables begin and end.

use crate::condition::Condition;
use crate::error::{Place, Problem, RuleError};
use crate::facts::Fact;
use crate::rule::Rule;
use crate::settings::{
    Applications, DaemonSettings, INTERVAL_MIN, NONE, PeChoice, PowerSaver, Settings, Watch,
};
use corewise_core::cpuset::CpuSet;
use corewise_core::policy::{DEFAULT, PolicyError, PolicyKind, PolicySpec};
use corewise_core::time::parse_duration;
use corewise_core::waits::WaitChanges;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

type Value<'i> = Spanned<DeValue<'i>>;

/// A file of rules, as it was read.
#[derive(Debug)]
pub struct SourceFile {
    /// Its path, for messages.
    pub path: PathBuf,
    /// What it holds, or why that is not known.
    pub content: io::Result<Vec<u8>>,
}

/// What a file says.
#[derive(Debug, Default)]
pub struct Written {
    pub daemon: DaemonSettings,
    pub rules: Vec<Rule>,
    pub errors: Vec<RuleError>,
}

/// A table with fixed keys.
struct Kind {
    /// What messages call it.
    name: &'static str,
    keys: &'static [&'static str],
    /// What to do with such a key that stands in another table.
    elsewhere: &'static str,
}

const FILE: Kind = Kind { name: "a file of rules", keys: &["daemon", "rule"], elsewhere: "it is a table" };
const DAEMON: Kind = Kind {
    name: "[daemon]",
    keys: &["policy", "interval", "guard", "waits", "watch", "applications", "power-saver"],
    elsewhere: "write it in [daemon], as one engine serves all programs",
};
const RULE: Kind = Kind {
    name: "a rule",
    keys: &["name", "match", "leave-alone", "kinds", "pes", "waits", "policy", "guard", "adapt-team"],
    elsewhere: "write it in a [[rule]]",
};
const MATCH: Kind = Kind {
    name: "`match`",
    keys: &["name", "comm", "exe", "build-id", "unit", "user", "cgroup"],
    elsewhere: "it is a condition: write match.exe = \"…\", or what it is",
};
/// Keys that there might be, and what to do instead.
const NOWHERE: [Kind; 1] = [Kind {
    name: "",
    keys: &["teams", "team-size"],
    elsewhere: "write adapt-team = true in a [[rule]], for what `corewise run` starts; running programs keep \
                the size of their teams",
}];

const TEXT: &str = "a text in quotation marks";
const TEXTS: &str = "a text in quotation marks, or a list of them";
const NAME: &str = "name = \"…\", by which messages call it";
const CONDITIONS: &str = "match = { exe = \"/usr/bin/*\" }, or another condition";

/// Reads a file.
pub fn file(file: &SourceFile) -> Written {
    let name: Arc<str> = file.path.to_string_lossy().into();
    let whole = |problem| {
        let place = Place { file: name.clone(), position: None };
        Written { errors: vec![RuleError { place, problem }], ..Written::default() }
    };
    let bytes = match &file.content {
        Ok(bytes) => bytes,
        Err(error) => return whole(Problem::Unreadable { cause: error.to_string() }),
    };
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    match str::from_utf8(bytes) {
        Ok(text) => text_of(&name, text),
        Err(error) => {
            let (before, after) = bytes.split_at(error.valid_up_to());
            let position = Positions::new(&String::from_utf8_lossy(before)).of(before.len());
            let problem = Problem::NotText { byte: after.first().copied().unwrap_or_default() };
            let place = Place { file: name, position: Some(position) };
            Written { errors: vec![RuleError { place, problem }], ..Written::default() }
        }
    }
}

fn text_of(name: &Arc<str>, text: &str) -> Written {
    let (root, syntax) = DeTable::parse_recoverable(text);
    let mut reader = Reader::default();
    for error in &syntax {
        let at = error.span().map_or(text.len(), |span| span.start);
        reader.errors.push((at, Problem::Syntax { message: error.message().to_owned() }));
    }
    if syntax.is_empty() {
        reader.read(root.get_ref());
    }
    let Reader { daemon, rules, mut errors } = reader;
    errors.sort_by_key(|(at, _)| *at);
    let mut positions = Positions::new(text);
    let mut place = |at| Place { file: name.clone(), position: Some(positions.of(at)) };
    let errors = errors.into_iter().map(|(at, problem)| RuleError { place: place(at), problem });
    let mut errors: Vec<RuleError> = errors.collect();
    let rules = rules.into_iter().map(|(at, rule)| Rule { place: place(at), ..rule }).collect();
    if !syntax.is_empty() {
        // The first error of a line causes the others.
        errors.dedup_by_key(|error| error.place.position.map(|(line, _)| line));
    }
    Written { daemon, rules, errors }
}

/// Lines and columns of a text, found in one pass if they are asked for in order.
struct Positions<'a> {
    text: &'a str,
    rest: std::str::Chars<'a>,
    position: (usize, usize),
}

impl<'a> Positions<'a> {
    fn new(text: &'a str) -> Self {
        Positions { text, rest: text.chars(), position: (1, 1) }
    }

    /// Returns the line and column of the character at this byte.
    fn of(&mut self, at: usize) -> (usize, usize) {
        let gone = |rest: &std::str::Chars<'_>| self.text.len() - rest.as_str().len();
        if gone(&self.rest) > at {
            (self.rest, self.position) = (self.text.chars(), (1, 1));
        }
        while gone(&self.rest) < at
            && let Some(character) = self.rest.next()
        {
            let (line, column) = self.position;
            self.position = if character == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        self.position
    }
}

/// What was read so far, with the byte at which it stands.
#[derive(Default)]
struct Reader {
    daemon: DaemonSettings,
    rules: Vec<(usize, Rule)>,
    errors: Vec<(usize, Problem)>,
}

impl Reader {
    fn error(&mut self, at: &Value<'_>, problem: Problem) {
        self.errors.push((at.span().start, problem));
    }

    fn read(&mut self, root: &DeTable<'_>) {
        for (key, value) in self.known(root, &FILE) {
            match (key, value.get_ref()) {
                ("daemon", DeValue::Table(table)) => self.daemon(table),
                ("rule", DeValue::Array(rules)) => rules.iter().for_each(|rule| self.rule(rule)),
                ("daemon", _) => self.wrong_type(key, value, "[daemon] above its keys"),
                _ => self.wrong_type(key, value, "[[rule]] above the keys of each rule"),
            }
        }
    }

    fn daemon(&mut self, table: &DeTable<'_>) {
        for (key, value) in self.known(table, &DAEMON) {
            match key {
                "policy" => self.daemon.policy = self.parsed(key, value, |text| text.parse()),
                "interval" => self.daemon.interval = self.parsed(key, value, interval),
                "guard" => self.daemon.guard = self.word(key, value, "on|off", on_or_off),
                "waits" => self.daemon.waits = self.waits(key, value),
                "applications" => {
                    self.daemon.applications = self.word(key, value, "unit|program|process", applications);
                }
                "power-saver" => {
                    self.daemon.power_saver = self.word(key, value, "leave-alone|ignore", power_saver);
                }
                _ => self.daemon.watch = self.word(key, value, "all|matched", watch),
            }
        }
    }

    fn rule(&mut self, rule: &Value<'_>) {
        let DeValue::Table(table) = rule.get_ref() else {
            return self.wrong_type("rule", rule, "[[rule]] above the keys of each rule");
        };
        let (mut name, mut conditions, mut settings) = (None, None, Settings::default());
        for (key, value) in self.known(table, &RULE) {
            match key {
                "name" => name = Some(self.text(key, value, TEXT).unwrap_or_default()),
                "match" => conditions = Some(self.conditions(value)),
                "leave-alone" => settings.leave_alone = self.truth(key, value),
                "adapt-team" => settings.adapt_team = self.truth(key, value),
                "kinds" => settings.pes = self.kinds(key, value).map(PeChoice::Kinds).or(settings.pes),
                "pes" => settings.pes = self.parsed(key, value, pes).map(PeChoice::List).or(settings.pes),
                "policy" => settings.policy = self.parsed(key, value, policy_of_rule),
                "guard" => settings.guard = self.word(key, value, "on|off", on_or_off),
                _ => settings.waits = self.waits(key, value),
            }
        }
        let missing = [("name", NAME, name.is_none()), ("match", CONDITIONS, conditions.is_none())];
        for (key, wanted, _) in missing.into_iter().filter(|(.., is_missing)| *is_missing) {
            self.error(rule, Problem::Missing { key, wanted });
        }
        self.contradictions(table);
        let place = Place { file: "".into(), position: None };
        if let (Some(name), Some(conditions)) = (name.filter(|name| !name.is_empty()), conditions) {
            self.rules.push((rule.span().start, Rule { name, place, conditions, settings }));
        }
    }

    fn contradictions(&mut self, rule: &DeTable<'_>) {
        let is_left_alone =
            rule.get("leave-alone").is_some_and(|value| value.get_ref().as_bool() == Some(true));
        let is_both = |key: &str, other: &str| match key {
            "leave-alone" => is_left_alone && rule.contains_key(other),
            _ => rule.contains_key(key) && rule.contains_key(other),
        };
        let alone = "what is left alone has no other settings; remove one";
        for (key, other, remedy) in [
            ("kinds", "pes", "both say which PEs; remove one"),
            ("leave-alone", "kinds", alone),
            ("leave-alone", "pes", alone),
            ("leave-alone", "waits", alone),
            ("leave-alone", "policy", alone),
            ("leave-alone", "guard", alone),
            ("leave-alone", "adapt-team", alone),
        ] {
            if is_both(key, other) {
                self.error(&rule[other], Problem::Contradiction { key, other, remedy });
            }
        }
    }

    fn conditions(&mut self, value: &Value<'_>) -> Vec<Condition> {
        let DeValue::Table(table) = value.get_ref() else {
            self.wrong_type("match", value, CONDITIONS);
            return Vec::new();
        };
        if table.is_empty() {
            self.empty("match", value, CONDITIONS);
        }
        let mut conditions = Vec::new();
        for (key, value) in self.known(table, &MATCH) {
            let patterns = self.texts(key, value);
            for (value, pattern) in &patterns {
                if let Err(cause) = can_match(key, pattern) {
                    self.error(value, Problem::Value { key: key.to_owned(), cause });
                }
            }
            let fact = Fact::ALL.into_iter().find(|fact| fact.word() == key);
            let patterns = patterns.into_iter().map(|(_, pattern)| pattern).collect();
            conditions.extend(fact.map(|fact| Condition { fact, patterns }));
        }
        conditions.sort_by_key(|condition| condition.fact);
        conditions
    }

    fn kinds(&mut self, key: &str, value: &Value<'_>) -> Option<Vec<String>> {
        let kinds = self.texts(key, value);
        let mut names = Vec::new();
        for (value, word) in kinds {
            let is_mid = || word.strip_prefix("mid").is_some_and(|number| number.parse::<u32>().is_ok());
            if matches!(word.as_str(), "fast" | "slow") || is_mid() {
                names.push(word);
            } else {
                let known = "fast, slow, or mid1, mid2 … on machines with more kinds (`corewise topo`)";
                self.error(value, Problem::Word { key: key.to_owned(), word, known });
            }
        }
        (!names.is_empty()).then_some(names)
    }

    fn waits(&mut self, key: &str, value: &Value<'_>) -> Option<WaitChanges> {
        self.word(key, value, WaitChanges::WORDS, WaitChanges::from_word)
    }

    fn truth(&mut self, key: &str, value: &Value<'_>) -> bool {
        value.get_ref().as_bool().unwrap_or_else(|| {
            self.wrong_type(key, value, "true or false");
            false
        })
    }

    /// Takes one of a few words.
    fn word<T>(
        &mut self,
        key: &str,
        value: &Value<'_>,
        known: &'static str,
        meaning: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let word = self.text(key, value, &format!("{known}, in quotation marks"))?;
        let found = meaning(&word);
        if found.is_none() {
            self.error(value, Problem::Word { key: key.to_owned(), word, known });
        }
        found
    }

    /// Takes a text with a meaning.
    fn parsed<T, E: ToString>(
        &mut self,
        key: &str,
        value: &Value<'_>,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let parsed = parse(&self.text(key, value, TEXT)?);
        let tell = |error: E| {
            self.error(value, Problem::Value { key: key.to_owned(), cause: error.to_string() });
        };
        parsed.map_err(tell).ok()
    }

    /// Takes texts, at least one.
    fn texts<'v, 'i>(&mut self, key: &str, value: &'v Value<'i>) -> Vec<(&'v Value<'i>, String)> {
        let DeValue::Array(list) = value.get_ref() else {
            return self.text(key, value, TEXTS).map(|text| (value, text)).into_iter().collect();
        };
        if list.is_empty() {
            self.empty(key, value, TEXTS);
        }
        list.iter().filter_map(|item| Some((item, self.text(key, item, TEXTS)?))).collect()
    }

    /// Takes a text that is not empty.
    fn text(&mut self, key: &str, value: &Value<'_>, wanted: &str) -> Option<String> {
        match value.get_ref().as_str() {
            Some("") => self.empty(key, value, wanted),
            Some(text) => return Some(text.to_owned()),
            None => self.wrong_type(key, value, wanted),
        }
        None
    }

    fn empty(&mut self, key: &str, value: &Value<'_>, wanted: &str) {
        self.error(value, Problem::Empty { key: key.to_owned(), wanted: wanted.to_owned() });
    }

    fn wrong_type(&mut self, key: &str, value: &Value<'_>, wanted: &str) {
        let found = match value.get_ref() {
            DeValue::String(_) => "a text",
            DeValue::Integer(_) | DeValue::Float(_) => "a number",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.error(value, Problem::Type { key: key.to_owned(), found, wanted: wanted.to_owned() });
    }

    /// Returns the known keys of a table with their values, and reports the other keys.
    fn known<'t, 'i>(&mut self, table: &'t DeTable<'i>, kind: &Kind) -> Vec<(&'static str, &'t Value<'i>)> {
        let mut entries = Vec::new();
        for (key, value) in table {
            match kind.keys.iter().find(|known| **known == key.get_ref().as_ref()) {
                Some(known) => entries.push((*known, value)),
                None => self.errors.push((key.span().start, stranger(key.get_ref(), kind))),
            }
        }
        entries
    }
}

/// What is wrong with a key that a table does not have.
fn stranger(key: &str, table: &Kind) -> Problem {
    let all = [&DAEMON, &RULE, &MATCH].into_iter().chain(&NOWHERE);
    let key = key.to_owned();
    if let Some(home) = all.into_iter().find(|kind| kind.keys.contains(&key.as_str())) {
        return Problem::Misplaced { table: table.name, key, remedy: home.elsewhere };
    }
    // The distance takes as much time and memory as the key is long.
    let beginning: String = key.chars().take(64).collect();
    let distance = |known: &&&str| strsim::damerau_levenshtein(&beginning, known);
    let nearest = table.keys.iter().min_by_key(distance).copied().unwrap_or_default();
    Problem::UnknownKey { table: table.name, key, nearest, known: table.keys.to_vec() }
}

/// Refuses patterns that can describe nothing.
fn can_match(key: &str, pattern: &str) -> Result<(), String> {
    let is_build_id = |c: char| matches!(c, '0'..='9' | 'a'..='f' | '*' | '?');
    match key {
        "build-id" if !pattern.chars().all(is_build_id) => {
            Err(format!("`{pattern}` describes no build id: those are hexadecimal, in small letters"))
        }
        "cgroup" if !pattern.starts_with(['/', '*', '?']) => {
            Err(format!("`{pattern}` describes no control group: their paths begin with /"))
        }
        _ => Ok(()),
    }
}

/// A policy for some programs beside that of the daemon.
fn policy_of_rule(text: &str) -> Result<PolicySpec, String> {
    let name = if text == NONE { DEFAULT.name } else { text };
    let policy: PolicySpec = name.parse().map_err(|error: PolicyError| error.to_string())?;
    match PolicyKind::find(policy.name()) {
        Ok(kind) if !kind.takes_command() => Ok(policy),
        _ => Err(format!("`{text}` is a command: a rule names a policy of corewise, or {NONE}")),
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text).map_err(|error| error.to_string())?;
    if interval < INTERVAL_MIN {
        return Err(format!("`{text}` is too short: the shortest interval is {INTERVAL_MIN:?}"));
    }
    Ok(interval)
}

fn pes(text: &str) -> Result<CpuSet, String> {
    let pes: CpuSet = text.parse().map_err(|error: corewise_core::cpuset::CpuSetError| error.to_string())?;
    if pes.is_empty() { Err(format!("`{text}` is no PE: write for instance 0-3")) } else { Ok(pes) }
}

fn on_or_off(word: &str) -> Option<bool> {
    [("on", true), ("off", false)].into_iter().find_map(|(known, is_on)| (known == word).then_some(is_on))
}

fn applications(word: &str) -> Option<Applications> {
    let known = [
        ("unit", Applications::Unit),
        ("program", Applications::Program),
        ("process", Applications::Process),
    ];
    known.into_iter().find_map(|(known, applications)| (known == word).then_some(applications))
}

fn power_saver(word: &str) -> Option<PowerSaver> {
    let known = [("leave-alone", PowerSaver::LeaveAlone), ("ignore", PowerSaver::Ignore)];
    known.into_iter().find_map(|(known, power_saver)| (known == word).then_some(power_saver))
}

fn watch(word: &str) -> Option<Watch> {
    let known = [("all", Watch::All), ("matched", Watch::Matched)];
    known.into_iter().find_map(|(known, watch)| (known == word).then_some(watch))
}
