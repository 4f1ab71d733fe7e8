//! A control group with a cpuset of its own, in either version of the hierarchy.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The group; dropped, everything in it is killed and it is removed.
pub struct Cpuset(pub PathBuf);

impl Cpuset {
    /// A new group in which the PEs 0 and 1 may be used.
    pub fn create(name: &str) -> io::Result<Cpuset> {
        let roots = ["/sys/fs/cgroup/cpuset", "/sys/fs/cgroup"].map(Path::new);
        let has_cpusets =
            |root: &&Path| root.join("cpuset.cpus").exists() || root.join("cpuset.cpus.effective").exists();
        let root = roots.into_iter().find(has_cpusets);
        let root = root.ok_or(io::Error::new(io::ErrorKind::NotFound, "there are no cpusets"))?;
        let own = Cpuset(root.join(name));
        let mems = fs::read_to_string(root.join("cpuset.mems.effective"))
            .or_else(|_| fs::read_to_string(root.join("cpuset.mems")))?;
        fs::create_dir(&own.0)?;
        fs::write(own.0.join("cpuset.mems"), mems.trim())?;
        fs::write(own.0.join("cpuset.cpus"), "0-1")?;
        Ok(own)
    }

    /// Lets what is in it use these PEs.
    pub fn allow(&self, pes: &str) {
        fs::write(self.0.join("cpuset.cpus"), pes).expect("a cpuset of one's own can be changed");
    }

    /// The processes in it.
    pub fn processes(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        // A process outside of our namespace is 0.
        text.lines().filter_map(|line| line.parse().ok()).filter(|&pid| pid > 0).collect()
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        let end = Instant::now() + Duration::from_secs(20);
        while fs::remove_dir(&self.0).is_err() && Instant::now() < end {
            for pid in self.processes() {
                let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
