//! What may be changed about how threads wait: in the words of users.

use crate::plan::SettingKind;
use serde::{Deserialize, Serialize};

/// What may be changed about waits: they may become short, or programs may take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WaitChanges {
    /// Idle threads may spin for a shorter time.
    pub spin: bool,
    /// Programs may take turns.
    pub turns: bool,
}

impl WaitChanges {
    /// Nothing.
    pub const NONE: WaitChanges = WaitChanges { spin: false, turns: false };

    /// Everything.
    pub const ALL: WaitChanges = WaitChanges { spin: true, turns: true };

    /// The words that users write.
    pub const WORDS: &str = "off|spin|turns|auto";

    /// Returns what a word means: nothing, one of both, or both.
    pub fn from_word(word: &str) -> Option<WaitChanges> {
        let all = [(false, false), (true, false), (false, true), (true, true)];
        let mut all = all.into_iter().map(|(spin, turns)| WaitChanges { spin, turns });
        all.find(|changes| changes.word() == word)
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
    pub fn and(self, other: WaitChanges) -> WaitChanges {
        WaitChanges { spin: self.spin && other.spin, turns: self.turns && other.turns }
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
