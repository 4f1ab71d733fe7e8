//! Compiles the QEMU plugin with the C compiler; the library embeds the resulting object file.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    const SOURCE: &str = "src/plugin.c";
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=CC");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let status = Command::new(&compiler)
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden"])
        // The plugin's thread variable is read for every executed block: its address must not need a call.
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
