//! What a session is asked to do.

use super::machine::Machine;
use super::team_size::Teams;
use crate::options::SourceOptions;
use corewise_binding::runtimes::libgomp;
use corewise_core::engine::EngineConfig;
use corewise_core::policy::Policy;
use corewise_core::program;
use corewise_discovery as discovery;
use corewise_sys::environment;
use corewise_sys::launch::Output;
use std::ffi::OsString;
use std::path::PathBuf;

/// The parameters of a session.
pub struct SessionRequest {
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// The machine.
    pub machine: Machine,
    /// The policy.
    pub policy: Box<dyn Policy>,
    /// The process that holds the policy's command, if it has one.
    pub policy_keeper: Option<u32>,
    /// The engine's parameters.
    pub config: EngineConfig,
    /// How threads are found and measured.
    pub sources: SourceOptions,
    /// What an application consists of.
    pub applications: discovery::Extent,
    /// Whether threads may be bound.
    pub act: bool,
    /// The thread teams that the command is started with.
    pub teams: Teams,
    /// Where the command's standard output goes.
    pub output: Output,
    /// Where to write a recording, if requested.
    pub record: Option<PathBuf>,
    /// Whether processes that outlive the command are followed to their end.
    pub wait: bool,
    /// Whether the descriptors that corewise was started with stay open in it.
    pub keep_descriptors: bool,
    /// Whether everything must be ready before the command starts, because its first instructions will be
    /// part of a report, or the user asked for its placement.
    pub ready_first: bool,
}

impl SessionRequest {
    /// Returns whether the command starts before anything watches it. (Without BPF, clocks of all its threads
    /// are only available from its start on.)
    pub fn begins_at_once(&self) -> bool {
        let bpf = self.sources.discovery == discovery::Choice::Auto && discovery::bpf::seems_permitted();
        bpf && !self.ready_first && !self.is_demanded()
    }

    /// Returns the variables that the command gets.
    pub fn variables(&self, notes: &mut Vec<String>) -> Vec<(&'static str, String)> {
        let planted = libgomp::PLANTED.filter(|_| self.config.waits.spin);
        let spin_count = planted.map(|value| (libgomp::VARIABLE, value.to_string()));
        notes.extend(spin_count.iter().map(|(name, value)| {
            format!(
                "the command has {name}={value}, by which its spin count is found (--waits off avoids it)"
            )
        }));
        [environment::placed()].into_iter().chain(spin_count).chain(self.teams.variables()).collect()
    }

    pub fn words(&self) -> Vec<String> {
        self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    /// Returns the application's name: that of its program.
    pub fn name(&self) -> String {
        program::name_of(&self.words()).unwrap_or_default()
    }

    /// Returns whether the user explicitly requires the source that is not available.
    pub fn is_demanded(&self) -> bool {
        self.sources.counters.is_demanded() || self.sources.discovery == discovery::Choice::Bpf
    }
}
