//! The `bear` command: one file a subcommand, each with its `Args` and a `run(Args) -> anyhow::Result<()>`.
//!
//! To add a subcommand, add its file, one variant of [`Command`] and one line of [`Command::run`].

pub mod config;
pub mod engine;
pub mod estimate;
pub mod explain;
pub mod route;
pub mod serve;
pub mod store;
mod table;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use anyhow::Context;
use clap::{Parser, Subcommand};

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
    Engine(engine::Args),
    Estimate(estimate::Args),
    Route(route::Args),
    Explain(explain::Args),
    Config(config::Args),
    Store(store::Args),
}

impl Command {
    fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Serve(args) => serve::run(args),
            Self::Engine(args) => engine::run(args),
            Self::Estimate(args) => estimate::run(args),
            Self::Route(args) => route::run(args),
            Self::Explain(args) => explain::run(args),
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
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", explained(&error));
            ExitCode::FAILURE
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// Returns an error with its causes, a line each; a cause that the line before already quotes is left out.
fn explained(error: &anyhow::Error) -> String {
    let mut text = format!("error: {error}");
    let mut before = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !before.contains(&cause) {
            text.push_str("\n  caused by: ");
            text.push_str(&cause);
        }
        before = cause;
    }
    text
}

/// Writes a text and a line feed to standard output.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.trim_end().as_bytes())?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Builds the runtime of a subcommand that waits on the network or a database.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the async runtime")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_subcommand_and_option_says_what_it_does() {
        fn check(command: &clap::Command) {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "`{name}` has no help");
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "`{name}`: {:?} has no help", argument.get_id());
            }
            command.get_subcommands().for_each(check);
        }
        let mut command = Cli::command();
        command.build();
        check(&command);
    }

    #[test]
    fn causes_are_told_once() {
        let error = anyhow::anyhow!("disk full").context("cannot write: disk full").context("export failed");
        assert_eq!(explained(&error), "error: export failed\n  caused by: cannot write: disk full");
        let pipe = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).context("printing");
        assert!(is_closed_pipe(&pipe) && !is_closed_pipe(&error));
    }
}
