//! Limits on the clocks of PEs, each recorded before it is set, and restored when they are dropped, by the
//! guardian, or by the next start.

use crate::act_token::ActToken;
use crate::frequency::{self, Limit, Lowered};
use crate::guardian::Guardian;
use crate::heartbeat::IfHung;
use crate::ledger::{Entry, Ledger};
use std::io;
use std::path::{Path, PathBuf};

/// Limits that are set on and off. Dropping restores everything.
#[derive(Debug)]
pub struct Limits {
    system: PathBuf,
    limits: Vec<Limit>,
    token: ActToken,
    ledger: Ledger,
    /// `None` only during drop.
    guardian: Option<Guardian>,
}

impl Limits {
    /// Starts a guardian and records what will be changed. Changes nothing yet.
    pub fn open(system: &Path, limits: Vec<Limit>) -> io::Result<Limits> {
        let (guardian, mut ledger) = (Guardian::start(IfHung::LetBe)?, Ledger::default());
        for &Limit { pe, original_khz, khz } in &limits {
            let entry = Entry::Lowered(Lowered { pe, original_khz, ours_khz: khz });
            ledger.note(entry.clone());
            guardian.changes().record(&entry).map_err(io::Error::other)?;
        }
        let (system, token) = (system.to_owned(), ActToken::mint());
        Ok(Limits { system, limits, token, ledger, guardian: Some(guardian) })
    }

    /// Sets the limits, or the previous values.
    pub fn set(&self, on: bool) -> io::Result<()> {
        for limit in &self.limits {
            let khz = if on { limit.khz } else { limit.original_khz };
            frequency::set(&self.token, &self.system, limit.pe, khz)?;
        }
        Ok(())
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        let restored = |lowered: &Lowered| lowered.restore(&self.system, &self.token).is_ok();
        // Each is tried. Otherwise the guardian sees its socket close, and continues.
        let failed = self.ledger.lowered().iter().filter(|lowered| !restored(lowered)).count();
        if let Some(guardian) = self.guardian.take().filter(|_| failed == 0) {
            guardian.dismiss();
        }
    }
}
