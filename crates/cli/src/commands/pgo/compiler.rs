//! The compilers: the word of the build command for each, what replaces it, and the profile that each reads.

use anyhow::{Result, bail};
use corewise_paths::export::{Format, autofdo_text, gcov, pprof};
use std::path::Path;

/// The basis for matching profiles: line tables with discriminators, and unique names of static functions.
const CLANG: &str = "-gline-tables-only -fdebug-info-for-profiling -funique-internal-linkage-names";
/// GCC's line tables alone do not contain inlined calls.
const GCC: &str = "-g";
/// corewise reads uncompressed debug information only. A `default.pgo` would spoil the baseline.
const GO: &str = "-ldflags=-compressdwarf=false";
/// Cargo strips from release builds any debug information that it did not request.
const RUST: &str = "-Cdebuginfo=line-tables-only -Cstrip=none -Clink-arg=-Wl,--emit-relocs \
                    -Clink-arg=-Wl,--build-id";
/// What BOLT needs, and the build id, by which a recording identifies its file.
pub const LINKER: &str = "-Wl,--emit-relocs -Wl,--build-id";

/// A compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compiler {
    /// `{flags}`.
    Clang,
    /// `{gccflags}`.
    Gcc,
    /// `{goflags}`.
    Go,
    /// `{rustflags}`; stable `rustc` takes no sample profile.
    Rust {
        /// Whether this one does.
        takes_profiles: bool,
    },
}

impl Compiler {
    /// Returns the compiler whose word occurs in a build command. A rustc is one that takes profiles until it
    /// [refuses](Compiler::that_refuses_profiles) them.
    pub fn of(build: &str) -> Result<Compiler> {
        let rust = Compiler::Rust { takes_profiles: true };
        let all = [Compiler::Clang, Compiler::Gcc, Compiler::Go, rust];
        let named: Vec<Compiler> =
            all.into_iter().filter(|compiler| build.contains(compiler.word())).collect();
        match named[..] {
            [compiler] => Ok(compiler),
            [] => bail!(
                "--build has no {{flags}}, so no profile can reach the compiler: write it where the \
                 compiler's options go, such as CFLAGS=\"-O2 {{flags}}\" (for GCC: {{gccflags}}; for Cargo: \
                 RUSTFLAGS=\"{{rustflags}}\"; for Go: go build {{goflags}})"
            ),
            [one, other, ..] => bail!(
                "--build has {} and {}, but a profile is for one compiler: keep one of them",
                one.word(),
                other.word()
            ),
        }
    }

    /// Returns the compiler that has printed this, if it refuses the options for profiles.
    pub fn that_refuses_profiles(self, output: &str) -> Option<Compiler> {
        let refuses = self == Compiler::Rust { takes_profiles: true }
            && output.contains("only accepted on the nightly compiler");
        refuses.then_some(Compiler::Rust { takes_profiles: false })
    }

    /// Returns the word for its options.
    pub fn word(self) -> &'static str {
        match self {
            Compiler::Clang => "{flags}",
            Compiler::Gcc => "{gccflags}",
            Compiler::Go => "{goflags}",
            Compiler::Rust { .. } => "{rustflags}",
        }
    }

    /// Returns the options, with a profile or without. `links` says whether they are also the linker's.
    pub fn options(self, profile: Option<&Path>, links: bool) -> String {
        let (base, option) = match self {
            Compiler::Clang => (CLANG, "-fprofile-sample-use="),
            Compiler::Gcc => (GCC, "-fauto-profile="),
            Compiler::Go => (GO, "-pgo="),
            Compiler::Rust { .. } => (RUST, "-Zprofile-sample-use="),
        };
        let mut options = base.to_owned();
        match self {
            Compiler::Rust { takes_profiles: true } => options += " -Zdebug-info-for-profiling",
            // If the compiler's options are not also the linker's, clang would warn.
            Compiler::Clang if links => options += &format!(" -Wno-unused-command-line-argument {LINKER}"),
            Compiler::Gcc if links => options += &format!(" {LINKER}"),
            Compiler::Clang | Compiler::Gcc | Compiler::Go | Compiler::Rust { .. } => {}
        }
        match (profile, self) {
            (Some(profile), _) => options += &format!(" {option}{}", profile.display()),
            (None, Compiler::Go) => options += " -pgo=off",
            (None, Compiler::Clang | Compiler::Gcc | Compiler::Rust { .. }) => {}
        }
        options
    }

    /// Returns whether it takes sample profiles.
    pub fn takes_profiles(self) -> bool {
        match self {
            Compiler::Clang | Compiler::Gcc | Compiler::Go => true,
            Compiler::Rust { takes_profiles } => takes_profiles,
        }
    }

    /// Returns whether `llvm-profgen` makes its profile.
    pub fn is_of_llvm(self) -> bool {
        match self {
            Compiler::Clang | Compiler::Rust { .. } => true,
            Compiler::Gcc | Compiler::Go => false,
        }
    }

    /// Returns whether its programs have relocations for BOLT.
    pub fn has_bolt(self) -> bool {
        match self {
            Compiler::Clang | Compiler::Gcc | Compiler::Rust { .. } => true,
            Compiler::Go => false,
        }
    }

    /// Returns the format of the profile that corewise itself writes for it, and the name of the file.
    pub fn profile(self) -> (Format, &'static str) {
        match self {
            Compiler::Clang | Compiler::Rust { .. } => (autofdo_text::FORMAT, "sample.prof"),
            Compiler::Gcc => (gcov::FORMAT, "sample.gcov"),
            Compiler::Go => (pprof::FORMAT, "sample.pprof"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_tells_the_compiler_and_the_compiler_the_profile() {
        let profile = Path::new("/p/profile");
        let check = |build: &str, with: &str, without: &str| {
            let compiler = Compiler::of(build).unwrap();
            let (built, baseline) = (compiler.options(Some(profile), true), compiler.options(None, true));
            assert!(built.contains(with) && !baseline.contains(with), "{built} | {baseline}");
            assert!(baseline.contains(without), "{baseline}");
            assert!(compiler.takes_profiles());
        };
        check("make CFLAGS='{flags}'", "-fprofile-sample-use=/p/profile", "--emit-relocs");
        check("make CFLAGS='{gccflags}'", "-fauto-profile=/p/profile", "-g -Wl,--emit-relocs");
        check("go build {goflags}", "-pgo=/p/profile", "-pgo=off");
        check("RUSTFLAGS='{rustflags}' cargo build", "-Zprofile-sample-use=/p/profile", "-Clink-arg");
        let refused = "error: the option `Z` is only accepted on the nightly compiler";
        let rustc = Compiler::of("RUSTFLAGS='{rustflags}' cargo build").unwrap();
        assert_eq!(rustc.that_refuses_profiles("error: no such file"), None);
        let stable = rustc.that_refuses_profiles(refused).unwrap();
        assert!(!stable.takes_profiles() && !stable.options(None, true).contains("-Z"));
        assert_eq!(Compiler::Clang.that_refuses_profiles(refused), None);
    }

    #[test]
    fn a_build_for_no_compiler_or_for_two_is_refused() {
        let error = |build: &str| Compiler::of(build).unwrap_err().to_string();
        assert!(error("make").contains("CFLAGS=\"-O2 {flags}\""));
        assert!(error("make {flags} {gccflags}").contains("{flags} and {gccflags}"));
    }
}
