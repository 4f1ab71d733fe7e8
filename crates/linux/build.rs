//! Compiles the BPF programs of `src/bpf/` with clang and the QEMU plugin of `src/truth/` with the C
//! compiler; the library embeds the resulting object files.

use libbpf_cargo::SkeletonBuilder;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src/bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    // Comparing and swapping is of version 3 of the instruction set (Linux 5.12).
    for (name, version) in [("discovery", "-mcpu=v3"), ("preemption", "-mcpu=v1")] {
        let built = SkeletonBuilder::new()
            .source(format!("src/bpf/{name}.bpf.c"))
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
    compile_plugin(&out);
}

fn compile_plugin(out: &Path) {
    const SOURCE: &str = "src/truth/plugin.c";
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=CC");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let status = Command::new(&compiler)
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden"])
        // The plugin's variable of the thread is read for every executed block: no call for its address.
        .args(["-ftls-model=initial-exec", "-pthread", "-o"])
        .arg(out.join("truth_plugin.so"))
        .arg(SOURCE)
        .status();
    if !status.is_ok_and(|status| status.success()) {
        println!(
            "cargo::error={SOURCE} needs a C compiler (package gcc, or name another in $CC): {compiler}"
        );
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
