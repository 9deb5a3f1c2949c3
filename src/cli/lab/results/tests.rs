use serde_json::json;

use super::*;
use crate::lab::{Metrics, figures::made};

fn line(router: &str, digest: &str, seed: u64) -> RunLine {
    let key = RunKey {
        scenario: String::from("s"),
        point: [(String::from("rate"), json!(8))].into(),
        router: router.to_owned(),
        options: serde_json::Map::default(),
        seed,
        digest: digest.to_owned(),
        world: String::from("w"),
    };
    let metrics = Metrics { requests: seed, ..Metrics::default() };
    RunLine { key, setting: made::setting(), metrics, requests: Vec::new() }
}

fn open(folder: &Path) -> Results {
    Results::open(folder, "s", "w").unwrap()
}

fn written(folder: &Path) -> Vec<(String, u64)> {
    let text = fs::read_to_string(folder.join("s.jsonl")).unwrap();
    let run = |line: &str| serde_json::from_str::<RunLine>(line).unwrap().key;
    text.lines().map(run).map(|key| (format!("{} {}", key.router, key.digest), key.seed)).collect()
}

fn keys(lines: &[RunLine]) -> Vec<RunKey> {
    lines.iter().map(|line| line.key.clone()).collect()
}

#[test]
fn an_interrupted_grid_goes_on_and_ends_in_the_grids_order() {
    let folder = tempfile::tempdir().unwrap();
    let grid: Vec<RunLine> = (1..=3).map(|seed| line("bear", "d", seed)).collect();
    let mut results = open(folder.path());
    results.add(&grid[2]).unwrap();
    results.add(&grid[0]).unwrap();
    drop(results);
    let cut = folder.path().join("s.jsonl.part");
    OpenOptions::new().append(true).open(&cut).unwrap().write_all(b"{\"key\":").unwrap();
    let mut results = open(folder.path());
    assert!(results.has(&grid[2].key) && !results.has(&grid[1].key));
    results.add(&grid[1]).unwrap();
    results.finish(&keys(&grid)).unwrap();
    assert!(!cut.exists());
    assert_eq!(written(folder.path()).iter().map(|(_, seed)| *seed).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(open(folder.path()).get(&grid[1].key).unwrap() == grid[1]);
}

#[test]
fn other_seeds_and_routers_stay_and_a_routers_former_options_go() {
    let folder = tempfile::tempdir().unwrap();
    let first = [line("bear", "d", 1), line("bear", "d", 2), line("score", "e", 1), line("score", "e", 2)];
    let mut results = open(folder.path());
    first.iter().for_each(|line| results.add(line).unwrap());
    results.finish(&keys(&first)).unwrap();
    let second = [line("score", "f", 1)];
    let mut results = open(folder.path());
    results.add(&second[0]).unwrap();
    results.finish(&keys(&second)).unwrap();
    let expected = [("score f", 1), ("bear d", 1), ("bear d", 2)].map(|(r, seed)| (r.to_owned(), seed));
    assert_eq!(written(folder.path()), expected);
}

#[test]
fn trials_under_other_options_stay_beside_each_other_each_once() {
    let folder = tempfile::tempdir().unwrap();
    let tried = ["short a", "short b", "long b"].map(|digest| line("score", digest, 9));
    let mut results = open(folder.path());
    tried.iter().for_each(|line| results.add(line).unwrap());
    results.finish_trials(&keys(&[&tried[..], &tried[2..]].concat())).unwrap();
    let told = |digest: &str| (format!("score {digest}"), 9);
    assert_eq!(written(folder.path()), ["short a", "short b", "long b"].map(told));
    open(folder.path()).finish_trials(&keys(&tried[1..2])).unwrap();
    assert_eq!(written(folder.path()), ["short b", "short a", "long b"].map(told));
}

#[test]
fn runs_of_another_world_or_version_are_refused_and_stay_where_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let mut results = open(folder.path());
    results.add(&line("bear", "d", 1)).unwrap();
    results.finish(&keys(&[line("bear", "d", 1)])).unwrap();
    let error = |world: &str| Results::open(folder.path(), "s", world).err().unwrap().to_string();
    let told = error("v");
    assert!(told.contains("line 1") && told.contains("--fresh") && told.contains("1200 s"), "{told}");
    assert!(told.contains("another version of bear"), "{told}");
    let file = folder.path().join("s.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{{\"key\": 1}}\n{text}")).unwrap();
    assert!(error("w").contains("line 1, is not a run"), "{}", error("w"));
    Results::discard(folder.path(), "s").unwrap();
    assert!(!file.exists() && !open(folder.path()).has(&line("bear", "d", 1).key));
}
