//! Reading and writing profiles, and all checks that a file must pass before its figures are used.

use super::{FORMAT, MachineProfile, Measurement, PairClass, ProfileError, VERSION};
use crate::cpuset::CpuSet;
use crate::ids::PeId;
use serde::Deserialize;

/// The fields that are checked before the rest, so that a file of a later version is reported as such.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u32,
}

/// Parses a profile and checks it: format and version, every index, every PE, every interval.
pub fn parse(json: &str) -> Result<MachineProfile, ProfileError> {
    let not_a_profile = |problem: String| ProfileError::NotAProfile { problem };
    let head: Head = serde_json::from_str(json).map_err(|error| not_a_profile(error.to_string()))?;
    if head.format != FORMAT {
        return Err(not_a_profile(format!("its format is `{}`", head.format)));
    }
    if head.version > VERSION {
        return Err(ProfileError::Version { found: head.version });
    }
    let damaged = |problem: String| ProfileError::Damaged { problem };
    let profile: MachineProfile = serde_json::from_str(json).map_err(|error| damaged(error.to_string()))?;
    profile.check().map_err(damaged)?;
    Ok(profile)
}

/// Returns the profile as indented JSON with a trailing line feed.
pub fn to_json(profile: &MachineProfile) -> String {
    // Maps with text keys, and finite or absent numbers only: always representable as JSON.
    let mut text = serde_json::to_string_pretty(profile).expect("a profile is always JSON");
    text.push('\n');
    text
}

impl MachineProfile {
    /// Returns the first inconsistency, in words.
    fn check(&self) -> Result<(), String> {
        self.reported.check().map_err(|error| error.to_string())?;
        if !self.circumstances.seconds.is_finite() || !self.circumstances.lost_share.is_finite() {
            return Err("the circumstances hold a figure that is not a number".to_owned());
        }
        self.classes.iter().try_for_each(|class| self.check_class(class))?;
        self.check_discovery()?;
        self.check_pairs()?;
        self.check_singles()
    }

    fn check_class(&self, class: &PairClass) -> Result<(), String> {
        let what = format!("the class `{}`", class.name);
        for &(a, b) in &class.measured {
            self.check_pe(&what, a)?;
            self.check_pe(&what, b)?;
        }
        match class.largest_deviation {
            Some(ratio) if !ratio.is_finite() => Err(format!("{what} has no finite deviation")),
            _ => Ok(()),
        }
    }

    fn check_discovery(&self) -> Result<(), String> {
        let Some(discovery) = &self.discovered else { return Ok(()) };
        for (index, (kind, pes)) in discovery.groups.iter().enumerate() {
            if !pes.is_subset(&self.reported.pes) || pes.len() < 2 {
                return Err(format!("the discovered {} {{{pes}}} is not a group of PEs", kind.word()));
            }
            let same_kind = discovery.groups[..index].iter().filter(|(other, _)| other == kind);
            if let Some((_, other)) = same_kind.into_iter().find(|(_, other)| other.intersects(pes)) {
                return Err(format!("the discovered {} {{{pes}}} and {{{other}}} overlap", kind.word()));
            }
        }
        Ok(())
    }

    fn check_pairs(&self) -> Result<(), String> {
        for pair in &self.pairs {
            let what = format!("the pair result of {}", pair.workload);
            self.check_index(&what, pair.class)?;
            check_amount(&what, &pair.rate)?;
            pair.delta_alone.iter().try_for_each(|delta| check_estimate(&what, delta))?;
            if let Some((first, second)) = &pair.slowdowns {
                check_amount(&what, first).and_then(|()| check_amount(&what, second))?;
            }
        }
        for delta in &self.deltas {
            let what = format!("Δ of {}", delta.subject);
            self.check_index(&what, delta.close)?;
            self.check_index(&what, delta.distant)?;
            check_estimate(&what, &delta.delta)?;
        }
        for curve in &self.contention {
            let what = format!("the contention curve of {}", curve.resource);
            self.check_index(&what, curve.class)?;
            for (duty, slowdown) in &curve.points {
                check_amount(&what, slowdown)?;
                if !(0.0..=1.0).contains(duty) {
                    return Err(format!("{what} has a point at duty {duty}"));
                }
            }
            if !curve.points.is_sorted_by(|a, b| a.0 < b.0) {
                return Err(format!("{what} has its points out of order"));
            }
        }
        Ok(())
    }

    fn check_singles(&self) -> Result<(), String> {
        for latency in &self.latencies {
            let what = format!("the latency of {}", latency.kernel.name());
            self.check_pe(&what, latency.a).and_then(|()| self.check_pe(&what, latency.b))?;
            check_amount(&what, &latency.ns)?;
        }
        for point in &self.memory {
            check_amount(&format!("{} alone", point.load), &point.rate)?;
        }
        for speed in &self.speeds {
            let what = format!("the speed of PE {}", speed.pe);
            self.check_pe(&what, speed.pe)?;
            check_amount(&what, &speed.relative)?;
        }
        for nas in &self.nas {
            let what = format!("{}.{:?}", nas.nas.name(), nas.class);
            nas.pair_class.iter().try_for_each(|&class| self.check_index(&what, class))?;
            check_amount(&what, &nas.seconds)?;
        }
        Ok(())
    }

    fn check_pe(&self, what: &str, pe: PeId) -> Result<(), String> {
        let online: &CpuSet = &self.reported.pes;
        if online.contains(pe) { Ok(()) } else { Err(format!("{what} names PE {pe} of {{{online}}}")) }
    }

    fn check_index(&self, what: &str, class: usize) -> Result<(), String> {
        let count = self.classes.len();
        if class < count { Ok(()) } else { Err(format!("{what} names class {class} of {count}")) }
    }
}

/// Checks that an interval is finite, ordered, and contains its value.
fn check_estimate(what: &str, estimate: &Measurement) -> Result<(), String> {
    let Measurement { value, low, high, .. } = estimate;
    let ordered = low <= value && value <= high;
    if ordered && low.is_finite() && high.is_finite() {
        return Ok(());
    }
    Err(format!("{what} has the interval {low} to {high} around {value}"))
}

/// Checks an amount: rates, times and ratios must also be above 0.
fn check_amount(what: &str, estimate: &Measurement) -> Result<(), String> {
    check_estimate(what, estimate)?;
    if estimate.low >= 0.0 { Ok(()) } else { Err(format!("{what} is below 0: {}", estimate.low)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::fixture::{GOOD, full};
    use crate::topology::DomainKind;

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(parse(&to_json(&full())), Ok(full()));
        let before = to_json(&full()).replace("\"preference\"", "\"verdict\"");
        assert_ne!(before, to_json(&full()));
        assert_eq!(parse(&before), Ok(full()), "as the version before wrote it");
    }

    #[test]
    fn other_files_are_distinguished_from_damaged_and_later_ones() {
        let good = to_json(&full());
        for text in ["", "{}", "[1]", "not json", r#"{"format": "corewise recording", "version": 1}"#] {
            let error = parse(text).unwrap_err();
            assert!(matches!(error, ProfileError::NotAProfile { .. }), "{text}: {error}");
        }
        let later = good.replace("\"version\": 1", "\"version\": 7");
        assert_eq!(parse(&later), Err(ProfileError::Version { found: 7 }));
        let damaged = good.replace("\"classes\"", "\"clases\"");
        let error = parse(&damaged).unwrap_err().to_string();
        assert!(error.contains("missing field `classes`") && error.contains("calibrate again"), "{error}");
    }

    /// Damages a good profile; the error must name the place.
    fn check(damage: impl FnOnce(&mut MachineProfile), place: &str) {
        let mut profile = full();
        damage(&mut profile);
        let error = parse(&to_json(&profile)).expect_err(place).to_string();
        assert!(error.contains(place), "{error}");
    }

    #[test]
    fn every_contradiction_is_found_and_named() {
        let turned = Measurement { low: 1.3, ..GOOD };
        let negative = Measurement { low: -0.1, ..GOOD };
        check(|p| p.reported.domains.clear(), "belong to no core");
        check(|p| p.classes[0].measured[0].1 = PeId(9), "class `same core` names PE 9");
        check(|p| p.pairs[0].class = 2, "pair result of read 4 KiB names class 2 of 2");
        check(|p| p.pairs[0].rate = negative, "below 0");
        check(|p| p.pairs[0].delta_alone = Some(turned), "1.3 to 1.2 around 1");
        check(|p| p.pairs[0].slowdowns = Some((GOOD, turned)), "pair result");
        check(|p| p.deltas[0].distant = 5, "Δ of read 4 KiB names class 5");
        check(|p| p.deltas[0].delta = turned, "Δ of read 4 KiB");
        check(|p| p.latencies[0].b = PeId(4), "latency of hand-over names PE 4");
        check(|p| p.latencies[0].ns = negative, "latency of hand-over");
        check(|p| p.memory[0].rate = turned, "read 4 KiB alone");
        check(|p| p.contention[0].class = 3, "contention curve of L1");
        check(|p| p.contention[0].points[1].0 = 1.5, "duty 1.5");
        check(|p| p.contention[0].points.reverse(), "out of order");
        check(|p| p.speeds[0].pe = PeId(4), "speed of PE 4");
        check(|p| p.speeds[0].relative = negative, "speed of PE 3");
        check(|p| p.discovered.as_mut().unwrap().groups[0].1 = "0,7".parse().unwrap(), "l2 {0,7}");
        let overlap = (DomainKind::L2, "1-2".parse().unwrap());
        check(|p| p.discovered.as_mut().unwrap().groups.push(overlap), "overlap");
        // What is not finite is `null` in JSON.
        check(|p| p.memory[0].rate.high = f64::INFINITY, "invalid type: null");
    }
}
