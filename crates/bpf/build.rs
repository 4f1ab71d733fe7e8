//! Compiles the BPF programs with clang; the library embeds the resulting object files.

use libbpf_cargo::SkeletonBuilder;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-env-changed=CLANG");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    // Comparing and swapping is of version 3 of the instruction set (Linux 5.12).
    for (name, version) in [
        ("discovery", "-mcpu=v3"),
        ("asks", "-mcpu=v3"),
        ("preemption", "-mcpu=v1"),
        ("neighbours", "-mcpu=v3"),
    ] {
        let built = SkeletonBuilder::new()
            .source(format!("src/{name}.bpf.c"))
            .obj(out.join(format!("{name}.bpf.o")))
            .clang(clang())
            .clang_args(["-Wall", "-Werror", version])
            .build();
        if let Err(error) = built {
            println!(
                "cargo::error=BPF programs need clang (package clang-19, or name another in $CLANG): \
                 {error:#}"
            );
        }
    }
}

/// The compiler that `$CLANG` names, else clang-19, else whatever is called `clang`.
fn clang() -> String {
    if let Ok(named) = std::env::var("CLANG") {
        return named;
    }
    let works = |name: &str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    ["clang-19", "clang"].into_iter().find(|name| works(name)).unwrap_or("clang").to_owned()
}
