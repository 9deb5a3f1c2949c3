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
