//! `bear lab`: tries routers in virtual time, and shows what they did.

pub mod figures;

use clap::{Parser, Subcommand};

/// Tries routers before any of it is real: over a simulated fleet, in virtual time.
#[derive(Debug, Parser)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Figures(figures::Args),
}

/// Runs `bear lab`.
///
/// # Errors
/// Those of its subcommands.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.action {
        Action::Figures(args) => figures::run(args),
    }
}
