//! PEs that are reserved: somebody else decides what runs there.
//!
//! Problem: an isolated PE is kept free of everything but what is put there on purpose, and kubelet gives a
//! container PEs of its own, although the kernel lets all others run there, too. Binding a thread to such a
//! PE takes away what was promised. Approach: the kernel lists isolated PEs (`isolcpus`, isolated partitions
//! of cpusets), and kubelet's static CPU manager keeps in a file which PEs it has given away.
//!
//! Limits: other managers that pin what they start are known only by the masks of their threads, which are
//! left alone anyway.

use corewise_core::cpuset::CpuSet;
use serde_json::Value;
use std::fmt;
use std::path::Path;

/// PEs that are reserved.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reserved {
    /// Isolated by the kernel's parameters or by cpusets.
    pub isolated: CpuSet,
    /// Given to containers by kubelet.
    pub of_kubelet: CpuSet,
}

impl Reserved {
    /// Reads which PEs are reserved now; `root` is that of the file system. What cannot be read reserves
    /// none.
    pub fn read(root: &Path) -> Reserved {
        let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
        let isolated = read("sys/devices/system/cpu/isolated").and_then(|text| text.trim().parse().ok());
        let state = read("var/lib/kubelet/cpu_manager_state");
        Reserved {
            isolated: isolated.unwrap_or_default(),
            of_kubelet: state.map_or_else(CpuSet::new, |text| given_away(&text)),
        }
    }

    /// Returns all of them.
    pub fn pes(&self) -> CpuSet {
        self.isolated.union(&self.of_kubelet)
    }
}

/// Returns the PEs that kubelet has given to single containers: `entries` holds pods, these their containers.
fn given_away(state: &str) -> CpuSet {
    let state: Value = serde_json::from_str(state).unwrap_or_default();
    let pods = state["entries"].as_object().into_iter().flat_map(|pods| pods.values());
    let containers = pods.filter_map(Value::as_object).flat_map(|containers| containers.values());
    let sets = containers.filter_map(|pes| pes.as_str()?.parse::<CpuSet>().ok());
    sets.fold(CpuSet::new(), |all, pes| all.union(&pes))
}

impl fmt::Display for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = [("isolated", &self.isolated), ("given to containers by kubelet", &self.of_kubelet)];
        let of = of.into_iter().filter(|(_, pes)| !pes.is_empty());
        let words: Vec<String> = of.map(|(how, pes)| format!("PEs {pes} are {how}")).collect();
        f.write_str(&words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn isolated_pes_and_those_that_kubelet_has_given_away_are_reserved() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(Reserved::read(root.path()), Reserved::default());
        write("sys/devices/system/cpu/isolated", "\n");
        write("var/lib/kubelet/cpu_manager_state", "{\"policyName\":\"none\",\"defaultCpuSet\":\"\"}");
        assert_eq!(Reserved::read(root.path()), Reserved::default());
        write("sys/devices/system/cpu/isolated", "7\n");
        // As kubelet 1.32 writes it.
        let state = r#"{"policyName":"static","defaultCpuSet":"0-1,4-7","entries":{
            "1d8e6a1c-4c51-4a3e-8b6e-6a5b8a1f0c11":{"app":"2-3"},"other":{"init":"5","main":"5"}},
            "checksum":1549893186}"#;
        write("var/lib/kubelet/cpu_manager_state", state);
        let reserved = Reserved::read(root.path());
        assert_eq!(reserved.pes().to_string(), "2-3,5,7");
        let words = "PEs 7 are isolated, PEs 2-3,5 are given to containers by kubelet";
        assert_eq!(reserved.to_string(), words);
        write("var/lib/kubelet/cpu_manager_state", "{\"entries\":[1,{\"a\":2}]}");
        assert_eq!(Reserved::read(root.path()).of_kubelet, CpuSet::new());
    }
}
