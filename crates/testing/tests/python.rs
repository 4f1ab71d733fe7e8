//! The tests of the Python package, with those of everything else.

use corewise_testing::needs;
use std::path::Path;
use std::process::Command;

#[test]
fn the_python_package_passes_its_tests() {
    needs!(Python);
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let mut tests = Command::new("python3");
    tests.args(["-B", "-m", "unittest", "discover", "-s", "tests"]).current_dir(package);
    let output = tests.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
