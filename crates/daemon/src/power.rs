//! Whether the machine saves power now.
//!
//! Problem: on a laptop that saves power, programs belong where the kernel puts them for that, not on the
//! fastest PEs. Approach: what the kernel shows, not what a manager keeps in a file of its own:
//! power-profiles-daemon, tuned and TLP all set the platform's profile or the processors' preference, and a
//! manager that was removed leaves its file behind. Limits: the preference is read of one PE only, as
//! managers set that of all. A machine that has neither file saves no power, as far as is known.

use std::path::Path;

/// The profiles of the platform that save power (kernel's sysfs-platform_profile).
const PROFILES: [&str; 2] = ["low-power", "quiet"];

/// Returns what says that the machine saves power, if it does; `root` is that of the file system.
pub fn saving(root: &Path) -> Option<String> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).ok().map(|text| text.trim().to_owned());
    let profile = read("sys/firmware/acpi/platform_profile").filter(|it| PROFILES.contains(&it.as_str()));
    let preference = || {
        read("sys/devices/system/cpu/cpufreq/policy0/energy_performance_preference")
            .filter(|it| it == "power")
    };
    let profile = profile.map(|profile| format!("the platform's profile is `{profile}`"));
    profile.or_else(|| preference().map(|it| format!("the processors' energy preference is `{it}`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_platforms_profile_or_the_processors_preference_says_it() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(saving(root.path()), None);
        let preference = "sys/devices/system/cpu/cpufreq/policy0/energy_performance_preference";
        write(preference, "balance_power\n");
        assert_eq!(saving(root.path()), None);
        write(preference, "power\n");
        assert_eq!(saving(root.path()).as_deref(), Some("the processors' energy preference is `power`"));
        write("sys/firmware/acpi/platform_profile", "balanced\n");
        assert!(saving(root.path()).is_some(), "a platform may know no other");
        write("sys/firmware/acpi/platform_profile", "low-power\n");
        assert_eq!(saving(root.path()).as_deref(), Some("the platform's profile is `low-power`"));
    }
}
