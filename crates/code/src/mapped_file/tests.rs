use super::*;
use crate::{AddressSpace, CodeStore, Place};
use nix::sys::stat::Mode;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// A copy of this program, mapped executable, under a name that the tests put other things under.
struct Mapped {
    path: PathBuf,
    address: u64,
    _directory: tempfile::TempDir,
}

const BYTES: usize = 1 << 16;

impl Mapped {
    fn new() -> Mapped {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("library.so");
        std::fs::copy("/proc/self/exe", &path).unwrap();
        let file = File::open(&path).unwrap();
        let (length, protection) = (NonZeroUsize::new(BYTES), ProtFlags::PROT_READ | ProtFlags::PROT_EXEC);
        let flags = MapFlags::MAP_PRIVATE;
        // SAFETY: a fresh mapping of a file that nobody changes; the kernel chooses where it lies.
        let mapped = unsafe { mmap(None, length.unwrap(), protection, flags, &file, 0) }.unwrap();
        Mapped { path, address: mapped.as_ptr() as u64, _directory: directory }
    }

    /// As the kernel listed it before anything stood in its place.
    fn space(&self) -> AddressSpace {
        AddressSpace::from_maps(&std::fs::read_to_string("/proc/self/maps").unwrap())
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let address = std::ptr::NonNull::new(self.address as *mut _).unwrap();
        // SAFETY: it was mapped with this length, and nothing refers to it any more.
        unsafe { munmap(address, BYTES) }.unwrap();
    }
}

/// What opening gives; it must not wait.
fn opened(mapping: &Mapping) -> Option<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    let mapping = mapping.clone();
    std::thread::spawn(move || {
        let start = open(std::process::id(), &mapping).map(|mut file| {
            let mut start = vec![0; 64];
            file.read_exact(&mut start).unwrap();
            start
        });
        // The test has given up.
        let _ = sender.send(start);
    });
    receiver.recv_timeout(Duration::from_secs(20)).expect("opening waits")
}

/// Without the kernel's link, as the unprivileged see it: only the path is left.
fn without_link(mapping: &Mapping) -> Mapping {
    Mapping { end: mapping.end + 1, ..mapping.clone() }
}

#[test]
fn nothing_is_opened_but_the_mapped_file() {
    let mapped = Mapped::new();
    let space = mapped.space();
    let mapping = space.find(mapped.address).unwrap();
    let start = std::fs::read("/proc/self/exe").unwrap()[..64].to_vec();
    assert_eq!(opened(mapping).as_ref(), Some(&start));
    assert_eq!(opened(&without_link(mapping)).as_ref(), Some(&start));

    type Put<'a> = (&'a str, &'a dyn Fn(&Path));
    let put: [Put; 5] = [
        ("nothing", &|_| {}),
        ("a FIFO", &|path| nix::unistd::mkfifo(path, Mode::S_IRWXU).unwrap()),
        ("a link to a device", &|path| symlink("/dev/zero", path).unwrap()),
        ("a link to another file", &|path| symlink("/proc/self/exe", path).unwrap()),
        ("another file", &|path| {
            std::fs::copy("/proc/self/exe", path).unwrap();
        }),
    ];
    // The file lives on in the mapping alone.
    for (what, put) in put {
        std::fs::remove_file(&mapped.path).unwrap();
        put(&mapped.path);
        assert_eq!(opened(&without_link(mapping)), None, "{what}");
        // The privileged still get at the mapped file, by the kernel's link; nobody gets another one.
        assert!(opened(mapping).is_none_or(|found| found == start), "{what}");
        let mut code = CodeStore::default();
        let place = code.view(std::process::id(), &space).place(mapped.address);
        assert!(matches!(place, Some(Place::File(..) | Place::Memory { .. })), "{what}: {place:?}");
        if what == "nothing" {
            std::fs::write(&mapped.path, "").unwrap();
        }
    }
}

#[test]
fn an_earlier_file_with_the_same_inode_number_is_another_file() {
    let mapped = Mapped::new();
    let space = mapped.space();
    let mapping = space.find(mapped.address).unwrap();
    let of_generation = |generation: u32| {
        let Backing::File(key, path) = mapping.backing.clone() else { panic!("it is a file") };
        let key = FileKey { generation: generation.into(), ..key };
        Mapping { backing: Backing::File(key, path), ..mapping.clone() }
    };
    match generation(&open(std::process::id(), mapping).unwrap()) {
        Some(known) => {
            assert!(opened(&of_generation(known)).is_some());
            assert!(opened(&of_generation(known.wrapping_add(1).max(1))).is_none());
        }
        // This file system does not report them.
        None => assert!(opened(&of_generation(1)).is_some()),
    }
}
