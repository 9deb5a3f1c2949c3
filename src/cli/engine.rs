//! `bear engine`: one simulated serving instance over HTTP.

use clap::builder::PossibleValuesParser;

use super::{number::positive, print, serve::Signals};
use crate::{
    simengine::{self, Options, SimEngineError, load_profile},
    telemetry::{self, TelemetryConfig},
    truth::{PROFILES, Profile, fit},
};

/// What `--verbose` logs: a line a request.
const VERBOSE_LOG: &str = "warn,bear::simengine=info";

/// Serves a simulated engine: vLLM's HTTP interface and batching rules with the timing of real hardware,
/// without a model or a GPU.
///
/// It answers with meaningless words whose number and speed are those of the model. Try one, then ask it:
///
///   bear engine --profile qwen3-8b-h100 --port 9001
///
///   curl -N localhost:9001/v1/chat/completions -H 'content-type: application/json' \
///     -d '{"model":"qwen3-8b","stream":true,"messages":[{"role":"user","content":"Hello"}]}'
///
/// `metadata.task` in a request (instruction-following, question-answering, summarisation or
/// creative-writing) says how long its answer is; without it the prompt's length does. The state that a
/// router reads is at /bear/snapshot, metrics under vLLM's names are at /metrics.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// What to simulate: the name of a built-in profile (see --list) or a YAML file of the same form.
    #[arg(long, value_name = "NAME|FILE", default_value = "qwen3-8b-h100", value_parser = known_profile)]
    profile: String,
    /// Lists the built-in profiles and ends.
    #[arg(long)]
    list: bool,
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port to listen on; 0 takes any free one.
    #[arg(long, default_value_t = 9001)]
    port: u16,
    /// Simulated seconds a real second: 10 is ten times faster than the hardware (a router's coefficients
    /// for it are then a tenth of the profile's).
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = positive)]
    time_scale: f64,
    /// Fixes answers and timing noise: the same seed and order of requests give the same.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Serves the profile under another model name.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// The instance's name in snapshots [default: the model's name and -0].
    #[arg(long, value_name = "INSTANCE")]
    name: Option<String>,
    /// Whether batches take a little more or less time at random, as real ones do.
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    #[arg(value_parser = PossibleValuesParser::new(["on", "off"]))]
    noise: String,
    /// Says a line on standard error for every request that ended: its tokens and times.
    #[arg(long, short)]
    verbose: bool,
    /// Prints the estimator's coefficients fitted to the profile, as YAML, and ends.
    #[arg(long, hide = true)]
    fit: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// Fails on a profile that cannot be used and an address that cannot be listened on.
pub fn run(args: Args) -> anyhow::Result<()> {
    if args.list {
        return list();
    }
    let mut profile = load_profile(&args.profile)?;
    if args.fit {
        let yaml = fit::to_yaml(&fit::fit_profile(&args.profile, &profile, args.seed)?)?;
        return print(&yaml);
    }
    if let Some(model) = args.model {
        profile.model = model;
    }
    if args.noise == "off" {
        profile.step_noise_sigma = 0.0;
    }
    let options = Options {
        host: args.host,
        port: args.port,
        time_scale: args.time_scale,
        seed: args.seed,
        name: args.name,
    };
    super::runtime()?.block_on(async {
        let log = if args.verbose { VERBOSE_LOG } else { "warn" };
        let guard = telemetry::init(&TelemetryConfig { log: log.into(), ..TelemetryConfig::default() })?;
        let served = serve(profile, options).await;
        guard.shutdown().await;
        served
    })
}

/// Takes a profile's name or path; a name that no profile has is wrong usage.
fn known_profile(name_or_file: &str) -> Result<String, SimEngineError> {
    match load_profile(name_or_file) {
        Err(error @ SimEngineError::UnknownProfile { .. }) => Err(error),
        _ => Ok(name_or_file.to_owned()),
    }
}

async fn serve(profile: Profile, options: Options) -> anyhow::Result<()> {
    let (model, hardware, time_scale) = (profile.model.clone(), profile.hardware.clone(), options.time_scale);
    let end = Signals::catch()?;
    let engine = simengine::spawn(profile, options).await?;
    print(&format!(
        "simulated {model} ({hardware}, time scale {time_scale}) listens on http://{}\nCtrl-C ends it.",
        engine.addr()
    ))?;
    end.wait().await;
    engine.shutdown().await;
    Ok(())
}

fn list() -> anyhow::Result<()> {
    let mut text = String::new();
    for entry in PROFILES {
        let profile = Profile::built_in(entry.name)?;
        text.push_str(&format!("{:<20} {} on {}\n", entry.name, profile.model, profile.hardware));
    }
    print(&text)
}
