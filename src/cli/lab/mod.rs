//! `bear lab`: tries routers in virtual time, and on logged decisions.

mod log;
pub mod replay;
mod replay_text;
pub mod tune;

use clap::{Parser, Subcommand};

/// Tries routers before any of it is real: on logged decisions, and over a simulated fleet.
#[derive(Debug, Parser)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Replay(replay::Args),
    Tune(tune::Args),
}

/// Runs `bear lab`.
///
/// # Errors
/// Those of its subcommands.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.action {
        Action::Replay(args) => replay::run(args),
        Action::Tune(args) => tune::run(args),
    }
}
