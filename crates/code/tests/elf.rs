//! ELF files that the machine's own compiler makes.

use corewise_code::Flow;
use corewise_code::elf::{ElfError, ElfFile, ElfProgram};
use corewise_paths::program::Program;
use corewise_paths::window::{Location, Module, ModuleId};
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = "
    #ifdef LIBRARY
    __attribute__((visibility(\"hidden\"))) int twice(int n);
    #endif
    __attribute__((noinline)) int twice(int n) { return n + n; }
    __attribute__((noinline)) int apply(int (*f)(int), int n) { return f(n) + 1; }
    int main(int argc, char **argv) { return apply(twice, argc); }
";

/// Compiles the source with more arguments to the compiler.
fn compiled(directory: &Path, name: &str, arguments: &[&str]) -> PathBuf {
    let source = directory.join("source.c");
    std::fs::write(&source, SOURCE).unwrap();
    let program = directory.join(name);
    let base = ["-O1", "-Wl,--build-id", "-o"];
    let status = Command::new("cc").args(base).arg(&program).arg(&source).args(arguments).status();
    assert!(status.expect("the C compiler runs").success());
    program
}

fn module(path: &Path) -> Module {
    let build_id = ElfFile::open(path).unwrap().build_id().map(str::to_owned);
    Module { path: path.to_str().unwrap().to_owned(), build_id }
}

#[test]
fn functions_have_names_bounds_and_code() {
    let directory = tempfile::tempdir().unwrap();
    for arguments in [&["-pie", "-fPIE"][..], &["-no-pie"]] {
        let path = compiled(directory.path(), "named", arguments);
        let functions = ElfFile::open(&path).unwrap().functions().unwrap();
        assert!(functions.is_sorted_by(|a, b| a.start < a.end && a.end <= b.start), "{functions:x?}");
        let program = ElfProgram::open(&[module(&path)]).unwrap();
        for name in ["twice", "apply", "main", "_start", "_init"] {
            let function = functions.iter().find(|function| function.name.as_deref() == Some(name));
            let function = function.unwrap_or_else(|| panic!("{name} in {functions:x?}"));
            let at = |address| Location { module: ModuleId(0), address };
            assert_eq!(program.function(at(function.start)), Some(function));
            assert_eq!(program.function(at(function.end - 1)), Some(function));
            if ["twice", "apply"].contains(&name) {
                let mut address = function.start;
                let mut flows = vec![];
                while address < function.end {
                    let instruction = program.instruction(at(address)).expect("it decodes");
                    flows.push(instruction.flow);
                    address += u64::from(instruction.length);
                }
                assert_eq!(address, function.end);
                assert_eq!(flows.last(), Some(&Flow::Return));
                assert_eq!(flows.contains(&Flow::CallAnywhere), name == "apply");
            }
        }
    }
}

#[test]
fn a_stripped_program_has_unnamed_functions_by_its_unwind_table() {
    let directory = tempfile::tempdir().unwrap();
    let named = ElfFile::open(&compiled(directory.path(), "named", &[])).unwrap().functions().unwrap();
    let stripped = ElfFile::open(&compiled(directory.path(), "stripped", &["-s"])).unwrap();
    let stripped = stripped.functions().unwrap();
    for function in named.iter().filter(|f| ["twice", "apply", "main"].map(Some).contains(&f.name.as_deref()))
    {
        let bounds = (function.start, function.end);
        let found = stripped.iter().find(|f| (f.start, f.end) == bounds);
        assert_eq!(found.unwrap_or_else(|| panic!("{function:x?} in {stripped:x?}")).name, None);
    }
}

#[test]
fn a_library_defines_what_it_exports_and_a_program_all_that_has_a_name() {
    let directory = tempfile::tempdir().unwrap();
    let defines = |name, arguments: &[&str]| {
        let elf = ElfFile::open(&compiled(directory.path(), name, arguments)).unwrap();
        let [main, missing, twice] = elf.symbols(["main", "missing", "twice"]);
        assert_eq!((main, twice, missing), (elf.symbol("main"), elf.symbol("twice"), None), "{name}");
        (main.is_some(), twice.is_some())
    };
    let all = (true, true);
    assert_eq!(defines("pie", &["-pie", "-fPIE"]), all);
    assert_eq!(defines("fixed", &["-no-pie"]), all);
    assert_eq!(defines("static", &["-static"]), all);
    assert_eq!(defines("static-pie", &["-static-pie", "-fPIE"]), all);
    // With the hash table that old linkers write.
    assert_eq!(defines("old", &["-shared", "-fPIC", "-Wl,--hash-style=sysv"]), all);
    // A library may say where it begins, and is nevertheless no program.
    assert_eq!(defines("library", &["-shared", "-fPIC", "-Wl,-e,main", "-DLIBRARY"]), (true, false));
}

#[test]
fn addresses_and_offsets_are_distinguished() {
    let directory = tempfile::tempdir().unwrap();
    let elf = ElfFile::open(&compiled(directory.path(), "fixed", &["-no-pie"])).unwrap();
    let main = elf.functions().unwrap().into_iter().find(|f| f.name.as_deref() == Some("main")).unwrap();
    let offset = elf.segments().offset(main.start).unwrap();
    assert_ne!(offset, main.start, "linked at a fixed address");
    assert_eq!(elf.segments().address(offset), Some(main.start));
    assert_eq!(elf.segments().offset(0), None);
}

#[test]
fn a_changed_file_is_refused_and_a_missing_one_has_no_code() {
    let directory = tempfile::tempdir().unwrap();
    let path = compiled(directory.path(), "program", &[]);
    let recorded = module(&path);
    compiled(directory.path(), "program", &["-O3", "-DOTHER", "-g"]);
    let Err(changed @ ElfError::Changed { .. }) =
        ElfProgram::open(std::slice::from_ref(&recorded)).map(|_| ())
    else {
        panic!("another build id")
    };
    let text = changed.to_string();
    for needed in [&recorded.path, recorded.build_id.as_ref().unwrap(), "record again"] {
        assert!(text.contains(needed), "{text}");
    }
    std::fs::remove_file(&path).unwrap();
    let program = ElfProgram::open(&[recorded]).unwrap();
    assert!(matches!(program.unreadable(), [ElfError::Read { .. }]));
    assert_eq!(program.instruction(Location { module: ModuleId(0), address: 0x1000 }), None);
}

#[test]
fn a_pipe_under_a_files_name_delays_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("libc.so.6");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let recorded = Module { path: path.to_str().unwrap().to_owned(), build_id: None };
    let program = ElfProgram::open(&[recorded]).unwrap();
    assert!(matches!(program.unreadable(), [ElfError::Read { .. }]), "{:?}", program.unreadable());
}

#[test]
fn a_file_that_is_no_elf_file_is_refused_by_name() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "#!/bin/sh\n").unwrap();
    let error = ElfFile::open(file.path()).map(|_| ()).unwrap_err();
    assert!(matches!(error, ElfError::Malformed { .. }), "{error}");
    assert!(error.to_string().contains(file.path().to_str().unwrap()));
}

/// Writes a header of an ELF file that says where its headers of sections lie, and how
/// many they are. In the sparse file they exist.
fn with_many_sections(directory: &Path, count: u64) -> PathBuf {
    let path = directory.join("sparse");
    let mut bytes = vec![0; 128];
    bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    for (at, value) in [(16, 3), (18, 62), (20, 1), (40, 64), (52, 64), (58, 64)] {
        bytes[at] = value;
    }
    // The size of the first section is their number, as the header leaves it out.
    bytes[96..104].copy_from_slice(&count.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(64 * (count + 1)).unwrap();
    path
}

#[test]
fn the_headers_of_a_million_sections_are_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = with_many_sections(directory.path(), 14_700_000);
    let many = ElfFile::of(&path, std::fs::File::open(&path).unwrap()).unwrap();
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap()
    };
    let before = peak();
    assert_eq!((many.section(".text", 8), many.symbols(["main"]), many.imports()), (None, [None], vec![]));
    assert!(many.functions().is_err());
    assert!(peak() - before < 100 << 10, "{} KiB more", peak() - before);
}
