//! Records for systemd's journal, with their fields, over its socket; a journal that does not take them at
//! once does not get them.
//!
//! Source: <https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>.

use log::kv::{Error, Key, Value, VisitSource};
use log::{Level, Record};
use std::fmt::Display;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

const SOCKET: &str = "/run/systemd/journal/socket";

/// The variable by which systemd says which file is the journal: its device and its inode.
const STREAM: &str = "JOURNAL_STREAM";

static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// Returns how many records the journal did not take.
pub fn left_out() -> u64 {
    LEFT_OUT.load(Ordering::Relaxed)
}

/// The way to the journal.
pub struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Journal {
    /// Returns it if standard error is the journal.
    pub fn of_standard_error() -> Option<Journal> {
        let named = std::env::var(STREAM).ok()?;
        let stat = nix::sys::stat::fstat(std::io::stderr().as_fd()).ok()?;
        if named != format!("{}:{}", stat.st_dev, stat.st_ino) {
            return None;
        }
        Journal::at(SOCKET.into()).ok()
    }

    fn at(path: PathBuf) -> std::io::Result<Journal> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        // The journal ignores what is empty. If nobody listens, that is an error.
        socket.send_to(&[], &path)?;
        Ok(Journal { socket, path })
    }

    /// Sends a record.
    pub fn send(&self, record: &Record<'_>) {
        if self.socket.send_to(&datagram(record), &self.path).is_err() {
            LEFT_OUT.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn datagram(record: &Record<'_>) -> Vec<u8> {
    let mut fields = Fields(Vec::new());
    let priority = match record.level() {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 5,
        Level::Debug => 6,
        Level::Trace => 7,
    };
    fields.add("PRIORITY", &priority);
    fields.add("MESSAGE", record.args());
    fields.add("SYSLOG_IDENTIFIER", &"corewise");
    fields.add("SYSLOG_PID", &std::process::id());
    fields.add("TARGET", &record.target());
    // It never fails.
    let _ = record.key_values().visit(&mut fields);
    fields.0
}

/// Fields as the journal takes them.
struct Fields(Vec<u8>);

impl Fields {
    fn add(&mut self, name: &str, value: &dyn Display) {
        let value = value.to_string();
        self.0.extend(name.as_bytes());
        self.0.push(b'\n');
        self.0.extend((value.len() as u64).to_le_bytes());
        self.0.extend(value.as_bytes());
        self.0.push(b'\n');
    }
}

impl<'kvs> VisitSource<'kvs> for Fields {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
        // All are words of the daemon's own code.
        self.add(&key.as_str().to_ascii_uppercase(), &value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_gets_records_with_their_fields_and_one_that_hangs_delays_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let theirs = UnixDatagram::bind(&path).unwrap();
        let journal = Journal::at(path).unwrap();
        let fields = [("corewise_event", "guard")];
        let mut record = Record::builder();
        record.level(Level::Warn).target("corewise").key_values(&fields);
        let before = left_out();
        while left_out() == before {
            journal.send(&record.args(format_args!("two\nlines")).build());
        }
        let mut bytes = [0; 1024];
        assert_eq!(theirs.recv(&mut bytes).unwrap(), 0, "it is asked whether it is there");
        let length = theirs.recv(&mut bytes).unwrap();
        let has = |field: &[u8]| bytes[..length].windows(field.len()).any(|window| window == field);
        assert!(has(b"PRIORITY\n\x01\0\0\0\0\0\0\x004\n"), "{}", String::from_utf8_lossy(&bytes));
        assert!(has(b"MESSAGE\n\x09\0\0\0\0\0\0\0two\nlines\n"));
        assert!(has(b"COREWISE_EVENT\n\x05\0\0\0\0\0\0\0guard\n"));
    }
}
