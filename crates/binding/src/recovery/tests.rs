use super::*;
use crate::journal::HEAD;
use crate::mask;
use crate::restore::tests::alone;
use corewise_core::cpuset::CpuSet;
use corewise_sys::affinity;
use corewise_sys::proc::Proc;
use nix::sys::stat::Mode;
use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;

fn directory() -> (tempfile::TempDir, Directory) {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("corewise");
    std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
    let directory = Directory::open(path).unwrap();
    (parent, directory)
}

fn bind(id: u32) -> Entry {
    let set = |text: &str| text.parse::<CpuSet>().unwrap();
    Entry::Bind { thread: Task { id, start: 7 }, original: set("0-1"), ours: set("1") }
}

/// The text of the journal of a run whose process, started by the test, is bound and waits for its end.
fn of_bound_process(run: &Name) -> (String, std::process::Child) {
    let mut command = Command::new("sleep");
    let child = command.arg("60").env("COREWISE_PID", run.corewise.id.to_string()).spawn().unwrap();
    let thread = Task::of(child.id()).unwrap().unwrap();
    // Until it has become `sleep`, it has our environment.
    while corewise_sys::environment::started_by(&Proc::own(), thread.id).unwrap() != Some(run.corewise.id) {
        std::thread::yield_now();
    }
    let (original, ours) =
        (affinity::get(thread.id).unwrap(), CpuSet::single(affinity::all_pes().first().unwrap()));
    mask::set(&ActToken::mint(), thread.id, &ours).unwrap();
    let bind = Entry::Bind { thread, original, ours };
    (format!("{HEAD}\n{}{}", Entry::Member(run.corewise).to_line(), bind.to_line()), child)
}

#[test]
fn a_damaged_journal_is_named_and_what_is_left_of_it_restored() {
    corewise_testing::needs!(TwoPes);
    let _alone = alone();
    let (_parent, directory) = directory();
    let name = gone();
    let path = directory.path().join(name.to_string());
    for (damage, said, restores) in [
        (("", ""), "it is empty", false),
        ((HEAD, "nonsense"), "its beginning is missing", true),
        (("member", "mem\0\0r"), "its line 2 is not an entry", true),
    ] {
        let (whole, mut child) = of_bound_process(&name);
        let text = if damage.0.is_empty() { String::new() } else { whole.replacen(damage.0, damage.1, 1) };
        std::fs::write(&path, text).unwrap();
        let notes = recover_from(&directory);
        let expected = [said, path.to_str().unwrap(), &format!("its processes {}, and", child.id())];
        assert!(notes.len() == 1 && expected.iter().all(|part| notes[0].contains(part)), "{notes:?}");
        assert_eq!(affinity::get(child.id()).unwrap().len() > 1, restores, "{notes:?}");
        assert!(path.exists(), "as long as something may be changed");
        child.kill().unwrap();
        child.wait().unwrap();
        let notes = recover_from(&directory);
        assert!(notes.len() == 1 && notes[0].contains("no process of that run"), "{notes:?}");
        assert!(!path.exists());
    }
}

#[test]
fn a_directory_with_wrong_rights_is_named_if_it_is_this_users() {
    let (parent, directory) = directory();
    assert_eq!(recover_in(parent.path()), Vec::<String>::new());
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let notes = recover_in(parent.path());
    assert!(notes.len() == 1 && notes[0].contains(directory.path().to_str().unwrap()), "{notes:?}");
    assert!(notes[0].contains("not this user's alone"), "{notes:?}");
    std::fs::remove_dir(directory.path()).unwrap();
    assert_eq!(recover_in(parent.path()), Vec::<String>::new(), "there is nothing");
}

/// Writes the journal of a run that is over, with the given processes.
fn left_behind(directory: &Directory, name: &Name, entries: &[Entry]) -> PathBuf {
    let path = directory.path().join(name.to_string());
    let lines: String = entries.iter().map(Entry::to_line).collect();
    std::fs::write(&path, format!("{HEAD}\n{lines}")).unwrap();
    path
}

fn gone() -> Name {
    Name::own(Task { id: u32::MAX / 2, start: 7 }).unwrap()
}

#[test]
fn only_journals_of_runs_that_have_ended_are_recovered() {
    let (_parent, directory) = directory();
    let own = Task::own().unwrap();
    let guarded = left_behind(&directory, &gone(), &[Entry::Guardian(own), bind(8)]);
    let in_use = left_behind(&directory, &Name::own(own).unwrap(), &[bind(8)]);
    let elsewhere = left_behind(&directory, &Name { namespace: 1, ..gone() }, &[bind(8)]);
    let foreign = directory.path().join("notes.txt");
    std::fs::write(&foreign, "mine").unwrap();
    let outdated = left_behind(&directory, &Name { boot: "earlier".to_owned(), ..gone() }, &[bind(8)]);
    assert_eq!(recover_from(&directory), Vec::<String>::new());
    assert!(guarded.exists() && in_use.exists() && elsewhere.exists() && foreign.exists());
    assert!(!outdated.exists());
    std::fs::remove_file(guarded).unwrap();
    let orphaned = left_behind(&directory, &gone(), &[Entry::Guardian(gone().corewise), bind(u32::MAX / 2)]);
    let said = recover_from(&directory);
    assert!(said.len() == 1 && said[0].contains("have been restored now") && !orphaned.exists(), "{said:?}");
}

#[test]
fn a_corewise_that_was_just_killed_is_waited_for() {
    let (_parent, directory) = directory();
    // On the same PE, the killed processes only end when we wait.
    let pe = affinity::get(0).unwrap().iter().next().unwrap();
    mask::set(&ActToken::mint(), 0, &CpuSet::from_iter([pe])).unwrap();
    for _ in 0..20 {
        let mut children = [0; 2].map(|_| Command::new("sleep").arg("60").spawn().unwrap());
        let [corewise, guardian] =
            [0, 1].map(|index: usize| Task::of(children[index].id()).unwrap().unwrap());
        let name = Name::own(corewise).unwrap();
        let path = left_behind(&directory, &name, &[Entry::Guardian(guardian), bind(u32::MAX / 2)]);
        children.iter_mut().for_each(|child| child.kill().unwrap());
        let said = recover_from(&directory);
        assert!(said.len() == 1 && said[0].contains("have been restored now") && !path.exists(), "{said:?}");
        children.iter_mut().for_each(|child| _ = child.wait().unwrap());
    }
}

#[test]
fn files_put_there_by_others_are_neither_followed_nor_waited_for() {
    let (parent, directory) = directory();
    let path = directory.path().join(gone().to_string());
    let secret = parent.path().join("secret");
    std::fs::write(&secret, bind(8).to_line()).unwrap();
    symlink(&secret, &path).unwrap();
    assert!(recover_from(&directory)[0].contains("cannot be restored"));
    assert!(secret.exists());
    std::fs::remove_file(&path).unwrap();
    nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
    assert!(recover_from(&directory)[0].contains("not a file of this user's"));
    std::fs::remove_file(&path).unwrap();
    // Nonsense of any size does nothing, and is not kept quiet about.
    std::fs::write(&path, "bind 1@ 0-99999999999 \0\u{1b}[2J\nanew\nbind 1@1 0-1\n".repeat(1000)).unwrap();
    let notes = recover_from(&directory);
    assert!(notes.len() == 1 && notes[0].contains("is damaged"), "{notes:?}");
    assert!(!path.exists());
    File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let notes = recover_from(&directory);
    assert!(notes.len() == 1 && notes[0].contains("it is empty"), "{notes:?}");
    assert!(!path.exists());
}

#[test]
fn changes_restored_by_another_run_are_no_complaint() {
    let (_parent, directory) = directory();
    assert!(recover_one(&directory, &gone()).is_err(), "there is no such file");
    assert_eq!(recovered(&directory, &gone()), None);
}
