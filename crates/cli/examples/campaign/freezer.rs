//! Freezing a process, whatever it does: to others it looks as if it waited in the kernel for ever.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A control group whose processes can be frozen, in either version of the hierarchy; dropped, they go on and
/// are back in the group above.
pub struct Freezer {
    group: PathBuf,
    /// The file that says whether they are frozen, and what it says.
    file: PathBuf,
    words: [&'static str; 2],
}

impl Freezer {
    /// A new group: below `within` where groups of the second version have cpusets, too.
    pub fn create(name: &str, within: Option<&Path>) -> io::Result<Freezer> {
        let first = Path::new("/sys/fs/cgroup/freezer");
        let is_first = first.join("cgroup.procs").exists();
        let roots = [first, within.unwrap_or(Path::new("/sys/fs/cgroup"))];
        let group = roots[usize::from(!is_first)].join(name);
        fs::create_dir(&group)?;
        let (file, words) = match is_first {
            true => ("freezer.state", ["THAWED", "FROZEN"]),
            false => ("cgroup.freeze", ["0", "1"]),
        };
        let freezer = Freezer { file: group.join(file), group, words };
        freezer.file.metadata()?;
        Ok(freezer)
    }

    /// Freezes a process.
    pub fn freeze(&self, pid: u32) -> io::Result<()> {
        fs::write(self.group.join("cgroup.procs"), pid.to_string())?;
        fs::write(&self.file, self.words[1])
    }

    /// Lets all go on.
    pub fn thaw(&self) {
        // What has ended needs nothing.
        let _ = fs::write(&self.file, self.words[0]);
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.thaw();
        let above = self.group.parent().expect("it was made below one").join("cgroup.procs");
        for pid in fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default().lines() {
            let _ = fs::write(&above, pid);
        }
        // What has just ended may still be in it.
        for _ in 0..1000 {
            if fs::remove_dir(&self.group).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}
