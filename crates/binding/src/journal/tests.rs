use super::*;
use crate::mask;
use corewise_core::cpuset::CpuSet;
use corewise_sys::affinity;
use std::os::unix::fs::{PermissionsExt, symlink};
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

#[test]
fn a_journal_stays_small_and_holds_what_is_bound_however_long_the_run_lasts() {
    let (_parent, directory) = directory();
    let own = Task::own().unwrap();
    let mut journal = directory.create(own).unwrap();
    let mut ledger = Ledger::default();
    ledger.note(Entry::Member(own));
    for id in 1..20_000 {
        for entry in [bind(id), Entry::Forget(id - 1)] {
            ledger.note(entry.clone());
            journal.write(&entry).unwrap();
        }
    }
    for lines in [&journal.memory, &journal.named.as_ref().unwrap().0] {
        let Content { ledger: read, damage } = read(lines.file.as_fd()).unwrap();
        assert_eq!((read.to_lines(), damage), (ledger.to_lines(), None));
        let used = lines.file.metadata().unwrap().blocks() * 512;
        assert!(lines.length > 8 * GROWTH && used < 4 * GROWTH, "{used} of {} bytes", lines.length);
    }
    assert_eq!(journal.ledger(), &ledger);
    journal.close();
}

#[test]
fn a_change_that_cannot_be_written_leaves_the_earlier_ones_readable() {
    let mut journal = Journal::without_name().unwrap();
    journal.write(&bind(8)).unwrap();
    journal.limit = journal.memory.length + 5;
    assert_eq!(journal.write(&bind(9)).unwrap_err().raw_os_error(), Some(libc::EFBIG));
    journal.limit = u64::MAX;
    journal.write(&Entry::Pinned(Task { id: 10, start: 7 })).unwrap();
    let read = read(journal.memory.file.as_fd()).unwrap().ledger;
    assert!(read.bound_as(8).is_some() && read.bound_as(9).is_none() && read.is_pinned(10));
}

#[test]
fn whatever_is_done_to_the_named_file_the_guardian_reads_everything() {
    let (_parent, directory) = directory();
    let mut journal = directory.create(Task::own().unwrap()).unwrap();
    journal.write(&bind(8)).unwrap();
    std::fs::write(journal.path().unwrap(), "").unwrap();
    journal.write(&bind(9)).unwrap();
    let Content { ledger, damage } = read(journal.descriptor().unwrap().as_fd()).unwrap();
    assert!(ledger.bound_as(8).is_some() && ledger.bound_as(9).is_some() && damage.is_none());
    let named = File::open(journal.path().unwrap()).unwrap();
    let Content { ledger, damage } = read(named.as_fd()).unwrap();
    assert!(ledger.bound_as(8).is_none() && ledger.bound_as(9).is_some());
    assert_eq!(damage, Some(Damage::Beginning));
}

#[test]
fn what_is_not_a_whole_journal_is_known() {
    let whole = format!("{HEAD}\n{}{}{}", bind(8).to_line(), bind(9).to_line(), Entry::Forget(8).to_line());
    let damage = |text: &str| Content::parse(text).damage;
    assert_eq!(damage(&whole), None);
    assert_eq!(damage(""), Some(Damage::Empty));
    assert_eq!(damage(&"\0".repeat(5_000)), Some(Damage::Empty));
    assert_eq!(damage(&whole[..5]), Some(Damage::Empty));
    // The last line may be incomplete; what comes before is whole.
    (HEAD.len() + 1..whole.len()).for_each(|cut| assert_eq!(damage(&whole[..cut]), None, "{cut}"));
    assert_eq!(damage(&whole[HEAD.len() + 1..]), Some(Damage::Beginning));
    assert_eq!(damage(&whole.replace("bind 9@7", "bind \0\0\0\0")), Some(Damage::Line(3)));
    // It was written anew, and what was before is released or not.
    let ledger = Content::parse(&whole).ledger;
    assert_eq!(damage(&format!("\0\0\0{}", ledger.to_lines())), None);
    assert_eq!(damage(&format!("{whole}{}", ledger.to_lines())), None);
}

/// The text of the journal of a run whose process, started by the test, is bound and waits for its end.
fn of_bound_process(run: &Name) -> (String, std::process::Child) {
    let mut command = Command::new("sleep");
    let child = command.arg("60").env("COREWISE_PID", run.corewise.id.to_string()).spawn().unwrap();
    let thread = Task::of(child.id()).unwrap().unwrap();
    // Until it has become `sleep`, it has our environment.
    while corewise_sys::environment::started_by(&Proc::own(), thread.id) != Some(run.corewise.id) {
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
    let (_parent, directory) = directory();
    let name = gone();
    let path = directory.path.join(name.to_string());
    for (damage, said, restores) in [
        (("", ""), "it is empty", false),
        ((HEAD, "nonsense"), "its beginning is missing", true),
        (("member", "mem\0\0r"), "its line 2 is not an entry", true),
    ] {
        let (whole, mut child) = of_bound_process(&name);
        let text = if damage.0.is_empty() { String::new() } else { whole.replacen(damage.0, damage.1, 1) };
        std::fs::write(&path, text).unwrap();
        let notes = directory.recover();
        let expected = [said, path.to_str().unwrap(), &format!("its processes {}, and", child.id())];
        assert!(notes.len() == 1 && expected.iter().all(|part| notes[0].contains(part)), "{notes:?}");
        assert_eq!(affinity::get(child.id()).unwrap().len() > 1, restores, "{notes:?}");
        assert!(path.exists(), "as long as something may be changed");
        child.kill().unwrap();
        child.wait().unwrap();
        let notes = directory.recover();
        assert!(notes.len() == 1 && notes[0].contains("no process of that run"), "{notes:?}");
        assert!(!path.exists());
    }
}

#[test]
fn a_directory_with_wrong_rights_is_named_if_it_is_this_users() {
    let (parent, directory) = directory();
    assert_eq!(recover_in(parent.path()), Vec::<String>::new());
    std::fs::set_permissions(&directory.path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let notes = recover_in(parent.path());
    assert!(notes.len() == 1 && notes[0].contains(directory.path.to_str().unwrap()), "{notes:?}");
    assert!(notes[0].contains("not this user's alone"), "{notes:?}");
    std::fs::remove_dir(&directory.path).unwrap();
    assert_eq!(recover_in(parent.path()), Vec::<String>::new(), "there is nothing");
}

/// Writes the journal of a run that is over, with the given processes.
fn left_behind(directory: &Directory, name: &Name, entries: &[Entry]) -> PathBuf {
    let path = directory.path.join(name.to_string());
    let lines: String = entries.iter().map(Entry::to_line).collect();
    std::fs::write(&path, format!("{HEAD}\n{lines}")).unwrap();
    path
}

fn gone() -> Name {
    Name::own(Task { id: u32::MAX / 2, start: 7 }).unwrap()
}

#[test]
fn only_journals_that_nobody_looks_after_are_recovered() {
    let (_parent, directory) = directory();
    let own = Task::own().unwrap();
    let guarded = left_behind(&directory, &gone(), &[Entry::Guardian(own), bind(8)]);
    let in_use = left_behind(&directory, &Name::own(own).unwrap(), &[bind(8)]);
    let elsewhere = left_behind(&directory, &Name { namespace: 1, ..gone() }, &[bind(8)]);
    let foreign = directory.path.join("notes.txt");
    std::fs::write(&foreign, "mine").unwrap();
    let outdated = left_behind(&directory, &Name { boot: "earlier".to_owned(), ..gone() }, &[bind(8)]);
    assert_eq!(directory.recover(), Vec::<String>::new());
    assert!(guarded.exists() && in_use.exists() && elsewhere.exists() && foreign.exists());
    assert!(!outdated.exists());
    std::fs::remove_file(guarded).unwrap();
    let orphaned = left_behind(&directory, &gone(), &[Entry::Guardian(gone().corewise), bind(u32::MAX / 2)]);
    let said = directory.recover();
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
        let said = directory.recover();
        assert!(said.len() == 1 && said[0].contains("have been restored now") && !path.exists(), "{said:?}");
        children.iter_mut().for_each(|child| _ = child.wait().unwrap());
    }
}

#[test]
fn what_others_may_have_put_there_is_neither_followed_nor_waited_for() {
    let (parent, directory) = directory();
    let path = directory.path.join(gone().to_string());
    let secret = parent.path().join("secret");
    std::fs::write(&secret, bind(8).to_line()).unwrap();
    symlink(&secret, &path).unwrap();
    assert!(directory.recover()[0].contains("cannot be restored"));
    assert!(secret.exists());
    std::fs::remove_file(&path).unwrap();
    nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
    assert!(directory.recover()[0].contains("not a file of this user's"));
    std::fs::remove_file(&path).unwrap();
    // Nonsense of any size does nothing, and is not kept quiet about.
    std::fs::write(&path, "bind 1@ 0-99999999999 \0\u{1b}[2J\nanew\nbind 1@1 0-1\n".repeat(1000)).unwrap();
    let notes = directory.recover();
    assert!(notes.len() == 1 && notes[0].contains("is damaged"), "{notes:?}");
    assert!(!path.exists());
    File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let notes = directory.recover();
    assert!(notes.len() == 1 && notes[0].contains("it is empty"), "{notes:?}");
    assert!(!path.exists());
}

#[test]
fn what_another_run_has_restored_meanwhile_is_not_complained_about() {
    let (_parent, directory) = directory();
    assert!(directory.recover_one(&gone()).is_err(), "there is no such file");
    assert_eq!(directory.recovered(&gone()), None);
}

#[test]
fn a_directory_that_others_can_enter_is_not_used() {
    let (parent, directory) = directory();
    let path = directory.path.clone();
    for mode in [0o755, 0o770, 0o701] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        assert!(Directory::open(path.clone()).is_err(), "{mode:o}");
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    let link = parent.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(Directory::open(link).is_err());
    if geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
        assert!(Directory::open(path).is_err());
    }
}
