//! The digest of the lab's sources that build.rs hands over.

#[expect(dead_code, reason = "its `main` is the build's")]
#[path = "../../build.rs"]
mod build;

use std::{fs, path::Path};

/// Writes a project of one file a room, and these files.
fn project(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("Cargo.lock", "version = 4\n");
    build::ROOMS.iter().for_each(|room| write(&format!("src/{room}/mod.rs"), "fn f() {}\n"));
    files.iter().for_each(|(path, text)| write(path, text));
    folder
}

fn digest(files: &[(&str, &str)]) -> String {
    build::digest(project(files).path()).unwrap()
}

#[test]
fn the_digest_changes_with_what_decides_a_run_and_with_nothing_else() {
    let plain = digest(&[]);
    for (path, text) in [
        ("src/policy/mod.rs", "fn f() {}\r\n"),
        ("src/policy/tests.rs", "x"),
        ("src/router/tests/deep.rs", "x"),
        ("src/lab/fleet/tests/deep.rs", "x"),
        ("src/lab/figures/mod.rs", "x"),
        ("src/lab/tune/mod.rs", "x"),
        ("src/lab/whatif/mod.rs", "x"),
        ("src/lab/README.md", "x"),
        ("src/cli/mod.rs", "x"),
        ("src/lib.rs", "x"),
    ] {
        assert_eq!(digest(&[(path, text)]), plain, "{path}");
    }
    for (path, text) in [
        ("src/policy/mod.rs", "fn f() { }\n"),
        ("src/policy/mod.rs", "fn f() {}\n\n"),
        ("src/policy/mod.rs", "fn f() {}\r\r\n"),
        ("src/lab/fleet/play.rs", ""),
        ("src/router/tests_of.rs", ""),
        ("Cargo.lock", "version = 3\n"),
    ] {
        assert_ne!(digest(&[(path, text)]), plain, "{path}");
    }
    assert_ne!(digest(&[("src/lab/a.rs", "x")]), digest(&[("src/lab/b.rs", "x")]));
    assert_eq!((plain.len(), digest(&[])), (16, plain));
}

#[test]
fn a_build_knows_its_own_sources() {
    let here = build::digest(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
    assert_eq!(here, env!("BEAR_LAB_SOURCES"));
}

#[test]
fn a_missing_room_is_named() {
    let project = project(&[]);
    fs::remove_dir_all(project.path().join("src/truth")).unwrap();
    let error = build::digest(project.path()).unwrap_err().to_string();
    assert!(error.contains("src/truth"), "{error}");
}
