//! Lists the files of `experiments/`, so that an installed command has them in it.

use std::fmt::Write;
use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    let variable = |name| PathBuf::from(std::env::var_os(name).expect("cargo sets it"));
    let root = variable("CARGO_MANIFEST_DIR").join("../../experiments").canonicalize()?;
    println!("cargo:rerun-if-changed={}", root.display());
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    files.sort();
    let mut list = String::from("&[\n");
    for file in &files {
        let name = file.strip_prefix(&root).expect("a file of the folder");
        writeln!(list, "({:?}, include_str!({file:?})),", name.display().to_string())
            .expect("a string takes all");
    }
    std::fs::write(variable("OUT_DIR").join("experiments.rs"), list + "]\n")
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    Ok(())
}
