//! `bear lab replay` and `bear lab tune` as a shell meets them, on logs that the router itself wrote.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    path::Path,
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use bear::{
    affinity::{AffinityConfig, Pipeline},
    domain::{
        BatchTimeCoefficients, Bounds, Capabilities, CountSource, Decision, Ending, Endpoint, InstanceId,
        InstanceSpec, ModelId, ModelIndex, ModelSpec, Named, Needs, Now, Outcome, Overhead, Price,
        PromptCount, Query, Timestamp, Tradeoff,
    },
    latency::{EstimatorSetup, estimator},
    policy::PolicyConfig,
    pool::{NoSink, Pool, PoolConfig},
    predict::Predictor,
    router::{Attempt, Described, Parts, Router, RouterConfig, Silent},
    store::{self, DecisionRow, IfMissing, LoggedQuery},
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

const START_US: u64 = 1_764_460_800_000_000;

/// Name, parameters in billions, USD per million output tokens, mean accuracy. With answers of 200 tokens `small`
/// costs 2e-5 USD and `large` 2e-4: `large` is best below λ = 0.3/1.8e-4 = 1667 per USD.
const MODELS: [(&str, f64, f64, f64); 2] = [("small", 1.0, 0.1, 0.5), ("large", 8.0, 1.0, 0.8)];

struct Clock(AtomicU64);

impl Now for Clock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_us(self.0.load(Ordering::Relaxed))
    }
}

/// Two replicas a model; idle ones tie. `step_s` calibrates each model by what a batch takes; without it nothing is.
fn router(policy: &str, step_s: Option<[f64; 2]>) -> Router {
    let price = |usd: f64| Price { output_usd_per_mtok: usd, ..Price::default() };
    let models = MODELS.map(|(id, parameters_b, usd, accuracy)| ModelSpec {
        id: ModelId::from(id),
        parameters_b,
        max_model_len_tokens: 40_960,
        price: price(usd),
        capabilities: Capabilities::default(),
        prior_accuracy: Some(accuracy),
        prior_output_tokens: Some(200.0),
    });
    let instances = (0..4).map(|i| InstanceSpec {
        id: InstanceId::from(format!("{}-{}", MODELS[i / 2].0, i % 2).as_str()),
        model: ModelIndex(i / 2),
        dp_rank: 0,
        price: price(MODELS[i / 2].2),
        batch_time: step_s.map(|step_s| BatchTimeCoefficients {
            b0_s: step_s[i / 2],
            b1_s: 0.0,
            b2_s: 0.0,
            b3_s: 0.0,
            b4_s: 0.0,
        }),
        overhead: Overhead::default(),
        effective_prefill_tokens_per_s: None,
        peak_prefill_tokens_per_s: None,
    });
    let setup =
        EstimatorSetup { parameters_b: MODELS.map(|model| model.1).into(), ..EstimatorSetup::default() };
    let policy = PolicyConfig { name: policy.to_owned(), ..PolicyConfig::default() };
    let parts = Parts {
        pool: Arc::new(Pool::new(models.to_vec(), instances.collect(), PoolConfig::default()).unwrap()),
        policy: policy.build().unwrap(),
        affinity: Pipeline::from_config(&AffinityConfig::default()).unwrap(),
        predictor: Arc::new(ArcSwap::new(Arc::new(Predictor::prior()))),
        estimator: (estimator("bea").unwrap().construct)(&setup).into(),
    };
    Router::new(parts, RouterConfig::default())
}

fn query(n: usize, now: Timestamp) -> Query {
    Query {
        id: format!("r{n}"),
        arrived: now,
        tenant: None,
        priority: 0,
        adapter: None,
        endpoint: Endpoint::Chat,
        named: Named::Virtual,
        requested_model: "auto".into(),
        needs: Needs::default(),
        streamed: true,
        max_output_tokens: None,
        choices: 1,
        ttft_target: Some(Duration::from_secs(60)),
        tpot_target: None,
        bounds: Bounds::default(),
        tradeoff: Tradeoff { lambda_per_usd: 500.0, delta_per_s: 0.0 },
        prompts: vec![PromptCount::one(100, CountSource::Tokenizer); 2],
        prefix: [].into(),
    }
}

/// Routes `count` requests over idle replicas and writes down what the router logs. Replica 0 of a model answers
/// after 0.1 s, replica 1 after 0.3 s.
fn decisions(policy: &str, count: usize) -> Vec<DecisionRow> {
    logged(&router(policy, None), count, |n| query(n, Timestamp::from_unix_us(START_US)))
}

fn logged(router: &Router, count: usize, query: impl Fn(usize) -> Query) -> Vec<DecisionRow> {
    let clock: Arc<dyn Now> = Arc::new(Clock(AtomicU64::new(START_US)));
    let mut rows = Vec::with_capacity(count);
    for n in 0..count {
        let query = query(n);
        let logged = LoggedQuery::from(&query);
        let described = Described { query, features: None, given: None };
        let attempt = Attempt { id: format!("a{n}"), exclude: &[], number: 1, sink: Arc::new(NoSink) };
        let mut rng = ChaCha8Rng::seed_from_u64(n as u64);
        let routed = router.route(&described, attempt, &clock, &mut rng, &Silent).unwrap();
        let ttft_s = if routed.instance.is_multiple_of(2) { 0.1 } else { 0.3 };
        let cost_usd = routed.decision.chosen().unwrap().cost_usd;
        rows.push(DecisionRow {
            decided_at: Timestamp::from_unix_us(START_US + n as u64),
            decision: routed.decision,
            query: logged,
            outcome: Outcome {
                attempt_id: format!("a{n}"),
                instance: routed.instance,
                ending: Ending::Complete,
                ttft_s: Some(ttft_s),
                e2e_s: 1.0,
                prompt_tokens: Some(100),
                cached_tokens: Some(0),
                output_tokens: Some(200),
                cost_usd,
            },
            features: None,
            prompt: None,
            origin: None,
        });
    }
    rows
}

async fn write(folder: &Path, rows: &[DecisionRow]) {
    let url = format!("sqlite://{}", folder.join("bear.db").display());
    let store = store::open(&url, IfMissing::Create).await.unwrap();
    for rows in rows.chunks(256) {
        store.append(rows).await.unwrap();
    }
}

fn bear(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bear"));
    command.current_dir(folder).args(arguments).env_remove("BEAR_CONFIG").output().unwrap()
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    let output = bear(folder, arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn line<'a>(lines: &'a Value, name: &str) -> &'a Value {
    lines.as_array().unwrap().iter().find(|line| line["name"] == name).unwrap()
}

fn share_of(decisions: &[Decision], instance: &str) -> f64 {
    let chosen = decisions.iter().filter(|decision| decision.chosen().unwrap().instance.as_str() == instance);
    chosen.count() as f64 / decisions.len() as f64
}

#[test]
fn the_propensity_that_the_router_logs_is_how_often_it_chooses() {
    for policy in ["bear", "latency-agnostic"] {
        let decisions: Vec<Decision> = decisions(policy, 600).into_iter().map(|row| row.decision).collect();
        assert!(decisions.iter().all(|decision| decision.propensity == 0.5), "{policy}");
        // Half of 600, give or take four standard deviations of 12.
        for instance in ["large-0", "large-1"] {
            let share = share_of(&decisions, instance);
            assert!((share - 0.5).abs() < 0.08, "{policy}: {instance} {share}");
        }
    }
    for policy in ["bear-lagrangian", "round-robin", "shortest-queue"] {
        assert!(decisions(policy, 8).iter().all(|row| row.decision.propensity == 1.0), "{policy}");
    }
}

#[tokio::test]
async fn a_log_replayed_unchanged_gives_itself() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &decisions("bear", 400)).await;
    let report = json(folder.path(), &["lab", "replay", "sqlite://bear.db", "--json"]);
    assert_eq!(report["agreement"]["reproduced"], 1.0);
    assert_eq!(report["agreement"]["same_model"], 1.0);
    assert_eq!(report["rows"]["answered"], 400);
    assert_eq!(report["observed"]["mean_weight"]["mean"], 1.0);
    let ttft = line(&report["observed"]["means"], "ttft_s");
    assert_eq!(ttft["what_if"], ttft["logged"], "every weight is 1");

    // The file of the store and the lines of its export say the same.
    let file = json(folder.path(), &["lab", "replay", "bear.db", "--json"]);
    assert_eq!(file, report);
    let exported =
        bear(folder.path(), &["store", "export", "--store", "sqlite://bear.db", "--out", "day.jsonl"]);
    assert_eq!(exported.status.code(), Some(0));
    assert_eq!(json(folder.path(), &["lab", "replay", "day.jsonl", "--json"]), report);

    // A batch of `large` takes 100 ms: that alone rules it out within 50 ms, and nobody asks for an estimate. Within
    // 5 ms nothing is in time.
    let target = |n: usize| Duration::from_millis(if n.is_multiple_of(2) { 50 } else { 5 });
    let tight = logged(&router("bear", Some([0.01, 0.1])), 100, |n| Query {
        ttft_target: Some(target(n)),
        ..query(n, Timestamp::from_unix_us(START_US))
    });
    for row in &tight {
        let [small, _, large, _] = &row.decision.candidates[..] else { panic!("{row:?}") };
        assert_eq!((small.source.as_deref(), small.least_ttft_s), (Some("bea-ledger"), None));
        assert_eq!((large.source.as_deref(), large.feasible), (Some("prompt-bound"), Some(false)));
        assert!((large.least_ttft_s.unwrap() - 0.1).abs() < 1e-6 && large.ttft_s.is_none(), "{large:?}");
    }
    let lines: Vec<String> = tight.iter().map(|row| serde_json::to_string(row).unwrap()).collect();
    std::fs::write(folder.path().join("tight.jsonl"), lines.join("\n")).unwrap();
    let report = json(folder.path(), &["lab", "replay", "tight.jsonl", "--json"]);
    assert_eq!((&report["agreement"]["reproduced"], &report["rows"]["answered"]), (&1.0.into(), &100.into()));
    // However little `small` is worth, `large` stays late.
    let free = json(folder.path(), &["lab", "replay", "tight.jsonl", "--lambda", "0", "--json"]);
    assert_eq!(line(&free["predicted"]["models"], "small")["what_if"]["estimate"]["mean"], 1.0);

    // Judged answers give a utility of their own: 1 − 500·2e-4 = 0.9.
    let lines = std::fs::read_to_string(folder.path().join("day.jsonl")).unwrap();
    let judged: Vec<String> = lines.lines().map(|line| line.replacen('{', "{\"score\":1.0,", 1)).collect();
    std::fs::write(folder.path().join("judged.jsonl"), judged.join("\n")).unwrap();
    let judged = json(folder.path(), &["lab", "replay", "judged.jsonl", "--json"]);
    let utility = &line(&judged["observed"]["means"], "on_time_utility")["what_if"]["estimate"]["mean"];
    assert!((utility.as_f64().unwrap() - 0.9).abs() < 1e-9, "{utility}");
}

#[tokio::test]
async fn what_a_changed_pool_would_have_seen_is_told_from_outcomes() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &decisions("bear", 600)).await;
    // Without replica 1 all go to replica 0, which the log took half the time: 0.1 s instead of 0.2 s.
    let report = json(folder.path(), &["lab", "replay", "bear.db", "--without", "large-1", "--json"]);
    let ttft = line(&report["observed"]["means"], "ttft_s");
    let mean = |column: &str| ttft[column]["estimate"]["mean"].as_f64().unwrap();
    assert!((mean("what_if") - 0.1).abs() < 1e-9 && (mean("logged") - 0.2).abs() < 0.02, "{ttft}");
    assert_eq!(line(&report["predicted"]["instances"], "large-0")["what_if"]["estimate"]["mean"], 1.0);

    // Beyond λ = 1667 `small` is best. Bear had no look at it, and never went there.
    let report = json(folder.path(), &["lab", "replay", "bear.db", "--lambda", "3000", "--json"]);
    assert_eq!(
        (&report["rows"]["answered"], &report["rows"]["unanswered"]["no-estimate"]),
        (&0.into(), &600.into())
    );
    let blind = ["lab", "replay", "bear.db", "--lambda", "3000", "--policy", "latency-agnostic"];
    let text = String::from_utf8(bear(folder.path(), &blind).stdout).unwrap();
    for part in [
        "What if: lambda 3000 per USD; policy latency-agnostic",
        "PREDICTED",
        "OBSERVED",
        "The log cannot answer",
        "100.0% change to a choice that the logged policy never made",
        "CALIBRATION",
        "bear lab run",
    ] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    let report = json(folder.path(), &[&blind[..], &["--json"]].concat());
    // 0.5 − 3000·2e-5 = 0.44.
    let utility = &line(&report["predicted"]["means"], "utility")["what_if"]["estimate"]["mean"];
    assert!((utility.as_f64().unwrap() - 0.44).abs() < 1e-9, "{utility}");
}

#[tokio::test]
async fn a_price_is_read_and_a_queue_is_not_made_up() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &decisions("latency-agnostic", 50)).await;
    // At 10 USD an answer of 200 tokens costs 2e-3: 0.8 − 500·2e-3 < 0, `small` has 0.49.
    let dear = ["lab", "replay", "bear.db", "--price", "large=0/10", "--json"];
    let report = json(folder.path(), &dear);
    assert_eq!(line(&report["predicted"]["models"], "small")["what_if"]["estimate"]["mean"], 1.0);
    let queue = json(folder.path(), &["lab", "replay", "bear.db", "--policy", "shortest-queue", "--json"]);
    assert_eq!(queue["rows"]["unanswered"]["no-state"], 50);
}

#[tokio::test]
async fn what_is_wrong_with_a_replay_is_said() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &decisions("bear", 3)).await;
    let mut unknown = decisions("bear", 1);
    unknown[0].decision.policy = "of-another-time".into();
    let unknown = serde_json::to_string(&unknown[0]).unwrap();
    std::fs::write(folder.path().join("unknown.jsonl"), unknown).unwrap();
    std::fs::write(folder.path().join("bad.jsonl"), "\n{}\n").unwrap();
    std::fs::write(folder.path().join("empty.jsonl"), "").unwrap();
    for (arguments, code, said) in [
        (&["bear.db", "--without", "large-7"][..], 1, "`large-7`; it has large, large-0"),
        (&["bear.db", "--price", "huge=1/2"], 1, "`huge`"),
        (&["bear.db", "--policy", "baer"], 1, "did you mean `bear`?"),
        (&["bear.db", "--policy", "bear", "--option", "x=1"], 1, "options of policy `bear`"),
        (&["no.db"], 1, "hint"),
        (&["bad.jsonl"], 1, "line 2"),
        (&["empty.jsonl"], 1, "no first attempt"),
        (&["unknown.jsonl"], 1, "--policy"),
        (&["bear.db", "--price", "large=1"], 2, "MODEL=IN/OUT"),
        (&["bear.db", "--lambda", "-1"], 2, "--lambda"),
        (&["bear.db", "--min-coverage", "2"], 2, "share"),
        (&[], 2, "STORE|FILE"),
    ] {
        let output = bear(folder.path(), &[&["lab", "replay"], arguments].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(said), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_search_gives_the_same_whatever_the_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = "
name: brief
pool:
  - {profile: qwen3-0.6b-h100, price: {input_usd_per_mtok: 0.044, output_usd_per_mtok: 0.173}}
  - {profile: qwen3-8b-h100, price: {input_usd_per_mtok: 0.072, output_usd_per_mtok: 0.287}}
workload: {name: four-tasks}
arrivals: {name: poisson, options: {rate_qps: 4.0}}
duration_s: 6
warmup_s: 2
delta_per_s: 0.3
routers:
  - {label: bear, policy: {name: bear}}
";
    std::fs::write(folder.path().join("brief.yaml"), scenario).unwrap();
    let tune = |jobs: &str| {
        let asked =
            ["--seeds", "2", "--goal", "failed<=0", "--vary", "delta_per_s=0..5", "--jobs", jobs, "--json"];
        json(folder.path(), &[&["lab", "tune", "brief.yaml"], &asked[..]].concat())
    };
    let advice = tune("1");
    assert_eq!(advice, tune("3"));
    // Eq. 5 knows no delta: it stays.
    assert_eq!(advice["advice"]["inert"], serde_json::json!(["delta_per_s"]));
    assert_eq!(advice["routing"]["delta_per_s"], 0.3);
    assert_eq!(advice["plan"]["seeds"], serde_json::json!([1, 2]));
    assert_eq!(advice["advice"]["fresh_seeds"], serde_json::json!([3, 4, 5, 6, 7]));
    assert_eq!(advice["advice"]["best"]["goals"], serde_json::json!(["surely"]));
}

#[test]
fn what_is_wrong_with_a_search_is_said() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, code, said) in [
        (&["no.yaml"][..], 1, "no scenario is called `no.yaml`"),
        (&["no.yaml", "--goal", "atainment>=0.9"], 2, "atainment"),
        (&["no.yaml", "--vary", "lambda_per_usd=5"], 2, "LOW..HIGH"),
        (&["no.yaml", "--vary", "window=0.5..3:int"], 2, "whole numbers"),
        (&["no.yaml", "--seeds", "0"], 2, "--seeds"),
        (&["no.yaml", "--jobs", "0"], 2, "--jobs"),
        (&[], 2, "SCENARIO"),
    ] {
        let output = bear(folder.path(), &[&["lab", "tune"], arguments].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(said), "{arguments:?}: {stderr}");
    }
}
