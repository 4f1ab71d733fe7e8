//! Translates libhwloc's view of a machine.

use super::child;
use super::source::{LoadError, Source};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::topology::{Domain, DomainKind};
use corewise_sys::input;
use hwlocality::cpu::cpuset::CpuSet as HwlocSet;
use hwlocality::info::TextualInfo;
use hwlocality::object::TopologyObject;
use hwlocality::object::attributes::ObjectAttributes;
use hwlocality::object::types::ObjectType;
use hwlocality::topology::Topology as Hwloc;
use hwlocality::topology::builder::{BuildFlags, TopologyBuilder};
use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// hwloc is configured by environment variables, which belong to the whole process: allow one load at a time.
static ENVIRONMENT: Mutex<()> = Mutex::new(());

/// What `--machine FILE.xml` expects.
const XML: &str = "hwloc XML file of a machine; write one with `lstopo machine.xml`";

/// The parts of a topology that hwloc knows.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    pub pes: CpuSet,
    pub allowed: CpuSet,
    /// In hwloc's logical order within a kind.
    pub domains: Vec<Domain>,
    pub kinds: Vec<HwlocKind>,
    pub models: Vec<CpuModel>,
    pub notes: Vec<String>,
}

/// One of hwloc's CPU kinds.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct HwlocKind {
    pub pes: CpuSet,
    /// hwloc's rank; larger means faster.
    pub efficiency: Option<u64>,
    /// `CoreType`: `IntelAtom`, `AMDPerformance`.
    pub core_type: Option<String>,
    /// `FrequencyMaxMHz`.
    pub max_mhz: Option<u64>,
    /// `LinuxCapacity`.
    pub capacity: Option<u64>,
}

/// The processor of one package.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuModel {
    pub pes: CpuSet,
    /// The vendor's name for it.
    pub name: String,
    /// `AuthenticAMD`, on x86.
    pub vendor: Option<String>,
    /// The x86 family with the extended family added: 21 is AMD's 15h.
    pub family: Option<u32>,
}

/// Runs hwloc's discovery over a source. A root must be a directory here.
pub fn load(source: &Source) -> Result<Found, LoadError> {
    let _lock = ENVIRONMENT.lock().unwrap_or_else(PoisonError::into_inner);
    match source {
        Source::Live => {
            let built = build_without_plugins();
            built.map(|hwloc| convert(&hwloc)).map_err(|problem| hwloc_error("this machine", problem))
        }
        Source::Xml(path) => load_xml(path),
        Source::Root(path) => load_root(path),
    }
}

fn build(builder: TopologyBuilder) -> Result<Hwloc, String> {
    // On x86 hwloc would bind this thread to each PE in turn, for facts that the kernel reports as well, and
    // then restore the mask that it had found. That may be the mask of an outer corewise, which has been
    // reset meanwhile.
    let flags = BuildFlags::INCLUDE_DISALLOWED | BuildFlags::DONT_CHANGE_BINDING;
    let builder = builder.with_flags(flags).map_err(|error| error.to_string())?;
    builder.build().map_err(|error| match error.errno {
        Some(errno) => errno.to_string(),
        None => format!("{} gives no reason", error.api),
    })
}

fn hwloc_error(what: &str, problem: String) -> LoadError {
    LoadError::Hwloc { what: what.to_owned(), problem }
}

/// Loads XML. hwloc 2 refuses files that hwloc 3 wrote, although the parts that we use are the same: only the
/// version at the top differs, and additions that hwloc 2 skips.
fn load_xml(path: &Path) -> Result<Found, LoadError> {
    let bytes = input::read(path, input::DOCUMENT_MAX).map_err(LoadError::read(path))?;
    let content = |problem: String| LoadError::Content { path: path.to_owned(), expected: XML, problem };
    let text = String::from_utf8(bytes).map_err(|error| content(error.to_string()))?;
    if !text.contains("<topology") {
        return Err(content("it has no <topology> element".to_owned()));
    }
    let text = text.replacen("<topology version=\"3.0\"", "<topology version=\"2.0\"", 1);
    let load = || {
        let builder = Hwloc::builder().from_xml(&text).map_err(|error| error.to_string())?;
        build(builder).map(|hwloc| convert(&hwloc))
    };
    child::run(load).map_err(|problem| content(format!("libhwloc says: {problem}")))
}

/// The findings of hwloc's plugins (PCI devices, graphics cards) are not used, and loading them with all
/// their libraries takes longer than everything else.
const NO_PLUGINS: (&str, &str) = ("HWLOC_PLUGINS_PATH", "/dev/null");

fn load_root(path: &Path) -> Result<Found, LoadError> {
    let load = || {
        set_in_child(c"HWLOC_FSROOT", path.as_os_str())?;
        set_in_child(c"HWLOC_COMPONENTS", "linux,stop".as_ref())?;
        build(Hwloc::builder()).map(|hwloc| convert(&hwloc))
    };
    let what = format!("the recorded machine {}", path.display());
    child::run(load).map_err(|problem| hwloc_error(&what, problem))
}

/// Sets an environment variable in a child. Another thread of its parent may have read the environment when
/// the child was made: then Rust's lock of it stays locked in the child.
fn set_in_child(name: &CStr, value: &OsStr) -> Result<(), String> {
    let value = CString::new(value.as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: both strings end with NUL, and the child has no other thread. The C library's own lock is free:
    // `ENVIRONMENT` is held around everything here that changes the environment.
    let result = unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) };
    Errno::result(result).map(drop).map_err(|errno| errno.to_string())
}

/// Builds this machine's topology without plugins.
fn build_without_plugins() -> Result<Hwloc, String> {
    let (name, nowhere) = NO_PLUGINS;
    let before = std::env::var_os(name);
    // SAFETY: only code that reads the environment at the same time outside of Rust's own functions could
    // race. hwloc does, and `ENVIRONMENT` is held around every use of it; corewise loads topologies before it
    // starts threads that call into other C libraries.
    unsafe { std::env::set_var(name, nowhere) };
    let built = build(Hwloc::builder());
    // SAFETY: as for the call above, `ENVIRONMENT` is held.
    unsafe {
        match before {
            Some(value) => std::env::set_var(name, value),
            None => std::env::remove_var(name),
        }
    }
    built
}

fn convert(hwloc: &Hwloc) -> Found {
    let pes = pe_set(&hwloc.cpuset());
    let mut found = Found {
        allowed: pe_set(&hwloc.allowed_cpuset()).intersection(&pes),
        domains: Vec::new(),
        kinds: kinds(hwloc, &pes),
        models: hwloc.objects_with_type(ObjectType::Package).map(model).collect(),
        notes: Vec::new(),
        pes,
    };
    for (object_type, kind) in [
        (ObjectType::Core, DomainKind::Core),
        (ObjectType::L1Cache, DomainKind::L1),
        (ObjectType::L2Cache, DomainKind::L2),
        (ObjectType::Group, DomainKind::Cluster),
        (ObjectType::L3Cache, DomainKind::L3),
        (ObjectType::Die, DomainKind::Die),
        (ObjectType::NUMANode, DomainKind::NumaNode),
        (ObjectType::Package, DomainKind::Package),
    ] {
        // Groups stand for many things; only clusters are known to share something.
        let is_wanted = |object: &&TopologyObject| {
            object_type != ObjectType::Group || object.subtype().is_some_and(|name| name == c"Cluster")
        };
        for object in hwloc.objects_with_type(object_type).filter(is_wanted) {
            add_domain(&mut found, kind, object);
        }
    }
    let allowed_nodes = hwloc.allowed_nodeset();
    for node in found.domains.iter_mut().filter(|domain| domain.kind == DomainKind::NumaNode) {
        node.forbidden = node.os.is_some_and(|os| !allowed_nodes.is_set(os as usize));
    }
    found
}

fn add_domain(found: &mut Found, kind: DomainKind, object: &TopologyObject) {
    let pes = object.cpuset().map(|set| pe_set(&set)).unwrap_or_default().intersection(&found.pes);
    let os = object.os_index().map(|index| index as u32);
    // Memory without PEs (CXL) and a second memory of the same PEs (HBM beside DDR) do not form domains.
    let taken = found.domains.iter().any(|d| d.kind == kind && d.pes.intersects(&pes));
    if pes.is_empty() || taken {
        let index = os.map_or(String::new(), |index| format!(" {index}"));
        let reason = if pes.is_empty() { "has no PEs" } else { "shares its PEs with another one" };
        found.notes.push(format!("{}{index} {reason} and is left out", kind.word()));
        return;
    }
    let bytes = match object.attributes() {
        Some(ObjectAttributes::Cache(cache)) => cache.size().map(|size| size.get()),
        Some(ObjectAttributes::NUMANode(node)) => node.local_memory().map(|size| size.get()),
        _ => None,
    };
    found.domains.push(Domain { os, bytes, ..Domain::new(kind, pes) });
}

fn model(package: &TopologyObject) -> CpuModel {
    let info = |key| package.info(key).map(|value| value.to_string_lossy().trim().to_owned());
    CpuModel {
        pes: package.cpuset().map(|set| pe_set(&set)).unwrap_or_default(),
        name: info("CPUModel").unwrap_or_default(),
        vendor: info("CPUVendor"),
        family: info("CPUFamilyNumber").and_then(|number| number.parse().ok()),
    }
}

fn kinds(hwloc: &Hwloc, pes: &CpuSet) -> Vec<HwlocKind> {
    let Ok(kinds) = hwloc.cpu_kinds() else { return Vec::new() };
    let info = |infos: &[TextualInfo], key: &str| {
        let found = infos.iter().find(|info| info.name().to_bytes() == key.as_bytes());
        found.map(|info| info.value().to_string_lossy().into_owned())
    };
    let number = |infos, key| info(infos, key).and_then(|value| value.parse().ok());
    kinds
        .map(|kind| HwlocKind {
            pes: pe_set(&kind.cpuset).intersection(pes),
            efficiency: kind.efficiency.map(|rank| rank as u64),
            core_type: info(kind.infos, "CoreType"),
            max_mhz: number(kind.infos, "FrequencyMaxMHz"),
            capacity: number(kind.infos, "LinuxCapacity"),
        })
        .collect()
}

fn pe_set(set: &HwlocSet) -> CpuSet {
    set.iter_set().map(|index| PeId(usize::from(index) as u32)).collect()
}
