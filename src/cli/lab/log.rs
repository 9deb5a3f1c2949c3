//! Logged decisions one at a time, from a database or from the lines of `bear store export`.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, IsTerminal as _, Read},
    path::Path,
    time::Duration,
};

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;

use crate::{
    cli::runtime,
    domain::{Bounds, Endpoint, Named, Needs, Query, Tradeoff},
    lab::whatif::LoggedRow,
    store::{self, DecisionRow, IfMissing, LoggedQuery, Order, Store},
};

/// Rows read at a time.
const PAGE_ROWS: u32 = 512;
/// The first bytes of a SQLite file (SQLite, "Database File Format", 1.2).
const SQLITE_MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Rows between two steps of the progress line.
const PROGRESS_ROWS: u64 = 4096;

/// Hands every row of `source` to `take`, in the order of the log: a store's URL, the file of a SQLite store, a
/// file of JSON lines, or `-` for those on standard input.
///
/// # Errors
/// A source that cannot be opened or read, a line that is no decision, or what `take` says.
pub(super) fn read(
    source: &str,
    mut take: impl FnMut(LoggedRow) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let progress = progress();
    let mut rows = 0_u64;
    let mut take = |row: DecisionRow, score: Option<f64>| {
        rows += 1;
        if rows.is_multiple_of(PROGRESS_ROWS) {
            progress.set_position(rows);
        }
        take(logged(row, score))
    };
    if source.contains("://") || store::entry(source).is_ok() {
        return read_store(source, &mut take);
    }
    if source == "-" {
        return read_lines(io::stdin().lock(), &mut take);
    }
    let file = File::open(Path::new(source)).with_context(|| {
        format!(
            "cannot read `{source}` (hint: name a database such as sqlite://bear.db, or a file that `bear store \
             export --out FILE` wrote)"
        )
    })?;
    let mut reader = BufReader::new(file);
    if reader.fill_buf()?.starts_with(SQLITE_MAGIC) {
        return read_store(&format!("sqlite://{source}"), &mut take);
    }
    read_lines(reader, &mut take)
}

/// A line on a terminal that counts the rows; nothing elsewhere.
fn progress() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {human_pos} rows, {per_sec}, {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

type Take<'a> = dyn FnMut(DecisionRow, Option<f64>) -> anyhow::Result<()> + 'a;

fn read_store(url: &str, take: &mut Take<'_>) -> anyhow::Result<()> {
    runtime()?.block_on(async {
        let store = store::open(url, IfMissing::Fail).await?;
        let mut past = None;
        loop {
            let page = Store::page(store.as_ref(), Order::OldestFirst, past, PAGE_ROWS).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            past = Some(*last);
            for (_, row) in page {
                take(row, None)?;
            }
        }
    })
}

/// What a line may hold beside the row: the answer's score, where somebody judged it.
#[derive(Deserialize)]
struct Judged {
    score: Option<f64>,
}

fn read_lines(input: impl Read, take: &mut Take<'_>) -> anyhow::Result<()> {
    let mut input = BufReader::new(input);
    let mut line = String::new();
    let mut number = 0;
    loop {
        line.clear();
        number += 1;
        if input.read_line(&mut line).with_context(|| format!("cannot read line {number}"))? == 0 {
            return Ok(());
        }
        if line.trim().is_empty() {
            continue;
        }
        let place = || format!("line {number} is not a decision as `bear store export` writes it");
        let row: DecisionRow = serde_json::from_str(&line).with_context(place)?;
        // A second look at every line would double the time for what few logs hold.
        let Judged { score } = match line.contains("\"score\"") {
            true => serde_json::from_str(&line).with_context(place)?,
            false => Judged { score: None },
        };
        if score.is_some_and(|score| !(0.0..=1.0).contains(&score)) {
            bail!("line {number}: `score` must be between 0 and 1");
        }
        take(row, score)?;
    }
}

fn logged(row: DecisionRow, score: Option<f64>) -> LoggedRow {
    let asked = row.query;
    let tradeoff =
        Tradeoff { lambda_per_usd: row.decision.lambda_per_usd, delta_per_s: row.decision.delta_per_s };
    let LoggedQuery { endpoint, modalities, .. } = asked;
    let query = Query {
        id: row.decision.request_id.clone(),
        arrived: row.decided_at,
        tenant: asked.tenant,
        priority: asked.priority,
        adapter: asked.adapter,
        endpoint: match endpoint.as_str() {
            "chat" => Endpoint::Chat,
            "completions" => Endpoint::Completions,
            _ => Endpoint::Other(endpoint),
        },
        named: Named::Virtual,
        requested_model: row.decision.requested_model.clone().unwrap_or_default(),
        needs: Needs {
            modalities: modalities.into_iter().collect(),
            tools: asked.tools,
            structured_output: asked.structured_output,
        },
        streamed: asked.streamed,
        max_output_tokens: asked.max_output_tokens,
        choices: asked.choices,
        ttft_target: duration(row.decision.ttft_target_ms),
        tpot_target: duration(asked.tpot_target_ms),
        bounds: Bounds { min_accuracy: asked.min_accuracy, max_cost_usd: asked.max_cost_usd },
        tradeoff,
        prompts: Vec::new(),
        prefix: [].into(),
    };
    LoggedRow { decision: row.decision, query, outcome: row.outcome, score }
}

fn duration(ms: Option<f64>) -> Option<Duration> {
    ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok())
}
