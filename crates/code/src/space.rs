//! The executable mappings of one process, kept up to date from what the kernel reports.

use corewise_sys::proc::Proc;
use corewise_sys::proc::mappings::{self, ListedMapping};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Names a file for as long as it exists, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// Device number, `(major, minor)`.
    pub device: (u32, u32),
    /// Inode number.
    pub inode: u64,
    /// Tells it from an earlier file with the same inode number.
    pub generation: u64,
}

/// What lies behind a mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backing {
    /// A file, and the path that the process mapped it by.
    File(FileKey, Arc<str>),
    /// Nothing but memory: code made at run time, the vDSO.
    Memory,
}

/// One executable mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Offset of `start` in the file.
    pub offset: u64,
    /// What is mapped.
    pub backing: Backing,
}

/// The executable mappings of one process, without overlaps.
#[derive(Debug, Clone, Default)]
pub struct AddressSpace {
    by_start: BTreeMap<u64, Mapping>,
}

impl AddressSpace {
    /// Takes in a mapping; what it covers of older ones is gone.
    pub fn map(&mut self, mapping: Mapping) {
        let covered: Vec<u64> = self
            .by_start
            .range(..mapping.end)
            .rev()
            .take_while(|(_, old)| old.end > mapping.start)
            .map(|(&start, _)| start)
            .collect();
        for start in covered {
            let old = self.by_start.remove(&start).expect("the key was just listed");
            if old.end > mapping.end {
                let offset = old.offset + (mapping.end - old.start);
                let rest = Mapping { start: mapping.end, offset, ..old.clone() };
                self.by_start.insert(rest.start, rest);
            }
            if old.start < mapping.start {
                self.by_start.insert(old.start, Mapping { end: mapping.start, ..old });
            }
        }
        self.by_start.insert(mapping.start, mapping);
    }

    /// The mapping that holds an address.
    pub fn find(&self, address: u64) -> Option<&Mapping> {
        let (_, mapping) = self.by_start.range(..=address).next_back()?;
        (address < mapping.end).then_some(mapping)
    }

    /// All of them, by address.
    pub fn mappings(&self) -> impl ExactSizeIterator<Item = &Mapping> {
        self.by_start.values()
    }

    /// The executable mappings of a process now; none if it has ended but is not waited for.
    pub fn of_process(pid: u32) -> io::Result<AddressSpace> {
        Ok(AddressSpace::of_listed(Proc::own().code_mappings(pid)?))
    }

    /// The executable mappings that a `/proc/PID/maps` text lists.
    pub fn from_maps(text: &str) -> AddressSpace {
        AddressSpace::of_listed(mappings::parse(text).filter(|listed| listed.executable))
    }

    fn of_listed(listed: impl IntoIterator<Item = ListedMapping>) -> AddressSpace {
        let mut space = AddressSpace::default();
        listed.into_iter().for_each(|listed| space.map(Mapping::of(&listed)));
        space
    }
}

impl Mapping {
    /// What the kernel lists.
    pub(crate) fn of(listed: &ListedMapping) -> Mapping {
        let backing = Backing::of(FileKey::of(listed), &listed.path);
        Mapping { start: listed.start, end: listed.end, offset: listed.offset, backing }
    }
}

impl FileKey {
    /// What the kernel lists, without generations.
    pub(crate) fn of(listed: &ListedMapping) -> FileKey {
        FileKey { device: listed.device, inode: listed.inode, generation: 0 }
    }
}

impl Backing {
    /// A file is what has an inode and a path that can still be opened.
    pub fn of(key: FileKey, path: &str) -> Backing {
        let is_file = key.inode != 0 && path.starts_with('/') && !path.ends_with(" (deleted)");
        let is_shared_memory =
            path.starts_with("/memfd:") || path.starts_with("/dev/") || path.starts_with("//");
        if is_file && !is_shared_memory { Backing::File(key, path.into()) } else { Backing::Memory }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64, offset: u64) -> Mapping {
        Mapping { start, end, offset, backing: Backing::Memory }
    }

    fn drawn(space: &AddressSpace) -> String {
        let texts: Vec<String> =
            space.by_start.values().map(|m| format!("{:x}-{:x}+{:x}", m.start, m.end, m.offset)).collect();
        texts.join(" ")
    }

    #[test]
    fn a_new_mapping_replaces_what_it_covers() {
        for (start, end, expected) in [
            (0x40, 0x50, "10-20+0 30-40+100 40-50+900"),
            (0x14, 0x18, "10-14+0 14-18+900 18-20+8 30-40+100"),
            (0x18, 0x38, "10-18+0 18-38+900 38-40+108"),
            (0x00, 0x80, "0-80+900"),
            (0x10, 0x20, "10-20+900 30-40+100"),
        ] {
            let mut space = AddressSpace::default();
            space.map(mapping(0x10, 0x20, 0));
            space.map(mapping(0x30, 0x40, 0x100));
            space.map(mapping(start, end, 0x900));
            assert_eq!(drawn(&space), expected);
        }
    }

    #[test]
    fn maps_of_a_process_are_understood() {
        let space = AddressSpace::from_maps(
            "00400000-00401000 r--p 00000000 08:10 99 /bin/with space\n\
             00401000-00403000 r-xp 00001000 08:10 99 /bin/with space\n\
             7f0000000000-7f0000010000 rwxp 00000000 00:00 0 \n\
             7f0000020000-7f0000021000 r-xp 00000000 08:01 7 /tmp/gone (deleted)\n\
             7fff00000000-7fff00002000 r-xp 00000000 00:00 0 [vdso]\n",
        );
        assert_eq!(space.find(0x400000), None);
        let code = space.find(0x402fff).unwrap();
        let key = FileKey { device: (8, 0x10), inode: 99, generation: 0 };
        assert_eq!((code.offset, &code.backing), (0x1000, &Backing::File(key, "/bin/with space".into())));
        assert_eq!(space.find(0x403000), None);
        for memory in [0x7f0000000000, 0x7f0000020000, 0x7fff00000000] {
            assert_eq!(space.find(memory).unwrap().backing, Backing::Memory);
        }
    }
}
