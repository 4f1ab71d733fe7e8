//! What rules ask about a process, from `/proc`.

use corewise_code::elf::ElfFile;
use corewise_rules::Facts;
use corewise_sys::proc::Proc;
use corewise_sys::{cgroup, input};
use nix::unistd::{Uid, User};

/// Returns what is known of a process; all is unknown if it has ended. The build id is only read if it is
/// wanted, as that opens the executable.
pub fn of(proc: &Proc, pid: u32, wants_build_id: bool) -> Facts {
    let exe = proc.program(pid).ok().map(|path| path.to_string_lossy().into_owned());
    let groups = proc.control_groups(pid).ok();
    let cgroup = groups.as_ref().and_then(|groups| groups.of_systemd());
    let units = cgroup.map(|path| cgroup::units_of(path).into_iter().map(str::to_owned).collect());
    let uid = effective_user(proc, pid);
    Facts {
        name: proc.program_name(pid).or_else(|| proc.name(pid).ok()),
        // The kernel's mark of a file that was replaced or deleted meanwhile.
        exe: exe.map(|path| path.strip_suffix(" (deleted)").map(str::to_owned).unwrap_or(path)),
        build_id: wants_build_id.then(|| build_id(proc, pid)).flatten(),
        units,
        user: uid.and_then(|uid| User::from_uid(Uid::from_raw(uid)).ok()?).map(|user| user.name),
        uid,
        cgroup: cgroup.map(str::to_owned),
    }
}

/// Returns the user whose rights a process has. The owner of its directory is root if it is not dumpable.
fn effective_user(proc: &Proc, pid: u32) -> Option<u32> {
    proc.status(pid).ok()??.field("Uid")?.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn build_id(proc: &Proc, pid: u32) -> Option<String> {
    let link = proc.program_link(pid);
    let file = input::open_regular(&link).ok()?;
    Some(ElfFile::of(&link, file).ok()?.build_id()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn process(root: &Path, exe: &Path, cgroup: &str) -> Facts {
        let folder = root.join("7");
        std::fs::create_dir_all(&folder).unwrap();
        symlink(exe, folder.join("exe")).unwrap();
        for (file, text) in [
            ("cgroup", cgroup),
            ("cmdline", "python3\0/srv/train.py\0"),
            ("status", "Name:\tpython3\nUid:\t4000000000\t4000000001\t0\t0\n"),
        ] {
            std::fs::write(folder.join(file), text).unwrap();
        }
        of(&Proc::at(root), 7, true)
    }

    #[test]
    fn the_facts_of_a_process_are_read() {
        let root = tempfile::tempdir().unwrap();
        let facts = process(root.path(), Path::new("/opt/x (deleted)"), "0::/a.slice/b.service/c\n");
        let expected = Facts {
            name: Some("train.py".to_owned()),
            exe: Some("/opt/x".to_owned()),
            build_id: None,
            units: Some(vec!["b.service".to_owned(), "a.slice".to_owned()]),
            user: None,
            uid: Some(4_000_000_001),
            cgroup: Some("/a.slice/b.service/c".to_owned()),
        };
        assert_eq!(facts, expected);
    }

    #[test]
    fn a_build_id_and_groups_of_version_1_are_read() {
        let root = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        let facts = process(root.path(), &own, "3:cpu:/x\n1:name=systemd:/a.scope\n");
        assert_eq!(facts.build_id.as_deref(), ElfFile::open(&own).unwrap().build_id());
        assert_eq!(
            (facts.cgroup.as_deref(), facts.units),
            (Some("/a.scope"), Some(vec!["a.scope".to_owned()]))
        );
    }

    #[test]
    fn nothing_is_known_of_a_process_that_has_ended() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(of(&Proc::at(root.path()), 7, true), Facts::default());
    }
}
