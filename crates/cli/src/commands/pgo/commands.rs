//! The steps as shell commands: those that are executed are those of `--dry-run`.

use super::compiler::{Compiler, LINKER};
use super::request::Request;
use super::shell::quoted;
use super::tools::{Bolt, Tools};
use anyhow::{Result, bail};
use corewise_paths::export::llvm_profgen;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Samples per second while a profile is recorded.
pub const RATE: u32 = 500;
/// One window in this many is long. More make a better profile sooner, and nobody waits for these runs.
const LONG_ONE_IN: &str = "2";
/// How long the runs are repeated for one recording, in seconds.
const RECORDING_SECONDS: u32 = 2;
/// How long they are repeated for the one recording of the script, which does not evaluate windows.
const SCRIPT_SECONDS: u32 = 20;

/// Makes clang look for the functions and lines of a profile where the sources have changed since. Measured
/// on jq 1.7.1 with a profile of 1.6: without it nothing of the gain remains, with it four fifths do.
const SALVAGE: &str = " -mllvm -salvage-stale-profile -mllvm -salvage-unused-profile";

/// All commands.
#[derive(Debug, Clone)]
pub struct Commands {
    /// The user's build command, with placeholders.
    pub build: String,
    /// The user's runs for the profile.
    pub runs: Vec<String>,
    /// The program or library that is optimised.
    pub binary: PathBuf,
    /// The folder of all intermediate files; absolute.
    pub dir: PathBuf,
    /// The tools.
    pub tools: Tools,
    /// The compiler.
    pub compiler: Compiler,
    /// Whether the profile is made from the user's recordings, which may be of earlier sources.
    pub is_given: bool,
    /// Whether to use BOLT.
    pub bolt: bool,
    /// What BOLT is asked to do.
    pub request: Request,
}

impl Commands {
    /// Returns the path of a file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Returns the build command without a profile, or with one.
    pub fn build_command(&self, profile: Option<&Path>) -> String {
        let mut options = self.compiler.options(profile, !self.build.contains("{ldflags}"));
        if profile.is_some() && self.is_given && self.compiler == Compiler::Clang && self.tools.salvages() {
            options += SALVAGE;
        }
        let suffix = &self.tools.suffix;
        self.build
            .replace("{cc}", &format!("clang{suffix}"))
            .replace("{cxx}", &format!("clang++{suffix}"))
            .replace("{ldflags}", LINKER)
            .replace(self.compiler.word(), &options)
    }

    /// Returns the path of the compiler's profile.
    pub fn profile(&self) -> PathBuf {
        self.file(self.compiler.profile().1)
    }

    /// Returns `llvm-profgen` if it makes the compiler's profile.
    pub fn profgen(&self) -> Option<&Path> {
        self.tools.profgen.as_deref().filter(|_| self.compiler.is_of_llvm())
    }

    /// Returns a command that repeats all runs, one after another, for some seconds.
    fn workload(&self, seconds: u32) -> String {
        let runs: Vec<String> = self.runs.iter().map(|run| format!("( {run}\n)")).collect();
        let runs = runs.join(" && ");
        let repeated = format!("while {runs}; do [ $(date +%s) -lt $end ] || exit 0; done");
        format!("end=$(($(date +%s) + {seconds}))\n{repeated}\nexit 1")
    }

    /// Returns the arguments with which corewise records the runs.
    pub fn record_arguments(&self, recording: &Path) -> Vec<String> {
        self.record_for(RECORDING_SECONDS, recording)
    }

    fn record_for(&self, seconds: u32, recording: &Path) -> Vec<String> {
        let rate = RATE.to_string();
        let recording = recording.display().to_string();
        let workload = self.workload(seconds);
        let words = ["paths", "record", "--quiet", "--rate", &rate, "--long-one-in", LONG_ONE_IN];
        let command = ["-o", &recording, "--", "sh", "-c", &workload];
        words.into_iter().chain(command).map(str::to_owned).collect()
    }

    /// Returns the command that makes the compiler's profile from [`Commands::file`] `sample.branches`.
    pub fn profgen_command(&self, profgen: &Path) -> String {
        format!(
            "{} --binary={} --unsymbolized-profile={} --use-offset=0 --output={}",
            profgen.display(),
            quoted(&self.binary),
            quoted(&self.file("sample.branches")),
            quoted(&self.profile())
        )
    }

    /// Returns the command that makes BOLT's profile from `bolt.branches`, for the program in its place.
    pub fn perf2bolt_command(&self, bolt: &Bolt) -> String {
        let (branches, data) = (quoted(&self.file("bolt.branches")), quoted(&self.file("bolt.fdata")));
        format!("{} {} -pa -p {branches} -o {data}", bolt.perf2bolt.display(), quoted(&self.binary))
    }

    /// Returns the command that makes the program `bolt` from the one in its place.
    pub fn bolt_command(&self, bolt: &Bolt) -> String {
        let (data, out) = (quoted(&self.file("bolt.fdata")), quoted(&self.file("bolt")));
        let (program, binary) = (bolt.llvm_bolt.display(), quoted(&self.binary));
        format!("{program} {binary} -data={data} -o {out} {}", self.request.options())
    }

    /// Returns everything as a shell script.
    pub fn script(&self) -> String {
        let binary = quoted(&self.binary);
        let mut text = format!("#!/bin/sh\nset -e\nmkdir -p {}\n\n", quoted(&self.dir));
        let mut step = |title: &str, commands: &[String]| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# {title}\n{}\n", commands.join("\n"));
        };
        let copy = |name| format!("cp {binary} {}", quoted(&self.file(name)));
        let baseline = match self.compiler {
            Compiler::Rust { .. } => "The baseline, with what profiles need (stable rustc refuses -Z)",
            Compiler::Clang | Compiler::Gcc | Compiler::Go => "The baseline, with what profiles need",
        };
        step(baseline, &[self.build_command(None), copy("baseline")]);
        let mut latest = "baseline";
        if self.compiler.takes_profiles() {
            let (format, file) = self.compiler.profile();
            let mut commands = match self.profgen() {
                Some(_) => self.recorded(latest, llvm_profgen::FORMAT.name, "sample.branches"),
                None => self.recorded(latest, format.name, file),
            };
            commands.extend(self.profgen().map(|profgen| self.profgen_command(profgen)));
            step("Its profile", &commands);
            step("The program by the profile", &[self.build_command(Some(&self.profile())), copy("sample")]);
            latest = "sample";
        }
        if let Some(bolt) = self.tools.bolt.as_ref().filter(|_| self.bolt) {
            let mut commands = self.recorded(latest, "bolt", "bolt.branches");
            commands.extend([self.perf2bolt_command(bolt), self.bolt_command(bolt)]);
            step("BOLT, by a profile of that program", &commands);
        }
        let dir = quoted(&self.dir);
        step(
            "Left to do: run baseline, sample and bolt in turn, and keep the fastest",
            &[format!("ls {dir}")],
        );
        text
    }

    /// Returns the commands that record the program in its place and export the recording.
    fn recorded(&self, variant: &str, format: &str, to: &str) -> Vec<String> {
        let recording = self.file(&format!("{variant}.cwp"));
        let words = self.record_for(SCRIPT_SECONDS, &recording);
        let words: Vec<String> = words.iter().map(|word| quoted(Path::new(word))).collect();
        let export = format!(
            "corewise paths export {} --format {format} --module {} -o {}",
            quoted(&recording),
            quoted(&self.binary),
            quoted(&self.file(to))
        );
        vec![format!("corewise {}", words.join(" ")), export]
    }
}

/// Refuses a folder that flags cannot contain.
pub fn check(dir: &Path) -> Result<()> {
    let dir = dir.display().to_string();
    if dir.chars().any(|c| c.is_whitespace() || "'\"\\$`".contains(c)) {
        bail!("{dir} has characters that compilers' flags cannot contain: name another folder with --dir");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(build: &str) -> Commands {
        Commands {
            build: build.to_owned(),
            runs: vec!["./prog 'an input'".to_owned(), "./prog -x # all".to_owned()],
            binary: "/src/prog".into(),
            dir: "/src/corewise-pgo".into(),
            tools: Tools {
                suffix: "-19".to_owned(),
                profgen: Some("/usr/bin/llvm-profgen-19".into()),
                bolt: Some(Bolt { llvm_bolt: "/l/llvm-bolt".into(), perf2bolt: "/l/perf2bolt".into() }),
            },
            compiler: Compiler::of(build).unwrap(),
            is_given: false,
            bolt: true,
            request: Request::default(),
        }
    }

    #[test]
    fn the_build_gets_what_profiles_need() {
        let plain = commands("make CC={cc} CXX={cxx} CFLAGS='-O2 {flags}'").build_command(None);
        assert!(
            plain.starts_with("make CC=clang-19 CXX=clang++-19 CFLAGS='-O2 -gline-tables-only "),
            "{plain}"
        );
        assert!(plain.contains("--emit-relocs") && !plain.contains("profile-sample"), "{plain}");
        let split = commands("{cc} {flags} -c a.c && {cc} {ldflags} a.o");
        let split = split.build_command(Some(Path::new("/p/x.prof")));
        assert_eq!(split.matches("--emit-relocs").count(), 1, "{split}");
        assert!(split.contains("-fprofile-sample-use=/p/x.prof -c a.c && clang-19 -Wl,"), "{split}");
    }

    #[test]
    fn a_profile_that_may_be_of_earlier_sources_is_matched_to_the_present_ones() {
        let profile = Path::new("/p/x.prof");
        let built = |suffix: &str, is_given, profile| {
            let mut commands = commands("{cc} {flags} a.c");
            commands.tools.suffix = suffix.to_owned();
            Commands { is_given, ..commands }.build_command(profile)
        };
        assert!(built("-19", true, Some(profile)).contains("-mllvm -salvage-stale-profile"));
        let plain = [built("-19", true, None), built("-19", false, Some(profile))];
        // Older ones do not know the options; without a number it may be an older one.
        let unknown = [built("-18", true, Some(profile)), built("", true, Some(profile))];
        assert!(plain.iter().chain(&unknown).all(|command| !command.contains("salvage")));
    }

    #[test]
    fn a_folder_that_flags_cannot_name_is_refused() {
        check(Path::new("/src/corewise-pgo")).unwrap();
        assert!(check(Path::new("/my files")).unwrap_err().to_string().contains("--dir"));
    }

    #[test]
    fn the_script_is_one_that_the_shell_understands() {
        let script = commands("make CFLAGS='-O2 {flags}'").script();
        insta::assert_snapshot!(script);
        let mut shell = std::process::Command::new("sh").args(["-n", "-c", &script]).spawn().unwrap();
        assert!(shell.wait().unwrap().success());
    }
}
