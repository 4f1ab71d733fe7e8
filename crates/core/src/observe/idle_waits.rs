//! How the idle threads of a process wait: a set, as its runtime libraries need not be of one kind.

use serde::{Deserialize, Serialize};

/// How the idle threads of one runtime library wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdleWait {
    /// In a way that cannot be changed, as far as is known.
    Fixed,
    /// They spin for a number of iterations that can be changed from outside (GNU's OpenMP).
    Adaptable,
    /// They poll, and can be made to yield their PE meanwhile from outside (Open MPI). They never block.
    MayYield,
    /// They yield their PE while they spin (LLVM's and Intel's OpenMP).
    Yield,
}

impl IdleWait {
    /// Every way.
    pub const ALL: [IdleWait; 4] =
        [IdleWait::Fixed, IdleWait::Adaptable, IdleWait::MayYield, IdleWait::Yield];

    /// Returns whether it can be changed from outside.
    fn is_adaptable(self) -> bool {
        matches!(self, IdleWait::Adaptable | IdleWait::MayYield)
    }
}

/// The ways in which the idle threads of a process wait, by the runtime libraries that it has loaded: one at
/// least. (In recordings a single one is written as a word, several as a list.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct IdleWaits(u8);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    One(IdleWait),
    Several(Vec<IdleWait>),
}

impl IdleWaits {
    /// Returns whether some wait in this way.
    pub fn contains(self, way: IdleWait) -> bool {
        self.0 & 1 << way as u8 != 0
    }

    /// Returns whether any of them can be changed from outside.
    pub fn is_adaptable(self) -> bool {
        self.iter().any(IdleWait::is_adaptable)
    }

    /// Returns whether some yield their PE, so that their spinning takes it from nobody: by themselves, or
    /// once they were made to.
    pub fn may_yield(self) -> bool {
        self.contains(IdleWait::Yield) || self.contains(IdleWait::MayYield)
    }

    /// Returns whether all that is known to spin yields by itself.
    pub fn only_yields(self) -> bool {
        self.contains(IdleWait::Yield) && !self.is_adaptable()
    }

    /// Returns the same if nothing may be changed.
    pub fn fixed(self) -> IdleWaits {
        let fixed = |way: IdleWait| if way.is_adaptable() { IdleWait::Fixed } else { way };
        self.iter().map(fixed).collect()
    }

    fn iter(self) -> impl Iterator<Item = IdleWait> {
        IdleWait::ALL.into_iter().filter(move |way| self.contains(*way))
    }
}

/// Of a process with no known library.
impl Default for IdleWaits {
    fn default() -> IdleWaits {
        IdleWait::Fixed.into()
    }
}

impl From<IdleWait> for IdleWaits {
    fn from(way: IdleWait) -> IdleWaits {
        IdleWaits(1 << way as u8)
    }
}

impl FromIterator<IdleWait> for IdleWaits {
    fn from_iter<I: IntoIterator<Item = IdleWait>>(ways: I) -> IdleWaits {
        let all = ways.into_iter().map(IdleWaits::from).reduce(|all, way| IdleWaits(all.0 | way.0));
        all.unwrap_or_default()
    }
}

impl From<Written> for IdleWaits {
    fn from(written: Written) -> IdleWaits {
        match written {
            Written::One(way) => way.into(),
            Written::Several(ways) => ways.into_iter().collect(),
        }
    }
}

impl From<IdleWaits> for Written {
    fn from(waits: IdleWaits) -> Written {
        let ways: Vec<IdleWait> = waits.iter().collect();
        if let [way] = ways[..] { Written::One(way) } else { Written::Several(ways) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_hold_one_way_as_a_word_and_several_as_a_list() {
        let both: IdleWaits = [IdleWait::Yield, IdleWait::Adaptable].into_iter().collect();
        for (waits, text) in [
            (IdleWaits::default(), r#""fixed""#),
            (IdleWait::MayYield.into(), r#""may_yield""#),
            (both, r#"["adaptable","yield"]"#),
        ] {
            assert_eq!(serde_json::to_string(&waits).unwrap(), text);
            assert_eq!(serde_json::from_str::<IdleWaits>(text).unwrap(), waits);
        }
        assert_eq!(serde_json::from_str::<IdleWaits>("[]").unwrap(), IdleWaits::default());
        assert!(serde_json::from_str::<IdleWaits>(r#"["eager"]"#).is_err());
    }

    #[test]
    fn no_way_hides_another() {
        let all: IdleWaits = IdleWait::ALL.into_iter().collect();
        assert!(IdleWait::ALL.into_iter().all(|way| all.contains(way)));
        assert!(all.is_adaptable() && all.may_yield() && !all.only_yields());
        let fixed: IdleWaits = [IdleWait::Fixed, IdleWait::Yield].into_iter().collect();
        assert_eq!(all.fixed(), fixed);
        assert!(fixed.only_yields() && !IdleWaits::default().only_yields());
    }
}
