//! `bear-train`: the command line of the trainer.

mod cli;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    match cli::run(cli::Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bear-train: {error:#}");
            ExitCode::FAILURE
        }
    }
}
