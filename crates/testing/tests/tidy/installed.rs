//! What is installed of the documents: a part of them, in which no link may be dead.

use super::Tree;
use super::documents::relative_links_lead_somewhere;
use corewise_testing::needs;
use std::path::Path;
use std::process::Command;

/// Every file below a directory, by its path from there.
fn files(root: &Path, folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(root, &path, found);
        } else {
            let text = String::from_utf8(std::fs::read(&path).unwrap()).unwrap_or_default();
            found.push((path.strip_prefix(root).unwrap().to_str().unwrap().to_owned(), text));
        }
    }
}

#[test]
fn no_link_of_an_installed_page_is_dead() {
    needs!(Python);
    let directory = tempfile::tempdir().unwrap();
    let pages = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/pages");
    let output = Command::new(pages).arg(directory.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut found = Vec::new();
    files(directory.path(), directory.path(), &mut found);
    let tree = Tree(found.into_iter().collect());
    for page in ["README.md", "SECURITY.md", "python/README.md", "docs/tutorial.md", "contrib/rules.toml"] {
        assert!(tree.contains(page), "{page} is not installed");
    }
    let findings = relative_links_lead_somewhere(&tree);
    assert!(findings.is_empty(), "{} dead links:\n{}", findings.len(), findings.join("\n"));
}
