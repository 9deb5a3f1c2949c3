//! Holds the floors: a room uses rooms on lower floors only, and a pure room touches nothing ambient.
//!
//! The sources are read as tokens, so comments and strings never count and a path is found however
//! it is written: `use` groups, full paths in code, `super` chains, macro arguments.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A room: its name, its floor and whether it is pure. Must agree with ARCHITECTURE.md.
const ROOMS: &[(&str, u8, bool)] = &[
    ("domain", 0, true),
    ("telemetry", 1, false),
    ("engine", 1, true),
    ("wire", 1, true),
    ("latency", 2, true),
    ("predict", 2, true),
    ("affinity", 3, true),
    ("calibrate", 3, true),
    ("policy", 4, true),
    ("truth", 4, true),
    ("pool", 5, true),
    ("router", 6, true),
    ("lab", 7, true),
    ("draw", 7, false),
    ("snapshots", 7, false),
    ("store", 7, false),
    ("gateway", 8, false),
    ("simengine", 8, false),
    ("config", 9, false),
    ("cli", 10, false),
];

/// What a pure room may not name: IO, clocks, ambient randomness, threads, async run-times, logging.
/// `std::io` as a whole is out; `std::time::Duration` is in.
const IMPURE_PATHS: &[&[&str]] = &[
    &["std", "fs"],
    &["std", "net"],
    &["std", "io"],
    &["std", "env"],
    &["std", "process"],
    &["std", "thread"],
    &["std", "time", "Instant"],
    &["std", "time", "SystemTime"],
    &["std", "time", "UNIX_EPOCH"],
    &["rand", "rng"],
    &["rand", "random"],
    &["rand", "random_bool"],
    &["rand", "random_iter"],
    &["rand", "random_range"],
    &["rand", "random_ratio"],
    &["rand", "fill"],
];

/// The dependencies a pure room may name; every other one in Cargo.toml is out.
const PURE_CRATES: &[&str] = &[
    "arc_swap",
    "bytes",
    "http",
    "insta",
    "nalgebra",
    "ndarray",
    "proptest",
    "rand",
    "rand_chacha",
    "rand_distr",
    "schemars",
    "serde",
    "serde_json",
    "serde_path_to_error",
    "serde_saphyr",
    "sha2",
    "thiserror",
    "tokenizers",
];

/// Names that are impure wherever they stand.
const IMPURE_NAMES: &[&str] = &[
    "async",
    "await",
    "println",
    "eprintln",
    "print",
    "eprint",
    "dbg",
    "Instant",
    "SystemTime",
    "OsRng",
    "ThreadRng",
    "thread_rng",
    "from_os_rng",
    "try_from_os_rng",
    "from_entropy",
    "getrandom",
];

/// Returns the dependencies of Cargo.toml, as code names them.
fn dependencies() -> BTreeSet<String> {
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let mut section = "";
    let mut names = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if matches!(section, "[dependencies]" | "[dev-dependencies]")
            && let Some((name, _)) = line.split_once('=')
        {
            names.insert(name.trim().replace('-', "_"));
        }
    }
    assert!(names.contains("tokio") && names.contains("serde"), "{names:?}");
    names
}

fn floor_of(room: &str) -> Option<(u8, bool)> {
    ROOMS.iter().find(|(name, ..)| *name == room).map(|&(_, floor, pure)| (floor, pure))
}

/// One finding, as `file:line: what`.
type Finding = String;

/// A path as written or expanded from a `use` group, with the line of its first segment.
struct FoundPath {
    segments: Vec<String>,
    line: usize,
    /// Whether `use` or `extern crate` stands before it.
    imported: bool,
}

/// Collects the paths (and lone identifiers) of a token stream; `module` is where the tokens stand,
/// so that `super` and `self` resolve to `crate::…`.
fn collect_paths(tokens: TokenStream, module: &[String], prefix: &[String], found: &mut Vec<FoundPath>) {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < trees.len() {
        match &trees[at] {
            TokenTree::Ident(ident) => {
                let line = ident.span().start().line;
                let before = at.checked_sub(1).and_then(|at| trees.get(at));
                let imported = matches!(before, Some(TokenTree::Ident(i)) if *i == "use" || *i == "crate");
                let mut segments = prefix.to_vec();
                segments.push(ident.to_string());
                at += 1;
                let mut group = None;
                while is_path_separator(&trees, at) {
                    match trees.get(at + 2) {
                        Some(TokenTree::Ident(next)) => {
                            segments.push(next.to_string());
                            at += 3;
                        }
                        Some(TokenTree::Group(inner)) if inner.delimiter() == Delimiter::Brace => {
                            group = Some(inner.stream());
                            at += 3;
                            break;
                        }
                        _ => {
                            at += 2;
                            break;
                        }
                    }
                }
                let segments = resolve(segments, module);
                if let Some(inner) = group {
                    collect_paths(inner, module, &segments, found);
                } else if segments == ["mod"] {
                    at = enter_module(&trees, at, module, found);
                } else {
                    found.push(FoundPath { segments, line, imported });
                }
            }
            TokenTree::Group(group) => {
                // Inside a `use` group a brace only follows a separator, so a bare group starts afresh.
                collect_paths(group.stream(), module, &[], found);
                at += 1;
            }
            _ => at += 1,
        }
    }
}

/// Walks `mod name { … }` one level deeper; returns the position after it.
fn enter_module(trees: &[TokenTree], at: usize, module: &[String], found: &mut Vec<FoundPath>) -> usize {
    if let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) = (trees.get(at), trees.get(at + 1))
        && body.delimiter() == Delimiter::Brace
    {
        let mut inner = module.to_vec();
        inner.push(name.to_string());
        collect_paths(body.stream(), &inner, &[], found);
        return at + 2;
    }
    at
}

fn is_path_separator(trees: &[TokenTree], at: usize) -> bool {
    let colon = |tree: Option<&TokenTree>| matches!(tree, Some(TokenTree::Punct(p)) if p.as_char() == ':');
    colon(trees.get(at)) && colon(trees.get(at + 1))
}

/// Turns a leading `self` or chain of `super` into an absolute `crate` path.
fn resolve(segments: Vec<String>, module: &[String]) -> Vec<String> {
    let supers = segments.iter().take_while(|s| *s == "super").count();
    let own = usize::from(segments[0] == "self" && segments.len() > 1);
    if supers == 0 && own == 0 {
        return segments;
    }
    let kept = module.len().saturating_sub(supers);
    let absolute = module[..kept].iter().cloned().chain(segments.into_iter().skip(supers + own));
    std::iter::once("crate".to_owned()).chain(absolute).collect()
}

/// The module path of a file below the source root: `latency/bea.rs` is `latency::bea`.
fn module_of(relative: &Path) -> Vec<String> {
    let mut parts: Vec<String> = relative
        .with_extension("")
        .components()
        .map(|c| c.as_os_str().to_string_lossy().into_owned())
        .collect();
    if parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    parts
}

fn rust_files(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

/// Checks one source tree and returns every breach of the floors and of purity.
fn check(root: &Path) -> Vec<Finding> {
    let mut files = Vec::new();
    rust_files(root, &mut files);
    files.sort();
    let mut findings = Vec::new();
    let dependencies = dependencies();
    for file in files {
        let relative = file.strip_prefix(root).unwrap();
        let module = module_of(relative);
        // lib.rs and main.rs stand above all rooms.
        if matches!(module[0].as_str(), "lib" | "main") {
            continue;
        }
        let source = fs::read_to_string(&file).unwrap();
        let tokens: TokenStream = source.parse().unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let mut paths = Vec::new();
        collect_paths(tokens, &module, &[], &mut paths);
        check_file(relative, &module[0], &paths, &mut findings);
        if floor_of(&module[0]).is_some_and(|(_, pure)| pure) {
            check_purity(relative, &paths, &dependencies, &mut findings);
        }
    }
    findings
}

fn check_file(file: &Path, room: &str, paths: &[FoundPath], findings: &mut Vec<Finding>) {
    let Some((floor, pure)) = floor_of(room) else {
        findings.push(format!("{}: no room `{room}` in the plan", file.display()));
        return;
    };
    for FoundPath { segments, line, .. } in paths {
        let here = format!("{}:{line}", file.display());
        if matches!(segments[0].as_str(), "crate" | "bear") && segments.len() > 1 {
            let target = segments[1].as_str();
            match floor_of(target) {
                Some(_) if target == room => {}
                Some((_, false)) if pure => {
                    findings.push(format!("{here}: pure room `{room}` uses `{target}`, which is not"));
                }
                Some((lower, _)) if lower < floor => {}
                Some((other, _)) => findings.push(format!(
                    "{here}: `{room}` (floor {floor}) uses `{target}` (floor {other}); arrows point down only"
                )),
                None => findings.push(format!("{here}: `{}` names no room", segments.join("::"))),
            }
        }
    }
}

/// Finds what a pure room may not name. A crate's name alone may as well be a field's: it counts once
/// something is taken from it, or it is imported whole (renamed, what is taken could not be told).
fn check_purity(file: &Path, paths: &[FoundPath], known: &BTreeSet<String>, findings: &mut Vec<Finding>) {
    for FoundPath { segments, line, imported } in paths {
        let name = segments[0].as_str();
        let whole = segments.len() == 1 && *imported || segments.len() == 2 && segments[1] == "self";
        let here = format!("{}:{line}: a pure room", file.display());
        if whole && (name == "std" || known.contains(name)) {
            findings.push(format!("{here} imports `{name}` whole; name what it takes"));
        }
        let foreign = segments.len() > 1 && known.contains(name) && !PURE_CRATES.contains(&name);
        let impure = IMPURE_PATHS
            .iter()
            .any(|bad| segments.iter().map(String::as_str).take(bad.len()).eq(bad.iter().copied()))
            || segments.iter().any(|s| IMPURE_NAMES.contains(&s.as_str()));
        if foreign || impure {
            findings.push(format!("{here} names `{}`", segments.join("::")));
        }
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/architecture").join(name)
}

fn source_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

#[test]
fn rooms_use_lower_floors_only_and_pure_rooms_touch_nothing_ambient() {
    let findings = check(&source_root());
    assert!(findings.is_empty(), "the plan is broken:\n{}", findings.join("\n"));
}

#[test]
fn every_room_in_the_sources_is_in_the_plan() {
    let folders: BTreeSet<String> = fs::read_dir(source_root())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    let planned: BTreeSet<String> = ROOMS.iter().map(|(name, ..)| (*name).to_owned()).collect();
    assert_eq!(folders, planned);
}

#[test]
fn the_plan_in_architecture_md_is_this_plan() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md")).unwrap();
    let rows: BTreeSet<(String, u8, bool)> = page
        .lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let room = cells.get(1)?.strip_prefix("`")?.strip_suffix("/`")?;
            Some((room.to_owned(), cells[0].parse().ok()?, cells[2] == "yes"))
        })
        .collect();
    let planned = ROOMS.iter().map(|&(name, floor, pure)| (name.to_owned(), floor, pure)).collect();
    assert_eq!(rows, planned);
}

#[test]
fn an_arrow_up_the_floors_is_found_however_it_is_written() {
    let findings = check(&fixture("upward"));
    let expected = ["policy", "router", "gateway", "latency"];
    assert_eq!(findings.len(), expected.len(), "{findings:#?}");
    for (finding, target) in findings.iter().zip(expected) {
        assert!(finding.contains(&format!("uses `{target}`")), "{finding} should name {target}");
    }
}

#[test]
fn impurity_in_a_pure_room_is_found() {
    let findings = check(&fixture("impure"));
    let named = |what: &str| findings.iter().any(|f| f.contains(&format!("names `{what}`")));
    for what in ["std::fs::read", "std::time::Instant", "SystemTime::now", "rand::rng", "async", "println"] {
        assert!(named(what), "{what} was not found in {findings:#?}");
    }
    assert!(findings.iter().any(|f| f.contains("uses `telemetry`")), "{findings:#?}");
    assert!(!named("std::time::Duration"), "{findings:#?}");
}

#[test]
fn impurity_in_disguise_is_found() {
    let findings = check(&fixture("impure"));
    let found = |what: &str| findings.iter().any(|f| f.contains("disguise.rs") && f.contains(what));
    for what in [
        "imports `std` whole",
        "imports `rand` whole",
        "imports `serde_json` whole",
        "names `moka::sync::Cache`",
        "names `opentelemetry::global::tracer`",
        "names `StdRng::from_os_rng`",
        "names `tracing_subscriber::fmt`",
    ] {
        assert!(found(what), "{what} was not found in {findings:#?}");
    }
    assert!(!found("`serde::Serialize`") && !found("`metrics`"), "{findings:#?}");
}

/// Most lines of a file below the root of a package's sources or tests.
fn line_limit(root: &str, file: &Path) -> usize {
    match (root, file.file_name().and_then(|name| name.to_str())) {
        ("tests", _) => 800,
        ("src", Some("main.rs")) => 10,
        ("src", Some("mod.rs")) => 150,
        _ => 500,
    }
}

#[test]
fn sources_keep_their_size() {
    let mut long: Vec<String> = Vec::new();
    for root in ["src", "tests", "training/src"] {
        let mut files = Vec::new();
        rust_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(root), &mut files);
        assert!(!files.is_empty(), "{root}");
        for file in files {
            let lines = fs::read_to_string(&file).unwrap().lines().count();
            let limit = line_limit(root, &file);
            if lines > limit {
                long.push(format!("{}: {lines} lines, at most {limit}", file.display()));
            }
        }
    }
    assert!(long.is_empty(), "which room is missing?\n{}", long.join("\n"));
}
