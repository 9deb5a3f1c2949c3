//! Workloads read from files: traces, evaluations, a decision log.

use serde_json::json;

use super::*;
use crate::predict::{BpeTokens, FeatureTokens as _, digest};

fn file(text: &str) -> Files {
    Files::from([(String::from("f"), text.as_bytes().into())])
}

#[test]
fn azure_rows_become_requests_in_order() {
    let files = file(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n\
         2023-11-16 18:17:03.97,4808,10\n2023-11-16 18:17:04.03,110,200\n",
    );
    let mut workload = made_with("trace", json!({"file": "f"}), &files).unwrap();
    let items = drawn(&mut *workload, 1, 9);
    assert_eq!(items.len(), 2);
    assert_eq!((items[0].prompt_tokens, items[1].prompt_tokens), (4_808, 110));
    // Factors 0.9, 1 and 1.05 of 200.
    assert_eq!([0, 1, 2].map(|m| items[1].answers[m].output_tokens), [180, 200, 210]);
    assert!(items.iter().flat_map(|item| item.answers.iter()).all(|answer| answer.score.is_none()));
    assert!(items[0].block_hashes.is_empty() && items[0].features.is_some());
    let options = json!({"file": "f", "loop": true, "task": "question-answering"});
    let again = drawn(&mut *made_with("trace", options, &files).unwrap(), 1, 4_000);
    assert_eq!((again.len(), again[3_998].prompt_tokens), (4_000, 4_808));
    // Paper, table 2.
    let score = mean(again.iter().map(|item| item.answers[0].score.unwrap()));
    assert!((score - 0.4098).abs() < 0.02, "{score}");
}

#[test]
fn mooncakes_ids_share_the_blocks_of_512_tokens() {
    let files = file(
        "{\"timestamp\": 0, \"input_length\": 1040, \"output_length\": 5, \"hash_ids\": [0, 1, 2]}\n\
         {\"timestamp\": 9, \"input_length\": 700, \"output_length\": 5, \"hash_ids\": [0, 3]}\n",
    );
    let items = drawn(&mut *made_with("trace", json!({"file": "f"}), &files).unwrap(), 1, 2);
    let (a, b) = (&items[0].block_hashes, &items[1].block_hashes);
    // 1,040 tokens are 65 blocks, 700 are 43; the first 512 tokens are 32.
    assert_eq!((a.len(), b.len()), (65, 43));
    assert_eq!(a[..32], b[..32]);
    assert!(b[32..].iter().all(|hash| !a.contains(hash)));
    let distinct: std::collections::BTreeSet<&u64> = a.iter().collect();
    assert_eq!(distinct.len(), 65);
}

#[test]
fn arrival_times_alone_are_no_workload() {
    let error = made_with("trace", json!({"file": "f"}), &file("1\n2\n")).err().unwrap().to_string();
    assert!(error.contains("time arrivals only"), "{error}");
}

fn evaluation_rows(output: bool) -> String {
    let mut lines = String::new();
    for id in 0..60 {
        for (model, score) in [("small", 0.2), ("middle", 0.5), ("large", 0.9)] {
            let mut row = json!({
                "prompt_id": id, "prompt": format!("What is {id} times two? Say it briefly."),
                "model": model, "score": score,
            });
            if output {
                row["output_tokens"] = json!(100 + id);
                row["task"] = json!("sums");
            }
            lines += &format!("{row}\n");
        }
    }
    lines
}

#[test]
fn evaluations_give_held_out_prompts_with_their_own_scores_and_lengths() {
    let options = json!({
        "file": "f", "models": {"qwen3-0.6b": "small", "qwen3-8b": "large", "qwen3-32b": "large"},
    });
    let mut workload = made_with("evaluations", options.clone(), &file(&evaluation_rows(true))).unwrap();
    let held_out: Vec<u32> = (0..60).filter(|id: &u32| digest::fraction(&id.to_string()) < 0.2).collect();
    assert!(held_out.len() > 5);
    let items = drawn(&mut *workload, 1, 2 * held_out.len());
    let mut ids: Vec<u32> =
        items[..held_out.len()].iter().map(|item| item.answers[0].output_tokens - 100).collect();
    ids.sort_unstable();
    assert_eq!(ids, held_out, "one round has each held-out prompt once");
    let features = items[0].features.as_ref().unwrap();
    assert_eq!(features.version(), BpeTokens::built_in().version());
    assert_eq!(items[0].prompt_tokens, features.tokens());
    assert!(features.has(Cue::LengthBrief));
    assert_eq!(&*items[0].task, "sums");
    assert_eq!([0, 1, 2].map(|m| items[0].answers[m].score), [Some(0.2), Some(0.9), Some(0.9)]);
    // Without lengths they are drawn, by each model's factor.
    let mut workload = made_with("evaluations", options, &file(&evaluation_rows(false))).unwrap();
    let items = drawn(&mut *workload, 1, 4_000);
    assert_eq!(&*items[0].task, "instruction-following");
    let log = |m: usize| mean(items.iter().map(|item| f64::from(item.answers[m].output_tokens).ln()));
    assert!((log(1) - 5.5).abs() < 0.05 && (log(1) - log(0) + 0.9_f64.ln()).abs() < 0.03);
}

#[test]
fn evaluations_that_do_not_fit_are_told() {
    let models = json!({"qwen3-0.6b": "small", "qwen3-8b": "tiny", "qwen3-32b": "large"});
    let error =
        |options, text: &str| made_with("evaluations", options, &file(text)).err().unwrap().to_string();
    let options = json!({"file": "f", "models": models});
    let said = error(options.clone(), &evaluation_rows(true));
    assert!(said.contains("`tiny`; its models: large, middle, small"), "{said}");
    let said = error(options.clone(), &evaluation_rows(true).replace("\"large\"", "\"tiny\""));
    assert!(said.contains("`large`"), "{said}");
    let said = error(options, "{\"prompt_id\": 1}");
    assert!(said.contains("line 1") && said.contains("model"), "{said}");
    let options = json!({"file": "f", "models": models, "held_out_share": 0});
    assert!(error(options, "").contains("`held_out_share`"));
}

/// One exported attempt; candidates are the model, its predicted accuracy and length.
fn decision(id: &str, attempt: u32, at_us: u64, ending: &str, output: Option<u32>) -> String {
    let candidate = |model: &str, accuracy: Option<f64>, tokens: Option<f64>, chosen: bool| {
        json!({
            "instance": model, "model": model, "prompt_tokens": 90, "count_source": "tokenizer",
            "accuracy": accuracy, "output_tokens": tokens, "predictor": "bundle",
            "interchangeable": chosen, "chosen": chosen,
        })
    };
    let candidates = [
        candidate("qwen3-0.6b", Some(0.3), Some(80.4), false),
        candidate("qwen3-8b", Some(0.6), Some(100.0), true),
        candidate("qwen3-32b", None, None, false),
    ];
    let row = json!({
        "decided_at": at_us,
        "decision": {
            "request_id": id, "attempt": attempt, "policy": "bear", "reason": "max-utility",
            "lambda_per_usd": 500.0, "delta_per_s": 0.0, "propensity": 1.0, "candidates": candidates,
        },
        "query": {"endpoint": "chat", "max_output_tokens": 700},
        "outcome": {
            "attempt_id": id, "instance": 1, "ending": ending, "e2e_s": 1.0, "prompt_tokens": 91,
            "output_tokens": output,
        },
    });
    format!("{row}\n")
}

#[test]
fn a_decision_log_gives_what_was_observed_and_else_what_was_predicted() {
    let text = decision("later", 1, 20, "complete", Some(200))
        + &decision("first", 1, 10, "failed", Some(3))
        + &decision("first", 2, 30, "complete", Some(50));
    let mut workload = made_with("decision-log", json!({"file": "f"}), &file(&text)).unwrap();
    let items = drawn(&mut *workload, 1, 9);
    assert_eq!(items.len(), 2, "two attempts are one request");
    let tokens = |item: &Item| [0, 1, 2].map(|m| item.answers[m].output_tokens);
    // Predicted 80.4; observed; not predicted: the observed times 1.05.
    assert_eq!(tokens(&items[0]), [80, 50, 53]);
    assert_eq!(tokens(&items[1]), [80, 200, 210]);
    assert_eq!([0, 1, 2].map(|m| items[0].answers[m].score), [Some(0.3), Some(0.6), None]);
    assert_eq!((items[0].prompt_tokens, items[0].max_output_tokens), (91, Some(700)));
    // Cancelled answers say nothing of the whole length, and nothing else does of the third model's.
    let error =
        |text: &str| made_with("decision-log", json!({"file": "f"}), &file(text)).err().unwrap().to_string();
    assert!(error(&decision("a", 1, 1, "cancelled", Some(4))).contains("no request's output tokens"));
    let other = decision("a", 1, 1, "complete", Some(4)).replace("qwen3-32b", "other");
    assert!(error(&other).contains("nothing about `qwen3-32b`; its models: other, qwen3-0.6b"));
    assert!(error("{}").contains("line 1"));
}
