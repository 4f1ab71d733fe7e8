//! The `corewise` command.

mod commands;
mod output;
mod recording_file;
mod report_file;
mod report_page;
mod report_table;
mod session;

use clap::{Parser, Subcommand};
use commands::{characterize::Characterize, replay::Replay, run::Run, sim::Sim, topo::Topo};
use corewise_linux::binding::guardian;
use std::process::ExitCode;

/// Hardware-aware thread scheduling for Linux.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// One variant per file in `commands`.
#[derive(Subcommand)]
enum Command {
    Run(Run),
    Characterize(Characterize),
    Replay(Replay),
    Sim(Sim),
    Topo(Topo),
    /// The process that gives every mask back if corewise is killed; started by `run`
    #[command(name = guardian::SUBCOMMAND, hide = true)]
    Guardian,
}

fn main() -> ExitCode {
    // An error of a run is told apart from a failure of its command, as in env(1) and timeout(1).
    let (result, failure): (_, fn(&anyhow::Error) -> u8) = match Cli::parse().command {
        Command::Run(run) => (run.execute(), session::exit_status_of),
        Command::Characterize(characterize) => (characterize.execute(), session::exit_status_of),
        Command::Replay(replay) => (replay.execute(), |_| 1),
        Command::Sim(sim) => (sim.execute(), |_| 1),
        Command::Topo(topo) => (topo.execute(), |_| 1),
        Command::Guardian => (guardian::main().map(|()| 0).map_err(Into::into), |_| 1),
    };
    match result {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("corewise: {error:#}");
            ExitCode::from(failure(&error))
        }
    }
}
