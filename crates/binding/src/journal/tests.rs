use super::*;
use corewise_core::cpuset::CpuSet;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};

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
    let mut journal = Journal::in_directory(&directory, own).unwrap();
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
    let mut journal = Journal::in_directory(&directory, Task::own().unwrap()).unwrap();
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
