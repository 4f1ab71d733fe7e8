//! What may be changed about how threads wait: in the words of users.

use crate::plan::SettingKind;
use serde::{Deserialize, Serialize};

/// What may be changed about waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Mitigations {
    /// Idle threads may spin for a shorter time.
    pub spin: bool,
    /// Programs may take turns.
    pub turns: bool,
}

impl Mitigations {
    /// Nothing.
    pub const NONE: Mitigations = Mitigations { spin: false, turns: false };

    /// Everything.
    pub const ALL: Mitigations = Mitigations { spin: true, turns: true };

    /// The words that users write.
    pub const WORDS: &str = "off|spin|turns|auto";

    /// Returns what a word means: nothing, one of both, or both.
    pub fn from_word(word: &str) -> Option<Mitigations> {
        let all = [(false, false), (true, false), (false, true), (true, true)];
        let mut all = all.into_iter().map(|(spin, turns)| Mitigations { spin, turns });
        all.find(|mitigations| mitigations.word() == word)
    }

    /// Returns the word for it.
    pub fn word(self) -> &'static str {
        match (self.spin, self.turns) {
            (false, false) => "off",
            (true, false) => "spin",
            (false, true) => "turns",
            (true, true) => "auto",
        }
    }

    /// Returns whether anything may be changed.
    pub fn any(self) -> bool {
        self.spin || self.turns
    }

    /// Returns what both permit.
    pub fn and(self, other: Mitigations) -> Mitigations {
        Mitigations { spin: self.spin && other.spin, turns: self.turns && other.turns }
    }

    /// Returns whether a setting of this kind may be changed; those that are not of waits may.
    pub fn permit(self, kind: SettingKind) -> bool {
        match kind {
            SettingKind::SpinCount => self.spin,
            SettingKind::Turns => self.turns,
            SettingKind::Weight => true,
        }
    }
}
