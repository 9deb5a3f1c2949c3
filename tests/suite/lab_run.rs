//! `bear lab run` and `bear lab figures` as a user types them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

const SCENARIO: &str = "
name: small
pool:
  - {profile: qwen3-0.6b-h100, price: {input_usd_per_mtok: 0.044, output_usd_per_mtok: 0.173}}
  - {profile: qwen3-8b-h100, price: {input_usd_per_mtok: 0.072, output_usd_per_mtok: 0.287}}
workload: {name: four-tasks}
arrivals: {name: poisson, options: {rate_qps: 4}}
duration_s: 10
seeds: [1, 2]
axes: {arrivals.options.rate_qps: [4, 6]}
routers:
  - {label: bear, policy: {name: bear}}
  - label: score
    policy: {name: score}
    sweep: {options: [{alpha: 0.2}, {alpha: 0.8}], duration_s: 5, seeds: [9]}
";

fn bear(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bear")).args(arguments).current_dir(folder).output().unwrap()
}

fn ran(folder: &Path, arguments: &[&str]) -> String {
    let output = bear(folder, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn results(folder: &Path, place: &str) -> String {
    fs::read_to_string(folder.join(place).join("small.jsonl")).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_bytes_whatever_the_cores_and_interruptions() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("small.yaml"), SCENARIO).unwrap();
    ran(folder, &["lab", "run", "small.yaml", "--results", "one", "--jobs", "1"]);
    ran(folder, &["lab", "run", "small.yaml", "--results", "two", "--jobs", "3"]);
    let whole = results(folder, "one");
    assert_eq!(whole.lines().count(), 2 * 2 * 2);
    assert!(whole == results(folder, "two"), "{whole}");
    let trials = results(folder, "one/trials");
    // At each of two points, two sets in the short round and both again at full length.
    let lasting = |s: &str| trials.matches(&format!("\"duration_s\":{s},\"warmup_s\"")).count();
    assert_eq!((trials.lines().count(), lasting("5.0"), lasting("10.0")), (8, 4, 4));
    assert!(trials == results(folder, "two/trials"), "{trials}");
    // Half of the lines are lost, and one is cut: they are made again.
    let half = whole.len() / 2;
    fs::write(folder.join("two/small.jsonl"), &whole[..half]).unwrap();
    ran(folder, &["lab", "run", "small.yaml", "--results", "two"]);
    assert!(whole == results(folder, "two"), "{whole}");
    // An interruption amid the finals leaves a journal, its last line cut.
    for lines in [3, 6] {
        let kept: Vec<&str> = trials.lines().take(lines).collect();
        fs::remove_file(folder.join("two/trials/small.jsonl")).unwrap();
        fs::write(folder.join("two/trials/small.jsonl.part"), format!("{}\n{{\"key\"", kept.join("\n")))
            .unwrap();
        ran(folder, &["lab", "run", "small.yaml", "--results", "two", "--jobs", "2"]);
        assert!(trials == results(folder, "two/trials"), "{trials}");
        assert!(whole == results(folder, "two"), "{whole}");
    }
    let played = fs::metadata(folder.join("two/trials/small.jsonl")).unwrap().len();
    ran(folder, &["lab", "run", "small.yaml", "--results", "two", "--routers", "bear"]);
    assert_eq!(fs::metadata(folder.join("two/trials/small.jsonl")).unwrap().len(), played);
}

#[test]
fn results_keep_what_is_comparable_and_refuse_what_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("small.yaml"), SCENARIO).unwrap();
    let run = ["lab", "run", "small.yaml", "--results", "r"];
    ran(folder, &run);
    let whole = results(folder, "r");
    // Fewer seeds or routers play nothing anew and drop nothing.
    ran(folder, &[&run[..], &["--seeds", "1"]].concat());
    assert_eq!(results(folder, "r").lines().count(), 8);
    ran(folder, &[&run[..], &["--routers", "score"]].concat());
    assert_eq!(results(folder, "r").lines().count(), 8);
    ran(folder, &run);
    assert!(results(folder, "r") == whole);
    let refused = |more: &[&str], wanted: &str| {
        let output = bear(folder, &[&run[..], more].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(wanted), "{stderr}");
    };
    refused(&["--duration-s", "5"], "runs under other settings");
    refused(&["--routers", "scroe"], "did you mean `score`");
    assert!(results(folder, "r") == whole);
    ran(folder, &[&run[..], &["--duration-s", "5", "--fresh"]].concat());
    assert!(results(folder, "r").contains("\"duration_s\":5.0"));
    // Another scenario without the router is passed over.
    let other = SCENARIO.replace("name: small", "name: other").replace("label: score", "label: rated");
    fs::write(folder.join("other.yaml"), other).unwrap();
    ran(folder, &["lab", "run", "small.yaml", "other.yaml", "--results", "s", "--routers", "rated"]);
    assert!(!folder.join("s/small.jsonl").exists() && folder.join("s/other.jsonl").exists());
}

#[test]
fn a_page_is_drawn_from_whatever_was_played() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("poisson.yaml"), SCENARIO.replace("name: small", "name: poisson")).unwrap();
    ran(folder, &["lab", "run", "./poisson.yaml", "--results", "r"]);
    let said = ran(folder, &["lab", "figures", "r", "--out", "page"]);
    assert!(said.contains("from 8 runs"), "{said}");
    let read = |place: &str| fs::read(folder.join(place)).unwrap();
    let page = String::from_utf8(read("page/index.html")).unwrap();
    assert!(page.contains("score") && page.contains("bear lab run bursty"), "{said}");
    assert!(read("page/figure-08.png").starts_with(b"\x89PNG") && read("page/figure-08.png").len() > 10_000);
    ran(folder, &["lab", "figures", "r", "--out", "again"]);
    for name in ["index.html", "figure-08.svg", "figure-08.png"] {
        assert!(read(&format!("page/{name}")) == read(&format!("again/{name}")), "{name}");
    }
}

#[test]
fn what_cannot_be_played_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (name, from, to) in [
        ("key", "duration_s", "duration"),
        ("workload", "four-tasks", "five-tasks"),
        ("profile", "qwen3-8b-h100", "qwen3-9b-h100"),
        ("axis", "axes: {arrivals.options.rate_qps", "axes: {arrivals.rate"),
        ("name", "name: small", "name: ../small"),
    ] {
        fs::write(folder.join(format!("{name}.yaml")), SCENARIO.replace(from, to)).unwrap();
        let output = bear(folder, &["lab", "run", &format!("{name}.yaml")]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {stderr}");
        let wanted = to.rsplit(['{', '.']).next().unwrap();
        assert!(stderr.contains(wanted), "{name}: {stderr}");
    }
    let output = bear(folder, &["lab", "run", "--list"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("poisson"));
    assert_eq!(bear(folder, &["lab", "run", "--seeds", "0"]).status.code(), Some(2));
}

#[test]
fn a_sweep_without_a_positive_utility_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("small.yaml"), SCENARIO).unwrap();
    let told = |file: &str, results: &str| {
        let output = bear(folder, &["lab", "run", file, "--results", results]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        stderr
    };
    assert!(!told("small.yaml", "one").contains("warning"));
    let dear = SCENARIO.replace("duration_s: 10", "duration_s: 10\nlambda_per_usd: 1000000000");
    fs::write(folder.join("dear.yaml"), dear).unwrap();
    let stderr = told("dear.yaml", "two");
    assert!(stderr.contains("scenario `small`") && stderr.contains("router `score`"), "{stderr}");
    assert!(stderr.contains("at 2 of 2 points") && !stderr.contains("router `bear`"), "{stderr}");
}
