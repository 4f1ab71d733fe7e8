//! Whether this is a virtual machine, a container, or both, from the traces that each leaves in files. The
//! hypervisor's own answer (`CPUID`) is not asked, so that a recorded machine gives the same answer.

use std::path::Path;

/// What DMI says of virtual machines: a part of the vendor's or product's name, and what it stands for.
const DMI: [(&str, &str); 12] = [
    ("KVM", "KVM"),
    ("QEMU", "QEMU"),
    ("Amazon EC2", "Amazon EC2"),
    ("Google Compute Engine", "Google Compute Engine"),
    ("VMware", "VMware"),
    ("VirtualBox", "VirtualBox"),
    ("Microsoft Corporation", "Hyper-V"),
    ("Xen", "Xen"),
    ("Bochs", "Bochs"),
    ("OpenStack", "OpenStack"),
    ("Parallels", "Parallels"),
    ("Apple Virtualization", "Apple Virtualization"),
];

/// Clocks that only a guest of that hypervisor has.
const CLOCKS: [(&str, &str); 3] = [("kvm-clock", "KVM"), ("hyperv_clocksource", "Hyper-V"), ("xen", "Xen")];

/// Words in the groups of a container's first process.
const GROUPS: [(&str, &str); 4] =
    [("kubepods", "Kubernetes"), ("docker", "Docker"), ("libpod", "Podman"), ("lxc", "LXC")];

/// The hypervisor that this machine is a guest of, as far as it shows.
pub fn hypervisor(root: &Path) -> Option<String> {
    let text = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let named = |text: &str, names: &[(&str, &str)]| {
        names.iter().find(|(part, _)| text.contains(part)).map(|(_, name)| (*name).to_owned())
    };
    // A device tree is what virtual machines on ARM have in place of the flag.
    let device_tree = text("proc/device-tree/hypervisor/compatible");
    if !device_tree.is_empty() {
        return named(&device_tree, &[("kvm", "KVM"), ("xen", "Xen")]).or(Some("unnamed hypervisor".into()));
    }
    let dmi = text("sys/class/dmi/id/sys_vendor") + " " + &text("sys/class/dmi/id/product_name");
    let by_dmi = named(&dmi, &DMI);
    let cpuinfo = text("proc/cpuinfo");
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    let is_guest = match flags {
        Some(flags) => flags.split_ascii_whitespace().any(|flag| flag == "hypervisor"),
        // No flags: no x86. Clouds rent whole machines under the same vendor's name.
        None => by_dmi.is_some() && !dmi.contains("metal") && !dmi.contains("Microsoft Corporation Surface"),
    };
    let by_type = text("sys/hypervisor/type").trim().to_owned();
    if !is_guest && by_type.is_empty() {
        return None;
    }
    let clocks = text("sys/devices/system/clocksource/clocksource0/available_clocksource");
    let by_type = named(&by_type, &[("xen", "Xen"), ("kvm", "KVM")]);
    by_dmi.or(by_type).or(named(&clocks, &CLOCKS)).or(Some("unnamed hypervisor".into()))
}

/// The container that this process is in, as far as it shows.
pub fn container(root: &Path) -> Option<String> {
    let text = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    // Of a container with systemd, and of one that systemd-nspawn or the like has made.
    for file in ["run/systemd/container", "run/host/container-manager"] {
        let container = text(file);
        if !container.trim().is_empty() {
            return Some(container.trim().to_owned());
        }
    }
    for (file, name) in [(".dockerenv", "Docker"), ("run/.containerenv", "Podman")] {
        if root.join(file).exists() {
            return Some(name.to_owned());
        }
    }
    let groups = text("proc/1/cgroup");
    GROUPS.iter().find(|(word, _)| groups.contains(word)).map(|(_, name)| (*name).to_owned())
}

/// Both in words, `None` for the bare machine.
pub fn in_words(root: &Path) -> Option<String> {
    let hypervisor = hypervisor(root).map(|name| format!("virtual machine ({name})"));
    let container = container(root).map(|name| format!("container ({name})"));
    let words: Vec<String> = hypervisor.into_iter().chain(container).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_testing::machine::root;

    const GUEST: (&str, &str) = ("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor lm\n");
    const HOST: (&str, &str) = ("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu lm\n");
    const CLOCKS: &str = "sys/devices/system/clocksource/clocksource0/available_clocksource";

    #[test]
    fn traces_show_what_a_machine_runs_in() {
        let check = |files: &[(&str, &str)], expected: Option<&str>| {
            assert_eq!(in_words(root(files).path()).as_deref(), expected, "{files:?}");
        };
        check(&[HOST], None);
        check(&[HOST, ("sys/class/dmi/id/sys_vendor", "Amazon EC2")], None);
        check(&[GUEST], Some("virtual machine (unnamed hypervisor)"));
        check(&[GUEST, (CLOCKS, "tsc kvm-clock \n")], Some("virtual machine (KVM)"));
        check(&[GUEST, ("sys/class/dmi/id/sys_vendor", "QEMU\n")], Some("virtual machine (QEMU)"));
        check(&[("sys/hypervisor/type", "xen\n"), HOST], Some("virtual machine (Xen)"));
        check(&[("proc/cpuinfo", ""), ("sys/class/dmi/id/product_name", "c7g.metal")], None);
        check(
            &[("proc/cpuinfo", "processor\t: 0\n"), ("sys/class/dmi/id/sys_vendor", "Amazon EC2")],
            Some("virtual machine (Amazon EC2)"),
        );
        check(&[("proc/device-tree/hypervisor/compatible", "linux,kvm\0")], Some("virtual machine (KVM)"));
        check(&[HOST, ("run/systemd/container", "lxc\n")], Some("container (lxc)"));
        check(&[HOST, ("run/host/container-manager", "systemd-nspawn")], Some("container (systemd-nspawn)"));
        check(&[HOST, ("proc/1/cgroup", "0::/kubepods/x\n")], Some("container (Kubernetes)"));
        check(
            &[GUEST, (CLOCKS, "kvm-clock"), (".dockerenv", "")],
            Some("virtual machine (KVM), container (Docker)"),
        );
    }
}
