//! Restoring what earlier runs of this user have left changed.
//!
//! Problem: corewise and its guardian may both be killed. Approach: each run has a journal in the runtime
//! directory ([`super::journal`]); the next corewise looks there and restores what the journals of runs that
//! have ended say ([`super::restore`]). Limits: those of the journal. A machine that was started anew has
//! nothing to restore.

use super::act_token::ActToken;
use super::journal::{self, Content, Damage, Name};
use super::ledger::Entry;
use super::members;
use super::restore::restore;
use super::runtime_directory::{Directory, owned_by_user};
use super::word::Memories;
use corewise_sys::task::Task;
use nix::fcntl::OFlag;
use nix::unistd::geteuid;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the next corewise tries to restore what an earlier one has left: as long as a guardian, as no
/// other attempt follows.
const WITHIN: Duration = Duration::from_secs(10);

/// Restores what earlier runs of this user have left changed because corewise and guardian were both killed
/// (or the guardian was stopped). Returns messages about what was done and what remains.
pub fn recover() -> Vec<String> {
    Directory::candidates().iter().flat_map(|parent| recover_in(parent)).collect()
}

/// The same in one directory, of which the journals are in a directory of their own.
pub fn recover_in(parent: &Path) -> Vec<String> {
    let path = parent.join("corewise");
    match Directory::open(path.clone()) {
        Ok(directory) => recover_from(&directory),
        // It is there, and it is this user's matter.
        Err(error) if path.symlink_metadata().is_ok() && owned_by_user(parent).is_ok() => {
            vec![format!(
                "what earlier runs have left changed is not restored: cannot use {}: {error}",
                path.display()
            )]
        }
        Err(_) => Vec::new(),
    }
}

fn recover_from(directory: &Directory) -> Vec<String> {
    let entries = match std::fs::read_dir(directory.path()) {
        Ok(entries) => entries,
        Err(error) => {
            let path = directory.path().display();
            return vec![format!(
                "what earlier runs have left changed is not restored: cannot read {path}: {error}"
            )];
        }
    };
    let names = entries.flatten().filter_map(|entry| Name::parse(entry.file_name().to_str()?));
    names.filter_map(|name| recovered(directory, &name)).collect()
}

/// Returns a message about one run.
fn recovered(directory: &Directory, name: &Name) -> Option<String> {
    let path = directory.path().join(name.to_string());
    match recover_one(directory, name) {
        Ok(note) => note,
        // Another corewise that started at the same time has restored it.
        Err(_) if !path.is_symlink() && !path.exists() => None,
        Err(error) => Some(format!(
            "the run of process {} was killed along with its guardian, and its changes cannot be \
                 restored: {}: {error}",
            name.corewise.id,
            path.display()
        )),
    }
}

/// Returns `None` if nothing was to be done.
fn recover_one(directory: &Directory, name: &Name) -> io::Result<Option<String>> {
    let present = Name::own(name.corewise)?;
    if (&name.boot, name.namespace) == (&present.boot, present.namespace) {
        wait_while_dying(name.corewise)?;
    }
    if name.boot == present.boot && (name.namespace != present.namespace || name.corewise.lives()?) {
        return Ok(None);
    }
    let remove = || std::fs::remove_file(directory.path().join(name.to_string()));
    if name.boot != present.boot {
        // No mask of that boot is left.
        return remove().map(|()| None);
    }
    let Content { mut ledger, damage } = read(directory, name)?;
    ledger.guardian().map_or(Ok(()), wait_while_dying)?;
    // A stopped guardian would do it too late; doing it twice is harmless.
    let state = ledger.guardian().map_or(Ok(None), Task::state)?;
    if state.is_some_and(|state| !matches!(state, 'T' | 't')) {
        return Ok(None);
    }
    if damage.is_none() && ledger.is_settled() {
        return remove().map(|()| None);
    }
    // What it has started has its number, whatever the journal has lost.
    ledger.note(Entry::Member(name.corewise));
    let token = ActToken::mint();
    let remains = restore(&ledger, &token, None, &Memories::default(), WITHIN);
    let what = format!("the run of process {} was killed along with its guardian", name.corewise.id);
    let remains = (!remains.is_nothing()).then(|| remains.to_string());
    let lost = damage.map(|damage| loss(directory, name, damage, &members::living(ledger.members())));
    let mut open = remains.into_iter().chain(lost.as_ref().map(|(text, _)| text.clone())).peekable();
    if open.peek().is_none() || lost.is_some_and(|(_, may_be_changed)| !may_be_changed) {
        remove()?;
    }
    let open: Vec<String> = open.collect();
    Ok(Some(match open.is_empty() {
        true => format!("{what}: its changes have been restored now"),
        false => format!("{what}: {}", open.join("; ")),
    }))
}

/// Returns a message about a damaged journal, and whether some of these processes of its run
/// may still be changed.
fn loss(directory: &Directory, name: &Name, damage: Damage, living: &[u32]) -> (String, bool) {
    let path = directory.path().join(name.to_string());
    let left = match living {
        [] => "no process of that run is known to live".to_owned(),
        living => {
            let living: Vec<String> = living.iter().map(u32::to_string).collect();
            format!("its processes {}, and what they start, may have stayed changed", living.join(", "))
        }
    };
    let text = format!(
        "its journal {} is damaged ({damage}), and only what is left of it could be restored: {left} \
             (`taskset -p` shows and sets affinity masks, `chrt -p` scheduling policies)",
        path.display()
    );
    (text, !living.is_empty())
}

fn read(directory: &Directory, name: &Name) -> io::Result<Content> {
    let file = directory.open_file(&name.to_string(), OFlag::O_RDONLY | OFlag::O_NONBLOCK)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.uid() != geteuid().as_raw() {
        return Err(io::Error::other("it is not a file of this user's"));
    }
    journal::read(file.as_fd())
}

/// Waits for the end of a process: a process that was just killed does nothing any more, but still exists for
/// a while.
fn wait_while_dying(task: Task) -> io::Result<()> {
    let started = Instant::now();
    while task.is_dying()? && started.elapsed() < WITHIN {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
