//! What rules ask about a process, from `/proc`.

use corewise_code::elf::ElfFile;
use corewise_core::program;
use corewise_rules::Facts;
use corewise_sys::proc::Proc;
use corewise_sys::{cgroup, input, privileged};
use nix::unistd::{Uid, User};
use std::ffi::OsString;
use std::path::Path;

/// The length of the name of a thread (`TASK_COMM_LEN` without the zero byte).
const COMM_MAX: usize = 15;

/// Returns what is known of a process; all is unknown if it has ended. The build id is only read if it is
/// wanted, as that opens the executable.
pub fn of(proc: &Proc, pid: u32, wants_build_id: bool) -> Facts {
    let exe = proc.executable(pid).ok().map(|path| path.to_string_lossy().into_owned());
    let comm = proc.name(pid).ok();
    let groups = proc.control_groups(pid).ok();
    let cgroup = groups.as_ref().and_then(|groups| groups.of_systemd());
    let units = cgroup.map(|path| cgroup::units_of(path, Uid::effective().as_raw()));
    let uid = effective_user(proc, pid);
    Facts {
        name: proc.program_name(pid).or_else(|| comm.clone()),
        comm,
        exe,
        build_id: wants_build_id.then(|| build_id(&proc.program_link(pid))).flatten(),
        units,
        user: uid.and_then(|uid| User::from_uid(Uid::from_raw(uid)).ok()?).map(|user| user.name),
        uid,
        cgroup: cgroup.map(str::to_owned),
    }
}

/// Returns what will be known of a command that this process starts.
pub fn of_command(command: &[OsString], wants_build_id: bool) -> Facts {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let started = command.first().and_then(|first| privileged::file_of(first));
    let comm = started.as_ref().and_then(|file| Some(file.file_name()?.to_string_lossy().into_owned()));
    let file = started.and_then(|file| file.canonicalize().ok());
    let build_id = file.as_ref().filter(|_| wants_build_id).and_then(|file| build_id(file));
    Facts {
        name: program::name_of(&words),
        // The kernel names the first thread by the file, and keeps so much of it.
        comm: comm.map(|name| name.chars().take(COMM_MAX).collect()),
        exe: file.map(|file| file.to_string_lossy().into_owned()),
        build_id,
        ..of(&Proc::own(), std::process::id(), false)
    }
}

/// Returns the user whose rights a process has. The owner of its directory is root if it is not dumpable.
fn effective_user(proc: &Proc, pid: u32) -> Option<u32> {
    proc.status(pid).ok()??.field("Uid")?.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn build_id(path: &Path) -> Option<String> {
    let file = input::open_regular(path).ok()?;
    Some(ElfFile::of(path, file).ok()?.build_id()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::process::{Command, Stdio};

    fn process(root: &Path, exe: &Path, cgroup: &[u8]) -> Facts {
        let folder = root.join("7");
        std::fs::create_dir_all(&folder).unwrap();
        symlink(exe, folder.join("exe")).unwrap();
        for (file, text) in [
            ("cgroup", cgroup),
            ("cmdline", b"python3\0/srv/train.py\0"),
            ("comm", b"python3\n"),
            ("status", b"Name:\tpython\xff\nUid:\t4000000000\t4000000001\t0\t0\n"),
        ] {
            std::fs::write(folder.join(file), text).unwrap();
        }
        of(&Proc::at(root), 7, true)
    }

    #[test]
    fn the_facts_of_a_process_are_read_whatever_bytes_its_names_have() {
        let root = tempfile::tempdir().unwrap();
        let facts = process(root.path(), Path::new("/opt/x (deleted)"), b"0::/a.slice/b.service/c\xff\n");
        let expected = Facts {
            name: Some("train.py".to_owned()),
            comm: Some("python3".to_owned()),
            exe: Some("/opt/x".to_owned()),
            build_id: None,
            units: Some(vec!["b.service".to_owned(), "a.slice".to_owned()]),
            user: None,
            uid: Some(4_000_000_001),
            cgroup: Some("/a.slice/b.service/c\u{fffd}".to_owned()),
        };
        assert_eq!(facts, expected);
    }

    #[test]
    fn a_file_may_be_called_as_the_kernel_calls_those_that_were_removed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("app (deleted)");
        std::fs::copy("/bin/sleep", &file).unwrap();
        let mut app = Command::new(&file).arg("1000").spawn().unwrap();
        let exe = || of(&Proc::own(), app.id(), false).exe.unwrap();
        let (there, path) = (exe(), file.to_string_lossy().into_owned());
        std::fs::remove_file(&file).unwrap();
        let removed = exe();
        app.kill().and_then(|()| app.wait()).unwrap();
        assert_eq!((there, removed), (path.clone(), path));
    }

    #[test]
    fn a_build_id_and_groups_of_version_1_are_read() {
        let root = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        let facts = process(root.path(), &own, b"3:cpu:/x\n1:name=systemd:/a.scope\n");
        assert_eq!(facts.build_id.as_deref(), ElfFile::open(&own).unwrap().build_id());
        assert_eq!(
            (facts.cgroup.as_deref(), facts.units),
            (Some("/a.scope"), Some(vec!["a.scope".to_owned()]))
        );
    }

    #[test]
    fn the_facts_of_a_command_are_those_that_it_will_have() {
        let command = ["sh", "/nowhere/prepare.sh"].map(OsString::from);
        let facts = of_command(&command, false);
        let mut child = Command::new("sh").args(["-c", "read line"]).stdin(Stdio::piped()).spawn().unwrap();
        let running = of(&Proc::own(), child.id(), false);
        child.kill().and_then(|()| child.wait()).unwrap();
        assert_eq!(facts, Facts { name: Some("prepare.sh".to_owned()), ..running });
        let unknown = of_command(&["/nowhere/x".into()], true);
        assert_eq!((unknown.name.as_deref(), unknown.exe, unknown.build_id), (Some("x"), None, None));
    }

    #[test]
    fn nothing_is_known_of_a_process_that_has_ended() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(of(&Proc::at(root.path()), 7, true), Facts::default());
    }
}
