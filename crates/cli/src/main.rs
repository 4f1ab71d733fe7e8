//! The `corewise` command.

mod commands;
mod completion;
mod examples;
mod experiments;
mod help;
#[cfg(test)]
mod hostile;
mod machine_file;
#[cfg(test)]
mod mistyped;
mod old_spellings;
mod options;
mod outputs;
mod parallel;
mod profile_file;
mod profile_views;
mod recording_file;
mod remedies;
mod report_file;
mod session;
mod values;
mod whole_file;
mod worlds_file;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use commands::{
    attach::{Attach, Detach},
    calibrate::Calibrate,
    characterize::Characterize,
    compare::Compare,
    completions::Completions,
    daemon::Daemon,
    demo::{self, Demo},
    doctor::Doctor,
    emulate_slow::EmulateSlow,
    experiment::Experiment,
    explain::Explain,
    manual::Manual,
    model::Model,
    pairs::Pairs,
    paths::Paths,
    pgo::Pgo,
    policies::Policies,
    profile::Profile,
    progress::Progress,
    replay::Replay,
    rules::Rules,
    run::Run,
    sim::Sim,
    status::Status,
    top::Top,
    topo::Topo,
    what_if::WhatIf,
};
use corewise_live::policy_command;
use corewise_render::terminal;
use corewise_sys::signals::end_as;
use corewise_sys::{stack, standard_error};
use session::exited;
use std::ffi::OsString;
use std::process::ExitCode;

/// Hardware-aware thread scheduling for Linux.
#[derive(Parser)]
#[command(name = "corewise", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// One variant per file in `commands`.
#[derive(Subcommand)]
enum Command {
    Run(Run),
    Characterize(Characterize),
    Compare(Compare),
    Pairs(Pairs),
    EmulateSlow(EmulateSlow),
    Explain(Explain),
    Replay(Replay),
    Rules(Rules),
    WhatIf(WhatIf),
    Sim(Sim),
    Experiment(Experiment),
    Policies(Policies),
    Daemon(Daemon),
    Attach(Attach),
    Detach(Detach),
    Status(Status),
    Top(Top),
    Topo(Topo),
    Doctor(Doctor),
    Calibrate(Calibrate),
    Profile(Profile),
    Model(Model),
    Progress(Progress),
    Paths(Paths),
    Pgo(Pgo),
    Demo(Demo),
    /// The program that `demo` runs
    #[command(name = demo::PROGRAM, hide = true)]
    DemoProgram {
        /// How many parallel regions
        regions: u64,
    },
    Completions(Completions),
    /// What can stand at the cursor; asked by the completions of shells
    #[command(hide = true)]
    Complete {
        /// The words of the line after `corewise`, up to the cursor
        #[arg(last = true)]
        words: Vec<OsString>,
    },
    Manual(Manual),
    /// The process that holds the command of a policy; started by `--policy exec:COMMAND`
    #[command(name = policy_command::SUBCOMMAND, hide = true)]
    PolicyKeeper {
        /// The descriptor that is open as long as corewise is
        lifeline: i32,
        /// The command, for the shell
        command: String,
    },
}

fn main() -> ExitCode {
    stack::with_room(|| ExitCode::from(run_command(std::env::args_os())))
}

/// Returns the command tree.
fn tree() -> clap::Command {
    help::completed(Cli::command())
}

/// Returns what the command line says; ends with help or an error if that is all.
fn parsed(arguments: Vec<OsString>) -> Cli {
    let words: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let parsed = tree().try_get_matches_from(arguments);
    let matches = parsed.unwrap_or_else(|error| remedies::added(error, &words, &tree()).exit());
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Executes a command line; returns the exit status.
fn run_command(words: impl Iterator<Item = OsString>) -> u8 {
    let (arguments, hints) = old_spellings::renewed(words);
    hints.iter().for_each(terminal::message);
    // Errors of corewise have other exit statuses than failures of its command, as in env(1) and timeout(1).
    let (result, failure): (_, fn(&anyhow::Error) -> u8) = match parsed(arguments).command {
        Command::Run(run) => (run.execute(), session::exit_status_of),
        Command::Characterize(characterize) => (characterize.execute(), session::exit_status_of),
        Command::Compare(compare) => (compare.execute().map(exited), |_| 1),
        Command::EmulateSlow(emulate) => (emulate.execute(), session::exit_status_of),
        Command::Explain(explain) => (explain.execute().map(exited), |_| 1),
        Command::Replay(replay) => (replay.execute().map(exited), |_| 1),
        Command::Rules(rules) => (rules.execute().map(exited), |_| 1),
        Command::Model(model) => (model.execute().map(exited), |_| 1),
        Command::Pairs(pairs) => (pairs.execute().map(exited), |_| 1),
        Command::WhatIf(what_if) => (what_if.execute().map(exited), |_| 1),
        Command::Sim(sim) => (sim.execute().map(exited), |_| 1),
        Command::Experiment(experiment) => (experiment.execute().map(exited), |_| 1),
        Command::Policies(policies) => (policies.execute().map(exited), |_| 1),
        Command::Daemon(daemon) => (daemon.execute().map(exited), |_| 1),
        Command::Attach(attach) => (attach.execute().map(exited), |_| 1),
        Command::Detach(detach) => (detach.execute().map(exited), |_| 1),
        Command::Status(status) => (status.execute().map(exited), |_| 1),
        Command::Top(top) => (top.execute().map(exited), |_| 1),
        Command::Doctor(doctor) => (doctor.execute().map(exited), |_| 1),
        Command::Topo(topo) => (topo.execute().map(exited), |_| 1),
        Command::Calibrate(calibrate) => (calibrate.execute().map(exited), |_| 1),
        // As diff(1): 1 is a difference, 2 is trouble.
        Command::Profile(profile) => (profile.execute().map(exited), |_| 2),
        Command::Progress(progress) => (progress.execute(), session::exit_status_of),
        Command::Paths(paths) => {
            let failure = paths.exit_status_of();
            (paths.execute(), failure)
        }
        Command::Completions(completions) => (completions.execute().map(exited), |_| 1),
        Command::Complete { words } => {
            let answer = completion::answer(&help::shown(&tree()), words);
            (terminal::print(&answer).map(|()| exited(0)).map_err(Into::into), |_| 1)
        }
        Command::Manual(manual) => (manual.execute(&tree()).map(exited), |_| 1),
        Command::Pgo(pgo) => (pgo.execute().map(exited), |_| 1),
        Command::Demo(demo) => (demo.execute().map(exited), |_| 1),
        Command::DemoProgram { regions } => (demo::program(regions).map(exited), |_| 1),
        Command::PolicyKeeper { lifeline, command } => {
            (policy_command::main(lifeline, &command).map(|()| exited(0)).map_err(Into::into), |_| 1)
        }
    };
    match result {
        Ok(status) => {
            standard_error::finish();
            end_as(status)
        }
        Err(error) => {
            terminal::message(terminal::describe_error(error.as_ref()));
            standard_error::finish();
            failure(&error)
        }
    }
}
