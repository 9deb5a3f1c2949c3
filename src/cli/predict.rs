//! `bear predict`: what a bundle predicts for each prompt and model.

use std::path::PathBuf;

use clap::Parser;
use serde_json::{Map, Value, json};

use super::prompt_lines::{self, PromptLine};
use crate::predict::Predictor;

/// Predicts accuracy and output tokens: reads JSON lines {"prompt_id","prompt"}, writes one JSON line each.
///
/// The answer is {"prompt_id","predictions":{MODEL:{"accuracy","output_tokens"}}} with every model that the
/// bundle has learned; null means that it cannot tell.
#[derive(Debug, Parser)]
pub struct Args {
    /// The file to read; `-` is standard input.
    file: PathBuf,
    /// The bundle's folder, as bear-train writes it; without it the repository's demo bundle, where there is one.
    #[arg(long, value_name = "DIR", default_value = "models/demo")]
    bundle: PathBuf,
}

/// Answers every line of the input.
///
/// # Errors
/// The bundle cannot be used, the input cannot be read, or some line had an error.
pub fn run(args: Args) -> anyhow::Result<()> {
    let predictor = prompt_lines::load_bundle(&args.bundle)?;
    if predictor.is_synthetic() {
        eprintln!(
            "note: the bundle {} was trained on generated evaluations; it shows the path, not the models",
            predictor.version()
        );
    }
    prompt_lines::answer(&args.file, |line| answer(&predictor, line))
}

fn answer(predictor: &Predictor, line: &PromptLine) -> Value {
    let features = predictor.describe(&line.prompt);
    let predictions: Map<String, Value> = predictor
        .predict_learned(&features)
        .into_iter()
        .map(|(model, prediction)| {
            let numbers = json!({"accuracy": prediction.accuracy, "output_tokens": prediction.output_tokens});
            (model.to_owned(), numbers)
        })
        .collect();
    json!({"prompt_id": line.prompt_id, "predictions": predictions})
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{super::prompt_lines::PromptId, *};

    #[test]
    fn every_learned_model_has_its_numbers() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/demo");
        let predictor = prompt_lines::load_bundle(&folder).unwrap();
        let line = PromptLine {
            prompt_id: PromptId::Text(String::from("7")),
            prompt: String::from("Write a story about a ghost."),
        };
        let answer = answer(&predictor, &line);
        assert_eq!(answer["prompt_id"], "7");
        let predictions = answer["predictions"].as_object().unwrap();
        assert_eq!(predictions.len(), 3);
        let of = |model: &str, field: &str| predictions[model][field].as_f64().unwrap();
        assert!(of("qwen3-32b", "accuracy") > of("qwen3-0.6b", "accuracy"));
        assert!(of("qwen3-8b", "output_tokens") > 100.0, "a story is not a line");
    }
}
