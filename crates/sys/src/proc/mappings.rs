//! What a process has mapped: `/proc/PID/maps`.
//!
//! Problem: the kernel needs 1.5 ms to write that text for a program of Python's, whose list has 1,000 lines;
//! fewer than 200 of them are of code. Approach: since Linux 6.11 the file can be asked for the next mapping
//! of code, which takes 0.7 ms for all of them, or for that at an address (`PROCMAP_QUERY`). Where it cannot
//! be asked, its text is read. Limits: neither way shows all mappings as they were at one instant, and the
//! answers leave out the kernel's own page (`[vsyscall]`).

use super::Proc;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::Path;

/// Mappings of code of a process that are listed. Programs with a thousand libraries have a fourth of it; the
/// kernel permits sixteen times as many, each with a path of 4 KiB.
pub const CODE_MAX: usize = 1 << 12;

/// One mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedMapping {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Whether it may be executed.
    pub executable: bool,
    /// Offset of `start` in the file.
    pub offset: u64,
    /// Device number of the file, `(major, minor)`.
    pub device: (u32, u32),
    /// Inode number of the file; 0 if there is none.
    pub inode: u64,
    /// The path that it was mapped by; empty if it has none.
    pub path: String,
}

impl ListedMapping {
    /// Reads a line: `START-END PERMS OFFSET MAJOR:MINOR INODE PATH`, numbers in hexadecimal except the
    /// inode's.
    fn parse(line: &str) -> Option<ListedMapping> {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let executable = fields.next()?.contains('x');
        let offset = fields.next()?;
        let (major, minor) = fields.next()?.split_once(':')?;
        let inode = fields.next()?.parse().ok()?;
        let path = line.find('/').map_or("", |at| &line[at..]).to_owned();
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let device = (number(major)? as u32, number(minor)? as u32);
        let (start, end, offset) = (number(start)?, number(end)?, number(offset)?);
        Some(ListedMapping { start, end, executable, offset, device, inode, path })
    }
}

/// Returns the mappings that a text of the kernel lists; lines that are damaged are left out.
pub fn parse(text: &str) -> impl Iterator<Item = ListedMapping> {
    text.lines().filter_map(ListedMapping::parse)
}

impl Proc {
    /// Returns the executable mappings of a process, by address, at most [`CODE_MAX`]; none if it has ended
    /// but is not waited for.
    pub fn code_mappings(&self, pid: u32) -> io::Result<Vec<ListedMapping>> {
        let file = File::open(self.folder(pid).join("maps"))?;
        asked(&file).or_else(|_| read(file, |mapping| mapping.executable))
    }

    /// Returns a process's mapping that holds an address.
    pub fn mapping_at(&self, pid: u32, address: u64) -> io::Result<Option<ListedMapping>> {
        at(&self.folder(pid).join("maps"), address)
    }

    /// Returns the mapping of this process that holds an address.
    pub fn own_mapping_at(&self, address: u64) -> io::Result<Option<ListedMapping>> {
        at(&self.root.join("self/maps"), address)
    }
}

fn at(maps: &Path, address: u64) -> io::Result<Option<ListedMapping>> {
    let file = File::open(maps)?;
    let holds = |mapping: &ListedMapping| (mapping.start..mapping.end).contains(&address);
    Query::new().next(&file, address, 0).or_else(|_| Ok(read(file, holds)?.pop()))
}

/// Returns the executable mappings, by asking for each.
fn asked(maps: &File) -> io::Result<Vec<ListedMapping>> {
    let (mut query, mut found, mut address) = (Query::new(), Vec::new(), 0);
    while found.len() < CODE_MAX
        && let Some(mapping) = query.next(maps, address, EXECUTABLE | OR_NEXT)?
    {
        address = mapping.end;
        found.push(mapping);
    }
    Ok(found)
}

/// Returns those that are wanted, by reading the text. Paths need not be valid UTF-8.
fn read(maps: impl io::Read, wanted: impl Fn(&ListedMapping) -> bool) -> io::Result<Vec<ListedMapping>> {
    let mut found = Vec::new();
    for line in BufReader::new(maps).split(b'\n') {
        let mapping = ListedMapping::parse(&String::from_utf8_lossy(&line?));
        found.extend(mapping.filter(&wanted));
        if found.len() == CODE_MAX {
            break;
        }
    }
    Ok(found)
}

// From Linux's <linux/fs.h>.
const EXECUTABLE: u64 = 4;
const OR_NEXT: u64 = 16;

/// `struct procmap_query`.
#[repr(C)]
#[derive(Default)]
struct Asked {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

mod ioctl {
    nix::ioctl_readwrite!(procmap_query, b'f', 17, super::Asked);
}

/// Questions, with room for a path in the answers.
struct Query {
    name: Vec<u8>,
}

impl Query {
    fn new() -> Query {
        Query { name: vec![0; libc::PATH_MAX as usize] }
    }

    /// Returns the mapping that holds an address or, by the flags, follows it; `None` if there is none.
    fn next(&mut self, maps: &File, address: u64, flags: u64) -> io::Result<Option<ListedMapping>> {
        let mut asked = Asked {
            size: size_of::<Asked>() as u64,
            query_flags: flags,
            query_addr: address,
            vma_name_size: self.name.len() as u32,
            vma_name_addr: self.name.as_mut_ptr() as u64,
            ..Asked::default()
        };
        // SAFETY: the kernel writes to the structure, whose size it gets, and at most the given number of
        // bytes to the buffer; both live on.
        match unsafe { ioctl::procmap_query(maps.as_raw_fd(), &raw mut asked) } {
            Ok(_) => {}
            Err(nix::errno::Errno::ENOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // It ends with a zero byte, which counts.
        let name = &self.name[..(asked.vma_name_size as usize).saturating_sub(1).min(self.name.len())];
        let is_path = name.first() == Some(&b'/');
        Ok(Some(ListedMapping {
            start: asked.vma_start,
            end: asked.vma_end,
            executable: asked.vma_flags & EXECUTABLE != 0,
            offset: asked.vma_offset,
            device: (asked.dev_major, asked.dev_minor),
            inode: asked.inode,
            path: if is_path { String::from_utf8_lossy(name).into_owned() } else { String::new() },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn lines_are_understood() {
        let text = "55d5c0de4000-55d5c0e00000 r-xp 00012000 08:10 99    /usr/bin/with space (deleted)\n\
                    7ffd1a9c5000-7ffd1a9c7000 r-xp 00000000 00:00 0     [vdso]\nno line\n\
                    7f0000000000-7f0000001000 rw-p 00000000 00:00 0\n";
        let listed = |start, end, executable, offset, device, inode, path: &str| ListedMapping {
            start,
            end,
            executable,
            offset,
            device,
            inode,
            path: path.to_owned(),
        };
        let program = "/usr/bin/with space (deleted)";
        let expected = [
            listed(0x55d5c0de4000, 0x55d5c0e00000, true, 0x12000, (8, 16), 99, program),
            listed(0x7ffd1a9c5000, 0x7ffd1a9c7000, true, 0, (0, 0), 0, ""),
            listed(0x7f0000000000, 0x7f0000001000, false, 0, (0, 0), 0, ""),
        ];
        assert_eq!(parse(text).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn no_path_hides_other_mappings_and_their_number_is_bounded() {
        let line = |path: &[u8]| [b"1000-2000 r-xp 00000000 08:10 99 /", path, b"\n"].concat();
        let found = read(&[line(b"\xff"), line(b"libc")].concat()[..], |_| true).unwrap();
        assert_eq!(found.iter().map(|found| &*found.path).collect::<Vec<_>>(), ["/\u{fffd}", "/libc"]);
        let many = line(b"libc").repeat(CODE_MAX + 1);
        assert_eq!(read(&many[..], |_| true).unwrap().len(), CODE_MAX);
    }

    #[test]
    fn the_kernel_answers_what_its_text_says() {
        let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let pid = cat.id();
        // What has answered has loaded its libraries, and its mappings stay while it waits for more.
        cat.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        cat.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let open = || File::open(format!("/proc/{pid}/maps")).unwrap();
        // The text shows a page of the kernel's, too, which is nobody's mapping.
        let is_own = |mapping: &ListedMapping| mapping.start < 1 << 63;
        let expected = read(open(), |mapping| mapping.executable && is_own(mapping)).unwrap();
        assert!(expected.iter().any(|mapping| mapping.path.contains("/libc")), "{expected:?}");
        let found = Proc::own().code_mappings(pid).unwrap();
        assert_eq!(found.into_iter().filter(is_own).collect::<Vec<_>>(), expected);
        match asked(&open()) {
            Ok(found) => assert_eq!(found, expected),
            // Before Linux 6.11.
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOTTY)),
        }
        for mapping in read(open(), is_own).unwrap() {
            let found = Proc::own().mapping_at(pid, mapping.end - 1).unwrap();
            assert_eq!(found.as_ref(), Some(&mapping));
        }
        assert_eq!(Proc::own().mapping_at(pid, 0).unwrap(), None);
        drop(cat.stdin.take());
        assert!(cat.wait().unwrap().success());
    }
}
