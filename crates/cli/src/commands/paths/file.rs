//! The files of `corewise paths`: gzip-compressed JSON, written whole or not at all.

use crate::whole_file;
use anyhow::{Context, Result, bail};
use corewise_paths::window::BranchRecording;
use corewise_render::terminal::Name;
use corewise_sys::input;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufWriter, IntoInnerError};
use std::ops::RangeInclusive;
use std::path::Path;

/// The part of a file that is read first.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Writes a value.
pub fn write(path: &Path, value: &impl Serialize) -> Result<()> {
    // Buffered, because the serialiser writes a few bytes at a time, and the compressor clears its buffer
    // each time.
    let mut text = BufWriter::with_capacity(64 << 10, GzEncoder::new(Vec::new(), Compression::fast()));
    serde_json::to_writer(&mut text, value)?;
    let packed = text.into_inner().map_err(IntoInnerError::into_error)?;
    whole_file::write(path, &packed.finish()?)
}

/// Reads a recording.
pub fn read_recording(path: &Path) -> Result<BranchRecording> {
    let shown = path.display().to_string();
    parse_recording(bytes_of(path)?).with_context(|| Name(&shown).to_string())
}

/// Parses a recording, compressed or not.
pub fn parse_recording(bytes: Vec<u8>) -> Result<BranchRecording> {
    let recording = parse(bytes, "recording by `corewise paths record`", 1..=BranchRecording::VERSION)?;
    check(&recording).context("it is damaged")?;
    Ok(recording)
}

/// Parses a value of this kind and version, compressed or not.
pub fn read<T: DeserializeOwned>(path: &Path, kind: &str, version: u32) -> Result<T> {
    let shown = path.display().to_string();
    parse(bytes_of(path)?, kind, version..=version).with_context(|| Name(&shown).to_string())
}

fn bytes_of(path: &Path) -> Result<Vec<u8>> {
    let shown = path.display().to_string();
    input::read(path, input::DATA_MAX).with_context(|| format!("cannot read {}", Name(&shown)))
}

fn parse<T: DeserializeOwned>(bytes: Vec<u8>, kind: &str, versions: RangeInclusive<u32>) -> Result<T> {
    let text = if input::is_packed(&bytes) {
        let (text, cut) = input::unpack(&bytes, input::DATA_MAX).context("it cannot be unpacked")?;
        if cut {
            bail!("it is damaged: its end is missing");
        }
        text
    } else {
        bytes
    };
    let Ok(found) = serde_json::from_slice::<Versioned>(&text) else { bail!("it is not a {kind}") };
    if !versions.contains(&found.version) {
        bail!(
            "it is of format {}, this corewise reads formats up to {}: use the corewise that wrote it, or \
             make it again",
            found.version,
            versions.end()
        );
    }
    serde_json::from_slice(&text).with_context(|| format!("it is not a {kind}"))
}

/// Checks that every location is in one of the recording's modules.
fn check(recording: &BranchRecording) -> Result<()> {
    let modules = recording.modules.len();
    for window in &recording.windows {
        let ends = window.transfers.iter().flat_map(|transfer| [transfer.from, transfer.to]);
        if let Some(location) =
            ends.chain([window.start, window.end]).find(|location| location.module.0 as usize >= modules)
        {
            bail!("a window lies in module {}, but there are {modules} modules", location.module.0);
        }
    }
    Ok(())
}
