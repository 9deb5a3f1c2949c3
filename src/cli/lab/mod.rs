//! `bear lab`: tries routers on a simulated fleet in virtual time, and on logged decisions.

pub mod figures;
mod log;
pub mod replay;
mod replay_text;
mod results;
mod run;
mod supplies;
pub mod tune;
mod workers;

use clap::{Parser, Subcommand};

/// Tries routers before any of it is real: over a simulated fleet, in virtual time, and on logged decisions.
#[derive(Debug, Parser)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Run(run::Args),
    Figures(figures::Args),
    Replay(replay::Args),
    Tune(tune::Args),
}

/// Runs `bear lab`.
///
/// # Errors
/// Those of its subcommands.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.action {
        Action::Run(args) => run::run(args),
        Action::Figures(args) => figures::run(args),
        Action::Replay(args) => replay::run(args),
        Action::Tune(args) => tune::run(args),
    }
}
