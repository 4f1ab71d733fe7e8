//! `corewise pgo`: from a running program to a faster one.
//!
//! Problem: a profile gains much (docs/paths.md), but takes ten commands, several tools and a measurement.
//! Approach: one command does it all, in the user's own tree with the user's own build command. It builds a
//! baseline, records it until the profile is good enough ([`quality`](corewise_paths::quality)), builds with
//! the profile, lets BOLT rearrange the result by a second profile, measures the variants alternately, and
//! keeps one that is certainly faster than the one before it. If none is, the baseline stays.
//!
//! When it is asked to end or fails, it restores the file that was in the program's place ([`place`]).
//!
//! Limits: builds are in place, because names of static functions and lines are matched by path; object files
//! of the last build are left in the tree. The measured command is the recorded one unless `--measure` names
//! another.

mod commands;
mod compiler;
mod measure;
mod place;
mod record;
mod request;
mod shell;
mod tools;

use super::paths::{ModuleCounts, how_to_get_build_id, read_all, read_recording, without_other_builds};
use crate::outputs::JsonOutput;
use crate::{values, whole_file};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use commands::Commands;
use compiler::Compiler;
use corewise_code::elf::ElfFile;
use corewise_core::comparison::BLOCKS_MIN;
use corewise_paths::export::{Format, bolt, llvm_profgen};
use corewise_paths::modules::merged;
use corewise_paths::quality::Quality;
use corewise_paths::window::{BranchRecording, Module, ModuleId};
use corewise_render::table::Table;
use corewise_render::terminal::progress::StatusLine;
use corewise_render::terminal::{self, Name};
use corewise_sys::signals;
use measure::{Gain, Times, fastest, rounds};
use place::{BASELINE, Place};
use request::Request;
use serde::Serialize;
use shell::Shell;
use std::convert::Infallible;
use std::fmt::Write;
use std::path::{Path, PathBuf, absolute};
use std::time::{Duration, Instant};
use tools::Tools;

const SAMPLE: &str = "sample";
const BOLT: &str = "bolt";

/// If the interval includes gains from here on, another measurement is worthwhile.
const WORTH_MORE_ROUNDS: f64 = 0.02;

/// Make a program faster by profile-guided optimisation.
///
/// Records it, rebuilds it, measures, and keeps what is faster. Builds in this folder with your own build
/// command; for clang, GCC, Go and Cargo. In the build command {cc} and {cxx} stand for clang, {flags}
/// (clang), {gccflags}, {goflags}, {rustflags} and {ldflags} for options. It must rebuild everything each
/// time (`make clean && make …`). If nothing is gained, the baseline stays; after Ctrl-C or an error the
/// program is what it was before.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Pgo {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    optimise: Option<Optimise>,
    // Not within `Optimise`, of which clap would then not know whether it is given.
    #[command(flatten)]
    json: JsonOutput,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Record(record::Record),
}

impl Pgo {
    /// Executes the command; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        match (self.action, self.optimise) {
            (Some(Action::Record(record)), _) => record.execute(),
            (None, Some(optimise)) => optimise.execute(&self.json),
            (None, None) => bail!("give the commands that build and run the program, with --build and --run"),
        }
    }
}

#[derive(Debug, clap::Args)]
struct Optimise {
    /// The command that builds the program, such as 'make clean && make CC={cc} CFLAGS="-O2 {flags}"'
    #[arg(long, value_name = "COMMAND")]
    build: String,
    /// A typical run, such as './prog input'; several are run one after another
    #[arg(long, value_name = "COMMAND", required = true)]
    run: Vec<String>,
    /// Make the compiler's profile from these recordings by `corewise paths record` of the present program,
    /// or from a profile store by `corewise pgo record`
    #[arg(long, value_name = "FILE", num_args = 1..)]
    from: Vec<PathBuf>,
    /// The command that is measured [default: that of `--run`]
    #[arg(long, value_name = "COMMAND")]
    measure: Vec<String>,
    /// The program or library that is optimised [default: the first word of `--run`]
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Whether to optimise with BOLT too: where it is installed and gains, or never
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    bolt: When,
    /// How often each variant is measured
    #[arg(long, value_name = "N", default_value = "12")]
    #[arg(value_parser = values::whole(BLOCKS_MIN as u32..=1000))]
    runs: u32,
    /// Continue after this time with the profile as it is, even if it is not good enough yet
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = values::any_time)]
    record_max: Duration,
    /// Where variants, recordings, profiles and the output of builds are kept
    #[arg(long, value_name = "DIR", default_value = "corewise-pgo")]
    dir: PathBuf,
    /// Only print the commands, as a script
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum When {
    Auto,
    Off,
}

/// The outcome.
#[derive(Debug, Serialize)]
struct Outcome {
    evidence: &'static str,
    binary: PathBuf,
    /// The variant in the program's place now.
    kept: &'static str,
    rounds: u32,
    variants: Vec<Variant>,
    /// The build command of the kept variant; `None` if the baseline stays.
    build: Option<String>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Variant {
    name: &'static str,
    /// Median CPU time of a round, in seconds.
    cpu_s: f64,
    /// The gain over the baseline.
    gain: Option<Gain>,
}

impl Optimise {
    /// Executes all steps; returns the exit status.
    fn execute(self, json: &JsonOutput) -> Result<u8> {
        json.check()?;
        let (commands, notes) = self.commands()?;
        if self.dry_run {
            terminal::print(&commands.script())?;
            return Ok(0);
        }
        std::fs::create_dir_all(&commands.dir)
            .with_context(|| format!("cannot make the folder {}", commands.dir.display()))?;
        let shell = Shell { dir: commands.dir.clone(), asked_to_end: signals::asked_to_end()? };
        let place = Place::new(commands.binary.clone(), commands.dir.clone())?;
        let mut work = Work { options: &self, commands, shell, place, variants: Vec::new(), notes };
        let outcome = match work.outcome() {
            Ok(outcome) => outcome,
            Err(error) => {
                let left = work.place.give_back().unwrap_or_else(|failure| format!("{failure:#}"));
                return Err(error.context(left));
            }
        };
        json.show(&outcome, || describe(&outcome))?;
        Ok(0)
    }

    /// Returns the commands, and notes for the user about them.
    fn commands(&self) -> Result<(Commands, Vec<String>)> {
        let dir = absolute(&self.dir)?;
        commands::check(&dir)?;
        let compiler = Compiler::of(&self.build)?;
        let needs_clang = ["{cc}", "{cxx}", "{flags}"].iter().any(|word| self.build.contains(word));
        let tools = Tools::find(&std::env::var("PATH").unwrap_or_default(), needs_clang)?;
        let bolt = self.bolt == When::Auto && compiler.has_bolt();
        let mut notes = Vec::new();
        if bolt && tools.bolt.is_none() {
            let package = tools.package("bolt");
            notes.push(format!(
                "BOLT could gain more, but is not installed (Debian: apt-get install {package})"
            ));
        }
        let commands = Commands {
            build: self.build.clone(),
            runs: self.run.clone(),
            binary: absolute(self.binary()?)?,
            dir,
            tools,
            compiler,
            is_given: !self.from.is_empty(),
            bolt,
            request: Request::default(),
        };
        Ok((commands, notes))
    }

    fn binary(&self) -> Result<PathBuf> {
        if let Some(binary) = &self.binary {
            return Ok(binary.clone());
        }
        let first = self.run[0].split_whitespace().next().unwrap_or_default();
        if !first.contains('/') {
            bail!("`{first}` is not a file: name the built program with --binary PATH");
        }
        Ok(PathBuf::from(first))
    }
}

/// The state of the work.
struct Work<'a> {
    options: &'a Optimise,
    commands: Commands,
    shell: Shell,
    place: Place,
    /// The variants so far, each derived from the one before it.
    variants: Vec<&'static str>,
    notes: Vec<String>,
}

impl Work<'_> {
    fn outcome(&mut self) -> Result<Outcome> {
        // Before the build, because it is of the present program.
        let given = if self.options.from.is_empty() { None } else { Some(self.given_profile()?) };
        if let Some(aside) = self.place.set_aside()? {
            let (binary, aside) = (self.commands.binary.display(), aside.display());
            terminal::message(format!("{binary} is {aside} until the end"));
        }
        self.build_baseline()?;
        self.check_baseline()?;
        if self.commands.compiler.takes_profiles() {
            let profile = match given {
                Some(profile) => profile,
                None => {
                    let mut recording = self.record(BASELINE)?;
                    self.sample_profile(&mut recording)?
                }
            };
            self.build(SAMPLE, Some(&profile))?;
            if self.place.are_same(BASELINE, SAMPLE)? {
                bail!(
                    "the build with the profile gave the same program: have --build compile everything anew \
                     (`make clean && make …`), and see that {} reaches the compiler; its output is {}",
                    self.commands.compiler.word(),
                    self.commands.file("build-sample.log").display()
                );
            }
        }
        if self.commands.bolt && self.commands.tools.bolt.is_some() {
            self.rearrange()?;
        }
        let times = self.measured()?;
        self.chosen(&times)
    }

    /// Puts the fastest variant in its place.
    fn chosen(&mut self, times: &[Times]) -> Result<Outcome> {
        let kept = fastest(times).map_or(BASELINE, |times| times.variant);
        self.place.settle(kept)?;
        let variant = |of: &Times| Variant {
            name: of.variant,
            cpu_s: of.median(),
            gain: if of.variant == BASELINE { None } else { of.gain_over(&times[0]) },
        };
        let gains = times.iter().filter_map(|of| of.gain_over(&times[0]));
        let possible = gains.map(|gain| gain.high).fold(0.0, f64::max);
        if kept == BASELINE && possible > WORTH_MORE_ROUNDS {
            self.notes.push(format!(
                "a gain of up to {:.1} % is possible: a quiet machine, or --runs {}, could show it",
                100.0 * possible,
                4 * self.options.runs
            ));
        }
        let profile = self.commands.profile();
        let profile = Some(profile.as_path()).filter(|_| self.variants.contains(&SAMPLE));
        Ok(Outcome {
            evidence: "measured",
            binary: self.commands.binary.clone(),
            kept,
            rounds: self.options.runs,
            variants: times.iter().map(variant).collect(),
            build: (kept != BASELINE).then(|| self.command_of(kept, profile)),
            notes: std::mem::take(&mut self.notes),
        })
    }

    /// Returns the command that makes a variant again; BOLT's output is put beside the program.
    fn command_of(&self, variant: &str, profile: Option<&Path>) -> String {
        let build = self.commands.build_command(profile);
        match &self.commands.tools.bolt {
            Some(tool) if variant == BOLT => format!("{build} && {}", self.commands.bolt_command(tool)),
            _ => build,
        }
    }

    /// Builds the program without a profile. Whether rustc takes one, only the build shows: it may choose a
    /// toolchain, or set RUSTC_BOOTSTRAP.
    fn build_baseline(&mut self) -> Result<()> {
        let Err(error) = self.build(BASELINE, None) else { return Ok(()) };
        let output = std::fs::read(self.commands.file("build-baseline.log")).unwrap_or_default();
        let Some(compiler) = self.commands.compiler.that_refuses_profiles(&String::from_utf8_lossy(&output))
        else {
            return Err(error);
        };
        const REFUSED: &str = "stable rustc takes no sample profile: have --build use nightly, or set \
                               RUSTC_BOOTSTRAP=1";
        if !self.options.from.is_empty() {
            bail!("--from makes a profile for the compiler, but {REFUSED}");
        }
        if !self.commands.bolt || self.commands.tools.bolt.is_none() {
            bail!("{REFUSED}; or use BOLT (Debian: apt-get install {})", self.commands.tools.package("bolt"));
        }
        self.commands.compiler = compiler;
        self.notes.push(REFUSED.to_owned());
        self.build(BASELINE, None)
    }

    fn build(&mut self, variant: &'static str, profile: Option<&Path>) -> Result<()> {
        let command = self.commands.build_command(profile);
        terminal::message(format!("building {variant}: {}", Name(&command)));
        self.shell.run(&command, &format!("build-{variant}"))?;
        // Not a link: runs and recordings identify the file by its own path.
        let binary = self.commands.binary.canonicalize();
        self.commands.binary = binary.with_context(|| {
            format!("--build made no {}: name what it makes with --binary", self.commands.binary.display())
        })?;
        self.place.is_at(&self.commands.binary);
        self.place.take(variant)?;
        self.variants.push(variant);
        Ok(())
    }

    /// Checks that the options have reached compiler and linker.
    fn check_baseline(&mut self) -> Result<()> {
        let elf = ElfFile::open(&self.commands.binary)?;
        let binary = self.commands.binary.display();
        if !elf.has_section(".debug_line") {
            bail!(
                "{binary} has no debug information: see that {} reaches the compiler, that everything is \
                 compiled anew (`make clean && make …`) and that nothing strips the program",
                self.commands.compiler.word()
            );
        }
        if self.commands.bolt && self.commands.tools.bolt.is_some() && !elf.has_section(".rela.text") {
            self.commands.bolt = false;
            let note = "no BOLT: the program has no relocations; pass {ldflags} to the linker, do not strip";
            self.notes.push(note.to_owned());
        }
        Ok(())
    }

    /// Records the program in place until the profile is good enough.
    fn record(&mut self, variant: &str) -> Result<BranchRecording> {
        terminal::message(format!("recording {variant}: {}", Name(&self.options.run.join("; "))));
        let started = Instant::now();
        let line = StatusLine::start();
        let mut recordings = Vec::new();
        let runs = self.commands.runs.join("; ");
        loop {
            let file = self.commands.file(&format!("{variant}-{}.cwp", recordings.len()));
            self.shell.corewise(&self.commands.record_arguments(&file), &runs)?;
            recordings.push(read_recording(&file)?);
            let Ok(all) = merged(recordings.iter().cloned().map(Ok::<_, Infallible>));
            let Some(all) = all else { bail!("nothing was recorded") };
            let quality = self.module_in(&all).map(|module| Quality::of(&all.windows, module));
            let is_late = started.elapsed() >= self.options.record_max;
            match quality {
                Some(quality) if quality.is_enough() || is_late && quality.windows > 0 => {
                    line.finish();
                    terminal::message(format!("{variant}: {quality}"));
                    if !quality.is_enough() {
                        self.notes.push(format!(
                            "the profile of {variant} is not as good as wanted: name more or longer runs, or \
                             raise --record-max; it has {quality}"
                        ));
                    }
                    return Ok(all);
                }
                None | Some(_) if is_late => bail!(
                    "no window lies in {}: see that --run executes this very file for some tenths of a \
                     second, or name the program that it does execute with --binary",
                    self.commands.binary.display()
                ),
                None => line.show(format!("{variant}: no window yet")),
                Some(quality) => line.show(format!("{variant}: {quality}")),
            }
        }
    }

    fn module_in(&self, recording: &BranchRecording) -> Option<ModuleId> {
        let is_it = |path: &str| Path::new(path) == self.commands.binary;
        let index = recording.modules.iter().position(|module| is_it(&module.path))?;
        Some(ModuleId(index as u32))
    }

    /// Writes a profile of the program in place.
    fn export(&mut self, recording: &mut BranchRecording, format: Format, to: &str) -> Result<()> {
        let program = without_other_builds(recording)?;
        let binary = self.commands.binary.display().to_string();
        let of = ModuleCounts::of(recording, Some(&binary), &program)?;
        self.notes.extend(of.warnings(format));
        whole_file::write(&self.commands.file(to), &of.written(format)?)
    }

    /// Makes the compiler's profile from the user's recordings.
    fn given_profile(&mut self) -> Result<PathBuf> {
        let binary = self.commands.binary.canonicalize().with_context(|| {
            format!("--from needs the present program, but there is no {}", self.commands.binary.display())
        })?;
        self.commands.binary = binary;
        let notes = &mut self.notes;
        let merged = read_all(&self.options.from, Some(&self.commands.binary), &mut |note| notes.push(note))?;
        let mut recording = merged.context("--from names no recording")?;
        let elf = ElfFile::open(&self.commands.binary)?;
        let build_id = elf.build_id();
        let is_it = |module: &&mut Module| build_id.is_some() && module.build_id.as_deref() == build_id;
        let Some(module) = recording.modules.iter_mut().find(is_it) else {
            bail!(
                "no recording of --from is of {} as it is now (build id {}): put the recorded build there",
                self.commands.binary.display(),
                build_id.map_or_else(|| format!("none: {}", how_to_get_build_id(&elf)), str::to_owned)
            )
        };
        // It may have been recorded on another machine.
        module.path = self.commands.binary.display().to_string();
        self.sample_profile(&mut recording)
    }

    /// Makes the compiler's profile of the program in place.
    fn sample_profile(&mut self, recording: &mut BranchRecording) -> Result<PathBuf> {
        if let Some(profgen) = self.commands.profgen() {
            let command = self.commands.profgen_command(profgen);
            self.export(recording, llvm_profgen::FORMAT, "sample.branches")?;
            self.shell.run(&command, "llvm-profgen")?;
        } else {
            let (format, file) = self.commands.compiler.profile();
            self.export(recording, format, file)?;
        }
        Ok(self.commands.profile())
    }

    /// Adds BOLT's variant. It is not an error if BOLT cannot process a program.
    fn rearrange(&mut self) -> Result<()> {
        let Some(tool) = self.commands.tools.bolt.clone() else { return Ok(()) };
        let before = self.variants.last().copied().unwrap_or(BASELINE);
        let mut recording = self.record(before)?;
        self.export(&mut recording, bolt::FORMAT, "bolt.branches")?;
        if let Err(error) = self.shell.run(&self.commands.perf2bolt_command(&tool), "perf2bolt") {
            return self.without_bolt(error);
        }
        loop {
            let command = self.commands.bolt_command(&tool);
            terminal::message(&command);
            let Err(error) = self.shell.run(&command, BOLT) else { break };
            let output = std::fs::read(self.commands.file("bolt.log")).unwrap_or_default();
            match self.commands.request.after(&String::from_utf8_lossy(&output)) {
                Some(less) if !self.shell.is_asked_to_end() => self.commands.request = less,
                _ => return self.without_bolt(error),
            }
        }
        if let Some(left_out) = self.commands.request.left_out() {
            self.notes.push(format!("BOLT cannot process the whole program; left out: {left_out}"));
        }
        self.variants.push(BOLT);
        Ok(())
    }

    fn without_bolt(&mut self, error: anyhow::Error) -> Result<()> {
        if self.shell.is_asked_to_end() {
            return Err(error);
        }
        // BOLT prints much, and the cause last. The file that it has begun is not a variant.
        let _ = std::fs::remove_file(self.commands.file(BOLT));
        let error = error.to_string();
        let last = error.lines().last().unwrap_or_default();
        self.notes.push(format!("no BOLT: {last} (all of it: {})", self.commands.dir.display()));
        Ok(())
    }

    /// Returns the CPU times of the variants that work.
    fn measured(&mut self) -> Result<Vec<Times>> {
        let runs = if self.options.measure.is_empty() { &self.options.run } else { &self.options.measure };
        let line = runs.iter().map(|run| format!("( {run}\n)")).collect::<Vec<_>>().join(" && ");
        let kept = self.commands.file("output");
        let run = |variant: &str, output: &Path| {
            self.place.put(variant)?;
            self.shell.timed(&line, output)
        };
        // The first run does not count: files are read into memory, and outputs are compared.
        let mut outputs = Vec::new();
        let mut working = Vec::new();
        for variant in [BASELINE].iter().chain(&self.variants) {
            match run(variant, &kept) {
                Ok(_) => outputs.push(std::fs::read(&kept)?),
                Err(error) if *variant == BASELINE || self.shell.is_asked_to_end() => return Err(error),
                Err(error) => {
                    self.notes.push(format!("{variant} is left out: {error}"));
                    continue;
                }
            }
            let is_same = outputs.last() == outputs.first();
            // If the baseline prints different output in two runs, such as the time, outputs cannot be
            // compared.
            if outputs.len() > 2 && outputs[0] == outputs[1] && !is_same {
                self.notes.push(format!("{variant} is left out: its output differs from the baseline's"));
            } else if !working.contains(variant) {
                working.push(*variant);
            }
        }
        drop(outputs);
        terminal::message(format!("measuring {} in {} rounds", working.join(", "), self.options.runs));
        let status = StatusLine::start();
        let times = rounds(&working, self.options.runs, |variant, round| {
            status.show(format!("round {round} of {}: {variant}", self.options.runs));
            run(variant, Path::new("/dev/null"))
        });
        status.finish();
        times
    }
}

fn describe(outcome: &Outcome) -> String {
    let Outcome { binary, kept, rounds, variants, build, notes, .. } = outcome;
    let binary = binary.display().to_string();
    let binary = Name(&binary);
    let percent = |share: f64| format!("{:+.1}", 100.0 * share);
    let words =
        |gain: &Gain| format!("{} % [{}, {}]", percent(gain.value), percent(gain.low), percent(gain.high));
    let mut text =
        match variants.iter().find(|variant| variant.name == *kept).and_then(|kept| kept.gain.as_ref()) {
            Some(gain) => format!("{binary} is {} faster: it is now the variant `{kept}`\n", words(gain)),
            None => {
                format!("no certain gain: {binary} is the baseline, built without a profile\n")
            }
        };
    let mut table = Table::new("<><");
    for Variant { name, cpu_s, gain } in variants {
        let gain = gain.as_ref().map_or(String::new(), words);
        table.row([(*name).to_owned(), format!("{cpu_s:.3} s"), gain]);
    }
    let mut line = |line: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    };
    line(format!("measured: median CPU time, mean gain over the baseline [95 %], {rounds} rounds in turn"));
    line(table.to_string().trim_end().to_owned());
    notes.iter().for_each(|note| line(format!("note: {}", Name(note))));
    if let Some(build) = build {
        line(format!("to build it again like this: {}", Name(build)));
    }
    text
}
