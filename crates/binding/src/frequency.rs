//! Limits on the clock of PEs, which are always restored.
//!
//! Problem: `scaling_max_freq` outlives its writer. Approach: as with masks, each change is in the journal
//! before it is made. The previous value is written back at the end, by the guardian if corewise dies, or by
//! the next start if both do. A limit is restored only while it is still ours. Drivers round the written
//! values, so a limit counts as ours if it differs by less than [`STEP`]. Limits: PEs that share one clock
//! can only be slowed together; another writer's limit within a step of ours is mistaken for ours.

use super::act_token::ActToken;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use std::io;
use std::path::{Path, PathBuf};

/// The kernel's directory of PEs.
pub const SYSTEM: &str = "/sys/devices/system/cpu";

/// The maximum rounding, in kHz: drivers without a table of frequencies round to steps of 100 MHz at most.
const STEP: u64 = 100_000;

/// A limit that can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The PE.
    pub pe: PeId,
    /// Its present limit, in kHz.
    pub original_khz: u64,
    /// The limit to set, in kHz.
    pub khz: u64,
}

/// Why a PE cannot be slowed down by its clock.
#[derive(Debug, thiserror::Error)]
pub enum FrequencyError {
    /// The machine has no means to limit the clock.
    #[error("the clock of PE {pe} cannot be limited here ({path}: {error})")]
    None {
        /// The PE.
        pe: PeId,
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The clock does not go that low.
    #[error("PE {pe} would need {wanted_ghz:.2} GHz, and its clock does not go below {lowest_ghz:.2} GHz")]
    TooLow {
        /// The PE.
        pe: PeId,
        /// The required clock, in GHz.
        wanted_ghz: f64,
        /// The lowest clock, in GHz.
        lowest_ghz: f64,
    },
    /// Other PEs share the clock.
    #[error("PE {pe} shares its clock with {others}, which should not be slowed down")]
    Shared {
        /// The PE.
        pe: PeId,
        /// The other PEs with the same clock.
        others: CpuSet,
    },
}

/// Returns the limits that would make PEs run at this share of their present speed, without changing
/// anything.
pub fn plan(system: &Path, pes: &CpuSet, speed: f64) -> Result<Vec<Limit>, FrequencyError> {
    pes.iter().map(|pe| plan_one(system, pe, pes, speed)).collect()
}

fn plan_one(system: &Path, pe: PeId, pes: &CpuSet, speed: f64) -> Result<Limit, FrequencyError> {
    let khz = |name: &str| {
        let path = file(system, pe, name);
        read_khz(&path).map_err(|error| FrequencyError::None { pe, path, error })
    };
    let (original_khz, lowest) = (khz("scaling_max_freq")?, khz("cpuinfo_min_freq")?);
    let wanted = original_khz as f64 * speed;
    if wanted < lowest as f64 {
        let (wanted_ghz, lowest_ghz) = (wanted / 1e6, lowest as f64 / 1e6);
        return Err(FrequencyError::TooLow { pe, wanted_ghz, lowest_ghz });
    }
    let text = |name: &str| std::fs::read_to_string(file(system, pe, name)).unwrap_or_default();
    // A list separated by spaces, unlike the kernel's other lists, which use commas.
    let related: CpuSet =
        text("affected_cpus").split_whitespace().filter_map(|pe| pe.parse().ok()).map(PeId).collect();
    let others = related.difference(pes);
    if !others.is_empty() {
        return Err(FrequencyError::Shared { pe, others });
    }
    let table = text("scaling_available_frequencies");
    let offered = table.split_whitespace().filter_map(|khz| khz.parse::<u64>().ok());
    let nearest = offered.min_by_key(|offered| offered.abs_diff(wanted as u64));
    Ok(Limit { pe, original_khz, khz: nearest.unwrap_or(wanted as u64) })
}

/// A limit on the clock of a PE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lowered {
    /// The PE.
    pub pe: PeId,
    /// The limit before corewise changed it, in kHz.
    pub original_khz: u64,
    /// The limit that corewise sets, in kHz.
    pub ours_khz: u64,
}

impl Lowered {
    /// Restores the limit if it is still ours. An error means that it may still be that.
    pub fn restore(&self, system: &Path, token: &ActToken) -> io::Result<()> {
        let path = file(system, self.pe, "scaling_max_freq");
        match read_khz(&path) {
            Ok(present) if present.abs_diff(self.ours_khz) <= STEP => {
                write_khz(token, &path, self.original_khz)
            }
            Ok(_) => Ok(()),
            // A PE that has gone offline meanwhile has no limit.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Sets the limit on the clock of a PE.
pub fn set(token: &ActToken, system: &Path, pe: PeId, khz: u64) -> io::Result<()> {
    write_khz(token, &file(system, pe, "scaling_max_freq"), khz)
}

fn file(system: &Path, pe: PeId, name: &str) -> PathBuf {
    system.join(format!("cpu{pe}/cpufreq/{name}"))
}

fn read_khz(path: &Path) -> io::Result<u64> {
    std::fs::read_to_string(path)?.trim().parse().map_err(io::Error::other)
}

fn write_khz(_: &ActToken, path: &Path, khz: u64) -> io::Result<()> {
    // A single write to an existing file, as the kernel handles each write separately.
    let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
    io::Write::write_all(&mut file, khz.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine whose PEs 0 and 1 have clocks of their own, and 2 and 3 share one.
    fn machine() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (pe, related) in [(0, "0"), (1, "1"), (2, "2 3"), (3, "2 3")] {
            let of_pe = directory.path().join(format!("cpu{pe}/cpufreq"));
            std::fs::create_dir_all(&of_pe).unwrap();
            for (name, text) in
                [("scaling_max_freq", "4000000"), ("cpuinfo_min_freq", "800000"), ("affected_cpus", related)]
            {
                std::fs::write(of_pe.join(name), format!("{text}\n")).unwrap();
            }
        }
        directory
    }

    fn pes(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn a_limit_is_the_share_of_the_present_one_or_there_is_a_reason_why_not() {
        let machine = machine();
        let planned = |text: &str, speed| plan(machine.path(), &pes(text), speed);
        let limit = |pe, khz| Limit { pe: PeId(pe), original_khz: 4_000_000, khz };
        assert_eq!(planned("0-1", 0.5).unwrap(), [limit(0, 2_000_000), limit(1, 2_000_000)]);
        assert_eq!(planned("2-3", 0.7).unwrap(), [limit(2, 2_800_000), limit(3, 2_800_000)]);
        let why_not = |text, speed| planned(text, speed).unwrap_err().to_string();
        assert_eq!(why_not("2", 0.7), "PE 2 shares its clock with 3, which should not be slowed down");
        assert!(why_not("0", 0.1).contains("need 0.40 GHz, and its clock does not go below 0.80 GHz"));
        assert!(why_not("4", 0.5).contains("cpu4/cpufreq/scaling_max_freq"));
        let table = machine.path().join("cpu0/cpufreq/scaling_available_frequencies");
        std::fs::write(table, "4000000 2400000 1500000 \n").unwrap();
        assert_eq!(planned("0", 0.5).unwrap(), [limit(0, 2_400_000)]);
    }

    #[test]
    fn our_limit_is_restored_even_if_the_driver_has_rounded_it() {
        let machine = machine();
        let token = ActToken::mint();
        let lower = |pe| Lowered { pe: PeId(pe), original_khz: 4_000_000, ours_khz: 2_030_000 };
        let lowered = [0, 1, 7].map(lower);
        let of = |pe| file(machine.path(), PeId(pe), "scaling_max_freq");
        write_khz(&token, &of(0), 2_100_000).unwrap();
        // Somebody else has changed it since.
        write_khz(&token, &of(1), 1_200_000).unwrap();
        lowered.iter().for_each(|lowered| lowered.restore(machine.path(), &token).unwrap());
        assert_eq!([0, 1].map(|pe| read_khz(&of(pe)).unwrap()), [4_000_000, 1_200_000]);
    }
}
