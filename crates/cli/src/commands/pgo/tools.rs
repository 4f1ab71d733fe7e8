//! The installed compilers and optimisers.

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// The endings of LLVM's tools in Debian, newest first. Versions before 16 read other profiles.
const SUFFIXES: [&str; 8] = ["-22", "-21", "-20", "-19", "-18", "-17", "-16", ""];

/// The first version that finds functions and lines of a profile again where the sources have changed.
const FIRST_TO_SALVAGE: u32 = 19;

/// LLVM's tools of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tools {
    /// `-19`, or nothing.
    pub suffix: String,
    /// Makes the compiler's profile; without it corewise does.
    pub profgen: Option<PathBuf>,
    /// BOLT, under both of its names.
    pub bolt: Option<Bolt>,
}

/// BOLT's two programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bolt {
    /// Rearranges a program.
    pub llvm_bolt: PathBuf,
    /// Reads profiles. It acts by its name, which Debian's `perf2bolt-19` does not have.
    pub perf2bolt: PathBuf,
}

impl Tools {
    /// Finds the tools on the search path `path`: of the newest version that has `clang`, if that is needed,
    /// else BOLT.
    pub fn find(path: &str, needs_clang: bool) -> Result<Tools> {
        let wanted = if needs_clang { "clang" } else { "llvm-bolt" };
        let suffix = SUFFIXES.iter().find(|suffix| on_path(path, &format!("{wanted}{suffix}")).is_some());
        let suffix = match suffix {
            Some(suffix) => (*suffix).to_owned(),
            None if needs_clang => {
                bail!("there is no clang: install it (Debian: apt-get install clang-19)")
            }
            None => String::new(),
        };
        let find = |tool: &str| on_path(path, &format!("{tool}{suffix}"));
        let bolt = find("llvm-bolt").and_then(|found| {
            let llvm_bolt = found.canonicalize().ok()?;
            let perf2bolt = llvm_bolt.with_file_name("perf2bolt");
            perf2bolt.is_file().then_some(Bolt { llvm_bolt, perf2bolt })
        });
        Ok(Tools { profgen: find("llvm-profgen"), suffix, bolt })
    }

    /// Returns whether this clang knows the options that match a profile of earlier sources.
    pub fn salvages(&self) -> bool {
        let version = self.suffix.trim_start_matches('-').parse();
        version.is_ok_and(|version: u32| version >= FIRST_TO_SALVAGE)
    }

    /// Returns the Debian package of a tool, such as `bolt` or `llvm`.
    pub fn package(&self, name: &str) -> String {
        let suffix = if self.suffix.is_empty() { "-19" } else { &self.suffix };
        format!("{name}{suffix}")
    }
}

fn on_path(path: &str, program: &str) -> Option<PathBuf> {
    path.split(':').map(|folder| Path::new(folder).join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(programs: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        programs.iter().for_each(|program| std::fs::write(folder.path().join(program), "").unwrap());
        folder
    }

    #[test]
    fn tools_are_of_one_version_and_what_is_missing_is_named() {
        let folder = folder_with(&["clang", "clang-19", "llvm-profgen-18", "llvm-bolt-19", "perf2bolt"]);
        let path = folder.path().display().to_string();
        let found = Tools::find(&path, true).unwrap();
        assert_eq!((found.suffix.as_str(), &found.profgen), ("-19", &None));
        assert!(found.bolt.as_ref().unwrap().perf2bolt.ends_with("perf2bolt"));
        assert_eq!(found.package("llvm"), "llvm-19");
        let empty = folder_with(&[]).path().display().to_string();
        let error = Tools::find(&empty, true).unwrap_err().to_string();
        assert!(error.contains("apt-get install clang-19"), "{error}");
        assert_eq!(Tools::find(&empty, false).unwrap().bolt, None);
    }
}
