//! Recorded machines: the files of `/sys` and `/proc` that [`super::load`] reads, in a directory, a `.tar.gz`
//! or a `.tar.bz2`.

use super::source::LoadError;
use bzip2::bufread::BzDecoder;
use corewise_sys::input;
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// The maximum number of entries of an archive; the largest machine that Linux supports has fewer.
const FILES_MAX: u32 = 1 << 19;

/// The maximum ratio of an archive's size to that of its files: it contains whole blocks, and headers.
const ARCHIVE_FACTOR: u64 = 8;

/// Files and directories to record, below `/`. A `*` stands for a number. Directories are recorded without
/// their subdirectories.
const RECORDED: &[&str] = &[
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/self/status",
    "sys/devices/cpu_atom/cpus",
    "sys/devices/cpu_core/cpus",
    "sys/devices/system/cpu/kernel_max",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/possible",
    "sys/devices/system/cpu/present",
    "sys/devices/system/cpu/cpu*/acpi_cppc",
    "sys/devices/system/cpu/cpu*/cache/index*",
    "sys/devices/system/cpu/cpu*/cpu_capacity",
    "sys/devices/system/cpu/cpu*/cpufreq/base_frequency",
    "sys/devices/system/cpu/cpu*/cpufreq/cpuinfo_max_freq",
    "sys/devices/system/cpu/cpu*/online",
    "sys/devices/system/cpu/cpu*/regs/identification",
    "sys/devices/system/cpu/cpu*/topology",
    "sys/devices/system/node/online",
    "sys/devices/system/node/possible",
    "sys/devices/system/node/node*/cpulist",
    "sys/devices/system/node/node*/cpumap",
    "sys/devices/system/node/node*/distance",
    "sys/devices/system/node/node*/meminfo",
];

/// Records this machine as a `.tar.gz` that [`super::Source::Root`] reads: the hardware, and of the calling
/// process only the PEs it may use.
pub fn record() -> io::Result<Vec<u8>> {
    let root = Path::new("/");
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    for pattern in RECORDED {
        for path in matches(root, pattern) {
            add(&mut archive, root, &path)?;
        }
    }
    archive.into_inner()?.finish()
}

/// Returns the existing paths below `root` that match a pattern, relative to `root`.
fn matches(root: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::new()];
    for name in pattern.split('/') {
        paths = paths.into_iter().flat_map(|path| step(root, path, name)).collect();
    }
    paths
}

fn step(root: &Path, path: PathBuf, name: &str) -> Vec<PathBuf> {
    let Some(prefix) = name.strip_suffix('*') else {
        let path = path.join(name);
        return if root.join(&path).exists() { vec![path] } else { Vec::new() };
    };
    let number = |entry: &fs::DirEntry| entry.file_name().to_str()?.strip_prefix(prefix)?.parse::<u32>().ok();
    let entries = fs::read_dir(root.join(&path)).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> = entries.filter_map(|entry| number(&entry)).collect();
    numbers.sort_unstable();
    numbers.into_iter().map(|number| path.join(format!("{prefix}{number}"))).collect()
}

/// Adds a file, or the files of a directory. A file that the kernel refuses to read is left out: reading it
/// would fail on the live machine, too.
fn add(archive: &mut tar::Builder<impl Write>, root: &Path, path: &Path) -> io::Result<()> {
    let source = root.join(path);
    if source.is_dir() {
        for entry in fs::read_dir(source)? {
            let name = entry?.file_name();
            if root.join(path).join(&name).is_file() {
                add(archive, root, &path.join(name))?;
            }
        }
        return Ok(());
    }
    let Ok(mut bytes) = fs::read(&source) else { return Ok(()) };
    if path.ends_with("proc/self/status") {
        bytes = limits_only(&bytes);
    }
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, path, bytes.as_slice())
}

/// Keeps only the two lines of a status file that `kernel` reads: a recording contains nothing about its
/// creator.
fn limits_only(status: &[u8]) -> Vec<u8> {
    let lines = status.split_inclusive(|&byte| byte == b'\n');
    let is_limit =
        |line: &&[u8]| line.starts_with(b"Cpus_allowed_list:") || line.starts_with(b"Mems_allowed_list:");
    lines.filter(is_limit).flatten().copied().collect()
}

/// A recorded machine's root directory, which contains `sys` and `proc`.
pub struct OpenRoot {
    pub path: PathBuf,
    /// Deletes what was unpacked on drop.
    _unpacked: Option<tempfile::TempDir>,
}

/// Opens a directory, or unpacks an archive.
pub fn open(path: &Path) -> Result<OpenRoot, LoadError> {
    let metadata = fs::metadata(path).map_err(LoadError::read(path))?;
    if metadata.is_dir() {
        let root = path.canonicalize().map_err(LoadError::read(path))?;
        let path = find_root(&root).ok_or_else(|| no_recording(path, "it has no sys/devices"))?;
        return Ok(OpenRoot { path, _unpacked: None });
    }
    let file = input::open_regular(path).map_err(LoadError::read(path))?;
    let folder = tempfile::tempdir().map_err(LoadError::read(&std::env::temp_dir()))?;
    decompressed(BufReader::new(file))
        .and_then(|archive| unpack(archive, folder.path()))
        .map_err(|error| no_recording(path, &format!("it does not unpack: {error}")))?;
    let root = find_root(folder.path()).ok_or_else(|| no_recording(path, "it has no sys/devices"))?;
    Ok(OpenRoot { path: root, _unpacked: Some(folder) })
}

/// Decompresses a gzip or bzip2 file, detected by its first bytes.
fn decompressed(mut file: impl BufRead + 'static) -> io::Result<Box<dyn Read>> {
    match file.fill_buf()? {
        [0x1f, 0x8b, ..] => Ok(Box::new(GzDecoder::new(file))),
        [b'B', b'Z', b'h', ..] => Ok(Box::new(BzDecoder::new(file))),
        _ => Err(io::Error::other("it is compressed neither by gzip nor by bzip2")),
    }
}

/// Unpacks a recorded machine. Archives are untrusted: they may contain compression bombs, and links that
/// lead out of them.
fn unpack(archive: impl Read, folder: &Path) -> io::Result<()> {
    let max = input::limit(input::DOCUMENT_MAX);
    // An empty file takes space in the archive, too.
    let mut archive = tar::Archive::new(archive.take(ARCHIVE_FACTOR * max));
    let (mut files, mut bytes) = (0, 0);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        if !(kind.is_file() || kind.is_dir() || kind.is_symlink()) {
            continue;
        }
        files += 1;
        bytes = entry.size().saturating_add(bytes);
        if bytes > max || files > FILES_MAX {
            return Err(input::too_large(max));
        }
        entry.unpack_in(folder)?;
    }
    drop_links_out(folder, &folder.canonicalize()?)
}

/// Removes the links that do not lead to something within `root`.
fn drop_links_out(folder: &Path, root: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            drop_links_out(&entry.path(), root)?;
        } else if kind.is_symlink() && !entry.path().canonicalize().is_ok_and(|to| to.starts_with(root)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn no_recording(path: &Path, problem: &str) -> LoadError {
    LoadError::Content {
        path: path.to_owned(),
        expected: "recorded machine (a directory, .tar.gz or .tar.bz2 with its /sys and /proc; \
                   `corewise topo --record FILE` makes one)",
        problem: problem.to_owned(),
    }
}

/// Returns the directory itself, or the only directory in it: archives often have one directory around
/// everything.
fn find_root(folder: &Path) -> Option<PathBuf> {
    let holds_machine = |path: &Path| path.join("sys/devices").is_dir();
    if holds_machine(folder) {
        return Some(folder.to_owned());
    }
    let mut entries = fs::read_dir(folder).ok()?.flatten();
    let only = entries.next()?.path();
    (entries.next().is_none() && holds_machine(&only)).then_some(only)
}
