//! Simulated machines as users name them: in a line, or by a file.

use crate::profile_file;
use anyhow::{Context, Result, bail};
use corewise_core::topology::Topology;
use corewise_render::terminal;
use corewise_sim::machine::{MachineSpec, SpeedSpec};
use corewise_sim::measured;
use corewise_sys::input;
use corewise_topology as topology;
use corewise_topology::Source;
use std::path::Path;

/// Returns the machine of a name: a machine profile (`.json`), the machine of a scenario (`.toml`), a machine
/// that hwloc exported or that was recorded, or one in a line.
pub fn named(name: &str) -> Result<MachineSpec> {
    let path = Path::new(name);
    Ok(match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => measured::machine(&profile_file::read(path)?).context(name.to_owned())?.spec,
        Some("toml") => of_scenario(path).with_context(|| format!("cannot take the machine of {name}"))?,
        _ if path.exists() => of_shape(recorded(path)?, name)?,
        _ if name.contains(':') => MachineSpec::plain(name),
        _ => bail!(
            "`{name}` is neither a machine nor a file: write a machine profile (.json), a scenario (.toml), \
             a machine of hwloc (.xml), a recorded one (a directory, .tar.gz or .tar.bz2), or one in a line, \
             such as \"pack:1 l2:4 core:2 pu:1\""
        ),
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
