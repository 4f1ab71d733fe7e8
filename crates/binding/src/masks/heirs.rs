//! Gives threads that inherit the mask of a bound thread their own masks back before they look at them.
//!
//! Problem: a program sizes itself by its mask, for good, and what a bound thread starts has the narrow one
//! until somebody gives it back: the loop may be busy for milliseconds. Approach: the kernel names each heir
//! before it runs ([`corewise_discovery::heirs`]), and a thread that does nothing else, with a real-time
//! priority if permitted, restores its mask. This only widens masks, so no journal is needed. The loop keeps
//! the books afterwards. Limit: an heir that asks within microseconds of its start may be faster
//! (`docs/contract.md` has figures).

use crate::act_token::ActToken;
use crate::mask;
use crate::sched_policy;
use corewise_core::cpuset::CpuSet;
use corewise_discovery::heirs::{self, Heir};
use corewise_sys::affinity;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The number of different masks that can be given back in time.
const MASKS_MAX: usize = 1024;

/// The bound threads, and the thread that waits for heirs; see the module documentation.
pub struct Heirs {
    bound: heirs::Heirs,
    masks: Arc<Masks>,
    ends: Arc<AtomicBool>,
}

/// Masks by number. They are never changed, so the thread that waits needs no lock.
struct Masks(Vec<OnceLock<CpuSet>>);

impl Masks {
    fn number_of(&self, mask: &CpuSet) -> Option<u32> {
        // A free place can be taken: only one thread adds masks.
        self.0.iter().position(|known| known.get_or_init(|| mask.clone()) == mask).map(|place| place as u32)
    }

    fn get(&self, number: u32) -> Option<&CpuSet> {
        self.0.get(number as usize)?.get()
    }
}

impl Heirs {
    /// Starts to wait.
    pub fn start(bound: heirs::Heirs) -> io::Result<Heirs> {
        let masks = Arc::new(Masks(std::iter::repeat_with(OnceLock::new).take(MASKS_MAX).collect()));
        let ends = Arc::new(AtomicBool::new(false));
        let (waiting, given, ending) = (bound.try_clone()?, masks.clone(), ends.clone());
        std::thread::Builder::new().name("heirs".to_owned()).spawn(move || {
            let token = ActToken::mint();
            let _first = sched_policy::run_first();
            // If it fails, the next observation shows inherited masks.
            let _ = waiting.wait(&ending, |heir| give_back(&token, &given, heir));
        })?;
        Ok(Heirs { bound, masks, ends })
    }

    /// Enters a thread that is about to be bound, or was moved: then both masks are the same.
    pub fn enter(&self, tid: u32, ours: &CpuSet, original: &CpuSet) {
        if let (Some(ours), Some(original)) = (self.masks.number_of(ours), self.masks.number_of(original)) {
            // If there are too many, the next observation shows inherited masks.
            let _ = self.bound.enter(tid, ours, original);
        }
    }

    /// Removes a thread that has its own mask again.
    pub fn remove(&self, tid: u32) {
        self.bound.remove(tid);
    }
}

fn give_back(token: &ActToken, masks: &Masks, heir: Heir) {
    if let (Some(ours), Some(original)) = (masks.get(heir.ours), masks.get(heir.original))
        && affinity::get(heir.tid).is_ok_and(|mask| mask == *ours)
    {
        // It may have ended; whatever else fails shows at the next observation.
        let _ = mask::set(token, heir.tid, original);
    }
}

impl Drop for Heirs {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}
