//! `bear lab tune`: x.
use clap::Parser;
/// Finds.
#[derive(Debug, Parser)]
pub struct Args {}
/// Runs.
///
/// # Errors
/// None.
pub fn run(_args: Args) -> anyhow::Result<()> {
    Ok(())
}
