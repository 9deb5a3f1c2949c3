//! `bear lab`: tries routers on a simulated fleet in virtual time.

mod figures;
mod results;
mod run;
mod supplies;

use clap::Subcommand;

/// Compares routers over a simulated fleet, in virtual time, with the code that serves.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Figures(figures::Args),
}

/// Runs the subcommand.
///
/// # Errors
/// What its own subcommand fails on.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Run(args) => run::run(args),
        Command::Figures(args) => figures::run(args),
    }
}
