//! Services that decide about the same threads and PEs.
//!
//! Problem: two that place threads, change weights or clocks work against each other, and nothing fails.
//! Approach: those that are known are looked for by the name of their process. Limits: a service that is not
//! in [`SERVICES`]; processes that `/proc` hides.

use super::checks::Finding;
use super::machine::Machine;
use corewise_sys::proc::Proc;
use std::collections::BTreeSet;

/// The names of the processes, of which the kernel keeps 15 bytes; the services, and what they decide.
const SERVICES: [(&str, &str, &str); 8] = [
    ("scx_loader", "scx_loader", "replaces the kernel's scheduler"),
    ("ananicy-cpp", "ananicy-cpp", "changes weights of threads"),
    ("intel_lpmd", "intel_lpmd", "takes PEs out of use to save power"),
    ("tuned", "tuned", "changes clocks and the kernel's scheduler"),
    ("gamemoded", "gamemoded", "pins a game's threads and changes their weights"),
    ("irqbalance", "irqbalance", "moves interrupts between PEs"),
    ("auto-cpufreq", "auto-cpufreq", "changes clocks"),
    ("power-profiles-", "power-profiles-daemon", "changes clocks"),
];

/// Looks for them.
pub fn services(machine: &Machine) -> Finding {
    let proc = Proc::of_machine(&machine.root);
    let pids = proc.processes().unwrap_or_default();
    let names: BTreeSet<String> = pids.into_iter().filter_map(|pid| proc.name(pid).ok()).collect();
    let found: Vec<_> = SERVICES.iter().filter(|(process, ..)| names.contains(*process)).collect();
    if found.is_empty() {
        return Finding::here("no known service decides about threads and PEs");
    }
    let what: Vec<String> =
        found.iter().map(|(_, service, decides)| format!("{service} {decides}")).collect();
    let services: Vec<&str> = found.iter().map(|(_, service, _)| *service).collect();
    Finding::missing(
        what.join(", "),
        "what it sets, corewise leaves alone, or both undo each other; figures hold for the two together",
        format_args!("sudo systemctl stop {}, at least while you measure", services.join(" ")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_testing::machine;

    #[test]
    fn each_service_is_named_with_what_it_decides_and_how_it_is_stopped() {
        let alone = machine::root(&[("proc/1/comm", "systemd\n"), ("proc/7/comm", "tuned-gui\n")]);
        assert!(matches!(services(&Machine::at(alone.path())), Finding::Here { .. }));
        for (process, service, decides) in SERVICES {
            let root =
                machine::root(&[("proc/1/comm", "systemd\n"), ("proc/9/comm", &format!("{process}\n"))]);
            let Finding::Missing { what, remedy, .. } = services(&Machine::at(root.path())) else {
                panic!("{service} is not found")
            };
            assert_eq!(what, format!("{service} {decides}"));
            assert!(remedy.starts_with(&format!("sudo systemctl stop {service},")), "{remedy}");
            assert!(process.len() <= 15 && service.starts_with(process));
        }
    }
}
