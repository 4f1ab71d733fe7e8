//! The files of rules: which there are, and in which order.
//!
//! The directories are, the most important first, the user's, the administrator's and the distribution's. Of
//! two files of one name only the one in the more important directory counts; if it is empty, or a link to
//! `/dev/null`, there is none. What remains is read in this order: `rules.toml`, then the files of `rules.d`
//! by their names. Root has no directory of its own: its environment may be that of the user who became root.

use corewise_rules::{RuleErrors, Rules, SourceFile};
use corewise_sys::input;
use nix::unistd::Uid;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The maximum size of a file, in bytes.
const FILE_MAX: u64 = 1 << 20;
const NONE: &str = "/dev/null";

/// Returns the directories in which rules are installed, the most important first.
pub fn directories() -> Vec<PathBuf> {
    let absolute = |variable| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let user = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    let user = user.filter(|_| !Uid::effective().is_root());
    let all = user.into_iter().chain([PathBuf::from("/etc"), PathBuf::from("/usr/lib")]);
    all.map(|folder| folder.join("corewise")).collect()
}

/// Reads the rules of directories, the most important first; returns all, or everything that is wrong.
pub fn read(directories: &[PathBuf]) -> Result<Rules, RuleErrors> {
    Rules::read(&found(directories))
}

/// Reads the rules of these files.
pub fn read_files(paths: &[PathBuf]) -> Result<Rules, RuleErrors> {
    Rules::read(&paths.iter().map(|path| file(path)).collect::<Vec<_>>())
}

/// Returns the files in their order. A directory that cannot be listed counts as one.
fn found(directories: &[PathBuf]) -> Vec<SourceFile> {
    let mut unlisted = Vec::new();
    let mut main = None;
    let mut drop_ins: BTreeMap<OsString, PathBuf> = BTreeMap::new();
    for directory in directories {
        let own = directory.join("rules.toml");
        // Also a link that leads nowhere is there.
        if main.is_none() && own.symlink_metadata().is_ok() {
            main = Some(own);
        }
        let folder = directory.join("rules.d");
        match names_in(&folder) {
            Ok(names) => names.into_iter().for_each(|name| {
                let path = folder.join(&name);
                drop_ins.entry(name).or_insert(path);
            }),
            Err(error) => unlisted.push(SourceFile { path: folder, content: Err(error) }),
        }
    }
    unlisted.into_iter().chain(main.iter().chain(drop_ins.values()).map(|path| file(path))).collect()
}

/// Returns the names of the drop-ins in a directory; none if there is no such directory.
fn names_in(folder: &Path) -> io::Result<Vec<OsString>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    // Editors' own files begin with a dot.
    let is_one = |name: &OsString| {
        let name = name.to_string_lossy();
        name.ends_with(".toml") && !name.starts_with('.')
    };
    Ok(names.into_iter().filter(is_one).collect())
}

fn file(path: &Path) -> SourceFile {
    let is_none = path.canonicalize().is_ok_and(|target| target == Path::new(NONE));
    let content = if is_none { Ok(Vec::new()) } else { input::read_regular(path, FILE_MAX) };
    SourceFile { path: path.to_owned(), content }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Writes a file with one rule.
    fn rule(root: &Path, file: &str, name: &str) {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("[[rule]]\nname = '{name}'\nmatch.user = '*'\n")).unwrap();
    }

    #[test]
    fn files_are_read_in_order_and_replace_less_important_ones_of_the_same_name() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for (file, name) in [
            ("lib/rules.toml", "replaced main"),
            ("lib/rules.d/10-a.toml", "replaced"),
            ("lib/rules.d/30-c.toml", "third"),
            ("lib/rules.d/40-off.toml", "disabled"),
            ("lib/rules.d/45-empty.toml", "emptied"),
            ("etc/rules.toml", "main"),
            ("etc/rules.d/10-a.toml", "first"),
            ("etc/rules.d/20-b.toml", "second"),
            ("etc/rules.d/.21.toml", "hidden"),
            ("etc/rules.d/22-b.toml.bak", "no rules"),
        ] {
            rule(root, file, name);
        }
        symlink(NONE, root.join("etc/rules.d/40-off.toml")).unwrap();
        std::fs::write(root.join("etc/rules.d/45-empty.toml"), "").unwrap();
        let directories = ["user", "etc", "lib"].map(|folder| root.join(folder));
        let rules = read(&directories).unwrap();
        let names: Vec<&str> = rules.rules.iter().map(|rule| rule.name.as_str()).collect();
        assert_eq!(names, ["main", "first", "second", "third"]);
        rule(root, "user/rules.toml", "own");
        assert_eq!(read(&directories).unwrap().rules[0].name, "own");
    }

    #[test]
    fn no_directory_is_no_rules_and_an_unreadable_one_an_error() {
        let root = tempfile::tempdir().unwrap();
        let directories = [root.path().to_owned()];
        assert_eq!(read(&directories), Ok(Rules::default()));
        std::fs::write(root.path().join("rules.d"), "").unwrap();
        symlink("nowhere", root.path().join("rules.toml")).unwrap();
        let errors = read(&directories).unwrap_err().to_string();
        assert!(errors.contains("rules.d: cannot read it: Not a directory"), "{errors}");
        assert!(errors.contains("rules.toml: cannot read it: No such file"), "{errors}");
    }

    #[test]
    fn a_pipe_is_refused_at_once_and_nobody_waits_for_its_writer() {
        let root = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&root.path().join("rules.toml"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let errors = read(&[root.path().to_owned()]).unwrap_err().to_string();
        assert!(errors.contains("rules.toml: cannot read it: it is not a regular file"), "{errors}");
    }

    #[test]
    fn a_file_that_is_too_large_is_reported_with_the_limit() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("rules.toml"), "#".repeat(FILE_MAX as usize + 1)).unwrap();
        let errors = read(&[root.path().to_owned()]).unwrap_err().to_string();
        assert!(errors.contains("rules.toml: cannot read it: it holds more than 1 MiB"), "{errors}");
    }
}
