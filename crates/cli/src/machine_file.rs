//! Machines as users name them with `--machine`: in a line, or by a file.

use crate::profile_file;
use anyhow::{Context, Result, bail};
use corewise_core::machine_model::MachineModel;
use corewise_core::topology::Topology;
use corewise_render::terminal;
use corewise_sim::machine::{Machine, MachineSpec, SpeedSpec};
use corewise_sim::measured;
use corewise_sys::input;
use corewise_topology as topology;
use corewise_topology::Source;
use std::path::Path;

/// How users name a machine.
enum Named<'a> {
    /// A machine profile (`.json`).
    Profile(&'a Path),
    /// The machine of a scenario (`.toml`).
    Scenario(&'a Path),
    /// One that hwloc exported, or that was recorded.
    Recorded(&'a Path),
    /// One in a line.
    Line(&'a str),
}

impl<'a> Named<'a> {
    fn of(name: &'a str) -> Result<Self> {
        let path = Path::new(name);
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        Ok(match ending.as_deref() {
            Some("json") => Named::Profile(path),
            Some("toml") => Named::Scenario(path),
            Some("xml") => Named::Recorded(path),
            _ if path.exists() || name.contains('/') => Named::Recorded(path),
            _ if name.contains(':') => Named::Line(name),
            _ => bail!(
                "`{name}` is neither a machine nor a file: write a machine profile (.json), a scenario \
                 (.toml), a machine of hwloc (.xml), a recorded one (a directory, .tar.gz or .tar.bz2), or \
                 one in a line, such as \"pack:1 l2:4 core:2 pu:1\""
            ),
        })
    }
}

/// Returns what the simulator needs of the machine with this name.
pub fn named(name: &str) -> Result<MachineSpec> {
    Ok(match Named::of(name)? {
        Named::Profile(path) => measured::machine(&profile_file::read(path)?).context(name.to_owned())?.spec,
        Named::Scenario(path) => of_scenario(path)?,
        Named::Recorded(path) => of_shape(recorded(path)?, name)?,
        Named::Line(line) => MachineSpec::plain(line),
    })
}

/// Returns the model of the machine with this name; `fpu_modules` says more about a recorded one.
pub fn model(name: &str, fpu_modules: Option<&Path>) -> Result<MachineModel> {
    let machine = Named::of(name)?;
    if let (Some(file), Named::Profile(_) | Named::Scenario(_) | Named::Line(_)) = (fpu_modules, &machine) {
        bail!("--fpu-modules {}: {name} itself says what shares an FPU; leave it out", file.display());
    }
    Ok(match machine {
        Named::Profile(path) => profile_file::as_it_behaves(path, &profile_file::read(path)?),
        Named::Scenario(path) => Machine::new(of_scenario(path)?)?.model,
        Named::Recorded(path) => topology::load(&Source::of(path), fpu_modules)?.into(),
        Named::Line(line) => Topology::synthetic(line)?.into(),
    })
}

/// Replaces the file that a scenario names as its machine by the file's contents: a profile or a topology,
/// relative to the scenario's directory.
pub fn complete(scenario: &mut toml::Table, folder: &Path) -> Result<()> {
    if let Some(profile) = measured::take_name(scenario) {
        let profile = profile_file::read(&folder.join(profile))?;
        return Ok(measured::put(scenario, &profile)?);
    }
    let Some(machine) = scenario.get_mut("machine").and_then(|machine| machine.as_table_mut()) else {
        return Ok(());
    };
    let file = machine.get("topology").and_then(|topology| topology.as_str()).map(|name| folder.join(name));
    if let Some(file) = file.filter(|file| file.exists()) {
        let shape = recorded(&file)?;
        if !machine.contains_key("speeds") {
            machine.insert("speeds".to_owned(), toml::Value::try_from(reported_speeds(&shape)?)?);
        }
        machine.insert("topology".to_owned(), shape.origin.clone().into());
        machine.insert("shape".to_owned(), toml::Value::try_from(shape)?);
    }
    Ok(())
}

fn of_scenario(path: &Path) -> Result<MachineSpec> {
    scenario_machine(path).with_context(|| format!("cannot take the machine of {}", path.display()))
}

fn scenario_machine(path: &Path) -> Result<MachineSpec> {
    let mut table: toml::Table = toml::from_str(&input::read_text(path, input::DOCUMENT_MAX)?)?;
    complete(&mut table, path.parent().unwrap_or(Path::new("")))?;
    let machine = table.remove("machine").context("it has no [machine]")?;
    Ok(machine.try_into()?)
}

fn recorded(path: &Path) -> Result<Topology> {
    Ok(topology::load(&Source::of(path), None)?)
}

fn of_shape(shape: Topology, name: &str) -> Result<MachineSpec> {
    let speeds = reported_speeds(&shape)?;
    let by = shape.kinds.first().and_then(|kind| kind.speed.as_ref());
    let name = match by {
        Some(speed) => format!("{name} (speeds by {})", speed.source),
        None => name.to_owned(),
    };
    Ok(MachineSpec { name, speeds, shape: Some(shape.clone()), ..MachineSpec::plain(&shape.origin) })
}

/// Returns the speeds that a machine reports of its slower PEs, and tells the user about them.
fn reported_speeds(shape: &Topology) -> Result<Vec<SpeedSpec>> {
    let speeds = SpeedSpec::reported(&shape.origin, shape).with_context(|| {
        "the speeds of its PEs are needed: write a scenario with [machine], its name, this file as its \
         topology, and speeds = [{ pes = \"slow\", speed = 0.6 }]"
    })?;
    for (kind, speed) in shape.kinds.iter().filter_map(|kind| Some((kind, kind.speed.as_ref()?))).skip(1) {
        terminal::message(format_args!(
            "{}: the PEs {} ({}) are simulated at {:.2} of the fastest, by {}; they were not measured",
            shape.origin,
            kind.pes,
            kind.name,
            speed.relative(),
            speed.source
        ));
    }
    Ok(speeds)
}
