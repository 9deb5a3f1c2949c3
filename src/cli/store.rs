//! `bear store`: makes, reads and thins the database of decisions.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, ensure};
use clap::{Parser, Subcommand};

use super::{print, runtime};
use crate::{
    domain::{Now, Timestamp},
    store::{self, Cursor, DecisionRow, IfMissing, Order, Store, StoreConfig},
    telemetry::clock::LiveClock,
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
        #[arg(long, value_name = "DAYS")]
        older_than_days: f64,
    },
}

/// Which database.
#[derive(Debug, clap::Args)]
pub(super) struct Target {
    /// The database, such as sqlite://bear.db.
    #[arg(long = "store", value_name = "URL", env = "BEAR__STORE__URL", default_value_t = default_url())]
    url: String,
}

impl Target {
    /// Opens the database, making it where it is missing.
    async fn create(&self) -> anyhow::Result<Arc<dyn Store>> {
        Ok(store::open(&self.url, IfMissing::Create).await?)
    }

    /// Opens the database that is there.
    pub(super) async fn open(&self) -> anyhow::Result<Arc<dyn Store>> {
        Ok(store::open(&self.url, IfMissing::Fail).await?)
    }
}

fn default_url() -> String {
    StoreConfig::default().url.unwrap_or_default()
}

/// Runs `bear store`.
///
/// # Errors
/// A database that cannot be opened, read or written, or a file that cannot.
pub fn run(args: Args) -> anyhow::Result<()> {
    runtime()?.block_on(async {
        match args.action {
            Action::Migrate { target } => {
                target.create().await?;
                print(&format!("{} has the present schema", target.url))
            }
            Action::Export { target, out } => {
                let store = target.open().await?;
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
                let store = target.create().await?;
                let rows = if file.as_os_str() == "-" {
                    import(store.as_ref(), io::stdin().lock()).await?
                } else {
                    let input =
                        File::open(&file).with_context(|| format!("cannot read {}", file.display()))?;
                    import(store.as_ref(), BufReader::new(input)).await?
                };
                print(&format!("{rows} rows read into {}", target.url))
            }
            Action::Prune { target, older_than_days } => {
                let before = days_before(LiveClock::new().now(), older_than_days)?;
                let rows = target.open().await?.prune(before).await?;
                print(&format!("{rows} rows deleted from {}", target.url))
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

fn days_before(now: Timestamp, days: f64) -> anyhow::Result<Timestamp> {
    ensure!(
        days.is_finite() && days >= 0.0,
        "--older-than-days takes a number of days from 0 up, not {days}"
    );
    let age = Duration::try_from_secs_f64(days * 86_400.0).unwrap_or(Duration::MAX);
    let age_us = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
    Ok(Timestamp::from_unix_us(now.unix_us().saturating_sub(age_us)))
}
