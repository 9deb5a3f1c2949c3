//! Both replays against worked lines: the project's own, one a rule (`tests/data/replay/`), and the
//! reference lines beside the shared data where `BEAR_DATA` points at it.

use std::{env, fs, path::PathBuf};

use bear::latency::{
    lines::{self, LineOptions},
    replay::STEP_LIMIT,
};
use proptest::prelude::*;
use serde_json::Value;

/// Times agree to this relative difference; everything else exactly.
const RELATIVE: f64 = 1e-9;

const TRACED: LineOptions = LineOptions { plain: true, trace: true, step_limit: STEP_LIMIT };

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= RELATIVE * a.abs().max(b.abs())
}

/// Compares an answer with what is expected of it: every key of `expected`, times by value.
fn difference(path: &str, expected: &Value, answer: &Value) -> Option<String> {
    match (expected, answer) {
        (Value::Number(e), Value::Number(a)) if e.is_f64() || a.is_f64() => {
            let (e, a) = (e.as_f64().unwrap(), a.as_f64().unwrap());
            (!close(e, a)).then(|| format!("{path}: expected {e}, got {a}"))
        }
        (Value::Array(e), Value::Array(a)) if e.len() == a.len() => {
            e.iter().zip(a).enumerate().find_map(|(i, (e, a))| difference(&format!("{path}[{i}]"), e, a))
        }
        (Value::Object(e), Value::Object(a)) => e
            .iter()
            .find_map(|(key, e)| difference(&format!("{path}.{key}"), e, a.get(key).unwrap_or(&Value::Null))),
        _ => (expected != answer).then(|| format!("{path}: expected {expected}, got {answer}")),
    }
}

/// Answers an input as `bear estimate --trace` would: an answer or an error line. Without the batches, the
/// fast replay must give the same.
fn answer(input: &Value, options: LineOptions) -> Value {
    let [traced, fast] =
        [options, LineOptions { trace: false, ..options }].map(|options| {
            match lines::answer(input.to_string().as_bytes(), options) {
                Ok(answer) => serde_json::to_value(answer).unwrap(),
                Err(error) => error.to_line(1),
            }
        });
    let mut expected = traced.clone();
    for key in ["batches", "trace_truncated"] {
        expected.as_object_mut().unwrap().shift_remove(key);
    }
    assert_eq!(fast, expected, "the fast replay of {input}");
    traced
}

/// Returns a field that may be JSON or a string of JSON.
fn field(line: &Value, key: &str) -> Value {
    match &line[key] {
        Value::String(text) => serde_json::from_str(text).unwrap(),
        value => value.clone(),
    }
}

#[test]
fn the_reference_lines_agree_needs_bear_data() {
    let Some(data) = env::var_os("BEAR_DATA") else {
        eprintln!("SKIPPED the reference lines: BEAR_DATA is not set; it names the folder beside specs/");
        return;
    };
    let path = PathBuf::from(data).join("../specs/replay-vectors.jsonl");
    let text = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("BEAR_DATA is set, but {}: {error}", path.display()));
    let mut failures = Vec::new();
    let vectors: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(vectors.len(), 12);
    for (i, vector) in vectors.iter().enumerate() {
        let got = answer(&field(vector, "input"), TRACED);
        failures.extend(difference(&format!("line {}", i + 1), &field(vector, "output"), &got));
    }
    assert!(
        failures.is_empty(),
        "{} of {} lines differ:\n{}",
        failures.len(),
        vectors.len(),
        failures.join("\n")
    );
}

/// Lays a patch over a document: objects key by key, null removes, anything else replaces.
fn patched(document: &Value, patch: &Value) -> Value {
    let (Value::Object(document), Value::Object(patch)) = (document, patch) else { return patch.clone() };
    let mut result = document.clone();
    for (key, value) in patch {
        match (value, document.get(key)) {
            (Value::Null, _) => drop(result.remove(key)),
            (value, Some(old)) => drop(result.insert(key.clone(), patched(old, value))),
            (value, None) => drop(result.insert(key.clone(), value.clone())),
        }
    }
    Value::Object(result)
}

/// Returns how a case of `tests/data/replay` differs from what it expects.
fn case_difference(idle: &Value, case: &Value) -> Option<String> {
    let mut options = TRACED;
    if let Some(limit) = case["step_limit"].as_u64() {
        options.step_limit = limit;
    }
    let got = answer(&patched(idle, &case["patch"]), options);
    match &case["error"] {
        Value::Null => difference("answer", &case["answer"], &got),
        error => {
            let says = got["error"].as_str().is_some_and(|e| e.contains(error["contains"].as_str().unwrap()));
            (!says || got["path"] != error["path"]).then(|| format!("expected {error}, got {got}"))
        }
    }
}

#[test]
fn every_rule_has_its_case() {
    let idle: Value = serde_json::from_str(include_str!("../data/replay/idle.json")).unwrap();
    let files = [
        include_str!("../data/replay/forming.jsonl"),
        include_str!("../data/replay/kv.jsonl"),
        include_str!("../data/replay/time.jsonl"),
        include_str!("../data/replay/lengths.jsonl"),
        include_str!("../data/replay/errors.jsonl"),
    ];
    let (mut cases, mut failures) = (0, Vec::new());
    for line in files.iter().flat_map(|file| file.lines()) {
        let case: Value = serde_json::from_str(line).unwrap();
        cases += 1;
        failures.extend(case_difference(&idle, &case).map(|found| format!("{}: {found}", case["rule"])));
    }
    assert!(cases > 80, "{cases} cases");
    assert!(failures.is_empty(), "{} of {cases} cases differ:\n{}", failures.len(), failures.join("\n"));
}

/// Counts at and around every limit there is.
fn count() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => 0..30_u32,
        4 => prop::sample::select(vec![90_u32, 99, 100, 101, 500, 989, 998, 999, 1_000, 1_001]),
        1 => prop::sample::select(vec![u32::MAX / 2, u32::MAX - 1, u32::MAX]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_state_makes_the_replay_panic(
        n in prop::collection::vec(count(), 27),
        switches in prop::collection::vec(any::<bool>(), 4),
        (started_us, now_us) in (any::<u64>(), any::<u64>()),
        b in prop::collection::vec(prop_oneof![3 => Just(0.0), 9 => Just(1e-3), 3 => Just(1e6), 1 => Just(-1.0)], 5),
    ) {
        // Sizes are kept in range, so that most states get past the checks; the rest is anything.
        let resident = |id: &str, n: &[u32]| {
            let (prompt, output) = (1 + n[0] % 600, n[2] % 300);
            serde_json::json!({
                "id": id, "prompt_tokens": prompt, "computed_tokens": n[1] % (prompt + output),
                "output_tokens": output, "kv_blocks": n[3], "kv_blocks_exclusive": n[4],
                "cached_tokens": n[5], "cached_blocks_in_use": n[6], "max_tokens": n[0],
            })
        };
        let input = serde_json::json!({
            "snapshot": {
                "schema": "bear.snapshot.v1", "instance": "m", "seq": 1, "captured_unix_us": 1_764_460_800_000_000_u64,
                "engine": {
                    "scheduler": "vllm-v1", "max_num_batched_tokens": n[0], "max_num_seqs": n[1],
                    "block_size": 10 + n[2] % 50, "num_kv_blocks": n[3].max(100), "max_model_len": 1_000,
                    "long_prefill_token_threshold": n[4], "watermark_blocks": n[5],
                    "reserve_full_isl": switches[0], "enable_prefix_caching": switches[1],
                    "policy": if switches[2] { "fcfs" } else { "priority" }, "async_scheduling": switches[3],
                },
                "free_kv_blocks": n[6],
                "in_flight": { "started_unix_us": started_us, "tokens": { "r1": n[7] % 3 } },
                "running": [resident("r1", &n[8..]), resident("r2", &n[11..])],
                "waiting": [resident("w1", &n[14..])],
                "waiting_beyond": { "requests": n[21] % 4, "prefill_tokens": 1 + n[22] % 2_000 },
            },
            "calibration": { "b0_s": b[0], "b1_s": b[1], "b2_s": b[2], "b3_s": b[3], "b4_s": b[4] },
            "now_unix_us": now_us,
            "query": {
                "prompt_tokens": 1 + n[23] % 998, "cached_tokens": n[24], "cached_blocks_in_use": n[25],
                "output_tokens": n[26],
            },
        });
        let answer = answer(&input, LineOptions { step_limit: 50, ..TRACED });
        prop_assert!(answer["ttft_s"].is_number() || answer["reason"].is_string() || answer["error"].is_string());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_crowd_is_replayed_as_if_each_of_it_were_listed(
        (requests, prompt, remaining) in (1..12_u32, 1..300_u32, 1..200_u32),
        (running, first, threshold) in (0..3_u32, 1..300_u32, prop_oneof![Just(0_u32), Just(30)]),
        priorities in prop::collection::vec(-1..2_i32, 2),
        by_priority in any::<bool>(),
        switches in prop::collection::vec(any::<bool>(), 2),
    ) {
        let idle: Value = serde_json::from_str(include_str!("../data/replay/idle.json")).unwrap();
        let resident = |id: String, prompt: u32, priority: i32| {
            serde_json::json!({
                "id": id, "prompt_tokens": prompt, "computed_tokens": 0, "output_tokens": 0,
                "max_tokens": remaining, "priority": priority,
            })
        };
        let runs = (0..running).map(|i| {
            serde_json::json!({
                "id": format!("r{i}"), "prompt_tokens": 90, "computed_tokens": 90, "output_tokens": 1,
                "max_tokens": 150, "kv_blocks": 9,
            })
        });
        let waits = resident(String::from("w"), first, priorities[0]);
        let listed = (0..requests).map(|i| resident(format!("beyond{i}"), prompt, 0));
        let policy = if by_priority { "priority" } else { "fcfs" };
        let state = patched(&idle, &serde_json::json!({
            "snapshot": {
                "engine": {
                    "policy": policy, "long_prefill_token_threshold": threshold,
                    "reserve_full_isl": switches[0], "async_scheduling": switches[1],
                },
                "running": runs.collect::<Vec<_>>(), "free_kv_blocks": 100 - 9 * running,
            },
            "query": { "priority": priorities[1] },
            "dispatched": [{ "id": "d", "at_unix_us": 1_764_460_800_000_000_u64, "prompt_tokens": 40, "output_tokens": 9 }],
        }));
        let beyond = serde_json::json!({ "requests": requests, "prefill_tokens": prompt * requests });
        let crowd = patched(&state, &serde_json::json!({ "snapshot": { "waiting": [waits], "waiting_beyond": beyond } }));
        let waiting: Vec<Value> = std::iter::once(waits.clone()).chain(listed).collect();
        let each = patched(&state, &serde_json::json!({ "snapshot": { "waiting": waiting } }));
        let options = LineOptions { step_limit: 3_000, ..TRACED };
        let mut expected = answer(&each, options).to_string();
        for i in 0..requests {
            expected = expected.replace(&format!("beyond{i}@snapshot.waiting[{}]", i + 1), &format!("beyond{i}"));
        }
        prop_assert!(!expected.contains("error"), "{expected}");
        prop_assert_eq!(answer(&crowd, options).to_string(), expected);
    }
}

#[test]
fn a_crowd_costs_what_is_admitted_of_it() {
    let idle: Value = serde_json::from_str(include_str!("../data/replay/idle.json")).unwrap();
    for policy in ["fcfs", "priority"] {
        let state = serde_json::json!({
            "snapshot": {
                "engine": { "policy": policy },
                "waiting": [{ "id": "w", "prompt_tokens": 1, "computed_tokens": 0, "output_tokens": 0, "max_tokens": 9 }],
                "waiting_beyond": { "requests": 1_000_000, "prefill_tokens": 900_000_000 },
            },
        });
        let got =
            answer(&patched(&idle, &state), LineOptions { step_limit: 10_000, ..LineOptions::default() });
        assert_eq!((&got["reason"], &got["steps"]), (&"limit".into(), &10_000.into()), "{got}");
    }
}
