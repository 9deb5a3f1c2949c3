//! The `bear` command: one file a subcommand, each with its `Args` and a `run(Args) -> anyhow::Result<()>`.
//!
//! To add a subcommand, add its file, one variant of [`Command`] and one line of [`Command::run`].

pub mod config;
pub mod engine;
pub mod estimate;
pub mod store;

use std::process::ExitCode;

use anyhow::Context;

use clap::{Parser, Subcommand};

/// Routes chat requests over a pool of language models by accuracy, cost and predicted first-token time.
#[derive(Debug, Parser)]
#[command(name = "bear", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The subcommands, in the order of the help text.
#[derive(Debug, Subcommand)]
enum Command {
    Engine(engine::Args),
    /// Checks a configuration, shows what is in force, prints the schema.
    Config(config::Args),
    Estimate(estimate::Args),
    /// Makes, reads and thins the database of decisions.
    Store(store::Args),
}

impl Command {
    fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Engine(args) => engine::run(args),
            Self::Config(args) => config::run(args),
            Self::Estimate(args) => estimate::run(args),
            Self::Store(args) => store::run(args),
        }
    }
}

/// Runs the command line: 0 for success, 1 for a failure, 2 for wrong usage.
#[must_use]
pub fn main() -> ExitCode {
    match Cli::parse().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the runtime of a subcommand that waits on the network or a database.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the async runtime")
}
