//! What every workload promises, and the distributions of those without files.

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use super::*;
use crate::predict::Cue;

/// The pool of the paper.
fn pool() -> Vec<ModelFacts> {
    [("qwen3-0.6b", 0.6, 0.9), ("qwen3-8b", 8.2, 1.0), ("qwen3-32b", 32.8, 1.05)]
        .map(|(id, parameters_b, output_factor)| ModelFacts {
            id: id.to_owned(),
            parameters_b,
            max_model_len: 40_960,
            output_factor,
        })
        .to_vec()
}

fn made(name: &str, options: Value) -> Result<Box<dyn Workload>, LabError> {
    let Value::Object(options) = options else { panic!("options are an object") };
    let models = pool();
    build(name, &Setup { options: &options, models: &models, feature_version: "test", files: &Files::new() })
}

fn items(name: &str, options: Value, seed: u64, count: usize) -> Vec<Item> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut workload = made(name, options).unwrap();
    std::iter::from_fn(|| workload.next(&mut rng)).take(count).collect()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

#[test]
fn names_are_sorted_and_summarised() {
    assert!(WORKLOADS.is_sorted_by(|a, b| a.name < b.name));
    assert!(WORKLOADS.iter().all(|entry| !entry.summary.is_empty()));
}

#[test]
fn four_tasks_have_the_means_of_table_2_and_the_specified_lengths() {
    let items = items("four-tasks", json!({}), 1, 24_000);
    // Task, mean scores (paper, table 2), mean of the logarithm of prompt and output tokens.
    for (task, scores, prompt, output) in [
        ("instruction-following", [0.5349, 0.8267, 0.8885], 3.9, 5.5),
        ("question-answering", [0.4098, 0.8828, 0.9269], 7.25, 3.8),
        ("summarisation", [0.2902, 0.8662, 0.9593], 9.1, 6.3),
        ("creative-writing", [0.1773, 0.5747, 0.8069], 3.9, 6.55),
    ] {
        let of: Vec<&Item> = items.iter().filter(|item| &*item.task == task).collect();
        assert!((of.len() as f64 / 24_000.0 - 0.25).abs() < 0.01, "{task}: {}", of.len());
        let log_prompt = mean(of.iter().map(|item| f64::from(item.prompt_tokens).ln()));
        assert!((log_prompt - prompt).abs() < 0.03, "{task}: {log_prompt}");
        for (m, factor) in [0.9_f64, 1.0, 1.05].into_iter().enumerate() {
            let score = mean(of.iter().map(|item| item.answers[m].score.unwrap()));
            assert!((score - scores[m]).abs() < 0.012, "{task} {m}: {score}");
            let log_output = mean(of.iter().map(|item| f64::from(item.answers[m].output_tokens).ln()));
            assert!((log_output - output - factor.ln()).abs() < 0.05, "{task} {m}: {log_output}");
        }
    }
    let all = items.iter().flat_map(|item| item.answers.iter());
    assert!(all.clone().all(|answer| (2..=2_000).contains(&answer.output_tokens)));
    assert!(all.clone().all(|answer| (0.0..=1.0).contains(&answer.score.unwrap())));
}

#[test]
fn difficulty_is_shared_by_the_models_but_not_wholly() {
    let items = items("four-tasks", json!({"mix": {"instruction-following": 1}}), 2, 8_000);
    let scores = |m: usize| items.iter().map(move |item| item.answers[m].score.unwrap());
    let (a, b) = (mean(scores(0)), mean(scores(1)));
    let moment = |of: &dyn Fn(f64, f64) -> f64| mean(scores(0).zip(scores(1)).map(|(x, y)| of(x - a, y - b)));
    let correlation = moment(&|x, y| x * y) / (moment(&|x, _| x * x) * moment(&|_, y| y * y)).sqrt();
    // The shared parts have 70% of the variance of the log-odds.
    assert!((0.6..0.75).contains(&correlation), "{correlation}");
}

#[test]
fn features_keep_their_rules_and_show_task_and_length() {
    let items = items("four-tasks", json!({}), 3, 2_000);
    let mut summaries = BTreeMap::new();
    for item in &items {
        let features = item.features.as_ref().unwrap();
        assert_eq!((features.version(), features.tokens()), ("test", item.prompt_tokens));
        assert!(!features.sparse_counts().is_empty());
        let shown: &mut (f64, f64) = summaries.entry(item.task.to_string()).or_default();
        shown.0 += f64::from(u8::from(features.has(Cue::Summarize)));
        shown.1 += 1.0;
    }
    for (task, (shown, count)) in summaries {
        assert_eq!(shown / count > 0.9, task == "summarisation", "{task}");
    }
    let (long, brief): (Vec<&Item>, Vec<&Item>) = items
        .iter()
        .filter(|item| &*item.task == "instruction-following")
        .filter(|item| {
            [Cue::LengthLong, Cue::LengthBrief].iter().any(|cue| item.features.as_ref().unwrap().has(*cue))
        })
        .partition(|item| item.features.as_ref().unwrap().has(Cue::LengthLong));
    let tokens = |items: &[&Item]| mean(items.iter().map(|item| f64::from(item.answers[1].output_tokens)));
    assert!(tokens(&long) > 2.0 * tokens(&brief), "{} {}", tokens(&long), tokens(&brief));
}

#[test]
fn another_mix_has_its_shares_scores_and_lengths() {
    let options = json!({
        "mix": {"question-answering": 4, "summarisation": 1},
        "scores": {"qwen3-0.6b": {"summarisation": 0.8}},
        "output_factor": 0.5,
    });
    let items = items("four-tasks", options, 4, 10_000);
    let summaries: Vec<&Item> = items.iter().filter(|item| &*item.task == "summarisation").collect();
    assert!((summaries.len() as f64 / 1e4 - 0.2).abs() < 0.015, "{}", summaries.len());
    assert!(items.iter().all(|item| matches!(&*item.task, "summarisation" | "question-answering")));
    let score = mean(summaries.iter().map(|item| item.answers[0].score.unwrap()));
    assert!((score - 0.8).abs() < 0.015, "{score}");
    let log_output = mean(summaries.iter().map(|item| f64::from(item.answers[1].output_tokens).ln()));
    assert!((log_output - 6.3 - 0.5_f64.ln()).abs() < 0.03, "{log_output}");
}

#[test]
fn the_same_seed_gives_the_same_items() {
    for name in ["four-tasks"] {
        let text = |seed| format!("{:?}", items(name, json!({}), seed, 20));
        assert_eq!(text(5), text(5));
        assert_ne!(text(5), text(6));
    }
}

#[test]
fn what_does_not_fit_is_named() {
    for (name, options, what) in [
        ("four", json!({}), "four-tasks"),
        ("four-tasks", json!({"mixture": 1}), "`mixture`"),
        ("four-tasks", json!({"mix": {"poetry": 1}}), "`poetry`"),
        ("four-tasks", json!({"mix": {}}), "`mix`"),
        ("four-tasks", json!({"mix": {"summarisation": -1}}), "`mix`"),
        ("four-tasks", json!({"output_factor": 0}), "`output_factor`"),
        ("four-tasks", json!({"scores": {"qwen3-14b": {}}}), "`qwen3-14b`"),
        ("four-tasks", json!({"scores": {"qwen3-8b": {"summarisation": 1.5}}}), "1.5"),
    ] {
        let error = made(name, options).err().unwrap().to_string();
        assert!(error.contains(what) && error.contains(name), "{error}");
    }
}

#[test]
fn means_are_those_of_the_answers() {
    let mut workload = made("four-tasks", json!({})).unwrap();
    let means = mean_answers(&mut *workload, 3, 20_000, &mut ChaCha8Rng::seed_from_u64(1));
    // Paper, table 2, aggregate.
    for (mean, expected) in means.iter().zip([0.3531, 0.7876, 0.8954]) {
        assert!((mean.score.unwrap() - expected).abs() < 0.01, "{mean:?}");
    }
    // exp(mu + sigma²/2) of the four: 337, 62, 562 and 731, mean 423; less what the clip at 2,000 takes.
    assert!((means[1].output_tokens.unwrap() - 423.0).abs() < 12.0, "{means:?}");
}
