//! Arguments and what they start: train, synthesize, demo, lab, tokenizer, fixture.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    process,
};

use anyhow::{Context, Result, bail};
use bear::{
    config::read_bundle,
    predict::{BpeTokens, Predictor, bundle},
};
use bear_training::{
    evaluations::{self, ModelFacts},
    fit::{self, Order},
    fixture, lab,
    recipe::Recipe,
    synthetic::{self, Synthesis},
    tokenizer,
};
use clap::{Args, Parser, Subcommand};
use flate2::{Compression, write::GzEncoder};
use indicatif::{ProgressBar, ProgressStyle};

/// The plan of the shipped demo bundle.
const DEMO: Synthesis = Synthesis { seed: 1, prompts: 2_000 };

/// Train BEAR's predictors from evaluations, and make what training needs.
#[derive(Parser)]
#[command(
    name = "bear-train",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Example:\n  bear-train evaluations.jsonl.gz --models models.json --out bundles/mine\n\n\
        An evaluation is one JSON line:\n  {\"prompt_id\":\"1\",\"prompt\":\"…\",\"model\":\"qwen3-8b\",\"score\":0.8,\"output_tokens\":312}\n\
        models.json gives each model's facts:\n  {\"qwen3-8b\":{\"parameters_b\":8.2,\"max_model_len\":40960}}"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    train: TrainArguments,
}

#[derive(Args)]
struct TrainArguments {
    /// Evaluations: JSON lines, gzip by the suffix .gz.
    #[arg(required = true)]
    evaluations: Vec<PathBuf>,
    /// Facts about the models, a JSON file.
    #[arg(long, value_name = "FILE", required = true)]
    models: Option<PathBuf>,
    /// The folder to write the bundle to; made if absent.
    #[arg(long, value_name = "DIR", required = true)]
    out: Option<PathBuf>,
    /// The trainer's parameters, a JSON file; absent: the defaults, which the manifest shows.
    #[arg(long, value_name = "FILE")]
    recipe: Option<PathBuf>,
    /// The bundle's name; absent: the folder's.
    #[arg(long)]
    name: Option<String>,
    /// Another feature tokenizer (`tokenizer.json`, canonical); absent: the built-in one.
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Print the manifest instead of the card.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Generate evaluations of the paper's three models on its four tasks.
    Synthesize {
        /// Seed of everything.
        #[arg(long, default_value_t = DEMO.seed)]
        seed: u64,
        /// Prompts, in equal parts of the four tasks; three rows each.
        #[arg(long, default_value_t = DEMO.prompts)]
        prompts: usize,
        /// The file to write, gzip by the suffix .gz.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Make the demo bundle: synthesize, then train, with the default recipe.
    Demo {
        /// Seed of the evaluations.
        #[arg(long, default_value_t = DEMO.seed)]
        seed: u64,
        /// Prompts.
        #[arg(long, default_value_t = DEMO.prompts)]
        prompts: usize,
        /// The folder to write to.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Make the lab's bundles: draw its requests, then train, with the default recipe.
    Lab {
        /// The folder to write to, one folder a bundle.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Train the feature tokenizer on generated text.
    Tokenizer {
        /// Seed of the text.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Texts to train on.
        #[arg(long, default_value_t = 8_000)]
        texts: usize,
        /// The file to write.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Write the models and rows that the tree evaluation is tested against.
    Fixture {
        /// Seed of everything.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The folder to write to.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

/// Does what the arguments ask.
pub(crate) fn run(arguments: Arguments) -> Result<()> {
    match arguments.command {
        None => train(&arguments.train),
        Some(Command::Synthesize { seed, prompts, out }) => synthesize(&Synthesis { seed, prompts }, &out),
        Some(Command::Demo { seed, prompts, out }) => demo(&Synthesis { seed, prompts }, &out),
        Some(Command::Lab { out }) => lab_bundles(&out),
        Some(Command::Tokenizer { seed, texts, out }) => {
            let json = tokenizer::train(synthetic::tokenizer_corpus(seed, texts))?;
            BpeTokens::from_bytes(json.as_bytes())?;
            write(&out, json.as_bytes())
        }
        Some(Command::Fixture { seed, out }) => write_folder(&out, &fixture::files(seed)?),
    }
}

fn train(arguments: &TrainArguments) -> Result<()> {
    let (Some(models), Some(out)) = (&arguments.models, &arguments.out) else {
        bail!("--models and --out are needed");
    };
    let facts: BTreeMap<String, ModelFacts> = read_json(models)?;
    evaluations::check_facts(&facts).with_context(|| models.display().to_string())?;
    let recipe: Recipe = arguments.recipe.as_deref().map(read_json).transpose()?.unwrap_or_default();
    recipe.check()?;
    let tokenizer = match &arguments.tokenizer {
        Some(path) => fs::read(path).with_context(|| path.display().to_string())?,
        None => BpeTokens::built_in_bytes().to_vec(),
    };
    let tokens = BpeTokens::from_bytes(&tokenizer)?;
    let name = match (&arguments.name, out.file_name()) {
        (Some(name), _) => name.clone(),
        (None, Some(folder)) => folder.to_string_lossy().into_owned(),
        (None, None) => bail!("{}: has no name to call the bundle by; give --name", out.display()),
    };
    let reading = ProgressBar::new_spinner().with_message("evaluations read");
    reading.set_style(ProgressStyle::with_template("{pos} {msg} ({elapsed})")?);
    let corpus = evaluations::read(&arguments.evaluations, &facts, &tokens, || reading.inc(1))?;
    reading.finish_and_clear();
    let training = ProgressBar::new(fit::rounds(&recipe)).with_message("rounds trained");
    training.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({elapsed})")?);
    let order = Order { name: &name, recipe: &recipe, facts: &facts, tokenizer: &tokenizer };
    let files = fit::fit(&corpus, &order, || training.inc(1))?;
    training.finish_and_clear();
    let version = store_bundle(out, &files)?;
    let shown = if arguments.json { bundle::MANIFEST } else { bundle::CARD };
    let mut said =
        String::from_utf8_lossy(files.get(shown).map(Vec::as_slice).unwrap_or_default()).into_owned();
    if !arguments.json {
        let _ = writeln!(said, "\nWrote {} as {version}.", out.display());
    }
    print(&said)
}

/// Writes to standard output. A reader that has left is no failure: the bundle is written.
fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

fn demo(plan: &Synthesis, out: &Path) -> Result<()> {
    let facts: BTreeMap<String, ModelFacts> = serde_json::from_str(synthetic::MODEL_FACTS)?;
    let (recipe, tokens) = (Recipe::default(), BpeTokens::built_in());
    let corpus = evaluations::collect(&synthetic::synthesize(plan, &tokens), &facts, &tokens)?;
    let order =
        Order { name: "demo", recipe: &recipe, facts: &facts, tokenizer: BpeTokens::built_in_bytes() };
    store_bundle(out, &fit::fit(&corpus, &order, || {})?).map(|_| ())
}

fn lab_bundles(out: &Path) -> Result<()> {
    let (recipe, tokens) = (Recipe::default(), BpeTokens::built_in());
    let pool = lab::pool()?;
    let facts = lab::facts(&pool);
    for plan in lab::plans() {
        let rows = lab::evaluations(&plan, &pool, lab::TRAINING_SEED)?;
        let corpus = evaluations::collect(&rows, &facts, &tokens)?;
        let tokenizer = BpeTokens::built_in_bytes();
        let order = Order { name: plan.name, recipe: &recipe, facts: &facts, tokenizer };
        store_bundle(&out.join(plan.name), &fit::fit(&corpus, &order, || {})?)?;
    }
    Ok(())
}

fn synthesize(plan: &Synthesis, out: &Path) -> Result<()> {
    let rows = synthetic::synthesize(plan, &BpeTokens::built_in());
    let file = File::create(out).with_context(|| out.display().to_string())?;
    let mut writer: Box<dyn Write> = if out.extension().is_some_and(|suffix| suffix == "gz") {
        Box::new(GzEncoder::new(file, Compression::fast()))
    } else {
        Box::new(BufWriter::new(file))
    };
    for row in rows {
        writeln!(writer, "{}", row.to_json())?;
    }
    writer.flush().with_context(|| out.display().to_string())
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// Puts a bundle into its folder, in place of one that is there, and reads it back: returns its version.
///
/// Everything is written aside first, so that a full disk leaves the old bundle whole. Files that no bundle has are
/// left alone.
fn store_bundle(folder: &Path, files: &BTreeMap<String, Vec<u8>>) -> Result<String> {
    let staged = folder.join(format!(".staged-{}", process::id()));
    let replaced = write_folder(&staged, files).and_then(|()| replace_bundle(folder, &staged, files));
    // The reason why replacing failed matters more than what is left over.
    let removed = fs::remove_dir_all(&staged).with_context(|| staged.display().to_string());
    replaced.and(removed)?;
    let read = read_bundle(folder).context("the new bundle cannot be read back")?;
    let predictor = Predictor::from_bundle(&read).context("the new bundle does not load")?;
    Ok(predictor.version().to_owned())
}

/// Moves the staged files into `folder` and removes those of an older bundle that the new one lacks.
fn replace_bundle(folder: &Path, staged: &Path, files: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    for name in bundle::FILES {
        let to = folder.join(name);
        let moved = match files.contains_key(name) {
            true => fs::rename(staged.join(name), &to),
            false => fs::remove_file(&to).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            }),
        };
        moved.with_context(|| to.display().to_string())?;
    }
    Ok(())
}

fn write_folder(folder: &Path, files: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    files.iter().try_for_each(|(name, bytes)| write(&folder.join(name), bytes))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| path.display().to_string())
}
