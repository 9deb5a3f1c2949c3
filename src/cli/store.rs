//! `bear store`: makes, reads and thins the database of decisions.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use clap::{Parser, Subcommand};

use super::{config::load, print, runtime};
use crate::{
    domain::{Now, Timestamp},
    store::{self, Cursor, DecisionRow, IfMissing, Order, Store},
    telemetry::{clock::LiveClock, without_secrets},
};

/// Rows read or written at a time.
const PAGE_ROWS: u32 = 256;

/// Makes, reads and thins the database of decisions.
#[derive(Debug, Parser)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Creates the database or brings its tables to this version's schema.
    Migrate {
        #[command(flatten)]
        target: Target,
    },
    /// Writes every decision as one JSON line, oldest first.
    Export {
        #[command(flatten)]
        target: Target,
        /// Where to write; standard output if absent.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Reads decisions from JSON lines as `export` writes them; known attempts are left alone.
    Import {
        #[command(flatten)]
        target: Target,
        /// The file to read; `-` is standard input.
        file: PathBuf,
    },
    /// Deletes decisions older than the given number of days.
    Prune {
        #[command(flatten)]
        target: Target,
        /// Decisions older than this many days are deleted; fractions are fine.
        #[arg(long, value_name = "DAYS", value_parser = days, allow_negative_numbers = true)]
        older_than_days: f64,
    },
}

/// Which database.
#[derive(Debug, clap::Args)]
pub(super) struct Target {
    /// The database, such as sqlite://bear.db (a relative file is looked for in the working directory);
    /// absent: `store.url` of the configuration, where BEAR__STORE__URL sets it too.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The configuration file whose `store.url` names the database.
    #[arg(long, value_name = "FILE", env = "BEAR_CONFIG")]
    config: Option<PathBuf>,
}

impl Target {
    /// Opens the database; also returns its URL as it may be shown.
    pub(super) async fn open(self, missing: IfMissing) -> anyhow::Result<(Arc<dyn Store>, String)> {
        let url = match self.store {
            Some(url) => url,
            None => load(self.config, Vec::new())?
                .config
                .store
                .url
                .context("the configuration keeps no decisions: `store.url` is null (hint: name a database with --store)")?,
        };
        Ok((store::open(&url, missing).await?, without_secrets(&url)))
    }
}

/// Runs `bear store`.
///
/// # Errors
/// A database that cannot be opened, read or written, or a file that cannot.
pub fn run(args: Args) -> anyhow::Result<()> {
    runtime()?.block_on(async {
        match args.action {
            Action::Migrate { target } => {
                let (_, url) = target.open(IfMissing::Create).await?;
                print(&format!("{url} has the present schema"))
            }
            Action::Export { target, out } => {
                let (store, _) = target.open(IfMissing::Fail).await?;
                match out {
                    None => export(store.as_ref(), io::stdout().lock()).await,
                    Some(path) => {
                        let file = File::create(&path)
                            .with_context(|| format!("cannot write {}", path.display()))?;
                        export(store.as_ref(), file).await
                    }
                }
            }
            Action::Import { target, file } => {
                let (store, url) = target.open(IfMissing::Create).await?;
                let rows = if file.as_os_str() == "-" {
                    import(store.as_ref(), io::stdin().lock()).await?
                } else {
                    let input =
                        File::open(&file).with_context(|| format!("cannot read {}", file.display()))?;
                    import(store.as_ref(), BufReader::new(input)).await?
                };
                print(&format!("{rows} rows read into {url}"))
            }
            Action::Prune { target, older_than_days } => {
                let before = days_before(LiveClock::new().now(), older_than_days);
                let (store, url) = target.open(IfMissing::Fail).await?;
                let rows = store.prune(before).await?;
                print(&format!("{rows} rows deleted from {url}"))
            }
        }
    })
}

async fn export(store: &dyn Store, out: impl Write) -> anyhow::Result<()> {
    let mut out = BufWriter::new(out);
    let mut past: Option<Cursor> = None;
    loop {
        let page = store.page(Order::OldestFirst, past, PAGE_ROWS).await?;
        let Some((last, _)) = page.last() else { break };
        past = Some(*last);
        for (_, row) in &page {
            serde_json::to_writer(&mut out, row)?;
            out.write_all(b"\n")?;
        }
    }
    Ok(out.flush()?)
}

async fn import(store: &dyn Store, input: impl BufRead) -> anyhow::Result<u64> {
    let mut rows: Vec<DecisionRow> = Vec::new();
    let mut count = 0;
    for (index, line) in input.lines().enumerate() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let row = serde_json::from_str(&line).with_context(|| {
            format!("line {} is not a decision as `bear store export` writes it", index + 1)
        })?;
        rows.push(row);
        count += 1;
        if rows.len() >= PAGE_ROWS as usize {
            store.append(&rows).await?;
            rows.clear();
        }
    }
    store.append(&rows).await?;
    Ok(count)
}

/// Reads the value of `--older-than-days`.
fn days(text: &str) -> Result<f64, String> {
    let days = text.parse::<f64>().ok().filter(|days| days.is_finite() && *days >= 0.0);
    days.ok_or_else(|| "a number of days from 0 up is expected".into())
}

fn days_before(now: Timestamp, days: f64) -> Timestamp {
    let age = Duration::try_from_secs_f64(days * 86_400.0).unwrap_or(Duration::MAX);
    let age_us = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
    Timestamp::from_unix_us(now.unix_us().saturating_sub(age_us))
}
