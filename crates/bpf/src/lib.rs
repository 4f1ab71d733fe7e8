//! The programs that corewise runs in the kernel (`*.bpf.c` beside this file, compiled by `build.rs`), and
//! how they are loaded.
//!
//! Programs and maps belong to descriptors of this process: when it ends, however it ends, the kernel drops
//! them. All errors are reasons in words, for callers that can do without BPF.

use corewise_sys::proc::Proc;
use libbpf_rs::{Link, MapHandle, Object, ObjectBuilder, OpenObject};

/// libbpf reads an object in place and wants it aligned.
#[repr(C, align(8))]
pub struct Aligned<Bytes: ?Sized>(pub Bytes);

/// Follows threads and tells the runnable ones: for the crate `discovery`.
pub static DISCOVERY: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/discovery.bpf.o")));

/// Sees what bound threads ask for and cannot have: for the crate `discovery`.
pub static ASKS: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/asks.bpf.o")));

/// Preempts chosen threads: for the crate `branches`.
pub static PREEMPTION: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/preemption.bpf.o")));

/// Adds up which processes run beside which: for the crate `discovery`.
pub static NEIGHBOURS: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/neighbours.bpf.o")));

/// The inode number of the initial pid namespace (`PROC_PID_INIT_INO`, linux/proc_ns.h).
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Whether this process numbers processes as BPF programs do.
pub fn knows_our_process_ids() -> bool {
    Proc::own().pid_namespace().is_ok_and(|number| number == INITIAL_PID_NAMESPACE)
}

/// Opens an object, to be loaded.
pub fn open(object: &'static Aligned<[u8]>) -> Result<OpenObject, String> {
    if !knows_our_process_ids() {
        return Err("this is a container with process ids of its own, BPF knows only the host's".to_owned());
    }
    // libbpf writes to standard error, which is the application's; its error codes say enough.
    libbpf_rs::set_print(None);
    ObjectBuilder::default().open_memory(&object.0).map_err(reason)
}

/// A descriptor of its own for the map `name`, whose values must have `value_size` bytes.
pub fn map(object: &Object, name: &str, value_size: usize) -> Result<MapHandle, String> {
    use libbpf_rs::MapCore;
    let map = object.maps().find(|map| map.name() == name);
    let map = map.unwrap_or_else(|| unreachable!("the BPF program defines the map {name}"));
    assert_eq!(map.value_size() as usize, value_size, "the BPF program and its user disagree on {name}");
    MapHandle::try_from(&map).map_err(reason)
}

/// Attaches the programs to tracepoints, less those that are to be run by hand.
pub fn attach(object: &Object) -> Result<Vec<Link>, String> {
    attach_those(object, |_| true)
}

/// The same of those whose names are wanted.
pub fn attach_those(object: &Object, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<Link>, String> {
    use libbpf_rs::{ProgramAttachType, ProgramType};
    let traced = object.progs_mut().filter(|program| {
        program.prog_type() == ProgramType::Tracing
            && !matches!(program.attach_type(), ProgramAttachType::TraceIter)
            && is_wanted(&program.name().to_string_lossy())
    });
    traced.map(|program| program.attach()).collect::<Result<_, _>>().map_err(reason)
}

/// Returns the first two numbers of the kernel's version.
pub fn kernel_version() -> Option<(u32, u32)> {
    let name = nix::sys::utsname::uname().ok()?;
    let mut numbers = name.release().to_str()?.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Why, in words.
pub fn reason(error: libbpf_rs::Error) -> String {
    if error.kind() == libbpf_rs::ErrorKind::PermissionDenied {
        return "not permitted: it needs CAP_BPF and CAP_PERFMON, or root".to_owned();
    }
    if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        return "the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF)".to_owned();
    }
    format!("{error:#}")
}

/// The clock of `bpf_ktime_get_ns`, which is also the one of [`std::time::Instant`].
pub fn monotonic_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    let now = now.expect("every Linux has CLOCK_MONOTONIC");
    std::time::Duration::from(now).as_nanos() as u64
}
