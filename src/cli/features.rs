//! `bear features`: what the router keeps of each prompt instead of its text.

use std::path::PathBuf;

use clap::Parser;
use serde_json::json;

use super::prompt_lines;
use crate::predict::Predictor;

/// Describes prompts: reads JSON lines {"prompt_id","prompt"}, writes one JSON line each.
///
/// The answer is {"prompt_id","features"}; `features` holds no text and may stand in an evaluation in place of
/// `prompt`. `--named` adds sizes and cues by their feature names.
#[derive(Debug, Parser)]
pub struct Args {
    /// The file to read; `-` is standard input.
    file: PathBuf,
    /// The bundle whose feature tokenizer is used; absent: the built-in one.
    #[arg(long, value_name = "DIR")]
    bundle: Option<PathBuf>,
    /// Adds the named features.
    #[arg(long)]
    named: bool,
}

/// Answers every line of the input.
///
/// # Errors
/// The bundle cannot be used, the input cannot be read, or some line had an error.
pub fn run(args: Args) -> anyhow::Result<()> {
    let predictor =
        args.bundle.as_deref().map_or_else(|| Ok(Predictor::prior()), prompt_lines::load_bundle)?;
    prompt_lines::answer(&args.file, |line| {
        let features = predictor.describe(&line.prompt);
        let mut answer = json!({"prompt_id": line.prompt_id, "features": features});
        if args.named {
            answer["named"] = json!(features.named());
        }
        answer
    })
}
