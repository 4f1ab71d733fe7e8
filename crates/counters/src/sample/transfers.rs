//! Where the transfers of a process through pointers have led, and what work was met there: see
//! [`super::beyond`].

use super::ahead::{Ahead, Usual};
use rustc_hash::FxHashMap;

/// Sites that are kept of a process; beyond, all are forgotten.
const SITES_MAX: usize = 1 << 12;

/// So often must a transfer through a pointer have led to one place to be taken for a direct one.
const ALWAYS: u32 = 4;

/// So many windows must be known to speak for others: of the same site, of all jumps.
const OF_SITE_MIN: f64 = 4.0;
const OF_JUMPS_MIN: f64 = 16.0;

/// The work ahead of an instruction: in its window, and beyond it.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkAhead {
    /// Floating-point work.
    pub fp: Ahead,
    /// Vector work.
    pub vector: Ahead,
}

/// Where a process's transfers through pointers have led.
#[derive(Debug, Default)]
pub struct Transfers {
    sites: FxHashMap<u64, Site>,
    jumps: Pool,
}

#[derive(Debug, Default)]
struct Site {
    /// How often it was seen to lead somewhere, and where, if always to the same place.
    seen: u32,
    only: Option<u64>,
    windows: Pool,
}

/// Windows at targets.
#[derive(Debug, Default)]
struct Pool {
    fp: Usual,
    vector: Usual,
}

impl Pool {
    fn take(&mut self, work_ahead: &WorkAhead) {
        self.fp.take(&work_ahead.fp);
        self.vector.take(&work_ahead.vector);
    }

    fn profile(&self, samples_min: f64) -> Option<WorkAhead> {
        Some(WorkAhead { fp: self.fp.profile(samples_min)?, vector: self.vector.profile(samples_min)? })
    }
}

impl Transfers {
    /// Where the transfer at an address has always led so far.
    pub fn always(&self, site: u64) -> Option<u64> {
        self.sites.get(&site).filter(|site| site.seen >= ALWAYS)?.only
    }

    /// Whether the last transfer at an address was the one that made it sure where it always leads.
    pub fn knows_since_now(&self, site: u64) -> bool {
        self.sites.get(&site).is_some_and(|known| known.seen == ALWAYS && known.only.is_some())
    }

    /// Takes in where a transfer led, and the work there.
    pub fn learn(&mut self, site: u64, is_jump: bool, target: u64, work_ahead: &WorkAhead) {
        if self.sites.len() >= SITES_MAX {
            self.sites.clear();
        }
        let known = self.sites.entry(site).or_default();
        known.only = if known.seen == 0 { Some(target) } else { known.only.filter(|&only| only == target) };
        known.seen = known.seen.saturating_add(1);
        known.windows.take(work_ahead);
        if is_jump {
            self.jumps.take(work_ahead);
        }
    }

    /// The work that is usual behind the transfer at an address, if enough is known.
    pub fn usual(&self, site: u64, is_jump: bool) -> Option<WorkAhead> {
        let of_site = self.sites.get(&site).and_then(|known| known.windows.profile(OF_SITE_MIN));
        of_site.or_else(|| if is_jump { self.jumps.profile(OF_JUMPS_MIN) } else { None })
    }
}
