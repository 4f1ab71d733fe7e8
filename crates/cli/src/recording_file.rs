//! Recordings on disk: gzip-compressed lines, written so that everything before a crash stays readable.

use crate::whole_file::{self, Stream};
use anyhow::{Context, Result, bail};
use corewise_core::observe::Input;
use corewise_core::recording::{Header, Recording, to_line};
use corewise_render::terminal::Name;
use corewise_sys::input;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes a recording line by line. The first error (a full disk) ends the recording but not the run.
pub struct RecordingWriter {
    path: PathBuf,
    state: Result<GzEncoder<Stream>, std::io::Error>,
}

impl RecordingWriter {
    /// Creates the file and writes the header.
    pub fn create(path: PathBuf, header: &Header) -> Self {
        let state = whole_file::start(&path).map(|file| GzEncoder::new(file, Compression::fast()));
        let mut writer = Self { path, state };
        writer.write_line(&to_line(header));
        writer
    }

    /// Adds an input of the engine.
    pub fn write(&mut self, input: &Input) {
        self.write_line(&to_line(input));
    }

    fn write_line(&mut self, line: &str) {
        if let Ok(file) = &mut self.state
            // Flush, so that a reader finds every whole line even if we are killed.
            && let Err(error) = file.write_all(line.as_bytes()).and_then(|()| file.flush())
        {
            self.state = Err(error);
        }
    }

    /// Ends the recording; returns the first write error.
    pub fn finish(self) -> Result<()> {
        let context =
            || format!("cannot write the recording {}: check space and permission", self.path.display());
        self.state.and_then(GzEncoder::finish).map(drop).with_context(context)
    }
}

/// Reads a recording, compressed or not.
pub fn read(path: &Path) -> Result<Recording> {
    let shown = path.display().to_string();
    let shown = Name(&shown);
    let bytes =
        input::read(path, input::DATA_MAX).with_context(|| format!("cannot read the recording {shown}"))?;
    parse(bytes)
        .with_context(|| format!("{shown} is not a usable recording; `corewise run --record` makes one"))
}

/// Parses a recording, compressed or not.
pub fn parse(bytes: Vec<u8>) -> Result<Recording> {
    let (text, cut) = if input::is_packed(&bytes) {
        input::unpack(&bytes, input::DATA_MAX).context("it cannot be unpacked")?
    } else {
        (bytes, false)
    };
    let Ok(text) = String::from_utf8(text) else { bail!("it is not text") };
    let mut recording = Recording::parse(&text)?;
    recording.truncated |= cut;
    Ok(recording)
}
