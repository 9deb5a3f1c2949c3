//! `bear route`: where a running router would send a prompt, and why. Nothing is sent to a model.

use std::{io::Read as _, time::Duration};

use anyhow::{Context, bail};
use clap::Parser;
use serde_json::json;

use super::{print, runtime, table};
use crate::{domain::Decision, wire::openai::ErrorBody};

/// Longest wait for the router's answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Shows where a running router would send a prompt, and why; nothing is sent to a model.
///
///   bear route --ttft-ms 500 "Summarise the plot of Hamlet."
///
///   cat report.txt | bear route --model qwen3-8b -
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The prompt, as one user message; `-` reads it from standard input.
    #[arg(value_name = "PROMPT")]
    prompt: String,
    /// The router's address.
    #[arg(long, value_name = "URL", env = "BEAR_URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// The model to name: the virtual one to choose among all, or a concrete one.
    #[arg(long, value_name = "MODEL", default_value = "auto")]
    model: String,
    /// The TTFT target, milliseconds.
    #[arg(long, value_name = "MS")]
    ttft_ms: Option<f64>,
    /// Least predicted accuracy, from 0 to 1.
    #[arg(long, value_name = "ACCURACY")]
    min_accuracy: Option<f64>,
    /// Most predicted cost, USD.
    #[arg(long, value_name = "USD")]
    max_cost_usd: Option<f64>,
    /// Cap on output tokens.
    #[arg(long, value_name = "TOKENS")]
    max_tokens: Option<u32>,
    /// The key to send as `authorization: Bearer KEY`.
    #[arg(long, value_name = "KEY", env = "BEAR_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// Print the decision as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `bear route`.
///
/// # Errors
/// A router that cannot be reached, or its refusal.
pub fn run(args: Args) -> anyhow::Result<()> {
    let prompt = match args.prompt.as_str() {
        "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            text
        }
        prompt => prompt.to_owned(),
    };
    let decision = runtime()?.block_on(ask(&args, &prompt))?;
    if args.json {
        return print(&serde_json::to_string_pretty(&decision)?);
    }
    print(&table::render(&decision))
}

async fn ask(args: &Args, prompt: &str) -> anyhow::Result<Decision> {
    let mut body =
        json!({"model": args.model, "messages": [{"role": "user", "content": prompt}], "stream": true});
    if let Some(tokens) = args.max_tokens {
        body["max_tokens"] = tokens.into();
    }
    let url = format!("{}/v1/route", args.url.trim_end_matches('/'));
    let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build()?;
    let mut request = client.post(&url).header("content-type", "application/json").body(body.to_string());
    for (name, value) in [
        ("x-slo-ttft-ms", args.ttft_ms),
        ("x-bear-min-accuracy", args.min_accuracy),
        ("x-bear-max-cost-usd", args.max_cost_usd),
    ] {
        if let Some(value) = value {
            request = request.header(name, value.to_string());
        }
    }
    if let Some(key) = &args.api_key {
        request = request.bearer_auth(key);
    }
    let hint =
        || format!("no answer from {url} (hint: is `bear serve` running there? --url names another address)");
    let response = request.send().await.with_context(hint)?;
    let status = response.status();
    let bytes = response.bytes().await.with_context(hint)?;
    if !status.is_success() {
        match serde_json::from_slice::<ErrorBody>(&bytes) {
            Ok(body) => bail!("the router refuses: {}", body.error.message),
            Err(_) => bail!("{url} answered {status} (hint: --url must name a BEAR router)"),
        }
    }
    serde_json::from_slice(&bytes).with_context(|| format!("{url} answered something else than a decision"))
}
