//! `bear estimate`: TTFT estimates of JSON lines, one answer or error line each.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use clap::Parser;

use crate::latency::lines::{self, LineOptions};

/// Estimates first-token times: reads JSON lines (snapshot, calibration, query), writes one JSON line each.
///
/// A line that cannot be answered gives {"error", "line", "path"} in its place, the rest goes on, and the
/// exit status is 1.
#[derive(Debug, Parser)]
pub struct Args {
    /// The file to read; `-` is standard input.
    file: PathBuf,
    /// Replays step by step. Every estimate does so today; this keeps it when a faster replay exists.
    #[arg(long)]
    plain: bool,
    /// Adds the replayed batches to each answer.
    #[arg(long)]
    trace: bool,
}

/// Answers every line of the input.
///
/// # Errors
/// The input cannot be read, the output cannot be written, or some line had an error.
pub fn run(args: Args) -> anyhow::Result<()> {
    // The plain replay is the only one, with the flag and without.
    let Args { file, plain: _, trace } = args;
    let options = LineOptions { trace, ..LineOptions::default() };
    let mut output = BufWriter::new(io::stdout().lock());
    let (lines, bad) = answer_lines(open(&file)?, &mut output, options)?;
    output.flush().context("cannot write to standard output")?;
    ensure!(bad == 0, "{bad} of {lines} lines had errors; see their output lines for the place");
    Ok(())
}

fn open(file: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    if file == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let opened = File::open(file).with_context(|| format!("cannot open `{}`", file.display()))?;
    Ok(Box::new(BufReader::new(opened)))
}

/// Returns how many lines were read and how many of them had errors; blank lines are passed over.
fn answer_lines(
    input: impl BufRead,
    output: &mut impl Write,
    options: LineOptions,
) -> anyhow::Result<(usize, usize)> {
    let (mut lines, mut bad) = (0, 0);
    for (index, line) in input.split(b'\n').enumerate() {
        let line = line.with_context(|| format!("cannot read line {}", index + 1))?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        lines += 1;
        let json = match lines::answer(&line, options) {
            Ok(answer) => serde_json::to_string(&answer)?,
            Err(error) => {
                bad += 1;
                error.to_line(index + 1).to_string()
            }
        };
        writeln!(output, "{json}").context("cannot write to standard output")?;
    }
    Ok((lines, bad))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_line_names_its_place_and_the_rest_goes_on() {
        let good = include_str!("../../tests/data/replay/idle.json").replace('\n', " ");
        let bad = good.replace("\"prompt_tokens\"", "\"prompt_tokens\":1,\"promt\"");
        let input = format!("{good}\n{bad}\n\n\u{0}\n{good}");
        let mut output = Vec::new();
        let counts = answer_lines(input.as_bytes(), &mut output, LineOptions::default()).unwrap();
        assert_eq!(counts, (4, 2));
        let text = String::from_utf8(output).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0], lines[3]);
        assert!(lines[0]["ttft_s"].is_f64(), "{}", lines[0]);
        assert_eq!((&lines[1]["line"], &lines[1]["path"]), (&2.into(), &"query.promt".into()));
        assert!(lines[1]["error"].as_str().unwrap().contains("promt"));
        assert_eq!(lines[2]["line"], 4);
    }
}
