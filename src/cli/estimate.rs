//! `bear estimate`: TTFT estimates of JSON lines, one answer or error line each.

use std::{io::Write, path::PathBuf};

use anyhow::Context;
use clap::Parser;

use super::json_lines::{self, Line, Verdict};
use crate::latency::lines::{self, LineOptions};

/// Estimates first-token times: reads JSON lines (snapshot, calibration, query), writes one JSON line each.
///
/// A line that cannot be answered gives {"error", "line", "path"} in its place, the rest goes on, and the
/// exit status is 1. Coefficients of `calibration` are seconds from 0 to 1e6; another value is such an error.
#[derive(Debug, Parser)]
pub struct Args {
    /// The file to read; `-` is standard input.
    file: PathBuf,
    /// Replays step by step: slower, with the same answer.
    #[arg(long)]
    plain: bool,
    /// Adds the replayed batches to each answer; replays step by step.
    ///
    /// A trace ends after 100,000 batches or a million ids, and the answer then has "trace_truncated": true.
    /// In it the query is called `query` and unlisted requests `beyond0`, `beyond1`, …; a resident of such a
    /// name has its place added: `query@snapshot.running[0]`.
    #[arg(long)]
    trace: bool,
}

/// Answers every line of the input.
///
/// # Errors
/// The input cannot be read, the output cannot be written, or some line had an error.
pub fn run(args: Args) -> anyhow::Result<()> {
    let Args { file, plain, trace } = args;
    let options = LineOptions { plain, trace, ..LineOptions::default() };
    json_lines::answer(&file, |line, output| answer_line(line, output, options))
}

fn answer_line(line: Line<'_>, output: &mut dyn Write, options: LineOptions) -> anyhow::Result<Verdict> {
    let (json, verdict) = match lines::answer(line.bytes, options) {
        Ok(answer) => (serde_json::to_string(&answer)?, Verdict::Answered),
        Err(error) => (error.to_line(line.number).to_string(), Verdict::Bad),
    };
    output.write_all(json.as_bytes()).context("cannot write to standard output")?;
    Ok(verdict)
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
        let answer =
            |line: Line<'_>, output: &mut dyn Write| answer_line(line, output, LineOptions::default());
        let counts = json_lines::answer_lines(input.as_bytes(), &mut output, answer).unwrap();
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
