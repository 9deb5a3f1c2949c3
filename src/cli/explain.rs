//! `bear explain`: why a logged request went where it went, and what came of it.

use std::fmt::Write as _;

use anyhow::bail;
use clap::Parser;

use super::{print, runtime, store::Target, table};
use crate::{
    domain::Timestamp,
    store::{DecisionRow, IfMissing},
};

/// Shows why a logged request went where it went, and what came of it.
#[derive(Debug, Parser)]
pub struct Args {
    /// The request's id, as the response header x-request-id gave it.
    #[arg(value_name = "REQUEST_ID")]
    request_id: String,
    #[command(flatten)]
    target: Target,
    /// Print the logged rows as a JSON array, one row an attempt.
    #[arg(long)]
    json: bool,
}

/// Runs `bear explain`.
///
/// # Errors
/// A database that cannot be opened, or a request that it does not know.
pub fn run(args: Args) -> anyhow::Result<()> {
    let rows = runtime()?.block_on(async {
        let (store, _) = args.target.open(IfMissing::Fail).await?;
        anyhow::Ok(store.attempts(&args.request_id).await?)
    })?;
    if rows.is_empty() {
        bail!(
            "no decision is logged for request `{}` (hint: the response header x-request-id names it; a row is \
             written when the answer has ended)",
            args.request_id
        );
    }
    if args.json {
        return print(&serde_json::to_string_pretty(&rows)?);
    }
    let attempts = rows.len();
    let parts = rows.iter().enumerate().map(|(i, row)| {
        let head = format!("request {}, attempt {} of {attempts}", row.decision.request_id, i + 1);
        format!(
            "{head}, decided {}\n\n{}\n{}",
            utc(row.decided_at),
            table::render(&row.decision),
            came_of(row)
        )
    });
    print(&parts.collect::<Vec<_>>().join("\n"))
}

/// Returns the predicted beside the realised.
fn came_of(row: &DecisionRow) -> String {
    let chosen = row.decision.chosen();
    let outcome = &row.outcome;
    let value = |value: Option<f64>, digits: usize, unit: &str| {
        value.map_or("?".to_owned(), |value| format!("{value:.digits$}{unit}"))
    };
    let ms = |seconds: Option<f64>| value(seconds.map(|s| s * 1e3), 1, " ms");
    let mut text = format!(
        "What came of it: {}\n  {:<14} {:>12} {:>12}\n",
        outcome.ending.label(),
        "",
        "predicted",
        "realised"
    );
    let seen = if row.query.streamed { ms(outcome.ttft_s) } else { "not streamed".into() };
    let tokens = |count: Option<u32>| value(count.map(f64::from), 0, "");
    for (name, predicted, realised) in [
        ("TTFT", ms(chosen.and_then(|c| c.ttft_s)), seen),
        ("prompt tokens", tokens(chosen.map(|c| c.prompt_tokens)), tokens(outcome.prompt_tokens)),
        ("output tokens", value(chosen.and_then(|c| c.output_tokens), 0, ""), tokens(outcome.output_tokens)),
        ("cost USD", value(chosen.and_then(|c| c.cost_usd), 6, ""), value(outcome.cost_usd, 6, "")),
        ("whole answer", "-".into(), ms(Some(outcome.e2e_s))),
    ] {
        // A failed write into a string cannot happen.
        let _infallible = writeln!(text, "  {name:<14} {predicted:>12} {realised:>12}");
    }
    text
}

/// Returns an instant as `2026-11-30 04:05:06.789 UTC`.
fn utc(at: Timestamp) -> String {
    let ms = at.unix_us() / 1000;
    let (days, ms) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{:03} UTC", ms % 1000)
}

/// Returns year, month and day of a day counted from 1970-01-01 in the Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    // Eras of 400 years begin on 1 March of year 0, which puts the leap day at a year's end.
    const DAYS_TO_1970: u64 = 719_468;
    const ERA_DAYS: u64 = 146_097;
    let days = days + DAYS_TO_1970;
    let (era, day_of_era) = (days / ERA_DAYS, days % ERA_DAYS);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_read_as_dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00.000 UTC"),
            (951_782_400, "2000-02-29 00:00:00.000 UTC"),
            (951_868_799, "2000-02-29 23:59:59.000 UTC"),
            (1_764_460_800, "2025-11-30 00:00:00.000 UTC"),
            (4_102_444_800, "2100-01-01 00:00:00.000 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00.000 UTC"),
        ] {
            assert_eq!(utc(Timestamp::from_unix_us(seconds * 1_000_000)), text);
        }
        assert_eq!(utc(Timestamp::from_unix_us(1_234_567)), "1970-01-01 00:00:01.234 UTC");
    }
}
