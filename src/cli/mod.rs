//! The `bear` command: one file a subcommand, each with its `Args` and a `run(Args) -> anyhow::Result<()>`.
//!
//! To add a subcommand, add its file, one variant of `Command` and one line of `Command::run`.

pub mod config;
pub mod demo;
pub mod engine;
pub mod estimate;
pub mod explain;
pub mod features;
mod json_lines;
pub mod lab;
mod number;
mod output;
pub mod predict;
mod prompt_lines;
pub mod route;
pub mod serve;
pub mod store;
mod table;

use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};

pub(crate) use output::print;

/// Routes chat requests over a pool of language models by accuracy, cost and predicted first-token time.
#[derive(Debug, Parser)]
#[command(
    name = "bear",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 success, 1 failure, 2 wrong usage. `bear COMMAND --help` says more."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The subcommands, in the order of the help text.
#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Args),
    Demo(demo::Args),
    Engine(engine::Args),
    Estimate(estimate::Args),
    Predict(predict::Args),
    Features(features::Args),
    Route(route::Args),
    Explain(explain::Args),
    Lab(lab::Args),
    Config(config::Args),
    Store(store::Args),
}

impl Command {
    fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Serve(args) => serve::run(args),
            Self::Demo(args) => demo::run(args),
            Self::Engine(args) => engine::run(args),
            Self::Estimate(args) => estimate::run(args),
            Self::Predict(args) => predict::run(args),
            Self::Features(args) => features::run(args),
            Self::Route(args) => route::run(args),
            Self::Explain(args) => explain::run(args),
            Self::Lab(args) => lab::run(args),
            Self::Config(args) => config::run(args),
            Self::Store(args) => store::run(args),
        }
    }
}

/// Runs the command line: 0 for success, 1 for a failure, 2 for wrong usage.
#[must_use]
pub fn main() -> ExitCode {
    match Cli::parse().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        // A reader that has seen enough (`bear … | head`) is no failure.
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", output::explained(&error));
            ExitCode::FAILURE
        }
    }
}

/// Builds the runtime of a subcommand that waits on the network or a database.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the async runtime")
}

#[cfg(test)]
mod tests;
