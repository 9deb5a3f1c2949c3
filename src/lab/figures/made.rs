//! Run lines of every scenario, made by rule for tests: plausible, not measured.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use crate::lab::{Metrics, RequestRecord, RunKey, RunLine, Scenario, Setting};

const RATE: &str = "arrivals.options.rate_qps";
const MODELS: [&str; 3] = ["qwen3-0.6b", "qwen3-8b", "qwen3-32b"];
const TASKS: [(&str, f64, f64); 4] = [
    ("instruction-following", 3.9, 5.5),
    ("question-answering", 7.25, 3.8),
    ("summarisation", 9.1, 6.2),
    ("creative-writing", 3.9, 6.5),
];
/// Scores around the paper's table 2, by task then model.
const SCORES: [[f64; 3]; 4] =
    [[0.53, 0.83, 0.89], [0.41, 0.88, 0.93], [0.29, 0.87, 0.96], [0.18, 0.57, 0.81]];
/// A router with its OnTimeUtility at 6 requests/s, what it loses a request/s more, and its attainment there.
pub(crate) const ROUTERS: [(&str, f64, f64, f64); 14] = [
    ("bear", 0.66, 0.022, 0.985),
    ("route-balance", 0.46, 0.042, 0.72),
    ("score", 0.43, 0.045, 0.69),
    ("latency-agnostic", 0.36, 0.085, 0.46),
    ("round-robin", 0.44, 0.075, 0.71),
    ("shortest-queue", 0.54, 0.030, 0.93),
    ("lmdeploy", 0.50, 0.050, 0.86),
    ("lmdeploy-observed", 0.41, 0.060, 0.80),
    ("vllm-sr", 0.39, 0.040, 0.77),
    ("block", 0.545, 0.026, 0.94),
    ("power-of-two", 0.53, 0.034, 0.92),
    ("sglang-cache-aware", 0.525, 0.036, 0.91),
    ("dynamo", 0.535, 0.031, 0.925),
    ("oracle", 0.72, 0.020, 0.99),
];

fn dice(name: &str, seed: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(name.bytes().fold(7, |sum, byte| sum * 31 % 1_000_003 + u64::from(byte)));
    rng
}

fn line(scenario: &str, point: &[(&str, Value)], router: &str, seed: u64, metrics: Metrics) -> RunLine {
    let point: BTreeMap<String, Value> = point.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
    let key = RunKey {
        scenario: scenario.into(),
        point,
        router: router.into(),
        options: serde_json::Map::new(),
        seed,
        digest: "made".into(),
        world: "made".into(),
    };
    let mut setting = setting();
    if let Some(rate) = key.point.get(RATE) {
        setting.arrivals.options.insert("rate_qps".into(), rate.clone());
    }
    RunLine { key, setting, metrics, requests: Vec::new() }
}

/// Returns what the made runs pass for being played under.
pub(crate) fn setting() -> Setting {
    let text = "{name: made, workload: {name: four-tasks}, duration_s: 1200, warmup_s: 120, routers: [{label: bear, \
                policy: {name: bear}}], arrivals: {name: poisson, options: {rate_qps: 8.0}}, pool: [{profile: \
                qwen3-0.6b-h100, price: {input_usd_per_mtok: 0.05, output_usd_per_mtok: 0.2}}]}";
    let scenario = Scenario::parse(text, "made").expect("a scenario");
    Setting::of(&scenario, &scenario.routers[0])
}

fn metrics(router: &(&str, f64, f64, f64), rate: f64, seed: u64) -> Metrics {
    let (name, at_six, slope, met) = *router;
    // The traffic of a seed is the same for every router; what is left of luck is its own.
    let shared = dice("traffic", seed).random_range(-0.012..0.012);
    let own = dice(name, seed * 100 + rate as u64).random_range(-0.006..0.006);
    let load = rate - 6.0;
    let utility = at_six - slope * load + shared + own;
    let attainment = (met - 0.9 * slope * load + own).clamp(0.0, 1.0);
    let small = match name {
        "bear" | "oracle" | "bear-prefill" => 0.18 + 0.09 * load,
        "shortest-queue" => 0.55 + 0.03 * load,
        "latency-agnostic" => 0.04,
        _ => 1.0 / 3.0,
    };
    let middle = if name == "latency-agnostic" { 0.5 } else { (1.0 - small) * 0.55 };
    let shares = [small, middle, 1.0 - small - middle];
    let spare = 1.0 - attainment;
    let attained = [1.0 - 0.3 * spare, 1.0 - spare, 1.0 - (1.5 * spare).min(1.0)];
    let named = |values: [f64; 3]| MODELS.iter().map(|m| (*m).to_owned()).zip(values).collect();
    Metrics {
        requests: 9_000,
        on_time_utility: utility,
        attainment,
        mean_utility: utility + 0.1 * spare,
        mean_score: utility + 0.12,
        model_share: named(shares),
        model_attainment: named(attained),
        ..Metrics::default()
    }
}

fn with_ttft(mut metrics: Metrics, mean_s: f64, utility: f64) -> Metrics {
    metrics.ttft_s.mean = mean_s;
    metrics.mean_utility = utility;
    metrics
}

/// Makes the lines of every scenario that figures read.
pub(crate) fn lines() -> Vec<RunLine> {
    let mut lines = Vec::new();
    for seed in 1..=5 {
        for router in &ROUTERS {
            for rate in [6.0, 7.0, 7.5, 8.0, 8.9] {
                let made = metrics(router, rate, seed);
                lines.push(line("poisson", &[(RATE, json!(rate))], router.0, seed, made));
            }
            for (rate, ratio) in [(6, 3), (7, 3), (8, 3), (6, 6), (7, 6), (8, 6)] {
                let made = metrics(router, f64::from(rate) + 0.3 * f64::from(ratio), seed);
                let point = [(RATE, json!(rate)), ("arrivals.options.ratio", json!(ratio))];
                lines.push(line("bursty", &point, router.0, seed, made));
            }
            if !router.0.starts_with("lmdeploy") {
                let made = with_ttft(
                    metrics(router, 8.0, seed),
                    0.06 + 1.4 * (1.0 - router.3) + 0.002 * seed as f64,
                    router.1 - 0.01,
                );
                lines.push(line("delta-others", &[], router.0, seed, made));
            }
        }
        one_router(seed, &mut lines);
        robustness(seed, &mut lines);
    }
    for router in &ROUTERS {
        lines.push(requests(router));
    }
    lines
}

fn one_router(seed: u64, lines: &mut Vec<RunLine>) {
    let bear = &ROUTERS[0];
    for (i, delta) in [0.0, 0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0].into_iter().enumerate() {
        let i = i as f64;
        let made = with_ttft(
            metrics(bear, 8.0, seed),
            0.055 + 0.9 * (-0.55 * i).exp() + 0.001 * seed as f64,
            0.71 - 0.012 * i * i.sqrt() + 0.001 * seed as f64,
        );
        lines.push(line("delta", &[("delta_per_s", json!(delta))], "bear-lagrangian", seed, made));
    }
    for delay in [0, 25, 100, 400, 1000] {
        for count in [1, 4] {
            for (scenario, parts) in [("staleness", None), ("staleness-parts", Some((true, false)))] {
                let late = f64::from(delay) / 1000.0;
                let mut made = metrics(bear, 8.0, seed);
                let lost = 0.04 * late * f64::from(count).sqrt();
                made.on_time_utility -= lost * if parts.is_some() { 2.0 } else { 1.0 };
                let mut point = vec![("snapshots.delay_ms", json!(delay)), ("router_count", json!(count))];
                if let Some((forward, ledger)) = parts {
                    point.push(("snapshots.roll_forward", json!(forward)));
                    point.push(("snapshots.ledger", json!(ledger)));
                }
                lines.push(line(scenario, &point, "bear", seed, made));
            }
        }
    }
    for rate in [6.0, 7.0, 7.5, 8.0, 8.9] {
        let point = [(RATE, json!(rate))];
        lines.push(line("estimator", &point, "bear", seed, metrics(bear, rate, seed)));
        let prefill = ("bear-prefill", 0.655, 0.05, 0.97);
        lines.push(line("estimator", &point, "bear-prefill", seed, metrics(&prefill, rate, seed)));
    }
    for lambda in [100.0, 250.0, 500.0, 1000.0, 2000.0] {
        for router in [bear, &ROUTERS[3]] {
            let mut made = metrics(router, 8.0, seed);
            made.on_time_utility -= 0.00006 * lambda;
            lines.push(line("lambda", &[("lambda_per_usd", json!(lambda))], router.0, seed, made));
        }
    }
}

fn robustness(seed: u64, lines: &mut Vec<RunLine>) {
    for router in &ROUTERS {
        for lambda in [0.0, 500.0] {
            let point = [("lambda_per_usd", json!(lambda)), ("targets.slope_ms_per_token", json!(0.35))];
            lines.push(line("weights", &point, router.0, seed, metrics(router, 8.0, seed)));
        }
        let point = [(RATE, json!(16.0))];
        lines.push(line("load", &point, router.0, seed, metrics(router, 16.0, seed)));
    }
    for router in &ROUTERS[..6] {
        for rate in [6.0, 8.0, 8.9] {
            let made = metrics(router, rate, seed);
            lines.push(line("other-mix", &[(RATE, json!(rate))], router.0, seed, made.clone()));
            for factor in [0.75, 1.0, 1.25] {
                for wrong in [false, true] {
                    let mut made = made.clone();
                    made.on_time_utility -= 0.05 * (factor - 1.0_f64).abs() + if wrong { 0.01 } else { 0.0 };
                    let point = [
                        (RATE, json!(rate)),
                        ("misfit.batch_time_factor", json!(factor)),
                        ("misfit.wrong_async", json!(wrong)),
                    ];
                    lines.push(line("misfit", &point, router.0, seed, made));
                }
            }
        }
    }
}

fn requests(router: &(&str, f64, f64, f64)) -> RunLine {
    let mut rng = dice(router.0, 99);
    let mut made = line("requests", &[], router.0, 1, metrics(router, 8.0, 1));
    for i in 0..800_u64 {
        let (task, model) = (rng.random_range(0..4), rng.random_range(0..3));
        made.requests.push(request(i, task, model, router.0, &mut rng));
    }
    made
}

fn request(i: u64, task: usize, model: usize, router: &str, rng: &mut ChaCha8Rng) -> RequestRecord {
    // The sum of twelve uniform numbers less 6 is close to a standard normal one.
    let mut normal = || (0..12).map(|_| rng.random_range(0.0..1.0)).sum::<f64>() - 6.0;
    let (name, prompt, output) = TASKS[task];
    let prompt_tokens = (prompt + 0.45 * normal()).exp().clamp(8.0, 30_000.0);
    let output_tokens = (output + 0.6 * normal() + 0.15 * model as f64).exp().clamp(2.0, 2_000.0);
    let ttft_s =
        0.02 * (model as f64 + 1.0) + prompt_tokens * 2.5e-5 * (0.5 * normal()).exp() * (1.0 + model as f64);
    let e2e_s = ttft_s + output_tokens * 0.006 * (model as f64 + 1.0);
    let bea = ttft_s * (0.05 * normal()).exp();
    let others = [("bea", bea), ("prefill-throughput", ttft_s * (-1.2 + 0.6 * normal()).exp())];
    let believed = match router {
        "score" | "route-balance" | "lmdeploy" | "lmdeploy-observed" | "block" => {
            Some(e2e_s * (0.3 + 0.7 * normal()).exp())
        }
        "vllm-sr" => Some(0.4 * (0.2 * normal()).exp()),
        _ => None,
    };
    RequestRecord {
        at_us: i * 125_000,
        task: name.into(),
        model: MODELS[model].into(),
        instance: format!("{}-0", MODELS[model]),
        reason: "utility".into(),
        prompt_tokens: prompt_tokens as u32,
        output_tokens: output_tokens as u32,
        predicted_output_tokens: None,
        target_s: Some(0.16),
        predicted_ttft_s: Some(bea),
        other_ttft_s: others.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
        believed_latency_s: believed,
        ttft_s: Some(ttft_s),
        e2e_s: Some(e2e_s),
        judged: true,
        score: Some((SCORES[task][model] + 0.1 * normal()).clamp(0.0, 1.0)),
        cost_usd: 1e-4,
        utility: Some(0.5),
    }
}
