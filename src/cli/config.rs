//! `bear config`: checks a configuration, shows what is in force, prints the schema.

use std::{fmt::Write as _, path::PathBuf};

use anyhow::Context;
use clap::{Parser, Subcommand};
use serde_json::{Value, json};

use super::{print, runtime};
use crate::config::{self, Checked, Config, Flag, ModelUtility, Sources, TYPICAL};

/// Checks a configuration, shows what is in force, prints the schema.
#[derive(Debug, Parser)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Checks a file and shows what its prices and λ mean for a short and a long typical request.
    Check {
        #[command(flatten)]
        file: File,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Prints the values in force after file and environment, passwords hidden.
    Show {
        #[command(flatten)]
        file: File,
        /// Print JSON instead of YAML.
        #[arg(long)]
        json: bool,
    },
    /// Prints the JSON Schema of the file, for editors.
    Schema,
}

/// Which file.
#[derive(Debug, clap::Args)]
pub(super) struct File {
    /// The configuration file; the environment (BEAR__SECTION__KEY) is added to it.
    #[arg(value_name = "FILE", env = "BEAR_CONFIG")]
    file: Option<PathBuf>,
}

/// Loads a file with the process's environment and the given flags.
pub(super) fn load(file: Option<PathBuf>, flags: Vec<Flag>) -> anyhow::Result<config::Loaded> {
    // A variable that is not Unicode cannot be one of ours.
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let environment = std::env::vars_os().filter_map(text).collect();
    Ok(config::load(&Sources { file, environment, flags })?)
}

/// Runs `bear config`.
///
/// # Errors
/// A configuration that cannot be used.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.action {
        Action::Check { file, json } => {
            let loaded = load(file.file, Vec::new())?;
            let checked = runtime()?.block_on(async { loaded.check() })?;
            let report = if json { pretty(&report_json(&checked))? } else { report(&checked) };
            print(&report)?;
        }
        Action::Show { file, json } => {
            let shown = config::show(&load(file.file, Vec::new())?.config);
            let text = if json {
                pretty(&shown)?
            } else {
                serde_saphyr::to_string(&shown).context("cannot write YAML")?
            };
            print(&text)?;
        }
        Action::Schema => print(&pretty(&serde_json::to_value(schemars::schema_for!(Config))?)?)?,
    }
    Ok(())
}

fn pretty(value: &Value) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)?)
}

/// Returns the summary for people.
fn report(checked: &Checked) -> String {
    let Config { routing, listen, .. } = &checked.config;
    let target = routing.default_ttft_target_ms.map_or("none".to_owned(), |ms| format!("{ms} ms"));
    let mut text = format!(
        "The configuration is good.\n\n\
         listens on    {}\npolicy        {} (lambda {} per USD, delta {} per s)\nTTFT target   {target}\n\
         predictors    {}\npool          {} models, {} instances\n",
        listen.address,
        routing.policy.name,
        routing.lambda_per_usd,
        routing.delta_per_s,
        checked.predictor.version(),
        checked.models.len(),
        checked.instances.len(),
    );
    let mut requests = Vec::new();
    for typical in &TYPICAL {
        let (tokens, rows) = config::utilities(checked, typical);
        text.push_str(&table(typical.name, tokens, &rows));
        requests.push(rows);
    }
    for (model, better) in config::outshone(&requests) {
        // A failed write into a string cannot happen.
        let _infallible = write!(
            text,
            "\nwarning: at this lambda `{model}` never wins against `{better}`: it serves only requests that \
             name it or that `{better}` would answer late"
        );
    }
    for warning in &checked.warnings {
        let _infallible = write!(text, "\nwarning: {warning}");
    }
    text
}

fn table(name: &str, tokens: u32, rows: &[ModelUtility]) -> String {
    let width = rows.iter().map(|row| row.model.len()).max().unwrap_or(0).max(5);
    let mut text = format!(
        "\nA {name} request (about {tokens} prompt tokens):\n  {:width$}  accuracy  output tokens    cost USD   utility\n",
        "model"
    );
    let best = rows.iter().filter_map(|row| row.utility).fold(f64::NEG_INFINITY, f64::max);
    let cell = |value: Option<f64>, digits: usize| value.map_or("?".into(), |v| format!("{v:.digits$}"));
    for row in rows {
        let mark = if row.utility == Some(best) { "  <- chosen where in time" } else { "" };
        let _infallible = writeln!(
            text,
            "  {:width$}  {:>8}  {:>13}  {:>10}  {:>8}{mark}",
            row.model,
            cell(row.accuracy, 3),
            cell(row.output_tokens, 0),
            cell(row.cost_usd, 6),
            cell(row.utility, 4),
        );
    }
    text
}

/// Returns the summary for programs.
fn report_json(checked: &Checked) -> Value {
    let mut requests = Vec::new();
    let mut shown = Vec::new();
    for typical in &TYPICAL {
        let (tokens, rows) = config::utilities(checked, typical);
        let models = rows.iter().map(|row| {
            json!({"model": row.model, "accuracy": row.accuracy, "output_tokens": row.output_tokens,
                   "cost_usd": row.cost_usd, "utility": row.utility})
        });
        shown.push(
            json!({"request": typical.name, "prompt_tokens": tokens, "models": models.collect::<Vec<_>>()}),
        );
        requests.push(rows);
    }
    let outshone = config::outshone(&requests);
    json!({
        "policy": checked.config.routing.policy.name,
        "lambda_per_usd": checked.config.routing.lambda_per_usd,
        "predictors": checked.predictor.version(),
        "models": checked.models.len(),
        "instances": checked.instances.len(),
        "typical": shown,
        "never_win": outshone.iter().map(|(model, better)| json!({"model": model, "better": better})).collect::<Vec<_>>(),
        "warnings": checked.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
