//! What a process reads about itself, by the links that identify it without its process ID.

use super::{ControlGroups, Proc, ROOT, SchedstatFile, Status};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The open descriptors of this process, as links.
pub const DESCRIPTORS: &str = "/proc/self/fd";

/// The program of this process.
pub const PROGRAM: &str = "/proc/self/exe";

/// Returns the path of an open descriptor: it leads to the open file, even if the file's name now refers to
/// another.
pub fn descriptor(open: &impl AsRawFd) -> PathBuf {
    Path::new(DESCRIPTORS).join(open.as_raw_fd().to_string())
}

impl Proc {
    /// Returns the open descriptors of this process; empty if not available.
    pub fn own_descriptors(&self) -> Vec<RawFd> {
        let entries = std::fs::read_dir(self.root.join("self/fd")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// Returns the `status` of this process; empty if not available.
    pub fn own_status(&self) -> Status {
        Status::new(self.text("self/status").unwrap_or_default())
    }

    /// Returns the control groups of this process; empty if not available.
    pub fn own_control_groups(&self) -> ControlGroups {
        ControlGroups::new(&self.text("self/cgroup").unwrap_or_default())
    }

    /// Returns the mappings of this process, as text.
    pub fn own_maps(&self) -> io::Result<String> {
        self.text("self/maps")
    }

    /// Returns the `schedstat` of the calling thread, kept open; `None` if there is none.
    pub fn own_schedstat(&self) -> Option<SchedstatFile> {
        File::open(self.root.join("thread-self/schedstat")).ok().map(SchedstatFile::Open)
    }

    /// Returns the address range of this process's arguments; `None` if not available.
    pub fn own_arguments(&self) -> Option<Range<usize>> {
        let stat = self.text("self/stat").ok()?;
        // proc_pid_stat(5) counts from 1, and the state, the third field, is the first here.
        let mut fields = stat.rsplit_once(") ")?.1.split_ascii_whitespace().skip(48 - 3);
        let range = fields.next()?.parse().ok()?..fields.next()?.parse().ok()?;
        (range.start != 0 && range.start < range.end).then_some(range)
    }

    /// Returns whether this is the `/proc` of this process's PID namespace, in which it has the process ID
    /// that it knows.
    pub fn is_of_this_namespace(&self) -> io::Result<bool> {
        let own = std::fs::read_link(self.root.join("self"))?;
        Ok(own == Path::new(&std::process::id().to_string()))
    }

    /// Lets the kernel end this process after all others when memory runs out, if that is permitted.
    pub fn outlast_others(&self) {
        // The lowest value there is (proc_pid_oom_score_adj(5)).
        let _ = std::fs::write(self.root.join("self/oom_score_adj"), "-1000");
    }

    /// Returns the number of this process's PID namespace.
    pub fn pid_namespace(&self) -> io::Result<u64> {
        Ok(std::fs::metadata(self.root.join("self/ns/pid"))?.ino())
    }

    /// Returns the identifier of the present boot.
    pub fn boot_id(&self) -> io::Result<String> {
        Ok(self.text("sys/kernel/random/boot_id")?.trim().to_owned())
    }
}

/// Returns whether a path lies in `/proc`, judging by its name.
pub fn holds(path: &Path) -> bool {
    path.starts_with(ROOT)
}
