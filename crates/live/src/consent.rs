//! What may be done with a process, where not everything may.

use corewise_core::cpuset::CpuSet;
use corewise_core::observe::{ProcessReading, Standing, Treatment};
use std::sync::Arc;

/// Where the threads of a process may be placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Where {
    /// Wherever their user permits.
    Anywhere,
    /// Among these PEs.
    Among(CpuSet),
    /// They are left alone.
    Nowhere,
}

/// Limits what is done with processes.
pub trait Consent {
    /// Returns the PEs that are reserved for others now: no thread is placed there.
    fn reserved(&mut self) -> CpuSet;

    /// Returns where the threads of a process may be placed.
    fn to_placement(&mut self, pid: u32) -> Where;

    /// Returns whether it may be changed how the threads of a process wait.
    fn to_waits(&mut self, pid: u32) -> bool;

    /// Returns what rules say about how the threads of a process are placed, if they do.
    fn treatment(&mut self, pid: u32) -> Option<Arc<Treatment>>;

    /// The process has begun, executed another program, or ended: what was found out about it holds no more.
    fn forget(&mut self, pid: u32);
}

/// Returns those of the PEs on which threads may be placed: none if all are reserved.
pub fn unreserved(consent: Option<&mut (dyn Consent + 'static)>, allowed: &CpuSet) -> CpuSet {
    consent.map_or_else(|| allowed.clone(), |consent| allowed.difference(&consent.reserved()))
}

/// Returns a thread's standing and the PEs that it may use, with consent.
pub fn limited(
    consent: Option<&mut (dyn Consent + 'static)>,
    pid: u32,
    standing: Standing,
    permitted: Arc<CpuSet>,
) -> (Standing, Arc<CpuSet>) {
    let Some(consent) = consent else { return (standing, permitted) };
    match (consent.to_placement(pid), standing) {
        (Where::Nowhere, Standing::Free | Standing::Bound) => (Standing::LeftAlone, permitted),
        (Where::Anywhere | Where::Nowhere, _) => (standing, permitted),
        (Where::Among(pes), _) if permitted.is_subset(&pes) => (standing, permitted),
        (Where::Among(pes), _) => (standing, Arc::new(permitted.intersection(&pes))),
    }
}

/// Returns a process's reading, with consent to change how its threads wait.
pub fn with_waits(consent: Option<&mut (dyn Consent + 'static)>, reading: ProcessReading) -> ProcessReading {
    let left_alone = consent.is_some_and(|consent| !consent.to_waits(reading.leader.tid));
    ProcessReading { left_alone, ..reading }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_core::ids::PeId;

    struct To(Where);

    impl Consent for To {
        fn reserved(&mut self) -> CpuSet {
            CpuSet::single(PeId(1))
        }

        fn to_placement(&mut self, _pid: u32) -> Where {
            self.0.clone()
        }

        fn to_waits(&mut self, _pid: u32) -> bool {
            true
        }

        fn treatment(&mut self, _pid: u32) -> Option<Arc<Treatment>> {
            None
        }

        fn forget(&mut self, _pid: u32) {}
    }

    fn check(consent: Where, standing: Standing) -> (Standing, String) {
        let permitted = Arc::new("0-3".parse().unwrap());
        let (standing, permitted) = limited(Some(&mut To(consent)), 1, standing, permitted);
        (standing, permitted.to_string())
    }

    #[test]
    fn reserved_pes_are_not_allowed_even_if_nothing_remains() {
        let left = |allowed: &str| unreserved(Some(&mut To(Where::Anywhere)), &allowed.parse().unwrap());
        assert_eq!((left("0-2"), left("1")), ("0,2".parse().unwrap(), CpuSet::new()));
        assert_eq!(unreserved(None, &CpuSet::first_n(2)), CpuSet::first_n(2));
    }

    #[test]
    fn a_thread_is_placed_within_what_is_consented_to() {
        let among = |pes: &str| Where::Among(pes.parse().unwrap());
        assert_eq!(check(among("2-9"), Standing::Free), (Standing::Free, "2-3".to_owned()));
        assert_eq!(check(among("0-9"), Standing::Bound), (Standing::Bound, "0-3".to_owned()));
        assert_eq!(check(Where::Anywhere, Standing::Bound), (Standing::Bound, "0-3".to_owned()));
    }

    #[test]
    fn a_thread_without_consent_is_left_alone() {
        assert_eq!(check(Where::Nowhere, Standing::Bound), (Standing::LeftAlone, "0-3".to_owned()));
        assert_eq!(check(Where::Nowhere, Standing::Free), (Standing::LeftAlone, "0-3".to_owned()));
        assert_eq!(check(Where::Nowhere, Standing::SelfPinned), (Standing::SelfPinned, "0-3".to_owned()));
    }
}
