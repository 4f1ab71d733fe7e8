//! Machines made of files: what the kernel's files say, FPU modules, recordings, and what is no machine.

use corewise_core::ids::PeId;
use corewise_core::topology::{DomainKind, Topology};
use corewise_topology::{Source, load, record};
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use tempfile::TempDir;

/// One PE of a made machine.
struct Pe {
    midr: u64,
    capacity: u32,
    max_khz: u32,
    /// The PEs that share its L2, as a mask.
    l2: u32,
}

const A510: u64 = 0x411f_d461;
const A715: u64 = 0x411f_d4d0;
const X3: u64 = 0x411f_d4e0;
const A725: u64 = 0x411f_d870;
const X925: u64 = 0x411f_d850;

/// Writes the files of a machine with one PE per core.
fn machine(pes: &[Pe]) -> TempDir {
    let root = tempfile::tempdir().expect("a temporary folder");
    let write = |path: &str, text: String| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("created");
        fs::write(path, text + "\n").expect("written");
    };
    let all = (1u32 << pes.len()) - 1;
    write("sys/devices/system/cpu/online", format!("0-{}", pes.len() - 1));
    write("sys/devices/system/cpu/possible", format!("0-{}", pes.len() - 1));
    write("proc/cpuinfo", (0..pes.len()).map(|pe| format!("processor\t: {pe}\n\n")).collect());
    for (index, pe) in pes.iter().enumerate() {
        let file = |name: &str| format!("sys/devices/system/cpu/cpu{index}/{name}");
        write(&file("topology/core_cpus"), format!("{:x}", 1 << index));
        write(&file("topology/package_cpus"), format!("{all:x}"));
        write(&file("topology/core_id"), index.to_string());
        write(&file("topology/physical_package_id"), "0".to_owned());
        write(&file("cache/index0/level"), "2".to_owned());
        write(&file("cache/index0/type"), "Unified".to_owned());
        write(&file("cache/index0/size"), "256K".to_owned());
        write(&file("cache/index0/shared_cpu_map"), format!("{:x}", pe.l2));
        write(&file("cpu_capacity"), pe.capacity.to_string());
        write(&file("cpufreq/cpuinfo_max_freq"), pe.max_khz.to_string());
        write(&file("regs/identification/midr_el1"), format!("0x{:016x}", pe.midr));
    }
    root
}

fn pe(midr: u64, capacity: u32, max_khz: u32, l2: u32) -> Pe {
    Pe { midr, capacity, max_khz, l2 }
}

/// Two A510 complexes of two cores, three A715, one X3.
fn phone() -> Vec<Pe> {
    let mut pes: Vec<Pe> = [3, 3, 12, 12].map(|l2| pe(A510, 300, 2_000_000, l2)).into();
    pes.extend([16, 32, 64].map(|l2| pe(A715, 800, 2_800_000, l2)));
    pes.push(pe(X3, 1024, 3_200_000, 128));
    pes
}

fn load_root(root: &Path) -> Topology {
    load(&Source::Root(root.to_owned()), None).unwrap_or_else(|error| panic!("{error}"))
}

fn kinds(topology: &Topology) -> String {
    let kinds = topology.kinds.iter().map(|kind| format!("{}={}", kind.name, kind.pes));
    kinds.collect::<Vec<_>>().join(" ")
}

fn modules(topology: &Topology) -> String {
    let modules = topology.domains(DomainKind::Module).map(|module| module.pes.to_string());
    modules.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_phone_has_three_kinds_and_its_complexes_are_modules() {
    let topology = load_root(machine(&phone()).path());
    assert_eq!(kinds(&topology), "fast=7 mid1=4-6 slow=0-3", "{:?}", topology.notes);
    assert_eq!(modules(&topology), "0-1 2-3");
    assert_eq!(topology.summary().fpu_modules, 2);
    let evidence = topology.kinds[0].evidence.join("; ");
    assert!(evidence.contains("MIDR Cortex-X3; cpu_capacity 1024; max frequency 3.2 GHz"), "{evidence}");
}

#[test]
fn contradictory_evidence_is_unknown() {
    let mut pes = phone();
    pes.iter_mut().filter(|pe| pe.midr == A510).for_each(|pe| pe.max_khz = 4_000_000);
    let topology = load_root(machine(&pes).path());
    assert_eq!(kinds(&topology), "unknown=0-7");
    assert!(topology.notes.iter().any(|note| note.contains("max frequency says")), "{:?}", topology.notes);
}

#[test]
fn a_complex_that_is_too_large_is_no_module() {
    let pes = [15, 15, 15, 15].map(|l2| pe(A510, 1024, 2_000_000, l2));
    let topology = load_root(machine(&pes).path());
    assert_eq!(modules(&topology), "");
    assert!(topology.notes.iter().any(|note| note.contains("modules are unknown")), "{:?}", topology.notes);
}

#[test]
fn favoured_cores_are_no_kinds_although_hwloc_ranks_them() {
    // As NVIDIA's GB10: ten A725 and ten X925 in two complexes. hwloc makes five kinds of these capacities.
    let of_complex = |first: usize| {
        (first..first + 10).map(move |index| match index - first {
            0..5 => pe(A725, 718, 2_808_000, 1 << index),
            5 => pe(X925, 1024, 4_004_000, 1 << index),
            6 => pe(X925, 1017, 3_978_000, 1 << index),
            7 => pe(X925, 1007, 3_939_000, 1 << index),
            _ => pe(X925, 997, 3_900_000, 1 << index),
        })
    };
    let topology = load_root(machine(&of_complex(0).chain(of_complex(10)).collect::<Vec<_>>()).path());
    assert_eq!(kinds(&topology), "fast=5-9,15-19 slow=0-4,10-14");
    let evidence = topology.kinds[0].evidence.join("; ");
    assert_eq!(evidence, "MIDR Cortex-X925; cpu_capacity 997 to 1024; max frequency 3.9 GHz to 4.0 GHz");
}

/// The XML of a machine with a core a PE, and kinds: their PEs as a mask, and what describes them.
fn xml(pes: u32, kinds: &[(u32, &str)]) -> String {
    let object = |kind: &str, index: u32, mask: u32, inner: String| {
        format!(
            "<object type=\"{kind}\" os_index=\"{index}\" cpuset=\"{mask:#x}\" complete_cpuset=\"{mask:#x}\" \
             allowed_cpuset=\"{mask:#x}\" nodeset=\"0x1\" complete_nodeset=\"0x1\" allowed_nodeset=\"0x1\">\
             {inner}</object>\n"
        )
    };
    let all = (1 << pes) - 1;
    let core = |pe| object("Core", pe, 1 << pe, object("PU", pe, 1 << pe, String::new()));
    let cores: String = (0..pes).map(core).collect();
    let node = object("NUMANode", 0, all, String::new());
    let kind = |(index, (mask, info)): (usize, &(u32, &str))| {
        format!("<cpukind cpuset=\"{mask:#x}\" forced_efficiency=\"{index}\">{info}</cpukind>\n")
    };
    let kinds: String = kinds.iter().enumerate().map(kind).collect();
    let tree = object("Machine", 0, all, object("Package", 0, all, node + &cores));
    format!("<?xml version=\"1.0\"?>\n<topology version=\"2.0\">\n{tree}{kinds}</topology>\n")
}

fn kinds_of_xml(pes: u32, kinds_: &[(u32, &str)]) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("machine.xml");
    fs::write(&path, xml(pes, kinds_)).expect("written");
    kinds(&load(&Source::Xml(path), None).unwrap_or_else(|error| panic!("{error}")))
}

#[test]
fn low_power_cores_are_the_slowest_of_three_kinds() {
    let core_type = |name: &str| format!("<info name=\"CoreType\" value=\"{name}\"/>");
    let [low, atom, core] = ["IntelLowPower", "IntelAtom", "IntelCore"].map(core_type);
    // hwloc's order is not trusted where the types are known.
    for order in [[(0xc0, &low), (0x3c, &atom), (0x03, &core)], [(0x03, &core), (0xc0, &low), (0x3c, &atom)]]
    {
        let found = kinds_of_xml(8, &order.map(|(mask, info)| (mask, info.as_str())));
        assert_eq!(found, "fast=0-1 mid1=2-5 slow=6-7");
    }
}

#[test]
fn the_rank_of_hwloc_counts_where_nothing_else_is_known() {
    assert_eq!(kinds_of_xml(4, &[(0x3, ""), (0xc, "")]), "fast=2-3 slow=0-1");
}

#[test]
fn clusters_of_cores_are_kept() {
    let root = machine(&(0..8).map(|index| pe(A715, 1024, 2_600_000, 1 << index)).collect::<Vec<_>>());
    for index in 0..8 {
        let topology = root.path().join(format!("sys/devices/system/cpu/cpu{index}/topology"));
        let cluster = if index < 4 { 0x0f } else { 0xf0 };
        fs::write(topology.join("cluster_cpus"), format!("{cluster:x}\n")).expect("written");
        fs::write(topology.join("cluster_id"), format!("{}\n", index / 4)).expect("written");
    }
    let topology = load_root(root.path());
    let clusters: Vec<_> = topology.domains(DomainKind::Cluster).map(|c| c.pes.to_string()).collect();
    assert_eq!(clusters, ["0-3", "4-7"]);
    assert_eq!(topology.closest_shared(PeId(0), PeId(3)), Some(DomainKind::Cluster));
    assert_eq!(topology.locate("cluster:1").unwrap().to_string(), "4-7");
    assert!(topology.draw().contains("2 × cluster   0-3 | 4-7"), "{}", topology.draw());
    assert!(topology.summary().to_string().contains("clusters 2"), "{}", topology.summary());
}

#[test]
fn a_memory_node_that_is_forbidden_is_marked() {
    let root = machine(&(0..4).map(|index| pe(A715, 1024, 2_600_000, 1 << index)).collect::<Vec<_>>());
    let nodes = root.path().join("sys/devices/system/node");
    for (node, pes) in [(0, "3"), (1, "c")] {
        let node = nodes.join(format!("node{node}"));
        fs::create_dir_all(&node).expect("created");
        fs::write(node.join("cpumap"), format!("{pes}\n")).expect("written");
        fs::write(node.join("meminfo"), "Node 0 MemTotal:  1048576 kB\n").expect("written");
    }
    fs::write(nodes.join("online"), "0-1\n").expect("written");
    fs::create_dir_all(root.path().join("proc/self")).expect("created");
    let status = "Cpus_allowed_list:\t0-3\nMems_allowed_list:\t1\n";
    fs::write(root.path().join("proc/self/status"), status).expect("written");
    let topology = load_root(root.path());
    let forbidden: Vec<_> = topology.domains(DomainKind::NumaNode).map(|node| node.forbidden).collect();
    assert_eq!(forbidden, [true, false]);
    assert!(topology.draw().contains("NUMA node 1 GiB (FORBIDDEN)   0-1"), "{}", topology.draw());
    assert_eq!(topology.allowed.to_string(), "0-3", "its PEs may be used");
}

/// Loads the phone with an override file.
fn overridden(toml: &str) -> Result<Topology, String> {
    let root = machine(&phone());
    let file = root.path().join("modules.toml");
    fs::write(&file, toml).expect("written");
    load(&Source::Root(root.path().to_owned()), Some(&file)).map_err(|error| error.to_string())
}

#[test]
fn an_override_file_decides() {
    for (toml, expected) in [
        ("[[machine]]\nfpu_modules = [\"4-5\", \"core:6@7\"]", "4-5 6-7"),
        ("[[machine]]\nfpu_modules = []", ""),
        ("[[machine]]\nfpu_shared_by = \"package\"", "0-7"),
        ("[[machine]]\nmodel = \"Nonesuch\"\nfpu_modules = []", "0-1 2-3"),
        ("[[machine]]\nmodel = \"Nonesuch\"\nfpu_modules = []\n[[machine]]\nfpu_modules = [\"4-5\"]", "4-5"),
    ] {
        assert_eq!(overridden(toml).map(|topology| modules(&topology)), Ok(expected.to_owned()), "{toml}");
    }
    for (toml, problem) in [
        ("[[machine]]\nfpu_modules = [\"0-99\"]", "0-99"),
        ("[[machine]]\nfpu_modules = [\"0-1\", \"1-2\"]", "overlap"),
        ("[[machine]]\nfpu_shared_by = \"bus\"", "bus"),
        ("[[machine]]\n", "either"),
        ("[[machine]]\nmodule = []", "module"),
        ("machine", "modules.toml"),
    ] {
        let error = overridden(toml).expect_err(toml);
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn a_recorded_affinity_narrows_what_is_allowed() {
    let root = machine(&phone());
    fs::create_dir_all(root.path().join("proc/self")).expect("created");
    fs::write(root.path().join("proc/self/status"), "Cpus_allowed_list:\t2-4\n").expect("written");
    assert_eq!(load_root(root.path()).allowed.to_string(), "2-4");
}

#[test]
fn this_machine_and_its_recording_are_the_same() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("machine.tar.gz");
    fs::write(&file, record().expect("recorded")).expect("written");
    let comparable = |mut topology: Topology| {
        topology.origin.clear();
        // A virtual machine's memory may grow between the two.
        topology.domains.iter_mut().filter(|d| d.kind == DomainKind::NumaNode).for_each(|d| d.bytes = None);
        topology
    };
    let live = load(&Source::Live, None).expect("this machine");
    assert_eq!(comparable(load_root(&file)), comparable(live));
}

#[test]
fn a_recording_may_be_compressed_by_bzip2() {
    let gzipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines/8em64t-2s2ca2c.tar.gz");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bzipped = folder.path().join("machine.tar.bz2");
    let mut archive = flate2::read::GzDecoder::new(fs::File::open(&gzipped).expect("opened"));
    let compression = bzip2::Compression::default();
    let mut file = bzip2::write::BzEncoder::new(fs::File::create(&bzipped).expect("created"), compression);
    std::io::copy(&mut archive, &mut file).expect("copied");
    file.finish().expect("written");
    assert_eq!(load_root(&bzipped).domains, load_root(&gzipped).domains);
    assert_eq!(Source::of(&bzipped), Source::Root(bzipped));
}

#[test]
fn a_damaged_hierarchy_does_not_abort() {
    let machine = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/machines/AMD-K8-SantaRosa-2xOpteron-2218.xml");
    let text = fs::read_to_string(machine).expect("read");
    let (sound, damaged) = ("type=\"Package\" os_index=\"0\" cpuset=\"0x00000003\"", "cpuset=\"0x00000001\"");
    assert!(text.contains(sound));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("damaged.xml");
    let damaged = format!("type=\"Package\" os_index=\"0\" {damaged}");
    fs::write(&path, text.replace(sound, &damaged)).expect("written");
    if let Ok(topology) = load(&Source::Xml(path), None) {
        assert_eq!(topology.check(), Ok(()));
    }
}

#[test]
fn a_file_that_libhwloc_crashes_over_is_refused() {
    let machine = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/machines/AMD-K8-SantaRosa-2xOpteron-2218.xml");
    let text = fs::read_to_string(machine).expect("read");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("crash.xml");
    fs::write(&path, text.replace("complete_cpuset", "incomplete_cpuset")).expect("written");
    let error = load(&Source::Xml(path.clone()), None).expect_err("no machine").to_string();
    assert!(error.contains(path.to_str().expect("UTF-8")) && error.contains("libhwloc"), "{error}");
}

/// An archive with `sys/devices`, a link and a file of zeroes.
fn archive(path: &Path, link: &str, zeroes: u64) {
    let packer = flate2::write::GzEncoder::new(fs::File::create(path).unwrap(), flate2::Compression::fast());
    let mut archive = tar::Builder::new(packer);
    let header = |kind, size| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(0o755);
        header
    };
    let mut folder = header(tar::EntryType::Directory, 0);
    archive.append_data(&mut folder, "sys/devices/system/cpu", io::empty()).unwrap();
    let mut to = header(tar::EntryType::Symlink, 0);
    archive.append_link(&mut to, "sys/devices/system/cpu/online", link).unwrap();
    let mut file = header(tar::EntryType::Regular, zeroes);
    archive.append_data(&mut file, "proc/cpuinfo", io::repeat(0).take(zeroes)).unwrap();
    archive.into_inner().unwrap().finish().unwrap();
}

#[test]
fn an_archive_is_neither_a_bomb_nor_a_way_out() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("machine.tar.gz");
    archive(&path, "possible", 65 << 20);
    let error = load(&Source::Root(path.clone()), None).expect_err("too large").to_string();
    assert!(error.contains("more than 64 MiB") && error.contains("COREWISE_INPUT_MAX_MIB"), "{error}");
    // A link to something endless, which is not read: whether there is a machine without it is libhwloc's.
    archive(&path, "/dev/zero", 1);
    let _ = load(&Source::Root(path), None);
}

#[test]
fn what_is_no_machine_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("written");
        path
    };
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).expect("created");
    for source in [
        Source::Xml(folder.path().join("missing.xml")),
        Source::Xml(file("words.xml", "hello")),
        Source::Xml(file(
            "cut.xml",
            "<?xml version=\"1.0\"?>\n<topology version=\"2.0\">\n  <object type=\"Mach",
        )),
        Source::Xml(file("bare.xml", "<?xml version=\"1.0\"?>\n<topology version=\"2.0\">\n</topology>\n")),
        Source::Xml(empty.clone()),
        Source::Root(folder.path().join("missing")),
        Source::Root(file("words.tar.gz", "hello")),
        Source::Root(empty),
    ] {
        let (Source::Xml(path) | Source::Root(path)) = &source else { unreachable!("no live source here") };
        let error = load(&source, None).expect_err("no machine").to_string();
        assert!(error.contains(path.to_str().expect("UTF-8")), "{error}");
    }
}
