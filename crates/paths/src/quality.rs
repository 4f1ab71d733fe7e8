//! Whether the windows suffice for a profile.
//!
//! Problem: a recording must end at some time. If it ends too early, the profile depends on chance; if too
//! late, nobody waits for it. How many windows suffice depends on the program: a loop needs some hundreds, an
//! interpreter ten thousand. Approach: three properties of the windows of the module, each with its limit.
//!
//! 1. *Windows*: at least [`WINDOWS_MIN`].
//! 2. *Coverage*: the probability that the next taken transfer has been seen before. By Good and Turing it is
//!    1 - n1/n, where n1 of the n transfers in the windows were seen in one window only.
//! 3. *Stability*: the agreement of two halves of the windows, as the overlap of their transfers' shares.
//!    Each half has half the windows, so the whole agrees better with the truth than the halves with each
//!    other.
//!
//! Source: I. J. Good, "The Population Frequencies of Species", Biometrika 40, 1953. Limits: inputs that were
//! not run are not considered.

use crate::accuracy::overlap;
use crate::window::{Location, ModuleId, Transfer, Window};
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt::{Display, Formatter};

/// The minimum number of windows of a module. The other two conditions do not show everything that windows
/// lack: of four programs (Lua, mujs, tcc, serd; `studies/pgo/windows`), compilers gained 4.1 % by 1,000
/// windows, 5.8 % by 3,000 and 7.6 % by 10,000, though 1,572 of Lua met both. 3,000 take six seconds at the
/// rate of `corewise pgo`; the last two points would cost another fourteen.
pub const WINDOWS_MIN: usize = 3000;
/// The minimum coverage.
pub const COVERAGE_MIN: f64 = 0.98;
/// The minimum stability.
pub const STABILITY_MIN: f64 = 0.9;

/// The quality of the windows of a module.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quality {
    /// The number of windows with at least one taken transfer out of the module.
    pub windows: usize,
    /// The probability that the next transfer has been seen, 0 to 1.
    pub coverage: f64,
    /// The overlap of two halves of the windows, 0 to 1.
    pub stability: f64,
}

impl Quality {
    /// Evaluates the windows of a module. The halves are the even and the odd windows.
    pub fn of(windows: &[Window], module: ModuleId) -> Quality {
        let mut halves: [FxHashMap<(Location, Location), f64>; 2] = Default::default();
        let mut windows_with: FxHashMap<(Location, Location), usize> = FxHashMap::default();
        let (mut count, mut transfers) = (0, 0);
        for window in windows {
            let of_module = window.transfers.iter().filter(|transfer| transfer.from.module == module);
            let mut different = FxHashSet::default();
            for Transfer { from, to } in of_module {
                *halves[count % 2].entry((*from, *to)).or_default() += 1.0;
                different.insert((*from, *to));
            }
            count += usize::from(!different.is_empty());
            transfers += different.len();
            different.into_iter().for_each(|edge| *windows_with.entry(edge).or_default() += 1);
        }
        let once = windows_with.values().filter(|&&windows| windows == 1).count();
        let total = |half: &FxHashMap<_, f64>| half.values().sum();
        let [one, other] = &halves;
        Quality {
            windows: count,
            coverage: if transfers == 0 { 0.0 } else { 1.0 - once as f64 / transfers as f64 },
            stability: overlap(one, total(one), other, total(other)),
        }
    }

    /// Returns whether more windows would change little.
    pub fn is_enough(&self) -> bool {
        self.windows >= WINDOWS_MIN && self.coverage >= COVERAGE_MIN && self.stability >= STABILITY_MIN
    }
}

impl Display for Quality {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        // Rounded down, so that a value below a limit never looks as if it reached it.
        let percent = |share: f64| (1000.0 * share).floor() / 10.0;
        write!(
            f,
            "{} windows (wanted {WINDOWS_MIN}), {:.1} % of the transfers seen before (wanted {}), halves \
             agree to {:.1} % (wanted {})",
            self.windows,
            percent(self.coverage),
            100.0 * COVERAGE_MIN,
            percent(self.stability),
            100.0 * STABILITY_MIN
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::{Decide, Op, World};
    use corewise_core::random::Random;

    const MODULE: ModuleId = ModuleId(0);

    fn windows(world: &World, count: usize) -> Vec<Window> {
        let trace = world.run(&mut Random::new(1, 1), 1_000_000);
        world.windows(&trace, &mut Random::new(1, 2), count, 32)
    }

    #[test]
    fn a_loop_is_known_soon_and_a_large_program_is_not() {
        let half = Decide::Chance(0.5);
        let looping = World::new(&[(0, vec![Op::Plain(2), Op::Branch(0, half), Op::Plain(1), Op::Jump(0)])]);
        assert!(Quality::of(&windows(&looping, WINDOWS_MIN), MODULE).is_enough());
        let few = Quality::of(&windows(&looping, WINDOWS_MIN - 1), MODULE);
        assert!(!few.is_enough() && few.coverage > COVERAGE_MIN && few.stability > STABILITY_MIN, "{few}");

        let large = World::random(1, 200, false);
        let (little, much) = (windows(&large, 60), windows(&large, 6000));
        let (little, much) = (Quality::of(&little, MODULE), Quality::of(&much, MODULE));
        assert!(little.coverage < much.coverage && little.stability < much.stability, "{little}; {much}");
    }

    #[test]
    fn windows_that_have_nothing_in_common_cover_nothing() {
        let looping = World::new(&[(0, vec![Op::Plain(2), Op::Jump(0)])]);
        let mut windows = windows(&looping, 2 * WINDOWS_MIN);
        for (index, window) in windows.iter_mut().enumerate() {
            window.transfers.truncate(1);
            window.transfers[0].from.address = 0x10_000 * index as u64;
        }
        let quality = Quality::of(&windows, MODULE);
        assert_eq!((quality.windows, quality.coverage), (2 * WINDOWS_MIN, 0.0));
        assert_eq!(quality.stability, 0.0);
        let elsewhere = Quality::of(&windows, ModuleId(7));
        assert_eq!(elsewhere, Quality { windows: 0, coverage: 0.0, stability: 0.0 });
    }
}
