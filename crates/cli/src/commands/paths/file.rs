//! What `corewise paths` writes: gzip-compressed JSON, whole or not at all.

use crate::whole_file;
use anyhow::{Context, Result, bail};
use corewise_paths::window::Recording;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufWriter, IntoInnerError, Read};
use std::path::Path;

/// The first thing that is looked at.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Writes a value.
pub fn write(path: &Path, value: &impl Serialize) -> Result<()> {
    // The serialiser writes a few bytes at a time, and the packer clears its buffer each time.
    let mut text = BufWriter::with_capacity(64 << 10, GzEncoder::new(Vec::new(), Compression::fast()));
    serde_json::to_writer(&mut text, value)?;
    let packed = text.into_inner().map_err(IntoInnerError::into_error)?;
    whole_file::write(path, &packed.finish()?)
}

/// Reads a recording.
pub fn read_recording(path: &Path) -> Result<Recording> {
    let recording: Recording = read(path, "recording by `corewise paths record`", Recording::VERSION)?;
    check(&recording).with_context(|| format!("{} is damaged", path.display()))?;
    Ok(recording)
}

/// Reads a value of this kind and version, compressed or not.
pub fn read<T: DeserializeOwned>(path: &Path, kind: &str, version: u32) -> Result<T> {
    let shown = path.display();
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    let text = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut text = Vec::new();
        GzDecoder::new(bytes.as_slice())
            .read_to_end(&mut text)
            .with_context(|| format!("{shown} is damaged: it cannot be unpacked"))?;
        text
    } else {
        bytes
    };
    let Ok(found) = serde_json::from_slice::<Versioned>(&text) else { bail!("{shown} is no {kind}") };
    if found.version != version {
        bail!(
            "{shown} is of format {}, this corewise reads format {version}: use the corewise that wrote it, \
             or make it again",
            found.version
        );
    }
    serde_json::from_slice(&text).with_context(|| format!("{shown} is no {kind}"))
}

/// Every location lies in one of the recording's modules.
fn check(recording: &Recording) -> Result<()> {
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
