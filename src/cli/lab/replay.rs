//! `bear lab replay`: a logged day under another λ, δ, policy, pool or price.

use anyhow::{Context, bail, ensure};
use clap::{Parser, ValueEnum};
use serde_json::{Map, Value};

use super::{log, replay_text};
use crate::{
    cli::print,
    domain::Price,
    lab::whatif::{Change, Rules, Study, Unestimated},
    policy::PolicyConfig,
};

/// Asks a log what would have been under another λ, δ, policy, pool or price.
///
/// Two blocks come out, and they never mix. `predicted` is what the router had predicted for the choices that
/// would have been made. `observed` uses outcomes alone: of the requests that would have gone where they went,
/// weighted by how likely both policies were to send them there. Each says when the log cannot answer. Both
/// hold every queue as it was: for what a change does to load, simulate with `bear lab run`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    bear lab replay sqlite://bear.db --lambda 1000\n  \
    bear lab replay day.jsonl --policy bear-lagrangian --delta 0.5\n  \
    bear lab replay bear.db --without qwen3-32b --price qwen3-8b=0.05/0.2 --json\n\n\
    Which logs can answer: a row holds only the estimates that its policy asked for. `bear` goes from the best model\n\
    down and stops at the first in time. Its log can tell of other weights, prices and pools as far as they choose\n\
    among the models it came to; a choice that hangs on one it never came to is left out, or assumed\n\
    (--unestimated). `bear-lagrangian` with a delta above 0 asks about every instance. Choices that hang on queues,\n\
    caches or what a policy has learned are in no log. Observed numbers need a log whose choices were drawn, among\n\
    replicas that tie for instance, or a round robin (--turns-as-draws).")]
pub struct Args {
    /// The log: a store (sqlite://bear.db, or its file), lines of `bear store export`, or `-` for those on
    /// standard input. A line may carry the answer's `score` (0 to 1) beside the row.
    #[arg(value_name = "STORE|FILE")]
    source: String,
    /// λ: utility given up per USD; absent: each row's own.
    #[arg(long, value_name = "PER_USD", value_parser = weight, allow_negative_numbers = true)]
    lambda: Option<f64>,
    /// δ: utility given up per second of TTFT; absent: each row's own.
    #[arg(long, value_name = "PER_S", value_parser = weight, allow_negative_numbers = true)]
    delta: Option<f64>,
    /// The policy, such as `bear` or `shortest-queue`; absent: the one each row names.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// An option of that policy; may be given again.
    #[arg(long = "option", value_name = "KEY=VALUE", value_parser = option, requires = "policy")]
    options: Vec<(String, Value)>,
    /// Instances to take out of the pool, or models for all of theirs.
    #[arg(long, value_name = "INSTANCE", num_args = 1.., value_delimiter = ',')]
    without: Vec<String>,
    /// The only instances to leave in the pool, or models for all of theirs.
    #[arg(long, value_name = "INSTANCE", num_args = 1.., value_delimiter = ',')]
    only: Vec<String>,
    /// A model's price in USD per million tokens: input, output and, if it differs, cached input.
    #[arg(long = "price", value_name = "MODEL=IN/OUT[/CACHED]", value_parser = price)]
    prices: Vec<(String, Price)>,
    /// What a TTFT that was never estimated counts as, in the predicted block alone.
    ///
    /// A row holds the estimates that its policy asked for, no others. `refuse` leaves a request out whose new
    /// choice hangs on one that is missing; `in-time` and `late` assume them all within the target, or all past it,
    /// and so show both ends. What the prompt alone takes is heeded: an instance ruled out by it stays late.
    #[arg(long, value_name = "HOW", default_value = "refuse")]
    unestimated: HowUnestimated,
    /// Count each turn of a logged round robin as a draw among the eligible: sound where the turn has nothing to
    /// do with what a request is.
    #[arg(long)]
    turns_as_draws: bool,
    /// Least effective rows of an observed number.
    #[arg(long, value_name = "ROWS", default_value_t = Rules::default().least_effective_rows, value_parser = weight)]
    min_effective_rows: f64,
    /// Least share of the rows that the observed block must cover.
    #[arg(long, value_name = "SHARE", default_value_t = Rules::default().least_coverage, value_parser = share)]
    min_coverage: f64,
    /// Seed of the draws of policies that draw.
    #[arg(long, default_value_t = Rules::default().seed)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The values of `--unestimated`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum HowUnestimated {
    Refuse,
    InTime,
    Late,
}

impl From<HowUnestimated> for Unestimated {
    fn from(how: HowUnestimated) -> Self {
        match how {
            HowUnestimated::Refuse => Self::Refuse,
            HowUnestimated::InTime => Self::InTime,
            HowUnestimated::Late => Self::Late,
        }
    }
}

/// Runs `bear lab replay`.
///
/// # Errors
/// A log that cannot be read or is empty, or a name that it or bear does not know.
pub fn run(args: Args) -> anyhow::Result<()> {
    let rules = Rules {
        least_effective_rows: args.min_effective_rows,
        least_coverage: args.min_coverage,
        turns_as_draws: args.turns_as_draws,
        seed: args.seed,
    };
    let options: Map<String, Value> = args.options.into_iter().collect();
    let change = Change {
        lambda_per_usd: args.lambda,
        delta_per_s: args.delta,
        policy: args.policy.map(|name| PolicyConfig { name, options }),
        without: args.without.into_iter().collect(),
        only: args.only.into_iter().collect(),
        prices: args.prices.into_iter().collect(),
        unestimated: args.unestimated.into(),
    };
    let mut study = Study::new(change, rules)?;
    log::read(&args.source, |row| {
        let logged = "the log names a policy that this version of bear lacks (hint: name one with --policy)";
        study.add(&row).context(logged)
    })?;
    let report = study.report();
    ensure!(
        report.rows.first_attempts > 0,
        "`{}` holds no first attempt with a decision table (hint: a row is written when an answer has ended)",
        crate::telemetry::without_secrets(&args.source)
    );
    let unseen: Vec<String> = study.replayer().unseen().collect();
    if !unseen.is_empty() {
        let mut seen: Vec<&str> = study.replayer().seen().collect();
        seen.sort_unstable();
        bail!("the log never saw `{}`; it has {}", unseen.join("`, `"), seen.join(", "));
    }
    if args.json {
        return print(&serde_json::to_string_pretty(&report)?);
    }
    print(&replay_text::render(&report))
}

fn weight(text: &str) -> anyhow::Result<f64> {
    let value: f64 = text.parse()?;
    ensure!(value.is_finite() && value >= 0.0, "a finite number from 0 up is expected");
    Ok(value)
}

fn share(text: &str) -> anyhow::Result<f64> {
    let value: f64 = text.parse()?;
    ensure!((0.0..=1.0).contains(&value), "a share from 0 to 1 is expected");
    Ok(value)
}

/// Reads `KEY=VALUE`; a value that is no JSON is text.
fn option(text: &str) -> anyhow::Result<(String, Value)> {
    let Some((key, value)) = text.split_once('=') else { bail!("KEY=VALUE is expected") };
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok((key.to_owned(), value))
}

fn price(text: &str) -> anyhow::Result<(String, Price)> {
    let expected = "MODEL=IN/OUT or MODEL=IN/OUT/CACHED is expected, in USD per million tokens";
    let Some((model, prices)) = text.split_once('=') else { bail!(expected) };
    let prices = prices.split('/').map(weight).collect::<anyhow::Result<Vec<f64>>>()?;
    let (input, output, cached) = match prices[..] {
        [input, output] => (input, output, None),
        [input, output, cached] => (input, output, Some(cached)),
        _ => bail!(expected),
    };
    let price =
        Price { input_usd_per_mtok: input, output_usd_per_mtok: output, cached_input_usd_per_mtok: cached };
    Ok((model.to_owned(), price))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_two_or_three_numbers() {
        let (model, price) = self::price("qwen3-8b=0.072/0.287").unwrap();
        assert_eq!((model.as_str(), price.input_usd_per_mtok), ("qwen3-8b", 0.072));
        assert_eq!((price.output_usd_per_mtok, price.cached_input_usd_per_mtok), (0.287, None));
        assert_eq!(self::price("m=1/2/0.1").unwrap().1.cached_input_usd_per_mtok, Some(0.1));
        for wrong in ["m", "m=1", "m=1/2/3/4", "m=a/b", "m=-1/2", "m=1/inf"] {
            assert!(self::price(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_option_is_json_or_text() {
        assert_eq!(option("k=2.5").unwrap(), ("k".into(), Value::from(2.5)));
        assert_eq!(option("k=fast").unwrap(), ("k".into(), Value::from("fast")));
        assert!(option("k").is_err());
    }
}
