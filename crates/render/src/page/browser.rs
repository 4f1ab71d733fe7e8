//! Pages in a real browser. Chromium is installed by `./dev test`.

use std::path::Path;
use std::process::{Command, Output};

/// Returns the DOM of the page in a browser. Fails if the browser's console reports anything.
pub fn dom(page: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("page.html");
    std::fs::write(&file, page).unwrap();
    let output = chromium(directory.path(), &["--dump-dom"], &file);
    String::from_utf8(output.stdout).unwrap()
}

/// Returns a screenshot of the page: a PNG file.
pub fn screenshot(page: &str) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let (file, picture) = (directory.path().join("page.html"), directory.path().join("page.png"));
    std::fs::write(&file, page).unwrap();
    let screenshot = format!("--screenshot={}", picture.display());
    chromium(directory.path(), &[&screenshot, "--window-size=1240,1500"], &file);
    std::fs::read(&picture).unwrap()
}

/// Fails if the page refers to anything outside of itself.
pub fn check_self_contained(page: &str) {
    let page = page.replace("url(#", "");
    for reference in
        ["http:", "https:", "src=", "url(", "@import", "<link", "<script", "href=\"/", "href=\"h"]
    {
        assert!(!page.contains(reference), "{reference}");
    }
}

fn chromium(directory: &Path, options: &[&str], page: &Path) -> Output {
    let output = Command::new("timeout")
        .args([
            "--kill-after=5",
            "60",
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
        ])
        .args(["--no-first-run", "--disable-background-networking", "--disable-component-update"])
        .args(["--disable-sync", "--enable-logging=stderr"])
        .arg(format!("--user-data-dir={}", directory.join("user").display()))
        .args(options)
        .arg(page)
        .output()
        .expect("`timeout` runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "chromium (./dev test installs it) ended with {}: {said}",
        output.status
    );
    assert!(!said.contains(":CONSOLE"), "the browser's console says: {said}");
    output
}
