//! What can be wrong with rules.

use std::fmt;
use std::sync::Arc;

/// Where in which file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file.
    pub file: Arc<str>,
    /// The line and the column (in characters), both from 1; `None` for the whole file.
    pub position: Option<(usize, usize)>,
}

/// Something wrong at a place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct RuleError {
    /// The place.
    pub place: Place,
    /// What is wrong there.
    pub problem: Problem,
}

/// Everything that is wrong, at least one error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.shown())]
pub struct RuleErrors(pub Vec<RuleError>);

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file cannot be read.
    #[error("cannot read it: {cause}")]
    Unreadable {
        /// The system's error.
        cause: String,
    },
    /// The file is no text.
    #[error("the byte 0x{byte:02x} is not UTF-8: save the file as UTF-8")]
    NotText {
        /// The first byte that cannot be there.
        byte: u8,
    },
    /// The file is no TOML.
    #[error("this is not TOML: {message}")]
    Syntax {
        /// The parser's message.
        message: String,
    },
    /// There is no such key.
    #[error("{table} has no key `{key}`; the nearest is `{nearest}`; it has {}", known.join(", "))]
    UnknownKey {
        /// The table.
        table: &'static str,
        /// The key as written.
        key: String,
        /// The known key with the most similar name.
        nearest: &'static str,
        /// All known keys.
        known: Vec<&'static str>,
    },
    /// The key is known, but it belongs elsewhere.
    #[error("`{key}` does not belong to {table}: {remedy}")]
    Misplaced {
        /// The table.
        table: &'static str,
        /// The key.
        key: String,
        /// Where it belongs, and why.
        remedy: &'static str,
    },
    /// The value is of another type.
    #[error("`{key}` is {found}: write {wanted}")]
    Type {
        /// The key.
        key: String,
        /// What was found.
        found: &'static str,
        /// What is wanted.
        wanted: String,
    },
    /// The value is an empty text, list or table.
    #[error("`{key}` is empty: write {wanted}")]
    Empty {
        /// The key.
        key: String,
        /// What is wanted.
        wanted: String,
    },
    /// The value is not one of a few words.
    #[error("`{key}` cannot be `{word}`: write {known}")]
    Word {
        /// The key.
        key: String,
        /// The word as written.
        word: String,
        /// The known words.
        known: &'static str,
    },
    /// The value has no meaning.
    #[error("`{key}`: {cause}")]
    Value {
        /// The key.
        key: String,
        /// What is wrong, with the value as written.
        cause: String,
    },
    /// A key is missing.
    #[error("this rule has no `{key}`: write {wanted}")]
    Missing {
        /// The key.
        key: &'static str,
        /// What is wanted.
        wanted: &'static str,
    },
    /// Two settings of a rule contradict each other.
    #[error("`{key}` and `{other}` contradict each other: {remedy}")]
    Contradiction {
        /// The one.
        key: &'static str,
        /// The other.
        other: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// An earlier rule has the same name.
    #[error("another rule is called `{name}`, too ({first}): rename one of them")]
    SameName {
        /// The name.
        name: String,
        /// The earlier rule.
        first: Place,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        self.position.map_or(Ok(()), |(line, column)| write!(f, ":{line}:{column}"))
    }
}

impl RuleErrors {
    fn shown(&self) -> String {
        let errors: Vec<String> = self.0.iter().map(RuleError::to_string).collect();
        match errors.as_slice() {
            [one] => one.clone(),
            all => format!("the rules have {} errors:\n{}", all.len(), all.join("\n")),
        }
    }
}
