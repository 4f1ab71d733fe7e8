//! `corewise topo`: shows what a machine's processing elements share.

use crate::options::{FpuModules, OtherMachine};
use crate::outputs::{JsonOutput, OutputFile};
use crate::whole_file;
use anyhow::{Context, Result, bail};
use corewise_core::topology::{DomainKind, Summary, Topology};
use corewise_render::terminal::Name;
use corewise_topology as topology;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// Show what the processing elements (PEs) of this or another machine share.
#[derive(Debug, clap::Args)]
pub struct Topo {
    #[command(flatten)]
    machine: OtherMachine,
    #[command(flatten)]
    modules: FpuModules,
    #[command(flatten)]
    json: JsonOutput,
    /// Record this machine in FILE (.tar.gz), for --machine elsewhere
    #[arg(long, value_name = "FILE", conflicts_with_all = ["machine", "fpu_modules", "location", "json"])]
    record: Option<OutputFile>,
    /// Print only the PEs of a location, as a kernel list: 0-3, core:0-1, l3:0, S0:0-3, fast, joined by @; a
    /// file here is a machine, as with --machine
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
        let (machine, location) = self.machine_and_location();
        if let Some(name) = location.as_ref().filter(|name| name.contains(['/', '.'])) {
            bail!("`{name}`: there is no such file, and no PEs are named so: write 0-3, core:0-3 or fast");
        }
        let topology = match machine.model(&self.modules)? {
            Some(machine) => machine.topology,
            None => self.modules.live()?,
        };
        match location {
            Some(location) => {
                let pes = topology.locate(&location)?.to_string();
                self.json.show(&pes, || format!("{pes}\n"))?;
            }
            None => {
                let json = Json { summary: topology.summary(), topology: &topology };
                let text = human(&topology)?;
                self.json.show(&json, || text)?;
            }
        }
        Ok(0)
    }
}

impl Topo {
    /// Returns which machine is shown, and which location: a file is a machine, also without `--machine`.
    fn machine_and_location(&self) -> (OtherMachine, Option<String>) {
        let is_file = |name: &String| self.machine.machine.is_none() && Path::new(name).exists();
        match self.location.clone() {
            Some(file) if is_file(&file) => (OtherMachine { machine: Some(file) }, None),
            location => (OtherMachine { machine: self.machine.machine.clone() }, location),
        }
    }
}

fn human(topology: &Topology) -> Result<String> {
    let (origin, drawn) = (Name(&topology.origin), topology.draw());
    let mut text = format!("{}\n\n{origin}: {drawn}\n{}", answer(topology), topology.summary());
    for note in &topology.notes {
        writeln!(text, "note: {}", Name(note))?;
    }
    Ok(text)
}

/// Says in a sentence whether it can matter here where threads run.
fn answer(topology: &Topology) -> String {
    let shares = |kind| topology.domains(kind).any(|domain| domain.pes.len() > 1);
    let named = [(DomainKind::Core, "cores"), (DomainKind::Module, "FPUs"), (DomainKind::L2, "L2 caches")];
    let shared: Vec<&str> =
        named.into_iter().filter(|(kind, _)| shares(*kind)).map(|(_, name)| name).collect();
    let count = topology.pes.len();
    match (shared.as_slice(), topology.kinds.len()) {
        ([], 0 | 1) => format!(
            "No two of the {count} PEs share a core, an FPU or an L2 cache, so it matters little where \
             threads run."
        ),
        ([], kinds) => {
            format!("The {count} PEs are of {kinds} kinds, so it matters which threads get which.")
        }
        (shared, _) => format!(
            "Some of the {count} PEs share {}, so it can matter which threads run side by side.",
            shared.join(" and ")
        ),
    }
}
