//! Recordings on disk: gzip-compressed lines, written so that what was seen before a crash can be read.

use anyhow::{Context, Result, bail};
use corewise_core::observe::Observation;
use corewise_core::recording::{Header, Recording, to_line};
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// Writes a recording line by line. The first failure (a full disk) ends the recording but not the run.
pub struct RecordingWriter {
    path: PathBuf,
    state: Result<GzEncoder<File>, std::io::Error>,
}

impl RecordingWriter {
    /// Creates the file and writes the header.
    pub fn create(path: PathBuf, header: &Header) -> Self {
        let state = File::create(&path).map(|file| GzEncoder::new(file, Compression::fast()));
        let mut writer = Self { path, state };
        writer.write_line(&to_line(header));
        writer
    }

    /// Adds an observation.
    pub fn write(&mut self, observation: &Observation) {
        self.write_line(&to_line(observation));
    }

    fn write_line(&mut self, line: &str) {
        if let Ok(file) = &mut self.state
            // Flushed, so that a reader finds every whole line even if we are killed.
            && let Err(error) = file.write_all(line.as_bytes()).and_then(|()| file.flush())
        {
            self.state = Err(error);
        }
    }

    /// Ends the recording; the error of the first write that failed.
    pub fn finish(self) -> Result<()> {
        let context =
            || format!("cannot write the recording {}: check space and permission", self.path.display());
        self.state.and_then(GzEncoder::finish).map(drop).with_context(context)
    }
}

/// Reads a recording, compressed or not.
pub fn read(path: &Path) -> Result<Recording> {
    let shown = path.display();
    let bytes = std::fs::read(path).with_context(|| format!("cannot read the recording {shown}"))?;
    let (text, cut) = if bytes.starts_with(&[0x1f, 0x8b]) { unpack(&bytes, path)? } else { (bytes, false) };
    let Ok(text) = String::from_utf8(text) else { bail!("{shown} is no corewise recording: it is not text") };
    let mut recording = Recording::parse(&text).with_context(|| format!("{shown} is no usable recording"))?;
    recording.truncated |= cut;
    Ok(recording)
}

/// The unpacked text, and whether its end is missing.
fn unpack(bytes: &[u8], path: &Path) -> Result<(Vec<u8>, bool)> {
    let mut text = Vec::new();
    match MultiGzDecoder::new(bytes).read_to_end(&mut text) {
        Ok(_) => Ok((text, false)),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok((text, true)),
        Err(error) => {
            Err(error).with_context(|| format!("{} is damaged: it cannot be unpacked", path.display()))
        }
    }
}
