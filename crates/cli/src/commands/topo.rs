//! `corewise topo`: shows what a machine's processing elements share.

use super::{FpuModules, OtherMachine};
use crate::whole_file;
use anyhow::{Context, Result};
use corewise_core::topology::{Summary, Topology};
use corewise_render::terminal::{self, Name};
use corewise_topology as topology;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;

/// Show what the processing elements (PEs) of this or another machine share.
#[derive(Debug, clap::Args)]
pub struct Topo {
    #[command(flatten)]
    machine: OtherMachine,
    #[command(flatten)]
    modules: FpuModules,
    /// Print JSON: {"summary": …, "topology": …}
    #[arg(long)]
    json: bool,
    /// Record this machine in FILE (.tar.gz), for --root elsewhere
    #[arg(long, value_name = "FILE", conflicts_with_all = ["machine", "fpu_modules", "location", "json"])]
    record: Option<PathBuf>,
    /// Print only the PEs of a location, as a kernel list: 0-3, core:0-1, l3:0, S0:0-3, fast, joined by @
    #[arg(conflicts_with = "json")]
    location: Option<String>,
}

#[derive(Serialize)]
struct Json<'a> {
    summary: Summary,
    topology: &'a Topology,
}

impl Topo {
    /// Shows or records the machine; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        if let Some(path) = &self.record {
            whole_file::check_writable(path)?;
            whole_file::write(path, &topology::record().context("cannot record this machine")?)?;
            return Ok(0);
        }
        let topology = match self.machine.topology(&self.modules)? {
            Some(topology) => topology,
            None => self.modules.live()?,
        };
        let text = match &self.location {
            Some(location) => format!("{}\n", topology.locate(location)?),
            None if self.json => {
                let json = Json { summary: topology.summary(), topology: &topology };
                format!("{}\n", serde_json::to_string_pretty(&json)?)
            }
            None => human(&topology)?,
        };
        terminal::print(&text)?;
        Ok(0)
    }
}

fn human(topology: &Topology) -> Result<String> {
    let mut text = format!("{}: {}\n{}", Name(&topology.origin), topology.draw(), topology.summary());
    for note in &topology.notes {
        writeln!(text, "note: {}", Name(note))?;
    }
    Ok(text)
}
