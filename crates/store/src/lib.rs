//! Records that are on disk as soon as they are made.
//!
//! Problem: measurements take hours, and whatever ends corewise meanwhile must not take them away.
//! Approach: a record is a row of an embedded SQLite database, in a transaction of its own; after `kill -9`
//! the record that was being written is lost and no other. This crate is the only place that knows the
//! database. A store has a *kind*, so that one that holds something else is not taken for it, and texts by
//! name, such as the plan that the records follow. What the texts mean is the business of those who write
//! them. Limits: one writer at a time; after a loss of power the last records may be lost, too.

use rusqlite::{Connection, OptionalExtension};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A store, open for reading and writing.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
}

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database refuses.
    #[error("cannot use the store {}: check that it is one, and may be written", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// What the database says.
        source: rusqlite::Error,
    },
    /// It is another kind of file.
    #[error("{} is not a store: name another file", path.display())]
    NotOne {
        /// The file.
        path: PathBuf,
    },
    /// It holds something else.
    #[error("the store {} holds {found}, and not {wanted}: name another file", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wanted.
        wanted: String,
        /// What it holds.
        found: String,
    },
}

impl Store {
    /// Opens the store of that kind, or creates it.
    pub fn open(path: &Path, kind: &str) -> Result<Store, StoreError> {
        if !is_empty_or_database(path) {
            return Err(StoreError::NotOne { path: path.to_owned() });
        }
        let database = |source| StoreError::Database { path: path.to_owned(), source };
        let connection = Connection::open(path).map_err(database)?;
        let schema = "PRAGMA synchronous = NORMAL;
            CREATE TABLE IF NOT EXISTS texts (name TEXT PRIMARY KEY, text TEXT NOT NULL);
            CREATE TABLE IF NOT EXISTS records (number INTEGER PRIMARY KEY, text TEXT NOT NULL);";
        connection.execute_batch(schema).map_err(database)?;
        let store = Store { connection, path: path.to_owned() };
        match store.text("kind")? {
            None => store.set_text("kind", kind)?,
            Some(found) if found == kind => {}
            Some(found) => {
                return Err(StoreError::Foreign { path: path.to_owned(), wanted: kind.to_owned(), found });
            }
        }
        Ok(store)
    }

    /// Returns the text of that name, if there is one.
    pub fn text(&self, name: &str) -> Result<Option<String>, StoreError> {
        let query = "SELECT text FROM texts WHERE name = ?1";
        self.checked(self.connection.query_row(query, [name], |row| row.get(0)).optional())
    }

    /// Sets the text of that name.
    pub fn set_text(&self, name: &str, text: &str) -> Result<(), StoreError> {
        let set = "INSERT OR REPLACE INTO texts (name, text) VALUES (?1, ?2)";
        self.checked(self.connection.execute(set, [name, text])).map(|_| ())
    }

    /// Returns all records, in the order in which they were added.
    pub fn records(&self) -> Result<Vec<String>, StoreError> {
        let all = || {
            let mut query = self.connection.prepare("SELECT text FROM records ORDER BY number")?;
            query.query_map([], |row| row.get(0))?.collect()
        };
        self.checked(all())
    }

    /// Adds a record. It is on disk when this returns.
    pub fn add(&self, record: &str) -> Result<(), StoreError> {
        let add = "INSERT INTO records (text) VALUES (?1)";
        self.checked(self.connection.execute(add, [record])).map(|_| ())
    }

    fn checked<T>(&self, result: rusqlite::Result<T>) -> Result<T, StoreError> {
        result.map_err(|source| StoreError::Database { path: self.path.clone(), source })
    }
}

/// Returns whether the database may take the file: it takes a small file of another kind for an empty one,
/// and overwrites it.
fn is_empty_or_database(path: &Path) -> bool {
    const BEGIN: &[u8] = b"SQLite format 3\0";
    let Ok(about) = path.metadata() else { return true };
    let mut begin = [0; BEGIN.len()];
    let mut read = || File::open(path).and_then(|mut file| file.read_exact(&mut begin));
    about.len() == 0 || !about.is_file() || (read().is_ok() && begin == BEGIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_texts_are_there_again_in_their_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        let store = Store::open(&path, "tests").unwrap();
        ["b", "a", "b"].iter().for_each(|record| store.add(record).unwrap());
        store.set_text("plan", "x").unwrap();
        store.set_text("plan", "y").unwrap();
        // Not closed, as after a kill.
        std::mem::forget(store);
        let store = Store::open(&path, "tests").unwrap();
        assert_eq!(store.records().unwrap(), ["b", "a", "b"]);
        assert_eq!(store.text("plan").unwrap().as_deref(), Some("y"));
        assert_eq!(store.text("absent").unwrap(), None);
    }

    #[test]
    fn what_is_no_store_of_that_kind_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        drop(Store::open(&path, "one").unwrap());
        let refused = |path: &Path| Store::open(path, "other").unwrap_err().to_string();
        assert!(refused(&path).contains("holds one, and not other: name another"), "{}", refused(&path));
        let text = directory.path().join("text");
        for content in ["{", "this is text, and long enough for the header of a database"] {
            std::fs::write(&text, content).unwrap();
            assert!(refused(&text).contains("is not a store: name another"), "{}", refused(&text));
            assert_eq!(std::fs::read_to_string(&text).unwrap(), content);
        }
        assert!(refused(directory.path()).contains("check that it is one"));
    }
}
