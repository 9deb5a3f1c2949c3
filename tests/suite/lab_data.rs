//! The lab's recorded workloads and arrivals over the public data that they are made for (`BEAR_DATA`).

use std::{collections::HashSet, env, path::PathBuf, process::Command};

use bear::lab::{
    Item,
    arrivals::{self, Files},
    data_files,
    workload::{self, ModelFacts, Setup},
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};

/// Unpacks the files that options name; `None`, said loudly, where `BEAR_DATA` is not set.
fn unpacked(options: &Map<String, Value>) -> Option<Files> {
    let Some(data) = env::var_os("BEAR_DATA") else {
        eprintln!(
            "SKIPPED {:?}: BEAR_DATA is not set; it names the folder of traces/ and eval/",
            data_files(options)
        );
        return None;
    };
    let read = |name: String| {
        let path = PathBuf::from(&data).join(&name);
        let unpacked = Command::new("gzip").arg("-dc").arg(&path).output().unwrap();
        let complaint = String::from_utf8_lossy(&unpacked.stderr);
        assert!(unpacked.status.success(), "BEAR_DATA is set, but {}: {complaint}", path.display());
        (name, unpacked.stdout.into())
    };
    Some(data_files(options).into_iter().map(read).collect())
}

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { panic!("an object") };
    map
}

/// Draws up to `count` items of the paper's pool; `None` where the data is not there.
fn items(name: &str, options: Value, count: usize) -> Option<Vec<Item>> {
    let options = object(options);
    let files = unpacked(&options)?;
    let models = [("qwen3-0.6b", 0.6), ("qwen3-8b", 8.2), ("qwen3-32b", 32.8)].map(|(id, parameters_b)| {
        ModelFacts { id: id.to_owned(), parameters_b, max_model_len: 40_960, output_factor: 1.0 }
    });
    let setup = Setup { options: &options, models: &models, feature_version: "test", files: &files };
    let mut workload = workload::build(name, &setup).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    Some(std::iter::from_fn(|| workload.next(&mut rng)).take(count).collect())
}

#[test]
fn recorded_arrivals_come_at_the_asked_rate_and_their_own() {
    // File, requests, seconds from the first to the last.
    for (file, count, span_s) in [
        ("traces/azure_2023_conv.csv.gz", 19_366, 3_501.721_937),
        ("traces/azure_2023_code.csv.gz", 8_819, 3_435.948_056),
        ("traces/mooncake_conversation.jsonl.gz", 12_031, 3_536.999),
        ("traces/mooncake_synthetic.jsonl.gz", 3_993, 1_022.025),
    ] {
        let options = object(json!({"file": file}));
        let Some(files) = unpacked(&options) else { return };
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut times = |options: Value| {
            let mut process = arrivals::build("trace", &object(options), &files).unwrap();
            let times: Vec<u64> = std::iter::from_fn(|| process.next_us(&mut rng)).collect();
            assert!(times.is_sorted(), "{file}");
            times
        };
        let recorded = times(json!({"file": file}));
        assert_eq!(recorded.len(), count, "{file}");
        assert!((*recorded.last().unwrap() as f64 / 1e6 - span_s).abs() < 1e-3, "{file}");
        let scaled = times(json!({"file": file, "rate_qps": 8}));
        let rate = (count - 1) as f64 / (*scaled.last().unwrap() as f64 / 1e6);
        assert!((rate - 8.0).abs() < 1e-3, "{file}: {rate}");
    }
}

#[test]
fn azure_requests_have_the_recorded_lengths() {
    let Some(items) = items("trace", json!({"file": "traces/azure_2023_code.csv.gz"}), usize::MAX) else {
        return;
    };
    let mean =
        |of: fn(&Item) -> u32| items.iter().map(|item| f64::from(of(item))).sum::<f64>() / items.len() as f64;
    assert!((mean(|item| item.prompt_tokens) - 2_047.848_282).abs() < 1e-5);
    assert!((mean(|item| item.answers[1].output_tokens) - 27.882_526).abs() < 1e-5);
}

#[test]
fn mooncake_requests_share_the_recorded_prefixes() {
    // File, share of the first 2,000 requests' full blocks of 16 tokens that a cache without limits would have
    // held, counted on the ids.
    for (file, held) in [
        ("traces/mooncake_conversation.jsonl.gz", 0.294_264_655),
        ("traces/mooncake_synthetic.jsonl.gz", 0.336_468_471),
    ] {
        let Some(items) = items("trace", json!({"file": file}), 2_000) else { return };
        let (mut seen, mut hits, mut blocks) = (HashSet::new(), 0, 0);
        for item in &items {
            assert_eq!(item.block_hashes.len(), item.prompt_tokens as usize / 16, "{file}");
            hits += item.block_hashes.iter().take_while(|hash| seen.contains(*hash)).count();
            blocks += item.block_hashes.len();
            seen.extend(item.block_hashes.iter().copied());
        }
        let share = hits as f64 / blocks as f64;
        assert!((share - held).abs() < 1e-8, "{file}: {share}");
    }
}

#[test]
fn evaluations_keep_the_real_scores_of_held_out_prompts() {
    let options = json!({
        "file": "eval/alpaca_eval2_llama3_1b_3b_8b.jsonl.gz",
        "models": {
            "qwen3-0.6b": "FuseChat-Llama-3.2-1B-Instruct",
            "qwen3-8b": "FuseChat-Llama-3.2-3B-Instruct",
            "qwen3-32b": "FuseChat-Llama-3.1-8B-Instruct",
        },
    });
    // Of 805 prompts, 178 have a hash under 0.2; one round draws each once.
    let Some(items) = items("evaluations", options, 178) else { return };
    for (m, expected) in [0.300_131_03, 0.554_884_41, 0.704_936_97].into_iter().enumerate() {
        let scores = items.iter().map(|item| item.answers[m].score.unwrap());
        let mean = scores.sum::<f64>() / 178.0;
        assert!((mean - expected).abs() < 1e-6, "{m}: {mean}");
    }
    assert!(items.iter().all(|item| item.task.starts_with("alpaca_eval/")));
    assert!(items.iter().all(|item| item.features.is_some() && item.prompt_tokens > 0));
}

#[test]
fn evaluations_without_lengths_draw_them() {
    let options = json!({
        "file": "eval/llmrouter_9models_train.jsonl.gz",
        "models": {
            "qwen3-0.6b": "mistral-7b-instruct-v0.3",
            "qwen3-8b": "gemma-2-9b-it",
            "qwen3-32b": "llama-3.3-nemotron-super-49b-v1",
        },
    });
    let Some(items) = items("evaluations", options, 5_000) else { return };
    let held_out: HashSet<u64> =
        items.iter().map(|item| std::sync::Arc::as_ptr(item.features.as_ref().unwrap()) as u64).collect();
    assert!((0.18..0.22).contains(&(held_out.len() as f64 / 5_608.0)), "{}", held_out.len());
    assert!(
        items
            .iter()
            .flat_map(|item| item.answers.iter())
            .all(|answer| (2..=2_000).contains(&answer.output_tokens))
    );
}
