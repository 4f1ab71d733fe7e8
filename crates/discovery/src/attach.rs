//! Checks whether corewise may and should follow a running process.
//!
//! All checks are made before anything is changed, so that the user learns about every process that cannot be
//! attached, and why, while all of them are still untouched.

use corewise_sys::environment;
use corewise_sys::proc::{Proc, ProcError};
use std::collections::BTreeMap;

/// A process that can be attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Its process ID.
    pub pid: u32,
    /// The name of its first thread.
    pub name: String,
}

/// Why a process cannot be attached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// No process has this ID.
    #[error("there is no process {pid}: `pgrep NAME` prints the numbers of those that there are")]
    Gone {
        /// The process ID.
        pid: u32,
    },
    /// The process is there, and `/proc` does not show it.
    #[error("/proc hides process {pid} (hidepid): only root and its own user may place it")]
    Hidden {
        /// The process ID.
        pid: u32,
    },
    /// The process has ended, and its parent has not collected its status yet.
    #[error("process {pid} (`{name}`) has ended already")]
    Ended {
        /// The process.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// The ID is that of a thread.
    #[error("{tid} is a thread of process {pid}: a process is attached as a whole, by its number")]
    Thread {
        /// The thread.
        tid: u32,
        /// Its process.
        pid: u32,
    },
    /// The process belongs to the kernel.
    #[error("process {pid} (`{name}`) is a thread of the kernel, which places it itself")]
    Kernel {
        /// The process.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// The process belongs to another user.
    #[error(
        "process {pid} (`{name}`) belongs to user {owner}: only root may place the threads of other users \
         (sudo corewise …)"
    )]
    Foreign {
        /// The process.
        pid: u32,
        /// Its name.
        name: String,
        /// The ID of its user.
        owner: u32,
    },
    /// The process is corewise itself, or one of its helpers.
    #[error("process {pid} is corewise itself")]
    Own {
        /// The process.
        pid: u32,
    },
    /// Another corewise places the threads of the process.
    #[error("process {pid} (`{name}`) was started by another corewise (process {corewise}), which places it")]
    Placed {
        /// The process.
        pid: u32,
        /// Its name.
        name: String,
        /// The other corewise.
        corewise: u32,
    },
    /// `/proc` cannot be read.
    #[error("cannot read process {pid}: {reason}")]
    Unreadable {
        /// The process.
        pid: u32,
        /// The system's error.
        reason: String,
    },
}

/// The parent of the kernel's threads.
const KTHREADD: u32 = 2;

/// Checks whether a process can be attached by this one, whose own processes are `own`.
pub fn check(pid: u32, own: &[u32]) -> Result<Running, AttachError> {
    check_in(&Proc::own(), pid, own)
}

/// Returns the topmost of all processes that this one may look into, whose own processes are `own`: all
/// others that it may look into run below one of them. Also those that another corewise places.
pub fn topmost(own: &[u32]) -> Result<Vec<Running>, ProcError> {
    let proc = Proc::own();
    let found = proc.processes()?.into_iter().filter_map(|pid| look_in(&proc, pid, own).ok());
    let found: BTreeMap<u32, Running> = found.map(|running| (running.pid, running)).collect();
    let is_below = |pid: u32| {
        // What has ended meanwhile is not worth a root.
        proc.stat(pid, pid).ok().flatten().is_none_or(|stat| found.contains_key(&stat.parent))
    };
    Ok(found.values().filter(|running| !is_below(running.pid)).cloned().collect())
}

/// Like [`check`], also for a process that another corewise places: nothing of it may be changed.
pub fn check_to_watch(pid: u32, own: &[u32]) -> Result<Running, AttachError> {
    look_in(&Proc::own(), pid, own)
}

/// Like [`check`], with the given `proc`.
pub(super) fn check_in(proc: &Proc, pid: u32, own: &[u32]) -> Result<Running, AttachError> {
    let running = look_in(proc, pid, own)?;
    match environment::started_by(proc, pid)
        .ok()
        .flatten()
        .filter(|&corewise| environment::runs_corewise(corewise))
    {
        Some(corewise) => Err(AttachError::Placed { pid, name: running.name, corewise }),
        None => Ok(running),
    }
}

/// What [`check_in`] checks first: whether it may be looked into.
fn look_in(proc: &Proc, pid: u32, own: &[u32]) -> Result<Running, AttachError> {
    if own.contains(&pid) {
        return Err(AttachError::Own { pid });
    }
    let unreadable = |reason: String| AttachError::Unreadable { pid, reason };
    let status = proc.status(pid).map_err(|error| unreadable(error.to_string()))?;
    let Some(status) = status else {
        return Err(if proc.hides(pid) { AttachError::Hidden { pid } } else { AttachError::Gone { pid } });
    };
    match status.process() {
        Some(leader) if leader == pid => {}
        Some(leader) => return Err(AttachError::Thread { tid: pid, pid: leader }),
        None => return Err(unreadable("its status names no thread group".to_owned())),
    }
    let stat = proc.stat(pid, pid).map_err(|error| unreadable(error.to_string()))?;
    let Some(stat) = stat else { return Err(AttachError::Gone { pid }) };
    let name = stat.name;
    // Kernel threads never have memory of their own, and exiting processes have released theirs.
    let has_memory = match proc.shown_by(pid) {
        shown if shown == pid => status.field("VmSize").is_some(),
        // Its first thread has ended.
        shown => proc.status(shown).is_ok_and(|other| other.is_some_and(|of| of.field("VmSize").is_some())),
    };
    if !has_memory {
        return Err(match stat.parent {
            0 | KTHREADD => AttachError::Kernel { pid, name },
            _ => AttachError::Ended { pid, name },
        });
    }
    let owner = proc.owner(pid).map_err(|error| unreadable(error.to_string()))?;
    let ours = nix::unistd::geteuid();
    if !ours.is_root() && ours.as_raw() != owner {
        return Err(AttachError::Foreign { pid, name, owner });
    }
    Ok(Running { pid, name: proc.program_name(pid).unwrap_or(name) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_testing::{needs, skip};
    use std::process::{Child, Command};

    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Sleeper {
            let child = Sleeper(Command::new("sleep").arg("60").spawn().unwrap());
            while check(child.0.id(), &[]).is_ok_and(|running| running.name != "sleep") {
                std::thread::yield_now();
            }
            child
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_running_process_can_be_attached_until_it_ends() {
        let mut sleeper = Sleeper::start();
        let pid = sleeper.0.id();
        assert_eq!(check(pid, &[]), Ok(Running { pid, name: "sleep".to_owned() }));
        sleeper.0.kill().unwrap();
        while check(pid, &[]).is_ok() {
            std::thread::yield_now();
        }
        assert_eq!(check(pid, &[]), Err(AttachError::Ended { pid, name: "sleep".to_owned() }));
        sleeper.0.wait().unwrap();
        assert_eq!(check(pid, &[]), Err(AttachError::Gone { pid }));
    }

    #[test]
    fn what_is_no_process_of_an_application_is_named_as_what_it_is() {
        let own = std::process::id();
        assert_eq!(check(own, &[own]), Err(AttachError::Own { pid: own }));
        let (started, wait) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            started.send(nix::unistd::gettid().as_raw() as u32).unwrap();
            let _ = ended.recv();
        });
        let tid = wait.recv().unwrap();
        assert_eq!(check(tid, &[]), Err(AttachError::Thread { tid, pid: own }));
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn the_kernels_threads_are_left_alone() {
        needs!(Root);
        let name = Proc::own().name(KTHREADD).unwrap_or_default();
        if name != "kthreadd" {
            skip!(Root, "a container shows no threads of the kernel");
        }
        let (pid, name) = (KTHREADD, "kthreadd".to_owned());
        assert_eq!(check(pid, &[]), Err(AttachError::Kernel { pid, name }));
    }
}
