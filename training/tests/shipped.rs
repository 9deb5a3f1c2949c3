//! What the repository ships is what the documented commands make.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, path::Path, process::Command};

fn repository(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn bear_train(arguments: &[&str], out: &Path) {
    let run = Command::new(env!("CARGO_BIN_EXE_bear-train"))
        .args(arguments)
        .arg("--out")
        .arg(out)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries.map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap())).collect()
}

#[test]
fn the_feature_tokenizer_is_the_one_that_the_command_makes() {
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("tokenizer.json");
    bear_train(&["tokenizer"], &made);
    let shipped = std::fs::read(repository("models/feature_tokenizer.json")).unwrap();
    assert!(
        std::fs::read(made).unwrap() == shipped,
        "run `bear-train tokenizer --out models/feature_tokenizer.json`"
    );
}

#[test]
fn the_demo_bundle_is_the_one_that_the_command_makes() {
    let folder = tempfile::tempdir().unwrap();
    bear_train(&["demo"], folder.path());
    let (made, shipped) = (files(folder.path()), files(&repository("models/demo")));
    assert_eq!(made.keys().collect::<Vec<_>>(), shipped.keys().collect::<Vec<_>>());
    for (name, bytes) in &made {
        assert!(shipped[name] == *bytes, "{name} differs: run `bear-train demo --out models/demo`");
    }
}

#[test]
fn training_again_into_a_folder_leaves_nothing_of_the_old_bundle() {
    let parent = tempfile::tempdir().unwrap();
    let (folder, rows) = (parent.path().join("mine"), parent.path().join("rows.jsonl"));
    bear_train(&["synthesize", "--prompts", "24"], &rows);
    let recipe = parent.path().join("recipe.json");
    std::fs::write(&recipe, r#"{"accuracy":{"num_iterations":3},"output_length":{"num_iterations":3}}"#)
        .unwrap();
    let models = repository("training/recipes/qwen3-models.json");
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let arguments = [path(&rows), "--models".into(), path(&models), "--recipe".into(), path(&recipe)];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    bear_train(&arguments, &folder);
    std::fs::write(folder.join("notes.md"), "mine").unwrap();
    assert!(folder.join("output_length.txt").exists());
    let text = std::fs::read_to_string(&rows).unwrap().replace("\"output_tokens\"", "\"unused\"");
    std::fs::write(&rows, text).unwrap();
    bear_train(&arguments, &folder);
    let left = files(&folder);
    assert!(!left.contains_key("output_length.txt") && left["notes.md"] == b"mine");
    assert!(bear::predict::Predictor::from_bundle(&left).is_ok());
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 3, "rows, recipe and bundle, nothing else");
}

#[test]
fn the_demo_bundle_predicts_table_2_and_the_specified_lengths() {
    use bear::predict::Predictor;
    use bear_training::{
        evaluations::Content,
        synthetic::{MODELS, Synthesis, TASKS, synthesize},
    };
    let predictor = Predictor::from_bundle(&files(&repository("models/demo"))).unwrap();
    // Another seed: prompts that the bundle was not trained on.
    let plan = Synthesis { seed: 99, prompts: 480 };
    let rows = synthesize(&plan, &bear::predict::BpeTokens::built_in());
    for task in &TASKS {
        let mut sums = vec![(0.0, 0.0); MODELS.len()];
        let of_task: Vec<_> = rows.iter().filter(|row| row.task.as_deref() == Some(task.name)).collect();
        let prompts = of_task.chunks_exact(MODELS.len());
        let count = prompts.len() as f64;
        for prompt in prompts {
            let Content::Prompt(text) = &prompt[0].content else {
                panic!("a synthetic row without its prompt")
            };
            for (model, prediction) in predictor.predict_learned(&predictor.describe(text)) {
                let at = MODELS.iter().position(|m| m.id == model).unwrap();
                sums[at].0 += prediction.accuracy.unwrap() / count;
                sums[at].1 += prediction.output_tokens.unwrap() / count;
            }
        }
        for (m, (accuracy, output_tokens)) in sums.into_iter().enumerate() {
            println!("{} {}: {accuracy:.4} {output_tokens:.1}", task.name, MODELS[m].id);
            assert!((accuracy - task.scores[m]).abs() < 0.06, "{} {}: {accuracy}", task.name, MODELS[m].id);
            let mean = (task.output.mu + task.output.sigma.powi(2) / 2.0).exp() * MODELS[m].output_factor;
            let ratio = output_tokens / mean;
            assert!(
                (0.75..1.25).contains(&ratio),
                "{} {}: {output_tokens}, expected {mean}",
                task.name,
                MODELS[m].id
            );
        }
    }
}

#[test]
fn the_lab_bundles_are_those_that_the_command_makes() {
    let folder = tempfile::tempdir().unwrap();
    bear_train(&["lab"], folder.path());
    for plan in bear_training::lab::plans() {
        let name = plan.name;
        let shipped = files(&repository(&format!("models/lab/{name}")));
        let made = files(&folder.path().join(name));
        assert_eq!(made.keys().collect::<Vec<_>>(), shipped.keys().collect::<Vec<_>>());
        for (file, bytes) in &made {
            assert!(shipped[file] == *bytes, "{name}/{file} differs: run `bear-train lab --out models/lab`");
        }
        assert!(shipped.values().map(Vec::len).sum::<usize>() < 1_500_000, "{name} is too large to ship");
    }
}

#[test]
fn the_lab_bundles_beat_the_mean_of_model_and_task_on_other_requests() {
    use bear_training::{
        evaluations::Content,
        lab::{TEST_SEED, evaluations, plans, pool},
    };
    for mut plan in plans() {
        let bundle = files(&repository(&format!("models/lab/{}", plan.name)));
        let predictor = bear::predict::Predictor::from_bundle(&bundle).unwrap();
        assert!(predictor.is_synthetic());
        plan.prompts = 4_000;
        let rows = evaluations(&plan, &pool().unwrap(), TEST_SEED).unwrap();
        let of_kind = |row: &bear_training::evaluations::Evaluation| (row.task.clone(), row.model.clone());
        let mut means = BTreeMap::new();
        for row in &rows {
            let (score, tokens, count): &mut (f64, f64, f64) = means.entry(of_kind(row)).or_default();
            (*score, *tokens, *count) =
                (*score + row.score, *tokens + row.output_tokens.unwrap(), *count + 1.0);
        }
        // Absolute error of the score, absolute relative error of the length: the bundle's and the means'.
        let mut errors = BTreeMap::new();
        for prompt in rows.chunks_exact(3) {
            let Content::Features(features) = &prompt[0].content else { panic!("rows carry features") };
            let learned = predictor.predict_learned(features);
            for row in prompt {
                let (_, predicted) = learned.iter().find(|(model, _)| *model == row.model).unwrap();
                let (score, tokens, count) = means[&of_kind(row)];
                let relative = |guess: f64| (guess / row.output_tokens.unwrap() - 1.0).abs();
                let now = [
                    (predicted.accuracy.unwrap() - row.score).abs(),
                    (score / count - row.score).abs(),
                    relative(predicted.output_tokens.unwrap()),
                    relative(tokens / count),
                ];
                for key in [of_kind(row), (None, row.model.clone()), (None, String::from("all"))] {
                    let (sum, count): &mut ([f64; 4], f64) = errors.entry(key).or_default();
                    sum.iter_mut().zip(now).for_each(|(sum, error)| *sum += error);
                    *count += 1.0;
                }
            }
        }
        for ((task, model), (sum, count)) in errors {
            let [score, mean_score, length, mean_length] = sum.map(|sum| sum / count);
            println!(
                "{} {task:?} {model}: {score:.4} ({mean_score:.4}) {length:.3} ({mean_length:.3})",
                plan.name
            );
            if task.is_none() {
                assert!(score < 0.95 * mean_score, "{} {model}", plan.name);
                assert!(length < 0.95 * mean_length, "{} {model}", plan.name);
            }
        }
    }
}
