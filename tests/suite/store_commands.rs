//! `bear store`, `bear config` and `bear explain` as a shell meets them: output and exit codes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

use bear::store::{self, DecisionRow, IfMissing};

use crate::store::full_row;

/// Runs `bear` in a folder, with nothing of ours in its environment.
fn bear(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bear"));
    command.current_dir(folder).args(arguments).env_remove("BEAR__STORE__URL").env_remove("BEAR_CONFIG");
    command
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

async fn fill(folder: &Path) -> Vec<DecisionRow> {
    fill_file(&folder.join("bear.db")).await
}

async fn fill_file(file: &Path) -> Vec<DecisionRow> {
    let url = format!("sqlite://{}", file.display());
    let mut retried = full_row("r1", "a2", 1_764_460_800_000_001);
    retried.decision.reason = bear::domain::Reason::Retry;
    let rows = vec![full_row("r1", "a1", 1_764_460_800_000_000), retried, full_row("r2", "a3", 3)];
    store::open(&url, IfMissing::Create).await.unwrap().append(&rows).await.unwrap();
    rows
}

#[tokio::test]
async fn a_request_is_explained_with_every_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let rows = fill(folder.path()).await;
    let output = bear(folder.path(), &["explain", "r1"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for part in [
        "request r1, attempt 1 of 2, decided 2025-11-30 00:00:00.000 UTC",
        "request r1, attempt 2 of 2",
        "has the highest utility",
        "qwen3-8b-0",
        "small-0",
        "timed-out",
        "60.0 ms",
        "62.5 ms",
    ] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    let output = bear(folder.path(), &["explain", "r1", "--json"]);
    let read: Vec<DecisionRow> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(read, rows[..2]);
    let output = bear(folder.path(), &["explain", "nobody"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("nobody") && stderr(&output).contains("hint"), "{}", stderr(&output));
}

#[tokio::test]
async fn an_export_can_be_imported_elsewhere_and_pruned() {
    let folder = tempfile::tempdir().unwrap();
    let rows = fill(folder.path()).await;
    let exported = bear(folder.path(), &["store", "export"]);
    let lines: Vec<DecisionRow> =
        stdout(&exported).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, rows);

    let mut import = command(folder.path(), &["store", "import", "-", "--store", "sqlite://copy.db"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    import.stdin.take().unwrap().write_all(&exported.stdout).unwrap();
    assert!(stdout(&import.wait_with_output().unwrap()).starts_with("3 rows"));
    let again =
        bear(folder.path(), &["store", "export", "--store", "sqlite://copy.db", "--out", "copy.jsonl"]);
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    assert_eq!(std::fs::read(folder.path().join("copy.jsonl")).unwrap(), exported.stdout);

    // The third row was decided in 1970.
    let pruned = bear(folder.path(), &["store", "prune", "--older-than-days", "10000"]);
    assert_eq!(stdout(&pruned), "1 rows deleted from sqlite://bear.db\n");
    std::fs::write(folder.path().join("bad.jsonl"), "{}\n").unwrap();
    let refused = bear(folder.path(), &["store", "import", "bad.jsonl"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("line 1"), "{}", stderr(&refused));
}

#[test]
fn a_mistyped_store_is_an_error_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in
        [["store", "export", "--store", "sqlite://no.db"], ["explain", "r1", "--store", "sqlite://no.db"]]
    {
        let output = bear(folder.path(), &arguments);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("sqlite://no.db"), "{}", stderr(&output));
    }
    assert!(!folder.path().join("no.db").exists());
    let made = bear(folder.path(), &["store", "migrate", "--store", "sqlite://new.db"]);
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    assert!(folder.path().join("new.db").exists());
}

#[tokio::test]
async fn the_configuration_names_the_store_and_a_flag_wins() {
    let folder = tempfile::tempdir().unwrap();
    fill_file(&folder.path().join("other.db")).await;
    std::fs::write(folder.path().join("bear.yaml"), "store: {url: \"sqlite://other.db\"}\n").unwrap();
    let exit = |command: &mut Command| command.output().unwrap().status.code();
    let explain = ["explain", "r1"];
    assert_eq!(exit(&mut command(folder.path(), &explain)), Some(1), "the default's file is not there");
    let flag = ["explain", "r1", "--config", "bear.yaml"];
    assert_eq!(exit(&mut command(folder.path(), &flag)), Some(0));
    assert_eq!(exit(command(folder.path(), &explain).env("BEAR_CONFIG", "bear.yaml")), Some(0));
    let mut overridden = command(folder.path(), &flag);
    assert_eq!(exit(overridden.env("BEAR__STORE__URL", "sqlite://no.db")), Some(1));
    let both = ["explain", "r1", "--config", "bear.yaml", "--store", "sqlite://no.db"];
    let output = bear(folder.path(), &both);
    let tried = folder.path().join("no.db").display().to_string();
    assert!(stderr(&output).contains("`sqlite://no.db`") && stderr(&output).contains(&tried), "{output:?}");
    std::fs::write(folder.path().join("off.yaml"), "store: {url: null}\n").unwrap();
    let off = bear(folder.path(), &["store", "export", "--config", "off.yaml"]);
    assert!(stderr(&off).contains("--store"), "{}", stderr(&off));
}

#[test]
fn a_password_of_a_store_is_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let secret = "postgres://bear:hunter2@db/bear?password=hunter2";
    let by_flag = bear(folder.path(), &["store", "export", "--store", secret]);
    let by_variable = command(folder.path(), &["explain", "r1"]).env("BEAR__STORE__URL", secret).output();
    let help = command(folder.path(), &["explain", "--help"]).env("BEAR__STORE__URL", secret).output();
    for output in [by_flag, by_variable.unwrap(), help.unwrap()] {
        let said = stdout(&output) + &stderr(&output);
        assert!(!said.is_empty() && !said.contains("hunter2"), "{said}");
    }
}

#[test]
fn wrong_usage_exits_2_and_says_what_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let bad_days = ["store", "prune", "--older-than-days=-1"];
    for arguments in [&["confg"][..], &["store", "prune"], &bad_days, &["explain"], &["serve"], &[]] {
        let output = bear(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
    assert_eq!(bear(folder.path(), &["--help"]).status.code(), Some(0));
}

#[test]
fn a_configuration_is_checked_and_shown() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = bear(root, &["config", "check", "config/examples/two-models.yaml"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for part in
        ["lambda 500 per USD", "2 models, 2 instances", "A short request", "A long request", "utility"]
    {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    let report = bear(root, &["config", "check", "config/examples/two-models.yaml", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let small = &report["typical"][1]["models"][0];
    let utility = small["accuracy"].as_f64().unwrap() - 500.0 * small["cost_usd"].as_f64().unwrap();
    assert!((small["utility"].as_f64().unwrap() - utility).abs() < 1e-12, "{small}");

    // At a λ of nearly nothing the large model is always worth its price.
    let mut free = command(root, &["config", "check", "config/examples/two-models.yaml"]);
    let free = free.env("BEAR__ROUTING__LAMBDA_PER_USD", "0.001").output().unwrap();
    assert!(stdout(&free).contains("`qwen3-8b` never wins against `qwen3-32b`"), "{}", stdout(&free));

    let shown = bear(root, &["config", "show", "config/examples/replicas.yaml"]);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("shown.yaml"), &shown.stdout).unwrap();
    let again = bear(folder.path(), &["config", "show", "shown.yaml"]);
    assert_eq!(stdout(&again), stdout(&shown), "what is shown can be loaded again");

    let schema = bear(root, &["config", "schema"]);
    let schema: serde_json::Value = serde_json::from_slice(&schema.stdout).unwrap();
    assert_eq!(schema["title"], "Config");

    std::fs::write(folder.path().join("bad.yaml"), "store: {ulr: x}\n").unwrap();
    let refused = bear(folder.path(), &["config", "check", "bad.yaml"]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(stderr(&refused), "error: bad.yaml:1:9: unknown key `ulr`; did you mean `url`?\n");
}
