//! `bear lab figures`: the paper's figures from run lines, and one page that puts its numbers beside ours.
//!
//! To add a figure: a function that makes its picture, and a line in `list.rs`.

mod gains;
mod inputs;
mod latency;
mod lengths;
mod list;
mod look;
mod measures;
mod notes;
mod paper;
mod reading;
mod report;
mod routing;
mod tables;
#[cfg(test)]
mod tests;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;

use super::run::{Play, play_built_in};
use crate::{cli::print, draw};
use inputs::Inputs;
use list::FIGURES;
use notes::Notes;
use reading::{read, read_results};

/// Pixels of a PNG a unit of its SVG: sharp on a dense screen and in print.
const PNG_SCALE: f32 = 2.0;
/// The notes that ship.
const NOTES: &str = include_str!("../../../../config/scenarios/notes.yaml");

/// Draws the paper's figures from a folder of results, and a page that puts its numbers beside ours.
///
/// Writes figure-NN.svg, figure-NN.png and index.html. A figure whose scenario has no results keeps its place
/// on the page, with what to run for it. The same results give the same files.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The folder of results: every *.jsonl in it, one run a line.
    #[arg(default_value = "lab-results")]
    results: PathBuf,
    /// Where to write; made if it is not there.
    #[arg(long, value_name = "DIR", default_value = "figures")]
    out: PathBuf,
    /// Verdicts and reasons by figure [default: those built in, config/scenarios/notes.yaml].
    #[arg(long, value_name = "FILE")]
    notes: Option<PathBuf>,
    /// Leaves the PNG files out.
    #[arg(long)]
    svg_only: bool,
    /// Plays the built-in scenarios first, as `bear lab run` does; what is there already is not played again.
    #[arg(long)]
    play: bool,
    #[command(flatten)]
    how: Play,
}

/// Runs `bear lab figures`.
///
/// # Errors
/// Results or notes cannot be read, or the files cannot be written.
pub(super) fn run(args: Args) -> anyhow::Result<()> {
    let notes = match &args.notes {
        None => Notes::parse(NOTES).context("the built-in notes")?,
        Some(file) => Notes::parse(&read(file)?).with_context(|| format!("`{}`", file.display()))?,
    };
    if args.play {
        play_built_in(&args.how, &args.results)?;
    }
    let inputs = Inputs { lines: read_results(&args.results)?, batches: latency::batches()? };
    fs::create_dir_all(&args.out).with_context(|| format!("cannot make `{}`", args.out.display()))?;
    let mut drawn = Vec::new();
    for figure in FIGURES {
        let Some(picture) = (figure.make)(&inputs) else {
            drawn.push(None);
            continue;
        };
        let svg = draw::svg(&picture)?;
        write(&args.out.join(format!("{}.svg", figure.id())), svg.as_bytes())?;
        if !args.svg_only {
            write(&args.out.join(format!("{}.png", figure.id())), &draw::png(&svg, PNG_SCALE)?)?;
        }
        drawn.push(Some(svg));
    }
    let made = drawn.iter().flatten().count();
    let page = report::page(&inputs, &notes, drawn);
    let index = args.out.join("index.html");
    write(&index, draw::page::html(&page).as_bytes())?;
    print(&format!(
        "{made} of {} figures from {} runs: {}",
        FIGURES.len(),
        inputs.lines.len(),
        index.display()
    ))
}

fn write(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    fs::write(file, bytes).with_context(|| format!("cannot write `{}`", file.display()))
}
