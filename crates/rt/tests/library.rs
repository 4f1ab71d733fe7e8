//! The library as C programs get it: its header, its description for pkg-config, and programs that link it.

use corewise_testing::needs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A place where the library is installed.
fn installed() -> TempDir {
    // Cargo puts the library into the directory of this program.
    let built = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let prefix = tempfile::tempdir().unwrap();
    run(Command::new(here().join("install")).arg(built).arg(prefix.path()));
    prefix
}

#[track_caller]
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// How a program is linked, by pkg-config's words.
fn flags(prefix: &Path, options: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args(options).arg("corewise");
    let output = run(&mut command);
    String::from_utf8(output.stdout).unwrap().split_whitespace().map(str::to_owned).collect()
}

fn example() -> PathBuf {
    here().join("../../examples/hints")
}

#[test]
fn the_header_is_that_of_the_code() {
    let config = cbindgen::Config::from_file(here().join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new().with_config(config).with_src(here().join("src/c.rs")).generate();
    let mut header = Vec::new();
    bindings.unwrap().write(&mut header);
    let file = here().join("include/corewise.h");
    if std::env::var_os("COREWISE_UPDATE_HEADER").is_some() {
        std::fs::write(&file, &header).unwrap();
    }
    let checked_in = std::fs::read_to_string(file).unwrap_or_default();
    let expected = String::from_utf8(header).unwrap();
    assert_eq!(checked_in, expected, "COREWISE_UPDATE_HEADER=1 cargo test -p corewise-rt writes it");
}

#[test]
fn the_description_has_the_version_of_the_crate() {
    let description = std::fs::read_to_string(here().join("corewise.pc")).unwrap();
    let line = format!("Version: {}", env!("CARGO_PKG_VERSION"));
    assert!(description.lines().any(|known| known == line), "{description}");
}

#[test]
fn a_c_program_links_it_either_way_and_runs_with_nobody_there() {
    let prefix = installed();
    let program = prefix.path().join("wait");
    let library = prefix.path().join("lib");
    for (options, archive) in [(&["--cflags", "--libs"][..], None), (&["--cflags"], Some("libcorewise.a"))] {
        let mut command = Command::new("cc");
        command
            .args(["-O2", "-Wall", "-Werror"])
            .arg(example().join("wait.c"))
            .args(archive.map(|a| library.join(a)));
        command.args(flags(prefix.path(), options)).args(["-lpthread", "-ldl", "-lm", "-o"]).arg(&program);
        run(&mut command);
        // A file without symbols still tells where the memory is.
        run(Command::new("strip").arg(&program));
        let output = run(Command::new(&program).arg("20").env("LD_LIBRARY_PATH", &library));
        assert_eq!(output.stdout, b"20 rounds\n", "{archive:?}");
        let noted = if archive.is_some() { program.clone() } else { library.join("libcorewise.so") };
        let notes = run(Command::new("readelf").arg("-n").arg(noted));
        assert!(String::from_utf8_lossy(&notes.stdout).contains(".note.corewise"), "{archive:?}");
    }
}

#[test]
fn the_examples_for_cmake_and_meson_build_and_run() {
    needs!(Cmake);
    let prefix = installed();
    let environment = ("PKG_CONFIG_PATH", prefix.path().join("lib/pkgconfig"));
    let build = prefix.path().join("build");
    let set = |command: &mut Command| {
        command.env(environment.0, &environment.1).env("LD_LIBRARY_PATH", prefix.path().join("lib"));
        run(command)
    };
    set(Command::new("cmake").arg("-S").arg(example()).arg("-B").arg(build.join("cmake")));
    set(Command::new("cmake").arg("--build").arg(build.join("cmake")));
    assert_eq!(set(Command::new(build.join("cmake/wait")).arg("5")).stdout, b"5 rounds\n");
    needs!(Meson);
    set(Command::new("meson").arg("setup").arg(build.join("meson")).arg(example()));
    set(Command::new("meson").arg("compile").arg("-C").arg(build.join("meson")));
    assert_eq!(set(Command::new(build.join("meson/wait")).arg("5")).stdout, b"5 rounds\n");
}
