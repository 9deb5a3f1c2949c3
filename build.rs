//! Builds again when a migration changes: the store embeds them, and cargo does not see that by itself. Hands over
//! a digest of the sources that decide what runs of the lab measure, so that no result outlives its code.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The rooms that decide what a run measures.
pub(crate) const ROOMS: &[&str] = &[
    "affinity",
    "calibrate",
    "domain",
    "engine",
    "lab",
    "latency",
    "policy",
    "pool",
    "predict",
    "router",
    "truth",
];

/// Parts of them that read runs or choose which to play.
const READERS: &[&str] = &["src/lab/figures", "src/lab/tune", "src/lab/whatif"];

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=migrations");
    println!("cargo:rerun-if-changed=Cargo.lock");
    for room in ROOMS {
        println!("cargo:rerun-if-changed=src/{room}");
    }
    println!("cargo:rustc-env=BEAR_LAB_SOURCES={}", digest(Path::new("."))?);
    Ok(())
}

/// Digests the sources below the project's folder, in sixteen hexadecimal digits: every file's path and text in the
/// order of their paths, whatever the ends of their lines.
///
/// # Errors
/// A file or folder cannot be read.
pub(crate) fn digest(project: &Path) -> io::Result<String> {
    let mut files = vec![String::from("Cargo.lock")];
    for room in ROOMS {
        list(project, &format!("src/{room}"), &mut files)?;
    }
    files.sort();
    let mut state = FNV_START;
    for file in &files {
        let path = project.join(file);
        let text = fs::read(&path).map_err(|source| told(&path, &source))?;
        // No path and no source holds a zero byte: they tell where one text ends.
        state = add(add(state, file.bytes()), [0]);
        let unix =
            text.iter().enumerate().filter(|(i, byte)| **byte != b'\r' || text.get(i + 1) != Some(&b'\n'));
        state = add(add(state, unix.map(|(_, byte)| *byte)), [0]);
    }
    Ok(format!("{state:016x}"))
}

/// Lists the Rust files in a folder and below it but for tests, their paths written with `/`.
fn list(project: &Path, folder: &str, files: &mut Vec<String>) -> io::Result<()> {
    let path: PathBuf = project.join(folder);
    for entry in fs::read_dir(&path).map_err(|source| told(&path, &source))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let inner = format!("{folder}/{name}");
        if name == "tests" || name == "tests.rs" || READERS.contains(&inner.as_str()) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            list(project, &inner, files)?;
        } else if name.ends_with(".rs") {
            files.push(inner);
        }
    }
    Ok(())
}

fn told(path: &Path, source: &io::Error) -> io::Error {
    io::Error::new(source.kind(), format!("cannot read {}: {source}", path.display()))
}

/// FNV-1a of 64 bits: its offset basis and its prime.
const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

fn add(state: u64, bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(state, |state, byte| (state ^ u64::from(byte)).wrapping_mul(FNV_PRIME))
}
