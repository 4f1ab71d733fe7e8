//! Groups of processes among which the kernel divides the PEs before it divides them among threads.
//!
//! Problem: a thread that wants only what is left over (`SCHED_IDLE`) wants that of its group's part. Two
//! programs in two terminals are in two groups, each with half of the PEs whatever its threads want: a
//! session each (`sched_autogroup_enabled`), or a control group each. Approach: the group's own part is
//! changed along with its threads: the nice level of the session ([`Group::Session`], proc(5)), or the weight
//! of the control group ([`Group::Cgroup`], cgroup v2's `cpu.weight`).
//!
//! Limits: everything else in the group gets less along with the program, for instance the terminal's shell,
//! while others want the PEs. Of nested control groups only the innermost with a weight is changed, which
//! decides only among its siblings.

use super::act_token::ActToken;
use corewise_core::plan::NICE_OUTSIDE_TURN;
use corewise_sys::privileged;
use corewise_sys::proc::Proc;
use corewise_sys::shortage::unless_short;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A session's nice level while it has no turn.
const SLOW_NICE: i64 = NICE_OUTSIDE_TURN as i64;

/// A control group's weight while it has no turn; the usual one is [`WEIGHT`].
const SLOW_WEIGHT: i64 = 1;

const WEIGHT: i64 = 100;

/// Groups have numbers below this.
pub const GROUPS_MAX: u64 = 1 << 24;

/// A group of processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Group {
    /// A session, by the kernel's number of its group.
    Session(u64),
    /// A control group, by its directory.
    Cgroup(PathBuf),
}

/// A group whose part may be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slowed {
    /// The group.
    pub group: Group,
    /// Its nice level or weight before corewise changed it.
    pub original: i64,
}

impl Group {
    /// Returns the group whose part decides how much a process gets, if that may be changed. `root` is the
    /// directory that contains `proc` and `sys`.
    pub fn of(root: &Path, pid: u32) -> Option<Group> {
        Group::cgroup_of(root, pid).or_else(|| {
            let number = Proc::of_machine(root).autogroup(pid).ok()??.number;
            let enabled = fs::read_to_string(root.join("proc/sys/kernel/sched_autogroup_enabled")).ok()?;
            let is_sys_admin = privileged::effective(&Proc::of_machine(root)) & privileged::SYS_ADMIN != 0;
            // Number 0 is not a session. Without this capability the kernel accepts only ten changes a
            // second, over all processes.
            (enabled.trim() != "0" && number != 0 && is_sys_admin).then_some(Group::Session(number))
        })
    }

    /// Returns the innermost control group with a weight.
    fn cgroup_of(root: &Path, pid: u32) -> Option<Group> {
        let groups = Proc::of_machine(root).control_groups(pid).ok()?;
        let path = groups.unified()?.strip_prefix('/')?;
        let top = root.join("sys/fs/cgroup");
        let folder = top.join(path);
        let has_weight = |folder: &&Path| folder.join("cpu.weight").exists();
        let group = folder.ancestors().take_while(|folder| *folder != top).find(has_weight)?;
        // The lines of the journal are split at white space.
        let is_word = group.to_str()?.bytes().all(|byte| byte.is_ascii_graphic());
        let is_inside = !path.split('/').any(|part| part == "..");
        (is_word && is_inside).then(|| Group::Cgroup(group.to_owned()))
    }

    /// Returns the number by which several runs identify the group.
    pub fn number(&self) -> u64 {
        let number = match self {
            Group::Session(number) => *number,
            Group::Cgroup(folder) => fs::metadata(folder).map_or(0, |metadata| metadata.ino()),
        };
        number % GROUPS_MAX
    }

    /// Returns its present nice level or weight; `None` if `pid` is not one of its processes, or it is gone.
    fn part(&self, root: &Path, pid: u32) -> io::Result<Option<i64>> {
        Ok(match self {
            Group::Session(number) => {
                let session = Proc::of_machine(root).autogroup(pid)?;
                session.filter(|session| session.number == *number).map(|session| session.nice)
            }
            Group::Cgroup(folder) => {
                let weight = unless_short(fs::read_to_string(folder.join("cpu.weight")))?;
                weight.and_then(|weight| weight.trim().parse().ok())
            }
        })
    }

    fn set_part(&self, root: &Path, pid: u32, part: i64) -> io::Result<()> {
        match self {
            Group::Session(_) => Proc::of_machine(root).set_autogroup(pid, part),
            Group::Cgroup(folder) => fs::write(folder.join("cpu.weight"), part.to_string()),
        }
    }

    fn slow(&self) -> i64 {
        match self {
            Group::Session(_) => SLOW_NICE,
            Group::Cgroup(_) => SLOW_WEIGHT,
        }
    }

    fn is_slow(&self, part: i64) -> bool {
        part == self.slow()
    }
}

impl Slowed {
    /// Returns what must be recorded before the part of a process's group is changed.
    pub fn of(root: &Path, pid: u32) -> Option<Slowed> {
        let group = Group::of(root, pid)?;
        let usual = match group {
            Group::Session(_) => 0,
            Group::Cgroup(_) => WEIGHT,
        };
        let original = group.part(root, pid).ok()??;
        let original = if group.is_slow(original) { usual } else { original };
        Some(Slowed { group, original })
    }

    /// Gives the group its own part, or the smallest one. `pid` is one of its processes; if it has left the
    /// group since, nothing is changed.
    pub fn let_run(&self, _: &ActToken, root: &Path, pid: u32, runs: bool) -> io::Result<()> {
        let wanted = if runs { self.original } else { self.group.slow() };
        // Switch only between these two: any other part is somebody else's decision.
        let is_ours = |part: i64| part == self.original || self.group.is_slow(part);
        match self.group.part(root, pid)? {
            Some(part) if part != wanted && is_ours(part) => self.group.set_part(root, pid, wanted),
            _ => Ok(()),
        }
    }

    /// Restores the group's own part, whichever processes are in it. An error means that it may not have it.
    pub fn give_back(&self, token: &ActToken, root: &Path) -> io::Result<()> {
        if let Group::Cgroup(_) = self.group {
            return self.let_run(token, root, 0, true);
        }
        let mut result = Ok(());
        for pid in Proc::of_machine(root).processes()? {
            if self.group.part(root, pid)?.is_none() {
                continue;
            }
            result = self.let_run(token, root, pid, true);
            if result.is_ok() {
                break;
            }
        }
        // The last of them may have ended before the write.
        result.or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) })
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

impl fmt::Display for Slowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.group {
            Group::Session(number) => write!(f, "session {number} {}", self.original),
            Group::Cgroup(folder) => write!(f, "cgroup {} {}", folder.display(), self.original),
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Group::Session(number) => write!(f, "session group {number}"),
            Group::Cgroup(folder) => write!(f, "control group {}", folder.display()),
        }
    }
}

impl Slowed {
    /// Parses the output of [`Display`](fmt::Display), word by word.
    pub fn parse<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Slowed> {
        let group = match words.next()? {
            "session" => Group::Session(words.next()?.parse().ok()?),
            "cgroup" => Group::Cgroup(PathBuf::from(words.next()?)),
            _ => return None,
        };
        Some(Slowed { group, original: words.next()?.parse().ok()? })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use corewise_testing::needs;
    use nix::unistd::setsid;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    const ROOT: &str = "/";

    /// A process that only waits, in a session of its own; killed on drop.
    pub struct Session(pub Child);

    impl Session {
        pub fn start() -> Session {
            let mut command = Command::new("sleep");
            command.arg("1000");
            // SAFETY: setsid(2) may be called in a forked child.
            unsafe { command.pre_exec(|| Ok(setsid().map(drop)?)) };
            Session(command.spawn().unwrap())
        }

        pub fn nice(&self) -> i64 {
            Proc::own().autogroup(self.0.id()).unwrap().unwrap().nice
        }
    }

    impl Drop for Session {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_session_gets_its_part_back_also_if_another_corewise_has_changed_it() {
        needs!(Root, SessionGroups);
        let (root, token) = (Path::new(ROOT), ActToken::mint());
        let process = Session::start();
        let slowed = Slowed::of(root, process.0.id()).unwrap();
        slowed.let_run(&token, root, process.0.id(), false).unwrap();
        assert_eq!(process.nice(), SLOW_NICE);
        assert_eq!(Slowed::of(root, process.0.id()), Some(slowed.clone()));
        slowed.let_run(&token, root, std::process::id(), true).unwrap();
        assert_eq!(process.nice(), SLOW_NICE, "by a process of another session nothing is changed");
        slowed.give_back(&token, root).unwrap();
        assert_eq!(process.nice(), 0);
        slowed.group.set_part(root, process.0.id(), 5).unwrap();
        slowed.let_run(&token, root, process.0.id(), false).unwrap();
        slowed.give_back(&token, root).unwrap();
        assert_eq!(process.nice(), 5, "that is its user's decision");
    }

    /// A directory with a process 7 in this control group, and these weights.
    fn machine(cgroup: &str, weights: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/7")).unwrap();
        fs::write(root.path().join("proc/7/cgroup"), format!("1:cpuset:/x\n0::{cgroup}\n")).unwrap();
        for (folder, weight) in weights {
            let folder = root.path().join("sys/fs/cgroup").join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("cpu.weight"), weight).unwrap();
        }
        root
    }

    #[test]
    fn the_innermost_control_group_with_a_weight_gets_the_least_and_its_own_again() {
        let token = ActToken::mint();
        let machine =
            machine("/user.slice/a.scope/inner", &[("user.slice/a.scope", "70\n"), ("user.slice", "9")]);
        let weight =
            |of: &str| fs::read_to_string(machine.path().join("sys/fs/cgroup").join(of).join("cpu.weight"));
        let slowed = Slowed::of(machine.path(), 7).unwrap();
        assert_eq!(slowed.original, 70);
        slowed.let_run(&token, machine.path(), 7, false).unwrap();
        assert_eq!(
            (weight("user.slice/a.scope").unwrap(), weight("user.slice").unwrap()),
            ("1".into(), "9".into())
        );
        assert_eq!(Slowed::of(machine.path(), 7).unwrap().original, WEIGHT, "set by another corewise");
        slowed.give_back(&token, machine.path()).unwrap();
        assert_eq!(weight("user.slice/a.scope").unwrap(), "70");
    }

    #[test]
    fn control_groups_without_a_weight_outside_the_tree_or_with_strange_names_are_left_alone() {
        for (cgroup, folder) in [("/", ""), ("/a", "b"), ("/../a", "../a"), ("/a b", "a b")] {
            assert_eq!(Slowed::of(machine(cgroup, &[(folder, "100")]).path(), 7), None, "{cgroup}");
        }
    }
}
