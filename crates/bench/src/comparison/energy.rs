//! Energy of the processor packages, from the kernel's powercap (RAPL), which mostly only root can read.

use std::path::{Path, PathBuf};

/// The readable counters, one for each package.
#[derive(Debug)]
pub struct Energy {
    packages: Vec<Package>,
}

#[derive(Debug)]
struct Package {
    counter: PathBuf,
    /// The counter restarts above this value, in µJ.
    range: u64,
}

impl Energy {
    /// Opens the counters of the machine below `root`. None if one of them cannot be read, because a part
    /// would pass for the whole.
    pub fn open(root: &Path) -> Energy {
        let zones = std::fs::read_dir(root.join("sys/class/powercap")).into_iter().flatten().flatten();
        let is_package = |zone: &Path| {
            std::fs::read_to_string(zone.join("name")).is_ok_and(|name| name.starts_with("package-"))
        };
        let packages = zones.map(|zone| zone.path()).filter(|zone| is_package(zone)).map(|zone| {
            let range = number(&zone.join("max_energy_range_uj"))?;
            let counter = zone.join("energy_uj");
            number(&counter).map(|_| Package { counter, range })
        });
        Energy { packages: packages.collect::<Option<_>>().unwrap_or_default() }
    }

    /// Returns the counters, in µJ; `None` if there are none.
    pub fn read(&self) -> Option<Vec<u64>> {
        let values: Vec<u64> = self.packages.iter().map(|one| number(&one.counter)).collect::<Option<_>>()?;
        (!values.is_empty()).then_some(values)
    }

    /// Returns the joules since an earlier reading. A counter has restarted at most once: that takes minutes.
    pub fn since(&self, before: Option<Vec<u64>>) -> Option<f64> {
        let (before, now) = (before?, self.read()?);
        let passed = self.packages.iter().zip(before.iter().zip(&now)).map(|(package, (before, now))| {
            now.checked_sub(*before).unwrap_or_else(|| now + package.range.saturating_sub(*before))
        });
        Some(passed.sum::<u64>() as f64 / 1e6)
    }
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_testing::machine::root;

    #[test]
    fn packages_are_added_up_also_where_a_counter_begins_anew() {
        let machine = root(&[
            ("sys/class/powercap/intel-rapl:0/name", "package-0\n"),
            ("sys/class/powercap/intel-rapl:0/energy_uj", "9000000\n"),
            ("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "10000000\n"),
            ("sys/class/powercap/intel-rapl:0:0/name", "core\n"),
            ("sys/class/powercap/intel-rapl:1/name", "package-1\n"),
            ("sys/class/powercap/intel-rapl:1/energy_uj", "500000\n"),
            ("sys/class/powercap/intel-rapl:1/max_energy_range_uj", "10000000\n"),
        ]);
        let energy = Energy::open(machine.path());
        let before = energy.read();
        let counter =
            |package: u32| machine.path().join(format!("sys/class/powercap/intel-rapl:{package}/energy_uj"));
        std::fs::write(counter(0), "1500000\n").unwrap();
        std::fs::write(counter(1), "700000\n").unwrap();
        assert_eq!(energy.since(before), Some(2.7));
        std::fs::remove_file(counter(1)).unwrap();
        assert_eq!(Energy::open(machine.path()).read(), None, "a part must not pass for the whole");
        assert_eq!(Energy::open(root(&[]).path()).read(), None);
    }
}
