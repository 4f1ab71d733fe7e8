//! What is going to be done, as commands for the shell: those that are executed are those of `--dry-run`.

use super::tools::{Bolt, Tools};
use anyhow::{Result, bail};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Samples a second while a profile is recorded.
pub const RATE: u32 = 500;
/// How long the runs are repeated for one recording, in seconds.
const RECORDING_SECONDS: u32 = 2;
/// How long they are for the one recording of the script, which does not judge windows.
const SCRIPT_SECONDS: u32 = 20;

/// What profiles are matched by: line tables with discriminators, and names that tell static functions apart.
const FLAGS: &str = "-gline-tables-only -fdebug-info-for-profiling -funique-internal-linkage-names";
/// What BOLT needs, and by what a recording knows its file.
const LDFLAGS: &str = "-Wl,--emit-relocs -Wl,--build-id";
/// The same for rustc. Cargo strips releases of what debug information it did not ask for.
const RUSTFLAGS: &str = "-Cdebuginfo=line-tables-only -Cstrip=none -Clink-arg=-Wl,--emit-relocs \
                         -Clink-arg=-Wl,--build-id";
const BOLT_FLAGS: &str =
    "-reorder-blocks=ext-tsp -reorder-functions=cdsort -split-functions -split-all-cold -split-eh -icf=1";

/// All commands.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The user's build command, with placeholders.
    pub build: String,
    /// The user's runs that the profile is of.
    pub runs: Vec<String>,
    /// The program or library that is optimised.
    pub binary: PathBuf,
    /// Where everything that is made on the way lies; absolute.
    pub dir: PathBuf,
    /// The tools.
    pub tools: Tools,
    /// Whether the compiler takes sample profiles: clang always, stable rustc does not.
    pub compiler_takes_profiles: bool,
    /// Whether BOLT is wanted.
    pub bolt: bool,
}

impl Plan {
    /// Where a file of that name lies.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The build command without a profile, or with one.
    pub fn build_command(&self, profile: Option<&Path>) -> String {
        let mut flags = FLAGS.to_owned();
        let mut rustflags = RUSTFLAGS.to_owned();
        if self.compiler_takes_profiles {
            rustflags += " -Zdebug-info-for-profiling";
        }
        if let Some(profile) = profile.map(Path::display) {
            flags += &format!(" -fprofile-sample-use={profile}");
            rustflags += &format!(" -Zprofile-sample-use={profile}");
        }
        if !self.build.contains("{ldflags}") {
            // Many builds link with the compiler's flags; where they do not, clang would warn.
            flags += &format!(" -Wno-unused-command-line-argument {LDFLAGS}");
        }
        let suffix = &self.tools.suffix;
        self.build
            .replace("{cc}", &format!("clang{suffix}"))
            .replace("{cxx}", &format!("clang++{suffix}"))
            .replace("{flags}", &flags)
            .replace("{ldflags}", LDFLAGS)
            .replace("{rustflags}", &rustflags)
    }

    /// All runs one behind the other, again and again for some seconds.
    fn workload(&self, seconds: u32) -> String {
        let runs: Vec<String> = self.runs.iter().map(|run| format!("( {run}\n)")).collect();
        let runs = runs.join(" && ");
        let turns = format!("while {runs}; do [ $(date +%s) -lt $end ] || exit 0; done");
        format!("end=$(($(date +%s) + {seconds}))\n{turns}\nexit 1")
    }

    /// The arguments of corewise that record the runs.
    pub fn record_arguments(&self, recording: &Path) -> Vec<String> {
        self.record_for(RECORDING_SECONDS, recording)
    }

    fn record_for(&self, seconds: u32, recording: &Path) -> Vec<String> {
        let rate = RATE.to_string();
        let recording = recording.display().to_string();
        let workload = self.workload(seconds);
        let words =
            ["paths", "record", "--quiet", "--rate", &rate, "-o", &recording, "--", "sh", "-c", &workload];
        words.map(str::to_owned).to_vec()
    }

    /// Makes the compiler's profile of [`Plan::file`] `sample.branches`.
    pub fn profgen_command(&self, profgen: &Path) -> String {
        format!(
            "{} --binary={} --unsymbolized-profile={} --use-offset=0 --output={}",
            profgen.display(),
            quoted(&self.binary),
            quoted(&self.file("sample.branches")),
            quoted(&self.file("sample.prof"))
        )
    }

    /// Makes the program `bolt` of the one in its place, by the profile `bolt.branches`.
    pub fn bolt_commands(&self, Bolt { llvm_bolt, perf2bolt }: &Bolt) -> [String; 2] {
        let data = quoted(&self.file("bolt.fdata"));
        let binary = quoted(&self.binary);
        let (branches, out) = (quoted(&self.file("bolt.branches")), quoted(&self.file("bolt")));
        [
            format!("{} {binary} -pa -p {branches} -o {data}", perf2bolt.display()),
            format!("{} {binary} -data={data} -o {out} {BOLT_FLAGS}", llvm_bolt.display()),
        ]
    }

    /// Everything as a script for the shell.
    pub fn script(&self) -> String {
        let binary = quoted(&self.binary);
        let mut text = format!("#!/bin/sh\nset -e\nmkdir -p {}\n\n", quoted(&self.dir));
        let mut step = |title: &str, commands: &[String]| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# {title}\n{}\n", commands.join("\n"));
        };
        let copy = |name| format!("cp {binary} {}", quoted(&self.file(name)));
        step("The baseline, with what profiles need", &[self.build_command(None), copy("baseline")]);
        let (mut latest, profile) = ("baseline", self.file("sample.prof"));
        if self.compiler_takes_profiles {
            let format = if self.tools.profgen.is_some() { "llvm-profgen" } else { "autofdo" };
            let to = if self.tools.profgen.is_some() { "sample.branches" } else { "sample.prof" };
            let mut commands = self.recorded(latest, format, to);
            commands.extend(self.tools.profgen.iter().map(|profgen| self.profgen_command(profgen)));
            step("Its profile", &commands);
            step("The program by the profile", &[self.build_command(Some(&profile)), copy("sample")]);
            latest = "sample";
        }
        if let Some(bolt) = self.tools.bolt.as_ref().filter(|_| self.bolt) {
            let mut commands = self.recorded(latest, "bolt", "bolt.branches");
            commands.extend(self.bolt_commands(bolt));
            step("BOLT, by a profile of that program", &commands);
        }
        let dir = quoted(&self.dir);
        step(
            "Left to do: run baseline, sample and bolt in turns, and keep the fastest",
            &[format!("ls {dir}")],
        );
        text
    }

    /// Records the program that is in place, and exports that.
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

/// Refuses a build command that flags do not reach, and a folder that flags cannot name.
pub fn check(build: &str, dir: &Path) -> Result<()> {
    if !build.contains("{flags}") && !build.contains("{rustflags}") {
        bail!(
            "--build has no {{flags}}, so no profile can reach the compiler: write it where the compiler's \
             options go, such as CFLAGS=\"-O2 {{flags}}\" (for Cargo: RUSTFLAGS=\"{{rustflags}}\")"
        );
    }
    let dir = dir.display().to_string();
    if dir.chars().any(|c| c.is_whitespace() || "'\"\\$`".contains(c)) {
        bail!("{dir} has characters that compilers' flags cannot hold: name another folder with --dir");
    }
    Ok(())
}

/// A word for the shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(build: &str) -> Plan {
        Plan {
            build: build.to_owned(),
            runs: vec!["./prog 'an input'".to_owned(), "./prog -x # all".to_owned()],
            binary: "/src/prog".into(),
            dir: "/src/corewise-pgo".into(),
            tools: Tools {
                suffix: "-19".to_owned(),
                profgen: Some("/usr/bin/llvm-profgen-19".into()),
                bolt: Some(Bolt { llvm_bolt: "/l/llvm-bolt".into(), perf2bolt: "/l/perf2bolt".into() }),
            },
            compiler_takes_profiles: true,
            bolt: true,
        }
    }

    #[test]
    fn the_build_gets_what_profiles_need() {
        let plain = plan("make CC={cc} CXX={cxx} CFLAGS='-O2 {flags}'").build_command(None);
        assert!(
            plain.starts_with("make CC=clang-19 CXX=clang++-19 CFLAGS='-O2 -gline-tables-only "),
            "{plain}"
        );
        assert!(plain.contains("--emit-relocs") && !plain.contains("profile-sample"), "{plain}");
        let split = plan("{cc} {flags} -c a.c && {cc} {ldflags} a.o");
        let split = split.build_command(Some(Path::new("/p/x.prof")));
        assert_eq!(split.matches("--emit-relocs").count(), 1, "{split}");
        assert!(split.contains("-fprofile-sample-use=/p/x.prof -c a.c && clang-19 -Wl,"), "{split}");
        let mut cargo = plan("RUSTFLAGS='{rustflags}' cargo build --release");
        assert!(cargo.build_command(Some(Path::new("/p"))).contains("-Zprofile-sample-use=/p"));
        cargo.compiler_takes_profiles = false;
        assert!(!cargo.build_command(None).contains("-Z"));
    }

    #[test]
    fn a_build_that_no_profile_reaches_is_refused() {
        let here = Path::new("/src/corewise-pgo");
        check("make CFLAGS='{flags}'", here).unwrap();
        assert!(check("make", here).unwrap_err().to_string().contains("CFLAGS=\"-O2 {flags}\""));
        assert!(check("{flags}", Path::new("/my files")).unwrap_err().to_string().contains("--dir"));
    }

    #[test]
    fn the_script_is_one_that_the_shell_understands() {
        let script = plan("make CFLAGS='-O2 {flags}'").script();
        insta::assert_snapshot!(script);
        let mut shell = std::process::Command::new("sh").args(["-n", "-c", &script]).spawn().unwrap();
        assert!(shell.wait().unwrap().success());
    }
}
